/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/jwt.h"

#include "proto/base64.h"

static bool parse_header(struct bytes text, struct jwt *jwt, struct status *status);
static bool has_audience(const struct json_value *claims, const char *audience);

bool jwt_looks_like_one(struct bytes token)
{
    size_t dots = 0;
    for (size_t i = 0; i < token.length; i++)
        dots += token.data[i] == '.';
    return dots == 2;
}

bool jwt_parse(struct bytes token, struct jwt *jwt, struct status *status)
{
    if (token.length > JWT_BYTES_MAX)
        return status_fail(status, STATUS_UNAUTHENTICATED,
                           "the token has %zu bytes, %d is the most", token.length, JWT_BYTES_MAX);
    if (!jwt_looks_like_one(token))
        return status_fail(status, STATUS_UNAUTHENTICATED, "the token is no JWT");
    const uint8_t *const first = memchr(token.data, '.', token.length);
    const size_t header_end = (size_t)(first - token.data);
    const uint8_t *const second = memchr(first + 1, '.', token.length - header_end - 1);
    const size_t payload_end = (size_t)(second - token.data);
    const struct bytes payload =
        bytes_of(token.data + header_end + 1, payload_end - header_end - 1);
    const struct bytes signature =
        bytes_of(token.data + payload_end + 1, token.length - payload_end - 1);
    size_t payload_bytes;
    jwt->signed_text = bytes_of(token.data, payload_end);
    if (!parse_header(bytes_of(token.data, header_end), jwt, status))
        return false;
    if (!base64_decode(signature, jwt->signature, sizeof(jwt->signature), &jwt->signature_bytes) ||
        !base64_decode(payload, jwt->payload, sizeof(jwt->payload), &payload_bytes) ||
        !json_parse(bytes_of(jwt->payload, payload_bytes), &jwt->claims) ||
        jwt->claims.kind != JSON_OBJECT)
        return status_fail(status, STATUS_UNAUTHENTICATED,
                           "the token is no JWT: its claims or its signature cannot be read");
    return true;
}

static bool parse_header(struct bytes text, struct jwt *jwt, struct status *status)
{
    static const struct {
        const char *name;
        enum jwt_algorithm algorithm;
    } algorithms[] = {{"RS256", JWT_RS256}, {"ES256", JWT_ES256}, {"EdDSA", JWT_EDDSA}};
    size_t length;
    struct json_value header;
    struct json_value member;
    /* The payload's memory is still free. */
    if (!base64_decode(text, jwt->payload, sizeof(jwt->payload), &length) ||
        !json_parse(bytes_of(jwt->payload, length), &header) || header.kind != JSON_OBJECT)
        return status_fail(status, STATUS_UNAUTHENTICATED,
                           "the token is no JWT: its header cannot be read");
    if (json_member(&header, "crit", &member))
        return status_fail(status, STATUS_UNAUTHENTICATED,
                           "the token has critical extensions, which are not understood");
    if (json_member(&header, "alg", &member)) {
        for (size_t i = 0; i < ARRAY_LENGTH(algorithms); i++) {
            if (json_text_is(&member, algorithms[i].name)) {
                jwt->algorithm = algorithms[i].algorithm;
                return true;
            }
        }
    }
    return status_fail(status, STATUS_UNAUTHENTICATED,
                       "the token is not signed by RS256, ES256 or EdDSA");
}

bool jwt_check(const struct jwt *jwt,
               const struct jwt_demand *demand,
               int64_t *expires_s,
               struct status *status)
{
    struct json_value member;
    int64_t seconds = 0;
    if (!json_member(&jwt->claims, "iss", &member) || !json_text_is(&member, demand->issuer))
        return status_fail(status, STATUS_UNAUTHENTICATED, "the token is of another issuer");
    if (!has_audience(&jwt->claims, demand->audience))
        return status_fail(status, STATUS_UNAUTHENTICATED, "the token is for another audience");
    if (!json_member(&jwt->claims, "exp", &member) || !json_whole_number(&member, &seconds))
        return status_fail(status, STATUS_UNAUTHENTICATED,
                           "the token does not say when it expires (exp)");
    *expires_s = seconds + demand->leeway_s;
    if (demand->now_s >= *expires_s)
        return status_fail(status, STATUS_UNAUTHENTICATED, "the token has expired");
    if (json_member(&jwt->claims, "nbf", &member) &&
        (!json_whole_number(&member, &seconds) || demand->now_s < seconds - demand->leeway_s))
        return status_fail(status, STATUS_UNAUTHENTICATED, "the token is not valid yet (nbf)");
    return true;
}

static bool has_audience(const struct json_value *claims, const char *audience)
{
    struct json_value member;
    struct json_value element;
    size_t at = 0;
    if (!json_member(claims, "aud", &member))
        return false;
    if (json_text_is(&member, audience))
        return true;
    while (json_element(&member, &at, &element))
        if (json_text_is(&element, audience))
            return true;
    return false;
}
