/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/store_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/crc32c.h"
#include "store/blob_reader.h"
#include "tests/support/prng.h"

enum { RIG_BUFFERS = 64 };

static void remember_failure(void *argument, enum lane lane, const struct status *why);
static void make_parents(struct io *io, const char *path);
static void put_done(struct ack *ack, const struct status *result);

void store_rig_start(struct store_rig *rig, enum store_rig_disk disk)
{
    const struct store_rig_limits none = {0};
    store_rig_start_limited(rig, disk, &none);
}

void store_rig_start_limited(struct store_rig *rig,
                             enum store_rig_disk disk,
                             const struct store_rig_limits *limits)
{
    struct status status;
    memset(rig, 0, sizeof(*rig));
    lock_init(&rig->lock, LOCK_RANK_LEAF);
    rig->limits = *limits;
    temp_dir_make(&rig->directory);
    if (disk == STORE_RIG_SIMULATED) {
        rig->sim = io_sim_new();
        make_parents(io_sim_io(rig->sim), rig->directory.path);
    }
    ck_assert_msg(buffer_pool_new(LIMIT_POOL_BUFFER_BYTES, RIG_BUFFERS, &rig->buffers, &status),
                  "%s", status.message);
    store_rig_open(rig);
}

void store_rig_end(struct store_rig *rig)
{
    store_rig_close(rig);
    buffer_pool_free(rig->buffers);
    io_sim_free(rig->sim);
    temp_dir_remove(&rig->directory);
}

static void make_parents(struct io *io, const char *path)
{
    char parent[TEMP_DIR_PATH_BYTES_MAX];
    char above[TEMP_DIR_PATH_BYTES_MAX] = "/";
    struct status status;
    for (size_t i = 1; path[i] != '\0'; i++) {
        if (path[i] != '/')
            continue;
        memcpy(parent, path, i);
        parent[i] = '\0';
        ck_assert_msg(io_make_directory(io, parent, &status), "%s", status.message);
        ck_assert_msg(io_sync_directory(io, above, &status), "%s", status.message);
        memcpy(above, parent, i + 1);
    }
}

void store_rig_open(struct store_rig *rig)
{
    struct status status = {0};
    ck_assert_msg(store_rig_try_open(rig, &status), "%s", status.message);
    while (metrics_get(&rig->metrics, METRIC_INDEX_LOADING) != 0)
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
}

bool store_rig_try_open(struct store_rig *rig, struct status *status)
{
    struct io *const disk = rig->sim != NULL ? io_sim_io(rig->sim) : io_posix();
    const struct store_config config = {
        .io = rig->io != NULL ? rig->io : disk,
        .clock = rig->limits.clock != NULL ? rig->limits.clock : clock_real(),
        .metrics = &rig->metrics,
        .buffers = rig->buffers,
        .directory = rig->directory.path,
        .scrub_bytes_per_s = rig->scrub_bytes_per_s,
        .segment_bytes = {rig->limits.segment_bytes[LANE_SMALL] != 0
                              ? rig->limits.segment_bytes[LANE_SMALL]
                              : SEGMENT_BYTES_MIN,
                          rig->limits.segment_bytes[LANE_LARGE] != 0
                              ? rig->limits.segment_bytes[LANE_LARGE]
                              : SEGMENT_BYTES_MIN},
        .capacity_bytes = rig->limits.capacity_bytes,
        .reserve_bytes = rig->limits.reserve_bytes,
        .vouch_ns = rig->limits.vouch_ns,
    };
    lock_acquire(&rig->lock);
    rig->failure.code = STATUS_OK;
    lock_release(&rig->lock);
    return durability_open(&config, remember_failure, rig, &rig->durability, &rig->report, status);
}

static void remember_failure(void *argument, enum lane lane, const struct status *why)
{
    struct store_rig *rig = argument;
    (void)lane;
    lock_acquire(&rig->lock);
    if (rig->failure.code == STATUS_OK)
        rig->failure = *why;
    lock_release(&rig->lock);
}

enum status_code store_rig_failure(struct store_rig *rig)
{
    lock_acquire(&rig->lock);
    const enum status_code code = rig->failure.code;
    lock_release(&rig->lock);
    return code;
}

void store_rig_close(struct store_rig *rig)
{
    durability_close(rig->durability);
    rig->durability = NULL;
}

void store_rig_crash(struct store_rig *rig, uint64_t seed, enum io_sim_crash_mode mode)
{
    /* Threads of the old life may still rename and remove files; the new life's disk must not see that. */
    io_sim_cut_power_at(rig->sim, 1);
    store_rig_close(rig);
    io_sim_crash(rig->sim, seed, mode);
    store_rig_remove_index(rig); /* RocksDB has a disk of its own, which this crash did not reach */
}

void store_rig_remove_index(struct store_rig *rig)
{
    char path[TEMP_DIR_PATH_BYTES_MAX + 16];
    struct status status;
    snprintf(path, sizeof(path), "%s/index", rig->directory.path);
    ck_assert_msg(index_destroy(path, &status), "%s", status.message);
}

bool store_put_start(struct store_rig *rig,
                     struct store_put *put,
                     struct bytes data,
                     struct status *status)
{
    store_put_init(put);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, data, &put->digest);
    struct store *store = durability_store(rig->durability);
    struct record *record = &put->record;
    enum lane lane = LANE_SMALL;
    put->payload = data;
    if (data.length <= LIMIT_SMALL_BLOB_BYTES) {
        put->record = (struct record){.kind = RECORD_BLOB,
                                      .digest = put->digest,
                                      .payload = {.parts = &put->payload, .count = 1},
                                      .payload_bytes = data.length,
                                      .payload_crc32c = crc32c(0, data)};
    } else {
        ck_assert(blob_writer_new(store, &put->digest, &put->writer, status));
        blob_writer_give_buffer(put->writer, buffer_pool_try_take(rig->buffers));
        if (!blob_writer_append(put->writer, data, status) ||
            !blob_writer_finish(put->writer, &record, &lane, status)) {
            blob_writer_free(put->writer);
            put->writer = NULL;
            return false;
        }
    }
    put->request.record = record;
    commit_submit(durability_commit(rig->durability, lane), &put->request);
    return true;
}

void store_put_start_action(struct store_rig *rig,
                            struct store_put *put,
                            const struct digest *action,
                            const char *instance,
                            struct bytes result)
{
    store_put_init(put);
    put->digest = *action;
    const struct action_record fields = {.written_wall_ns = 1,
                                         .node_uid = 2,
                                         .instance = bytes_of_string(instance),
                                         .writer = bytes_of_string("test"),
                                         .result = result};
    action_record_fixed_put(put->fixed, &fields);
    put->action_parts[0] = bytes_of(put->fixed, sizeof(put->fixed));
    put->action_parts[1] = fields.instance;
    put->action_parts[2] = fields.writer;
    put->action_parts[3] = fields.result;
    put->record = (struct record){.kind = RECORD_ACTION,
                                  .digest = *action,
                                  .payload = {.parts = put->action_parts, .count = 4}};
    put->record.payload_bytes = bytes_list_length(put->record.payload);
    put->record.payload_crc32c = crc32c_list(0, put->record.payload);
    put->request.record = &put->record;
    put->request.instance = fields.instance;
    commit_submit(durability_commit(rig->durability, LANE_SMALL), &put->request);
}

void store_put_start_record(struct store_rig *rig,
                            struct store_put *put,
                            struct record *record,
                            enum lane lane)
{
    store_put_init(put);
    put->request.record = record;
    commit_submit(durability_commit(rig->durability, lane), &put->request);
}

void store_put_start_local(struct store_rig *rig,
                           struct store_put *put,
                           struct record *record,
                           enum lane lane)
{
    store_put_init(put);
    put->request.record = record;
    put->request.local = true;
    commit_submit(durability_commit(rig->durability, lane), &put->request);
}

void store_put_init(struct store_put *put)
{
    memset(put, 0, sizeof(*put));
    lock_init(&put->lock, LOCK_RANK_LEAF);
    condition_init(&put->changed);
    put->request.ack.done = put_done;
}

static void put_done(struct ack *ack, const struct status *result)
{
    struct store_put *put = CONTAINER_OF(ack, struct store_put, request.ack);
    lock_acquire(&put->lock);
    put->done = true;
    put->result = *result;
    condition_broadcast(&put->changed);
    lock_release(&put->lock);
}

bool store_put_finish(struct store_put *put, struct status *status)
{
    lock_acquire(&put->lock);
    while (!put->done)
        condition_wait(&put->changed, &put->lock);
    *status = put->result;
    lock_release(&put->lock);
    blob_writer_free(put->writer);
    condition_destroy(&put->changed);
    lock_destroy(&put->lock);
    return status->code == STATUS_OK;
}

bool store_rig_put(struct store_rig *rig,
                   struct bytes data,
                   struct digest *digest,
                   struct status *status)
{
    struct store_put put;
    if (!store_put_start(rig, &put, data, status)) {
        *digest = put.digest;
        return false;
    }
    *digest = put.digest;
    return store_put_finish(&put, status);
}

bool store_rig_put_action(struct store_rig *rig,
                          const struct digest *action,
                          const char *instance,
                          struct bytes result,
                          struct status *status)
{
    struct store_put put;
    store_put_start_action(rig, &put, action, instance, result);
    return store_put_finish(&put, status);
}

bool store_rig_has(struct store_rig *rig, const struct digest *digest)
{
    return store_has_blob(durability_store(rig->durability), digest);
}

bool store_rig_reads(struct store_rig *rig, const struct digest *digest, struct bytes expected)
{
    uint8_t *data = NULL;
    struct place place;
    struct status status;
    if (!blob_read_whole(durability_store(rig->durability), digest, UINT64_MAX, &data, &place,
                         &status))
        ck_abort_msg("%s", status.message);
    if (data == NULL)
        return false;
    ck_assert_int_eq(digest->size_bytes, (int64_t)expected.length);
    ck_assert(bytes_equal(bytes_of(data, expected.length), expected));
    free(data);
    return true;
}

char *store_rig_action(struct store_rig *rig, const struct digest *action, const char *instance)
{
    uint8_t *memory = NULL;
    struct action_record record;
    struct place place;
    struct status status;
    if (!action_read(durability_store(rig->durability), action, bytes_of_string(instance), &memory,
                     &record, &place, &status))
        ck_abort_msg("%s", status.message);
    if (memory == NULL)
        return NULL;
    char *text = strndup((const char *)record.result.data, record.result.length);
    free(memory);
    return text;
}

uint8_t *seeded_bytes(uint64_t seed, size_t length)
{
    struct prng prng = {.state = seed};
    uint8_t *bytes = malloc(length + 8);
    ck_assert_ptr_nonnull(bytes);
    for (size_t i = 0; i < length; i += 8) {
        const uint64_t word = prng_next(&prng);
        memcpy(bytes + i, &word, 8);
    }
    return bytes;
}

uint64_t store_rig_syncs(struct store_rig *rig)
{
    return (uint64_t)(metrics_get(&rig->metrics, METRIC_SEGMENT_SYNCS_SMALL) +
                      metrics_get(&rig->metrics, METRIC_SEGMENT_SYNCS_LARGE));
}
