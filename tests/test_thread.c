/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what a thread of ours is from its first instruction: named, deaf to signals that are meant
 * for the process, as nice as asked, and joined once.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/thread.h"
#include "tests/support/test_run.h"

struct seen {
    char name[32];
    sigset_t blocked;
    int nice;
    unsigned long slack_ns;
};

static void look(void *argument)
{
    struct seen *seen = argument;
    pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
    pthread_sigmask(SIG_BLOCK, NULL, &seen->blocked);
    seen->nice = getpriority(PRIO_PROCESS, (id_t)gettid());
    thread_sharpen_timers();
    seen->slack_ns = (unsigned long)prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
}

START_TEST(a_thread_has_its_name_and_niceness_and_sharp_timers)
{
    const int own_nice = getpriority(PRIO_PROCESS, 0);
    struct thread thread = {0};
    struct seen seen = {0};
    struct status status = {0};
    ck_assert(thread_start(&thread, "fifteen-letters", 3, look, &seen, &status));
    ck_assert(thread.running);
    thread_join(&thread);
    ck_assert(!thread.running);
    thread_join(&thread);
    ck_assert_str_eq(seen.name, "fifteen-letters");
    ck_assert_int_eq(seen.nice, own_nice + 3 > 19 ? 19 : own_nice + 3);
    ck_assert_int_eq(getpriority(PRIO_PROCESS, 0), own_nice);
    ck_assert_uint_eq(seen.slack_ns, 1);
}
END_TEST

START_TEST(a_thread_meets_no_signal_but_those_of_its_own_mistakes)
{
    static const int blocked[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCHLD, SIGPIPE, SIGALRM};
    static const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct thread thread = {0};
    struct seen seen = {0};
    struct status status = {0};
    sigset_t own;
    ck_assert(thread_start(&thread, "deaf", 0, look, &seen, &status));
    thread_join(&thread);
    pthread_sigmask(SIG_BLOCK, NULL, &own);
    for (size_t i = 0; i < ARRAY_LENGTH(blocked); i++) {
        ck_assert_int_eq(sigismember(&seen.blocked, blocked[i]), 1);
        ck_assert_int_eq(sigismember(&own, blocked[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(open); i++)
        ck_assert_int_eq(sigismember(&seen.blocked, open[i]), 0);
}
END_TEST

START_TEST(a_thread_that_cannot_start_is_a_failure_and_not_running)
{
    /* No address space has room for such a stack. */
    pthread_attr_t attributes;
    ck_assert_int_eq(pthread_attr_init(&attributes), 0);
    ck_assert_int_eq(pthread_attr_setstacksize(&attributes, (size_t)1 << 47), 0);
    ck_assert_int_eq(pthread_setattr_default_np(&attributes), 0);
    struct thread thread = {0};
    struct seen seen = {0};
    struct status status = {0};
    const bool started = thread_start(&thread, "none", 0, look, &seen, &status);
    pthread_attr_destroy(&attributes);
    ck_assert(!started);
    ck_assert(!thread.running);
    ck_assert_ptr_nonnull(strstr(status.message, "none"));
    thread_join(&thread);
}
END_TEST

START_TEST(a_name_that_top_would_cut_is_our_own_mistake)
{
    struct thread thread = {0};
    struct seen seen = {0};
    struct status status = {0};
    if (thread_start(&thread, "sixteen-letters-", 0, look, &seen, &status))
        thread_join(&thread);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("thread");
    TCase *tests = tcase_create("thread");
    tcase_add_test(tests, a_thread_has_its_name_and_niceness_and_sharp_timers);
    tcase_add_test(tests, a_thread_meets_no_signal_but_those_of_its_own_mistakes);
    tcase_add_test(tests, a_thread_that_cannot_start_is_a_failure_and_not_running);
    tcase_add_test_raise_signal(tests, a_name_that_top_would_cut_is_our_own_mistake, SIGABRT);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
