/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of a blob: digest function, hash and size (REAPI Digest). Hashing through OpenSSL with
 * the algorithm fetched once and one context per hasher, because the implicit fetch does not scale.
 */
#ifndef VARVE_BASE_DIGEST_H
#define VARVE_BASE_DIGEST_H

#include "base/bytes.h"
#include "base/status.h"

/*
 * The numbers are those of REAPI's DigestFunction.Value. Those that we serve: see
 * digest_function_supported().
 */
enum digest_function {
    DIGEST_FUNCTION_UNKNOWN = 0,
    DIGEST_FUNCTION_SHA256 = 1,
};

enum {
    DIGEST_HASH_BYTES_MAX = 64, /* SHA-512, for which the disk format leaves room */
    DIGEST_HASH_HEX_MAX = 2 * DIGEST_HASH_BYTES_MAX,
    DIGEST_TEXT_BYTES_MAX = DIGEST_HASH_HEX_MAX + 24, /* "hash/size" and the NUL */
    SHA256_HASH_BYTES = 32,
};

/*
 * A plain value. Bytes of hash past hash_length are zero, so that memcmp of the struct's hash
 * works.
 */
struct digest {
    uint8_t hash[DIGEST_HASH_BYTES_MAX];
    uint8_t hash_length; /* in bytes */
    uint8_t function;    /* enum digest_function */
    int64_t size_bytes;  /* of the uncompressed blob; never negative in a valid digest */
};

bool digest_function_supported(enum digest_function function);

/* "SHA256": the functions served, for error texts. Static storage. */
const char *digest_functions_supported_text(void);

/*
 * Checks and converts what came from a client: lower-case hex of the function's full length, size
 * >= 0.
 *
 * function: DIGEST_FUNCTION_UNKNOWN infers it from the hash length (REAPI on digest functions).
 * Errors: INVALID_ARGUMENT naming what is wrong and, for functions, which are supported.
 */
MUST_CHECK bool digest_parse(enum digest_function function,
                             struct bytes hash_hex,
                             int64_t size_bytes,
                             struct digest *digest,
                             struct status *status);

/* "<hex>/<size>" as text; returns text. */
const char *digest_text(const struct digest *digest, char text[DIGEST_TEXT_BYTES_MAX]);

/* Lower-case hex of the hash with a NUL; returns hex. */
const char *digest_hex(const struct digest *digest, char hex[DIGEST_HASH_HEX_MAX + 1]);

/* Parses "<hex>/<size>" (the command line's form). INVALID_ARGUMENT. */
MUST_CHECK bool digest_parse_text(struct bytes text, struct digest *digest, struct status *status);

bool digest_equal(const struct digest *a, const struct digest *b);

/* Zero-length data: always there, never stored (REAPI). */
bool digest_is_empty_blob(const struct digest *digest);

/* The digest of the whole of data. */
void digest_of_bytes(enum digest_function function, struct bytes data, struct digest *digest);
void digest_of_list(enum digest_function function, struct bytes_list data, struct digest *digest);

/*
 * Hashes a blob that comes in pieces. One thread at a time.
 * hasher_new() never fails but for memory, which it asserts (a hasher is some 300 bytes).
 */
struct hasher;
struct hasher *hasher_new(enum digest_function function);
void hasher_free(struct hasher *hasher);
void hasher_reset(struct hasher *hasher);
void hasher_update(struct hasher *hasher, struct bytes data);
/* The digest of what was given so far; the hasher must then be reset before it is used again. */
void hasher_finish(struct hasher *hasher, struct digest *digest);
/* The same, and the hasher goes on. */
void hasher_peek(const struct hasher *hasher, struct digest *digest);

#endif
