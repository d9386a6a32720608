/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What anybody may send before it is known who they are: Authorization, JWT, the paths and ranges of HTTP. Nothing but
 * no crash, and what is read back must make sense.
 */
#include <stdlib.h>

#include "proto/authorization.h"
#include "proto/base64.h"
#include "proto/http_path.h"
#include "proto/jwt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_at_json(struct bytes text)
{
    struct json_value value;
    struct json_value member;
    struct json_value element;
    char string[64];
    int64_t number;
    size_t at = 0;
    if (!json_parse(text, &value))
        return;
    if (json_member(&value, "aud", &member) && json_text(&member, string, sizeof(string)))
        ASSERT(bytes_is_utf8(bytes_of_string(string)) && strlen(string) < sizeof(string));
    while (json_element(&value, &at, &element)) {
        ASSERT(element.text.data >= text.data &&
               element.text.data + element.text.length <= text.data + text.length);
        if (json_whole_number(&element, &number))
            ASSERT(number > -(INT64_C(1) << 53) && number < INT64_C(1) << 53);
    }
}

static void look_at_jwt(struct bytes token)
{
    static struct jwt jwt;
    struct status status;
    int64_t expires_s;
    const struct jwt_demand demand = {.issuer = "a", .audience = "b", .now_s = 5, .leeway_s = 1};
    if (!jwt_parse(token, &jwt, &status)) {
        ASSERT(status.code == STATUS_UNAUTHENTICATED);
        return;
    }
    ASSERT(jwt.signature_bytes <= sizeof(jwt.signature));
    if (jwt_check(&jwt, &demand, &expires_s, &status))
        ASSERT(expires_s > demand.now_s);
}

static void look_at_base64(struct bytes text)
{
    uint8_t decoded[1024];
    uint8_t again[1024];
    char encoded[BASE64_ENCODED_BYTES(sizeof(decoded))];
    size_t length;
    size_t again_length;
    if (!base64_decode(text, decoded, sizeof(decoded), &length))
        return;
    base64_encode(bytes_of(decoded, length), encoded);
    ASSERT(base64_decode(bytes_of_string(encoded), again, sizeof(again), &again_length));
    ASSERT(bytes_equal(bytes_of(decoded, length), bytes_of(again, again_length)));
}

static void look_at_http(struct bytes text)
{
    struct http_path path;
    struct status status;
    bool found;
    uint64_t first;
    uint64_t last;
    if (http_path_parse(text, &path, &found, &status) && found)
        ASSERT(path.digest.hash_length == SHA256_HASH_BYTES && path.instance.length <= text.length);
    for (uint64_t size = 0; size < 3; size++)
        if (http_range_parse(text, size, &first, &last) == HTTP_RANGE_PART)
            ASSERT(first <= last && last < size);
    (void)http_list_accepts(text, "zstd");
    (void)http_key_is_valid(text);
    (void)http_length_parse(text, &first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* In memory of its own length, so that a step too far is seen. */
    uint8_t *const copy = malloc(size > 0 ? size : 1);
    struct authorization authorization;
    struct status status;
    ASSERT(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    const struct bytes text = bytes_of(copy, size);
    if (authorization_parse(text, &authorization, &status)) {
        if (authorization.scheme == AUTHORIZATION_BEARER)
            look_at_jwt(authorization.token);
        else
            ASSERT(authorization.user[0] != '\0');
    } else {
        ASSERT(status.code == STATUS_UNAUTHENTICATED);
    }
    look_at_jwt(text);
    look_at_json(text);
    look_at_base64(text);
    look_at_http(text);
    free(copy);
    return 0;
}
