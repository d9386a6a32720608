/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that our .proto files have the names, numbers, types and labels of the interface that
 * clients speak, that nothing is there too much, and that the descriptors which server reflection
 * hands out are complete. A slip here is a server that talks to itself only.
 *
 * Method: the generated descriptors are put into the notation of the tables below, and compared.
 * The tables come from the description of the protocol, not from the .proto files.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/compiler.h"
#include "descriptors.h"
#include "google/protobuf/any.pb-c.h"
#include "google/protobuf/duration.pb-c.h"
#include "google/protobuf/timestamp.pb-c.h"
#include "google/protobuf/wrappers.pb-c.h"
#include "google/rpc/code.pb-c.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "grpc/reflection/v1alpha/reflection.pb-c.h"
#include "proto/wire.h"
#include "tests/support/reapi_names.h"
#include "tests/support/test_run.h"

/* clang-format off */

/* A field is "number name [label] type"; types of the same package are without its name. */
static const struct {
    const ProtobufCMessageDescriptor *descriptor;
    const char *fields;
} messages[] = {
    {&REAPI_DESCRIPTOR(digest),
     "1 hash string; 2 size_bytes int64"},
    {&REAPI_DESCRIPTOR(directory),
     "1 files repeated FileNode; 2 directories repeated DirectoryNode; "
     "3 symlinks repeated SymlinkNode; 5 node_properties NodeProperties"},
    {&REAPI_DESCRIPTOR(file_node),
     "1 name string; 2 digest Digest; 4 is_executable bool; 6 node_properties NodeProperties"},
    {&REAPI_DESCRIPTOR(directory_node),
     "1 name string; 2 digest Digest"},
    {&REAPI_DESCRIPTOR(symlink_node),
     "1 name string; 2 target string; 4 node_properties NodeProperties"},
    {&REAPI_DESCRIPTOR(node_properties),
     "1 properties repeated NodeProperty; 2 mtime google.protobuf.Timestamp; "
     "3 unix_mode google.protobuf.UInt32Value"},
    {&REAPI_DESCRIPTOR(node_property),
     "1 name string; 2 value string"},
    {&REAPI_DESCRIPTOR(tree),
     "1 root Directory; 2 children repeated Directory"},
    {&REAPI_DESCRIPTOR(action),
     "1 command_digest Digest; 2 input_root_digest Digest; 6 timeout google.protobuf.Duration; "
     "7 do_not_cache bool; 9 salt bytes; 10 platform Platform"},
    {&REAPI_DESCRIPTOR(command),
     "1 arguments repeated string; 2 environment_variables repeated Command.EnvironmentVariable; "
     "3 output_files repeated string; 4 output_directories repeated string; 5 platform Platform; "
     "6 working_directory string; 7 output_paths repeated string; "
     "8 output_node_properties repeated string; "
     "9 output_directory_format Command.OutputDirectoryFormat"},
    {&REAPI_DESCRIPTOR(command__environment_variable),
     "1 name string; 2 value string"},
    {&REAPI_DESCRIPTOR(platform),
     "1 properties repeated Platform.Property"},
    {&REAPI_DESCRIPTOR(platform__property),
     "1 name string; 2 value string"},
    {&REAPI_DESCRIPTOR(action_result),
     "2 output_files repeated OutputFile; 3 output_directories repeated OutputDirectory; "
     "4 exit_code int32; 5 stdout_raw bytes; 6 stdout_digest Digest; 7 stderr_raw bytes; "
     "8 stderr_digest Digest; 9 execution_metadata ExecutedActionMetadata; "
     "10 output_file_symlinks repeated OutputSymlink; "
     "11 output_directory_symlinks repeated OutputSymlink; "
     "12 output_symlinks repeated OutputSymlink"},
    {&REAPI_DESCRIPTOR(output_file),
     "1 path string; 2 digest Digest; 4 is_executable bool; 5 contents bytes; "
     "7 node_properties NodeProperties"},
    {&REAPI_DESCRIPTOR(output_directory),
     "1 path string; 3 tree_digest Digest; 4 is_topologically_sorted bool; "
     "5 root_directory_digest Digest"},
    {&REAPI_DESCRIPTOR(output_symlink),
     "1 path string; 2 target string; 4 node_properties NodeProperties"},
    {&REAPI_DESCRIPTOR(executed_action_metadata),
     "1 worker string; 2 queued_timestamp google.protobuf.Timestamp; "
     "3 worker_start_timestamp google.protobuf.Timestamp; "
     "4 worker_completed_timestamp google.protobuf.Timestamp; "
     "5 input_fetch_start_timestamp google.protobuf.Timestamp; "
     "6 input_fetch_completed_timestamp google.protobuf.Timestamp; "
     "7 execution_start_timestamp google.protobuf.Timestamp; "
     "8 execution_completed_timestamp google.protobuf.Timestamp; "
     "9 output_upload_start_timestamp google.protobuf.Timestamp; "
     "10 output_upload_completed_timestamp google.protobuf.Timestamp; "
     "11 auxiliary_metadata repeated google.protobuf.Any; "
     "12 virtual_execution_duration google.protobuf.Duration"},
    {&REAPI_DESCRIPTOR(get_action_result_request),
     "1 instance_name string; 2 action_digest Digest; 3 inline_stdout bool; "
     "4 inline_stderr bool; 5 inline_output_files repeated string; "
     "6 digest_function DigestFunction.Value"},
    {&REAPI_DESCRIPTOR(update_action_result_request),
     "1 instance_name string; 2 action_digest Digest; 3 action_result ActionResult; "
     "4 results_cache_policy ResultsCachePolicy; 5 digest_function DigestFunction.Value"},
    {&REAPI_DESCRIPTOR(results_cache_policy),
     "1 priority int32"},
    {&REAPI_DESCRIPTOR(find_missing_blobs_request),
     "1 instance_name string; 2 blob_digests repeated Digest; "
     "3 digest_function DigestFunction.Value"},
    {&REAPI_DESCRIPTOR(find_missing_blobs_response),
     "2 missing_blob_digests repeated Digest"},
    {&REAPI_DESCRIPTOR(batch_update_blobs_request),
     "1 instance_name string; 2 requests repeated BatchUpdateBlobsRequest.Request; "
     "5 digest_function DigestFunction.Value"},
    {&REAPI_DESCRIPTOR(batch_update_blobs_request__request),
     "1 digest Digest; 2 data bytes; 3 compressor Compressor.Value"},
    {&REAPI_DESCRIPTOR(batch_update_blobs_response),
     "1 responses repeated BatchUpdateBlobsResponse.Response"},
    {&REAPI_DESCRIPTOR(batch_update_blobs_response__response),
     "1 digest Digest; 2 status google.rpc.Status"},
    {&REAPI_DESCRIPTOR(batch_read_blobs_request),
     "1 instance_name string; 2 digests repeated Digest; "
     "3 acceptable_compressors packed Compressor.Value; 4 digest_function DigestFunction.Value"},
    {&REAPI_DESCRIPTOR(batch_read_blobs_response),
     "1 responses repeated BatchReadBlobsResponse.Response"},
    {&REAPI_DESCRIPTOR(batch_read_blobs_response__response),
     "1 digest Digest; 2 data bytes; 3 status google.rpc.Status; 4 compressor Compressor.Value"},
    {&REAPI_DESCRIPTOR(get_tree_request),
     "1 instance_name string; 2 root_digest Digest; 3 page_size int32; 4 page_token string; "
     "5 digest_function DigestFunction.Value"},
    {&REAPI_DESCRIPTOR(get_tree_response),
     "1 directories repeated Directory; 2 next_page_token string"},
    {&REAPI_DESCRIPTOR(split_blob_request),
     "1 instance_name string; 2 blob_digest Digest; 3 digest_function DigestFunction.Value; "
     "4 chunking_function ChunkingFunction.Value"},
    {&REAPI_DESCRIPTOR(split_blob_response),
     "1 chunk_digests repeated Digest; 2 chunking_function ChunkingFunction.Value"},
    {&REAPI_DESCRIPTOR(splice_blob_request),
     "1 instance_name string; 2 blob_digest Digest; 3 chunk_digests repeated Digest; "
     "4 digest_function DigestFunction.Value; 5 chunking_function ChunkingFunction.Value"},
    {&REAPI_DESCRIPTOR(splice_blob_response),
     "1 blob_digest Digest"},
    {&REAPI_DESCRIPTOR(get_capabilities_request),
     "1 instance_name string"},
    {&REAPI_DESCRIPTOR(server_capabilities),
     "1 cache_capabilities CacheCapabilities; 2 execution_capabilities ExecutionCapabilities; "
     "3 deprecated_api_version build.bazel.semver.SemVer; "
     "4 low_api_version build.bazel.semver.SemVer; 5 high_api_version build.bazel.semver.SemVer"},
    {&REAPI_DESCRIPTOR(cache_capabilities),
     "1 digest_functions packed DigestFunction.Value; "
     "2 action_cache_update_capabilities ActionCacheUpdateCapabilities; "
     "3 cache_priority_capabilities PriorityCapabilities; 4 max_batch_total_size_bytes int64; "
     "5 symlink_absolute_path_strategy SymlinkAbsolutePathStrategy.Value; "
     "6 supported_compressors packed Compressor.Value; "
     "7 supported_batch_update_compressors packed Compressor.Value; "
     "8 max_cas_blob_size_bytes int64; 9 split_blob_support bool; 10 splice_blob_support bool; "
     "11 fast_cdc_2020_params FastCdc2020Params; 12 rep_max_cdc_params RepMaxCdcParams"},
    {&REAPI_DESCRIPTOR(action_cache_update_capabilities),
     "1 update_enabled bool"},
    {&REAPI_DESCRIPTOR(priority_capabilities),
     "1 priorities repeated PriorityCapabilities.PriorityRange"},
    {&REAPI_DESCRIPTOR(priority_capabilities__priority_range),
     "1 min_priority int32; 2 max_priority int32"},
    {&REAPI_DESCRIPTOR(fast_cdc2020_params),
     "1 avg_chunk_size_bytes uint64; 2 seed uint32"},
    {&REAPI_DESCRIPTOR(rep_max_cdc_params),
     "1 min_chunk_size_bytes uint64; 2 horizon_size_bytes uint64"},
    {&REAPI_DESCRIPTOR(execution_capabilities),
     "1 digest_function DigestFunction.Value; 2 exec_enabled bool; "
     "3 execution_priority_capabilities PriorityCapabilities; "
     "4 supported_node_properties repeated string; 5 digest_functions packed DigestFunction.Value"},
    {&REAPI_DESCRIPTOR(digest_function),
     ""},
    {&REAPI_DESCRIPTOR(compressor),
     ""},
    {&REAPI_DESCRIPTOR(chunking_function),
     ""},
    {&REAPI_DESCRIPTOR(symlink_absolute_path_strategy),
     ""},
    {&REAPI_DESCRIPTOR(request_metadata),
     "1 tool_details ToolDetails; 2 action_id string; 3 tool_invocation_id string; "
     "4 correlated_invocations_id string; 5 action_mnemonic string; 6 target_id string; "
     "7 configuration_id string"},
    {&REAPI_DESCRIPTOR(tool_details),
     "1 tool_name string; 2 tool_version string"},
    {&REAPI_DESCRIPTOR(execute_request),
     "1 instance_name string; 3 skip_cache_lookup bool; 6 action_digest Digest; "
     "7 execution_policy ExecutionPolicy; 8 results_cache_policy ResultsCachePolicy; "
     "9 digest_function DigestFunction.Value; 10 inline_stdout bool; 11 inline_stderr bool; "
     "12 inline_output_files repeated string"},
    {&REAPI_DESCRIPTOR(execution_policy),
     "1 priority int32"},
    {&REAPI_DESCRIPTOR(execute_response),
     "1 result ActionResult; 2 cached_result bool; 3 status google.rpc.Status; "
     "4 server_logs repeated ExecuteResponse.ServerLogsEntry; 5 message string"},
    {&REAPI_DESCRIPTOR(log_file),
     "1 digest Digest; 2 human_readable bool"},
    {&REAPI_DESCRIPTOR(execute_operation_metadata),
     "1 stage ExecutionStage.Value; 2 action_digest Digest; 3 stdout_stream_name string; "
     "4 stderr_stream_name string; 5 partial_execution_metadata ExecutedActionMetadata; "
     "6 digest_function DigestFunction.Value"},
    {&REAPI_DESCRIPTOR(wait_execution_request),
     "1 name string"},
    {&REAPI_DESCRIPTOR(execution_stage),
     ""},
    {&build__bazel__semver__sem_ver__descriptor,
     "1 major int32; 2 minor int32; 3 patch int32; 4 prerelease string"},
    {&google__bytestream__read_request__descriptor,
     "1 resource_name string; 2 read_offset int64; 3 read_limit int64"},
    {&google__bytestream__read_response__descriptor,
     "10 data bytes"},
    {&google__bytestream__write_request__descriptor,
     "1 resource_name string; 2 write_offset int64; 3 finish_write bool; 10 data bytes"},
    {&google__bytestream__write_response__descriptor,
     "1 committed_size int64"},
    {&google__bytestream__query_write_status_request__descriptor,
     "1 resource_name string"},
    {&google__bytestream__query_write_status_response__descriptor,
     "1 committed_size int64; 2 complete bool"},
    {&google__rpc__status__descriptor,
     "1 code int32; 2 message string; 3 details repeated google.protobuf.Any"},
    {&google__rpc__error_info__descriptor,
     "1 reason string; 2 domain string; 3 metadata repeated ErrorInfo.MetadataEntry"},
    {&google__rpc__retry_info__descriptor,
     "1 retry_delay google.protobuf.Duration"},
    {&google__rpc__debug_info__descriptor,
     "1 stack_entries repeated string; 2 detail string"},
    {&google__rpc__quota_failure__descriptor,
     "1 violations repeated QuotaFailure.Violation"},
    {&google__rpc__quota_failure__violation__descriptor,
     "1 subject string; 2 description string; 3 api_service string; 4 quota_metric string; "
     "5 quota_id string; "
     "6 quota_dimensions repeated QuotaFailure.Violation.QuotaDimensionsEntry; "
     "7 quota_value int64; 8 future_quota_value oneof int64"},
    {&google__rpc__precondition_failure__descriptor,
     "1 violations repeated PreconditionFailure.Violation"},
    {&google__rpc__precondition_failure__violation__descriptor,
     "1 type string; 2 subject string; 3 description string"},
    {&google__rpc__bad_request__descriptor,
     "1 field_violations repeated BadRequest.FieldViolation"},
    {&google__rpc__bad_request__field_violation__descriptor,
     "1 field string; 2 description string; 3 reason string; 4 localized_message LocalizedMessage"},
    {&google__rpc__request_info__descriptor,
     "1 request_id string; 2 serving_data string"},
    {&google__rpc__resource_info__descriptor,
     "1 resource_type string; 2 resource_name string; 3 owner string; 4 description string"},
    {&google__rpc__help__descriptor,
     "1 links repeated Help.Link"},
    {&google__rpc__help__link__descriptor,
     "1 description string; 2 url string"},
    {&google__rpc__localized_message__descriptor,
     "1 locale string; 2 message string"},
    {&grpc__health__v1__health_check_request__descriptor,
     "1 service string"},
    {&grpc__health__v1__health_check_response__descriptor,
     "1 status HealthCheckResponse.ServingStatus"},
    {&grpc__health__v1__health_list_request__descriptor,
     ""},
    {&grpc__health__v1__health_list_response__descriptor,
     "1 statuses repeated HealthListResponse.StatusesEntry"},
    {&grpc__reflection__v1__server_reflection_request__descriptor,
     "1 host string; 3 file_by_filename oneof string; 4 file_containing_symbol oneof string; "
     "5 file_containing_extension oneof ExtensionRequest; "
     "6 all_extension_numbers_of_type oneof string; 7 list_services oneof string"},
    {&grpc__reflection__v1__extension_request__descriptor,
     "1 containing_type string; 2 extension_number int32"},
    {&grpc__reflection__v1__server_reflection_response__descriptor,
     "1 valid_host string; 2 original_request ServerReflectionRequest; "
     "4 file_descriptor_response oneof FileDescriptorResponse; "
     "5 all_extension_numbers_response oneof ExtensionNumberResponse; "
     "6 list_services_response oneof ListServiceResponse; 7 error_response oneof ErrorResponse"},
    {&grpc__reflection__v1__file_descriptor_response__descriptor,
     "1 file_descriptor_proto repeated bytes"},
    {&grpc__reflection__v1__extension_number_response__descriptor,
     "1 base_type_name string; 2 extension_number packed int32"},
    {&grpc__reflection__v1__list_service_response__descriptor,
     "1 service repeated ServiceResponse"},
    {&grpc__reflection__v1__service_response__descriptor,
     "1 name string"},
    {&grpc__reflection__v1__error_response__descriptor,
     "1 error_code int32; 2 error_message string"},
    {&grpc__reflection__v1alpha__server_reflection_request__descriptor,
     "1 host string; 3 file_by_filename oneof string; 4 file_containing_symbol oneof string; "
     "5 file_containing_extension oneof ExtensionRequest; "
     "6 all_extension_numbers_of_type oneof string; 7 list_services oneof string"},
    {&grpc__reflection__v1alpha__extension_request__descriptor,
     "1 containing_type string; 2 extension_number int32"},
    {&grpc__reflection__v1alpha__server_reflection_response__descriptor,
     "1 valid_host string; 2 original_request ServerReflectionRequest; "
     "4 file_descriptor_response oneof FileDescriptorResponse; "
     "5 all_extension_numbers_response oneof ExtensionNumberResponse; "
     "6 list_services_response oneof ListServiceResponse; 7 error_response oneof ErrorResponse"},
    {&grpc__reflection__v1alpha__file_descriptor_response__descriptor,
     "1 file_descriptor_proto repeated bytes"},
    {&grpc__reflection__v1alpha__extension_number_response__descriptor,
     "1 base_type_name string; 2 extension_number packed int32"},
    {&grpc__reflection__v1alpha__list_service_response__descriptor,
     "1 service repeated ServiceResponse"},
    {&grpc__reflection__v1alpha__service_response__descriptor,
     "1 name string"},
    {&grpc__reflection__v1alpha__error_response__descriptor,
     "1 error_code int32; 2 error_message string"},
    {&google__protobuf__any__descriptor,
     "1 type_url string; 2 value bytes"},
    {&google__protobuf__duration__descriptor,
     "1 seconds int64; 2 nanos int32"},
    {&google__protobuf__timestamp__descriptor,
     "1 seconds int64; 2 nanos int32"},
    {&google__protobuf__uint32_value__descriptor,
     "1 value uint32"},
};

static const struct {
    const ProtobufCEnumDescriptor *descriptor;
    const char *values;
} enums[] = {
    {&REAPI_DESCRIPTOR(command__output_directory_format),
     "0 TREE_ONLY; 1 DIRECTORY_ONLY; 2 TREE_AND_DIRECTORY"},
    {&REAPI_DESCRIPTOR(digest_function__value),
     "0 UNKNOWN; 1 SHA256; 2 SHA1; 3 MD5; 4 VSO; 5 SHA384; 6 SHA512; 7 MURMUR3; 8 SHA256TREE; "
     "9 BLAKE3; 10 GITSHA1"},
    {&REAPI_DESCRIPTOR(compressor__value),
     "0 IDENTITY; 1 ZSTD; 2 DEFLATE; 3 BROTLI"},
    {&REAPI_DESCRIPTOR(chunking_function__value),
     "0 UNKNOWN; 1 FAST_CDC_2020; 2 REP_MAX_CDC"},
    {&REAPI_DESCRIPTOR(symlink_absolute_path_strategy__value),
     "0 UNKNOWN; 1 DISALLOWED; 2 ALLOWED"},
    {&REAPI_DESCRIPTOR(execution_stage__value),
     "0 UNKNOWN; 1 CACHE_CHECK; 2 QUEUED; 3 EXECUTING; 4 COMPLETED"},
    {&grpc__health__v1__health_check_response__serving_status__descriptor,
     "0 UNKNOWN; 1 SERVING; 2 NOT_SERVING; 3 SERVICE_UNKNOWN"},
    {&google__rpc__code__descriptor,
     "0 OK; 1 CANCELLED; 2 UNKNOWN; 3 INVALID_ARGUMENT; 4 DEADLINE_EXCEEDED; 5 NOT_FOUND; "
     "6 ALREADY_EXISTS; 7 PERMISSION_DENIED; 8 RESOURCE_EXHAUSTED; 9 FAILED_PRECONDITION; "
     "10 ABORTED; 11 OUT_OF_RANGE; 12 UNIMPLEMENTED; 13 INTERNAL; 14 UNAVAILABLE; 15 DATA_LOSS; "
     "16 UNAUTHENTICATED"},
};

/* A method is "name(request) response"; types are of the package of the service. */
static const struct {
    const char *name;
    const char *methods;
} services[] = {
    {"build.bazel.remote.execution.v2.ActionCache",
     "GetActionResult(GetActionResultRequest) ActionResult; "
     "UpdateActionResult(UpdateActionResultRequest) ActionResult"},
    {"build.bazel.remote.execution.v2.ContentAddressableStorage",
     "FindMissingBlobs(FindMissingBlobsRequest) FindMissingBlobsResponse; "
     "BatchUpdateBlobs(BatchUpdateBlobsRequest) BatchUpdateBlobsResponse; "
     "BatchReadBlobs(BatchReadBlobsRequest) BatchReadBlobsResponse; "
     "GetTree(GetTreeRequest) stream GetTreeResponse; "
     "SplitBlob(SplitBlobRequest) SplitBlobResponse; "
     "SpliceBlob(SpliceBlobRequest) SpliceBlobResponse"},
    {"build.bazel.remote.execution.v2.Capabilities",
     "GetCapabilities(GetCapabilitiesRequest) ServerCapabilities"},
    {"google.bytestream.ByteStream",
     "Read(ReadRequest) stream ReadResponse; Write(stream WriteRequest) WriteResponse; "
     "QueryWriteStatus(QueryWriteStatusRequest) QueryWriteStatusResponse"},
    {"grpc.health.v1.Health",
     "Check(HealthCheckRequest) HealthCheckResponse; List(HealthListRequest) HealthListResponse; "
     "Watch(HealthCheckRequest) stream HealthCheckResponse"},
    {"grpc.reflection.v1.ServerReflection",
     "ServerReflectionInfo(stream ServerReflectionRequest) stream ServerReflectionResponse"},
    {"grpc.reflection.v1alpha.ServerReflection",
     "ServerReflectionInfo(stream ServerReflectionRequest) stream ServerReflectionResponse"},
};

/* clang-format on */

/* Text under construction. */
struct text {
    char bytes[4096];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text->bytes + text->length, sizeof(text->bytes) - text->length,
                                 format, arguments);
    va_end(arguments);
    ck_assert_int_ge(length, 0);
    text->length += (size_t)length;
    ck_assert_uint_lt(text->length, sizeof(text->bytes));
}

/* A name without the package, when it is of this package. */
static const char *short_name(const char *name, const char *package)
{
    const size_t length = strlen(package);
    return strncmp(name, package, length) == 0 && name[length] == '.' ? name + length + 1 : name;
}

static const char *type_name(const ProtobufCFieldDescriptor *field, const char *package)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT32:
        return "int32";
    case PROTOBUF_C_TYPE_INT64:
        return "int64";
    case PROTOBUF_C_TYPE_UINT32:
        return "uint32";
    case PROTOBUF_C_TYPE_UINT64:
        return "uint64";
    case PROTOBUF_C_TYPE_BOOL:
        return "bool";
    case PROTOBUF_C_TYPE_STRING:
        return "string";
    case PROTOBUF_C_TYPE_BYTES:
        return "bytes";
    case PROTOBUF_C_TYPE_ENUM:
        return short_name(((const ProtobufCEnumDescriptor *)field->descriptor)->name, package);
    case PROTOBUF_C_TYPE_MESSAGE:
        return short_name(((const ProtobufCMessageDescriptor *)field->descriptor)->name, package);
    default:
        return "a type that the interface has nowhere";
    }
}

static const char *label_name(const ProtobufCFieldDescriptor *field)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return (field->flags & PROTOBUF_C_FIELD_FLAG_PACKED) != 0 ? "packed " : "repeated ";
    if (field->label != PROTOBUF_C_LABEL_NONE)
        return "a label that proto3 does not have ";
    return (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 ? "oneof " : "";
}

START_TEST(every_message_has_the_fields_of_the_interface_and_no_other)
{
    for (size_t i = 0; i < ARRAY_LENGTH(messages); i++) {
        const ProtobufCMessageDescriptor *const message = messages[i].descriptor;
        struct text text = {0};
        for (unsigned j = 0; j < message->n_fields; j++) {
            const ProtobufCFieldDescriptor *const field = &message->fields[j];
            add(&text, "%s%" PRIu32 " %s %s%s", j == 0 ? "" : "; ", field->id, field->name,
                label_name(field), type_name(field, message->package_name));
        }
        ck_assert_msg(strcmp(text.bytes, messages[i].fields) == 0, "%s is\n%s\nwanted\n%s",
                      message->name, text.bytes, messages[i].fields);
    }
}
END_TEST

START_TEST(every_enum_has_the_values_of_the_interface_and_no_other)
{
    for (size_t i = 0; i < ARRAY_LENGTH(enums); i++) {
        const ProtobufCEnumDescriptor *const descriptor = enums[i].descriptor;
        struct text text = {0};
        for (unsigned j = 0; j < descriptor->n_values; j++)
            add(&text, "%s%d %s", j == 0 ? "" : "; ", descriptor->values[j].value,
                descriptor->values[j].name);
        ck_assert_msg(strcmp(text.bytes, enums[i].values) == 0, "%s is\n%s\nwanted\n%s",
                      descriptor->name, text.bytes, enums[i].values);
    }
}
END_TEST

/* ---- the descriptor set: FileDescriptorSet and what is in it, read with our own reader */

/* Fields of google.protobuf's descriptor messages. */
enum {
    SET_FILE = 1,
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_DEPENDENCY = 3,
    FILE_SERVICE = 6,
    SERVICE_NAME = 1,
    SERVICE_METHOD = 2,
    METHOD_NAME = 1,
    METHOD_INPUT = 2,
    METHOD_OUTPUT = 3,
    METHOD_CLIENT_STREAMS = 5,
    METHOD_SERVER_STREAMS = 6,
};

static const struct bytes whole_set = {.data = descriptor_set, .length = sizeof(descriptor_set)};

/* Looks for the next field of this number in *rest; returns false at the end. */
static bool next_of(struct wire_reader *reader, uint32_t number, struct wire_field *field)
{
    while (wire_reader_next(reader, field))
        if (field->number == number)
            return true;
    ck_assert(!reader->failed);
    return false;
}

/* The text of a string field, or "" when it is not there. */
static void get_string(struct wire_span message, uint32_t number, struct text *text)
{
    struct wire_reader reader;
    struct wire_field field;
    text->length = 0;
    text->bytes[0] = '\0';
    wire_reader_init(&reader, message);
    if (!next_of(&reader, number, &field))
        return;
    const struct bytes string = wire_span_next(&field.span);
    add(text, "%.*s", (int)string.length, (const char *)string.data);
}

static bool get_bool(struct wire_span message, uint32_t number)
{
    struct wire_reader reader;
    struct wire_field field;
    wire_reader_init(&reader, message);
    return next_of(&reader, number, &field) && field.value != 0;
}

static void add_method(struct text *text, struct wire_span method, const char *package)
{
    struct text name;
    struct text input;
    struct text output;
    get_string(method, METHOD_NAME, &name);
    get_string(method, METHOD_INPUT, &input);
    get_string(method, METHOD_OUTPUT, &output);
    ck_assert_int_eq(input.bytes[0], '.');
    ck_assert_int_eq(output.bytes[0], '.');
    add(text, "%s%s(%s%s) %s%s", text->length == 0 ? "" : "; ", name.bytes,
        get_bool(method, METHOD_CLIENT_STREAMS) ? "stream " : "",
        short_name(input.bytes + 1, package),
        get_bool(method, METHOD_SERVER_STREAMS) ? "stream " : "",
        short_name(output.bytes + 1, package));
}

/* Sets *found, and compares the methods, when the service is in this file. */
static void look_for_service(struct wire_span file,
                             const char *wanted,
                             const char *methods,
                             bool *found)
{
    struct text package;
    get_string(file, FILE_PACKAGE, &package);
    struct wire_reader in_file;
    struct wire_field service;
    wire_reader_init(&in_file, file);
    while (next_of(&in_file, FILE_SERVICE, &service)) {
        struct text name;
        get_string(service.span, SERVICE_NAME, &name);
        struct text full_name = {0};
        add(&full_name, "%s.%s", package.bytes, name.bytes);
        if (strcmp(full_name.bytes, wanted) != 0)
            continue;
        struct text text = {0};
        struct wire_reader in_service;
        struct wire_field method;
        wire_reader_init(&in_service, service.span);
        while (next_of(&in_service, SERVICE_METHOD, &method))
            add_method(&text, method.span, package.bytes);
        ck_assert_str_eq(text.bytes, methods);
        *found = true;
    }
}

START_TEST(every_service_has_the_methods_of_the_interface_and_no_other)
{
    for (size_t i = 0; i < ARRAY_LENGTH(services); i++) {
        bool found = false;
        struct wire_reader reader;
        struct wire_field file;
        wire_reader_init(&reader, wire_span_of_bytes(&whole_set));
        while (next_of(&reader, SET_FILE, &file))
            look_for_service(file.span, services[i].name, services[i].methods, &found);
        ck_assert_msg(found, "%s is not there", services[i].name);
    }
}
END_TEST

/* Is there a file of this name before the end of `before`? */
static bool has_file(struct wire_span before, const char *wanted)
{
    struct wire_reader reader;
    struct wire_field file;
    wire_reader_init(&reader, before);
    while (next_of(&reader, SET_FILE, &file)) {
        struct text name;
        get_string(file.span, FILE_NAME, &name);
        if (strcmp(name.bytes, wanted) == 0)
            return true;
    }
    return false;
}

START_TEST(the_descriptor_set_holds_what_each_file_imports_before_the_file)
{
    const struct wire_span set = wire_span_of_bytes(&whole_set);
    size_t imports = 0;
    struct wire_reader reader;
    struct wire_field file;
    wire_reader_init(&reader, set);
    size_t file_start = 0;
    while (next_of(&reader, SET_FILE, &file)) {
        struct wire_span before = set;
        before.length = file_start;
        file_start = set.length - reader.rest.length;
        struct wire_reader in_file;
        struct wire_field dependency;
        wire_reader_init(&in_file, file.span);
        while (next_of(&in_file, FILE_DEPENDENCY, &dependency)) {
            struct text name = {0};
            const struct bytes string = wire_span_next(&dependency.span);
            add(&name, "%.*s", (int)string.length, (const char *)string.data);
            ck_assert_msg(has_file(before, name.bytes), "%s comes too late", name.bytes);
            imports++;
        }
    }
    ck_assert_uint_ge(imports, 9);
}
END_TEST

START_TEST(files_are_at_the_import_paths_that_clients_ask_reflection_for)
{
    static const char *const paths[] = {
        "build/bazel/remote/execution/v2/remote_execution.proto",
        "build/bazel/semver/semver.proto",
        "google/bytestream/bytestream.proto",
        "google/protobuf/any.proto",
        "google/protobuf/duration.proto",
        "google/protobuf/timestamp.proto",
        "google/protobuf/wrappers.proto",
        "google/rpc/code.proto",
        "google/rpc/error_details.proto",
        "google/rpc/status.proto",
        "grpc/health/v1/health.proto",
        "grpc/reflection/v1/reflection.proto",
        "grpc/reflection/v1alpha/reflection.proto",
        "varve/v1/varve.proto",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(paths); i++)
        ck_assert_msg(has_file(wire_span_of_bytes(&whole_set), paths[i]), "%s", paths[i]);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("proto_schema");
    TCase *const tests = tcase_create("proto_schema");
    tcase_add_test(tests, every_message_has_the_fields_of_the_interface_and_no_other);
    tcase_add_test(tests, every_enum_has_the_values_of_the_interface_and_no_other);
    tcase_add_test(tests, every_service_has_the_methods_of_the_interface_and_no_other);
    tcase_add_test(tests, the_descriptor_set_holds_what_each_file_imports_before_the_file);
    tcase_add_test(tests, files_are_at_the_import_paths_that_clients_ask_reflection_for);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
