/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object in parts, one after the other, each with its own hash and tried again by itself; the parts become an object when all are
 * there. One that cannot be finished is aborted, so that its parts cost nobody anything; where even that fails, the bucket's rule
 * AbortIncompleteMultipartUpload does it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/log.h"
#include "tier/s3_objects.h"

enum {
    PARTS_MAX = 10000,
    PART_TRIES = 3,
    UPLOAD_ID_BYTES = 512,
    ABORT_SECONDS = 5,
};

struct upload {
    struct s3 *s3;
    const struct bucket_put *put;
    char id[UPLOAD_ID_BYTES];
    uint64_t part_bytes;
    size_t part_count;
    char (*etags)[S3_ETAG_BYTES]; /* owned; of each part */
};

static bool initiate(struct upload *upload, struct status *status);
static bool take_upload_id(void *argument,
                           const char *path,
                           const char *text,
                           struct status *status);
static bool put_part(struct upload *upload, size_t part, struct status *status);
static bool put_part_once(struct upload *upload,
                          size_t part,
                          const uint8_t sha256[32],
                          struct status *status);
static bool complete(struct upload *upload, struct status *status);
static char *complete_document(const struct upload *upload, size_t *length);
static bool ignore_element(void *argument,
                           const char *path,
                           const char *text,
                           struct status *status);
static void abort_upload(struct upload *upload);

bool s3_put_in_parts(struct s3 *s3, const struct bucket_put *put, struct status *status)
{
    const uint64_t bytes = put->source.size_bytes;
    struct upload upload = {.s3 = s3, .put = put, .part_bytes = s3->limits.part_bytes};
    const uint64_t least = (bytes + PARTS_MAX - 1) / PARTS_MAX;
    if (upload.part_bytes < least)
        upload.part_bytes = (least + MIB - 1) / MIB * MIB;
    upload.part_count = (size_t)((bytes + upload.part_bytes - 1) / upload.part_bytes);
    upload.etags = calloc(upload.part_count, sizeof(upload.etags[0]));
    if (upload.etags == NULL)
        return status_fail_errno(status, ENOMEM, "PUT %s", put->key);
    bool ok = initiate(&upload, status);
    if (ok) {
        for (size_t part = 0; ok && part < upload.part_count; part++)
            ok = put_part(&upload, part, status);
        ok = ok && complete(&upload, status);
        if (!ok)
            abort_upload(&upload);
    }
    free(upload.etags);
    if (!ok)
        status_prefix(status, "PUT %s in %zu parts", put->key, upload.part_count);
    return ok;
}

static bool initiate(struct upload *upload, struct status *status)
{
    struct s3_exchange exchange = {.method = S3_POST,
                                   .key = upload->put->key,
                                   .parameters = {{"uploads", ""}},
                                   .parameter_count = 1,
                                   .notes = upload->put->notes,
                                   .note_count = upload->put->note_count,
                                   .first_byte_ns = upload->s3->limits.put_answer_ns,
                                   .deadline_ns = upload->put->deadline_ns};
    const struct s3_xml_reader reader = {.element = take_upload_id, .argument = upload};
    bool ok = s3_exchange_one(upload->s3, &exchange, status) &&
              s3_read_body(&exchange, "InitiateMultipartUploadResult", &reader, status);
    if (ok && upload->id[0] == '\0')
        ok = status_fail(status, STATUS_INTERNAL, "the answer names no upload");
    s3_exchange_clear(&exchange);
    if (!ok)
        status_prefix(status, "begin");
    return ok;
}

static bool take_upload_id(void *argument,
                           const char *path,
                           const char *text,
                           struct status *status)
{
    struct upload *const upload = argument;
    if (strcmp(path, "InitiateMultipartUploadResult/UploadId") != 0)
        return true;
    const size_t length = strlen(text);
    if (length >= sizeof(upload->id))
        return status_fail(status, STATUS_INTERNAL, "the upload's name is too long");
    memcpy(upload->id, text, length + 1);
    return true;
}

static bool put_part(struct upload *upload, size_t part, struct status *status)
{
    const uint64_t offset = part * upload->part_bytes;
    const uint64_t left = upload->put->source.size_bytes - offset;
    uint8_t sha256[SHA256_HASH_BYTES];
    if (!s3_hash(&upload->put->source, offset,
                 left < upload->part_bytes ? left : upload->part_bytes, sha256, status))
        return false;
    for (int tries = 1;; tries++) {
        struct status why = {0};
        if (put_part_once(upload, part, sha256, &why))
            return true;
        if (tries == PART_TRIES || why.code == STATUS_CANCELLED ||
            bucket_fault_of(&why) != BUCKET_TRY_LATER ||
            s3_breaker_state(upload->s3) != BREAKER_CLOSED) {
            *status = why;
            status_prefix(status, "part %zu", part + 1);
            return false;
        }
    }
}

static bool put_part_once(struct upload *upload,
                          size_t part,
                          const uint8_t sha256[32],
                          struct status *status)
{
    char number[24];
    const uint64_t offset = part * upload->part_bytes;
    const uint64_t left = upload->put->source.size_bytes - offset;
    snprintf(number, sizeof(number), "%zu", part + 1);
    struct s3_exchange exchange = {.method = S3_PUT,
                                   .key = upload->put->key,
                                   .parameters = {{"partNumber", number}, {"uploadId", upload->id}},
                                   .parameter_count = 2,
                                   .source = upload->put->source,
                                   .source_offset = offset,
                                   .source_bytes =
                                       left < upload->part_bytes ? left : upload->part_bytes,
                                   .sha256 = sha256,
                                   .first_byte_ns = upload->s3->limits.put_answer_ns,
                                   .deadline_ns = upload->put->deadline_ns};
    bool ok = s3_exchange_one(upload->s3, &exchange, status);
    if (ok && exchange.etag[0] == '\0')
        ok = status_fail(status, STATUS_INTERNAL, "the answer has no ETag");
    if (ok)
        memcpy(upload->etags[part], exchange.etag, sizeof(exchange.etag));
    s3_exchange_clear(&exchange);
    return ok;
}

static bool complete(struct upload *upload, struct status *status)
{
    size_t length = 0;
    char *const document = complete_document(upload, &length);
    if (document == NULL)
        return status_fail_errno(status, ENOMEM, "complete");
    struct bucket_memory memory = {.bytes = bytes_of(document, length)};
    struct digest digest;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, memory.bytes, &digest);
    struct s3_exchange exchange = {.method = S3_POST,
                                   .key = upload->put->key,
                                   .parameters = {{"uploadId", upload->id}},
                                   .parameter_count = 1,
                                   .if_absent = upload->put->condition == BUCKET_PUT_IF_ABSENT,
                                   .source = bucket_source_of(&memory),
                                   .source_bytes = length,
                                   .sha256 = digest.hash,
                                   .first_byte_ns = upload->s3->limits.put_answer_ns,
                                   .deadline_ns = upload->put->deadline_ns};
    const struct s3_xml_reader reader = {.element = ignore_element};
    const bool ok = s3_exchange_one(upload->s3, &exchange, status) &&
                    s3_read_body(&exchange, "CompleteMultipartUploadResult", &reader, status);
    s3_exchange_clear(&exchange);
    free(document);
    if (!ok)
        status_prefix(status, "complete");
    return ok;
}

static char *complete_document(const struct upload *upload, size_t *length)
{
    static const char head[] = "<CompleteMultipartUpload>";
    static const char tail[] = "</CompleteMultipartUpload>";
    const size_t capacity =
        sizeof(head) + sizeof(tail) + upload->part_count * (80 + 6 * (size_t)S3_ETAG_BYTES);
    char *const document = malloc(capacity);
    if (document == NULL)
        return NULL;
    size_t used = (size_t)snprintf(document, capacity, "%s", head);
    for (size_t i = 0; i < upload->part_count; i++) {
        used += (size_t)snprintf(document + used, capacity - used,
                                 "<Part><PartNumber>%zu</PartNumber><ETag>", i + 1);
        const bool fits = s3_xml_escape(upload->etags[i], document, capacity, &used);
        ASSERT(fits);
        used += (size_t)snprintf(document + used, capacity - used, "</ETag></Part>");
    }
    used += (size_t)snprintf(document + used, capacity - used, "%s", tail);
    ASSERT(used < capacity);
    *length = used;
    return document;
}

static bool ignore_element(void *argument,
                           const char *path,
                           const char *text,
                           struct status *status)
{
    (void)argument;
    (void)path;
    (void)text;
    (void)status;
    return true;
}

/* Best effort, with a deadline of its own: the caller's may be what has passed. */
static void abort_upload(struct upload *upload)
{
    struct s3_exchange exchange = {.method = S3_DELETE,
                                   .key = upload->put->key,
                                   .parameters = {{"uploadId", upload->id}},
                                   .parameter_count = 1,
                                   .first_byte_ns = upload->s3->limits.first_byte_ns,
                                   .deadline_ns = clock_monotonic_ns(upload->s3->clock) +
                                                  ABORT_SECONDS * NS_PER_S};
    struct status status = {0};
    struct log_text quoted;
    if (!s3_exchange_one(upload->s3, &exchange, &status) && !exchange.absent)
        log_event(LOG_LEVEL_WARN, "tier_abort_failed", "reason=%s",
                  log_quote(&quoted, status.message));
    s3_exchange_clear(&exchange);
}
