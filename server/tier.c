/* SPDX-License-Identifier: Apache-2.0 */
#include "server/tier.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/tier_fetch.h"
#include "server/tier_follow.h"
#include "server/tier_known.h"
#include "server/tier_list.h"
#include "server/tier_queue.h"
#include "tier/s3.h"

/* Besides uploads and downloads: the two planners, which delete, the listing and whoever reads about packs. */
enum { MORE_CONNECTIONS = 4 };

struct tier {
    struct s3 *s3;
    struct tier_known *known;
    struct tier_queue *queue;
    struct tier_fetch *reader;  /* NULL: what is there is not read */
    struct tier_list *list;     /* NULL: it is not asked what is there */
    struct tier_follow *follow; /* NULL: nor what is in packs */
    bool finds;
    uint64_t follower_uid;
    char name[FOLLOWER_NAME_BYTES_MAX + 1]; /* among the followers */
};

static bool open_bucket(const struct config *config,
                        struct clock *clock,
                        struct metrics *metrics,
                        struct s3 **s3,
                        struct status *status);
static bool open_known(const struct config *config,
                       const struct store *store,
                       struct tier_known **known,
                       struct status *status);
static bool makes_packs(const struct config *config);
static const char *text_or_null(const char *text);
static uint64_t place_of(const struct config *config);
static uint64_t deleted_until_seq(void *argument);

uint64_t tier_follower_uid(const struct config *config)
{
    if (config->tier_url[0] == '\0')
        return 0;
    const uint64_t uid = place_of(config);
    return uid != 0 ? uid : 1;
}

bool tier_start(const struct config *config,
                struct durability *durability,
                struct metrics *metrics,
                struct flights *flights,
                struct tier **tier_out,
                struct status *status)
{
    *tier_out = NULL;
    if (config->tier_url[0] == '\0')
        return true;
    struct tier *const tier = calloc(1, sizeof(*tier));
    if (tier == NULL)
        return status_fail_errno(status, ENOMEM, "tier");
    struct store *const store = durability_store(durability);
    if (!open_bucket(config, store->clock, metrics, &tier->s3, status) ||
        !open_known(config, store, &tier->known, status))
        goto fail;
    const struct tier_fetch_config reader = {.durability = durability,
                                             .bucket = s3_bucket(tier->s3),
                                             .metrics = metrics,
                                             .flights = flights,
                                             .known = tier->known,
                                             .prefix = config->tier_prefix,
                                             .downloads = (size_t)config->tier_downloads,
                                             .deleted_until_seq = deleted_until_seq,
                                             .argument = tier};
    tier->follower_uid = tier_follower_uid(config);
    snprintf(tier->name, sizeof(tier->name), "bucket %s", config->tier_bucket);
    tier->finds = strcmp(config->tier_reads, "on") == 0 && strcmp(config->tier_find, "on") == 0;
    if (strcmp(config->tier_reads, "on") == 0 && !tier_fetch_start(&reader, &tier->reader, status))
        goto fail;
    const struct tier_queue_config queue = {.durability = durability,
                                            .bucket = s3_bucket(tier->s3),
                                            .metrics = metrics,
                                            .known = tier->known,
                                            .prefix = config->tier_prefix,
                                            .place = place_of(config),
                                            .uploads = (size_t)config->tier_uploads,
                                            .shared = config->peers.count > 0,
                                            .packs = makes_packs(config),
                                            .follower_uid = tier_follower_uid(config),
                                            .hurries = strcmp(config->tier_mode, "through") == 0,
                                            .follower_name = tier->name,
                                            .follower_address = config->tier_url};
    if (!tier_queue_start(&queue, &tier->queue, status))
        goto fail;
    const struct tier_list_config list = {.bucket = s3_bucket(tier->s3),
                                          .known = tier->known,
                                          .metrics = metrics,
                                          .prefix = config->tier_prefix};
    if (tier->finds && !tier_list_start(&list, &tier->list, status))
        goto fail;
    const struct tier_follow_config follow = {.bucket = s3_bucket(tier->s3),
                                              .known = tier->known,
                                              .metrics = metrics,
                                              .prefix = config->tier_prefix};
    if (tier->reader == NULL && !makes_packs(config))
        tier_known_set_whole(tier->known, false); /* nobody asks for it */
    else if (!tier_follow_start(&follow, &tier->follow, status))
        goto fail;
    log_event(LOG_LEVEL_INFO, "tier_started",
              "bucket=%s prefix=%s small_seq=%" PRIu64 " large_seq=%" PRIu64, config->tier_bucket,
              config->tier_prefix, tier_queue_seq(tier->queue, LANE_SMALL),
              tier_queue_seq(tier->queue, LANE_LARGE));
    *tier_out = tier;
    return true;
fail:
    tier_stop(tier);
    return false;
}

static bool open_bucket(const struct config *config,
                        struct clock *clock,
                        struct metrics *metrics,
                        struct s3 **s3,
                        struct status *status)
{
    const struct s3_config bucket = {
        .endpoint = config->tier_url,
        .region = config->tier_region,
        .bucket = config->tier_bucket,
        .addressing =
            strcmp(config->tier_addressing, "virtual-host") == 0 ? S3_VIRTUAL_HOST : S3_PATH_STYLE,
        .ca_file = text_or_null(config->tier_ca),
        .credentials_file = text_or_null(config->tier_credentials),
        .connections_max =
            (size_t)(config->tier_uploads + config->tier_downloads) + MORE_CONNECTIONS,
        .clock = clock,
        .metrics = metrics};
    if (s3_new(&bucket, s3, status))
        return true;
    status_prefix(status, "options tier-url, tier-bucket, tier-region, tier-credentials");
    return false;
}

static bool open_known(const struct config *config,
                       const struct store *store,
                       struct tier_known **known,
                       struct status *status)
{
    char *path = NULL;
    if (asprintf(&path, "%s/tier/index", store->directory) < 0)
        return status_fail_errno(status, ENOMEM, "index of the bucket");
    const struct tier_known_config what = {.clock = store->clock,
                                           .young_s = config->tier_expiry_ns / 2 / NS_PER_S,
                                           .path = path,
                                           .place = place_of(config)};
    const bool ok = tier_known_new(&what, known, status);
    free(path);
    return ok;
}

/* Nodes that must send at once would each send what all of them have. */
static bool makes_packs(const struct config *config)
{
    const bool alone = strcmp(config->tier_mode, "async") == 0 || config->peers.count == 0;
    return alone && strcmp(config->tier_packs, "on") == 0;
}

static const char *text_or_null(const char *text)
{
    return text[0] != '\0' ? text : NULL;
}

/* A cursor that is about another bucket is none. */
static uint64_t place_of(const struct config *config)
{
    const struct bytes parts[] = {bytes_of_string(config->tier_url), bytes_of_string("\n"),
                                  bytes_of_string(config->tier_bucket), bytes_of_string("\n"),
                                  bytes_of_string(config->tier_prefix)};
    struct digest digest;
    uint64_t place;
    digest_of_list(DIGEST_FUNCTION_SHA256,
                   (struct bytes_list){.parts = parts, .count = ARRAY_LENGTH(parts)}, &digest);
    memcpy(&place, digest.hash, sizeof(place));
    return place;
}

/* Nobody asks the reader for anything before the queue is there. */
static uint64_t deleted_until_seq(void *argument)
{
    const struct tier *const tier = argument;
    return tier_queue_seq(tier->queue, LANE_SMALL);
}

struct tier_fetch *tier_reader(struct tier *tier)
{
    return tier != NULL ? tier->reader : NULL;
}

void tier_trouble(struct tier *tier, uint64_t uid, char text[STATUS_MESSAGE_BYTES_MAX])
{
    text[0] = '\0';
    if (tier != NULL && uid == tier->follower_uid)
        tier_queue_trouble(tier->queue, text);
}

bool tier_finds(const struct tier *tier)
{
    return tier != NULL && tier->finds;
}

void tier_step(struct tier *tier)
{
    if (tier != NULL)
        tier_queue_step(tier->queue);
}

void tier_end_requests(struct tier *tier)
{
    if (tier == NULL)
        return;
    if (tier->queue != NULL)
        tier_queue_ask_to_stop(tier->queue);
    tier_list_ask_to_stop(tier->list);
    tier_follow_ask_to_stop(tier->follow);
    if (tier->s3 != NULL)
        s3_stop(tier->s3);
    tier_fetch_stop(tier->reader);
}

void tier_stop(struct tier *tier)
{
    if (tier == NULL)
        return;
    tier_end_requests(tier);
    tier_queue_stop(tier->queue);
    tier_list_stop(tier->list);
    tier_follow_stop(tier->follow);
    tier_fetch_free(tier->reader);
    tier_known_free(tier->known);
    s3_free(tier->s3);
    free(tier);
}

bool tier_check(const struct config *config, struct status *status)
{
    static struct metrics unused;
    struct s3 *s3 = NULL;
    if (config->tier_url[0] == '\0')
        return true;
    const bool ok = open_bucket(config, clock_real(), &unused, &s3, status);
    s3_free(s3);
    return ok;
}
