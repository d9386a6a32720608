/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of the HTTP port, which is GnuTLS's: each handshake takes the certificate that is in use then. Clients' certificates are
 * checked here, by server/tls.h, and not by GnuTLS, so that a changed authority counts at once.
 *
 * GnuTLS asks for the certificate without saying on whose behalf; so there is one for the process.
 */
#ifndef VARVE_SERVER_HTTP_TLS_H
#define VARVE_SERVER_HTTP_TLS_H

#include <gnutls/abstract.h>

#include "server/byte_builder.h"
#include "server/tls.h"

/* tls: borrowed until http_tls_stop(). */
void http_tls_start(struct tls *tls);
void http_tls_stop(void);

/* For MHD_OPTION_HTTPS_CERT_CALLBACK2. */
gnutls_certificate_retrieve_function3 http_tls_retrieve;

/*
 * The certificate that the client has shown, in DER, appended to *der; nothing when it has shown none. UNAUTHENTICATED when it does
 * not hold.
 */
MUST_CHECK bool http_tls_client(struct tls *tls,
                                gnutls_session_t session,
                                struct byte_builder *der,
                                struct status *status);

#endif
