/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store with its threads, on the simulated disk or a real one, and puts and gets that wait for their answer. The index on
 * disk is always on a real disk, in a directory of the rig's own.
 */
#ifndef VARVE_TESTS_SUPPORT_STORE_RIG_H
#define VARVE_TESTS_SUPPORT_STORE_RIG_H

#include "durability/durability.h"
#include "store/action_record.h"
#include "store/blob_writer.h"
#include "tests/sim/io_sim.h"
#include "tests/support/temp_dir.h"

/* 0, NULL: none, the real clock. */
struct store_rig_limits {
    uint64_t capacity_bytes;
    uint64_t reserve_bytes;
    uint64_t segment_bytes[LANE_COUNT]; /* 0: the least */
    int64_t vouch_ns;
    struct clock *clock;
};

struct store_rig {
    struct temp_dir directory;
    struct io_sim *sim; /* NULL on a real disk */
    struct io *io;      /* of the next open; NULL: that of the disk itself */
    struct metrics metrics;
    struct buffer_pool *buffers;
    struct durability *durability;
    uint64_t scrub_bytes_per_s;     /* of the next open */
    struct store_rig_limits limits; /* of the next open */
    struct recovery_report report;  /* of the last open */
    struct lock lock;
    struct status failure; /* guarded by lock; why a lane failed first; code 0: none did */
};

enum store_rig_disk { STORE_RIG_SIMULATED, STORE_RIG_REAL };

/* Makes the disk and opens an empty store on it. */
void store_rig_start(struct store_rig *rig, enum store_rig_disk disk);
/* With limits, so that something is evicted. */
void store_rig_start_limited(struct store_rig *rig,
                             enum store_rig_disk disk,
                             const struct store_rig_limits *limits);
void store_rig_end(struct store_rig *rig);

/* Opens the store and waits until its index is loaded; asserts that it opens. try: says why not, and does not wait. */
void store_rig_open(struct store_rig *rig);
bool store_rig_try_open(struct store_rig *rig, struct status *status);
void store_rig_close(struct store_rig *rig);
/* Why a lane has failed since it was opened; OK: none has. */
enum status_code store_rig_failure(struct store_rig *rig);

/* Simulated disk: the power goes, then the process. Not opened again. */
void store_rig_crash(struct store_rig *rig, uint64_t seed, enum io_sim_crash_mode mode);
void store_rig_remove_index(struct store_rig *rig);

/* One put in flight: a whole blob of any size, or an action result. Memory of the test. */
struct store_put {
    struct commit_request request;
    struct record record;
    struct bytes payload;
    struct blob_writer *writer; /* large blobs */
    uint8_t fixed[ACTION_RECORD_FIXED_BYTES];
    struct bytes action_parts[4];
    struct digest digest;
    struct lock lock;
    struct condition changed;
    bool done;            /* guarded by lock */
    struct status result; /* guarded by lock */
};

/* For a test that submits request itself; store_put_finish() waits for its ack. */
void store_put_init(struct store_put *put);
/* Starts a put; false when the blob could not even be written (status). data is borrowed until it is done. */
bool store_put_start(struct store_rig *rig,
                     struct store_put *put,
                     struct bytes data,
                     struct status *status);
void store_put_start_action(struct store_rig *rig,
                            struct store_put *put,
                            const struct digest *action,
                            const char *instance,
                            struct bytes result);
/* A record as it is, whatever is in it; borrowed until it is done. */
void store_put_start_record(struct store_rig *rig,
                            struct store_put *put,
                            struct record *record,
                            enum lane lane);
/* The same, marked as come from a peer. */
void store_put_start_local(struct store_rig *rig,
                           struct store_put *put,
                           struct record *record,
                           enum lane lane);
/* Waits; true if it was acknowledged with OK. */
bool store_put_finish(struct store_put *put, struct status *status);

/* The whole of it. */
bool store_rig_put(struct store_rig *rig,
                   struct bytes data,
                   struct digest *digest,
                   struct status *status);
bool store_rig_put_action(struct store_rig *rig,
                          const struct digest *action,
                          const char *instance,
                          struct bytes result,
                          struct status *status);

/* What the store says of a blob: absent, or its bytes, compared with `expected` (asserted equal). */
bool store_rig_has(struct store_rig *rig, const struct digest *digest);
bool store_rig_reads(struct store_rig *rig, const struct digest *digest, struct bytes expected);
/* The result as a string to be freed; NULL when it is not there. */
char *store_rig_action(struct store_rig *rig, const struct digest *action, const char *instance);

/* Bytes that a seed fixes; to be freed. */
uint8_t *seeded_bytes(uint64_t seed, size_t length);

uint64_t store_rig_syncs(struct store_rig *rig);

#endif
