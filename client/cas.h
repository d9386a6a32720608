/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs of a server, one thing after the other: each function waits for its end and may be used
 * from any number of threads at once. Built from the same parts that work without a thread a call
 * (client/batch.h, upload.h, download.h).
 *
 * Errors besides those named: of the server, as it said them; UNAVAILABLE when it does not answer
 * and DEADLINE_EXCEEDED when it takes too long, after the tries of the client's policy. Texts name
 * the digest or file.
 */
#ifndef VARVE_CLIENT_CAS_H
#define VARVE_CLIENT_CAS_H

#include "base/digest.h"
#include "client/capabilities.h"
#include "client/connection.h"
#include "client/messages.h"

/* missing[i] is set for each digest. Any count: asked in pages, several on their way at once. */
MUST_CHECK bool cas_find_missing(struct client *client,
                                 const struct digest *digests,
                                 bool *missing,
                                 size_t count,
                                 struct status *status);

/*
 * One BatchUpdateBlobs with different blobs, together below what the server announced
 * (client/batch_packer.h). True when the call as such went well; then results[i] is that of
 * blobs[i].
 */
MUST_CHECK bool cas_batch_update(struct client *client,
                                 const struct batch_blob *blobs,
                                 struct status *results,
                                 size_t count,
                                 struct status *status);

/*
 * One BatchReadBlobs of different digests. True when the call as such went well; then where
 * results[i] is OK, data[i] is the verified blob, freed by the caller with free(), and elsewhere
 * NULL.
 */
MUST_CHECK bool cas_batch_read(struct client *client,
                               const struct digest *digests,
                               uint8_t **data,
                               struct status *results,
                               size_t count,
                               struct status *status);

/* data has the digest's size; the server checks its hash. */
MUST_CHECK bool cas_write_bytes(struct client *client,
                                const struct digest *digest,
                                struct bytes data,
                                struct status *status);

/*
 * A regular file, from its start. capabilities: NULL, or what the server announced: a file it would
 * refuse is not sent. *digest is set as soon as the file has been hashed.
 * Errors: ABORTED when the file changes while it is read.
 */
MUST_CHECK bool cas_write_file(struct client *client,
                               const struct capabilities *capabilities,
                               int fd,
                               const char *name,
                               struct digest *digest,
                               struct status *status);

/*
 * *data: the verified blob, freed by the caller with free().
 * Errors: NOT_FOUND; OUT_OF_RANGE when it is larger than bytes_max; DATA_LOSS when the server sends
 * other bytes.
 */
MUST_CHECK bool cas_read_bytes(struct client *client,
                               const struct digest *digest,
                               size_t bytes_max,
                               uint8_t **data,
                               struct status *status);

/*
 * To a descriptor, as it comes: on false some bytes may have been written, and they may be wrong.
 * Errors as above.
 */
MUST_CHECK bool cas_read_fd(struct client *client,
                            const struct digest *digest,
                            int fd,
                            struct status *status);

#endif
