/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/real_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "store/action_record.h"
#include "store/blob_reader.h"
#include "store/blob_writer.h"

static bool is_refused(struct real_store *real, size_t length, uint64_t offset)
{
    return offset < atomic_load(&real->refused_to) &&
           offset + length > atomic_load(&real->refused_from);
}

static int64_t pread_counted(struct io *io, int fd, void *buffer, size_t length, uint64_t offset)
{
    struct real_store *const real = CONTAINER_OF(io, struct real_store, io);
    atomic_fetch_add(&real->reads, 1);
    if (is_refused(real, length, offset))
        return -EIO;
    return io_posix()->ops->pread(io_posix(), fd, buffer, length, offset);
}

static int64_t pread_cached_or_fail(struct io *io,
                                    int fd,
                                    void *buffer,
                                    size_t length,
                                    uint64_t offset)
{
    struct real_store *const real = CONTAINER_OF(io, struct real_store, io);
    if (atomic_load(&real->nothing_cached) || is_refused(real, length, offset))
        return -EAGAIN;
    const int64_t result = io_posix()->ops->pread_cached(io_posix(), fd, buffer, length, offset);
    if (result > 0)
        atomic_fetch_add(&real->reads_cached, 1);
    return result;
}

static int sync_or_fail(struct io *io, int fd)
{
    struct real_store *const real = CONTAINER_OF(io, struct real_store, io);
    const int error_number = atomic_load(&real->sync_errno);
    return error_number != 0 ? -error_number : io_posix()->ops->sync(io_posix(), fd);
}

static int64_t pwritev_or_fail(struct io *io,
                               int fd,
                               const struct iovec *parts,
                               int count,
                               uint64_t offset)
{
    struct real_store *const real = CONTAINER_OF(io, struct real_store, io);
    const int error_number = atomic_load(&real->write_errno);
    void (*const before_write)(size_t bytes) = atomic_load(&real->before_write);
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    if (before_write != NULL)
        before_write(bytes);
    return error_number != 0 ? -error_number
                             : io_posix()->ops->pwritev(io_posix(), fd, parts, count, offset);
}

static int allocate_or_fail(struct io *io, int fd, uint64_t length)
{
    struct real_store *const real = CONTAINER_OF(io, struct real_store, io);
    int error_number = atomic_load(&real->write_errno);
    if (error_number == 0)
        error_number = atomic_load(&real->allocate_errno);
    return error_number != 0 ? -error_number : io_posix()->ops->allocate(io_posix(), fd, length);
}

void real_store_open(struct real_store *real, struct metrics *metrics, size_t buffers)
{
    struct status status = {0};
    *real = (struct real_store){.ops = *io_posix()->ops, .metrics = metrics};
    real->io.ops = &real->ops;
    real->ops.pread = pread_counted;
    real->ops.pread_cached = pread_cached_or_fail;
    real->ops.sync = sync_or_fail;
    real->ops.pwritev = pwritev_or_fail;
    real->ops.allocate = allocate_or_fail;
    temp_dir_make(&real->directory);
    ASSERT(buffer_pool_new(LIMIT_POOL_BUFFER_BYTES, buffers, &real->buffers, &status));
    const struct store_config config = {
        .io = &real->io,
        .clock = clock_real(),
        .metrics = metrics,
        .buffers = real->buffers,
        .directory = real->directory.path,
        .segment_bytes = {[LANE_SMALL] = 32 * MIB, [LANE_LARGE] = 64 * MIB},
    };
    struct recovery_report report;
    if (!durability_open(&config, NULL, NULL, &real->durability, &report, &status)) {
        fprintf(stderr, "durability_open: %s\n", status.message);
        ASSERT(false);
    }
    real->store = durability_store(real->durability);
}

void real_store_close(struct real_store *real)
{
    durability_close(real->durability);
    ASSERT(buffer_pool_in_use(real->buffers) == 0);
    buffer_pool_free(real->buffers);
    temp_dir_remove(&real->directory);
}

/* ---- writes that wait */

struct wait {
    struct commit_request request;
    struct lock lock;
    struct condition done;
    bool over;
    struct status result;
};

static void on_done(struct ack *ack, const struct status *result)
{
    struct wait *const wait = CONTAINER_OF(ack, struct wait, request.ack);
    lock_acquire(&wait->lock);
    wait->result = *result;
    wait->over = true;
    condition_signal(&wait->done);
    lock_release(&wait->lock);
}

static void commit_and_wait(struct real_store *real,
                            enum lane lane,
                            struct record *record,
                            struct bytes instance)
{
    struct wait wait = {
        .request = {.record = record, .instance = instance, .ack = {.done = on_done}}};
    lock_init(&wait.lock, LOCK_RANK_LEAF);
    condition_init(&wait.done);
    commit_submit(durability_commit(real->durability, lane), &wait.request);
    lock_acquire(&wait.lock);
    while (!wait.over)
        condition_wait(&wait.done, &wait.lock);
    lock_release(&wait.lock);
    condition_destroy(&wait.done);
    lock_destroy(&wait.lock);
    if (wait.result.code != STATUS_OK) {
        fprintf(stderr, "commit: %s\n", wait.result.message);
        ASSERT(false);
    }
}

struct digest real_store_put(struct real_store *real, struct bytes data)
{
    struct digest digest;
    struct status status = {0};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, data, &digest);
    if (data.length == 0)
        return digest;
    struct blob_writer *writer;
    struct record *record;
    enum lane lane;
    ASSERT(blob_writer_new(real->store, &digest, &writer, &status));
    struct buffer *const buffer = buffer_pool_try_take(real->buffers);
    ASSERT(buffer != NULL);
    blob_writer_give_buffer(writer, buffer);
    ASSERT(blob_writer_append(writer, data, &status));
    ASSERT(blob_writer_finish(writer, &record, &lane, &status));
    commit_and_wait(real, lane, record, bytes_of(NULL, 0));
    blob_writer_free(writer);
    return digest;
}

void real_store_put_action(struct real_store *real,
                           const struct digest *action,
                           struct bytes instance,
                           struct bytes result)
{
    const struct action_record fields = {
        .written_wall_ns = clock_wall_ns(clock_real()),
        .node_uid = real->store->node_uid,
        .instance = instance,
        .writer = bytes_of_string("test"),
        .result = result,
    };
    uint8_t fixed[ACTION_RECORD_FIXED_BYTES];
    action_record_fixed_put(fixed, &fields);
    const struct bytes parts[] = {bytes_of(fixed, sizeof(fixed)), fields.instance, fields.writer,
                                  fields.result};
    const struct bytes_list payload = {.parts = parts, .count = ARRAY_LENGTH(parts)};
    struct record record = {
        .kind = RECORD_ACTION,
        .digest = *action,
        .payload = payload,
        .payload_bytes = bytes_list_length(payload),
        .payload_crc32c = crc32c_list(0, payload),
    };
    commit_and_wait(real, LANE_SMALL, &record, instance);
}

/* ---- damage */

static void damage_at(struct real_store *real, struct place place, off_t behind_header)
{
    char path[SEGMENT_PATH_BYTES_MAX];
    segment_path(path, real->store->segments_directory, place.segment, "seg");
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    ASSERT(fd >= 0);
    uint8_t byte;
    const off_t at = (off_t)place.offset + RECORD_HEADER_BYTES + behind_header;
    ASSERT(pread(fd, &byte, 1, at) == 1);
    byte ^= 0x40;
    ASSERT(pwrite(fd, &byte, 1, at) == 1);
    ASSERT(close(fd) == 0);
}

static void damage(struct real_store *real, struct blob_key key, off_t behind_header)
{
    struct place place;
    ASSERT(blob_table_get(real->store->table, key, false, &place));
    damage_at(real, place, behind_header);
}

void real_store_lose(struct real_store *real, const struct digest *digest)
{
    struct place place;
    ASSERT(blob_table_get(real->store->table, blob_table_blob_key(real->store->table, digest),
                          false, &place));
    atomic_store(&real->refused_from, place.offset);
    atomic_store(&real->refused_to, place.offset + RECORD_HEADER_BYTES + 1);
}

void real_store_damage_chunk(struct real_store *real, const struct digest *digest, size_t chunk)
{
    struct blob_reader *reader = NULL;
    struct status status;
    size_t count = 0;
    ASSERT(blob_reader_open(real->store, digest, &reader, &status) && reader);
    const struct manifest_chunk *const chunks = blob_reader_chunks(reader, &count);
    ASSERT(chunk < count);
    damage_at(real, place_unpack(chunks[chunk].place), 0);
    blob_reader_free(reader);
}

void real_store_damage(struct real_store *real, const struct digest *digest)
{
    damage(real, blob_table_blob_key(real->store->table, digest), 0);
}

void real_store_damage_action(struct real_store *real,
                              const struct digest *action,
                              struct bytes instance)
{
    damage(real, blob_table_action_key(real->store->table, action, instance),
           ACTION_RECORD_FIXED_BYTES);
}
