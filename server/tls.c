/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/file_stamp.h"

enum { FILE_BYTES_MAX = 1 << 20, PATHS = 3, CHAIN_MAX = 16 };

struct tls {
    /* Set by tls_new(), never changed. */
    char *paths[PATHS]; /* owned: certificate, key, client_ca or NULL */
    enum tls_client_auth client_auth;
    struct clock *clock;
    struct metrics *metrics;

    uint64_t failed_stamp; /* of the thread that reloads; as in access.c */
    uint64_t stamp;

    struct lock lock;
    struct tls_files *files; /* guarded by lock; shared */
};

static const char *const options[PATHS] = {"tls-cert", "tls-key", "tls-client-ca"};

static bool load(struct tls *tls,
                 uint64_t generation,
                 struct tls_files **files,
                 struct status *status);
static void log_loaded(const struct tls *tls, const struct tls_files *files);

/* Of the files as they are; 0 when one cannot be looked at. */
static uint64_t stamp_of(const struct tls *tls)
{
    size_t count = 0;
    while (count < PATHS && tls->paths[count] != NULL)
        count++;
    return file_stamp(tls->paths, count);
}

bool tls_new(const struct tls_config *config, struct tls **tls, struct status *status)
{
    const char *const paths[PATHS] = {config->certificate, config->key, config->client_ca};
    struct tls *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "TLS");
    lock_init(&made->lock, LOCK_RANK_LEAF);
    made->clock = config->clock;
    made->metrics = config->metrics;
    made->client_auth = config->client_ca[0] != '\0' ? config->client_auth : TLS_CLIENT_NONE;
    for (size_t i = 0; i < PATHS && paths[i][0] != '\0'; i++) {
        made->paths[i] = strdup(paths[i]);
        if (made->paths[i] == NULL) {
            status_fail_errno(status, ENOMEM, "TLS");
            goto fail;
        }
    }
    made->stamp = stamp_of(made);
    if (!load(made, 1, &made->files, status))
        goto fail;
    *tls = made;
    return true;

fail:
    tls_free(made);
    return false;
}

void tls_report(struct tls *tls)
{
    log_loaded(tls, tls->files);
}

void tls_free(struct tls *tls)
{
    if (tls == NULL)
        return;
    tls_files_unref(tls->files);
    for (size_t i = 0; i < PATHS; i++)
        free(tls->paths[i]);
    lock_destroy(&tls->lock);
    free(tls);
}

static void log_loaded(const struct tls *tls, const struct tls_files *files)
{
    struct log_text certificate;
    metrics_set(tls->metrics, METRIC_TLS_EXPIRY, files->expires_s);
    const int64_t left_s = files->expires_s - clock_wall_ns(tls->clock) / NS_PER_S;
    log_event(left_s > 0 ? LOG_LEVEL_INFO : LOG_LEVEL_WARN, "tls_loaded",
              "certificate=%s expires_in_s=%lld client_certificates=%s",
              log_quote(&certificate, tls->paths[0]), (long long)left_s,
              tls->client_auth == TLS_CLIENT_REQUIRED   ? "required"
              : tls->client_auth == TLS_CLIENT_OPTIONAL ? "optional"
                                                        : "none");
}

/* ---- reading */

static bool read_file(const char *path, char **text, struct status *status)
{
    FILE *const file = fopen(path, "re");
    if (file == NULL)
        return status_fail_errno(status, errno, "%s", path);
    char *const memory = malloc(FILE_BYTES_MAX + 1);
    const size_t length = memory != NULL ? fread(memory, 1, FILE_BYTES_MAX + 1, file) : 0;
    const bool failed = ferror(file) != 0;
    fclose(file);
    bool ok = false;
    if (memory == NULL)
        status_fail_errno(status, ENOMEM, "%s", path);
    else if (failed)
        status_fail(status, STATUS_INVALID_ARGUMENT, "%s cannot be read", path);
    else if (length == 0)
        status_fail(status, STATUS_INVALID_ARGUMENT, "%s is empty", path);
    else if (length > FILE_BYTES_MAX)
        status_fail(status, STATUS_INVALID_ARGUMENT, "%s is larger than %d bytes", path,
                    FILE_BYTES_MAX);
    else
        ok = true;
    if (ok) {
        memory[length] = '\0';
        *text = strdup(memory);
        ok = *text != NULL || status_fail_errno(status, ENOMEM, "%s", path);
        explicit_bzero(memory, length);
    }
    free(memory);
    return ok;
}

/* The number of certificates in it; the first of them to *first, if that is not NULL. */
static size_t certificates_in(const char *text, X509 **first, X509_STORE *store)
{
    BIO *const bio = BIO_new_mem_buf(text, -1);
    size_t count = 0;
    X509 *certificate;
    while (bio != NULL && (certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL)) != NULL) {
        if (store != NULL)
            X509_STORE_add_cert(store, certificate);
        if (count++ == 0 && first != NULL)
            *first = certificate;
        else
            X509_free(certificate);
    }
    BIO_free(bio);
    return count;
}

static int no_passphrase(char *to, int capacity, int writing, void *argument)
{
    (void)to;
    (void)capacity;
    (void)writing;
    (void)argument;
    return -1;
}

static bool check_pair(const struct tls *tls, struct tls_files *files, struct status *status)
{
    X509 *certificate = NULL;
    EVP_PKEY *key = NULL;
    bool ok = certificates_in(files->certificate, &certificate, NULL) > 0 ||
              status_fail(status, STATUS_INVALID_ARGUMENT,
                          "option tls-cert: %s holds no certificate in PEM", tls->paths[0]);
    if (ok) {
        BIO *const bio = BIO_new_mem_buf(files->key, -1);
        key = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
        BIO_free(bio);
        ok = key != NULL || status_fail(status, STATUS_INVALID_ARGUMENT,
                                        "option tls-key: %s holds no private key in PEM, or one "
                                        "with a passphrase",
                                        tls->paths[1]);
    }
    if (ok && X509_check_private_key(certificate, key) != 1)
        ok = status_fail(status, STATUS_INVALID_ARGUMENT,
                         "option tls-key: %s is not the key of the certificate %s", tls->paths[1],
                         tls->paths[0]);
    struct tm when;
    if (ok && ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &when) == 1)
        files->expires_s = timegm(&when);
    if (ok && X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0)
        ok = status_fail(status, STATUS_INVALID_ARGUMENT,
                         "option tls-cert: the certificate %s has expired", tls->paths[0]);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return ok;
}

static bool load(struct tls *tls,
                 uint64_t generation,
                 struct tls_files **files,
                 struct status *status)
{
    struct tls_files *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "TLS");
    made->references = 1;
    made->generation = generation;
    char **const texts[PATHS] = {&made->certificate, &made->key, &made->client_ca};
    bool ok = true;
    for (size_t i = 0; ok && i < PATHS && tls->paths[i] != NULL; i++) {
        ok = read_file(tls->paths[i], texts[i], status);
        if (!ok)
            status_prefix(status, "option %s", options[i]);
    }
    ok = ok && check_pair(tls, made, status);
    if (ok && made->client_ca != NULL) {
        made->store = X509_STORE_new();
        ok = made->store != NULL || status_fail_errno(status, ENOMEM, "TLS");
        if (ok && certificates_in(made->client_ca, NULL, made->store) == 0)
            ok = status_fail(status, STATUS_INVALID_ARGUMENT,
                             "option tls-client-ca: %s holds no certificate in PEM", tls->paths[2]);
    }
    ERR_clear_error();
    if (!ok) {
        status->code = STATUS_INVALID_ARGUMENT;
        tls_files_unref(made);
        return false;
    }
    *files = made;
    return true;
}

void tls_files_unref(struct tls_files *files)
{
    if (files == NULL || atomic_fetch_sub(&files->references, 1) > 1)
        return;
    if (files->key != NULL)
        explicit_bzero(files->key, strlen(files->key));
    free(files->certificate);
    free(files->key);
    free(files->client_ca);
    X509_STORE_free(files->store);
    free(files);
}

enum tls_client_auth tls_client_auth(const struct tls *tls)
{
    return tls->client_auth;
}

struct tls_files *tls_take(struct tls *tls)
{
    lock_acquire(&tls->lock);
    struct tls_files *const files = tls->files;
    atomic_fetch_add(&files->references, 1);
    lock_release(&tls->lock);
    return files;
}

void tls_reload(struct tls *tls, enum tls_reload when)
{
    const uint64_t stamp = stamp_of(tls);
    if (when == TLS_IF_CHANGED && (stamp == tls->stamp || stamp == tls->failed_stamp))
        return;
    struct tls_files *made = NULL;
    struct status status = {0};
    struct log_text text;
    if (!load(tls, tls->files->generation + 1, &made, &status)) {
        tls->failed_stamp = stamp;
        metrics_add(tls->metrics, METRIC_TLS_RELOADS_FAILED, 1);
        log_event(LOG_LEVEL_ERROR, "tls_not_loaded", "reason=%s still=old",
                  log_quote(&text, status.message));
        return;
    }
    lock_acquire(&tls->lock);
    struct tls_files *const old = tls->files;
    tls->files = made;
    lock_release(&tls->lock);
    tls->stamp = stamp;
    tls->failed_stamp = 0;
    tls_files_unref(old);
    metrics_add(tls->metrics, METRIC_TLS_RELOADS, 1);
    log_loaded(tls, made);
}

/* ---- clients */

bool tls_check_client(struct tls *tls,
                      const struct bytes *chain,
                      size_t count,
                      struct status *status)
{
    struct tls_files *const files = tls_take(tls);
    X509_STORE_CTX *const context = X509_STORE_CTX_new();
    STACK_OF(X509) *const others = sk_X509_new_null();
    X509 *own = NULL;
    for (size_t i = 0; others != NULL && i < count && i < CHAIN_MAX; i++) {
        const unsigned char *der = chain[i].data;
        X509 *const certificate =
            chain[i].length <= FILE_BYTES_MAX ? d2i_X509(NULL, &der, (long)chain[i].length) : NULL;
        if (i == 0)
            own = certificate;
        else if (certificate != NULL && sk_X509_push(others, certificate) == 0)
            X509_free(certificate);
    }
    bool ok = false;
    if (context == NULL || others == NULL || own == NULL || files->store == NULL ||
        X509_STORE_CTX_init(context, files->store, own, others) != 1 ||
        X509_STORE_CTX_set_default(context, "ssl_client") != 1)
        status_fail(status, STATUS_UNAUTHENTICATED, "the client's certificate cannot be read");
    else if (X509_verify_cert(context) != 1)
        status_fail(status, STATUS_UNAUTHENTICATED, "the client's certificate does not hold: %s",
                    X509_verify_cert_error_string(X509_STORE_CTX_get_error(context)));
    else
        ok = true;
    X509_STORE_CTX_free(context);
    sk_X509_pop_free(others, X509_free);
    X509_free(own);
    tls_files_unref(files);
    ERR_clear_error();
    return ok;
}
