/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses to listen on: HOST:PORT, [IPV6]:PORT, :PORT (every address of the machine), unix:PATH,
 * unix-abstract:NAME.
 */
#ifndef VARVE_SERVER_ADDRESS_H
#define VARVE_SERVER_ADDRESS_H

#include "base/status.h"

enum { ADDRESS_HOST_BYTES_MAX = 256 };

/* Is it written like one? INVALID_ARGUMENT saying what is wrong with it. */
MUST_CHECK bool address_check(const char *text, struct status *status);
bool address_is_local(const char *text); /* unix:, unix-abstract: */
/* Only this machine can reach it: local sockets, 127.0.0.0/8, ::1, localhost. */
bool address_is_loopback(const char *text);

/* Does its host resolve? Those of local sockets always do. INVALID_ARGUMENT. */
MUST_CHECK bool address_check_host(const char *text, struct status *status);

/*
 * A listening TCP socket, close-on-exec, not blocking; *port is what was bound. UNAVAILABLE naming
 * the address and why.
 */
MUST_CHECK bool address_listen(const char *text,
                               int backlog,
                               int *fd,
                               int *port,
                               struct status *status);

/* Where a connected socket comes from: an address of IPv4, a network (/64) of IPv6. 0: none that one can tell from others. */
uint64_t address_of_peer(int fd);

/*
 * Somebody else's attempt to bind it has failed without a reason: sets UNAVAILABLE with what a bind
 * of our own says. Returns false.
 */
bool address_explain_bind_failure(const char *text, struct status *status);

#endif
