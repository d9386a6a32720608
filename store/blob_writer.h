/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One blob on its way in: hashes it, cuts it into chunks, appends those to the large lane as they fill, and ends in the one record
 * that makes the blob exist once it is durable (a BLOB for the small lane, a MANIFEST for the large). That record is given to
 * durability/commit.h; the writer itself acknowledges nothing.
 *
 * One thread at a time. An upload that is dropped leaves dead chunks behind, nothing else.
 */
#ifndef VARVE_STORE_BLOB_WRITER_H
#define VARVE_STORE_BLOB_WRITER_H

#include "store/chunk_share.h"
#include "store/store.h"

struct blob_writer;

/* RESOURCE_EXHAUSTED when memory is used up; INVALID_ARGUMENT above LIMIT_BLOB_BYTES. Takes no buffer yet. */
MUST_CHECK bool blob_writer_new(struct store *store,
                                const struct digest *digest,
                                struct blob_writer **writer,
                                struct status *status);
void blob_writer_free(struct blob_writer *writer); /* gives its buffer back */

const struct digest *blob_writer_digest(const struct blob_writer *writer);
/* Bytes taken so far, 0 to the digest's size. */
uint64_t blob_writer_offset(const struct blob_writer *writer);

/* From now on its chunks are in common with others that write the same blob; takes a reference. Without, they are its own. */
void blob_writer_set_share(struct blob_writer *writer, struct chunk_share *share);
struct chunk_share *blob_writer_share(const struct blob_writer *writer); /* borrowed; NULL: none */

/*
 * A writer that has bytes to keep needs one pooled buffer; the caller gets it (and waits for it, if it must, see
 * base/buffer_pool.h) and hands it over here. Asserts that it has none.
 */
bool blob_writer_needs_buffer(const struct blob_writer *writer);
void blob_writer_give_buffer(struct blob_writer *writer, struct buffer *buffer);

/*
 * Takes the next bytes. INVALID_ARGUMENT when they go past the digest's size (nothing is taken then); RESOURCE_EXHAUSTED when
 * the disk is full or memory is; UNAVAILABLE when the lane has failed. After a failure the writer is only good to be freed.
 */
MUST_CHECK bool blob_writer_append(struct blob_writer *writer,
                                   struct bytes data,
                                   struct status *status);

/*
 * The same without a copy: where the next bytes go, at most *length of them and at least one; asserts that some are missing and
 * that there is a buffer. blob_writer_filled() then says how many were put there.
 */
uint8_t *blob_writer_space(struct blob_writer *writer, size_t *length);
MUST_CHECK bool blob_writer_filled(struct blob_writer *writer,
                                   size_t length,
                                   struct status *status);

/*
 * The caller vouches that the bytes will be those of the digest: they are not hashed. Before the first of them. For who has
 * just hashed these very bytes, or made them; never for what somebody sends.
 */
void blob_writer_trust(struct blob_writer *writer);

/*
 * Appends what is in the buffer as a short chunk and gives the buffer back, so that an idle upload holds none. Blobs of the
 * small lane cannot be parked: false with FAILED_PRECONDITION, drop them instead.
 */
MUST_CHECK bool blob_writer_park(struct blob_writer *writer, struct status *status);

/*
 * All bytes are in. Checks size and hash: INVALID_ARGUMENT with both digests in the text. On true *record is ready for
 * commit_submit(): it and its payload belong to the writer, which must live until the commit is done.
 */
MUST_CHECK bool blob_writer_finish(struct blob_writer *writer,
                                   struct record **record,
                                   enum lane *lane,
                                   struct status *status);

#endif
