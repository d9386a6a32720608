/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a record for whoever asks for what is in it. What the disk refuses to read is lost as what it reads wrongly: it is
 * damage, so that it is called missing and comes back from a client or a peer, and does not stay present and unreadable until
 * the scrub comes by. The records beside it are left alone.
 *
 * A disk that is gone is something else: then nothing is damaged, and nothing may be forgotten for it. So no more than
 * LIMIT_UNREADABLE_RECORDS a minute count as damaged.
 */
#ifndef VARVE_STORE_RECORD_READ_H
#define VARVE_STORE_RECORD_READ_H

#include "store/store.h"

/*
 * As segment_read_record(), with header->payload_bytes 0 where not even the header can be read.
 *
 * Errors: DATA_LOSS also when the disk has refused the same page of the record twice more after it failed (EIO); UNAVAILABLE
 * when it fails otherwise, when too many records were refused just now, and where reads may not wait for the disk.
 */
MUST_CHECK bool record_read(struct store *store,
                            struct segment *segment,
                            uint64_t offset,
                            uint64_t length_hint,
                            uint8_t *buffer,
                            size_t capacity,
                            struct record_header *header,
                            struct bytes *payload,
                            struct status *status);

#endif
