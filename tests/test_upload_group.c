/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves who leads, who follows and who is let go among uploads of one digest: every transition of upload_group.h, with times of
 * the test's own. Then thousands of random steps with many members, after each of which whoever has not been released
 * must have a leader to wait for; so nobody waits for ever.
 */
#include "base/clock.h"
#include "server/upload_group.h"
#include "tests/support/prng.h"
#include "tests/support/test_run.h"

enum { MEMBERS = UPLOAD_GROUP_FOLLOWERS_MAX + 16, PLAYERS = 200 };

static struct upload_groups *groups;
static struct upload_member members[MEMBERS];
static int releases[MEMBERS];
static struct digest digest;
static struct status status;
static int64_t now_ns;

static void released(struct upload_member *member)
{
    ck_assert_int_ne(member->role, UPLOAD_ROLE_FOLLOWER);
    releases[member - members]++;
}

static void set_up(void)
{
    ck_assert(upload_groups_new(&groups, &status));
    for (int i = 0; i < MEMBERS; i++)
        members[i] = (struct upload_member){.released = released};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string("x"), &digest);
    digest.size_bytes = 20 * (int64_t)MIB;
    now_ns = 1000 * NS_PER_S;
}

static void tear_down(void)
{
    for (int i = 0; i < MEMBERS; i++)
        upload_group_leave(groups, &members[i], false, now_ns);
    upload_groups_free(groups);
}

static void join(int member)
{
    ck_assert(upload_group_join(groups, &digest, 5, &members[member], now_ns, &status));
}

static void step_after(int64_t duration_ns)
{
    now_ns += duration_ns;
    upload_groups_step(groups, now_ns);
}

static int count(enum upload_role role)
{
    int found = 0;
    for (int i = 0; i < MEMBERS; i++)
        found += members[i].role == role;
    return found;
}

START_TEST(group_has_the_first_lead_and_the_others_follow)
{
    for (int i = 0; i < 10; i++)
        join(i);
    ck_assert_int_eq(members[0].role, UPLOAD_ROLE_LEADER);
    ck_assert_int_eq(count(UPLOAD_ROLE_FOLLOWER), 9);
    ck_assert_int_eq(releases[1], 0);
}
END_TEST

START_TEST(group_keeps_digests_apart_that_share_a_bucket)
{
    struct digest other = digest;
    other.size_bytes++;
    join(0);
    ck_assert(upload_group_join(groups, &other, 5, &members[1], now_ns, &status));
    ck_assert_int_eq(members[1].role, UPLOAD_ROLE_LEADER);
    upload_group_leave(groups, &members[0], false, now_ns);
    join(2);
    ck_assert_int_eq(members[2].role, UPLOAD_ROLE_LEADER);
}
END_TEST

START_TEST(group_releases_everybody_when_the_blob_is_there)
{
    for (int i = 0; i < 10; i++)
        join(i);
    upload_group_leave(groups, &members[0], true, now_ns);
    for (int i = 1; i < 10; i++) {
        ck_assert_int_eq(members[i].role, UPLOAD_ROLE_ALONE);
        ck_assert_int_eq(releases[i], 1);
    }
}
END_TEST

START_TEST(group_has_one_follower_lead_when_the_leader_fails)
{
    for (int i = 0; i < 10; i++)
        join(i);
    upload_group_leave(groups, &members[0], false, now_ns);
    ck_assert_int_eq(members[1].role, UPLOAD_ROLE_LEADER);
    ck_assert_int_eq(releases[1], 1);
    ck_assert_int_eq(count(UPLOAD_ROLE_FOLLOWER), 8);
    upload_group_leave(groups, &members[5], false, now_ns);
    ck_assert_int_eq(members[1].role, UPLOAD_ROLE_LEADER);
    ck_assert_int_eq(count(UPLOAD_ROLE_FOLLOWER), 7);
}
END_TEST

START_TEST(group_waits_for_a_leader_that_moves)
{
    join(0);
    join(1);
    for (uint64_t held = 5 * MIB; held <= 20 * MIB; held += 5 * MIB) {
        upload_group_moved(&members[0], held);
        step_after(UPLOAD_GROUP_VERDICT_NS);
        ck_assert_int_eq(members[1].role, UPLOAD_ROLE_FOLLOWER);
    }
    upload_group_committing(&members[0]);
    for (int i = 0; i < 100; i++)
        step_after(UPLOAD_GROUP_VERDICT_NS);
    ck_assert_int_eq(members[1].role, UPLOAD_ROLE_FOLLOWER);
}
END_TEST

START_TEST(group_waits_for_a_slow_leader_that_is_nearly_done)
{
    join(0);
    join(1);
    upload_group_moved(&members[0], 18 * MIB);
    step_after(UPLOAD_GROUP_VERDICT_NS);
    upload_group_moved(&members[0], 18 * MIB + MIB / 2); /* 3 s to go */
    step_after(UPLOAD_GROUP_VERDICT_NS);
    ck_assert_int_eq(members[1].role, UPLOAD_ROLE_FOLLOWER);
    upload_group_moved(&members[0], 18 * MIB + MIB / 2 + 1000); /* 25 minutes */
    step_after(UPLOAD_GROUP_VERDICT_NS);
    ck_assert_int_eq(members[1].role, UPLOAD_ROLE_LEADER);
    ck_assert_int_eq(members[0].role, UPLOAD_ROLE_ALONE);
}
END_TEST

START_TEST(group_lets_a_stalled_leader_go_on_alone_and_releases_more_each_time)
{
    for (int i = 0; i < 20; i++)
        join(i);
    static const int alone[] = {1, 3, 7, 15, 19};
    for (size_t i = 0; i < ARRAY_LENGTH(alone); i++) {
        step_after(UPLOAD_GROUP_VERDICT_NS / 2);
        step_after(UPLOAD_GROUP_VERDICT_NS / 2);
        ck_assert_int_eq(count(UPLOAD_ROLE_ALONE), alone[i]);
        ck_assert_int_eq(count(UPLOAD_ROLE_LEADER), 1);
    }
    ck_assert_int_eq(releases[0], 0);
    for (int i = 1; i < 20; i++)
        ck_assert_int_eq(releases[i], 1);
}
END_TEST

START_TEST(group_gives_a_new_leader_its_time)
{
    for (int i = 0; i < 3; i++)
        join(i);
    step_after(UPLOAD_GROUP_VERDICT_NS);
    ck_assert_int_eq(members[1].role, UPLOAD_ROLE_LEADER);
    upload_group_moved(&members[1], 6 * MIB);
    step_after(UPLOAD_GROUP_VERDICT_NS);
    ck_assert_int_eq(members[2].role, UPLOAD_ROLE_FOLLOWER);
}
END_TEST

START_TEST(group_member_is_replaced_in_its_role)
{
    for (int i = 0; i < 4; i++)
        join(i);
    upload_group_replace(&members[0], &members[10]);
    ck_assert_int_eq(members[0].role, UPLOAD_ROLE_NONE);
    ck_assert_int_eq(members[10].role, UPLOAD_ROLE_LEADER);
    upload_group_replace(&members[2], &members[12]);
    ck_assert_int_eq(members[12].role, UPLOAD_ROLE_FOLLOWER);
    upload_group_leave(groups, &members[10], true, now_ns);
    ck_assert_int_eq(releases[1], 1);
    ck_assert_int_eq(releases[3], 1);
    ck_assert_int_eq(releases[12], 1);
    ck_assert_int_eq(releases[0] + releases[2], 0);
}
END_TEST

START_TEST(group_lets_those_go_on_alone_who_are_too_many_to_follow)
{
    for (int i = 0; i < UPLOAD_GROUP_FOLLOWERS_MAX + 10; i++)
        join(i);
    ck_assert_int_eq(count(UPLOAD_ROLE_FOLLOWER), UPLOAD_GROUP_FOLLOWERS_MAX);
    ck_assert_int_eq(count(UPLOAD_ROLE_ALONE), 9);
    upload_group_leave(groups, &members[1], false, now_ns);
    enum { LATE = MEMBERS - 3 };
    join(LATE);
    ck_assert_int_eq(members[LATE].role, UPLOAD_ROLE_FOLLOWER);
    upload_group_leave(groups, &members[0], false, now_ns); /* one follower leads now */
    ck_assert_int_eq(count(UPLOAD_ROLE_FOLLOWER), UPLOAD_GROUP_FOLLOWERS_MAX - 1);
    join(LATE + 1);
    ck_assert_int_eq(members[LATE + 1].role, UPLOAD_ROLE_FOLLOWER);
    join(LATE + 2);
    ck_assert_int_eq(members[LATE + 2].role, UPLOAD_ROLE_ALONE);
}
END_TEST

START_TEST(group_never_has_followers_without_a_leader)
{
    struct prng prng = {3};
    int joined = 0;
    for (int round = 0; round < 50000; round++) {
        const int member = (int)prng_below(&prng, PLAYERS);
        if (members[member].role == UPLOAD_ROLE_NONE && prng_below(&prng, 3) > 0) {
            join(member);
            joined++;
        } else if (prng_below(&prng, 40) == 0) {
            step_after((int64_t)prng_below(&prng, 2 * UPLOAD_GROUP_VERDICT_NS));
        } else if (members[member].role == UPLOAD_ROLE_LEADER && prng_below(&prng, 2) == 0) {
            upload_group_moved(&members[member], prng_below(&prng, 20 * MIB));
        } else {
            upload_group_leave(groups, &members[member], prng_below(&prng, 20) == 0, now_ns);
        }
        ck_assert(count(UPLOAD_ROLE_FOLLOWER) == 0 || count(UPLOAD_ROLE_LEADER) == 1);
        ck_assert_int_le(count(UPLOAD_ROLE_LEADER), 1);
    }
    ck_assert_int_gt(joined, 10000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("upload_group");
    TCase *tcase = tcase_create("upload_group");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, group_has_the_first_lead_and_the_others_follow);
    tcase_add_test(tcase, group_keeps_digests_apart_that_share_a_bucket);
    tcase_add_test(tcase, group_releases_everybody_when_the_blob_is_there);
    tcase_add_test(tcase, group_has_one_follower_lead_when_the_leader_fails);
    tcase_add_test(tcase, group_waits_for_a_leader_that_moves);
    tcase_add_test(tcase, group_waits_for_a_slow_leader_that_is_nearly_done);
    tcase_add_test(tcase, group_lets_a_stalled_leader_go_on_alone_and_releases_more_each_time);
    tcase_add_test(tcase, group_gives_a_new_leader_its_time);
    tcase_add_test(tcase, group_member_is_replaced_in_its_role);
    tcase_add_test(tcase, group_lets_those_go_on_alone_who_are_too_many_to_follow);
    tcase_add_test(tcase, group_never_has_followers_without_a_leader);
    suite_add_tcase(suite, tcase);
    return test_run(suite);
}
