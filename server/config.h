/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the server is told: flags, environment, a file, in this order of precedence, and defaults.
 * One table in config.c names every option with its type, bounds, default and help; --help prints
 * that table.
 *
 *   --small-segment-size 64MiB           a flag
 *   VARVE_SMALL_SEGMENT_SIZE=64MiB       in the environment
 *   small-segment-size = 64MiB           a line of --config FILE
 *
 * Options that are lists may be given several times, or once with commas; a source of higher
 * precedence replaces the whole list.
 */
#ifndef VARVE_SERVER_CONFIG_H
#define VARVE_SERVER_CONFIG_H

#include <stdio.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/status.h"
#include "server/disk_share.h"

#define VARVE_VERSION "0.1.0"

struct config_list {
    char **items; /* owned, as the strings */
    size_t count;
};

/* Strings and lists are owned; never changed once config_parse() has returned. */
struct config {
    char *data;
    struct config_list listen;    /* gRPC; at least one: "HOST:PORT", "[::1]:PORT", "unix:PATH" */
    char *http_listen;            /* "" is off */
    struct config_list instances; /* empty: every instance name is served */
    char *access;                 /* path; "": no rules */
    char *allow_anonymous;        /* "yes", "no" */
    char *tls_cert, *tls_key, *tls_client_ca; /* paths; "": none */
    char *tls_client_auth;                    /* "required", "optional" */
    struct config_list http_opaque; /* instances of which /ac/ takes any bytes; "*": all */
    struct config_list http_keys;   /* instances that are stores of keys and values */
    uint64_t http_connections;
    uint64_t http_address_connections; /* 0: half of http_connections */
    int64_t http_idle_ns;
    char *durability;    /* "group": an answer of OK means on disk */
    uint64_t ack_copies; /* other nodes that must have it, too; 0: none */
    int64_t ack_copies_timeout_ns;
    char *ack_copies_else; /* "refuse" or "degrade" */
    struct disk_share capacity;
    struct disk_share reserve;
    int64_t vouch_ns;
    uint64_t small_segment_bytes; /* 0: what suits the capacity */
    uint64_t large_segment_bytes; /* 0: likewise */
    uint64_t max_blob_bytes;
    uint64_t buffers; /* pooled buffers of LIMIT_POOL_BUFFER_BYTES */
    uint64_t request_memory_bytes;
    uint64_t grpc_memory_bytes;
    uint64_t max_calls;
    uint64_t max_streams; /* per connection */
    uint64_t max_connections;
    uint64_t address_connections; /* 0: what suits max_connections */
    uint64_t user_calls;          /* of one user; 0: no limit, as all below */
    uint64_t user_memory_bytes;
    uint64_t user_calls_per_s;
    uint64_t user_bytes_per_s;
    uint64_t calls_per_s; /* of all */
    uint64_t bytes_per_s;
    uint64_t workers;
    uint64_t pollers;
    uint64_t scrub_bytes_per_s; /* 0: no pass begins by itself */
    struct config_list peers;   /* nodes to follow */
    char *peer_token_file;      /* path; "": none */
    char *read_repair;          /* "on" or "off" */
    char *tier_url;             /* of an S3 server; "": there is no bucket */
    char *tier_bucket, *tier_prefix, *tier_region;
    char *tier_addressing;            /* "path", "virtual-host" */
    char *tier_ca, *tier_credentials; /* paths; "": the system's, the environment */
    uint64_t tier_uploads;            /* at a time, as the next */
    uint64_t tier_downloads;
    char *tier_reads;       /* "on" or "off" */
    char *tier_find;        /* likewise */
    char *tier_mode;        /* "async" or "through" */
    char *tier_packs;       /* "on" or "off" */
    char *tier_unsent;      /* "keep" or "drop" */
    int64_t tier_expiry_ns; /* 0: nothing is removed there but by us */
    int64_t upload_keep_ns;
    int64_t drain_ns;
    int64_t keepalive_ns;
    enum log_level log_level;
    char *log_format;     /* "logfmt", "json" */
    int64_t slow_call_ns; /* calls that take longer are logged; 0: none */
};

enum config_action { CONFIG_RUN, CONFIG_CHECK, CONFIG_HELP, CONFIG_VERSION };

/*
 * arguments: as main has them, the program's name first. environment: as environ. *action HELP or
 * VERSION: *config is NULL. RUN, CHECK: *config is whole and valid; CHECK's caller also asks
 * config_check_system(). Errors: INVALID_ARGUMENT naming the option, its value, where it came from
 * and what is accepted.
 */
MUST_CHECK bool config_parse(int count,
                             char *const *arguments,
                             char *const *environment,
                             enum config_action *action,
                             struct config **config,
                             struct status *status);
void config_free(struct config *config);

/* What can be told without starting: the data directory's parent exists, the addresses resolve. */
MUST_CHECK bool config_check_system(const struct config *config, struct status *status);

void config_print_help(FILE *to);
/* Every option with its effective value, as lines of a configuration file. */
void config_print(const struct config *config, FILE *to);

/* Whether all addresses are the machine's own: 127.0.0.1 and its kin, ::1, localhost, unix:. */
bool config_is_loopback(const struct config *config);

/* True if the list is empty or holds the name; false for a store of keys and values. */
bool config_serves_instance(const struct config *config, struct bytes instance);
/* May /ac/ of this instance hold what is no ActionResult? */
bool config_is_opaque(const struct config *config, struct bytes instance);

#endif
