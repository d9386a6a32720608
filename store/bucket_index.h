/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a bucket has, as far as this node has heard: each blob, how large, where there and since when (RocksDB, in DATA/tier/index). What it
 * does not have may be in the bucket all the same, and what it has may be gone from there: who asks the bucket is told. So nothing in it is
 * worth a failed start or an unanswered call: one that is damaged, or about another bucket, is made anew, and what cannot be written is
 * not known later. One in which a file turns out to be damaged fails from then on (DATA_LOSS) and is removed when it is closed.
 *
 * Key:   digest function byte, hash.
 * Value: 24 bytes: pack (u64), blob size (u64), offset in the pack (u32), since (u32, hours since 1970).
 * Meta:  keys that begin with a zero byte: "\0place", which bucket it is about; "\0note:" and a name, for whoever feeds it.
 *
 * Threads: any, but for opening and closing.
 */
#ifndef VARVE_STORE_BUCKET_INDEX_H
#define VARVE_STORE_BUCKET_INDEX_H

#include "base/digest.h"
#include "base/status.h"

struct bucket_index;

enum { BUCKET_INDEX_NOTE_BYTES_MAX = 512 };

struct bucket_row {
    struct digest digest;
    uint64_t pack;   /* the object that it lies in, with others; 0: one of its own */
    uint32_t offset; /* there */
    int64_t since_s; /* of that object, in seconds since 1970; kept by the hour, rounded down */
};

struct bucket_index_config {
    const char *path; /* made if it is not there, and so is the folder that it is in */
    uint64_t place;   /* a number of which bucket it is */
    int64_t keep_s;   /* rows that are older go, some time; 0: none does */
};

/* Anew where it must be. What is there of another process is RESOURCE_EXHAUSTED or FAILED_PRECONDITION, as in store/index.h. */
MUST_CHECK bool bucket_index_open(const struct bucket_index_config *config,
                                  struct bucket_index **index,
                                  struct status *status);
void bucket_index_close(struct bucket_index *index); /* NULL is fine */

/* All, or on false perhaps some. Survives the process, and a power cut from the next bucket_index_sync() on. */
MUST_CHECK bool bucket_index_put(struct bucket_index *index,
                                 const struct bucket_row *rows,
                                 size_t count,
                                 struct status *status);
MUST_CHECK bool bucket_index_drop(struct bucket_index *index,
                                  const struct digest *digest,
                                  struct status *status);
/*
 * row->digest.size_bytes is what the row says, which may be another than the digest's. False: it has none, or it cannot be read: *status then is
 * not OK.
 */
bool bucket_index_get(struct bucket_index *index,
                      const struct digest *digest,
                      struct bucket_row *row,
                      struct status *status);
/* What was written before is on disk. */
MUST_CHECK bool bucket_index_sync(struct bucket_index *index, struct status *status);
MUST_CHECK bool bucket_index_flush(struct bucket_index *index, struct status *status);

/* A text for whoever feeds it, "" when there is none; written in the order of the rows. */
MUST_CHECK bool bucket_index_set_note(struct bucket_index *index,
                                      const char *name,
                                      const char *text,
                                      struct status *status);
void bucket_index_note(struct bucket_index *index,
                       const char *name,
                       char text[BUCKET_INDEX_NOTE_BYTES_MAX]);

uint64_t bucket_index_rows(struct bucket_index *index); /* about */

#endif
