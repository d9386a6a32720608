/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far one lane has come: pending_seq (appended) and durable_seq (on disk). durable_seq <= pending_seq always, and both
 * only grow. Failure is sticky.
 */
#ifndef VARVE_DURABILITY_WATERMARK_H
#define VARVE_DURABILITY_WATERMARK_H

#include "base/lock.h"
#include "base/status.h"

struct watermark {
    struct lock lock;
    uint64_t pending_seq; /* guarded by lock */
    uint64_t durable_seq; /* guarded by lock */
    bool failed;          /* guarded by lock; never goes back to false */
    struct status why;    /* guarded by lock; set with failed */
};

/* seq: both start there, after recovery. */
void watermark_init(struct watermark *watermark, uint64_t seq);
void watermark_destroy(struct watermark *watermark);

void watermark_set_pending(struct watermark *watermark,
                           uint64_t seq); /* asserts that it does not go back */
/* Asserts durable <= pending, and that the watermark has not failed. */
void watermark_set_durable(struct watermark *watermark, uint64_t seq);
/* The first call wins. */
void watermark_fail(struct watermark *watermark, const struct status *why);

uint64_t watermark_pending(struct watermark *watermark);
uint64_t watermark_durable(struct watermark *watermark);
bool watermark_failed(struct watermark *watermark, struct status *why);

#endif
