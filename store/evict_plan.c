/* SPDX-License-Identifier: Apache-2.0 */
#include "store/evict_plan.h"

#include <stdlib.h>

static int most_recent_first(const void *left, const void *right);

void evict_plan(struct evict_candidate **candidates,
                size_t count,
                const struct evict_budget *budget,
                struct evict_outcome *outcome)
{
    *outcome = (struct evict_outcome){0};
    if (count > 0)
        qsort(candidates, count, sizeof(candidates[0]), most_recent_first);
    for (size_t i = 0; i < count; i++) {
        struct evict_candidate *candidate = candidates[i];
        const uint64_t sum = outcome->moved_bytes + candidate->bytes;
        const bool vouched = candidate->touched && candidate->idle_minutes < budget->vouch_minutes;
        candidate->move = candidate->touched &&
                          (sum <= budget->bytes || (vouched && sum <= budget->vouched_bytes));
        if (candidate->move) {
            outcome->moved_bytes = sum;
            if (sum > budget->bytes)
                outcome->over_budget_bytes += candidate->bytes;
        } else if (candidate->touched) {
            outcome->forgotten_touched_bytes += candidate->bytes;
            if (vouched)
                outcome->forgotten_vouched_bytes += candidate->bytes;
        }
    }
}

/* Untouched ones last; among equals the smaller first, so that the budget keeps more blobs. */
static int most_recent_first(const void *left, const void *right)
{
    const struct evict_candidate *a = *(struct evict_candidate *const *)left;
    const struct evict_candidate *b = *(struct evict_candidate *const *)right;
    if (a->touched != b->touched)
        return a->touched ? -1 : 1;
    if (a->touched && a->idle_minutes != b->idle_minutes)
        return a->idle_minutes < b->idle_minutes ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return 0;
}
