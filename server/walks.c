/* SPDX-License-Identifier: Apache-2.0 */
#include "server/walks.h"

#include <errno.h>
#include <stdlib.h>

#include "base/lock.h"

struct walks {
    uint64_t limit_bytes; /* set by walks_new(), never changed */

    struct lock lock;
    struct walk *first, *last; /* guarded by lock, as all below; borrowed */
    uint64_t held_bytes;
    size_t waiting;
};

static void add_locked(struct walks *walks, struct walk *walk) REQUIRES(walks->lock);
static void remove_locked(struct walks *walks, struct walk *walk) REQUIRES(walks->lock);
static void wake_locked(struct walks *walks) REQUIRES(walks->lock);

bool walks_new(uint64_t limit_bytes, struct walks **walks, struct status *status)
{
    struct walks *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "walks");
    lock_init(&made->lock, LOCK_RANK_WALKS);
    made->limit_bytes = limit_bytes;
    *walks = made;
    return true;
}

void walks_free(struct walks *walks)
{
    if (walks == NULL)
        return;
    ASSERT(walks->first == NULL);
    ASSERT(walks->held_bytes == 0);
    lock_destroy(&walks->lock);
    free(walks);
}

bool walk_hold(struct walks *walks, struct walk *walk, uint64_t bytes)
{
    lock_acquire(&walks->lock);
    if (walk->walks == NULL)
        add_locked(walks, walk);
    if (walk->waits)
        walks->waiting--;
    const uint64_t others_bytes = walks->held_bytes - walk->held_bytes;
    const bool ok = walks->first == walk || others_bytes + bytes <= walks->limit_bytes;
    if (ok) {
        walk->held_bytes = bytes;
        walks->held_bytes = others_bytes + bytes;
    }
    walk->waits = !ok;
    if (walk->waits)
        walks->waiting++;
    lock_release(&walks->lock);
    return ok;
}

void walk_keep(struct walk *walk, uint64_t bytes)
{
    struct walks *const walks = walk->walks;
    lock_acquire(&walks->lock);
    const bool less = bytes < walk->held_bytes;
    walks->held_bytes += bytes;
    walks->held_bytes -= walk->held_bytes;
    walk->held_bytes = bytes;
    if (less)
        wake_locked(walks);
    lock_release(&walks->lock);
}

void walk_end(struct walk *walk)
{
    struct walks *const walks = walk->walks;
    if (walks == NULL)
        return;
    lock_acquire(&walks->lock);
    if (walk->waits)
        walks->waiting--;
    walks->held_bytes -= walk->held_bytes;
    remove_locked(walks, walk);
    wake_locked(walks);
    lock_release(&walks->lock);
}

bool walks_wait(struct walks *walks)
{
    lock_acquire(&walks->lock);
    const bool waits = walks->waiting > 0;
    lock_release(&walks->lock);
    return waits;
}

static void add_locked(struct walks *walks, struct walk *walk)
{
    walk->walks = walks;
    walk->held_bytes = 0;
    walk->waits = false;
    walk->next = NULL;
    walk->previous = walks->last;
    if (walks->last != NULL)
        walks->last->next = walk;
    else
        walks->first = walk;
    walks->last = walk;
}

static void remove_locked(struct walks *walks, struct walk *walk)
{
    if (walk->previous != NULL)
        walk->previous->next = walk->next;
    else
        walks->first = walk->next;
    if (walk->next != NULL)
        walk->next->previous = walk->previous;
    else
        walks->last = walk->previous;
    walk->walks = NULL;
}

/* All that wait: each asks again, and those that came first do so first, more or less. */
static void wake_locked(struct walks *walks)
{
    if (walks->waiting == 0)
        return;
    for (struct walk *at = walks->first; at != NULL; at = at->next)
        if (at->waits)
            at->wake(at);
}
