/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and directories are nodes. A file has two contents: `cached` is what everybody reads, `durable` what is on
 * disk, and a list of changes leads from one to the other. A directory has two sets of entries in the same way; changes of
 * names are in one list for all directories.
 */
#include "tests/sim/io_sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/lock.h"
#include "tests/sim/sparse_bytes.h"

enum { SECTOR_BYTES = 512, FIRST_FD = 1000, NAME_BYTES_MAX = 256 };

#define FILE_BYTES_MAX (256 * GIB)
#define UNLIMITED_BYTES (1024 * GIB)

/* What changed in a file since its last sync, in order. */
enum change_kind {
    CHANGE_WRITE, /* data at offset; grows the file to its end */
    CHANGE_GROW,  /* the size becomes offset, if it is smaller */
    CHANGE_CUT,   /* the size becomes offset, which is smaller */
};

struct change {
    struct change *next; /* owned */
    uint64_t sequence;
    enum change_kind kind;
    bool lost; /* a sync failed on it: it only grows the file from then on */
    uint64_t offset;
    size_t length;
    uint8_t data[];
};

enum layer { LIVE, DURABLE, LAYER_COUNT };

struct entry {
    char *name;        /* owned */
    struct node *node; /* shared */
};

struct entries {
    struct entry *items; /* owned */
    size_t count, capacity;
};

enum node_kind { NODE_FILE, NODE_DIRECTORY };

struct node {
    struct node *next, *previous; /* of all nodes */
    enum node_kind kind;
    size_t references; /* entries of both layers, changes of names, descriptors */
    size_t uses;       /* live entries and descriptors: while there are any it takes space */

    /* Of a file. */
    struct sparse_bytes cached;
    struct sparse_bytes durable;
    struct change *first_change; /* owned */
    struct change *last_change;
    bool diverged; /* a sync has failed: the cache shows more than the disk and the changes explain */
    bool locked;

    /* Of a directory. */
    struct entries entries[LAYER_COUNT];
};

/* The making (no `from`), removing (no `to`) or renaming of a name; all nodes are shared. */
struct name_change {
    struct name_change *next;
    struct node *node;
    struct node *from_directory, *to_directory;
    char from_name[NAME_BYTES_MAX], to_name[NAME_BYTES_MAX];
};

struct descriptor {
    struct node *node; /* shared; NULL once it is closed */
    bool writable;
    bool holds_lock;
};

struct fault {
    uint64_t in; /* this many operations; 0: no fault */
    int error_number;
    enum io_sim_repeat repeat;
};

struct io_sim {
    struct io io; /* its ops are set by io_sim_new(), never changed */

    struct lock lock; /* guards all that follows */
    struct node *nodes;
    struct node *root; /* shared */
    struct name_change *first_name_change;
    struct name_change *last_name_change;
    struct descriptor *descriptors; /* index is fd - FIRST_FD; numbers are never used again */
    size_t descriptors_count, descriptors_capacity;
    uint64_t sequence; /* of the last change */

    uint64_t counts[IO_SIM_ANY + 1];
    struct fault faults[IO_SIM_ANY + 1];
    uint64_t failures;
    uint64_t power_cut_in; /* this many operations; 0: none is ordered */
    bool powerless;
    size_t transfer_max;
    uint64_t interrupt_every, interruptible_done;
    uint64_t capacity_bytes;
    int64_t sync_delay_ns;
};

static const struct io_ops sim_ops;

static int begin_locked(struct io_sim *sim, enum io_sim_operation operation) REQUIRES(sim->lock);
static struct node *node_new(struct io_sim *sim, enum node_kind kind);
static void node_release(struct io_sim *sim, struct node *node);
static struct entry *entries_find(const struct entries *entries, const char *name);
static void entries_set(struct io_sim *sim, struct node *directory, enum layer layer, const char *name,
                        struct node *node);
static void entries_remove(struct io_sim *sim, struct node *directory, enum layer layer, const char *name);
static void entries_clear(struct io_sim *sim, struct node *directory, enum layer layer);
static int find_parent(struct io_sim *sim, const char *path, struct node **directory, char name[NAME_BYTES_MAX]);
static int find_node(struct io_sim *sim, const char *path, struct node **node);
static void change_names(struct io_sim *sim, struct node *node, struct node *from_directory, const char *from_name,
                         struct node *to_directory, const char *to_name);
static void apply_name_change(struct io_sim *sim, const struct name_change *change, enum layer layer);
static void name_change_free(struct io_sim *sim, struct name_change *change);
static int descriptor_new(struct io_sim *sim, struct node *node, bool writable, bool holds_lock);
static struct descriptor *descriptor_find(struct io_sim *sim, int fd);
static void descriptor_close(struct io_sim *sim, struct descriptor *descriptor);
static struct change *add_change(struct io_sim *sim, struct node *node, enum change_kind kind, uint64_t offset,
                                 size_t length);
static void apply_change(struct sparse_bytes *content, const struct change *change);
static void drop_changes_until(struct node *node, uint64_t sequence);
static uint64_t free_bytes_locked(struct io_sim *sim) REQUIRES(sim->lock);

static struct io_sim *sim_of(struct io *io)
{
    return CONTAINER_OF(io, struct io_sim, io);
}

/* ---- the life of a disk, and its controls */

struct io_sim *io_sim_new(void)
{
    struct io_sim *const sim = calloc(1, sizeof(*sim));
    ASSERT(sim != NULL);
    sim->io.ops = &sim_ops;
    lock_init(&sim->lock, LOCK_RANK_IO_SIM);
    sim->root = node_new(sim, NODE_DIRECTORY);
    sim->root->references++;
    return sim;
}

void io_sim_free(struct io_sim *sim)
{
    if (sim == NULL)
        return;
    for (size_t i = 0; i < sim->descriptors_count; i++)
        descriptor_close(sim, &sim->descriptors[i]);
    while (sim->first_name_change != NULL) {
        struct name_change *const change = sim->first_name_change;
        sim->first_name_change = change->next;
        name_change_free(sim, change);
    }
    node_release(sim, sim->root);
    ASSERT(sim->nodes == NULL);
    lock_destroy(&sim->lock);
    free(sim->descriptors);
    free(sim);
}

struct io *io_sim_io(struct io_sim *sim)
{
    return &sim->io;
}

void io_sim_fail(struct io_sim *sim, enum io_sim_operation operation, uint64_t nth, int error_number,
                 enum io_sim_repeat repeat)
{
    ASSERT(operation <= IO_SIM_ANY);
    ASSERT(nth > 0 && error_number > 0);
    lock_acquire(&sim->lock);
    sim->faults[operation] = (struct fault){.in = nth, .error_number = error_number, .repeat = repeat};
    lock_release(&sim->lock);
}

static void fail_nothing_locked(struct io_sim *sim) REQUIRES(sim->lock)
{
    memset(sim->faults, 0, sizeof(sim->faults));
}

void io_sim_fail_nothing(struct io_sim *sim)
{
    lock_acquire(&sim->lock);
    fail_nothing_locked(sim);
    lock_release(&sim->lock);
}

uint64_t io_sim_failures(struct io_sim *sim)
{
    lock_acquire(&sim->lock);
    const uint64_t failures = sim->failures;
    lock_release(&sim->lock);
    return failures;
}

void io_sim_cut_power_at(struct io_sim *sim, uint64_t nth)
{
    ASSERT(nth > 0);
    lock_acquire(&sim->lock);
    sim->power_cut_in = nth;
    lock_release(&sim->lock);
}

void io_sim_set_transfer_max(struct io_sim *sim, size_t bytes)
{
    lock_acquire(&sim->lock);
    sim->transfer_max = bytes;
    lock_release(&sim->lock);
}

void io_sim_set_interrupt_every(struct io_sim *sim, uint64_t nth)
{
    ASSERT(nth != 1); /* nothing would ever get done */
    lock_acquire(&sim->lock);
    sim->interrupt_every = nth;
    lock_release(&sim->lock);
}

void io_sim_set_capacity(struct io_sim *sim, uint64_t bytes)
{
    lock_acquire(&sim->lock);
    sim->capacity_bytes = bytes;
    lock_release(&sim->lock);
}

void io_sim_set_sync_delay(struct io_sim *sim, int64_t duration_ns)
{
    ASSERT(duration_ns >= 0);
    lock_acquire(&sim->lock);
    sim->sync_delay_ns = duration_ns;
    lock_release(&sim->lock);
}

uint64_t io_sim_count(struct io_sim *sim, enum io_sim_operation operation)
{
    ASSERT(operation <= IO_SIM_ANY);
    lock_acquire(&sim->lock);
    const uint64_t count = sim->counts[operation];
    lock_release(&sim->lock);
    return count;
}

void io_sim_corrupt(struct io_sim *sim, const char *path, uint64_t offset, uint8_t bits)
{
    lock_acquire(&sim->lock);
    struct node *node;
    ASSERT(find_node(sim, path, &node) == 0);
    ASSERT(node->kind == NODE_FILE && offset < node->cached.size_bytes);
    struct sparse_bytes *const contents[] = {&node->cached, &node->durable};
    for (size_t i = 0; i < ARRAY_LENGTH(contents); i++) {
        if (offset >= contents[i]->size_bytes)
            continue;
        uint8_t byte;
        sparse_bytes_read(contents[i], offset, &byte, 1);
        byte ^= bits;
        sparse_bytes_write(contents[i], offset, &byte, 1);
    }
    lock_release(&sim->lock);
}

/* ---- crashes */

/* How a crash treats one list of changes; drawn from the seed for each file and for the names. */
enum fate {
    FATE_NOTHING,
    FATE_EVERYTHING,
    FATE_PREFIX, /* what came first survives, the one after it in part */
    FATE_SECTORS, /* every sector and size by chance */
    FATE_HOLES,   /* the size is right, every sector by chance */
    FATE_COUNT,
};

static uint64_t random_next(uint64_t *state);
static uint64_t random_below(uint64_t *state, uint64_t bound);
static void close_all_locked(struct io_sim *sim) REQUIRES(sim->lock);
static void crash_names_locked(struct io_sim *sim, uint64_t *random, enum io_sim_crash_mode mode)
    REQUIRES(sim->lock);
static void crash_file(struct node *file, uint64_t *random, enum io_sim_crash_mode mode);
static void crash_file_by_chance(struct node *file, uint64_t *random);

void io_sim_crash(struct io_sim *sim, uint64_t seed, enum io_sim_crash_mode mode)
{
    uint64_t random = seed;
    lock_acquire(&sim->lock);

    /* No node goes away while we walk over them. */
    for (struct node *node = sim->nodes; node != NULL; node = node->next)
        node->references++;
    close_all_locked(sim);
    crash_names_locked(sim, &random, mode);
    for (struct node *node = sim->nodes; node != NULL; node = node->next) {
        if (node->kind == NODE_FILE) {
            crash_file(node, &random, mode);
            continue;
        }
        entries_clear(sim, node, LIVE);
        for (size_t i = 0; i < node->entries[DURABLE].count; i++)
            entries_set(sim, node, LIVE, node->entries[DURABLE].items[i].name, node->entries[DURABLE].items[i].node);
    }
    struct node *next;
    for (struct node *node = sim->nodes; node != NULL; node = next) {
        next = node->next;
        node_release(sim, node);
    }

    fail_nothing_locked(sim);
    sim->power_cut_in = 0;
    sim->powerless = false;
    lock_release(&sim->lock);
}

void io_sim_kill(struct io_sim *sim)
{
    lock_acquire(&sim->lock);
    close_all_locked(sim);
    fail_nothing_locked(sim);
    lock_release(&sim->lock);
}

static void close_all_locked(struct io_sim *sim)
{
    for (size_t i = 0; i < sim->descriptors_count; i++)
        descriptor_close(sim, &sim->descriptors[i]);
}

static void crash_names_locked(struct io_sim *sim, uint64_t *random, enum io_sim_crash_mode mode)
{
    size_t count = 0;
    for (const struct name_change *change = sim->first_name_change; change != NULL; change = change->next)
        count++;
    const bool in_order = random_below(random, 2) == 0; /* as a journal keeps them */
    size_t in_order_left = (size_t)random_below(random, count + 1);

    while (sim->first_name_change != NULL) {
        struct name_change *const change = sim->first_name_change;
        bool survives = mode == IO_SIM_CRASH_EVERYTHING;
        if (mode == IO_SIM_CRASH_RANDOM)
            survives = in_order ? in_order_left > 0 : random_below(random, 2) == 0;
        if (in_order_left > 0)
            in_order_left--;
        if (survives)
            apply_name_change(sim, change, DURABLE);
        sim->first_name_change = change->next;
        name_change_free(sim, change);
    }
    sim->last_name_change = NULL;
}

static void crash_file(struct node *file, uint64_t *random, enum io_sim_crash_mode mode)
{
    if (mode == IO_SIM_CRASH_EVERYTHING)
        for (const struct change *change = file->first_change; change != NULL; change = change->next)
            apply_change(&file->durable, change);
    else if (mode == IO_SIM_CRASH_RANDOM && file->first_change != NULL)
        crash_file_by_chance(file, random);

    drop_changes_until(file, UINT64_MAX);
    sparse_bytes_copy(&file->cached, &file->durable);
    file->diverged = false;
}

/*
 * A disk gets whole sectors, each as the cache has it at some moment. So the changes are played through in a copy of the
 * old content, and after each one the sectors that it touched are taken over, or not.
 */
static void crash_file_by_chance(struct node *file, uint64_t *random)
{
    const enum fate fate = (enum fate)random_below(random, FATE_COUNT);
    const uint64_t chance_of_8 = 1 + random_below(random, 7);
    size_t count = 0;
    for (const struct change *change = file->first_change; change != NULL; change = change->next)
        count++;
    const size_t prefix = (size_t)random_below(random, count + 1);

    struct sparse_bytes *const disk = &file->durable;
    struct sparse_bytes playing = {0};
    sparse_bytes_copy(&playing, disk);
    uint64_t disk_size = disk->size_bytes;
    size_t index = 0;

    for (const struct change *change = file->first_change; change != NULL; change = change->next, index++) {
        const bool all = fate == FATE_EVERYTHING || (fate == FATE_PREFIX && index < prefix);
        const bool none = fate == FATE_NOTHING || (fate == FATE_PREFIX && index > prefix);
        const uint64_t chance = all ? 8 : none ? 0 : chance_of_8;
        const bool size_survives = fate == FATE_HOLES || random_below(random, 8) < chance;
        const uint64_t end = change->offset + change->length;

        switch (change->kind) {
        case CHANGE_WRITE:
            sparse_bytes_write(&playing, change->offset, change->data, change->length);
            for (uint64_t at = change->offset / SECTOR_BYTES * SECTOR_BYTES; at < end; at += SECTOR_BYTES) {
                uint8_t sector[SECTOR_BYTES];
                sparse_bytes_read(&playing, at, sector, sizeof(sector));
                if (random_below(random, 8) < chance)
                    sparse_bytes_write(disk, at, sector, sizeof(sector));
            }
            if (size_survives && end > disk_size)
                disk_size = end;
            break;
        case CHANGE_GROW:
            if (size_survives && change->offset > disk_size)
                disk_size = change->offset;
            break;
        case CHANGE_CUT:
            /* Size and blocks go in one step, as a journal has it. */
            sparse_bytes_set_size(&playing, change->offset);
            if (size_survives && change->offset < disk_size) {
                sparse_bytes_set_size(disk, change->offset);
                disk_size = change->offset;
            }
            break;
        }
    }
    sparse_bytes_set_size(disk, disk_size);
    sparse_bytes_destroy(&playing);
}

/* SplitMix64: any seed will do. */
static uint64_t random_next(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t mixed = *state;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

static uint64_t random_below(uint64_t *state, uint64_t bound)
{
    return random_next(state) % bound;
}

/* ---- what every operation begins with */

static int pass_fault(struct fault *fault);

/* Counts it; 0, or the -errno that was ordered. */
static int begin_locked(struct io_sim *sim, enum io_sim_operation operation)
{
    static const bool interruptible[IO_SIM_ANY] = {
        [IO_SIM_OPEN] = true,     [IO_SIM_PREAD] = true,    [IO_SIM_PWRITEV] = true,
        [IO_SIM_ALLOCATE] = true, [IO_SIM_TRUNCATE] = true, [IO_SIM_LOCK] = true,
    };

    sim->counts[operation]++;
    sim->counts[IO_SIM_ANY]++;
    if (sim->power_cut_in > 0 && --sim->power_cut_in == 0)
        sim->powerless = true;
    if (sim->powerless)
        return -EIO;
    if (interruptible[operation] && sim->interrupt_every > 0 &&
        ++sim->interruptible_done % sim->interrupt_every == 0)
        return -EINTR;

    const int of_any = pass_fault(&sim->faults[IO_SIM_ANY]);
    const int of_kind = pass_fault(&sim->faults[operation]);
    if (of_any == 0 && of_kind == 0)
        return 0;
    sim->failures++;
    return of_kind != 0 ? of_kind : of_any;
}

static int pass_fault(struct fault *fault)
{
    if (fault->in == 0)
        return 0;
    if (fault->in > 1) {
        fault->in--;
        return 0;
    }
    if (fault->repeat == IO_SIM_ONCE)
        fault->in = 0;
    return -fault->error_number;
}

/* ---- operations on names */

static int open_locked(struct io_sim *sim, const char *path, enum io_open_mode mode) REQUIRES(sim->lock)
{
    struct node *directory;
    char name[NAME_BYTES_MAX];
    const int result = find_parent(sim, path, &directory, name);
    if (result < 0)
        return result;

    const struct entry *const entry = entries_find(&directory->entries[LIVE], name);
    if (mode == IO_OPEN_CREATE_NEW) {
        if (entry != NULL)
            return -EEXIST;
        struct node *const node = node_new(sim, NODE_FILE);
        change_names(sim, node, NULL, NULL, directory, name);
        return descriptor_new(sim, node, true, false);
    }
    if (entry == NULL)
        return -ENOENT;
    if (entry->node->kind != NODE_FILE)
        return -EISDIR;
    return descriptor_new(sim, entry->node, mode == IO_OPEN_WRITE, false);
}

static int sim_open(struct io *io, const char *path, enum io_open_mode mode)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int result = begin_locked(sim, IO_SIM_OPEN);
    if (result == 0)
        result = open_locked(sim, path, mode);
    lock_release(&sim->lock);
    return result;
}

static int lock_file_locked(struct io_sim *sim, const char *path) REQUIRES(sim->lock)
{
    struct node *directory;
    char name[NAME_BYTES_MAX];
    const int result = find_parent(sim, path, &directory, name);
    if (result < 0)
        return result;

    const struct entry *const entry = entries_find(&directory->entries[LIVE], name);
    struct node *node;
    if (entry == NULL) {
        node = node_new(sim, NODE_FILE);
        change_names(sim, node, NULL, NULL, directory, name);
    } else {
        node = entry->node;
        if (node->kind != NODE_FILE)
            return -EISDIR;
        if (node->locked)
            return -EWOULDBLOCK;
    }
    node->locked = true;
    return descriptor_new(sim, node, true, true);
}

static int sim_lock(struct io *io, const char *path)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int result = begin_locked(sim, IO_SIM_LOCK);
    if (result == 0)
        result = lock_file_locked(sim, path);
    lock_release(&sim->lock);
    return result;
}

static int rename_locked(struct io_sim *sim, const char *from, const char *to) REQUIRES(sim->lock)
{
    struct node *from_directory;
    struct node *to_directory;
    char from_name[NAME_BYTES_MAX];
    char to_name[NAME_BYTES_MAX];
    int result = find_parent(sim, from, &from_directory, from_name);
    if (result == 0)
        result = find_parent(sim, to, &to_directory, to_name);
    if (result < 0)
        return result;

    const struct entry *const source = entries_find(&from_directory->entries[LIVE], from_name);
    const struct entry *const target = entries_find(&to_directory->entries[LIVE], to_name);
    if (source == NULL)
        return -ENOENT;
    if (target != NULL && target->node == source->node)
        return 0;
    if (target != NULL && target->node->kind == NODE_DIRECTORY)
        return source->node->kind == NODE_DIRECTORY ? -ENOTEMPTY : -EISDIR;
    if (target != NULL && source->node->kind == NODE_DIRECTORY)
        return -ENOTDIR;
    change_names(sim, source->node, from_directory, from_name, to_directory, to_name);
    return 0;
}

static int sim_rename(struct io *io, const char *from, const char *to)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int result = begin_locked(sim, IO_SIM_RENAME);
    if (result == 0)
        result = rename_locked(sim, from, to);
    lock_release(&sim->lock);
    return result;
}

static int unlink_locked(struct io_sim *sim, const char *path) REQUIRES(sim->lock)
{
    struct node *directory;
    char name[NAME_BYTES_MAX];
    const int result = find_parent(sim, path, &directory, name);
    if (result < 0)
        return result;
    const struct entry *const entry = entries_find(&directory->entries[LIVE], name);
    if (entry == NULL)
        return -ENOENT;
    if (entry->node->kind == NODE_DIRECTORY)
        return -EISDIR;
    change_names(sim, entry->node, directory, name, NULL, NULL);
    return 0;
}

static int sim_unlink(struct io *io, const char *path)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int result = begin_locked(sim, IO_SIM_UNLINK);
    if (result == 0)
        result = unlink_locked(sim, path);
    lock_release(&sim->lock);
    return result;
}

static int make_directory_locked(struct io_sim *sim, const char *path) REQUIRES(sim->lock)
{
    struct node *existing;
    if (find_node(sim, path, &existing) == 0)
        return -EEXIST;
    struct node *directory;
    char name[NAME_BYTES_MAX];
    const int result = find_parent(sim, path, &directory, name);
    if (result < 0)
        return result;
    change_names(sim, node_new(sim, NODE_DIRECTORY), NULL, NULL, directory, name);
    return 0;
}

static int sim_make_directory(struct io *io, const char *path)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int result = begin_locked(sim, IO_SIM_MAKE_DIRECTORY);
    if (result == 0)
        result = make_directory_locked(sim, path);
    lock_release(&sim->lock);
    return result;
}

static int find_directory(struct io_sim *sim, const char *path, struct node **directory)
{
    const int result = find_node(sim, path, directory);
    if (result < 0)
        return result;
    return (*directory)->kind == NODE_DIRECTORY ? 0 : -ENOTDIR;
}

static int sync_directory_locked(struct io_sim *sim, const char *path) REQUIRES(sim->lock)
{
    struct node *directory;
    const int result = find_directory(sim, path, &directory);
    if (result < 0)
        return result;

    struct name_change **link = &sim->first_name_change;
    sim->last_name_change = NULL;
    while (*link != NULL) {
        struct name_change *const change = *link;
        if (change->from_directory != directory && change->to_directory != directory) {
            sim->last_name_change = change;
            link = &change->next;
            continue;
        }
        apply_name_change(sim, change, DURABLE);
        *link = change->next;
        name_change_free(sim, change);
    }
    return 0;
}

static int sim_sync_directory(struct io *io, const char *path)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int result = begin_locked(sim, IO_SIM_SYNC_DIRECTORY);
    if (result == 0)
        result = sync_directory_locked(sim, path);
    lock_release(&sim->lock);
    return result;
}

struct name_list {
    char **names; /* owned */
    size_t count;
};

static int list_locked(struct io_sim *sim, const char *path, struct name_list *list) REQUIRES(sim->lock)
{
    struct node *directory;
    const int result = find_directory(sim, path, &directory);
    if (result < 0)
        return result;
    const struct entries *const entries = &directory->entries[LIVE];
    list->names = calloc(entries->count + 1, sizeof(*list->names));
    ASSERT(list->names != NULL);
    for (list->count = 0; list->count < entries->count; list->count++) {
        list->names[list->count] = strdup(entries->items[list->count].name);
        ASSERT(list->names[list->count] != NULL);
    }
    return 0;
}

static int sim_list(struct io *io, const char *path, bool (*each)(void *argument, const char *name), void *argument)
{
    struct io_sim *const sim = sim_of(io);
    struct name_list list = {0};
    lock_acquire(&sim->lock);
    int result = begin_locked(sim, IO_SIM_LIST);
    if (result == 0)
        result = list_locked(sim, path, &list);
    lock_release(&sim->lock);

    /* Without the lock: who is told a name may well open the file. */
    bool more = true;
    for (size_t i = 0; i < list.count; i++) {
        more = more && each(argument, list.names[i]);
        free(list.names[i]);
    }
    free(list.names);
    return result;
}

static int space_locked(struct io_sim *sim, const char *path, struct io_space *space) REQUIRES(sim->lock)
{
    struct node *node;
    const int result = find_node(sim, path, &node);
    if (result < 0)
        return result;
    *space = (struct io_space){
        .total_bytes = sim->capacity_bytes > 0 ? sim->capacity_bytes : UNLIMITED_BYTES,
        .free_bytes = free_bytes_locked(sim),
    };
    return 0;
}

static int sim_space(struct io *io, const char *path, struct io_space *space)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int result = begin_locked(sim, IO_SIM_SPACE);
    if (result == 0)
        result = space_locked(sim, path, space);
    lock_release(&sim->lock);
    return result;
}

/* ---- operations on descriptors */

static int sim_close(struct io *io, int fd)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int result = begin_locked(sim, IO_SIM_CLOSE);
    struct descriptor *const descriptor = descriptor_find(sim, fd);
    if (descriptor != NULL)
        descriptor_close(sim, descriptor);
    else
        result = -EBADF;
    lock_release(&sim->lock);
    return result;
}

static int64_t pread_locked(struct io_sim *sim, int fd, void *buffer, size_t length, uint64_t offset)
    REQUIRES(sim->lock)
{
    const struct descriptor *const descriptor = descriptor_find(sim, fd);
    if (descriptor == NULL)
        return -EBADF;
    if (offset > INT64_MAX)
        return -EINVAL;
    const struct sparse_bytes *const content = &descriptor->node->cached;
    if (offset >= content->size_bytes)
        return 0;
    if (length > content->size_bytes - offset)
        length = (size_t)(content->size_bytes - offset);
    if (sim->transfer_max > 0 && length > sim->transfer_max)
        length = sim->transfer_max;
    sparse_bytes_read(content, offset, buffer, length);
    return (int64_t)length;
}

static int64_t sim_pread(struct io *io, int fd, void *buffer, size_t length, uint64_t offset)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int64_t result = begin_locked(sim, IO_SIM_PREAD);
    if (result == 0)
        result = pread_locked(sim, fd, buffer, length, offset);
    lock_release(&sim->lock);
    return result;
}

/* How much of a write of this length there fits on the disk. */
static size_t writable_length_locked(struct io_sim *sim, const struct node *node, uint64_t offset, size_t length)
    REQUIRES(sim->lock)
{
    const uint64_t size_bytes = node->cached.size_bytes;
    if (offset + length <= size_bytes)
        return length;
    const uint64_t end_max = size_bytes + free_bytes_locked(sim);
    if (offset + length <= end_max)
        return length;
    return end_max > offset ? (size_t)(end_max - offset) : 0;
}

static int64_t pwritev_locked(struct io_sim *sim, int fd, const struct iovec *parts, int count, uint64_t offset)
    REQUIRES(sim->lock)
{
    const struct descriptor *const descriptor = descriptor_find(sim, fd);
    if (descriptor == NULL || !descriptor->writable)
        return -EBADF;
    struct node *const node = descriptor->node;
    size_t wanted = 0;
    for (int i = 0; i < count; i++)
        wanted += parts[i].iov_len;
    if (wanted == 0)
        return 0;
    if (offset > FILE_BYTES_MAX || wanted > FILE_BYTES_MAX - offset)
        return -EFBIG;
    if (sim->transfer_max > 0 && wanted > sim->transfer_max)
        wanted = sim->transfer_max;
    const size_t length = writable_length_locked(sim, node, offset, wanted);
    if (length == 0)
        return -ENOSPC;

    struct change *const change = add_change(sim, node, CHANGE_WRITE, offset, length);
    size_t copied = 0;
    for (int i = 0; copied < length; i++) {
        const size_t step = parts[i].iov_len < length - copied ? parts[i].iov_len : length - copied;
        if (step > 0)
            memcpy(change->data + copied, parts[i].iov_base, step);
        copied += step;
    }
    apply_change(&node->cached, change);
    return (int64_t)length;
}

static int64_t sim_pwritev(struct io *io, int fd, const struct iovec *parts, int count, uint64_t offset)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int64_t result = begin_locked(sim, IO_SIM_PWRITEV);
    if (result == 0)
        result = pwritev_locked(sim, fd, parts, count, offset);
    lock_release(&sim->lock);
    return result;
}

/* Ends a sync that began when `sequence` was the last change, and fails if error is not 0. */
static int end_sync_locked(struct io_sim *sim, int fd, uint64_t sequence, int error) REQUIRES(sim->lock)
{
    const struct descriptor *const descriptor = descriptor_find(sim, fd);
    if (descriptor == NULL)
        return -EBADF;
    struct node *const node = descriptor->node;
    if (sim->powerless)
        return -EIO;
    if (error != 0) {
        for (struct change *change = node->first_change; change != NULL; change = change->next)
            if (change->sequence <= sequence)
                change->lost = true;
        node->diverged = true;
        return error;
    }
    for (const struct change *change = node->first_change; change != NULL && change->sequence <= sequence;
         change = change->next)
        apply_change(&node->durable, change);
    drop_changes_until(node, sequence);
    return 0;
}

static void sleep_ns(int64_t duration_ns)
{
    struct timespec left = {.tv_sec = duration_ns / NS_PER_S, .tv_nsec = duration_ns % NS_PER_S};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

static int sim_sync(struct io *io, int fd)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    const int error = begin_locked(sim, IO_SIM_SYNC);
    const uint64_t sequence = sim->sequence;
    const int64_t delay_ns = sim->sync_delay_ns;
    lock_release(&sim->lock);

    if (delay_ns > 0)
        sleep_ns(delay_ns);

    lock_acquire(&sim->lock);
    const int result = end_sync_locked(sim, fd, sequence, error);
    lock_release(&sim->lock);
    return result;
}

static int allocate_locked(struct io_sim *sim, int fd, uint64_t length) REQUIRES(sim->lock)
{
    const struct descriptor *const descriptor = descriptor_find(sim, fd);
    if (descriptor == NULL || !descriptor->writable)
        return -EBADF;
    if (length > FILE_BYTES_MAX)
        return -EFBIG;
    struct node *const node = descriptor->node;
    if (length <= node->cached.size_bytes)
        return 0;
    if (length - node->cached.size_bytes > free_bytes_locked(sim))
        return -ENOSPC;
    apply_change(&node->cached, add_change(sim, node, CHANGE_GROW, length, 0));
    return 0;
}

static int sim_allocate(struct io *io, int fd, uint64_t length)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int result = begin_locked(sim, IO_SIM_ALLOCATE);
    if (result == 0)
        result = allocate_locked(sim, fd, length);
    lock_release(&sim->lock);
    return result;
}

static int truncate_locked(struct io_sim *sim, int fd, uint64_t length) REQUIRES(sim->lock)
{
    const struct descriptor *const descriptor = descriptor_find(sim, fd);
    if (descriptor == NULL || !descriptor->writable)
        return -EBADF;
    if (length > FILE_BYTES_MAX)
        return -EFBIG;
    struct node *const node = descriptor->node;
    if (length == node->cached.size_bytes)
        return 0;
    const enum change_kind kind = length < node->cached.size_bytes ? CHANGE_CUT : CHANGE_GROW;
    apply_change(&node->cached, add_change(sim, node, kind, length, 0));
    return 0;
}

static int sim_truncate(struct io *io, int fd, uint64_t length)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int result = begin_locked(sim, IO_SIM_TRUNCATE);
    if (result == 0)
        result = truncate_locked(sim, fd, length);
    lock_release(&sim->lock);
    return result;
}

/* What is dirty stays, as in Linux; what only seems clean shows its true face. */
static int drop_cache_locked(struct io_sim *sim, int fd) REQUIRES(sim->lock)
{
    const struct descriptor *const descriptor = descriptor_find(sim, fd);
    if (descriptor == NULL)
        return -EBADF;
    struct node *const node = descriptor->node;
    if (!node->diverged)
        return 0;
    sparse_bytes_copy(&node->cached, &node->durable);
    for (const struct change *change = node->first_change; change != NULL; change = change->next)
        apply_change(&node->cached, change);
    return 0;
}

static int sim_drop_cache(struct io *io, int fd)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int result = begin_locked(sim, IO_SIM_DROP_CACHE);
    if (result == 0)
        result = drop_cache_locked(sim, fd);
    lock_release(&sim->lock);
    return result;
}

static int64_t sim_size(struct io *io, int fd)
{
    struct io_sim *const sim = sim_of(io);
    lock_acquire(&sim->lock);
    int64_t result = begin_locked(sim, IO_SIM_SIZE);
    const struct descriptor *const descriptor = descriptor_find(sim, fd);
    if (result == 0)
        result = descriptor == NULL ? -EBADF : (int64_t)descriptor->node->cached.size_bytes;
    lock_release(&sim->lock);
    return result;
}

static const struct io_ops sim_ops = {
    .open = sim_open,
    .close = sim_close,
    .pread = sim_pread,
    .pwritev = sim_pwritev,
    .sync = sim_sync,
    .allocate = sim_allocate,
    .truncate = sim_truncate,
    .drop_cache = sim_drop_cache,
    .size = sim_size,
    .rename = sim_rename,
    .unlink = sim_unlink,
    .make_directory = sim_make_directory,
    .sync_directory = sim_sync_directory,
    .list = sim_list,
    .space = sim_space,
    .lock = sim_lock,
};

/* ---- nodes, entries, paths */

static struct node *node_new(struct io_sim *sim, enum node_kind kind)
{
    struct node *const node = calloc(1, sizeof(*node));
    ASSERT(node != NULL);
    node->kind = kind;
    node->next = sim->nodes;
    if (sim->nodes != NULL)
        sim->nodes->previous = node;
    sim->nodes = node;
    return node;
}

/* Gives one reference up; without any the node goes, and what only it names. */
static void node_release(struct io_sim *sim, struct node *node)
{
    ASSERT(node->references > 0);
    if (--node->references > 0)
        return;
    ASSERT(node->uses == 0);
    entries_clear(sim, node, LIVE);
    entries_clear(sim, node, DURABLE);
    drop_changes_until(node, UINT64_MAX);
    sparse_bytes_destroy(&node->cached);
    sparse_bytes_destroy(&node->durable);
    if (node->previous != NULL)
        node->previous->next = node->next;
    else
        sim->nodes = node->next;
    if (node->next != NULL)
        node->next->previous = node->previous;
    free(node);
}

static struct entry *entries_find(const struct entries *entries, const char *name)
{
    for (size_t i = 0; i < entries->count; i++)
        if (strcmp(entries->items[i].name, name) == 0)
            return &entries->items[i];
    return NULL;
}

/* Adds the name or points it elsewhere. */
static void entries_set(struct io_sim *sim, struct node *directory, enum layer layer, const char *name,
                        struct node *node)
{
    struct entries *const entries = &directory->entries[layer];
    node->references++;
    if (layer == LIVE)
        node->uses++;
    entries_remove(sim, directory, layer, name);
    if (entries->count == entries->capacity) {
        const size_t capacity = entries->capacity == 0 ? 8 : 2 * entries->capacity;
        struct entry *const items = realloc(entries->items, capacity * sizeof(*items));
        ASSERT(items != NULL);
        entries->items = items;
        entries->capacity = capacity;
    }
    char *const copy = strdup(name);
    ASSERT(copy != NULL);
    entries->items[entries->count++] = (struct entry){.name = copy, .node = node};
}

static void entries_remove(struct io_sim *sim, struct node *directory, enum layer layer, const char *name)
{
    struct entries *const entries = &directory->entries[layer];
    struct entry *const entry = entries_find(entries, name);
    if (entry == NULL)
        return;
    struct node *const node = entry->node;
    free(entry->name);
    *entry = entries->items[--entries->count];
    if (layer == LIVE)
        node->uses--;
    node_release(sim, node);
}

static void entries_clear(struct io_sim *sim, struct node *directory, enum layer layer)
{
    struct entries *const entries = &directory->entries[layer];
    while (entries->count > 0)
        entries_remove(sim, directory, layer, entries->items[entries->count - 1].name);
    free(entries->items);
    *entries = (struct entries){0};
}

/* The next component of a path: its length, and *path behind it; 0 at the end. */
static size_t next_component(const char **path, const char **component)
{
    while (true) {
        *path += strspn(*path, "/");
        *component = *path;
        const size_t length = strcspn(*path, "/");
        *path += length;
        if (length != 1 || (*component)[0] != '.')
            return length;
    }
}

/* The directory that a path's last component is or would be in, and that component. */
static int find_parent(struct io_sim *sim, const char *path, struct node **directory, char name[NAME_BYTES_MAX])
{
    struct node *at = sim->root;
    const char *component;
    size_t length = next_component(&path, &component);
    if (length == 0)
        return -EEXIST; /* the root has no name */

    while (true) {
        if (length >= NAME_BYTES_MAX)
            return -ENAMETOOLONG;
        memcpy(name, component, length);
        name[length] = '\0';
        ASSERT(strcmp(name, "..") != 0);

        length = next_component(&path, &component);
        if (length == 0) {
            *directory = at;
            return 0;
        }
        const struct entry *const entry = entries_find(&at->entries[LIVE], name);
        if (entry == NULL)
            return -ENOENT;
        if (entry->node->kind != NODE_DIRECTORY)
            return -ENOTDIR;
        at = entry->node;
    }
}

static int find_node(struct io_sim *sim, const char *path, struct node **node)
{
    struct node *directory;
    char name[NAME_BYTES_MAX];
    const int result = find_parent(sim, path, &directory, name);
    if (result == -EEXIST) {
        *node = sim->root;
        return 0;
    }
    if (result < 0)
        return result;
    const struct entry *const entry = entries_find(&directory->entries[LIVE], name);
    if (entry == NULL)
        return -ENOENT;
    *node = entry->node;
    return 0;
}

/* ---- changes of names and of contents */

/* Done in the live layer at once, noted for the durable one. */
static void change_names(struct io_sim *sim, struct node *node, struct node *from_directory, const char *from_name,
                         struct node *to_directory, const char *to_name)
{
    struct name_change *const change = calloc(1, sizeof(*change));
    ASSERT(change != NULL);
    change->node = node;
    node->references++;
    if (from_directory != NULL) {
        change->from_directory = from_directory;
        from_directory->references++;
        memcpy(change->from_name, from_name, strlen(from_name) + 1);
    }
    if (to_directory != NULL) {
        change->to_directory = to_directory;
        to_directory->references++;
        memcpy(change->to_name, to_name, strlen(to_name) + 1);
    }
    if (sim->last_name_change != NULL)
        sim->last_name_change->next = change;
    else
        sim->first_name_change = change;
    sim->last_name_change = change;
    apply_name_change(sim, change, LIVE);
}

/* A name that means another node by now (on a disk that missed the change before) is left alone. */
static void apply_name_change(struct io_sim *sim, const struct name_change *change, enum layer layer)
{
    if (change->from_directory != NULL) {
        const struct entry *const entry =
            entries_find(&change->from_directory->entries[layer], change->from_name);
        if (entry != NULL && entry->node == change->node)
            entries_remove(sim, change->from_directory, layer, change->from_name);
    }
    if (change->to_directory != NULL)
        entries_set(sim, change->to_directory, layer, change->to_name, change->node);
}

static void name_change_free(struct io_sim *sim, struct name_change *change)
{
    node_release(sim, change->node);
    if (change->from_directory != NULL)
        node_release(sim, change->from_directory);
    if (change->to_directory != NULL)
        node_release(sim, change->to_directory);
    free(change);
}

static int descriptor_new(struct io_sim *sim, struct node *node, bool writable, bool holds_lock)
{
    if (sim->descriptors_count == sim->descriptors_capacity) {
        const size_t capacity = sim->descriptors_capacity == 0 ? 64 : 2 * sim->descriptors_capacity;
        struct descriptor *const descriptors = realloc(sim->descriptors, capacity * sizeof(*descriptors));
        ASSERT(descriptors != NULL);
        sim->descriptors = descriptors;
        sim->descriptors_capacity = capacity;
    }
    node->references++;
    node->uses++;
    sim->descriptors[sim->descriptors_count] =
        (struct descriptor){.node = node, .writable = writable, .holds_lock = holds_lock};
    return FIRST_FD + (int)sim->descriptors_count++;
}

static struct descriptor *descriptor_find(struct io_sim *sim, int fd)
{
    if (fd < FIRST_FD || (size_t)(fd - FIRST_FD) >= sim->descriptors_count)
        return NULL;
    struct descriptor *const descriptor = &sim->descriptors[fd - FIRST_FD];
    return descriptor->node == NULL ? NULL : descriptor;
}

static void descriptor_close(struct io_sim *sim, struct descriptor *descriptor)
{
    struct node *const node = descriptor->node;
    if (node == NULL)
        return;
    if (descriptor->holds_lock)
        node->locked = false;
    node->uses--;
    *descriptor = (struct descriptor){0};
    node_release(sim, node);
}

static struct change *add_change(struct io_sim *sim, struct node *node, enum change_kind kind, uint64_t offset,
                                 size_t length)
{
    struct change *const change = malloc(sizeof(*change) + length);
    ASSERT(change != NULL);
    *change = (struct change){.sequence = ++sim->sequence, .kind = kind, .offset = offset, .length = length};
    if (node->last_change != NULL)
        node->last_change->next = change;
    else
        node->first_change = change;
    node->last_change = change;
    return change;
}

static void apply_change(struct sparse_bytes *content, const struct change *change)
{
    const uint64_t end = change->offset + change->length;
    if (change->kind == CHANGE_CUT) {
        if (change->offset < content->size_bytes)
            sparse_bytes_set_size(content, change->offset);
        return;
    }
    if (end > content->size_bytes)
        sparse_bytes_set_size(content, end);
    if (!change->lost)
        sparse_bytes_write(content, change->offset, change->data, change->length);
}

static void drop_changes_until(struct node *node, uint64_t sequence)
{
    while (node->first_change != NULL && node->first_change->sequence <= sequence) {
        struct change *const change = node->first_change;
        node->first_change = change->next;
        free(change);
    }
    if (node->first_change == NULL)
        node->last_change = NULL;
}

static uint64_t free_bytes_locked(struct io_sim *sim)
{
    const uint64_t capacity_bytes = sim->capacity_bytes > 0 ? sim->capacity_bytes : UNLIMITED_BYTES;
    uint64_t used_bytes = 0;
    for (const struct node *node = sim->nodes; node != NULL; node = node->next)
        if (node->uses > 0)
            used_bytes += node->cached.size_bytes;
    return used_bytes < capacity_bytes ? capacity_bytes - used_bytes : 0;
}
