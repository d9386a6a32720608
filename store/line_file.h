/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of one line of text, which ends in the CRC-32C of what stands before it as 8 hex digits:
 * "varve 1 0123456789abcdef 89abcdef\n". It is replaced in one step.
 */
#ifndef VARVE_STORE_LINE_FILE_H
#define VARVE_STORE_LINE_FILE_H

#include "base/io.h"

enum { LINE_FILE_TEXT_BYTES_MAX = 240 };

enum line_file_state { LINE_FILE_SOUND, LINE_FILE_ABSENT, LINE_FILE_DAMAGED };

/*
 * text: without the CRC; set if it is sound. One that is damaged or absent is no failure.
 */
MUST_CHECK bool line_file_read(struct io *io,
                               const char *directory,
                               const char *name,
                               enum line_file_state *state,
                               char text[LINE_FILE_TEXT_BYTES_MAX + 1],
                               struct status *status);

/* Writes <name>.new and renames it; durable on true. text: at most LINE_FILE_TEXT_BYTES_MAX bytes. */
MUST_CHECK bool line_file_write(struct io *io,
                                const char *directory,
                                const char *name,
                                const char *text,
                                struct status *status);

#endif
