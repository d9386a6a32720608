/* SPDX-License-Identifier: Apache-2.0 */
#include "server/resets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/random.h"
#include "server/accept_guard.h"
#include "store/siphash.h"

enum { SETS = 256, WAYS = 4 };
static const int64_t each_ns = NS_PER_S / LIMIT_RESETS_PER_S;
static const int64_t log_pause_ns = 10 * NS_PER_S;

struct connection {
    uint64_t hash;    /* 0: none */
    int64_t until_ns; /* when all of them will be forgiven, one each_ns */
    bool shut;        /* that was said */
};

struct resets {
    struct metrics *metrics; /* borrowed */
    struct siphash_key key;

    struct lock lock;
    struct connection connections[SETS][WAYS]; /* guarded by lock, as all below */
    int64_t logged_ns;
};

bool resets_new(struct metrics *metrics, struct resets **resets, struct status *status)
{
    struct resets *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "counts of resets");
    if (!random_fill(&made->key, sizeof(made->key), status)) {
        free(made);
        return false;
    }
    lock_init(&made->lock, LOCK_RANK_LEAF);
    made->metrics = metrics;
    *resets = made;
    return true;
}

void resets_free(struct resets *resets)
{
    if (resets == NULL)
        return;
    lock_destroy(&resets->lock);
    free(resets);
}

static uint64_t hash_of(const struct resets *resets, const char *peer)
{
    struct siphash siphash;
    siphash_begin(&siphash, &resets->key);
    return siphash_finish(&siphash, bytes_of_string(peer)) | 1;
}

static bool note_locked(struct resets *resets, uint64_t hash, int64_t now_ns)
    REQUIRES(resets->lock);
static bool note_locked(struct resets *resets, uint64_t hash, int64_t now_ns)
{
    struct connection *const set = resets->connections[(hash >> 32) % SETS];
    struct connection *known = &set[0];
    for (size_t i = 0; i < WAYS; i++) {
        if (set[i].hash == hash) {
            known = &set[i];
            break;
        }
        if (set[i].until_ns < known->until_ns)
            known = &set[i];
    }
    if (known->hash != hash)
        *known = (struct connection){.hash = hash};
    if (known->until_ns < now_ns)
        *known = (struct connection){.hash = hash, .until_ns = now_ns};
    if (known->until_ns - now_ns < LIMIT_RESETS_AT_ONCE * each_ns) {
        known->until_ns += each_ns;
        return false;
    }
    const bool first = !known->shut;
    known->shut = true;
    return first;
}

bool resets_note(struct resets *resets, const char *peer, int64_t now_ns)
{
    const uint64_t hash = hash_of(resets, peer);
    lock_acquire(&resets->lock);
    const bool too_many = note_locked(resets, hash, now_ns);
    lock_release(&resets->lock);
    return too_many;
}

void resets_shut(struct resets *resets, const char *peer, int64_t now_ns)
{
    const bool shut = accept_guard_shut(peer);
    metrics_add(resets->metrics, METRIC_CONNECTIONS_RESET, 1);
    lock_acquire(&resets->lock);
    const bool log = resets->logged_ns == 0 || now_ns - resets->logged_ns >= log_pause_ns;
    if (log)
        resets->logged_ns = now_ns;
    lock_release(&resets->lock);
    if (log)
        log_event(LOG_LEVEL_WARN, "resets_flood", "peer=%s closed=%s at_once=%d per_s=%d", peer,
                  shut ? "yes" : "no", LIMIT_RESETS_AT_ONCE, LIMIT_RESETS_PER_S);
}
