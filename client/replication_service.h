/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve's own service Replication of a server (varve.v1), as the commands use it: what a store holds,
 * by reading its log from the oldest record on; who follows whom. Who follows another all the time is
 * the server (server/puller.h).
 */
#ifndef VARVE_CLIENT_REPLICATION_SERVICE_H
#define VARVE_CLIENT_REPLICATION_SERVICE_H

#include "base/digest.h"
#include "client/connection.h"
#include "client/digest_map.h"
#include "client/replication.h"
#include "varve/v1/replication.pb-c.h"

struct log_reader {
    /*
     * A BLOB, MANIFEST, ACTION or FORGET; borrowed for the call. A blob comes again when it was moved
     * meanwhile. False ends the reading.
     */
    bool (*take)(void *argument, const struct feed_record *record, struct status *status);
    void *argument;
};

/*
 * Reads one lane from the oldest record that is held to the newest that was durable when this began.
 * Records that the server evicts meanwhile are passed over. Waits for the end.
 * Errors: UNIMPLEMENTED when the server is not varve, or an older one; those of take.
 */
MUST_CHECK bool replication_read_log(struct client *client,
                                     enum feed_lane lane,
                                     const struct log_reader *reader,
                                     struct status *status);

/*
 * Blobs that were deleted on purpose, as the log still tells. forgotten: an empty map; destroyed by
 * the caller, also on false.
 * Errors: as above; RESOURCE_EXHAUSTED when there are more than REPLICATION_FORGOTTEN_MAX.
 */
enum { REPLICATION_FORGOTTEN_MAX = 1 << 22 };
MUST_CHECK bool replication_read_forgotten(struct client *client,
                                           struct digest_map *forgotten,
                                           struct status *status);

/*
 * *peers: freed by the caller with varve__v1__peers_response__free_unpacked(). Waits for the answer.
 * Errors: UNIMPLEMENTED when the server is not varve, or an older one.
 */
MUST_CHECK bool replication_peers(struct client *client,
                                  Varve__V1__PeersResponse **peers,
                                  struct status *status);

/* "connecting", "catching up", ...; "unknown". Static storage. */
const char *replication_peer_state_name(int state);

#endif
