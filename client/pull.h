/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory tree from a server: its Directory messages are read and checked (client/directory.h),
 * its files fetched together (client/downloader.h) and written so that none is seen before all of its
 * bytes have been verified (client/tree_writer.h). Execute bits and links come back, empty files and
 * directories too; a link is made with its target as it is and never followed.
 *
 * What is there already under the same name is replaced, other things stay. A blob that is missing,
 * or does not come, is reported with its path and disturbs nothing else: what can be had is there in
 * the end. A server that is gone, or a disk that is full, ends it.
 */
#ifndef VARVE_CLIENT_PULL_H
#define VARVE_CLIENT_PULL_H

#include "base/digest.h"
#include "client/capabilities.h"
#include "client/connection.h"

/* Entries of one tree: directories may be in it many times over, and so make it endless. */
#define PULL_ENTRIES_MAX (UINT64_C(100) * 1000 * 1000)

struct pull_options {
    bool unescape_names; /* names and targets are those of push --escape-names */
    size_t batches_in_flight_max, streams_in_flight_max;
};

/* Names as they are; the bounds of client/downloader.h. */
struct pull_options pull_options_default(void);

struct pull_counts {
    uint64_t directories, symlinks, files; /* that are there */
    uint64_t file_bytes;                   /* of them */
    uint64_t files_known, bytes_known;     /* met so far, in directories that have been read */
    uint64_t missing; /* the server does not have them; each has been reported */
    uint64_t failed;  /* for another reason; likewise */
    uint64_t received_bytes, batches, streams;
    bool all_known; /* every directory has been read */
};

/* Both are called in the thread that pulls, between other work. */
struct pull_observer {
    void (*problem)(void *argument, const struct status *problem);      /* names the path */
    void (*progress)(void *argument, const struct pull_counts *counts); /* often */
    void *argument;
};

/*
 * root: of a Directory message. path: made if it is not there. options: NULL for the default.
 * Waits for the end. Errors: what ended it; or, when some entries are not there, NOT_FOUND if the
 * server lacks each of them, else the code of the first that failed otherwise.
 */
MUST_CHECK bool pull_directory(struct client *client,
                               const struct capabilities *capabilities,
                               const struct digest *root,
                               const char *path,
                               const struct pull_options *options,
                               const struct pull_observer *observer,
                               struct pull_counts *counts,
                               struct status *status);

#endif
