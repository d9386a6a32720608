/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC server that does what a test says, on a port of its own on loopback: for answers that no
 * real server gives. Each call runs in a thread of its own, so that what a test says is plain code
 * from top to bottom.
 */
#ifndef VARVE_TESTS_SUPPORT_FAKE_SERVER_H
#define VARVE_TESTS_SUPPORT_FAKE_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

struct fake_server;
struct fake_call;

/* serve: in the call's thread; must end with fake_call_finish(). */
struct fake_server *fake_server_start(void (*serve)(void *argument, struct fake_call *call),
                                      void *argument);
/*
 * finishing: called just before each call's end goes out, in the call's thread. To be set before
 * the first call.
 */
void fake_server_on_finish(struct fake_server *server,
                           void (*finishing)(void *argument, struct fake_call *call));
const char *fake_server_target(const struct fake_server *server); /* "127.0.0.1:PORT" */
void fake_server_stop(struct fake_server *server); /* ends calls that still run, waits for them */

const char *fake_call_method(
    const struct fake_call *call); /* "Write": the part after the last slash */

/* The value of a metadata header, or NULL; bytes of the call. */
const struct bytes *fake_call_metadata(const struct fake_call *call,
                                       const char *key,
                                       struct bytes *value);

/*
 * The next message, freed with free(); false at the end of the client's stream, or when the call is
 * cancelled.
 */
bool fake_call_receive(struct fake_call *call, uint8_t **message, size_t *length);

/* False when the call is cancelled. */
bool fake_call_send(struct fake_call *call, struct bytes message);

/* Once. reply: for unary calls that are OK; NULL otherwise. */
void fake_call_finish(struct fake_call *call,
                      enum status_code code,
                      const char *text,
                      const struct bytes *reply);

/*
 * Waits until the client has cancelled, its deadline has passed, or the server stops; then the call
 * is finished.
 */
void fake_call_hang(struct fake_call *call);

#endif
