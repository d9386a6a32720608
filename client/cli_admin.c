/* SPDX-License-Identifier: Apache-2.0 */
/* varve admin stats, explain, who, forget, drain, undrain, read-only. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/admin_service.h"
#include "client/cas.h"
#include "client/cli.h"
#include "client/credentials.h"
#include "client/json.h"
#include "client/replication_service.h"
#include "client/store_service.h"

enum { TIME_TEXT_BYTES = 40, PEER_TIMEOUT_S = 5 };

static enum cli_exit run_stats(struct cli *cli);
static enum cli_exit run_explain(struct cli *cli);
static enum cli_exit run_who(struct cli *cli);
static enum cli_exit run_forget(struct cli *cli);
static enum cli_exit run_drain(struct cli *cli);
static enum cli_exit run_undrain(struct cli *cli);
static enum cli_exit run_read_only(struct cli *cli);

static const struct {
    const char *name;
    size_t arguments_min, arguments_max; /* behind it */
    bool forgets;                        /* takes the options of forget */
    enum cli_exit (*run)(struct cli *cli);
} commands[] = {
    {"stats", 0, 0, false, run_stats},
    {"explain", 1, 1, false, run_explain},
    {"who", 1, 1, false, run_who},
    {"forget", 0, SIZE_MAX, true, run_forget},
    {"drain", 0, 1, false, run_drain},
    {"undrain", 0, 0, false, run_undrain},
    {"read-only", 1, 2, false, run_read_only},
};

static enum cli_exit usage_error(const struct cli *cli, const char *what)
{
    fprintf(cli->messages, "varve: admin %s: %s\n", cli->arguments[0], what);
    return CLI_EXIT_USAGE;
}

enum cli_exit cli_admin(struct cli *cli)
{
    const bool forget_options = cli->yes || cli->instances != NULL || cli->writer != NULL ||
                                cli->before != NULL || cli->after != NULL || cli->list ||
                                cli->action_results || cli->digests_file != NULL;
    for (size_t i = 0; i < ARRAY_LENGTH(commands); i++) {
        if (strcmp(commands[i].name, cli->arguments[0]) != 0)
            continue;
        const size_t behind = cli->argument_count - 1;
        if (behind < commands[i].arguments_min)
            return usage_error(cli, "something is missing after it");
        if (behind > commands[i].arguments_max)
            return usage_error(cli, "there is too much after it");
        if (forget_options && !commands[i].forgets)
            return usage_error(cli, "the options of forget do not go with it");
        if (cli->ask_peers && commands[i].run != run_explain)
            return usage_error(cli, "--peers goes with explain");
        return commands[i].run(cli);
    }
    return usage_error(cli, "is none of stats, explain, who, forget, drain, undrain, read-only");
}

/* ---- what all need */

/* UTC; "-" for 0. */
static const char *time_text(int64_t unix_ns, char text[TIME_TEXT_BYTES])
{
    const time_t seconds = (time_t)(unix_ns / NS_PER_S);
    struct tm utc;
    if (unix_ns <= 0 || gmtime_r(&seconds, &utc) == NULL ||
        strftime(text, TIME_TEXT_BYTES, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
        snprintf(text, TIME_TEXT_BYTES, "-");
    return text;
}

static void time_json(struct json *json, const char *key, int64_t unix_ns)
{
    char text[TIME_TEXT_BYTES];
    json_string(json, key, unix_ns > 0 ? time_text(unix_ns, text) : "");
}

/* HASH/SIZE, or HASH of whatever size: -1. */
static bool parse_digest(const char *text, struct digest *digest, struct status *status)
{
    if (strchr(text, '/') != NULL)
        return digest_parse_text(bytes_of_string(text), digest, status);
    struct status ignored;
    if (!digest_parse(0, bytes_of_string(text), 0, digest, &ignored) &&
        !digest_parse(0, bytes_of_string(text), 1, digest, status))
        return false;
    digest->size_bytes = -1;
    return true;
}

/* "2026-12-01", "2026-12-01T08:30:00Z", or so long ago: "90s", "10m", "36h", "7d". */
static bool parse_time(const char *text, int64_t *unix_ns)
{
    static const struct {
        char unit;
        int64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    static const char *const formats[] = {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"};
    char *end;
    const long long number = strtoll(text, &end, 10);
    for (size_t i = 0; i < ARRAY_LENGTH(units); i++) {
        if (end == text || end[0] != units[i].unit || end[1] != '\0')
            continue;
        if (number < 0 || number > 100 * 366 * 86400LL / units[i].seconds)
            return false;
        *unix_ns = clock_wall_ns(clock_real()) - number * units[i].seconds * NS_PER_S;
        return true;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(formats); i++) {
        struct tm utc = {0};
        const char *const rest = strptime(text, formats[i], &utc);
        if (rest == NULL || rest[0] != '\0')
            continue;
        *unix_ns = (int64_t)timegm(&utc) * NS_PER_S;
        return *unix_ns > 0;
    }
    return false;
}

/* ---- stats */

static void print_stats(const struct cli *cli, const Varve__V1__StatsResponse *stats);
static void print_stats_json(const struct cli *cli, const Varve__V1__StatsResponse *stats);

static enum cli_exit run_stats(struct cli *cli)
{
    Varve__V1__StatsResponse *stats;
    struct status status = {0};
    if (!admin_stats(cli->client, &stats, &status))
        return cli_failed(cli, NULL, &status);
    if (stats->status == NULL) {
        status_fail(&status, STATUS_INTERNAL, "Stats: the server's answer is malformed");
        protobuf_c_message_free_unpacked(&stats->base, NULL);
        return cli_failed(cli, NULL, &status);
    }
    if (cli->json)
        print_stats_json(cli, stats);
    else
        print_stats(cli, stats);
    protobuf_c_message_free_unpacked(&stats->base, NULL);
    return CLI_EXIT_OK;
}

static double share(uint64_t part, uint64_t rest)
{
    return part + rest > 0 ? 100.0 * (double)part / (double)(part + rest) : 0;
}

static void print_stats(const struct cli *cli, const Varve__V1__StatsResponse *stats)
{
    FILE *const out = cli->out;
    const Varve__V1__StatusResponse *const server = stats->status;
    fprintf(out, "node             %016llx, %s, up %llu s\n", (unsigned long long)stats->node_uid,
            store_service_state_name((int)server->state),
            (unsigned long long)server->uptime_seconds);
    if (server->read_only)
        fprintf(out, "read-only        %s\n", server->read_only_reason);
    fprintf(out, "index            %llu entries\n", (unsigned long long)server->index_entries);
    for (size_t i = 0; i < server->n_lanes; i++)
        fprintf(out, "lane %-11s %llu bytes in %llu segments\n",
                store_service_lane_name((int)server->lanes[i]->lane),
                (unsigned long long)server->lanes[i]->bytes,
                (unsigned long long)server->lanes[i]->segments);
    fprintf(out, "capacity         %llu of %llu bytes; file system %llu of %llu bytes free\n",
            (unsigned long long)stats->segment_file_bytes,
            (unsigned long long)stats->capacity_bytes, (unsigned long long)server->data_free_bytes,
            (unsigned long long)server->data_total_bytes);
    fprintf(out, "action results   %llu hits, %llu misses (%.1f %% hits), %llu incomplete\n",
            (unsigned long long)stats->action_hits, (unsigned long long)stats->action_misses,
            share(stats->action_hits, stats->action_misses + stats->action_incomplete),
            (unsigned long long)stats->action_incomplete);
    fprintf(out, "find missing     %llu present, %llu missing (%.1f %% present)\n",
            (unsigned long long)stats->blobs_present, (unsigned long long)stats->blobs_missing,
            share(stats->blobs_present, stats->blobs_missing));
    fprintf(out, "written          %llu blobs with %llu bytes, %llu action results\n",
            (unsigned long long)stats->blobs_written, (unsigned long long)stats->blob_bytes_written,
            (unsigned long long)stats->action_results_written);
    fprintf(out, "read             %llu blobs or parts with %llu bytes\n",
            (unsigned long long)stats->blobs_read, (unsigned long long)stats->blob_bytes_read);
    fprintf(out,
            "evicted          %llu blobs in %llu segments, %llu bytes moved, %llu forgotten; "
            "retention %llu s, vouch %llu s\n",
            (unsigned long long)stats->blobs_evicted, (unsigned long long)stats->segments_evicted,
            (unsigned long long)stats->eviction_moved_bytes,
            (unsigned long long)stats->eviction_forgotten_bytes,
            (unsigned long long)stats->retention_seconds, (unsigned long long)stats->vouch_seconds);
    fprintf(out, "forgotten        %llu entries; %llu records found damaged\n",
            (unsigned long long)stats->forgotten, (unsigned long long)stats->damaged);
    for (size_t i = 0; i < stats->n_budgets; i++)
        fprintf(out, "budget %-13s %llu of %llu, %llu waiting\n", stats->budgets[i]->name,
                (unsigned long long)stats->budgets[i]->used,
                (unsigned long long)stats->budgets[i]->limit,
                (unsigned long long)stats->budgets[i]->waiting);
    fprintf(out, "slow calls       %llu\n", (unsigned long long)stats->calls_slow);
    for (size_t i = 0; i < stats->n_instances; i++) {
        const Varve__V1__InstanceStats *const instance = stats->instances[i];
        fprintf(
            out,
            "instance \"%s\": %llu requests, %llu failed; results %llu hits, %llu misses; blobs "
            "%llu hits, %llu misses; %llu bytes received, %llu sent\n",
            instance->instance_name, (unsigned long long)instance->requests,
            (unsigned long long)instance->failed, (unsigned long long)instance->action_hits,
            (unsigned long long)instance->action_misses, (unsigned long long)instance->blob_hits,
            (unsigned long long)instance->blob_misses, (unsigned long long)instance->received_bytes,
            (unsigned long long)instance->sent_bytes);
    }
}

static void print_stats_json(const struct cli *cli, const Varve__V1__StatsResponse *stats)
{
    const Varve__V1__StatusResponse *const server = stats->status;
    const struct {
        const char *key;
        uint64_t value;
    } values[] = {
        {"uptime_seconds", server->uptime_seconds},
        {"index_entries", server->index_entries},
        {"data_free_bytes", server->data_free_bytes},
        {"data_total_bytes", server->data_total_bytes},
        {"action_hits", stats->action_hits},
        {"action_misses", stats->action_misses},
        {"action_incomplete", stats->action_incomplete},
        {"blobs_present", stats->blobs_present},
        {"blobs_missing", stats->blobs_missing},
        {"blobs_written", stats->blobs_written},
        {"blob_bytes_written", stats->blob_bytes_written},
        {"action_results_written", stats->action_results_written},
        {"blobs_read", stats->blobs_read},
        {"blob_bytes_read", stats->blob_bytes_read},
        {"forgotten", stats->forgotten},
        {"damaged", stats->damaged},
        {"capacity_bytes", stats->capacity_bytes},
        {"segment_file_bytes", stats->segment_file_bytes},
        {"segments_evicted", stats->segments_evicted},
        {"blobs_evicted", stats->blobs_evicted},
        {"eviction_moved_bytes", stats->eviction_moved_bytes},
        {"eviction_forgotten_bytes", stats->eviction_forgotten_bytes},
        {"retention_seconds", stats->retention_seconds},
        {"vouch_seconds", stats->vouch_seconds},
        {"calls_slow", stats->calls_slow},
    };
    struct json json;
    char uid[17];
    snprintf(uid, sizeof(uid), "%016llx", (unsigned long long)stats->node_uid);
    json_init(&json, cli->out);
    json_open_object(&json, NULL);
    json_string(&json, "node_uid", uid);
    json_string(&json, "version", server->version);
    json_string(&json, "state", store_service_state_name((int)server->state));
    json_bool(&json, "read_only", server->read_only);
    json_string(&json, "read_only_reason", server->read_only_reason);
    for (size_t i = 0; i < ARRAY_LENGTH(values); i++)
        json_unsigned(&json, values[i].key, values[i].value);
    json_open_array(&json, "lanes");
    for (size_t i = 0; i < server->n_lanes; i++) {
        json_open_object(&json, NULL);
        json_string(&json, "lane", store_service_lane_name((int)server->lanes[i]->lane));
        json_unsigned(&json, "segments", server->lanes[i]->segments);
        json_unsigned(&json, "bytes", server->lanes[i]->bytes);
        json_unsigned(&json, "pending_seq", server->lanes[i]->pending_seq);
        json_unsigned(&json, "durable_seq", server->lanes[i]->durable_seq);
        json_close_object(&json);
    }
    json_close_array(&json);
    json_open_array(&json, "budgets");
    for (size_t i = 0; i < stats->n_budgets; i++) {
        json_open_object(&json, NULL);
        json_string(&json, "name", stats->budgets[i]->name);
        json_unsigned(&json, "used", stats->budgets[i]->used);
        json_unsigned(&json, "limit", stats->budgets[i]->limit);
        json_unsigned(&json, "waiting", stats->budgets[i]->waiting);
        json_close_object(&json);
    }
    json_close_array(&json);
    json_open_array(&json, "instances");
    for (size_t i = 0; i < stats->n_instances; i++) {
        const Varve__V1__InstanceStats *const instance = stats->instances[i];
        json_open_object(&json, NULL);
        json_string(&json, "instance_name", instance->instance_name);
        json_unsigned(&json, "requests", instance->requests);
        json_unsigned(&json, "failed", instance->failed);
        json_unsigned(&json, "action_hits", instance->action_hits);
        json_unsigned(&json, "action_misses", instance->action_misses);
        json_unsigned(&json, "blob_hits", instance->blob_hits);
        json_unsigned(&json, "blob_misses", instance->blob_misses);
        json_unsigned(&json, "received_bytes", instance->received_bytes);
        json_unsigned(&json, "sent_bytes", instance->sent_bytes);
        json_close_object(&json);
    }
    json_close_array(&json);
    json_close_object(&json);
    json_end(&json);
}

/* ---- who */

static void print_provenance(const struct cli *cli, const Varve__V1__Provenance *provenance)
{
    char when[TIME_TEXT_BYTES];
    fprintf(cli->out, "written          %s in instance \"%s\"\n",
            time_text(provenance->written_unix_ns, when), provenance->instance_name);
    fprintf(cli->out, "by               user %s, tool %s, from %s\n",
            provenance->user[0] != '\0' ? provenance->user : "not shown",
            provenance->tool[0] != '\0' ? provenance->tool : "not said", provenance->address);
    fprintf(cli->out, "on               %s, %016llx\n", provenance->node_name,
            (unsigned long long)provenance->node_uid);
    fprintf(cli->out, "result           %llu bytes\n",
            (unsigned long long)provenance->result_bytes);
}

static void provenance_json(struct json *json, const Varve__V1__Provenance *provenance)
{
    char uid[17];
    snprintf(uid, sizeof(uid), "%016llx", (unsigned long long)provenance->node_uid);
    json_string(json, "instance_name", provenance->instance_name);
    time_json(json, "written", provenance->written_unix_ns);
    json_string(json, "writer", provenance->writer);
    json_string(json, "tool", provenance->tool);
    json_string(json, "user", provenance->user);
    json_string(json, "address", provenance->address);
    json_string(json, "node_uid", uid);
    json_string(json, "node_name", provenance->node_name);
    json_unsigned(json, "result_bytes", provenance->result_bytes);
}

static enum cli_exit run_who(struct cli *cli)
{
    struct digest action;
    struct status status = {0};
    Varve__V1__WhoResponse *who;
    if (!parse_digest(cli->arguments[1], &action, &status))
        return cli_usage_error(cli, &status);
    if (!admin_who(cli->client, &action, &who, &status))
        return cli_failed(cli, NULL, &status);
    if (who->provenance == NULL) {
        status_fail(&status, STATUS_INTERNAL, "Who: the server's answer is malformed");
    } else if (cli->json) {
        struct json json;
        json_init(&json, cli->out);
        json_open_object(&json, NULL);
        provenance_json(&json, who->provenance);
        json_close_object(&json);
        json_end(&json);
    } else {
        print_provenance(cli, who->provenance);
    }
    protobuf_c_message_free_unpacked(&who->base, NULL);
    return status.code == STATUS_OK ? CLI_EXIT_OK : cli_failed(cli, NULL, &status);
}

/* ---- explain */

/* What a peer said: does it have the blob? */
struct peer_answer {
    const char *address; /* borrowed */
    bool answered, has;
    struct status why; /* not answered */
};

static void print_explained(const struct cli *cli,
                            const Varve__V1__ExplainResponse *explained,
                            const struct peer_answer *peers,
                            size_t peer_count);
static void print_explained_json(const struct cli *cli,
                                 const Varve__V1__ExplainResponse *explained,
                                 const struct peer_answer *peers,
                                 size_t peer_count);
static bool ask_peers(const struct cli *cli,
                      const struct digest *digest,
                      const Varve__V1__PeersResponse *peers,
                      struct peer_answer **answers,
                      struct status *status);

static enum cli_exit run_explain(struct cli *cli)
{
    struct digest digest;
    struct status status = {0};
    Varve__V1__ExplainResponse *explained = NULL;
    Varve__V1__PeersResponse *peers = NULL;
    struct peer_answer *answers = NULL;
    if (!parse_digest(cli->arguments[1], &digest, &status))
        return cli_usage_error(cli, &status);
    if (cli->ask_peers && digest.size_bytes < 0)
        return usage_error(cli, "--peers needs HASH/SIZE");
    bool ok = admin_explain(cli->client, &digest, &explained, &status);
    if (ok && (explained->blob == NULL || explained->action == NULL))
        ok = status_fail(&status, STATUS_INTERNAL, "Explain: the server's answer is malformed");
    if (ok && cli->ask_peers)
        ok = replication_peers(cli->client, &peers, &status) &&
             ask_peers(cli, &digest, peers, &answers, &status);
    enum cli_exit result = CLI_EXIT_OK;
    if (!ok) {
        result = cli_failed(cli, NULL, &status);
    } else {
        const size_t count = peers != NULL ? peers->n_peers : 0;
        if (cli->json)
            print_explained_json(cli, explained, answers, count);
        else
            print_explained(cli, explained, answers, count);
        if (explained->blob->verdict != VARVE__V1__VERDICT__VERDICT_PRESENT &&
            explained->action->verdict != VARVE__V1__VERDICT__VERDICT_PRESENT)
            result = CLI_EXIT_NOT_FOUND;
    }
    free(answers);
    if (peers != NULL)
        protobuf_c_message_free_unpacked(&peers->base, NULL);
    if (explained != NULL)
        protobuf_c_message_free_unpacked(&explained->base, NULL);
    return result;
}

/* One after the other; each is shown what the server itself is shown. */
static bool ask_peers(const struct cli *cli,
                      const struct digest *digest,
                      const Varve__V1__PeersResponse *peers,
                      struct peer_answer **answers,
                      struct status *status)
{
    char *authorization = NULL;
    struct client_options options = client_options_default();
    if (!credentials_read(cli->token_file, cli->login_file, &authorization, status))
        return false;
    options.instance_name = cli->instance;
    options.tls = cli->tls;
    options.authorization = authorization;
    options.retry.tries_max = 1;
    options.call_timeout_ns =
        cli->timeout_ns < PEER_TIMEOUT_S * NS_PER_S ? cli->timeout_ns : PEER_TIMEOUT_S * NS_PER_S;
    *answers = calloc(peers->n_peers + 1, sizeof(**answers));
    for (size_t i = 0; *answers != NULL && i < peers->n_peers; i++) {
        struct peer_answer *const answer = &(*answers)[i];
        struct client *client = NULL;
        bool missing = true;
        answer->address = peers->peers[i]->address;
        answer->answered = client_connect(answer->address, &options, &client, &answer->why) &&
                           cas_find_missing(client, digest, &missing, 1, &answer->why);
        answer->has = answer->answered && !missing;
        client_close(client);
    }
    credentials_free(authorization);
    return *answers != NULL || status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory");
}

static void print_blob(const struct cli *cli, const Varve__V1__BlobExplanation *blob)
{
    FILE *const out = cli->out;
    char when[TIME_TEXT_BYTES];
    fprintf(out, "blob             %s: %s\n", admin_verdict_name(blob->verdict), blob->meaning);
    if (blob->place != NULL) {
        fprintf(out, "  place          lane %s, segment %llu at %llu, %llu bytes",
                store_service_lane_name((int)blob->place->lane),
                (unsigned long long)blob->place->segment, (unsigned long long)blob->place->offset,
                (unsigned long long)blob->place->stored_bytes);
        if (blob->chunks > 0)
            fprintf(out, " in %llu chunks", (unsigned long long)blob->chunks);
        fprintf(out, "\n  written        %s or later\n",
                time_text(blob->written_after_unix_ns, when));
        if (blob->used)
            fprintf(out, "  used           %u minutes ago%s\n", blob->idle_minutes,
                    blob->vouched ? "; vouched for" : "");
        else
            fprintf(out, "  used           not since it was written, as far as is known\n");
    }
    if (blob->damage[0] != '\0')
        fprintf(out, "  damage         %s\n", blob->damage);
}

static void print_action(const struct cli *cli, const Varve__V1__ActionExplanation *action)
{
    FILE *const out = cli->out;
    char when[TIME_TEXT_BYTES];
    fprintf(out, "action           %s: %s\n", admin_verdict_name(action->verdict), action->meaning);
    for (size_t i = 0; i < action->n_results; i++) {
        const Varve__V1__ResultExplanation *const result = action->results[i];
        if (result->provenance == NULL)
            continue;
        fprintf(
            out, "  result         in \"%s\", written %s by %s on %s; %s\n",
            result->provenance->instance_name, time_text(result->provenance->written_unix_ns, when),
            result->provenance->writer, result->provenance->node_name,
            result->complete
                ? "all that it names is here"
                : (result->unusable[0] != '\0' ? result->unusable : "not all it names is here"));
        for (size_t j = 0; j < result->n_missing; j++)
            fprintf(out, "    missing      %s/%lld\n", result->missing[j]->hash,
                    (long long)result->missing[j]->size_bytes);
        if (result->missing_count > result->n_missing)
            fprintf(out, "    missing      and %llu more\n",
                    (unsigned long long)(result->missing_count - result->n_missing));
    }
}

static void print_explained(const struct cli *cli,
                            const Varve__V1__ExplainResponse *explained,
                            const struct peer_answer *peers,
                            size_t peer_count)
{
    FILE *const out = cli->out;
    char when[TIME_TEXT_BYTES];
    print_blob(cli, explained->blob);
    print_action(cli, explained->action);
    for (size_t i = 0; i < explained->n_events; i++) {
        const Varve__V1__LogEvent *const event = explained->events[i];
        fprintf(out, "log              %s %s %llu: %s", time_text(event->unix_ns, when),
                store_service_lane_name((int)event->lane), (unsigned long long)event->seq,
                admin_event_name(event->kind));
        if (event->kind == VARVE__V1__LOG_EVENT__KIND__KIND_FORGOTTEN)
            fprintf(out, ", %s, %s", event->of_result ? "a result" : "a blob",
                    admin_reason_name(event->reason));
        if (event->instance_name[0] != '\0')
            fprintf(out, " in \"%s\"", event->instance_name);
        if (event->writer[0] != '\0')
            fprintf(out, " by %s", event->writer);
        if (event->node_name[0] != '\0')
            fprintf(out, " on %s", event->node_name);
        fprintf(out, "%s\n", event->current ? "; current" : "");
    }
    fprintf(out, "log              %llu records looked at, %s; it goes back to %s\n",
            (unsigned long long)explained->records_looked_at,
            explained->looked_at_all ? "all there are" : "not all there are",
            time_text(explained->log_since_unix_ns, when));
    for (size_t i = 0; i < peer_count; i++)
        fprintf(out, "peer             %s %s%s\n", peers[i].address,
                !peers[i].answered ? "does not say: "
                : peers[i].has     ? "has the blob"
                                   : "does not have the blob",
                peers[i].answered ? "" : peers[i].why.message);
}

static void digest_json(struct json *json,
                        const char *key,
                        const Build__Bazel__Remote__Execution__V2__Digest *digest)
{
    json_open_object(json, key);
    json_string(json, "hash", digest->hash);
    json_integer(json, "size_bytes", digest->size_bytes);
    json_close_object(json);
}

static void blob_json(struct json *json, const Varve__V1__BlobExplanation *blob)
{
    json_open_object(json, "blob");
    json_string(json, "verdict", admin_verdict_name(blob->verdict));
    json_string(json, "meaning", blob->meaning);
    if (blob->place != NULL) {
        json_string(json, "lane", store_service_lane_name((int)blob->place->lane));
        json_unsigned(json, "segment", blob->place->segment);
        json_unsigned(json, "offset", blob->place->offset);
        json_unsigned(json, "stored_bytes", blob->place->stored_bytes);
        json_unsigned(json, "chunks", blob->chunks);
        time_json(json, "written_after", blob->written_after_unix_ns);
        json_bool(json, "used", blob->used);
        json_unsigned(json, "idle_minutes", blob->idle_minutes);
        json_bool(json, "vouched", blob->vouched);
        json_bool(json, "verified", blob->verified);
        json_string(json, "damage", blob->damage);
    }
    json_close_object(json);
}

static void action_json(struct json *json, const Varve__V1__ActionExplanation *action)
{
    json_open_object(json, "action");
    json_string(json, "verdict", admin_verdict_name(action->verdict));
    json_string(json, "meaning", action->meaning);
    json_open_array(json, "results");
    for (size_t i = 0; i < action->n_results; i++) {
        const Varve__V1__ResultExplanation *const result = action->results[i];
        if (result->provenance == NULL)
            continue;
        json_open_object(json, NULL);
        provenance_json(json, result->provenance);
        json_bool(json, "complete", result->complete);
        json_unsigned(json, "missing_count", result->missing_count);
        json_open_array(json, "missing");
        for (size_t j = 0; j < result->n_missing; j++)
            digest_json(json, NULL, result->missing[j]);
        json_close_array(json);
        json_string(json, "unusable", result->unusable);
        json_close_object(json);
    }
    json_close_array(json);
    json_close_object(json);
}

static void event_json(struct json *json, const Varve__V1__LogEvent *event)
{
    const bool forgotten = event->kind == VARVE__V1__LOG_EVENT__KIND__KIND_FORGOTTEN;
    json_open_object(json, NULL);
    json_string(json, "event", admin_event_name(event->kind));
    json_string(json, "lane", store_service_lane_name((int)event->lane));
    json_unsigned(json, "seq", event->seq);
    time_json(json, "time", event->unix_ns);
    json_integer(json, "size_bytes", event->size_bytes);
    json_string(json, "reason", forgotten ? admin_reason_name(event->reason) : "");
    json_bool(json, "of_result", event->of_result);
    json_string(json, "instance_name", event->instance_name);
    json_string(json, "writer", event->writer);
    json_string(json, "node_name", event->node_name);
    json_bool(json, "current", event->current);
    json_close_object(json);
}

static void print_explained_json(const struct cli *cli,
                                 const Varve__V1__ExplainResponse *explained,
                                 const struct peer_answer *peers,
                                 size_t peer_count)
{
    struct json json;
    json_init(&json, cli->out);
    json_open_object(&json, NULL);
    blob_json(&json, explained->blob);
    action_json(&json, explained->action);
    json_open_array(&json, "events");
    for (size_t i = 0; i < explained->n_events; i++)
        event_json(&json, explained->events[i]);
    json_close_array(&json);
    json_bool(&json, "looked_at_all", explained->looked_at_all);
    json_unsigned(&json, "records_looked_at", explained->records_looked_at);
    time_json(&json, "log_since", explained->log_since_unix_ns);
    json_open_array(&json, "peers");
    for (size_t i = 0; i < peer_count; i++) {
        json_open_object(&json, NULL);
        json_string(&json, "address", peers[i].address);
        json_bool(&json, "answered", peers[i].answered);
        json_bool(&json, "has_blob", peers[i].has);
        json_string(&json, "error", peers[i].why.message);
        json_close_object(&json);
    }
    json_close_array(&json);
    json_close_object(&json);
    json_end(&json);
}

/* ---- forget */

/* What has come of it so far. */
struct forgetting {
    struct cli *cli;
    struct json json;
    uint64_t would_go, gone, absent, failed, bytes;
    bool lists; /* each entry */
    /* Digests that wait for a page to be full. */
    struct digest digests[ADMIN_PAGE_MAX];
    size_t count;
    /* The page's request. */
    Build__Bazel__Remote__Execution__V2__Digest messages[ADMIN_PAGE_MAX];
    Build__Bazel__Remote__Execution__V2__Digest *pointers[ADMIN_PAGE_MAX];
    char hexes[ADMIN_PAGE_MAX][DIGEST_HASH_HEX_MAX + 1];
    int64_t before_ns, after_ns; /* 0: whenever */
};

static bool forget_named(struct forgetting *forgetting, struct status *status);
static bool forget_described(struct forgetting *forgetting, struct status *status);
static bool take_digest(void *argument, const struct digest *digest, struct status *status);
static bool forget_page(struct forgetting *forgetting, struct status *status);
static void take_entries(struct forgetting *forgetting, const Varve__V1__ForgetResponse *response);
static void print_forgotten(struct forgetting *forgetting, bool whole);
static const char *wrong_use(const struct cli *cli);
static bool take_time(const char *name, const char *text, int64_t *unix_ns, struct status *status);

static enum cli_exit run_forget(struct cli *cli)
{
    const char *const wrong = wrong_use(cli);
    struct status status = {0};
    if (wrong != NULL)
        return usage_error(cli, wrong);
    struct forgetting *const forgetting = calloc(1, sizeof(*forgetting));
    if (forgetting == NULL) {
        status_fail(&status, STATUS_RESOURCE_EXHAUSTED, "no memory");
        return cli_failed(cli, NULL, &status);
    }
    const bool described = cli->instances != NULL;
    if (!take_time("--after", cli->after, &forgetting->after_ns, &status) ||
        !take_time("--before", cli->before, &forgetting->before_ns, &status)) {
        free(forgetting);
        return cli_usage_error(cli, &status);
    }
    forgetting->cli = cli;
    forgetting->lists = cli->list || !described;
    if (cli->json) {
        json_init(&forgetting->json, cli->out);
        json_open_object(&forgetting->json, NULL);
        json_bool(&forgetting->json, "dry_run", !cli->yes);
        json_open_array(&forgetting->json, "entries");
    }
    const bool ok =
        described ? forget_described(forgetting, &status) : forget_named(forgetting, &status);
    print_forgotten(forgetting, ok);
    enum cli_exit result = CLI_EXIT_OK;
    if (!ok)
        result = cli_failed(cli, NULL, &status);
    else if (forgetting->failed > 0)
        result = CLI_EXIT_FAILED;
    else if (!described && forgetting->absent > 0)
        result = CLI_EXIT_NOT_FOUND;
    free(forgetting);
    return result;
}

static bool take_time(const char *name, const char *text, int64_t *unix_ns, struct status *status)
{
    return text == NULL || parse_time(text, unix_ns) ||
           status_fail(status, STATUS_INVALID_ARGUMENT,
                       "%s %s: is no time; 2026-12-01, 2026-12-01T08:30:00Z, or 36h for so long "
                       "ago",
                       name, text);
}

static const char *wrong_use(const struct cli *cli)
{
    const bool named = cli->argument_count > 1 || cli->digests_file != NULL;
    const bool described =
        cli->instances != NULL || cli->writer != NULL || cli->before != NULL || cli->after != NULL;
    if (cli->argument_count > 1 && cli->digests_file != NULL)
        return "give HASH/SIZE or --digests FILE, one of the two";
    if (named && described)
        return "name what is to go, or describe it; not both";
    if (!named && !described)
        return "say what: HASH/SIZE, --digests FILE, or --action-results with --instances NAME";
    if (described && !cli->action_results)
        return "--instances, --writer, --before and --after are about action results; say "
               "--action-results, too";
    if (described && cli->instances == NULL)
        return "say --instances NAME, or --instances '*' for all";
    return NULL;
}

static bool forget_named(struct forgetting *forgetting, struct status *status)
{
    const struct cli *const cli = forgetting->cli;
    if (cli->digests_file != NULL) {
        if (!cli_each_digest(cli, take_digest, forgetting, status))
            return false;
    }
    for (size_t i = 1; i < cli->argument_count; i++) {
        struct digest digest;
        if (!digest_parse_text(bytes_of_string(cli->arguments[i]), &digest, status) ||
            !take_digest(forgetting, &digest, status))
            return false;
    }
    return forgetting->count == 0 || forget_page(forgetting, status);
}

static bool take_digest(void *argument, const struct digest *digest, struct status *status)
{
    struct forgetting *const forgetting = argument;
    forgetting->digests[forgetting->count++] = *digest;
    return forgetting->count < ADMIN_PAGE_MAX || forget_page(forgetting, status);
}

static bool forget_page(struct forgetting *forgetting, struct status *status)
{
    const struct cli *const cli = forgetting->cli;
    Varve__V1__ForgetRequest request = VARVE__V1__FORGET_REQUEST__INIT;
    Varve__V1__ForgetResponse *response;
    for (size_t i = 0; i < forgetting->count; i++) {
        Build__Bazel__Remote__Execution__V2__Digest *const message = &forgetting->messages[i];
        build__bazel__remote__execution__v2__digest__init(message);
        message->hash =
            (char *)(uintptr_t)digest_hex(&forgetting->digests[i], forgetting->hexes[i]);
        message->size_bytes = forgetting->digests[i].size_bytes;
        forgetting->pointers[i] = message;
    }
    request.carry_out = cli->yes;
    if (cli->action_results) {
        request.n_actions = forgetting->count;
        request.actions = forgetting->pointers;
    } else {
        request.n_blobs = forgetting->count;
        request.blobs = forgetting->pointers;
    }
    forgetting->count = 0;
    if (!admin_forget(cli->client, &request, &response, status))
        return false;
    take_entries(forgetting, response);
    protobuf_c_message_free_unpacked(&response->base, NULL);
    return true;
}

static bool forget_described(struct forgetting *forgetting, struct status *status)
{
    const struct cli *const cli = forgetting->cli;
    Varve__V1__ForgetRequest request = VARVE__V1__FORGET_REQUEST__INIT;
    Varve__V1__ResultFilter filter = VARVE__V1__RESULT_FILTER__INIT;
    filter.instances = (char *)(uintptr_t)cli->instances;
    filter.writer = (char *)(uintptr_t)(cli->writer != NULL ? cli->writer : "");
    request.results = &filter;
    request.carry_out = cli->yes;
    filter.written_after_unix_ns = forgetting->after_ns;
    filter.written_before_unix_ns = forgetting->before_ns;
    for (bool more = true; more;) {
        Varve__V1__ForgetResponse *response;
        if (!admin_forget(cli->client, &request, &response, status))
            return false;
        take_entries(forgetting, response);
        more = response->more;
        /* A server that does not get on would keep us for ever. */
        const bool gets_on = response->next_after_seq > filter.after_seq;
        filter.after_seq = response->next_after_seq;
        protobuf_c_message_free_unpacked(&response->base, NULL);
        if (more && !gets_on)
            return status_fail(status, STATUS_INTERNAL, "Forget: the server does not get on");
    }
    return true;
}

static void entry_json(struct json *json, const Varve__V1__ForgottenEntry *entry)
{
    json_open_object(json, NULL);
    if (entry->digest != NULL)
        digest_json(json, "digest", entry->digest);
    json_string(json, "outcome", admin_outcome_name(entry->outcome));
    json_bool(json, "is_action", entry->is_action);
    json_string(json, "instance_name", entry->instance_name);
    json_string(json, "writer", entry->writer);
    time_json(json, "written", entry->written_unix_ns);
    json_unsigned(json, "stored_bytes", entry->stored_bytes);
    json_string(json, "text", entry->text);
    json_close_object(json);
}

static void print_entry(const struct cli *cli, const Varve__V1__ForgottenEntry *entry)
{
    char when[TIME_TEXT_BYTES];
    if (entry->digest != NULL)
        fprintf(cli->out, "%s/%lld %s", entry->digest->hash, (long long)entry->digest->size_bytes,
                admin_outcome_name(entry->outcome));
    if (entry->is_action && entry->writer[0] != '\0')
        fprintf(cli->out, ": \"%s\", written %s by %s", entry->instance_name,
                time_text(entry->written_unix_ns, when), entry->writer);
    fprintf(cli->out, "%s%s\n", entry->text[0] != '\0' ? ": " : "", entry->text);
}

static void take_entries(struct forgetting *forgetting, const Varve__V1__ForgetResponse *response)
{
    for (size_t i = 0; i < response->n_entries; i++) {
        const Varve__V1__ForgottenEntry *const entry = response->entries[i];
        switch (entry->outcome) {
        case VARVE__V1__FORGOTTEN_ENTRY__OUTCOME__OUTCOME_WOULD_GO:
            forgetting->would_go++;
            forgetting->bytes += entry->stored_bytes;
            break;
        case VARVE__V1__FORGOTTEN_ENTRY__OUTCOME__OUTCOME_GONE:
            forgetting->gone++;
            forgetting->bytes += entry->stored_bytes;
            break;
        case VARVE__V1__FORGOTTEN_ENTRY__OUTCOME__OUTCOME_ABSENT:
            forgetting->absent++;
            break;
        default:
            forgetting->failed++;
            break;
        }
        if (!forgetting->lists)
            continue;
        if (forgetting->cli->json)
            entry_json(&forgetting->json, entry);
        else
            print_entry(forgetting->cli, entry);
    }
}

static void print_forgotten(struct forgetting *forgetting, bool whole)
{
    const struct cli *const cli = forgetting->cli;
    if (cli->json) {
        struct json *const json = &forgetting->json;
        json_close_array(json);
        json_unsigned(json, "would_go", forgetting->would_go);
        json_unsigned(json, "gone", forgetting->gone);
        json_unsigned(json, "absent", forgetting->absent);
        json_unsigned(json, "failed", forgetting->failed);
        json_unsigned(json, "stored_bytes", forgetting->bytes);
        json_bool(json, "complete", whole);
        json_close_object(json);
        json_end(json);
        return;
    }
    const uint64_t count = cli->yes ? forgetting->gone : forgetting->would_go;
    fprintf(cli->messages, "varve: %llu %s with %llu bytes %s", (unsigned long long)count,
            cli->action_results ? "action results" : "blobs", (unsigned long long)forgetting->bytes,
            cli->yes ? "are gone" : "would go");
    if (forgetting->absent > 0)
        fprintf(cli->messages, ", %llu were not there", (unsigned long long)forgetting->absent);
    if (forgetting->failed > 0)
        fprintf(cli->messages, ", %llu failed", (unsigned long long)forgetting->failed);
    fprintf(cli->messages, "%s\n", cli->yes ? "" : "; nothing is changed, --yes carries it out");
}

/* ---- drain */

static void print_service(struct cli *cli, const Varve__V1__DrainResponse *response)
{
    if (cli->json) {
        struct json json;
        json_init(&json, cli->out);
        json_open_object(&json, NULL);
        json_string(&json, "state", store_service_state_name((int)response->state));
        json_unsigned(&json, "calls", response->calls);
        json_real(&json, "drained_seconds", response->drained_seconds);
        json_unsigned(&json, "calls_since", response->calls_since);
        json_real(&json, "read_only_seconds", response->read_only_seconds);
        json_close_object(&json);
        json_end(&json);
        return;
    }
    fprintf(cli->out, "state            %s\n", store_service_state_name((int)response->state));
    fprintf(cli->out, "calls            %llu in progress\n", (unsigned long long)response->calls);
    if (response->drained_seconds > 0)
        fprintf(cli->out, "drained          %.1f s ago; %llu calls of clients came since\n",
                response->drained_seconds, (unsigned long long)response->calls_since);
    if (response->read_only_seconds > 0)
        fprintf(cli->out, "read-only        since %.1f s\n", response->read_only_seconds);
}

static enum cli_exit change_service(struct cli *cli, enum admin_drain how, const char *reason)
{
    Varve__V1__DrainResponse *response;
    struct status status = {0};
    if (!admin_drain(cli->client, how, reason, &response, &status))
        return cli_failed(cli, NULL, &status);
    print_service(cli, response);
    protobuf_c_message_free_unpacked(&response->base, NULL);
    return CLI_EXIT_OK;
}

static enum cli_exit run_drain(struct cli *cli)
{
    return change_service(cli, ADMIN_DRAIN, cli->argument_count > 1 ? cli->arguments[1] : "");
}

static enum cli_exit run_undrain(struct cli *cli)
{
    return change_service(cli, ADMIN_UNDRAIN, "");
}

static enum cli_exit run_read_only(struct cli *cli)
{
    Varve__V1__DrainResponse *response;
    struct status status = {0};
    const bool on = strcmp(cli->arguments[1], "on") == 0;
    if (!on && strcmp(cli->arguments[1], "off") != 0)
        return usage_error(cli, "on or off is wanted after it");
    if (!on && cli->argument_count > 2)
        return usage_error(cli, "there is too much after it");
    if (!admin_set_read_only(cli->client, on, cli->argument_count > 2 ? cli->arguments[2] : "",
                             &response, &status))
        return cli_failed(cli, NULL, &status);
    print_service(cli, response);
    protobuf_c_message_free_unpacked(&response->base, NULL);
    return CLI_EXIT_OK;
}
