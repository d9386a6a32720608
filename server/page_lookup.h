/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a digest is, decoded for a person: as JSON for the page (server/page/). Looks on this node alone, and asks no peer.
 *
 *   {"hash", "instance",
 *    "action": null or the result that is stored for it in the instance: outputs, exit code, who wrote it when,
 *    "blob":   null or {"size_bytes", "kind", ...}: a folder (Directory, or one inside of a Tree), a Command, an Action, or data}
 *
 * What a blob is nobody says: it is tried, strictly. Lists come in pages of PAGE_ENTRIES_MAX, texts are cut at PAGE_TEXT_BYTES_MAX.
 */
#ifndef VARVE_SERVER_PAGE_LOOKUP_H
#define VARVE_SERVER_PAGE_LOOKUP_H

#include "durability/durability.h"

enum {
    PAGE_ENTRIES_MAX = 200,
    PAGE_TEXT_BYTES_MAX = 1024,
    PAGE_MESSAGE_BYTES_MAX = 8 * 1024 * 1024, /* larger blobs are data */
    PAGE_ARENA_BYTES_MAX = 16 * 1024 * 1024,
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

/*
 * *json: to be freed. NOT_FOUND when there is neither; UNAVAILABLE when the disk fails; RESOURCE_EXHAUSTED. For a thread that may
 * read the disk.
 */
MUST_CHECK bool page_lookup(struct durability *durability,
                            const struct page_question *question,
                            char **json,
                            size_t *length,
                            struct status *status);

#endif
