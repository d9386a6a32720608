/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that we talk to: its address, the connections to it, the one thread that drives their
 * network, and what every call to it has in common (instance name, deadline, metadata, how often to
 * try again).
 *
 *     struct client_options options = client_options_default();
 *     options.instance_name = "ci";
 *     if (!client_connect("cache:8980", &options, &client, status))
 *         return false;
 *     ... calls: client/cas.h for blobs, client/call.h for any method ...
 *     client_close(client);
 *
 * Connecting does not wait for the server: the first call does, and fails with UNAVAILABLE when
 * nobody answers.
 */
#ifndef VARVE_CLIENT_CONNECTION_H
#define VARVE_CLIENT_CONNECTION_H

#include <grpc/grpc.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "client/retry.h"

struct client;

enum {
    CLIENT_CONNECTIONS_MAX = 64,
    CLIENT_TARGET_BYTES_MAX = 1024,
    /* What one answer may have. Servers keep below 4 MiB; those that do not are bounded here. */
    CLIENT_MESSAGE_BYTES_MAX = 16 << 20,
};

/* How the connection is encrypted. Paths are of files in PEM, read at the connect; NULL: none. */
struct client_tls {
    bool enabled;        /* also by a target of grpcs:// or by one of those below */
    const char *ca_file; /* who signs the server's certificate; NULL: whom the system trusts */
    const char *certificate_file; /* our own, for servers that ask for it; with key_file */
    const char *key_file;
    const char *server_name; /* the name in the server's certificate; NULL: the target's host */
};

struct client_options {
    const char *instance_name; /* borrowed for the connect; "" is the server's default instance */
    int64_t call_timeout_ns;   /* of one try of one call; client_stream_timeout_ns() adds to it */
    size_t connections;        /* 1 to CLIENT_CONNECTIONS_MAX; calls take them in turn */
    const char *tool_name;    /* borrowed for the connect; sent as RequestMetadata with each call */
    const char *tool_version; /* borrowed for the connect */
    struct retry_policy retry;
    struct clock *clock; /* borrowed */
    struct client_tls tls;
    const char
        *authorization; /* borrowed for the connect: "Bearer TOKEN", "Basic ..."; NULL: none */
};

/* No instance name, 60 s, one connection, tool "varve", five tries. */
struct client_options client_options_default(void);

/*
 * target: "HOST:PORT", "grpc://HOST:PORT", "grpcs://HOST:PORT" (TLS), or "unix:PATH"; an IPv6 address stands in brackets.
 * Files of TLS that cannot be read or are of no use are INVALID_ARGUMENT, which names them.
 * Errors: INVALID_ARGUMENT for a target, an instance name or options that cannot be;
 * RESOURCE_EXHAUSTED.
 */
MUST_CHECK bool client_connect(const char *target,
                               const struct client_options *options,
                               struct client **client,
                               struct status *status);

/*
 * Shows this from the next call on; borrowed for the call. In the thread that starts the client's calls. INVALID_ARGUMENT: it cannot
 * be sent; then all is as it was.
 */
MUST_CHECK bool client_set_authorization(struct client *client,
                                         const char *authorization,
                                         struct status *status);

/* Asserts that every call has been done. NULL is fine. */
void client_close(struct client *client);

struct bytes client_instance_name(const struct client *client); /* borrowed from the client */
const char *client_target(const struct client *client);         /* as given to client_connect() */
struct clock *client_clock(const struct client *client);
const struct retry_policy *client_retry_policy(const struct client *client);
int64_t client_call_timeout_ns(const struct client *client);

/*
 * The deadline of a call that streams this many bytes: the usual one and the time that the bytes
 * take at CLIENT_SLOWEST_BYTES_PER_S. Slower than that counts as stuck.
 */
enum { CLIENT_SLOWEST_BYTES_PER_S = 1 << 20 };
int64_t client_stream_timeout_ns(const struct client *client, int64_t bytes);

/*
 * For main() of a program that is mostly this client: tunes glibc's malloc for large messages
 * (otherwise every message grows and shrinks the heap, up to ten times slower) and silences gRPC's
 * own log unless GRPC_VERBOSITY is set, since each failure comes back as a status anyway. Before
 * anything else, and before the first thread.
 */
void client_prepare_process(void);

/* For client/call.c alone. */
grpc_channel *client_take_channel(struct client *client); /* borrowed; the next one in turn */
grpc_completion_queue *client_queue(struct client *client);
enum { CLIENT_METADATA_MAX = 2 };
/* How many there are. Their values are owned by the caller. */
size_t client_metadata(const struct client *client, grpc_metadata metadata[CLIENT_METADATA_MAX]);
void client_count_call(struct client *client, int change);
struct message_pool *client_messages(struct client *client); /* borrowed from the client */
/*
 * Before each start of a batch: what this thread has written is what the network thread sees with
 * the tag.
 */
void client_hand_over(struct client *client);

/* What the client's thread gets from gRPC's queue: every tag is one of these. */
struct client_tag {
    void (*complete)(struct client_tag *tag, bool ok); /* in the client's thread; never blocks */
};

#endif
