/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients may count on: REAPI Capabilities. Exactly zstd in both lists, because some clients
 * take the first one there. Whether results may be written is told of the caller, and of the node.
 */
#include <stdlib.h>

#include "base/limits.h"
#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "server/access.h"
#include "server/health.h"
#include "server/methods.h"
#include "server/server.h"

typedef Build__Bazel__Remote__Execution__V2__GetCapabilitiesRequest request_message;
typedef Build__Bazel__Remote__Execution__V2__ServerCapabilities server_capabilities;
typedef Build__Bazel__Remote__Execution__V2__CacheCapabilities cache_capabilities;
typedef Build__Bazel__Remote__Execution__V2__ActionCacheUpdateCapabilities update_capabilities;
typedef Build__Bazel__Remote__Execution__V2__DigestFunction__Value digest_function_value;
typedef Build__Bazel__Remote__Execution__V2__Compressor__Value compressor_value;
typedef Build__Bazel__Semver__SemVer version_number;

/*
 * Bazel before 6 gives the build up when it is told that it may not write, though it would go on after a refusal
 * (docs/protocol.md, decision 11). One that does not say its version, as Debian's 4.2, may be one of those.
 */
static bool would_give_up(struct call *call)
{
    enum { NUMBER_BYTES_MAX = 8, UNDERSTANDS = 6 };
    const struct bytes version = call_tool_version(call);
    char text[NUMBER_BYTES_MAX] = "";
    if (!bytes_equal_string(call_tool_name(call), "bazel"))
        return false;
    for (size_t i = 0; i < version.length && i < sizeof(text) - 1; i++)
        text[i] = (char)version.data[i];
    const long major = strtol(text, NULL, 10);
    return major < UNDERSTANDS;
}

static void reply_capabilities(struct call *call, struct bytes instance)
{
    digest_function_value functions[] = {
        BUILD__BAZEL__REMOTE__EXECUTION__V2__DIGEST_FUNCTION__VALUE__SHA256};
    compressor_value compressors[] = {BUILD__BAZEL__REMOTE__EXECUTION__V2__COMPRESSOR__VALUE__ZSTD};
    update_capabilities update =
        BUILD__BAZEL__REMOTE__EXECUTION__V2__ACTION_CACHE_UPDATE_CAPABILITIES__INIT;
    struct status ignored;
    update.update_enabled = (access_permits(call_caller(call), ROLE_WRITE_AC, instance) &&
                             health_check_writes(call_server(call)->health, &ignored)) ||
                            would_give_up(call);

    cache_capabilities cache = BUILD__BAZEL__REMOTE__EXECUTION__V2__CACHE_CAPABILITIES__INIT;
    cache.n_digest_functions = ARRAY_LENGTH(functions);
    cache.digest_functions = functions;
    cache.action_cache_update_capabilities = &update;
    cache.max_batch_total_size_bytes = LIMIT_BATCH_TOTAL_BYTES;
    cache.symlink_absolute_path_strategy =
        BUILD__BAZEL__REMOTE__EXECUTION__V2__SYMLINK_ABSOLUTE_PATH_STRATEGY__VALUE__ALLOWED;
    cache.n_supported_compressors = ARRAY_LENGTH(compressors);
    cache.supported_compressors = compressors;
    cache.n_supported_batch_update_compressors = ARRAY_LENGTH(compressors);
    cache.supported_batch_update_compressors = compressors;
    cache.max_cas_blob_size_bytes = (int64_t)call_server(call)->config->max_blob_bytes;

    /* No execution, and nothing that is deprecated. */
    version_number low = BUILD__BAZEL__SEMVER__SEM_VER__INIT;
    low.major = 2;
    version_number high = BUILD__BAZEL__SEMVER__SEM_VER__INIT;
    high.major = 2;
    high.minor = 12;
    server_capabilities response = BUILD__BAZEL__REMOTE__EXECUTION__V2__SERVER_CAPABILITIES__INIT;
    response.cache_capabilities = &cache;
    response.low_api_version = &low;
    response.high_api_version = &high;
    call_reply_packed(call, &response.base);
}

static void capabilities_message(struct call *call, void *state, const struct message *message)
{
    (void)state;
    struct status status = {0};
    const request_message *const request = (const request_message *)(void *)call_unpack(
        call, message, &build__bazel__remote__execution__v2__get_capabilities_request__descriptor,
        &status);
    if (request == NULL ||
        !call_check_instance(call, bytes_of_string(request->instance_name), &status)) {
        call_fail(call, &status);
        return;
    }
    reply_capabilities(call, bytes_of_string(request->instance_name));
}

const struct method rpc_get_capabilities = {
    .path = "/build.bazel.remote.execution.v2.Capabilities/GetCapabilities",
    .kind = METHOD_UNARY,
    .role = ROLE_ANY,
    .has_instance = true,
    .on_poller = true,
    .on_message = capabilities_message};
