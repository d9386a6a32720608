/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs that are read whole, one after the other, into memory that is used again; and what is done
 * about a record that turns out to be damaged.
 */
#ifndef VARVE_SERVER_WHOLE_BLOB_H
#define VARVE_SERVER_WHOLE_BLOB_H

#include "durability/durability.h"

/* Zeroed memory is a valid one. One thread at a time. */
struct whole_blob {
    uint8_t *memory; /* owned, by malloc */
    size_t capacity_bytes;
};

/*
 * limit_bytes: of the blob. *data is valid until the next read. *found false: not there, or its
 * record is damaged, which is then forgotten. The empty blob is always found.
 * Errors: OUT_OF_RANGE over the limit; UNAVAILABLE when the disk fails to read; RESOURCE_EXHAUSTED.
 */
MUST_CHECK bool whole_blob_read(struct whole_blob *blob,
                                struct durability *durability,
                                const struct digest *digest,
                                uint64_t limit_bytes,
                                struct bytes *data,
                                bool *found,
                                struct status *status);
void whole_blob_free(struct whole_blob *blob);

/*
 * Logs it with its place and why, and has it forgotten: it is answered as if it had never been
 * there.
 */
void damaged_blob_forget(struct durability *durability,
                         const struct digest *digest,
                         struct place place,
                         const struct status *why);
void damaged_action_forget(struct durability *durability,
                           const struct digest *action,
                           struct bytes instance,
                           struct place place,
                           const struct status *why);

#endif
