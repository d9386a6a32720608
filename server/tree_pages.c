/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tree_pages.h"

#include <inttypes.h>
#include <stdio.h>

#include "proto/wire.h"
#include "server/references.h"

enum {
    FIELD_DIRECTORIES = 1,     /* of GetTreeResponse */
    FIELD_NEXT_PAGE_TOKEN = 2, /* likewise */
    TOKEN_CHECK_BYTES = 8,
    TOKEN_BYTES_MAX = 48,     /* 20 digits, a dash, 16 hex digits, the NUL */
    TOKEN_FIELD_BYTES = 64,   /* kept free in each page */
    FIELD_HEAD_BYTES_MAX = 8, /* key and length of what fits a page */
    VISITS_MAX = 4096,        /* directories read in one call of tree_pages_next() */
    READ_BYTES_MAX = 4 << 20, /* of them all, but for the last: others want a worker too */
};

#define PAGE_BYTES_MAX (LIMIT_RESPONSE_BYTES - TOKEN_FIELD_BYTES)

static void token_text(const struct digest *root, size_t position, char text[TOKEN_BYTES_MAX]);
static bool token_parse(const struct digest *root,
                        struct bytes token,
                        size_t *position,
                        struct status *status);
static bool page_is_full(const struct tree_pages *pages);
static bool visit(struct tree_pages *pages, bool *absent, struct status *status);
static bool add_children(struct tree_pages *pages,
                         const struct digest *digest,
                         struct bytes directory,
                         struct status *status);
static void show(struct tree_pages *pages, struct bytes directory);
static void put_token(struct tree_pages *pages);

bool tree_pages_start(struct tree_pages *pages,
                      struct durability *durability,
                      struct arena *arena,
                      const struct digest *root,
                      int32_t page_size,
                      struct bytes token,
                      struct status *status)
{
    *pages = (struct tree_pages){
        .durability = durability,
        .arena = arena,
        .root = *root,
        .page_directories_max = TREE_PAGE_DIRECTORIES_MAX,
    };
    if (page_size > 0 && page_size < TREE_PAGE_DIRECTORIES_MAX)
        pages->page_directories_max = (size_t)page_size;
    if (token.length > 0 && !token_parse(root, token, &pages->skip, status))
        return false;
    size_t index;
    bool added;
    return digest_set_init(&pages->queue, arena, LIMIT_TREE_DIRECTORIES, status) &&
           digest_set_add(&pages->queue, root, &index, &added, status);
}

void tree_pages_end(struct tree_pages *pages)
{
    whole_blob_free(&pages->blob);
    byte_builder_free(&pages->page);
}

bool tree_pages_next(struct tree_pages *pages, enum tree_pages_state *state, struct status *status)
{
    uint64_t read_bytes = 0;
    for (size_t visits = 0; pages->next < pages->queue.count && !page_is_full(pages); visits++) {
        if (visits == VISITS_MAX || read_bytes >= READ_BYTES_MAX) {
            *state = TREE_PAGES_UNFINISHED;
            return true;
        }
        struct digest next;
        digest_set_get(&pages->queue, pages->next, &next);
        read_bytes += (uint64_t)next.size_bytes;
        bool absent = false;
        if (!visit(pages, &absent, status))
            return false;
        if (absent) {
            *state = TREE_PAGES_ABSENT;
            return true;
        }
    }
    *state = pages->next < pages->queue.count ? TREE_PAGES_READY : TREE_PAGES_LAST;
    if (*state == TREE_PAGES_READY)
        put_token(pages);
    pages->page_directories = 0;
    if (pages->page.failed)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "no memory for a page of directories");
    return true;
}

/*
 * So that the next directory belongs to the next page. A page holds at least one, whatever its
 * size.
 */
static bool page_is_full(const struct tree_pages *pages)
{
    if (pages->page_directories == 0)
        return false;
    struct digest next;
    digest_set_get(&pages->queue, pages->next, &next);
    return pages->page_directories == pages->page_directories_max ||
           pages->page.length + FIELD_HEAD_BYTES_MAX + (uint64_t)next.size_bytes > PAGE_BYTES_MAX;
}

/* *absent: nothing was done, it is to be asked for. */
static bool visit(struct tree_pages *pages, bool *absent, struct status *status)
{
    struct digest digest;
    digest_set_get(&pages->queue, pages->next, &digest);
    char text[DIGEST_TEXT_BYTES_MAX];
    if ((uint64_t)digest.size_bytes > PAGE_BYTES_MAX - FIELD_HEAD_BYTES_MAX)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "Directory %s is larger than the %" PRIu64
                           " bytes that a message holds; read it by itself",
                           digest_text(&digest, text), (uint64_t)LIMIT_RESPONSE_BYTES);
    struct bytes directory;
    bool found;
    if (!whole_blob_read(&pages->blob, pages->durability, &digest, PAGE_BYTES_MAX, &directory,
                         &found, status))
        return false;
    *absent = !found && pages->asks && pages->asked != pages->next + 1;
    if (*absent) {
        pages->asked = pages->next + 1;
        pages->absent = digest;
        return true;
    }
    if (!found && pages->next == 0)
        return status_fail(status, STATUS_NOT_FOUND, "the root directory %s is not in the store",
                           digest_text(&digest, text));
    if (found) {
        if (!add_children(pages, &digest, directory, status))
            return false;
        if (pages->next >= pages->skip)
            show(pages, directory);
    }
    pages->next++;
    return true;
}

static bool add_children(struct tree_pages *pages,
                         const struct digest *digest,
                         struct bytes directory,
                         struct status *status)
{
    struct references references;
    references_start(&references, REFERRER_DIRECTORY, directory,
                     (enum digest_function)pages->root.function, pages->arena);
    for (;;) {
        struct reference reference;
        bool end;
        if (!references_next(&references, &reference, &end, status)) {
            char text[DIGEST_TEXT_BYTES_MAX];
            status_prefix(status, "blob %s is no Directory", digest_text(digest, text));
            if (pages->next > 0)
                status->code = STATUS_FAILED_PRECONDITION; /* the argument as such was right */
            return false;
        }
        if (end)
            return true;
        size_t index;
        bool added;
        if (reference.kind == REFERENCE_DIRECTORY &&
            !digest_set_add(&pages->queue, &reference.digest, &index, &added, status)) {
            status_prefix(status, "the tree");
            return false;
        }
    }
}

static void show(struct tree_pages *pages, struct bytes directory)
{
    uint8_t *const to = byte_builder_reserve(
        &pages->page, wire_bytes_field_size(FIELD_DIRECTORIES, directory.length));
    if (to != NULL)
        pages->page.length += (size_t)(wire_put_bytes_field(to, FIELD_DIRECTORIES, directory) - to);
    pages->page_directories++;
}

static void put_token(struct tree_pages *pages)
{
    char text[TOKEN_BYTES_MAX];
    token_text(&pages->root, pages->next, text);
    uint8_t *const to = byte_builder_reserve(&pages->page, TOKEN_FIELD_BYTES);
    if (to != NULL)
        pages->page.length +=
            (size_t)(wire_put_bytes_field(to, FIELD_NEXT_PAGE_TOKEN, bytes_of_string(text)) - to);
}

/* "<position>-<the first bytes of a hash over it and the root, in hex>" */
static void token_text(const struct digest *root, size_t position, char text[TOKEN_BYTES_MAX])
{
    char root_text[DIGEST_TEXT_BYTES_MAX];
    char what[DIGEST_TEXT_BYTES_MAX + TOKEN_BYTES_MAX];
    const int length =
        snprintf(what, sizeof(what), "tree %s %zu", digest_text(root, root_text), position);
    ASSERT(length > 0 && (size_t)length < sizeof(what));
    struct digest check;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(what, (size_t)length), &check);
    int at = snprintf(text, TOKEN_BYTES_MAX, "%zu-", position);
    for (size_t i = 0; i < TOKEN_CHECK_BYTES; i++)
        at += snprintf(text + at, (size_t)(TOKEN_BYTES_MAX - at), "%02x", check.hash[i]);
}

static bool token_parse(const struct digest *root,
                        struct bytes token,
                        size_t *position,
                        struct status *status)
{
    size_t number = 0;
    for (size_t i = 0; i < token.length && token.data[i] >= '0' && token.data[i] <= '9'; i++)
        if (number <= LIMIT_TREE_DIRECTORIES)
            number = number * 10 + (size_t)(token.data[i] - '0');
    char expected[TOKEN_BYTES_MAX];
    token_text(root, number, expected);
    if (number == 0 || !bytes_equal_string(token, expected))
        return status_fail(
            status, STATUS_INVALID_ARGUMENT,
            "page_token is none that this server gave for this root; begin without one");
    *position = number;
    return true;
}
