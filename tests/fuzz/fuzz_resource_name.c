/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a resource name: refused with INVALID_ARGUMENT and a text in UTF-8, or taken apart; and
 * then what is put together again must be a name of the same.
 */
#include "base/compiler.h"
#include "base/limits.h"
#include "proto/resource_name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef bool parse_function(struct bytes text, struct resource_name *name, struct status *status);

static bool check(parse_function *parse, struct bytes text)
{
    struct resource_name name;
    struct resource_name again;
    struct status status = {0};
    if (!parse(text, &name, &status)) {
        ASSERT(status.code == STATUS_INVALID_ARGUMENT);
        ASSERT(bytes_is_utf8(bytes_of_string(status.message)));
        return false;
    }
    ASSERT(status.code == STATUS_OK);
    ASSERT(instance_name_check(name.instance, &status));
    ASSERT(name.digest.size_bytes >= 0);
    ASSERT(digest_function_supported((enum digest_function)name.digest.function));

    char uuid[256] = "";
    char formatted[LIMIT_RESOURCE_NAME_BYTES];
    ASSERT(name.uuid.length < sizeof(uuid));
    if (name.uuid.length > 0)
        memcpy(uuid, name.uuid.data, name.uuid.length);
    ASSERT(resource_name_format(formatted, sizeof(formatted), name.instance,
                                name.uuid.length > 0 ? uuid : NULL, name.compressor, &name.digest));
    ASSERT(parse(bytes_of_string(formatted), &again, &status));
    ASSERT(bytes_equal(again.instance, name.instance));
    ASSERT(bytes_equal(again.uuid, name.uuid));
    ASSERT(again.compressor == name.compressor);
    ASSERT(digest_equal(&again.digest, &name.digest));
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct bytes text = bytes_of(data, size);
    const bool is_read = check(resource_name_parse_read, text);
    const bool is_write = check(resource_name_parse_write, text);
    ASSERT(!is_read || !is_write);
    struct status status = {0};
    if (!instance_name_check(text, &status))
        ASSERT(status.code == STATUS_INVALID_ARGUMENT);
    return 0;
}
