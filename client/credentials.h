/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client shows to a server: a bearer token, a user and a password, a certificate. All come
 * from files or the environment, never from a command line, which everybody on the machine can read.
 */
#ifndef VARVE_CLIENT_CREDENTIALS_H
#define VARVE_CLIENT_CREDENTIALS_H

#include "client/connection.h"

enum { CREDENTIALS_BYTES_MAX = 16384 };

/*
 * The value for client_options.authorization, freed by the caller with credentials_free(); NULL when
 * nothing is given. token_file: its first line is the token; else $VARVE_TOKEN. login_file: its
 * first line is USER:PASSWORD; else $VARVE_LOGIN. Files (NULL: none) win over the environment, a
 * token over a login.
 * Errors: INVALID_ARGUMENT naming the file, never what is in it.
 */
MUST_CHECK bool credentials_read(const char *token_file,
                                 const char *login_file,
                                 char **authorization,
                                 struct status *status);
void credentials_free(char *authorization);

/* For client/connection.c. INVALID_ARGUMENT naming the file. */
MUST_CHECK bool client_tls_credentials(const struct client_tls *tls,
                                       grpc_channel_credentials **credentials,
                                       struct status *status);

#endif
