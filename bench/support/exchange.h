/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call to a server at a time, and how its answer is judged: what is asked goes out straight from the noise of
 * bench/support/blobs.h, and what comes back is compared with it.
 *
 *     kind and names ---> exchange_start() ---> done() ---> kind and names ...
 */
#ifndef VARVE_BENCH_EXCHANGE_H
#define VARVE_BENCH_EXCHANGE_H

#include "bench/support/blobs.h"
#include "client/connection.h"
#include "client/messages.h"

enum exchange_kind {
    EXCHANGE_CAPABILITIES, /* moves nothing */
    EXCHANGE_PUT_BATCH,
    EXCHANGE_PUT_STREAM, /* one name */
    EXCHANGE_GET_BATCH,
    EXCHANGE_GET_STREAM, /* one name */
    EXCHANGE_FIND,
    EXCHANGE_PUT_ACTION,
    EXCHANGE_GET_ACTION,
    EXCHANGE_KIND_COUNT
};

const char *exchange_kind_name(enum exchange_kind kind);

/* What all exchanges of a run have in common; never changed while one runs. */
struct exchange_world {
    struct client *client;     /* borrowed */
    const struct blobs *blobs; /* borrowed */
    size_t chunk_bytes;        /* of data in one message of a stream up */
    bool verify;               /* compare what is read, and not only its length */
};

struct exchange;

struct exchange_result {
    const struct status *status; /* of the call; borrowed for the callback */
    size_t right;                /* of what was asked: blobs, or 1 for an action result */
    size_t wrong;                /* answered with OK, and not what was asked for */
    size_t refused;              /* entries of a batch with a status of their own... */
    struct status entry;         /* ...of which this was the last */
    uint64_t bytes;              /* of the blobs moved, when all are right */
};

/* On the client's network thread, or within exchange_start() when it cannot start. */
typedef void exchange_done(struct exchange *exchange, const struct exchange_result *result);

/* One thread at a time; from its start to done it is not touched. */
struct exchange {
    const struct exchange_world *world; /* borrowed */
    exchange_done *done;
    void *owner; /* of done's maker */

    /* What is asked next; set by whoever starts it. */
    enum exchange_kind kind;
    size_t count;            /* of names; at most capacity */
    struct blob_name *names; /* owned */
    struct digest *digests;  /* owned; of the names */
    bool *seen;              /* owned; by the answer */
    size_t missing_expected; /* FIND */
    struct digest action;    /* PUT_ACTION, GET_ACTION; names are its outputs */
    size_t capacity;

    /* Of the call in flight. */
    char resource[1024];
    size_t offset; /* sent or received so far of a stream */
    bool broken;   /* what came of a stream is not the blob */
    size_t refused;
    struct status entry;
};

MUST_CHECK bool exchange_init(struct exchange *exchange,
                              const struct exchange_world *world,
                              size_t capacity,
                              exchange_done *done,
                              void *owner);
void exchange_destroy(struct exchange *exchange);

/* Which blob names[i] is; its digest is computed here, or given by who knows it. */
void exchange_name(struct exchange *exchange, size_t i, struct blob_name name);
void exchange_name_known(struct exchange *exchange,
                         size_t i,
                         struct blob_name name,
                         const uint8_t hash[SHA256_HASH_BYTES]);
/*
 * A digest of nothing: its last eight bytes are all ones, which no hash of a blob will ever have, and which is how
 * bench/null_server knows what is missing.
 */
void exchange_name_absent(struct exchange *exchange, size_t i, uint64_t *random);

void exchange_start(struct exchange *exchange);

#endif
