/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lock for all of it: a turn takes it twice and holds it for well under a microsecond. What may take long (writers being
 * made, parked or freed) is done without it; an upload is `busy` meanwhile.
 */
#include "server/uploads.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/buffer_pool.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/random.h"
#include "store/blob_writer.h"
#include "store/siphash.h"
#include "store/store.h"

enum {
    BUCKETS = 4096,
    PARKED_IN_ONE_STEP_MAX = 64,
    EXPIRED_IN_ONE_STEP_MAX = 64,
    SMALL_FIRST_BYTES = 4096,
};

/* Each in the order in which its uploads were last used. */
enum list_name {
    LIST_SMALL,
    LIST_AWAKE,  /* of the large lane; may hold a pooled buffer */
    LIST_PARKED, /* of the large lane; holds none */
    LIST_COUNT,
};

struct upload_list {
    struct upload *first, *last;
};

/* What an upload has taken in. Freed with no lock held, since a buffer that goes back may call somebody. */
struct upload_contents {
    struct blob_writer *writer; /* owned; large lane */
    uint8_t *memory;            /* owned; small blobs */
    size_t memory_bytes;
    size_t length; /* of the bytes in memory */
};

struct upload {
    /* Set when it is made, never changed. */
    struct digest digest;
    char *name;    /* owned; instance, newline, uuid. NULL: it can't be resumed */
    uint64_t hash; /* of name and digest, for the bucket */

    /* Of who is inside (see busy). */
    struct upload_contents contents;

    /* All guarded by the table's lock. */
    struct upload_stream *owner;     /* borrowed */
    struct upload_stream *successor; /* borrowed; only while the owner is inside */
    bool busy;                       /* a stream or the maintenance is inside */
    bool keyed;                      /* can be found by its name */
    bool ended;                      /* holds nothing and is in no list */
    bool ends_when_left;
    struct status why; /* for the owner of an ended one */
    uint64_t held_bytes;
    int64_t used_ns; /* when a stream last left it */
    int64_t begun_ns;
    enum list_name list;
    struct upload *next, *previous; /* in its list */
    struct upload *chain;           /* in its bucket */
};

struct upload_table {
    /* Set by upload_table_new(), never changed. */
    struct store *store; /* borrowed, as the next two */
    struct clock *clock;
    struct metrics *metrics;
    int64_t keep_ns;
    struct siphash_key key;
    struct zstd_budget zstd_budget;

    struct lock lock;
    struct upload_groups *groups;         /* owned; what is in it is guarded by lock */
    struct upload *buckets[BUCKETS];      /* guarded by lock */
    struct upload_list lists[LIST_COUNT]; /* guarded by lock */
    size_t count;                         /* guarded by lock; in the lists */
    uint64_t small_bytes;                 /* guarded by lock; memory of the small ones */
};

static bool take_over(struct upload_table *table,
                      const struct resource_name *name,
                      uint64_t offset,
                      struct upload_stream *stream,
                      struct status *status);
static bool take_over_locked(struct upload_table *table,
                             const struct digest *digest,
                             const char *key,
                             uint64_t offset,
                             struct upload_stream *stream,
                             struct status *status) REQUIRES(table->lock);
static bool begin(struct upload_table *table,
                  const struct resource_name *name,
                  struct upload_stream *stream,
                  struct status *status);
static struct upload *upload_new(struct upload_table *table,
                                 const struct resource_name *name,
                                 struct status *status);
static bool make_writer(struct upload_table *table, struct upload *upload, struct status *status);
static void upload_free(struct upload *upload);
static bool admit_locked(struct upload_table *table,
                         struct upload *upload,
                         struct upload_stream *stream,
                         struct status *status) REQUIRES(table->lock);
static struct upload_contents supersede_locked(struct upload_table *table, struct upload *by)
    REQUIRES(table->lock);
static enum upload_turn enter_locked(struct upload_stream *stream, struct status *status);
static void step_out_locked(struct upload_table *table, struct upload_stream *stream)
    REQUIRES(table->lock);
static struct upload_contents close_locked(struct upload_table *table,
                                           struct upload_stream *stream,
                                           enum upload_outcome outcome) REQUIRES(table->lock);
static struct upload_contents let_go_locked(struct upload_table *table,
                                            struct upload_stream *stream,
                                            enum upload_outcome outcome) REQUIRES(table->lock);
static bool grow_small(struct upload_table *table,
                       struct upload *upload,
                       size_t needed_bytes,
                       struct status *status);
static bool reserve_small(struct upload_table *table, size_t bytes);
static void park_idle(struct upload_table *table);
static struct upload *take_idle_locked(struct upload_table *table, int64_t idle_ns)
    REQUIRES(table->lock);
static void park(struct upload_table *table, struct upload *upload);
static void drop_expired(struct upload_table *table);

enum give_way_from { FROM_ANY, FROM_SMALL };
static bool give_way(struct upload_table *table, enum give_way_from from);
static struct upload *oldest_idle_locked(struct upload_table *table,
                                         enum list_name list,
                                         int64_t now_ns) REQUIRES(table->lock);
static struct upload *slowest_small_locked(struct upload_table *table, int64_t now_ns)
    REQUIRES(table->lock);
static void displace(struct upload *upload, struct upload_stream *by);
static struct upload_contents end_locked(struct upload_table *table, struct upload *upload)
    REQUIRES(table->lock);
static void free_if_unused(struct upload *upload);
static void contents_free(struct upload_contents *contents);
static bool is_large(const struct digest *digest);
static bool is_resumable(const struct resource_name *name);
static char *name_key(const struct resource_name *name);
static uint64_t name_hash(const struct upload_table *table,
                          const struct digest *digest,
                          const char *key);
static struct upload *find_locked(struct upload_table *table,
                                  const struct digest *digest,
                                  const char *key) REQUIRES(table->lock);
static void unkey_locked(struct upload_table *table, struct upload *upload) REQUIRES(table->lock);
static void list_add_locked(struct upload_table *table, struct upload *upload, enum list_name name)
    REQUIRES(table->lock);
static void list_remove_locked(struct upload_table *table, struct upload *upload)
    REQUIRES(table->lock);
static void wake_if_it_waits(struct upload_stream *stream);
static void member_released(struct upload_member *member);

/* ---- the table */

bool upload_table_new(struct store *store,
                      struct clock *clock,
                      struct metrics *metrics,
                      int64_t keep_ns,
                      struct upload_table **table,
                      struct status *status)
{
    struct upload_table *const made = calloc(1, sizeof(*made));
    if (!made)
        return status_fail_errno(status, ENOMEM, "table of uploads");
    lock_init(&made->lock, LOCK_RANK_UPLOAD_TABLE);
    made->store = store;
    made->clock = clock;
    made->metrics = metrics;
    made->keep_ns = keep_ns;
    made->zstd_budget.limit_bytes = UPLOADS_ZSTD_BYTES;
    if (!random_fill(&made->key, sizeof(made->key), status) ||
        !upload_groups_new(&made->groups, status))
        goto fail;
    *table = made;
    return true;

fail:
    upload_table_free(made);
    return false;
}

void upload_table_free(struct upload_table *table)
{
    if (!table)
        return;
    for (int i = 0; i < LIST_COUNT; i++) {
        while (table->lists[i].first) {
            ASSERT(!table->lists[i].first->owner && !table->lists[i].first->busy);
            lock_acquire(&table->lock);
            struct upload_contents contents = end_locked(table, table->lists[i].first);
            lock_release(&table->lock);
            contents_free(&contents);
        }
    }
    ASSERT(table->count == 0 && table->small_bytes == 0);
    upload_groups_free(table->groups);
    lock_destroy(&table->lock);
    free(table);
}

struct zstd_budget *upload_table_zstd_budget(struct upload_table *table)
{
    return &table->zstd_budget;
}

uint64_t upload_table_held_bytes(struct upload_table *table, const struct resource_name *name)
{
    if (!is_resumable(name))
        return 0;
    char *const key = name_key(name);
    if (!key)
        return 0; /* always a right answer: nobody has to know more than that */
    lock_acquire(&table->lock);
    const struct upload *const upload = find_locked(table, &name->digest, key);
    const uint64_t held_bytes = upload ? upload->held_bytes : 0;
    lock_release(&table->lock);
    free(key);
    return held_bytes;
}

/* ---- opening */

bool upload_open(struct upload_table *table,
                 const struct resource_name *name,
                 uint64_t offset,
                 struct upload_stream *stream,
                 struct status *status)
{
    ASSERT(stream->wake && !stream->table);
    stream->member.released = member_released;
    return offset > 0 ? take_over(table, name, offset, stream, status)
                      : begin(table, name, stream, status);
}

static bool take_over(struct upload_table *table,
                      const struct resource_name *name,
                      uint64_t offset,
                      struct upload_stream *stream,
                      struct status *status)
{
    char *key = NULL;
    if (is_resumable(name)) {
        key = name_key(name);
        if (!key)
            return status_fail_errno(status, ENOMEM, "upload");
    }
    lock_acquire(&table->lock);
    const bool ok = take_over_locked(table, &name->digest, key, offset, stream, status);
    lock_release(&table->lock);
    free(key);
    return ok;
}

static bool take_over_locked(struct upload_table *table,
                             const struct digest *digest,
                             const char *key,
                             uint64_t offset,
                             struct upload_stream *stream,
                             struct status *status)
{
    struct upload *const upload = key ? find_locked(table, digest, key) : NULL;
    const uint64_t held_bytes = upload ? upload->held_bytes : 0;
    if (!upload || offset > held_bytes) {
        char text[DIGEST_TEXT_BYTES_MAX];
        return status_fail(status, STATUS_ABORTED,
                           "upload of %s: write_offset is %" PRIu64 ", but %" PRIu64
                           " bytes are held; go on from there, or from 0",
                           digest_text(digest, text), offset, held_bytes);
    }
    struct upload_stream *const owner = upload->owner;
    if (!owner && !upload_group_join(table->groups, digest, name_hash(table, digest, ""),
                                     &stream->member, clock_monotonic_ns(table->clock), status))
        return false;

    stream->table = table;
    stream->upload = upload;
    if (!owner) {
        upload->owner = stream;
        upload_group_share(&stream->member, blob_writer_share(upload->contents.writer));
    } else if (!owner->inside) {
        displace(upload, stream);
    } else {
        /* It gets the upload when the older stream ends its turn. Of several the last one does. */
        if (upload->successor) {
            upload->successor->upload = NULL;
            wake_if_it_waits(upload->successor);
        }
        upload->successor = stream;
    }
    return true;
}

static bool begin(struct upload_table *table,
                  const struct resource_name *name,
                  struct upload_stream *stream,
                  struct status *status)
{
    struct upload *const upload = upload_new(table, name, status);
    if (!upload)
        return false;
    bool room, ok = false;
    do {
        struct upload_contents superseded = {0};
        lock_acquire(&table->lock);
        room = table->count < LIMIT_UPLOADS;
        if (room) {
            ok = admit_locked(table, upload, stream, status);
            if (ok)
                superseded = supersede_locked(table, upload);
        }
        lock_release(&table->lock);
        contents_free(&superseded);
    } while (!room && give_way(table, FROM_ANY)); /* each time round one has ended */

    if (!room)
        status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                    "%d uploads are unfinished and none of them is idle; try again later",
                    LIMIT_UPLOADS);
    if (!ok)
        upload_free(upload);
    return ok;
}

static struct upload *upload_new(struct upload_table *table,
                                 const struct resource_name *name,
                                 struct status *status)
{
    struct upload *const made = calloc(1, sizeof(*made));
    if (!made) {
        status_fail_errno(status, ENOMEM, "upload");
        return NULL;
    }
    made->digest = name->digest;
    made->begun_ns = clock_monotonic_ns(table->clock);
    if (is_resumable(name)) {
        made->name = name_key(name);
        if (!made->name) {
            status_fail_errno(status, ENOMEM, "upload");
            goto fail;
        }
        made->hash = name_hash(table, &name->digest, made->name);
    }
    if (is_large(&name->digest) && !make_writer(table, made, status))
        goto fail;
    return made;

fail:
    upload_free(made);
    return NULL;
}

static bool make_writer(struct upload_table *table, struct upload *upload, struct status *status)
{
    struct chunk_share *share;
    if (!blob_writer_new(table->store, &upload->digest, &upload->contents.writer, status) ||
        !chunk_share_new(&share, status))
        return false;
    blob_writer_set_share(upload->contents.writer, share);
    chunk_share_unref(share);
    return true;
}

/* Of one that is in no list. */
static void upload_free(struct upload *upload)
{
    contents_free(&upload->contents);
    free(upload->name);
    free(upload);
}

static bool admit_locked(struct upload_table *table,
                         struct upload *upload,
                         struct upload_stream *stream,
                         struct status *status)
{
    const int64_t now_ns = clock_monotonic_ns(table->clock);
    struct blob_writer *const writer = upload->contents.writer;
    if (writer) {
        if (!upload_group_join(table->groups, &upload->digest,
                               name_hash(table, &upload->digest, ""), &stream->member, now_ns,
                               status))
            return false;
        blob_writer_set_share(writer,
                              upload_group_share(&stream->member, blob_writer_share(writer)));
    }
    if (stream->member.role == UPLOAD_ROLE_FOLLOWER)
        metrics_add(table->metrics, METRIC_UPLOADS_JOINED, 1);
    stream->table = table;
    stream->upload = upload;
    upload->owner = stream;
    upload->used_ns = now_ns;
    list_add_locked(table, upload, writer ? LIST_AWAKE : LIST_SMALL);
    return true;
}

/* From now on the name means the new upload. An older one goes on without a name, or is over. */
static struct upload_contents supersede_locked(struct upload_table *table, struct upload *by)
{
    struct upload_contents contents = {0};
    if (!by->name)
        return contents;
    struct upload *const older = find_locked(table, &by->digest, by->name);
    if (older) {
        unkey_locked(table, older);
        if (!older->owner)
            contents = end_locked(table, older);
    }
    by->keyed = true;
    by->chain = table->buckets[by->hash % BUCKETS];
    table->buckets[by->hash % BUCKETS] = by;
    return contents;
}

/* ---- turns */

enum upload_turn upload_enter(struct upload_stream *stream, struct status *status)
{
    struct upload_table *const table = stream->table;
    lock_acquire(&table->lock);
    const enum upload_turn turn = enter_locked(stream, status);
    stream->waits = turn == UPLOAD_WAIT;
    lock_release(&table->lock);
    return turn;
}

static enum upload_turn enter_locked(struct upload_stream *stream, struct status *status)
{
    ASSERT(!stream->inside);
    struct upload *const upload = stream->upload;
    if (!upload) {
        status_fail(status, STATUS_ABORTED,
                    "another stream of the same resource name has taken this upload over");
        return UPLOAD_LOST;
    }
    if (upload->ended) {
        *status = upload->why;
        return UPLOAD_LOST;
    }
    if (upload->busy || stream->member.role == UPLOAD_ROLE_FOLLOWER)
        return UPLOAD_WAIT;
    ASSERT(upload->owner == stream); /* a successor waits only while its owner is inside */
    upload->busy = true;
    stream->inside = true;
    return UPLOAD_ENTERED;
}

void upload_leave(struct upload_stream *stream)
{
    struct upload_table *const table = stream->table;
    lock_acquire(&table->lock);
    struct upload *const upload = stream->upload;
    step_out_locked(table, stream);
    struct upload_stream *const successor = upload->successor;
    if (successor) {
        upload->successor = NULL;
        displace(upload, successor);
        wake_if_it_waits(successor);
    }
    lock_release(&table->lock);
}

static void step_out_locked(struct upload_table *table, struct upload_stream *stream)
{
    struct upload *const upload = stream->upload;
    ASSERT(stream->inside && upload->busy && upload->owner == stream && !upload->ended);
    upload->held_bytes = upload_held_bytes(stream);
    upload->used_ns = clock_monotonic_ns(table->clock);
    list_remove_locked(table, upload);
    list_add_locked(table, upload, upload->contents.writer ? LIST_AWAKE : LIST_SMALL);
    upload_group_moved(&stream->member, upload->held_bytes);
    stream->inside = false;
    upload->busy = false;
}

void upload_committing(struct upload_stream *stream)
{
    struct upload_table *const table = stream->table;
    lock_acquire(&table->lock);
    ASSERT(stream->inside);
    upload_group_committing(&stream->member);
    lock_release(&table->lock);
}

void upload_close(struct upload_stream *stream, enum upload_outcome outcome)
{
    struct upload_table *const table = stream->table;
    if (!table)
        return;
    lock_acquire(&table->lock);
    struct upload_contents contents = close_locked(table, stream, outcome);
    lock_release(&table->lock);
    contents_free(&contents);
}

static struct upload_contents close_locked(struct upload_table *table,
                                           struct upload_stream *stream,
                                           enum upload_outcome outcome)
{
    struct upload_contents contents = {0};
    struct upload *const upload = stream->upload;
    if (upload && upload->owner == stream)
        contents = let_go_locked(table, stream, outcome);
    else if (upload)
        upload->successor = NULL;
    upload_group_leave(table->groups, &stream->member, outcome == UPLOAD_STORED,
                       clock_monotonic_ns(table->clock));
    stream->upload = NULL;
    stream->table = NULL;
    stream->waits = false;
    return contents;
}

static struct upload_contents let_go_locked(struct upload_table *table,
                                            struct upload_stream *stream,
                                            enum upload_outcome outcome)
{
    struct upload_contents contents = {0};
    struct upload *const upload = stream->upload;
    if (stream->inside)
        step_out_locked(table, stream);
    struct upload_stream *const successor = upload->successor;
    upload->successor = NULL;

    const bool keep =
        outcome == UPLOAD_KEEP && upload->keyed && upload->held_bytes > 0 && !upload->ended;
    if (keep && successor) {
        displace(upload, successor);
    } else {
        upload->owner = successor;
        if (upload->ended) {
            free_if_unused(upload);
        } else if (!keep) {
            status_fail(
                &upload->why, STATUS_ABORTED,
                "another stream of the same resource name has ended this upload; begin at 0");
            contents = end_locked(table, upload);
        }
    }
    if (successor)
        wake_if_it_waits(successor);
    return contents;
}

/* ---- inside */

struct blob_writer *upload_writer(struct upload_stream *stream)
{
    ASSERT(stream->inside);
    return stream->upload->contents.writer;
}

uint64_t upload_held_bytes(const struct upload_stream *stream)
{
    ASSERT(stream->inside);
    const struct upload_contents *const contents = &stream->upload->contents;
    return contents->writer ? blob_writer_offset(contents->writer) : contents->length;
}

bool upload_small_append(struct upload_stream *stream, struct bytes data, struct status *status)
{
    ASSERT(stream->inside && !stream->upload->contents.writer);
    struct upload *const upload = stream->upload;
    struct upload_contents *const contents = &upload->contents;
    const size_t size_bytes = (size_t)upload->digest.size_bytes;
    if (data.length > size_bytes - contents->length) {
        char text[DIGEST_TEXT_BYTES_MAX];
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "blob %s: at least %zu bytes were sent, more than its size",
                           digest_text(&upload->digest, text), contents->length + data.length);
    }
    if (data.length == 0)
        return true;
    if (!grow_small(stream->table, upload, contents->length + data.length, status))
        return false;
    memcpy(contents->memory + contents->length, data.data, data.length);
    contents->length += data.length;
    return true;
}

/* Doubles, so that one who sent little holds little, and bytes that come one by one are not copied each time. */
static bool grow_small(struct upload_table *table,
                       struct upload *upload,
                       size_t needed_bytes,
                       struct status *status)
{
    struct upload_contents *const contents = &upload->contents;
    if (needed_bytes <= contents->memory_bytes)
        return true;
    size_t memory_bytes = 2 * contents->memory_bytes;
    if (memory_bytes < SMALL_FIRST_BYTES)
        memory_bytes = SMALL_FIRST_BYTES;
    if (memory_bytes < needed_bytes)
        memory_bytes = needed_bytes;
    if (memory_bytes > (size_t)upload->digest.size_bytes)
        memory_bytes = (size_t)upload->digest.size_bytes;

    const size_t growth_bytes = memory_bytes - contents->memory_bytes;
    if (!reserve_small(table, growth_bytes))
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "unfinished uploads of small blobs hold %llu MiB, and none of them is "
                           "idle; try again later",
                           (unsigned long long)(UPLOADS_SMALL_BYTES / MIB));
    uint8_t *const memory = realloc(contents->memory, memory_bytes);
    if (!memory) {
        lock_acquire(&table->lock);
        table->small_bytes -= growth_bytes;
        lock_release(&table->lock);
        return status_fail_errno(status, ENOMEM, "upload");
    }
    contents->memory = memory;
    contents->memory_bytes = memory_bytes;
    return true;
}

static bool reserve_small(struct upload_table *table, size_t bytes)
{
    bool ok;
    do {
        lock_acquire(&table->lock);
        ok = table->small_bytes + bytes <= UPLOADS_SMALL_BYTES;
        if (ok)
            table->small_bytes += bytes;
        lock_release(&table->lock);
    } while (!ok && give_way(table, FROM_SMALL));
    return ok;
}

struct bytes upload_small_bytes(const struct upload_stream *stream)
{
    ASSERT(stream->inside && !stream->upload->contents.writer);
    const struct upload_contents *const contents = &stream->upload->contents;
    return bytes_of(contents->memory, contents->length);
}

/* ---- housekeeping */

void upload_table_step(struct upload_table *table)
{
    lock_acquire(&table->lock);
    upload_groups_step(table->groups, clock_monotonic_ns(table->clock));
    lock_release(&table->lock);
    park_idle(table);
    drop_expired(table);
}

static void park_idle(struct upload_table *table)
{
    struct buffer_pool *const buffers = table->store->buffers;
    const bool scarce = buffer_pool_in_use(buffers) > buffer_pool_max(buffers) / 4 * 3;
    for (int i = 0; i < PARKED_IN_ONE_STEP_MAX; i++) {
        lock_acquire(&table->lock);
        struct upload *const upload =
            take_idle_locked(table, scarce ? UPLOADS_IDLE_SHORT_NS : UPLOADS_IDLE_NS);
        lock_release(&table->lock);
        if (!upload)
            break;
        park(table, upload);
    }
}

/* One that may be parked, busy now; an upload without a stream at once. */
static struct upload *take_idle_locked(struct upload_table *table, int64_t idle_ns)
{
    const int64_t now_ns = clock_monotonic_ns(table->clock);
    for (struct upload *upload = table->lists[LIST_AWAKE].first; upload; upload = upload->next) {
        if (!upload->busy && (!upload->owner || now_ns - upload->used_ns >= idle_ns)) {
            upload->busy = true;
            return upload;
        }
    }
    return NULL;
}

static void park(struct upload_table *table, struct upload *upload)
{
    struct status status;
    struct blob_writer *const writer = upload->contents.writer;
    const bool ok = blob_writer_needs_buffer(writer) || blob_writer_park(writer, &status);

    struct upload_contents contents = {0};
    lock_acquire(&table->lock);
    struct upload_stream *const owner = upload->owner;
    upload->busy = false;
    if (!ok)
        upload->why = status;
    if (!ok || upload->ends_when_left) {
        contents = end_locked(table, upload);
    } else {
        list_remove_locked(table, upload);
        list_add_locked(table, upload, LIST_PARKED);
    }
    if (owner)
        wake_if_it_waits(owner);
    lock_release(&table->lock);
    contents_free(&contents);
}

static void drop_expired(struct upload_table *table)
{
    struct upload_contents expired[EXPIRED_IN_ONE_STEP_MAX];
    size_t count = 0;

    lock_acquire(&table->lock);
    const int64_t now_ns = clock_monotonic_ns(table->clock);
    struct upload *upload = table->lists[LIST_PARKED].first;
    while (upload && count < ARRAY_LENGTH(expired) && now_ns - upload->used_ns >= table->keep_ns) {
        struct upload *const next = upload->next;
        if (!upload->owner && !upload->busy)
            expired[count++] = end_locked(table, upload);
        upload = next;
    }
    lock_release(&table->lock);

    metrics_add(table->metrics, METRIC_UPLOADS_EXPIRED, (int64_t)count);
    for (size_t i = 0; i < count; i++)
        contents_free(&expired[i]);
}

/* ---- giving way */

/* Ends the upload that was idle for longest; or of small ones the slowest, if it is slow. False when there is none. */
static bool give_way(struct upload_table *table, enum give_way_from from)
{
    static const enum list_name lists[] = {LIST_SMALL, LIST_PARKED, LIST_AWAKE};
    struct upload_contents contents = {0};

    lock_acquire(&table->lock);
    const int64_t now_ns = clock_monotonic_ns(table->clock);
    struct upload *oldest = NULL;
    for (size_t i = 0; i < (from == FROM_SMALL ? 1 : ARRAY_LENGTH(lists)); i++) {
        struct upload *const idle = oldest_idle_locked(table, lists[i], now_ns);
        if (idle && (!oldest || idle->used_ns < oldest->used_ns))
            oldest = idle;
    }
    if (!oldest && from == FROM_SMALL)
        oldest = slowest_small_locked(table, now_ns);
    const bool found = oldest != NULL;
    if (found) {
        status_fail(&oldest->why, STATUS_ABORTED,
                    "this upload gave way to others, begun %lld s ago and without data for %lld s; "
                    "begin again at 0",
                    (long long)((now_ns - oldest->begun_ns) / NS_PER_S),
                    (long long)((now_ns - oldest->used_ns) / NS_PER_S));
        if (oldest->owner)
            wake_if_it_waits(oldest->owner);
        contents = end_locked(table, oldest);
    }
    lock_release(&table->lock);
    contents_free(&contents);
    return found;
}

static struct upload *oldest_idle_locked(struct upload_table *table,
                                         enum list_name list,
                                         int64_t now_ns)
{
    struct upload *upload = table->lists[list].first;
    while (upload &&
           (upload->busy || (upload->owner && now_ns - upload->used_ns < UPLOADS_IDLE_NS)))
        upload = upload->next;
    return upload;
}

/* A byte now and then keeps an upload from being idle, but a small blob takes nobody so long. */
static struct upload *slowest_small_locked(struct upload_table *table, int64_t now_ns)
{
    struct upload *slowest = NULL;
    for (struct upload *upload = table->lists[LIST_SMALL].first; upload; upload = upload->next)
        if (!upload->busy && now_ns - upload->begun_ns >= UPLOADS_SLOW_NS &&
            (!slowest || upload->begun_ns < slowest->begun_ns))
            slowest = upload;
    return slowest;
}

/* ---- an upload's parts */

/* The new stream has the upload, and the old one's place in the group; the old one is told so. */
static void displace(struct upload *upload, struct upload_stream *by)
{
    struct upload_stream *const from = upload->owner;
    ASSERT(from && !from->inside);
    upload_group_replace(&from->member, &by->member);
    upload->owner = by;
    from->upload = NULL;
    wake_if_it_waits(from);
}

/* From now on it holds nothing and cannot be found. Frees it, if it has no stream; what it held is the caller's to free. */
static struct upload_contents end_locked(struct upload_table *table, struct upload *upload)
{
    struct upload_contents contents = {0};
    ASSERT(!upload->ended);
    unkey_locked(table, upload);
    if (upload->busy) {
        upload->ends_when_left = true;
        return contents;
    }
    upload->ended = true;
    list_remove_locked(table, upload);
    contents = upload->contents;
    upload->contents = (struct upload_contents){0};
    ASSERT(contents.writer || table->small_bytes >= contents.memory_bytes);
    table->small_bytes -= contents.memory_bytes;
    free_if_unused(upload);
    return contents;
}

static void free_if_unused(struct upload *upload)
{
    if (upload->ended && !upload->owner)
        upload_free(upload);
}

static void contents_free(struct upload_contents *contents)
{
    blob_writer_free(contents->writer);
    free(contents->memory);
}

static bool is_large(const struct digest *digest)
{
    return digest->size_bytes > (int64_t)LIMIT_SMALL_BLOB_BYTES;
}

static bool is_resumable(const struct resource_name *name)
{
    return is_large(&name->digest) && name->compressor == COMPRESSOR_IDENTITY;
}

/* Instance and uuid have no control bytes, so that a newline keeps them apart. NULL without memory. */
static char *name_key(const struct resource_name *name)
{
    char *const key = malloc(name->instance.length + name->uuid.length + 2);
    if (!key)
        return NULL;
    char *to = key;
    if (name->instance.length > 0)
        memcpy(to, name->instance.data, name->instance.length);
    to += name->instance.length;
    *to++ = '\n';
    if (name->uuid.length > 0)
        memcpy(to, name->uuid.data, name->uuid.length);
    to[name->uuid.length] = '\0';
    return key;
}

/* key: "" for the digest alone. */
static uint64_t name_hash(const struct upload_table *table,
                          const struct digest *digest,
                          const char *key)
{
    static_assert(DIGEST_HASH_BYTES_MAX % SIPHASH_WORD_BYTES == 0, "a hash is whole words");
    struct siphash siphash;
    siphash_begin(&siphash, &table->key);
    siphash_words(&siphash, digest->hash, DIGEST_HASH_BYTES_MAX / SIPHASH_WORD_BYTES);
    return siphash_finish(&siphash, bytes_of_string(key));
}

static struct upload *find_locked(struct upload_table *table,
                                  const struct digest *digest,
                                  const char *key)
{
    const uint64_t hash = name_hash(table, digest, key);
    struct upload *upload = table->buckets[hash % BUCKETS];
    while (upload && !(upload->hash == hash && digest_equal(&upload->digest, digest) &&
                       strcmp(upload->name, key) == 0))
        upload = upload->chain;
    return upload;
}

static void unkey_locked(struct upload_table *table, struct upload *upload)
{
    if (!upload->keyed)
        return;
    struct upload **link = &table->buckets[upload->hash % BUCKETS];
    while (*link != upload)
        link = &(*link)->chain;
    *link = upload->chain;
    upload->keyed = false;
}

static void list_add_locked(struct upload_table *table, struct upload *upload, enum list_name name)
{
    struct upload_list *const list = &table->lists[name];
    upload->list = name;
    upload->next = NULL;
    upload->previous = list->last;
    if (list->last)
        list->last->next = upload;
    else
        list->first = upload;
    list->last = upload;
    table->count++;
    metrics_set(table->metrics, METRIC_UPLOADS_OPEN, (int64_t)table->count);
}

static void list_remove_locked(struct upload_table *table, struct upload *upload)
{
    struct upload_list *const list = &table->lists[upload->list];
    if (upload->previous)
        upload->previous->next = upload->next;
    else
        list->first = upload->next;
    if (upload->next)
        upload->next->previous = upload->previous;
    else
        list->last = upload->previous;
    table->count--;
    metrics_set(table->metrics, METRIC_UPLOADS_OPEN, (int64_t)table->count);
}

static void wake_if_it_waits(struct upload_stream *stream)
{
    if (!stream->waits)
        return;
    stream->waits = false;
    stream->wake(stream);
}

static void member_released(struct upload_member *member)
{
    wake_if_it_waits(CONTAINER_OF(member, struct upload_stream, member));
}
