/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/s3_credentials.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file_stamp.h"
#include "base/lock.h"
#include "base/log.h"

struct secrets {
    char access_key[S3_ACCESS_KEY_BYTES];
    char secret[S3_SECRET_BYTES];
    char token[S3_TOKEN_BYTES];
};

struct s3_credentials {
    /* Set when it is made, never changed. */
    struct clock *clock; /* borrowed */
    char *file;          /* owned; NULL: the environment */
    char *profile;       /* owned */
    char *region;        /* owned */

    struct lock lock;
    struct secrets secrets;    /* guarded by lock, as all below */
    char day[SIGV4_DAY_BYTES]; /* of key; "": none yet */
    struct sigv4_key key;
    int64_t looked_ns; /* when the file was looked at */
    uint64_t stamp;    /* of what was tried last */
};

static bool read_environment(struct secrets *secrets, struct status *status);
static bool copy_value(const char *name,
                       const char *value,
                       size_t length,
                       char *to,
                       size_t capacity,
                       struct status *status);
static bool read_file(const struct s3_credentials *credentials,
                      struct secrets *secrets,
                      struct status *status);
static bool parse_file(const struct s3_credentials *credentials,
                       char *text,
                       struct secrets *secrets,
                       struct status *status);
static bool parse_line(char *line, struct secrets *secrets, struct status *status);
static char *trim(char *text);
static void refresh_locked(struct s3_credentials *credentials) REQUIRES(credentials->lock);

bool s3_credentials_new(const char *file,
                        const char *profile,
                        const char *region,
                        struct clock *clock,
                        struct s3_credentials **credentials_out,
                        struct status *status)
{
    struct s3_credentials *const credentials = calloc(1, sizeof(*credentials));
    if (credentials == NULL)
        return status_fail_errno(status, ENOMEM, "credentials of the tier");
    lock_init(&credentials->lock, LOCK_RANK_TIER);
    credentials->clock = clock;
    credentials->file = file != NULL ? strdup(file) : NULL;
    credentials->profile = strdup(profile != NULL ? profile : "default");
    credentials->region = strdup(region);
    if ((file != NULL && credentials->file == NULL) || credentials->profile == NULL ||
        credentials->region == NULL) {
        status_fail_errno(status, ENOMEM, "credentials of the tier");
        goto fail;
    }
    if (file != NULL) {
        credentials->stamp = file_stamp(&credentials->file, 1);
        credentials->looked_ns = clock_monotonic_ns(clock);
    }
    if (file != NULL ? !read_file(credentials, &credentials->secrets, status)
                     : !read_environment(&credentials->secrets, status))
        goto fail;
    *credentials_out = credentials;
    return true;
fail:
    s3_credentials_free(credentials);
    return false;
}

void s3_credentials_free(struct s3_credentials *credentials)
{
    if (credentials == NULL)
        return;
    OPENSSL_cleanse(&credentials->secrets, sizeof(credentials->secrets));
    OPENSSL_cleanse(&credentials->key, sizeof(credentials->key));
    lock_destroy(&credentials->lock);
    free(credentials->file);
    free(credentials->profile);
    free(credentials->region);
    free(credentials);
}

static bool read_environment(struct secrets *secrets, struct status *status)
{
    const char *const access_key = getenv("AWS_ACCESS_KEY_ID");
    const char *const secret = getenv("AWS_SECRET_ACCESS_KEY");
    const char *const token = getenv("AWS_SESSION_TOKEN");
    if (access_key == NULL || access_key[0] == '\0' || secret == NULL || secret[0] == '\0')
        return status_fail(status, STATUS_FAILED_PRECONDITION,
                           "no credentials for the tier: set AWS_ACCESS_KEY_ID and "
                           "AWS_SECRET_ACCESS_KEY, or name a file");
    return copy_value("AWS_ACCESS_KEY_ID", access_key, strlen(access_key), secrets->access_key,
                      sizeof(secrets->access_key), status) &&
           copy_value("AWS_SECRET_ACCESS_KEY", secret, strlen(secret), secrets->secret,
                      sizeof(secrets->secret), status) &&
           (token == NULL || copy_value("AWS_SESSION_TOKEN", token, strlen(token), secrets->token,
                                        sizeof(secrets->token), status));
}

/* They become part of headers: nothing but printable ASCII. */
static bool copy_value(const char *name,
                       const char *value,
                       size_t length,
                       char *to,
                       size_t capacity,
                       struct status *status)
{
    if (length >= capacity)
        return status_fail(status, STATUS_FAILED_PRECONDITION, "%s is longer than %zu bytes", name,
                           capacity - 1);
    for (size_t i = 0; i < length; i++) {
        if (value[i] <= ' ' || value[i] > '~')
            return status_fail(status, STATUS_FAILED_PRECONDITION,
                               "%s has a byte that is no printable ASCII at %zu", name, i);
    }
    memcpy(to, value, length);
    to[length] = '\0';
    return true;
}

static bool read_file(const struct s3_credentials *credentials,
                      struct secrets *secrets,
                      struct status *status)
{
    FILE *const file = fopen(credentials->file, "re");
    if (file == NULL)
        return status_fail_errno(status, errno, "credentials of the tier: open %s",
                                 credentials->file);
    char *const text = malloc(S3_CREDENTIALS_FILE_BYTES_MAX + 1);
    bool ok = false;
    if (text == NULL) {
        status_fail_errno(status, ENOMEM, "credentials of the tier");
    } else {
        const size_t length = fread(text, 1, S3_CREDENTIALS_FILE_BYTES_MAX + 1, file);
        if (ferror(file)) {
            status_fail_errno(status, EIO, "credentials of the tier: read %s", credentials->file);
        } else if (length > S3_CREDENTIALS_FILE_BYTES_MAX) {
            status_fail(status, STATUS_FAILED_PRECONDITION, "%s is larger than %d bytes",
                        credentials->file, S3_CREDENTIALS_FILE_BYTES_MAX);
        } else {
            text[length] = '\0';
            ok = parse_file(credentials, text, secrets, status);
        }
        OPENSSL_cleanse(text, S3_CREDENTIALS_FILE_BYTES_MAX + 1);
    }
    free(text);
    fclose(file);
    return ok;
}

static bool parse_file(const struct s3_credentials *credentials,
                       char *text,
                       struct secrets *secrets,
                       struct status *status)
{
    struct secrets found = {0};
    bool ours = false;
    bool ok = true;
    char *rest = text;
    for (char *line = strsep(&rest, "\n"); line != NULL && ok; line = strsep(&rest, "\n")) {
        line = trim(line);
        const size_t length = strlen(line);
        if (length == 0 || line[0] == '#' || line[0] == ';')
            continue;
        if (line[0] == '[') {
            const size_t name_length = strlen(credentials->profile);
            ours = length == name_length + 2 && line[length - 1] == ']' &&
                   memcmp(line + 1, credentials->profile, name_length) == 0;
        } else if (ours) {
            ok = parse_line(line, &found, status);
        }
    }
    if (ok && (found.access_key[0] == '\0' || found.secret[0] == '\0'))
        ok = status_fail(status, STATUS_FAILED_PRECONDITION,
                         "%s has no aws_access_key_id and aws_secret_access_key under [%s]",
                         credentials->file, credentials->profile);
    else if (!ok)
        status_prefix(status, "%s", credentials->file);
    if (ok)
        *secrets = found;
    OPENSSL_cleanse(&found, sizeof(found));
    return ok;
}

/* name = value; names that are not known are somebody else's. */
static bool parse_line(char *line, struct secrets *secrets, struct status *status)
{
    char *value = strchr(line, '=');
    if (value == NULL)
        return true;
    *value++ = '\0';
    const char *const name = trim(line);
    value = trim(value);
    const size_t length = strlen(value);
    if (strcmp(name, "aws_access_key_id") == 0)
        return copy_value(name, value, length, secrets->access_key, sizeof(secrets->access_key),
                          status);
    if (strcmp(name, "aws_secret_access_key") == 0)
        return copy_value(name, value, length, secrets->secret, sizeof(secrets->secret), status);
    if (strcmp(name, "aws_session_token") == 0)
        return copy_value(name, value, length, secrets->token, sizeof(secrets->token), status);
    return true;
}

static char *trim(char *text)
{
    while (*text == ' ' || *text == '\t' || *text == '\r')
        text++;
    size_t length = strlen(text);
    while (length > 0 &&
           (text[length - 1] == ' ' || text[length - 1] == '\t' || text[length - 1] == '\r'))
        text[--length] = '\0';
    return text;
}

void s3_credentials_take(struct s3_credentials *credentials,
                         const char day[SIGV4_DAY_BYTES],
                         struct s3_signing *signing)
{
    lock_acquire(&credentials->lock);
    refresh_locked(credentials);
    if (strcmp(credentials->day, day) != 0) {
        sigv4_derive(credentials->secrets.secret, day, credentials->region, "s3",
                     &credentials->key);
        memcpy(credentials->day, day, SIGV4_DAY_BYTES);
    }
    memcpy(signing->access_key, credentials->secrets.access_key, sizeof(signing->access_key));
    memcpy(signing->token, credentials->secrets.token, sizeof(signing->token));
    signing->key = credentials->key;
    lock_release(&credentials->lock);
}

/* A small file, at most once a second, and only when it has changed: the lock may be held meanwhile. */
static void refresh_locked(struct s3_credentials *credentials)
{
    if (credentials->file == NULL)
        return;
    const int64_t now_ns = clock_monotonic_ns(credentials->clock);
    if (now_ns - credentials->looked_ns < NS_PER_S)
        return;
    credentials->looked_ns = now_ns;
    const uint64_t stamp = file_stamp(&credentials->file, 1);
    if (stamp == credentials->stamp)
        return;
    credentials->stamp = stamp;
    struct status status = {0};
    struct log_text quoted;
    if (!read_file(credentials, &credentials->secrets, &status)) {
        log_event(LOG_LEVEL_WARN, "tier_credentials_unreadable", "reason=%s",
                  log_quote(&quoted, status.message));
        return;
    }
    credentials->day[0] = '\0';
    log_event(LOG_LEVEL_INFO, "tier_credentials_read", "file=%s",
              log_quote(&quoted, credentials->file));
}
