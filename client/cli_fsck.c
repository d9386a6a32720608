/* SPDX-License-Identifier: Apache-2.0 */
/* varve fsck: a data directory that no server has, looked at, and what can be got out of it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "client/cli.h"
#include "client/json.h"
#include "durability/fsck.h"
#include "store/blob_reader.h"

enum { PATH_BYTES_MAX = 4096 };

/* One run. */
struct run {
    struct cli *cli;
    struct fsck *fsck;
    struct fsck_config config;
    int64_t next_progress_ns;
    uint64_t exported, damaged; /* --export-all */
};

static enum cli_exit cannot_open(const struct cli *cli, const struct status *status);
static enum cli_exit work(struct run *run);
static enum cli_exit check(struct run *run);
static void print_summary(const struct cli *cli, const struct fsck_summary *summary);
static void on_finding(void *argument, const struct fsck_finding *finding);
static void on_note(void *argument, const char *text);
static void on_progress(void *argument, const struct fsck_progress *progress);
static enum cli_exit list(struct run *run);
static bool list_entry(void *argument, const struct index_entry *entry, struct status *status);
static enum cli_exit export_one(struct run *run);
static enum cli_exit export_all(struct run *run);
static bool export_entry(void *argument, const struct index_entry *entry, struct status *status);
static bool make_directories(char *path, size_t from, struct status *status);
static void escape_instance(struct bytes instance, char text[3 * LIMIT_INSTANCE_NAME_BYTES + 2]);
static bool write_file(struct run *run,
                       const char *path,
                       const struct index_entry *entry,
                       bool *whole,
                       struct status *status);
static bool write_blob(struct run *run,
                       const struct digest *digest,
                       FILE *to,
                       bool *whole,
                       struct status *status);
static bool write_action(struct run *run,
                         const struct index_entry *entry,
                         FILE *to,
                         bool *whole,
                         struct status *status);

enum cli_exit cli_fsck(struct cli *cli)
{
    struct status status = {0};
    struct run run = {.cli = cli};
    log_set_level(LOG_LEVEL_ERROR); /* a start is of no interest here */
    run.config = (struct fsck_config){
        .io = io_posix(),
        .clock = clock_real(),
        .directory = cli->arguments[0],
        .finding = on_finding,
        .note = on_note,
        .progress = on_progress,
        .argument = &run,
    };
    if (cli->rebuild_index) {
        uint64_t entries = 0;
        if (!fsck_rebuild_index(&run.config, &entries, &status))
            return cannot_open(cli, &status);
        fprintf(cli->messages, "varve: the index was made anew, with %" PRIu64 " entries\n",
                entries);
    }
    if (!fsck_open(&run.config, &run.fsck, &status))
        return cannot_open(cli, &status);
    const enum cli_exit result = work(&run);
    fsck_close(run.fsck);
    return result;
}

static enum cli_exit cannot_open(const struct cli *cli, const struct status *status)
{
    fprintf(cli->messages, "varve: fsck: %s (%s)\n", status->message,
            status_code_name(status->code));
    return CLI_EXIT_NOT_FOUND;
}

static enum cli_exit work(struct run *run)
{
    const struct cli *cli = run->cli;
    if (cli->list)
        return list(run);
    if (cli->export_digest != NULL)
        return export_one(run);
    if (cli->export_directory != NULL)
        return export_all(run);
    return check(run);
}

/* ---- checking */

static enum cli_exit check(struct run *run)
{
    struct fsck_summary summary;
    struct status status = {0};
    if (!fsck_check(run->fsck, &summary, &status))
        return cannot_open(run->cli, &status);
    print_summary(run->cli, &summary);
    return summary.findings > 0 ? CLI_EXIT_FAILED : CLI_EXIT_OK;
}

static void print_summary(const struct cli *cli, const struct fsck_summary *summary)
{
    if (cli->json) {
        struct json json;
        json_init(&json, cli->out);
        json_open_object(&json, NULL);
        json_bool(&json, "sound", summary->findings == 0);
        json_unsigned(&json, "findings", summary->findings);
        json_unsigned(&json, "lost", summary->lost);
        json_unsigned(&json, "segments", summary->segments);
        json_unsigned(&json, "records", summary->records);
        json_unsigned(&json, "bytes", summary->bytes);
        json_unsigned(&json, "blobs", summary->blobs);
        json_unsigned(&json, "large_blobs", summary->large_blobs);
        json_unsigned(&json, "action_results", summary->action_results);
        json_unsigned(&json, "index_entries", summary->index_entries);
        json_close_object(&json);
        json_end(&json);
        return;
    }
    fprintf(cli->out,
            "%" PRIu64 " segments, %" PRIu64 " records, %" PRIu64 " bytes; %" PRIu64
            " blobs, %" PRIu64 " of them large, and %" PRIu64 " action results\n",
            summary->segments, summary->records, summary->bytes, summary->blobs,
            summary->large_blobs, summary->action_results);
    if (summary->findings == 0)
        fprintf(cli->out, "sound\n");
    else
        fprintf(cli->out, "damaged: %" PRIu64 " findings, %" PRIu64 " of them in use\n",
                summary->findings, summary->lost);
}

static void on_finding(void *argument, const struct fsck_finding *finding)
{
    const struct run *run = argument;
    FILE *out = run->cli->out;
    char text[DIGEST_TEXT_BYTES_MAX];
    if (run->cli->json) {
        struct json json;
        json_init(&json, out);
        json_open_object(&json, NULL);
        json_string(&json, "damaged", finding->what);
        if (finding->digest != NULL)
            json_digest(&json, "digest", finding->digest);
        json_bool(&json, "in_use", finding->in_use);
        json_unsigned(&json, "segment", finding->segment);
        json_unsigned(&json, "offset", finding->offset);
        json_unsigned(&json, "end", finding->end);
        json_string(&json, "reason", finding->reason);
        json_close_object(&json);
        json_end(&json);
        return;
    }
    fprintf(out, "damaged %s", finding->what);
    if (finding->digest != NULL)
        fprintf(out, " %s", digest_text(finding->digest, text));
    if (finding->segment != 0)
        fprintf(out, " segment %" PRIu64 " offset %" PRIu64 " to %" PRIu64, finding->segment,
                finding->offset, finding->end);
    fprintf(out, "%s: %s\n", finding->in_use ? ", in use" : "", finding->reason);
}

static void on_note(void *argument, const char *text)
{
    const struct run *run = argument;
    fprintf(run->cli->messages, "varve: %s\n", text);
}

static void on_progress(void *argument, const struct fsck_progress *progress)
{
    struct run *run = argument;
    const int64_t now_ns = clock_monotonic_ns(run->config.clock);
    if (now_ns < run->next_progress_ns)
        return;
    if (run->next_progress_ns != 0)
        fprintf(run->cli->messages,
                "varve: %" PRIu64 " of %" PRIu64 " segments, %" PRIu64 " of %" PRIu64 " MiB\n",
                progress->segments, progress->segments_total, (uint64_t)(progress->bytes / MIB),
                (uint64_t)(progress->bytes_total / MIB));
    run->next_progress_ns = now_ns + NS_PER_S;
}

/* ---- listing */

static enum cli_exit list(struct run *run)
{
    struct status status = {0};
    if (!fsck_list(run->fsck, list_entry, run, &status))
        return cannot_open(run->cli, &status);
    return CLI_EXIT_OK;
}

static bool list_entry(void *argument, const struct index_entry *entry, struct status *status)
{
    const struct run *run = argument;
    FILE *out = run->cli->out;
    char digest[DIGEST_TEXT_BYTES_MAX];
    char instance[3 * LIMIT_INSTANCE_NAME_BYTES + 2];
    const bool action = entry->kind == RECORD_ACTION;
    (void)status;
    escape_instance(entry->instance, instance);
    if (run->cli->json) {
        struct json json;
        json_init(&json, out);
        json_open_object(&json, NULL);
        json_string(&json, "kind", action ? "action result" : "blob");
        json_digest(&json, "digest", &entry->digest);
        if (action)
            json_string(&json, "instance", instance);
        json_unsigned(&json, "segment", entry->place.segment);
        json_unsigned(&json, "offset", entry->place.offset);
        json_close_object(&json);
        json_end(&json);
        return true;
    }
    fprintf(out, "%s %s segment %" PRIu64 " offset %" PRIu64, action ? "action" : "blob",
            digest_text(&entry->digest, digest), entry->place.segment, entry->place.offset);
    if (action)
        fprintf(out, " instance %s", instance);
    fputc('\n', out);
    return true;
}

/* As part of a path: bytes other than letters, digits, '-' and '.' as %XX; "_" for the empty one. */
static void escape_instance(struct bytes instance, char text[3 * LIMIT_INSTANCE_NAME_BYTES + 2])
{
    size_t length = 0;
    const size_t shown =
        instance.length < LIMIT_INSTANCE_NAME_BYTES ? instance.length : LIMIT_INSTANCE_NAME_BYTES;
    for (size_t i = 0; i < shown; i++) {
        const unsigned char c = instance.data[i];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '-' || (c == '.' && i > 0);
        if (plain)
            text[length++] = (char)c;
        else
            length += (size_t)snprintf(text + length, 4, "%%%02X", c);
    }
    if (length == 0)
        text[length++] = '_';
    text[length] = '\0';
}

/* ---- getting things out */

static enum cli_exit export_one(struct run *run)
{
    struct cli *cli = run->cli;
    struct status status = {0};
    struct index_entry entry = {.kind = RECORD_BLOB};
    bool whole = false;
    if (!digest_parse_text(bytes_of_string(cli->export_digest), &entry.digest, &status))
        return cli_usage_error(cli, &status);
    const bool ok = cli->output != NULL ? write_file(run, cli->output, &entry, &whole, &status)
                                        : write_blob(run, &entry.digest, cli->out, &whole, &status);
    if (!ok)
        return cannot_open(cli, &status);
    if (whole)
        return CLI_EXIT_OK;
    fprintf(cli->messages, "varve: %s: it is not there, or damaged\n", cli->export_digest);
    return CLI_EXIT_FAILED;
}

/* DIR/cas/ab/HASH, and DIR/ac/INSTANCE/ab/HASH. */
static enum cli_exit export_all(struct run *run)
{
    struct cli *cli = run->cli;
    struct status status = {0};
    if (mkdir(cli->export_directory, 0777) != 0 && errno != EEXIST) {
        status_fail_errno(&status, errno, "%s", cli->export_directory);
        return cannot_open(cli, &status);
    }
    if (!fsck_list(run->fsck, export_entry, run, &status))
        return cannot_open(cli, &status);
    if (cli->json) {
        struct json json;
        json_init(&json, cli->out);
        json_open_object(&json, NULL);
        json_unsigned(&json, "exported", run->exported);
        json_unsigned(&json, "damaged", run->damaged);
        json_close_object(&json);
        json_end(&json);
    } else {
        fprintf(cli->out, "%" PRIu64 " exported, %" PRIu64 " damaged\n", run->exported,
                run->damaged);
    }
    return run->damaged > 0 ? CLI_EXIT_FAILED : CLI_EXIT_OK;
}

static bool export_entry(void *argument, const struct index_entry *entry, struct status *status)
{
    struct run *run = argument;
    const struct cli *cli = run->cli;
    char path[PATH_BYTES_MAX];
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char instance[3 * LIMIT_INSTANCE_NAME_BYTES + 2];
    char text[DIGEST_TEXT_BYTES_MAX];
    bool whole = false;
    digest_hex(&entry->digest, hex);
    escape_instance(entry->instance, instance);
    const bool action = entry->kind == RECORD_ACTION;
    const int length = snprintf(path, sizeof(path), "%s/%s%s/%.2s/%s", cli->export_directory,
                                action ? "ac/" : "cas", action ? instance : "", hex, hex);
    if (length < 0 || (size_t)length >= sizeof(path))
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s: the path is too long",
                           cli->export_directory);
    if (!make_directories(path, strlen(cli->export_directory) + 1, status) ||
        !write_file(run, path, entry, &whole, status))
        return false;
    run->exported += whole;
    run->damaged += !whole;
    if (!whole)
        fprintf(cli->messages, "varve: %s %s segment %" PRIu64 " offset %" PRIu64 ": damaged\n",
                action ? "action" : "blob", digest_text(&entry->digest, text), entry->place.segment,
                entry->place.offset);
    return true;
}

/* Those that a file at path needs, from a place in it on. */
static bool make_directories(char *path, size_t from, struct status *status)
{
    for (char *slash = strchr(path + from, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        const bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
        if (!made)
            status_fail_errno(status, errno, "%s", path);
        *slash = '/';
        if (!made)
            return false;
    }
    return true;
}

/* The file appears when all of it has been verified. *whole false: it is damaged; no file then. */
static bool write_file(struct run *run,
                       const char *path,
                       const struct index_entry *entry,
                       bool *whole,
                       struct status *status)
{
    char temporary[PATH_BYTES_MAX];
    const int length = snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
    if (length < 0 || (size_t)length >= sizeof(temporary))
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s: the path is too long", path);
    const int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return status_fail_errno(status, errno, "%s", path);
    FILE *file = fdopen(fd, "w");
    if (file == NULL) {
        status_fail_errno(status, errno, "%s", path);
        close(fd);
        unlink(temporary);
        return false;
    }
    const mode_t mask = umask(0);
    umask(mask);
    bool ok = fchmod(fd, 0666 & ~mask) == 0 || status_fail_errno(status, errno, "%s", path);
    if (ok)
        ok = entry->kind == RECORD_ACTION ? write_action(run, entry, file, whole, status)
                                          : write_blob(run, &entry->digest, file, whole, status);
    if (fclose(file) != 0 && ok)
        ok = status_fail_errno(status, errno, "%s", path);
    if (ok && *whole && rename(temporary, path) != 0)
        ok = status_fail_errno(status, errno, "%s", path);
    if (!ok || !*whole)
        unlink(temporary);
    return ok;
}

/* Damage is no failure: *whole says it, when all has been written. */
static bool write_blob(struct run *run,
                       const struct digest *digest,
                       FILE *to,
                       bool *whole,
                       struct status *status)
{
    struct blob_reader *reader = NULL;
    struct status why;
    struct digest found;
    struct buffer buffer = {.capacity_bytes = LIMIT_POOL_BUFFER_BYTES};
    *whole = false;
    if (!blob_reader_open(fsck_store(run->fsck), digest, &reader, &why) || reader == NULL)
        return true;
    buffer.data = malloc(buffer.capacity_bytes);
    struct hasher *hasher = hasher_new(digest->function);
    bool readable = true;
    bool ok = buffer.data != NULL ||
              status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to read a blob");
    for (uint64_t at = 0; ok && readable && at < blob_reader_size(reader);) {
        struct bytes data;
        readable = blob_reader_read(reader, at, &buffer, &data, &why);
        if (!readable)
            break;
        hasher_update(hasher, data);
        at += data.length;
        if (fwrite(data.data, 1, data.length, to) != data.length)
            ok = status_fail_errno(status, errno, "write a blob");
    }
    if (ok && readable) {
        hasher_finish(hasher, &found);
        *whole = digest_equal(&found, digest);
    }
    hasher_free(hasher);
    free(buffer.data);
    blob_reader_free(reader);
    return ok;
}

static bool write_action(struct run *run,
                         const struct index_entry *entry,
                         FILE *to,
                         bool *whole,
                         struct status *status)
{
    struct action_record record;
    struct place place;
    struct status why;
    uint8_t *memory = NULL;
    *whole = action_read(fsck_store(run->fsck), &entry->digest, entry->instance, &memory, &record,
                         &place, &why) &&
             memory != NULL;
    const bool ok =
        !*whole ||
        fwrite(record.result.data, 1, record.result.length, to) == record.result.length ||
        status_fail_errno(status, errno, "write an action result");
    free(memory);
    return ok;
}
