/* SPDX-License-Identifier: Apache-2.0 */
#include "client/capabilities.h"

#include <stdlib.h>

#include "base/digest.h"
#include "build/bazel/remote/execution/v2/remote_execution.pb-c.h"
#include "client/messages.h"
#include "client/unary.h"

static struct capabilities defaults(void);
static void take_cache(const Build__Bazel__Remote__Execution__V2__CacheCapabilities *cache,
                       struct capabilities *capabilities);
static void add_value(uint64_t *set, int value);

bool capabilities_get(struct client *client,
                      struct capabilities *capabilities,
                      struct status *status)
{
    const struct bytes instance = client_instance_name(client);
    /* GetCapabilitiesRequest has the instance name alone. */
    grpc_slice body =
        grpc_slice_malloc(instance.length > 0 ? wire_bytes_field_size(1, instance.length) : 0);
    if (instance.length > 0)
        wire_put_bytes_field(GRPC_SLICE_START_PTR(body), 1, instance);
    grpc_byte_buffer *reply;
    struct status failure = {0};
    if (!unary_call(client, METHOD_GET_CAPABILITIES, body, &reply, &failure)) {
        if (failure.code == STATUS_UNIMPLEMENTED) {
            *capabilities = defaults();
            return true;
        }
        *status = failure;
        return false;
    }
    size_t length;
    uint8_t *flat = message_flat(reply, &length);
    grpc_byte_buffer_destroy(reply);
    if (flat == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for an answer");
    const bool ok = capabilities_decode(bytes_of(flat, length), capabilities, status);
    free(flat);
    return ok;
}

static struct capabilities defaults(void)
{
    return (struct capabilities){
        .digest_functions = UINT64_C(1) << DIGEST_FUNCTION_SHA256,
        .update_enabled = true,
        .low_major = 2,
        .high_major = 2,
    };
}

bool capabilities_decode(struct bytes message,
                         struct capabilities *capabilities,
                         struct status *status)
{
    Build__Bazel__Remote__Execution__V2__ServerCapabilities *server =
        build__bazel__remote__execution__v2__server_capabilities__unpack(NULL, message.length,
                                                                         message.data);
    if (server == NULL)
        return status_fail(status, STATUS_INTERNAL, "the server's capabilities are malformed");
    bool ok = true;
    *capabilities = (struct capabilities){.announced = true};
    if (server->cache_capabilities == NULL)
        ok = status_fail(status, STATUS_FAILED_PRECONDITION,
                         "the server is no cache: it announces no capabilities of one");
    else
        take_cache(server->cache_capabilities, capabilities);
    capabilities->executes =
        server->execution_capabilities != NULL && server->execution_capabilities->exec_enabled;
    if (server->low_api_version != NULL) {
        capabilities->low_major = server->low_api_version->major;
        capabilities->low_minor = server->low_api_version->minor;
    }
    if (server->high_api_version != NULL) {
        capabilities->high_major = server->high_api_version->major;
        capabilities->high_minor = server->high_api_version->minor;
    }
    build__bazel__remote__execution__v2__server_capabilities__free_unpacked(server, NULL);
    return ok;
}

static void take_cache(const Build__Bazel__Remote__Execution__V2__CacheCapabilities *cache,
                       struct capabilities *capabilities)
{
    for (size_t i = 0; i < cache->n_digest_functions; i++)
        add_value(&capabilities->digest_functions, (int)cache->digest_functions[i]);
    for (size_t i = 0; i < cache->n_supported_compressors; i++)
        add_value(&capabilities->stream_compressors, (int)cache->supported_compressors[i]);
    for (size_t i = 0; i < cache->n_supported_batch_update_compressors; i++)
        add_value(&capabilities->batch_compressors,
                  (int)cache->supported_batch_update_compressors[i]);
    capabilities->batch_total_bytes_max =
        cache->max_batch_total_size_bytes > 0 ? cache->max_batch_total_size_bytes : 0;
    capabilities->blob_bytes_max =
        cache->max_cas_blob_size_bytes > 0 ? cache->max_cas_blob_size_bytes : 0;
    capabilities->update_enabled = cache->action_cache_update_capabilities != NULL &&
                                   cache->action_cache_update_capabilities->update_enabled;
    capabilities->split = cache->split_blob_support;
    capabilities->splice = cache->splice_blob_support;
    capabilities->symlink_strategy = (int)cache->symlink_absolute_path_strategy;
}

static void add_value(uint64_t *set, int value)
{
    if (value >= 0 && value < 64)
        *set |= UINT64_C(1) << value;
}

bool capabilities_check_function(const struct capabilities *capabilities, struct status *status)
{
    if ((capabilities->digest_functions >> DIGEST_FUNCTION_SHA256 & 1) != 0)
        return true;
    return status_fail(status, STATUS_FAILED_PRECONDITION,
                       "the server does not take digests of %s, and this client has no other",
                       digest_functions_supported_text());
}

bool capabilities_check_blob(const struct capabilities *capabilities,
                             int64_t size_bytes,
                             struct status *status)
{
    if (capabilities->blob_bytes_max == 0 || size_bytes <= capabilities->blob_bytes_max)
        return true;
    return status_fail(status, STATUS_OUT_OF_RANGE,
                       "%lld bytes, and the server takes blobs of at most %lld",
                       (long long)size_bytes, (long long)capabilities->blob_bytes_max);
}

const char *digest_function_name(int value)
{
    static const char *const names[] = {"unknown",    "SHA256", "SHA1",   "MD5",
                                        "VSO",        "SHA384", "SHA512", "MURMUR3",
                                        "SHA256TREE", "BLAKE3", "GITSHA1"};
    return value > 0 && value < (int)ARRAY_LENGTH(names) ? names[value] : names[0];
}

const char *compressor_name(int value)
{
    static const char *const names[] = {"identity", "zstd", "deflate", "brotli"};
    return value >= 0 && value < (int)ARRAY_LENGTH(names) ? names[value] : "unknown";
}
