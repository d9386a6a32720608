/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/error_details.h"

#include "base/compiler.h"
#include "proto/resource_name.h"
#include "proto/wire.h"

static const char retry_url[] = "type.googleapis.com/google.rpc.RetryInfo";
static const char type_url[] = "type.googleapis.com/google.rpc.PreconditionFailure";
static const char violation_type[] = "MISSING";

enum { SUBJECT_BYTES_MAX = DIGEST_TEXT_BYTES_MAX + 32 };

static size_t details_size(const struct status *status, size_t violations_size);
static size_t any_size(size_t violations_size);
static struct bytes subject_of(const struct digest *digest, char subject[SUBJECT_BYTES_MAX]);
static size_t violation_size(const struct digest *digest);
static uint8_t *violation_put(uint8_t *to, const struct digest *digest);

size_t error_details_missing_put(uint8_t to[ERROR_DETAILS_BYTES_MAX],
                                 const struct status *status,
                                 const struct digest *missing,
                                 size_t missing_count,
                                 size_t *told_count)
{
    ASSERT(status->code != STATUS_OK);
    size_t count = 0;
    size_t violations_size = 0;
    for (; count < missing_count; count++) {
        const size_t more = wire_bytes_field_size(1, violation_size(&missing[count]));
        if (details_size(status, violations_size + more) > ERROR_DETAILS_BYTES_MAX)
            break;
        violations_size += more;
    }

    /* google.rpc.Status: code 1, message 2, details 3. */
    uint8_t *at = wire_put_varint_field(to, 1, status->code);
    at = wire_put_bytes_field(at, 2, bytes_of_string(status->message));
    at = wire_put_bytes_key(at, 3, any_size(violations_size));
    /* google.protobuf.Any: type_url 1, value 2. */
    at = wire_put_bytes_field(at, 1, bytes_of_string(type_url));
    at = wire_put_bytes_key(at, 2, violations_size);
    /* google.rpc.PreconditionFailure: violations 1. */
    for (size_t i = 0; i < count; i++)
        at = violation_put(at, &missing[i]);

    const size_t length = (size_t)(at - to);
    ASSERT(length == details_size(status, violations_size));
    *told_count = count;
    return length;
}

static size_t details_size(const struct status *status, size_t violations_size)
{
    return wire_varint_field_size(1, status->code) +
           wire_bytes_field_size(2, strlen(status->message)) +
           wire_bytes_field_size(3, any_size(violations_size));
}

static size_t any_size(size_t violations_size)
{
    return wire_bytes_field_size(1, sizeof(type_url) - 1) +
           wire_bytes_field_size(2, violations_size);
}

/* Violation: type 1, subject 2. */
static size_t violation_size(const struct digest *digest)
{
    char subject[SUBJECT_BYTES_MAX];
    return wire_bytes_field_size(1, sizeof(violation_type) - 1) +
           wire_bytes_field_size(2, subject_of(digest, subject).length);
}

static uint8_t *violation_put(uint8_t *to, const struct digest *digest)
{
    char subject[SUBJECT_BYTES_MAX];
    to = wire_put_bytes_key(to, 1, violation_size(digest));
    to = wire_put_bytes_field(to, 1, bytes_of_string(violation_type));
    return wire_put_bytes_field(to, 2, subject_of(digest, subject));
}

/* As a read name without an instance: blobs/[{function}/]{hash}/{size}. */
static struct bytes subject_of(const struct digest *digest, char subject[SUBJECT_BYTES_MAX])
{
    const bool fits = resource_name_format(subject, SUBJECT_BYTES_MAX, bytes_of(NULL, 0), NULL,
                                           COMPRESSOR_IDENTITY, digest);
    ASSERT(fits);
    return bytes_of_string(subject);
}

size_t error_details_retry_put(uint8_t to[ERROR_DETAILS_BYTES_MAX],
                               const struct status *status,
                               int64_t retry_ns)
{
    ASSERT(status->code != STATUS_OK);
    ASSERT(retry_ns >= 0);
    /* google.protobuf.Duration: seconds 1, nanos 2. */
    const uint64_t seconds = (uint64_t)(retry_ns / 1000000000);
    const uint64_t nanos = (uint64_t)(retry_ns % 1000000000);
    const size_t duration = wire_varint_field_size(1, seconds) + wire_varint_field_size(2, nanos);
    const size_t info = wire_bytes_field_size(1, duration);
    uint8_t *at = wire_put_varint_field(to, 1, status->code);
    at = wire_put_bytes_field(at, 2, bytes_of_string(status->message));
    at = wire_put_bytes_key(
        at, 3, wire_bytes_field_size(1, sizeof(retry_url) - 1) + wire_bytes_field_size(2, info));
    at = wire_put_bytes_field(at, 1, bytes_of_string(retry_url));
    at = wire_put_bytes_key(at, 2, info);
    /* google.rpc.RetryInfo: retry_delay 1. */
    at = wire_put_bytes_key(at, 1, duration);
    at = wire_put_varint_field(at, 1, seconds);
    at = wire_put_varint_field(at, 2, nanos);
    ASSERT(at - to <= ERROR_DETAILS_BYTES_MAX);
    return (size_t)(at - to);
}
