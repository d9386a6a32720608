/* SPDX-License-Identifier: Apache-2.0 */
#include "server/page_lookup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/json.h"
#include "server/whole_blob.h"
#include "store/blob_reader.h"
#include "store/find.h"

struct lookup {
    const struct page_question *question; /* borrowed, as all pointers */
    struct durability *durability;
    struct store *store;
    struct json json;
    struct page_content content;
};

static bool put_action(struct lookup *lookup, bool *found, struct status *status);
static bool put_blob(struct lookup *lookup, bool *found, struct status *status);
static bool is_here(void *argument, const struct digest *digest);

bool page_lookup(struct durability *durability,
                 const struct page_question *question,
                 char **json,
                 size_t *length,
                 struct status *status)
{
    struct arena arena;
    char hex[DIGEST_HASH_HEX_MAX + 1];
    bool has_action = false;
    bool has_blob = false;
    *json = NULL;
    FILE *const to = open_memstream(json, length);
    if (to == NULL)
        return status_fail_errno(status, errno, "answer of a look-up");
    arena_init(&arena, PAGE_ARENA_BYTES_MAX);
    struct lookup lookup = {
        .question = question, .durability = durability, .store = durability_store(durability)};
    lookup.content = (struct page_content){.question = question,
                                           .json = &lookup.json,
                                           .arena = &arena,
                                           .is_here = is_here,
                                           .argument = lookup.store};
    json_init(&lookup.json, to);
    json_open_object(&lookup.json, NULL);
    json_string(&lookup.json, "hash", digest_hex(&question->digest, hex));
    page_content_text(&lookup.content, "instance", question->instance);
    /* A blob that is named as something is no action. */
    const bool is_named = question->kind != PAGE_AUTO && question->kind != PAGE_ACTION;
    if (is_named)
        json_null(&lookup.json, "action");
    bool ok = is_named || put_action(&lookup, &has_action, status);
    ok = ok && put_blob(&lookup, &has_blob, status);
    json_close_object(&lookup.json);
    json_end(&lookup.json);
    arena_destroy(&arena);
    const bool written = fclose(to) == 0;
    if (ok && !written)
        ok = status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the answer");
    if (ok && !has_action && !has_blob)
        ok = status_fail(status, STATUS_NOT_FOUND, "%.16s... is neither a blob nor an action here",
                         hex);
    if (!ok) {
        free(*json);
        *json = NULL;
    }
    return ok;
}

static bool put_blob(struct lookup *lookup, bool *found, struct status *status)
{
    struct whole_blob blob = {0};
    struct digest digest = lookup->question->digest;
    struct bytes data = bytes_of_string("");
    *found = store_find_size(lookup->store, &digest);
    const bool readable = *found && lookup->question->kind != PAGE_DATA &&
                          digest.size_bytes <= PAGE_MESSAGE_BYTES_MAX;
    if (readable && !whole_blob_read(&blob, lookup->durability, &digest, PAGE_MESSAGE_BYTES_MAX,
                                     &data, found, status)) {
        whole_blob_free(&blob);
        return false;
    }
    if (*found) {
        json_open_object(&lookup->json, "blob");
        json_integer(&lookup->json, "size_bytes", digest.size_bytes);
        if (readable)
            page_content_blob(&lookup->content, data.length > 0 ? data : bytes_of_string(""));
        else
            json_string(&lookup->json, "kind", "data");
        json_close_object(&lookup->json);
    } else {
        json_null(&lookup->json, "blob");
    }
    whole_blob_free(&blob);
    return true;
}

static bool put_action(struct lookup *lookup, bool *found, struct status *status)
{
    struct digest action = lookup->question->digest;
    const struct bytes instance = lookup->question->instance;
    struct action_record record = {0};
    struct place place = {0};
    struct status why = {0};
    uint8_t *memory = NULL;
    action.size_bytes = INDEX_ANY_SIZE;
    if (!action_read(lookup->store, &action, instance, &memory, &record, &place, &why)) {
        if (why.code != STATUS_DATA_LOSS) {
            *status = why;
            return false;
        }
        damaged_action_forget(lookup->durability, &lookup->question->digest, instance, place, &why);
        memory = NULL;
    }
    *found = memory != NULL;
    if (*found)
        page_content_result(&lookup->content, &record);
    else
        json_null(&lookup->json, "action");
    free(memory);
    return true;
}

static bool is_here(void *argument, const struct digest *digest)
{
    struct place place;
    return digest_is_empty_blob(digest) || store_find_blob(argument, digest, FIND_ONLY, &place);
}
