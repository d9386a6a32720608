/* SPDX-License-Identifier: Apache-2.0 */
#include "server/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/random.h"
#include "server/access.h"
#include "store/siphash.h"

enum { WAYS = 8, SETS = LIMITS_USERS / WAYS };
static const int64_t log_pause_ns = 10 * NS_PER_S;
/* When nothing tells when it will be better. */
static const int64_t retry_soon_ns = NS_PER_S;

/* Tokens are counted in nanoseconds: a call or byte costs what it takes to come again. */
struct bucket {
    int64_t empty_ns; /* since when it would fill, if nothing were taken; later than now: debt */
};

struct limits_user {
    uint64_t hash; /* 0: empty */
    int64_t seen_ns;
    uint64_t calls;
    _Atomic uint64_t held_bytes; /* the one that is not guarded */
    struct bucket calls_rate, bytes_rate;
    struct access_limits may; /* as of its last call */
};

struct limits {
    /* Set by limits_new(), never changed. */
    struct limits_config config;
    struct siphash_key key;

    struct lock lock;
    struct limits_user users[SETS][WAYS]; /* guarded by lock, as all below */
    struct limits_user others;            /* of those that find no place */
    struct limits_user all;
    size_t known;
    int64_t logged_ns;
};

static uint64_t identity(const struct limits *limits, const struct access_caller *caller);
static struct limits_user *find_locked(struct limits *limits, uint64_t hash, int64_t now_ns)
    REQUIRES(limits->lock);
static bool check_locked(struct limits *limits,
                         const struct limits_user *user,
                         const char *whose,
                         int64_t now_ns,
                         int64_t *retry_ns,
                         struct status *status) REQUIRES(limits->lock);
static void take(struct bucket *bucket, uint64_t tokens, uint64_t per_s, int64_t now_ns);

static bool is_set(const struct access_limits *may)
{
    return may->calls > 0 || may->calls_per_s > 0 || may->bytes_per_s > 0 || may->memory_bytes > 0;
}

bool limits_new(const struct limits_config *config, struct limits **limits, struct status *status)
{
    struct limits *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "limits");
    lock_init(&made->lock, LOCK_RANK_LEAF);
    made->config = *config;
    made->all.may = config->all;
    if (!random_fill(&made->key, sizeof(made->key), status)) {
        limits_free(made);
        return false;
    }
    *limits = made;
    return true;
}

void limits_free(struct limits *limits)
{
    if (limits == NULL)
        return;
    ASSERT(limits->all.calls == 0);
    lock_destroy(&limits->lock);
    free(limits);
}

size_t limits_users(struct limits *limits)
{
    lock_acquire(&limits->lock);
    const size_t known = limits->known;
    lock_release(&limits->lock);
    return known;
}

/* ---- calls */

static bool enter_locked(struct limits *limits,
                         struct limits_user *user,
                         const char *whose,
                         int64_t now_ns,
                         int64_t *retry_ns,
                         struct status *status) REQUIRES(limits->lock);

bool limits_enter(struct limits *limits,
                  const struct access_caller *caller,
                  struct limits_ticket *ticket,
                  int64_t *retry_ns,
                  struct status *status)
{
    struct access_limits may = limits->config.user;
    if (caller->rules != NULL)
        access_rules_limits(caller->rules, &caller->applies, &may);
    if (!is_set(&may) && !is_set(&limits->config.all))
        return true;

    char whose[ACCESS_NAME_BYTES_MAX + 32];
    if (caller->known)
        snprintf(whose, sizeof(whose), "user \"%s\"", caller->user);
    else
        snprintf(whose, sizeof(whose), "this address");
    const uint64_t hash = identity(limits, caller);
    const int64_t now_ns = clock_monotonic_ns(limits->config.clock);
    lock_acquire(&limits->lock);
    struct limits_user *const user = find_locked(limits, hash, now_ns);
    user->may = may;
    const bool ok = enter_locked(limits, user, whose, now_ns, retry_ns, status);
    bool says = !ok && (limits->logged_ns == 0 || now_ns - limits->logged_ns >= log_pause_ns);
    if (says)
        limits->logged_ns = now_ns;
    lock_release(&limits->lock);
    if (ok)
        *ticket = (struct limits_ticket){
            .limits = limits,
            .user = user,
            .counts_bytes = (may.bytes_per_s | limits->config.all.bytes_per_s) > 0};
    struct log_text user_text;
    struct log_text peer_text;
    struct log_text reason;
    if (says)
        log_event(LOG_LEVEL_WARN, "limited", "user=%s peer=%s reason=%s",
                  log_quote(&user_text, access_caller_name(caller)),
                  log_quote(&peer_text, caller->peer), log_quote(&reason, status->message));
    return ok;
}

static uint64_t identity(const struct limits *limits, const struct access_caller *caller)
{
    struct siphash siphash;
    siphash_begin(&siphash, &limits->key);
    /* An address has no NUL, and a user's name ends with one: they are never the same. */
    const struct bytes who = caller->known ? bytes_of(caller->user, strlen(caller->user) + 1)
                                           : access_peer_host(caller->peer);
    const uint64_t hash = siphash_finish(&siphash, who);
    return hash != 0 ? hash : 1;
}

static struct limits_user *find_locked(struct limits *limits, uint64_t hash, int64_t now_ns)
{
    struct limits_user *const set = limits->users[hash % SETS];
    struct limits_user *oldest = NULL;
    for (int i = 0; i < WAYS; i++) {
        if (set[i].hash == hash) {
            set[i].seen_ns = now_ns;
            return &set[i];
        }
        if (set[i].calls == 0 && (oldest == NULL || set[i].seen_ns < oldest->seen_ns))
            oldest = &set[i];
    }
    if (oldest == NULL)
        return &limits->others;
    if (oldest->hash == 0)
        metrics_set(limits->config.metrics, METRIC_LIMITED_USERS, (int64_t)++limits->known);
    oldest->hash = hash;
    oldest->seen_ns = now_ns;
    oldest->calls_rate = (struct bucket){0};
    oldest->bytes_rate = (struct bucket){0};
    return oldest;
}

static bool enter_locked(struct limits *limits,
                         struct limits_user *user,
                         const char *whose,
                         int64_t now_ns,
                         int64_t *retry_ns,
                         struct status *status)
{
    if (!check_locked(limits, user, whose, now_ns, retry_ns, status) ||
        !check_locked(limits, &limits->all, "all together", now_ns, retry_ns, status))
        return false;
    struct limits_user *const both[] = {user, &limits->all};
    for (size_t i = 0; i < ARRAY_LENGTH(both); i++) {
        both[i]->calls++;
        take(&both[i]->calls_rate, 1, both[i]->may.calls_per_s, now_ns);
    }
    return true;
}

/* ---- buckets */

/* When the bucket has something; 0: it has. */
static int64_t wait_of(const struct bucket *bucket, int64_t now_ns)
{
    return bucket->empty_ns > now_ns ? bucket->empty_ns - now_ns : 0;
}

static void take(struct bucket *bucket, uint64_t tokens, uint64_t per_s, int64_t now_ns)
{
    if (per_s == 0)
        return;
    const int64_t full_ns = now_ns - LIMITS_BURST_NS;
    if (bucket->empty_ns < full_ns)
        bucket->empty_ns = full_ns;
    const double cost_ns = (double)tokens * NS_PER_S / (double)per_s;
    const int64_t most_ns = now_ns + LIMITS_DEBT_NS - bucket->empty_ns;
    bucket->empty_ns += cost_ns < (double)most_ns ? (int64_t)cost_ns : most_ns;
}

static bool check_locked(struct limits *limits,
                         const struct limits_user *user,
                         const char *whose,
                         int64_t now_ns,
                         int64_t *retry_ns,
                         struct status *status)
{
    struct metrics *const metrics = limits->config.metrics;
    const struct access_limits *const may = &user->may;
    const int64_t calls_wait_ns = may->calls_per_s > 0 ? wait_of(&user->calls_rate, now_ns) : 0;
    const int64_t bytes_wait_ns = may->bytes_per_s > 0 ? wait_of(&user->bytes_rate, now_ns) : 0;
    *retry_ns = retry_soon_ns;
    if (may->calls > 0 && user->calls >= may->calls) {
        metrics_add(metrics, METRIC_LIMITED_CALLS, 1);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "%s has %" PRIu64 " calls in progress, and %" PRIu64
                           " is the most (calls); try again later",
                           whose, user->calls, may->calls);
    }
    const uint64_t held_bytes = atomic_load(&user->held_bytes);
    if (may->memory_bytes > 0 && held_bytes >= may->memory_bytes) {
        metrics_add(metrics, METRIC_LIMITED_MEMORY, 1);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "requests and answers of %s hold %" PRIu64
                           " bytes of memory, and %" PRIu64
                           " is the most (memory); try again later",
                           whose, held_bytes, may->memory_bytes);
    }
    if (calls_wait_ns > 0) {
        *retry_ns = calls_wait_ns;
        metrics_add(metrics, METRIC_LIMITED_CALLS_RATE, 1);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "more than %" PRIu64
                           " calls a second of %s (calls-per-second); try again in %" PRId64 " ms",
                           may->calls_per_s, whose, calls_wait_ns / NS_PER_MS + 1);
    }
    if (bytes_wait_ns > 0) {
        *retry_ns = bytes_wait_ns;
        metrics_add(metrics, METRIC_LIMITED_BYTES_RATE, 1);
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "more than %" PRIu64
                           " bytes a second of %s (bytes-per-second); try again in %" PRId64 " ms",
                           may->bytes_per_s, whose, bytes_wait_ns / NS_PER_MS + 1);
    }
    return true;
}

/* ---- in progress */

void limits_hold(struct limits_ticket *ticket, size_t held_bytes)
{
    struct limits *const limits = ticket->limits;
    if (limits == NULL || held_bytes == ticket->held_bytes)
        return;
    atomic_fetch_add(&ticket->user->held_bytes, held_bytes);
    atomic_fetch_sub(&ticket->user->held_bytes, ticket->held_bytes);
    ticket->held_bytes = held_bytes;
}

void limits_moved(struct limits_ticket *ticket, uint64_t bytes)
{
    struct limits *const limits = ticket->limits;
    if (limits == NULL || !ticket->counts_bytes)
        return;
    const int64_t now_ns = clock_monotonic_ns(limits->config.clock);
    lock_acquire(&limits->lock);
    take(&ticket->user->bytes_rate, bytes, ticket->user->may.bytes_per_s, now_ns);
    take(&limits->all.bytes_rate, bytes, limits->all.may.bytes_per_s, now_ns);
    lock_release(&limits->lock);
}

void limits_leave(struct limits_ticket *ticket)
{
    struct limits *const limits = ticket->limits;
    if (limits == NULL)
        return;
    limits_hold(ticket, 0);
    lock_acquire(&limits->lock);
    ASSERT(ticket->user->calls > 0);
    ticket->user->calls--;
    limits->all.calls--;
    lock_release(&limits->lock);
    *ticket = (struct limits_ticket){0};
}
