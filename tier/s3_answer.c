/* SPDX-License-Identifier: Apache-2.0 */
/* What a refusal means: by its code in the body where there is one, else by the number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier/s3_exchange.h"
#include "tier/s3_xml.h"

struct error_text {
    char code[64];
    char message[192];
};

static bool take_element(void *argument, const char *path, const char *text, struct status *status);
static void copy_cut(char *to, size_t capacity, const char *from);
static enum status_code status_of(int http_code, const char *code);

bool s3_answer_fail(struct s3_exchange *exchange, struct status *status)
{
    struct error_text error = {.code = ""};
    const struct s3_xml_reader reader = {.element = take_element, .argument = &error};
    struct status ignored = {0};
    /* HEAD has none, proxies send HTML: the number is left then. */
    if (exchange->body_bytes > 0 &&
        !s3_xml_read(bytes_of(exchange->body, exchange->body_bytes), &reader, &ignored))
        ignored.code = STATUS_OK;
    const enum status_code code = status_of(exchange->http_code, error.code);
    exchange->absent = exchange->http_code == 404 && strcmp(error.code, "NoSuchBucket") != 0;
    char place[96] = "";
    if (exchange->region_hint[0] != '\0' && code == STATUS_FAILED_PRECONDITION)
        snprintf(place, sizeof(place), " (its region is %s)", exchange->region_hint);
    char ahead[96] = "";
    if (code == STATUS_PERMISSION_DENIED && llabs((long long)exchange->server_ahead_s) > 60)
        snprintf(ahead, sizeof(ahead), " (its clock is %lld s ahead)",
                 (long long)exchange->server_ahead_s);
    return status_fail(status, code, "%d %s%s%s%s%s", exchange->http_code,
                       error.code[0] != '\0' ? error.code : "without a reason",
                       error.message[0] != '\0' ? ": " : "", error.message, place, ahead);
}

static bool take_element(void *argument, const char *path, const char *text, struct status *status)
{
    (void)status;
    struct error_text *const error = argument;
    if (strcmp(path, "Error/Code") == 0)
        copy_cut(error->code, sizeof(error->code), text);
    else if (strcmp(path, "Error/Message") == 0)
        copy_cut(error->message, sizeof(error->message), text);
    return true;
}

static void copy_cut(char *to, size_t capacity, const char *from)
{
    const size_t length = strnlen(from, capacity - 1);
    memcpy(to, from, length);
    to[length] = '\0';
}

/* The codes that say something else than their number does. */
static const struct {
    const char *name;
    enum status_code code;
} codes[] = {
    {"XAmzContentSHA256Mismatch", STATUS_DATA_LOSS},
    {"BadDigest", STATUS_DATA_LOSS},
    {"InvalidDigest", STATUS_DATA_LOSS},
    {"IncompleteBody", STATUS_UNAVAILABLE},
    {"RequestTimeout", STATUS_UNAVAILABLE},
    {"SlowDown", STATUS_UNAVAILABLE},
    {"ServiceUnavailable", STATUS_UNAVAILABLE},
    {"InternalError", STATUS_UNAVAILABLE},
    {"OperationAborted", STATUS_UNAVAILABLE},
    {"NoSuchUpload", STATUS_UNAVAILABLE},
    {"InvalidPart", STATUS_UNAVAILABLE},
    {"NoSuchBucket", STATUS_FAILED_PRECONDITION},
    {"PermanentRedirect", STATUS_FAILED_PRECONDITION},
    {"AuthorizationHeaderMalformed", STATUS_FAILED_PRECONDITION},
    {"IllegalLocationConstraintException", STATUS_FAILED_PRECONDITION},
    {"ExpiredToken", STATUS_PERMISSION_DENIED},
    {"InvalidToken", STATUS_PERMISSION_DENIED},
    {"InvalidAccessKeyId", STATUS_PERMISSION_DENIED},
    {"QuotaExceeded", STATUS_FAILED_PRECONDITION},
};

static enum status_code status_of(int http_code, const char *code)
{
    for (size_t i = 0; i < ARRAY_LENGTH(codes); i++) {
        if (strcmp(code, codes[i].name) == 0)
            return codes[i].code;
    }
    if (http_code >= 500 || http_code == 408 || http_code == 429 || http_code == 409)
        return STATUS_UNAVAILABLE;
    switch (http_code) {
    case 401:
    case 403:
        return STATUS_PERMISSION_DENIED;
    case 404:
        return STATUS_NOT_FOUND;
    case 412:
        return STATUS_ALREADY_EXISTS;
    case 416:
        return STATUS_OUT_OF_RANGE;
    case 301:
    case 307:
    case 308:
        return STATUS_FAILED_PRECONDITION;
    default:
        return STATUS_INTERNAL;
    }
}
