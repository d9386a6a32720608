/* SPDX-License-Identifier: Apache-2.0 */
#include "server/access_passwords.h"

#include <crypt.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum {
    USERS_MAX = 4096,
    USER_BYTES_MAX = 128,
    HASH_BYTES_MAX = 256,
    BCRYPT_COST_MAX = 14, /* a second or so */
    ROUNDS_MAX = 1000000, /* likewise */
};

struct entry {
    char *user; /* owned, as hash */
    char *hash;
};

struct access_passwords {
    struct entry entries[USERS_MAX];
    size_t count;
};

static bool load_line(struct access_passwords *passwords,
                      char *line,
                      const char *path,
                      size_t number,
                      struct status *status);
static const char *wrong_with_hash(const char *hash);
static const struct entry *find(const struct access_passwords *passwords, const char *user);

bool access_passwords_load(const char *path,
                           struct access_passwords **passwords,
                           struct status *status)
{
    FILE *const file = fopen(path, "re");
    if (file == NULL) {
        status_fail_errno(status, errno, "%s", path);
        status->code = STATUS_INVALID_ARGUMENT;
        return false;
    }
    struct access_passwords *const made = calloc(1, sizeof(*made));
    char line[1024];
    bool ok = made != NULL || status_fail_errno(status, ENOMEM, "passwords");
    for (size_t number = 1; ok && fgets(line, sizeof(line), file) != NULL; number++)
        ok = load_line(made, line, path, number, status);
    if (ok && ferror(file) != 0)
        ok = status_fail(status, STATUS_INVALID_ARGUMENT, "%s cannot be read", path);
    explicit_bzero(line, sizeof(line));
    fclose(file);
    if (ok)
        *passwords = made;
    else
        access_passwords_free(made);
    return ok;
}

static bool load_line(struct access_passwords *passwords,
                      char *line,
                      const char *path,
                      size_t number,
                      struct status *status)
{
    const size_t length = strcspn(line, "\r\n");
    const bool whole = line[length] != '\0' || strlen(line) < 1023;
    line[length] = '\0';
    if (whole && (length == 0 || line[0] == '#'))
        return true;
    char *const colon = strchr(line, ':');
    if (!whole || colon == NULL || colon == line || colon - line > USER_BYTES_MAX)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "%s line %zu: USER:HASH is wanted, a user of 1 to %d bytes", path,
                           number, USER_BYTES_MAX);
    *colon = '\0';
    /* What htpasswd puts behind a second colon is a remark. */
    colon[1 + strcspn(colon + 1, ":")] = '\0';
    const char *const wrong = wrong_with_hash(colon + 1);
    if (!bytes_is_utf8(bytes_of_string(line)))
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s line %zu: the user is not UTF-8",
                           path, number);
    if (wrong != NULL)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s line %zu, user %s: %s", path,
                           number, line, wrong);
    if (find(passwords, line) != NULL)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s line %zu: user %s is there twice",
                           path, number, line);
    if (passwords->count == USERS_MAX)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s has more than %d users", path,
                           USERS_MAX);
    struct entry *const entry = &passwords->entries[passwords->count++];
    entry->user = strdup(line);
    entry->hash = strdup(colon + 1);
    return (entry->user != NULL && entry->hash != NULL) ||
           status_fail_errno(status, ENOMEM, "passwords");
}

/* NULL: nothing. Whoever may guess must not make a check take minutes. */
static const char *wrong_with_hash(const char *hash)
{
    static const char *const kinds[] = {"$2a$", "$2b$", "$2y$", "$5$", "$6$", "$y$"};
    bool known = false;
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++)
        known |= strncmp(hash, kinds[i], strlen(kinds[i])) == 0;
    if (!known)
        return "its hash is none of bcrypt, SHA-256, SHA-512 or yescrypt (htpasswd -B makes one)";
    const int salt = crypt_checksalt(hash);
    if (strlen(hash) >= HASH_BYTES_MAX ||
        (salt != CRYPT_SALT_OK && salt != CRYPT_SALT_METHOD_LEGACY))
        return "its hash is malformed";
    if (hash[1] == '2' && strtol(hash + 4, NULL, 10) > BCRYPT_COST_MAX)
        return "its bcrypt cost is above 14, which takes too long";
    if ((hash[1] == '5' || hash[1] == '6') && strncmp(hash + 3, "rounds=", 7) == 0 &&
        strtol(hash + 10, NULL, 10) > ROUNDS_MAX)
        return "it has more than 1000000 rounds, which take too long";
    return NULL;
}

void access_passwords_free(struct access_passwords *passwords)
{
    if (passwords == NULL)
        return;
    for (size_t i = 0; i < passwords->count; i++) {
        free(passwords->entries[i].user);
        free(passwords->entries[i].hash);
    }
    free(passwords);
}

size_t access_passwords_count(const struct access_passwords *passwords)
{
    return passwords->count;
}

static const struct entry *find(const struct access_passwords *passwords, const char *user)
{
    for (size_t i = 0; i < passwords->count; i++)
        if (strcmp(passwords->entries[i].user, user) == 0)
            return &passwords->entries[i];
    return NULL;
}

bool access_passwords_have(const struct access_passwords *passwords, const char *user)
{
    return find(passwords, user) != NULL;
}

bool access_passwords_are_right(const struct access_passwords *passwords,
                                const char *user,
                                const char *password)
{
    if (passwords->count == 0)
        return false;
    const struct entry *const found = find(passwords, user);
    const struct entry *const tried = found != NULL ? found : &passwords->entries[0];
    struct crypt_data *const data = calloc(1, sizeof(*data));
    if (data == NULL)
        return false;
    const char *const made = crypt_r(password, tried->hash, data);
    const size_t length = strlen(tried->hash);
    const bool right = made != NULL && made[0] != '*' && strlen(made) == length &&
                       CRYPTO_memcmp(made, tried->hash, length) == 0;
    explicit_bzero(data, sizeof(*data));
    free(data);
    return right && found != NULL;
}
