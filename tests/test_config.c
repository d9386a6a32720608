/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what a configuration accepts, which source wins, and that every refusal names the option,
 * the value, its source and what is accepted. Parsed from arrays and files, as main does from its
 * arguments.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "server/config.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_run.h"

enum { WORDS_MAX = 32 };

static struct config *config;
static enum config_action action;
static struct status status;
static struct temp_dir directory;

static void setup(void)
{
    temp_dir_make(&directory);
}

static void teardown(void)
{
    config_free(config);
    temp_dir_remove(&directory);
}

/* arguments and environment: words separated by spaces. */
static bool parse(const char *arguments, const char *environment)
{
    char buffers[2][1024];
    char *words[2][WORDS_MAX] = {{buffers[0]}};
    const char *const texts[2] = {arguments, environment};
    int counts[2] = {0};
    for (int i = 0; i < 2; i++) {
        snprintf(buffers[i], sizeof(buffers[i]), "%s", texts[i]);
        char *save = NULL;
        for (char *word = strtok_r(buffers[i], " ", &save); word != NULL;
             word = strtok_r(NULL, " ", &save))
            words[i][counts[i]++] = word;
        ck_assert_int_lt(counts[i], WORDS_MAX);
        words[i][counts[i]] = NULL;
    }
    config_free(config);
    config = NULL;
    status = (struct status){0};
    return config_parse(counts[0], words[0], words[1], &action, &config, &status);
}

static void write_file(const char *text, char path[512])
{
    snprintf(path, 512, "%s/varve.conf", directory.path);
    FILE *const file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static bool parse_file(const char *text, const char *more_arguments, const char *environment)
{
    char path[512];
    char arguments[1024];
    write_file(text, path);
    snprintf(arguments, sizeof(arguments), "varved --config %s %s", path, more_arguments);
    return parse(arguments, environment);
}

static void assert_says(const char *part)
{
    ck_assert_msg(strstr(status.message, part) != NULL, "\"%s\" is not in \"%s\"", part,
                  status.message);
}

START_TEST(defaults_stand_where_nothing_is_given)
{
    ck_assert_msg(parse("varved --data /tmp/x", ""), "%s", status.message);
    ck_assert_int_eq(action, CONFIG_RUN);
    ck_assert_str_eq(config->data, "/tmp/x");
    ck_assert_uint_eq(config->listen.count, 1);
    ck_assert_str_eq(config->listen.items[0], "127.0.0.1:8980");
    ck_assert_str_eq(config->http_listen, "");
    ck_assert_uint_eq(config->instances.count, 0);
    ck_assert_uint_eq(config->small_segment_bytes, 0);
    ck_assert_uint_eq(config->large_segment_bytes, 0);
    ck_assert_int_eq(config->capacity.kind, DISK_SHARE_BYTES);
    ck_assert_uint_eq(config->capacity.amount, 0);
    ck_assert_int_eq(config->reserve.kind, DISK_SHARE_AUTOMATIC);
    ck_assert_int_eq(config->vouch_ns, 3600 * NS_PER_S);
    ck_assert_uint_eq(config->max_blob_bytes, LIMIT_BLOB_BYTES);
    ck_assert_uint_eq(config->buffers, 192);
    ck_assert_uint_eq(config->request_memory_bytes, 256 * MIB);
    ck_assert_uint_ge(config->grpc_memory_bytes, 512 * MIB);
    ck_assert_uint_eq(config->max_calls, 4096);
    ck_assert_uint_eq(config->max_streams, 256);
    ck_assert_uint_ge(config->workers, 4);
    ck_assert_uint_ge(config->pollers, 1);
    ck_assert_int_eq(config->upload_keep_ns, 600 * NS_PER_S);
    ck_assert_int_eq(config->drain_ns, 10 * NS_PER_S);
    ck_assert_int_eq(config->log_level, LOG_LEVEL_INFO);
}
END_TEST

START_TEST(flag_wins_over_environment_and_that_over_the_file)
{
    ck_assert(parse_file("data = /file\nbuffers = 20\nmax-calls = 100\nworkers = 7\n",
                         "--data /flag --buffers=30",
                         "VARVE_BUFFERS=40 VARVE_MAX_CALLS=200 HOME=/root VARVE_NOBODY=1"));
    ck_assert_str_eq(config->data, "/flag");
    ck_assert_uint_eq(config->buffers, 30);
    ck_assert_uint_eq(config->max_calls, 200);
    ck_assert_uint_eq(config->workers, 7);
}
END_TEST

START_TEST(file_may_be_named_by_the_environment)
{
    char path[512];
    char environment[600];
    write_file("# a comment\n\n  buffers = 21 # another\n\tdata=/x#y\n", path);
    snprintf(environment, sizeof(environment), "VARVE_CONFIG=%s", path);
    ck_assert_msg(parse("varved", environment), "%s", status.message);
    ck_assert_uint_eq(config->buffers, 21);
    ck_assert_str_eq(config->data, "/x#y"); /* a # within a word is part of it */
}
END_TEST

START_TEST(list_is_given_by_repetition_or_commas_and_replaced_as_a_whole)
{
    ck_assert(parse(
        "varved --data x --instance a --instance b,c/d --listen 127.2.3.4:5 --listen unix:/tmp/s",
        "VARVE_INSTANCE=z"));
    ck_assert_uint_eq(config->instances.count, 3);
    ck_assert_str_eq(config->instances.items[2], "c/d");
    ck_assert_uint_eq(config->listen.count, 2);
    ck_assert(config_serves_instance(config, bytes_of_string("b")));
    ck_assert(!config_serves_instance(config, bytes_of_string("z")));
    ck_assert(!config_serves_instance(config, bytes_of_string("")));
    ck_assert(parse("varved --data x", ""));
    ck_assert(config_serves_instance(config, bytes_of_string("z")));
}
END_TEST

START_TEST(sizes_times_and_shares_have_units)
{
    ck_assert(parse("varved --data x --small-segment-size 64MiB --large-segment-size=67108864 "
                    "--upload-keep 90s --drain-time 0 "
                    "--keepalive 1500ms --request-memory 50% --grpc-memory 2GiB --scrub-rate 0B",
                    ""));
    ck_assert_uint_eq(config->scrub_bytes_per_s, 0);
    ck_assert_uint_eq(config->small_segment_bytes, 64 * MIB);
    ck_assert_uint_eq(config->large_segment_bytes, 64 * MIB);
    ck_assert_int_eq(config->upload_keep_ns, 90 * NS_PER_S);
    ck_assert_int_eq(config->drain_ns, 0);
    ck_assert_int_eq(config->keepalive_ns, 1500 * (int64_t)NS_PER_MS);
    ck_assert_uint_gt(config->request_memory_bytes, 64 * MIB);
    ck_assert_uint_eq(config->grpc_memory_bytes, 2 * GIB);
}
END_TEST

START_TEST(shares_of_the_disk_come_to_what_the_disk_has)
{
    uint64_t capacity = 1;
    ck_assert(parse("varved --data x --capacity 50% --reserve 10%", ""));
    ck_assert(disk_share_capacity(&config->capacity, 100 * GIB, &capacity, &status));
    ck_assert_uint_eq(capacity, 50 * GIB);
    ck_assert_uint_eq(disk_share_reserve(&config->reserve, 100 * GIB), 10 * GIB);
    ck_assert(!disk_share_capacity(&config->capacity, 200 * MIB, &capacity, &status));
    assert_says("option capacity: 104857600 bytes are less than the 134217728");

    ck_assert(parse("varved --data x --capacity 0 --reserve 0B", ""));
    ck_assert(disk_share_capacity(&config->capacity, 100 * GIB, &capacity, &status));
    ck_assert_uint_eq(capacity, 0);
    ck_assert_uint_eq(disk_share_reserve(&config->reserve, 100 * GIB), 0);

    /* 5 %, but something for the index, not too much, and not most of a small disk. */
    const struct disk_share automatic = {.kind = DISK_SHARE_AUTOMATIC};
    ck_assert_uint_eq(disk_share_reserve(&automatic, 100 * GIB), 100 * GIB / 100 * 5);
    ck_assert_uint_eq(disk_share_reserve(&automatic, 10000 * GIB), 10 * GIB);
    ck_assert_uint_eq(disk_share_reserve(&automatic, 300 * MIB), 64 * MIB);
    ck_assert_uint_eq(disk_share_reserve(&automatic, 100 * MIB), 25 * MIB);
}
END_TEST

/* The arguments behind "varved --data x", and what the refusal must say. */
static const struct {
    const char *arguments, *says;
} refusals[] = {
    {"--buffers 3",
     "option buffers, value \"3\" from --buffers: it is out of range (accepted: 8 to 65536)"},
    {"--buffers 8x", "its unit is not known"},
    {"--buffers -8", "does not begin with a whole number"},
    {"--buffers 99999999999999999999", "in range"},
    {"--buffers", "--buffers needs a value"},
    {"--small-segment-size 2GiB", "to 1GiB"},
    {"--max-blob-size 99999999TiB", "out of range"},
    {"--keepalive 5", "its unit is not known"},
    {"--keepalive 10%", "its unit is not known"},
    {"--request-memory 101%", "more than all of the memory"},
    {"--durability relaxed", "accepted: group"},
    {"--log-level loud", "accepted: debug|info|warn|error"},
    {"--listen localhost", "has no port"},
    {"--listen localhost:99999", "port from 0 to 65535"},
    {"--listen ::1:80", "brackets"},
    {"--listen unix:", "no name behind"},
    {"--listen ,", "the list is empty"},
    {"--http-listen unix:/x", "TCP addresses alone"},
    {"--instance a/blobs/b", "option instance"},
    {"--data=", "option data, value \"\" from --data: it is empty"},
    {"--capacty 10GiB", "there is no option --capacty"},
    {"--capacity 100MiB",
     "option capacity, value \"100MiB\" from --capacity: it is out of range (accepted: 128MiB to"},
    {"--capacity 101%", "more than all of the disk"},
    {"--capacity auto", "does not begin with a whole number"},
    {"--reserve 5x", "its unit is not known"},
    {"--vouch 31d", "out of range"},
    {"--peer a", "has no port"},
    {"--read-repair maybe", "accepted: on|off"},
    {"more", "\"more\" is no flag"},
    {"--config /nowhere/at/all", "/nowhere/at/all"},
};

START_TEST(refusal_names_option_value_source_and_what_is_accepted)
{
    char arguments[512];
    snprintf(arguments, sizeof(arguments), "varved --data x %s", refusals[_i].arguments);
    ck_assert(!parse(arguments, ""));
    ck_assert_ptr_null(config);
    ck_assert_int_eq(status.code, STATUS_INVALID_ARGUMENT);
    assert_says(refusals[_i].says);
}
END_TEST

START_TEST(refusal_names_the_environment_variable_or_the_line)
{
    ck_assert(!parse("varved --data x", "VARVE_DRAIN_TIME=soon"));
    assert_says("option drain-time, value \"soon\" from VARVE_DRAIN_TIME");
    ck_assert(!parse_file("data = x\n\nbuffers = 1\n", "", ""));
    assert_says("varve.conf line 3");
    ck_assert(!parse_file("data = x\nbufers = 10\n", "", ""));
    assert_says("varve.conf line 2: there is no option \"bufers\"");
    ck_assert(!parse_file("data\n", "", ""));
    assert_says("line 1: \"key = value\" is wanted");
}
END_TEST

START_TEST(data_must_be_given)
{
    ck_assert(!parse("varved", ""));
    assert_says("--data DIR is needed");
}
END_TEST

START_TEST(help_version_and_check_are_told_apart)
{
    ck_assert(parse("varved --buffers 20 --help", ""));
    ck_assert_int_eq(action, CONFIG_HELP);
    ck_assert_ptr_null(config);
    ck_assert(parse("varved --version", ""));
    ck_assert_int_eq(action, CONFIG_VERSION);
    ck_assert(parse("varved --check-config --data x", ""));
    ck_assert_int_eq(action, CONFIG_CHECK);
    ck_assert_ptr_nonnull(config);
}
END_TEST

/* What is printed is read back as the same. */
START_TEST(printed_configuration_is_a_file_that_says_the_same)
{
    char *first = NULL;
    char *second = NULL;
    size_t length;
    ck_assert(parse("varved --data /tmp/y --listen :1,[::1]:2 --instance a,b --upload-keep 61s "
                    "--allow-anonymous yes --http-opaque a,* --http-keys ccache --tls-cert /c "
                    "--tls-key /k "
                    "--small-segment-size 9MiB "
                    "--request-memory 16777217 --log-level warn --capacity 80% --reserve 3GiB",
                    ""));
    FILE *to = open_memstream(&first, &length);
    config_print(config, to);
    fclose(to);
    ck_assert_msg(parse_file(first, "", ""), "%s", status.message);
    to = open_memstream(&second, &length);
    config_print(config, to);
    fclose(to);
    ck_assert_str_eq(first, second);
    ck_assert_ptr_nonnull(strstr(first, "request-memory = 16777217\n"));
    ck_assert_ptr_nonnull(strstr(first, "upload-keep = 61s\n"));
    ck_assert_ptr_nonnull(strstr(first, "capacity = 80%\n"));
    ck_assert_ptr_nonnull(strstr(first, "reserve = 3GiB\n"));
    ck_assert_ptr_nonnull(strstr(first, "large-segment-size = auto\n"));
    free(first);
    free(second);
}
END_TEST

START_TEST(system_check_wants_a_parent_directory_and_hosts_that_resolve)
{
    char arguments[600];
    snprintf(arguments, sizeof(arguments), "varved --data %s/store/", directory.path);
    ck_assert(parse(arguments, ""));
    ck_assert_msg(config_check_system(config, &status), "%s", status.message);

    snprintf(arguments, sizeof(arguments), "varved --data %s/no/store", directory.path);
    ck_assert(parse(arguments, ""));
    ck_assert(!config_check_system(config, &status));
    assert_says("/no");

    ck_assert(
        parse("varved --data /tmp/z --allow-anonymous yes --listen no-such-host.invalid:80", ""));
    status = (struct status){0};
    ck_assert(!config_check_system(config, &status));
    assert_says("no-such-host.invalid:80");
}
END_TEST

/* What others can reach is not open to everybody unless somebody says so. */
START_TEST(address_that_others_can_reach_wants_access_rules_or_the_word_of_the_operator)
{
    static const char *const near[] = {"--listen 127.0.0.1:1", "--listen [::1]:1",
                                       "--listen localhost:1", "--listen unix:/s",
                                       "--listen 127.9.9.9:1 --http-listen [::1]:2"};
    static const char *const far[] = {
        "--listen :1",         "--listen 0.0.0.0:1",       "--listen [::]:1",
        "--listen 10.0.0.1:1", "--listen cache.example:1", "--listen localhost.example:1",
        "--http-listen :1",    "--listen 127.0.0.1:1,:2"};
    static const char *const allowed[] = {"", "--access /a", "--allow-anonymous yes"};
    char arguments[512];
    for (size_t i = 0; i < ARRAY_LENGTH(near); i++) {
        snprintf(arguments, sizeof(arguments), "varved --data /d %s", near[i]);
        ck_assert_msg(parse(arguments, ""), "%s: %s", near[i], status.message);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(far); i++) {
        for (size_t j = 0; j < ARRAY_LENGTH(allowed); j++) {
            snprintf(arguments, sizeof(arguments), "varved --data /d %s %s", far[i], allowed[j]);
            ck_assert_msg(parse(arguments, "") == (j > 0), "%s %s", far[i], allowed[j]);
            if (j > 0)
                continue;
            assert_says("--allow-anonymous yes");
            assert_says("--access FILE");
        }
    }
}
END_TEST

START_TEST(options_that_belong_together_are_wanted_together)
{
    ck_assert(!parse("varved --data /d --tls-cert /c", ""));
    assert_says("tls-key");
    ck_assert(!parse("varved --data /d --tls-key /k", ""));
    assert_says("tls-cert");
    ck_assert(!parse("varved --data /d --tls-client-ca /k", ""));
    assert_says("tls-client-ca");
    ck_assert(!parse("varved --data /d --instance a,b --http-keys b", ""));
    assert_says("http-keys");
    ck_assert(parse("varved --data /d --http-keys b --http-opaque c", ""));
    ck_assert(!config_serves_instance(config, bytes_of_string("b")));
    ck_assert(config_serves_instance(config, bytes_of_string("c")));
    ck_assert(config_is_opaque(config, bytes_of_string("c")));
    ck_assert(!config_is_opaque(config, bytes_of_string("b")));
}
END_TEST

START_TEST(help_tells_every_option_with_its_default)
{
    char *text = NULL;
    size_t length;
    FILE *const to = open_memstream(&text, &length);
    config_print_help(to);
    fclose(to);
    static const char *const parts[] = {"--data DIR",    "--small-segment-size SIZE",
                                        "Default: auto", "--check-config",
                                        "VARVE_LISTEN",  "2 when the configuration is wrong"};
    for (size_t i = 0; i < ARRAY_LENGTH(parts); i++)
        ck_assert_ptr_nonnull(strstr(text, parts[i]));
    free(text);
}
END_TEST

int main(void)
{
    Suite *const suite = suite_create("config");
    TCase *const all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, defaults_stand_where_nothing_is_given);
    tcase_add_test(all, flag_wins_over_environment_and_that_over_the_file);
    tcase_add_test(all, file_may_be_named_by_the_environment);
    tcase_add_test(all, list_is_given_by_repetition_or_commas_and_replaced_as_a_whole);
    tcase_add_test(all, sizes_times_and_shares_have_units);
    tcase_add_test(all, shares_of_the_disk_come_to_what_the_disk_has);
    tcase_add_loop_test(all, refusal_names_option_value_source_and_what_is_accepted, 0,
                        ARRAY_LENGTH(refusals));
    tcase_add_test(all, refusal_names_the_environment_variable_or_the_line);
    tcase_add_test(all, data_must_be_given);
    tcase_add_test(all, help_version_and_check_are_told_apart);
    tcase_add_test(all, printed_configuration_is_a_file_that_says_the_same);
    tcase_add_test(all, system_check_wants_a_parent_directory_and_hosts_that_resolve);
    tcase_add_test(all,
                   address_that_others_can_reach_wants_access_rules_or_the_word_of_the_operator);
    tcase_add_test(all, options_that_belong_together_are_wanted_together);
    tcase_add_test(all, help_tells_every_option_with_its_default);
    suite_add_tcase(suite, all);
    return test_run(suite);
}
