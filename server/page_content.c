/* SPDX-License-Identifier: Apache-2.0 */
#include "server/page_content.h"

#include <stdlib.h>
#include <string.h>

#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "base/clock.h"
#include "client/json.h"
#include "proto/wire.h"

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

/* What comes in pages: entry i is shown from `first` on, as long as there is room. */
struct window {
    uint64_t first, total;
};

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
void page_content_text(struct page_content *to, const char *key, struct bytes text)
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
    json_string(to->json, key, shown);
}

static void put_string(struct page_content *to, const char *key, const char *text)
{
    page_content_text(to, key, bytes_of_string(text));
}

static bool in_window(struct window *window)
{
    const uint64_t index = window->total++;
    return index >= window->first && index - window->first < PAGE_ENTRIES_MAX;
}

static void put_window(struct page_content *to, const struct window *window)
{
    json_unsigned(to->json, "offset", window->first);
    json_unsigned(to->json, "total", window->total);
    json_unsigned(to->json, "page", PAGE_ENTRIES_MAX);
}

static bool is_here(const struct page_content *to, const struct digest *digest)
{
    return to->is_here(to->argument, digest);
}

/* Members of the object that is open. */
static void put_digest(struct page_content *to, const struct digest *digest)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    json_string(to->json, "hash", digest_hex(digest, hex));
    json_integer(to->json, "size_bytes", digest->size_bytes);
    json_bool(to->json, "here", is_here(to, digest));
}

static bool digest_of_message(const digest_message *message, struct digest *digest)
{
    struct status ignored;
    return message != NULL && digest_parse(DIGEST_FUNCTION_SHA256, bytes_of_string(message->hash),
                                           message->size_bytes, digest, &ignored);
}

/* An object; nothing when it is not set, or none. */
static void put_digest_message(struct page_content *to,
                               const char *key,
                               const digest_message *message)
{
    struct digest digest;
    if (!digest_of_message(message, &digest))
        return;
    json_open_object(to->json, key);
    put_digest(to, &digest);
    json_close_object(to->json);
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
static void *unpack(struct page_content *to,
                    const ProtobufCMessageDescriptor *descriptor,
                    struct bytes data)
{
    struct unpacking unpacking = {.arena = to->arena};
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

static void put_entry(struct page_content *to, enum entry_kind kind, const struct entry *entry)
{
    static const char *const names[] = {
        [ENTRY_FILE] = "file", [ENTRY_DIRECTORY] = "directory", [ENTRY_SYMLINK] = "symlink"};
    json_open_object(to->json, NULL);
    json_string(to->json, "kind", names[kind]);
    page_content_text(to, "name", entry->name);
    if (kind == ENTRY_SYMLINK)
        page_content_text(to, "target", entry->target);
    else
        put_digest(to, &entry->digest);
    if (entry->executable)
        json_bool(to->json, "executable", true);
    json_close_object(to->json);
}

static void put_entries_of(struct page_content *to,
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
            put_entry(to, kind, &entry);
    }
}

/* Folders first. */
static void put_directory(struct page_content *to, struct bytes message)
{
    struct window window = {.first = to->question->offset};
    json_open_array(to->json, "entries");
    put_entries_of(to, message, ENTRY_DIRECTORY, &window);
    put_entries_of(to, message, ENTRY_FILE, &window);
    put_entries_of(to, message, ENTRY_SYMLINK, &window);
    json_close_array(to->json);
    put_window(to, &window);
}

/* *wanted: the root, or the child that the question names; data NULL: there is none. *folders: how many there are. */
static bool find_in_tree(const struct page_content *to,
                         struct bytes tree,
                         struct bytes *wanted,
                         uint64_t *folders)
{
    const struct digest *const folder = &to->question->folder;
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

static const command_message *as_command(struct page_content *to, struct bytes data)
{
    const command_message *const command =
        unpack(to, &build__bazel__remote__execution__v2__command__descriptor, data);
    if (command == NULL || command->base.n_unknown_fields > 0 || command->n_arguments == 0 ||
        command->arguments[0][0] == '\0')
        return NULL;
    for (size_t i = 0; i < command->n_arguments; i++)
        if (!is_plain_text(command->arguments[i]))
            return NULL;
    return command;
}

static const action_message *as_action(struct page_content *to, struct bytes data)
{
    struct digest digest;
    const action_message *const action =
        unpack(to, &build__bazel__remote__execution__v2__action__descriptor, data);
    return action != NULL && action->base.n_unknown_fields == 0 &&
                   digest_of_message(action->command_digest, &digest) &&
                   digest_of_message(action->input_root_digest, &digest)
               ? action
               : NULL;
}

static void put_texts(struct page_content *to, const char *key, char *const *texts, size_t count)
{
    json_open_array(to->json, key);
    for (size_t i = 0; i < count && i < PAGE_ENTRIES_MAX; i++)
        put_string(to, NULL, texts[i]);
    json_close_array(to->json);
}

static void put_pair(struct page_content *to, const char *name, const char *value)
{
    json_open_object(to->json, NULL);
    put_string(to, "name", name);
    put_string(to, "value", value);
    json_close_object(to->json);
}

static void put_platform(struct page_content *to, const platform_message *platform)
{
    json_open_array(to->json, "platform");
    for (size_t i = 0; platform != NULL && i < platform->n_properties && i < PAGE_ENTRIES_MAX; i++)
        put_pair(to, platform->properties[i]->name, platform->properties[i]->value);
    json_close_array(to->json);
}

static void put_command(struct page_content *to, const command_message *command)
{
    struct window window = {.first = to->question->offset};
    json_open_array(to->json, "arguments");
    for (size_t i = 0; i < command->n_arguments; i++)
        if (in_window(&window))
            put_string(to, NULL, command->arguments[i]);
    json_close_array(to->json);
    put_window(to, &window);
    json_open_array(to->json, "environment");
    for (size_t i = 0; i < command->n_environment_variables && i < PAGE_ENTRIES_MAX; i++)
        put_pair(to, command->environment_variables[i]->name,
                 command->environment_variables[i]->value);
    json_close_array(to->json);
    json_unsigned(to->json, "environment_total", command->n_environment_variables);
    put_string(to, "working_directory", command->working_directory);
    put_texts(to, "output_paths", command->output_paths, command->n_output_paths);
    put_texts(to, "output_files", command->output_files, command->n_output_files);
    put_texts(to, "output_directories", command->output_directories, command->n_output_directories);
    put_platform(to, command->platform);
}

static void put_action_message(struct page_content *to, const action_message *action)
{
    put_digest_message(to, "command", action->command_digest);
    put_digest_message(to, "input_root", action->input_root_digest);
    if (action->timeout != NULL)
        json_integer(to->json, "timeout_s", action->timeout->seconds);
    json_bool(to->json, "do_not_cache", action->do_not_cache);
    json_unsigned(to->json, "salt_bytes", action->salt.len);
    put_platform(to, action->platform);
}

/* ---- blobs */

/* Members of "blob" but its size. Kinds that are asked for and do not fit are data. */
void page_content_blob(struct page_content *to, struct bytes data)
{
    const enum page_kind asked = to->question->kind;
    const bool any = asked == PAGE_AUTO;
    const action_message *action = NULL;
    const command_message *command = NULL;
    struct bytes folder;
    uint64_t entries = 0;
    uint64_t folders = 0;
    enum page_kind kind = PAGE_DATA;
    if ((any || asked == PAGE_ACTION) && (action = as_action(to, data)) != NULL)
        kind = PAGE_ACTION;
    else if ((any || asked == PAGE_DIRECTORY) && is_directory(data, &entries) &&
             (entries > 0 || !any))
        kind = PAGE_DIRECTORY;
    else if ((any || asked == PAGE_TREE) && find_in_tree(to, data, &folder, &folders))
        kind = PAGE_TREE;
    else if ((any || asked == PAGE_COMMAND) && (command = as_command(to, data)) != NULL)
        kind = PAGE_COMMAND;
    json_string(to->json, "kind", kind_names[kind]);
    if (kind == PAGE_ACTION) {
        put_action_message(to, action);
    } else if (kind == PAGE_COMMAND) {
        put_command(to, command);
    } else if (kind == PAGE_DIRECTORY) {
        put_directory(to, data);
    } else if (kind == PAGE_TREE) {
        json_unsigned(to->json, "folders", folders);
        json_bool(to->json, "folder_found", folder.data != NULL);
        put_directory(to, folder.data != NULL ? folder : bytes_of_string(""));
    }
}

/* ---- action results */

static int64_t ms_of(const Google__Protobuf__Timestamp *time)
{
    return time->seconds > INT64_MAX / 2000 || time->seconds < 0
               ? 0
               : time->seconds * 1000 + time->nanos / 1000000;
}

static void put_time(struct page_content *to,
                     const char *key,
                     const Google__Protobuf__Timestamp *time)
{
    if (time != NULL)
        json_integer(to->json, key, ms_of(time));
}

static void put_execution(struct page_content *to, const action_metadata *execution)
{
    if (execution == NULL)
        return;
    json_open_object(to->json, "execution");
    put_string(to, "worker", execution->worker);
    put_time(to, "queued_ms", execution->queued_timestamp);
    put_time(to, "started_ms", execution->execution_start_timestamp);
    put_time(to, "completed_ms", execution->execution_completed_timestamp);
    json_close_object(to->json);
}

static void open_output(struct page_content *to, const char *kind, const char *path)
{
    json_open_object(to->json, NULL);
    json_string(to->json, "kind", kind);
    put_string(to, "name", path);
}

static void put_symlinks(struct page_content *to,
                         output_symlink *const *symlinks,
                         size_t count,
                         struct window *window)
{
    for (size_t i = 0; i < count; i++) {
        if (!in_window(window))
            continue;
        open_output(to, "symlink", symlinks[i]->path);
        put_string(to, "target", symlinks[i]->target);
        json_close_object(to->json);
    }
}

static void put_outputs(struct page_content *to, const action_result *result)
{
    struct window window = {.first = to->question->offset};
    struct digest digest;
    json_open_array(to->json, "entries");
    for (size_t i = 0; i < result->n_output_directories; i++) {
        const bool is_tree = result->output_directories[i]->tree_digest != NULL;
        if (!in_window(&window))
            continue;
        open_output(to, is_tree ? "tree" : "directory", result->output_directories[i]->path);
        if (digest_of_message(is_tree ? result->output_directories[i]->tree_digest
                                      : result->output_directories[i]->root_directory_digest,
                              &digest))
            put_digest(to, &digest);
        json_close_object(to->json);
    }
    for (size_t i = 0; i < result->n_output_files; i++) {
        if (!in_window(&window))
            continue;
        open_output(to, "file", result->output_files[i]->path);
        if (digest_of_message(result->output_files[i]->digest, &digest))
            put_digest(to, &digest);
        if (result->output_files[i]->is_executable)
            json_bool(to->json, "executable", true);
        json_close_object(to->json);
    }
    put_symlinks(to, result->output_symlinks, result->n_output_symlinks, &window);
    put_symlinks(to, result->output_file_symlinks, result->n_output_file_symlinks, &window);
    put_symlinks(to, result->output_directory_symlinks, result->n_output_directory_symlinks,
                 &window);
    json_close_array(to->json);
    put_window(to, &window);
}

void page_content_result(struct page_content *to, const struct action_record *record)
{
    const action_result *const result =
        unpack(to, &build__bazel__remote__execution__v2__action_result__descriptor, record->result);
    const bool empty = record->result.length == 0; /* which is a result, too */
    char node[17];
    snprintf(node, sizeof(node), "%016" PRIx64, record->node_uid);
    json_open_object(to->json, "action");
    page_content_text(to, "writer", record->writer);
    json_integer(to->json, "written_ms", record->written_wall_ns / NS_PER_MS);
    json_string(to->json, "node", node);
    json_unsigned(to->json, "size_bytes", record->result.length);
    json_bool(to->json, "opaque", result == NULL && !empty);
    if (result != NULL) {
        json_integer(to->json, "exit_code", result->exit_code);
        put_digest_message(to, "stdout", result->stdout_digest);
        put_digest_message(to, "stderr", result->stderr_digest);
        json_unsigned(to->json, "stdout_inline_bytes", result->stdout_raw.len);
        json_unsigned(to->json, "stderr_inline_bytes", result->stderr_raw.len);
        put_execution(to, result->execution_metadata);
        put_outputs(to, result);
    }
    json_close_object(to->json);
}
