/* SPDX-License-Identifier: Apache-2.0 */
#include "server/progress.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"

/* Longer than two looks are apart: whoever should have looked did not run either. */
#define LOOK_NS_MAX (2 * NS_PER_S)

static const struct {
    const char *name;
    int64_t limit_ns;
} parts[] = {
#define PROGRESS_PART_ROW(name, text, limit_ns) {text, limit_ns},
    PROGRESS_PARTS(PROGRESS_PART_ROW)
#undef PROGRESS_PART_ROW
};

bool progress_look(struct progress *progress,
                   const struct progress_seen *seen,
                   int64_t now_ns,
                   struct metrics *metrics)
{
    int64_t passed_ns = progress->looked_ns != 0 ? now_ns - progress->looked_ns : 0;
    if (passed_ns > LOOK_NS_MAX)
        passed_ns = LOOK_NS_MAX;
    progress->looked_ns = now_ns;

    bool any_stuck = false;
    for (size_t i = 0; i < PROGRESS_PART_COUNT; i++) {
        const bool moved = seen[i].done != progress->parts[i].done;
        progress->parts[i].done = seen[i].done;
        progress->parts[i].still_ns =
            moved || !seen[i].waits ? 0 : progress->parts[i].still_ns + passed_ns;
        const bool stuck = progress->parts[i].still_ns >= parts[i].limit_ns;
        if (stuck != progress->parts[i].stuck)
            log_event(stuck ? LOG_LEVEL_ERROR : LOG_LEVEL_INFO, stuck ? "stuck" : "unstuck",
                      "part=%s limit_s=%" PRId64, parts[i].name, parts[i].limit_ns / NS_PER_S);
        progress->parts[i].stuck = stuck;
        any_stuck = any_stuck || stuck;
    }
    metrics_set(metrics, METRIC_STUCK, any_stuck);
    return !any_stuck;
}
