/* SPDX-License-Identifier: Apache-2.0 */
#include "client/directory.h"

#include <stdlib.h>

#include "client/file_source.h"
#include "proto/hot_messages.h"

/* Directory; FileNode, DirectoryNode, SymlinkNode */
enum {
    FIELD_FILES = 1,
    FIELD_DIRECTORIES = 2,
    FIELD_SYMLINKS = 3,
    FIELD_NAME = 1,
    FIELD_DIGEST = 2,
    FIELD_TARGET = 2,
    FIELD_IS_EXECUTABLE = 4,
};

/* Scratch for hashes: none is longer than this, and the message is in one piece. */
enum { HASH_ARENA_BYTES = 64 * 1024 };

static bool decode_all(struct bytes message, struct directory *directory, struct status *status);
static bool decode_node(struct wire_span span,
                        enum directory_node_kind kind,
                        struct arena *arena,
                        struct directory *directory,
                        struct status *status);
static bool take_text(struct wire_span span,
                      struct directory *directory,
                      const char **text,
                      struct status *status);
static bool take_digest(struct wire_span span,
                        struct arena *arena,
                        struct digest *digest,
                        struct status *status);
static bool check_node(const struct directory_node *node, bool has_digest, struct status *status);
static bool check_names(struct directory *directory, struct status *status);
static bool reserve_node(struct directory *directory, struct status *status);
static int compare_names(const void *a, const void *b);
static bool wrong(struct status *status, const char *what);
static bool wrong_name(struct status *status, const char *name, const char *what);

bool directory_decode(struct bytes message, struct directory *directory, struct status *status)
{
    *directory = (struct directory){0};
    /* Every text is a part of the message, and has its length before it where we put a NUL. */
    directory->texts = malloc(message.length + 1);
    if (directory->texts == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a directory");
    if (decode_all(message, directory, status) && check_names(directory, status))
        return true;
    directory_destroy(directory);
    return false;
}

void directory_destroy(struct directory *directory)
{
    free(directory->nodes);
    free(directory->texts);
    *directory = (struct directory){0};
}

static bool decode_all(struct bytes message, struct directory *directory, struct status *status)
{
    static const struct {
        uint32_t field;
        enum directory_node_kind kind;
    } kinds[] = {
        {FIELD_FILES, DIRECTORY_NODE_FILE},
        {FIELD_DIRECTORIES, DIRECTORY_NODE_DIRECTORY},
        {FIELD_SYMLINKS, DIRECTORY_NODE_SYMLINK},
    };
    struct arena arena;
    arena_init(&arena, HASH_ARENA_BYTES);
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_bytes(&message));
    bool ok = true;
    while (ok && wire_reader_next(&reader, &field)) {
        for (size_t i = 0; ok && i < ARRAY_LENGTH(kinds); i++) {
            if (field.number != kinds[i].field)
                continue;
            ok = field.type == WIRE_BYTES
                     ? decode_node(field.span, kinds[i].kind, &arena, directory, status)
                     : wrong(status, "a node that is none");
        }
    }
    if (ok && reader.failed)
        ok = wrong(status, "no protobuf message");
    arena_destroy(&arena);
    return ok;
}

static bool decode_node(struct wire_span span,
                        enum directory_node_kind kind,
                        struct arena *arena,
                        struct directory *directory,
                        struct status *status)
{
    struct directory_node node = {.kind = kind, .name = ""};
    bool has_digest = false;
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, span);
    while (wire_reader_next(&reader, &field)) {
        bool ok = true;
        if (field.number == FIELD_NAME && field.type == WIRE_BYTES) {
            ok = take_text(field.span, directory, &node.name, status);
        } else if (kind == DIRECTORY_NODE_SYMLINK && field.number == FIELD_TARGET &&
                   field.type == WIRE_BYTES) {
            ok = take_text(field.span, directory, &node.target, status);
        } else if (kind != DIRECTORY_NODE_SYMLINK && field.number == FIELD_DIGEST &&
                   field.type == WIRE_BYTES) {
            ok = take_digest(field.span, arena, &node.digest, status);
            has_digest = true;
        } else if (kind == DIRECTORY_NODE_FILE && field.number == FIELD_IS_EXECUTABLE &&
                   field.type == WIRE_VARINT) {
            node.executable = field.value != 0;
        }
        if (!ok)
            return false;
    }
    if (reader.failed)
        return wrong(status, "a node that is no protobuf message");
    if (!check_node(&node, has_digest, status) || !reserve_node(directory, status))
        return false;
    directory->nodes[directory->count++] = node;
    return true;
}

/* A NUL in it would end it early, and let it be another name than the one that was checked. */
static bool take_text(struct wire_span span,
                      struct directory *directory,
                      const char **text,
                      struct status *status)
{
    char *to = directory->texts + directory->texts_length;
    wire_span_copy(span, (uint8_t *)to);
    if (memchr(to, '\0', span.length) != NULL)
        return wrong(status, "a name or target with a NUL");
    to[span.length] = '\0';
    directory->texts_length += span.length + 1;
    *text = to;
    return true;
}

static bool take_digest(struct wire_span span,
                        struct arena *arena,
                        struct digest *digest,
                        struct status *status)
{
    struct wire_digest wire;
    return wire_digest_decode(span, arena, &wire, status) &&
           digest_parse(DIGEST_FUNCTION_UNKNOWN, wire.hash_hex, wire.size_bytes, digest, status);
}

static bool check_node(const struct directory_node *node, bool has_digest, struct status *status)
{
    if (node->name[0] == '\0')
        return wrong(status, "an empty name");
    if (strcmp(node->name, ".") == 0 || strcmp(node->name, "..") == 0 ||
        strchr(node->name, '/') != NULL)
        return wrong_name(status, node->name, "leads out of it");
    if (node->kind != DIRECTORY_NODE_SYMLINK && !has_digest)
        return wrong_name(status, node->name, "has no digest");
    if (node->kind == DIRECTORY_NODE_SYMLINK && (node->target == NULL || node->target[0] == '\0'))
        return wrong_name(status, node->name, "is a link to nowhere");
    return true;
}

static bool check_names(struct directory *directory, struct status *status)
{
    if (directory->count == 0)
        return true;
    qsort(directory->nodes, directory->count, sizeof(*directory->nodes), compare_names);
    for (size_t i = 1; i < directory->count; i++) {
        if (strcmp(directory->nodes[i - 1].name, directory->nodes[i].name) == 0)
            return wrong_name(status, directory->nodes[i].name, "is there twice");
    }
    return true;
}

static bool reserve_node(struct directory *directory, struct status *status)
{
    if (directory->count < directory->capacity)
        return true;
    const size_t capacity = directory->capacity == 0 ? 16 : directory->capacity * 2;
    struct directory_node *nodes = realloc(directory->nodes, capacity * sizeof(*nodes));
    if (nodes == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a directory");
    directory->nodes = nodes;
    directory->capacity = capacity;
    return true;
}

static int compare_names(const void *a, const void *b)
{
    const struct directory_node *first = a;
    const struct directory_node *second = b;
    return strcmp(first->name, second->name);
}

const struct directory_node *directory_find(const struct directory *directory, const char *name)
{
    const struct directory_node wanted = {.name = name};
    return directory->count == 0 ? NULL
                                 : bsearch(&wanted, directory->nodes, directory->count,
                                           sizeof(*directory->nodes), compare_names);
}

static bool wrong(struct status *status, const char *what)
{
    return status_fail(status, STATUS_INVALID_ARGUMENT, "not a directory that can be used: %s",
                       what);
}

static bool wrong_name(struct status *status, const char *name, const char *what)
{
    char text[FILE_NAME_TEXT_BYTES];
    return status_fail(status, STATUS_INVALID_ARGUMENT,
                       "not a directory that can be used: its entry %s %s",
                       file_name_text(name, text, sizeof(text)), what);
}
