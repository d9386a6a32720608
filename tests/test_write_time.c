/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a result that replaces another, or is written after a deletion, is later than that, and a deletion later than what it
 * deletes, whatever is done to the clock: set back, running ahead at another node, with a restart or without.
 *
 * Method: a store whose clock the test sets, and its log as others are told of it.
 */
#include <check.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "durability/feed.h"
#include "durability/forget.h"
#include "durability/forget_order.h"
#include "server/action_time.h"
#include "store/find.h"
#include "store/write_time.h"
#include "tests/sim/clock_sim.h"
#include "tests/support/messages.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"

#define HOUR_NS (3600 * NS_PER_S)
#define NOON_NS (500000 * HOUR_NS)

static struct clock_sim sim_clock;
static struct store_rig rig;

static struct store *store(void)
{
    return durability_store(rig.durability);
}

static void setup(void)
{
    clock_sim_init(&sim_clock, NOON_NS);
    const struct store_rig_limits limits = {.clock = &sim_clock.clock};
    store_rig_start_limited(&rig, STORE_RIG_SIMULATED, &limits);
}

static void teardown(void)
{
    store_rig_end(&rig);
}

/* As UpdateActionResult writes it; its time. */
static int64_t update(const struct digest *action)
{
    struct store_put put;
    struct status status = {0};
    struct action_record fields = {.node_uid = store()->node_uid,
                                   .writer = bytes_of_string("test"),
                                   .result = bytes_of_string("result")};
    fields.written_wall_ns = action_time_of_writing(store(), action, fields.instance);
    uint8_t fixed[ACTION_RECORD_FIXED_BYTES];
    action_record_fixed_put(fixed, &fields);
    struct bytes parts[] = {bytes_of(fixed, sizeof(fixed)), fields.writer, fields.result};
    struct record record = {
        .kind = RECORD_ACTION, .digest = *action, .payload = {.parts = parts, .count = 3}};
    record.payload_bytes = bytes_list_length(record.payload);
    record.payload_crc32c = crc32c_list(0, record.payload);
    store_put_start_record(&rig, &put, &record, LANE_SMALL);
    ck_assert_msg(store_put_finish(&put, &status), "%s", status.message);
    return fields.written_wall_ns;
}

static bool is_there(const struct digest *action)
{
    struct place place;
    return store_find_action(store(), action, bytes_of(NULL, 0), FIND_ONLY, &place);
}

/* As somebody orders it here; the time that others are told. */
static int64_t delete_here(const struct digest *action)
{
    const struct bytes instance = {0};
    struct place place;
    struct arena arena;
    struct feed_batch batch;
    struct status status = {0};
    ck_assert(store_find_action(store(), action, instance, FIND_ONLY, &place));
    durability_forget(rig.durability, action, &instance, place, RECORD_ACTION, FORGET_PURGED);
    forget_wait(store());
    const struct feed_query query = {.lane = LANE_SMALL,
                                     .records_max = 1000,
                                     .bytes_max = MIB,
                                     .kinds = FEED_KIND(RECORD_FORGET)};
    arena_init(&arena, 16 * MIB);
    ck_assert(feed_read(durability_feed(rig.durability), &query, &arena, &batch, &status));
    ck_assert_uint_gt(batch.count, 0);
    const int64_t wall_ns = batch.entries[batch.count - 1].wall_ns;
    arena_destroy(&arena);
    return wall_ns;
}

/* As it is told by another node; is it carried out? */
static bool delete_as_told(const struct digest *action, int64_t wall_ns)
{
    const struct forget_order order = {
        .digest = *action, .kind = RECORD_ACTION, .origin_uid = 99, .wall_ns = wall_ns};
    const bool carried_out =
        forget_order_carry_out(store(), durability_feed(rig.durability),
                               durability_commit(rig.durability, LANE_SMALL), &order, NULL);
    forget_wait(store());
    return carried_out;
}

static void restart(void)
{
    store_rig_close(&rig);
    store_rig_open(&rig);
}

START_TEST(times_go_forward_when_the_clock_goes_back)
{
    const int64_t first_ns = write_time_next(store());
    ck_assert_int_eq(first_ns, NOON_NS);
    ck_assert_int_gt(write_time_next(store()), first_ns); /* it stands still */
    clock_sim_set_wall(&sim_clock, NOON_NS - HOUR_NS);
    ck_assert_int_gt(write_time_next(store()), first_ns);
    ck_assert_int_gt(write_time_latest(store()), first_ns);
    clock_sim_set_wall(&sim_clock, NOON_NS + HOUR_NS);
    ck_assert_int_eq(write_time_next(store()), NOON_NS + HOUR_NS);
}
END_TEST

START_TEST(times_follow_those_of_others_but_for_what_leaves_no_room)
{
    write_time_heard(store(), NOON_NS - HOUR_NS);
    ck_assert_int_eq(write_time_next(store()), NOON_NS);
    write_time_heard(store(), NOON_NS + HOUR_NS);
    ck_assert_int_gt(write_time_next(store()), NOON_NS + HOUR_NS);
    write_time_heard(store(), WRITE_TIME_MAX_NS);
    ck_assert_int_lt(write_time_next(store()), NOON_NS + 2 * HOUR_NS);
}
END_TEST

/* With a restart in between nothing is remembered but what is stored. */
START_TEST(an_update_is_later_than_what_it_replaces)
{
    const struct digest action = digest_of_nothing(1);
    const int64_t before_ns = update(&action);
    clock_sim_set_wall(&sim_clock, NOON_NS - HOUR_NS);
    if (_i == 1)
        restart();
    ck_assert_int_gt(update(&action), before_ns);
}
END_TEST

/* It was evicted here, say, and others still have it. */
START_TEST(an_update_is_later_than_what_was_here_before_and_is_gone)
{
    const struct digest action = digest_of_nothing(1);
    const struct bytes instance = {0};
    const int64_t before_ns = update(&action);
    struct place place;
    ck_assert(store_find_action(store(), &action, instance, FIND_ONLY, &place));
    durability_forget(rig.durability, &action, &instance, place, RECORD_ACTION, FORGET_DAMAGED);
    clock_sim_set_wall(&sim_clock, NOON_NS - HOUR_NS);
    ck_assert_int_gt(update(&action), before_ns);
}
END_TEST

START_TEST(a_deletion_is_later_than_what_it_deletes)
{
    const struct digest action = digest_of_nothing(1);
    const int64_t written_ns = update(&action);
    clock_sim_set_wall(&sim_clock, NOON_NS - HOUR_NS);
    if (_i == 1)
        restart();
    ck_assert_int_ge(delete_here(&action), written_ns);
    ck_assert(!is_there(&action));
}
END_TEST

START_TEST(an_update_after_a_deletion_is_not_deleted_when_that_is_told_again)
{
    const struct digest action = digest_of_nothing(1);
    update(&action);
    /* The clock of whoever orders it is ahead. */
    write_time_heard(store(), NOON_NS + HOUR_NS);
    ck_assert(delete_as_told(&action, NOON_NS + HOUR_NS));
    ck_assert(!is_there(&action));
    update(&action);
    ck_assert(!delete_as_told(&action, NOON_NS + HOUR_NS));
    restart(); /* which forgets that it was carried out */
    ck_assert(!delete_as_told(&action, NOON_NS + HOUR_NS));
    ck_assert(is_there(&action));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("write_time");
    TCase *tests = tcase_create("on a simulated disk");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, times_go_forward_when_the_clock_goes_back);
    tcase_add_test(tests, times_follow_those_of_others_but_for_what_leaves_no_room);
    tcase_add_loop_test(tests, an_update_is_later_than_what_it_replaces, 0, 2);
    tcase_add_test(tests, an_update_is_later_than_what_was_here_before_and_is_gone);
    tcase_add_loop_test(tests, a_deletion_is_later_than_what_it_deletes, 0, 2);
    tcase_add_test(tests, an_update_after_a_deletion_is_not_deleted_when_that_is_told_again);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
