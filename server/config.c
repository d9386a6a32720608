/* SPDX-License-Identifier: Apache-2.0 */
#include "server/config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "durability/copies.h"
#include "proto/resource_name.h"
#include "server/address.h"
#include "server/tier_fetch.h"
#include "server/tier_queue.h"
#include "store/store.h"
#include "tier/layout.h"

enum option_type {
    OPTION_TEXT,
    OPTION_LIST,
    OPTION_CHOICE, /* a text that is one of `choices` */
    OPTION_COUNT,  /* a whole number */
    OPTION_SIZE,   /* bytes, with B, KiB, MiB, GiB or TiB; with `share` also a per cent of memory */
    OPTION_DISK,   /* bytes likewise, or a per cent of the disk; struct disk_share */
    OPTION_DURATION, /* with ms, s, m, h or d behind the number */
};

struct option {
    const char *name;
    const char *operand; /* how --help names the value */
    enum option_type type;
    size_t offset;             /* of the field in struct config */
    const char *default_value; /* in the form it is written in; NULL: must be given */
    uint64_t minimum,
        maximum; /* COUNT, SIZE in bytes, DURATION in nanoseconds; TEXT and LIST: length of each */
    bool share;
    uint64_t (*automatic)(void);                             /* what "auto" stands for */
    const char *choices;                                     /* separated by | */
    bool (*check)(const char *value, struct status *status); /* of a TEXT, or of each in a LIST */
    const char *help;
};

static bool check_data(const char *value, struct status *status);
static bool check_http_listen(const char *value, struct status *status);
static bool check_instance(const char *value, struct status *status);
static bool check_peer(const char *value, struct status *status);
static bool check_instance_or_all(const char *value, struct status *status);
static bool check_together(const struct config *config, struct status *status);
static uint64_t automatic_by_disk(void);
static uint64_t automatic_grpc_memory(void);
static uint64_t automatic_workers(void);
static uint64_t automatic_pollers(void);
static uint64_t automatic_by_others(void);

#define FIELD(name) offsetof(struct config, name)
#define DAYS(count) ((uint64_t)(count)*86400 * NS_PER_S)
#define SECONDS(count) ((uint64_t)(count)*NS_PER_S)

static const struct option options[] = {
    {.name = "data",
     .operand = "DIR",
     .type = OPTION_TEXT,
     .offset = FIELD(data),
     .minimum = 1,
     .maximum = 3900,
     .check = check_data,
     .help = "Directory of the store; made if it is not there. Needed."},
    {.name = "listen",
     .operand = "HOST:PORT",
     .type = OPTION_LIST,
     .offset = FIELD(listen),
     .default_value = "127.0.0.1:8980",
     .minimum = 1,
     .maximum = 4096,
     .check = address_check,
     .help = "Where gRPC is served: HOST:PORT, [::1]:PORT, :PORT for every address, unix:PATH."},
    {.name = "http-listen",
     .operand = "HOST:PORT",
     .type = OPTION_TEXT,
     .offset = FIELD(http_listen),
     .default_value = "",
     .maximum = 4096,
     .check = check_http_listen,
     .help = "Where the HTTP cache, a page for people, /healthz, /readyz and /metrics are served. "
             "Empty: nowhere."},
    {.name = "access",
     .operand = "FILE",
     .type = OPTION_TEXT,
     .offset = FIELD(access),
     .default_value = "",
     .maximum = 3900,
     .help = "Who may do what; docs/operations.md says how it is written. Empty: everybody may do "
             "everything."},
    {.name = "allow-anonymous",
     .operand = "YES",
     .type = OPTION_CHOICE,
     .offset = FIELD(allow_anonymous),
     .default_value = "no",
     .choices = "no|yes",
     .help = "yes: without --access, listen on addresses that others can reach, too."},
    {.name = "tls-cert",
     .operand = "FILE",
     .type = OPTION_TEXT,
     .offset = FIELD(tls_cert),
     .default_value = "",
     .maximum = 3900,
     .help = "Certificate of the server in PEM, with its chain. Empty: no TLS."},
    {.name = "tls-key",
     .operand = "FILE",
     .type = OPTION_TEXT,
     .offset = FIELD(tls_key),
     .default_value = "",
     .maximum = 3900,
     .help = "Its private key in PEM, without a passphrase."},
    {.name = "tls-client-ca",
     .operand = "FILE",
     .type = OPTION_TEXT,
     .offset = FIELD(tls_client_ca),
     .default_value = "",
     .maximum = 3900,
     .help = "Certificates in PEM that sign those of clients. Empty: clients are asked for none."},
    {.name = "tls-client-auth",
     .operand = "HOW",
     .type = OPTION_CHOICE,
     .offset = FIELD(tls_client_auth),
     .default_value = "required",
     .choices = "required|optional",
     .help = "With --tls-client-ca: whether a client has to have a certificate."},
    {.name = "http-opaque",
     .operand = "NAME",
     .type = OPTION_LIST,
     .offset = FIELD(http_opaque),
     .default_value = "",
     .maximum = LIMIT_INSTANCE_NAME_BYTES,
     .check = check_instance_or_all,
     .help = "Instances of which /ac/ takes any bytes over HTTP, as ccache and moon store them. *: "
             "all."},
    {.name = "http-keys",
     .operand = "NAME",
     .type = OPTION_LIST,
     .offset = FIELD(http_keys),
     .default_value = "",
     .maximum = LIMIT_INSTANCE_NAME_BYTES,
     .check = check_instance,
     .help =
         "Paths below which any key holds a value over HTTP: /NAME/KEY, for ccache, sccache and "
         "Gradle. No instance of REAPI has such a name."},
    {.name = "http-connections",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(http_connections),
     .default_value = "512",
     .minimum = 16,
     .maximum = 10000,
     .help =
         "Requests to the cache over HTTP in progress; more wait for up to 15 s. There may be a "
         "quarter more connections."},
    {.name = "http-address-connections",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(http_address_connections),
     .default_value = "auto",
     .maximum = 10000,
     .automatic = automatic_by_others,
     .help =
         "Of --http-connections from one address, of IPv6 from one network; more wait. Behind a "
         "proxy as many as those. auto: half of them."},
    {.name = "http-idle",
     .operand = "TIME",
     .type = OPTION_DURATION,
     .offset = FIELD(http_idle_ns),
     .default_value = "30s",
     .minimum = SECONDS(1),
     .maximum = SECONDS(3600),
     .help = "HTTP connections on which nothing moves, or no whole head of a request comes, for so "
             "long are closed."},
    {.name = "instance",
     .operand = "NAME",
     .type = OPTION_LIST,
     .offset = FIELD(instances),
     .default_value = "",
     .maximum = LIMIT_INSTANCE_NAME_BYTES,
     .check = check_instance,
     .help = "Instance names that are served. None given: every name."},
    {.name = "durability",
     .operand = "MODE",
     .type = OPTION_CHOICE,
     .offset = FIELD(durability),
     .default_value = "group",
     .choices = "group",
     .help = "When a write is answered. group: once it is on disk; writes share syncs."},
    {.name = "ack-copies",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(ack_copies),
     .default_value = "0",
     .maximum = COPIES_WANTED_MAX,
     .help =
         "Nodes that follow this one and must have a write on disk, too, before it is answered."},
    {.name = "ack-copies-timeout",
     .operand = "TIME",
     .type = OPTION_DURATION,
     .offset = FIELD(ack_copies_timeout_ns),
     .default_value = "10s",
     .minimum = 10 * NS_PER_MS,
     .maximum = SECONDS(3600),
     .help = "How long a write waits for that."},
    {.name = "ack-copies-else",
     .operand = "WHAT",
     .type = OPTION_CHOICE,
     .offset = FIELD(ack_copies_else),
     .default_value = "refuse",
     .choices = "refuse|degrade",
     .help =
         "What then. refuse: UNAVAILABLE, though it is stored here. degrade: it is answered, and "
         "so are all others without a wait, until enough nodes have caught up."},
    {.name = "capacity",
     .operand = "SIZE",
     .type = OPTION_DISK,
     .offset = FIELD(capacity),
     .default_value = "0B",
     .minimum = STORE_CAPACITY_BYTES_MIN,
     .maximum = 1024 * 1024 * GIB,
     .help = "What the segment files may take; beyond it the oldest is evicted. A size, 128MiB at "
             "least, or a "
             "per cent of the disk. 0B: as much as the disk has, without the reserve."},
    {.name = "reserve",
     .operand = "SIZE",
     .type = OPTION_DISK,
     .offset = FIELD(reserve),
     .default_value = "auto",
     .maximum = 1024 * 1024 * GIB,
     .automatic = automatic_by_disk,
     .help = "What stays free on the disk. A size or a per cent of the disk; auto: 5 %, at least "
             "64MiB and at most "
             "10GiB, but never more than a quarter. 0B: nothing is evicted for the disk's sake."},
    {.name = "vouch",
     .operand = "TIME",
     .type = OPTION_DURATION,
     .offset = FIELD(vouch_ns),
     .default_value = "1h",
     .minimum = 0,
     .maximum = DAYS(30),
     .help = "How long a blob stays, whatever else must go, after it was found or read."},
    {.name = "small-segment-size",
     .operand = "SIZE",
     .type = OPTION_SIZE,
     .offset = FIELD(small_segment_bytes),
     .default_value = "auto",
     .minimum = SEGMENT_BYTES_MIN,
     .maximum = SEGMENT_BYTES_MAX,
     .automatic = automatic_by_disk,
     .help = "Size of the segment files for blobs up to 1 MiB and action results. auto: 256MiB, or "
             "1/64 of the capacity or the disk if that is less."},
    {.name = "large-segment-size",
     .operand = "SIZE",
     .type = OPTION_SIZE,
     .offset = FIELD(large_segment_bytes),
     .default_value = "auto",
     .minimum = SEGMENT_BYTES_MIN,
     .maximum = SEGMENT_BYTES_MAX,
     .automatic = automatic_by_disk,
     .help = "Size of the segment files for larger blobs. auto: 1GiB, or less as above."},
    {.name = "max-blob-size",
     .operand = "SIZE",
     .type = OPTION_SIZE,
     .offset = FIELD(max_blob_bytes),
     .default_value = "1TiB",
     .minimum = MIB,
     .maximum = LIMIT_BLOB_BYTES,
     .help = "Larger blobs are refused."},
    {.name = "buffers",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(buffers),
     .default_value = "192",
     .minimum = 8,
     .maximum = 65536,
     .help = "Buffers of 1 MiB for uploads and downloads; taken from memory as they are needed."},
    {.name = "request-memory",
     .operand = "SIZE",
     .type = OPTION_SIZE,
     .offset = FIELD(request_memory_bytes),
     .default_value = "256MiB",
     .minimum = 16 * MIB,
     .maximum = 1024 * GIB,
     .share = true,
     .help = "Memory for request messages. When it is used up, clients wait. A size or a per cent "
             "of memory."},
    {.name = "grpc-memory",
     .operand = "SIZE",
     .type = OPTION_SIZE,
     .offset = FIELD(grpc_memory_bytes),
     .default_value = "auto",
     .minimum = 64 * MIB,
     .maximum = 1024 * GIB,
     .share = true,
     .automatic = automatic_grpc_memory,
     .help = "Memory at which gRPC itself refuses calls and connections. auto: 1/8 of memory, at "
             "least 512MiB."},
    {.name = "max-calls",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(max_calls),
     .default_value = "4096",
     .minimum = 16,
     .maximum = 1000000,
     .help = "Calls in progress; more are refused."},
    {.name = "max-streams",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(max_streams),
     .default_value = "256",
     .minimum = 1,
     .maximum = 100000,
     .help = "Calls in progress on one connection; clients queue what is more."},
    {.name = "max-connections",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(max_connections),
     .default_value = "10000",
     .minimum = 16,
     .maximum = 1000000,
     .help = "Connections; more are closed at once."},
    {.name = "address-connections",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(address_connections),
     .default_value = "auto",
     .maximum = 1000000,
     .automatic = automatic_by_others,
     .help = "Connections from one address, of IPv6 from one network; more are closed at once. "
             "auto: half of --max-connections, at least 1024."},
    {.name = "user-calls",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(user_calls),
     .default_value = "auto",
     .automatic = automatic_by_others,
     .maximum = 1000000,
     .help = "Calls and HTTP requests in progress of one user, or of one address if it shows "
             "nothing; more "
             "are refused. auto: half of --max-calls."},
    {.name = "user-memory",
     .operand = "SIZE",
     .type = OPTION_SIZE,
     .offset = FIELD(user_memory_bytes),
     .default_value = "auto",
     .automatic = automatic_by_others,
     .maximum = 1024 * GIB,
     .help = "Requests and untaken answers of one user in memory; beyond it calls are refused. "
             "auto: half "
             "of --grpc-memory."},
    {.name = "user-calls-per-second",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(user_calls_per_s),
     .default_value = "0",
     .maximum = 1000000,
     .help = "Calls and HTTP requests a second of one user, twice as many at once. 0: no limit."},
    {.name = "user-bytes-per-second",
     .operand = "SIZE",
     .type = OPTION_SIZE,
     .offset = FIELD(user_bytes_per_s),
     .default_value = "0B",
     .maximum = 1024 * GIB,
     .help = "Bytes a second of one user, received and sent. 0B: no limit."},
    {.name = "calls-per-second",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(calls_per_s),
     .default_value = "0",
     .maximum = 10000000,
     .help = "Likewise of all users together. 0: no limit."},
    {.name = "bytes-per-second",
     .operand = "SIZE",
     .type = OPTION_SIZE,
     .offset = FIELD(bytes_per_s),
     .default_value = "0B",
     .maximum = 1024 * GIB,
     .help = "Likewise of all users together. 0B: no limit."},
    {.name = "workers",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(workers),
     .default_value = "auto",
     .minimum = 1,
     .maximum = 256,
     .automatic = automatic_workers,
     .help = "Threads that hash and read. auto: two for each processor, at least 4."},
    {.name = "pollers",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(pollers),
     .default_value = "auto",
     .minimum = 1,
     .maximum = 64,
     .automatic = automatic_pollers,
     .help = "Threads that serve the network. auto: one for two processors, at most 4."},
    {.name = "peer",
     .operand = "HOST:PORT",
     .type = OPTION_LIST,
     .offset = FIELD(peers),
     .default_value = "",
     .maximum = 1000,
     .check = check_peer,
     .help = "Nodes to follow: what they have comes here, too. HOST:PORT, or grpcs://HOST:PORT "
             "with TLS. Read again at SIGHUP."},
    {.name = "peer-token-file",
     .operand = "FILE",
     .type = OPTION_TEXT,
     .offset = FIELD(peer_token_file),
     .default_value = "",
     .maximum = 3900,
     .help = "Its first line is a token that is shown to the peers. Read again when it changes."},
    {.name = "read-repair",
     .operand = "HOW",
     .type = OPTION_CHOICE,
     .offset = FIELD(read_repair),
     .default_value = "on",
     .choices = "on|off",
     .help = "on: what is asked for and is not here is fetched from a peer first."},
    {.name = "tier-url",
     .operand = "URL",
     .type = OPTION_TEXT,
     .offset = FIELD(tier_url),
     .default_value = "",
     .maximum = 255,
     .help = "http://HOST[:PORT] or https://HOST[:PORT] of an S3 server: what is stored here is "
             "brought there, too. Empty: nowhere."},
    {.name = "tier-bucket",
     .operand = "NAME",
     .type = OPTION_TEXT,
     .offset = FIELD(tier_bucket),
     .default_value = "",
     .maximum = 63,
     .help = "The bucket. It has to be there."},
    {.name = "tier-prefix",
     .operand = "TEXT",
     .type = OPTION_TEXT,
     .offset = FIELD(tier_prefix),
     .default_value = "varve",
     .minimum = 1,
     .maximum = LAYOUT_PREFIX_BYTES_MAX,
     .check = layout_check_prefix,
     .help = "What the names of all objects there begin with."},
    {.name = "tier-region",
     .operand = "NAME",
     .type = OPTION_TEXT,
     .offset = FIELD(tier_region),
     .default_value = "us-east-1",
     .minimum = 1,
     .maximum = 63,
     .help = "The bucket's region, which is part of each signature."},
    {.name = "tier-addressing",
     .operand = "HOW",
     .type = OPTION_CHOICE,
     .offset = FIELD(tier_addressing),
     .default_value = "path",
     .choices = "path|virtual-host",
     .help = "Where the bucket's name stands: path: http://HOST/NAME; virtual-host: "
             "http://NAME.HOST."},
    {.name = "tier-ca",
     .operand = "FILE",
     .type = OPTION_TEXT,
     .offset = FIELD(tier_ca),
     .default_value = "",
     .maximum = 3900,
     .help = "Certificates in PEM that sign that server's. Empty: those of the system."},
    {.name = "tier-credentials",
     .operand = "FILE",
     .type = OPTION_TEXT,
     .offset = FIELD(tier_credentials),
     .default_value = "",
     .maximum = 3900,
     .help = "Keys as AWS's tools have them, under [default]; read again when it changes. Empty: "
             "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN."},
    {.name = "tier-uploads",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(tier_uploads),
     .default_value = "16",
     .minimum = TIER_UPLOADS_MIN,
     .maximum = TIER_UPLOADS_MAX,
     .help = "Objects on their way there at a time, each with 1 MiB of memory."},
    {.name = "tier-reads",
     .operand = "HOW",
     .type = OPTION_CHOICE,
     .offset = FIELD(tier_reads),
     .default_value = "on",
     .choices = "on|off",
     .help = "on: what is asked for and neither here nor at a peer is fetched from the bucket. "
             "Needs --read-repair on."},
    {.name = "tier-find",
     .operand = "HOW",
     .type = OPTION_CHOICE,
     .offset = FIELD(tier_find),
     .default_value = "off",
     .choices = "on|off",
     .help = "on: what the bucket has is not missing in FindMissingBlobs. What is not known of it "
             "costs a request a blob, for at most 0.5 s a call. Needs --tier-reads on."},
    {.name = "tier-packs",
     .operand = "HOW",
     .type = OPTION_CHOICE,
     .offset = FIELD(tier_packs),
     .default_value = "on",
     .choices = "on|off",
     .help =
         "on: blobs of up to 128 KiB go into the bucket in packs of 8 MiB, after 5 s. off: each "
         "is an object, and one that is deleted by order goes at once."},
    {.name = "tier-unsent",
     .operand = "HOW",
     .type = OPTION_CHOICE,
     .offset = FIELD(tier_unsent),
     .default_value = "keep",
     .choices = "keep|drop",
     .help = "keep: what the bucket does not have yet is not evicted; when nothing else is left to "
             "evict, writes are refused. drop: it is evicted, and is not in the bucket."},
    {.name = "tier-mode",
     .operand = "HOW",
     .type = OPTION_CHOICE,
     .offset = FIELD(tier_mode),
     .default_value = "async",
     .choices = "async|through",
     .help = "When a write is answered. async: once it is on disk here. through: once it is in the "
             "bucket, too; --ack-copies-timeout and --ack-copies-else say for how long."},
    {.name = "tier-expiry",
     .operand = "DURATION",
     .type = OPTION_DURATION,
     .offset = FIELD(tier_expiry_ns),
     .default_value = "0d",
     .maximum = DAYS(3650),
     .help = "After which a rule of the bucket removes blobs: those in use are sent again in time, "
             "those older than half of it when something new names them. 0d: there is none."},
    {.name = "tier-downloads",
     .operand = "COUNT",
     .type = OPTION_COUNT,
     .offset = FIELD(tier_downloads),
     .default_value = "16",
     .minimum = TIER_DOWNLOADS_MIN,
     .maximum = TIER_DOWNLOADS_MAX,
     .help = "Objects on their way from there at a time, each with 1 MiB of memory."},
    {.name = "scrub-rate",
     .operand = "SIZE",
     .type = OPTION_SIZE,
     .offset = FIELD(scrub_bytes_per_s),
     .default_value = "20MiB",
     .maximum = 64 * GIB,
     .help = "How much of the store the scrub reads and verifies a second. 0B: only when asked."},
    {.name = "upload-keep",
     .operand = "TIME",
     .type = OPTION_DURATION,
     .offset = FIELD(upload_keep_ns),
     .default_value = "10m",
     .minimum = SECONDS(1),
     .maximum = DAYS(7),
     .help = "How long an unfinished upload can be resumed."},
    {.name = "drain-time",
     .operand = "TIME",
     .type = OPTION_DURATION,
     .offset = FIELD(drain_ns),
     .default_value = "10s",
     .minimum = 0,
     .maximum = SECONDS(3600),
     .help = "How long calls may go on when the server is told to stop."},
    {.name = "keepalive",
     .operand = "TIME",
     .type = OPTION_DURATION,
     .offset = FIELD(keepalive_ns),
     .default_value = "5m",
     .minimum = SECONDS(1),
     .maximum = DAYS(1),
     .help = "Silent connections are asked for a sign of life so often."},
    {.name = "log-level",
     .operand = "LEVEL",
     .type = OPTION_CHOICE,
     .offset = FIELD(log_level),
     .default_value = "info",
     .choices = "debug|info|warn|error",
     .help = "What is logged."},
    {.name = "log-format",
     .operand = "FORMAT",
     .type = OPTION_CHOICE,
     .offset = FIELD(log_format),
     .default_value = "logfmt",
     .choices = "logfmt|json",
     .help = "How: lines of key=value, or a JSON object a line."},
    {.name = "slow-call",
     .operand = "TIME",
     .type = OPTION_DURATION,
     .offset = FIELD(slow_call_ns),
     .default_value = "10s",
     .maximum = DAYS(1),
     .help = "Calls that take longer are logged. 0s: none."},
};
enum { OPTIONS = ARRAY_LENGTH(options), ORIGIN_BYTES_MAX = 256, LIST_ITEMS_MAX = 64 };

/* Where a value comes from; higher ones win. */
enum source { SOURCE_DEFAULT, SOURCE_FILE, SOURCE_ENVIRONMENT, SOURCE_FLAG };

/* What one option was given, before it is understood. */
struct given {
    enum source source;
    char origin[ORIGIN_BYTES_MAX]; /* "--listen", "VARVE_LISTEN", "/etc/varve.conf line 3" */
    char *values[LIST_ITEMS_MAX];  /* owned */
    size_t count;
};

struct reading {
    struct given given[OPTIONS];
    char *file; /* owned; from --config or VARVE_CONFIG */
    enum config_action action;
};

static bool read_arguments(struct reading *reading,
                           int count,
                           char *const *arguments,
                           struct status *status);
static bool read_environment(struct reading *reading,
                             char *const *environment,
                             struct status *status);
static bool read_file(struct reading *reading, struct status *status);
static bool understand_all(struct reading *reading, struct config *config, struct status *status);
static void reading_clear(struct reading *reading);
static bool copy_string(const char *text, size_t length, char **copy, struct status *status);

bool config_parse(int count,
                  char *const *arguments,
                  char *const *environment,
                  enum config_action *action,
                  struct config **config,
                  struct status *status)
{
    struct reading *const reading = calloc(1, sizeof(*reading));
    struct config *const made = calloc(1, sizeof(*made));
    bool ok = false;
    *config = NULL;
    if (reading == NULL || made == NULL) {
        status_fail_errno(status, ENOMEM, "configuration");
        goto out;
    }
    if (!read_arguments(reading, count, arguments, status))
        goto out;
    *action = reading->action;
    ok = true;
    if (*action == CONFIG_HELP || *action == CONFIG_VERSION)
        goto out;
    ok = read_environment(reading, environment, status) && read_file(reading, status) &&
         understand_all(reading, made, status) && check_together(made, status);
out:
    if (ok && (*action == CONFIG_RUN || *action == CONFIG_CHECK))
        *config = made;
    else
        config_free(made);
    reading_clear(reading);
    return ok;
}

static void reading_clear(struct reading *reading)
{
    if (reading == NULL)
        return;
    for (size_t i = 0; i < OPTIONS; i++)
        for (size_t j = 0; j < reading->given[i].count; j++)
            free(reading->given[i].values[j]);
    free(reading->file);
    free(reading);
}

static void list_clear(struct config_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct config_list){0};
}

void config_free(struct config *config)
{
    if (config == NULL)
        return;
    free(config->data);
    free(config->http_listen);
    free(config->durability);
    free(config->log_format);
    free(config->ack_copies_else);
    free(config->access);
    free(config->allow_anonymous);
    free(config->tls_cert);
    free(config->peer_token_file);
    free(config->tls_key);
    free(config->tls_client_ca);
    free(config->tls_client_auth);
    list_clear(&config->http_opaque);
    list_clear(&config->http_keys);
    list_clear(&config->listen);
    list_clear(&config->instances);
    list_clear(&config->peers);
    free(config->read_repair);
    free(config->tier_url);
    free(config->tier_bucket);
    free(config->tier_prefix);
    free(config->tier_region);
    free(config->tier_addressing);
    free(config->tier_ca);
    free(config->tier_credentials);
    free(config->tier_reads);
    free(config->tier_find);
    free(config->tier_mode);
    free(config->tier_packs);
    free(config->tier_unsent);
    free(config);
}

/* ---- collecting what was given */

static const struct option *find_option(const char *name, size_t length);
static bool give(struct reading *reading,
                 const struct option *option,
                 enum source source,
                 const char *origin,
                 const char *value,
                 size_t length,
                 struct status *status);
static bool give_file(struct reading *reading, const char *path, struct status *status);

static bool read_arguments(struct reading *reading,
                           int count,
                           char *const *arguments,
                           struct status *status)
{
    for (int i = 1; i < count; i++) {
        const char *const argument = arguments[i];
        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            reading->action = CONFIG_HELP;
            return true;
        }
        if (strcmp(argument, "--version") == 0) {
            reading->action = CONFIG_VERSION;
            return true;
        }
        if (strcmp(argument, "--check-config") == 0) {
            reading->action = CONFIG_CHECK;
            continue;
        }
        if (strncmp(argument, "--", 2) != 0)
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "\"%s\" is no flag; varved --help lists them", argument);

        const char *const equals = strchr(argument, '=');
        const size_t length =
            equals != NULL ? (size_t)(equals - argument) - 2 : strlen(argument) - 2;
        const char *value = equals != NULL ? equals + 1 : NULL;
        const bool is_config = length == 6 && strncmp(argument + 2, "config", 6) == 0;
        const struct option *const option = find_option(argument + 2, length);
        if (option == NULL && !is_config)
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "there is no option %.*s; varved --help lists them", (int)length + 2,
                               argument);
        if (value == NULL) {
            if (i + 1 == count)
                return status_fail(status, STATUS_INVALID_ARGUMENT, "%s needs a value", argument);
            value = arguments[++i];
        }
        char origin[ORIGIN_BYTES_MAX];
        snprintf(origin, sizeof(origin), "--%.*s", (int)length, argument + 2);
        const bool ok =
            is_config ? give_file(reading, value, status)
                      : give(reading, option, SOURCE_FLAG, origin, value, strlen(value), status);
        if (!ok)
            return false;
    }
    return true;
}

static const struct option *find_option(const char *name, size_t length)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if (strlen(options[i].name) == length && strncmp(options[i].name, name, length) == 0)
            return &options[i];
    return NULL;
}

static bool give_file(struct reading *reading, const char *path, struct status *status)
{
    free(reading->file);
    reading->file = NULL;
    return copy_string(path, strlen(path), &reading->file, status);
}

/* A later value of the same source replaces an earlier one, but lists grow. */
static bool give(struct reading *reading,
                 const struct option *option,
                 enum source source,
                 const char *origin,
                 const char *value,
                 size_t length,
                 struct status *status)
{
    struct given *const given = &reading->given[option - options];
    if (source < given->source)
        return true;
    if (source > given->source || option->type != OPTION_LIST) {
        for (size_t i = 0; i < given->count; i++)
            free(given->values[i]);
        given->count = 0;
    }
    if (given->count == LIST_ITEMS_MAX)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "%s: an option can be given %d times at most", origin, LIST_ITEMS_MAX);
    if (memchr(value, '\0', length) != NULL)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s: the value holds a zero byte",
                           origin);
    if (!copy_string(value, length, &given->values[given->count], status))
        return false;
    given->count++;
    given->source = source;
    snprintf(given->origin, sizeof(given->origin), "%s", origin);
    return true;
}

static bool copy_string(const char *text, size_t length, char **copy, struct status *status)
{
    *copy = strndup(text, length);
    return *copy != NULL || status_fail_errno(status, ENOMEM, "configuration");
}

/* VARVE_SMALL_SEGMENT_SIZE for small-segment-size. */
static void environment_name(const char *option, char name[ORIGIN_BYTES_MAX])
{
    int length = snprintf(name, ORIGIN_BYTES_MAX, "VARVE_");
    for (; *option != '\0'; option++)
        name[length++] = (char)(*option == '-' ? '_' : *option - 'a' + 'A');
    name[length] = '\0';
}

static bool read_environment(struct reading *reading,
                             char *const *environment,
                             struct status *status)
{
    for (; *environment != NULL; environment++) {
        const char *const entry = *environment;
        const char *const equals = strchr(entry, '=');
        if (equals == NULL || strncmp(entry, "VARVE_", 6) != 0)
            continue;
        const size_t length = (size_t)(equals - entry);
        if (length == 12 && strncmp(entry, "VARVE_CONFIG", 12) == 0 && reading->file == NULL &&
            !give_file(reading, equals + 1, status))
            return false;
        for (size_t i = 0; i < OPTIONS; i++) {
            char name[ORIGIN_BYTES_MAX];
            environment_name(options[i].name, name);
            if (strlen(name) == length && strncmp(name, entry, length) == 0 &&
                !give(reading, &options[i], SOURCE_ENVIRONMENT, name, equals + 1,
                      strlen(equals + 1), status))
                return false;
        }
    }
    return true;
}

static bool read_line(struct reading *reading,
                      char *line,
                      size_t length,
                      size_t number,
                      struct status *status);

static bool read_file(struct reading *reading, struct status *status)
{
    if (reading->file == NULL)
        return true;
    FILE *const file = fopen(reading->file, "re");
    if (file == NULL) {
        status_fail_errno(status, errno, "configuration file %s", reading->file);
        status->code = STATUS_INVALID_ARGUMENT;
        return false;
    }
    char *line = NULL;
    size_t capacity = 0;
    bool ok = true;
    for (size_t number = 1; ok; number++) {
        const ssize_t length = getline(&line, &capacity, file);
        if (length < 0)
            break;
        ok = read_line(reading, line, (size_t)length, number, status);
    }
    if (ok && ferror(file) != 0)
        ok = status_fail(status, STATUS_INVALID_ARGUMENT, "configuration file %s cannot be read",
                         reading->file);
    free(line);
    fclose(file);
    return ok;
}

static bool is_space(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

static struct bytes trim(const char *text, size_t length)
{
    while (length > 0 && is_space(text[length - 1]))
        length--;
    while (length > 0 && is_space(text[0])) {
        text++;
        length--;
    }
    return bytes_of(text, length);
}

/* "key = value"; what follows a # at the start or behind a space is a comment. */
static bool read_line(struct reading *reading,
                      char *line,
                      size_t length,
                      size_t number,
                      struct status *status)
{
    char origin[ORIGIN_BYTES_MAX];
    snprintf(origin, sizeof(origin), "%s line %zu", reading->file, number);
    for (size_t i = 0; i < length; i++)
        if (line[i] == '#' && (i == 0 || is_space(line[i - 1])))
            length = i;
    const struct bytes whole = trim(line, length);
    if (whole.length == 0)
        return true;
    const char *const equals = memchr(whole.data, '=', whole.length);
    if (equals == NULL)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "%s: \"key = value\" is wanted",
                           origin);
    const char *const start = (const char *)whole.data;
    const struct bytes key = trim(start, (size_t)(equals - start));
    const struct bytes value = trim(equals + 1, whole.length - (size_t)(equals - start) - 1);
    const struct option *const option = find_option((const char *)key.data, key.length);
    if (option == NULL)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "%s: there is no option \"%.*s\"; varved --help lists them", origin,
                           (int)(key.length < 100 ? key.length : 100), (const char *)key.data);
    return give(reading, option, SOURCE_FILE, origin, (const char *)value.data, value.length,
                status);
}

/* ---- understanding it */

static bool understand(const struct option *option,
                       struct given *given,
                       struct config *config,
                       struct status *status);
static bool understand_text(const struct option *option,
                            const char *value,
                            char **into,
                            struct status *status);
static bool understand_list(const struct option *option,
                            const struct given *given,
                            struct config_list *into,
                            struct status *status);
static bool understand_choice(const struct option *option,
                              const char *value,
                              struct status *status);
static bool understand_number(const struct option *option,
                              const char *value,
                              uint64_t *into,
                              struct status *status);
static bool understand_share(const struct option *option,
                             const char *value,
                             struct disk_share *into,
                             struct status *status);
static const char *accepted(const struct option *option, char text[ORIGIN_BYTES_MAX]);

static bool understand_all(struct reading *reading, struct config *config, struct status *status)
{
    for (size_t i = 0; i < OPTIONS; i++) {
        const struct option *const option = &options[i];
        struct given *const given = &reading->given[i];
        if (given->count == 0) {
            if (option->default_value == NULL)
                return status_fail(status, STATUS_INVALID_ARGUMENT, "--%s %s is needed: %s",
                                   option->name, option->operand, option->help);
            if (!give(reading, option, SOURCE_DEFAULT, "default", option->default_value,
                      strlen(option->default_value), status))
                return false;
        }
        if (!understand(option, given, config, status)) {
            char text[ORIGIN_BYTES_MAX];
            const struct status why = *status;
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "option %s, value \"%.100s\" from %s: %s (accepted: %s)",
                               option->name, given->values[given->count - 1], given->origin,
                               why.message, accepted(option, text));
        }
    }
    return true;
}

static bool understand(const struct option *option,
                       struct given *given,
                       struct config *config,
                       struct status *status)
{
    void *const field = (char *)config + option->offset;
    const char *const value = given->values[given->count - 1];
    uint64_t number;
    switch (option->type) {
    case OPTION_TEXT:
        return understand_text(option, value, field, status);
    case OPTION_LIST:
        return understand_list(option, given, field, status);
    case OPTION_CHOICE:
        if (!understand_choice(option, value, status))
            return false;
        if (option->offset == FIELD(log_level))
            return log_level_parse(value, field);
        return copy_string(value, strlen(value), field, status);
    case OPTION_COUNT:
    case OPTION_SIZE:
        return understand_number(option, value, field, status);
    case OPTION_DISK:
        return understand_share(option, value, field, status);
    case OPTION_DURATION:
        if (!understand_number(option, value, &number, status))
            return false;
        *(int64_t *)field = (int64_t)number;
        return true;
    }
    ASSERT(false);
    return false;
}

static bool check_text(const struct option *option, const char *value, struct status *status)
{
    const size_t length = strlen(value);
    if (length < option->minimum)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "it is empty");
    if (length > option->maximum)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "it is %zu bytes long, and %" PRIu64 " is the most", length,
                           option->maximum);
    return option->check == NULL || option->check(value, status);
}

static bool understand_text(const struct option *option,
                            const char *value,
                            char **into,
                            struct status *status)
{
    return check_text(option, value, status) && copy_string(value, strlen(value), into, status);
}

static bool list_add(const struct option *option,
                     struct config_list *list,
                     struct bytes item,
                     struct status *status)
{
    if (list->count == LIST_ITEMS_MAX)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "a list has %d items at most",
                           LIST_ITEMS_MAX);
    char **const slot = &list->items[list->count];
    if (!copy_string((const char *)item.data, item.length, slot, status))
        return false;
    list->count++;
    return check_text(option, *slot, status);
}

/* Commas separate; an empty text is an empty list. */
static bool understand_list(const struct option *option,
                            const struct given *given,
                            struct config_list *into,
                            struct status *status)
{
    into->items = calloc(LIST_ITEMS_MAX, sizeof(*into->items));
    if (into->items == NULL)
        return status_fail_errno(status, ENOMEM, "configuration");
    for (size_t i = 0; i < given->count; i++) {
        const char *at = given->values[i];
        while (true) {
            const size_t length = strcspn(at, ",");
            const struct bytes item = trim(at, length);
            if (item.length > 0 && !list_add(option, into, item, status))
                return false;
            if (at[length] == '\0')
                break;
            at += length + 1;
        }
    }
    if (into->count == 0 && option->minimum > 0)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "the list is empty");
    return true;
}

static bool understand_choice(const struct option *option, const char *value, struct status *status)
{
    const size_t length = strlen(value);
    for (const char *at = option->choices; *at != '\0';) {
        const size_t choice = strcspn(at, "|");
        if (choice == length && strncmp(at, value, length) == 0)
            return true;
        at += choice + (at[choice] == '|' ? 1 : 0);
    }
    return status_fail(status, STATUS_INVALID_ARGUMENT, "it is none of the choices");
}

struct unit {
    const char *name;
    uint64_t factor;
};
static const struct unit size_units[] = {{"", 1},      {"B", 1},     {"KiB", KIB},
                                         {"MiB", MIB}, {"GiB", GIB}, {"TiB", 1024 * GIB}};
static const struct unit duration_units[] = {{"ms", NS_PER_MS},
                                             {"s", SECONDS(1)},
                                             {"m", SECONDS(60)},
                                             {"h", SECONDS(3600)},
                                             {"d", DAYS(1)}};
static const struct unit count_units[] = {{"", 1}};

static const struct unit *units_of(enum option_type type, size_t *count)
{
    switch (type) {
    case OPTION_SIZE:
    case OPTION_DISK:
        *count = ARRAY_LENGTH(size_units);
        return size_units;
    case OPTION_DURATION:
        *count = ARRAY_LENGTH(duration_units);
        return duration_units;
    default:
        *count = ARRAY_LENGTH(count_units);
        return count_units;
    }
}

static bool scale(const struct option *option,
                  uint64_t number,
                  const char *unit,
                  uint64_t *into,
                  struct status *status);

static bool understand_number(const struct option *option,
                              const char *value,
                              uint64_t *into,
                              struct status *status)
{
    if (option->automatic != NULL && strcmp(value, "auto") == 0) {
        *into = option->automatic();
        return true;
    }
    const size_t digits = strspn(value, "0123456789");
    if (digits == 0 || digits > 18)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "it does not begin with a whole number that is in range");
    uint64_t number = 0;
    for (size_t i = 0; i < digits; i++)
        number = number * 10 + (uint64_t)(value[i] - '0');
    const char *unit = value + digits;
    while (*unit == ' ')
        unit++;
    if (!scale(option, number, unit, &number, status))
        return false;
    if (number < option->minimum || number > option->maximum)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "it is out of range");
    *into = number;
    return true;
}

static bool understand_share(const struct option *option,
                             const char *value,
                             struct disk_share *into,
                             struct status *status)
{
    const size_t digits = strspn(value, "0123456789");
    const char *unit = value + digits;
    while (*unit == ' ')
        unit++;
    if (option->automatic != NULL && strcmp(value, "auto") == 0) {
        *into = (struct disk_share){.kind = DISK_SHARE_AUTOMATIC};
        return true;
    }
    if (digits > 0 && digits <= 3 && strcmp(unit, "%") == 0) {
        *into =
            (struct disk_share){.kind = DISK_SHARE_PER_CENT, .amount = strtoull(value, NULL, 10)};
        return into->amount <= 100 ||
               status_fail(status, STATUS_INVALID_ARGUMENT, "it is more than all of the disk");
    }
    *into = (struct disk_share){.kind = DISK_SHARE_BYTES};
    /* Nothing is something special, and below any minimum. */
    return strcmp(value, "0B") == 0 || strcmp(value, "0") == 0 ||
           understand_number(option, value, &into->amount, status);
}

static uint64_t memory_bytes(void);

static bool scale(const struct option *option,
                  uint64_t number,
                  const char *unit,
                  uint64_t *into,
                  struct status *status)
{
    if (option->share && strcmp(unit, "%") == 0) {
        if (number > 100)
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "it is more than all of the memory");
        *into = memory_bytes() / 100 * number;
        return true;
    }
    size_t count;
    const struct unit *const units = units_of(option->type, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(unit, units[i].name) != 0)
            continue;
        if (__builtin_mul_overflow(number, units[i].factor, into))
            return status_fail(status, STATUS_INVALID_ARGUMENT, "it is out of range");
        return true;
    }
    if (option->type == OPTION_DURATION && number == 0 && *unit == '\0') {
        *into = 0;
        return true;
    }
    return status_fail(status, STATUS_INVALID_ARGUMENT, "its unit is not known");
}

/* ---- telling what there is */

static void print_number(enum option_type type, uint64_t number, char text[ORIGIN_BYTES_MAX])
{
    size_t count;
    const struct unit *const units = units_of(type, &count);
    size_t best = 0;
    for (size_t i = 1; i < count; i++)
        if (units[i].factor > 1 && number > 0 && number % units[i].factor == 0)
            best = i;
    snprintf(text, ORIGIN_BYTES_MAX, "%" PRIu64 "%s", number / units[best].factor,
             units[best].name);
}

static void print_share(const struct disk_share *share, char text[ORIGIN_BYTES_MAX])
{
    if (share->kind == DISK_SHARE_AUTOMATIC)
        snprintf(text, ORIGIN_BYTES_MAX, "auto");
    else if (share->kind == DISK_SHARE_PER_CENT)
        snprintf(text, ORIGIN_BYTES_MAX, "%" PRIu64 "%%", share->amount);
    else
        print_number(OPTION_SIZE, share->amount, text);
}

static const char *accepted(const struct option *option, char text[ORIGIN_BYTES_MAX])
{
    char low[ORIGIN_BYTES_MAX];
    char high[ORIGIN_BYTES_MAX];
    switch (option->type) {
    case OPTION_TEXT:
    case OPTION_LIST:
        snprintf(text, ORIGIN_BYTES_MAX, "%s", option->operand);
        break;
    case OPTION_CHOICE:
        snprintf(text, ORIGIN_BYTES_MAX, "%s", option->choices);
        break;
    default:
        print_number(option->type, option->minimum, low);
        print_number(option->type, option->maximum, high);
        snprintf(text, ORIGIN_BYTES_MAX, "%.60s to %.60s%s%s", low, high,
                 option->share                 ? ", or per cent of memory as 10%"
                 : option->type == OPTION_DISK ? ", or per cent of the disk as 10%"
                                               : "",
                 option->automatic != NULL ? ", or auto" : "");
        break;
    }
    return text;
}

void config_print_help(FILE *to)
{
    fprintf(to, "varved --data DIR [options]: stores blobs and action results for builds (Remote "
                "Execution API).\n\n");
    for (size_t i = 0; i < OPTIONS; i++) {
        const struct option *const option = &options[i];
        char text[ORIGIN_BYTES_MAX];
        fprintf(to, "  --%s %s\n        %s\n", option->name, option->operand, option->help);
        if (option->type != OPTION_TEXT && option->type != OPTION_LIST)
            fprintf(to, "        Accepted: %s.\n", accepted(option, text));
        if (option->default_value != NULL)
            fprintf(to, "        Default: %s.\n",
                    option->default_value[0] != '\0' ? option->default_value : "empty");
    }
    fprintf(to, "  --config FILE\n        Lines of \"key = value\", and # comments; keys as the "
                "options above.\n"
                "  --check-config\n        Checks the configuration, prints it, and ends.\n"
                "  --help, --version\n\n"
                "Options that are lists may be given several times, or once with commas. Each "
                "option can also stand in the\n"
                "environment: VARVE_LISTEN for --listen. A flag wins over the environment, that "
                "over the file.\n\n"
                "Ends with 0 after SIGTERM or SIGINT, 1 when it cannot start or go on, 2 when the "
                "configuration is wrong.\n");
}

static void print_list(const struct config_list *list, FILE *to)
{
    for (size_t i = 0; i < list->count; i++)
        fprintf(to, "%s%s", i > 0 ? ", " : "", list->items[i]);
    fputc('\n', to);
}

void config_print(const struct config *config, FILE *to)
{
    static const char *const level_names[] = {"debug", "info", "warn", "error"};
    for (size_t i = 0; i < OPTIONS; i++) {
        const struct option *const option = &options[i];
        const void *const field = (const char *)config + option->offset;
        char text[ORIGIN_BYTES_MAX];
        fprintf(to, "%s = ", option->name);
        switch (option->type) {
        case OPTION_TEXT:
            fprintf(to, "%s\n", *(char *const *)field);
            break;
        case OPTION_LIST:
            print_list(field, to);
            break;
        case OPTION_CHOICE:
            fprintf(to, "%s\n",
                    option->offset == FIELD(log_level) ? level_names[config->log_level]
                                                       : *(char *const *)field);
            break;
        case OPTION_DISK:
            print_share(field, text);
            fprintf(to, "%s\n", text);
            break;
        case OPTION_COUNT:
        case OPTION_SIZE:
        case OPTION_DURATION:
            print_number(option->type, *(const uint64_t *)field, text);
            fprintf(to, "%s\n",
                    option->automatic == automatic_by_disk && *(const uint64_t *)field == 0 ? "auto"
                                                                                            : text);
            break;
        }
    }
}

/* ---- checks of single options */

static bool check_data(const char *value, struct status *status)
{
    if (strchr(value, '\n') != NULL)
        return status_fail(status, STATUS_INVALID_ARGUMENT, "it holds the end of a line");
    return true;
}

static bool check_http_listen(const char *value, struct status *status)
{
    if (value[0] == '\0')
        return true;
    if (address_is_local(value))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "HTTP is served on TCP addresses alone");
    return address_check(value, status);
}

static bool check_instance(const char *value, struct status *status)
{
    return instance_name_check(bytes_of_string(value), status);
}

static bool check_peer(const char *value, struct status *status)
{
    static const char *const schemes[] = {"grpc://", "grpcs://"};
    for (size_t i = 0; i < ARRAY_LENGTH(schemes); i++)
        if (strncmp(value, schemes[i], strlen(schemes[i])) == 0)
            return address_check(value + strlen(schemes[i]), status);
    return address_check(value, status);
}

static bool check_instance_or_all(const char *value, struct status *status)
{
    return strcmp(value, "*") == 0 || check_instance(value, status);
}

/* A token that everybody on the way can read is none. */
static bool check_secret(const char *peer, struct status *status)
{
    static const char plain[] = "grpc://";
    static const char secure[] = "grpcs://";
    if (strncmp(peer, secure, sizeof(secure) - 1) == 0)
        return true;
    const char *const address =
        strncmp(peer, plain, sizeof(plain) - 1) == 0 ? peer + sizeof(plain) - 1 : peer;
    return address_is_loopback(address) ||
           status_fail(status, STATUS_INVALID_ARGUMENT,
                       "option peer-token-file: peer %s would get the token unencrypted; say "
                       "grpcs://HOST:PORT",
                       peer);
}

/* What no single option is wrong in. */
static bool check_together(const struct config *config, struct status *status)
{
    if ((config->tier_url[0] == '\0') != (config->tier_bucket[0] == '\0'))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "options tier-url and tier-bucket: both are needed, or none");
    if (config->tier_url[0] == '\0' && strcmp(config->tier_mode, "through") == 0)
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "option tier-mode: through needs tier-url and tier-bucket");
    if ((config->tls_cert[0] == '\0') != (config->tls_key[0] == '\0'))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "options tls-cert and tls-key: both are needed, or none");
    if (config->tls_client_ca[0] != '\0' && config->tls_cert[0] == '\0')
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "option tls-client-ca: it needs tls-cert and tls-key too");
    for (size_t i = 0; i < config->http_keys.count; i++)
        for (size_t j = 0; j < config->instances.count; j++)
            if (strcmp(config->http_keys.items[i], config->instances.items[j]) == 0)
                return status_fail(status, STATUS_INVALID_ARGUMENT,
                                   "option http-keys: %s is an option instance, too",
                                   config->http_keys.items[i]);
    for (size_t i = 0; config->peer_token_file[0] != '\0' && i < config->peers.count; i++)
        if (!check_secret(config->peers.items[i], status))
            return false;
    for (size_t i = 0; i < config->http_keys.count; i++)
        if (strcmp(config->http_keys.items[i], "page") == 0)
            return status_fail(status, STATUS_INVALID_ARGUMENT,
                               "option http-keys: below /page/ is the page for people");
    if (config->access[0] == '\0' && strcmp(config->allow_anonymous, "yes") != 0 &&
        !config_is_loopback(config))
        return status_fail(status, STATUS_INVALID_ARGUMENT,
                           "options listen, http-listen: others can reach an address that is not "
                           "loopback, and there are no access rules. Name a file of rules with "
                           "--access FILE, or say --allow-anonymous yes if everybody may read and "
                           "write");
    return true;
}

bool config_is_loopback(const struct config *config)
{
    for (size_t i = 0; i < config->listen.count; i++)
        if (!address_is_loopback(config->listen.items[i]))
            return false;
    return config->http_listen[0] == '\0' || address_is_loopback(config->http_listen);
}

bool config_check_system(const struct config *config, struct status *status)
{
    char *parent;
    if (!copy_string(config->data, strlen(config->data), &parent, status))
        return false;
    size_t length = strlen(parent);
    while (length > 1 && parent[length - 1] == '/')
        length--;
    while (length > 0 && parent[length - 1] != '/')
        length--;
    while (length > 1 && parent[length - 1] == '/')
        length--;
    parent[length] = '\0';
    struct stat about;
    const char *const shown = length > 0 ? parent : ".";
    bool ok = true;
    if (stat(shown, &about) != 0)
        ok = status_fail_errno(status, errno,
                               "option data: the directory %s, in which %s would be made", shown,
                               config->data);
    else if (!S_ISDIR(about.st_mode))
        ok = status_fail(status, STATUS_INVALID_ARGUMENT, "option data: %s is no directory", shown);
    free(parent);

    for (size_t i = 0; ok && i < config->listen.count; i++)
        ok = address_check_host(config->listen.items[i], status);
    if (ok && config->http_listen[0] != '\0')
        ok = address_check_host(config->http_listen, status);
    return ok;
}

static bool list_has(const struct config_list *list, struct bytes name)
{
    for (size_t i = 0; i < list->count; i++)
        if (bytes_equal_string(name, list->items[i]))
            return true;
    return false;
}

bool config_is_opaque(const struct config *config, struct bytes instance)
{
    return list_has(&config->http_opaque, instance) ||
           list_has(&config->http_opaque, bytes_of_string("*"));
}

bool config_serves_instance(const struct config *config, struct bytes instance)
{
    if (list_has(&config->http_keys, instance))
        return false;
    return config->instances.count == 0 || list_has(&config->instances, instance);
}

/* ---- what the machine has */

/* Of the machine, or of the control group that we are in, whichever is less. */
static uint64_t memory_bytes(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t bytes = pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : GIB;
    FILE *const file = fopen("/sys/fs/cgroup/memory.max", "re");
    if (file != NULL) {
        uint64_t limit = 0;
        char line[64];
        if (fgets(line, sizeof(line), file) != NULL && line[0] >= '0' && line[0] <= '9')
            limit = strtoull(line, NULL, 10);
        fclose(file);
        if (limit > 0 && limit < bytes)
            bytes = limit;
    }
    return bytes;
}

/* What it comes to is not known before the disk is. */
static uint64_t automatic_by_disk(void)
{
    return 0;
}

static uint64_t automatic_grpc_memory(void)
{
    const uint64_t eighth = memory_bytes() / 8;
    return eighth > 512 * MIB ? eighth : 512 * MIB;
}

static uint64_t processors(void)
{
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (uint64_t)count : 1;
}

/* By what others say: it is known to who uses it. */
static uint64_t automatic_by_others(void)
{
    return 0;
}

static uint64_t automatic_workers(void)
{
    const uint64_t count = 2 * processors();
    return count < 4 ? 4 : count > 64 ? 64 : count;
}

static uint64_t automatic_pollers(void)
{
    const uint64_t count = processors() / 2;
    return count < 1 ? 1 : count > 4 ? 4 : count;
}
