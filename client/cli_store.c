/* SPDX-License-Identifier: Apache-2.0 */
/* varve put --store: into the data directory of a server that is stopped, without a network. */
#include <stdlib.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "client/cli.h"
#include "durability/put_file.h"

/* One for the file; the rest are what a recovery may want. */
enum { BUFFERS = 8 };

static bool put(struct cli *cli, struct digest *digest, struct status *status);
static bool open_store(const struct cli *cli,
                       struct metrics *metrics,
                       struct buffer_pool *buffers,
                       struct durability **durability,
                       struct status *status);

enum cli_exit cli_put_store(struct cli *cli)
{
    struct status status = {0};
    struct digest digest;
    log_set_level(LOG_LEVEL_ERROR); /* a start and a stop are of no interest here */
    if (!put(cli, &digest, &status)) {
        const enum cli_exit result = cli_failed(cli, NULL, &status);
        return result == CLI_EXIT_NOT_FOUND ? CLI_EXIT_FAILED : result;
    }
    cli_print_put(cli, &digest);
    return CLI_EXIT_OK;
}

static bool put(struct cli *cli, struct digest *digest, struct status *status)
{
    struct metrics *metrics = calloc(1, sizeof(*metrics));
    struct buffer_pool *buffers = NULL;
    struct durability *durability = NULL;
    struct put_request request = {.fd = -1, .name = cli->arguments[0]};
    bool ok = metrics != NULL ||
              status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory to open a store");
    ok = ok && cli_open_input(cli->arguments[0], &request.fd, status) &&
         buffer_pool_new(LIMIT_POOL_BUFFER_BYTES, BUFFERS, &buffers, status) &&
         open_store(cli, metrics, buffers, &durability, status) &&
         put_file(durability, &request, digest, status);
    durability_close(durability);
    buffer_pool_free(buffers);
    if (request.fd >= 0)
        close(request.fd);
    free(metrics);
    return ok;
}

static bool open_store(const struct cli *cli,
                       struct metrics *metrics,
                       struct buffer_pool *buffers,
                       struct durability **durability,
                       struct status *status)
{
    const struct store_config config = {
        .io = io_posix(),
        .clock = clock_real(),
        .metrics = metrics,
        .buffers = buffers,
        .directory = cli->store,
    };
    struct recovery_report report;
    if (durability_open(&config, NULL, NULL, durability, &report, status))
        return true;
    status_prefix(status, "open the store %s", cli->store);
    return false;
}
