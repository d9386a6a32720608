/* SPDX-License-Identifier: Apache-2.0 */
#include "server/writer.h"

#include <assert.h>
#include <string.h>

#include "server/access.h"

enum { TOOL_BYTES_MAX = 256, ESCAPE_BYTES = 3 };

static const char user_word[] = "user:";

/* What is being put together: never more than it has room for. */
struct text {
    char *to;
    size_t length;
};

static void add(struct text *text, struct bytes bytes);
static void add_word(struct text *text, const char *word, size_t bytes_max, bool is_name);
static struct bytes name_of(struct bytes word, char name[WRITER_BYTES_MAX]);
static struct bytes without_port(struct bytes address);

size_t writer_put(char to[WRITER_BYTES_MAX],
                  struct bytes tool,
                  const struct access_caller *caller,
                  const char *address)
{
    enum { NAME_MAX_BYTES = ESCAPE_BYTES * ACCESS_NAME_BYTES_MAX, ADDRESS_BYTES_MAX = 64 };
    static_assert(sizeof(user_word) + NAME_MAX_BYTES + 1 + ADDRESS_BYTES_MAX < WRITER_BYTES_MAX,
                  "there is room for the longest name");
    char word[sizeof(user_word) + NAME_MAX_BYTES + 1 + ADDRESS_BYTES_MAX];
    struct text rest = {.to = word};
    /* A tool that calls itself a user is none: then it is said that there is no user. */
    if (caller->known || (tool.length > 0 && memmem(tool.data, tool.length, user_word,
                                                    sizeof(user_word) - 1) != NULL)) {
        add(&rest, bytes_of_string(user_word));
        add_word(&rest, caller->known ? caller->user : "", NAME_MAX_BYTES, true);
        add(&rest, bytes_of_string(" "));
    }
    add_word(&rest, address, ADDRESS_BYTES_MAX, false);

    const size_t room = WRITER_BYTES_MAX - 2 - rest.length;
    const size_t tool_bytes_max = room < TOOL_BYTES_MAX ? room : TOOL_BYTES_MAX;
    if (tool.length > tool_bytes_max)
        tool.length = tool_bytes_max;
    tool.length = bytes_utf8_prefix(tool);
    struct text text = {.to = to};
    add(&text, tool);
    if (tool.length > 0)
        add(&text, bytes_of_string(" "));
    add(&text, bytes_of(rest.to, rest.length));
    ASSERT(text.length > 0 && text.length < WRITER_BYTES_MAX);
    to[text.length] = '\0';
    return text.length;
}

static void add(struct text *text, struct bytes bytes)
{
    if (bytes.length > 0)
        memcpy(text->to + text->length, bytes.data, bytes.length);
    text->length += bytes.length;
}

/* What would end the word, or the line, is escaped, and it is cut between such. Addresses have a % where gRPC has escaped them. */
static void add_word(struct text *text, const char *word, size_t bytes_max, bool is_name)
{
    static const char hex[] = "0123456789ABCDEF";
    const size_t end = text->length + bytes_max;
    for (const char *at = word; *at != '\0'; at++) {
        const uint8_t byte = (uint8_t)*at;
        const bool escape = byte <= ' ' || byte == 0x7f || (byte == '%' && is_name);
        const char escaped[ESCAPE_BYTES] = {'%', hex[byte >> 4], hex[byte & 0xf]};
        const struct bytes put = escape ? bytes_of(escaped, ESCAPE_BYTES) : bytes_of(at, 1);
        if (end - text->length < put.length)
            break;
        add(text, put);
    }
}

void writer_parse(struct bytes text, struct writer *writer)
{
    const size_t mark_bytes = sizeof(user_word) - 1;
    *writer = (struct writer){0};
    size_t word = text.length;
    while (word > 0 && text.data[word - 1] != ' ')
        word--;
    writer->address = bytes_of(text.data + word, text.length - word);
    const size_t rest = word > 0 ? word - 1 : 0;
    writer->tool = bytes_of(text.data, rest);
    /* The last word that begins so: a tool may have it in its name, too. */
    for (size_t at = rest; at-- > 0;) {
        if ((at > 0 && text.data[at - 1] != ' ') || rest - at < mark_bytes ||
            memcmp(text.data + at, user_word, mark_bytes) != 0)
            continue;
        writer->user =
            name_of(bytes_of(text.data + at + mark_bytes, rest - at - mark_bytes), writer->name);
        writer->tool.length = at > 0 ? at - 1 : 0;
        break;
    }
}

static int hex_digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    return byte >= 'A' && byte <= 'F' ? byte - 'A' + 10 : -1;
}

/* Of an older store, or of somebody else's, a name may have a % that is none of ours, and be longer: then it stays. */
static struct bytes name_of(struct bytes word, char name[WRITER_BYTES_MAX])
{
    size_t length = 0;
    if (word.length > WRITER_BYTES_MAX)
        return word;
    for (size_t at = 0; at < word.length; at++) {
        const bool room = word.data[at] == '%' && word.length - at >= ESCAPE_BYTES;
        const int high = room ? hex_digit(word.data[at + 1]) : -1;
        const int low = room ? hex_digit(word.data[at + 2]) : -1;
        const bool escaped = high >= 0 && low >= 0;
        name[length++] = (char)(escaped ? high << 4 | low : word.data[at]);
        at += escaped ? ESCAPE_BYTES - 1 : 0;
    }
    return bytes_of(name, length);
}

bool writer_matches(struct bytes text, struct bytes wanted)
{
    const size_t mark_bytes = sizeof(user_word) - 1;
    if (wanted.length == 0 || bytes_equal(text, wanted))
        return true;
    struct writer writer;
    writer_parse(text, &writer);
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
