/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for what another thread does. */
#ifndef VARVE_TESTS_SUPPORT_WAIT_H
#define VARVE_TESTS_SUPPORT_WAIT_H

#include <check.h>
#include <unistd.h>

#include "base/clock.h"

static inline int64_t now_ms(void)
{
    return clock_monotonic_ns(clock_real()) / NS_PER_MS;
}

/* Fails the test when it does not come true within a minute. */
#define WAIT_UNTIL(condition)                                                                      \
    do {                                                                                           \
        const int64_t until_ms = now_ms() + 60000;                                                 \
        while (!(condition)) {                                                                     \
            ck_assert_msg(now_ms() < until_ms, "not in time: %s", #condition);                     \
            usleep(1000);                                                                          \
        }                                                                                          \
    } while (false)

#endif
