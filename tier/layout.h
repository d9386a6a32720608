/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How objects are named in a bucket:
 *
 *   PREFIX/cas/sha256/AA/HASH             a blob, as it is; AA are the first two digits of HASH
 *   PREFIX/ac/INSTANCE/sha256/AA/HASH     the newest result of the action HASH
 *   PREFIX/pack/AA/NUMBER                 small blobs, one after the other; NUMBER: tier/pack.h, 16 hex digits, AA its last two
 *   PREFIX/idx/NUMBER                     which blobs the pack of this number has, and where there; or which blobs are deleted in packs
 *
 * Names have nothing but [0-9a-z/.-], so that no server, proxy or tool reads them another way. INSTANCE: the instance name in small
 * letters, digits and dots, every other byte as -xx; "-" for the empty one; "--" and its SHA-256 for one that gets longer than
 * LAYOUT_INSTANCE_BYTES_MAX.
 */
#ifndef VARVE_TIER_LAYOUT_H
#define VARVE_TIER_LAYOUT_H

#include "base/digest.h"
#include "tier/driver.h"

enum { LAYOUT_PREFIX_BYTES_MAX = 128, LAYOUT_INSTANCE_BYTES_MAX = 128 };

/* prefix: checked by layout_check_prefix(). */
void layout_blob_key(const char *prefix,
                     const struct digest *digest,
                     char key[BUCKET_KEY_BYTES_MAX]);
void layout_action_key(const char *prefix,
                       const struct digest *action,
                       struct bytes instance,
                       char key[BUCKET_KEY_BYTES_MAX]);

/* What the keys of all blobs begin with. */
void layout_blobs_prefix(const char *prefix, char key[BUCKET_KEY_BYTES_MAX]);
/* The blob whose key this is, of an object of that size; false: it is none. */
bool layout_blob_of_key(const char *prefix,
                        const char *key,
                        uint64_t size_bytes,
                        struct digest *digest);

void layout_pack_key(const char *prefix, uint64_t number, char key[BUCKET_KEY_BYTES_MAX]);
void layout_pack_index_key(const char *prefix, uint64_t number, char key[BUCKET_KEY_BYTES_MAX]);
/* What the keys of all of those begin with; they are in the order of their numbers. */
void layout_pack_indexes_prefix(const char *prefix, char key[BUCKET_KEY_BYTES_MAX]);
/* The number in such a key; 0: it is none. */
uint64_t layout_pack_index_of_key(const char *prefix, const char *key);

/* 1 to LAYOUT_PREFIX_BYTES_MAX of [0-9a-z/.-], each part beginning with a letter or digit. INVALID_ARGUMENT. */
MUST_CHECK bool layout_check_prefix(const char *prefix, struct status *status);

#endif
