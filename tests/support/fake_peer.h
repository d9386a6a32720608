/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node that is followed, behind tests/support/fake_server.h: a log that the test writes, served by Feed, Fetch, BatchReadBlobs and
 * Read, with the lies that a test asks for. Its coding is protobuf-c's, so that it checks ours.
 */
#ifndef VARVE_TESTS_SUPPORT_FAKE_PEER_H
#define VARVE_TESTS_SUPPORT_FAKE_PEER_H

#include <pthread.h>

#include "base/digest.h"
#include "tests/support/fake_server.h"
#include "varve/v1/replication.pb-c.h"

enum { FAKE_PEER_RECORDS_MAX = 4096, FAKE_PEER_SMALL = 0, FAKE_PEER_LARGE = 1 };

enum fake_lie {
    FAKE_HONEST,
    FAKE_LIE_WRONG_BYTES,    /* the first byte of each blob, however it is read */
    FAKE_LIE_TOO_MANY_BYTES, /* one more than there are, likewise */
    FAKE_LIE_ENDLESS,   /* Read and Fetch do not end, and Fetch never gets to its last records */
    FAKE_LIE_SEQ_BACK,  /* the second record of a page is before the first */
    FAKE_LIE_NEXT_BACK, /* next_after_seq is before the last record */
    FAKE_LIE_UNKNOWN_FUNCTION, /* of the first digest */
    FAKE_LIE_UNKNOWN_KIND,
    FAKE_LIE_WRONG_LANE,
    FAKE_LIE_IMPOSSIBLE_SIZE,
    FAKE_LIE_MALFORMED,    /* pages that are no protobuf */
    FAKE_LIE_HUGE_PAGE,    /* of 20 MiB */
    FAKE_LIE_MANY_RECORDS, /* more than were asked for */
    FAKE_LIE_STANDSTILL,   /* empty pages before the end */
    FAKE_LIE_OTHER_BLOB, /* Fetch sends other digests than the feed told; FindMissingBlobs, in another order */
    FAKE_LIES,
};

struct fake_record {
    uint64_t seq;
    int kind; /* Varve__V1__RecordKind */
    int forgotten_kind;
    struct digest digest;
    uint8_t *data; /* owned: of a blob, or an action's result */
    size_t length;
    char instance[32];
    int64_t written_ns;
    uint64_t origin_uid;
    bool lost; /* told, and not there */
};

struct fake_peer {
    struct fake_server *server; /* NULL: it is down */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Guarded by mutex, as all below; before the start, and with the lock, by the test. */
    uint64_t uid;
    enum fake_lie lie;
    bool no_fetch;           /* Fetch is UNIMPLEMENTED */
    bool fetch_hangs;        /* it sends all it has, and does not end */
    const char *wants;       /* "Bearer TOKEN" that calls have to show; NULL: none */
    bool black_hole;         /* calls are taken and never answered */
    uint64_t evicted_to_seq; /* of the small lane: a position before it gives OUT_OF_RANGE, but 0 */
    uint64_t behind_bytes;   /* told in each page */
    int64_t write_time_ns;   /* likewise */
    uint64_t
        read_cut_at; /* Read fails with UNAVAILABLE once it has sent so many bytes; 0: it does not */
    unsigned read_cuts;    /* so many times */
    unsigned page_records; /* told at once; 0: as asked */
    unsigned pause_ms;     /* before blobs are sent */
    struct fake_record *records[2];
    size_t counts[2];
    /* What was seen. */
    unsigned feeds, fetches, batches, reads, actions_asked, finds;
    uint64_t digests_asked; /* by finds */
    uint64_t blobs_sent, bytes_sent;
    uint64_t follower_durable[2]; /* as the last Feed said */
    uint64_t follower_uid;
    size_t read_live, read_live_max;
};

void fake_peer_start(struct fake_peer *peer, uint64_t uid);
/* Its server goes, the log stays; and comes again, on another port. */
void fake_peer_go(struct fake_peer *peer);
void fake_peer_come(struct fake_peer *peer);
void fake_peer_stop(struct fake_peer *peer);
const char *fake_peer_target(const struct fake_peer *peer);
/* Sets or reads a field with the lock. */
#define FAKE_PEER_SET(peer, field, value)                                                          \
    (fake_peer_lock(peer), (void)((peer)->field = (value)), fake_peer_unlock(peer))
#define FAKE_PEER_GET(peer, field)                                                                 \
    (__extension__({                                                                               \
        fake_peer_lock(peer);                                                                      \
        __typeof__((peer)->field) fake_peer_got = (peer)->field;                                   \
        fake_peer_unlock(peer);                                                                    \
        fake_peer_got;                                                                             \
    }))
void fake_peer_lock(struct fake_peer *peer);
void fake_peer_unlock(struct fake_peer *peer);

/* Each becomes durable there at once; the seq. */
uint64_t fake_peer_put(struct fake_peer *peer, struct bytes data, struct digest *digest);
uint64_t fake_peer_put_action(struct fake_peer *peer,
                              const struct digest *action,
                              struct bytes result,
                              int64_t written_ns,
                              uint64_t origin_uid);
uint64_t fake_peer_forget(struct fake_peer *peer, const struct digest *digest, int forgotten_kind);
/* It is told and is not there any more; or is there again. */
void fake_peer_lose(struct fake_peer *peer, const struct digest *digest, bool lost);

#endif
