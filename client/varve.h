/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libvarve: blobs and action results of a server of the Remote Execution API. This header needs
 * nothing but C's own; every name begins with varve_. Every call waits for its end, has a deadline,
 * is tried again where that makes sense, and may come from any number of threads at once. Bytes
 * that are handed out have been verified.
 *
 *     struct varve_error error;
 *     struct varve *varve = varve_connect("cache:8980", NULL, &error);
 *     struct varve_digest digest;
 *     if (varve == NULL || !varve_put_file(varve, "image.tar", &digest, &error))
 *         fprintf(stderr, "%s\n", error.message);
 *     varve_close(varve);
 */
#ifndef VARVE_CLIENT_VARVE_H
#define VARVE_CLIENT_VARVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define VARVE_API __attribute__((visibility("default")))

struct varve; /* a server, and the connections to it */

/* Set by every function that returns false or NULL; code is a google.rpc.Code. */
struct varve_error {
    int code;
    char message[512]; /* one line of UTF-8 */
};

enum { VARVE_NOT_FOUND = 5, VARVE_UNAVAILABLE = 14, VARVE_HASH_BYTES_MAX = 129 };

/* The name of a blob: its SHA-256 in lower-case hex, and its size. */
struct varve_digest {
    char hash[VARVE_HASH_BYTES_MAX];
    int64_t size_bytes;
};

/* Zeroes are the defaults. Strings are borrowed for the connect. */
struct varve_options {
    const char *instance_name; /* NULL: the default instance */
    double timeout_seconds;    /* of one try of one call; 60. Streams get a second more a MiB */
    size_t connections;        /* 1 */
    const char *tool_name;     /* sent with each call; "varve" */
    const char *tool_version;
};

/*
 * target: "HOST:PORT", "grpc://HOST:PORT", "unix:PATH". options: may be NULL. Does not wait for the
 * server.
 */
VARVE_API struct varve *varve_connect(const char *target,
                                      const struct varve_options *options,
                                      struct varve_error *error);
/* When nothing else uses it any more. NULL is fine. */
VARVE_API void varve_close(struct varve *varve);

VARVE_API const char *varve_version(void);

/* "HASH/SIZE" */
VARVE_API bool varve_digest_parse(const char *text,
                                  struct varve_digest *digest,
                                  struct varve_error *error);

/* missing[i] is set for each digest; any count. */
VARVE_API bool varve_find_missing(struct varve *varve,
                                  const struct varve_digest *digests,
                                  bool *missing,
                                  size_t count,
                                  struct varve_error *error);

VARVE_API bool varve_put_bytes(struct varve *varve,
                               const void *data,
                               size_t length,
                               struct varve_digest *digest,
                               struct varve_error *error);

/* A regular file; an error that names it when it changes meanwhile. */
VARVE_API bool varve_put_file(struct varve *varve,
                              const char *path,
                              struct varve_digest *digest,
                              struct varve_error *error);

/*
 * The blob, freed by the caller with free(); NULL when it is not there, or larger than bytes_max.
 */
VARVE_API void *varve_get_bytes(struct varve *varve,
                                const struct varve_digest *digest,
                                size_t bytes_max,
                                struct varve_error *error);

/* To a descriptor as it comes: what was written counts only when this returns true. */
VARVE_API bool varve_get_fd(struct varve *varve,
                            const struct varve_digest *digest,
                            int fd,
                            struct varve_error *error);

/* An encoded ActionResult, freed by the caller with free(); "not there" is no failure. */
VARVE_API bool varve_get_action_result(struct varve *varve,
                                       const struct varve_digest *action,
                                       bool *found,
                                       void **result,
                                       size_t *result_length,
                                       struct varve_error *error);

VARVE_API bool varve_update_action_result(struct varve *varve,
                                          const struct varve_digest *action,
                                          const void *result,
                                          size_t result_length,
                                          struct varve_error *error);

struct varve_push_progress {
    uint64_t files, blobs, blobs_present, blobs_uploaded, bytes_uploaded, blobs_failed;
};

/* Both may be NULL; called in the thread that pushes. */
struct varve_push_observer {
    void (*problem)(void *argument,
                    const struct varve_error *problem); /* names a path or a digest */
    void (*progress)(void *argument, const struct varve_push_progress *progress);
    void *argument;
};

/*
 * A directory tree with its links and execute bits. *root: the digest of its REAPI Directory; when
 * this returns true, every blob of the tree is at the server. observer: may be NULL.
 */
VARVE_API bool varve_push_directory(struct varve *varve,
                                    const char *path,
                                    const struct varve_push_observer *observer,
                                    struct varve_digest *root,
                                    struct varve_error *error);

/*
 * The other way: makes the tree in a directory, itself made if it is not there. Each file appears when
 * all of it has been verified. observer: may be NULL; told of problems alone.
 */
VARVE_API bool varve_pull_directory(struct varve *varve,
                                    const struct varve_digest *root,
                                    const char *path,
                                    const struct varve_push_observer *observer,
                                    struct varve_error *error);

#if defined(__cplusplus)
}
#endif

#endif
