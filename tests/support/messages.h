/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoded messages made by hand, field by field, so that tests can also make wrong ones. Memory
 * failure aborts.
 */
#ifndef VARVE_TESTS_SUPPORT_MESSAGES_H
#define VARVE_TESTS_SUPPORT_MESSAGES_H

#include "base/digest.h"
#include "server/byte_builder.h"

static inline struct bytes message_bytes(const struct byte_builder *message)
{
    ASSERT(message->length == 0 || message->data != NULL);
    return bytes_of(message->data, message->length);
}

void message_add(struct byte_builder *message, uint32_t number, struct bytes bytes);
void message_add_text(struct byte_builder *message, uint32_t number, const char *text);
void message_add_number(struct byte_builder *message, uint32_t number, uint64_t value);
void message_add_digest(struct byte_builder *message, uint32_t number, const struct digest *digest);
/* A sub-message, which is emptied and freed. */
void message_add_message(struct byte_builder *message, uint32_t number, struct byte_builder *inner);

/* FileNode and DirectoryNode of a Directory. */
void directory_add_file(struct byte_builder *directory,
                        const char *name,
                        const struct digest *digest);
void directory_add_directory(struct byte_builder *directory,
                             const char *name,
                             const struct digest *digest);

/* OutputFile, OutputDirectory of an ActionResult; a NULL digest is left out. */
void result_add_file(struct byte_builder *result, const char *path, const struct digest *digest);
void result_add_directory(struct byte_builder *result,
                          const char *path,
                          const struct digest *tree,
                          const struct digest *root_directory);

/* A digest of something that nobody stores; different for each number. */
struct digest digest_of_nothing(uint64_t number);

#endif
