/* SPDX-License-Identifier: Apache-2.0 */
#include "server/byte_stream.h"

#include <inttypes.h>

#include "proto/wire.h"
#include "server/server.h"

bool read_request_decode(struct bytes_list message,
                         struct arena *arena,
                         struct read_request *request,
                         struct status *status)
{
    enum { RESOURCE_NAME = 1, READ_OFFSET = 2, READ_LIMIT = 3 };
    *request = (struct read_request){0};
    struct wire_span name = {0};
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, wire_span_of_list(message));
    while (wire_reader_next(&reader, &field)) {
        if (field.number == RESOURCE_NAME && field.type == WIRE_BYTES)
            name = field.span;
        else if (field.number == READ_OFFSET && field.type == WIRE_VARINT)
            request->read_offset = (int64_t)field.value;
        else if (field.number == READ_LIMIT && field.type == WIRE_VARINT)
            request->read_limit = (int64_t)field.value;
    }
    if (reader.failed)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "the request is no google.bytestream message");
    if (!wire_span_flat(name, arena, &request->resource_name))
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                           "no memory for a resource name of %zu bytes", name.length);
    return true;
}

bool blob_digest_check(struct call *call, const struct digest *digest, struct status *status)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    const uint64_t size_bytes_max = call_server(call)->config->max_blob_bytes;
    if ((uint64_t)digest->size_bytes > size_bytes_max)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "blob %s is larger than the %" PRIu64 " bytes that this server takes",
                           digest_text(digest, text), size_bytes_max);
    if (digest->size_bytes == 0 && !digest_is_empty_blob(digest))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "digest %s: nothing, of size 0, has another hash",
                           digest_text(digest, text));
    return true;
}
