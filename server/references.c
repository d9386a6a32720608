/* SPDX-License-Identifier: Apache-2.0 */
#include "server/references.h"

#include "proto/hot_messages.h"

enum message_type {
    MESSAGE_ACTION_RESULT,
    MESSAGE_OUTPUT_FILE,
    MESSAGE_OUTPUT_DIRECTORY,
    MESSAGE_DIRECTORY,
    MESSAGE_FILE_NODE,
    MESSAGE_DIRECTORY_NODE,
    MESSAGE_TREE,
    MESSAGE_TYPES
};

/* What to do with a field. Those that are not listed are passed over. */
enum field_use { USE_NONE, USE_MESSAGE, USE_DIGEST };
enum { FIELD_NUMBERS = 9 }; /* all that matter are below */

struct field_rule {
    const char *name;
    enum field_use use;
    enum message_type message;  /* USE_MESSAGE: its type */
    enum reference_kind digest; /* USE_DIGEST: what it refers to */
};

struct message_rules {
    const char *name;
    bool needs_digest;
    struct field_rule fields[FIELD_NUMBERS];
};

static const struct message_rules rules[MESSAGE_TYPES] = {
    [MESSAGE_ACTION_RESULT] = {"ActionResult",
                               false,
                               {[2] = {"output_files", USE_MESSAGE, MESSAGE_OUTPUT_FILE, 0},
                                [3] = {"output_directories", USE_MESSAGE, MESSAGE_OUTPUT_DIRECTORY,
                                       0},
                                [6] = {"stdout_digest", USE_DIGEST, 0, REFERENCE_STDOUT},
                                [8] = {"stderr_digest", USE_DIGEST, 0, REFERENCE_STDERR}}},
    [MESSAGE_OUTPUT_FILE] = {"OutputFile", true, {[2] = {"digest", USE_DIGEST, 0, REFERENCE_FILE}}},
    [MESSAGE_OUTPUT_DIRECTORY] = {"OutputDirectory",
                                  true,
                                  {[3] = {"tree_digest", USE_DIGEST, 0, REFERENCE_TREE},
                                   [5] = {"root_directory_digest", USE_DIGEST, 0,
                                          REFERENCE_DIRECTORY}}},
    [MESSAGE_DIRECTORY] = {"Directory",
                           false,
                           {[1] = {"files", USE_MESSAGE, MESSAGE_FILE_NODE, 0},
                            [2] = {"directories", USE_MESSAGE, MESSAGE_DIRECTORY_NODE, 0}}},
    [MESSAGE_FILE_NODE] = {"FileNode", true, {[2] = {"digest", USE_DIGEST, 0, REFERENCE_FILE}}},
    [MESSAGE_DIRECTORY_NODE] = {"DirectoryNode",
                                true,
                                {[2] = {"digest", USE_DIGEST, 0, REFERENCE_DIRECTORY}}},
    [MESSAGE_TREE] = {"Tree",
                      false,
                      {[1] = {"root", USE_MESSAGE, MESSAGE_DIRECTORY, 0},
                       [2] = {"children", USE_MESSAGE, MESSAGE_DIRECTORY, 0}}},
};

static void enter(struct references *references, enum message_type message, struct wire_span span);
static bool leave(struct references *references, struct status *status);
static bool take_digest(struct references *references,
                        const struct field_rule *rule,
                        struct wire_span span,
                        struct reference *reference,
                        struct status *status);

void references_start(struct references *references,
                      enum referrer referrer,
                      struct bytes message,
                      enum digest_function function,
                      struct arena *arena)
{
    static const enum message_type types[] = {
        [REFERRER_ACTION_RESULT] = MESSAGE_ACTION_RESULT,
        [REFERRER_DIRECTORY] = MESSAGE_DIRECTORY,
        [REFERRER_TREE] = MESSAGE_TREE,
    };
    references->message = message;
    references->function = function;
    references->arena = arena;
    references->depth = 0;
    enter(references, types[referrer], wire_span_of_bytes(&references->message));
}

bool references_next(struct references *references,
                     struct reference *reference,
                     bool *end,
                     struct status *status)
{
    *end = false;
    while (references->depth > 0) {
        struct references_frame *const frame = &references->frames[references->depth - 1];
        struct wire_field field;
        if (!wire_reader_next(&frame->reader, &field)) {
            if (!leave(references, status))
                return false;
            continue;
        }
        if (field.number >= FIELD_NUMBERS)
            continue;
        const struct field_rule *const rule = &rules[frame->message].fields[field.number];
        if (rule->use == USE_NONE)
            continue;
        if (field.type != WIRE_BYTES)
            return status_fail(status, STATUS_INVALID_ARGUMENT, "%s: %s is of another wire type",
                               rules[frame->message].name, rule->name);
        if (rule->use == USE_DIGEST)
            return take_digest(references, rule, field.span, reference, status);
        enter(references, rule->message, field.span);
    }
    *end = true;
    return true;
}

static void enter(struct references *references, enum message_type message, struct wire_span span)
{
    ASSERT(references->depth < REFERENCES_DEPTH_MAX);
    struct references_frame *const frame = &references->frames[references->depth++];
    frame->message = (int)message;
    frame->digests = 0;
    wire_reader_init(&frame->reader, span);
}

static bool leave(struct references *references, struct status *status)
{
    const struct references_frame *const frame = &references->frames[references->depth - 1];
    if (frame->reader.failed)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s: malformed",
                           rules[frame->message].name);
    if (rules[frame->message].needs_digest && frame->digests == 0)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s: without a digest",
                           rules[frame->message].name);
    references->depth--;
    return true;
}

static bool take_digest(struct references *references,
                        const struct field_rule *rule,
                        struct wire_span span,
                        struct reference *reference,
                        struct status *status)
{
    struct references_frame *const frame = &references->frames[references->depth - 1];
    frame->digests++;
    reference->kind = rule->digest;
    struct wire_digest wire;
    if (!wire_digest_decode(span, references->arena, &wire, status) ||
        !digest_parse(references->function, wire.hash_hex, wire.size_bytes, &reference->digest,
                      status)) {
        status_prefix(status, "%s: %s", rules[frame->message].name, rule->name);
        return false;
    }
    return true;
}
