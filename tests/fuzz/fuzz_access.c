/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an access file, as an htpasswd file, and as an upload in zstd: read or refused with a text, and never more decoded than
 * was allowed. The first byte says which, the second how the zstd is cut.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/access_passwords.h"
#include "server/access_rules.h"
#include "server/zstd_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file of these bytes, by a name that can be opened. */
static int file_of(struct bytes content, char path[64])
{
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    ASSERT(fd >= 0);
    ASSERT(write(fd, content.data, content.length) == (ssize_t)content.length);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static void look_at_rules(struct bytes content)
{
    char path[64];
    struct access_rules *rules = NULL;
    struct status status = {0};
    const int fd = file_of(content, path);
    if (access_rules_load(path, &rules, &status)) {
        struct access_applies applies;
        struct access_limits limits = {0};
        struct access_counts counts;
        access_rules_of_anonymous(rules, &applies);
        access_rules_of_user(rules, "a", NULL, &applies);
        access_rules_limits(rules, &applies, &limits);
        access_rules_count(rules, &counts);
        ASSERT(counts.rules > 0);
        for (enum method_role role = ROLE_ANY; role < ROLE_COUNT; role++)
            ASSERT(!access_rules_permit_everywhere(rules, &applies, role) ||
                   access_rules_permit(rules, &applies, role, bytes_of_string("x")));
        (void)access_rules_token_user(rules, content);
        access_rules_unref(rules);
    } else {
        ASSERT(status.code == STATUS_INVALID_ARGUMENT &&
               bytes_is_utf8(bytes_of_string(status.message)));
    }
    close(fd);
}

static void look_at_passwords(struct bytes content)
{
    char path[64];
    struct access_passwords *passwords = NULL;
    struct status status = {0};
    const int fd = file_of(content, path);
    if (access_passwords_load(path, &passwords, &status))
        access_passwords_free(passwords);
    else
        ASSERT(status.code == STATUS_INVALID_ARGUMENT);
    close(fd);
}

static void look_at_zstd(struct bytes content, size_t step)
{
    enum { OUTPUT_BYTES_MAX = 1 << 20 };
    struct zstd_budget budget = {.limit_bytes = 16 << 20};
    struct zstd_decoder *decoder;
    struct status status = {0};
    uint64_t decoded_bytes = 0;
    ASSERT(zstd_decoder_new(&budget, OUTPUT_BYTES_MAX, &decoder, &status));
    bool ok = true;
    for (size_t at = 0; ok && at < content.length; at += step) {
        const size_t left = content.length - at;
        struct bytes input = bytes_of(content.data + at, left < step ? left : step);
        struct bytes output;
        do {
            ok = zstd_decoder_next(decoder, &input, &output, &status);
            decoded_bytes += ok ? output.length : 0;
        } while (ok && output.length > 0);
        ASSERT(!ok || input.length == 0);
        ASSERT(!ok || budget.used_bytes <= budget.limit_bytes); /* who is over it is refused */
    }
    ASSERT(decoded_bytes <= OUTPUT_BYTES_MAX);
    ASSERT(ok || status.code == STATUS_INVALID_ARGUMENT ||
           status.code == STATUS_RESOURCE_EXHAUSTED);
    if (ok)
        (void)zstd_decoder_finish(decoder, &status);
    zstd_decoder_free(decoder);
    ASSERT(budget.used_bytes == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const struct bytes content = bytes_of(data + 2, size - 2);
    switch (data[0] % 3) {
    case 0:
        look_at_rules(content);
        break;
    case 1:
        look_at_passwords(content);
        break;
    default:
        look_at_zstd(content, (size_t)data[1] + 1);
        break;
    }
    return 0;
}
