/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies on disk, byte by byte. docs/format.md says the same in prose; both change together, with FORMAT_VERSION.
 * All numbers are little-endian; reserved bytes are zero and are checked.
 *
 *   DATA/LOCK                    held (flock) by the process that owns the store
 *   DATA/FORMAT                  one line of text: "varve 1 <node uid, 16 hex digits> <CRC-32C of what stands before, 8 hex digits>\n"
 *   DATA/segments/%016x.seg      the segments, by number; ".new" while being made, ".dead" while being removed
 *   DATA/index/                  RocksDB; may be deleted, is rebuilt from the segments
 *   DATA/scrub                   how far the scrub has come (durability/scrub.h); may be deleted
 *
 * A segment:
 *   [header page, 4096 bytes] [record] [record] ... [footer, once sealed] [zeros up to its allocated size]
 *
 * A record begins at a multiple of 64 bytes: 128 bytes of header, the payload, zeros up to the next multiple of 64.
 * It is valid if and only if its magic, version and reserved bytes are right, its header CRC matches under this
 * segment's uid, it ends inside the segment, and its payload CRC matches. Records of one segment follow each other without a gap,
 * and each one's seq is that of the one before plus 1. A header that is all zero is the end of an unsealed segment.
 *
 * The footer is one entry per record, so that the index can be rebuilt without reading payloads; it is found by the
 * trailer in the last 64 bytes of the file (a sealed segment's file is cut to its end).
 */
#ifndef VARVE_STORE_FORMAT_H
#define VARVE_STORE_FORMAT_H

#include <assert.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/limits.h"
#include "base/status.h"

enum {
    FORMAT_VERSION = 1,
    SEGMENT_HEADER_BYTES = 4096,
    RECORD_HEADER_BYTES = 128,
    RECORD_ALIGNMENT_BYTES = 64,
    FOOTER_ENTRY_BYTES = 64,
    FOOTER_TRAILER_BYTES = 64,
    MANIFEST_CHUNK_BYTES = 24,
};

/* The two lanes: a stream of large blobs never delays a commit of small ones (docs/decisions/0001). */
enum lane { LANE_SMALL = 0, LANE_LARGE = 1, LANE_COUNT = 2 };
const char *lane_name(enum lane lane); /* "small", "large" */

enum record_kind {
    RECORD_BLOB = 1,     /* small lane: a whole blob of at most LIMIT_SMALL_BLOB_BYTES */
    RECORD_CHUNK = 2,    /* large lane: a piece of a larger blob, at blob_offset */
    RECORD_MANIFEST = 3, /* large lane: the places of a blob's chunks; makes the blob exist */
    RECORD_ACTION = 4,   /* small lane: an action result; payload as in store/action_record.h */
    RECORD_FORGET = 5,   /* small lane: the record at the place in the payload is deleted */
};

enum record_codec { RECORD_CODEC_RAW = 0 };

/* Where a record lies. Segment numbers are unique over both lanes and never used again. */
struct place {
    uint64_t segment; /* from 1; below 2^24 */
    uint64_t offset;  /* in bytes from the start of the file; a multiple of 64, below 2^30 */
};

/* 48 bits: segment << 24 | offset / 64. 0 is no place. */
static inline uint64_t place_pack(struct place place)
{
    return place.segment << 24 | place.offset / RECORD_ALIGNMENT_BYTES;
}

static inline struct place place_unpack(uint64_t packed)
{
    return (struct place){.segment = packed >> 24,
                          .offset = (packed & 0xffffff) * RECORD_ALIGNMENT_BYTES};
}

#define SEGMENT_NUMBER_MAX ((UINT64_C(1) << 24) - 1)
#define SEGMENT_BYTES_MAX GIB
/* A round of group commit with its headers and footer entries fits into the smallest. */
#define SEGMENT_BYTES_MIN (8 * MIB)

struct segment_header {
    uint8_t magic[8];       /*  0: "VARVESEG" */
    uint32_t version;       /*  8: FORMAT_VERSION */
    uint8_t lane;           /* 12: enum lane */
    uint8_t reserved_13[3]; /* 13 */
    uint64_t number;        /* 16: as in the file's name */
    uint64_t
        uid; /* 24: random; seeds the records' CRCs, so that bytes of another life never parse */
    uint64_t capacity_bytes; /* 32: allocated size of the file */
    uint64_t node_uid;       /* 40: whose log this is */
    int64_t created_wall_ns; /* 48 */
    uint8_t reserved_56[4];  /* 56 */
    uint32_t crc32c;         /* 60: over bytes 0 to 59 */
};
static_assert(sizeof(struct segment_header) == 64, "a segment header is one line");
static_assert(offsetof(struct segment_header, crc32c) == 60, "the CRC is last");

/* The first page of a segment has its header twice, in its first and its last sector: without the uid no record can be read. */
struct segment_header_page {
    struct segment_header first;  /*    0 */
    uint8_t reserved_64[3520];    /*   64 */
    struct segment_header second; /* 3584: the same */
    uint8_t reserved_3648[448];   /* 3648 */
};
static_assert(sizeof(struct segment_header_page) == SEGMENT_HEADER_BYTES,
              "the headers fill a page");
static_assert(offsetof(struct segment_header_page, second) % 512 == 0,
              "the second is in a sector of its own");

struct record_header {
    uint32_t magic;          /*  0: RECORD_MAGIC */
    uint8_t version;         /*  4: FORMAT_VERSION */
    uint8_t kind;            /*  5: enum record_kind */
    uint8_t digest_function; /*  6: enum digest_function */
    uint8_t codec;           /*  7: enum record_codec, of the payload */
    uint64_t seq;            /*  8: of this lane; the record before has seq - 1 */
    uint64_t payload_bytes;  /* 16: stored length */
    uint64_t blob_size;      /* 24: size_bytes of the digest */
    uint64_t blob_offset;    /* 32: CHUNK: where its bytes begin in the blob; else 0 */
    uint8_t digest_bytes;    /* 40: length of the hash */
    uint8_t reserved_41[15]; /* 41 */
    uint32_t
        payload_crc32c; /* 56: over the stored payload, not seeded (the header's CRC covers it) */
    uint32_t
        header_crc32c; /* 60: over bytes 0 to 59 and 64 to 127, seeded with the segment's uid */
    uint8_t digest
        [64]; /* 64: hash, zero-filled. BLOB, CHUNK, MANIFEST, FORGET: of the blob; ACTION: of the action */
};
static_assert(sizeof(struct record_header) == RECORD_HEADER_BYTES,
              "the record header is two lines");
static_assert(offsetof(struct record_header, payload_crc32c) == 56, "CRCs close the first line");
static_assert(offsetof(struct record_header, digest) == 64, "the digest is the second line");

#define RECORD_MAGIC UINT32_C(0x31525653) /* "SVR1" as bytes */

/* One chunk in a MANIFEST's payload; chunks follow each other in the order of the blob and cover it without a gap. */
struct manifest_chunk {
    uint64_t place;          /*  0: place_pack() of the CHUNK record */
    uint64_t blob_offset;    /*  8 */
    uint32_t payload_bytes;  /* 16: from 1 to LIMIT_CHUNK_BYTES */
    uint32_t payload_crc32c; /* 20: as in the CHUNK's header */
};
static_assert(sizeof(struct manifest_chunk) == MANIFEST_CHUNK_BYTES, "24 bytes a chunk");

/*
 * The payload of a FORGET: what is gone and why; for an ACTION its instance name follows. One that says 0 in fixed_bytes is of the
 * first form and ends before origin_uid. Read by store/forget_record.h alone.
 */
struct forget_payload {
    uint64_t
        place; /*  0: place_pack() of the forgotten BLOB, MANIFEST or ACTION record; 0: this log has none, others may */
    uint8_t kind;        /*  8: enum record_kind of it */
    uint8_t reason;      /*  9: enum forget_reason */
    uint8_t fixed_bytes; /* 10: 32, the length of this struct; 0 stands for 24 */
    uint8_t reserved[5]; /* 11 */
    int64_t wall_ns;     /* 16: when it was ordered */
    uint64_t origin_uid; /* 24: of the node that ordered it; 0: of the one whose log this is */
};
static_assert(sizeof(struct forget_payload) == 32, "a FORGET's fixed part is 32 bytes");
static_assert(offsetof(struct forget_payload, origin_uid) == 24, "the first form ends before it");
enum forget_reason { FORGET_DAMAGED = 1, FORGET_PURGED = 2, FORGET_EVICTED = 3 };

/*
 * One record in a sealed segment's footer: what the index needs of it. The n-th entry has seq first_seq + n. A hash of
 * more than 32 bytes does not fit: its reader goes to the record.
 */
struct footer_entry {
    uint32_t offset_lines;   /*  0: offset / 64 */
    uint8_t kind;            /*  4: as in the record header, like all that follow */
    uint8_t digest_function; /*  5 */
    uint8_t digest_bytes;    /*  6 */
    uint8_t codec;           /*  7 */
    uint64_t blob_size;      /*  8 */
    uint64_t blob_offset;    /* 16 */
    uint32_t payload_bytes;  /* 24 */
    uint32_t payload_crc32c; /* 28 */
    uint8_t digest[32];      /* 32: the first 32 bytes of the hash */
};
static_assert(sizeof(struct footer_entry) == FOOTER_ENTRY_BYTES, "one line a record");

struct footer_trailer {
    uint8_t magic[8];     /*  0: "VARVEEND" */
    uint64_t segment_uid; /*  8 */
    uint64_t entries;     /* 16 */
    uint64_t records_end; /* 24: where the records end and the footer begins */
    uint64_t first_seq;  /* 32: of the first record; with no records the seq that would have come */
    uint64_t last_seq;   /* 40: first_seq - 1 when there is none */
    uint8_t lane;        /* 48: as in the segment's header, for when that is lost */
    uint8_t reserved[7]; /* 49 */
    uint32_t entries_crc32c; /* 56: over the entries, seeded with the uid */
    uint32_t crc32c;         /* 60: over bytes 0 to 59, seeded with the uid */
};
static_assert(sizeof(struct footer_trailer) == FOOTER_TRAILER_BYTES, "the trailer is one line");

static inline uint64_t record_stored_bytes(uint64_t payload_bytes)
{
    return (RECORD_HEADER_BYTES + payload_bytes + RECORD_ALIGNMENT_BYTES - 1) /
           RECORD_ALIGNMENT_BYTES * RECORD_ALIGNMENT_BYTES;
}

/* The seed of every CRC in a segment of this uid. */
uint32_t format_crc_seed(uint64_t uid);

void segment_header_fill(struct segment_header_page *page,
                         enum lane lane,
                         uint64_t number,
                         uint64_t uid,
                         uint64_t capacity_bytes,
                         uint64_t node_uid,
                         int64_t created_wall_ns);
/*
 * The header that may be believed, in page: the first, or else the second. NULL with DATA_LOSS when neither is sound; the text
 * says what is wrong with the first. *damaged (may be NULL): something in the page is not as it was written. number: as in the
 * file's name.
 */
const struct segment_header *segment_header_of(const struct segment_header_page *page,
                                               uint64_t number,
                                               bool *damaged,
                                               struct status *status);

/* Whether it is a trailer; nothing is said about the entries, nor whether it belongs to this segment. */
bool footer_trailer_valid(const struct footer_trailer *trailer);
void footer_trailer_seal(
    struct footer_trailer *trailer); /* magic and CRC; every other field is set */

/* Computes header_crc32c; every other field is set. */
void record_header_seal(struct record_header *header, uint64_t uid);
/* True if the header is one of this segment; nothing is said about the payload. reason (may be NULL): static text on false. */
bool record_header_valid(const struct record_header *header, uint64_t uid, const char **reason);
bool record_header_is_end(const struct record_header *header); /* all zero */
void record_header_digest(const struct record_header *header, struct digest *digest);

#endif
