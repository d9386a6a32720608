/* SPDX-License-Identifier: Apache-2.0 */
#include "server/completeness.h"

#include <inttypes.h>

#include "server/digest_set.h"
#include "server/references.h"
#include "server/whole_blob.h"
#include "store/find.h"
#include "store/store.h"

enum { LOOKUPS_MAX = 256 };

struct check {
    struct durability *durability; /* borrowed */
    struct store *store;           /* borrowed */
    struct arena *arena;           /* borrowed */
    enum digest_function function;
    struct completeness *completeness;
    void (*named)(void *argument, const struct digest *digest); /* NULL: nobody is told */
    void *named_argument;

    struct digest_set missing;
    struct digest_set trees; /* read so far */
    struct digest_set
        directories; /* met so far; those from `next_directory` on are still to be read */
    size_t next_directory;
    uint64_t read_bytes_left; /* of LIMIT_COMPLETENESS_BYTES */
    struct whole_blob blob;

    struct digest lookups[LOOKUPS_MAX]; /* still to be looked for */
    size_t lookup_count;
};

static bool check_run(struct check *check, struct bytes result, struct status *status);
static bool check_tree(struct check *check, const struct digest *digest, struct status *status);
static bool check_directory(struct check *check,
                            const struct digest *digest,
                            struct status *status);
static bool read_referrer(struct check *check,
                          const struct digest *digest,
                          uint64_t limit_bytes,
                          struct bytes *data,
                          bool *found,
                          struct status *status);
static bool check_references(struct check *check,
                             enum referrer referrer,
                             struct bytes message,
                             struct status *status);
static bool take_reference(struct check *check,
                           enum referrer referrer,
                           const struct reference *reference,
                           struct status *status);
static bool look_up(struct check *check, const struct digest *digest, struct status *status);
static bool flush_lookups(struct check *check, struct status *status);
static bool note_missing(struct check *check, const struct digest *digest, struct status *status);
static bool settled(const struct check *check);
static void unusable(struct check *check, const struct status *why);

bool completeness_check(struct durability *durability,
                        struct arena *arena,
                        enum digest_function function,
                        struct bytes result,
                        struct completeness *completeness,
                        struct status *status)
{
    return completeness_list(durability, arena, function, result, NULL, NULL, completeness, status);
}

bool completeness_list(struct durability *durability,
                       struct arena *arena,
                       enum digest_function function,
                       struct bytes result,
                       void (*named)(void *argument, const struct digest *digest),
                       void *argument,
                       struct completeness *completeness,
                       struct status *status)
{
    struct check *const check = arena_take_zeroed(arena, 1, sizeof(*check));
    if (check == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a completeness check");
    check->durability = durability;
    check->store = durability_store(durability);
    check->arena = arena;
    check->function = function;
    check->completeness = completeness;
    check->named = named;
    check->named_argument = argument;
    check->read_bytes_left = LIMIT_COMPLETENESS_BYTES;
    completeness->complete = false;
    completeness->missing_count = 0;
    completeness->unusable = (struct status){0};

    const bool ok = digest_set_init(&check->missing, arena, COMPLETENESS_MISSING_MAX, status) &&
                    digest_set_init(&check->trees, arena, LIMIT_TREE_DIRECTORIES, status) &&
                    digest_set_init(&check->directories, arena, LIMIT_TREE_DIRECTORIES, status) &&
                    check_run(check, result, status);
    whole_blob_free(&check->blob);
    completeness->complete =
        ok && completeness->missing_count == 0 && completeness->unusable.code == STATUS_OK;
    return ok;
}

static bool check_run(struct check *check, struct bytes result, struct status *status)
{
    if (!check_references(check, REFERRER_ACTION_RESULT, result, status))
        return false;
    while (check->next_directory < check->directories.count && !settled(check)) {
        struct digest digest;
        digest_set_get(&check->directories, check->next_directory++, &digest);
        if (!check_directory(check, &digest, status))
            return false;
    }
    return flush_lookups(check, status);
}

/* All that is in it and that it refers to; a Tree holds its Directories itself. */
static bool check_tree(struct check *check, const struct digest *digest, struct status *status)
{
    size_t index;
    bool added;
    if (!digest_set_add(&check->trees, digest, &index, &added, status))
        return false;
    if (!added)
        return true;
    struct bytes data;
    bool found;
    return read_referrer(check, digest, LIMIT_TREE_BYTES, &data, &found, status) &&
           (!found || check_references(check, REFERRER_TREE, data, status));
}

/* Its sub-directories are added to those that are still to be read. */
static bool check_directory(struct check *check, const struct digest *digest, struct status *status)
{
    struct bytes data;
    bool found;
    return read_referrer(check, digest, LIMIT_RESPONSE_BYTES, &data, &found, status) &&
           (!found || check_references(check, REFERRER_DIRECTORY, data, status));
}

/* *found false: it is noted as missing, or the result as unusable. */
static bool read_referrer(struct check *check,
                          const struct digest *digest,
                          uint64_t limit_bytes,
                          struct bytes *data,
                          bool *found,
                          struct status *status)
{
    *found = false;
    const uint64_t size_bytes = (uint64_t)digest->size_bytes;
    if (size_bytes > limit_bytes || size_bytes > check->read_bytes_left) {
        struct status why = {0};
        char text[DIGEST_TEXT_BYTES_MAX];
        status_fail(&why, STATUS_RESOURCE_EXHAUSTED,
                    "%s is larger than the %" PRIu64
                    " bytes that are read of one, or all are larger than %" PRIu64,
                    digest_text(digest, text), limit_bytes, (uint64_t)LIMIT_COMPLETENESS_BYTES);
        unusable(check, &why);
        return true;
    }
    check->read_bytes_left -= size_bytes;
    if (!whole_blob_read(&check->blob, check->durability, digest, limit_bytes, data, found, status))
        return false;
    /* Looked up as well, because that is what marks it as used. */
    return *found ? look_up(check, digest, status) : note_missing(check, digest, status);
}

/* False only for a failure of ours; a message that makes no sense makes the result unusable. */
static bool check_references(struct check *check,
                             enum referrer referrer,
                             struct bytes message,
                             struct status *status)
{
    struct references references;
    references_start(&references, referrer, message, check->function, check->arena);
    while (!settled(check)) {
        struct reference reference;
        bool end;
        struct status why = {0};
        if (!references_next(&references, &reference, &end, &why)) {
            unusable(check, &why);
            return true;
        }
        if (end)
            return true;
        if (!take_reference(check, referrer, &reference, status))
            return false;
    }
    return true;
}

static bool take_reference(struct check *check,
                           enum referrer referrer,
                           const struct reference *reference,
                           struct status *status)
{
    size_t index;
    bool added;
    struct status why = {0};
    switch (reference->kind) {
    case REFERENCE_FILE:
    case REFERENCE_STDOUT:
    case REFERENCE_STDERR:
        return look_up(check, &reference->digest, status);
    case REFERENCE_TREE:
        return check_tree(check, &reference->digest, status);
    case REFERENCE_DIRECTORY:
        if (referrer == REFERRER_TREE ||
            digest_set_add(&check->directories, &reference->digest, &index, &added, &why))
            return true;
        unusable(check, &why);
        return true;
    }
    return true;
}

static bool look_up(struct check *check, const struct digest *digest, struct status *status)
{
    check->lookups[check->lookup_count++] = *digest;
    return check->lookup_count < LOOKUPS_MAX || flush_lookups(check, status);
}

static bool flush_lookups(struct check *check, struct status *status)
{
    bool present[LOOKUPS_MAX] = {false};
    const size_t count = check->lookup_count;
    check->lookup_count = 0;
    if (check->named == NULL)
        store_has_blobs(check->store, check->lookups, count, present);
    for (size_t i = 0; check->named != NULL && i < count; i++) {
        struct place place;
        present[i] = digest_is_empty_blob(&check->lookups[i]) ||
                     store_find_blob(check->store, &check->lookups[i], FIND_ONLY, &place);
        if (present[i])
            check->named(check->named_argument, &check->lookups[i]);
    }
    for (size_t i = 0; i < count; i++)
        if (!present[i] && !note_missing(check, &check->lookups[i], status))
            return false;
    return true;
}

static bool note_missing(struct check *check, const struct digest *digest, struct status *status)
{
    struct completeness *const completeness = check->completeness;
    if (completeness->missing_count == COMPLETENESS_MISSING_MAX)
        return true;
    size_t index;
    bool added;
    if (!digest_set_add(&check->missing, digest, &index, &added, status))
        return false;
    if (added && completeness->missing_count < COMPLETENESS_NAMED_MAX)
        completeness->missing[completeness->missing_count] = *digest;
    completeness->missing_count += added;
    return true;
}

/* Nothing that could still be found would change the answer. */
static bool settled(const struct check *check)
{
    return check->completeness->missing_count == COMPLETENESS_MISSING_MAX ||
           check->completeness->unusable.code != STATUS_OK;
}

/* The first reason stands. */
static void unusable(struct check *check, const struct status *why)
{
    if (check->completeness->unusable.code == STATUS_OK)
        check->completeness->unusable = *why;
}

bool completeness_fail(const struct completeness *completeness,
                       const struct digest *action,
                       struct status *status)
{
    ASSERT(!completeness->complete);
    char action_text[DIGEST_TEXT_BYTES_MAX];
    char first_text[DIGEST_TEXT_BYTES_MAX];
    digest_text(action, action_text);
    if (completeness->missing_count == 0)
        return status_fail(status, STATUS_NOT_FOUND, "the result of action %s is not usable: %s",
                           action_text, completeness->unusable.message);
    return status_fail(
        status, STATUS_NOT_FOUND,
        "the result of action %s names %s%zu blob%s that %s not in the store, first %s",
        action_text, completeness->missing_count == COMPLETENESS_MISSING_MAX ? "at least " : "",
        completeness->missing_count, completeness->missing_count == 1 ? "" : "s",
        completeness->missing_count == 1 ? "is" : "are",
        digest_text(&completeness->missing[0], first_text));
}

bool action_result_check(struct bytes result,
                         enum digest_function function,
                         struct arena *arena,
                         struct status *status)
{
    struct references references;
    references_start(&references, REFERRER_ACTION_RESULT, result, function, arena);
    struct reference reference;
    bool end = false;
    while (!end)
        if (!references_next(&references, &reference, &end, status))
            return false;
    return true;
}
