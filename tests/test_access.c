/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that everybody may do exactly what the table in docs/operations.md says: every RPC and every HTTP verb, asked by somebody
 * with each role alone, with the role in another instance alone, with every role but the one, and by nobody; that tokens,
 * passwords, JWTs and certificates are told from wrong ones; that a changed file counts and a broken one does not; that who
 * guesses is slowed down and who is right is not; and that nothing of what anybody shows gets into the log.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <crypt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/thread.h"
#include "server/access.h"
#include "server/methods.h"
#include "server/server.h"
#include "tests/support/http_client.h"
#include "tests/support/messages.h"
#include "tests/support/rpc_client.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

static struct temp_dir directory;
static struct metrics metrics;
static struct access *access_;
static struct status status;
static char text[RPC_TEXT_BYTES_MAX];

static const char *path_of(const char *name)
{
    static char paths[4][TEMP_DIR_PATH_BYTES_MAX + 64];
    static unsigned int next;
    char *const path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", directory.path, name);
    return path;
}

static void put_file(const char *name, const char *content)
{
    /* Of another inode each time, so that no two writes look alike. */
    const char *const path = path_of(name);
    char fresh[TEMP_DIR_PATH_BYTES_MAX + 80];
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    FILE *const file = fopen(fresh, "we");
    ck_assert_ptr_nonnull(file);
    fputs(content, file);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(rename(fresh, path), 0);
}

static const char *sha256_of(const char *secret, char hex[DIGEST_HASH_HEX_MAX + 1])
{
    struct digest digest;
    digest_of_bytes(DIGEST_FUNCTION_SHA256, bytes_of_string(secret), &digest);
    return digest_hex(&digest, hex);
}

static void setup(void)
{
    temp_dir_make(&directory);
}

static void teardown(void)
{
    temp_dir_remove(&directory);
}

/* ---- what the file may say */

START_TEST(file_that_is_wrong_is_told_by_line_and_without_its_secrets)
{
    static const struct {
        const char *content;
        const char *says;
    } wrong[] = {
        {"", "allows nobody anything"},
        {"# nothing\n\n", "allows nobody anything"},
        {"allow read\n", "line 1: \"allow ROLE"},
        {"\nallow read to nobody\n", "line 2: \"nobody\" is none of"},
        {"allow reed to anonymous\n", "\"reed\" is none of read"},
        {"allow read to user:\n", "a name has 1 to"},
        {"allow read to anonymous in a//b\n", "line 1"},
        {"allow read to anonymous on a\n", "line 1: \"allow ROLE"},
        {"permit read to anonymous\n", "begins with none of"},
        {"token ci hunter2-hunter2\n", "never the token"},
        {"token ci\n", "token NAME SHA256"},
        {"passwords /no/such/file\n", "No such file"},
        {"jwt /no/such/file issuer=a audience=b\n", "No such file"},
        {"jwt /no/such/file issuer=a b=c\n", "none of issuer="},
        {"jwt /no/such/file issuer=a\n", "jwt FILE"},
        {"certificate x serial 5\n", "certificate NAME subject|san TEXT"},
        {"group g\n", "group NAME MEMBER"},
        {"allow read to \"anonymous\n", "a quote is not closed"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        put_file("access", wrong[i].content);
        status = (struct status){0};
        ck_assert_msg(!access_new(path_of("access"), clock_real(), &metrics, &access_, &status),
                      "%s", wrong[i].content);
        ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
        ck_assert_msg(strstr(status.message, wrong[i].says) != NULL, "%s: %s", wrong[i].content,
                      status.message);
        ck_assert_ptr_null(strstr(status.message, "hunter2"));
    }
}
END_TEST

START_TEST(password_hashes_that_are_weak_malformed_or_too_slow_are_refused)
{
    static const struct {
        const char *line;
        const char *says;
    } wrong[] = {
        {"bob:plaintext\n", "none of bcrypt"},
        {"bob:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n", "none of bcrypt"},
        {"bob:$apr1$abc$xyz\n", "none of bcrypt"},
        {"bob\n", "USER:HASH"},
        {":$6$abc$xyz\n", "USER:HASH"},
        {"bob:$2y$31$abcdefghijklmnopqrstuu5Lo0g67CiD3M4RpN1BmBb4Crp5w7dbK\n", "above 14"},
        {"bob:$6$rounds=99999999$abc$xyz\n", "1000000 rounds"},
        {"bob:$6$abc$xyz\nbob:$6$abc$xyz\n", "there twice"},
    };
    put_file("access", "passwords htpasswd\nallow read to users\n");
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        put_file("htpasswd", wrong[i].line);
        status = (struct status){0};
        ck_assert_msg(!access_new(path_of("access"), clock_real(), &metrics, &access_, &status),
                      "%s", wrong[i].line);
        ck_assert_msg(strstr(status.message, wrong[i].says) != NULL, "%s: %s", wrong[i].line,
                      status.message);
        ck_assert_ptr_null(strstr(status.message, "xyz"));
    }
}
END_TEST

/* ---- who is it: access alone, with its thread */

static struct thread thread;

static void run_access(void *argument)
{
    while (access_step(argument))
        continue;
}

static void open_access(void)
{
    ck_assert_msg(access_new(path_of("access"), clock_real(), &metrics, &access_, &status), "%s",
                  status.message);
    ck_assert(thread_start(&thread, "access", 0, run_access, access_, &status));
}

static void close_access(void)
{
    access_stop(access_);
    thread_join(&thread);
    access_free(access_);
}

struct asked {
    struct access_question question;
    struct lock lock;
    struct condition answered;
    bool done;
};

static void on_done(struct access_question *question)
{
    struct asked *const asked = CONTAINER_OF(question, struct asked, question);
    lock_acquire(&asked->lock);
    asked->done = true;
    condition_signal(&asked->answered);
    lock_release(&asked->lock);
}

/* Whoever shows this: YES or NO, with its caller, which lasts until the next. */
static struct access_caller caller;

static enum access_answer show_from(const char *authorization,
                                    struct bytes certificate,
                                    const char *peer)
{
    const struct access_shown shown = {
        .authorization = bytes_of_string(authorization), .certificate = certificate, .peer = peer};
    access_caller_clear(&caller);
    status = (struct status){0};
    const enum access_answer answer = access_authenticate(access_, &shown, &caller, &status);
    if (answer != ACCESS_LATER)
        return answer;
    struct asked asked = {.question = {.done = on_done, .shown = shown}};
    lock_init(&asked.lock, LOCK_RANK_LEAF);
    condition_init(&asked.answered);
    access_ask(access_, &asked.question);
    lock_acquire(&asked.lock);
    while (!asked.done)
        condition_wait(&asked.answered, &asked.lock);
    lock_release(&asked.lock);
    condition_destroy(&asked.answered);
    lock_destroy(&asked.lock);
    caller = asked.question.caller;
    status = asked.question.status;
    return asked.question.answer;
}

static enum access_answer show(const char *authorization)
{
    return show_from(authorization, bytes_of(NULL, 0), "ipv4:10.1.2.3:456");
}

static void assert_is(const char *authorization, const char *user)
{
    ck_assert_msg(show(authorization) == ACCESS_YES, "%s: %s", authorization, status.message);
    ck_assert_str_eq(access_caller_name(&caller), user);
}

static void assert_is_nobody(const char *authorization, const char *peer)
{
    ck_assert_msg(show_from(authorization, bytes_of(NULL, 0), peer) == ACCESS_NO, "%s",
                  authorization);
    ck_assert_int_eq(status.code, STATUS_UNAUTHENTICATED);
}

static bool may(enum method_role role, const char *instance)
{
    return access_permits(&caller, role, bytes_of_string(instance));
}

static const char *basic_of(const char *login, char to[256])
{
    char encoded[200];
    EVP_EncodeBlock((unsigned char *)encoded, (const unsigned char *)login, (int)strlen(login));
    snprintf(to, 256, "Basic %s", encoded);
    return to;
}

START_TEST(tokens_and_passwords_tell_who_somebody_is_and_wrong_ones_are_refused)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char content[1024];
    char basic[256];
    struct crypt_data data = {0};
    snprintf(content, sizeof(content),
             "token ci sha256:%s\npasswords htpasswd\ngroup g ci\nallow read to anonymous\n"
             "allow write-cas to group:g in main\nallow write-ac to users in \"\"\n"
             "allow admin to user:bob\n",
             sha256_of("the-token-of-ci", hex));
    put_file("access", content);
    snprintf(content, sizeof(content), "# users\nbob:%s\n",
             crypt_r("se:cret", "$6$rounds=1000$saltsalt", &data));
    strcat(content, "eve:");
    strcat(content, crypt_r("eve's", "$2b$04$abcdefghijklmnopqrstuu", &data));
    strcat(content, "\n");
    put_file("htpasswd", content);
    open_access();

    assert_is("", "anonymous");
    ck_assert(may(ROLE_READ, "any/where"));
    ck_assert(!may(ROLE_WRITE_AC, ""));
    assert_is("Bearer the-token-of-ci", "ci");
    assert_is("bearer   the-token-of-ci ", "ci");
    assert_is(basic_of("ci:the-token-of-ci", basic), "ci");
    ck_assert(may(ROLE_READ, "x") && may(ROLE_WRITE_CAS, "main") &&
              may(ROLE_WRITE_CAS, "main/sub"));
    ck_assert(!may(ROLE_WRITE_CAS, "mainly") && !may(ROLE_WRITE_CAS, "") &&
              !may(ROLE_ADMIN, "main"));
    ck_assert(may(ROLE_WRITE_AC, "") && !may(ROLE_WRITE_AC, "main"));
    for (int i = 0; i < 3; i++) { /* the second time it is known */
        assert_is(basic_of("bob:se:cret", basic), "bob");
        ck_assert(may(ROLE_ADMIN, "x"));
        assert_is(basic_of("eve:eve's", basic), "eve");
        ck_assert(!may(ROLE_ADMIN, "x"));
    }
    assert_is_nobody("Bearer the-token-of-cj", "ipv4:10.0.0.1:1");
    assert_is_nobody(basic_of("bob:secret", basic), "ipv4:10.0.0.2:1");
    assert_is_nobody(basic_of("bob:", basic), "ipv4:10.0.0.3:1");
    assert_is_nobody(basic_of("nobody:se:cret", basic), "ipv4:10.0.0.4:1");
    assert_is_nobody(basic_of("eve:the-token-of-ci", basic), "ipv4:10.0.0.5:1");
    assert_is_nobody("Basic %%%", "ipv4:10.0.0.6:1");
    assert_is_nobody("Digest username=bob", "ipv4:10.0.0.7:1");
    assert_is_nobody("Bearer ", "ipv4:10.0.0.8:1");
    access_caller_clear(&caller);
    close_access();
}
END_TEST

/* ---- JWT */

static EVP_PKEY *key_of(const char *type)
{
    if (strcmp(type, "RS256") == 0)
        return EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)2048);
    if (strcmp(type, "ES256") == 0)
        return EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256");
    return EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
}

static void encode_url(const void *data, size_t length, char *to)
{
    EVP_EncodeBlock((unsigned char *)to, data, (int)length);
    to[strcspn(to, "=")] = '\0';
    for (char *at = to; *at != '\0'; at++)
        *at = *at == '+' ? '-' : *at == '/' ? '_' : *at;
}

/* "Bearer " and the token. */
static const char *sign(EVP_PKEY *key, const char *algorithm, const char *claims, char to[4096])
{
    char header[64];
    unsigned char signature[1024];
    size_t length = sizeof(signature);
    char *const token = to + strlen("Bearer ");
    snprintf(header, sizeof(header), "{\"typ\":\"JWT\",\"alg\":\"%s\"}", algorithm);
    strcpy(to, "Bearer ");
    encode_url(header, strlen(header), token);
    strcat(token, ".");
    encode_url(claims, strlen(claims), token + strlen(token));
    EVP_MD_CTX *const context = EVP_MD_CTX_new();
    const bool pure = EVP_PKEY_is_a(key, "ED25519") == 1;
    ck_assert_int_eq(EVP_DigestSignInit(context, NULL, pure ? NULL : EVP_sha256(), NULL, key), 1);
    ck_assert_int_eq(
        EVP_DigestSign(context, signature, &length, (const unsigned char *)token, strlen(token)),
        1);
    EVP_MD_CTX_free(context);
    if (EVP_PKEY_is_a(key, "EC") == 1) {
        const unsigned char *der = signature;
        ECDSA_SIG *const pair = d2i_ECDSA_SIG(NULL, &der, (long)length);
        unsigned char flat[64];
        BN_bn2binpad(ECDSA_SIG_get0_r(pair), flat, 32);
        BN_bn2binpad(ECDSA_SIG_get0_s(pair), flat + 32, 32);
        memcpy(signature, flat, 64);
        length = 64;
        ECDSA_SIG_free(pair);
    }
    strcat(token, ".");
    encode_url(signature, length, token + strlen(token));
    return to;
}

START_TEST(jwt_counts_only_with_a_signature_of_its_issuer_for_us_and_now)
{
    static const char *const types[] = {"RS256", "ES256", "EdDSA"};
    enum { TYPES = ARRAY_LENGTH(types) };
    EVP_PKEY *keys[TYPES];
    EVP_PKEY *stranger[TYPES];
    char token[4096];
    char claims[1024];
    const long long now = (long long)(clock_wall_ns(clock_real()) / NS_PER_S);
    FILE *const file = fopen(path_of("issuer.pem"), "we");
    for (size_t i = 0; i < TYPES; i++) {
        keys[i] = key_of(types[i]);
        stranger[i] = key_of(types[i]);
        ck_assert_int_eq(PEM_write_PUBKEY(file, keys[i]), 1);
    }
    fclose(file);
    put_file("access", "jwt issuer.pem issuer=https://ci audience=varve prefix=ci/ groups=teams\n"
                       "allow read to users\nallow write-ac to group:release\n");
    open_access();
    for (size_t i = 0; i < TYPES; i++) {
        snprintf(claims, sizeof(claims),
                 "{\"iss\":\"https://ci\",\"aud\":[\"x\",\"varve\"],\"sub\":\"job-%zu\","
                 "\"exp\":%lld,\"nbf\":%lld,\"teams\":[\"dev\",\"release\"]}",
                 i, now + 100, now - 100);
        char user[32];
        snprintf(user, sizeof(user), "ci/job-%zu", i);
        for (int again = 0; again < 2; again++)
            assert_is(sign(keys[i], types[i], claims, token), user);
        ck_assert(may(ROLE_WRITE_AC, "x"));

        assert_is_nobody(sign(stranger[i], types[i], claims, token), "ipv4:1.0.0.1:1");
        /* Another algorithm than the key's, none at all, and one byte of the signature. */
        assert_is_nobody(sign(keys[i], types[(i + 1) % TYPES], claims, token), "ipv4:1.0.0.2:1");
        assert_is_nobody(sign(keys[i], "none", claims, token), "ipv4:1.0.0.3:1");
        assert_is_nobody(sign(keys[i], "HS256", claims, token), "ipv4:1.0.0.4:1");
        sign(keys[i], types[i], claims, token);
        char *const byte = strrchr(token, '.') + 5;
        *byte = *byte == 'A' ? 'B' : 'A';
        assert_is_nobody(token, "ipv4:1.0.0.5:1");
        strcpy(strrchr(token, '.') + 1, "");
        assert_is_nobody(token, "ipv4:1.0.0.6:1");
    }
    static const char *const wrong[] = {
        "{\"iss\":\"https://other\",\"aud\":\"varve\",\"sub\":\"a\",\"exp\":@}",
        "{\"iss\":\"https://ci\",\"aud\":\"other\",\"sub\":\"a\",\"exp\":@}",
        "{\"iss\":\"https://ci\",\"aud\":[],\"sub\":\"a\",\"exp\":@}",
        "{\"iss\":\"https://ci\",\"sub\":\"a\",\"exp\":@}",
        "{\"aud\":\"varve\",\"sub\":\"a\",\"exp\":@}",
        "{\"iss\":\"https://ci\",\"aud\":\"varve\",\"exp\":@}",
        "{\"iss\":\"https://ci\",\"aud\":\"varve\",\"sub\":7,\"exp\":@}",
        "{\"iss\":\"https://ci\",\"aud\":\"varve\",\"sub\":\"\",\"exp\":@}",
        "{\"iss\":\"https://ci\",\"aud\":\"varve\",\"sub\":\"a\",\"exp\":\"@\"}",
        "{\"aud\":\"varve\",\"iss\":\"x\",\"iss\":\"https://ci\",\"sub\":\"a\",\"exp\":@}",
        "{\"iss\":\"https://ci\",\"aud\":\"varve\",\"sub\":\"a\",\"exp\":@,\"nbf\":4000000000}",
        "[@]",
    };
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        char peer[32];
        snprintf(peer, sizeof(peer), "ipv4:2.0.0.%zu:1", i);
        const size_t before = strcspn(wrong[i], "@");
        snprintf(claims, sizeof(claims), "%.*s%lld%s", (int)before, wrong[i], now + 100,
                 wrong[i] + before + 1);
        assert_is_nobody(sign(keys[0], types[0], claims, token), peer);
    }
    snprintf(claims, sizeof(claims),
             "{\"iss\":\"https://ci\",\"aud\":\"varve\",\"sub\":\"a\",\"exp\":%lld}", now - 100);
    assert_is_nobody(sign(keys[0], types[0], claims, token), "ipv4:3.0.0.1:1");
    ck_assert_ptr_nonnull(strstr(status.message, "has expired"));
    snprintf(claims, sizeof(claims), "{\"iss\":\"https://ci\",\"aud\":\"varve\",\"sub\":\"a\"}");
    assert_is_nobody(sign(keys[0], types[0], claims, token), "ipv4:3.0.0.2:1");
    for (size_t i = 0; i < TYPES; i++) {
        EVP_PKEY_free(keys[i]);
        EVP_PKEY_free(stranger[i]);
    }
    access_caller_clear(&caller);
    close_access();
}
END_TEST

/* ---- certificates */

static X509 *certificate_of(const char *name, const char *names)
{
    EVP_PKEY *const key = key_of("ES256");
    X509 *const made = X509_new();
    X509V3_CTX context;
    X509_NAME *const subject = X509_get_subject_name(made);
    X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_UTF8, (const unsigned char *)"Example", -1,
                               -1, 0);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1, -1,
                               0);
    X509_set_pubkey(made, key);
    X509V3_set_ctx(&context, made, made, NULL, NULL, 0);
    X509_EXTENSION *const extension =
        X509V3_EXT_conf_nid(NULL, &context, NID_subject_alt_name, names);
    X509_add_ext(made, extension, -1);
    X509_EXTENSION_free(extension);
    X509_gmtime_adj(X509_getm_notBefore(made), 0);
    X509_gmtime_adj(X509_getm_notAfter(made), 1000);
    ck_assert_int_gt(X509_sign(made, key, EVP_sha256()), 0);
    EVP_PKEY_free(key);
    return made;
}

static void assert_certificate_is(const char *name, const char *names, const char *user)
{
    X509 *const certificate = certificate_of(name, names);
    unsigned char *der = NULL;
    const int length = i2d_X509(certificate, &der);
    BIO *const bio = BIO_new(BIO_s_mem());
    char *pem;
    PEM_write_bio_X509(bio, certificate);
    const long pem_length = BIO_get_mem_data(bio, &pem);
    const struct bytes forms[] = {bytes_of(der, (size_t)length), bytes_of(pem, (size_t)pem_length)};
    for (size_t i = 0; i < ARRAY_LENGTH(forms); i++) {
        for (int again = 0; again < 2; again++) {
            ck_assert(show_from("", forms[i], "10.0.0.1:1") == ACCESS_YES);
            ck_assert_msg(strcmp(access_caller_name(&caller), user) == 0, "%s %s: %s", name, names,
                          access_caller_name(&caller));
        }
    }
    BIO_free(bio);
    OPENSSL_free(der);
    X509_free(certificate);
}

START_TEST(certificate_is_known_by_its_subject_or_one_of_its_names)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char content[1024];
    snprintf(content, sizeof(content),
             "certificate subject subject \"CN=the one,O=Example\"\n"
             "certificate dns san DNS:a.example\ncertificate uri san URI:spiffe://x/y\n"
             "certificate mail san email:a@b\ncertificate ip san IP:10.9.8.7\n"
             "token ci %s\nallow read to user:dns\nallow write-cas to user:ci\n",
             sha256_of("t", hex));
    put_file("access", content);
    open_access();
    assert_certificate_is("the one", "DNS:zzz", "subject");
    assert_certificate_is("the two", "DNS:zzz,DNS:a.example", "dns");
    assert_certificate_is("the two", "URI:spiffe://x/y", "uri");
    assert_certificate_is("the two", "email:a@b", "mail");
    assert_certificate_is("the two", "IP:10.9.8.7", "ip");
    assert_certificate_is("the two", "DNS:b.a.example,URI:spiffe://x/yz,IP:10.9.8.70", "anonymous");

    /* With a token, the rights of both. */
    X509 *const certificate = certificate_of("x", "DNS:a.example");
    unsigned char *der = NULL;
    const int length = i2d_X509(certificate, &der);
    ck_assert(show_from("Bearer t", bytes_of(der, (size_t)length), "h") == ACCESS_YES);
    ck_assert(may(ROLE_READ, "") && may(ROLE_WRITE_CAS, "") && !may(ROLE_WRITE_AC, ""));
    ck_assert_str_eq(access_caller_name(&caller), "ci");
    OPENSSL_free(der);
    X509_free(certificate);
    access_caller_clear(&caller);
    close_access();
}
END_TEST

/* ---- changes, guesses, the log */

START_TEST(changed_file_counts_at_once_and_a_broken_one_changes_nothing)
{
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char content[1024];
    snprintf(content, sizeof(content), "token a %s\nallow read to users\n", sha256_of("one", hex));
    put_file("access", content);
    open_access();
    assert_is("Bearer one", "a");
    access_reload(access_, ACCESS_IF_CHANGED);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_ACCESS_RELOADS), 0);

    put_file("access", "allow nonsense\n");
    access_reload(access_, ACCESS_IF_CHANGED);
    access_reload(access_, ACCESS_IF_CHANGED); /* not tried again before it changes */
    ck_assert_int_eq(metrics_get(&metrics, METRIC_ACCESS_RELOADS_FAILED), 1);
    assert_is("Bearer one", "a");

    snprintf(content, sizeof(content), "token b %s\nallow read to users\n", sha256_of("two", hex));
    put_file("access", content);
    access_reload(access_, ACCESS_IF_CHANGED);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_ACCESS_RELOADS), 1);
    assert_is("Bearer two", "b");
    assert_is_nobody("Bearer one", "ipv4:9.9.9.9:1");
    access_caller_clear(&caller);
    close_access();
}
END_TEST

START_TEST(address_that_guesses_is_slowed_down_and_others_and_known_ones_are_not)
{
    enum { GUESSES = 30 };
    char basic[256];
    char guess[64];
    char content[512];
    struct crypt_data data = {0};
    snprintf(content, sizeof(content), "bob:%s\n",
             crypt_r("right", "$6$rounds=1000$saltsalt", &data));
    put_file("htpasswd", content);
    put_file("access", "passwords htpasswd\nallow read to users\n");
    open_access();
    assert_is(basic_of("bob:right", basic), "bob"); /* from 10.1.2.3 */
    int limited = 0;
    for (int i = 0; i < GUESSES; i++) {
        char peer[64];
        snprintf(guess, sizeof(guess), "bob:guess-%d", i);
        snprintf(peer, sizeof(peer), "ipv4:10.1.2.3:%d", 1000 + i);
        ck_assert(show_from(basic_of(guess, basic), bytes_of(NULL, 0), peer) == ACCESS_NO);
        limited += status.code == STATUS_RESOURCE_EXHAUSTED;
    }
    ck_assert_int_ge(limited, GUESSES - 15);
    ck_assert_int_eq(metrics_get(&metrics, METRIC_ACCESS_LIMITED), limited);
    assert_is(basic_of("bob:right", basic), "bob"); /* from there, and known */
    ck_assert(show_from(basic_of("bob:wrong", basic), bytes_of(NULL, 0), "ipv4:10.1.2.4:1") ==
              ACCESS_NO);
    ck_assert_int_eq(status.code, STATUS_UNAUTHENTICATED);

    /* Of IPv6 a network is one address. */
    limited = 0;
    for (int i = 0; i < GUESSES; i++) {
        char peer[64];
        snprintf(guess, sizeof(guess), "bob:again-%d", i);
        snprintf(peer, sizeof(peer), "ipv6:%%5B2001:db8:1:2:%x::%x%%5D:%d", i + 1, i, 1000 + i);
        ck_assert(show_from(basic_of(guess, basic), bytes_of(NULL, 0), peer) == ACCESS_NO);
        limited += status.code == STATUS_RESOURCE_EXHAUSTED;
    }
    ck_assert_int_ge(limited, GUESSES - 15);
    ck_assert(show_from(basic_of("bob:x", basic), bytes_of(NULL, 0),
                        "ipv6:%5B2001:db8:1:3::1%5D:1") == ACCESS_NO);
    ck_assert_int_eq(status.code, STATUS_UNAUTHENTICATED);

    /* Whichever door it comes by, and from whichever port. */
    static const char *const doors[] = {"http:10.7.7.7:%d", "ipv4:10.7.7.7:%d",
                                        "http:[2001:db8:9:9::1]:%d"};
    for (size_t door = 0; door < ARRAY_LENGTH(doors); door++) {
        limited = 0;
        for (int i = 0; i < GUESSES; i++) {
            char peer[64];
            const size_t at = strcspn(doors[door], "%");
            snprintf(guess, sizeof(guess), "bob:door-%zu-%d", door, i);
            snprintf(peer, sizeof(peer), "%.*s%d", (int)at, doors[door], 1000 + i);
            ck_assert(show_from(basic_of(guess, basic), bytes_of(NULL, 0), peer) == ACCESS_NO);
            limited += status.code == STATUS_RESOURCE_EXHAUSTED;
        }
        /* What came over HTTP counts for gRPC. */
        ck_assert_int_ge(limited, door == 1 ? GUESSES - 5 : GUESSES - 15);
    }
    access_caller_clear(&caller);
    close_access();
}
END_TEST

/* ---- the table: a server with a user for each role */

static const enum method_role roles[] = {ROLE_READ, ROLE_WRITE_CAS, ROLE_WRITE_AC, ROLE_REPLICATE,
                                         ROLE_ADMIN};
enum { ROLES = ARRAY_LENGTH(roles) };

static struct config *config;
static struct server *server;
static struct rpc_client client;

/* alone-ROLE: that role in all instances; here-ROLE: in main; else-ROLE: in other; not-ROLE: all roles but that one. */
static void start_server(void)
{
    char content[8192] = "";
    char line[512];
    char hex[DIGEST_HASH_HEX_MAX + 1];
    char secret[64];
    static const char *const kinds[] = {"alone", "here", "else", "not"};
    static const char *const where[] = {"*", "main", "other", "*"};
    for (size_t i = 0; i < ROLES; i++) {
        for (size_t j = 0; j < ARRAY_LENGTH(kinds); j++) {
            const char *const role = method_role_name(roles[i]);
            snprintf(secret, sizeof(secret), "%s-%s", kinds[j], role);
            snprintf(line, sizeof(line), "token %s %s\n", secret, sha256_of(secret, hex));
            strcat(content, line);
            for (size_t k = 0; k < ROLES; k++) {
                if ((k == i) == (j == 3))
                    continue;
                snprintf(line, sizeof(line), "allow %s to user:%s in %s\n",
                         method_role_name(roles[k]), secret, where[j]);
                strcat(content, line);
            }
        }
    }
    put_file("access", content);
    char data[TEMP_DIR_PATH_BYTES_MAX + 8];
    char rules[TEMP_DIR_PATH_BYTES_MAX + 8];
    snprintf(data, sizeof(data), "%s/data", directory.path);
    snprintf(rules, sizeof(rules), "%s/access", directory.path);
    char *const arguments[] = {(char[]){"varved"},
                               (char[]){"--data"},
                               data,
                               (char[]){"--access"},
                               rules,
                               (char[]){"--listen"},
                               (char[]){"127.0.0.1:0"},
                               (char[]){"--http-listen"},
                               (char[]){"127.0.0.1:0"},
                               (char[]){"--http-keys"},
                               (char[]){"kv"},
                               (char[]){"--http-opaque"},
                               (char[]){"main/opaque"},
                               (char[]){"--reserve"},
                               (char[]){"0B"}};
    char *const environment[] = {NULL};
    enum config_action action;
    ck_assert_msg(config_parse((int)ARRAY_LENGTH(arguments), arguments, environment, &action,
                               &config, &status),
                  "%s", status.message);
    grpc_init();
    ck_assert_msg(server_start(config, &server, &status), "%s", status.message);
    rpc_client_open(&client, server_grpc_port(server));
}

static void stop_server(void)
{
    rpc_client_close(&client);
    server_stop(server);
    grpc_shutdown();
    config_free(config);
}

#define HASH "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

/* A request in which the instance is "main", where there is one. */
static struct byte_builder request_for(const struct method *method)
{
    struct byte_builder request = {0};
    const char *const name = strrchr(method->path, '/') + 1;
    if (strcmp(name, "Read") == 0)
        message_add_text(&request, 1, "main/blobs/" HASH "/3");
    else if (strcmp(name, "Write") == 0 || strcmp(name, "QueryWriteStatus") == 0)
        message_add_text(&request, 1, "main/uploads/u/blobs/" HASH "/3");
    else if (method->has_instance)
        message_add_text(&request, 1, "main");
    return request;
}

static grpc_status_code call_as(const struct method *method, const char *token)
{
    struct byte_builder request = request_for(method);
    char authorization[80];
    snprintf(authorization, sizeof(authorization), "Bearer %s", token);
    grpc_metadata metadata = {.key = grpc_slice_from_static_string("authorization"),
                              .value = grpc_slice_from_copied_string(authorization)};
    struct rpc call;
    size_t length;
    rpc_begin_with(&call, &client, method->path, 20000, &metadata, token[0] != '\0' ? 1 : 0);
    rpc_send(&call, message_bytes(&request));
    rpc_half_close(&call);
    if (strstr(method->path, "Watch") != NULL) {
        free(rpc_receive(&call, &length)); /* which has no end by itself */
        rpc_cancel(&call);
    }
    const grpc_status_code code = rpc_end(&call);
    snprintf(text, sizeof(text), "%s", call.text);
    grpc_slice_unref(metadata.value);
    byte_builder_free(&request);
    return code;
}

static bool is_refused(grpc_status_code code)
{
    return code == GRPC_STATUS_UNAUTHENTICATED || code == GRPC_STATUS_PERMISSION_DENIED;
}

/* The row of the table in the manual that this role has. */
static void assert_manual_says(const struct method *method)
{
    static const char *const rows[ROLE_COUNT] = {
        [ROLE_NONE] = "| (none needed) |",  [ROLE_ANY] = "| any, in the instance |",
        [ROLE_READ] = "| `read` |",         [ROLE_WRITE_CAS] = "| `write-cas` |",
        [ROLE_WRITE_AC] = "| `write-ac` |", [ROLE_REPLICATE] = "| `replicate` |",
        [ROLE_ADMIN] = "| `admin` |"};
    FILE *const manual = fopen("docs/operations.md", "re");
    char line[8192];
    char name[128];
    bool said = false;
    ck_assert_ptr_nonnull(manual);
    snprintf(name, sizeof(name), "%s`", strrchr(method->path, '/') + 1);
    if (strstr(method->path, "Health") != NULL || strstr(method->path, "Reflection") != NULL)
        strcpy(name,
               strstr(method->path, "Health") != NULL ? "grpc.health.v1.Health" : "reflection");
    while (fgets(line, sizeof(line), manual) != NULL)
        if (strncmp(line, rows[method->role], strlen(rows[method->role])) == 0)
            said |= strstr(line, name) != NULL;
    fclose(manual);
    ck_assert_msg(said, "docs/operations.md does not have %s in the row of %s", method->path,
                  method_role_name(method->role));
}

START_TEST(every_rpc_is_allowed_exactly_to_who_has_its_role)
{
    char token[64];
    start_server();
    for (size_t i = 0; i < server_methods_count; i++) {
        const struct method *const method = server_methods[i];
        const bool open = method->role == ROLE_NONE;
        assert_manual_says(method);
        ck_assert_msg(is_refused(call_as(method, "")) == !open, "%s by nobody: %s", method->path,
                      text);
        /* Told so, or after a while that it has guessed enough. */
        const grpc_status_code wrong =
            open ? GRPC_STATUS_UNAUTHENTICATED : call_as(method, "wrong");
        ck_assert(wrong == GRPC_STATUS_UNAUTHENTICATED || wrong == GRPC_STATUS_RESOURCE_EXHAUSTED);
        if (open || method->role == ROLE_ANY)
            continue;
        for (size_t j = 0; j < ROLES; j++) {
            const bool right = method->role == roles[j];
            const char *const role = method_role_name(roles[j]);
            snprintf(token, sizeof(token), "alone-%s", role);
            grpc_status_code code = call_as(method, token);
            ck_assert_msg(is_refused(code) == !right, "%s by %s: %d %s", method->path, token, code,
                          text);
            if (!right) {
                ck_assert_int_eq(code, GRPC_STATUS_PERMISSION_DENIED);
                ck_assert_ptr_nonnull(strstr(text, token));
                ck_assert_ptr_nonnull(strstr(text, method_role_name(method->role)));
            }
            snprintf(token, sizeof(token), "here-%s", role);
            code = call_as(method, token);
            ck_assert_msg(is_refused(code) == !(right && method->has_instance), "%s by %s: %d %s",
                          method->path, token, code, text);
            snprintf(token, sizeof(token), "else-%s", role);
            code = call_as(method, token);
            ck_assert_msg(is_refused(code), "%s by %s: %d %s", method->path, token, code, text);
            snprintf(token, sizeof(token), "not-%s", role);
            code = call_as(method, token);
            ck_assert_msg(is_refused(code) == right, "%s by %s: %d %s", method->path, token, code,
                          text);
        }
    }
    stop_server();
}
END_TEST

/* However many ways to an answer were tried before. */
START_TEST(call_that_is_refused_in_an_instance_is_counted_once)
{
    char token[64];
    int64_t refused = 0;
    start_server();
    for (size_t i = 0; i < server_methods_count; i++) {
        const struct method *const method = server_methods[i];
        if (!method->has_instance || method->role == ROLE_ANY || method->role == ROLE_NONE)
            continue;
        snprintf(token, sizeof(token), "else-%s", method_role_name(method->role));
        ck_assert_msg(is_refused(call_as(method, token)), "%s: %s", method->path, text);
        refused++;
        ck_assert_msg(metrics_get(server->metrics, METRIC_ACCESS_FORBIDDEN) == refused,
                      "%s: %lld, not %lld", method->path,
                      (long long)metrics_get(server->metrics, METRIC_ACCESS_FORBIDDEN),
                      (long long)refused);
    }
    ck_assert_int_gt(refused, 5);
    stop_server();
}
END_TEST

START_TEST(every_verb_of_http_is_allowed_exactly_to_who_has_its_role)
{
    static const struct {
        const char *method;
        const char *path;
        enum method_role role;
    } verbs[] = {
        {"GET", "/main/cas/" HASH, ROLE_READ},
        {"HEAD", "/main/cas/" HASH, ROLE_READ},
        {"PUT", "/main/cas/" HASH, ROLE_WRITE_CAS},
        {"GET", "/main/ac/" HASH, ROLE_READ},
        {"HEAD", "/main/ac/" HASH, ROLE_READ},
        {"PUT", "/main/ac/" HASH, ROLE_WRITE_AC},
        {"DELETE", "/main/opaque/ac/" HASH, ROLE_WRITE_AC},
        {"GET", "/kv/a/b", ROLE_READ},
        {"HEAD", "/kv/a/b", ROLE_READ},
        {"PROPFIND", "/kv/a/", ROLE_READ},
        {"OPTIONS", "/kv/", ROLE_READ},
        {"PUT", "/kv/a/b", ROLE_WRITE_AC},
        {"MKCOL", "/kv/a/", ROLE_WRITE_AC},
        {"DELETE", "/kv/a/b", ROLE_WRITE_AC},
        {"GET", "/page/lookup.json?instance=main&digest=" HASH, ROLE_READ},
        {"HEAD", "/page/lookup.json?instance=main&digest=" HASH, ROLE_READ},
        {"GET", "/page/blob?instance=main&digest=" HASH, ROLE_READ},
        {"GET", "/page/blob?instance=kv&digest=" HASH, ROLE_READ},
        {"GET", "/page/state.json", ROLE_ANY},
        {"GET", "/metrics", ROLE_ANY},
        {"GET", "/page/page.js", ROLE_NONE},
        {"GET", "/page/page.css", ROLE_NONE},
        {"GET", "/page/icon.svg", ROLE_NONE},
        {"GET", "/healthz", ROLE_NONE},
        {"GET", "/readyz", ROLE_NONE},
        {"GET", "/status", ROLE_NONE},
        {"GET", "/", ROLE_NONE},
    };
    struct http_answer answer;
    char headers[128];
    start_server();
    const int port = server_http_port(server);
    for (size_t i = 0; i < ARRAY_LENGTH(verbs); i++) {
        const struct bytes body =
            strcmp(verbs[i].method, "PUT") == 0 ? bytes_of("abc", 3) : bytes_of(NULL, 0);
        const bool open = verbs[i].role == ROLE_NONE;
        http_ask(port, verbs[i].method, verbs[i].path, "", body, &answer);
        ck_assert_msg((answer.code == 401) == !open, "%s %s by nobody: %d", verbs[i].method,
                      verbs[i].path, answer.code);
        ck_assert(open || http_answer_header(&answer, "WWW-Authenticate") != NULL);
        http_answer_free(&answer);
        http_ask(port, verbs[i].method, verbs[i].path, "Authorization: Bearer wrong\r\n", body,
                 &answer);
        ck_assert_msg(open || answer.code == 401 || answer.code == 429, "%s %s: %d",
                      verbs[i].method, verbs[i].path, answer.code);
        http_answer_free(&answer);
        if (open || verbs[i].role == ROLE_ANY)
            continue;
        for (size_t j = 0; j < ROLES; j++) {
            static const char *const kinds[] = {"alone", "here", "else", "not"};
            for (size_t k = 0; k < ARRAY_LENGTH(kinds); k++) {
                const bool in_main = strstr(verbs[i].path, "main") != NULL;
                const bool right = verbs[i].role == roles[j];
                const bool allowed = k == 0   ? right
                                     : k == 1 ? right && in_main
                                     : k == 2 ? false
                                              : !right;
                snprintf(headers, sizeof(headers), "Authorization: Bearer %s-%s\r\n", kinds[k],
                         method_role_name(roles[j]));
                http_ask(port, verbs[i].method, verbs[i].path, headers, body, &answer);
                ck_assert_msg((answer.code == 403) == !allowed && answer.code != 401,
                              "%s %s by %s-%s: %d", verbs[i].method, verbs[i].path, kinds[k],
                              method_role_name(roles[j]), answer.code);
                http_answer_free(&answer);
            }
        }
    }
    stop_server();
}
END_TEST

/* Peers and the log name users and instances of others. */
START_TEST(page_tells_of_peers_and_warnings_to_who_may_read_everywhere)
{
    static const struct {
        const char *token;
        bool all;
    } callers[] = {
        {"alone-read", true}, {"not-admin", true}, {"here-read", false}, {"alone-admin", false}};
    struct http_answer answer;
    start_server();
    for (size_t i = 0; i < ARRAY_LENGTH(callers); i++) {
        char headers[128];
        snprintf(headers, sizeof(headers), "Authorization: Bearer %s\r\n", callers[i].token);
        http_ask(server_http_port(server), "GET", "/page/state.json", headers, bytes_of(NULL, 0),
                 &answer);
        ck_assert_int_eq(answer.code, 200);
        ck_assert((strstr(answer.all, "\"all\":true") != NULL) == callers[i].all);
        ck_assert((strstr(answer.all, "\"all\":false") != NULL) == !callers[i].all);
        ck_assert((strstr(answer.all, "\"warnings\":[") != NULL) == callers[i].all);
        ck_assert((strstr(answer.all, "\"peers\":[") != NULL) == callers[i].all);
        ck_assert_ptr_nonnull(strstr(answer.all, "\"state\":\"serving\""));
        http_answer_free(&answer);
    }
    stop_server();
}
END_TEST

static bool may_update(const char *token, const char *tool, const char *version)
{
    struct byte_builder metadata_bytes = {0};
    struct byte_builder details = {0};
    struct byte_builder request = {0};
    char authorization[80];
    snprintf(authorization, sizeof(authorization), "Bearer %s", token);
    message_add_text(&details, 1, tool);
    message_add_text(&details, 2, version);
    message_add_message(&metadata_bytes, 1, &details);
    message_add_text(&request, 1, "main");
    grpc_metadata metadata[] = {{.key = grpc_slice_from_static_string("authorization"),
                                 .value = grpc_slice_from_copied_string(authorization)},
                                {.key = grpc_slice_from_static_string(
                                     "build.bazel.remote.execution.v2.requestmetadata-bin"),
                                 .value = grpc_slice_from_copied_buffer(
                                     (const char *)metadata_bytes.data, metadata_bytes.length)}};
    struct rpc call;
    size_t length;
    rpc_begin_with(&call, &client, "/build.bazel.remote.execution.v2.Capabilities/GetCapabilities",
                   20000, metadata, 2);
    rpc_send(&call, message_bytes(&request));
    rpc_half_close(&call);
    uint8_t *const response = rpc_receive(&call, &length);
    ck_assert_int_eq(rpc_end(&call), GRPC_STATUS_OK);
    /* action_cache_update_capabilities { update_enabled: true } of cache_capabilities */
    static const uint8_t enabled[] = {0x12, 0x02, 0x08, 0x01};
    const bool found = memmem(response, length, enabled, sizeof(enabled)) != NULL;
    free(response);
    grpc_slice_unref(metadata[0].value);
    grpc_slice_unref(metadata[1].value);
    byte_builder_free(&metadata_bytes);
    byte_builder_free(&request);
    return found;
}

START_TEST(capabilities_tell_the_callers_own_rights_but_not_to_clients_that_give_up)
{
    start_server();
    ck_assert(may_update("alone-write-ac", "bazel", "8.1.0"));
    ck_assert(may_update("here-write-ac", "moon", "2"));
    ck_assert(!may_update("here-read", "bazel", "6.0.0"));
    ck_assert(!may_update("here-read", "bazel", "10.0.0-pre"));
    ck_assert(!may_update("here-read", "moon", "2.5"));
    ck_assert(may_update("not-write-ac", "bazel", ""));
    ck_assert(may_update("here-read", "bazel", "4.2.3"));
    ck_assert(may_update("here-read", "bazel", "5.4.1"));
    stop_server();
}
END_TEST

START_TEST(nothing_that_anybody_shows_gets_into_the_log_or_an_answer)
{
    static const char *const secrets[] = {"alone-read-but-not-quite", "c2VjcmV0OnNlY3JldA",
                                          "secret:secret"};
    static const char *const shown[] = {"Bearer alone-read-but-not-quite",
                                        "Basic c2VjcmV0OnNlY3JldA==", "secret:secret"};
    char log[TEMP_DIR_PATH_BYTES_MAX + 8];
    struct http_answer answer;
    snprintf(log, sizeof(log), "%s/log", directory.path);
    const int kept = dup(STDERR_FILENO);
    const int fd = open(log, O_CREAT | O_RDWR | O_CLOEXEC | O_APPEND, 0600);
    ck_assert_int_ge(dup2(fd, STDERR_FILENO), 0);
    log_set_level(LOG_LEVEL_DEBUG);
    start_server();
    for (size_t i = 0; i < ARRAY_LENGTH(shown); i++) {
        char headers[128];
        snprintf(headers, sizeof(headers), "Authorization: %s\r\n", shown[i]);
        http_ask(server_http_port(server), "GET", "/cas/" HASH, headers, bytes_of(NULL, 0),
                 &answer);
        ck_assert(answer.code == 401 || answer.code == 429);
        for (size_t j = 0; j < ARRAY_LENGTH(secrets); j++)
            ck_assert_ptr_null(strstr(answer.all, secrets[j]));
        http_answer_free(&answer);
        for (size_t j = 0; j < server_methods_count; j++) {
            if (server_methods[j]->role == ROLE_NONE)
                continue;
            ck_assert(call_as(server_methods[j], shown[i] + 7) != GRPC_STATUS_OK);
            for (size_t k = 0; k < ARRAY_LENGTH(secrets); k++)
                ck_assert_ptr_null(strstr(text, secrets[k]));
        }
    }
    stop_server();
    ck_assert_int_ge(dup2(kept, STDERR_FILENO), 0);
    close(kept);
    static char content[1 << 20];
    const ssize_t length = pread(fd, content, sizeof(content) - 1, 0);
    ck_assert_int_gt(length, 0);
    close(fd);
    ck_assert_ptr_nonnull(strstr(content, "event=access_denied"));
    for (size_t i = 0; i < ARRAY_LENGTH(secrets); i++)
        ck_assert_ptr_null(strstr(content, secrets[i]));
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("access");
    TCase *const tests = tcase_create("access");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, file_that_is_wrong_is_told_by_line_and_without_its_secrets);
    tcase_add_test(tests, password_hashes_that_are_weak_malformed_or_too_slow_are_refused);
    tcase_add_test(tests, tokens_and_passwords_tell_who_somebody_is_and_wrong_ones_are_refused);
    tcase_add_test(tests, jwt_counts_only_with_a_signature_of_its_issuer_for_us_and_now);
    tcase_add_test(tests, certificate_is_known_by_its_subject_or_one_of_its_names);
    tcase_add_test(tests, changed_file_counts_at_once_and_a_broken_one_changes_nothing);
    tcase_add_test(tests, address_that_guesses_is_slowed_down_and_others_and_known_ones_are_not);
    tcase_add_test(tests, every_rpc_is_allowed_exactly_to_who_has_its_role);
    tcase_add_test(tests, call_that_is_refused_in_an_instance_is_counted_once);
    tcase_add_test(tests, every_verb_of_http_is_allowed_exactly_to_who_has_its_role);
    tcase_add_test(tests, page_tells_of_peers_and_warnings_to_who_may_read_everywhere);
    tcase_add_test(tests, capabilities_tell_the_callers_own_rights_but_not_to_clients_that_give_up);
    tcase_add_test(tests, nothing_that_anybody_shows_gets_into_the_log_or_an_answer);
    suite_add_tcase(suite, tests);
    return test_run(suite);
}
