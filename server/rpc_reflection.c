/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grpc.reflection, v1 and v1alpha, which differ in name alone. What is not there is told inside the
 * stream; the call goes on.
 */
#include "base/limits.h"
#include "proto/wire.h"
#include "server/schema.h"
#include "server/methods.h"
#include "server/server.h"
#include "server/services.h"

/* Field numbers of grpc/reflection/v1/reflection.proto. */
enum {
    REQUEST_HOST = 1,
    REQUEST_FILE_BY_FILENAME = 3,
    REQUEST_FILE_CONTAINING_SYMBOL = 4,
    REQUEST_FILE_CONTAINING_EXTENSION = 5,
    REQUEST_ALL_EXTENSION_NUMBERS = 6,
    REQUEST_LIST_SERVICES = 7,
    RESPONSE_VALID_HOST = 1,
    RESPONSE_ORIGINAL_REQUEST = 2,
    RESPONSE_FILES = 4,
    RESPONSE_SERVICES = 6,
    RESPONSE_ERROR = 7,
    FILES_FILE = 1,
    SERVICES_SERVICE = 1,
    SERVICE_NAME = 1,
    ERROR_CODE = 1,
    ERROR_MESSAGE = 2,
};

/* Longer requests ask for nothing that there is. */
static const size_t request_bytes_max = 4096;

struct question {
    struct bytes whole;
    struct bytes host;
    uint32_t kind; /* field number; 0: nothing was asked */
    struct bytes operand;
};

static bool read_question(struct bytes message, struct question *question);
static void answer_question(struct call *call, const struct question *question);

static void reflection_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    struct status status = {0};
    struct bytes flat;
    if (message->length > request_bytes_max) {
        status_fail(&status, STATUS_INVALID_ARGUMENT, "a reflection request has %zu bytes at most",
                    request_bytes_max);
        call_fail(call, &status);
        return;
    }
    if (!call_message_flat(call, message, &flat))
        return;
    struct question question;
    if (!read_question(flat, &question)) {
        status_fail(&status, STATUS_INVALID_ARGUMENT, "the request is no ServerReflectionRequest");
        call_fail(call, &status);
        return;
    }
    answer_question(call, &question);
}

/* Of a oneof the last field counts. */
static bool read_question(struct bytes message, struct question *question)
{
    struct wire_reader reader;
    struct wire_field field;
    *question = (struct question){.whole = message};
    wire_reader_init(&reader, wire_span_of_bytes(&message));
    while (wire_reader_next(&reader, &field)) {
        if (field.type != WIRE_BYTES)
            continue;
        const struct bytes value = wire_span_next(&field.span);
        if (field.number == REQUEST_HOST) {
            question->host = value;
        } else if (field.number >= REQUEST_FILE_BY_FILENAME &&
                   field.number <= REQUEST_LIST_SERVICES) {
            question->kind = field.number;
            question->operand = value;
        }
    }
    return !reader.failed;
}

/* ---- answers: `body` is what stands in the response's oneof */

static void send_body(struct call *call,
                      const struct question *question,
                      uint32_t number,
                      const uint8_t *body,
                      size_t length);
static void send_files(struct call *call,
                       const struct question *question,
                       const struct schema_files *files);
static void send_services(struct call *call, const struct question *question);
static void send_error(struct call *call,
                       const struct question *question,
                       enum status_code code,
                       const char *what);

static void answer_question(struct call *call, const struct question *question)
{
    struct schema_files files;
    switch (question->kind) {
    case REQUEST_FILE_BY_FILENAME:
        schema_of_file(question->operand, &files);
        send_files(call, question, &files);
        break;
    case REQUEST_FILE_CONTAINING_SYMBOL:
        schema_of_symbol(question->operand, &files);
        send_files(call, question, &files);
        break;
    case REQUEST_LIST_SERVICES:
        send_services(call, question);
        break;
    case REQUEST_FILE_CONTAINING_EXTENSION:
    case REQUEST_ALL_EXTENSION_NUMBERS:
        send_error(call, question, STATUS_NOT_FOUND, "no message of this server has extensions");
        break;
    default:
        send_error(call, question, STATUS_INVALID_ARGUMENT, "the request asks nothing");
        break;
    }
}

static void fail_for_memory(struct call *call)
{
    call_fail(call, &(struct status){.code = STATUS_RESOURCE_EXHAUSTED,
                                     .message = "the call has no memory left"});
}

static void send_body(struct call *call,
                      const struct question *question,
                      uint32_t number,
                      const uint8_t *body,
                      size_t length)
{
    size_t size = wire_bytes_field_size(RESPONSE_ORIGINAL_REQUEST, question->whole.length) +
                  wire_bytes_field_size(number, length);
    if (question->host.length > 0)
        size += wire_bytes_field_size(RESPONSE_VALID_HOST, question->host.length);
    grpc_slice slice = grpc_slice_malloc(size);
    uint8_t *at = GRPC_SLICE_START_PTR(slice);
    if (question->host.length > 0)
        at = wire_put_bytes_field(at, RESPONSE_VALID_HOST, question->host);
    at = wire_put_bytes_field(at, RESPONSE_ORIGINAL_REQUEST, question->whole);
    at = wire_put_bytes_field(at, number, bytes_of(body, length));
    ASSERT(at == GRPC_SLICE_START_PTR(slice) + size);
    call_send(call, &slice, 1);
}

static void send_files(struct call *call,
                       const struct question *question,
                       const struct schema_files *files)
{
    if (files->count == 0) {
        send_error(call, question, STATUS_NOT_FOUND,
                   question->kind == REQUEST_FILE_BY_FILENAME ? "there is no such file"
                                                              : "there is no such symbol");
        return;
    }
    size_t length = 0;
    for (size_t i = 0; i < files->count; i++)
        length += wire_bytes_field_size(FILES_FILE, files->files[i].length);
    uint8_t *const body = arena_take(call_arena(call), length);
    if (body == NULL) {
        fail_for_memory(call);
        return;
    }
    uint8_t *at = body;
    for (size_t i = 0; i < files->count; i++)
        at = wire_put_bytes_field(at, FILES_FILE, files->files[i]);
    send_body(call, question, RESPONSE_FILES, body, length);
}

static void send_services(struct call *call, const struct question *question)
{
    struct server *const server = call_server(call);
    struct services services;
    services_of_methods(server->methods, server->methods_count, &services);
    size_t length = 0;
    for (size_t i = 0; i < services.count; i++)
        length += wire_bytes_field_size(
            SERVICES_SERVICE, wire_bytes_field_size(SERVICE_NAME, services.items[i].name.length));
    uint8_t *const body = arena_take(call_arena(call), length);
    if (body == NULL) {
        fail_for_memory(call);
        return;
    }
    uint8_t *at = body;
    for (size_t i = 0; i < services.count; i++) {
        const struct bytes name = services.items[i].name;
        at = wire_put_bytes_key(at, SERVICES_SERVICE,
                                wire_bytes_field_size(SERVICE_NAME, name.length));
        at = wire_put_bytes_field(at, SERVICE_NAME, name);
    }
    send_body(call, question, RESPONSE_SERVICES, body, length);
}

static void send_error(struct call *call,
                       const struct question *question,
                       enum status_code code,
                       const char *what)
{
    uint8_t body[256];
    uint8_t *at = wire_put_varint_field(body, ERROR_CODE, (uint64_t)code);
    ASSERT(strlen(what) < sizeof(body) - 32);
    at = wire_put_bytes_field(at, ERROR_MESSAGE, bytes_of_string(what));
    send_body(call, question, RESPONSE_ERROR, body, (size_t)(at - body));
}

static void reflection_sent(struct call *call, void *state)
{
    (void)state;
    call_receive(call);
}

static void reflection_half_close(struct call *call, void *state)
{
    (void)state;
    call_finish(call);
}

#define REFLECTION(package)                                                                        \
    {                                                                                              \
        .path = "/grpc.reflection." package ".ServerReflection/ServerReflectionInfo",              \
        .kind = METHOD_BIDI, .role = ROLE_NONE, .waits = true, .on_message = reflection_message,   \
        .on_half_close = reflection_half_close, .on_sent = reflection_sent                         \
    }

const struct method rpc_reflection_v1 = REFLECTION("v1");
const struct method rpc_reflection_v1alpha = REFLECTION("v1alpha");
