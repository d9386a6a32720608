/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree of Directories as pages of GetTreeResponse: breadth first, each distinct Directory once,
 * its bytes as they are stored. What is missing below the root is left out.
 *
 * A page token says how many distinct directories the pages before it went through, and proves with
 * a check value that it is one of ours for this root. Nothing is kept between calls: a resumed walk
 * goes the same way again and shows only what comes after.
 */
#ifndef VARVE_SERVER_TREE_PAGES_H
#define VARVE_SERVER_TREE_PAGES_H

#include "server/byte_builder.h"
#include "server/digest_set.h"
#include "server/whole_blob.h"

enum { TREE_PAGE_DIRECTORIES_MAX = 1000 };

struct tree_pages {
    struct durability *durability; /* borrowed */
    struct arena *arena;           /* borrowed */
    struct digest root;
    struct digest_set queue; /* all met so far, in the order of the walk */
    size_t next;             /* the one to be read next */
    size_t skip;             /* those before it are walked through, not shown */
    size_t page_directories_max;
    size_t page_directories; /* in the page that is being made */
    struct whole_blob blob;
    struct byte_builder page;
    bool asks;    /* the caller tries to get what is missing: TREE_PAGES_ABSENT, once for each */
    size_t asked; /* the one before this was asked for; 0: none */
    struct digest absent; /* when it is */
};

/*
 * page_size: directories a page; 0 or less leaves it to us. token: may be empty.
 * Errors: INVALID_ARGUMENT for a token that we did not give for this root; RESOURCE_EXHAUSTED.
 */
MUST_CHECK bool tree_pages_start(struct tree_pages *pages,
                                 struct durability *durability,
                                 struct arena *arena,
                                 const struct digest *root,
                                 int32_t page_size,
                                 struct bytes token,
                                 struct status *status);
void tree_pages_end(struct tree_pages *pages); /* memory that was only zeroed is fine too */

/*
 * UNFINISHED: it has gone on for a while, call again. READY: pages->page is one, more follow. LAST:
 * it is the last one. The caller takes the page away (byte_builder_release) before it asks for the
 * next. ABSENT, if `asks` was set after the start: pages->absent is missing; call again when it is here, or will not come.
 */
enum tree_pages_state {
    TREE_PAGES_UNFINISHED,
    TREE_PAGES_READY,
    TREE_PAGES_LAST,
    TREE_PAGES_ABSENT
};

/*
 * Errors: NOT_FOUND without the root; INVALID_ARGUMENT when the root is no Directory,
 * FAILED_PRECONDITION when something below it is none; RESOURCE_EXHAUSTED for too many directories,
 * or one that fits no message; UNAVAILABLE when the disk fails.
 */
MUST_CHECK bool tree_pages_next(struct tree_pages *pages,
                                enum tree_pages_state *state,
                                struct status *status);

#endif
