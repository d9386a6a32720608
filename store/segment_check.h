/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at every byte of a segment: walks its records, hashes blobs, compares records with the
 * footer, and says what is not as it was written, and whose it was as far as that can be told. For
 * the scrub and for fsck. Changes nothing.
 */
#ifndef VARVE_STORE_SEGMENT_CHECK_H
#define VARVE_STORE_SEGMENT_CHECK_H

#include "store/segment.h"

enum segment_damage {
    SEGMENT_DAMAGE_RECORD,  /* it cannot be read, or is not what its name says */
    SEGMENT_DAMAGE_PADDING, /* zeros behind a record are none any more; nothing is lost */
    SEGMENT_DAMAGE_FOOTER, /* the footer says something else than a sound record; nothing is lost */
};

struct segment_finding {
    enum segment_damage damage;
    const struct footer_entry *record; /* which record it is; NULL: nothing says it */
    uint64_t offset, end;              /* of the bytes concerned, in the file */
    const char *reason;                /* static */
};

struct segment_check {
    /* In. */
    struct segment *segment;            /* borrowed */
    const struct footer_entry *entries; /* borrowed: the footer's; NULL: there is none */
    size_t entry_count;
    uint64_t to;          /* where the records end; 0: not known */
    uint64_t pause_bytes; /* 0: goes through at once */
    /* False ends the check with *status. sound: may be NULL. */
    bool (*sound)(void *argument,
                  const struct record_header *header,
                  uint64_t offset,
                  struct bytes payload,
                  struct status *status);
    bool (*found)(void *argument, const struct segment_finding *finding, struct status *status);
    void *argument;

    /* Progress; zeroed at the start, then left alone between calls. */
    uint64_t from;
    uint64_t next_seq;
    size_t next_entry;

    /* Out. */
    uint64_t end;     /* behind the last sound record so far */
    uint64_t records; /* sound ones so far */
    uint64_t
        tail_bytes; /* behind the end, where `to` is not known: a torn tail, or the last records have rotted */
    bool paused; /* call it again */
};

MUST_CHECK bool segment_check_run(struct segment_check *check, struct status *status);

#endif
