/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a blob, or as an action result and who wrote it, decoded for the page: what comes is well-formed JSON of bounded size,
 * out of bounded memory; what a blob is found to be it also is when it is asked for as that; and its pages tell of the same number of
 * entries. The first byte says as what, the second where the page begins, the third which folder of a Tree.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/json.h"
#include "proto/json_read.h"
#include "proto/wire.h"
#include "server/page_content.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* 200 entries of two texts each, every byte of which may be written as six, and five lists besides. */
enum { ANSWER_BYTES_MAX = (200 * 2 + 5 * 200 * 2) * 6 * (PAGE_TEXT_BYTES_MAX + 200) };

struct shown {
    char *text;
    char kind[16];
    bool has_total;
    int64_t total;
};

static bool is_here(void *argument, const struct digest *digest)
{
    (void)argument;
    return (digest->hash[0] & 1) != 0;
}

static void show(const struct page_question *question,
                 struct bytes content,
                 const struct action_record *record,
                 struct shown *shown)
{
    struct arena arena;
    struct json json;
    struct json_value all;
    struct json_value member;
    size_t length = 0;
    *shown = (struct shown){0};
    FILE *const file = open_memstream(&shown->text, &length);
    ASSERT(file != NULL);
    arena_init(&arena, PAGE_ARENA_BYTES_MAX);
    json_init(&json, file);
    struct page_content to = {
        .question = question, .json = &json, .arena = &arena, .is_here = is_here};
    json_open_object(&json, NULL);
    page_content_text(&to, "instance", question->instance);
    if (record != NULL)
        page_content_result(&to, record);
    else
        page_content_blob(&to, content);
    json_close_object(&json);
    json_end(&json);
    ASSERT(fclose(file) == 0);
    arena_destroy(&arena);

    ASSERT(length > 0 && length <= ANSWER_BYTES_MAX && strlen(shown->text) == length);
    ASSERT(bytes_is_utf8(bytes_of(shown->text, length)));
    ASSERT(json_parse(bytes_of(shown->text, length - 1), &all));
    if (record != NULL) {
        ASSERT(json_member(&all, "action", &all));
        ASSERT(json_member(&all, "opaque", &member));
    } else {
        ASSERT(json_member(&all, "kind", &member));
        ASSERT(json_text(&member, shown->kind, sizeof(shown->kind)));
    }
    shown->has_total = json_member(&all, "total", &member);
    if (shown->has_total)
        ASSERT(json_whole_number(&member, &shown->total));
}

/* The folder with this number in the Tree that the bytes may be. */
static void choose_folder(struct bytes content, uint8_t number, struct digest *folder)
{
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_bytes(&content));
    while (number > 0 && wire_reader_next(&reader, &field)) {
        if (field.type != WIRE_BYTES || field.number > 2 || --number > 0)
            continue;
        struct bytes flat = bytes_of_string("");
        if (field.span.length > 0)
            flat = wire_span_next(&field.span);
        digest_of_bytes(DIGEST_FUNCTION_SHA256, flat, folder);
    }
}

static void look_at_blob(struct page_question *question, struct bytes content)
{
    struct shown first;
    struct shown again;
    show(question, content, NULL, &first);
    ASSERT(page_kind_parse(first.kind, &question->kind));
    question->offset += PAGE_ENTRIES_MAX;
    show(question, content, NULL, &again);
    ASSERT(strcmp(first.kind, again.kind) == 0);
    ASSERT(first.has_total == again.has_total && first.total == again.total);
    free(first.text);
    free(again.text);
}

static void look_at_result(const struct page_question *question,
                           struct bytes content,
                           size_t writer_bytes)
{
    struct shown shown;
    if (writer_bytes > content.length)
        writer_bytes = content.length;
    const struct action_record record = {
        .written_wall_ns = INT64_MIN + (int64_t)writer_bytes,
        .writer = bytes_of(content.data, writer_bytes),
        .result = bytes_of(content.data + writer_bytes, content.length - writer_bytes)};
    show(question, content, &record, &shown);
    free(shown.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    const struct bytes content = bytes_of(data + 3, size - 3);
    struct page_question question = {.kind = (enum page_kind)(data[0] % (PAGE_DATA + 1)),
                                     .offset = data[1] == UINT8_MAX ? UINT64_MAX - 3 : data[1]};
    question.instance = bytes_of(content.data, content.length < 8 ? content.length : 8);
    choose_folder(content, data[2], &question.folder);
    if (data[0] > INT8_MAX)
        look_at_result(&question, content, data[1] % 64);
    else
        look_at_blob(&question, content);
    return 0;
}
