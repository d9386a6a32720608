/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http_tls.h"

#include <stdatomic.h>
#include <string.h>

enum { CHAIN_MAX = 8 };

static struct {
    struct tls *_Atomic tls; /* borrowed */
} current;

void http_tls_start(struct tls *tls)
{
    ASSERT(atomic_load(&current.tls) == NULL);
    atomic_store(&current.tls, tls);
}

void http_tls_stop(void)
{
    atomic_store(&current.tls, NULL);
}

static gnutls_datum_t datum_of(char *text)
{
    return (gnutls_datum_t){.data = (unsigned char *)text, .size = (unsigned int)strlen(text)};
}

/* What it hands out is freed by GnuTLS after the handshake. */
int http_tls_retrieve(gnutls_session_t session,
                      const struct gnutls_cert_retr_st *info,
                      gnutls_pcert_st **certificates,
                      unsigned int *count,
                      gnutls_ocsp_data_st **ocsp,
                      unsigned int *ocsp_count,
                      gnutls_privkey_t *key,
                      unsigned int *flags)
{
    (void)session;
    (void)info;
    struct tls *const tls = atomic_load(&current.tls);
    if (tls == NULL)
        return -1;
    struct tls_files *const files = tls_take(tls);
    const gnutls_datum_t chain = datum_of(files->certificate);
    const gnutls_datum_t secret = datum_of(files->key);
    gnutls_privkey_t made_key = NULL;
    gnutls_pcert_st *made = gnutls_calloc(CHAIN_MAX, sizeof(*made));
    unsigned int length = CHAIN_MAX;
    const bool ok =
        made != NULL &&
        gnutls_pcert_list_import_x509_raw(made, &length, &chain, GNUTLS_X509_FMT_PEM, 0) == 0 &&
        gnutls_privkey_init(&made_key) == 0 &&
        gnutls_privkey_import_x509_raw(made_key, &secret, GNUTLS_X509_FMT_PEM, NULL, 0) == 0;
    tls_files_unref(files);
    if (!ok) {
        if (made_key != NULL)
            gnutls_privkey_deinit(made_key);
        gnutls_free(made);
        return -1;
    }
    *certificates = made;
    *count = length;
    *ocsp = NULL;
    *ocsp_count = 0;
    *key = made_key;
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    return 0;
}

bool http_tls_client(struct tls *tls,
                     gnutls_session_t session,
                     struct byte_builder *der,
                     struct status *status)
{
    unsigned int count = 0;
    struct bytes chain[CHAIN_MAX];
    if (tls_client_auth(tls) == TLS_CLIENT_NONE)
        return true;
    const gnutls_datum_t *const shown = gnutls_certificate_get_peers(session, &count);
    if (shown == NULL || count == 0)
        return true;
    for (unsigned int i = 0; i < count && i < CHAIN_MAX; i++)
        chain[i] = bytes_of(shown[i].data, shown[i].size);
    if (!tls_check_client(tls, chain, count < CHAIN_MAX ? count : CHAIN_MAX, status))
        return false;
    byte_builder_append(der, chain[0]);
    return !der->failed || status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory");
}
