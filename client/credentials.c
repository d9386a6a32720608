/* SPDX-License-Identifier: Apache-2.0 */
#include "client/credentials.h"

#include <errno.h>
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base64.h"

enum { PEM_BYTES_MAX = 1 << 20 };

static bool read_file(const char *path,
                      size_t bytes_max,
                      char **text,
                      size_t *length,
                      struct status *status);
static bool bearer(const char *token, char **authorization, struct status *status);
static bool basic(const char *login, char **authorization, struct status *status);
static bool of_file(const char *path,
                    bool (*make)(const char *secret, char **authorization, struct status *status),
                    char **authorization,
                    struct status *status);

bool credentials_read(const char *token_file,
                      const char *login_file,
                      char **authorization,
                      struct status *status)
{
    const char *const token = getenv("VARVE_TOKEN");
    const char *const login = getenv("VARVE_LOGIN");
    *authorization = NULL;
    if (token_file != NULL)
        return of_file(token_file, bearer, authorization, status);
    if (login_file != NULL)
        return of_file(login_file, basic, authorization, status);
    if (token != NULL && token[0] != '\0')
        return bearer(token, authorization, status);
    if (login != NULL && login[0] != '\0')
        return basic(login, authorization, status);
    return true;
}

void credentials_free(char *authorization)
{
    if (authorization == NULL)
        return;
    explicit_bzero(authorization, strlen(authorization));
    free(authorization);
}

static bool of_file(const char *path,
                    bool (*make)(const char *secret, char **authorization, struct status *status),
                    char **authorization,
                    struct status *status)
{
    char *text;
    size_t length;
    if (!read_file(path, CREDENTIALS_BYTES_MAX, &text, &length, status))
        return false;
    text[strcspn(text, "\r\n")] = '\0';
    const bool ok = make(text, authorization, status);
    explicit_bzero(text, length);
    free(text);
    if (!ok)
        status_prefix(status, "%s", path);
    return ok;
}

static bool bearer(const char *token, char **authorization, struct status *status)
{
    if (token[0] == '\0' || strpbrk(token, " \t") != NULL)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "a token is one line without blanks, and not empty");
    if (asprintf(authorization, "Bearer %s", token) >= 0)
        return true;
    *authorization = NULL;
    return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a token");
}

static bool basic(const char *login, char **authorization, struct status *status)
{
    static const char scheme[] = "Basic ";
    const size_t length = strlen(login);
    if (strchr(login, ':') == NULL)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "USER:PASSWORD is wanted");
    char *const made = malloc(sizeof(scheme) + BASE64_ENCODED_BYTES(length));
    if (made == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a login");
    memcpy(made, scheme, sizeof(scheme));
    base64_encode(bytes_of(login, length), made + sizeof(scheme) - 1);
    *authorization = made;
    return true;
}

/* With a NUL. */
static bool read_file(const char *path,
                      size_t bytes_max,
                      char **text,
                      size_t *length,
                      struct status *status)
{
    FILE *const file = fopen(path, "re");
    if (file == NULL) {
        status_fail_errno(status, errno, "%s", path);
        status->code = STATUS_INVALID_ARGUMENT;
        return false;
    }
    char *const memory = malloc(bytes_max + 1);
    bool ok = memory != NULL ||
              status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to read %s", path);
    if (ok) {
        *length = fread(memory, 1, bytes_max + 1, file);
        ok = ferror(file) == 0 ||
             status_fail(status, STATUS_INVALID_ARGUMENT, "%s cannot be read", path);
    }
    fclose(file);
    if (ok && (*length == 0 || *length > bytes_max))
        ok = status_fail(status, STATUS_INVALID_ARGUMENT, "%s is empty, or larger than %zu bytes",
                         path, bytes_max);
    if (!ok) {
        free(memory);
        return false;
    }
    memory[*length] = '\0';
    *text = memory;
    return true;
}

static bool read_pem(const char *path, const char *what, char **text, struct status *status)
{
    size_t length;
    if (path == NULL)
        return true;
    if (!read_file(path, PEM_BYTES_MAX, text, &length, status))
        return false;
    return strstr(*text, what) != NULL ||
           status_fail(status, STATUS_INVALID_ARGUMENT, "%s holds no %s in PEM", path, what);
}

bool client_tls_credentials(const struct client_tls *tls,
                            grpc_channel_credentials **credentials,
                            struct status *status)
{
    char *ca = NULL;
    char *certificate = NULL;
    char *key = NULL;
    if ((tls->certificate_file == NULL) != (tls->key_file == NULL))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "a certificate and its key: both are needed, or none");
    const bool ok = read_pem(tls->ca_file, "CERTIFICATE", &ca, status) &&
                    read_pem(tls->certificate_file, "CERTIFICATE", &certificate, status) &&
                    read_pem(tls->key_file, "PRIVATE KEY", &key, status);
    if (ok) {
        grpc_ssl_pem_key_cert_pair pair = {.private_key = key, .cert_chain = certificate};
        *credentials =
            grpc_ssl_credentials_create_ex(ca, certificate != NULL ? &pair : NULL, NULL, NULL);
    }
    free(ca);
    free(certificate);
    if (key != NULL)
        explicit_bzero(key, strlen(key));
    free(key);
    return ok && (*credentials != NULL ||
                  status_fail(status, STATUS_INVALID_ARGUMENT, "gRPC refuses the certificates"));
}
