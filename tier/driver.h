/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bucket: objects by name on an engine that is not ours. What server/ knows of it; tier/s3.h makes one.
 *
 * Every call waits for its end, which comes by the deadline it is given or by the driver's own limits, whichever is earlier: as much
 * is in flight as there are threads that call (docs/decisions/0011-a-bucket-is-asked-by-threads-that-wait.md). A call is one attempt;
 * when to try again is the caller's. Nothing is kept of what was moved.
 *
 * Statuses of a failed call, for the caller to choose by:
 *   UNAVAILABLE          it did not answer well (refused, reset, 5xx, SlowDown, the breaker is open): try later
 *   DEADLINE_EXCEEDED    it did not answer in time: the same. What was asked may have been done, or be done later
 *   PERMISSION_DENIED    credentials are wrong or have too few rights: try rarely, and tell a person
 *   FAILED_PRECONDITION  there is no such bucket, or not there: the same
 *   DATA_LOSS            what arrived there, or here, is not what was sent
 *   ALREADY_EXISTS       BUCKET_PUT_IF_ABSENT, and it is there
 *   OUT_OF_RANGE         the range is beyond the object's end
 *   CANCELLED            the driver is being stopped
 *   INTERNAL             the answer makes no sense, or a request is refused that never should be
 *   RESOURCE_EXHAUSTED   memory, or all connections were in use until the deadline
 * A source or a sink that fails gives its own.
 *
 * Threads: any number.
 */
#ifndef VARVE_TIER_DRIVER_H
#define VARVE_TIER_DRIVER_H

#include "base/arena.h"
#include "base/bytes.h"
#include "base/status.h"

enum {
    BUCKET_KEY_BYTES_MAX = 512, /* of a key, with the NUL */
    BUCKET_LIST_MAX = 1000,     /* objects of one bucket_list() */
    BUCKET_DELETE_MAX = 1000,   /* keys of one bucket_delete_many() */
    BUCKET_METADATA_MAX = 8,
};

/* Where the bytes of an object come from: may be asked for any of them again. */
struct bucket_source {
    /* Gives 1 to `capacity` bytes from `offset`, which is below size_bytes. */
    bool (*read)(void *argument,
                 uint64_t offset,
                 uint8_t *to,
                 size_t capacity,
                 size_t *length,
                 struct status *status);
    void *argument;
    uint64_t size_bytes;
};

struct bucket_memory {
    struct bytes bytes; /* borrowed */
};
/* The source that gives bytes of memory; `memory` is borrowed for as long as it is used. */
struct bucket_source bucket_source_of(struct bucket_memory *memory);

/* Where the bytes of an object go: called in order, by the thread that asked. */
struct bucket_sink {
    bool (*write)(void *argument, struct bytes bytes, struct status *status);
    void *argument;
};

struct bucket_note {
    const char *name; /* lower-case letters, digits and '-' */
    const char *value;
};

/* The note whose value, a hash in hex, is told with the object. */
#define BUCKET_NOTE_SHA256 "varve-sha256"

enum bucket_put_if { BUCKET_PUT_ALWAYS, BUCKET_PUT_IF_ABSENT };

struct bucket_put {
    const char *key; /* printable ASCII without spaces; so are all keys */
    struct bucket_source source;
    const uint8_t *sha256; /* of the bytes, 32; NULL: the source is read once more for it */
    struct bucket_note notes[BUCKET_METADATA_MAX]; /* kept with the object */
    size_t note_count;
    enum bucket_put_if condition;
    int64_t
        deadline_ns; /* of the monotonic clock; 0: the driver's limits alone; so are all deadlines */
};

struct bucket_get {
    const char *key;
    uint64_t offset, length; /* length 0: all of it, and offset is 0 */
    struct bucket_sink sink; /* has got exactly those bytes when the call is true */
    int64_t deadline_ns;
};

enum bucket_presence { BUCKET_UNKNOWN, BUCKET_ABSENT, BUCKET_PRESENT };

struct bucket_object {
    enum bucket_presence presence;
    uint64_t size_bytes; /* of the whole object */
    int64_t modified_s;  /* since 1970, by the server's clock; 0: not told */
    bool has_sha256;     /* a note BUCKET_NOTE_SHA256 was kept with it, which says sha256 */
    uint8_t sha256[32];
};

struct bucket_entry {
    const char *key; /* in the arena */
    uint64_t size_bytes;
    int64_t modified_s;
};

struct bucket_page {
    struct bucket_entry *entries; /* in the arena; by key, ascending */
    size_t count;
    bool more; /* go on after the last key */
};

struct bucket {
    bool (*put)(struct bucket *bucket, const struct bucket_put *put, struct status *status);
    bool (*get)(struct bucket *bucket,
                const struct bucket_get *get,
                struct bucket_object *object,
                struct status *status);
    bool (*stat_many)(struct bucket *bucket,
                      const char *const *keys,
                      size_t count,
                      int64_t deadline_ns,
                      struct bucket_object *objects,
                      struct status *status);
    bool (*list)(struct bucket *bucket,
                 const char *prefix,
                 const char *after,
                 int64_t deadline_ns,
                 struct arena *arena,
                 struct bucket_page *page,
                 struct status *status);
    bool (*delete_many)(struct bucket *bucket,
                        const char *const *keys,
                        size_t count,
                        int64_t deadline_ns,
                        struct status *status);
};

/* True: it is there, as durable as the server makes it, and others see it. */
MUST_CHECK static inline bool bucket_put(struct bucket *bucket,
                                         const struct bucket_put *put,
                                         struct status *status)
{
    return bucket->put(bucket, put, status);
}

/* True with object->presence ABSENT when there is none; the sink was not called then. */
MUST_CHECK static inline bool bucket_get(struct bucket *bucket,
                                         const struct bucket_get *get,
                                         struct bucket_object *object,
                                         struct status *status)
{
    return bucket->get(bucket, get, object, status);
}

/* False when at least one is UNKNOWN; the others are known even so. Several at a time, a bounded number. */
MUST_CHECK static inline bool bucket_stat_many(struct bucket *bucket,
                                               const char *const *keys,
                                               size_t count,
                                               int64_t deadline_ns,
                                               struct bucket_object *objects,
                                               struct status *status)
{
    return bucket->stat_many(bucket, keys, count, deadline_ns, objects, status);
}

/* Keys that begin with `prefix` and come after `after` (""  for the first page), at most BUCKET_LIST_MAX. */
MUST_CHECK static inline bool bucket_list(struct bucket *bucket,
                                          const char *prefix,
                                          const char *after,
                                          int64_t deadline_ns,
                                          struct arena *arena,
                                          struct bucket_page *page,
                                          struct status *status)
{
    return bucket->list(bucket, prefix, after, deadline_ns, arena, page, status);
}

/* At most BUCKET_DELETE_MAX keys; those that are not there count as deleted. */
MUST_CHECK static inline bool bucket_delete_many(struct bucket *bucket,
                                                 const char *const *keys,
                                                 size_t count,
                                                 int64_t deadline_ns,
                                                 struct status *status)
{
    return bucket->delete_many(bucket, keys, count, deadline_ns, status);
}

/* What a failure means for whoever has something to do with the bucket. */
enum bucket_fault {
    BUCKET_TRY_LATER,  /* back off, for as long as it takes */
    BUCKET_TELL,       /* nothing will go until a person has done something */
    BUCKET_LOOK_AGAIN, /* the bytes were damaged: here, there or between */
    BUCKET_GIVE_UP,    /* not this request, ever */
};
enum bucket_fault bucket_fault_of(const struct status *status);

#endif
