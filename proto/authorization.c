/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/authorization.h"

#include <strings.h>

#include "proto/base64.h"

static bool scheme_is(struct bytes value, const char *scheme, struct bytes *rest);
static bool parse_basic(struct bytes text,
                        struct authorization *authorization,
                        struct status *status);

bool authorization_parse(struct bytes value,
                         struct authorization *authorization,
                         struct status *status)
{
    struct bytes rest;
    memset(authorization, 0, sizeof(*authorization));
    if (value.length > AUTHORIZATION_BYTES_MAX)
        return status_fail(status, STATUS_UNAUTHENTICATED,
                           "the authorization has %zu bytes, %d is the most", value.length,
                           AUTHORIZATION_BYTES_MAX);
    if (scheme_is(value, "Basic", &rest))
        return parse_basic(rest, authorization, status);
    if (!scheme_is(value, "Bearer", &rest))
        return status_fail(status, STATUS_UNAUTHENTICATED,
                           "the authorization is malformed: \"Basic ...\" or \"Bearer ...\" is "
                           "wanted");
    authorization->scheme = AUTHORIZATION_BEARER;
    authorization->token = rest;
    for (size_t i = 0; i < rest.length; i++)
        if (rest.data[i] <= ' ' || rest.data[i] > '~')
            return status_fail(status, STATUS_UNAUTHENTICATED,
                               "the authorization is malformed: a bearer token has no such bytes");
    return true;
}

/* The scheme in letters of any case, one space or more, and something behind it. */
static bool scheme_is(struct bytes value, const char *scheme, struct bytes *rest)
{
    const size_t length = strlen(scheme);
    if (value.length <= length || strncasecmp((const char *)value.data, scheme, length) != 0 ||
        value.data[length] != ' ')
        return false;
    size_t start = length;
    while (start < value.length && value.data[start] == ' ')
        start++;
    size_t end = value.length;
    while (end > start && value.data[end - 1] == ' ')
        end--;
    *rest = bytes_of(value.data + start, end - start);
    return rest->length > 0;
}

static bool parse_basic(struct bytes text,
                        struct authorization *authorization,
                        struct status *status)
{
    uint8_t decoded[AUTHORIZATION_USER_BYTES_MAX + 1 + AUTHORIZATION_PASSWORD_BYTES_MAX];
    size_t length = 0;
    bool ok = base64_decode(text, decoded, sizeof(decoded), &length);
    const uint8_t *const colon = ok ? memchr(decoded, ':', length) : NULL;
    if (colon == NULL) {
        explicit_bzero(decoded, sizeof(decoded));
        return status_fail(status, STATUS_UNAUTHENTICATED,
                           "the authorization is malformed: behind Basic stands no base64 of "
                           "USER:PASSWORD");
    }
    const size_t user = (size_t)(colon - decoded);
    const size_t password = length - user - 1;
    ok = user > 0 && user <= AUTHORIZATION_USER_BYTES_MAX &&
         password <= AUTHORIZATION_PASSWORD_BYTES_MAX && memchr(decoded, '\0', length) == NULL &&
         bytes_is_utf8(bytes_of(decoded, user));
    if (ok) {
        authorization->scheme = AUTHORIZATION_BASIC;
        memcpy(authorization->user, decoded, user);
        memcpy(authorization->password, colon + 1, password);
    }
    explicit_bzero(decoded, sizeof(decoded));
    return ok ||
           status_fail(status, STATUS_UNAUTHENTICATED,
                       "the authorization is malformed: the user has 1 to %d bytes of UTF-8 and "
                       "the password at most %d",
                       AUTHORIZATION_USER_BYTES_MAX, AUTHORIZATION_PASSWORD_BYTES_MAX);
}
