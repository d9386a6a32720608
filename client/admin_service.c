/* SPDX-License-Identifier: Apache-2.0 */
#include "client/admin_service.h"

#include "client/messages.h"
#include "client/unary.h"

static grpc_slice pack(const ProtobufCMessage *message);
static void fill_digest(Build__Bazel__Remote__Execution__V2__Digest *to,
                        char hex[DIGEST_HASH_HEX_MAX + 1],
                        const struct digest *digest);
static char *instance_of(const struct client *client, char text[1024]);

bool admin_stats(struct client *client, Varve__V1__StatsResponse **stats, struct status *status)
{
    *stats = unary_call_unpacked(client, METHOD_ADMIN_STATS, grpc_empty_slice(),
                                 &varve__v1__stats_response__descriptor, status);
    return *stats != NULL;
}

bool admin_forget(struct client *client,
                  const Varve__V1__ForgetRequest *request,
                  Varve__V1__ForgetResponse **response,
                  struct status *status)
{
    char instance[1024];
    Varve__V1__ForgetRequest filled = *request;
    if (filled.instance_name == NULL || filled.instance_name[0] == '\0')
        filled.instance_name = instance_of(client, instance);
    *response = unary_call_unpacked(client, METHOD_ADMIN_FORGET, pack(&filled.base),
                                    &varve__v1__forget_response__descriptor, status);
    return *response != NULL;
}

bool admin_drain(struct client *client,
                 enum admin_drain how,
                 const char *reason,
                 Varve__V1__DrainResponse **response,
                 struct status *status)
{
    Varve__V1__DrainRequest request = VARVE__V1__DRAIN_REQUEST__INIT;
    request.reason = (char *)(uintptr_t)reason;
    *response =
        unary_call_unpacked(client, how == ADMIN_DRAIN ? METHOD_ADMIN_DRAIN : METHOD_ADMIN_UNDRAIN,
                            how == ADMIN_DRAIN ? pack(&request.base) : grpc_empty_slice(),
                            &varve__v1__drain_response__descriptor, status);
    return *response != NULL;
}

bool admin_set_read_only(struct client *client,
                         bool on,
                         const char *reason,
                         Varve__V1__DrainResponse **response,
                         struct status *status)
{
    Varve__V1__SetReadOnlyRequest request = VARVE__V1__SET_READ_ONLY_REQUEST__INIT;
    request.on = on;
    request.reason = (char *)(uintptr_t)reason;
    *response = unary_call_unpacked(client, METHOD_ADMIN_SET_READ_ONLY, pack(&request.base),
                                    &varve__v1__drain_response__descriptor, status);
    return *response != NULL;
}

bool admin_explain(struct client *client,
                   const struct digest *digest,
                   Varve__V1__ExplainResponse **response,
                   struct status *status)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char instance[1024];
    Build__Bazel__Remote__Execution__V2__Digest asked;
    Varve__V1__ExplainRequest request = VARVE__V1__EXPLAIN_REQUEST__INIT;
    fill_digest(&asked, hex, digest);
    request.digest = &asked;
    request.instance_name = instance_of(client, instance);
    *response = unary_call_unpacked(client, METHOD_ADMIN_EXPLAIN, pack(&request.base),
                                    &varve__v1__explain_response__descriptor, status);
    return *response != NULL;
}

bool admin_who(struct client *client,
               const struct digest *action,
               Varve__V1__WhoResponse **response,
               struct status *status)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char instance[1024];
    Build__Bazel__Remote__Execution__V2__Digest asked;
    Varve__V1__WhoRequest request = VARVE__V1__WHO_REQUEST__INIT;
    fill_digest(&asked, hex, action);
    request.action_digest = &asked;
    request.instance_name = instance_of(client, instance);
    *response = unary_call_unpacked(client, METHOD_ADMIN_WHO, pack(&request.base),
                                    &varve__v1__who_response__descriptor, status);
    return *response != NULL;
}

static grpc_slice pack(const ProtobufCMessage *message)
{
    const size_t size = protobuf_c_message_get_packed_size(message);
    grpc_slice slice = grpc_slice_malloc(size);
    const size_t packed = protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    ASSERT(packed == size);
    return slice;
}

static void fill_digest(Build__Bazel__Remote__Execution__V2__Digest *to,
                        char hex[DIGEST_HASH_HEX_MAX + 1],
                        const struct digest *digest)
{
    build__bazel__remote__execution__v2__digest__init(to);
    to->hash = (char *)(uintptr_t)digest_hex(digest, hex);
    to->size_bytes = digest->size_bytes;
}

/* client_connect() has checked it; it is at most 256 bytes. */
static char *instance_of(const struct client *client, char text[1024])
{
    const struct bytes name = client_instance_name(client);
    ASSERT(name.length < 1024);
    if (name.length > 0)
        memcpy(text, name.data, name.length);
    text[name.length] = '\0';
    return text;
}

static const char *name_in(const char *const *names, size_t count, int value)
{
    return value > 0 && (size_t)value < count ? names[value] : "unknown";
}

const char *admin_verdict_name(Varve__V1__Verdict verdict)
{
    static const char *const names[] = {
        [VARVE__V1__VERDICT__VERDICT_PRESENT] = "present",
        [VARVE__V1__VERDICT__VERDICT_DAMAGED] = "damaged",
        [VARVE__V1__VERDICT__VERDICT_OTHER_SIZE] = "other size",
        [VARVE__V1__VERDICT__VERDICT_INCOMPLETE] = "incomplete",
        [VARVE__V1__VERDICT__VERDICT_OTHER_INSTANCE] = "other instance",
        [VARVE__V1__VERDICT__VERDICT_EVICTED] = "evicted",
        [VARVE__V1__VERDICT__VERDICT_PURGED] = "purged",
        [VARVE__V1__VERDICT__VERDICT_FOUND_DAMAGED] = "found damaged",
        [VARVE__V1__VERDICT__VERDICT_NEVER_SEEN] = "never seen",
        [VARVE__V1__VERDICT__VERDICT_NOT_KNOWN] = "not known",
    };
    return name_in(names, ARRAY_LENGTH(names), (int)verdict);
}

const char *admin_outcome_name(Varve__V1__ForgottenEntry__Outcome outcome)
{
    static const char *const names[] = {
        [VARVE__V1__FORGOTTEN_ENTRY__OUTCOME__OUTCOME_WOULD_GO] = "would go",
        [VARVE__V1__FORGOTTEN_ENTRY__OUTCOME__OUTCOME_GONE] = "gone",
        [VARVE__V1__FORGOTTEN_ENTRY__OUTCOME__OUTCOME_ABSENT] = "absent",
        [VARVE__V1__FORGOTTEN_ENTRY__OUTCOME__OUTCOME_FAILED] = "failed",
    };
    return name_in(names, ARRAY_LENGTH(names), (int)outcome);
}

const char *admin_reason_name(Varve__V1__LogEvent__Reason reason)
{
    static const char *const names[] = {
        [VARVE__V1__LOG_EVENT__REASON__REASON_DAMAGED] = "damaged",
        [VARVE__V1__LOG_EVENT__REASON__REASON_PURGED] = "purged",
        [VARVE__V1__LOG_EVENT__REASON__REASON_EVICTED] = "evicted",
    };
    return name_in(names, ARRAY_LENGTH(names), (int)reason);
}

const char *admin_event_name(Varve__V1__LogEvent__Kind kind)
{
    static const char *const names[] = {
        [VARVE__V1__LOG_EVENT__KIND__KIND_BLOB_STORED] = "blob stored",
        [VARVE__V1__LOG_EVENT__KIND__KIND_RESULT_STORED] = "result stored",
        [VARVE__V1__LOG_EVENT__KIND__KIND_FORGOTTEN] = "forgotten",
    };
    return name_in(names, ARRAY_LENGTH(names), (int)kind);
}
