/* SPDX-License-Identifier: Apache-2.0 */
/*
 * varve's own service Admin of a server (varve.v1), for those who run it. Each waits for the answer, which is freed by the caller with
 * protobuf_c_message_free_unpacked(). Errors: UNIMPLEMENTED when the server is not varve, PERMISSION_DENIED without the role admin.
 */
#ifndef VARVE_CLIENT_ADMIN_SERVICE_H
#define VARVE_CLIENT_ADMIN_SERVICE_H

#include "base/digest.h"
#include "client/connection.h"
#include "varve/v1/admin.pb-c.h"

enum { ADMIN_PAGE_MAX = 1000 }; /* digests of one Forget */

MUST_CHECK bool admin_stats(struct client *client,
                            Varve__V1__StatsResponse **stats,
                            struct status *status);

/* One page: see the .proto. The instance is the client's where request has none. */
MUST_CHECK bool admin_forget(struct client *client,
                             const Varve__V1__ForgetRequest *request,
                             Varve__V1__ForgetResponse **response,
                             struct status *status);

enum admin_drain { ADMIN_DRAIN, ADMIN_UNDRAIN };
/* reason: of a drain; at most 200 bytes. */
MUST_CHECK bool admin_drain(struct client *client,
                            enum admin_drain how,
                            const char *reason,
                            Varve__V1__DrainResponse **response,
                            struct status *status);

/* reason: at most 200 bytes; "" when it is not on. */
MUST_CHECK bool admin_set_read_only(struct client *client,
                                    bool on,
                                    const char *reason,
                                    Varve__V1__DrainResponse **response,
                                    struct status *status);

/* size_bytes of the digest may be -1: whatever it is. Of the client's instance, both. NOT_FOUND of who: there is no result. */
MUST_CHECK bool admin_explain(struct client *client,
                              const struct digest *digest,
                              Varve__V1__ExplainResponse **response,
                              struct status *status);
MUST_CHECK bool admin_who(struct client *client,
                          const struct digest *action,
                          Varve__V1__WhoResponse **response,
                          struct status *status);

/* "present", "other size", ...; "unknown". Static storage. */
const char *admin_verdict_name(Varve__V1__Verdict verdict);
/* "would go", "gone", "absent", "failed"; "unknown". */
const char *admin_outcome_name(Varve__V1__ForgottenEntry__Outcome outcome);
/* "damaged", "purged", "evicted"; "unknown". */
const char *admin_reason_name(Varve__V1__LogEvent__Reason reason);
/* "blob stored", "result stored", "forgotten"; "unknown". */
const char *admin_event_name(Varve__V1__LogEvent__Kind kind);

#endif
