/* SPDX-License-Identifier: Apache-2.0 */
#include "durability/put_file.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/blob_writer.h"

/*
 * What is read and hashed at a time: it is still in the CPU's second cache when it is hashed. Without
 * a hash a whole chunk, since each call costs.
 */
enum { HASHED_PIECE_BYTES = 256 * 1024 };

/* A file that is being put. */
struct put {
    struct durability *durability; /* borrowed */
    const struct put_request *request;
    struct stat stat; /* when it was opened */
};

struct put_wait {
    struct commit_request request;
    struct lock lock;
    struct condition changed;
    bool done;            /* guarded by lock */
    struct status result; /* guarded by lock */
};

static bool put_whole(struct put *put, struct digest *digest, struct status *status);
static bool put_small(struct put *put, struct digest *digest, struct status *status);
static bool find_digest(struct put *put, struct digest *digest, struct status *status);
static bool write_file(struct put *put, const struct digest *digest, struct status *status);
static bool fill_from_file(struct put *put, struct blob_writer *writer, struct status *status);
static bool fill_from_reader(struct blob_writer *writer,
                             const struct put_reader *reader,
                             struct status *status);
static bool read_exactly(const struct put *put,
                         uint64_t offset,
                         uint8_t *to,
                         size_t length,
                         struct status *status);
static bool check_unchanged(const struct put *put, struct status *status);
static bool changed(const struct put *put, struct status *status);
static bool give_buffer(struct store *store, struct blob_writer *writer, struct status *status);
static struct buffer *take_buffer(struct store *store, struct status *status);
static bool finish(struct durability *durability,
                   struct blob_writer *writer,
                   struct status *status);
static bool commit_and_wait(struct commit *commit, struct record *record, struct status *status);
static void commit_done(struct ack *ack, const struct status *result);

bool put_file(struct durability *durability,
              const struct put_request *request,
              struct digest *digest,
              struct status *status)
{
    ASSERT(request->check == PUT_HASHED || request->digest != NULL);
    struct put put = {.durability = durability, .request = request};
    if (fstat(request->fd, &put.stat) != 0)
        return status_fail_errno(status, errno, "%s", request->name);
    if (!S_ISREG(put.stat.st_mode))
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s: not a regular file",
                           request->name);
    if (put_whole(&put, digest, status))
        return true;
    /* Errors of ours about the file begin with its name; those of the store do not know it. */
    if (status->code != STATUS_ABORTED)
        status_prefix(status, "put %s", request->name);
    return false;
}

static bool put_whole(struct put *put, struct digest *digest, struct status *status)
{
    struct store *const store = durability_store(put->durability);
    const struct digest *const given = put->request->digest;
    if (given != NULL && given->size_bytes != put->stat.st_size)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "it has %lld bytes, and %lld are asked for",
                           (long long)put->stat.st_size, (long long)given->size_bytes);
    if (given != NULL)
        *digest = *given;
    if (given != NULL && store_has_blob(store, given))
        return true;
    if (given == NULL && (uint64_t)put->stat.st_size <= LIMIT_SMALL_BLOB_BYTES)
        return put_small(put, digest, status);
    if (given == NULL && !find_digest(put, digest, status))
        return false;
    return store_has_blob(store, digest) || write_file(put, digest, status);
}

/* It fits into one buffer: read once, whatever is known of it. */
static bool put_small(struct put *put, struct digest *digest, struct status *status)
{
    struct store *const store = durability_store(put->durability);
    const size_t length = (size_t)put->stat.st_size;
    struct buffer *buffer = take_buffer(store, status);
    if (buffer == NULL)
        return false;
    struct blob_writer *writer = NULL;
    bool ok = read_exactly(put, 0, buffer->data, length, status) && check_unchanged(put, status);
    if (ok) {
        digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(buffer->data, length), digest);
        if (store_has_blob(store, digest)) {
            buffer_release(buffer);
            return true;
        }
        ok = blob_writer_new(store, digest, &writer, status);
    }
    if (ok) {
        blob_writer_trust(writer); /* just hashed, in this very buffer */
        blob_writer_give_buffer(writer, buffer);
        buffer = NULL;
        ok = blob_writer_filled(writer, length, status) && finish(put->durability, writer, status);
    }
    blob_writer_free(writer);
    buffer_release(buffer);
    return ok;
}

static bool find_digest(struct put *put, struct digest *digest, struct status *status)
{
    struct buffer *const buffer = take_buffer(durability_store(put->durability), status);
    if (buffer == NULL)
        return false;
    struct hasher *const hasher = hasher_new(DIGEST_FUNCTION_SHA256);
    const uint64_t size_bytes = (uint64_t)put->stat.st_size;
    bool ok = true;
    for (uint64_t offset = 0; ok && offset < size_bytes;) {
        const uint64_t left = size_bytes - offset;
        const size_t length = left < HASHED_PIECE_BYTES ? (size_t)left : HASHED_PIECE_BYTES;
        ok = read_exactly(put, offset, buffer->data, length, status);
        if (ok)
            hasher_update(hasher, bytes_of(buffer->data, length));
        offset += length;
    }
    ok = ok && check_unchanged(put, status);
    if (ok)
        hasher_finish(hasher, digest);
    hasher_free(hasher);
    buffer_release(buffer);
    return ok;
}

static bool write_file(struct put *put, const struct digest *digest, struct status *status)
{
    struct store *const store = durability_store(put->durability);
    struct blob_writer *writer;
    if (!blob_writer_new(store, digest, &writer, status))
        return false;
    if (put->request->check == PUT_VOUCHED)
        blob_writer_trust(writer);
    const bool ok = give_buffer(store, writer, status) && fill_from_file(put, writer, status) &&
                    check_unchanged(put, status) && finish(put->durability, writer, status);
    blob_writer_free(writer);
    return ok;
}

static bool fill_from_file(struct put *put, struct blob_writer *writer, struct status *status)
{
    const uint64_t size_bytes = (uint64_t)put->stat.st_size;
    const bool hashed = put->request->check == PUT_HASHED;
    while (blob_writer_offset(writer) < size_bytes) {
        size_t length;
        uint8_t *const to = blob_writer_space(writer, &length);
        if (hashed && length > HASHED_PIECE_BYTES)
            length = HASHED_PIECE_BYTES;
        if (!read_exactly(put, blob_writer_offset(writer), to, length, status) ||
            !blob_writer_filled(writer, length, status))
            return false;
    }
    return true;
}

static bool read_exactly(const struct put *put,
                         uint64_t offset,
                         uint8_t *to,
                         size_t length,
                         struct status *status)
{
    for (size_t got = 0; got < length;) {
        const ssize_t n = pread(put->request->fd, to + got, length - got, (off_t)(offset + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return status_fail_errno(status, errno, "read");
        if (n == 0)
            return changed(put, status);
        got += (size_t)n;
    }
    return true;
}

/* The time of the last change of the inode cannot be set back, as that of the content can. */
static bool check_unchanged(const struct put *put, struct status *status)
{
    struct stat now;
    if (fstat(put->request->fd, &now) != 0)
        return status_fail_errno(status, errno, "look at it again");
    const struct stat *const then = &put->stat;
    const bool same = now.st_size == then->st_size && now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
                      now.st_mtim.tv_nsec == then->st_mtim.tv_nsec &&
                      now.st_ctim.tv_sec == then->st_ctim.tv_sec &&
                      now.st_ctim.tv_nsec == then->st_ctim.tv_nsec;
    return same || changed(put, status);
}

static bool changed(const struct put *put, struct status *status)
{
    return status_fail(status, STATUS_ABORTED,
                       "%s: changed while it was read; try again when nobody writes to it",
                       put->request->name);
}

bool put_stream(struct durability *durability,
                const struct digest *digest,
                const struct put_reader *reader,
                struct status *status)
{
    struct store *const store = durability_store(durability);
    if (store_has_blob(store, digest))
        return true;
    struct blob_writer *writer;
    if (!blob_writer_new(store, digest, &writer, status))
        return false;
    const bool ok = give_buffer(store, writer, status) &&
                    fill_from_reader(writer, reader, status) && finish(durability, writer, status);
    blob_writer_free(writer);
    return ok;
}

/* One byte more than there should be is asked for, to see that there is none. */
static bool fill_from_reader(struct blob_writer *writer,
                             const struct put_reader *reader,
                             struct status *status)
{
    const uint64_t size_bytes = (uint64_t)blob_writer_digest(writer)->size_bytes;
    for (;;) {
        uint8_t surplus;
        uint8_t *to = &surplus;
        size_t room = 1;
        size_t got = 0;
        const bool full = blob_writer_offset(writer) == size_bytes;
        if (!full)
            to = blob_writer_space(writer, &room);
        if (!reader->read(reader->argument, to, room, &got, status))
            return false;
        ASSERT(got <= room);
        if (full && got > 0)
            return status_fail(status, STATUS_INVALID_ARGUMENT, "more than its %llu bytes came",
                               (unsigned long long)size_bytes);
        if (got == 0)
            return true; /* blob_writer_finish() sees what is missing */
        if (!blob_writer_filled(writer, got, status))
            return false;
    }
}

static bool give_buffer(struct store *store, struct blob_writer *writer, struct status *status)
{
    if (!blob_writer_needs_buffer(writer))
        return true;
    struct buffer *const buffer = take_buffer(store, status);
    if (buffer != NULL)
        blob_writer_give_buffer(writer, buffer);
    return buffer != NULL;
}

static struct buffer *take_buffer(struct store *store, struct status *status)
{
    struct buffer *const buffer = buffer_pool_try_take(store->buffers);
    if (buffer == NULL)
        status_fail(status, STATUS_RESOURCE_EXHAUSTED, "all %zu buffers are in use",
                    buffer_pool_max(store->buffers));
    return buffer;
}

static bool finish(struct durability *durability, struct blob_writer *writer, struct status *status)
{
    struct record *record;
    enum lane lane;
    return blob_writer_finish(writer, &record, &lane, status) &&
           commit_and_wait(durability_commit(durability, lane), record, status);
}

static bool commit_and_wait(struct commit *commit, struct record *record, struct status *status)
{
    struct put_wait wait = {.request = {.record = record, .ack = {.done = commit_done}}};
    lock_init(&wait.lock, LOCK_RANK_LEAF);
    condition_init(&wait.changed);
    commit_submit(commit, &wait.request);
    lock_acquire(&wait.lock);
    while (!wait.done)
        condition_wait(&wait.changed, &wait.lock);
    lock_release(&wait.lock);
    condition_destroy(&wait.changed);
    lock_destroy(&wait.lock);
    if (wait.result.code == STATUS_OK)
        return true;
    *status = wait.result;
    return false;
}

static void commit_done(struct ack *ack, const struct status *result)
{
    struct put_wait *const wait = CONTAINER_OF(ack, struct put_wait, request.ack);
    lock_acquire(&wait->lock);
    wait->result = *result;
    wait->done = true;
    condition_signal(&wait->changed);
    lock_release(&wait->lock);
}
