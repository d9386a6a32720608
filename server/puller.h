/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows the log of one peer: what became durable there and is missing here is fetched, verified, and appended by the ordinary lanes.
 * A thread of its own, with an event loop; per lane:
 *
 *   Feed(after) ──► page ──► what is missing of it ──► fetched (server/fetcher.h) ──► durable here ──► applied
 *
 * The next page is asked for while the ones before become durable. At the end of the log the puller waits until everything is, and
 * then asks with the new position, which is how the peer learns what is safe here. How far it is, is stored once a second, and
 * only what is durable here counts (server/peer_cursor.h).
 *
 *   From        To          On
 *   PAUSING     GREETING    the pause is over
 *   GREETING    FOLLOWING   the peer says whose store it is
 *   FOLLOWING   DRAINING    a failure of the peer's or of our own store; a lie; it must begin anew
 *   GREETING    DRAINING    likewise
 *   DRAINING    PAUSING     nothing is in flight any more
 *   any         (ended)     puller_stop(), and nothing is in flight any more
 *
 * A peer that sends what cannot be, or is not what it says, is named in one line of the log, and left alone for a while; nothing of
 * what was wrong is stored. A pause after any other failure doubles, with jitter. An entry is looked at once: what is evicted here
 * later is not fetched again until the puller has to begin anew.
 */
#ifndef VARVE_SERVER_PULLER_H
#define VARVE_SERVER_PULLER_H

#include "server/fetcher.h"

struct puller;
struct peer_identity;

struct puller_config {
    const char *address;           /* copied */
    const char *name;              /* what the peer calls us; copied */
    const char *instance;          /* that the peer serves blobs under; copied */
    struct durability *durability; /* borrowed, as all pointers below */
    struct flights *flights;
    struct fetch_budget *budget;
    struct metrics *metrics;
    const struct peer_identity *identity; /* NULL: nobody */
    int64_t lie_pause_ns;                 /* how long a liar is left alone; 0: a minute */
    uint32_t page_records;                /* asked for at once; 0: what is right */
};

/* Connects in its own time. */
MUST_CHECK bool puller_start(const struct puller_config *config,
                             struct puller **puller,
                             struct status *status);
/* Waits for what is being committed, never for the peer. Stores how far it came. NULL is fine. */
void puller_stop(struct puller *puller);
/* The same in two steps, so that several stop together: this does not wait. */
void puller_ask_to_stop(struct puller *puller);

/* The numbers are those of varve.v1.Peer.State. */
enum peer_state {
    PEER_CONNECTING = 1,
    PEER_CATCHING_UP = 2,
    PEER_UP_TO_DATE = 3,
    PEER_REFUSED = 4,
};

enum { PEER_ADDRESS_BYTES_MAX = 1024 };

/* A plain value. */
struct peer_report {
    char address[PEER_ADDRESS_BYTES_MAX];
    uint64_t uid; /* 0: not known yet */
    enum peer_state state;
    struct {
        uint64_t applied_seq, durable_seq, behind_records, behind_bytes;
        double behind_seconds;
    } lanes[LANE_COUNT];
    struct status last_error; /* OK: none since it was connected */
    uint64_t blobs_fetched, bytes_fetched;
};
/* Any thread. */
void puller_report(struct puller *puller, struct peer_report *report);
/* Not up to date, and not refused. Any thread. */
bool puller_is_behind(struct puller *puller);

#endif
