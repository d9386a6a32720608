/* SPDX-License-Identifier: Apache-2.0 */
#include "server/access_keys.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEYS_MAX = 64, RSA_BITS_MIN = 2048, ES256_NUMBER_BYTES = 32, ES256_DER_BYTES_MAX = 80 };

struct key {
    enum jwt_algorithm algorithm;
    EVP_PKEY *key; /* owned */
};

struct access_keys {
    struct key keys[KEYS_MAX];
    size_t count;
};

static bool load_all(FILE *file, const char *path, struct access_keys *keys, struct status *status);
static EVP_PKEY *key_of_pem(const char *name, const unsigned char *data, long length, bool *known);
static bool algorithm_of(EVP_PKEY *key, enum jwt_algorithm *algorithm);
static bool verify(EVP_PKEY *key,
                   const EVP_MD *hash,
                   const struct jwt *jwt,
                   struct bytes signature);
static size_t der_of_es256(const struct jwt *jwt, uint8_t der[ES256_DER_BYTES_MAX]);

bool access_keys_load(const char *path, struct access_keys **keys, struct status *status)
{
    FILE *const file = fopen(path, "re");
    if (file == NULL) {
        status_fail_errno(status, errno, "%s", path);
        status->code = STATUS_INVALID_ARGUMENT;
        return false;
    }
    struct access_keys *const made = calloc(1, sizeof(*made));
    const bool ok = made == NULL ? status_fail_errno(status, ENOMEM, "keys")
                                 : load_all(file, path, made, status);
    ERR_clear_error();
    fclose(file);
    if (ok)
        *keys = made;
    else
        access_keys_free(made);
    return ok;
}

static bool load_all(FILE *file, const char *path, struct access_keys *keys, struct status *status)
{
    char *name;
    char *header;
    unsigned char *data;
    long length;
    while (PEM_read(file, &name, &header, &data, &length) == 1) {
        bool known;
        enum jwt_algorithm algorithm = JWT_RS256;
        EVP_PKEY *const key = key_of_pem(name, data, length, &known);
        const bool usable = key != NULL && algorithm_of(key, &algorithm);
        OPENSSL_free(name);
        OPENSSL_free(header);
        OPENSSL_free(data);
        if (!usable || keys->count == KEYS_MAX) {
            EVP_PKEY_free(key);
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               known ? "%s: key %zu is neither RSA of 2048 bits or more, P-256 nor "
                                       "Ed25519, or there are too many"
                                     : "%s: part %zu is no public key and no certificate",
                               path, keys->count + 1);
        }
        keys->keys[keys->count++] = (struct key){.algorithm = algorithm, .key = key};
    }
    return keys->count > 0 ||
           status_fail(status, STATUS_INVALID_ARGUMENT, "%s has no public key in PEM", path);
}

static EVP_PKEY *key_of_pem(const char *name, const unsigned char *data, long length, bool *known)
{
    *known = true;
    if (strcmp(name, PEM_STRING_PUBLIC) == 0)
        return d2i_PUBKEY(NULL, &data, length);
    if (strcmp(name, PEM_STRING_X509) == 0) {
        X509 *const certificate = d2i_X509(NULL, &data, length);
        EVP_PKEY *const key = certificate != NULL ? X509_get_pubkey(certificate) : NULL;
        X509_free(certificate);
        return key;
    }
    *known = false;
    return NULL;
}

static bool algorithm_of(EVP_PKEY *key, enum jwt_algorithm *algorithm)
{
    char curve[64] = "";
    if (EVP_PKEY_is_a(key, "RSA") && EVP_PKEY_get_bits(key) >= RSA_BITS_MIN) {
        *algorithm = JWT_RS256;
        return true;
    }
    if (EVP_PKEY_is_a(key, "ED25519")) {
        *algorithm = JWT_EDDSA;
        return true;
    }
    *algorithm = JWT_ES256;
    return EVP_PKEY_is_a(key, "EC") &&
           EVP_PKEY_get_utf8_string_param(key, OSSL_PKEY_PARAM_GROUP_NAME, curve, sizeof(curve),
                                          NULL) == 1 &&
           strcmp(curve, SN_X9_62_prime256v1) == 0;
}

void access_keys_free(struct access_keys *keys)
{
    if (keys == NULL)
        return;
    for (size_t i = 0; i < keys->count; i++)
        EVP_PKEY_free(keys->keys[i].key);
    free(keys);
}

size_t access_keys_count(const struct access_keys *keys)
{
    return keys->count;
}

bool access_keys_verify(const struct access_keys *keys, const struct jwt *jwt)
{
    uint8_t der[ES256_DER_BYTES_MAX];
    struct bytes signature = bytes_of(jwt->signature, jwt->signature_bytes);
    if (jwt->algorithm == JWT_ES256)
        signature = bytes_of(der, der_of_es256(jwt, der));
    const EVP_MD *const hash = jwt->algorithm == JWT_EDDSA ? NULL : EVP_sha256();
    bool right = false;
    for (size_t i = 0; i < keys->count && !right; i++)
        right = keys->keys[i].algorithm == jwt->algorithm &&
                verify(keys->keys[i].key, hash, jwt, signature);
    ERR_clear_error();
    return right;
}

static bool verify(EVP_PKEY *key, const EVP_MD *hash, const struct jwt *jwt, struct bytes signature)
{
    EVP_MD_CTX *const context = EVP_MD_CTX_new();
    const bool right = context != NULL && signature.length > 0 &&
                       EVP_DigestVerifyInit(context, NULL, hash, NULL, key) == 1 &&
                       EVP_DigestVerify(context, signature.data, signature.length,
                                        jwt->signed_text.data, jwt->signed_text.length) == 1;
    EVP_MD_CTX_free(context);
    return right;
}

/* Two numbers side by side, as RFC 7518 has them, as OpenSSL wants them; 0: it is none. */
static size_t der_of_es256(const struct jwt *jwt, uint8_t der[ES256_DER_BYTES_MAX])
{
    if (jwt->signature_bytes != 2 * (size_t)ES256_NUMBER_BYTES)
        return 0;
    ECDSA_SIG *const pair = ECDSA_SIG_new();
    BIGNUM *r = BN_bin2bn(jwt->signature, ES256_NUMBER_BYTES, NULL);
    BIGNUM *s = BN_bin2bn(jwt->signature + ES256_NUMBER_BYTES, ES256_NUMBER_BYTES, NULL);
    size_t length = 0;
    if (pair != NULL && r != NULL && s != NULL && ECDSA_SIG_set0(pair, r, s) == 1) {
        r = NULL; /* the pair's from now on */
        s = NULL;
        uint8_t *to = der;
        const int needed = i2d_ECDSA_SIG(pair, NULL);
        if (needed > 0 && needed <= ES256_DER_BYTES_MAX)
            length = (size_t)i2d_ECDSA_SIG(pair, &to);
    }
    BN_free(r);
    BN_free(s);
    ECDSA_SIG_free(pair);
    return length;
}
