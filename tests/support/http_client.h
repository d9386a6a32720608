/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP client for tests, on a bare socket: what is sent is up to the test, byte for byte. One thread at a time. Failures of the
 * network abort; a connection that the server closes does not.
 */
#ifndef VARVE_TESTS_SUPPORT_HTTP_CLIENT_H
#define VARVE_TESTS_SUPPORT_HTTP_CLIENT_H

#include <stdbool.h>

#include "base/bytes.h"

struct http_answer {
    int code;  /* 0: none came */
    char *all; /* owned: head and body, with a NUL behind */
    size_t length;
    struct bytes body; /* in `all`; chunks put together */
};

int http_connect(int port); /* a socket */
void http_send(int fd, struct bytes data);
void http_send_text(int fd, const char *text);

/*
 * Reads one answer, with its body (none after a HEAD), and leaves what follows it. Waits up to 30 s for each byte.
 */
void http_receive(int fd, bool is_head, struct http_answer *answer);
void http_answer_free(struct http_answer *answer);
/* The value of a header as a string that lasts until the next call, or NULL. */
const char *http_answer_header(const struct http_answer *answer, const char *name);

/* A whole request on a connection of its own. headers: lines that end in \r\n, or "". */
void http_ask(int port,
              const char *method,
              const char *path,
              const char *headers,
              struct bytes body,
              struct http_answer *answer);

#endif
