/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that a client has stored, decoded for a person: as members of JSON. Of any bytes, and without looking anywhere; server/page_lookup.h
 * reads them.
 *
 * What a blob is nobody says: it is tried, strictly. Lists come in pages of PAGE_ENTRIES_MAX, texts are cut at PAGE_TEXT_BYTES_MAX.
 */
#ifndef VARVE_SERVER_PAGE_CONTENT_H
#define VARVE_SERVER_PAGE_CONTENT_H

#include "base/arena.h"
#include "base/digest.h"
#include "store/action_record.h"

struct json;

enum {
    PAGE_ENTRIES_MAX = 200,
    PAGE_TEXT_BYTES_MAX = 1024,
    PAGE_ARENA_BYTES_MAX = 16 * 1024 * 1024, /* messages that take more are data */
};

/* How a blob is to be read; AUTO: what it is like. */
enum page_kind { PAGE_AUTO, PAGE_DIRECTORY, PAGE_TREE, PAGE_COMMAND, PAGE_ACTION, PAGE_DATA };
/* "auto", "directory", ...; false: it is none. */
bool page_kind_parse(const char *name, enum page_kind *kind);

struct page_question {
    struct digest digest; /* its size does not count */
    struct bytes instance;
    enum page_kind kind;
    struct digest folder; /* of a Tree: the Directory in it; hash_length 0: its root */
    uint64_t offset;      /* entries to leave out */
};

struct page_content {
    const struct page_question *question; /* borrowed, as all pointers */
    struct json *json;                    /* an object is open in it */
    struct arena *arena; /* of PAGE_ARENA_BYTES_MAX; what is unpacked stays in it */
    bool (*is_here)(void *argument, const struct digest *digest);
    void *argument;
};

/* Members that say what `data` is, and what is in it. A kind that is asked for and does not fit is data. */
void page_content_blob(struct page_content *to, struct bytes data);
/* "action": the result, and who wrote it when. */
void page_content_result(struct page_content *to, const struct action_record *record);
/* One text, cut, and without what would end it early. key: NULL in an array. */
void page_content_text(struct page_content *to, const char *key, struct bytes text);

#endif
