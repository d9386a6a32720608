/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

static enum status_code code_of_errno(int error_number);
static void format_text(char text[STATUS_MESSAGE_BYTES_MAX], const char *format, va_list arguments)
    PRINTF_LIKE(2, 0);
static void append(char text[STATUS_MESSAGE_BYTES_MAX], const char *more);
static void make_utf8(char text[STATUS_MESSAGE_BYTES_MAX]);

#undef status_fail
#undef status_fail_errno

bool status_fail(struct status *status, enum status_code code, const char *format, ...)
{
    ASSERT(code != STATUS_OK);

    /* Formatted aside: an argument may be the old message. */
    char text[STATUS_MESSAGE_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    format_text(text, format, arguments);
    va_end(arguments);

    make_utf8(text);
    status->code = code;
    memcpy(status->message, text, sizeof(text));
    return false;
}

bool status_fail_errno(struct status *status, int error_number, const char *format, ...)
{
    ASSERT(error_number > 0);

    char text[STATUS_MESSAGE_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    format_text(text, format, arguments);
    va_end(arguments);

    char buffer[128];
    append(text, ": ");
    append(text, strerror_r(error_number, buffer, sizeof(buffer)));
    make_utf8(text);
    status->code = code_of_errno(error_number);
    memcpy(status->message, text, sizeof(text));
    return false;
}

static enum status_code code_of_errno(int error_number)
{
    switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return STATUS_RESOURCE_EXHAUSTED;
    case ENOENT:
        return STATUS_NOT_FOUND;
    default:
        return STATUS_INTERNAL;
    }
}

void status_prefix(struct status *status, const char *format, ...)
{
    ASSERT(status->code != STATUS_OK);

    char text[STATUS_MESSAGE_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    format_text(text, format, arguments);
    va_end(arguments);

    append(text, ": ");
    append(text, status->message);
    make_utf8(text);
    memcpy(status->message, text, sizeof(text));
}

const char *status_code_name(enum status_code code)
{
    static const char *const names[] = {
        [STATUS_OK] = "OK",
        [STATUS_CANCELLED] = "CANCELLED",
        [STATUS_UNKNOWN] = "UNKNOWN",
        [STATUS_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
        [STATUS_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
        [STATUS_NOT_FOUND] = "NOT_FOUND",
        [STATUS_ALREADY_EXISTS] = "ALREADY_EXISTS",
        [STATUS_PERMISSION_DENIED] = "PERMISSION_DENIED",
        [STATUS_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
        [STATUS_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
        [STATUS_ABORTED] = "ABORTED",
        [STATUS_OUT_OF_RANGE] = "OUT_OF_RANGE",
        [STATUS_UNIMPLEMENTED] = "UNIMPLEMENTED",
        [STATUS_INTERNAL] = "INTERNAL",
        [STATUS_UNAVAILABLE] = "UNAVAILABLE",
        [STATUS_DATA_LOSS] = "DATA_LOSS",
        [STATUS_UNAUTHENTICATED] = "UNAUTHENTICATED",
    };
    const size_t index = (size_t)code;
    return index < ARRAY_LENGTH(names) ? names[index] : names[STATUS_UNKNOWN];
}

static void format_text(char text[STATUS_MESSAGE_BYTES_MAX], const char *format, va_list arguments)
{
    if (vsnprintf(text, STATUS_MESSAGE_BYTES_MAX, format, arguments) < 0)
        text[0] = '\0';
}

/* Cuts what does not fit. */
static void append(char text[STATUS_MESSAGE_BYTES_MAX], const char *more)
{
    const size_t used = strlen(text);
    const size_t wanted = strlen(more);
    const size_t room = STATUS_MESSAGE_BYTES_MAX - 1 - used;
    const size_t length = wanted < room ? wanted : room;
    memcpy(text + used, more, length);
    text[used + length] = '\0';
}

/*
 * gRPC drops calls whose message it cannot encode. A character that the end of the array cuts off
 * goes whole.
 */
static void make_utf8(char text[STATUS_MESSAGE_BYTES_MAX])
{
    const size_t character_bytes_max = 4;
    size_t length = strlen(text);
    const bool full = length == STATUS_MESSAGE_BYTES_MAX - 1;
    size_t good = 0;

    while (true) {
        good += bytes_utf8_prefix(bytes_of(text + good, length - good));
        if (good == length)
            break;
        if (full && length - good < character_bytes_max && ((uint8_t)text[good] & 0xc0) == 0xc0) {
            length = good;
            break;
        }
        text[good++] = '?';
    }
    /* Nothing of the stack or of an older, longer message stays behind the text. */
    memset(text + length, 0, STATUS_MESSAGE_BYTES_MAX - length);
}
