/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what one user may take, and all together, and that nobody's limit is another's: with a clock of the test's own, callers as
 * either door makes them, and for the rules of single users an access file.
 */
#include <stdio.h>
#include <stdlib.h>

#include "server/access.h"
#include "server/limits.h"
#include "tests/sim/clock_sim.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

static struct metrics metrics;
static struct clock_sim sim;
static struct limits *limits;
static struct status status;
static int64_t retry_ns;

static void set_up(void)
{
    metrics = (struct metrics){0};
    clock_sim_init(&sim, 1800000000 * NS_PER_S);
    clock_sim_advance(&sim, 100 * NS_PER_S);
}

static void tear_down(void)
{
    limits_free(limits); /* asserts that nobody is in */
}

static void start(struct access_limits user, struct access_limits all)
{
    const struct limits_config config = {
        .user = user, .all = all, .clock = &sim.clock, .metrics = &metrics};
    ck_assert(limits_new(&config, &limits, &status));
}

static struct access_caller from(const char *peer)
{
    struct access_caller caller = {0};
    snprintf(caller.peer, sizeof(caller.peer), "%s", peer);
    return caller;
}

static struct access_caller user(const char *name)
{
    struct access_caller caller = from("ipv4:10.0.0.1:1");
    caller.known = true;
    snprintf(caller.user, sizeof(caller.user), "%s", name);
    return caller;
}

static bool enter(const struct access_caller *caller, struct limits_ticket *ticket)
{
    status = (struct status){0};
    const bool ok = limits_enter(limits, caller, ticket, &retry_ns, &status);
    ck_assert(ok || status.code == STATUS_RESOURCE_EXHAUSTED);
    return ok;
}

static int calls_at_once(const struct access_caller *caller)
{
    int count = 0;
    for (;; count++) {
        struct limits_ticket ticket = {0};
        if (!enter(caller, &ticket))
            return count;
        limits_leave(&ticket);
    }
}

START_TEST(calls_of_one_user_are_bounded_and_those_of_others_are_not)
{
    start((struct access_limits){.calls = 2}, (struct access_limits){0});
    const struct access_caller ci = user("ci");
    const struct access_caller alice = user("alice");
    struct limits_ticket tickets[4] = {{0}};
    ck_assert(enter(&ci, &tickets[0]));
    ck_assert(enter(&ci, &tickets[1]));
    ck_assert(!enter(&ci, &tickets[2]));
    ck_assert_str_eq(status.message, "user \"ci\" has 2 calls in progress, and 2 is the most "
                                     "(calls); try again later");
    ck_assert_int_gt(retry_ns, 0);
    ck_assert_ptr_null(tickets[2].limits);
    limits_leave(&tickets[2]); /* it is not in */
    ck_assert(enter(&alice, &tickets[3]));
    limits_leave(&tickets[0]);
    ck_assert(enter(&ci, &tickets[2]));
    ck_assert_int_eq(metrics_get(&metrics, METRIC_LIMITED_CALLS), 1);
    for (int i = 0; i < 4; i++)
        limits_leave(&tickets[i]);
}
END_TEST

START_TEST(who_shows_nothing_is_its_address_whatever_door_and_port)
{
    static const struct {
        const char *one, *other;
        bool same;
    } pairs[] = {
        {"ipv4:10.0.0.1:1", "ipv4:10.0.0.1:2", true},
        {"ipv4:10.0.0.1:1", "http:10.0.0.1:80", true},
        {"ipv4:10.0.0.1:1", "ipv4:10.0.0.2:1", false},
        {"ipv6:%5B2001:db8:1:2::1%5D:7", "ipv6:%5B2001:db8:1:2:ffff::9%5D:7", true},
        {"ipv6:%5B2001:db8:1:2::1%5D:7", "http:[2001:db8:1:2:3:4:5:6]:7", true},
        {"ipv6:%5B2001:db8:1:2::1%5D:7", "ipv6:%5B2001:db8:1:3::1%5D:7", false},
        {"unix:", "unix:", true},
    };
    start((struct access_limits){.calls = 1}, (struct access_limits){0});
    for (size_t i = 0; i < ARRAY_LENGTH(pairs); i++) {
        const struct access_caller one = from(pairs[i].one);
        const struct access_caller other = from(pairs[i].other);
        struct limits_ticket tickets[2] = {{0}};
        ck_assert(enter(&one, &tickets[0]));
        ck_assert_msg(enter(&other, &tickets[1]) != pairs[i].same, "%s", pairs[i].other);
        limits_leave(&tickets[0]);
        limits_leave(&tickets[1]);
    }
    const struct access_caller address = from("ipv4:alice:1");
    const struct access_caller alice = user("alice"); /* is somebody else */
    struct limits_ticket tickets[2] = {{0}};
    ck_assert(enter(&address, &tickets[0]));
    ck_assert(enter(&alice, &tickets[1]));
    limits_leave(&tickets[0]);
    limits_leave(&tickets[1]);
}
END_TEST

START_TEST(calls_a_second_are_a_bucket_of_two_seconds)
{
    start((struct access_limits){.calls_per_s = 10}, (struct access_limits){0});
    const struct access_caller ci = user("ci");
    ck_assert_int_eq(calls_at_once(&ci), 21);
    ck_assert_int_le(retry_ns, NS_PER_S / 10);
    ck_assert_int_gt(retry_ns, 0);
    clock_sim_advance(&sim, retry_ns); /* as it was told */
    ck_assert_int_eq(calls_at_once(&ci), 1);
    clock_sim_advance(&sim, NS_PER_S);
    ck_assert_int_eq(calls_at_once(&ci), 10);
    clock_sim_advance(&sim, 100 * NS_PER_S);
    ck_assert_int_eq(calls_at_once(&ci), 21);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_LIMITED_CALLS_RATE), 4);
}
END_TEST

START_TEST(bytes_a_second_put_a_user_into_debt_and_no_deeper_than_the_bound)
{
    start((struct access_limits){.bytes_per_s = 1000}, (struct access_limits){0});
    const struct access_caller ci = user("ci");
    struct limits_ticket ticket = {0};
    ck_assert(enter(&ci, &ticket));
    limits_moved(&ticket, 2000);
    limits_leave(&ticket);
    ck_assert(enter(&ci, &ticket)); /* the bucket is empty, not in debt */
    limits_moved(&ticket, 5000);
    limits_moved(&ticket, 1);
    limits_leave(&ticket);
    ck_assert(!enter(&ci, &ticket));
    ck_assert_int_eq(retry_ns, 5001 * (int64_t)NS_PER_MS);
    ck_assert_str_eq(status.message, "more than 1000 bytes a second of user \"ci\" "
                                     "(bytes-per-second); try again in 5002 ms");
    clock_sim_advance(&sim, retry_ns);
    ck_assert(enter(&ci, &ticket));
    limits_moved(&ticket, UINT64_MAX / 2);
    limits_moved(&ticket, UINT64_MAX / 2);
    limits_leave(&ticket);
    ck_assert(!enter(&ci, &ticket));
    ck_assert_int_eq(retry_ns, LIMITS_DEBT_NS);
    clock_sim_advance(&sim, retry_ns);
    ck_assert(enter(&ci, &ticket));
    limits_leave(&ticket);
}
END_TEST

START_TEST(memory_of_one_user_is_what_its_calls_hold_now)
{
    start((struct access_limits){.memory_bytes = 100}, (struct access_limits){0});
    const struct access_caller ci = user("ci");
    struct limits_ticket one = {0};
    struct limits_ticket other = {0};
    ck_assert(enter(&ci, &one));
    limits_hold(&one, 99);
    ck_assert(enter(&ci, &other));
    limits_hold(&other, 1);
    struct limits_ticket third = {0};
    ck_assert(!enter(&ci, &third));
    ck_assert_str_eq(status.message, "requests and answers of user \"ci\" hold 100 bytes of "
                                     "memory, and 100 is the most (memory); try again later");
    limits_hold(&one, 98);
    ck_assert(enter(&ci, &third));
    limits_leave(&one); /* lets go of what it holds */
    limits_leave(&other);
    limits_leave(&third);
    ck_assert(enter(&ci, &one));
    limits_hold(&one, 99);
    limits_leave(&one);
}
END_TEST

START_TEST(all_together_have_rates_of_their_own)
{
    start((struct access_limits){0}, (struct access_limits){.calls_per_s = 10});
    const struct access_caller ci = user("ci");
    const struct access_caller alice = user("alice");
    ck_assert_int_eq(calls_at_once(&ci), 21);
    ck_assert_int_eq(calls_at_once(&alice), 0);
    ck_assert_ptr_nonnull(strstr(status.message, "10 calls a second of all together"));
}
END_TEST

START_TEST(without_limits_nothing_is_kept)
{
    start((struct access_limits){0}, (struct access_limits){0});
    const struct access_caller ci = user("ci");
    struct limits_ticket ticket = {0};
    ck_assert(enter(&ci, &ticket));
    limits_hold(&ticket, 1000);
    limits_moved(&ticket, 1000);
    limits_leave(&ticket);
    ck_assert_uint_eq(limits_users(limits), 0);
}
END_TEST

/* Twice as many addresses as are remembered; one of them has a call in progress all the time, and is not forgotten. */
START_TEST(more_users_than_are_known_are_bounded_and_forget_the_oldest)
{
    start((struct access_limits){.calls = 1}, (struct access_limits){0});
    const struct access_caller ci = user("ci");
    struct limits_ticket stays = {0};
    ck_assert(enter(&ci, &stays));
    for (int i = 0; i < 2 * LIMITS_USERS; i++) {
        char peer[64];
        snprintf(peer, sizeof(peer), "ipv4:10.%d.%d.%d:1", i >> 16, i >> 8 & 255, i & 255);
        const struct access_caller caller = from(peer);
        struct limits_ticket ticket = {0};
        clock_sim_advance(&sim, 1);
        ck_assert(enter(&caller, &ticket));
        limits_leave(&ticket);
    }
    ck_assert_uint_le(limits_users(limits), LIMITS_USERS);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_LIMITED_USERS), (int64_t)limits_users(limits));
    struct limits_ticket more = {0};
    ck_assert(!enter(&ci, &more));
    limits_leave(&stays);
}
END_TEST

START_TEST(users_that_find_no_place_share_one_account)
{
    enum { CALLS = 4 * LIMITS_USERS };
    static struct limits_ticket tickets[CALLS];
    start((struct access_limits){.calls = 1}, (struct access_limits){0});
    int refused = 0;
    for (int i = 0; i < CALLS; i++) {
        char peer[64];
        snprintf(peer, sizeof(peer), "ipv4:10.%d.%d.%d:1", i >> 16, i >> 8 & 255, i & 255);
        const struct access_caller caller = from(peer);
        refused += !enter(&caller, &tickets[i]);
    }
    ck_assert_int_eq(refused, CALLS - LIMITS_USERS - 1);
    for (int i = 0; i < CALLS; i++)
        limits_leave(&tickets[i]);
}
END_TEST

/* ---- the access file */

static struct temp_dir directory;

static struct access_rules *load(const char *content)
{
    char path[512];
    struct access_rules *rules = NULL;
    snprintf(path, sizeof(path), "%s/access", directory.path);
    FILE *const file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(content, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    return access_rules_load(path, &rules, &status) ? rules : NULL;
}

static struct access_limits limits_of(const struct access_rules *rules, const char *name)
{
    struct access_applies applies;
    struct access_limits may = {.calls = 1, .memory_bytes = 2, .calls_per_s = 3, .bytes_per_s = 4};
    access_rules_of_anonymous(rules, &applies);
    if (name != NULL)
        access_rules_of_user(rules, name, NULL, &applies);
    access_rules_limits(rules, &applies, &may);
    return may;
}

START_TEST(first_line_of_limit_that_fits_says_what_a_user_may)
{
    temp_dir_make(&directory);
    struct access_rules *const rules =
        load("group farm ci cd\n"
             "limit calls=0 calls-per-second=1000 memory=64MiB to user:ci\n"
             "limit calls=50 bytes-per-second=2GiB to group:farm,user:alice\n"
             "limit calls=9 to users\n"
             "limit calls-per-second=5 bytes-per-second=100KiB to anonymous\n"
             "allow read to anonymous\n");
    ck_assert_msg(rules != NULL, "%s", status.message);
    const struct access_limits ci = limits_of(rules, "ci");
    ck_assert_uint_eq(ci.calls, 0);
    ck_assert_uint_eq(ci.calls_per_s, 1000);
    ck_assert_uint_eq(ci.memory_bytes, 64 * MIB);
    ck_assert_uint_eq(ci.bytes_per_s, 4); /* as without a line */
    ck_assert_uint_eq(limits_of(rules, "cd").calls, 50);
    ck_assert_uint_eq(limits_of(rules, "alice").bytes_per_s, 2 * GIB);
    ck_assert_uint_eq(limits_of(rules, "bob").calls, 9);
    ck_assert_uint_eq(limits_of(rules, "bob").calls_per_s, 3);
    ck_assert_uint_eq(limits_of(rules, NULL).calls, 1);
    ck_assert_uint_eq(limits_of(rules, NULL).bytes_per_s, 100 * KIB);

    /* A line of limit allows nothing. */
    struct access_applies applies;
    access_rules_of_anonymous(rules, &applies);
    ck_assert(access_rules_permit(rules, &applies, ROLE_READ, bytes_of_string("x")));
    ck_assert(access_rules_permit(rules, &applies, ROLE_ANY, bytes_of_string("x")));
    for (enum method_role role = ROLE_WRITE_CAS; role < ROLE_COUNT; role++)
        ck_assert(!access_rules_permit_somewhere(rules, &applies, role));
    start((struct access_limits){0}, (struct access_limits){0});
    struct access_caller caller = from("ipv4:10.0.0.1:1");
    caller.rules = rules;
    caller.applies = applies;
    ck_assert_int_eq(calls_at_once(&caller), 11);
    access_rules_unref(rules);
    temp_dir_remove(&directory);
}
END_TEST

START_TEST(a_line_of_limit_gives_no_right_to_anything)
{
    temp_dir_make(&directory);
    struct access_rules *const rules =
        load("limit calls=9 to anonymous\nallow read to user:alice\n");
    ck_assert_msg(rules != NULL, "%s", status.message);
    struct access_applies applies;
    access_rules_of_anonymous(rules, &applies);
    for (enum method_role role = ROLE_ANY; role < ROLE_COUNT; role++) {
        ck_assert(!access_rules_permit(rules, &applies, role, bytes_of_string("x")));
        ck_assert(!access_rules_permit_somewhere(rules, &applies, role));
        ck_assert(!access_rules_permit_everywhere(rules, &applies, role));
    }
    access_rules_unref(rules);
    temp_dir_remove(&directory);
}
END_TEST

START_TEST(lines_of_limit_that_are_wrong_are_refused_with_their_number)
{
    static const char *const wrong[] = {
        "limit calls=1 users",
        "limit calls=1 to",
        "limit to users x",
        "limit calls=1 calls=2 to users",
        "limit calls=-1 to users",
        "limit calls=1.5 to users",
        "limit calls=1KB to users",
        "limit calls= to users",
        "limit calls=99999999999 to users",
        "limit connections=1 to users",
        "limit calls=1 to nobody",
        "limit calls=1 to user:",
        "limit calls=1 to ,",
    };
    temp_dir_make(&directory);
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        char content[256];
        status = (struct status){0};
        snprintf(content, sizeof(content), "allow read to users\n%s\n", wrong[i]);
        ck_assert_msg(load(content) == NULL, "%s", wrong[i]);
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        ck_assert_msg(strstr(status.message, "line 2") != NULL, "%s", status.message);
    }
    ck_assert_ptr_null(load("limit calls=1 to users\n"));
    ck_assert_ptr_nonnull(strstr(status.message, "allows nobody anything"));
    temp_dir_remove(&directory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("limits");
    TCase *tests = tcase_create("limits");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, calls_of_one_user_are_bounded_and_those_of_others_are_not);
    tcase_add_test(tests, who_shows_nothing_is_its_address_whatever_door_and_port);
    tcase_add_test(tests, calls_a_second_are_a_bucket_of_two_seconds);
    tcase_add_test(tests, bytes_a_second_put_a_user_into_debt_and_no_deeper_than_the_bound);
    tcase_add_test(tests, memory_of_one_user_is_what_its_calls_hold_now);
    tcase_add_test(tests, all_together_have_rates_of_their_own);
    tcase_add_test(tests, without_limits_nothing_is_kept);
    tcase_add_test(tests, more_users_than_are_known_are_bounded_and_forget_the_oldest);
    tcase_add_test(tests, users_that_find_no_place_share_one_account);
    tcase_add_test(tests, first_line_of_limit_that_fits_says_what_a_user_may);
    tcase_add_test(tests, a_line_of_limit_gives_no_right_to_anything);
    tcase_add_test(tests, lines_of_limit_that_are_wrong_are_refused_with_their_number);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
