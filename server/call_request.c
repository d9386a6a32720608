/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a handler asks of the call it has the turn of, and the conveniences of call.h; the call
 * itself is call.c.
 */
#include <stdatomic.h>
#include <grpc/support/alloc.h>
#include <protobuf-c/protobuf-c.h>

#include "base/buffer_pool.h"
#include "base/limits.h"
#include "proto/resource_name.h"
#include "proto/wire.h"
#include "server/access.h"
#include "server/call.h"
#include "server/call_private.h"
#include "server/instance_metrics.h"
#include "server/rpc_metrics.h"
#include "server/server.h"

const char *call_peer(struct call *call)
{
    char *const text = grpc_call_get_peer(call_grpc(call));
    const char *const peer = arena_copy_string(call_arena(call), bytes_of_string(text));
    gpr_free(text);
    return peer != NULL ? peer : "unknown";
}

static bool find_metadata(const struct call *call, const char *key, struct bytes *value);
static bool find_field(struct wire_span message, uint32_t number, struct wire_span *field);

enum { TOOL_NAME = 1, TOOL_VERSION = 2 };

static struct bytes tool_detail(struct call *call, uint32_t number)
{
    static const char *const keys[] = {
        "build.bazel.remote.execution.v2.requestmetadata-bin",
        "google.devtools.remoteexecution.v1test.requestmetadata-bin"};
    enum { REQUEST_METADATA_TOOL_DETAILS = 1 };
    struct bytes value;
    struct bytes name = {0};
    struct wire_span details;
    struct wire_span tool;
    for (size_t i = 0; i < ARRAY_LENGTH(keys); i++) {
        if (!find_metadata(call, keys[i], &value))
            continue;
        if (find_field(wire_span_of_bytes(&value), REQUEST_METADATA_TOOL_DETAILS, &details) &&
            find_field(details, number, &tool) && wire_span_flat(tool, call_arena(call), &name))
            return name;
        break;
    }
    return (struct bytes){0};
}

struct bytes call_tool_name(struct call *call)
{
    return tool_detail(call, TOOL_NAME);
}

struct bytes call_tool_version(struct call *call)
{
    return tool_detail(call, TOOL_VERSION);
}

bool call_credentials_take(struct call *call,
                           struct call_credentials *credentials,
                           struct access_shown *shown,
                           struct status *status)
{
    const grpc_metadata_array *const metadata = call_metadata(call);
    *credentials = (struct call_credentials){0};
    *shown = (struct access_shown){0};
    for (size_t i = 0; i < metadata->count; i++) {
        const grpc_metadata *const entry = &metadata->metadata[i];
        if (grpc_slice_str_cmp(entry->key, "authorization") != 0)
            continue;
        if (shown->authorization.length > 0)
            return status_fail(status, STATUS_UNAUTHENTICATED,
                               "the authorization is malformed: there is more than one");
        shown->authorization =
            bytes_of(GRPC_SLICE_START_PTR(entry->value), GRPC_SLICE_LENGTH(entry->value));
    }
    credentials->peer = grpc_call_get_peer(call_grpc(call));
    shown->peer = credentials->peer;
    if (call_server(call)->tls == NULL)
        return true;
    credentials->context = grpc_call_auth_context(call_grpc(call));
    if (credentials->context == NULL ||
        !grpc_auth_context_peer_is_authenticated(credentials->context))
        return true;
    grpc_auth_property_iterator at = grpc_auth_context_find_properties_by_name(
        credentials->context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
    const grpc_auth_property *const found = grpc_auth_property_iterator_next(&at);
    if (found != NULL)
        shown->certificate = bytes_of(found->value, found->value_length);
    return true;
}

void call_credentials_clear(struct call_credentials *credentials)
{
    gpr_free(credentials->peer);
    grpc_auth_context_release(credentials->context);
    *credentials = (struct call_credentials){0};
}

static bool find_metadata(const struct call *call, const char *key, struct bytes *value)
{
    const grpc_metadata_array *const metadata = call_metadata(call);
    for (size_t i = 0; i < metadata->count; i++) {
        const grpc_metadata *const entry = &metadata->metadata[i];
        if (grpc_slice_str_cmp(entry->key, key) != 0)
            continue;
        *value = bytes_of(GRPC_SLICE_START_PTR(entry->value), GRPC_SLICE_LENGTH(entry->value));
        return true;
    }
    return false;
}

/* The last field of this number with bytes; false when there is none or the message is damaged. */
static bool find_field(struct wire_span message, uint32_t number, struct wire_span *field)
{
    struct wire_reader reader;
    struct wire_field at;
    bool found = false;
    wire_reader_init(&reader, message);
    while (wire_reader_next(&reader, &at)) {
        if (at.number == number && at.type == WIRE_BYTES) {
            *field = at.span;
            found = true;
        }
    }
    return found && !reader.failed;
}

bool call_check_instance(struct call *call, struct bytes instance, struct status *status)
{
    enum { SHOWN_BYTES_MAX = 100 };
    if (!instance_name_check(instance, status))
        return false;
    call_note_instance(call, instance);
    if (config_serves_instance(call_server(call)->config, instance)) {
        const enum method_role role = call_method(call)->role;
        if (call_is_tried_here(call) && !access_permits(call_caller(call), role, instance))
            return status_fail(status, STATUS_PERMISSION_DENIED, "it is refused by on_message");
        const bool may = access_check(call_caller(call), role, instance, status);
        call_set_instance(
            call, instance_metrics_find(rpc_metrics_instances(call_server(call)->rpc_metrics),
                                        instance, may ? INSTANCE_ADD : INSTANCE_FIND));
        return may;
    }
    const size_t shown = bytes_utf8_prefix(bytes_of(
        instance.data, instance.length < SHOWN_BYTES_MAX ? instance.length : SHOWN_BYTES_MAX));
    return status_fail(status, STATUS_INVALID_ARGUMENT,
                       "this server does not serve the instance \"%.*s\"; it is told which it "
                       "serves by its option instance",
                       (int)shown, (const char *)instance.data);
}

static bool flatten(struct call *call, const struct message *message, struct bytes *flat)
{
    if (message->length == 0) {
        *flat = (struct bytes){0};
        return true;
    }
    if (message->parts.count == 1) {
        *flat = message->parts.parts[0];
        return true;
    }
    uint8_t *const copy = arena_take(call_arena(call), message->length);
    if (copy == NULL)
        return false;
    bytes_list_copy(message->parts, copy);
    *flat = bytes_of(copy, message->length);
    return true;
}

static void no_memory(struct call *call, struct status *status)
{
    status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                "the request takes more memory than the %zu MiB of a call",
                (size_t)(call_arena(call)->limit_bytes / MIB));
}

bool call_message_flat(struct call *call, const struct message *message, struct bytes *flat)
{
    if (flatten(call, message, flat))
        return true;
    struct status status = {0};
    no_memory(call, &status);
    call_fail(call, &status);
    return false;
}

/* protobuf-c's memory comes from the arena and goes with it. */
struct unpacking {
    struct arena *arena;
    bool exhausted;
};

static void *unpacking_alloc(void *data, size_t size)
{
    struct unpacking *const unpacking = data;
    void *const taken = arena_take(unpacking->arena, size);
    if (taken == NULL)
        unpacking->exhausted = true;
    return taken;
}

static void unpacking_free(void *data, void *pointer)
{
    (void)data;
    (void)pointer;
}

struct ProtobufCMessage *call_unpack(struct call *call,
                                     const struct message *message,
                                     const struct ProtobufCMessageDescriptor *descriptor,
                                     struct status *status)
{
    struct bytes flat;
    struct unpacking unpacking = {.arena = call_arena(call)};
    ProtobufCAllocator allocator = {
        .alloc = unpacking_alloc, .free = unpacking_free, .allocator_data = &unpacking};
    ProtobufCMessage *unpacked = NULL;
    if (flatten(call, message, &flat)) {
        /* An empty message has no bytes, but the decoder wants a pointer. */
        static const uint8_t nothing[1];
        unpacked = protobuf_c_message_unpack(descriptor, &allocator, flat.length,
                                             flat.length > 0 ? flat.data : nothing);
    } else {
        unpacking.exhausted = true;
    }
    if (unpacked != NULL)
        return unpacked;
    if (unpacking.exhausted)
        no_memory(call, status);
    else
        status_fail(status, STATUS_INVALID_ARGUMENT, "the request is no %s", descriptor->name);
    return NULL;
}

grpc_slice slice_of_packed(const struct ProtobufCMessage *message)
{
    const size_t size = protobuf_c_message_get_packed_size(message);
    grpc_slice slice = grpc_slice_malloc(size);
    const size_t packed = protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    ASSERT(packed == size);
    return slice;
}

void call_reply_packed(struct call *call, const struct ProtobufCMessage *response)
{
    grpc_slice slice = slice_of_packed(response);
    call_reply(call, &slice, 1);
}

/*
 * A buffer that gRPC has. Stored here last and loaded first: gRPC orders the threads anyway, but not where ThreadSanitizer
 * could see it.
 */
struct lent_buffer {
    struct buffer *_Atomic buffer; /* owned */
};

/* On whichever thread gRPC lets go of the slice. */
static void release_buffer(void *argument)
{
    struct lent_buffer *lent = argument;
    buffer_release(atomic_load_explicit(&lent->buffer, memory_order_acquire));
    gpr_free(lent);
}

grpc_slice slice_of_buffer(struct buffer *buffer, struct bytes data)
{
    /* gRPC does not write to what it sends. */
    void *const start = (void *)(uintptr_t)data.data;
    struct lent_buffer *lent = gpr_malloc(sizeof(*lent));
    atomic_store_explicit(&lent->buffer, buffer, memory_order_release);
    return grpc_slice_new_with_user_data(start, data.length, release_buffer, lent);
}
