/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gRPC side of the server: ports, the completion queue and its pollers, the posted requests,
 * how many calls are in progress, and the order of a shutdown. Knows methods by a table and nothing
 * of the store.
 *
 * Pollers run front_poll_step(); they parse, dispatch and answer from memory, and never wait.
 */
#ifndef VARVE_SERVER_FRONT_H
#define VARVE_SERVER_FRONT_H

#include <grpc/grpc.h>
#include <stdatomic.h>

#include "base/metrics.h"
#include "server/call.h"

struct front;

/*
 * What a poller is given back by gRPC: the tag of every batch and request. Part of the object that
 * waits.
 *
 * run is stored anew before each batch and loaded when it is done, so that what one thread wrote
 * before it started the batch is seen by the poller. gRPC sees to that too, but not where
 * ThreadSanitizer could see it.
 */
struct op {
    void (*_Atomic run)(struct op *op,
                        bool ok); /* on a poller; may free the memory that holds the op */
};

static inline void op_arm(struct op *op, void (*run)(struct op *op, bool ok))
{
    atomic_store_explicit(&op->run, run, memory_order_release);
}

struct front_config {
    /* Borrowed; call_server() of every call. Its workers, budget, metrics and clock are used. */
    struct server *server;
    struct metrics *metrics;
    const struct method *const *methods; /* borrowed */
    size_t methods_count;
    char *const *listen; /* borrowed */
    size_t listen_count;
    uint64_t remembered_bytes_max; /* by calls that wait for their client to read */
    uint64_t grpc_memory_bytes;
    uint64_t max_calls;
    uint64_t max_streams;
    int64_t keepalive_ns; /* ping silent connections so often */
    struct tls *tls;      /* borrowed; NULL: plaintext. unix: is plaintext in any case */
};

/*
 * Binds every address; nothing is answered yet. grpc_init() has been called. UNAVAILABLE naming the
 * address and why.
 */
MUST_CHECK bool front_new(const struct front_config *config,
                          struct front **front,
                          struct status *status);
/* After front_stop(), or of a front that was never started. */
void front_free(struct front *front);

/* The port bound for the first TCP address, or 0. */
int front_port(const struct front *front);

void front_start(struct front *front);

/*
 * Waits for one event, some seconds at most, and handles it; false once front_stop() has emptied
 * the queue.
 */
bool front_poll_step(struct front *front);
/* How often a poller has come back, and events that were handled in their place. Any thread. */
uint64_t front_turns(struct front *front);

/*
 * For one thread more. gRPC reads a connection for as long as it has something to read; one that floods it with small frames
 * (opens and resets calls, say) so keeps a poller from ever coming back. If no poller has come back since the last step this
 * takes their place until one does, or nothing is left to do. Otherwise it does nothing.
 */
void front_stand_in_step(struct front *front);

/*
 * Refuses new calls (UNAVAILABLE), closes the ports, lets what is in flight end for up to grace_ns,
 * cancels the rest, and returns when no call is left. Pollers and workers still run and are needed
 * for it.
 */
void front_drain(struct front *front, int64_t grace_ns);
/* After front_drain(): ends the pollers. Nothing of gRPC may be started any more. */
void front_stop(struct front *front);

/*
 * Has calls give way that wait for their clients, when calls are used up or something else is that
 * they hold. From time to time, by the maintenance thread.
 */
void front_make_room(struct front *front, bool something_is_scarce);

size_t front_live(struct front *front);    /* calls in progress */
uint64_t front_begun(struct front *front); /* calls since the start */

/* ---- for call.c */

struct client_waits *front_client_waits(struct front *front);

/* What a request has brought. The fields are the call's from now on. */
struct arrival {
    grpc_call *grpc;
    gpr_timespec deadline;
    grpc_metadata_array metadata;
};

/* Begins a call. method NULL: nobody serves `path`, which is borrowed for the call. On a poller. */
void call_begin(struct front *front,
                struct server *server,
                const struct method *method,
                size_t series,
                struct arrival *arrival,
                struct bytes path);

/*
 * May a call that has just arrived be served? False, and why, when too many are in progress or the
 * server stops.
 */
MUST_CHECK bool front_admit(struct front *front, struct status *status);
/* One that was is refused, or over: it takes no place from others any more, whatever its answer waits for. */
void front_let_go(struct front *front);
/* Every call that was begun is over once; nothing of it is known to gRPC any more. */
void front_call_over(struct front *front);

#endif
