/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's certificate, its key, and who may sign clients' certificates: read from files in PEM,
 * checked, and read again when a file changes. What is in use stays in use when the new files are
 * not sound. gRPC and HTTP take it from here for each new connection.
 */
#ifndef VARVE_SERVER_TLS_H
#define VARVE_SERVER_TLS_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/status.h"

struct tls;

enum tls_client_auth { TLS_CLIENT_NONE, TLS_CLIENT_OPTIONAL, TLS_CLIENT_REQUIRED };

/* One reading of the files; counted. */
struct tls_files {
    uint64_t generation; /* 1, 2, ...: each reading has another */
    char *certificate;   /* PEM, as all; with the chain behind it */
    char *key;
    char *client_ca;             /* NULL: clients are not asked for certificates */
    struct x509_store_st *store; /* of client_ca; NULL likewise */
    int64_t expires_s;           /* the certificate; since 1970 */
    _Atomic int references;
};

struct tls_config {
    const char *certificate, *key; /* paths; borrowed for the call */
    const char *client_ca;         /* "": none */
    enum tls_client_auth client_auth;
    struct clock *clock;
    struct metrics *metrics;
};

/* INVALID_ARGUMENT naming the option, the path and the reason. */
MUST_CHECK bool tls_new(const struct tls_config *config, struct tls **tls, struct status *status);
/* One log line: what is in use. */
void tls_report(struct tls *tls);
void tls_free(struct tls *tls); /* NULL is fine */

enum tls_client_auth tls_client_auth(const struct tls *tls);

/* A reference to what is in use now. */
struct tls_files *tls_take(struct tls *tls);
void tls_files_unref(struct tls_files *files);

/* Any thread, but one at a time. A failure is logged and changes nothing. */
enum tls_reload { TLS_IF_CHANGED, TLS_ANYWAY };
void tls_reload(struct tls *tls, enum tls_reload when);

/*
 * Is this chain (DER, the client's own first) of a client whose certificate one of client_ca has
 * signed, and valid now? Any thread.
 */
MUST_CHECK bool tls_check_client(struct tls *tls,
                                 const struct bytes *chain,
                                 size_t count,
                                 struct status *status);

#endif
