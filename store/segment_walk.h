/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Going through the records of a segment from one to the next, checking each whole. Where a record is damaged the walk looks
 * ahead for the next sound one, so that one rotten record costs that record alone; where none follows, that is the end.
 */
#ifndef VARVE_STORE_SEGMENT_WALK_H
#define VARVE_STORE_SEGMENT_WALK_H

#include "store/segment.h"

struct segment_walk {
    /* In. */
    struct segment *segment; /* borrowed */
    uint64_t from;           /* offset of a record, or where one would be */
    uint64_t to; /* where the records end, if that is known; 0: at the end of what is there */
    uint64_t expected_seq; /* of the first record; 0: any */
    uint64_t seq_limit;    /* no record from this seq on is one of the log; 0: no limit */
    /*
     * A sound record. payload is valid during the call. after_gap: something before it in this segment is damaged, so it
     * may never have been acknowledged. False ends the walk with *status.
     */
    bool (*each)(void *argument,
                 const struct record_header *header,
                 uint64_t offset,
                 struct bytes payload,
                 bool after_gap,
                 struct status *status);
    /*
     * NULL, or: no sound record is in the bytes from offset to end, though one follows, or `to` does. header: of the record at
     * offset, if that at least is sound; else NULL.
     */
    bool (*gap)(void *argument,
                const struct record_header *header,
                uint64_t offset,
                uint64_t end,
                struct status *status);
    void *argument;
    /*
     * What the disk cannot read is taken for zeros, a page at a time, and so for damage; but not where
     * nothing at all can be read for long. Else a read that fails ends the walk.
     */
    bool skip_unreadable;
    uint64_t pause_bytes; /* stops once it has come so far; 0: goes on to the end */

    /* Out. */
    uint64_t end;        /* behind the last sound record; `from` if there is none */
    uint64_t next_seq;   /* the one after the last; expected_seq if there is none */
    uint64_t records;    /* sound ones */
    uint64_t damaged;    /* gaps between sound records, and before `to` */
    uint64_t tail_bytes; /* what lies behind the end and is no record: 0 when the end is clean */
    bool paused;
    uint64_t resume; /* where it has come to; if paused: where to go on, with next_seq */
};

MUST_CHECK bool segment_walk(struct segment_walk *walk, struct status *status);

#endif
