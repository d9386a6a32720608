/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the index on disk claims no more than it has: when entries did not fit the queue and were let go, its checkpoint stays
 * before them until they have been read from the segments.
 *
 * Method: an indexer and an index of the test's own beside those of a store, given what the store's committer has made durable, on
 * one thread.
 */
#include <stdio.h>

#include "durability/indexer.h"
#include "store/find.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"

enum { BLOBS = 20 };

static struct store_rig rig;
static char path[TEMP_DIR_PATH_BYTES_MAX + 16];
static struct index *own_index;
static struct indexer *indexer;
static struct index_entry entries[BLOBS];
static struct segment_log_position behind[BLOBS]; /* each */

static struct store *store(void)
{
    return durability_store(rig.durability);
}

static void start(void)
{
    struct status status;
    store_rig_start(&rig, STORE_RIG_SIMULATED);
    snprintf(path, sizeof(path), "%s/own-index", rig.directory.path);
    ck_assert_msg(index_open(path, &own_index, &status), "%s", status.message);
    ck_assert(indexer_new(store(), path, own_index, &indexer, &status));
}

static void end(void)
{
    struct status status;
    indexer_free(indexer);
    ck_assert(index_destroy(path, &status));
    store_rig_end(&rig);
}

static void put_blobs(void)
{
    struct status status;
    for (uint64_t i = 0; i < BLOBS; i++) {
        entries[i] = (struct index_entry){.kind = RECORD_BLOB, .payload_bytes = sizeof(i)};
        ck_assert(store_rig_put(&rig, bytes_of(&i, sizeof(i)), &entries[i].digest, &status));
        ck_assert(store_find_blob(store(), &entries[i].digest, FIND_ONLY, &entries[i].place));
        behind[i] = segment_log_synced_position(store()->logs[LANE_SMALL]);
    }
}

static void post(size_t from, size_t to)
{
    indexer_post(indexer, LANE_SMALL, &entries[from], to - from, &behind[to - 1]);
}

static bool note(void *argument, const struct index_entry *entry, struct status *status)
{
    bool *there = argument;
    (void)status;
    for (size_t i = 0; i < BLOBS; i++)
        there[i] = there[i] || place_pack(entry->place) == place_pack(entries[i].place);
    return true;
}

/* How many there are; all that lie before its checkpoint are. */
static size_t check_index(void)
{
    bool there[BLOBS] = {false};
    size_t count = 0;
    struct index_checkpoint checkpoint;
    struct status status;
    ck_assert(index_read_checkpoint(own_index, &checkpoint, &status));
    ck_assert(index_iterate(own_index, note, there, &status));
    for (size_t i = 0; i < BLOBS; i++) {
        count += there[i];
        ck_assert_msg(there[i] || behind[i].seq > checkpoint.lanes[LANE_SMALL].seq,
                      "blob %zu is missing, and the index claims to have it", i);
    }
    return count;
}

START_TEST(the_index_does_not_claim_what_was_let_go_before_it_has_read_it_from_the_segments)
{
    put_blobs();
    indexer_set_queue_max(indexer, BLOBS / 2);
    post(0, BLOBS / 4);
    post(BLOBS / 4, 3 * BLOBS / 4); /* does not fit beside the first */
    post(3 * BLOBS / 4, BLOBS);
    ck_assert(indexer_round(indexer));
    ck_assert_uint_eq(check_index(), BLOBS / 2);
    if (indexer_round(indexer)) {
        /* It has read them, and there may be more to do. */
    }
    ck_assert_uint_eq(check_index(), BLOBS);
    struct index_checkpoint checkpoint;
    struct status status;
    ck_assert(index_read_checkpoint(own_index, &checkpoint, &status));
    ck_assert_uint_eq(checkpoint.lanes[LANE_SMALL].seq, behind[BLOBS - 1].seq);
}
END_TEST

START_TEST(the_index_claims_what_was_queued_once_it_is_written)
{
    put_blobs();
    post(0, BLOBS / 2);
    post(BLOBS / 2, BLOBS);
    ck_assert_uint_eq(check_index(), 0);
    ck_assert(indexer_round(indexer));
    ck_assert_uint_eq(check_index(), BLOBS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("indexer");
    TCase *queue = tcase_create("queue");
    tcase_set_timeout(queue, 120);
    tcase_add_checked_fixture(queue, start, end);
    tcase_add_test(
        queue, the_index_does_not_claim_what_was_let_go_before_it_has_read_it_from_the_segments);
    tcase_add_test(queue, the_index_claims_what_was_queued_once_it_is_written);
    suite_add_tcase(suite, queue);
    return test_run(suite);
}
