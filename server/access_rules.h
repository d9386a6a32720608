/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The access file: who there is, how each shows who it is, and which roles it has where. Read
 * whole, then never changed; docs/operations.md has its manual.
 *
 *   token NAME SHA256                              a bearer token, by its hash
 *   passwords FILE                                 an htpasswd file: Basic
 *   jwt FILE issuer=TEXT audience=TEXT [user=CLAIM] [groups=CLAIM] [prefix=TEXT]
 *   certificate NAME subject TEXT                  a client certificate, by its subject (RFC 4514)
 *   certificate NAME san TEXT                      or by one of its names: DNS:..., URI:..., email:..., IP:...
 *   group NAME MEMBER...
 *   limit NAME=VALUE... to WHO[,WHO...]            calls, memory, calls-per-second, bytes-per-second; the first line that fits
 *   allow ROLE[,ROLE...] to WHO[,WHO...] [in INSTANCE]   WHO: user:NAME, group:NAME, users, anonymous
 */
#ifndef VARVE_SERVER_ACCESS_RULES_H
#define VARVE_SERVER_ACCESS_RULES_H

#include <openssl/x509.h>

#include "base/bytes.h"
#include "base/status.h"
#include "server/roles.h"

struct access_rules;

enum {
    ACCESS_NAME_BYTES_MAX = 128, /* of a user, a group, an instance prefix is longer */
    ACCESS_RULES_MAX = 256,
    ACCESS_TOKENS_MAX = 256,
    ACCESS_PASSWORDS_MAX = 4096,
    ACCESS_KEYS_MAX = 64,
    ACCESS_GROUPS_MAX = 256,
};

/* With one reference. INVALID_ARGUMENT naming file, line and what is wrong; never a secret. */
MUST_CHECK bool access_rules_load(const char *path,
                                  struct access_rules **rules,
                                  struct status *status);
void access_rules_ref(struct access_rules *rules);
void access_rules_unref(struct access_rules *rules); /* NULL is fine */

/* Has one of the files that they were read from changed since? */
bool access_rules_are_stale(const struct access_rules *rules);
/* Changes with the content of one of the files; 0 when they cannot be looked at. */
uint64_t access_rules_stamp(const struct access_rules *rules);

/* ---- who is it; any thread. Names are valid as long as the rules. */

/* The user of a bearer token, compared in constant time; NULL: of nobody. */
const char *access_rules_token_user(const struct access_rules *rules, struct bytes token);

/*
 * Slow on purpose (crypt, some 100 ms): for a thread that may wait. Unknown users take as long.
 */
bool access_rules_password_is_right(const struct access_rules *rules,
                                    const char *user,
                                    const char *password);
bool access_rules_have_passwords(const struct access_rules *rules);
bool access_rules_have_tokens(const struct access_rules *rules); /* JWTs count */

/* Rules that apply to somebody, a bit each. */
struct access_applies {
    uint64_t bits[ACCESS_RULES_MAX / 64];
};

/* Whoever it is, also somebody who has shown nothing. */
void access_rules_of_anonymous(const struct access_rules *rules, struct access_applies *applies);
/* Adds those of a user of this name. groups: what a token says of it besides the file; may be NULL. */
struct json_value;
void access_rules_of_user(const struct access_rules *rules,
                          const char *user,
                          const struct json_value *groups,
                          struct access_applies *applies);

/*
 * A JWT: verified by one of the keys, and what it says checked. user: ACCESS_NAME_BYTES_MAX + 1
 * bytes. *expires_s: seconds since 1970. UNAUTHENTICATED.
 */
MUST_CHECK bool access_rules_check_jwt(const struct access_rules *rules,
                                       struct bytes token,
                                       int64_t now_s,
                                       char *user,
                                       struct access_applies *applies,
                                       int64_t *expires_s,
                                       struct status *status);

/* The user of a client certificate that has been verified; NULL: of nobody. */
const char *access_rules_certificate_user(const struct access_rules *rules, X509 *certificate);
bool access_rules_have_certificates(const struct access_rules *rules);

/* ---- what may it */

/* The role in this instance. */
bool access_rules_permit(const struct access_rules *rules,
                         const struct access_applies *applies,
                         enum method_role role,
                         struct bytes instance);
/* The role in some instance; ROLE_ANY: some role in some instance. */
bool access_rules_permit_somewhere(const struct access_rules *rules,
                                   const struct access_applies *applies,
                                   enum method_role role);
/* The role in all instances: for what belongs to none. */
bool access_rules_permit_everywhere(const struct access_rules *rules,
                                    const struct access_applies *applies,
                                    enum method_role role);

/* ---- how much may it; each 0: as much as there is */
struct access_limits {
    uint64_t calls; /* in progress */
    uint64_t memory_bytes;
    uint64_t calls_per_s;
    uint64_t bytes_per_s;
};
/* What the first line of limit that applies says; what it leaves out, or all if none applies, stays. */
void access_rules_limits(const struct access_rules *rules,
                         const struct access_applies *applies,
                         struct access_limits *limits);

/* How many there are, for one log line. */
struct access_counts {
    size_t rules, tokens, passwords, keys, certificates, groups;
};
void access_rules_count(const struct access_rules *rules, struct access_counts *counts);

#endif
