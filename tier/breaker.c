/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/breaker.h"

#include <string.h>

static bool enter_locked(struct breaker *breaker, struct breaker_pass *pass)
    REQUIRES(breaker->lock);
static bool leave_locked(struct breaker *breaker,
                         struct breaker_pass pass,
                         enum breaker_outcome outcome) REQUIRES(breaker->lock);
static void count_locked(struct breaker *breaker, int64_t second, enum breaker_outcome outcome)
    REQUIRES(breaker->lock);
static bool is_bad_locked(const struct breaker *breaker, int64_t second) REQUIRES(breaker->lock);
static void change_locked(struct breaker *breaker, enum breaker_state to) REQUIRES(breaker->lock);

void breaker_init(struct breaker *breaker, struct clock *clock)
{
    memset(breaker, 0, sizeof(*breaker));
    breaker->clock = clock;
    breaker->wait_s = BREAKER_WAIT_S_MIN;
    lock_init(&breaker->lock, LOCK_RANK_TIER);
}

void breaker_destroy(struct breaker *breaker)
{
    lock_destroy(&breaker->lock);
}

bool breaker_enter(struct breaker *breaker, struct breaker_pass *pass)
{
    lock_acquire(&breaker->lock);
    const bool may = enter_locked(breaker, pass);
    lock_release(&breaker->lock);
    return may;
}

static bool enter_locked(struct breaker *breaker, struct breaker_pass *pass)
{
    if (breaker->state == BREAKER_PROBING)
        return false;
    if (breaker->state == BREAKER_OPEN) {
        if (clock_monotonic_ns(breaker->clock) < breaker->open_until_ns)
            return false;
        change_locked(breaker, BREAKER_PROBING);
    }
    pass->era = breaker->era;
    return true;
}

bool breaker_leave(struct breaker *breaker,
                   struct breaker_pass pass,
                   enum breaker_outcome outcome,
                   enum breaker_state *now)
{
    lock_acquire(&breaker->lock);
    const bool changed = leave_locked(breaker, pass, outcome);
    *now = breaker->state;
    lock_release(&breaker->lock);
    return changed;
}

static bool leave_locked(struct breaker *breaker,
                         struct breaker_pass pass,
                         enum breaker_outcome outcome)
{
    if (pass.era != breaker->era)
        return false;
    if (breaker->state == BREAKER_PROBING) {
        if (outcome == BREAKER_ANSWERED) {
            breaker->wait_s = BREAKER_WAIT_S_MIN;
            change_locked(breaker, BREAKER_CLOSED);
            return true;
        }
        /* One that we broke off has told nothing: the next may probe at once. */
        change_locked(breaker, BREAKER_OPEN);
        if (outcome == BREAKER_UNKNOWN)
            breaker->open_until_ns = clock_monotonic_ns(breaker->clock);
        return outcome == BREAKER_FAILED;
    }
    ASSERT(breaker->state == BREAKER_CLOSED);
    if (outcome == BREAKER_UNKNOWN)
        return false;
    const int64_t second = clock_monotonic_ns(breaker->clock) / NS_PER_S;
    count_locked(breaker, second, outcome);
    if (!is_bad_locked(breaker, second))
        return false;
    change_locked(breaker, BREAKER_OPEN);
    return true;
}

static void count_locked(struct breaker *breaker, int64_t second, enum breaker_outcome outcome)
{
    struct breaker_second *const slot = &breaker->seconds[second % BREAKER_SECONDS];
    if (slot->second != second)
        *slot = (struct breaker_second){.second = second};
    if (outcome == BREAKER_FAILED) {
        slot->failed++;
        breaker->failures_row++;
    } else {
        slot->answered++;
        breaker->failures_row = 0;
    }
}

static bool is_bad_locked(const struct breaker *breaker, int64_t second)
{
    if (breaker->failures_row >= BREAKER_FAILURES_ROW)
        return true;
    unsigned answered = 0;
    unsigned failed = 0;
    for (size_t i = 0; i < BREAKER_SECONDS; i++) {
        if (breaker->seconds[i].second <= second - BREAKER_SECONDS)
            continue;
        answered += breaker->seconds[i].answered;
        failed += breaker->seconds[i].failed;
    }
    return answered + failed >= BREAKER_REQUESTS_MIN && failed > answered;
}

static void change_locked(struct breaker *breaker, enum breaker_state to)
{
    breaker->state = to;
    breaker->era++;
    if (to == BREAKER_CLOSED) {
        breaker->failures_row = 0;
        memset(breaker->seconds, 0, sizeof(breaker->seconds));
    }
    if (to != BREAKER_OPEN)
        return;
    breaker->open_until_ns = clock_monotonic_ns(breaker->clock) + breaker->wait_s * NS_PER_S;
    breaker->wait_s =
        breaker->wait_s * 2 < BREAKER_WAIT_S_MAX ? breaker->wait_s * 2 : BREAKER_WAIT_S_MAX;
}

enum breaker_state breaker_state(struct breaker *breaker)
{
    lock_acquire(&breaker->lock);
    const enum breaker_state state = breaker->state;
    lock_release(&breaker->lock);
    return state;
}
