/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that is open and being written: recovery, the two committers, the acker and the indexer with their threads. What
 * server/, tools and embedding programs start.
 */
#ifndef VARVE_DURABILITY_DURABILITY_H
#define VARVE_DURABILITY_DURABILITY_H

#include "durability/commit.h"
#include "durability/copies.h"
#include "durability/feed.h"
#include "durability/recovery.h"
#include "durability/scrub.h"

struct durability;

/* Opens the store, recovers, starts the threads. on_failure as in commit.h. */
MUST_CHECK bool durability_open(const struct store_config *config,
                                void (*on_failure)(void *argument,
                                                   enum lane lane,
                                                   const struct status *why),
                                void *on_failure_argument,
                                struct durability **durability,
                                struct recovery_report *report,
                                struct status *status);
/* Commits what is queued, flushes the index, stops the threads, closes the store. Nobody submits any more. */
void durability_close(struct durability *durability);

struct store *durability_store(struct durability *durability);
struct commit *durability_commit(struct durability *durability, enum lane lane);
struct scrub *durability_scrub(struct durability *durability);
struct copies *durability_copies(struct durability *durability);
struct feed *durability_feed(struct durability *durability);
bool durability_failed(struct durability *durability, struct status *why); /* either lane */

/*
 * Removes a damaged blob or action result from the index now and writes a FORGET, so that it stays away. Fire and forget:
 * failures are logged. action: NULL for a blob; else whose instance.
 */
void durability_forget(struct durability *durability,
                       const struct digest *digest,
                       const struct bytes *action_instance,
                       struct place place,
                       enum record_kind kind,
                       enum forget_reason reason);

#endif
