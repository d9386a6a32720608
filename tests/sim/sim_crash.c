/* SPDX-License-Identifier: Apache-2.0 */
/* What a power cut leaves on the disk of sim_tree.h: a part of it. */
#include "tests/sim/sim_tree.h"

#include "base/compiler.h"

enum { SECTOR_BYTES = 512 };

/* How a crash treats one list of changes; drawn from the seed for each file and for the names. */
enum fate {
    FATE_NOTHING,
    FATE_EVERYTHING,
    FATE_PREFIX,  /* what came first survives, the one after it in part */
    FATE_SECTORS, /* every sector and size by chance */
    FATE_HOLES,   /* the size is right, every sector by chance */
    FATE_COUNT,
};

static uint64_t random_next(uint64_t *state);
static uint64_t random_below(uint64_t *state, uint64_t bound);
static void crash_names(struct sim_tree *tree, uint64_t *random, enum io_sim_crash_mode mode);
static bool follows_lost(const struct sim_tree *tree, const struct sim_name_change *change);
static void crash_file(struct sim_node *file, uint64_t *random, enum io_sim_crash_mode mode);
static void crash_file_by_chance(struct sim_node *file, uint64_t *random);

void sim_tree_crash(struct sim_tree *tree, uint64_t seed, enum io_sim_crash_mode mode)
{
    uint64_t random = seed;

    /* No node goes away while we walk over them. */
    for (struct sim_node *node = tree->nodes; node != NULL; node = node->next)
        node->references++;
    crash_names(tree, &random, mode);
    for (struct sim_node *node = tree->nodes; node != NULL; node = node->next) {
        if (node->kind == SIM_FILE)
            crash_file(node, &random, mode);
        else
            sim_directory_revert(tree, node);
    }
    struct sim_node *next;
    for (struct sim_node *node = tree->nodes; node != NULL; node = next) {
        next = node->next;
        sim_node_release(tree, node);
    }
}

static void crash_names(struct sim_tree *tree, uint64_t *random, enum io_sim_crash_mode mode)
{
    size_t count = 0;
    for (const struct sim_name_change *change = tree->first_name_change; change != NULL;
         change = change->next)
        count++;
    const bool in_order = random_below(random, 2) == 0; /* as a journal keeps them */
    size_t in_order_left = (size_t)random_below(random, count + 1);

    for (struct sim_name_change *change = tree->first_name_change; change != NULL;
         change = change->next) {
        change->chosen = mode == IO_SIM_CRASH_EVERYTHING;
        if (mode == IO_SIM_CRASH_RANDOM && in_order)
            change->chosen = in_order_left > 0;
        else if (mode == IO_SIM_CRASH_RANDOM)
            change->chosen = random_below(random, 2) == 0 && !follows_lost(tree, change);
        if (in_order_left > 0)
            in_order_left--;
    }
    sim_tree_keep_chosen_names(tree);
    sim_tree_forget_names(tree);
}

/* Whether the same name has a change before this one that the disk does not see. */
static bool follows_lost(const struct sim_tree *tree, const struct sim_name_change *change)
{
    for (const struct sim_name_change *before = tree->first_name_change; before != change;
         before = before->next)
        if (!before->chosen && sim_name_changes_meet(before, change))
            return true;
    return false;
}

static void crash_file(struct sim_node *file, uint64_t *random, enum io_sim_crash_mode mode)
{
    if (mode == IO_SIM_CRASH_EVERYTHING)
        for (const struct sim_change *change = file->first_change; change != NULL;
             change = change->next)
            sim_change_apply(change, &file->durable);
    else if (mode == IO_SIM_CRASH_RANDOM && file->first_change != NULL)
        crash_file_by_chance(file, random);

    sim_file_drop_changes(file, UINT64_MAX);
    sparse_bytes_copy(&file->cached, &file->durable);
    file->diverged = false;
}

/*
 * A disk gets whole sectors, each as the cache has it at some moment. So the changes are played
 * through in a copy of the old content, and after each one the sectors that it touched are taken
 * over, or not.
 */
static void crash_file_by_chance(struct sim_node *file, uint64_t *random)
{
    const enum fate fate = (enum fate)random_below(random, FATE_COUNT);
    const uint64_t chance_of_8 = 1 + random_below(random, 7);
    size_t count = 0;
    for (const struct sim_change *change = file->first_change; change != NULL;
         change = change->next)
        count++;
    const size_t prefix = (size_t)random_below(random, count + 1);

    struct sparse_bytes *const disk = &file->durable;
    struct sparse_bytes playing = {0};
    sparse_bytes_copy(&playing, disk);
    uint64_t disk_size = disk->size_bytes;
    size_t index = 0;

    for (const struct sim_change *change = file->first_change; change != NULL;
         change = change->next, index++) {
        const bool all = fate == FATE_EVERYTHING || (fate == FATE_PREFIX && index < prefix);
        const bool none = fate == FATE_NOTHING || (fate == FATE_PREFIX && index > prefix);
        const uint64_t chance = all ? 8 : none ? 0 : chance_of_8;
        const bool size_survives = fate == FATE_HOLES || random_below(random, 8) < chance;
        const uint64_t end = change->offset + change->length;

        switch (change->kind) {
        case SIM_CHANGE_WRITE:
            sparse_bytes_write(&playing, change->offset, change->data->bytes, change->length);
            for (uint64_t at = change->offset / SECTOR_BYTES * SECTOR_BYTES; at < end;
                 at += SECTOR_BYTES) {
                uint8_t sector[SECTOR_BYTES];
                sparse_bytes_read(&playing, at, sector, sizeof(sector));
                if (random_below(random, 8) < chance)
                    sparse_bytes_write(disk, at, sector, sizeof(sector));
            }
            if (size_survives && end > disk_size)
                disk_size = end;
            break;
        case SIM_CHANGE_GROW:
            if (size_survives && change->offset > disk_size)
                disk_size = change->offset;
            break;
        case SIM_CHANGE_CUT:
            /* Size and blocks go in one step, as a journal has it. */
            sparse_bytes_set_size(&playing, change->offset);
            if (size_survives) {
                sparse_bytes_set_size(disk, change->offset);
                if (change->offset < disk_size)
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
