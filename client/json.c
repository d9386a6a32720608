/* SPDX-License-Identifier: Apache-2.0 */
#include "client/json.h"

static void put_key(struct json *json, const char *key);
static void put_text(struct json *json, const char *text);
static void descend(struct json *json, const char *key, char bracket);
static void ascend(struct json *json, char bracket);

void json_init(struct json *json, FILE *to)
{
    *json = (struct json){.to = to};
}

void json_open_object(struct json *json, const char *key)
{
    descend(json, key, '{');
}

void json_close_object(struct json *json)
{
    ascend(json, '}');
}

void json_open_array(struct json *json, const char *key)
{
    descend(json, key, '[');
}

void json_close_array(struct json *json)
{
    ascend(json, ']');
}

static void descend(struct json *json, const char *key, char bracket)
{
    put_key(json, key);
    fputc(bracket, json->to);
    json->depth++;
    ASSERT(json->depth < JSON_LEVELS_MAX);
    json->has_members[json->depth] = false;
}

static void ascend(struct json *json, char bracket)
{
    ASSERT(json->depth > 0);
    json->depth--;
    fputc(bracket, json->to);
}

void json_string(struct json *json, const char *key, const char *value)
{
    put_key(json, key);
    put_text(json, value);
}

void json_integer(struct json *json, const char *key, int64_t value)
{
    put_key(json, key);
    fprintf(json->to, "%" PRId64, value);
}

void json_unsigned(struct json *json, const char *key, uint64_t value)
{
    put_key(json, key);
    fprintf(json->to, "%" PRIu64, value);
}

void json_real(struct json *json, const char *key, double value)
{
    put_key(json, key);
    fprintf(json->to, "%.6g", value);
}

void json_bool(struct json *json, const char *key, bool value)
{
    put_key(json, key);
    fputs(value ? "true" : "false", json->to);
}

void json_null(struct json *json, const char *key)
{
    put_key(json, key);
    fputs("null", json->to);
}

void json_digest(struct json *json, const char *key, const struct digest *digest)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    json_open_object(json, key);
    json_string(json, "hash", digest_hex(digest, hex));
    json_integer(json, "size_bytes", digest->size_bytes);
    json_close_object(json);
}

void json_end(struct json *json)
{
    ASSERT(json->depth == 0);
    fputc('\n', json->to);
}

static void put_key(struct json *json, const char *key)
{
    if (json->has_members[json->depth])
        fputc(',', json->to);
    json->has_members[json->depth] = true;
    if (key != NULL) {
        put_text(json, key);
        fputc(':', json->to);
    }
}

static void put_text(struct json *json, const char *text)
{
    fputc('"', json->to);
    const uint8_t *at = (const uint8_t *)text;
    for (size_t left = strlen(text); left > 0;) {
        size_t length = 1;
        if (at[0] == '"' || at[0] == '\\') {
            fprintf(json->to, "\\%c", at[0]);
        } else if (at[0] < 0x20 || at[0] == 0x7f) {
            fprintf(json->to, "\\u%04x", at[0]);
        } else if (at[0] < 0x80) {
            fputc(at[0], json->to);
        } else {
            while (length <= 4 && length <= left && !bytes_is_utf8(bytes_of(at, length)))
                length++;
            const bool good = length <= 4 && length <= left;
            length = good ? length : 1;
            if (good)
                fwrite(at, 1, length, json->to);
            else
                fputs("\\ufffd", json->to);
        }
        at += length;
        left -= length;
    }
    fputc('"', json->to);
}
