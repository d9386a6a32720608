/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/messages.h"

#include <stdio.h>

#include "proto/wire.h"

void message_add(struct byte_builder *message, uint32_t number, struct bytes bytes)
{
    uint8_t *const to = byte_builder_reserve(message, wire_bytes_field_size(number, bytes.length));
    ASSERT(to != NULL);
    message->length += (size_t)(wire_put_bytes_field(to, number, bytes) - to);
}

void message_add_text(struct byte_builder *message, uint32_t number, const char *text)
{
    message_add(message, number, bytes_of_string(text));
}

void message_add_number(struct byte_builder *message, uint32_t number, uint64_t value)
{
    uint8_t *const to = byte_builder_reserve(message, wire_varint_field_size(number, value));
    ASSERT(to != NULL);
    message->length += (size_t)(wire_put_varint_field(to, number, value) - to);
}

void message_add_digest(struct byte_builder *message, uint32_t number, const struct digest *digest)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    struct byte_builder inner = {0};
    message_add_text(&inner, 1, digest_hex(digest, hex));
    if (digest->size_bytes != 0)
        message_add_number(&inner, 2, (uint64_t)digest->size_bytes);
    message_add_message(message, number, &inner);
}

void message_add_message(struct byte_builder *message, uint32_t number, struct byte_builder *inner)
{
    message_add(message, number, message_bytes(inner));
    byte_builder_free(inner);
}

static void add_node(struct byte_builder *message,
                     uint32_t number,
                     const char *name,
                     const struct digest *digest)
{
    struct byte_builder node = {0};
    message_add_text(&node, 1, name);
    if (digest != NULL)
        message_add_digest(&node, 2, digest);
    message_add_message(message, number, &node);
}

void directory_add_file(struct byte_builder *directory,
                        const char *name,
                        const struct digest *digest)
{
    add_node(directory, 1, name, digest);
}

void directory_add_directory(struct byte_builder *directory,
                             const char *name,
                             const struct digest *digest)
{
    add_node(directory, 2, name, digest);
}

void result_add_file(struct byte_builder *result, const char *path, const struct digest *digest)
{
    add_node(result, 2, path, digest);
}

void result_add_directory(struct byte_builder *result,
                          const char *path,
                          const struct digest *tree,
                          const struct digest *root_directory)
{
    struct byte_builder directory = {0};
    message_add_text(&directory, 1, path);
    if (tree != NULL)
        message_add_digest(&directory, 3, tree);
    if (root_directory != NULL)
        message_add_digest(&directory, 5, root_directory);
    message_add_message(result, 3, &directory);
}

struct digest digest_of_nothing(uint64_t number)
{
    char text[64];
    struct digest digest;
    const int length =
        snprintf(text, sizeof(text), "nobody stores this, number %llu", (unsigned long long)number);
    ASSERT(length > 0 && (size_t)length < sizeof(text));
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of(text, (size_t)length), &digest);
    return digest;
}
