/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what the page is told of a digest: each kind of message is recognised and decoded, lists come in pages, texts are cut and
 * quoted, what is missing is marked, and whatever bytes a client has stored, the answer is well-formed JSON of bounded size
 * (checked by the parser of proto/json_read.h over messages that are cut and changed at random).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json_read.h"
#include "durability/forget.h"
#include "server/page_lookup.h"
#include "store/find.h"
#include "tests/support/messages.h"
#include "tests/support/prng.h"
#include "tests/support/store_rig.h"
#include "tests/support/test_run.h"

/* 200 entries of two texts each, every byte of which may be written as six. */
enum { ANSWER_BYTES_MAX = 200 * 2 * 6 * (PAGE_TEXT_BYTES_MAX + 200) };

static struct store_rig rig;
static struct status status;
static char *answer;

static void setup(void)
{
    store_rig_start(&rig, STORE_RIG_SIMULATED);
    answer = NULL;
}

static void teardown(void)
{
    free(answer);
    store_rig_end(&rig);
}

static struct digest put(struct bytes data)
{
    struct digest digest;
    ck_assert_msg(store_rig_put(&rig, data, &digest, &status), "%s", status.message);
    return digest;
}

/* Empties the message. */
static struct digest put_message(struct byte_builder *message)
{
    const struct digest digest = put(message_bytes(message));
    byte_builder_free(message);
    return digest;
}

static bool ask(const struct page_question *question)
{
    size_t length = 0;
    struct json_value value;
    free(answer);
    answer = NULL;
    memset(&status, 0, sizeof(status));
    if (!page_lookup(rig.durability, question, &answer, &length, &status))
        return false;
    ck_assert_ptr_nonnull(answer);
    ck_assert_uint_eq(strlen(answer), length);
    ck_assert_uint_le(length, ANSWER_BYTES_MAX);
    ck_assert_msg(json_parse(bytes_of(answer, length - 1), &value), "no JSON: %s", answer);
    return true;
}

static void ask_for(const struct digest *digest, enum page_kind kind)
{
    const struct page_question question = {.digest = *digest, .kind = kind};
    ck_assert_msg(ask(&question), "%s", status.message);
}

static void assert_has(const char *part)
{
    ck_assert_msg(strstr(answer, part) != NULL, "%s is not in %s", part, answer);
}

static void assert_lacks(const char *part)
{
    ck_assert_msg(strstr(answer, part) == NULL, "%s is in %s", part, answer);
}

START_TEST(folder_shows_its_entries_and_what_is_not_here)
{
    struct byte_builder folder = {0};
    const struct digest here = put(bytes_of_string("here"));
    const struct digest gone = digest_of_nothing(1);
    directory_add_file(&folder, "<img src=x onerror=alert(1)>", &here);
    directory_add_file(&folder, "gone \"quoted\"", &gone);
    directory_add_directory(&folder, "sub", &gone);
    struct byte_builder symlink = {0};
    message_add_text(&symlink, 1, "link");
    message_add_text(&symlink, 2, "sub/else");
    message_add_message(&folder, 3, &symlink);
    const struct digest digest = put_message(&folder);
    ask_for(&digest, PAGE_AUTO);
    assert_has("\"action\":null");
    assert_has("\"kind\":\"directory\",\"entries\":[{\"kind\":\"directory\",\"name\":\"sub\"");
    assert_has("\"name\":\"<img src=x onerror=alert(1)>\"");
    assert_has("\"size_bytes\":4,\"here\":true}");
    assert_has("\"name\":\"gone \\\"quoted\\\"\"");
    assert_has("\"here\":false");
    assert_has("{\"kind\":\"symlink\",\"name\":\"link\",\"target\":\"sub/else\"}");
    assert_has("\"offset\":0,\"total\":4,");
    ask_for(&digest, PAGE_DATA);
    assert_has("\"kind\":\"data\"}");
}
END_TEST

START_TEST(tree_is_gone_through_folder_by_folder)
{
    struct byte_builder tree = {0};
    struct byte_builder root = {0};
    struct byte_builder child = {0};
    struct digest child_digest;
    const struct digest file = digest_of_nothing(1);
    directory_add_file(&child, "below", &file);
    digest_of_bytes(DIGEST_FUNCTION_SHA256, message_bytes(&child), &child_digest);
    directory_add_directory(&root, "sub", &child_digest);
    message_add_message(&tree, 1, &root);
    message_add_message(&tree, 2, &child);
    const struct digest digest = put_message(&tree);
    ask_for(&digest, PAGE_AUTO);
    assert_has("\"kind\":\"tree\",\"folders\":2,\"folder_found\":true,");
    assert_has("\"name\":\"sub\"");
    assert_lacks("below");
    struct page_question question = {.digest = digest, .kind = PAGE_TREE, .folder = child_digest};
    ck_assert(ask(&question));
    assert_has("\"name\":\"below\"");
    assert_lacks("\"name\":\"sub\"");
    question.folder = file;
    ck_assert(ask(&question));
    assert_has("\"folder_found\":false,\"entries\":[],");
}
END_TEST

START_TEST(action_leads_to_its_result_its_command_and_its_inputs)
{
    struct byte_builder command = {0};
    struct byte_builder variable = {0};
    struct byte_builder action = {0};
    struct byte_builder result = {0};
    message_add_text(&command, 1, "/bin/sh");
    message_add_text(&command, 1, "-c");
    message_add_text(&command, 1, "echo \t\"<b>\"\n");
    message_add_text(&variable, 1, "PATH");
    message_add_text(&variable, 2, "/bin");
    message_add_message(&command, 2, &variable);
    message_add_text(&command, 7, "out");
    const struct digest command_digest = put_message(&command);
    const struct digest input = digest_of_nothing(2);
    message_add_digest(&action, 1, &command_digest);
    message_add_digest(&action, 2, &input);
    const struct digest digest = put_message(&action);
    const struct digest output = put(bytes_of_string("made"));
    result_add_file(&result, "out", &output);
    message_add_number(&result, 4, 7);
    message_add_digest(&result, 6, &output);
    ck_assert(store_rig_put_action(&rig, &digest, "main", message_bytes(&result), &status));
    byte_builder_free(&result);

    struct page_question question = {.digest = digest, .instance = bytes_of_string("main")};
    question.digest.size_bytes = 0; /* which does not count */
    ck_assert(ask(&question));
    assert_has("\"exit_code\":7,\"stdout\":{\"hash\":");
    assert_has("\"entries\":[{\"kind\":\"file\",\"name\":\"out\",");
    assert_has("\"opaque\":false");
    assert_has("\"kind\":\"action\",\"command\":{\"hash\":");
    assert_has("\"input_root\":{\"hash\":");
    question.instance = bytes_of_string("other");
    ck_assert(ask(&question));
    assert_has("\"action\":null");
    ask_for(&command_digest, PAGE_AUTO);
    assert_has("\"kind\":\"command\",\"arguments\":[\"/bin/sh\",\"-c\",\"echo "
               "\\u0009\\\"<b>\\\"\\u000a\"]");
    assert_has("\"environment\":[{\"name\":\"PATH\",\"value\":\"/bin\"}]");
    assert_has("\"output_paths\":[\"out\"]");
}
END_TEST

/* It was asked for by its hash alone, and the log is not to name a size that no digest has. */
START_TEST(damaged_result_is_forgotten_under_a_digest_that_can_be)
{
    struct store *const store = durability_store(rig.durability);
    const struct digest digest = digest_of_nothing(4);
    const struct page_question question = {.digest = digest, .instance = bytes_of_string("main")};
    struct place place;
    char path[SEGMENT_PATH_BYTES_MAX];
    ck_assert(store_rig_put_action(&rig, &digest, "main", bytes_of_string("\x20\x07"), &status));
    ck_assert(store_find_action(store, &digest, question.instance, FIND_ONLY, &place));
    segment_path(path, store->segments_directory, place.segment, "seg");
    io_sim_corrupt(rig.sim, path, place.offset + RECORD_HEADER_BYTES, 0x40);
    ck_assert(!ask(&question));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    forget_wait(store);

    struct arena arena;
    struct feed_batch batch;
    const struct feed_query query = {.lane = LANE_SMALL,
                                     .records_max = 10,
                                     .bytes_max = MIB,
                                     .kinds = FEED_KIND(RECORD_FORGET),
                                     .history = true};
    arena_init(&arena, MIB);
    ck_assert(feed_read(durability_feed(rig.durability), &query, &arena, &batch, &status));
    ck_assert_uint_eq(batch.count, 1);
    ck_assert_int_ge(batch.entries[0].digest.size_bytes, 0);
    arena_destroy(&arena);
}
END_TEST

START_TEST(value_that_is_no_action_result_is_shown_as_one)
{
    const struct digest digest = digest_of_nothing(3);
    ck_assert(store_rig_put_action(&rig, &digest, "keys", bytes_of_string("\xff\xfe"), &status));
    const struct page_question question = {.digest = digest, .instance = bytes_of_string("keys")};
    ck_assert(ask(&question));
    assert_has("\"opaque\":true");
    assert_has("\"blob\":null");
}
END_TEST

START_TEST(lists_come_in_pages_and_long_texts_are_cut)
{
    struct byte_builder folder = {0};
    const struct digest file = digest_of_nothing(1);
    static char longest[4 * PAGE_TEXT_BYTES_MAX];
    for (size_t i = 0; i + 3 < sizeof(longest); i += 3)
        memcpy(longest + i, "\xe2\x82\xac", 3);
    directory_add_file(&folder, longest, &file);
    for (int i = 1; i < 450; i++) {
        char name[32];
        snprintf(name, sizeof(name), "f%03d", i);
        directory_add_file(&folder, name, &file);
    }
    const struct digest digest = put_message(&folder);
    ask_for(&digest, PAGE_AUTO);
    assert_has("\"f199\"");
    assert_lacks("\"f200\"");
    assert_has("\xe2\x82\xac\xe2\x80\xa6\"");
    assert_has("\"total\":450,\"page\":200");
    struct page_question question = {.digest = digest, .offset = 400};
    ck_assert(ask(&question));
    assert_has("\"f400\"");
    assert_has("\"f449\"");
    assert_lacks("\"f399\"");
    question.offset = UINT64_MAX;
    ck_assert(ask(&question));
    assert_has("\"entries\":[]");
}
END_TEST

START_TEST(what_is_not_here_is_not_found_and_the_empty_blob_always_is)
{
    const struct page_question question = {.digest = digest_of_nothing(9)};
    ck_assert(!ask(&question));
    ck_assert_int_eq(status.code, STATUS_NOT_FOUND);
    struct digest empty;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(NULL, 0), &empty);
    ask_for(&empty, PAGE_AUTO);
    assert_has("\"size_bytes\":0,\"kind\":\"data\"");
    ask_for(&empty, PAGE_DIRECTORY);
    assert_has("\"kind\":\"directory\",\"entries\":[]");
}
END_TEST

START_TEST(large_blob_is_data_and_is_not_read)
{
    uint8_t *const data = seeded_bytes(1, PAGE_MESSAGE_BYTES_MAX + 1);
    const struct digest digest = put(bytes_of(data, PAGE_MESSAGE_BYTES_MAX + 1));
    free(data);
    ask_for(&digest, PAGE_TREE);
    assert_has("\"size_bytes\":8388609,\"kind\":\"data\"}");
}
END_TEST

/* A million empty sub-messages: each would be an object. */
START_TEST(message_that_would_take_much_memory_is_data)
{
    enum { EMPTY_ONES = 1000000 };
    uint8_t *const data = calloc(EMPTY_ONES, 2);
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < EMPTY_ONES; i++)
        data[2 * i] = 2 << 3 | 2;
    const struct digest digest = put(bytes_of(data, (size_t)2 * EMPTY_ONES));
    ask_for(&digest, PAGE_COMMAND);
    assert_has("\"kind\":\"data\"");
    ck_assert(store_rig_put_action(&rig, &digest, "main", bytes_of(data, EMPTY_ONES), &status));
    free(data);
    const struct page_question question = {.digest = digest, .instance = bytes_of_string("main")};
    ck_assert(ask(&question));
    assert_has("\"opaque\":true");
}
END_TEST

static void append(struct byte_builder *to, struct byte_builder *message)
{
    byte_builder_append(to, message_bytes(message));
    byte_builder_free(message);
}

/* One of each kind, which are then cut, changed, and repeated. */
static void make_sample(size_t kind, struct byte_builder *sample)
{
    struct byte_builder inner = {0};
    const struct digest digest = digest_of_nothing(kind);
    directory_add_file(&inner, "a\xc3\xa4", &digest);
    directory_add_directory(&inner, "b", &digest);
    switch (kind % 4) {
    case 0:
        append(sample, &inner);
        break;
    case 1:
        message_add_message(sample, 1, &inner);
        directory_add_file(&inner, "c", &digest);
        message_add_message(sample, 2, &inner);
        break;
    case 2:
        byte_builder_free(&inner);
        message_add_text(sample, 1, "/bin/true");
        message_add_text(&inner, 1, "NAME");
        message_add_message(sample, 2, &inner);
        break;
    default:
        byte_builder_free(&inner);
        message_add_digest(sample, 1, &digest);
        message_add_digest(sample, 2, &digest);
        break;
    }
}

START_TEST(any_bytes_give_an_answer)
{
    struct prng prng = {.state = 11};
    for (size_t round = 0; round < 400; round++) {
        struct byte_builder sample = {0};
        make_sample(round, &sample);
        for (size_t changes = prng_below(&prng, 4); changes > 0; changes--)
            sample.data[prng_below(&prng, sample.length)] = (uint8_t)prng_next(&prng);
        if (prng_below(&prng, 4) == 0)
            sample.length -= prng_below(&prng, sample.length);
        const struct digest digest = put(message_bytes(&sample));
        ck_assert(store_rig_put_action(&rig, &digest, "main", message_bytes(&sample), &status));
        byte_builder_free(&sample);
        for (enum page_kind kind = PAGE_AUTO; kind <= PAGE_DATA; kind++) {
            const struct page_question question = {.digest = digest,
                                                   .instance = bytes_of_string("main"),
                                                   .kind = kind,
                                                   .offset = prng_below(&prng, 3)};
            ck_assert_msg(ask(&question), "%s", status.message);
        }
    }
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("page_lookup");
    TCase *const tests = tcase_create("page_lookup");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, folder_shows_its_entries_and_what_is_not_here);
    tcase_add_test(tests, tree_is_gone_through_folder_by_folder);
    tcase_add_test(tests, action_leads_to_its_result_its_command_and_its_inputs);
    tcase_add_test(tests, damaged_result_is_forgotten_under_a_digest_that_can_be);
    tcase_add_test(tests, value_that_is_no_action_result_is_shown_as_one);
    tcase_add_test(tests, lists_come_in_pages_and_long_texts_are_cut);
    tcase_add_test(tests, what_is_not_here_is_not_found_and_the_empty_blob_always_is);
    tcase_add_test(tests, large_blob_is_data_and_is_not_read);
    tcase_add_test(tests, message_that_would_take_much_memory_is_data);
    tcase_add_test(tests, any_bytes_give_an_answer);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
