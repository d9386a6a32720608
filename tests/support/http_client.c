/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/compiler.h"

enum { ANSWER_BYTES_MAX = 64 << 20, HEADER_BYTES_MAX = 1024, WAIT_SECONDS = 30 };

int http_connect(int port)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const struct timeval wait = {.tv_sec = WAIT_SECONDS};
    ASSERT(fd >= 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT(connect(fd, (struct sockaddr *)(void *)&address, sizeof(address)) == 0);
    ASSERT(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) == 0);
    return fd;
}

void http_send(int fd, struct bytes data)
{
    while (data.length > 0) {
        const ssize_t sent = send(fd, data.data, data.length, MSG_NOSIGNAL);
        if (sent <= 0)
            return; /* it has closed: the answer says why */
        data = bytes_of(data.data + sent, data.length - (size_t)sent);
    }
}

void http_send_text(int fd, const char *text)
{
    http_send(fd, bytes_of_string(text));
}

/* One byte at a time in the head, so that nothing of what follows is taken. */
static bool read_some(int fd, struct http_answer *answer, size_t length)
{
    answer->all = realloc(answer->all, answer->length + length + 1);
    ASSERT(answer->all != NULL && answer->length + length < ANSWER_BYTES_MAX);
    while (length > 0) {
        const ssize_t got = recv(fd, answer->all + answer->length, length, 0);
        if (got <= 0)
            break;
        answer->length += (size_t)got;
        length -= (size_t)got;
    }
    answer->all[answer->length] = '\0';
    return length == 0;
}

static bool read_line(int fd, struct http_answer *answer, size_t *start)
{
    *start = answer->length;
    while (read_some(fd, answer, 1))
        if (answer->all[answer->length - 1] == '\n')
            return true;
    return false;
}

static void read_chunks(int fd, struct http_answer *answer)
{
    const size_t body = answer->length;
    for (;;) {
        size_t line;
        if (!read_line(fd, answer, &line))
            break;
        const size_t length = strtoul(answer->all + line, NULL, 16);
        answer->length = line; /* the line is no part of the body */
        if (!read_some(fd, answer, length + 2)) {
            answer->code = 0; /* cut off */
            break;
        }
        answer->length -= 2;
        if (length == 0)
            break;
    }
    answer->all[answer->length] = '\0';
    answer->body = bytes_of(answer->all + body, answer->length - body);
}

void http_receive(int fd, bool is_head, struct http_answer *answer)
{
    size_t line;
    *answer = (struct http_answer){0};
    do {
        if (!read_line(fd, answer, &line))
            return;
    } while (strcmp(answer->all + line, "\r\n") != 0);
    answer->code = (int)strtol(answer->all + strlen("HTTP/1.1 "), NULL, 10);
    const char *const length = http_answer_header(answer, "Content-Length");
    const char *const coding = http_answer_header(answer, "Transfer-Encoding");
    const size_t body = answer->length;
    if (is_head || answer->code == 100 || answer->code == 204)
        return;
    if (coding != NULL && strcasecmp(coding, "chunked") == 0) {
        read_chunks(fd, answer);
        return;
    }
    const bool whole = read_some(fd, answer, length != NULL ? strtoul(length, NULL, 10) : 0);
    answer->body = bytes_of(answer->all + body, answer->length - body);
    if (!whole)
        answer->code = 0; /* cut off */
}

void http_answer_free(struct http_answer *answer)
{
    free(answer->all);
    *answer = (struct http_answer){0};
}

const char *http_answer_header(const struct http_answer *answer, const char *name)
{
    static char value[HEADER_BYTES_MAX];
    const size_t length = strlen(name);
    for (const char *at = strchr(answer->all, '\n'); at != NULL && at[1] != '\r';
         at = strchr(at + 1, '\n')) {
        if (strncasecmp(at + 1, name, length) != 0 || at[1 + length] != ':')
            continue;
        snprintf(value, sizeof(value), "%.*s", (int)strcspn(at + 3 + length, "\r"),
                 at + 3 + length);
        return value;
    }
    return NULL;
}

void http_ask(int port,
              const char *method,
              const char *path,
              const char *headers,
              struct bytes body,
              struct http_answer *answer)
{
    char head[8192];
    const int fd = http_connect(port);
    const int length =
        snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s", method,
                 path, headers);
    ASSERT(length > 0 && (size_t)length < sizeof(head) - 64);
    if (strcasestr(headers, "Content-Length:") == NULL &&
        strcasestr(headers, "Transfer-Encoding:") == NULL)
        snprintf(head + length, sizeof(head) - (size_t)length, "Content-Length: %zu\r\n",
                 body.length);
    http_send_text(fd, head);
    http_send_text(fd, "\r\n");
    http_send(fd, body);
    http_receive(fd, strcmp(method, "HEAD") == 0, answer);
    close(fd);
}
