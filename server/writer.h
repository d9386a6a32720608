/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has written an action result, as text that is stored with it: words with a blank between them.
 *
 *   [TOOL] [user:NAME] ADDRESS          bazel user:ci ipv4:10.0.0.7:51034
 *
 * TOOL is what the client calls itself, and "http" for one that came by HTTP; NAME is whom it has shown to be, and may have blanks in
 * it like TOOL; ADDRESS has none. NAME is empty for nobody whose TOOL has user: in it. Older stores have a NAME without user: in
 * some texts, which then counts as a tool.
 */
#ifndef VARVE_SERVER_WRITER_H
#define VARVE_SERVER_WRITER_H

#include "base/bytes.h"

enum { WRITER_BYTES_MAX = 512 };

struct access_caller;

/* Longer tools are cut. tool may be empty. The length of the text; it ends with a NUL that does not count. */
size_t writer_put(char to[WRITER_BYTES_MAX],
                  struct bytes tool,
                  const struct access_caller *caller,
                  const char *address);

/* Point into text; what is not there is empty. Any text has an address: its last word. */
struct writer {
    struct bytes tool, user, address;
};
struct writer writer_parse(struct bytes text);

/*
 * Is it meant by `wanted`: all of the text, the tool, "user:NAME", or the address with or without its port? Empty is anyone.
 */
bool writer_matches(struct bytes text, struct bytes wanted);

#endif
