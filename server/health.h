/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the server is, told to all who ask: gRPC health, /readyz, varve.v1.Store. Whoever watches is
 * woken at each change.
 *
 *   From        To           On                                   Made by
 *   STARTING    SERVING      recovery is done, ports are open     server_start
 *   STARTING    READ_ONLY    likewise, and a sync has failed      maintenance
 *   SERVING     READ_ONLY    a sync has failed; for good          maintenance
 *   any         DRAINING     the server stops                     server_stop
 *
 * SERVING is told as READ_ONLY while somebody has ordered that clients write nothing: health_refuse_writes(). SERVING and READ_ONLY are
 * told as DRAINED while somebody has taken the server out of service: health_drain().
 */
#ifndef VARVE_SERVER_HEALTH_H
#define VARVE_SERVER_HEALTH_H

#include "base/status.h"
#include "server/server.h"

struct call;
struct health;

/* A call that is to be woken (call_wake) when the state changes; it has a reference meanwhile. */
struct health_watcher {
    struct call *call; /* borrowed */
    struct health_watcher *next, *previous;
    bool watching;
};

/* The state is STARTING. */
MUST_CHECK bool health_new(struct health **health, struct status *status);
void health_free(struct health *health); /* asserts that nobody watches */

/*
 * reason (may be ""): one line for a person. A state that does not follow from the present one is
 * ignored. Any thread.
 */
void health_set(struct health *health, enum server_state state, const char *reason);
/*
 * Takes the server out of service for who asks how it is; it goes on as before. Or back. reason: one line for a person.
 * monotonic_ns: now, above 0. False when it is so already; the first reason stands.
 */
bool health_drain(struct health *health, const char *reason, int64_t monotonic_ns);
bool health_undrain(struct health *health);
/* Since when it is drained, CLOCK_MONOTONIC; 0: it is not. */
int64_t health_drained_ns(struct health *health);
/*
 * Clients may not write from now on, until they may again; whoever has begun goes on. Likewise in all else.
 */
bool health_refuse_writes(struct health *health, const char *reason, int64_t monotonic_ns);
bool health_take_writes(struct health *health);
int64_t health_refused_writes_ns(struct health *health);
/* May clients begin to write, as far as somebody's order goes? FAILED_PRECONDITION with its reason, and how it is taken back. */
MUST_CHECK bool health_check_writes(struct health *health, struct status *status);
/* What a person should know as long as it serves; "": nothing. Shown as the reason then. */
void health_set_note(struct health *health, const char *note);
/* reason (may be NULL): STATUS_MESSAGE_BYTES_MAX bytes. */
enum server_state health_state(struct health *health, char *reason);

void health_watch(struct health *health, struct health_watcher *watcher);
void health_unwatch(struct health *health,
                    struct health_watcher *watcher); /* one that does not watch is fine */

#endif
