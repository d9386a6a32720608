/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small blobs as the records of a range of the peer's log (varve.v1.Replication/Fetch): for who lacks most of it. The next message
 * is asked for when there is budget for it.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/limits.h"
#include "client/call.h"
#include "client/replication.h"
#include "server/fetcher_private.h"

/* What is set aside for a message before it is known; peers send less than 4 MiB. */
#define MESSAGE_BUDGET_BYTES (8 * MIB)

struct fetch_range {
    struct fetch_call call;
    struct fetcher *fetcher;         /* borrowed */
    struct client_call *client_call; /* the client's; good until done */
    size_t count, next;              /* those before `next` have come, or will not */
    uint64_t last_seq, through_seq;
    uint64_t bytes_left; /* that it may still send */
    bool paused;         /* the next message is not asked for yet */
    struct status lie;
    struct fetch_range *next_range;
    struct want *wants[]; /* ascending by seq; NULL: is being committed */
};

static struct fetch_range *range_new(struct fetcher *fetcher,
                                     uint64_t after_seq,
                                     uint64_t through_seq);
static void received(void *argument, struct client_call *call, grpc_byte_buffer *message);
static bool take_message(struct fetch_range *range,
                         struct bytes_list message,
                         uint64_t message_bytes,
                         struct status *status);
static bool take_record(struct fetch_range *range,
                        struct fetch_commit *commit,
                        const struct fetched_record *record,
                        struct status *status);
static bool verify(const struct want *want, struct bytes data, struct status *status);
static bool lie(struct status *status, const char *what, uint64_t seq);
static void ask(struct fetch_range *range);
static void done(void *argument, const struct status *status, grpc_byte_buffer *reply);
static void settle(struct fetch_range *range, const struct status *status);
static void cancel(struct fetch_call *call);

static const struct client_call_handlers handlers = {.received = received, .done = done};

void fetcher_range(struct fetcher *fetcher,
                   uint64_t node_uid,
                   uint64_t after_seq,
                   uint64_t through_seq)
{
    struct fetch_range *const range =
        fetcher->no_range ? NULL : range_new(fetcher, after_seq, through_seq);
    if (range == NULL)
        return; /* they stay queued for batches */
    const struct client_call_options options = {
        .method = METHOD_FETCH,
        .timeout_ns = client_stream_timeout_ns(fetcher->config.client, (int64_t)range->bytes_left),
        .loop = fetcher->config.loop,
        .handlers = &handlers,
        .argument = range,
    };
    grpc_slice body = fetch_request_message(node_uid, FEED_LANE_SMALL, after_seq, through_seq);
    grpc_byte_buffer *const message = grpc_raw_byte_buffer_create(&body, 1);
    grpc_slice_unref(body);
    /* The first message is asked for with the call, whatever the budget says. */
    fetch_budget_force(fetcher, MESSAGE_BUDGET_BYTES);
    fetch_call_begin(fetcher, &range->call);
    fetcher->ranges++;
    struct status why = {0};
    if (!client_call_stream_down(fetcher->config.client, &options, message, &range->client_call,
                                 &why))
        done(range, &why, NULL);
}

static struct fetch_range *range_new(struct fetcher *fetcher,
                                     uint64_t after_seq,
                                     uint64_t through_seq)
{
    const size_t count = fetcher->small.count;
    struct fetch_range *const range = calloc(1, sizeof(*range) + count * sizeof(struct want *));
    if (range == NULL)
        return NULL;
    range->fetcher = fetcher;
    range->call.cancel = cancel;
    range->last_seq = after_seq;
    range->through_seq = through_seq;
    /* They were queued in the order of the log, and what is present comes along with them. */
    uint64_t seq = after_seq;
    for (struct want *want = fetcher->small.first, *next; want != NULL; want = next) {
        next = want->next;
        if (want->seq <= seq || want->seq > through_seq)
            continue;
        seq = want->seq;
        want_list_remove(&fetcher->small, want);
        want->state = WANT_CALLING;
        range->bytes_left += (uint64_t)want->digest.size_bytes;
        range->wants[range->count++] = want;
    }
    if (range->count == 0) {
        free(range);
        return NULL;
    }
    range->bytes_left = 4 * range->bytes_left + 16 * MIB + 256 * (through_seq - after_seq);
    return range;
}

static void received(void *argument, struct client_call *call, grpc_byte_buffer *message)
{
    struct fetch_range *const range = argument;
    struct message_view view;
    fetch_heard(range->fetcher);
    const uint64_t length = grpc_byte_buffer_length(message);
    bool ok = message_view_init(&view, message);
    if (ok) {
        ok = take_message(range, message_view_list(&view), length, &range->lie);
        message_view_free(&view);
    } else {
        status_fail(&range->lie, STATUS_RESOURCE_EXHAUSTED, "no memory for a message");
    }
    grpc_byte_buffer_destroy(message);
    if (!ok) {
        client_call_cancel(call);
        return;
    }
    range->paused = true;
    ask(range);
    fetcher_pump(range->fetcher);
}

static bool take_message(struct fetch_range *range,
                         struct bytes_list message,
                         uint64_t message_bytes,
                         struct status *status)
{
    if (message_bytes > range->bytes_left)
        return lie(status, "more bytes than the range has", range->last_seq);
    range->bytes_left -= message_bytes;
    struct fetch_commit *const commit =
        fetch_commit_new(range->fetcher, range->count - range->next, message_bytes);
    if (commit == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for fetched records");
    struct wire_reader reader;
    struct fetched_record record;
    bool more = true;
    size_t records = 0;
    bool ok = true;
    wire_reader_init(&reader, wire_span_of_list(message));
    while (ok && more) {
        ok = fetch_response_next(&reader, &record, &more, status);
        if (!ok)
            status->code = STATUS_DATA_LOSS;
        else if (more)
            ok = take_record(range, commit, &record, status);
        records += more;
    }
    if (ok && records == 0)
        ok = lie(status, "a message without records", range->last_seq);
    /* What was right before it went wrong is right. */
    fetch_budget_force(range->fetcher, message_bytes);
    fetch_commit_submit(commit, message_bytes);
    return ok;
}

static bool take_record(struct fetch_range *range,
                        struct fetch_commit *commit,
                        const struct fetched_record *record,
                        struct status *status)
{
    if (record->seq <= range->last_seq || record->seq > range->through_seq)
        return lie(status, "records out of order", record->seq);
    range->last_seq = record->seq;
    while (range->next < range->count && range->wants[range->next]->seq < record->seq)
        range->next++;
    if (range->next == range->count || range->wants[range->next]->seq != record->seq)
        return true; /* it is here already */
    struct want *const want = range->wants[range->next];
    if (!digest_equal(&record->digest, &want->digest) ||
        record->payload.length != (uint64_t)want->digest.size_bytes)
        return lie(status, "another blob than the feed told", record->seq);
    uint8_t *const to = fetch_commit_room(commit, want);
    wire_span_copy(record->payload, to);
    if (!verify(want, bytes_of(to, record->payload.length), status))
        return false;
    fetch_commit_add(commit, want);
    range->wants[range->next++] = NULL;
    return true;
}

static bool verify(const struct want *want, struct bytes data, struct status *status)
{
    struct digest digest;
    char text[DIGEST_TEXT_BYTES_MAX];
    digest_of_bytes((enum digest_function)want->digest.function, data, &digest);
    return digest_equal(&digest, &want->digest) ||
           status_fail(status, STATUS_DATA_LOSS, "other bytes than those of %s",
                       digest_text(&want->digest, text));
}

static bool lie(struct status *status, const char *what, uint64_t seq)
{
    return status_fail(status, STATUS_DATA_LOSS, "Fetch: %s, at seq %" PRIu64, what, seq);
}

/* What is set aside for a message serves one after the other; what of it is being committed is counted by itself. */
static void ask(struct fetch_range *range)
{
    struct fetcher *const fetcher = range->fetcher;
    const int64_t used = atomic_load(&fetcher->config.budget->used_bytes);
    const bool alone = fetcher->held_bytes <= (int64_t)MESSAGE_BUDGET_BYTES;
    if (!alone && used > fetcher->config.budget->limit_bytes) {
        fetcher->starved = true;
        return;
    }
    range->paused = false;
    fetch_heard(fetcher);
    client_call_receive(range->client_call);
}

void fetch_ranges_pump(struct fetcher *fetcher)
{
    for (struct fetch_call *call = fetcher->calls; call != NULL && fetcher->ranges > 0;
         call = call->next) {
        struct fetch_range *const range = CONTAINER_OF(call, struct fetch_range, call);
        if (call->cancel == cancel && range->paused) {
            fetch_heard(fetcher); /* it is we who hold it up */
            ask(range);
        }
    }
}

static void done(void *argument, const struct status *status, grpc_byte_buffer *reply)
{
    struct fetch_range *const range = argument;
    struct fetcher *const fetcher = range->fetcher;
    ASSERT(reply == NULL);
    fetch_call_end(fetcher, &range->call);
    fetcher->ranges--;
    fetch_budget_give(fetcher, MESSAGE_BUDGET_BYTES);
    struct status end = {0};
    if (range->lie.code != STATUS_OK)
        end = range->lie;
    else if (status->code == STATUS_OK)
        status_fail(&end, STATUS_NOT_FOUND, "the peer left it out of the records of its range");
    else
        end = *fetch_failure(fetcher, status);
    settle(range, &end);
    if (range->lie.code == STATUS_DATA_LOSS && fetcher->config.lied != NULL)
        fetcher->config.lied(fetcher->config.lied_argument, &range->lie);
    free(range);
    fetcher_pump(fetcher);
    if (fetcher->config.call_ended != NULL)
        fetcher->config.call_ended(fetcher->config.call_ended_argument);
}

static void settle(struct fetch_range *range, const struct status *status)
{
    struct fetcher *const fetcher = range->fetcher;
    const bool again = status->code == STATUS_UNIMPLEMENTED ||
                       status->code == STATUS_OUT_OF_RANGE ||
                       status->code == STATUS_FAILED_PRECONDITION;
    fetcher->no_range = fetcher->no_range || status->code == STATUS_UNIMPLEMENTED;
    for (size_t i = 0; i < range->count; i++) {
        struct want *const want = range->wants[i];
        if (want == NULL)
            continue;
        if (again)
            want_queue(want);
        else
            want_end(want, status);
    }
}

static void cancel(struct fetch_call *call)
{
    client_call_cancel(CONTAINER_OF(call, struct fetch_range, call)->client_call);
}
