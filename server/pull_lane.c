/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "base/limits.h"
#include "base/log.h"
#include "client/batch.h"
#include "server/puller_private.h"
#include "store/find.h"
#include "store/write_time.h"

/*
 * Pages that are being fetched or become durable; while there are fewer the next is asked for. Large blobs take long, and how far
 * their lane is should be known sooner.
 */
enum { PAGES_MAX = 3, SMALL_PAGE_RECORDS = 8192, LARGE_PAGE_RECORDS = 64 };
/* Below the time that a call may take. */
enum { WAIT_MS = 15000 };
/* Clocks that are further apart are worth a line. */
static const int64_t clock_apart_ns = 60 * NS_PER_S;

static size_t page_records(const struct pull_lane *lane);
static void feed_done(void *argument, const struct status *status, grpc_byte_buffer *reply);
static void take_page(struct pull_lane *lane, struct feed_page *page);
static const char *impossible(const struct pull_lane *lane,
                              const struct feed_page *page,
                              const struct digest **digest);
static const char *impossible_record(const struct pull_lane *lane,
                                     const struct feed_record *record);
static const char *impossible_text(const struct feed_record *record);
static void note_times(struct puller *puller, const struct feed_page *page);
static void note_progress(struct pull_lane *lane, const struct feed_page *page);
static void start_pages(struct pull_lane *lane);

void pull_lane_step(struct pull_lane *lane)
{
    struct puller *const puller = lane->puller;
    /* At the end of the log everything is made durable first: the position that is sent is what others wait for. */
    if (!puller_follows(puller) || lane->feed != NULL || lane->pages >= PAGES_MAX ||
        (lane->at_end && lane->pages > 0))
        return;
    const struct feed_request request = {
        .node_uid = puller->uid,
        .lane = lane->lane == LANE_SMALL ? FEED_LANE_SMALL : FEED_LANE_LARGE,
        .after_seq = lane->after_seq,
        .max_records = (uint32_t)page_records(lane),
        .wait_ms = lane->at_end ? WAIT_MS : 0,
        .follower_uid = puller->store->node_uid,
        .follower_durable_seq = lane->applied_seq,
        .follower_name = puller->config.name,
    };
    const struct unary_request call = {
        .method = METHOD_FEED,
        .body = feed_request_message(&request),
        .loop = &puller->loop,
        .done = feed_done,
        .argument = lane,
    };
    struct status why = {0};
    if (!unary_start(puller->client, &call, &lane->feed, &why))
        puller_fail(puller, &why, true);
}

static size_t page_records(const struct pull_lane *lane)
{
    const size_t configured = lane->puller->config.page_records;
    const size_t usual = lane->lane == LANE_SMALL ? SMALL_PAGE_RECORDS : LARGE_PAGE_RECORDS;
    return configured != 0 ? configured : usual;
}

static void feed_done(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct pull_lane *const lane = argument;
    struct puller *const puller = lane->puller;
    struct feed_page page;
    struct status why = *status;
    lane->feed = NULL;
    const bool decoded = reply != NULL && feed_page_decode(reply, page_records(lane), &page, &why);
    grpc_byte_buffer_destroy(reply);
    if (decoded && puller_follows(puller))
        take_page(lane, &page);
    else if (decoded)
        feed_page_free(&page);
    else if (why.code == STATUS_OUT_OF_RANGE || why.code == STATUS_FAILED_PRECONDITION)
        puller_begin_anew(puller, lane, &why);
    else if (reply != NULL && why.code == STATUS_INTERNAL)
        puller_lie(puller, NULL, why.message);
    else if (retry_is_message_too_large(&why))
        puller_lie(puller, NULL, "a page that is larger than any message");
    else
        puller_fail(puller, &why, false);
    puller_check_drained(puller);
}

static void take_page(struct pull_lane *lane, struct feed_page *page)
{
    struct puller *const puller = lane->puller;
    const struct digest *digest = NULL;
    struct status why = {0};
    if (page->node_uid != puller->uid || page->durable_seq < lane->after_seq) {
        status_fail(&why, STATUS_FAILED_PRECONDITION,
                    page->node_uid != puller->uid ? "it is another store now"
                                                  : "its log ends before our position");
        feed_page_free(page);
        puller_begin_anew(puller, lane, &why);
        return;
    }
    const char *const reason = impossible(lane, page, &digest);
    if (reason != NULL) {
        puller_lie(puller, digest, reason);
        feed_page_free(page);
        return;
    }
    const uint64_t after_seq = lane->after_seq;
    note_progress(lane, page);
    note_times(puller, page);
    struct pull_page *const made = pull_page_new(lane, after_seq, page);
    if (made == NULL) {
        feed_page_free(page);
        status_fail(&why, STATUS_RESOURCE_EXHAUSTED, "no memory for a page of records");
        puller_fail(puller, &why, true);
        return;
    }
    if (lane->last != NULL)
        *pull_page_next(lane->last) = made;
    else
        lane->first = made;
    lane->last = made;
    lane->pages++;
    start_pages(lane);
    pull_lane_settle(lane);
}

/* NULL, or what no honest peer sends. */
static const char *impossible(const struct pull_lane *lane,
                              const struct feed_page *page,
                              const struct digest **digest)
{
    uint64_t seq = lane->after_seq;
    for (size_t i = 0; i < page->count; i++) {
        const struct feed_record *const record = &page->records[i];
        if (record->digest.hash_length > 0)
            *digest = &record->digest;
        if (record->seq <= seq)
            return "records that are not in the order of the log";
        seq = record->seq;
        const char *const reason = impossible_record(lane, record);
        if (reason != NULL)
            return reason;
    }
    *digest = NULL;
    if (page->write_time_ns < 0 || page->write_time_ns > WRITE_TIME_MAX_NS)
        return "a time of writing that cannot be";
    if (page->next_after_seq < seq || page->next_after_seq > page->durable_seq)
        return "a page whose end is not where its records are";
    if (page->count == 0 && page->next_after_seq == lane->after_seq &&
        page->next_after_seq < page->durable_seq)
        return "an empty page before the end of the log";
    return NULL;
}

static const char *impossible_record(const struct pull_lane *lane, const struct feed_record *record)
{
    const struct digest *const digest = &record->digest;
    const bool small = lane->lane == LANE_SMALL;
    const uint64_t kind = record->kind == FEED_FORGET ? record->forgotten_kind : record->kind;
    if (!digest_function_supported((enum digest_function)digest->function) ||
        digest->hash_length != SHA256_HASH_BYTES)
        return "a digest of a function that is not known here";
    if (digest->size_bytes < 0 || digest->size_bytes > (int64_t)LIMIT_BLOB_BYTES)
        return "a blob of an impossible size";
    if (record->kind == FEED_MANIFEST ? small : !small)
        return "a record of the other lane";
    switch (kind) {
    case FEED_BLOB:
        if (digest->size_bytes == 0 || digest->size_bytes > (int64_t)LIMIT_SMALL_BLOB_BYTES)
            return "a blob of the wrong lane";
        break;
    case FEED_MANIFEST:
        if (digest->size_bytes <= (int64_t)LIMIT_SMALL_BLOB_BYTES)
            return "a blob of the wrong lane";
        break;
    case FEED_ACTION:
        break;
    default:
        return "a record of a kind that is not known here";
    }
    return impossible_text(record);
}

static const char *impossible_text(const struct feed_record *record)
{
    if (record->instance.length > LIMIT_INSTANCE_NAME_BYTES || record->writer.length > UINT16_MAX ||
        record->result.length > LIMIT_ACTION_RESULT_BYTES || !bytes_is_utf8(record->instance))
        return "an action result that is longer than any";
    /* Later ones have to be able to follow. */
    if (record->written_ns < 0 || record->written_ns > WRITE_TIME_MAX_NS)
        return "a time of writing that cannot be";
    if (record->kind == FEED_ACTION && record->origin_uid == 0)
        return "an action result that nobody wrote";
    return NULL;
}

/* What is written here from now on is later than anything that we were told. */
static void note_times(struct puller *puller, const struct feed_page *page)
{
    struct log_text text;
    const int64_t ahead_ns = page->write_time_ns - write_time_latest(puller->store);
    write_time_heard(puller->store, page->write_time_ns);
    for (size_t i = 0; i < page->count; i++)
        write_time_heard(puller->store, page->records[i].written_ns);
    if (ahead_ns > clock_apart_ns && !puller->clock_logged) {
        puller->clock_logged = true;
        log_event(LOG_LEVEL_WARN, "peer_clock_ahead",
                  "address=%s uid=%016" PRIx64 " ahead_ms=%" PRId64,
                  log_quote(&text, puller->config.address), puller->uid, ahead_ns / NS_PER_MS);
    }
}

static void note_progress(struct pull_lane *lane, const struct feed_page *page)
{
    struct puller *const puller = lane->puller;
    if (!lane->asked && lane->applied_seq == 0 && puller->store->space.capacity_bytes != 0 &&
        page->behind_bytes > puller->store->space.capacity_bytes && !puller->larger_logged) {
        struct log_text address;
        puller->larger_logged = true;
        log_event(LOG_LEVEL_WARN, "peer_holds_more",
                  "address=%s uid=%016" PRIx64 " lane=%s its_bytes=%" PRIu64
                  " capacity_bytes=%" PRIu64,
                  log_quote(&address, puller->config.address), puller->uid,
                  lane->lane == LANE_SMALL ? "small" : "large", page->behind_bytes,
                  puller->store->space.capacity_bytes);
    }
    lane->after_seq = page->next_after_seq;
    lane->durable_seq = page->durable_seq;
    lane->behind_bytes = page->behind_bytes;
    lane->at_end = page->next_after_seq == page->durable_seq;
    lane->asked = true;
    lane->anew = lane->anew && page->count == 0;
    puller->failing_logged = false;
    puller->last_error = (struct status){0};
    retry_init(&puller->backoff, &puller->backoff.policy);
}

/* What comes after a deletion is looked at when that has been carried out. */
static void start_pages(struct pull_lane *lane)
{
    for (struct pull_page *page = lane->first; page != NULL && puller_follows(lane->puller);
         page = *pull_page_next(page)) {
        if (!pull_page_started(page))
            pull_page_start(page);
        if (pull_page_deletes(page))
            return;
    }
}

void pull_lane_settle(struct pull_lane *lane)
{
    bool whole = true;
    while (lane->first != NULL && whole && puller_follows(lane->puller)) {
        struct pull_page *const page = lane->first;
        if (!pull_page_started(page)) {
            start_pages(lane);
            continue;
        }
        const uint64_t applied = pull_page_applied(page, &whole);
        if (applied > lane->applied_seq)
            lane->applied_seq = applied;
        if (!whole)
            break;
        lane->first = *pull_page_next(page);
        if (lane->first == NULL)
            lane->last = NULL;
        lane->pages--;
        pull_page_free(page);
    }
    if (puller_follows(lane->puller)) {
        pull_lane_step(lane);
        puller_publish(lane->puller);
    }
}

bool pull_lane_up_to_date(const struct pull_lane *lane)
{
    return lane->asked && lane->applied_seq >= lane->durable_seq;
}

void pull_lane_cancel(struct pull_lane *lane)
{
    if (lane->feed != NULL)
        unary_cancel(lane->feed);
    for (struct pull_page *page = lane->first; page != NULL; page = *pull_page_next(page))
        pull_page_cancel(page);
}

void pull_lane_drop_pages(struct pull_lane *lane)
{
    while (lane->first != NULL) {
        struct pull_page *const page = lane->first;
        lane->first = *pull_page_next(page);
        pull_page_free(page);
    }
    lane->last = NULL;
    lane->pages = 0;
    lane->after_seq = lane->applied_seq;
    lane->at_end = false;
    lane->asked = false;
}
