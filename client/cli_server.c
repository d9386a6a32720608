/* SPDX-License-Identifier: Apache-2.0 */
/* varve capabilities, varve status, varve scrub. */
#include <string.h>

#include "client/capabilities.h"
#include "client/cli.h"
#include "client/json.h"
#include "client/store_service.h"

enum { SET_VALUES = 64, SET_TEXT_BYTES = 512 };

static void print_capabilities(const struct cli *cli, const struct capabilities *capabilities);
static void print_capabilities_json(const struct cli *cli, const struct capabilities *capabilities);
static const char *set_text(uint64_t set,
                            const char *(*name)(int value),
                            char text[SET_TEXT_BYTES]);
static void set_json(struct json *json,
                     const char *key,
                     uint64_t set,
                     const char *(*name)(int value));
static const char *limit_text(int64_t limit, char text[32]);
static void print_status(const struct cli *cli, const struct server_status *server);
static void print_status_json(const struct cli *cli, const struct server_status *server);
static void print_scrub(const struct cli *cli, const struct scrub_state *scrub);
static void scrub_json(struct json *json, const char *key, const struct scrub_state *scrub);

enum cli_exit cli_capabilities(struct cli *cli)
{
    struct capabilities capabilities;
    struct status status = {0};
    if (!capabilities_get(cli->client, &capabilities, &status))
        return cli_failed(cli, NULL, &status);
    if (cli->json)
        print_capabilities_json(cli, &capabilities);
    else
        print_capabilities(cli, &capabilities);
    return CLI_EXIT_OK;
}

static void print_capabilities(const struct cli *cli, const struct capabilities *capabilities)
{
    char text[SET_TEXT_BYTES], number[32];
    FILE *out = cli->out;
    fprintf(out, "server                   %s\n", client_target(cli->client));
    if (!capabilities->announced)
        fprintf(out, "announces                nothing; these are the defaults\n");
    fprintf(out, "api versions             %d.%d to %d.%d\n", capabilities->low_major,
            capabilities->low_minor, capabilities->high_major, capabilities->high_minor);
    fprintf(out, "digest functions         %s\n",
            set_text(capabilities->digest_functions, digest_function_name, text));
    fprintf(out, "compression of streams   %s\n",
            set_text(capabilities->stream_compressors, compressor_name, text));
    fprintf(out, "compression of batches   %s\n",
            set_text(capabilities->batch_compressors, compressor_name, text));
    fprintf(out, "largest batch            %s\n",
            limit_text(capabilities->batch_total_bytes_max, number));
    fprintf(out, "largest blob             %s\n", limit_text(capabilities->blob_bytes_max, number));
    fprintf(out, "stores action results    %s\n", capabilities->update_enabled ? "yes" : "no");
    fprintf(out, "splits blobs             %s\n", capabilities->split ? "yes" : "no");
    fprintf(out, "splices blobs            %s\n", capabilities->splice ? "yes" : "no");
    fprintf(out, "executes                 %s\n", capabilities->executes ? "yes" : "no");
}

static const char *set_text(uint64_t set, const char *(*name)(int value), char text[SET_TEXT_BYTES])
{
    size_t length = 0;
    text[0] = '\0';
    for (int value = 0; value < SET_VALUES; value++) {
        if ((set >> value & 1) == 0)
            continue;
        const int added = snprintf(text + length, SET_TEXT_BYTES - length, "%s%s",
                                   length > 0 ? ", " : "", name(value));
        if (added < 0 || (size_t)added >= SET_TEXT_BYTES - length)
            break;
        length += (size_t)added;
    }
    return length > 0 ? text : "none";
}

static const char *limit_text(int64_t limit, char text[32])
{
    if (limit == 0)
        return "not limited";
    snprintf(text, 32, "%lld bytes", (long long)limit);
    return text;
}

static void print_capabilities_json(const struct cli *cli, const struct capabilities *capabilities)
{
    char version[32];
    struct json json;
    json_init(&json, cli->out);
    json_open_object(&json, NULL);
    json_string(&json, "server", client_target(cli->client));
    json_bool(&json, "announced", capabilities->announced);
    snprintf(version, sizeof(version), "%d.%d", capabilities->low_major, capabilities->low_minor);
    json_string(&json, "low_api_version", version);
    snprintf(version, sizeof(version), "%d.%d", capabilities->high_major, capabilities->high_minor);
    json_string(&json, "high_api_version", version);
    set_json(&json, "digest_functions", capabilities->digest_functions, digest_function_name);
    set_json(&json, "compressors", capabilities->stream_compressors, compressor_name);
    set_json(&json, "batch_compressors", capabilities->batch_compressors, compressor_name);
    json_integer(&json, "max_batch_total_size_bytes", capabilities->batch_total_bytes_max);
    json_integer(&json, "max_cas_blob_size_bytes", capabilities->blob_bytes_max);
    json_bool(&json, "update_enabled", capabilities->update_enabled);
    json_bool(&json, "split", capabilities->split);
    json_bool(&json, "splice", capabilities->splice);
    json_bool(&json, "executes", capabilities->executes);
    json_close_object(&json);
    json_end(&json);
}

static void set_json(struct json *json,
                     const char *key,
                     uint64_t set,
                     const char *(*name)(int value))
{
    json_open_array(json, key);
    for (int value = 0; value < SET_VALUES; value++) {
        if ((set >> value & 1) != 0)
            json_string(json, NULL, name(value));
    }
    json_close_array(json);
}

enum cli_exit cli_status(struct cli *cli)
{
    struct server_status server;
    struct status status = {0};
    if (!store_service_status(cli->client, &server, &status))
        return cli_failed(cli, NULL, &status);
    if (cli->json)
        print_status_json(cli, &server);
    else
        print_status(cli, &server);
    return CLI_EXIT_OK;
}

static void print_status(const struct cli *cli, const struct server_status *server)
{
    FILE *out = cli->out;
    fprintf(out, "server           %s, varve %s, up %llu s\n", client_target(cli->client),
            server->version, (unsigned long long)server->uptime_seconds);
    fprintf(out, "state            %s\n", store_service_state_name(server->state));
    if (server->read_only)
        fprintf(out, "read-only        %s\n", server->read_only_reason);
    fprintf(out, "index            %llu entries\n", (unsigned long long)server->index_entries);
    fprintf(out, "file system      %llu of %llu bytes free\n",
            (unsigned long long)server->data_free_bytes,
            (unsigned long long)server->data_total_bytes);
    for (size_t i = 0; i < server->lane_count; i++)
        fprintf(
            out,
            "lane %-11s %llu bytes in %llu segments; %llu records, %llu of them not yet synced\n",
            store_service_lane_name(server->lanes[i].lane),
            (unsigned long long)server->lanes[i].bytes,
            (unsigned long long)server->lanes[i].segments,
            (unsigned long long)server->lanes[i].pending_seq,
            (unsigned long long)(server->lanes[i].pending_seq - server->lanes[i].durable_seq));
    if (server->has_scrub)
        print_scrub(cli, &server->scrub);
}

static void print_status_json(const struct cli *cli, const struct server_status *server)
{
    struct json json;
    json_init(&json, cli->out);
    json_open_object(&json, NULL);
    json_string(&json, "server", client_target(cli->client));
    json_string(&json, "version", server->version);
    json_string(&json, "state", store_service_state_name(server->state));
    json_bool(&json, "read_only", server->read_only);
    json_string(&json, "read_only_reason", server->read_only_reason);
    json_unsigned(&json, "uptime_seconds", server->uptime_seconds);
    json_unsigned(&json, "index_entries", server->index_entries);
    json_unsigned(&json, "data_free_bytes", server->data_free_bytes);
    json_unsigned(&json, "data_total_bytes", server->data_total_bytes);
    json_open_array(&json, "lanes");
    for (size_t i = 0; i < server->lane_count; i++) {
        json_open_object(&json, NULL);
        json_string(&json, "lane", store_service_lane_name(server->lanes[i].lane));
        json_unsigned(&json, "pending_seq", server->lanes[i].pending_seq);
        json_unsigned(&json, "durable_seq", server->lanes[i].durable_seq);
        json_unsigned(&json, "segments", server->lanes[i].segments);
        json_unsigned(&json, "bytes", server->lanes[i].bytes);
        json_close_object(&json);
    }
    json_close_array(&json);
    if (server->has_scrub)
        scrub_json(&json, "scrub", &server->scrub);
    json_close_object(&json);
    json_end(&json);
}

enum cli_exit cli_scrub(struct cli *cli)
{
    struct scrub_state scrub;
    struct status status = {0};
    const bool start = cli->argument_count > 0;
    if (start && strcmp(cli->arguments[0], "start") != 0) {
        fprintf(cli->messages, "varve: scrub: %s: only start may follow it\n", cli->arguments[0]);
        return CLI_EXIT_USAGE;
    }
    if (!store_service_scrub(cli->client, start ? SCRUB_START : SCRUB_LOOK, &scrub, &status))
        return cli_failed(cli, NULL, &status);
    if (cli->json) {
        struct json json;
        json_init(&json, cli->out);
        scrub_json(&json, NULL, &scrub);
        json_end(&json);
    } else {
        print_scrub(cli, &scrub);
    }
    return CLI_EXIT_OK;
}

static void print_scrub(const struct cli *cli, const struct scrub_state *scrub)
{
    fprintf(cli->out,
            "scrub            %s, %llu of %llu bytes, %llu damaged; %llu passes have ended\n",
            scrub->running ? "running" : "idle", (unsigned long long)scrub->position_bytes,
            (unsigned long long)scrub->total_bytes, (unsigned long long)scrub->damaged,
            (unsigned long long)scrub->passes);
}

static void scrub_json(struct json *json, const char *key, const struct scrub_state *scrub)
{
    json_open_object(json, key);
    json_bool(json, "running", scrub->running);
    json_unsigned(json, "position_bytes", scrub->position_bytes);
    json_unsigned(json, "total_bytes", scrub->total_bytes);
    json_unsigned(json, "segment", scrub->segment);
    json_unsigned(json, "offset", scrub->offset);
    json_unsigned(json, "damaged", scrub->damaged);
    json_unsigned(json, "passes", scrub->passes);
    json_integer(json, "last_pass_unix_ns", scrub->last_pass_unix_ns);
    json_unsigned(json, "bytes_per_second", scrub->bytes_per_second);
    json_close_object(json);
}
