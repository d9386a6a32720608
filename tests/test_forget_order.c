/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a deletion which another node has ordered is carried out once, keeps its origin and its time so that it travels on
 * as the same, and does not touch what was stored anew or written later. On the simulated disk.
 */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "durability/forget_order.h"
#include "store/find.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"

enum { ELSEWHERE = 4711 };

static struct store_rig rig;
static struct status status;

struct waiter {
    struct ack ack;
    _Atomic int code; /* -1: not called back */
};

static void setup(void)
{
    store_rig_start(&rig, STORE_RIG_SIMULATED);
}

static void teardown(void)
{
    store_rig_end(&rig);
}

static void done(struct ack *ack, const struct status *result)
{
    CONTAINER_OF(ack, struct waiter, ack)->code = (int)result->code;
}

/* True if something was forgotten, durably. */
static bool carry_out(const struct forget_order *order)
{
    struct waiter waiter = {.ack = {.done = done}, .code = -1};
    if (!forget_order_carry_out(durability_store(rig.durability), durability_feed(rig.durability),
                                durability_commit(rig.durability, LANE_SMALL), order, &waiter.ack))
        return false;
    while (waiter.code < 0)
        usleep(1000);
    ck_assert_int_eq(waiter.code, STATUS_OK);
    return true;
}

static struct digest put(size_t length)
{
    struct digest digest;
    uint8_t *const data = seeded_bytes(length, length);
    ck_assert(store_rig_put(&rig, bytes_of(data, length), &digest, &status));
    free(data);
    return digest;
}

static void put_action(const struct digest *action)
{
    /* Dated 1 ns after the epoch. */
    ck_assert(store_rig_put_action(&rig, action, "x", bytes_of_string("result"), &status));
}

START_TEST(an_order_is_carried_out_and_travels_on_as_the_same)
{
    static const size_t lengths[] = {100, 2 * MIB};
    for (size_t i = 0; i < ARRAY_LENGTH(lengths); i++) {
        const struct digest digest = put(lengths[i]);
        const struct forget_order order = {.digest = digest,
                                           .kind = i == 0 ? RECORD_BLOB : RECORD_MANIFEST,
                                           .origin_uid = ELSEWHERE,
                                           .wall_ns = 1000 + (int64_t)i};
        ck_assert(carry_out(&order));
        ck_assert(!store_rig_has(&rig, &digest));

        struct arena arena;
        struct feed_batch batch;
        const struct feed_query query = {
            .lane = LANE_SMALL, .records_max = 10, .kinds = FEED_KIND(RECORD_FORGET)};
        arena_init(&arena, MIB);
        ck_assert(feed_read(durability_feed(rig.durability), &query, &arena, &batch, &status));
        ck_assert_uint_eq(batch.count, i + 1);
        ck_assert(digest_equal(&batch.entries[i].digest, &digest));
        ck_assert_uint_eq(batch.entries[i].origin_uid, ELSEWHERE);
        ck_assert_int_eq(batch.entries[i].wall_ns, order.wall_ns);
        arena_destroy(&arena);

        store_rig_crash(&rig, i, IO_SIM_CRASH_NOTHING);
        store_rig_open(&rig);
        ck_assert(!store_rig_has(&rig, &digest));
    }
}
END_TEST

START_TEST(an_order_that_is_told_twice_leaves_what_was_stored_anew)
{
    const struct digest digest = put(100);
    struct forget_order order = {
        .digest = digest, .kind = RECORD_BLOB, .origin_uid = ELSEWHERE, .wall_ns = 1000};
    ck_assert(carry_out(&order));
    put(100);
    ck_assert(!carry_out(&order));
    ck_assert(store_rig_has(&rig, &digest));
    /* After a start, too: a position in a peer's log is stored after what it covers. */
    store_rig_crash(&rig, 1, IO_SIM_CRASH_NOTHING);
    store_rig_open(&rig);
    ck_assert(!carry_out(&order));
    ck_assert(store_rig_has(&rig, &digest));
    /* Another one is another one. */
    order.wall_ns = 1001;
    ck_assert(carry_out(&order));
    put(100);
    order.origin_uid = ELSEWHERE + 1;
    ck_assert(carry_out(&order));
    ck_assert(!store_rig_has(&rig, &digest));
}
END_TEST

START_TEST(an_order_for_what_is_not_here_is_done_with_too)
{
    struct digest digest;
    uint8_t *const data = seeded_bytes(100, 100);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(data, 100), &digest);
    free(data);
    const struct forget_order order = {
        .digest = digest, .kind = RECORD_BLOB, .origin_uid = ELSEWHERE, .wall_ns = 1000};
    ck_assert(!carry_out(&order));
    put(100);
    ck_assert(!carry_out(&order));
    ck_assert(store_rig_has(&rig, &digest));
}
END_TEST

START_TEST(this_node_s_own_order_comes_back_and_does_nothing)
{
    const struct digest digest = put(100);
    const struct forget_order order = {.digest = digest,
                                       .kind = RECORD_BLOB,
                                       .origin_uid = durability_store(rig.durability)->node_uid,
                                       .wall_ns = 1000};
    ck_assert(!carry_out(&order));
    ck_assert(store_rig_has(&rig, &digest));
}
END_TEST

START_TEST(an_action_result_goes_unless_it_was_written_later)
{
    const struct digest action = put(100);
    struct forget_order order = {.digest = action,
                                 .instance = bytes_of_string("x"),
                                 .kind = RECORD_ACTION,
                                 .origin_uid = ELSEWHERE,
                                 .wall_ns = 0};
    put_action(&action);
    ck_assert(!carry_out(&order));
    order.wall_ns = 1;
    order.instance = bytes_of_string("y");
    ck_assert(!carry_out(&order));
    order.wall_ns = 2;
    order.instance = bytes_of_string("x");
    ck_assert(carry_out(&order));
    char *const result = store_rig_action(&rig, &action, "x");
    ck_assert_ptr_null(result);
    ck_assert(store_rig_has(&rig, &action)); /* the blob of that digest is another thing */
}
END_TEST

START_TEST(an_order_with_an_instance_that_none_has_does_nothing)
{
    static const char instance[LIMIT_INSTANCE_NAME_BYTES + 1] = {'i'};
    const struct digest action = put(100);
    const struct forget_order order = {.digest = action,
                                       .instance = bytes_of(instance, sizeof(instance)),
                                       .kind = RECORD_ACTION,
                                       .origin_uid = ELSEWHERE,
                                       .wall_ns = 1};
    ck_assert(!carry_out(&order));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("forget_order");
    TCase *tests = tcase_create("orders");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, an_order_is_carried_out_and_travels_on_as_the_same);
    tcase_add_test(tests, an_order_that_is_told_twice_leaves_what_was_stored_anew);
    tcase_add_test(tests, an_order_for_what_is_not_here_is_done_with_too);
    tcase_add_test(tests, this_node_s_own_order_comes_back_and_does_nothing);
    tcase_add_test(tests, an_action_result_goes_unless_it_was_written_later);
    tcase_add_test(tests, an_order_with_an_instance_that_none_has_does_nothing);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
