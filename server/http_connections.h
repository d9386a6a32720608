/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections of HTTP and who of them may ask something of the cache. Those who send nothing, or next to nothing, hold off
 * nobody:
 *
 *   - there may be a quarter more connections than requests, so that pages such as /healthz are answered whatever happens in the cache;
 *   - when there are more than that, the one that has been idle for longest is closed;
 *   - when requests have to wait for others, those that have moved less than HTTP_SLOW_BYTES_PER_S for HTTP_PATIENCE_NS are closed;
 *   - one address has its part of the requests, of those that wait, and of the connections; its own wait, or give way, when it wants more;
 *   - who has not sent a whole head of a request within the idle time is closed, however it trickles.
 *
 *            open()             enter()                       a request is over
 *   (none) ─────────► idle ◄───────────────► waiting ─────────────────────────► busy
 *                       ▲   WAIT_MAX_NS over              leave()                │
 *                       └────────────────────────────────────────────────────────┘
 *
 * A connection is closed by shutting its socket down, which the library's thread sees.
 */
#ifndef VARVE_SERVER_HTTP_CONNECTIONS_H
#define VARVE_SERVER_HTTP_CONNECTIONS_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/metrics.h"
#include "base/status.h"

#define HTTP_PATIENCE_NS (10 * NS_PER_S)
#define HTTP_SLOW_BYTES_PER_S (16 * KIB)
/* So long a request waits for its turn. */
#define HTTP_WAIT_MAX_NS (15 * NS_PER_S)

struct http_connections;
struct http_connection;

/*
 * requests_max: of the cache, at once. address_requests_max: of those from one address; 0: half. Of the connections, and of the
 * requests that wait, an address has the same part. idle_ns: how long a connection may be without a request.
 */
MUST_CHECK bool http_connections_new(uint64_t requests_max,
                                     uint64_t address_requests_max,
                                     int64_t idle_ns,
                                     struct clock *clock,
                                     struct metrics *metrics,
                                     struct http_connections **all,
                                     struct status *status);
void http_connections_free(struct http_connections *all); /* asserts that none is left */
/* How many there may be, above which some are closed. */
uint64_t http_connections_max(const struct http_connections *all);
/* From time to time, by any thread. */
void http_connections_step(struct http_connections *all);

/*
 * fd: borrowed until http_connection_close(), which comes before it is closed. address: of address_of_peer(); 0: it has no bound.
 * NULL without memory.
 */
struct http_connection *http_connection_open(struct http_connections *all,
                                             int fd,
                                             uint64_t address);
void http_connection_close(struct http_connection *connection);

/*
 * A request of the cache begins. WAIT: wake(argument) is called, with a lock held, and then it is asked again. NO_ROOM: too many
 * wait, or it has waited for too long. A connection has one request at a time.
 */
enum http_entrance { HTTP_ENTERED, HTTP_WAIT_FOR_TURN, HTTP_NO_ROOM };
enum http_entrance http_connection_enter(struct http_connection *connection,
                                         void (*wake)(void *argument),
                                         void *argument);
/* It is over, entered or not; wake() is not called any more. */
void http_connection_leave(struct http_connection *connection);

/* So many bytes of a body have come or gone. Any thread. */
void http_connection_moved(struct http_connection *connection, size_t bytes);
/* It waits for us, not for its client: it is not closed meanwhile. Any thread. */
void http_connection_hold(struct http_connection *connection, bool held);

#endif
