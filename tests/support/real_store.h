/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store with its committers, in a directory of one test's own on a real disk; writes that wait;
 * damage on demand.
 */
#ifndef VARVE_TESTS_SUPPORT_REAL_STORE_H
#define VARVE_TESTS_SUPPORT_REAL_STORE_H

#include <stdatomic.h>

#include "base/buffer_pool.h"
#include "base/io.h"
#include "durability/durability.h"
#include "tests/support/temp_dir.h"

struct real_store {
    struct io io;
    struct io_ops ops;           /* the real ones, but for what fails below */
    _Atomic int sync_errno;      /* not 0: every sync fails with it */
    _Atomic int write_errno;     /* likewise every write and allocation */
    _Atomic int allocate_errno;  /* likewise every allocation alone: the disk is full */
    atomic_bool nothing_cached;  /* reads that may not wait for the disk all fail */
    _Atomic size_t reads;        /* that may wait for the disk */
    _Atomic size_t reads_cached; /* that need not: what was read is in memory */
    /* Offsets, in any file: the disk does not read what lies there. */
    _Atomic uint64_t refused_from, refused_to;
    void (*_Atomic before_write)(
        size_t bytes); /* not NULL: called first, on whatever thread writes */
    struct temp_dir directory;
    struct metrics *metrics; /* borrowed */
    struct buffer_pool *buffers;
    struct durability *durability;
    struct store *store;
};

/* Small segments. buffers: how many of them pooled. Aborts when it cannot. */
void real_store_open(struct real_store *real, struct metrics *metrics, size_t buffers);
/* Closes it and removes the directory. Asserts that all buffers are back. */
void real_store_close(struct real_store *real);

/* Stores it, however large, and waits until it is durable. */
struct digest real_store_put(struct real_store *real, struct bytes data);
void real_store_put_action(struct real_store *real,
                           const struct digest *action,
                           struct bytes instance,
                           struct bytes result);

/*
 * Turns a byte of the record on disk over: of the blob itself, of a large one's manifest, or of an
 * action's result.
 */
void real_store_damage(struct real_store *real, const struct digest *digest);
/* From now on the disk fails to read the record (EIO), and no other; one at a time. Of a large blob: its manifest. */
void real_store_lose(struct real_store *real, const struct digest *digest);
void real_store_damage_chunk(struct real_store *real, const struct digest *digest, size_t chunk);
void real_store_damage_action(struct real_store *real,
                              const struct digest *action,
                              struct bytes instance);

#endif
