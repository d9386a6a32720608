/* SPDX-License-Identifier: Apache-2.0 */
#include "server/access.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdlib.h>

#include "base/digest.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/random.h"
#include "proto/authorization.h"
#include "proto/jwt.h"
#include "store/siphash.h"

enum {
    MAC_BYTES = SHA256_HASH_BYTES,
    KEY_BYTES = 32,
    /* Known credentials: so many, in sets of four by their hash. */
    KNOWN_SETS = 1024,
    ADDRESS_SETS = 256,
    WAYS = 4,
    /* So many wrong ones at once, and one more every two seconds. */
    FAILURES_AT_ONCE = 10,
    SHOWN_BYTES_MAX = 100,
};
/* How long what was verified is known, if the files stay as they are. */
static const int64_t known_ns = 600 * NS_PER_S;
static const int64_t failure_ns = 2 * NS_PER_S;
static const int64_t log_pause_ns = 10 * NS_PER_S;

struct known {
    uint8_t mac[MAC_BYTES];
    uint64_t generation; /* of the rules; 0: empty */
    int64_t until_ns;
    struct access_applies applies;
    char user[ACCESS_NAME_BYTES_MAX + 1];
};

struct address {
    uint64_t hash;       /* 0: empty */
    int64_t forgiven_ns; /* when all that it did wrong is forgotten */
};

struct access {
    /* Set by access_new(), never changed. */
    char *file; /* owned; NULL: everything is allowed */
    struct clock *clock;
    struct metrics *metrics;
    uint8_t key[KEY_BYTES]; /* secret, of this process */
    struct siphash_key address_key;

    struct lock lock; /* all below */
    struct condition asked;
    struct access_rules *rules; /* shared */
    uint64_t generation;
    uint64_t failed_stamp; /* of files that could not be read: not tried again until they change */
    struct known known[KNOWN_SETS][WAYS];
    struct address addresses[ADDRESS_SETS][WAYS];
    struct access_question *first, **last;
    bool stopping;
    int64_t logged_ns;
    uint64_t left_out; /* log lines */
};

static void log_loaded(const struct access *access, const struct access_rules *rules);
static enum access_answer authenticate(struct access *access,
                                       const struct access_shown *shown,
                                       bool may_wait,
                                       struct access_caller *caller,
                                       struct status *status);

bool access_new(const char *file,
                struct clock *clock,
                struct metrics *metrics,
                struct access **access,
                struct status *status)
{
    struct access *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "access");
    lock_init(&made->lock, LOCK_RANK_LEAF);
    condition_init(&made->asked);
    made->clock = clock;
    made->metrics = metrics;
    made->last = &made->first;
    made->generation = 1;
    if (!random_fill(made->key, sizeof(made->key), status) ||
        !random_fill(&made->address_key, sizeof(made->address_key), status))
        goto fail;
    if (file[0] != '\0') {
        made->file = strdup(file);
        if (made->file == NULL) {
            status_fail_errno(status, ENOMEM, "access");
            goto fail;
        }
        if (!access_rules_load(file, &made->rules, status))
            goto fail;
    }
    *access = made;
    return true;

fail:
    access_free(made);
    return false;
}

static void log_loaded(const struct access *access, const struct access_rules *rules)
{
    struct access_counts counts;
    struct log_text text;
    access_rules_count(rules, &counts);
    log_event(LOG_LEVEL_INFO, "access_loaded",
              "file=%s rules=%zu tokens=%zu passwords=%zu keys=%zu certificates=%zu groups=%zu",
              log_quote(&text, access->file), counts.rules, counts.tokens, counts.passwords,
              counts.keys, counts.certificates, counts.groups);
}

void access_free(struct access *access)
{
    if (access == NULL)
        return;
    ASSERT(access->first == NULL);
    access_rules_unref(access->rules);
    condition_destroy(&access->asked);
    lock_destroy(&access->lock);
    free(access->file);
    explicit_bzero(access->key, sizeof(access->key));
    free(access);
}

void access_report(struct access *access)
{
    if (access->rules != NULL)
        log_loaded(access, access->rules);
}

/* A reference, or NULL: everything is allowed. */
static struct access_rules *take_rules(struct access *access, uint64_t *generation)
{
    lock_acquire(&access->lock);
    struct access_rules *const rules = access->rules;
    *generation = access->generation;
    if (rules != NULL)
        access_rules_ref(rules);
    lock_release(&access->lock);
    return rules;
}

void access_reload(struct access *access, enum access_reload when)
{
    if (access->file == NULL)
        return;
    uint64_t generation;
    struct access_rules *const old = take_rules(access, &generation);
    struct access_rules *made = NULL;
    struct status status = {0};
    struct log_text text;
    const uint64_t stamp = access_rules_stamp(old);
    lock_acquire(&access->lock);
    const bool tried = stamp == access->failed_stamp && when == ACCESS_IF_CHANGED;
    lock_release(&access->lock);
    if (tried || (when == ACCESS_IF_CHANGED && !access_rules_are_stale(old))) {
        access_rules_unref(old);
        return;
    }
    const bool ok = access_rules_load(access->file, &made, &status);
    lock_acquire(&access->lock);
    if (ok) {
        access->rules = made;
        access->generation++; /* nothing is known any more */
        access_rules_ref(made);
    }
    access->failed_stamp = ok ? 0 : stamp;
    lock_release(&access->lock);
    access_rules_unref(old);
    if (ok) {
        access_rules_unref(old); /* the one that access had */
        metrics_add(access->metrics, METRIC_ACCESS_RELOADS, 1);
        log_loaded(access, made);
        access_rules_unref(made);
    } else {
        metrics_add(access->metrics, METRIC_ACCESS_RELOADS_FAILED, 1);
        log_event(LOG_LEVEL_ERROR, "access_not_loaded", "reason=%s still=old",
                  log_quote(&text, status.message));
    }
}

void access_caller_clear(struct access_caller *caller)
{
    access_rules_unref(caller->rules);
    *caller = (struct access_caller){0};
}

const char *access_caller_name(const struct access_caller *caller)
{
    return caller->known ? caller->user : "anonymous";
}

/* ---- addresses that show wrong things */

struct bytes access_peer_host(const char *peer)
{
    const char *at = peer;
    if (strncmp(at, "ipv4:", 5) == 0 || strncmp(at, "ipv6:", 5) == 0 ||
        strncmp(at, "http:", 5) == 0)
        at += 5;
    if (strncmp(at, "%5B", 3) == 0) /* as gRPC writes a bracket */
        at += 3;
    else if (*at == '[')
        at++;
    size_t length = strcspn(at, "]%");
    const char *const colon = strchr(at, ':');
    if (colon != NULL && strchr(colon + 1, ':') == NULL) {
        length = (size_t)(colon - at); /* HOST:PORT */
    } else if (colon != NULL) {
        size_t colons = 0;
        for (size_t i = 0; i < length; i++)
            if (at[i] == ':' && ++colons == 4)
                length = i;
    }
    return bytes_of(at, length);
}

static uint64_t address_hash(const struct access *access, const char *peer)
{
    struct siphash siphash;
    siphash_begin(&siphash, &access->address_key);
    const uint64_t hash = siphash_finish(&siphash, access_peer_host(peer));
    return hash != 0 ? hash : 1;
}

static struct address *find_address_locked(struct access *access, uint64_t hash)
    REQUIRES(access->lock);
static struct address *find_address_locked(struct access *access, uint64_t hash)
{
    struct address *const set = access->addresses[hash % ADDRESS_SETS];
    struct address *oldest = &set[0];
    for (int i = 0; i < WAYS; i++) {
        if (set[i].hash == hash)
            return &set[i];
        if (set[i].forgiven_ns < oldest->forgiven_ns)
            oldest = &set[i];
    }
    *oldest = (struct address){.hash = hash};
    return oldest;
}

static bool is_limited(struct access *access, const char *peer)
{
    const int64_t now_ns = clock_monotonic_ns(access->clock);
    const uint64_t hash = address_hash(access, peer);
    lock_acquire(&access->lock);
    const struct address *const set = access->addresses[hash % ADDRESS_SETS];
    bool limited = false;
    for (int i = 0; i < WAYS; i++)
        if (set[i].hash == hash)
            limited = set[i].forgiven_ns - now_ns > (FAILURES_AT_ONCE - 1) * failure_ns;
    lock_release(&access->lock);
    return limited;
}

static void note_failure(struct access *access, const char *peer)
{
    const int64_t now_ns = clock_monotonic_ns(access->clock);
    const uint64_t hash = address_hash(access, peer);
    lock_acquire(&access->lock);
    struct address *const address = find_address_locked(access, hash);
    if (address->forgiven_ns < now_ns)
        address->forgiven_ns = now_ns;
    if (address->forgiven_ns - now_ns <= FAILURES_AT_ONCE * failure_ns)
        address->forgiven_ns += failure_ns;
    lock_release(&access->lock);
}

/* ---- what is known */

static void mac_of(const struct access *access,
                   char kind,
                   struct bytes shown,
                   uint8_t mac[MAC_BYTES])
{
    const struct bytes parts[] = {bytes_of(access->key, KEY_BYTES), bytes_of(&kind, 1), shown,
                                  bytes_of(access->key, KEY_BYTES)};
    struct digest digest;
    digest_of_list(DIGEST_FUNCTION_SHA256,
                   (struct bytes_list){.parts = parts, .count = ARRAY_LENGTH(parts)}, &digest);
    memcpy(mac, digest.hash, MAC_BYTES);
}

static struct known *set_of_locked(struct access *access, const uint8_t mac[MAC_BYTES])
    REQUIRES(access->lock);
static struct known *set_of_locked(struct access *access, const uint8_t mac[MAC_BYTES])
{
    lock_assert_held(&access->lock);
    return access->known[((size_t)mac[0] << 8 | mac[1]) % KNOWN_SETS];
}

/* The mac is a secret function of what is shown: how long a comparison takes tells nothing. */
static bool recall(struct access *access,
                   uint64_t generation,
                   const uint8_t mac[MAC_BYTES],
                   struct access_caller *caller)
{
    const int64_t now_ns = clock_monotonic_ns(access->clock);
    bool found = false;
    lock_acquire(&access->lock);
    const struct known *const set = set_of_locked(access, mac);
    for (int i = 0; i < WAYS && !found; i++) {
        found = set[i].generation == generation && set[i].until_ns > now_ns &&
                memcmp(set[i].mac, mac, MAC_BYTES) == 0;
        if (found) {
            for (size_t j = 0; j < ARRAY_LENGTH(caller->applies.bits); j++)
                caller->applies.bits[j] |= set[i].applies.bits[j];
            caller->known = set[i].user[0] != '\0' || caller->known;
            if (set[i].user[0] != '\0')
                memcpy(caller->user, set[i].user, sizeof(caller->user));
        }
    }
    lock_release(&access->lock);
    return found;
}

/* user "": it is known to be of nobody. */
static void remember(struct access *access,
                     uint64_t generation,
                     const uint8_t mac[MAC_BYTES],
                     const char *user,
                     const struct access_applies *applies,
                     int64_t for_ns)
{
    const int64_t now_ns = clock_monotonic_ns(access->clock);
    lock_acquire(&access->lock);
    struct known *const set = set_of_locked(access, mac);
    struct known *slot = &set[0];
    for (int i = 0; i < WAYS; i++) {
        if (memcmp(set[i].mac, mac, MAC_BYTES) == 0) {
            slot = &set[i];
            break;
        }
        if (set[i].generation < slot->generation ||
            (set[i].generation == slot->generation && set[i].until_ns < slot->until_ns))
            slot = &set[i];
    }
    memcpy(slot->mac, mac, MAC_BYTES);
    slot->generation = generation;
    slot->until_ns = now_ns + (for_ns < known_ns ? for_ns : known_ns);
    slot->applies = *applies;
    snprintf(slot->user, sizeof(slot->user), "%s", user);
    lock_release(&access->lock);
}

/* ---- who is it */

static bool refuse_shown(struct access *access,
                         const struct access_shown *shown,
                         struct status *status);
static void add_certificate(struct access *access,
                            uint64_t generation,
                            const struct access_shown *shown,
                            struct access_caller *caller);

enum access_answer access_authenticate(struct access *access,
                                       const struct access_shown *shown,
                                       struct access_caller *caller,
                                       struct status *status)
{
    return authenticate(access, shown, false, caller, status);
}

/* What one of the ways has found. */
struct verified {
    bool right;
    char user[ACCESS_NAME_BYTES_MAX + 1];
    struct access_applies applies;
    int64_t for_ns;
};

static void verify_bearer(struct access *access,
                          const struct access_rules *rules,
                          struct bytes token,
                          struct verified *verified,
                          struct status *status)
{
    const char *const user = access_rules_token_user(rules, token);
    verified->for_ns = known_ns;
    if (user != NULL) {
        verified->right = true;
        snprintf(verified->user, sizeof(verified->user), "%s", user);
        access_rules_of_user(rules, user, NULL, &verified->applies);
        return;
    }
    status_fail(status, STATUS_UNAUTHENTICATED, "the bearer token is of nobody here");
    if (!jwt_looks_like_one(token))
        return;
    const int64_t now_s = clock_wall_ns(access->clock) / NS_PER_S;
    int64_t expires_s = 0;
    verified->right = access_rules_check_jwt(rules, token, now_s, verified->user,
                                             &verified->applies, &expires_s, status);
    const int64_t left_s = expires_s - now_s;
    if (left_s < known_ns / NS_PER_S)
        verified->for_ns = left_s * NS_PER_S;
}

static void verify_basic(const struct access_rules *rules,
                         const struct authorization *authorization,
                         struct verified *verified,
                         struct status *status)
{
    verified->for_ns = known_ns;
    verified->right =
        access_rules_password_is_right(rules, authorization->user, authorization->password);
    if (verified->right) {
        snprintf(verified->user, sizeof(verified->user), "%s", authorization->user);
        access_rules_of_user(rules, authorization->user, NULL, &verified->applies);
        return;
    }
    /* Some clients know Basic alone: there a token stands in place of the password. */
    const char *const user =
        access_rules_token_user(rules, bytes_of_string(authorization->password));
    if (user != NULL && strcmp(user, authorization->user) == 0) {
        verified->right = true;
        snprintf(verified->user, sizeof(verified->user), "%s", user);
        access_rules_of_user(rules, user, NULL, &verified->applies);
        return;
    }
    status_fail(status, STATUS_UNAUTHENTICATED, "the user is not known or the password is wrong");
}

/* With rules, and something shown. YES, NO and *status, or LATER. */
static enum access_answer verify(struct access *access,
                                 struct access_rules *rules,
                                 uint64_t generation,
                                 const struct access_shown *shown,
                                 bool may_wait,
                                 struct access_caller *caller,
                                 struct status *status)
{
    uint8_t mac[MAC_BYTES];
    mac_of(access, 'a', shown->authorization, mac);
    if (recall(access, generation, mac, caller))
        return ACCESS_YES;

    struct authorization authorization;
    struct verified verified = {0};
    const bool limited = is_limited(access, shown->peer);
    const bool parsed = authorization_parse(shown->authorization, &authorization, status);
    const bool is_basic = parsed && authorization.scheme == AUTHORIZATION_BASIC;
    /* Of who guesses, passwords are not even looked at. */
    const bool later = is_basic && !limited && !may_wait && access_rules_have_passwords(rules);
    if (is_basic && !limited && !later)
        verify_basic(rules, &authorization, &verified, status);
    else if (parsed && !is_basic)
        verify_bearer(access, rules, authorization.token, &verified, status);
    explicit_bzero(&authorization, sizeof(authorization));
    if (later)
        return ACCESS_LATER;
    if (verified.right) {
        remember(access, generation, mac, verified.user, &verified.applies, verified.for_ns);
        for (size_t i = 0; i < ARRAY_LENGTH(caller->applies.bits); i++)
            caller->applies.bits[i] |= verified.applies.bits[i];
        caller->known = true;
        memcpy(caller->user, verified.user, sizeof(caller->user));
        return ACCESS_YES;
    }
    if (limited) {
        metrics_add(access->metrics, METRIC_ACCESS_LIMITED, 1);
        status_fail(status, STATUS_RESOURCE_EXHAUSTED,
                    "too many wrong credentials came from your address; wait some seconds");
    }
    return refuse_shown(access, shown, status) ? ACCESS_YES : ACCESS_NO;
}

static enum access_answer authenticate(struct access *access,
                                       const struct access_shown *shown,
                                       bool may_wait,
                                       struct access_caller *caller,
                                       struct status *status)
{
    uint64_t generation;
    struct access_rules *const rules = take_rules(access, &generation);
    *caller = (struct access_caller){.access = access, .rules = rules};
    snprintf(caller->peer, sizeof(caller->peer), "%s", shown->peer);
    if (rules == NULL)
        return ACCESS_YES;
    access_rules_of_anonymous(rules, &caller->applies);
    if (shown->certificate.length > 0 && access_rules_have_certificates(rules))
        add_certificate(access, generation, shown, caller);
    if (shown->authorization.length == 0)
        return ACCESS_YES;
    const enum access_answer answer =
        verify(access, rules, generation, shown, may_wait, caller, status);
    if (answer != ACCESS_YES)
        access_caller_clear(caller);
    return answer;
}

static X509 *read_certificate(struct bytes data)
{
    static const char pem_begin[] = "-----BEGIN";
    if (data.length > INT32_MAX)
        return NULL;
    const unsigned char *der = data.data;
    if (data.length < sizeof(pem_begin) - 1 ||
        memcmp(data.data, pem_begin, sizeof(pem_begin) - 1) != 0)
        return d2i_X509(NULL, &der, (long)data.length);
    BIO *const bio = BIO_new_mem_buf(data.data, (int)data.length);
    X509 *const certificate = bio != NULL ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    return certificate;
}

/* One that nobody has a name for shows nothing. */
static void add_certificate(struct access *access,
                            uint64_t generation,
                            const struct access_shown *shown,
                            struct access_caller *caller)
{
    uint8_t mac[MAC_BYTES];
    mac_of(access, 'c', shown->certificate, mac);
    if (recall(access, generation, mac, caller))
        return;
    struct access_applies applies = {0};
    X509 *const certificate = read_certificate(shown->certificate);
    const char *const user =
        certificate != NULL ? access_rules_certificate_user(caller->rules, certificate) : NULL;
    X509_free(certificate);
    ERR_clear_error();
    if (user != NULL) {
        access_rules_of_user(caller->rules, user, NULL, &applies);
        caller->known = true;
        snprintf(caller->user, sizeof(caller->user), "%s", user);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(applies.bits); i++)
        caller->applies.bits[i] |= applies.bits[i];
    remember(access, generation, mac, user != NULL ? user : "", &applies, known_ns);
}

/* ---- the thread that may wait */

void access_ask(struct access *access, struct access_question *question)
{
    question->next = NULL;
    lock_acquire(&access->lock);
    ASSERT(!access->stopping);
    *access->last = question;
    access->last = &question->next;
    condition_signal(&access->asked);
    lock_release(&access->lock);
}

bool access_step(struct access *access)
{
    lock_acquire(&access->lock);
    while (access->first == NULL && !access->stopping)
        condition_wait(&access->asked, &access->lock);
    struct access_question *const question = access->first;
    if (question != NULL) {
        access->first = question->next;
        if (access->first == NULL)
            access->last = &access->first;
    }
    lock_release(&access->lock);
    if (question == NULL)
        return false;
    question->answer =
        authenticate(access, &question->shown, true, &question->caller, &question->status);
    ASSERT(question->answer != ACCESS_LATER);
    question->done(question);
    return true;
}

void access_stop(struct access *access)
{
    lock_acquire(&access->lock);
    access->stopping = true;
    condition_broadcast(&access->asked);
    lock_release(&access->lock);
}

/* ---- what may it */

static void tell_denied(struct access *access,
                        const char *user,
                        const char *peer,
                        const struct status *status)
{
    const int64_t now_ns = clock_monotonic_ns(access->clock);
    lock_acquire(&access->lock);
    const bool says = access->logged_ns == 0 || now_ns - access->logged_ns >= log_pause_ns;
    const uint64_t left_out = access->left_out;
    access->left_out = says ? 0 : left_out + 1;
    if (says)
        access->logged_ns = now_ns;
    lock_release(&access->lock);
    struct log_text user_text;
    struct log_text peer_text;
    struct log_text reason;
    if (says)
        log_event(LOG_LEVEL_WARN, "access_denied",
                  "code=%s user=%s peer=%s reason=%s left_out=%" PRIu64,
                  status_code_name(status->code), log_quote(&user_text, user),
                  log_quote(&peer_text, peer), log_quote(&reason, status->message), left_out);
}

/* False, always. */
static bool refuse_shown(struct access *access,
                         const struct access_shown *shown,
                         struct status *status)
{
    if (status->code == STATUS_UNAUTHENTICATED) {
        metrics_add(access->metrics, METRIC_ACCESS_UNAUTHENTICATED, 1);
        note_failure(access, shown->peer);
    }
    tell_denied(access, "unknown", shown->peer, status);
    return false;
}

static bool deny(const struct access_caller *caller,
                 enum method_role role,
                 const char *where,
                 struct status *status)
{
    struct access *const access = caller->access;
    char what[32] = "any role";
    if (role != ROLE_ANY)
        snprintf(what, sizeof(what), "the role %s", method_role_name(role));
    if (caller->known) {
        metrics_add(access->metrics, METRIC_ACCESS_FORBIDDEN, 1);
        status_fail(status, STATUS_PERMISSION_DENIED, "user \"%s\" does not have %s %s",
                    caller->user, what, where);
    } else {
        metrics_add(access->metrics, METRIC_ACCESS_UNAUTHENTICATED, 1);
        status_fail(status, STATUS_UNAUTHENTICATED, "%s is needed %s, and credentials are missing",
                    what, where);
    }
    tell_denied(access, access_caller_name(caller), caller->peer, status);
    return false;
}

bool access_permits(const struct access_caller *caller,
                    enum method_role role,
                    struct bytes instance)
{
    return caller->rules == NULL || role == ROLE_NONE ||
           access_rules_permit(caller->rules, &caller->applies, role, instance);
}

bool access_permits_everywhere(const struct access_caller *caller, enum method_role role)
{
    return caller->rules == NULL || role == ROLE_NONE ||
           access_rules_permit_everywhere(caller->rules, &caller->applies, role);
}

bool access_check(const struct access_caller *caller,
                  enum method_role role,
                  struct bytes instance,
                  struct status *status)
{
    if (access_permits(caller, role, instance))
        return true;
    char where[SHOWN_BYTES_MAX + 32];
    const size_t shown = bytes_utf8_prefix(bytes_of(
        instance.data, instance.length < SHOWN_BYTES_MAX ? instance.length : SHOWN_BYTES_MAX));
    snprintf(where, sizeof(where), "in instance \"%.*s\"", (int)shown,
             shown > 0 ? (const char *)instance.data : "");
    return deny(caller, role, where, status);
}

bool access_check_somewhere(const struct access_caller *caller,
                            enum method_role role,
                            struct status *status)
{
    return caller->rules == NULL || role == ROLE_NONE ||
           access_rules_permit_somewhere(caller->rules, &caller->applies, role) ||
           deny(caller, role, "in any instance", status);
}

bool access_check_everywhere(const struct access_caller *caller,
                             enum method_role role,
                             struct status *status)
{
    return access_permits_everywhere(caller, role) ||
           deny(caller, role, "in all instances", status);
}
