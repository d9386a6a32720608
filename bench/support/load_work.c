/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/support/load_work.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/batch_packer.h"
#include "client/cas.h"

enum {
    OUTPUTS = 20,              /* of an action result */
    BUILD_FIND_DIGESTS = 40,   /* in one question of the build mix; half of them are there */
    BUILD_BATCH_BYTES = 65536, /* larger blobs are streamed */
    FILL_BLOBS_MAX = 4000,     /* in one batch */
    ASK_AT_ONCE = 100000,
};

static const uint64_t FAMILY_POPULATION = UINT64_C(0x706f70756c617465);
static const uint64_t FAMILY_ACTIONS = UINT64_C(0x616374696f6e7321);

/* ---- what calls are about */

static void name_new(struct load_source *source, struct exchange *exchange, size_t i)
{
    const uint64_t number = atomic_fetch_add_explicit(&source->unique, 1, memory_order_relaxed);
    exchange_name(exchange, i, (struct blob_name){source->salt, number});
}

static struct blob_name population_name(const struct load_source *source, size_t number)
{
    return (struct blob_name){FAMILY_POPULATION + source->settings->seed, number};
}

static void name_known(struct load_source *source, struct exchange *exchange, size_t i, size_t at)
{
    const size_t number = at % source->settings->population;
    exchange_name_known(exchange, i, population_name(source, number), source->hashes[number]);
}

/* Neighbours from a random place on: different ones, as batches must have. */
static void name_neighbours(struct load_source *source,
                            struct exchange *exchange,
                            size_t from,
                            size_t to,
                            uint64_t *random)
{
    const size_t first = (size_t)(random_next(random) % source->settings->population);
    for (size_t i = from; i < to; i++)
        name_known(source, exchange, i, first + i);
}

static void action_digest(const struct load_source *source,
                          uint64_t family,
                          uint64_t number,
                          struct digest *digest)
{
    blob_digest(source->blobs, (struct blob_name){family, number}, digest);
}

/* Action `number` of the population: its outputs are the blobs from `number` on. */
static void set_action(struct load_source *source, struct exchange *exchange, size_t number)
{
    exchange->count = source->settings->work->per_call_fixed ? OUTPUTS : source->settings->per_call;
    action_digest(source, FAMILY_ACTIONS + source->settings->seed, number, &exchange->action);
    for (size_t i = 0; i < exchange->count; i++)
        name_known(source, exchange, i, number + i);
}

/* ---- the works */

static void next_capabilities(struct load_source *source,
                              struct exchange *exchange,
                              uint64_t *random)
{
    (void)source, (void)random;
    exchange->kind = EXCHANGE_CAPABILITIES;
    exchange->count = 1;
}

static void next_put_batch(struct load_source *source, struct exchange *exchange, uint64_t *random)
{
    (void)random;
    exchange->kind = EXCHANGE_PUT_BATCH;
    exchange->count = source->settings->per_call;
    for (size_t i = 0; i < exchange->count; i++)
        name_new(source, exchange, i);
}

static void next_put_stream(struct load_source *source, struct exchange *exchange, uint64_t *random)
{
    (void)random;
    exchange->kind = EXCHANGE_PUT_STREAM;
    exchange->count = 1;
    name_new(source, exchange, 0);
}

static void next_get_batch(struct load_source *source, struct exchange *exchange, uint64_t *random)
{
    exchange->kind = EXCHANGE_GET_BATCH;
    exchange->count = source->settings->per_call;
    name_neighbours(source, exchange, 0, exchange->count, random);
}

static void next_get_stream(struct load_source *source, struct exchange *exchange, uint64_t *random)
{
    exchange->kind = EXCHANGE_GET_STREAM;
    exchange->count = 1;
    name_neighbours(source, exchange, 0, 1, random);
}

static void next_find_present(struct load_source *source,
                              struct exchange *exchange,
                              uint64_t *random)
{
    exchange->kind = EXCHANGE_FIND;
    exchange->count = source->settings->per_call;
    exchange->missing_expected = 0;
    name_neighbours(source, exchange, 0, exchange->count, random);
}

static void next_find_absent(struct load_source *source,
                             struct exchange *exchange,
                             uint64_t *random)
{
    exchange->kind = EXCHANGE_FIND;
    exchange->count = source->settings->per_call;
    exchange->missing_expected = exchange->count;
    for (size_t i = 0; i < exchange->count; i++)
        exchange_name_absent(exchange, i, random);
}

static void next_get_action(struct load_source *source, struct exchange *exchange, uint64_t *random)
{
    exchange->kind = EXCHANGE_GET_ACTION;
    set_action(source, exchange, (size_t)(random_next(random) % source->settings->population));
}

static void next_put_action(struct load_source *source, struct exchange *exchange, uint64_t *random)
{
    exchange->kind = EXCHANGE_PUT_ACTION;
    set_action(source, exchange, (size_t)(random_next(random) % source->settings->population));
    action_digest(source, ~source->salt,
                  atomic_fetch_add_explicit(&source->unique, 1, memory_order_relaxed),
                  &exchange->action);
}

/*
 * Of 100 calls 45 read a blob, 20 write one, 20 ask for 40 digests of which half are there, and 15 get an action result with
 * 20 outputs.
 */
static void next_build(struct load_source *source, struct exchange *exchange, uint64_t *random)
{
    const unsigned draw = (unsigned)(random_next(random) % 100);
    exchange->count = 1;
    if (draw < 45) {
        name_neighbours(source, exchange, 0, 1, random);
        exchange->kind = exchange->digests[0].size_bytes <= BUILD_BATCH_BYTES ? EXCHANGE_GET_BATCH
                                                                              : EXCHANGE_GET_STREAM;
    } else if (draw < 65) {
        name_new(source, exchange, 0);
        exchange->kind = exchange->digests[0].size_bytes <= BUILD_BATCH_BYTES ? EXCHANGE_PUT_BATCH
                                                                              : EXCHANGE_PUT_STREAM;
    } else if (draw < 85) {
        exchange->kind = EXCHANGE_FIND;
        exchange->count = BUILD_FIND_DIGESTS;
        exchange->missing_expected = BUILD_FIND_DIGESTS / 2;
        name_neighbours(source, exchange, 0, BUILD_FIND_DIGESTS / 2, random);
        for (size_t i = BUILD_FIND_DIGESTS / 2; i < BUILD_FIND_DIGESTS; i++)
            exchange_name_absent(exchange, i, random);
    } else {
        next_get_action(source, exchange, random);
    }
}

static const struct load_work works[] = {
    {"capabilities", "GetCapabilities: what a call costs that does nothing", POPULATION_NONE, 1,
     false, false, next_capabilities},
    {"put-batch", "BatchUpdateBlobs of --per-call (1) new blobs", POPULATION_NONE, 1, false, true,
     next_put_batch},
    {"put-stream", "ByteStream.Write of a new blob", POPULATION_NONE, 1, true, false,
     next_put_stream},
    {"get-batch", "BatchReadBlobs of --per-call (1) blobs", POPULATION_BLOBS, 1, false, true,
     next_get_batch},
    {"get-stream", "ByteStream.Read of a blob", POPULATION_BLOBS, 1, true, false, next_get_stream},
    {"find-present", "FindMissingBlobs of --per-call (1000) blobs that are there", POPULATION_BLOBS,
     1000, false, false, next_find_present},
    {"find-absent", "FindMissingBlobs of --per-call (1000) blobs that are not", POPULATION_NONE,
     1000, false, false, next_find_absent},
    {"put-action", "UpdateActionResult of a new one with --per-call (20) outputs", POPULATION_BLOBS,
     OUTPUTS, false, false, next_put_action},
    {"get-action", "GetActionResult of one with --per-call (20) outputs", POPULATION_ACTIONS,
     OUTPUTS, false, false, next_get_action},
    {"build", "45 % reads, 20 % writes, 20 % FindMissingBlobs of 40, 15 % GetActionResult",
     POPULATION_ACTIONS, BUILD_FIND_DIGESTS, true, false, next_build},
};

const struct load_work *load_work_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(works); i++) {
        if (strcmp(works[i].name, name) == 0)
            return &works[i];
    }
    return NULL;
}

void load_work_print_all(FILE *to)
{
    for (size_t i = 0; i < ARRAY_LENGTH(works); i++)
        fprintf(to, "  %-14s %s\n", works[i].name, works[i].what);
}

/* ---- the population */

bool load_source_init(struct load_source *source,
                      const struct load_settings *settings,
                      const struct blobs *blobs,
                      struct status *status)
{
    *source = (struct load_source){.settings = settings, .blobs = blobs};
    if (getrandom(&source->salt, sizeof(source->salt), 0) != (ssize_t)sizeof(source->salt))
        return status_fail(status, STATUS_INTERNAL, "no random numbers");
    if (settings->work->population == POPULATION_NONE)
        return true;
    source->hashes = calloc(settings->population, sizeof(*source->hashes));
    if (source->hashes == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the population");
    for (size_t i = 0; i < settings->population; i++) {
        struct digest digest;
        blob_digest(blobs, population_name(source, i), &digest);
        memcpy(source->hashes[i], digest.hash, SHA256_HASH_BYTES);
    }
    return true;
}

void load_source_destroy(struct load_source *source)
{
    free(source->hashes);
    source->hashes = NULL;
}

static bool ask(struct load_fill *fill, struct client *client, struct status *status)
{
    const struct load_source *source = fill->source;
    const size_t count = source->settings->population;
    struct digest *digests = calloc(count < ASK_AT_ONCE ? count : ASK_AT_ONCE, sizeof(*digests));
    if (digests == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the population");
    bool ok = true;
    for (size_t from = 0; ok && from < count; from += ASK_AT_ONCE) {
        const size_t some = count - from < ASK_AT_ONCE ? count - from : ASK_AT_ONCE;
        for (size_t i = 0; i < some; i++)
            blob_digest(source->blobs, population_name(source, from + i), &digests[i]);
        ok = cas_find_missing(client, digests, fill->missing + from, some, status);
    }
    free(digests);
    return ok;
}

bool load_fill_init(struct load_fill *fill,
                    struct load_source *source,
                    struct client *client,
                    struct status *status)
{
    *fill = (struct load_fill){.source = source};
    fill->missing = calloc(source->settings->population, sizeof(*fill->missing));
    if (fill->missing == NULL)
        return status_fail(status, STATUS_RESOURCE_EXHAUSTED, "no memory for the population");
    return ask(fill, client, status);
}

void load_fill_destroy(struct load_fill *fill)
{
    free(fill->missing);
    fill->missing = NULL;
}

size_t load_fill_capacity(const struct load_source *source)
{
    const size_t count = source->settings->population;
    const size_t batch = count < FILL_BLOBS_MAX ? count : FILL_BLOBS_MAX;
    return batch > source->settings->per_call ? batch : source->settings->per_call;
}

/* One blob that is streamed, or as many as a batch takes. */
bool load_fill_next_blobs(struct load_fill *fill, struct exchange *exchange)
{
    struct load_source *source = fill->source;
    uint64_t bytes = 0;
    exchange->kind = EXCHANGE_PUT_BATCH;
    exchange->count = 0;
    for (; fill->blob < source->settings->population; fill->blob++) {
        if (!fill->missing[fill->blob])
            continue;
        const size_t size = blob_size(source->blobs, population_name(source, fill->blob));
        if (size > BATCH_PACKER_BATCHED_BLOB_BYTES) {
            if (exchange->count > 0)
                break;
            exchange->kind = EXCHANGE_PUT_STREAM;
        }
        bytes += size + BATCH_PACKER_ENTRY_OVERHEAD_BYTES;
        if (exchange->count > 0 &&
            (bytes > BATCH_PACKER_BATCH_BYTES || exchange->count == exchange->capacity))
            break;
        name_known(source, exchange, exchange->count++, fill->blob);
        if (exchange->kind == EXCHANGE_PUT_STREAM) {
            fill->blob++;
            break;
        }
    }
    return exchange->count > 0;
}

bool load_fill_next_action(struct load_fill *fill, struct exchange *exchange)
{
    const struct load_settings *settings = fill->source->settings;
    if (settings->work->population != POPULATION_ACTIONS || fill->action == settings->population)
        return false;
    exchange->kind = EXCHANGE_PUT_ACTION;
    set_action(fill->source, exchange, fill->action++);
    return true;
}
