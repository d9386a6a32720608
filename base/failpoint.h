/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places where tests stop, slow or kill the process: for states that no I/O error reaches. Without
 * -DFAILPOINTS nothing is left of them in the objects.
 *
 * A test build reads VARVE_FAILPOINTS at failpoint_init_from_environment():
 *   name=kill            SIGKILL to ourselves at the first pass
 *   name=kill@N          at the N-th pass
 *   name=sleep:MS        sleeps MS milliseconds at each pass
 * several are separated by commas. Tests in process call failpoint_set().
 */
#ifndef VARVE_BASE_FAILPOINT_H
#define VARVE_BASE_FAILPOINT_H

#include <stdbool.h>
#include <stdint.h>

/*   X(name, what state the process is in there) */
#define FAILPOINTS_LIST(X)                                                                         \
    X(segment_before_rename, "a new segment is written and synced, and has no final name")         \
    X(segment_before_directory_sync, "a new segment has its name, the directory is not synced")    \
    X(commit_before_append, "records are hashed and queued, nothing of them is in a file")         \
    X(commit_before_sync, "records are in the page cache, none is durable")                        \
    X(commit_after_sync, "records are durable, nothing is visible or acknowledged")                \
    X(commit_after_publish, "records are visible, nothing is acknowledged")                        \
    X(commit_after_ack, "records are acknowledged, the index on disk lacks them")                  \
    X(segment_before_seal, "a segment is full and synced and has no footer")                       \
    X(segment_after_seal, "a segment has its footer, which is not synced")                         \
    X(index_before_batch, "the index on disk is about to get a batch")                             \
    X(index_after_batch, "the batch is in RocksDB's memory, nothing is flushed")                   \
    X(recovery_before_publish, "records were read back, the index on disk lacks them")             \
    X(recovery_after_publish, "the index has them, the torn tail is not sealed")                   \
    X(recovery_before_load, "the store serves, the index in memory lacks what is on disk alone")   \
    X(upload_after_chunk, "a chunk of an upload is in the page cache, the upload is not finished")

enum failpoint {
#define FAILPOINT_ENUM(name, what) FAILPOINT_##name,
    FAILPOINTS_LIST(FAILPOINT_ENUM)
#undef FAILPOINT_ENUM
        FAILPOINT_COUNT
};

#ifdef FAILPOINTS

enum failpoint_action { FAILPOINT_OFF, FAILPOINT_KILL, FAILPOINT_SLEEP };

#define FAILPOINT(name) failpoint_pass(FAILPOINT_##name)

void failpoint_pass(enum failpoint point);
/* at: for KILL the pass that kills, from 1; for SLEEP milliseconds. */
void failpoint_set(enum failpoint point, enum failpoint_action action, uint64_t at);
uint64_t failpoint_passes(enum failpoint point);
/* False when a name or an action is unknown; *bad is where the text went wrong. */
bool failpoint_init_from_environment(const char **bad);

#else

#define FAILPOINT(name) ((void)sizeof(FAILPOINT_##name))

#endif
#endif
