/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One segment file. Appends are the work of its lane (store/segment_log.h), which holds the lane's lock;
 * reads may come from any thread that has the segment pinned (store/segment_set.h).
 *
 * Life:  making (.new) -> active -> full -> sealed;  any -> failed (a write or sync failed; nothing is ever added again).
 * Does not know what is durable: that is for durability/.
 */
#ifndef VARVE_STORE_SEGMENT_H
#define VARVE_STORE_SEGMENT_H

#include "base/io.h"
#include "store/format.h"

struct segment {
    /* Set when it is made or opened, never changed. */
    struct io *io; /* borrowed */
    uint64_t number;
    uint64_t uid;
    enum lane lane;
    uint64_t capacity_bytes;
    uint64_t node_uid; /* whose log it is; 0: unknown, both headers are lost */
    int64_t created_wall_ns;
    char *path;  /* owned */
    int read_fd; /* owned */
    bool
        header_damaged; /* its first page is not as it was written; what is above comes from what is left */
    bool
        end_lost; /* opened: shorter than allocated, and without a footer at its end: cut off, or the footer is damaged */

    /* Guarded by the lane's lock while it is the lane's active or unsynced segment; else constant. */
    int write_fd;        /* owned; -1 once sealed. The one descriptor for writes and syncs. */
    uint64_t end;        /* where the next record goes */
    uint64_t synced_end; /* below it everything is durable */
    uint64_t first_seq;  /* of its first record; with none the seq that would come */
    uint64_t last_seq;   /* first_seq - 1 when empty */
    bool sealed;
    bool
        footer_complete; /* footer has every record so far; false after recovery went on in the middle */
    struct footer_entry
        *footer; /* owned; grows with the records until the segment is sealed, then NULL */
    size_t footer_count, footer_capacity;
    bool
        made_for_moves; /* with room that ordinary writes do not get: they wait until there is some again */
    uint64_t counted_bytes; /* its share of METRIC_SEGMENT_BYTES */
    size_t noted_count;     /* records that were noted, whether the footer has them or not */

    /* Guarded by the segment set's lock once it is in the set. */
    uint64_t file_bytes; /* size of the file: allocated, or what is left of it once sealed */
    uint32_t pins;       /* readers */
    uint32_t holds;      /* manifests on their way that name chunks in it */
    bool doomed;         /* no new holds: what lives here is being moved or forgotten */
    bool condemned;      /* no new pins */
};

/* Builds DATA/segments/<number>.<suffix>; asserts that it fits. */
enum { SEGMENT_PATH_BYTES_MAX = 4096 };
void segment_path(char path[SEGMENT_PATH_BYTES_MAX],
                  const char *directory,
                  uint64_t number,
                  const char *suffix);

/*
 * Makes a new segment: .new, allocate, header, sync, rename, sync the directory. So a full disk shows here.
 * RESOURCE_EXHAUSTED with free and needed bytes in the text; INTERNAL. After a failure nothing is left but possibly a .new file.
 */
MUST_CHECK bool segment_create(struct io *io,
                               const char *directory,
                               enum lane lane,
                               uint64_t number,
                               uint64_t capacity_bytes,
                               uint64_t node_uid,
                               int64_t created_wall_ns,
                               struct segment **segment,
                               struct status *status);

/*
 * Opens an existing one for reading. If a footer's trailer is at its end it is sealed, and its end and seqs are known; of others
 * first_seq is, if the first record is sound. A header that is lost is made up for by the second one, then by the trailer.
 * What the disk cannot read counts as damaged. DATA_LOSS when it is no segment of ours, or too little is left of it;
 * UNAVAILABLE when too little of it can be read.
 */
MUST_CHECK bool segment_open(struct io *io,
                             const char *directory,
                             uint64_t number,
                             struct segment **segment,
                             struct status *status);
/* Opens the write descriptor of a segment that recovery goes on with. */
MUST_CHECK bool segment_open_for_writing(struct segment *segment, struct status *status);
void segment_free(struct segment *segment);

/*
 * Writes complete records, gathered in one call, at the end. The caller has filled headers but for seq and the CRCs.
 * parts: header, payload, padding of each record, in order; total_bytes their sum, a multiple of 64.
 * After an error the end has not moved.
 */
MUST_CHECK bool segment_write(struct segment *segment,
                              const struct iovec *parts,
                              size_t count,
                              uint64_t total_bytes,
                              struct status *status);
/* Notes a record that segment_write() put there, for the footer. False when memory is used up. */
MUST_CHECK bool segment_note(struct segment *segment,
                             const struct record_header *header,
                             uint64_t offset,
                             struct status *status);

/* Would records of so many bytes and their footer entries still fit? */
bool segment_fits(const struct segment *segment, uint64_t total_bytes, size_t records);

MUST_CHECK bool segment_sync(struct segment *segment, struct status *status);
/*
 * Writes the footer (walking the records first if it does not have them all), cuts the file to its end, syncs. Everything below
 * end is durable already, so a failure loses nothing: the segment is walked at the next start that needs it. Once it has
 * succeeded, segment_sealed() closes the write descriptor and lets go of the footer in memory; under the lane's lock, if the
 * segment is in a lane.
 */
MUST_CHECK bool segment_seal(struct segment *segment, struct status *status);
void segment_sealed(struct segment *segment);

/*
 * Reads the footer of a sealed segment. *entries NULL when there is no valid one that can be read (then the segment must be walked);
 * else freed by the caller, trailer->entries of them.
 */
MUST_CHECK bool segment_read_footer(struct segment *segment,
                                    struct footer_entry **entries,
                                    struct footer_trailer *trailer,
                                    struct status *status);

/*
 * Reads the record at offset whole into buffer (capacity >= record_stored_bytes of its payload) and checks everything.
 * length_hint: bytes to read at once, header included; rounded up to 64.
 * *payload points into buffer. DATA_LOSS with segment, offset and what is wrong; RESOURCE_EXHAUSTED when it does not fit.
 */
MUST_CHECK bool segment_read_record(struct segment *segment,
                                    uint64_t offset,
                                    uint64_t length_hint,
                                    uint8_t *buffer,
                                    size_t capacity,
                                    struct record_header *header,
                                    struct bytes *payload,
                                    struct status *status);

#endif
