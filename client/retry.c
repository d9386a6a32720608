/* SPDX-License-Identifier: Apache-2.0 */
#include "client/retry.h"

#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

static uint64_t next_random(struct retry *retry);

struct retry_policy retry_policy_default(void)
{
    return (struct retry_policy){
        .tries_max = 5,
        .pause_min_ns = 100 * INT64_C(1000000),
        .pause_max_ns = 5 * NS_PER_S,
    };
}

void retry_init(struct retry *retry, const struct retry_policy *policy)
{
    *retry = (struct retry){.policy = *policy};
    /*
     * Only so that many clients do not come back at the same instant; any value will do if there is
     * none.
     */
    if (getrandom(&retry->random, sizeof(retry->random), GRND_NONBLOCK) !=
        (ssize_t)sizeof(retry->random))
        retry->random = (uint64_t)(uintptr_t)retry;
}

bool retry_is_retryable(enum status_code code, bool moved)
{
    switch (code) {
    case STATUS_UNKNOWN:
    case STATUS_RESOURCE_EXHAUSTED:
    case STATUS_ABORTED:
    case STATUS_INTERNAL:
    case STATUS_UNAVAILABLE:
        return true;
    case STATUS_DEADLINE_EXCEEDED:
        return moved;
    default:
        return false;
    }
}

bool retry_is_message_too_large(const struct status *status)
{
    /* What the gRPC libraries of C, Go, Java and Rust say, and proxies with HTTP status 413. */
    static const char *const texts[] = {
        "larger than max",   "exceeds maximum size",     "message length too large",
        "Payload Too Large", "Request Entity Too Large", "status: 413",
    };
    if (status->code == STATUS_OK)
        return false;
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        if (strstr(status->message, texts[i]) != NULL)
            return true;
    }
    return false;
}

bool retry_again(struct retry *retry, const struct status *status, bool moved, int64_t *pause_ns)
{
    if (!retry_is_retryable(status->code, moved) || retry_is_message_too_large(status))
        return false;
    if (moved)
        retry->tries = 0;
    retry->tries++;
    if (retry->tries >= retry->policy.tries_max)
        return false;

    int64_t pause = retry->policy.pause_min_ns;
    for (unsigned i = 1; i < retry->tries && pause < retry->policy.pause_max_ns; i++)
        pause *= 2;
    if (pause > retry->policy.pause_max_ns)
        pause = retry->policy.pause_max_ns;
    const int64_t half = pause / 2;
    *pause_ns = half + (int64_t)(next_random(retry) % (uint64_t)(pause - half + 1));
    return true;
}

/* splitmix64: spreads well enough, from any start. */
static uint64_t next_random(struct retry *retry)
{
    retry->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t mixed = retry->random;
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}
