/* SPDX-License-Identifier: Apache-2.0 */
#include "store/find.h"
#include "tests/model/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "durability/forget.h"
#include "store/blob_reader.h"
#include "store/blob_writer.h"
#include "tests/model/images.h"
#include "tests/model/world.h"

enum {
    STEPS = 1200,
    WRITERS = 3,
    READERS = 2,
    BUFFERS = 16,
    IMAGES_WAITING_MAX = 4,
    IMAGE_WITHIN = 40,     /* operations of the disk from one image to the next, at most */
    FAULT_STEPS_MAX = 25,  /* that a fault stays ordered */
    FAILED_STEPS_MAX = 30, /* that a store goes on with a failed lane */
    COPY_EVERY_STEPS = 5,
};
enum { LOAD_STEP_FEW = 24, LOAD_STEP_ALL = 100000 };

/* An upload, or a new action result, on its way. Frees itself. */
struct put {
    struct run *run;
    struct commit_request request;
    struct record record;
    struct bytes parts[4];
    uint8_t fixed[ACTION_RECORD_FIXED_BYTES];
    struct blob_writer *writer; /* owned; NULL: the record is ours */
    uint8_t *result;            /* owned */
    bool is_action;
    size_t number;
    size_t version;
    uint32_t removed;
};

struct open_writer {
    struct blob_writer *writer; /* NULL: none */
    size_t blob;
    uint64_t sent;
    bool is_wrong; /* sends a wrong byte: it must be refused at the end */
};

struct open_reader {
    struct blob_reader *reader; /* NULL: none */
    size_t blob;
    uint64_t offset;
};

struct run {
    uint64_t seed;
    struct prng prng;
    struct prng image_prng;
    struct contents *contents;
    struct expected expected;
    struct machine machine;
    struct clock_sim clock;
    struct buffer_pool *buffers;
    struct process_config config;
    struct process process;
    struct open_writer writers[WRITERS];
    struct open_reader readers[READERS];
    size_t puts_in_flight;
    struct image *images[IMAGES_WAITING_MAX]; /* owned */
    size_t image_count;
    bool image_ordered;
    uint64_t step;
    uint64_t faults_until; /* step; 0: none are ordered */
    uint64_t failed_since; /* step at which a lane was seen to have failed; 0: none has */
    bool clean;            /* nothing was made to fail in this life */
    bool read_failed;      /* reads were, in this life */
    struct run_counts *counts;
};

static void start(struct run *run);
static void step(struct run *run);
static void end_life(struct run *run, bool cleanly);
static void keep_image(void *argument, struct io_sim *copy);
static void check_images(struct run *run);
static void forget_ended(void *argument, const struct commit_request *request, bool durable);
static void put_some(struct run *run);
static void put_blob(struct run *run, size_t blob);
static void put_action(struct run *run);
static void put_done(struct ack *ack, const struct status *result);
static void writer_begin(struct run *run);
static void writer_append(struct run *run);
static void writer_park(struct run *run);
static void writer_abort(struct run *run);
static void writer_finish(struct run *run, struct open_writer *open);
static void evict(struct run *run);
static void before_eviction(void *argument, uint64_t victim);
static void after_eviction(void *argument, uint64_t victim);
static void forget_some(struct run *run);
static void read_some(struct run *run);
static void read_actions(struct run *run);
static void hold_reader(struct run *run);
static void read_on(struct run *run);
static void pass_time(struct run *run);
static void order_fault(struct run *run);
static void take_back_faults(struct run *run);
static void restart_cleanly(struct run *run);
static void crash_now(struct run *run);
static void crash_soon(struct run *run);

static void commit_small(struct run *run)
{
    process_work(&run->process, WORKER_COMMIT_SMALL);
}

static void commit_large(struct run *run)
{
    process_work(&run->process, WORKER_COMMIT_LARGE);
}

static void acknowledge(struct run *run)
{
    process_work(&run->process, WORKER_ACK);
}

static void index_some(struct run *run)
{
    process_work(&run->process, WORKER_INDEX);
}

static void maintain_segments(struct run *run)
{
    process_work(&run->process, WORKER_SEGMENTS);
}

/* What may happen next, and how often in comparison. */
static const struct {
    void (*happen)(struct run *run);
    const char *name;
    unsigned int weight;
} happenings[] = {
    {put_some, "put", 200},
    {put_action, "action", 80},
    {writer_begin, "writer begins", 30},
    {writer_append, "writer appends", 110},
    {writer_park, "writer parks", 20},
    {writer_abort, "writer aborts", 5},
    {commit_small, "commit small", 130},
    {commit_large, "commit large", 50},
    {acknowledge, "ack", 120},
    {index_some, "index", 50},
    {maintain_segments, "maintain", 50},
    {evict, "evict", 60},
    {forget_some, "forget", 20},
    {read_some, "read", 60},
    {read_actions, "read actions", 10},
    {hold_reader, "reader opens", 10},
    {read_on, "reader goes on", 20},
    {pass_time, "time passes", 20},
    {order_fault, "fault", 5},
    {restart_cleanly, "restart", 2},
    {crash_now, "crash", 2},
    {crash_soon, "crash soon", 3},
};

void run_model(uint64_t seed, struct run_counts *counts)
{
    struct run *const run = calloc(1, sizeof(*run));
    struct status status;
    ASSERT(run != NULL);
    run->seed = seed;
    run->counts = counts;
    run->prng.state = seed;
    run->image_prng.state = seed ^ 0x5eed;
    model_set_random((struct prng){.state = seed + 1});
    run->contents = contents_new(seed);
    expected_init(&run->expected);
    machine_init(&run->machine);
    clock_sim_init(&run->clock, 1700000000 * NS_PER_S);
    ASSERT(buffer_pool_new(LIMIT_POOL_BUFFER_BYTES, BUFFERS, &run->buffers, &status));
    run->config = (struct process_config){
        .machine = &run->machine,
        .clock = &run->clock,
        .buffers = run->buffers,
        .capacity_bytes =
            chance(&run->prng, 4) ? 0 : (7 + prng_below(&run->prng, 4)) * SEGMENT_BYTES_MIN,
        .vouch_ns = chance(&run->prng, 2) ? 0 : 2 * 60 * NS_PER_S,
        .before_eviction = before_eviction,
        .after_eviction = after_eviction,
        .argument = run,
    };
    world_set_forget_observer(forget_ended, run);
    start(run);
    for (uint64_t i = 1; i <= STEPS; i++) {
        model_set_step(i);
        run->step = i;
        step(run);
        check_images(run);
        if (!io_sim_has_power(run->machine.disk))
            end_life(run, false);
        else if (run->failed_since != 0 && i > run->failed_since + FAILED_STEPS_MAX)
            end_life(run, chance(&run->prng, 2));
        else if (run->faults_until != 0 && i > run->faults_until)
            take_back_faults(run);
    }
    take_back_faults(run);
    end_life(run, true);
    end_life(run, false);
    io_sim_copy_at(run->machine.disk, 0, NULL, NULL);
    process_stop(&run->process);
    world_set_forget_observer(NULL, NULL);
    machine_destroy(&run->machine);
    buffer_pool_free(run->buffers);
    contents_free(run->contents);
    free(run);
}

/* A store that is there opens, whatever was before; only a fault that is ordered keeps it from it. */
static void start(struct run *run)
{
    struct status status;
    /* So few at times that a store is used for long while it is being loaded; nothing is evicted then. */
    run->config.load_step = chance(&run->prng, 3) ? LOAD_STEP_FEW : LOAD_STEP_ALL;
    while (!process_start(&run->process, &run->config, &status)) {
        if (io_sim_has_power(run->machine.disk) && run->faults_until == 0)
            model_fail("the store does not open: %s: %s", status_code_name(status.code),
                       status.message);
        model_trace("does not open: %s", status.message);
        io_sim_kill(run->machine.disk);
        take_back_faults(run);
    }
    run->failed_since = 0;
    run->clean = run->faults_until == 0;
    run->read_failed = !run->clean;
    run->counts->lives++;
}

static void step(struct run *run)
{
    unsigned int total = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(happenings); i++)
        total += happenings[i].weight;
    size_t left = prng_below(&run->prng, total);
    size_t which = 0;
    while (left >= happenings[which].weight)
        left -= happenings[which++].weight;
    if (!run->image_ordered && chance(&run->prng, COPY_EVERY_STEPS)) {
        io_sim_copy_at(run->machine.disk, 1 + prng_below(&run->prng, IMAGE_WITHIN), keep_image,
                       run);
        run->image_ordered = true;
    }
    model_trace("%s", happenings[which].name);
    happenings[which].happen(run);
    if (run->failed_since == 0 && (commit_failed(run->process.commits[LANE_SMALL], NULL) ||
                                   commit_failed(run->process.commits[LANE_LARGE], NULL))) {
        run->failed_since = run->step;
        run->counts->lanes_failed++;
    }
}

/* ---- lives and images */

/* Ends one and begins the next, on the same machine. */
static void end_life(struct run *run, bool cleanly)
{
    struct process *const process = &run->process;
    for (size_t i = 0; i < WRITERS; i++) {
        blob_writer_free(run->writers[i].writer);
        run->writers[i].writer = NULL;
    }
    for (size_t i = 0; i < READERS; i++) {
        blob_reader_free(run->readers[i].reader);
        run->readers[i].reader = NULL;
    }
    run->counts->evicted += (uint64_t)metrics_get(&process->metrics, METRIC_SEGMENTS_EVICTED);
    run->counts->rotations += (uint64_t)metrics_get(&process->metrics, METRIC_SEGMENT_ROTATIONS);
    cleanly = cleanly && io_sim_has_power(run->machine.disk);
    enum machine_end end = (enum machine_end)prng_below(&run->prng, MACHINE_END_COUNT);
    if (cleanly)
        process_stop(process);
    else
        process_drop(process);
    ASSERT(run->puts_in_flight == 0);
    cleanly = cleanly && io_sim_has_power(run->machine.disk);
    if (cleanly)
        end = MACHINE_KILLED; /* it is over already */
    model_trace("life ends: %s", cleanly                 ? "cleanly"
                                 : end == MACHINE_KILLED ? "killed"
                                                         : "power cut");
    machine_end(&run->machine, end, prng_next(&run->prng));
    bool recovers_nothing = cleanly && run->clean;
    if (chance(&run->prng, 8)) {
        struct status status;
        index_sim_use(run->machine.index);
        ASSERT(index_destroy(MODEL_INDEX, &status));
        model_trace("index deleted");
        recovers_nothing = false;
    }
    /*
     * A look at everything would load everything: it is taken at a copy, unless a start that fails by
     * order may lose what nobody has acknowledged.
     */
    static struct seen seen;
    const bool look_before = run->faults_until == 0;
    const struct prng random = model_random();
    if (look_before)
        machine_look(&run->config, run->contents, &run->image_prng, &seen);
    model_set_random(random);
    start(run);
    if (recovers_nothing &&
        (process->report.records_recovered > 0 || process->report.tails_cut > 0))
        model_fail("after a clean stop %" PRIu64 " records are recovered, %" PRIu64 " tails cut",
                   process->report.records_recovered, process->report.tails_cut);
    take_back_faults(run);
    check_images(run);
    if (!look_before)
        seen_in_store(&seen, process->store, run->contents, LOOK_AT_SMALL_AND_SOME, &run->prng);
    seen_check(&seen, &run->expected, cleanly ? "after a clean stop" : "in the next life");
    expected_learn(&run->expected, &seen);
}

static void keep_image(void *argument, struct io_sim *copy)
{
    struct run *const run = argument;
    ASSERT(run->image_count < IMAGES_WAITING_MAX);
    struct image *const image = malloc(sizeof(*image));
    ASSERT(image != NULL);
    image->machine.disk = copy;
    image->machine.index = index_sim_copy(run->machine.index, copy);
    image->expected = run->expected;
    run->images[run->image_count++] = image;
    run->image_ordered = false;
}

static void check_images(struct run *run)
{
    const struct prng random = model_random();
    if (run->image_count == 0)
        return;
    world_set_process(NULL);
    for (size_t i = 0; i < run->image_count; i++) {
        run->counts->images +=
            image_check(run->images[i], &run->config, run->contents, &run->image_prng);
        free(run->images[i]);
    }
    run->image_count = 0;
    world_set_process(&run->process);
    index_sim_use(run->machine.index);
    model_set_random(random);
}

static void restart_cleanly(struct run *run)
{
    end_life(run, true);
}

static void crash_now(struct run *run)
{
    end_life(run, false);
}

static void crash_soon(struct run *run)
{
    io_sim_cut_power_at(run->machine.disk, 1 + prng_below(&run->prng, 60));
}

/* ---- uploads in one piece, and action results */

static void put_some(struct run *run)
{
    for (size_t count = 1 + prng_below(&run->prng, 6); count > 0; count--)
        put_blob(run, prng_below(&run->prng, MODEL_BLOBS));
}

static void put_blob(struct run *run, size_t blob)
{
    const struct content *const content = &run->contents->blobs[blob];
    if (content->kind == CONTENT_NEVER || content_is_large(content))
        return;
    if (run->expected.blobs[blob].must && !chance(&run->prng, 4))
        return;
    struct put *const put = calloc(1, sizeof(*put));
    ASSERT(put != NULL);
    put->parts[0] = bytes_of(content->data, content->length);
    put->record = (struct record){
        .kind = RECORD_BLOB,
        .digest = content->digest,
        .payload = {.parts = put->parts, .count = 1},
        .payload_bytes = content->length,
        .payload_crc32c = crc32c(0, put->parts[0]),
    };
    put->run = run;
    put->number = blob;
    put->removed = run->expected.blobs[blob].removed;
    put->request = (struct commit_request){.record = &put->record, .ack = {.done = put_done}};
    expected_blob_sent(&run->expected.blobs[blob]);
    run->puts_in_flight++;
    commit_submit(run->process.commits[LANE_SMALL], &put->request);
}

static void put_action(struct run *run)
{
    const size_t number = prng_below(&run->prng, MODEL_ACTIONS);
    struct expected_action *const action = &run->expected.actions[number];
    if (action->sent == MODEL_VERSIONS)
        return;
    struct put *const put = calloc(1, sizeof(*put));
    ASSERT(put != NULL);
    put->result = malloc(RESULT_BYTES_MAX);
    ASSERT(put->result != NULL);
    put->run = run;
    put->is_action = true;
    put->number = number;
    put->removed = action->removed;
    put->version = expected_action_sent(action);
    const struct action_record fields = {
        .written_wall_ns = clock_wall_ns(&run->clock.clock),
        .node_uid = 1,
        .instance = contents_instance(number),
        .writer = bytes_of_string("model"),
        .result = bytes_of(put->result, contents_result(number, put->version, put->result)),
    };
    action_record_fixed_put(put->fixed, &fields);
    put->parts[0] = bytes_of(put->fixed, sizeof(put->fixed));
    put->parts[1] = fields.instance;
    put->parts[2] = fields.writer;
    put->parts[3] = fields.result;
    put->record = (struct record){.kind = RECORD_ACTION,
                                  .digest = run->contents->actions[number],
                                  .payload = {.parts = put->parts, .count = 4}};
    put->record.payload_bytes = bytes_list_length(put->record.payload);
    put->record.payload_crc32c = crc32c_list(0, put->record.payload);
    put->request = (struct commit_request){
        .record = &put->record, .instance = fields.instance, .ack = {.done = put_done}};
    run->puts_in_flight++;
    commit_submit(run->process.commits[LANE_SMALL], &put->request);
}

static void put_done(struct ack *ack, const struct status *result)
{
    struct put *const put = CONTAINER_OF(ack, struct put, request.ack);
    struct run *const run = put->run;
    const bool ok = result->code == STATUS_OK;
    if (put->is_action)
        expected_action_answered(&run->expected.actions[put->number], put->version, put->removed,
                                 ok);
    else
        expected_blob_answered(&run->expected.blobs[put->number], put->removed, ok);
    if (ok) {
        run->counts->acknowledged++;
    } else if (result->code != STATUS_UNAVAILABLE && result->code != STATUS_RESOURCE_EXHAUSTED &&
               result->code != STATUS_INTERNAL) {
        model_fail("a put ended with %s: %s", status_code_name(result->code), result->message);
    }
    run->puts_in_flight--;
    blob_writer_free(put->writer);
    free(put->result);
    free(put);
}

/* ---- uploads in pieces */

static void writer_begin(struct run *run)
{
    struct open_writer *const open = &run->writers[prng_below(&run->prng, WRITERS)];
    const size_t blob = prng_below(&run->prng, MODEL_BLOBS / 40) * 40 + 7; /* a large one */
    const size_t any = prng_below(&run->prng, MODEL_BLOBS);
    struct status status;
    if (open->writer != NULL)
        return;
    open->blob = chance(&run->prng, 3) ? any : blob;
    if (run->contents->blobs[open->blob].kind == CONTENT_NEVER)
        return;
    open->sent = 0;
    open->is_wrong = chance(&run->prng, 12);
    ASSERT(blob_writer_new(run->process.store, &run->contents->blobs[open->blob].digest,
                           &open->writer, &status));
}

static struct open_writer *some_writer(struct run *run)
{
    for (size_t i = 0; i < WRITERS; i++) {
        struct open_writer *const open = &run->writers[prng_below(&run->prng, WRITERS)];
        if (open->writer != NULL)
            return open;
    }
    return NULL;
}

static void drop_writer(struct open_writer *open)
{
    blob_writer_free(open->writer);
    open->writer = NULL;
}

static void writer_append(struct run *run)
{
    struct open_writer *const open = some_writer(run);
    struct status status;
    if (open == NULL)
        return;
    const struct content *const content = &run->contents->blobs[open->blob];
    const size_t left = (size_t)(content->length - open->sent);
    size_t piece = 1 + prng_below(&run->prng, 3 * LIMIT_CHUNK_BYTES / 2);
    if (piece > left)
        piece = left;
    if (blob_writer_needs_buffer(open->writer)) {
        struct buffer *const buffer = buffer_pool_try_take(run->buffers);
        if (buffer == NULL)
            return;
        blob_writer_give_buffer(open->writer, buffer);
    }
    uint8_t *const wrong = open->is_wrong ? malloc(piece + 1) : NULL;
    const uint8_t *data = content->data + open->sent;
    if (open->is_wrong) {
        memcpy(wrong, data, piece);
        wrong[piece / 2] ^= 1;
        data = wrong;
    }
    const bool ok = blob_writer_append(open->writer, bytes_of(data, piece), &status);
    free(wrong);
    if (!ok) {
        drop_writer(open);
        return;
    }
    open->sent += piece;
    if (open->sent == content->length)
        writer_finish(run, open);
}

static void writer_finish(struct run *run, struct open_writer *open)
{
    struct record *record = NULL;
    enum lane lane = LANE_SMALL;
    struct status status;
    const bool ok = blob_writer_finish(open->writer, &record, &lane, &status);
    if (ok && open->is_wrong)
        model_fail("wrong bytes of blob %zu were taken", open->blob);
    if (!ok) {
        if (open->is_wrong != (status.code == STATUS_INVALID_ARGUMENT))
            model_fail("an upload ended with %s: %s", status_code_name(status.code),
                       status.message);
        drop_writer(open);
        return;
    }
    struct put *const put = calloc(1, sizeof(*put));
    ASSERT(put != NULL);
    put->run = run;
    put->writer = open->writer;
    open->writer = NULL;
    put->number = open->blob;
    put->removed = run->expected.blobs[open->blob].removed;
    put->request = (struct commit_request){.record = record, .ack = {.done = put_done}};
    expected_blob_sent(&run->expected.blobs[open->blob]);
    run->puts_in_flight++;
    commit_submit(run->process.commits[lane], &put->request);
}

static void writer_park(struct run *run)
{
    struct open_writer *const open = some_writer(run);
    struct status status;
    if (open != NULL && content_is_large(&run->contents->blobs[open->blob]) &&
        !blob_writer_park(open->writer, &status))
        drop_writer(open);
}

static void writer_abort(struct run *run)
{
    struct open_writer *const open = some_writer(run);
    if (open != NULL)
        drop_writer(open);
}

/* ---- eviction and forgetting */

/* Where a blob or an action result lies now; segment 0: nowhere. */
static struct place place_of_blob(struct run *run, size_t blob)
{
    struct place place = {0};
    store_find_blob(run->process.store, &run->contents->blobs[blob].digest, FIND_ONLY, &place);
    return place;
}

static struct place place_of_action(struct run *run, size_t action)
{
    struct place place = {0};
    store_find_action(run->process.store, &run->contents->actions[action],
                      contents_instance(action), FIND_ONLY, &place);
    return place;
}

static void evict(struct run *run)
{
    process_work(&run->process, WORKER_EVICT);
}

/*
 * Only what lies in the segment that goes may go with it, and what has a piece in it. Until the
 * step is over nobody knows which of it.
 */
static void before_eviction(void *argument, uint64_t victim)
{
    struct run *const run = argument;
    for (size_t i = 0; i < MODEL_BLOBS; i++)
        run->expected.blobs[i].shaky =
            content_is_large(&run->contents->blobs[i]) || place_of_blob(run, i).segment == victim;
    for (size_t i = 0; i < MODEL_ACTIONS; i++)
        run->expected.actions[i].shaky = place_of_action(run, i).segment == victim;
}

/* Who sent it meanwhile may have been told that it is there. */
static void after_eviction(void *argument, uint64_t victim)
{
    struct run *const run = argument;
    for (size_t i = 0; i < MODEL_BLOBS; i++) {
        struct expected_blob *const blob = &run->expected.blobs[i];
        if (place_of_blob(run, i).segment == 0) {
            if (blob->must && !blob->shaky)
                model_fail("blob %zu went with segment %" PRIu64 ", where it is not", i, victim);
            if (blob->shaky)
                expected_blob_removed(blob);
        }
        blob->shaky = false;
    }
    for (size_t i = 0; i < MODEL_ACTIONS; i++) {
        struct expected_action *const action = &run->expected.actions[i];
        if (place_of_action(run, i).segment == 0) {
            if (!action->may_be_absent && !action->shaky)
                model_fail("action %zu went with segment %" PRIu64 ", where it is not", i, victim);
            if (action->shaky)
                expected_action_removed(action);
        }
        action->shaky = false;
    }
}

static void forget_some(struct run *run)
{
    const bool is_action = chance(&run->prng, 3);
    const size_t number = prng_below(&run->prng, is_action ? MODEL_ACTIONS : MODEL_BLOBS);
    struct forget forget = {.reason = FORGET_PURGED};
    if (is_action) {
        forget.place = place_of_action(run, number);
        forget.digest = run->contents->actions[number];
        forget.instance = contents_instance(number);
        forget.kind = RECORD_ACTION;
    } else {
        const struct content *const content = &run->contents->blobs[number];
        forget.place = place_of_blob(run, number);
        forget.digest = content->digest;
        forget.kind = content_is_large(content) ? RECORD_MANIFEST : RECORD_BLOB;
    }
    if (forget.place.segment == 0)
        return;
    if (is_action)
        expected_action_removed(&run->expected.actions[number]);
    else
        expected_blob_removed(&run->expected.blobs[number]);
    model_trace("forget %s %zu at %" PRIu64 ":%" PRIu64, is_action ? "action" : "blob", number,
                forget.place.segment, forget.place.offset);
    forget_entry(run->process.store, run->process.commits[LANE_SMALL], &forget);
}

/*
 * From here on it stays away, unless somebody sends it again, or has sent it and was told that it
 * failed: then a part of that may lie on the disk.
 */
static void forget_ended(void *argument, const struct commit_request *request, bool durable)
{
    struct run *const run = argument;
    if (!durable)
        return;
    for (size_t i = 0; i < MODEL_BLOBS; i++) {
        struct expected_blob *const blob = &run->expected.blobs[i];
        if (request->forget_kind != RECORD_ACTION && blob->in_flight == 0 && !blob->failed &&
            digest_equal(&run->contents->blobs[i].digest, &request->record->digest) &&
            place_of_blob(run, i).segment == 0)
            blob->may = false;
    }
    for (size_t i = 0; i < MODEL_ACTIONS; i++) {
        struct expected_action *const action = &run->expected.actions[i];
        if (request->forget_kind == RECORD_ACTION && action->in_flight == 0 && !action->failed &&
            digest_equal(&run->contents->actions[i], &request->record->digest) &&
            bytes_equal(request->instance, contents_instance(i)) &&
            place_of_action(run, i).segment == 0)
            action->allowed = 0;
    }
}

/* ---- reading */

static bool reads_may_fail(const struct run *run)
{
    return run->faults_until != 0 || !io_sim_has_power(run->machine.disk);
}

/*
 * While the index is loaded, what is on disk alone is not found if the index on disk is lost and the
 * segments cannot be read either.
 */
static bool may_be_hidden(const struct run *run)
{
    return (run->read_failed || !io_sim_has_power(run->machine.disk)) &&
           blob_table_is_loading(run->process.store->table);
}

static void read_some(struct run *run)
{
    for (size_t count = 0; count < 8; count++) {
        const size_t number = prng_below(&run->prng, MODEL_BLOBS);
        const struct expected_blob *const blob = &run->expected.blobs[number];
        const struct content *const content = &run->contents->blobs[number];
        bool there = store_has_blob(run->process.store, &content->digest);
        if (there ? !blob->may : blob->must && !may_be_hidden(run))
            model_fail("blob %zu is %s", number, there ? "there" : "missing");
        bool read = false;
        if (!look_at_blob(run->process.store, content, &read)) {
            if (!reads_may_fail(run))
                model_fail("blob %zu: the disk fails to read it", number);
        } else if (read != there)
            model_fail("blob %zu is %s, and a read says %s", number, there ? "there" : "missing",
                       read ? "there" : "missing");
    }
}

static void read_actions(struct run *run)
{
    for (size_t i = 0; i < MODEL_ACTIONS; i++) {
        const struct expected_action *const action = &run->expected.actions[i];
        int version = -1;
        if (!look_at_action(run->process.store, run->contents, i, &version)) {
            if (!reads_may_fail(run))
                model_fail("action %zu: the disk fails to read it", i);
            continue;
        }
        if (version < 0 ? !action->may_be_absent && !may_be_hidden(run)
                        : (action->allowed >> version & 1) == 0)
            model_fail("action %zu has result %d, allowed are %" PRIx64, i, version,
                       action->allowed);
    }
}

static void hold_reader(struct run *run)
{
    struct open_reader *const open = &run->readers[prng_below(&run->prng, READERS)];
    struct status status;
    if (open->reader != NULL)
        return;
    open->blob = prng_below(&run->prng, MODEL_BLOBS);
    open->offset = 0;
    const int64_t unreadable = metrics_get(run->process.store->metrics, METRIC_RECORDS_UNREADABLE);
    if (!blob_reader_open(run->process.store, &run->contents->blobs[open->blob].digest,
                          &open->reader, &status) &&
        (!reads_may_fail(run) || !disk_failed(run->process.store, &status, unreadable)))
        model_fail("a reader did not open: %s", status.message);
}

/* Whatever has happened to the blob since: who has it open reads it to its end. */
static void read_on(struct run *run)
{
    struct open_reader *const open = &run->readers[prng_below(&run->prng, READERS)];
    struct status status;
    struct bytes data;
    if (open->reader == NULL)
        return;
    const struct content *const content = &run->contents->blobs[open->blob];
    struct buffer *const buffer = buffer_pool_try_take(run->buffers);
    if (buffer == NULL)
        return;
    bool ok = true;
    if (!chance(&run->prng, 6)) { /* else he goes away */
        const int64_t unreadable =
            metrics_get(run->process.store->metrics, METRIC_RECORDS_UNREADABLE);
        ok = blob_reader_read(open->reader, open->offset, buffer, &data, &status);
        if (!ok && (!reads_may_fail(run) || !disk_failed(run->process.store, &status, unreadable)))
            model_fail("who has blob %zu open cannot read it: %s", open->blob, status.message);
        if (ok && memcmp(data.data, content->data + open->offset, data.length) != 0)
            model_fail("who has blob %zu open reads wrong bytes", open->blob);
        if (ok)
            open->offset += data.length;
        ok = ok && open->offset < content->length;
    } else {
        ok = false;
    }
    buffer_release(buffer);
    if (!ok) {
        blob_reader_free(open->reader);
        open->reader = NULL;
    }
}

/* ---- time and faults */

static void pass_time(struct run *run)
{
    const int64_t durations_ns[] = {NS_PER_MS, NS_PER_S, 6 * NS_PER_S, 40 * NS_PER_S,
                                    200 * NS_PER_S};
    clock_sim_advance(&run->clock,
                      durations_ns[prng_below(&run->prng, ARRAY_LENGTH(durations_ns))]);
}

static void order_fault(struct run *run)
{
    struct io_sim *const disk = run->machine.disk;
    static const struct {
        enum io_sim_operation operation;
        int error_number;
    } faults[] = {
        {IO_SIM_SYNC, EIO},           {IO_SIM_SYNC, EIO},       {IO_SIM_PWRITEV, EIO},
        {IO_SIM_PWRITEV, ENOSPC},     {IO_SIM_PWRITEV, ENOSPC}, {IO_SIM_ALLOCATE, ENOSPC},
        {IO_SIM_PREAD, EIO},          {IO_SIM_OPEN, EMFILE},    {IO_SIM_RENAME, EIO},
        {IO_SIM_SYNC_DIRECTORY, EIO}, {IO_SIM_TRUNCATE, EIO},   {IO_SIM_UNLINK, EIO},
        {IO_SIM_OTHER, EIO},          {IO_SIM_OTHER, ENOSPC},   {IO_SIM_OTHER, EIO},
    };
    if (run->faults_until != 0)
        return;
    run->clean = false;
    run->faults_until = run->step + 1 + prng_below(&run->prng, FAULT_STEPS_MAX);
    const size_t which = prng_below(&run->prng, ARRAY_LENGTH(faults) + 3);
    run->read_failed = run->read_failed || which >= ARRAY_LENGTH(faults) ||
                       faults[which].operation == IO_SIM_PREAD;
    if (which < ARRAY_LENGTH(faults)) {
        const enum io_sim_repeat repeat = chance(&run->prng, 3) ? IO_SIM_FOREVER : IO_SIM_ONCE;
        io_sim_fail(disk, faults[which].operation, 1 + prng_below(&run->prng, 4),
                    faults[which].error_number, repeat);
    }
    if (which == ARRAY_LENGTH(faults))
        io_sim_set_capacity(disk, 1);
    /* Short and interrupted calls go with all of them. */
    if (chance(&run->prng, 2))
        io_sim_set_transfer_max(disk, 500 + prng_below(&run->prng, 5000));
    if (chance(&run->prng, 2))
        io_sim_set_interrupt_every(disk, 2 + prng_below(&run->prng, 5));
}

static void take_back_faults(struct run *run)
{
    io_sim_fail_nothing(run->machine.disk);
    io_sim_set_capacity(run->machine.disk, 0);
    io_sim_set_transfer_max(run->machine.disk, 0);
    io_sim_set_interrupt_every(run->machine.disk, 0);
    run->faults_until = 0;
}
