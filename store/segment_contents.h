/* SPDX-License-Identifier: Apache-2.0 */
/* What records a segment holds: from its footer, or by walking it if it has none. */
#ifndef VARVE_STORE_SEGMENT_CONTENTS_H
#define VARVE_STORE_SEGMENT_CONTENTS_H

#include "store/segment.h"

/*
 * *entries is freed by the caller. Damaged records are left out; *damaged: at least so many there are. Where the disk cannot
 * read on, what came before is all: *cut is true then, and *status says why.
 *
 * to: where its records end, in bytes from the start of the file; 0: where they are seen to end, for a segment that somebody
 * appends to, of which nothing that changes is looked at but the file.
 * Errors: RESOURCE_EXHAUSTED when memory is short; INTERNAL when not even the file's size is known.
 */
MUST_CHECK bool segment_contents_load(struct segment *segment,
                                      uint64_t to,
                                      struct footer_entry **entries,
                                      size_t *count,
                                      size_t *damaged,
                                      bool *cut,
                                      struct status *status);

static inline struct place footer_entry_place(const struct segment *segment,
                                              const struct footer_entry *entry)
{
    return (struct place){.segment = segment->number,
                          .offset = (uint64_t)entry->offset_lines * RECORD_ALIGNMENT_BYTES};
}

/* The digest, if its hash fits into the entry (else false). */
bool footer_entry_digest(const struct footer_entry *entry, struct digest *digest);

void footer_entry_of_header(const struct record_header *header,
                            uint64_t offset,
                            struct footer_entry *entry);

#endif
