/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One RPC as an explicit state machine over gRPC C-core, and what a method is.
 *
 *            arrives          budget            whole message          turn ends
 *   (core) ──────────► ARRIVED ───────► RECEIVING ───────────► HANDLING ────────────► SENDING ──► FINISHING ──► (freed)
 *                                           ▲                   │  │  ▲                  │
 *                                           └── call_receive() ─┘  └──┘ call_park/resume │
 *                                                               ▲───── call_send() done ─┘
 *
 *   From        To          On                                        Made by
 *   ARRIVED     RECEIVING   memory for a message is granted           budget
 *   RECEIVING   HANDLING    a message or the client's half-close      poller, then worker
 *   HANDLING    RECEIVING   call_receive()                            handler
 *   HANDLING    SENDING     call_send()                               handler
 *   SENDING     HANDLING    the message has left (on_sent)            poller, then worker
 *   HANDLING    PARKED      call_park()                               handler
 *   PARKED      HANDLING    call_wake(), or the call was cancelled    any thread
 *   HANDLING    FINISHING   call_reply(), call_finish(), call_fail()  handler
 *   ARRIVED     FINISHING   refused, or the client is gone            poller
 *   RECEIVING   FINISHING   the client is gone, or sent too much      poller
 *   SENDING     FINISHING   the client is gone                        poller
 *
 * The turn: while a call is HANDLING one thread at a time, its handler's, touches it, until it
 * calls exactly one of call_receive, call_send, call_park, call_reply, call_finish, call_fail,
 * after which it touches nothing of the call any more. A handler's function may also return without
 * any of these when it has handed the turn to somebody who will call call_resume() (a commit's
 * completion): that is how a write waits for group commit without holding a thread. Whoever was handed the turn may as well
 * end it by itself: an answer that is made in microseconds need not go to a worker.
 *
 * Where they run: on_message and on_half_close on a worker, or where the message arrived
 * (on_poller); on_sent and everything that is resumed on a worker; on_free on a worker, or for
 * on_poller methods, and for calls that had no other function called, on any thread. A call that the client has given up is not handed to on_message,
 * on_half_close or on_sent any more.
 *
 * Memory: the message is released when the turn ends with call_receive(), with call_send() or with
 * the answer; the arena and state after on_free, which is before the client has the answer. Slices
 * that are sent own what they show: nothing of the arena, the state or the message. A client may be
 * slow for as long as it likes, unless others find no room (server/client_waits.h).
 */
#ifndef VARVE_SERVER_CALL_H
#define VARVE_SERVER_CALL_H

#include <grpc/grpc.h>
#include <grpc/slice.h>

#include "base/arena.h"
#include "base/bytes.h"
#include "base/digest.h"
#include "base/status.h"
#include "server/roles.h"

struct call;
struct server;

enum method_kind { METHOD_UNARY, METHOD_CLIENT_STREAM, METHOD_SERVER_STREAM, METHOD_BIDI };

/*
 * One received message, in the slices that gRPC received it in. Lives until the next call_receive()
 * or the end of the call.
 */
struct message {
    struct bytes_list parts;
    size_t length;
};

/*
 * A method of a service. state is state_bytes of zeroed memory in the call's arena, for the handler
 * alone. All functions are called with the turn. Functions that may be NULL say so.
 */
struct method {
    const char *path; /* "/google.bytestream.ByteStream/Read" */
    enum method_kind kind;
    enum method_role role;
    /*
     * Its request names an instance, and call_check_instance() asks whether the caller has the role there. False: the
     * role is needed for all instances, and that is asked before the request is read.
     */
    bool has_instance;
    /* on_message answers from memory and never waits: run where it arrived, unless it is large. */
    bool on_poller;
    bool writes; /* for its client: refused while health says so */
    bool waits;  /* as long as its client wants: such calls are never slow */
    size_t state_bytes;
    /*
     * May be NULL. Called before on_message where a message of at most LIMIT_ANSWERED_HERE_BYTES arrived, unless the index is still
     * being loaded, which saves the way to a worker and back: true when the turn has ended with the answer, made in
     * microseconds from what is in memory; false when state is as it was, and on_message follows.
     */
    bool (*answer_here)(struct call *call, void *state, const struct message *message);
    void (*on_message)(struct call *call, void *state, const struct message *message);
    /*
     * The client will send no more: METHOD_CLIENT_STREAM, METHOD_BIDI; else NULL. Not called when
     * the client is gone.
     */
    void (*on_half_close)(struct call *call, void *state);
    /* The message given to call_send() has left; methods that stream; else NULL. */
    void (*on_sent)(struct call *call, void *state);
    /*
     * The call is answered, or over for whatever reason: release what state holds. May be NULL. The
     * last function called. Never called while the turn is handed away: a handler that waits for a
     * commit is resumed first.
     */
    void (*on_free)(struct call *call, void *state);
};

/* All methods of the server: server/methods.c. */
extern const struct method *const server_methods[];
extern const size_t server_methods_count;

/* ---- what ends a turn */

/* The next message, please: on_message or on_half_close follows, or on_free. */
void call_receive(struct call *call);

/*
 * Sends one message of a response stream; takes the slices over. The request message is released.
 * on_sent follows, or on_free.
 */
void call_send(struct call *call, grpc_slice *slices, size_t count);

/* The single response of a unary or client-streaming call, or the last of a stream, and OK; takes the slices over. */
void call_reply(struct call *call, grpc_slice *slices, size_t count);

/* OK without a message: the end of a response stream. */
void call_finish(struct call *call);

/* Anything but OK. details: an encoded google.rpc.Status for grpc-status-details-bin, or empty. */
void call_fail(struct call *call, const struct status *status);
void call_fail_with_details(struct call *call, const struct status *status, struct bytes details);

/*
 * Waits until call_wake(), or until the call is cancelled, or the server drains past its time; then
 * `resume` is called once, with the turn, on a worker. Whoever may wake it holds a reference
 * (call_ref).
 */
void call_park(struct call *call, void (*resume)(struct call *call, void *state));
/*
 * Any thread. True if it was parked and is resumed by this; false if not (it then stays as it is,
 * except that a wake that comes before the park is remembered and resumes that park at once).
 */
bool call_wake(struct call *call);

/* ---- handing the turn over */

/* Continues with `next` on a worker, with the turn. Any thread. */
void call_resume(struct call *call, void (*next)(struct call *call, void *state));

/* The turn goes to a commit now: until call_resume() or the answer it waits for that. For the log of slow calls alone. */
void call_commit_begins(struct call *call);

/* ---- what may be asked with the turn */

struct server *call_server(struct call *call);
void *call_state(struct call *call);
struct arena *call_arena(struct call *call); /* limit LIMIT_CALL_ARENA_BYTES */
const struct method *call_method(const struct call *call);
/* Also when the deadline has passed; any thread with a reference. */
bool call_cancelled(struct call *call);
int64_t call_deadline_ns(const struct call *call); /* CLOCK_MONOTONIC; INT64_MAX without one */
const char *call_peer(struct call *call);          /* "ipv4:127.0.0.1:50422" */
struct access_caller;
const struct access_caller *call_caller(const struct call *call); /* who it is */
/* tool_details.tool_name of the caller's RequestMetadata, or empty; damaged metadata is ignored. */
struct bytes call_tool_name(struct call *call);
struct bytes call_tool_version(struct call *call); /* tool_details.tool_version, likewise */

/* Counts what the call has looked for in the series of its instance. With the turn, before it is answered. */
void call_count_lookups(struct call *call, uint64_t hits, uint64_t misses);

void call_ref(struct call *call);
void call_unref(struct call *call);

/* ---- conveniences for handlers */

/*
 * The message in one piece: in place if it is one slice, else copied to the arena; false (and the
 * call has failed) without memory.
 */
MUST_CHECK bool call_message_flat(struct call *call,
                                  const struct message *message,
                                  struct bytes *flat);
/*
 * Unpacks with protobuf-c into the arena; INVALID_ARGUMENT naming the message type. The result is
 * never freed one by one.
 */
struct ProtobufCMessage;
struct ProtobufCMessageDescriptor;
struct ProtobufCMessage *call_unpack(struct call *call,
                                     const struct message *message,
                                     const struct ProtobufCMessageDescriptor *descriptor,
                                     struct status *status);
/* Packs into one slice and replies. */
void call_reply_packed(struct call *call, const struct ProtobufCMessage *response);
grpc_slice slice_of_packed(const struct ProtobufCMessage *message);
/*
 * A slice over data in a pooled buffer, which goes back to its pool when gRPC lets go of the slice:
 * possibly inside gRPC, so a waiter of the pool starts nothing of gRPC itself, but calls
 * call_resume() or call_wake().
 */
struct buffer;
grpc_slice slice_of_buffer(struct buffer *buffer, struct bytes data);

/* Notes whose it is, for the log of slow calls. */
void call_note_instance(struct call *call, struct bytes instance);
/*
 * Checks the instance name against the configuration, INVALID_ARGUMENT naming it; and that the caller has the method's role in
 * it, as access_check() (server/access.h).
 */
MUST_CHECK bool call_check_instance(struct call *call,
                                    struct bytes instance,
                                    struct status *status);

#endif
