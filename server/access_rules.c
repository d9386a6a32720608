/* SPDX-License-Identifier: Apache-2.0 */
#include "server/access_rules.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "proto/resource_name.h"
#include "server/access_keys.h"
#include "server/access_passwords.h"
#include "base/file_stamp.h"

enum {
    LINE_BYTES_MAX = 4096,
    WORDS_MAX = 128,
    FILES_MAX = 24, /* the access file, and those that it names */
    JWTS_MAX = 16,
    CERTIFICATES_MAX = 256,
    SUBJECT_BYTES_MAX = 1024,
    PATH_BYTES_MAX = 4096,
    LEEWAY_S = 60, /* of clocks that differ */
};

struct token {
    char *user;
    uint8_t hash[SHA256_HASH_BYTES];
};

struct jwt_issuer {
    char *issuer, *audience, *user_claim, *groups_claim, *prefix;
    struct access_keys *keys;
};

struct certificate {
    char *user, *text;
    bool by_subject; /* else by a name */
};

struct group {
    char *name;
    char **members;
    size_t count;
};

enum who_kind { WHO_USER, WHO_GROUP, WHO_USERS, WHO_ANONYMOUS };

struct who {
    enum who_kind kind;
    char *name; /* USER, GROUP */
};

struct rule {
    bool is_limit;
    uint32_t limited; /* of a limit: a bit for each of limit_names */
    struct access_limits limits;
    uint32_t roles; /* a bit for each enum method_role */
    struct who *whos;
    size_t count;
    bool everywhere;
    char *instance; /* else: this one, and those below it; "" is itself alone */
};

struct access_rules {
    _Atomic int references;

    /* Set by access_rules_load(), never changed; all owned. */
    char *files[FILES_MAX];
    size_t file_count;
    uint64_t stamp; /* of what was read */
    struct token tokens[ACCESS_TOKENS_MAX];
    size_t token_count;
    struct access_passwords *passwords[FILES_MAX];
    size_t passwords_count;
    struct jwt_issuer jwts[JWTS_MAX];
    size_t jwt_count;
    struct certificate certificates[CERTIFICATES_MAX];
    size_t certificate_count;
    struct group groups[ACCESS_GROUPS_MAX];
    size_t group_count;
    struct rule rules[ACCESS_RULES_MAX];
    size_t rule_count;
    struct access_applies anonymous; /* those for everybody */
};

/* A line, in words; quotes are gone. */
struct line {
    char memory[LINE_BYTES_MAX];
    char *words[WORDS_MAX];
    size_t count;
    const char *directory; /* where relative paths begin; borrowed */
};

static void rules_free(struct access_rules *rules);
static bool read_file(struct access_rules *rules,
                      FILE *file,
                      const char *path,
                      struct status *status);
static bool split(struct line *line, const char *text, struct status *status);
static void add_rules_of(const struct access_rules *rules,
                         const char *user,
                         const struct json_value *groups,
                         struct access_applies *applies);
static bool read_token(struct access_rules *rules, const struct line *line, struct status *status);
static bool read_passwords(struct access_rules *rules,
                           const struct line *line,
                           struct status *status);
static bool read_jwt(struct access_rules *rules, const struct line *line, struct status *status);
static bool read_certificate(struct access_rules *rules,
                             const struct line *line,
                             struct status *status);
static bool read_group(struct access_rules *rules, const struct line *line, struct status *status);
static bool read_allow(struct access_rules *rules, const struct line *line, struct status *status);
static bool read_limit(struct access_rules *rules, const struct line *line, struct status *status);

static const struct {
    const char *word;
    size_t words_min;
    bool (*read)(struct access_rules *rules, const struct line *line, struct status *status);
    const char *form;
} statements[] = {
    {"token", 3, read_token, "token NAME SHA256"},
    {"passwords", 2, read_passwords, "passwords FILE"},
    {"jwt", 4, read_jwt,
     "jwt FILE issuer=TEXT audience=TEXT [user=CLAIM] [groups=CLAIM] [prefix=TEXT]"},
    {"certificate", 4, read_certificate, "certificate NAME subject|san TEXT"},
    {"group", 3, read_group, "group NAME MEMBER..."},
    {"limit", 4, read_limit, "limit NAME=VALUE... to WHO[,WHO...]"},
    {"allow", 4, read_allow, "allow ROLE[,ROLE...] to WHO[,WHO...] [in INSTANCE]"},
};

/* ---- reading */

bool access_rules_load(const char *path, struct access_rules **rules, struct status *status)
{
    FILE *const file = fopen(path, "re");
    if (file == NULL) {
        status_fail_errno(status, errno, "access file %s", path);
        status->code = STATUS_INVALID_ARGUMENT;
        return false;
    }
    struct access_rules *const made = calloc(1, sizeof(*made));
    bool ok = made != NULL || status_fail_errno(status, ENOMEM, "access rules");
    if (ok) {
        made->references = 1;
        made->files[0] = strdup(path);
        made->file_count = 1;
        ok = made->files[0] != NULL || status_fail_errno(status, ENOMEM, "access rules");
    }
    ok = ok && read_file(made, file, path, status);
    fclose(file);
    bool allows = false;
    for (size_t i = 0; ok && i < made->rule_count; i++)
        allows = allows || !made->rules[i].is_limit;
    if (ok && !allows)
        ok = status_fail(status, STATUS_INVALID_ARGUMENT,
                         "access file %s allows nobody anything: it has no line \"allow ...\"",
                         path);
    if (!ok) {
        rules_free(made);
        return false;
    }
    made->stamp = access_rules_stamp(made);
    add_rules_of(made, NULL, NULL, &made->anonymous);
    *rules = made;
    return true;
}

static bool read_file(struct access_rules *rules,
                      FILE *file,
                      const char *path,
                      struct status *status)
{
    char text[LINE_BYTES_MAX];
    char directory[PATH_BYTES_MAX] = "";
    const char *const slash = strrchr(path, '/');
    if (slash != NULL)
        snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path + 1), path);
    struct line *const line = calloc(1, sizeof(*line));
    if (line == NULL)
        return status_fail_errno(status, ENOMEM, "access rules");
    line->directory = directory;
    bool ok = true;
    for (size_t number = 1; ok && fgets(text, sizeof(text), file) != NULL; number++) {
        if (strlen(text) == sizeof(text) - 1 && text[sizeof(text) - 2] != '\n')
            ok = status_fail(status, STATUS_INVALID_ARGUMENT, "it is longer than %d bytes",
                             LINE_BYTES_MAX - 2);
        ok = ok && split(line, text, status);
        size_t i = 0;
        while (ok && line->count > 0 && i < ARRAY_LENGTH(statements) &&
               strcmp(line->words[0], statements[i].word) != 0)
            i++;
        if (ok && line->count > 0) {
            if (i == ARRAY_LENGTH(statements))
                ok = status_fail(status, STATUS_INVALID_ARGUMENT,
                                 "it begins with none of token, passwords, jwt, certificate, "
                                 "group, limit, allow");
            else if (line->count < statements[i].words_min)
                ok = status_fail(status, STATUS_INVALID_ARGUMENT, "\"%s\" is wanted",
                                 statements[i].form);
            else
                ok = statements[i].read(rules, line, status);
        }
        if (!ok) {
            status->code = STATUS_INVALID_ARGUMENT;
            status_prefix(status, "access file %s line %zu", path, number);
        }
    }
    if (ok && ferror(file) != 0)
        ok = status_fail(status, STATUS_INVALID_ARGUMENT, "access file %s cannot be read", path);
    free(line);
    return ok;
}

/* Blanks separate, "..." keeps them, # begins a comment. */
static bool split(struct line *line, const char *text, struct status *status)
{
    char *to = line->memory;
    const char *at = text;
    line->count = 0;
    for (;;) {
        at += strspn(at, " \t\r\n");
        if (*at == '\0' || *at == '#')
            return true;
        if (line->count == WORDS_MAX)
            return status_fail(status, STATUS_INVALID_ARGUMENT, "it has more than %d words",
                               WORDS_MAX);
        line->words[line->count++] = to;
        bool quoted = false;
        for (; *at != '\0' && (quoted || strchr(" \t\r\n", *at) == NULL); at++) {
            if (*at == '"')
                quoted = !quoted;
            else
                *to++ = *at;
        }
        *to++ = '\0';
        if (quoted)
            return status_fail(status, STATUS_INVALID_ARGUMENT, "a quote is not closed");
    }
}

static bool copy(const char *text, char **to, struct status *status)
{
    *to = strdup(text);
    return *to != NULL || status_fail_errno(status, ENOMEM, "access rules");
}

static bool check_room(size_t count, size_t max, const char *what, struct status *status)
{
    return count < max ||
           status_fail(status, STATUS_INVALID_ARGUMENT, "there are more than %zu %s", max, what);
}

static bool check_name(const char *name, struct status *status)
{
    const size_t length = strlen(name);
    bool ok = length > 0 && length <= ACCESS_NAME_BYTES_MAX && bytes_is_utf8(bytes_of_string(name));
    for (size_t i = 0; i < length; i++)
        ok = ok && (uint8_t)name[i] >= ' ' && name[i] != ',';
    return ok ||
           status_fail(status, STATUS_INVALID_ARGUMENT,
                       "a name has 1 to %d bytes of UTF-8 and no comma", ACCESS_NAME_BYTES_MAX);
}

static bool add_file(struct access_rules *rules,
                     const struct line *line,
                     const char *name,
                     const char **path,
                     struct status *status)
{
    char whole[2 * PATH_BYTES_MAX];
    snprintf(whole, sizeof(whole), "%s%s", name[0] == '/' ? "" : line->directory, name);
    if (!check_room(rules->file_count, FILES_MAX, "files", status) ||
        !copy(whole, &rules->files[rules->file_count], status))
        return false;
    *path = rules->files[rules->file_count++];
    return true;
}

static bool read_token(struct access_rules *rules, const struct line *line, struct status *status)
{
    const char *hex = line->words[2];
    struct digest digest;
    struct status ignored;
    if (line->count != 3 || !check_name(line->words[1], status))
        return status_fail(status, STATUS_INVALID_ARGUMENT, "\"token NAME SHA256\" is wanted");
    if (!check_room(rules->token_count, ACCESS_TOKENS_MAX, "tokens", status))
        return false;
    if (strncmp(hex, "sha256:", 7) == 0)
        hex += 7;
    if (!digest_parse(DIGEST_FUNCTION_SHA256, bytes_of_string(hex), 0, &digest, &ignored))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "behind the name stands the SHA-256 of the token in hex (printf %%s "
                           "TOKEN | sha256sum), never the token");
    struct token *const token = &rules->tokens[rules->token_count++];
    memcpy(token->hash, digest.hash, sizeof(token->hash));
    return copy(line->words[1], &token->user, status);
}

static bool read_passwords(struct access_rules *rules,
                           const struct line *line,
                           struct status *status)
{
    const char *path;
    if (line->count != 2)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "\"passwords FILE\" is wanted");
    if (!add_file(rules, line, line->words[1], &path, status) ||
        !access_passwords_load(path, &rules->passwords[rules->passwords_count], status))
        return false;
    rules->passwords_count++;
    return true;
}

static bool read_jwt(struct access_rules *rules, const struct line *line, struct status *status)
{
    const char *path;
    if (!check_room(rules->jwt_count, JWTS_MAX, "lines of jwt", status))
        return false;
    struct jwt_issuer *const jwt = &rules->jwts[rules->jwt_count++];
    const struct {
        const char *key;
        char **field;
    } options[] = {{"issuer=", &jwt->issuer},
                   {"audience=", &jwt->audience},
                   {"user=", &jwt->user_claim},
                   {"groups=", &jwt->groups_claim},
                   {"prefix=", &jwt->prefix}};
    for (size_t i = 2; i < line->count; i++) {
        const char *const word = line->words[i];
        size_t j = 0;
        while (j < ARRAY_LENGTH(options) &&
               strncmp(word, options[j].key, strlen(options[j].key)) != 0)
            j++;
        if (j == ARRAY_LENGTH(options) || *options[j].field != NULL)
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "\"%.60s\" is none of issuer=, audience=, user=, groups=, prefix=, "
                               "or is there twice",
                               word);
        if (!copy(word + strlen(options[j].key), options[j].field, status))
            return false;
    }
    if (jwt->issuer == NULL || jwt->audience == NULL || jwt->issuer[0] == '\0' ||
        jwt->audience[0] == '\0')
        return status_fail(status, STATUS_INVALID_ARGUMENT, "issuer= and audience= are needed");
    return (jwt->user_claim != NULL || copy("sub", &jwt->user_claim, status)) &&
           (jwt->groups_claim != NULL || copy("groups", &jwt->groups_claim, status)) &&
           (jwt->prefix != NULL || copy("", &jwt->prefix, status)) &&
           add_file(rules, line, line->words[1], &path, status) &&
           access_keys_load(path, &jwt->keys, status);
}

static bool read_certificate(struct access_rules *rules,
                             const struct line *line,
                             struct status *status)
{
    const bool by_subject = strcmp(line->words[2], "subject") == 0;
    if (line->count != 4 || (!by_subject && strcmp(line->words[2], "san") != 0))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "\"certificate NAME subject|san TEXT\" is wanted; a text with blanks "
                           "stands in quotes");
    if (!check_name(line->words[1], status) ||
        !check_room(rules->certificate_count, CERTIFICATES_MAX, "certificates", status))
        return false;
    struct certificate *const certificate = &rules->certificates[rules->certificate_count++];
    certificate->by_subject = by_subject;
    return copy(line->words[1], &certificate->user, status) &&
           copy(line->words[3], &certificate->text, status);
}

static bool read_group(struct access_rules *rules, const struct line *line, struct status *status)
{
    if (!check_name(line->words[1], status) ||
        !check_room(rules->group_count, ACCESS_GROUPS_MAX, "groups", status))
        return false;
    struct group *const group = &rules->groups[rules->group_count++];
    group->members = calloc(line->count - 2, sizeof(*group->members));
    if (group->members == NULL)
        return status_fail_errno(status, ENOMEM, "access rules");
    for (size_t i = 2; i < line->count; i++)
        if (!check_name(line->words[i], status) ||
            !copy(line->words[i], &group->members[group->count++], status))
            return false;
    return copy(line->words[1], &group->name, status);
}

static bool read_roles(char *list, uint32_t *roles, struct status *status)
{
    char *rest = NULL;
    for (const char *name = strtok_r(list, ",", &rest); name != NULL;
         name = strtok_r(NULL, ",", &rest)) {
        enum method_role role = ROLE_READ;
        while (role < ROLE_COUNT && strcmp(name, method_role_name(role)) != 0)
            role++;
        if (role == ROLE_COUNT)
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "\"%.60s\" is none of read, write-cas, write-ac, replicate, admin",
                               name);
        *roles |= UINT32_C(1) << role;
    }
    return *roles != 0 || status_fail(status, STATUS_INVALID_ARGUMENT, "it names no role");
}

static bool read_who(const char *text, struct who *who, struct status *status)
{
    if (strcmp(text, "anonymous") == 0) {
        who->kind = WHO_ANONYMOUS;
        return true;
    }
    if (strcmp(text, "users") == 0) {
        who->kind = WHO_USERS;
        return true;
    }
    who->kind = strncmp(text, "group:", 6) == 0 ? WHO_GROUP : WHO_USER;
    if (who->kind == WHO_USER && strncmp(text, "user:", 5) != 0)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "\"%.60s\" is none of user:NAME, group:NAME, users, anonymous", text);
    const char *const name = strchr(text, ':') + 1;
    return check_name(name, status) && copy(name, &who->name, status);
}

static bool read_whos(char *words, struct rule *rule, struct status *status);

static bool read_allow(struct access_rules *rules, const struct line *line, struct status *status)
{
    const bool somewhere = line->count == 6 && strcmp(line->words[4], "in") == 0;
    if (strcmp(line->words[2], "to") != 0 || (line->count != 4 && !somewhere))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "\"allow ROLE[,ROLE...] to WHO[,WHO...] [in INSTANCE]\" is wanted, "
                           "with no blanks at the commas");
    if (!check_room(rules->rule_count, ACCESS_RULES_MAX, "lines of allow", status))
        return false;
    struct rule *const rule = &rules->rules[rules->rule_count++];
    rule->everywhere = !somewhere || strcmp(line->words[5], "*") == 0;
    const char *const instance = rule->everywhere ? "" : line->words[5];
    if (instance[0] != '\0' && !instance_name_check(bytes_of_string(instance), status))
        return false;
    rule->whos = calloc(WORDS_MAX, sizeof(*rule->whos));
    if (rule->whos == NULL)
        return status_fail_errno(status, ENOMEM, "access rules");
    if (!copy(instance, &rule->instance, status) ||
        !read_roles(line->words[1], &rule->roles, status))
        return false;
    return read_whos(line->words[3], rule, status);
}

static bool read_whos(char *words, struct rule *rule, struct status *status)
{
    char *rest = NULL;
    for (const char *text = strtok_r(words, ",", &rest); text != NULL;
         text = strtok_r(NULL, ",", &rest))
        if (!check_room(rule->count, WORDS_MAX, "names in a line", status) ||
            !read_who(text, &rule->whos[rule->count++], status))
            return false;
    return rule->count > 0 || status_fail(status, STATUS_INVALID_ARGUMENT, "it names nobody");
}

static const struct {
    const char *name;
    size_t offset;
} limit_names[] = {{"calls=", offsetof(struct access_limits, calls)},
                   {"memory=", offsetof(struct access_limits, memory_bytes)},
                   {"calls-per-second=", offsetof(struct access_limits, calls_per_s)},
                   {"bytes-per-second=", offsetof(struct access_limits, bytes_per_s)}};

/* A number, with KiB, MiB or GiB behind it or nothing. */
static bool read_amount(const char *text, uint64_t *amount, struct status *status)
{
    static const struct {
        const char *unit;
        uint64_t factor;
    } units[] = {{"", 1}, {"B", 1}, {"KiB", KIB}, {"MiB", MIB}, {"GiB", GIB}};
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    bool ok = text[0] >= '0' && text[0] <= '9' && errno == 0 && number <= INT32_MAX;
    for (size_t i = 0; ok && i < ARRAY_LENGTH(units); i++) {
        if (strcmp(end, units[i].unit) == 0) {
            *amount = number * units[i].factor;
            return true;
        }
    }
    return status_fail(status, STATUS_INVALID_ARGUMENT,
                       "\"%s\" is no whole number, with B, KiB, MiB, GiB or nothing behind it",
                       text);
}

static bool read_limit(struct access_rules *rules, const struct line *line, struct status *status)
{
    if (strcmp(line->words[line->count - 2], "to") != 0)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "\"limit NAME=VALUE... to WHO[,WHO...]\" is wanted, with no blanks at "
                           "the commas");
    if (!check_room(rules->rule_count, ACCESS_RULES_MAX, "lines of allow and limit", status))
        return false;
    struct rule *const rule = &rules->rules[rules->rule_count++];
    rule->is_limit = true;
    rule->whos = calloc(WORDS_MAX, sizeof(*rule->whos));
    if (rule->whos == NULL)
        return status_fail_errno(status, ENOMEM, "access rules");
    for (size_t i = 1; i + 2 < line->count; i++) {
        const char *const word = line->words[i];
        size_t j = 0;
        while (j < ARRAY_LENGTH(limit_names) &&
               strncmp(word, limit_names[j].name, strlen(limit_names[j].name)) != 0)
            j++;
        if (j == ARRAY_LENGTH(limit_names) || (rule->limited & 1U << j) != 0)
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "\"%s\" is none of calls=, memory=, calls-per-second= and "
                               "bytes-per-second=, each once",
                               word);
        uint64_t amount = 0;
        if (!read_amount(word + strlen(limit_names[j].name), &amount, status))
            return false;
        memcpy((uint8_t *)&rule->limits + limit_names[j].offset, &amount, sizeof(amount));
        rule->limited |= 1U << j;
    }
    return read_whos(line->words[line->count - 1], rule, status);
}

void access_rules_limits(const struct access_rules *rules,
                         const struct access_applies *applies,
                         struct access_limits *limits)
{
    for (size_t i = 0; i < rules->rule_count; i++) {
        const struct rule *const rule = &rules->rules[i];
        if (!rule->is_limit || (applies->bits[i / 64] & UINT64_C(1) << i % 64) == 0)
            continue;
        for (size_t j = 0; j < ARRAY_LENGTH(limit_names); j++)
            if ((rule->limited & 1U << j) != 0)
                memcpy((uint8_t *)limits + limit_names[j].offset,
                       (const uint8_t *)&rule->limits + limit_names[j].offset, sizeof(uint64_t));
        return;
    }
}

static void rules_free(struct access_rules *rules)
{
    if (rules == NULL)
        return;
    for (size_t i = 0; i < rules->file_count; i++)
        free(rules->files[i]);
    for (size_t i = 0; i < rules->token_count; i++)
        free(rules->tokens[i].user);
    for (size_t i = 0; i < rules->passwords_count; i++)
        access_passwords_free(rules->passwords[i]);
    for (size_t i = 0; i < rules->jwt_count; i++) {
        struct jwt_issuer *const jwt = &rules->jwts[i];
        free(jwt->issuer);
        free(jwt->audience);
        free(jwt->user_claim);
        free(jwt->groups_claim);
        free(jwt->prefix);
        access_keys_free(jwt->keys);
    }
    for (size_t i = 0; i < rules->certificate_count; i++) {
        free(rules->certificates[i].user);
        free(rules->certificates[i].text);
    }
    for (size_t i = 0; i < rules->group_count; i++) {
        for (size_t j = 0; j < rules->groups[i].count; j++)
            free(rules->groups[i].members[j]);
        free(rules->groups[i].members);
        free(rules->groups[i].name);
    }
    for (size_t i = 0; i < rules->rule_count; i++) {
        for (size_t j = 0; j < rules->rules[i].count; j++)
            free(rules->rules[i].whos[j].name);
        free(rules->rules[i].whos);
        free(rules->rules[i].instance);
    }
    free(rules);
}

void access_rules_ref(struct access_rules *rules)
{
    atomic_fetch_add_explicit(&rules->references, 1, memory_order_relaxed);
}

void access_rules_unref(struct access_rules *rules)
{
    if (rules != NULL && atomic_fetch_sub(&rules->references, 1) == 1)
        rules_free(rules);
}

uint64_t access_rules_stamp(const struct access_rules *rules)
{
    return file_stamp(rules->files, rules->file_count);
}

bool access_rules_are_stale(const struct access_rules *rules)
{
    return access_rules_stamp(rules) != rules->stamp;
}

/* ---- who is it */

const char *access_rules_token_user(const struct access_rules *rules, struct bytes token)
{
    struct digest digest;
    const char *user = NULL;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, token, &digest);
    for (size_t i = 0; i < rules->token_count; i++)
        if (CRYPTO_memcmp(rules->tokens[i].hash, digest.hash, SHA256_HASH_BYTES) == 0)
            user = rules->tokens[i].user;
    return user;
}

bool access_rules_have_tokens(const struct access_rules *rules)
{
    return rules->token_count + rules->jwt_count > 0;
}

bool access_rules_have_passwords(const struct access_rules *rules)
{
    return rules->passwords_count > 0;
}

bool access_rules_have_certificates(const struct access_rules *rules)
{
    return rules->certificate_count > 0;
}

bool access_rules_password_is_right(const struct access_rules *rules,
                                    const char *user,
                                    const char *password)
{
    if (rules->passwords_count == 0)
        return false;
    size_t i = 0;
    while (i + 1 < rules->passwords_count && !access_passwords_have(rules->passwords[i], user))
        i++;
    return access_passwords_are_right(rules->passwords[i], user, password);
}

static bool is_member(const struct access_rules *rules,
                      const char *group,
                      const char *user,
                      const struct json_value *groups)
{
    for (size_t i = 0; i < rules->group_count; i++) {
        const struct group *const known = &rules->groups[i];
        for (size_t j = 0; strcmp(known->name, group) == 0 && j < known->count; j++)
            if (strcmp(known->members[j], user) == 0)
                return true;
    }
    struct json_value element;
    size_t at = 0;
    while (groups != NULL && json_element(groups, &at, &element))
        if (json_text_is(&element, group))
            return true;
    return groups != NULL && json_text_is(groups, group);
}

/* user NULL: somebody who has shown nothing. */
static bool applies_to(const struct access_rules *rules,
                       const struct rule *rule,
                       const char *user,
                       const struct json_value *groups)
{
    for (size_t i = 0; i < rule->count; i++) {
        const struct who *const who = &rule->whos[i];
        switch (who->kind) {
        case WHO_ANONYMOUS:
            return true;
        case WHO_USERS:
            if (user != NULL)
                return true;
            break;
        case WHO_USER:
            if (user != NULL && strcmp(who->name, user) == 0)
                return true;
            break;
        case WHO_GROUP:
            if (user != NULL && is_member(rules, who->name, user, groups))
                return true;
            break;
        }
    }
    return false;
}

static void add_rules_of(const struct access_rules *rules,
                         const char *user,
                         const struct json_value *groups,
                         struct access_applies *applies)
{
    for (size_t i = 0; i < rules->rule_count; i++)
        if (applies_to(rules, &rules->rules[i], user, groups))
            applies->bits[i / 64] |= UINT64_C(1) << i % 64;
}

void access_rules_of_anonymous(const struct access_rules *rules, struct access_applies *applies)
{
    *applies = rules->anonymous;
}

void access_rules_of_user(const struct access_rules *rules,
                          const char *user,
                          const struct json_value *groups,
                          struct access_applies *applies)
{
    add_rules_of(rules, user, groups, applies);
}

bool access_rules_check_jwt(const struct access_rules *rules,
                            struct bytes token,
                            int64_t now_s,
                            char *user,
                            struct access_applies *applies,
                            int64_t *expires_s,
                            struct status *status)
{
    struct jwt *const jwt = malloc(sizeof(*jwt));
    if (jwt == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for a token");
    bool ok = jwt_parse(token, jwt, status);
    const struct jwt_issuer *issuer = NULL;
    if (ok) {
        ok = false;
        status_fail(status, STATUS_UNAUTHENTICATED, "the token is of another issuer");
        for (size_t i = 0; i < rules->jwt_count && !ok; i++) {
            issuer = &rules->jwts[i];
            const struct jwt_demand demand = {.issuer = issuer->issuer,
                                              .audience = issuer->audience,
                                              .now_s = now_s,
                                              .leeway_s = LEEWAY_S};
            ok = jwt_check(jwt, &demand, expires_s, status);
            if (ok && !access_keys_verify(issuer->keys, jwt))
                ok = status_fail(status, STATUS_UNAUTHENTICATED,
                                 "the token's signature is not by a key of its issuer");
        }
    }
    struct json_value claim;
    if (ok) {
        const size_t prefix = strlen(issuer->prefix);
        if (prefix < ACCESS_NAME_BYTES_MAX)
            memcpy(user, issuer->prefix, prefix);
        ok = prefix < ACCESS_NAME_BYTES_MAX &&
             json_member(&jwt->claims, issuer->user_claim, &claim) &&
             json_text(&claim, user + prefix, ACCESS_NAME_BYTES_MAX + 1 - prefix) &&
             user[prefix] != '\0';
        if (!ok)
            status_fail(status, STATUS_UNAUTHENTICATED,
                        "the token does not say whose it is (%.60s), in up to %d bytes",
                        issuer->user_claim, ACCESS_NAME_BYTES_MAX);
    }
    if (ok) {
        const bool has_groups = json_member(&jwt->claims, issuer->groups_claim, &claim);
        access_rules_of_user(rules, user, has_groups ? &claim : NULL, applies);
    }
    free(jwt);
    return ok;
}

/* ---- certificates */

static bool subject_is(X509 *certificate, const char *text)
{
    char *data = NULL;
    BIO *const bio = BIO_new(BIO_s_mem());
    bool same = false;
    if (bio != NULL &&
        X509_NAME_print_ex(bio, X509_get_subject_name(certificate), 0,
                           XN_FLAG_RFC2253 & ~(unsigned long)ASN1_STRFLGS_ESC_MSB) >= 0) {
        const long length = BIO_get_mem_data(bio, &data);
        same = length >= 0 && bytes_equal_string(bytes_of(data, (size_t)length), text);
    }
    BIO_free(bio);
    return same;
}

static bool name_is(const GENERAL_NAME *name, const char *kind, const char *text)
{
    if (strncmp(text, kind, strlen(kind)) != 0)
        return false;
    /* DNS, URI and email are all of one type underneath. */
    const struct bytes wanted = bytes_of_string(text + strlen(kind));
    const ASN1_STRING *const have = name->d.ia5;
    return bytes_equal(wanted,
                       bytes_of(ASN1_STRING_get0_data(have), (size_t)ASN1_STRING_length(have)));
}

static bool address_is(const GENERAL_NAME *name, const char *text)
{
    if (strncmp(text, "IP:", 3) != 0)
        return false;
    ASN1_OCTET_STRING *const wanted = a2i_IPADDRESS(text + 3);
    const bool same = wanted != NULL && ASN1_STRING_cmp(wanted, name->d.iPAddress) == 0;
    ASN1_OCTET_STRING_free(wanted);
    return same;
}

static bool has_name(X509 *certificate, const char *text)
{
    GENERAL_NAMES *const names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    bool found = false;
    for (int i = 0; names != NULL && !found && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *const name = sk_GENERAL_NAME_value(names, i);
        switch (name->type) {
        case GEN_DNS:
            found = name_is(name, "DNS:", text);
            break;
        case GEN_URI:
            found = name_is(name, "URI:", text);
            break;
        case GEN_EMAIL:
            found = name_is(name, "email:", text);
            break;
        case GEN_IPADD:
            found = address_is(name, text);
            break;
        default:
            break;
        }
    }
    GENERAL_NAMES_free(names);
    return found;
}

const char *access_rules_certificate_user(const struct access_rules *rules, X509 *certificate)
{
    const char *user = NULL;
    for (size_t i = 0; i < rules->certificate_count && user == NULL; i++) {
        const struct certificate *const known = &rules->certificates[i];
        if (known->by_subject ? subject_is(certificate, known->text)
                              : has_name(certificate, known->text))
            user = known->user;
    }
    ERR_clear_error();
    return user;
}

/* ---- what may it */

static bool has_bit(const struct access_applies *applies, size_t i)
{
    return (applies->bits[i / 64] >> i % 64 & 1) != 0;
}

static bool has_role(const struct rule *rule, enum method_role role)
{
    return !rule->is_limit && (role == ROLE_ANY || (rule->roles >> role & 1) != 0);
}

static bool covers(const struct rule *rule, struct bytes instance)
{
    if (rule->everywhere)
        return true;
    const size_t length = strlen(rule->instance);
    if (length == 0 || instance.length < length)
        return length == instance.length;
    return memcmp(instance.data, rule->instance, length) == 0 &&
           (instance.length == length || instance.data[length] == '/');
}

bool access_rules_permit(const struct access_rules *rules,
                         const struct access_applies *applies,
                         enum method_role role,
                         struct bytes instance)
{
    for (size_t i = 0; i < rules->rule_count; i++)
        if (has_bit(applies, i) && has_role(&rules->rules[i], role) &&
            covers(&rules->rules[i], instance))
            return true;
    return false;
}

bool access_rules_permit_somewhere(const struct access_rules *rules,
                                   const struct access_applies *applies,
                                   enum method_role role)
{
    for (size_t i = 0; i < rules->rule_count; i++)
        if (has_bit(applies, i) && has_role(&rules->rules[i], role))
            return true;
    return false;
}

bool access_rules_permit_everywhere(const struct access_rules *rules,
                                    const struct access_applies *applies,
                                    enum method_role role)
{
    for (size_t i = 0; i < rules->rule_count; i++)
        if (has_bit(applies, i) && has_role(&rules->rules[i], role) && rules->rules[i].everywhere)
            return true;
    return false;
}

void access_rules_count(const struct access_rules *rules, struct access_counts *counts)
{
    *counts = (struct access_counts){.rules = rules->rule_count,
                                     .tokens = rules->token_count,
                                     .certificates = rules->certificate_count,
                                     .groups = rules->group_count};
    for (size_t i = 0; i < rules->passwords_count; i++)
        counts->passwords += access_passwords_count(rules->passwords[i]);
    for (size_t i = 0; i < rules->jwt_count; i++)
        counts->keys += access_keys_count(rules->jwts[i].keys);
}
