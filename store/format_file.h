/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DATA/FORMAT: one line that says which version of the format a store is of, and whose it is. What
 * it says is also in every segment's header, so that a store does without it.
 */
#ifndef VARVE_STORE_FORMAT_FILE_H
#define VARVE_STORE_FORMAT_FILE_H

#include <stdint.h>

#include "base/io.h"

enum format_file_state { FORMAT_FILE_SOUND, FORMAT_FILE_ABSENT, FORMAT_FILE_DAMAGED };

struct format_file {
    enum format_file_state state;
    unsigned version;  /* only if sound; may be one that we do not know */
    uint64_t node_uid; /* likewise */
};

/* One that is damaged or absent is no failure. */
MUST_CHECK bool format_file_read(struct io *io,
                                 const char *directory,
                                 struct format_file *file,
                                 struct status *status);

/* Puts a new one in place in one step, durably. */
MUST_CHECK bool format_file_write(struct io *io,
                                  const char *directory,
                                  uint64_t node_uid,
                                  struct status *status);

#endif
