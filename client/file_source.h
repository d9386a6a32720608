/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A regular file as the source of an upload: hashed once where its digest is not known, read in
 * pieces of 1 MiB, and
 * watched: a file whose size or time of change moves while it is read is an error that names it,
 * since the bytes sent would be no state that the file ever had. A file of up to
 * FILE_SOURCE_KEPT_BYTES is read once only.
 */
#ifndef VARVE_CLIENT_FILE_SOURCE_H
#define VARVE_CLIENT_FILE_SOURCE_H

#include <sys/stat.h>

#include "base/digest.h"
#include "client/upload.h"

enum { FILE_SOURCE_KEPT_BYTES = 1 << 20, FILE_NAME_TEXT_BYTES = 256 };

struct file_source {
    int fd;                          /* borrowed */
    char name[FILE_NAME_TEXT_BYTES]; /* for errors */
    struct stat stat;                /* when it was opened */
    uint8_t *kept;                   /* owned; the whole content once it has been hashed, or NULL */
    /* Called after each piece of a file that is not kept; NULL, or set after the init. */
    void (*tick)(void *argument);
    void *tick_argument;
};

/*
 * fd: open for reading, borrowed until file_source_destroy(). name: for error texts, any bytes;
 * copied, escaped.
 * Errors: INVALID_ARGUMENT when it is not a regular file; INTERNAL.
 */
MUST_CHECK bool file_source_init(struct file_source *source,
                                 int fd,
                                 const char *name,
                                 struct status *status);
void file_source_destroy(struct file_source *source);

/*
 * Reads it once from start to end. ABORTED when it changes meanwhile. buffer:
 * FILE_SOURCE_KEPT_BYTES, lent.
 */
MUST_CHECK bool file_source_digest(struct file_source *source,
                                   enum digest_function function,
                                   uint8_t *buffer,
                                   struct digest *digest,
                                   struct status *status);

/* Has the file changed since it was opened? ABORTED, naming it. */
MUST_CHECK bool file_source_check(const struct file_source *source, struct status *status);

/* The source to give to an upload; the struct stays where it is meanwhile. */
struct upload_source file_source_upload(struct file_source *source);

/*
 * A name for a person's eyes: bytes that are no printable UTF-8 become \xHH, a backslash is
 * doubled, and what is too long loses its front. Returns text.
 */
const char *file_name_text(const char *name, char *text, size_t capacity);

#endif
