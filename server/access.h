/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may what: the one place where every caller is looked at, whether it comes by gRPC or HTTP.
 *
 *   what it shows (a token, a password, a certificate)      access_authenticate()    ->  a caller
 *   a caller, a role, an instance                           access_check()           ->  yes, or why not
 *
 * What a caller shows is verified once and then known by a keyed hash for a while, so that neither
 * crypt nor a signature is computed for each call. Passwords are checked on a thread of their own
 * (access_step()), one at a time. An address that shows wrong things again and again is told so
 * without a look; what is known already still passes.
 *
 * Without a file everything is allowed to everybody. Never logs what anybody shows.
 */
#ifndef VARVE_SERVER_ACCESS_H
#define VARVE_SERVER_ACCESS_H

#include "base/clock.h"
#include "base/metrics.h"
#include "server/access_rules.h"

struct access;

enum { ACCESS_PEER_BYTES_MAX = 64 };

/* Whoever calls. {0} may do everything: nobody has asked it anything. */
struct access_caller {
    struct access *access;         /* borrowed */
    struct access_rules *rules;    /* shared; NULL: everything is allowed */
    struct access_applies applies; /* those of the rules */
    bool known;                    /* has shown who it is: user */
    char user[ACCESS_NAME_BYTES_MAX + 1];
    char peer[ACCESS_PEER_BYTES_MAX]; /* where from; cut if longer */
};
void access_caller_clear(struct access_caller *caller);
const char *access_caller_name(const struct access_caller *caller); /* or "anonymous" */

/* Of where somebody calls from the host alone; of IPv6 the network, since hosts have many of its addresses. Lies in peer. */
struct bytes access_peer_host(const char *peer);

/* What a caller shows. All borrowed. */
struct access_shown {
    struct bytes authorization; /* the header's value; length 0: none */
    struct bytes certificate;   /* of the client, verified; PEM or DER; length 0: none */
    const char *peer;           /* where from: "ipv4:127.0.0.1:50422", "127.0.0.1" */
};

/* file "": everything is allowed. INVALID_ARGUMENT naming file and line. */
MUST_CHECK bool access_new(const char *file,
                           struct clock *clock,
                           struct metrics *metrics,
                           struct access **access,
                           struct status *status);
/* One log line: what there is. */
void access_report(struct access *access);
void access_free(struct access *access); /* asserts that nobody waits; NULL is fine */

/* Reads the files again if one has changed, or in any case; a failure is logged and changes nothing. */
enum access_reload { ACCESS_IF_CHANGED, ACCESS_ANYWAY };
void access_reload(struct access *access, enum access_reload when);

enum access_answer {
    ACCESS_YES, /* *caller is set */
    ACCESS_NO, /* *status is set: UNAUTHENTICATED, or RESOURCE_EXHAUSTED for an address that fails all the time */
    ACCESS_LATER, /* it takes long: access_ask() */
};
/* Never waits. shown->authorization empty: anonymous, which is YES. */
enum access_answer access_authenticate(struct access *access,
                                       const struct access_shown *shown,
                                       struct access_caller *caller,
                                       struct status *status);

/* Somebody for whom a password has to be checked. Memory of the asker until `done` is called. */
struct access_question {
    void (*done)(struct access_question *question); /* on the access thread, holding no lock */
    struct access_shown shown;                      /* borrowed until then */
    enum access_answer answer;                      /* YES or NO */
    struct access_caller caller;
    struct status status;
    struct access_question *next; /* access's */
};
void access_ask(struct access *access, struct access_question *question);

/* Waits for a question and answers it; false once access_stop() was called and nobody waits. */
bool access_step(struct access *access);
void access_stop(struct access *access);

/* ---- what may it. Failing counts and logs. */

/*
 * UNAUTHENTICATED for somebody who has shown nothing, PERMISSION_DENIED for others; the text has the
 * role, the user and the instance.
 */
MUST_CHECK bool access_check(const struct access_caller *caller,
                             enum method_role role,
                             struct bytes instance,
                             struct status *status);
/* Before the instance is known: may it be allowed in any? */
MUST_CHECK bool access_check_somewhere(const struct access_caller *caller,
                                       enum method_role role,
                                       struct status *status);
/* For what belongs to no instance. */
MUST_CHECK bool access_check_everywhere(const struct access_caller *caller,
                                        enum method_role role,
                                        struct status *status);
/* Without failing. */
bool access_permits(const struct access_caller *caller,
                    enum method_role role,
                    struct bytes instance);
bool access_permits_everywhere(const struct access_caller *caller, enum method_role role);

#endif
