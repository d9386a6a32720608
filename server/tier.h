/* SPDX-License-Identifier: Apache-2.0 */
/* The bucket behind this node: what the configuration says of it, the connection, and what is brought there. */
#ifndef VARVE_SERVER_TIER_H
#define VARVE_SERVER_TIER_H

#include "durability/durability.h"
#include "server/config.h"

struct flights;
struct tier;
struct tier_fetch;

/*
 * *tier NULL: the configuration names none. Asks nothing of the bucket yet: one that does not answer keeps no server from starting.
 * INVALID_ARGUMENT, FAILED_PRECONDITION (no credentials), naming the option.
 */
MUST_CHECK bool tier_start(const struct config *config,
                           struct durability *durability,
                           struct metrics *metrics,
                           struct flights *flights,
                           struct tier **tier,
                           struct status *status);
/* Of the follower of this uid, if that is the bucket: how the last attempt to send something there failed; else, or if it did not, "". */
void tier_trouble(struct tier *tier, uint64_t uid, char text[STATUS_MESSAGE_BYTES_MAX]);
/* As whom the bucket follows the log (durability/copies.h); 0: there is none. */
uint64_t tier_follower_uid(const struct config *config);
/* Who gets from it what is asked for; NULL: there is no bucket, or --tier-reads is off. tier may be NULL. */
struct tier_fetch *tier_reader(struct tier *tier);
/* Is it asked which blobs it has, as --tier-find says? tier may be NULL. */
bool tier_finds(const struct tier *tier);
/* Sets its metrics. Every second or so; NULL is fine. */
void tier_step(struct tier *tier);
/* Nothing is got any more, and nothing new is sent. Before whoever asks the reader ends. NULL is fine. */
void tier_end_requests(struct tier *tier);
/* Waits for no request. What is not in the bucket yet goes on after the next start. NULL is fine. */
void tier_stop(struct tier *tier);

/* What can be told of it without a server. */
MUST_CHECK bool tier_check(const struct config *config, struct status *status);

#endif
