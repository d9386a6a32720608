/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors, failures and operations; files, directories and what is durable of them are in
 * sim_tree.c.
 */
#include "tests/sim/io_sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/lock.h"
#include "tests/sim/sim_tree.h"

enum { FIRST_FD = 1000 };

#define FILE_BYTES_MAX (256 * GIB)
#define UNLIMITED_BYTES (1024 * GIB)

struct descriptor {
    struct sim_node *node; /* shared; NULL once it is closed */
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
    struct sim_tree tree;
    struct descriptor *descriptors; /* index is fd - FIRST_FD; numbers are never used again */
    size_t descriptors_count, descriptors_capacity;

    uint64_t counts[IO_SIM_ANY + 1];
    struct fault faults[IO_SIM_ANY + 1];
    uint64_t failures;
    uint64_t power_cut_in; /* this many operations; 0: none is ordered */
    bool powerless;
    uint64_t copy_in; /* this many operations; 0: no copy is ordered */
    void (*copied)(void *argument, struct io_sim *copy);
    void *copied_argument;
    size_t transfer_max;
    uint64_t interrupt_every, interruptible_done;
    uint64_t capacity_bytes;
    int64_t sync_delay_ns;
};

static const struct io_ops sim_ops;

static int begin_locked(struct io_sim *sim, enum io_sim_operation operation) REQUIRES(sim->lock);
static struct io_sim *copy_locked(struct io_sim *sim) REQUIRES(sim->lock);
static void close_all_locked(struct io_sim *sim) REQUIRES(sim->lock);
static int descriptor_new(struct io_sim *sim,
                          struct sim_node *node,
                          bool writable,
                          bool holds_lock);
static struct descriptor *descriptor_find(struct io_sim *sim, int fd);
static void descriptor_close(struct io_sim *sim, struct descriptor *descriptor);
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
    sim_tree_init(&sim->tree);
    return sim;
}

void io_sim_free(struct io_sim *sim)
{
    if (sim == NULL)
        return;
    for (size_t i = 0; i < sim->descriptors_count; i++)
        descriptor_close(sim, &sim->descriptors[i]);
    sim_tree_destroy(&sim->tree);
    lock_destroy(&sim->lock);
    free(sim->descriptors);
    free(sim);
}

struct io_sim *io_sim_copy(struct io_sim *sim)
{
    lock_acquire(&sim->lock);
    struct io_sim *const copy = copy_locked(sim);
    lock_release(&sim->lock);
    return copy;
}

static struct io_sim *copy_locked(struct io_sim *sim)
{
    struct io_sim *const copy = calloc(1, sizeof(*copy));
    ASSERT(copy != NULL);
    copy->io.ops = &sim_ops;
    lock_init(&copy->lock, LOCK_RANK_IO_SIM);
    sim_tree_copy(&copy->tree, &sim->tree);
    copy->transfer_max = sim->transfer_max;
    copy->interrupt_every = sim->interrupt_every;
    copy->capacity_bytes = sim->capacity_bytes;
    copy->sync_delay_ns = sim->sync_delay_ns;
    return copy;
}

void io_sim_copy_at(struct io_sim *sim,
                    uint64_t nth,
                    void (*copied)(void *argument, struct io_sim *copy),
                    void *argument)
{
    lock_acquire(&sim->lock);
    sim->copy_in = nth;
    sim->copied = copied;
    sim->copied_argument = argument;
    lock_release(&sim->lock);
}

struct io *io_sim_io(struct io_sim *sim)
{
    return &sim->io;
}

void io_sim_fail(struct io_sim *sim,
                 enum io_sim_operation operation,
                 uint64_t nth,
                 int error_number,
                 enum io_sim_repeat repeat)
{
    ASSERT(operation <= IO_SIM_ANY);
    ASSERT(nth > 0 && error_number > 0);
    lock_acquire(&sim->lock);
    sim->faults[operation] =
        (struct fault){.in = nth, .error_number = error_number, .repeat = repeat};
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
    struct sim_node *node;
    ASSERT(sim_tree_find(&sim->tree, path, &node) == 0);
    ASSERT(node->kind == SIM_FILE && offset < node->cached.size_bytes);
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

void io_sim_crash(struct io_sim *sim, uint64_t seed, enum io_sim_crash_mode mode)
{
    lock_acquire(&sim->lock);
    close_all_locked(sim);
    sim_tree_crash(&sim->tree, seed, mode);
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
    sim->power_cut_in = 0;
    sim->powerless = false;
    lock_release(&sim->lock);
}

bool io_sim_has_power(struct io_sim *sim)
{
    lock_acquire(&sim->lock);
    const bool has_power = !sim->powerless;
    lock_release(&sim->lock);
    return has_power;
}

int io_sim_other(struct io_sim *sim)
{
    lock_acquire(&sim->lock);
    const int result = begin_locked(sim, IO_SIM_OTHER);
    lock_release(&sim->lock);
    return result;
}

static void close_all_locked(struct io_sim *sim)
{
    for (size_t i = 0; i < sim->descriptors_count; i++)
        descriptor_close(sim, &sim->descriptors[i]);
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
    if (sim->copy_in > 0 && --sim->copy_in == 0)
        sim->copied(sim->copied_argument, copy_locked(sim));
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

static int open_locked(struct io_sim *sim, const char *path, enum io_open_mode mode)
    REQUIRES(sim->lock)
{
    struct sim_node *directory;
    char name[SIM_NAME_BYTES_MAX];
    const int result = sim_tree_find_parent(&sim->tree, path, &directory, name);
    if (result < 0)
        return result;

    struct sim_node *const entry = sim_tree_lookup(directory, name);
    if (mode == IO_OPEN_CREATE_NEW) {
        if (entry != NULL)
            return -EEXIST;
        struct sim_node *const node = sim_node_new(&sim->tree, SIM_FILE);
        sim_tree_change_name(&sim->tree, node, NULL, NULL, directory, name);
        return descriptor_new(sim, node, true, false);
    }
    if (entry == NULL)
        return -ENOENT;
    if (entry->kind != SIM_FILE)
        return -EISDIR;
    return descriptor_new(sim, entry, mode == IO_OPEN_WRITE, false);
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
    struct sim_node *directory;
    char name[SIM_NAME_BYTES_MAX];
    const int result = sim_tree_find_parent(&sim->tree, path, &directory, name);
    if (result < 0)
        return result;

    struct sim_node *const entry = sim_tree_lookup(directory, name);
    struct sim_node *node;
    if (entry == NULL) {
        node = sim_node_new(&sim->tree, SIM_FILE);
        sim_tree_change_name(&sim->tree, node, NULL, NULL, directory, name);
    } else {
        node = entry;
        if (node->kind != SIM_FILE)
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
    struct sim_node *from_directory = NULL;
    struct sim_node *to_directory = NULL;
    char from_name[SIM_NAME_BYTES_MAX];
    char to_name[SIM_NAME_BYTES_MAX];
    int result = sim_tree_find_parent(&sim->tree, from, &from_directory, from_name);
    if (result == 0)
        result = sim_tree_find_parent(&sim->tree, to, &to_directory, to_name);
    if (result < 0)
        return result;

    struct sim_node *const source = sim_tree_lookup(from_directory, from_name);
    struct sim_node *const target = sim_tree_lookup(to_directory, to_name);
    if (source == NULL)
        return -ENOENT;
    if (target != NULL && target == source)
        return 0;
    if (target != NULL && target->kind == SIM_DIRECTORY)
        return source->kind == SIM_DIRECTORY ? -ENOTEMPTY : -EISDIR;
    if (target != NULL && source->kind == SIM_DIRECTORY)
        return -ENOTDIR;
    sim_tree_change_name(&sim->tree, source, from_directory, from_name, to_directory, to_name);
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
    struct sim_node *directory;
    char name[SIM_NAME_BYTES_MAX];
    const int result = sim_tree_find_parent(&sim->tree, path, &directory, name);
    if (result < 0)
        return result;
    struct sim_node *const entry = sim_tree_lookup(directory, name);
    if (entry == NULL)
        return -ENOENT;
    if (entry->kind == SIM_DIRECTORY)
        return -EISDIR;
    sim_tree_change_name(&sim->tree, entry, directory, name, NULL, NULL);
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
    struct sim_node *existing;
    if (sim_tree_find(&sim->tree, path, &existing) == 0)
        return -EEXIST;
    struct sim_node *directory;
    char name[SIM_NAME_BYTES_MAX];
    const int result = sim_tree_find_parent(&sim->tree, path, &directory, name);
    if (result < 0)
        return result;
    sim_tree_change_name(&sim->tree, sim_node_new(&sim->tree, SIM_DIRECTORY), NULL, NULL, directory,
                         name);
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

static int find_directory(struct io_sim *sim, const char *path, struct sim_node **directory)
{
    const int result = sim_tree_find(&sim->tree, path, directory);
    if (result < 0)
        return result;
    return (*directory)->kind == SIM_DIRECTORY ? 0 : -ENOTDIR;
}

static int sync_directory_locked(struct io_sim *sim, const char *path) REQUIRES(sim->lock)
{
    struct sim_node *directory;
    const int result = find_directory(sim, path, &directory);
    if (result < 0)
        return result;

    sim_tree_sync_names(&sim->tree, directory);
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

static int list_locked(struct io_sim *sim, const char *path, struct name_list *list)
    REQUIRES(sim->lock)
{
    struct sim_node *directory;
    const int result = find_directory(sim, path, &directory);
    if (result < 0)
        return result;
    const struct sim_entries *const entries = &directory->entries[SIM_LIVE];
    list->names = calloc(entries->count + 1, sizeof(*list->names));
    ASSERT(list->names != NULL);
    for (list->count = 0; list->count < entries->count; list->count++) {
        list->names[list->count] = strdup(entries->items[list->count].name);
        ASSERT(list->names[list->count] != NULL);
    }
    return 0;
}

static int sim_list(struct io *io,
                    const char *path,
                    bool (*each)(void *argument, const char *name),
                    void *argument)
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

static int space_locked(struct io_sim *sim, const char *path, struct io_space *space)
    REQUIRES(sim->lock)
{
    struct sim_node *node;
    const int result = sim_tree_find(&sim->tree, path, &node);
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

static int64_t pread_locked(struct io_sim *sim,
                            int fd,
                            void *buffer,
                            size_t length,
                            uint64_t offset) REQUIRES(sim->lock)
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
static size_t writable_length_locked(struct io_sim *sim,
                                     const struct sim_node *node,
                                     uint64_t offset,
                                     size_t length) REQUIRES(sim->lock)
{
    const uint64_t size_bytes = node->cached.size_bytes;
    if (offset + length <= size_bytes)
        return length;
    const uint64_t end_max = size_bytes + free_bytes_locked(sim);
    if (offset + length <= end_max)
        return length;
    return end_max > offset ? (size_t)(end_max - offset) : 0;
}

static int64_t pwritev_locked(struct io_sim *sim,
                              int fd,
                              const struct iovec *parts,
                              int count,
                              uint64_t offset) REQUIRES(sim->lock)
{
    const struct descriptor *const descriptor = descriptor_find(sim, fd);
    if (descriptor == NULL || !descriptor->writable)
        return -EBADF;
    struct sim_node *const node = descriptor->node;
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

    struct sim_change *const change =
        sim_file_add_change(&sim->tree, node, SIM_CHANGE_WRITE, offset, length);
    size_t copied = 0;
    for (int i = 0; copied < length; i++) {
        const size_t step = parts[i].iov_len < length - copied ? parts[i].iov_len : length - copied;
        if (step > 0)
            memcpy(change->data->bytes + copied, parts[i].iov_base, step);
        copied += step;
    }
    sim_change_apply(change, &node->cached);
    return (int64_t)length;
}

static int64_t sim_pwritev(struct io *io,
                           int fd,
                           const struct iovec *parts,
                           int count,
                           uint64_t offset)
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
static int end_sync_locked(struct io_sim *sim, int fd, uint64_t sequence, int error)
    REQUIRES(sim->lock)
{
    const struct descriptor *const descriptor = descriptor_find(sim, fd);
    if (descriptor == NULL)
        return -EBADF;
    struct sim_node *const node = descriptor->node;
    if (sim->powerless)
        return -EIO;
    if (error != 0)
        sim_file_lose_until(node, sequence);
    else
        sim_file_sync_until(node, sequence);
    return error;
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
    const uint64_t sequence = sim->tree.sequence;
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
    struct sim_node *const node = descriptor->node;
    if (length <= node->cached.size_bytes)
        return 0;
    if (length - node->cached.size_bytes > free_bytes_locked(sim))
        return -ENOSPC;
    sim_change_apply(sim_file_add_change(&sim->tree, node, SIM_CHANGE_GROW, length, 0),
                     &node->cached);
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
    struct sim_node *const node = descriptor->node;
    if (length == node->cached.size_bytes)
        return 0;
    const enum sim_change_kind kind =
        length < node->cached.size_bytes ? SIM_CHANGE_CUT : SIM_CHANGE_GROW;
    sim_change_apply(sim_file_add_change(&sim->tree, node, kind, length, 0), &node->cached);
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

static int drop_cache_locked(struct io_sim *sim, int fd) REQUIRES(sim->lock)
{
    const struct descriptor *const descriptor = descriptor_find(sim, fd);
    if (descriptor == NULL)
        return -EBADF;
    sim_file_drop_cache(descriptor->node);
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

/* ---- descriptors and space */

static int descriptor_new(struct io_sim *sim, struct sim_node *node, bool writable, bool holds_lock)
{
    if (sim->descriptors_count == sim->descriptors_capacity) {
        const size_t capacity = sim->descriptors_capacity == 0 ? 64 : 2 * sim->descriptors_capacity;
        struct descriptor *const descriptors =
            realloc(sim->descriptors, capacity * sizeof(*descriptors));
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
    struct sim_node *const node = descriptor->node;
    if (node == NULL)
        return;
    if (descriptor->holds_lock)
        node->locked = false;
    node->uses--;
    *descriptor = (struct descriptor){0};
    sim_node_release(&sim->tree, node);
}

static uint64_t free_bytes_locked(struct io_sim *sim)
{
    const uint64_t capacity_bytes = sim->capacity_bytes > 0 ? sim->capacity_bytes : UNLIMITED_BYTES;
    const uint64_t used_bytes = sim_tree_used_bytes(&sim->tree);
    return used_bytes < capacity_bytes ? capacity_bytes - used_bytes : 0;
}
