/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes that this one follows, as configured: one puller each, and read repair for all of them. None is the usual case of a node
 * that stands alone.
 */
#ifndef VARVE_SERVER_PEERS_H
#define VARVE_SERVER_PEERS_H

#include "client/connection.h"
#include "server/puller.h"

struct peers;
struct repair;

enum { PEERS_MAX = 64 };

/* Bytes that all pullers together may have on their way. */
#define PEERS_FETCH_BYTES_MAX (64 * MIB)

/* Who we are to a peer. Paths of files, "": none; borrowed. */
struct peer_identity {
    /* PEM, where its address says grpcs://. */
    const char *certificate, *key; /* our own, for peers that ask for it */
    const char *ca;                /* who signs theirs; "": whom the system trusts */
    const char *token;             /* its first line is a bearer token that is shown; NULL: none */
};

/* A token that is shown, and read again when its file changes. */
struct peer_token {
    const char *path; /* borrowed; NULL: none */
    uint64_t stamp;   /* of the file as it was read */
    int64_t looked_ns;
};

struct peers_config {
    struct durability *durability; /* borrowed, as all pointers here */
    struct flights *flights;
    struct metrics *metrics;
    struct repair *repair;                /* told who there is; NULL: read repair is off */
    const char *name;                     /* what peers call us; copied */
    const char *instance;                 /* whose name is served by all of them; copied */
    const struct peer_identity *identity; /* copied; NULL: nobody. Its texts outlive this */
    int64_t lie_pause_ns;                 /* as in puller.h */
};

/* Follows nobody yet. */
MUST_CHECK bool peers_new(const struct peers_config *config,
                          struct peers **peers,
                          struct status *status);
/* Stops every puller; never waits for a peer. NULL is fine. */
void peers_free(struct peers *peers);

/*
 * Follows exactly these: those that are new start, those that are gone stop, the rest go on. One thread at a time. On false those
 * that could not be started are not followed, and the text says which and why. INVALID_ARGUMENT; RESOURCE_EXHAUSTED.
 */
MUST_CHECK bool peers_set(struct peers *peers,
                          char *const *addresses,
                          size_t count,
                          struct status *status);

/* Fills at most `max` reports; how many there are. Any thread. */
size_t peers_report(struct peers *peers, struct peer_report *reports, size_t max);

/*
 * May this peer have what has not come here yet: is its log not followed to its end, as far as is known? NULL: any of them. Not
 * one that lied, or is this node. Any thread.
 */
bool peers_are_behind(struct peers *peers, const char *address);

/* Sets the metrics of them all. From time to time, by the maintenance thread. */
void peers_step(struct peers *peers);

/* Looks once a second whether the file has changed. In the thread that starts the client's calls. A file that is of no use changes nothing. */
void peer_token_step(struct peer_token *token, struct client *client);

/*
 * A client for talking to a peer. Errors: INVALID_ARGUMENT for an address that is none, or a file of no use; RESOURCE_EXHAUSTED.
 */
MUST_CHECK bool peer_connect(const char *address,
                             const char *instance,
                             const struct peer_identity *identity,
                             struct clock *clock,
                             struct client **client,
                             struct status *status);

#endif
