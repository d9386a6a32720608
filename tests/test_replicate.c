/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying from one server to another: every blob that was given is accounted once, what arrives is what
 * its name says, memory stays under a bound, and a copy that was cut goes on where it was. With servers
 * that lie, fail, are cut, know nothing of uploads that they have begun, and are gone (against two of
 * tests/support/fake_cas.h); each call failing in turn.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "client/blob_pipe.h"
#include "client/copier.h"
#include "client/pull.h"
#include "client/push.h"
#include "client/tree_blobs.h"
#include "tests/support/fake_cas.h"
#include "tests/support/prng.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

enum { BLOBS_MAX = 2000 };

static struct fake_cas source_cas, destination_cas;
static struct client *source, *destination;
static struct capabilities source_capabilities, destination_capabilities;
static struct digest given[BLOBS_MAX];
static size_t given_count;
static char problems[16384];
static unsigned problem_count, gone_count;
static const struct digest *unwanted;
static struct copier_counts counts;
static enum status_code first_failed;

static struct client *connect_to(const char *target)
{
    struct client_options options = client_options_default();
    options.retry.pause_min_ns = NS_PER_MS;
    options.retry.pause_max_ns = 4 * NS_PER_MS;
    struct client *client;
    struct status status = {0};
    ck_assert_msg(client_connect(target, &options, &client, &status), "%s", status.message);
    return client;
}

static void open_clients(void)
{
    struct status status = {0};
    client_prepare_process();
    fake_cas_start(&source_cas);
    fake_cas_start(&destination_cas);
    source = connect_to(fake_cas_target(&source_cas));
    destination = connect_to(fake_cas_target(&destination_cas));
    ck_assert(capabilities_get(source, &source_capabilities, &status));
    ck_assert(capabilities_get(destination, &destination_capabilities, &status));
}

static void close_clients(void)
{
    client_close(source);
    client_close(destination);
    fake_cas_stop(&source_cas);
    fake_cas_stop(&destination_cas);
}

/* A blob of that size, different for each tag, at the source. */
static struct digest put_at(struct fake_cas *cas, size_t size, unsigned tag)
{
    struct prng prng = {.state = tag * 1000003u + size};
    uint8_t *data = malloc(size + 8);
    ck_assert_ptr_nonnull(data);
    for (size_t at = 0; at < size; at += 8) {
        const uint64_t word = prng_next(&prng);
        memcpy(data + at, &word, 8);
    }
    struct digest digest;
    fake_cas_put(cas, bytes_of(data, size), &digest);
    free(data);
    return digest;
}

static struct digest give(size_t size, unsigned tag)
{
    ck_assert_uint_lt(given_count, BLOBS_MAX);
    return given[given_count++] = put_at(&source_cas, size, tag);
}

static void note_problem(void *argument, const struct status *problem)
{
    (void)argument;
    ck_assert_int_ne(problem->code, STATUS_OK);
    problem_count++;
    const size_t length = strlen(problems);
    snprintf(problems + length, sizeof(problems) - length, "%s\n", problem->message);
}

static void note_gone(void *argument, const struct digest *digest)
{
    (void)argument;
    ck_assert(!fake_cas_has(&source_cas, digest));
    gone_count++;
}

static bool is_wanted(void *argument, const struct digest *digest)
{
    (void)argument;
    return unwanted == NULL || !digest_equal(digest, unwanted);
}

static void no_progress(void *argument)
{
    (void)argument;
}

static struct copier *new_copier(void)
{
    const struct copier_config config = {
        .source = source,
        .destination = destination,
        .source_capabilities = &source_capabilities,
        .destination_capabilities = &destination_capabilities,
        .batches_in_flight_max = COPIER_BATCHES_IN_FLIGHT_MAX,
        .streams_in_flight_max = COPIER_STREAMS_IN_FLIGHT_MAX,
        .observer = {.problem = note_problem,
                     .gone = note_gone,
                     .is_wanted = is_wanted,
                     .progress = no_progress},
    };
    struct copier *copier;
    struct status status = {0};
    problems[0] = '\0';
    problem_count = gone_count = 0;
    ck_assert_msg(copier_new(&config, &copier, &status), "%s", status.message);
    return copier;
}

/* Everything that was given, and that it adds up. */
static bool copy(struct status *status)
{
    struct copier *copier = new_copier();
    struct status adding = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < given_count; i++)
        ok = copier_add(copier, &given[i], &adding);
    ok = copier_finish(copier, status) && ok;
    counts = *copier_counts(copier);
    first_failed = copier_first_failed(copier);
    copier_free(copier);
    ck_assert_uint_eq(counts.given, counts.present + counts.copied + counts.gone + counts.unwanted +
                                        counts.failed + counts.abandoned);
    ck_assert_uint_le(counts.flight_bytes_peak, COPIER_FLIGHT_BYTES_MAX);
    ck_assert_uint_eq(counts.gone, gone_count);
    ck_assert_uint_eq(counts.failed, problem_count);
    return ok;
}

static void ck_copy(void)
{
    struct status status = {0};
    ck_assert_msg(copy(&status), "%s\n%s", status.message, problems);
}

static size_t arrived(void)
{
    size_t count = 0;
    for (size_t i = 0; i < given_count; i++)
        count += fake_cas_has(&destination_cas, &given[i]);
    return count;
}

static void plan(struct fake_cas *cas, struct fake_fault fault)
{
    cas->faults[0] = fault;
}

START_TEST(every_blob_arrives_and_is_accounted_once)
{
    open_clients();
    struct prng prng = {.state = 1};
    for (unsigned i = 0; i < 600; i++)
        give(1 + prng_below(&prng, 8000), i);
    for (unsigned i = 0; i < 60; i++)
        give(100000 + prng_below(&prng, 400000), i);
    give(128 * 1024, 1);
    give(128 * 1024 + 1, 1);
    give(1 << 20, 1);
    give((5 << 20) + 17, 1);
    give(33 << 20, 1);
    const size_t different = given_count;
    for (size_t i = 0; i < 100; i++) /* again, and some that are there */
        given[given_count++] = given[i * 5];
    given[given_count++] = (struct digest){.function = DIGEST_FUNCTION_SHA256};
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of("", 0), &given[given_count - 1]);
    for (unsigned i = 0; i < 50; i++) {
        prng.state = 1;
        size_t size = 0;
        for (unsigned j = 0; j <= i; j++)
            size = 1 + prng_below(&prng, 8000);
        put_at(&destination_cas, size, i);
    }
    ck_copy();
    ck_assert_uint_eq(counts.given, different);
    ck_assert_uint_eq(counts.present, 50);
    ck_assert_uint_eq(counts.copied, different - 50);
    ck_assert_uint_eq(arrived(), given_count - 1);
    ck_assert_uint_eq(destination_cas.duplicates, 0);
    ck_assert_uint_eq(counts.sent_bytes, counts.copied_bytes);
    ck_assert_uint_eq(counts.received_bytes, counts.copied_bytes);
    ck_assert_uint_le(destination_cas.largest_message_bytes, 4 << 20);
    /* Small ones travel together: far fewer calls than blobs. */
    ck_assert_uint_le(fake_cas_calls(&destination_cas, "BatchUpdateBlobs"), 40);
    ck_assert_uint_le(fake_cas_calls(&source_cas, "BatchReadBlobs"), 40);
    close_clients();
}
END_TEST

/* 84 MiB in blobs that travel in batches, to a slow server: copy() looks at the peak. */
START_TEST(what_is_on_its_way_is_bounded)
{
    open_clients();
    destination_cas.answer_pause_ms = 100;
    for (unsigned i = 0; i < 700; i++)
        give(120000 + i, i);
    ck_copy();
    ck_assert_uint_eq(counts.copied, given_count);
    ck_assert_uint_gt(counts.flight_bytes_peak, COPIER_FLIGHT_BYTES_MAX / 2);
    close_clients();
}
END_TEST

START_TEST(what_is_there_is_not_copied_again)
{
    open_clients();
    for (unsigned i = 0; i < 200; i++)
        give(1000 + i, i);
    give(3 << 20, 1);
    ck_copy();
    const unsigned batches = fake_cas_calls(&source_cas, "BatchReadBlobs");
    ck_copy();
    ck_assert_uint_eq(counts.present, given_count);
    ck_assert_uint_eq(counts.copied + counts.sent_bytes + counts.received_bytes, 0);
    ck_assert_uint_eq(fake_cas_calls(&source_cas, "BatchReadBlobs"), batches);
    ck_assert_uint_eq(fake_cas_calls(&source_cas, "Read"), 1);
    close_clients();
}
END_TEST

START_TEST(what_the_source_lacks_is_told_apart_and_disturbs_nothing)
{
    open_clients();
    for (unsigned i = 0; i < 100; i++)
        give(1000 + i, i);
    give(2 << 20, 1);
    struct fake_cas nowhere = {0};
    fake_cas_start(&nowhere);
    given[given_count++] = put_at(&nowhere, 500, 9);
    given[given_count++] = put_at(&nowhere, 5 << 20, 9);
    fake_cas_stop(&nowhere);
    ck_copy();
    ck_assert_uint_eq(counts.gone, 2);
    ck_assert_uint_eq(counts.copied, given_count - 2);
    ck_assert_uint_eq(problem_count, 0);
    close_clients();
}
END_TEST

START_TEST(what_is_not_wanted_is_not_fetched)
{
    open_clients();
    for (unsigned i = 0; i < 10; i++)
        give(1000 + i, i);
    unwanted = &given[4];
    ck_copy();
    ck_assert_uint_eq(counts.unwanted, 1);
    ck_assert_uint_eq(counts.copied, 9);
    ck_assert(!fake_cas_has(&destination_cas, &given[4]));
    close_clients();
}
END_TEST

START_TEST(a_source_that_lies_stores_nothing)
{
    static const size_t sizes[] = {1000, (3 << 20) + 5};
    static const char *const methods[] = {"BatchReadBlobs", "Read"};
    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        given_count = 0;
        memset(&source_cas, 0, sizeof(source_cas));
        memset(&destination_cas, 0, sizeof(destination_cas));
        open_clients();
        const struct digest lied = give(sizes[i], 1);
        source_cas.read_end_pause_ms = 200; /* time for the last bytes to get on, if they could */
        plan(&source_cas, (struct fake_fault){.method = methods[i],
                                              .kind = FAKE_FAULT_WRONG_BYTES,
                                              .times = UINT32_MAX});
        ck_copy();
        ck_assert_uint_eq(counts.failed, 1);
        ck_assert_int_eq(first_failed, STATUS_DATA_LOSS);
        char text[DIGEST_TEXT_BYTES_MAX];
        ck_assert_ptr_nonnull(strstr(problems, digest_text(&lied, text)));
        ck_assert_uint_eq(arrived(), 0);
        close_clients();
        /* Not even all of its bytes went out: no check of the destination's was needed. */
        ck_assert_uint_lt(destination_cas.write_bytes, sizes[i]);
    }
}
END_TEST

START_TEST(a_read_that_is_cut_goes_on)
{
    open_clients();
    give(9 << 20, 1);
    plan(&source_cas, (struct fake_fault){.method = "Read",
                                          .kind = FAKE_FAULT_STATUS,
                                          .code = STATUS_UNAVAILABLE,
                                          .after_bytes = (2 << 20) + 77,
                                          .times = 3});
    ck_copy();
    ck_assert_uint_eq(arrived(), 1);
    ck_assert_uint_eq(fake_cas_calls(&source_cas, "Read"), 4);
    ck_assert_uint_eq(counts.received_bytes, 9 << 20);
    close_clients();
}
END_TEST

/* 1: the server knows nothing of what it had; all is read again. 2: it has kept some of it. */
START_TEST(a_write_that_is_cut_goes_on)
{
    open_clients();
    destination_cas.no_query = _i == 1;
    destination_cas.unfinished_bytes_max = _i == 2 ? (1 << 20) + 12345 : 0;
    give(9 << 20, 1);
    plan(&destination_cas, (struct fake_fault){.method = "Write",
                                               .kind = FAKE_FAULT_STATUS,
                                               .code = STATUS_UNAVAILABLE,
                                               .after_bytes = 4 << 20,
                                               .times = 1});
    ck_copy();
    ck_assert_uint_eq(arrived(), 1);
    ck_assert_uint_eq(fake_cas_calls(&destination_cas, "Write"), 2);
    if (_i > 0)
        ck_assert_uint_gt(counts.received_bytes, 9 << 20);
    close_clients();
}
END_TEST

struct pipe_end {
    bool done;
    struct status status;
    enum blob_pipe_side side;
};

static void pipe_done(void *argument, const struct status *status, enum blob_pipe_side side)
{
    struct pipe_end *end = argument;
    ck_assert(!end->done);
    *end = (struct pipe_end){.done = true, .status = *status, .side = side};
}

START_TEST(a_destination_that_takes_nothing_holds_the_source_back)
{
    open_clients();
    const struct digest digest = give(64 << 20, 1);
    /* Nobody listens there: the upload tries for a while. */
    struct client_options options = client_options_default();
    options.retry.pause_min_ns = options.retry.pause_max_ns = NS_PER_S / 2;
    options.retry.tries_max = 3;
    struct client *nobody;
    struct status status = {0};
    ck_assert(client_connect("127.0.0.1:1", &options, &nobody, &status));
    struct event_loop loop;
    event_loop_init(&loop, client_clock(source));
    struct pipe_end end = {0};
    uint64_t received_bytes = 0;
    const struct blob_pipe_request request = {.digest = digest,
                                              .source = source,
                                              .destination = nobody,
                                              .loop = &loop,
                                              .received_bytes = &received_bytes,
                                              .done = pipe_done,
                                              .argument = &end};
    struct blob_pipe *pipe;
    ck_assert(blob_pipe_start(&request, &pipe, &status));
    event_loop_run_until(&loop, &end.done);
    ck_assert_int_eq(end.status.code, STATUS_UNAVAILABLE);
    ck_assert_int_eq(end.side, BLOB_PIPE_DESTINATION);
    /* Each try begins at 0, so it is read again from there: three times what is held, and messages. */
    ck_assert_uint_le(received_bytes, 3 * (BLOB_PIPE_BYTES_MAX + (UINT64_C(1) << 20)));
    event_loop_destroy(&loop);
    client_close(nobody);
    close_clients();
}
END_TEST

START_TEST(a_pipe_that_is_cancelled_ends)
{
    open_clients();
    const struct digest digest = give(32 << 20, 1);
    for (unsigned turns = 0; turns < 60; turns += 3) {
        struct event_loop loop;
        event_loop_init(&loop, client_clock(source));
        struct pipe_end end = {0};
        const struct blob_pipe_request request = {.digest = digest,
                                                  .source = source,
                                                  .destination = destination,
                                                  .loop = &loop,
                                                  .done = pipe_done,
                                                  .argument = &end};
        struct blob_pipe *pipe;
        struct status status = {0};
        ck_assert(blob_pipe_start(&request, &pipe, &status));
        for (unsigned turn = 0; turn < turns && !end.done; turn++)
            event_loop_run(&loop, NS_PER_S);
        if (!end.done)
            blob_pipe_cancel(pipe);
        event_loop_run_until(&loop, &end.done);
        ck_assert(end.status.code == STATUS_OK || end.status.code == STATUS_CANCELLED);
        event_loop_destroy(&loop);
    }
    close_clients();
}
END_TEST

/* 0: the destination; 1: the source. */
START_TEST(a_server_that_is_gone_ends_it_and_the_next_copy_finishes)
{
    open_clients();
    for (unsigned i = 0; i < 1000; i++)
        give(20000 + i, i);
    give(5 << 20, 1);
    struct fake_cas *cas = _i == 0 ? &destination_cas : &source_cas;
    static const char *const methods[] = {"BatchUpdateBlobs", "BatchReadBlobs"};
    plan(cas, (struct fake_fault){.method = methods[_i],
                                  .kind = FAKE_FAULT_STATUS,
                                  .code = STATUS_UNAUTHENTICATED,
                                  .skip = 2,
                                  .times = UINT32_MAX});
    struct status status = {0};
    ck_assert(!copy(&status));
    ck_assert_int_eq(status.code, STATUS_UNAUTHENTICATED);
    ck_assert_ptr_nonnull(strstr(status.message, fake_cas_target(cas)));
    ck_assert_uint_gt(counts.abandoned, 0);
    ck_assert(_i == 1 || counts.copied > 0);
    const size_t before = arrived();
    plan(cas, (struct fake_fault){0});
    ck_copy();
    /* What was cancelled may have arrived after that, too. */
    ck_assert_uint_ge(counts.present, before);
    ck_assert_uint_eq(counts.copied, given_count - counts.present);
    ck_assert_uint_eq(arrived(), given_count);
    ck_assert_uint_eq(destination_cas.duplicates, 0);
    close_clients();
}
END_TEST

struct trouble {
    bool at_source;
    const char *method;
    enum fake_fault_kind kind;
    enum status_code code;
    bool passes; /* all arrives in spite of it */
};

static const struct trouble troubles[] = {
    {false, "FindMissingBlobs", FAKE_FAULT_STATUS, STATUS_UNAVAILABLE, true},
    {false, "FindMissingBlobs", FAKE_FAULT_MALFORMED, STATUS_OK, false},
    {false, "BatchUpdateBlobs", FAKE_FAULT_STATUS, STATUS_RESOURCE_EXHAUSTED, true},
    {false, "BatchUpdateBlobs", FAKE_FAULT_STATUS, STATUS_UNIMPLEMENTED, true},
    {false, "BatchUpdateBlobs", FAKE_FAULT_ENTRY, STATUS_UNAVAILABLE, true},
    {false, "BatchUpdateBlobs", FAKE_FAULT_NO_ENTRY, STATUS_OK, true},
    {false, "BatchUpdateBlobs", FAKE_FAULT_NO_STATUS, STATUS_OK, true},
    {false, "BatchUpdateBlobs", FAKE_FAULT_ENTRY, STATUS_INVALID_ARGUMENT, false},
    {false, "Write", FAKE_FAULT_STATUS, STATUS_UNAVAILABLE, true},
    {false, "Write", FAKE_FAULT_STATUS, STATUS_INVALID_ARGUMENT, false},
    {false, "Write", FAKE_FAULT_STATUS, STATUS_NOT_FOUND, false},
    {false, "Write", FAKE_FAULT_EARLY_END, STATUS_OK, true},
    {true, "BatchReadBlobs", FAKE_FAULT_STATUS, STATUS_UNAVAILABLE, true},
    {true, "BatchReadBlobs", FAKE_FAULT_STATUS, STATUS_UNIMPLEMENTED, true},
    {true, "BatchReadBlobs", FAKE_FAULT_ENTRY, STATUS_RESOURCE_EXHAUSTED, true},
    {true, "BatchReadBlobs", FAKE_FAULT_ENTRY, STATUS_INTERNAL, true},
    {true, "BatchReadBlobs", FAKE_FAULT_NO_ENTRY, STATUS_OK, true},
    {true, "BatchReadBlobs", FAKE_FAULT_TWICE, STATUS_OK, true},
    {true, "BatchReadBlobs", FAKE_FAULT_WRONG_BYTES, STATUS_OK, false},
    {true, "Read", FAKE_FAULT_STATUS, STATUS_UNAVAILABLE, true},
    {true, "Read", FAKE_FAULT_STATUS, STATUS_DATA_LOSS, false},
    {true, "Read", FAKE_FAULT_MALFORMED, STATUS_OK, false},
    {true, "Read", FAKE_FAULT_WRONG_BYTES, STATUS_OK, false},
    {true, "Read", FAKE_FAULT_TOO_MANY_BYTES, STATUS_OK, false},
    {true, "Read", FAKE_FAULT_EARLY_END, STATUS_OK, true},
};

/* The first, second, ... call of the kind goes wrong, until a run meets none. */
START_TEST(whatever_goes_wrong_it_adds_up_and_the_next_copy_finishes)
{
    const struct trouble *trouble = &troubles[_i];
    for (unsigned nth = 0;; nth++) {
        ck_assert_uint_lt(nth, 100);
        given_count = 0;
        memset(&source_cas, 0, sizeof(source_cas));
        memset(&destination_cas, 0, sizeof(destination_cas));
        open_clients();
        for (unsigned i = 0; i < 200; i++)
            give(30000 + i, i);
        give(300000, 1);
        give((2 << 20) + 3, 1);
        struct fake_cas *cas = trouble->at_source ? &source_cas : &destination_cas;
        plan(cas, (struct fake_fault){.method = trouble->method,
                                      .kind = trouble->kind,
                                      .code = trouble->code,
                                      .after_bytes = nth % 2 == 0 ? 0 : 70000,
                                      .skip = nth,
                                      .times = 1});
        struct status status = {0};
        const bool ok = copy(&status);
        const bool met = cas->faults[0].times == 0;
        ck_assert_uint_ge(arrived(), counts.copied); /* more where the answer was lost */
        if (!met || trouble->passes)
            ck_assert_msg(ok && counts.copied == given_count, "%s: %s\n%s", trouble->method,
                          status.message, problems);
        plan(cas, (struct fake_fault){0});
        ck_copy();
        ck_assert_uint_eq(arrived(), given_count);
        close_clients();
        if (!met)
            break;
    }
}
END_TEST

static bool copy_visited(void *argument, const struct digest *digest, struct status *status)
{
    return copier_add(argument, digest, status);
}

static void no_push_progress(void *argument, const struct push_counts *pushed)
{
    (void)argument;
    (void)pushed;
}

static void no_pull_progress(void *argument, const struct pull_counts *pulled)
{
    (void)argument;
    (void)pulled;
}

static struct digest push_tree(const char *path)
{
    char name[400];
    for (unsigned i = 0; i < 60; i++) {
        snprintf(name, sizeof(name), "%s/%u", path, i % 10);
        ck_assert(mkdir(name, 0755) == 0 || i >= 10);
        snprintf(name, sizeof(name), "%s/%u/%u", path, i % 10, i);
        ck_assert_int_eq(mkdir(name, 0755), 0);
        snprintf(name, sizeof(name), "%s/%u/%u/file", path, i % 10, i);
        FILE *file = fopen(name, "w");
        ck_assert_ptr_nonnull(file);
        for (unsigned line = 0; line < i * i; line++)
            fprintf(file, "%u of %u\n", line, i);
        ck_assert_int_eq(fclose(file), 0);
    }
    struct digest root;
    struct push_counts pushed;
    struct status status = {0};
    const struct push_observer observer = {.problem = note_problem, .progress = no_push_progress};
    ck_assert_msg(push_directory(source, &source_capabilities, path, NULL, &observer, &root,
                                 &pushed, &status),
                  "%s", status.message);
    return root;
}

static bool copy_tree(const struct digest *root, uint64_t *unreadable, uint64_t *gone)
{
    struct copier *copier = new_copier();
    struct status status = {0};
    const struct tree_blobs_observer observer = {
        .take = copy_visited, .problem = note_problem, .argument = copier};
    bool ok =
        tree_blobs_visit(source, &source_capabilities, root, &observer, unreadable, gone, &status);
    ok = copier_finish(copier, &status) && ok;
    counts = *copier_counts(copier);
    copier_free(copier);
    return ok;
}

START_TEST(a_tree_is_copied_with_its_directories)
{
    struct temp_dir from, to;
    temp_dir_make(&from);
    temp_dir_make(&to);
    open_clients();
    uint64_t unreadable, gone;
    const struct digest root = push_tree(from.path);
    ck_assert_msg(copy_tree(&root, &unreadable, &gone), "%s", problems);
    ck_assert_uint_eq(unreadable + gone, 0);
    ck_assert_uint_eq(counts.copied, fake_cas_blob_count(&source_cas));
    struct pull_counts pulled;
    struct status status = {0};
    const struct pull_observer observer = {.problem = note_problem, .progress = no_pull_progress};
    ck_assert_msg(pull_directory(destination, &destination_capabilities, &root, to.path, NULL,
                                 &observer, &pulled, &status),
                  "%s", status.message);
    ck_assert_uint_eq(pulled.files, 60);
    close_clients();
    temp_dir_remove(&from);
    temp_dir_remove(&to);
}
END_TEST

#define REAPI(name) Build__Bazel__Remote__Execution__V2__##name

/* A directory with this one in it twice, at the source. */
static struct digest put_twice(const struct digest *below)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    digest_hex(below, hex);
    REAPI(Digest) digest = BUILD__BAZEL__REMOTE__EXECUTION__V2__DIGEST__INIT;
    digest.hash = hex;
    digest.size_bytes = below->size_bytes;
    REAPI(DirectoryNode) nodes[2];
    REAPI(DirectoryNode) * list[2];
    char names[2][2] = {"a", "b"};
    for (size_t i = 0; i < 2; i++) {
        build__bazel__remote__execution__v2__directory_node__init(&nodes[i]);
        nodes[i].name = names[i];
        nodes[i].digest = &digest;
        list[i] = &nodes[i];
    }
    REAPI(Directory) directory = BUILD__BAZEL__REMOTE__EXECUTION__V2__DIRECTORY__INIT;
    directory.n_directories = 2;
    directory.directories = list;
    uint8_t message[1024];
    const size_t length = protobuf_c_message_get_packed_size(&directory.base);
    ck_assert_uint_le(length, sizeof(message));
    protobuf_c_message_pack(&directory.base, message);
    struct digest made;
    fake_cas_put(&source_cas, bytes_of(message, length), &made);
    return made;
}

START_TEST(a_directory_that_occurs_a_billion_times_is_read_once)
{
    open_clients();
    struct digest top = put_at(&source_cas, 0, 1); /* a directory without entries is no bytes */
    ck_assert(digest_is_empty_blob(&top));
    for (unsigned level = 0; level < 30; level++)
        top = put_twice(&top);
    uint64_t unreadable, gone;
    ck_assert(copy_tree(&top, &unreadable, &gone));
    ck_assert_uint_eq(unreadable, 0);
    ck_assert_uint_eq(counts.copied, 30);
    ck_assert_uint_le(fake_cas_calls(&source_cas, "BatchReadBlobs"), 40);
    close_clients();
}
END_TEST

START_TEST(a_directory_that_cannot_be_read_is_named_and_the_rest_is_copied)
{
    struct temp_dir from;
    temp_dir_make(&from);
    open_clients();
    uint64_t unreadable, gone;
    const struct digest root = push_tree(from.path);
    char hex[DIGEST_HASH_HEX_MAX + 1];
    digest_hex(&root, hex);
    /* The batch with the root alone goes well; one entry of a later one is not there. */
    plan(&source_cas, (struct fake_fault){.method = "BatchReadBlobs",
                                          .kind = FAKE_FAULT_ENTRY,
                                          .code = STATUS_NOT_FOUND,
                                          .skip = 1,
                                          .times = 1});
    ck_assert(copy_tree(&root, &unreadable, &gone));
    ck_assert_uint_gt(unreadable, 0);
    ck_assert_uint_eq(unreadable, gone);
    ck_assert_uint_gt(counts.copied, 0);
    ck_assert_ptr_nonnull(strstr(problems, "what is below it is left out"));
    close_clients();
    temp_dir_remove(&from);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("replicate");
    TCase *all = tcase_create("all");
    tcase_set_timeout(all, 240);
    tcase_add_test(all, every_blob_arrives_and_is_accounted_once);
    tcase_add_test(all, what_is_on_its_way_is_bounded);
    tcase_add_test(all, what_is_there_is_not_copied_again);
    tcase_add_test(all, what_the_source_lacks_is_told_apart_and_disturbs_nothing);
    tcase_add_test(all, what_is_not_wanted_is_not_fetched);
    tcase_add_test(all, a_source_that_lies_stores_nothing);
    tcase_add_test(all, a_read_that_is_cut_goes_on);
    tcase_add_loop_test(all, a_write_that_is_cut_goes_on, 0, 3);
    tcase_add_test(all, a_destination_that_takes_nothing_holds_the_source_back);
    tcase_add_test(all, a_pipe_that_is_cancelled_ends);
    tcase_add_loop_test(all, a_server_that_is_gone_ends_it_and_the_next_copy_finishes, 0, 2);
    tcase_add_loop_test(all, whatever_goes_wrong_it_adds_up_and_the_next_copy_finishes, 0,
                        ARRAY_LENGTH(troubles));
    tcase_add_test(all, a_tree_is_copied_with_its_directories);
    tcase_add_test(all, a_directory_that_occurs_a_billion_times_is_read_once);
    tcase_add_test(all, a_directory_that_cannot_be_read_is_named_and_the_rest_is_copied);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
