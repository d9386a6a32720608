/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptors of our .proto files and what they import, as protoc wrote them at build time:
 * which file has a name, and which file a symbol stands in. Looked through at each question; there
 * are some fifteen files, and people ask.
 */
#ifndef VARVE_SERVER_SCHEMA_H
#define VARVE_SERVER_SCHEMA_H

#include "base/bytes.h"
#include "base/compiler.h"

enum { SCHEMA_FILES_MAX = 64 };

/* Encoded FileDescriptorProtos; static storage. */
struct schema_files {
    struct bytes files[SCHEMA_FILES_MAX];
    size_t count;
};

/*
 * The file of this name and all that it imports, directly or not, each once, itself first. count 0:
 * there is none.
 */
void schema_of_file(struct bytes name, struct schema_files *found);

/*
 * The same for the file in which a symbol stands: "package.Service", "package.Service.Method",
 * "package.Message", "package.Message.Nested", "package.Message.field", "package.Enum",
 * "package.Enum.VALUE".
 */
void schema_of_symbol(struct bytes symbol, struct schema_files *found);

#endif
