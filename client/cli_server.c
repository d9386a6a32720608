/* SPDX-License-Identifier: Apache-2.0 */
/* varve capabilities, varve status, varve scrub. */
#include <string.h>

#include "client/capabilities.h"
#include "client/cli.h"
#include "client/json.h"
#include "client/replication_service.h"
#include "client/store_service.h"

enum { SET_VALUES = 64, SET_TEXT_BYTES = 512, PEER_TEXT_BYTES = 512 };

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
static bool get_peers(const struct cli *cli,
                      Varve__V1__PeersResponse **peers,
                      struct status *status);
static void print_status(const struct cli *cli, const struct server_status *server);
static void print_status_json(const struct cli *cli,
                              const struct server_status *server,
                              const Varve__V1__PeersResponse *peers);
static void print_peers(const struct cli *cli, const Varve__V1__PeersResponse *peers);
static void print_peer(const struct cli *cli, const Varve__V1__Peer *peer);
static void peers_json(struct json *json, const Varve__V1__PeersResponse *peers);
static void peer_json(struct json *json, const Varve__V1__Peer *peer);
static const char *printable(const char *from, char to[PEER_TEXT_BYTES]);
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
    Varve__V1__PeersResponse *peers = NULL;
    if (!store_service_status(cli->client, &server, &status) || !get_peers(cli, &peers, &status))
        return cli_failed(cli, NULL, &status);
    if (cli->json) {
        print_status_json(cli, &server, peers);
    } else {
        print_status(cli, &server);
        if (peers != NULL)
            print_peers(cli, peers);
    }
    if (peers != NULL)
        varve__v1__peers_response__free_unpacked(peers, NULL);
    return CLI_EXIT_OK;
}

/* NULL where an older server knows nothing of peers, or who asks may not know. */
static bool get_peers(const struct cli *cli,
                      Varve__V1__PeersResponse **peers,
                      struct status *status)
{
    struct status failure = {0};
    if (replication_peers(cli->client, peers, &failure) || failure.code == STATUS_UNIMPLEMENTED ||
        failure.code == STATUS_PERMISSION_DENIED)
        return true;
    *status = failure;
    return false;
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
        fprintf(out,
                "lane %-11s %llu bytes in %llu segments; records up to %llu written, up to %llu "
                "durable\n",
                store_service_lane_name(server->lanes[i].lane),
                (unsigned long long)server->lanes[i].bytes,
                (unsigned long long)server->lanes[i].segments,
                (unsigned long long)server->lanes[i].pending_seq,
                (unsigned long long)server->lanes[i].durable_seq);
    if (server->has_scrub)
        print_scrub(cli, &server->scrub);
}

static void print_peers(const struct cli *cli, const Varve__V1__PeersResponse *peers)
{
    FILE *out = cli->out;
    char name[PEER_TEXT_BYTES], address[PEER_TEXT_BYTES];
    fprintf(out, "node             %016llx\n", (unsigned long long)peers->node_uid);
    if (peers->ack_copies > 0)
        fprintf(out, "acknowledged     when %u other%s it%s\n", peers->ack_copies,
                peers->ack_copies == 1 ? " node has" : " nodes have",
                peers->ack_copies_degraded ? "; at present without, as they are not there" : "");
    for (size_t i = 0; i < peers->n_followers; i++) {
        const Varve__V1__Follower *follower = peers->followers[i];
        fprintf(
            out,
            "follower         %016llx %s at %s; durable there: small %llu, %llu records behind, "
            "large %llu, %llu behind; seen %.1f s ago%s\n",
            (unsigned long long)follower->uid, printable(follower->name, name),
            printable(follower->address, address), (unsigned long long)follower->small_durable_seq,
            (unsigned long long)follower->small_behind_records,
            (unsigned long long)follower->large_durable_seq,
            (unsigned long long)follower->large_behind_records, follower->seen_seconds_ago,
            follower->counts ? "" : "; does not count as a copy");
        if (follower->trouble[0] != '\0')
            fprintf(out, "                 it fails: %s\n", printable(follower->trouble, name));
    }
    for (size_t i = 0; i < peers->n_peers; i++)
        print_peer(cli, peers->peers[i]);
}

static void print_peer(const struct cli *cli, const Varve__V1__Peer *peer)
{
    FILE *out = cli->out;
    char text[PEER_TEXT_BYTES];
    fprintf(out, "peer             %s, node %016llx, %s; %llu blobs with %llu bytes fetched\n",
            printable(peer->address, text), (unsigned long long)peer->uid,
            replication_peer_state_name((int)peer->state), (unsigned long long)peer->blobs_fetched,
            (unsigned long long)peer->bytes_fetched);
    for (size_t i = 0; i < peer->n_lanes; i++) {
        const Varve__V1__PeerLane *lane = peer->lanes[i];
        fprintf(out,
                "  lane %-9s durable here up to %llu of %llu; behind by %llu records, %llu bytes, "
                "%.1f s\n",
                store_service_lane_name((int)lane->lane), (unsigned long long)lane->applied_seq,
                (unsigned long long)lane->durable_seq, (unsigned long long)lane->behind_records,
                (unsigned long long)lane->behind_bytes, lane->behind_seconds);
    }
    if (peer->last_error[0] != '\0')
        fprintf(out, "  last error     %s\n", printable(peer->last_error, text));
}

/* Names and errors may come from another node: no control characters get to a terminal. */
static const char *printable(const char *from, char to[PEER_TEXT_BYTES])
{
    size_t length = 0;
    for (; from[length] != '\0' && length < PEER_TEXT_BYTES - 1; length++) {
        const unsigned char c = (unsigned char)from[length];
        to[length] = c < 0x20 || c == 0x7f ? '?' : from[length];
    }
    to[length] = '\0';
    return length > 0 ? to : "-";
}

static void print_status_json(const struct cli *cli,
                              const struct server_status *server,
                              const Varve__V1__PeersResponse *peers)
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
    if (peers != NULL)
        peers_json(&json, peers);
    json_close_object(&json);
    json_end(&json);
}

/* A uid is a string of 16 hex digits: numbers of 64 bits do not survive all readers of JSON. */
static void uid_json(struct json *json, const char *key, uint64_t uid)
{
    char text[17];
    snprintf(text, sizeof(text), "%016llx", (unsigned long long)uid);
    json_string(json, key, text);
}

static void peers_json(struct json *json, const Varve__V1__PeersResponse *peers)
{
    uid_json(json, "node_uid", peers->node_uid);
    json_unsigned(json, "ack_copies", peers->ack_copies);
    json_bool(json, "ack_copies_degraded", peers->ack_copies_degraded);
    json_open_array(json, "followers");
    for (size_t i = 0; i < peers->n_followers; i++) {
        const Varve__V1__Follower *follower = peers->followers[i];
        json_open_object(json, NULL);
        uid_json(json, "uid", follower->uid);
        json_string(json, "name", follower->name);
        json_string(json, "address", follower->address);
        json_unsigned(json, "small_durable_seq", follower->small_durable_seq);
        json_unsigned(json, "large_durable_seq", follower->large_durable_seq);
        json_unsigned(json, "small_behind_records", follower->small_behind_records);
        json_unsigned(json, "large_behind_records", follower->large_behind_records);
        json_real(json, "seen_seconds_ago", follower->seen_seconds_ago);
        json_bool(json, "counts", follower->counts);
        json_string(json, "trouble", follower->trouble);
        json_close_object(json);
    }
    json_close_array(json);
    json_open_array(json, "peers");
    for (size_t i = 0; i < peers->n_peers; i++)
        peer_json(json, peers->peers[i]);
    json_close_array(json);
}

static void peer_json(struct json *json, const Varve__V1__Peer *peer)
{
    json_open_object(json, NULL);
    json_string(json, "address", peer->address);
    uid_json(json, "uid", peer->uid);
    json_string(json, "state", replication_peer_state_name((int)peer->state));
    json_string(json, "last_error", peer->last_error);
    json_unsigned(json, "blobs_fetched", peer->blobs_fetched);
    json_unsigned(json, "bytes_fetched", peer->bytes_fetched);
    json_open_array(json, "lanes");
    for (size_t i = 0; i < peer->n_lanes; i++) {
        const Varve__V1__PeerLane *lane = peer->lanes[i];
        json_open_object(json, NULL);
        json_string(json, "lane", store_service_lane_name((int)lane->lane));
        json_unsigned(json, "applied_seq", lane->applied_seq);
        json_unsigned(json, "durable_seq", lane->durable_seq);
        json_unsigned(json, "behind_records", lane->behind_records);
        json_unsigned(json, "behind_bytes", lane->behind_bytes);
        json_real(json, "behind_seconds", lane->behind_seconds);
        json_close_object(json);
    }
    json_close_array(json);
    json_close_object(json);
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
