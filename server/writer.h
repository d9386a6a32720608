/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has written an action result, as text that is stored with it: words with a blank between them.
 *
 *   [TOOL] [user:NAME] ADDRESS          bazel user:ci ipv4:10.0.0.7:51034
 *
 * TOOL is what the client calls itself, and "http" for one that came by HTTP; it may have blanks in it. NAME is whom it has shown to
 * be, and one word: of its bytes blanks, control characters and % are written as in a URL (%20), so that nobody whose name has user:
 * in it is taken for another. ADDRESS is one word likewise. NAME is empty for nobody whose TOOL has user: in it. Older stores have a
 * NAME with blanks, or without user: in some texts, which then counts as a tool.
 */
#ifndef VARVE_SERVER_WRITER_H
#define VARVE_SERVER_WRITER_H

#include "base/bytes.h"

enum { WRITER_BYTES_MAX = 512 };

struct access_caller;

/*
 * A tool is cut where there is no room for the others. tool may be empty. The length of the text; it ends with a NUL that does not
 * count.
 */
size_t writer_put(char to[WRITER_BYTES_MAX],
                  struct bytes tool,
                  const struct access_caller *caller,
                  const char *address);

/* Point into text, and user into name; what is not there is empty. Any text has an address: its last word. Not to be copied. */
struct writer {
    struct bytes tool, user, address;
    char name[WRITER_BYTES_MAX];
};
void writer_parse(struct bytes text, struct writer *writer);

/*
 * Is it meant by `wanted`: all of the text, the tool, "user:NAME" as the user is called, or the address with or without its port?
 * Empty is anyone.
 */
bool writer_matches(struct bytes text, struct bytes wanted);

#endif
