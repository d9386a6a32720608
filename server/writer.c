/* SPDX-License-Identifier: Apache-2.0 */
#include "server/writer.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/access.h"

enum { TOOL_BYTES_MAX = 256 };

static const char user_word[] = "user:";

static struct bytes without_port(struct bytes address);

size_t writer_put(char to[WRITER_BYTES_MAX],
                  struct bytes tool,
                  const struct access_caller *caller,
                  const char *address)
{
    static_assert(TOOL_BYTES_MAX + sizeof(user_word) + ACCESS_NAME_BYTES_MAX <
                      WRITER_BYTES_MAX - 64,
                  "there is room for an address");
    if (tool.length > TOOL_BYTES_MAX)
        tool.length = TOOL_BYTES_MAX;
    tool.length = bytes_utf8_prefix(tool);
    /* A tool that calls itself a user is none: then it is said that there is no user. */
    const bool has_user =
        caller->known || (tool.length > 0 &&
                          memmem(tool.data, tool.length, user_word, sizeof(user_word) - 1) != NULL);
    const int length = snprintf(to, WRITER_BYTES_MAX, "%.*s%s%s%s%s%s", (int)tool.length,
                                tool.length > 0 ? (const char *)tool.data : "",
                                tool.length > 0 ? " " : "", has_user ? user_word : "",
                                caller->known ? caller->user : "", has_user ? " " : "", address);
    ASSERT(length > 0);
    return strlen(to);
}

struct writer writer_parse(struct bytes text)
{
    const size_t mark_bytes = sizeof(user_word) - 1;
    struct writer writer = {0};
    size_t word = text.length;
    while (word > 0 && text.data[word - 1] != ' ')
        word--;
    writer.address = bytes_of(text.data + word, text.length - word);
    const size_t rest = word > 0 ? word - 1 : 0;
    writer.tool = bytes_of(text.data, rest);
    /* The last word that begins so: a tool may have it in its name, too. */
    for (size_t at = rest; at-- > 0;) {
        if ((at > 0 && text.data[at - 1] != ' ') || rest - at < mark_bytes ||
            memcmp(text.data + at, user_word, mark_bytes) != 0)
            continue;
        writer.user = bytes_of(text.data + at + mark_bytes, rest - at - mark_bytes);
        writer.tool.length = at > 0 ? at - 1 : 0;
        break;
    }
    return writer;
}

bool writer_matches(struct bytes text, struct bytes wanted)
{
    const size_t mark_bytes = sizeof(user_word) - 1;
    if (wanted.length == 0 || bytes_equal(text, wanted))
        return true;
    const struct writer writer = writer_parse(text);
    if (wanted.length > mark_bytes && memcmp(wanted.data, user_word, mark_bytes) == 0)
        return bytes_equal(writer.user,
                           bytes_of(wanted.data + mark_bytes, wanted.length - mark_bytes));
    return bytes_equal(writer.tool, wanted) || bytes_equal(writer.address, wanted) ||
           bytes_equal(without_port(writer.address), wanted);
}

/* "ipv4:10.0.0.7:51034", "ipv6:%5B::1%5D:51034", "unix:", "10.0.0.7". */
static struct bytes without_port(struct bytes address)
{
    size_t length = address.length;
    while (length > 0 && address.data[length - 1] >= '0' && address.data[length - 1] <= '9')
        length--;
    return length > 0 && length < address.length && address.data[length - 1] == ':'
               ? bytes_of(address.data, length - 1)
               : address;
}
