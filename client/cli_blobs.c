/* SPDX-License-Identifier: Apache-2.0 */
/* varve put, get, stat, missing. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cas.h"
#include "client/cli.h"
#include "client/file_source.h"
#include "client/json.h"
#include "client/store_service.h"

/* Digests of one command line. */
struct digests {
    struct digest *list; /* owned */
    size_t count, capacity;
};

static bool spool(int from, int *fd, struct status *status);
static bool copy_all(int from, int to, struct status *status);
static bool get_to_file(struct cli *cli, const struct digest *digest, struct status *status);
static bool write_temporary(struct cli *cli,
                            const struct digest *digest,
                            int fd,
                            struct status *status);
static bool digests_from_arguments(const struct cli *cli,
                                   struct digests *digests,
                                   struct status *status);
static bool digests_from_file(const struct cli *cli,
                              struct digests *digests,
                              struct status *status);
static bool add_digest(struct digests *digests, struct bytes text, struct status *status);
static bool append_digest(void *argument, const struct digest *digest, struct status *status);
static bool find_places(struct cli *cli,
                        const struct digests *digests,
                        struct blob_place *places,
                        bool *has_places,
                        struct status *status);
static void print_places(const struct cli *cli,
                         const struct digests *digests,
                         const struct blob_place *places,
                         bool has_places);
static void print_place_json(struct json *json,
                             const struct digest *digest,
                             const struct blob_place *place,
                             bool has_places);
static void print_missing(const struct cli *cli,
                          const struct digests *digests,
                          const bool *missing);

enum cli_exit cli_put(struct cli *cli)
{
    if (cli->store != NULL)
        return cli_put_store(cli);
    const char *name = cli->arguments[0];
    struct status status = {0};
    struct capabilities capabilities;
    struct digest digest;
    int fd = -1;
    bool ok = cli_open_input(name, &fd, &status) &&
              capabilities_get(cli->client, &capabilities, &status) &&
              capabilities_check_function(&capabilities, &status) &&
              cas_write_file(cli->client, &capabilities, fd, name, &digest, &status);
    if (fd >= 0)
        close(fd);
    if (!ok) {
        /* That a file of ours is not there is no answer of the server's about a blob. */
        const enum cli_exit result = cli_failed(cli, "put", &status);
        return result == CLI_EXIT_NOT_FOUND ? CLI_EXIT_FAILED : result;
    }
    cli_print_put(cli, &digest);
    return CLI_EXIT_OK;
}

void cli_print_put(const struct cli *cli, const struct digest *digest)
{
    if (!cli->json) {
        cli_print_digest(cli, digest);
        return;
    }
    struct json json;
    json_init(&json, cli->out);
    json_open_object(&json, NULL);
    json_digest(&json, "digest", digest);
    json_close_object(&json);
    json_end(&json);
}

/*
 * A regular file as it is; anything else (a pipe, "-") by way of a temporary file, since the digest
 * comes first.
 */
bool cli_open_input(const char *name, int *fd, struct status *status)
{
    char text[FILE_NAME_TEXT_BYTES];
    file_name_text(name, text, sizeof(text));
    if (strcmp(name, "-") == 0)
        return spool(STDIN_FILENO, fd, status);
    const int file = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (file < 0)
        return status_fail_errno(status, errno, "%s", text);
    struct stat stat;
    bool ok = true;
    if (fstat(file, &stat) != 0)
        ok = status_fail_errno(status, errno, "%s", text);
    else if (S_ISDIR(stat.st_mode))
        ok = status_fail(status, STATUS_INVALID_ARGUMENT, "%s: a directory; push takes it", text);
    else if (!S_ISREG(stat.st_mode))
        ok = spool(file, fd, status);
    if (ok && S_ISREG(stat.st_mode))
        *fd = file;
    else
        close(file);
    return ok;
}

static bool spool(int from, int *fd, struct status *status)
{
    char path[4096];
    const char *parent = getenv("TMPDIR");
    const int length = snprintf(path, sizeof(path), "%s/varve-put-XXXXXX",
                                parent != NULL && parent[0] != '\0' ? parent : "/tmp");
    if (length < 0 || (size_t)length >= sizeof(path))
        return status_fail(status, STATUS_INVALID_ARGUMENT, "TMPDIR is too long");
    const int to = mkostemp(path, O_CLOEXEC);
    if (to < 0)
        return status_fail_errno(status, errno, "a temporary file %s", path);
    unlink(path);
    if (!copy_all(from, to, status)) {
        close(to);
        return false;
    }
    *fd = to;
    return true;
}

static bool copy_all(int from, int to, struct status *status)
{
    enum { COPY_BYTES = 64 * 1024 };
    uint8_t buffer[COPY_BYTES];
    for (;;) {
        const ssize_t got = read(from, buffer, sizeof(buffer));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return status_fail_errno(status, errno, "read the input");
        if (got == 0)
            return true;
        for (ssize_t at = 0; at < got;) {
            const ssize_t put = write(to, buffer + at, (size_t)(got - at));
            if (put < 0 && errno != EINTR)
                return status_fail_errno(
                    status, errno, "write the input to a temporary file ($TMPDIR says where)");
            at += put > 0 ? put : 0;
        }
    }
}

enum cli_exit cli_get(struct cli *cli)
{
    struct status status = {0};
    struct digest digest;
    if (!digest_parse_text(bytes_of_string(cli->arguments[0]), &digest, &status))
        return cli_usage_error(cli, &status);
    if (cli->output != NULL) {
        if (!get_to_file(cli, &digest, &status))
            return cli_failed(cli, NULL, &status);
        if (cli->json) {
            struct json json;
            json_init(&json, cli->out);
            json_open_object(&json, NULL);
            json_digest(&json, "digest", &digest);
            json_string(&json, "file", cli->output);
            json_close_object(&json);
            json_end(&json);
        }
        return CLI_EXIT_OK;
    }
    if (!cas_read_fd(cli->client, &digest, fileno(cli->out), &status))
        return cli_failed(cli, NULL, &status);
    return CLI_EXIT_OK;
}

/*
 * Nobody sees the file before every byte has been verified; what was there is replaced in one step.
 */
static bool get_to_file(struct cli *cli, const struct digest *digest, struct status *status)
{
    char path[4096], text[FILE_NAME_TEXT_BYTES];
    file_name_text(cli->output, text, sizeof(text));
    const int length = snprintf(path, sizeof(path), "%s.XXXXXX", cli->output);
    if (length < 0 || (size_t)length >= sizeof(path))
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s: the path is too long", text);
    const int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        status_fail_errno(status, errno, "%s", text);
        status->code = STATUS_INTERNAL; /* NOT_FOUND is for blobs */
        return false;
    }
    bool ok = write_temporary(cli, digest, fd, status);
    if (close(fd) != 0 && ok)
        ok = status_fail_errno(status, errno, "%s", text);
    if (ok && rename(path, cli->output) != 0)
        ok = status_fail_errno(status, errno, "%s", text);
    if (!ok)
        unlink(path);
    return ok;
}

static bool write_temporary(struct cli *cli,
                            const struct digest *digest,
                            int fd,
                            struct status *status)
{
    const mode_t mask = umask(0);
    umask(mask);
    if (fchmod(fd, 0666 & ~mask) != 0)
        return status_fail_errno(status, errno, "the mode of a temporary file");
    return cas_read_fd(cli->client, digest, fd, status);
}

enum cli_exit cli_stat(struct cli *cli)
{
    struct digests digests = {0};
    struct status status = {0};
    struct blob_place *places = NULL;
    bool has_places = false;
    enum cli_exit result = CLI_EXIT_OK;
    if (!digests_from_arguments(cli, &digests, &status)) {
        result = cli_usage_error(cli, &status);
        goto out;
    }
    places = calloc(digests.count, sizeof(*places));
    if (places == NULL)
        status_fail(&status, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu answers", digests.count);
    if (places == NULL || !find_places(cli, &digests, places, &has_places, &status)) {
        result = cli_failed(cli, NULL, &status);
        goto out;
    }
    print_places(cli, &digests, places, has_places);
    for (size_t i = 0; i < digests.count; i++)
        result = places[i].present ? result : CLI_EXIT_NOT_FOUND;
out:
    free(places);
    free(digests.list);
    return result;
}

/* From varve's own service where the server has it; whether a blob is there, any server tells. */
static bool find_places(struct cli *cli,
                        const struct digests *digests,
                        struct blob_place *places,
                        bool *has_places,
                        struct status *status)
{
    struct status failure = {0};
    *has_places = store_service_stat(cli->client, digests->list, places, digests->count, &failure);
    if (*has_places)
        return true;
    if (failure.code != STATUS_UNIMPLEMENTED) {
        *status = failure;
        return false;
    }
    bool *missing = calloc(digests->count, sizeof(*missing));
    if (missing == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu answers",
                           digests->count);
    const bool ok = cas_find_missing(cli->client, digests->list, missing, digests->count, status);
    for (size_t i = 0; ok && i < digests->count; i++)
        places[i] = (struct blob_place){.present = !missing[i]};
    free(missing);
    return ok;
}

static void print_places(const struct cli *cli,
                         const struct digests *digests,
                         const struct blob_place *places,
                         bool has_places)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    if (cli->json) {
        struct json json;
        json_init(&json, cli->out);
        json_open_array(&json, NULL);
        for (size_t i = 0; i < digests->count; i++)
            print_place_json(&json, &digests->list[i], &places[i], has_places);
        json_close_array(&json);
        json_end(&json);
        return;
    }
    for (size_t i = 0; i < digests->count; i++) {
        const struct blob_place *place = &places[i];
        fprintf(cli->out, "%s %s", digest_text(&digests->list[i], text),
                place->present ? "present" : "missing");
        if (has_places && place->present)
            fprintf(cli->out, " lane=%s segment=%llu offset=%llu stored_bytes=%llu",
                    store_service_lane_name(place->lane), (unsigned long long)place->segment,
                    (unsigned long long)place->offset, (unsigned long long)place->stored_bytes);
        fputc('\n', cli->out);
    }
}

static void print_place_json(struct json *json,
                             const struct digest *digest,
                             const struct blob_place *place,
                             bool has_places)
{
    json_open_object(json, NULL);
    json_digest(json, "digest", digest);
    json_bool(json, "present", place->present);
    if (has_places && place->present) {
        json_string(json, "lane", store_service_lane_name(place->lane));
        json_unsigned(json, "segment", place->segment);
        json_unsigned(json, "offset", place->offset);
        json_unsigned(json, "stored_bytes", place->stored_bytes);
    }
    json_close_object(json);
}

enum cli_exit cli_missing(struct cli *cli)
{
    struct digests digests = {0};
    struct status status = {0};
    bool *missing = NULL;
    enum cli_exit result = CLI_EXIT_OK;
    if (!(cli->digests_file != NULL ? digests_from_file(cli, &digests, &status)
                                    : digests_from_arguments(cli, &digests, &status))) {
        result = cli_usage_error(cli, &status);
        goto out;
    }
    missing = calloc(digests.count + 1, sizeof(*missing));
    if (missing == NULL)
        status_fail(&status, STATUS_RESOURCE_EXHAUSTED, "no memory for %zu answers", digests.count);
    if (missing == NULL ||
        !cas_find_missing(cli->client, digests.list, missing, digests.count, &status))
        result = cli_failed(cli, NULL, &status);
    else
        print_missing(cli, &digests, missing);
out:
    free(missing);
    free(digests.list);
    return result;
}

static void print_missing(const struct cli *cli, const struct digests *digests, const bool *missing)
{
    size_t count = 0;
    for (size_t i = 0; i < digests->count; i++)
        count += missing[i];
    if (cli->json) {
        struct json json;
        json_init(&json, cli->out);
        json_open_object(&json, NULL);
        json_unsigned(&json, "asked", digests->count);
        json_open_array(&json, "missing");
        for (size_t i = 0; i < digests->count; i++) {
            if (missing[i])
                json_digest(&json, NULL, &digests->list[i]);
        }
        json_close_array(&json);
        json_close_object(&json);
        json_end(&json);
        return;
    }
    for (size_t i = 0; i < digests->count; i++) {
        if (missing[i])
            cli_print_digest(cli, &digests->list[i]);
    }
    fprintf(cli->messages, "varve: %zu of %zu missing\n", count, digests->count);
}

static bool digests_from_arguments(const struct cli *cli,
                                   struct digests *digests,
                                   struct status *status)
{
    for (size_t i = 0; i < cli->argument_count; i++) {
        if (!add_digest(digests, bytes_of_string(cli->arguments[i]), status))
            return false;
    }
    return true;
}

static bool digests_from_file(const struct cli *cli, struct digests *digests, struct status *status)
{
    return cli_each_digest(cli, append_digest, digests, status);
}

bool cli_each_digest(const struct cli *cli,
                     bool (*take)(void *argument,
                                  const struct digest *digest,
                                  struct status *status),
                     void *argument,
                     struct status *status)
{
    char text[FILE_NAME_TEXT_BYTES];
    file_name_text(cli->digests_file, text, sizeof(text));
    const bool standard = strcmp(cli->digests_file, "-") == 0;
    FILE *file = standard ? stdin : fopen(cli->digests_file, "re");
    if (file == NULL)
        return status_fail_errno(status, errno, "%s", text);
    char line[DIGEST_TEXT_BYTES_MAX + 2];
    bool ok = true;
    for (unsigned long long number = 1; ok && fgets(line, sizeof(line), file) != NULL; number++) {
        const size_t length = strcspn(line, "\r\n");
        struct digest digest;
        if (length == 0)
            continue;
        ok = digest_parse_text(bytes_of(line, length), &digest, status);
        if (!ok)
            status_prefix(status, "%s, line %llu", text, number);
        ok = ok && take(argument, &digest, status);
    }
    if (ok && ferror(file))
        ok = status_fail_errno(status, errno, "%s", text);
    if (!standard)
        fclose(file);
    return ok;
}

static bool add_digest(struct digests *digests, struct bytes text, struct status *status)
{
    struct digest digest;
    return digest_parse_text(text, &digest, status) && append_digest(digests, &digest, status);
}

static bool append_digest(void *argument, const struct digest *digest, struct status *status)
{
    struct digests *digests = argument;
    if (digests->count == digests->capacity) {
        const size_t capacity = digests->capacity == 0 ? 64 : digests->capacity * 2;
        struct digest *list = realloc(digests->list, capacity * sizeof(*list));
        if (list == NULL)
            return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for so many digests");
        digests->list = list;
        digests->capacity = capacity;
    }
    digests->list[digests->count++] = *digest;
    return true;
}

enum cli_exit cli_usage_error(const struct cli *cli, const struct status *status)
{
    fprintf(cli->messages, "varve: %s; a blob is named HASH/SIZE\n", status->message);
    return CLI_EXIT_USAGE;
}

void cli_print_digest(const struct cli *cli, const struct digest *digest)
{
    char text[DIGEST_TEXT_BYTES_MAX];
    fprintf(cli->out, "%s\n", digest_text(digest, text));
}
