/* SPDX-License-Identifier: Apache-2.0 */
#include "server/address.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool split(const char *text,
                  char host[ADDRESS_HOST_BYTES_MAX],
                  char port[8],
                  struct status *status);
static bool resolve(const char *text, struct addrinfo **found, struct status *status);
static int open_socket(const struct addrinfo *address, int backlog, int *error);
static int bound_port(int fd);

bool address_is_local(const char *text)
{
    return strncmp(text, "unix:", 5) == 0 || strncmp(text, "unix-abstract:", 14) == 0;
}

bool address_is_loopback(const char *text)
{
    char host[ADDRESS_HOST_BYTES_MAX];
    char port[8];
    struct status ignored;
    struct in_addr four;
    struct in6_addr six;
    if (address_is_local(text))
        return true;
    if (!split(text, host, port, &ignored))
        return false;
    if (inet_pton(AF_INET, host, &four) == 1)
        return ntohl(four.s_addr) >> 24 == IN_LOOPBACKNET;
    if (inet_pton(AF_INET6, host, &six) == 1)
        return IN6_IS_ADDR_LOOPBACK(&six);
    return strcmp(host, "localhost") == 0;
}

bool address_check(const char *text, struct status *status)
{
    if (address_is_local(text)) {
        if (strchr(text, ':')[1] == '\0')
            return status_fail(status, STATUS_INVALID_ARGUMENT, "there is no name behind \"%s\"",
                               text);
        return true;
    }
    char host[ADDRESS_HOST_BYTES_MAX];
    char port[8];
    return split(text, host, port, status);
}

/* host is empty for ":PORT", and without brackets. */
static bool split(const char *text,
                  char host[ADDRESS_HOST_BYTES_MAX],
                  char port[8],
                  struct status *status)
{
    const char *const colon = strrchr(text, ':');
    if (colon == NULL)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "\"%s\" has no port: HOST:PORT is wanted", text);

    const size_t digits = strspn(colon + 1, "0123456789");
    unsigned int number = 65536;
    if (digits > 0 && digits <= 5 && colon[1 + digits] == '\0') {
        number = 0;
        for (size_t i = 0; i < digits; i++)
            number = number * 10 + (unsigned int)(colon[1 + i] - '0');
    }
    if (number > 65535)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "\"%s\" does not end in a port from 0 to 65535", text);
    snprintf(port, 8, "%u", number);

    const char *start = text;
    size_t length = (size_t)(colon - text);
    const bool bracketed = length >= 2 && text[0] == '[' && colon[-1] == ']';
    if (bracketed) {
        start++;
        length -= 2;
    } else if (memchr(text, ':', length) != NULL || memchr(text, '[', length) != NULL) {
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "\"%s\": an IPv6 address stands in brackets, as [::1]:8980", text);
    }
    if (length >= ADDRESS_HOST_BYTES_MAX)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "the host of \"%s\" is longer than %d bytes", text,
                           ADDRESS_HOST_BYTES_MAX - 1);
    memcpy(host, start, length);
    host[length] = '\0';
    return true;
}

bool address_check_host(const char *text, struct status *status)
{
    if (address_is_local(text))
        return true;
    struct addrinfo *found;
    if (!resolve(text, &found, status))
        return false;
    freeaddrinfo(found);
    return true;
}

static bool resolve(const char *text, struct addrinfo **found, struct status *status)
{
    char host[ADDRESS_HOST_BYTES_MAX];
    char port[8];
    if (!split(text, host, port, status))
        return false;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    const int error = getaddrinfo(host[0] == '\0' ? NULL : host, port, &hints, found);
    if (error != 0)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "the host of \"%s\" is not known: %s",
                           text, gai_strerror(error));
    return true;
}

bool address_listen(const char *text, int backlog, int *fd, int *port, struct status *status)
{
    struct addrinfo *found;
    if (!resolve(text, &found, status))
        return false;

    /* For ":PORT" [::] is the one to take: it answers IPv4 too. */
    int opened = -1;
    int error = 0;
    for (int pass = 0; pass < 2 && opened < 0; pass++)
        for (const struct addrinfo *at = found; at != NULL && opened < 0; at = at->ai_next)
            if ((at->ai_family == AF_INET6) == (pass == 0))
                opened = open_socket(at, backlog, &error);
    freeaddrinfo(found);
    if (opened < 0) {
        status_fail_errno(status, error, "cannot listen on %s", text);
        status->code = STATUS_UNAVAILABLE;
        return false;
    }
    *fd = opened;
    *port = bound_port(opened);
    return true;
}

static int open_socket(const struct addrinfo *address, int backlog, int *error)
{
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        *error = errno;
        return -1;
    }
    const int yes = 1;
    const int no = 0;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
        (address->ai_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)) != 0) ||
        bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, backlog) != 0) {
        *error = errno;
        close(fd);
        return -1;
    }
    return fd;
}

/* The port lies at the same place in addresses of both families. */
static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port),
              "the port of either family can be read as IPv6's");

static int bound_port(int fd)
{
    struct sockaddr_in6 address = {0};
    socklen_t length = sizeof(address);
    if (getsockname(fd, (struct sockaddr *)(void *)&address, &length) != 0)
        return 0;
    return ntohs(address.sin6_port);
}

uint64_t address_of_peer(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof(address);
    if (getpeername(fd, (struct sockaddr *)(void *)&address, &length) != 0)
        return 0;
    if (address.ss_family == AF_INET) {
        const struct sockaddr_in *const four = (const void *)&address;
        return UINT64_C(1) << 32 | four->sin_addr.s_addr;
    }
    if (address.ss_family != AF_INET6)
        return 0;
    const struct sockaddr_in6 *const six = (const void *)&address;
    uint64_t network;
    uint32_t four;
    memcpy(&network, six->sin6_addr.s6_addr, sizeof(network));
    memcpy(&four, six->sin6_addr.s6_addr + 12, sizeof(four));
    return IN6_IS_ADDR_V4MAPPED(&six->sin6_addr) ? UINT64_C(1) << 32 | four : network | 1;
}

bool address_explain_bind_failure(const char *text, struct status *status)
{
    int fd;
    int port;
    if (address_is_local(text))
        return status_fail(status, STATUS_UNAVAILABLE,
                           "cannot listen on %s: does its directory exist, and may we write there?",
                           text);
    if (!address_listen(text, 1, &fd, &port, status))
        return false;
    close(fd);
    return status_fail(status, STATUS_UNAVAILABLE,
                       "cannot listen on %s: gRPC refuses it, its log lines say why", text);
}
