/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that nobody runs, looked at: everything in its segments, the index beside them, and what
 * can be got out of it. Nothing is changed but by fsck_rebuild_index(). One thread.
 *
 *   fsck_open() ─► fsck_check(), fsck_list(), reading by store/blob_reader.h ─► fsck_close()
 */
#ifndef VARVE_DURABILITY_FSCK_H
#define VARVE_DURABILITY_FSCK_H

#include "store/index.h"
#include "store/store.h"

struct fsck;

/* Something that is not as it was written. */
struct fsck_finding {
    const char *what; /* static: "blob", "chunk", "manifest", "action result", "forget", "record",
                         "large blob", "padding", "footer", "segment header", "segment", "format",
                         "index" */
    const struct digest *digest; /* whose it is; NULL: nothing says it */
    bool in_use;                 /* a blob or an action result is lost by it */
    uint64_t segment;            /* 0: it is in none */
    uint64_t offset, end;        /* in the segment */
    const char *reason;
};

struct fsck_progress {
    uint64_t segments, segments_total;
    uint64_t bytes, bytes_total;
};

struct fsck_config {
    struct io *io; /* borrowed, as all pointers here */
    struct clock *clock;
    const char *directory;
    void (*finding)(void *argument, const struct fsck_finding *finding);
    /* What is as a crash may leave it, in a sentence; nothing is lost. */
    void (*note)(void *argument, const char *text);
    void (*progress)(void *argument, const struct fsck_progress *progress);
    void *argument;
};

struct fsck_summary {
    uint64_t segments, bytes, records;
    uint64_t blobs, large_blobs, action_results; /* that are in use; of blobs some are large */
    uint64_t findings;
    uint64_t lost;          /* findings in use */
    uint64_t index_entries; /* that lead where they should */
};

/*
 * Errors: FAILED_PRECONDITION (a process has it, or its format is newer), INVALID_ARGUMENT (no
 * store), others when it cannot be read.
 */
MUST_CHECK bool fsck_open(const struct fsck_config *config,
                          struct fsck **fsck,
                          struct status *status);
void fsck_close(struct fsck *fsck);

/* With the index in memory as the segments alone say it: blobs are read by it. */
struct store *fsck_store(struct fsck *fsck);

/* Damage is no failure: it is in the summary. */
MUST_CHECK bool fsck_check(struct fsck *fsck, struct fsck_summary *summary, struct status *status);

/* Every blob and action result that the segments hold, as they lie. False from each ends it. */
MUST_CHECK bool fsck_list(struct fsck *fsck,
                          bool (*each)(void *argument,
                                       const struct index_entry *entry,
                                       struct status *status),
                          void *argument,
                          struct status *status);

/*
 * Removes the index and makes it anew from the segments, as a start without one does: tails are cut
 * too. Of config the directory, io and clock count. Not while it is open by fsck_open().
 */
MUST_CHECK bool fsck_rebuild_index(const struct fsck_config *config,
                                   uint64_t *entries,
                                   struct status *status);

#endif
