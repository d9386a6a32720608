/* SPDX-License-Identifier: Apache-2.0 */
#include "server/page_lookup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "client/json.h"
#include "proto/wire.h"
#include "server/whole_blob.h"
#include "store/blob_reader.h"
#include "store/find.h"

/* What clients of older versions of the API write is shown, too. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

typedef Build__Bazel__Remote__Execution__V2__ActionResult action_result;
typedef Build__Bazel__Remote__Execution__V2__ExecutedActionMetadata action_metadata;
typedef Build__Bazel__Remote__Execution__V2__OutputSymlink output_symlink;
typedef Build__Bazel__Remote__Execution__V2__Action action_message;
typedef Build__Bazel__Remote__Execution__V2__Command command_message;
typedef Build__Bazel__Remote__Execution__V2__Platform platform_message;
typedef Build__Bazel__Remote__Execution__V2__Digest digest_message;

static const char *const kind_names[] = {
    [PAGE_AUTO] = "auto",       [PAGE_DIRECTORY] = "directory", [PAGE_TREE] = "tree",
    [PAGE_COMMAND] = "command", [PAGE_ACTION] = "action",       [PAGE_DATA] = "data"};

struct lookup {
    const struct page_question *question; /* borrowed, as all pointers */
    struct durability *durability;
    struct store *store;
    struct arena *arena;
    struct json json;
};

/* What comes in pages: entry i is shown from `first` on, as long as there is room. */
struct window {
    uint64_t first, total;
};

static bool put_action(struct lookup *lookup, bool *found, struct status *status);
static bool put_blob(struct lookup *lookup, bool *found, struct status *status);

bool page_kind_parse(const char *name, enum page_kind *kind)
{
    for (size_t i = 0; i < ARRAY_LENGTH(kind_names); i++) {
        if (strcmp(name, kind_names[i]) == 0) {
            *kind = (enum page_kind)i;
            return true;
        }
    }
    return false;
}

/* ---- small parts */

/* Cut, and without what would end it early. */
static void put_text(struct lookup *lookup, const char *key, struct bytes text)
{
    static const char dots[] = "\xe2\x80\xa6";
    char shown[PAGE_TEXT_BYTES_MAX + sizeof(dots)];
    size_t length = text.length;
    if (length > PAGE_TEXT_BYTES_MAX) {
        length = PAGE_TEXT_BYTES_MAX;
        while (length > PAGE_TEXT_BYTES_MAX - 4 && (text.data[length] & 0xc0) == 0x80)
            length--;
    }
    for (size_t i = 0; i < length; i++)
        shown[i] = text.data[i] == '\0' ? '?' : (char)text.data[i];
    memcpy(shown + length, text.length > length ? dots : "",
           text.length > length ? sizeof(dots) : 1);
    json_string(&lookup->json, key, shown);
}

static void put_string(struct lookup *lookup, const char *key, const char *text)
{
    put_text(lookup, key, bytes_of_string(text));
}

static bool in_window(struct window *window)
{
    const uint64_t index = window->total++;
    return index >= window->first && index - window->first < PAGE_ENTRIES_MAX;
}

static void put_window(struct lookup *lookup, const struct window *window)
{
    json_unsigned(&lookup->json, "offset", window->first);
    json_unsigned(&lookup->json, "total", window->total);
    json_unsigned(&lookup->json, "page", PAGE_ENTRIES_MAX);
}

static bool is_here(const struct lookup *lookup, const struct digest *digest)
{
    struct place place;
    return digest_is_empty_blob(digest) ||
           store_find_blob(lookup->store, digest, FIND_ONLY, &place);
}

/* Members of the object that is open. */
static void put_digest(struct lookup *lookup, const struct digest *digest)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    json_string(&lookup->json, "hash", digest_hex(digest, hex));
    json_integer(&lookup->json, "size_bytes", digest->size_bytes);
    json_bool(&lookup->json, "here", is_here(lookup, digest));
}

static bool digest_of_message(const digest_message *message, struct digest *digest)
{
    struct status ignored;
    return message != NULL && digest_parse(DIGEST_FUNCTION_SHA256, bytes_of_string(message->hash),
                                           message->size_bytes, digest, &ignored);
}

/* An object; nothing when it is not set, or none. */
static void put_digest_message(struct lookup *lookup,
                               const char *key,
                               const digest_message *message)
{
    struct digest digest;
    if (!digest_of_message(message, &digest))
        return;
    json_open_object(&lookup->json, key);
    put_digest(lookup, &digest);
    json_close_object(&lookup->json);
}

struct unpacking {
    struct arena *arena;
};

static void *take(void *argument, size_t size)
{
    return arena_take(((struct unpacking *)argument)->arena, size);
}

static void keep(void *argument, void *memory)
{
    (void)argument;
    (void)memory;
}

/* NULL: it is none, or too large to be shown. Lives as long as the arena. */
static void *unpack(struct lookup *lookup,
                    const ProtobufCMessageDescriptor *descriptor,
                    struct bytes data)
{
    struct unpacking unpacking = {.arena = lookup->arena};
    ProtobufCAllocator allocator = {.alloc = take, .free = keep, .allocator_data = &unpacking};
    return data.length == 0
               ? NULL
               : protobuf_c_message_unpack(descriptor, &allocator, data.length, data.data);
}

/* ---- folders: walked where they stand, since they may be large */

enum entry_kind { ENTRY_FILE, ENTRY_DIRECTORY, ENTRY_SYMLINK };

struct entry {
    struct bytes name, target;
    struct digest digest;
    bool has_digest, executable;
};

/* A field as it lies in the message, which is in one piece. */
static struct bytes flat_of(const struct wire_field *field)
{
    struct wire_span span = field->span;
    return wire_span_next(&span);
}

static bool decode_digest(struct bytes message, struct digest *digest)
{
    struct wire_reader reader;
    struct wire_field field;
    struct bytes hash = {0};
    uint64_t size = 0;
    struct status ignored;
    wire_reader_init(&reader, wire_span_of_bytes(&message));
    while (wire_reader_next(&reader, &field)) {
        if (field.number == 1 && field.type == WIRE_BYTES)
            hash = flat_of(&field);
        else if (field.number == 2 && field.type == WIRE_VARINT)
            size = field.value;
        else
            return false;
    }
    return !reader.failed && size <= INT64_MAX &&
           digest_parse(DIGEST_FUNCTION_SHA256, hash, (int64_t)size, digest, &ignored);
}

/* Strict: it is also how a folder is told from other things. */
static bool decode_entry(enum entry_kind kind, struct bytes message, struct entry *entry)
{
    struct wire_reader reader;
    struct wire_field field;
    *entry = (struct entry){0};
    wire_reader_init(&reader, wire_span_of_bytes(&message));
    while (wire_reader_next(&reader, &field)) {
        const bool bytes = field.type == WIRE_BYTES;
        if (field.number == 1 && bytes)
            entry->name = flat_of(&field);
        else if (field.number == 2 && bytes && kind == ENTRY_SYMLINK)
            entry->target = flat_of(&field);
        else if (field.number == 2 && bytes)
            entry->has_digest = decode_digest(flat_of(&field), &entry->digest);
        else if (field.number == 4 && field.type == WIRE_VARINT && kind == ENTRY_FILE)
            entry->executable = field.value != 0;
        else if (!bytes || field.number < 4 || field.number > 6) /* node properties */
            return false;
    }
    return !reader.failed && entry->name.length > 0 && bytes_is_utf8(entry->name) &&
           entry->has_digest == (kind != ENTRY_SYMLINK);
}

/* What field of a Directory it is. */
static bool entry_kind_of(const struct wire_field *field, enum entry_kind *kind)
{
    static const enum entry_kind kinds[] = {ENTRY_FILE, ENTRY_DIRECTORY, ENTRY_SYMLINK};
    if (field->number < 1 || field->number > 3 || field->type != WIRE_BYTES)
        return false;
    *kind = kinds[field->number - 1];
    return true;
}

/* *count: entries. The empty one is a folder, too. */
static bool is_directory(struct bytes message, uint64_t *count)
{
    struct wire_reader reader;
    struct wire_field field;
    *count = 0;
    wire_reader_init(&reader, wire_span_of_bytes(&message));
    while (wire_reader_next(&reader, &field)) {
        enum entry_kind kind;
        struct entry entry;
        if (entry_kind_of(&field, &kind)) {
            if (!decode_entry(kind, flat_of(&field), &entry))
                return false;
            ++*count;
        } else if (field.number != 5 || field.type != WIRE_BYTES) {
            return false;
        }
    }
    return !reader.failed;
}

static void put_entry(struct lookup *lookup, enum entry_kind kind, const struct entry *entry)
{
    static const char *const names[] = {
        [ENTRY_FILE] = "file", [ENTRY_DIRECTORY] = "directory", [ENTRY_SYMLINK] = "symlink"};
    json_open_object(&lookup->json, NULL);
    json_string(&lookup->json, "kind", names[kind]);
    put_text(lookup, "name", entry->name);
    if (kind == ENTRY_SYMLINK)
        put_text(lookup, "target", entry->target);
    else
        put_digest(lookup, &entry->digest);
    if (entry->executable)
        json_bool(&lookup->json, "executable", true);
    json_close_object(&lookup->json);
}

static void put_entries_of(struct lookup *lookup,
                           struct bytes message,
                           enum entry_kind wanted,
                           struct window *window)
{
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_bytes(&message));
    while (wire_reader_next(&reader, &field)) {
        enum entry_kind kind;
        struct entry entry;
        if (entry_kind_of(&field, &kind) && kind == wanted && in_window(window) &&
            decode_entry(kind, flat_of(&field), &entry))
            put_entry(lookup, kind, &entry);
    }
}

/* Folders first. */
static void put_directory(struct lookup *lookup, struct bytes message)
{
    struct window window = {.first = lookup->question->offset};
    json_open_array(&lookup->json, "entries");
    put_entries_of(lookup, message, ENTRY_DIRECTORY, &window);
    put_entries_of(lookup, message, ENTRY_FILE, &window);
    put_entries_of(lookup, message, ENTRY_SYMLINK, &window);
    json_close_array(&lookup->json);
    put_window(lookup, &window);
}

/* *wanted: the root, or the child that the question names; data NULL: there is none. *folders: how many there are. */
static bool find_in_tree(const struct lookup *lookup,
                         struct bytes tree,
                         struct bytes *wanted,
                         uint64_t *folders)
{
    const struct digest *const folder = &lookup->question->folder;
    struct wire_reader reader;
    struct wire_field field;
    bool has_root = false;
    uint64_t ignored;
    *wanted = bytes_of(NULL, 0);
    *folders = 0;
    wire_reader_init(&reader, wire_span_of_bytes(&tree));
    while (wire_reader_next(&reader, &field)) {
        if ((field.number != 1 && field.number != 2) || field.type != WIRE_BYTES)
            return false;
        const struct bytes directory =
            field.span.length > 0 ? flat_of(&field) : bytes_of_string("");
        if (!is_directory(directory, &ignored))
            return false;
        ++*folders;
        has_root |= field.number == 1;
        struct digest digest;
        if (folder->hash_length == 0) {
            if (field.number == 1)
                *wanted = directory;
        } else if (wanted->data == NULL) {
            digest_of_bytes(DIGEST_FUNCTION_SHA256, directory, &digest);
            if (memcmp(digest.hash, folder->hash, sizeof(digest.hash)) == 0)
                *wanted = directory;
        }
    }
    return !reader.failed && has_root;
}

/* ---- Commands and Actions */

static bool is_plain_text(const char *text)
{
    const struct bytes bytes = bytes_of_string(text);
    for (size_t i = 0; i < bytes.length; i++)
        if (bytes.data[i] < ' ' && bytes.data[i] != '\n' && bytes.data[i] != '\t' &&
            bytes.data[i] != '\r')
            return false;
    return bytes_is_utf8(bytes);
}

static const command_message *as_command(struct lookup *lookup, struct bytes data)
{
    const command_message *const command =
        unpack(lookup, &build__bazel__remote__execution__v2__command__descriptor, data);
    if (command == NULL || command->base.n_unknown_fields > 0 || command->n_arguments == 0 ||
        command->arguments[0][0] == '\0')
        return NULL;
    for (size_t i = 0; i < command->n_arguments; i++)
        if (!is_plain_text(command->arguments[i]))
            return NULL;
    return command;
}

static const action_message *as_action(struct lookup *lookup, struct bytes data)
{
    struct digest digest;
    const action_message *const action =
        unpack(lookup, &build__bazel__remote__execution__v2__action__descriptor, data);
    return action != NULL && action->base.n_unknown_fields == 0 &&
                   digest_of_message(action->command_digest, &digest) &&
                   digest_of_message(action->input_root_digest, &digest)
               ? action
               : NULL;
}

static void put_texts(struct lookup *lookup, const char *key, char *const *texts, size_t count)
{
    json_open_array(&lookup->json, key);
    for (size_t i = 0; i < count && i < PAGE_ENTRIES_MAX; i++)
        put_string(lookup, NULL, texts[i]);
    json_close_array(&lookup->json);
}

static void put_pair(struct lookup *lookup, const char *name, const char *value)
{
    json_open_object(&lookup->json, NULL);
    put_string(lookup, "name", name);
    put_string(lookup, "value", value);
    json_close_object(&lookup->json);
}

static void put_platform(struct lookup *lookup, const platform_message *platform)
{
    json_open_array(&lookup->json, "platform");
    for (size_t i = 0; platform != NULL && i < platform->n_properties && i < PAGE_ENTRIES_MAX; i++)
        put_pair(lookup, platform->properties[i]->name, platform->properties[i]->value);
    json_close_array(&lookup->json);
}

static void put_command(struct lookup *lookup, const command_message *command)
{
    struct window window = {.first = lookup->question->offset};
    json_open_array(&lookup->json, "arguments");
    for (size_t i = 0; i < command->n_arguments; i++)
        if (in_window(&window))
            put_string(lookup, NULL, command->arguments[i]);
    json_close_array(&lookup->json);
    put_window(lookup, &window);
    json_open_array(&lookup->json, "environment");
    for (size_t i = 0; i < command->n_environment_variables && i < PAGE_ENTRIES_MAX; i++)
        put_pair(lookup, command->environment_variables[i]->name,
                 command->environment_variables[i]->value);
    json_close_array(&lookup->json);
    json_unsigned(&lookup->json, "environment_total", command->n_environment_variables);
    put_string(lookup, "working_directory", command->working_directory);
    put_texts(lookup, "output_paths", command->output_paths, command->n_output_paths);
    put_texts(lookup, "output_files", command->output_files, command->n_output_files);
    put_texts(lookup, "output_directories", command->output_directories,
              command->n_output_directories);
    put_platform(lookup, command->platform);
}

static void put_action_message(struct lookup *lookup, const action_message *action)
{
    put_digest_message(lookup, "command", action->command_digest);
    put_digest_message(lookup, "input_root", action->input_root_digest);
    if (action->timeout != NULL)
        json_integer(&lookup->json, "timeout_s", action->timeout->seconds);
    json_bool(&lookup->json, "do_not_cache", action->do_not_cache);
    json_unsigned(&lookup->json, "salt_bytes", action->salt.len);
    put_platform(lookup, action->platform);
}

/* ---- blobs */

/* Members of "blob" but its size. Kinds that are asked for and do not fit are data. */
static void put_content(struct lookup *lookup, struct bytes data)
{
    const enum page_kind asked = lookup->question->kind;
    const bool any = asked == PAGE_AUTO;
    const action_message *action = NULL;
    const command_message *command = NULL;
    struct bytes folder;
    uint64_t entries = 0;
    uint64_t folders = 0;
    enum page_kind kind = PAGE_DATA;
    if ((any || asked == PAGE_ACTION) && (action = as_action(lookup, data)) != NULL)
        kind = PAGE_ACTION;
    else if ((any || asked == PAGE_DIRECTORY) && is_directory(data, &entries) &&
             (entries > 0 || !any))
        kind = PAGE_DIRECTORY;
    else if ((any || asked == PAGE_TREE) && find_in_tree(lookup, data, &folder, &folders))
        kind = PAGE_TREE;
    else if ((any || asked == PAGE_COMMAND) && (command = as_command(lookup, data)) != NULL)
        kind = PAGE_COMMAND;
    json_string(&lookup->json, "kind", kind_names[kind]);
    if (kind == PAGE_ACTION) {
        put_action_message(lookup, action);
    } else if (kind == PAGE_COMMAND) {
        put_command(lookup, command);
    } else if (kind == PAGE_DIRECTORY) {
        put_directory(lookup, data);
    } else if (kind == PAGE_TREE) {
        json_unsigned(&lookup->json, "folders", folders);
        json_bool(&lookup->json, "folder_found", folder.data != NULL);
        put_directory(lookup, folder.data != NULL ? folder : bytes_of_string(""));
    }
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
            put_content(lookup, data.length > 0 ? data : bytes_of_string(""));
        else
            json_string(&lookup->json, "kind", kind_names[PAGE_DATA]);
        json_close_object(&lookup->json);
    } else {
        json_null(&lookup->json, "blob");
    }
    whole_blob_free(&blob);
    return true;
}

/* ---- action results */

static int64_t ms_of(const Google__Protobuf__Timestamp *time)
{
    return time->seconds > INT64_MAX / 2000 || time->seconds < 0
               ? 0
               : time->seconds * 1000 + time->nanos / 1000000;
}

static void put_time(struct lookup *lookup,
                     const char *key,
                     const Google__Protobuf__Timestamp *time)
{
    if (time != NULL)
        json_integer(&lookup->json, key, ms_of(time));
}

static void put_execution(struct lookup *lookup, const action_metadata *execution)
{
    if (execution == NULL)
        return;
    json_open_object(&lookup->json, "execution");
    put_string(lookup, "worker", execution->worker);
    put_time(lookup, "queued_ms", execution->queued_timestamp);
    put_time(lookup, "started_ms", execution->execution_start_timestamp);
    put_time(lookup, "completed_ms", execution->execution_completed_timestamp);
    json_close_object(&lookup->json);
}

static void open_output(struct lookup *lookup, const char *kind, const char *path)
{
    json_open_object(&lookup->json, NULL);
    json_string(&lookup->json, "kind", kind);
    put_string(lookup, "name", path);
}

static void put_symlinks(struct lookup *lookup,
                         output_symlink *const *symlinks,
                         size_t count,
                         struct window *window)
{
    for (size_t i = 0; i < count; i++) {
        if (!in_window(window))
            continue;
        open_output(lookup, "symlink", symlinks[i]->path);
        put_string(lookup, "target", symlinks[i]->target);
        json_close_object(&lookup->json);
    }
}

static void put_outputs(struct lookup *lookup, const action_result *result)
{
    struct window window = {.first = lookup->question->offset};
    struct digest digest;
    json_open_array(&lookup->json, "entries");
    for (size_t i = 0; i < result->n_output_directories; i++) {
        const bool is_tree = result->output_directories[i]->tree_digest != NULL;
        if (!in_window(&window))
            continue;
        open_output(lookup, is_tree ? "tree" : "directory", result->output_directories[i]->path);
        if (digest_of_message(is_tree ? result->output_directories[i]->tree_digest
                                      : result->output_directories[i]->root_directory_digest,
                              &digest))
            put_digest(lookup, &digest);
        json_close_object(&lookup->json);
    }
    for (size_t i = 0; i < result->n_output_files; i++) {
        if (!in_window(&window))
            continue;
        open_output(lookup, "file", result->output_files[i]->path);
        if (digest_of_message(result->output_files[i]->digest, &digest))
            put_digest(lookup, &digest);
        if (result->output_files[i]->is_executable)
            json_bool(&lookup->json, "executable", true);
        json_close_object(&lookup->json);
    }
    put_symlinks(lookup, result->output_symlinks, result->n_output_symlinks, &window);
    put_symlinks(lookup, result->output_file_symlinks, result->n_output_file_symlinks, &window);
    put_symlinks(lookup, result->output_directory_symlinks, result->n_output_directory_symlinks,
                 &window);
    json_close_array(&lookup->json);
    put_window(lookup, &window);
}

static void put_record(struct lookup *lookup, const struct action_record *record)
{
    const action_result *const result = unpack(
        lookup, &build__bazel__remote__execution__v2__action_result__descriptor, record->result);
    const bool empty = record->result.length == 0; /* which is a result, too */
    char node[17];
    snprintf(node, sizeof(node), "%016" PRIx64, record->node_uid);
    json_open_object(&lookup->json, "action");
    put_text(lookup, "writer", record->writer);
    json_integer(&lookup->json, "written_ms", record->written_wall_ns / NS_PER_MS);
    json_string(&lookup->json, "node", node);
    json_unsigned(&lookup->json, "size_bytes", record->result.length);
    json_bool(&lookup->json, "opaque", result == NULL && !empty);
    if (result != NULL) {
        json_integer(&lookup->json, "exit_code", result->exit_code);
        put_digest_message(lookup, "stdout", result->stdout_digest);
        put_digest_message(lookup, "stderr", result->stderr_digest);
        json_unsigned(&lookup->json, "stdout_inline_bytes", result->stdout_raw.len);
        json_unsigned(&lookup->json, "stderr_inline_bytes", result->stderr_raw.len);
        put_execution(lookup, result->execution_metadata);
        put_outputs(lookup, result);
    }
    json_close_object(&lookup->json);
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
        put_record(lookup, &record);
    else
        json_null(&lookup->json, "action");
    free(memory);
    return true;
}

/* ---- all of it */

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
    struct lookup lookup = {.question = question,
                            .durability = durability,
                            .store = durability_store(durability),
                            .arena = &arena};
    json_init(&lookup.json, to);
    json_open_object(&lookup.json, NULL);
    json_string(&lookup.json, "hash", digest_hex(&question->digest, hex));
    put_text(&lookup, "instance", question->instance);
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
