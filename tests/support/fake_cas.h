/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache in memory behind tests/support/fake_server.h, which goes wrong in the ways that a test
 * asks for. Its coding is protobuf-c's, so that it checks ours.
 */
#ifndef VARVE_TESTS_SUPPORT_FAKE_CAS_H
#define VARVE_TESTS_SUPPORT_FAKE_CAS_H

#include <stdatomic.h>
#include <pthread.h>

#include "base/digest.h"
#include "tests/support/fake_server.h"

struct fake_blob;

enum fake_fault_kind {
    FAKE_FAULT_STATUS,         /* the call fails with `code`; a stream after `after_bytes` */
    FAKE_FAULT_HANG,           /* no answer, ever */
    FAKE_FAULT_MALFORMED,      /* the answer is no protobuf */
    FAKE_FAULT_OVERSIZED,      /* the answer has 20 MiB */
    FAKE_FAULT_EMPTY,          /* the answer is an empty message */
    FAKE_FAULT_WRONG_BYTES,    /* reads: the first byte of the data is another one */
    FAKE_FAULT_TOO_MANY_BYTES, /* Read: one more than there are */
    FAKE_FAULT_EARLY_END,      /* OK after after_bytes; Write: as committed_size */
    FAKE_FAULT_ENTRY,          /* batches: entries of `digest_hex` (NULL: every one) get `code` */
    FAKE_FAULT_TWICE,          /* BatchReadBlobs: entries come a second time, with `code` */
    FAKE_FAULT_NO_ENTRY,       /* batches: nothing is said of them, and nothing is stored */
    FAKE_FAULT_NO_STATUS,      /* BatchUpdateBlobs: stored, and the entry has no status */
    FAKE_FAULT_BAD_STATUS,     /* batches: the entry's status is no protobuf; nothing is stored */
    FAKE_FAULT_ONE_ENTRY, /* batches: as ENTRY, beside others; `times` counts entries, not calls */
};

struct fake_fault {
    const char *method; /* "Write" */
    enum fake_fault_kind kind;
    enum status_code code;
    uint64_t after_bytes;
    const char *digest_hex; /* NULL: any */
    unsigned skip;          /* so many calls go well first */
    unsigned times;         /* so many then fail; 0: none (any more) */
    const char *text;       /* STATUS: what it says; NULL: something */
};

enum { FAKE_FAULTS_MAX = 8, FAKE_METHODS_MAX = 16 };

struct fake_cas {
    /* Set before the start. */
    struct fake_fault faults[FAKE_FAULTS_MAX];
    int64_t batch_total_bytes_max; /* announced, and enforced on the sum of data; 0: none */
    int64_t blob_bytes_max;        /* announced */
    bool no_capabilities;          /* GetCapabilities is UNIMPLEMENTED */
    bool no_query;                 /* QueryWriteStatus is UNIMPLEMENTED */
    size_t unfinished_bytes_max; /* QueryWriteStatus: so much of an upload is left; 0: all of it */
    _Atomic unsigned read_end_pause_ms; /* between the last data of a Read and its status */
    _Atomic unsigned answer_pause_ms; /* before each answer, so that calls are in flight together */
    unsigned store_pause_ms; /* while a call has blobs to store, so that two of one would meet */

    struct fake_server *server;
    pthread_mutex_t mutex;
    struct fake_blob *blobs; /* guarded by mutex, as all below */
    struct {
        char method[32];
        unsigned calls, live, live_max;
    } counts[FAKE_METHODS_MAX];
    uint64_t largest_message_bytes;
    uint64_t write_bytes;         /* data that came by Write */
    unsigned duplicates;          /* blobs that came though they were there */
    struct fake_storing *storing; /* blobs that calls are storing right now */
    unsigned meetings;            /* of two calls that were storing one blob at once */
    uint8_t request_metadata[1024];
    size_t request_metadata_length;
};

void fake_cas_start(struct fake_cas *cas);
void fake_cas_stop(struct fake_cas *cas);
const char *fake_cas_target(const struct fake_cas *cas);

void fake_cas_put(struct fake_cas *cas, struct bytes data, struct digest *digest);
bool fake_cas_has(struct fake_cas *cas, const struct digest *digest);
/* A copy, freed with free(); NULL when it is not there. */
uint8_t *fake_cas_copy(struct fake_cas *cas, const struct digest *digest);
size_t fake_cas_blob_count(struct fake_cas *cas);
unsigned fake_cas_calls(struct fake_cas *cas, const char *method);
unsigned fake_cas_live_max(struct fake_cas *cas, const char *method);

#endif
