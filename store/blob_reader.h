/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading blobs and action results. Every record is checked whole before a byte of it is given out: header, CRC-32C, and
 * that it is the digest asked for. A record that fails, or that the disk refuses to read (store/record_read.h), is DATA_LOSS; the caller
 * then has it forgotten (durability/forget.h) and answers as if it had never been there.
 */
#ifndef VARVE_STORE_BLOB_READER_H
#define VARVE_STORE_BLOB_READER_H

#include "store/action_record.h"
#include "store/store.h"

struct blob_reader;

/* Opens a blob. *reader is NULL when it is not there. Pins what it needs until it is freed. The empty blob opens too. */
MUST_CHECK bool blob_reader_open(struct store *store,
                                 const struct digest *digest,
                                 struct blob_reader **reader,
                                 struct status *status);
/* Opens the blob whose BLOB or MANIFEST record lies at `place`, whatever the index says, and marks nothing as used. */
MUST_CHECK bool blob_reader_open_at(struct store *store,
                                    const struct digest *digest,
                                    struct place place,
                                    struct blob_reader **reader,
                                    struct status *status);
void blob_reader_free(struct blob_reader *reader);

/* Where the record that makes the blob exist lies: for forgetting it. */
struct place blob_reader_place(const struct blob_reader *reader);
uint64_t blob_reader_size(const struct blob_reader *reader);
const struct digest *blob_reader_digest(const struct blob_reader *reader);
/* A large blob's chunks, valid while the reader lives; NULL for others. */
const struct manifest_chunk *blob_reader_chunks(const struct blob_reader *reader, size_t *count);

/*
 * Reads from `offset` (below the size) to the end of the chunk it lies in, at most 1 MiB; buffer is one of the store's
 * pool. *data points into the buffer. DATA_LOSS as above; UNAVAILABLE when the disk fails otherwise.
 */
MUST_CHECK bool blob_reader_read(struct blob_reader *reader,
                                 uint64_t offset,
                                 struct buffer *buffer,
                                 struct bytes *data,
                                 struct status *status);

/*
 * A blob of the small lane read whole: capacity >= record_stored_bytes(size). *found false: not there. *place is set when it was
 * found in the index, also on failure. *data points into buffer.
 */
MUST_CHECK bool blob_read_small(struct store *store,
                                const struct digest *digest,
                                uint8_t *buffer,
                                size_t capacity,
                                struct bytes *data,
                                bool *found,
                                struct place *place,
                                struct status *status);

/* Any blob up to `limit` bytes, whole, into memory that the caller frees with free(). *data NULL: not there. *place is set when it was
   found in the index, also on failure. OUT_OF_RANGE over the limit. */
MUST_CHECK bool blob_read_whole(struct store *store,
                                const struct digest *digest,
                                uint64_t limit,
                                uint8_t **data,
                                struct place *place,
                                struct status *status);

/*
 * The action result of an instance. *memory NULL: not there; else freed by the caller, and record points into it. An action of
 * size INDEX_ANY_SIZE is known by its hash alone.
 */
MUST_CHECK bool action_read(struct store *store,
                            const struct digest *action,
                            struct bytes instance,
                            uint8_t **memory,
                            struct action_record *record,
                            struct place *place,
                            struct status *status);

#endif
