/* SPDX-License-Identifier: Apache-2.0 */
#include "server/schema.h"

#include "descriptors.h"
#include "proto/wire.h"

/* Field numbers of google/protobuf/descriptor.proto. */
enum {
    SET_FILE = 1,
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_DEPENDENCY = 3,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6,
    NAME = 1, /* of a message, field, enum, enum value, service or method */
    MESSAGE_FIELD = 2,
    MESSAGE_NESTED = 3,
    MESSAGE_ENUM = 4,
    ENUM_VALUE = 2,
    SERVICE_METHOD = 2,
};

/* Goes through the fields of one number in an encoded message; all of it lies in one piece. */
struct walk {
    struct bytes whole;
    struct wire_reader reader;
    uint32_t number;
};

static void walk_begin(struct walk *walk, struct bytes message, uint32_t number)
{
    walk->whole = message;
    walk->number = number;
    wire_reader_init(&walk->reader, wire_span_of_bytes(&walk->whole));
}

static bool walk_next(struct walk *walk, struct bytes *value)
{
    struct wire_field field;
    while (wire_reader_next(&walk->reader, &field)) {
        if (field.number == walk->number && field.type == WIRE_BYTES) {
            *value = wire_span_next(&field.span);
            return true;
        }
    }
    return false;
}

static struct bytes first_of(struct bytes message, uint32_t number)
{
    struct walk walk;
    struct bytes value;
    walk_begin(&walk, message, number);
    return walk_next(&walk, &value) ? value : (struct bytes){0};
}

static struct bytes all_files(void)
{
    return bytes_of(descriptor_set, sizeof(descriptor_set));
}

static bool find_file(struct bytes name, struct bytes *file)
{
    struct walk files;
    walk_begin(&files, all_files(), SET_FILE);
    while (walk_next(&files, file))
        if (bytes_equal(first_of(*file, FILE_NAME), name))
            return true;
    return false;
}

static bool add(struct schema_files *found, struct bytes file)
{
    for (size_t i = 0; i < found->count; i++)
        if (found->files[i].data == file.data)
            return true;
    if (found->count == SCHEMA_FILES_MAX)
        return false;
    found->files[found->count++] = file;
    return true;
}

/* The list grows while it is walked, until nothing new is imported. */
static void add_imports(struct schema_files *found)
{
    for (size_t i = 0; i < found->count; i++) {
        struct walk imports;
        struct bytes name;
        struct bytes file;
        walk_begin(&imports, found->files[i], FILE_DEPENDENCY);
        while (walk_next(&imports, &name))
            if (find_file(name, &file) && !add(found, file))
                return;
    }
}

void schema_of_file(struct bytes name, struct schema_files *found)
{
    struct bytes file;
    found->count = 0;
    if (find_file(name, &file) && add(found, file))
        add_imports(found);
}

/* Takes "name." or the whole rest off the front of a symbol; false when it begins otherwise. */
static bool strip(struct bytes *symbol, struct bytes name)
{
    if (name.length == 0 || symbol->length < name.length ||
        memcmp(symbol->data, name.data, name.length) != 0)
        return false;
    if (symbol->length == name.length) {
        *symbol = (struct bytes){0};
        return true;
    }
    if (symbol->data[name.length] != '.')
        return false;
    *symbol = bytes_of(symbol->data + name.length + 1, symbol->length - name.length - 1);
    return true;
}

/* Is the symbol one of these, or one of their children of the given kind? */
static bool names_one(struct bytes parent,
                      uint32_t number,
                      uint32_t child_number,
                      struct bytes symbol)
{
    struct walk walk;
    struct bytes item;
    walk_begin(&walk, parent, number);
    while (walk_next(&walk, &item)) {
        struct bytes rest = symbol;
        if (!strip(&rest, first_of(item, NAME)))
            continue;
        if (rest.length == 0)
            return true;
        struct walk children;
        struct bytes child;
        walk_begin(&children, item, child_number);
        while (walk_next(&children, &child))
            if (bytes_equal(first_of(child, NAME), rest))
                return true;
    }
    return false;
}

/* Messages lie within messages; our own and Google's files go three deep. */
static bool names_message(struct bytes parent, uint32_t number, struct bytes symbol, int depth)
{
    enum { DEPTH_MAX = 8 };
    if (depth == DEPTH_MAX)
        return false;
    if (names_one(parent, number, MESSAGE_FIELD, symbol))
        return true;
    struct walk walk;
    struct bytes item;
    walk_begin(&walk, parent, number);
    while (walk_next(&walk, &item)) {
        struct bytes rest = symbol;
        if (!strip(&rest, first_of(item, NAME)) || rest.length == 0)
            continue;
        if (names_one(item, MESSAGE_ENUM, ENUM_VALUE, rest) ||
            names_message(item, MESSAGE_NESTED, rest, depth + 1))
            return true;
    }
    return false;
}

static bool file_has(struct bytes file, struct bytes symbol)
{
    if (!strip(&symbol, first_of(file, FILE_PACKAGE)) || symbol.length == 0)
        return false;
    return names_one(file, FILE_SERVICE, SERVICE_METHOD, symbol) ||
           names_one(file, FILE_ENUM, ENUM_VALUE, symbol) ||
           names_message(file, FILE_MESSAGE, symbol, 0);
}

void schema_of_symbol(struct bytes symbol, struct schema_files *found)
{
    struct walk files;
    struct bytes file;
    found->count = 0;
    walk_begin(&files, all_files(), SET_FILE);
    while (walk_next(&files, &file)) {
        if (file_has(file, symbol)) {
            if (add(found, file))
                add_imports(found);
            return;
        }
    }
}
