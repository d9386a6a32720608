/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/images.h"

/* A recovery of a model's store takes at most so many operations, and usually about a third. */
enum { RECOVERY_OPERATIONS = 90, INTERRUPTIONS_MAX = 3, FULL_LOOK_EVERY = 12 };

static const char *const end_names[MACHINE_END_COUNT] = {
    [MACHINE_KILLED] = "killed",
    [MACHINE_LOST_ALL_UNSYNCED] = "all unsynced lost",
    [MACHINE_LOST_NOTHING] = "nothing lost",
    [MACHINE_LOST_AT_RANDOM] = "lost at random",
};

struct looker {
    struct process_config config;
    const struct contents *contents;
    enum look look;
    struct prng *prng;
};

static void delete_index(struct machine *machine);
static void recover_and_look(const struct looker *looker, const char *what, struct seen *seen);
static void interrupt_recovery(const struct looker *looker, enum machine_end *end);

size_t image_check(struct image *image,
                   const struct process_config *config,
                   const struct contents *contents,
                   struct prng *prng)
{
    struct machine other;
    struct seen first;
    struct seen second;
    struct looker looker = {.config = *config, .contents = contents, .prng = prng};
    struct clock_sim clock = *config->clock;
    size_t images = 1;
    enum machine_end end = (enum machine_end)prng_below(prng, MACHINE_END_COUNT);
    const bool same =
        end != MACHINE_KILLED; /* what a kill leaves unsynced a power cut may take later */
    looker.config.clock = &clock;
    looker.look = chance(prng, FULL_LOOK_EVERY) ? LOOK_AT_ALL : LOOK_AT_SMALL_AND_SOME;
    model_trace("image: %s", end_names[end]);
    machine_end(&image->machine, end, prng_next(prng));

    machine_copy(&other, &image->machine);
    looker.config.machine = &other;
    recover_and_look(&looker, "after a crash", &first);
    seen_check(&first, &image->expected, end_names[end]);
    if (chance(prng, 3)) {
        /* What was seen had to be durable: else somebody has read what then goes. */
        machine_end(&other, MACHINE_LOST_ALL_UNSYNCED, prng_next(prng));
        recover_and_look(&looker, "recovered twice", &second);
        seen_compare(&first, &second, "recovered twice");
        images++;
    }
    if (chance(prng, 4)) {
        delete_index(&other);
        recover_and_look(&looker, "recovered, then without its index", &second);
        seen_compare(&first, &second, "recovered, then without its index");
    }
    machine_destroy(&other);

    if (chance(prng, 3)) {
        machine_copy(&other, &image->machine);
        delete_index(&other);
        recover_and_look(&looker, "without its index", &second);
        seen_compare(&first, &second, "without its index");
        machine_destroy(&other);
    }

    looker.config.machine = &image->machine;
    const size_t interruptions = prng_below(prng, INTERRUPTIONS_MAX + 1);
    bool killed_only = true;
    for (size_t i = 0; i < interruptions; i++) {
        interrupt_recovery(&looker, &end);
        killed_only = killed_only && end == MACHINE_KILLED;
        images++;
    }
    if (interruptions > 0) {
        recover_and_look(&looker, "after a crash in recovery", &second);
        seen_check(&second, &image->expected, "after a crash in recovery");
        if (same || killed_only)
            seen_compare(&first, &second, "after a crash in recovery");
    }
    machine_destroy(&image->machine);
    return images;
}

void machine_look(const struct process_config *config,
                  const struct contents *contents,
                  struct prng *prng,
                  struct seen *seen)
{
    struct machine copy;
    struct looker looker = {
        .config = *config, .contents = contents, .look = LOOK_AT_SMALL_AND_SOME, .prng = prng};
    struct clock_sim clock = *config->clock;
    machine_copy(&copy, config->machine);
    looker.config.machine = &copy;
    looker.config.clock = &clock;
    recover_and_look(&looker, "in the next life", seen);
    machine_destroy(&copy);
}

static void delete_index(struct machine *machine)
{
    struct status status;
    index_sim_use(machine->index);
    ASSERT(index_destroy(MODEL_INDEX, &status));
}

static void recover_and_look(const struct looker *looker, const char *what, struct seen *seen)
{
    struct metrics metrics = {0};
    struct store *store = NULL;
    struct index *index = NULL;
    struct recovery_report report;
    struct status status;
    if (!store_look_open(&looker->config, &metrics, &store, &index, &report, &status))
        model_fail("%s the store does not open: %s: %s", what, status_code_name(status.code),
                   status.message);
    seen_in_store(seen, store, looker->contents, looker->look, looker->prng);
    if (chance(looker->prng, 2))
        for (size_t lane = 0; lane < LANE_COUNT; lane++)
            segment_log_maintain(store->logs[lane]);
    store_look_close(store, index);
    io_sim_kill(looker->config.machine->disk);
}

static void interrupt_recovery(const struct looker *looker, enum machine_end *end)
{
    struct machine *const machine = looker->config.machine;
    struct metrics metrics = {0};
    struct store *store = NULL;
    struct index *index = NULL;
    struct recovery_report report;
    struct status status;
    io_sim_cut_power_at(machine->disk, 1 + prng_below(looker->prng, RECOVERY_OPERATIONS));
    if (store_look_open(&looker->config, &metrics, &store, &index, &report, &status)) {
        for (size_t lane = 0; lane < LANE_COUNT; lane++)
            segment_log_maintain(store->logs[lane]);
        store_look_close(store, index);
    }
    *end = (enum machine_end)prng_below(looker->prng, MACHINE_END_COUNT);
    machine_end(machine, *end, prng_next(looker->prng));
}
