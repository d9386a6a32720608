/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts a blob into a store of this process, durable when the call returns: for programs that embed the
 * store, and for the command line on a store whose server is stopped.
 *
 * A regular file is read into the store's own 1 MiB buffers, hashed and checksummed there, and
 * appended from there: each byte is read once and copied by the kernel alone, and the lane is synced
 * meanwhile. Without a digest from the caller a file of more than 1 MiB is read twice, since a chunk
 * names the blob that it is of: first to find the digest, then to store it, hashed both times, so that
 * nothing is ever stored under another's digest.
 *
 * A file that grows, shrinks or is written to meanwhile is an error that names it. What has been
 * appended of it by then is dead bytes in a segment, and no blob.
 *
 *     struct put_request request = {.fd = fd, .name = path};
 *     if (!put_file(durability, &request, &digest, status))
 *         ...
 *
 * Threads: any number at once.
 */
#ifndef VARVE_DURABILITY_PUT_FILE_H
#define VARVE_DURABILITY_PUT_FILE_H

#include "durability/durability.h"

enum put_check {
    PUT_HASHED, /* the bytes are hashed, and must be those of the digest */
    PUT_VOUCHED, /* the caller has hashed them, and nobody else can write to them: only their number and
                    the file's times are looked at. With a digest only */
};

struct put_request {
    int fd;           /* open for reading; borrowed. Read from 0 on, wherever its position is */
    const char *name; /* for errors; borrowed */
    const struct digest *digest; /* borrowed; NULL: it is found by reading */
    enum put_check check;
};

/*
 * *digest: set on true. Returns at once when the store has it already.
 * Errors: ABORTED when the file changes; INVALID_ARGUMENT when it is no regular file, or not of this
 * digest; RESOURCE_EXHAUSTED when the disk is full, or no buffer is free; UNAVAILABLE when the store
 * has failed for good.
 */
MUST_CHECK bool put_file(struct durability *durability,
                         const struct put_request *request,
                         struct digest *digest,
                         struct status *status);

/*
 * The same for bytes that come from anywhere else. read: puts at most `capacity` bytes at `to` and
 * says how many, 0 at the end. Hashed; must be those of the digest.
 */
struct put_reader {
    bool (*read)(void *argument, uint8_t *to, size_t capacity, size_t *got, struct status *status);
    void *argument;
};
MUST_CHECK bool put_stream(struct durability *durability,
                           const struct digest *digest,
                           const struct put_reader *reader,
                           struct status *status);

#endif
