/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why something failed: a code with gRPC's numbers and one line of text for a person.
 *
 * A fallible function returns bool (true is success) and takes a struct status last. The status is
 * set once, where the failure is seen; callers pass it up and may prefix what they were doing. On
 * true the status is untouched. "Not there" is not a failure: lookups say it in an out-parameter.
 */
#ifndef VARVE_BASE_STATUS_H
#define VARVE_BASE_STATUS_H

#include <stdbool.h>

#include "base/compiler.h"

/* The numbers are those of google.rpc.Code. */
enum status_code {
    STATUS_OK = 0,
    STATUS_CANCELLED = 1,
    STATUS_UNKNOWN = 2,
    STATUS_INVALID_ARGUMENT = 3,
    STATUS_DEADLINE_EXCEEDED = 4,
    STATUS_NOT_FOUND = 5,
    STATUS_ALREADY_EXISTS = 6,
    STATUS_PERMISSION_DENIED = 7,
    STATUS_RESOURCE_EXHAUSTED = 8,
    STATUS_FAILED_PRECONDITION = 9,
    STATUS_ABORTED = 10,
    STATUS_OUT_OF_RANGE = 11,
    STATUS_UNIMPLEMENTED = 12,
    STATUS_INTERNAL = 13,
    STATUS_UNAVAILABLE = 14,
    STATUS_DATA_LOSS = 15,
    STATUS_UNAUTHENTICATED = 16,
};

enum { STATUS_MESSAGE_BYTES_MAX = 512 };

/* A plain value; {0} is OK. */
struct status {
    enum status_code code;
    char message[STATUS_MESSAGE_BYTES_MAX]; /* NUL-terminated, cut if longer, always valid UTF-8 */
};

/*
 * Sets the status; returns false, so that failing is one line. Bytes that are not UTF-8 become '?'.
 */
bool status_fail(struct status *status, enum status_code code, const char *format, ...)
    PRINTF_LIKE(3, 4);

/*
 * As status_fail() with ": " and the text of error_number appended. The code follows from it:
 * ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM -> RESOURCE_EXHAUSTED; ENOENT -> NOT_FOUND; others
 * INTERNAL.
 */
bool status_fail_errno(struct status *status, int error_number, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* Puts "<text>: " before the message of a failed status. */
void status_prefix(struct status *status, const char *format, ...) PRINTF_LIKE(2, 3);

/* "NOT_FOUND"; "CODE_99" is never returned, unknown numbers give "UNKNOWN". Static storage. */
const char *status_code_name(enum status_code code);

/* clang's analyzer looks at one file at a time: this tells it what the two return. */
#ifdef __clang_analyzer__
#define status_fail(...) (status_fail(__VA_ARGS__), false)
#define status_fail_errno(...) (status_fail_errno(__VA_ARGS__), false)
#endif

#endif
