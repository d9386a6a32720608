/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Can everything be read that an action result names: output files, stdout, stderr, each output
 * directory's Tree with all the files in it, and each root Directory with all that is below. What
 * is found is marked as used, so that it is evicted late.
 *
 * Reads Trees and Directories, hence the disk. Nothing recurses. Bounds: LIMIT_TREE_BYTES a Tree,
 * LIMIT_COMPLETENESS_BYTES of both together, LIMIT_TREE_DIRECTORIES; beyond them the result counts
 * as unusable.
 */
#ifndef VARVE_SERVER_COMPLETENESS_H
#define VARVE_SERVER_COMPLETENESS_H

#include "base/arena.h"
#include "durability/durability.h"

enum {
    COMPLETENESS_MISSING_MAX = 1000, /* counting stops there */
    COMPLETENESS_NAMED_MAX = 64,     /* more than the details of an error have room for */
};

struct completeness {
    bool complete;
    size_t missing_count; /* different blobs that are not there */
    /* The first of them: min(missing_count, COMPLETENESS_NAMED_MAX). */
    struct digest missing[COMPLETENESS_NAMED_MAX];
    /* Code OK, or why the result could not be served even if nothing were missing. */
    struct status unusable;
};

/*
 * result: an encoded ActionResult. function: as the request said. *completeness is set on true
 * only.
 * Errors: UNAVAILABLE when the disk fails to read; RESOURCE_EXHAUSTED when memory is used up.
 */
MUST_CHECK bool completeness_check(struct durability *durability,
                                   struct arena *arena,
                                   enum digest_function function,
                                   struct bytes result,
                                   struct completeness *completeness,
                                   struct status *status);

/*
 * The same, but marks no blob as used that is only named, and tells of each that is named and here, of some more than once: what has to
 * be somewhere else before the result may be there. named: called by this thread.
 */
MUST_CHECK bool completeness_list(struct durability *durability,
                                  struct arena *arena,
                                  enum digest_function function,
                                  struct bytes result,
                                  void (*named)(void *argument, const struct digest *digest),
                                  void *argument,
                                  struct completeness *completeness,
                                  struct status *status);

/*
 * Says why a result that is not complete is not served: NOT_FOUND, naming the action, the first
 * missing blob and how many there are. Returns false, as status_fail() does.
 */
bool completeness_fail(const struct completeness *completeness,
                       const struct digest *action,
                       struct status *status);

/*
 * Is every digest in it one: what is asked of a result that is stored. INVALID_ARGUMENT naming what
 * is wrong.
 */
MUST_CHECK bool action_result_check(struct bytes result,
                                    enum digest_function function,
                                    struct arena *arena,
                                    struct status *status);

#endif
