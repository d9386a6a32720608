/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http_connections.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/lock.h"
#include "base/log.h"

enum { SPARE_MIN = 64, HELD_LOOKED_AT_MAX = 256, ORIGIN_LISTS = 256 };
static const int64_t step_pause_ns = 100 * NS_PER_MS;
static const int64_t log_pause_ns = 10 * NS_PER_S;

enum state { STATE_IDLE, STATE_WAITING, STATE_BUSY, STATE_SHUT, STATES };

/* Where connections come from, as long as there are any. */
struct origin {
    uint64_t address;
    uint64_t counts[STATES]; /* of its connections */
    struct origin *next;
};

struct http_connection {
    /* Set when it is opened, never changed. */
    struct http_connections *all; /* borrowed */
    int fd;                       /* borrowed */
    struct origin *origin;        /* borrowed from all; NULL: one without bounds */

    _Atomic bool held;
    _Atomic uint64_t moved_bytes;

    /* Guarded by all->lock. */
    enum state state;
    bool waited_in_vain;
    int64_t since_ns; /* in this state */
    int64_t window_ns;
    uint64_t window_bytes; /* moved when the window began */
    void (*wake)(void *argument);
    void *argument;
    struct http_connection *next, *previous;
};

/* In the order in which they came to it. */
struct connection_list {
    struct http_connection *first, *last;
    uint64_t count;
};

struct http_connections {
    /* Set by http_connections_new(), never changed. */
    uint64_t requests_max, spare;
    uint64_t address_requests_max, address_waiting_max, address_connections_max;
    int64_t idle_ns;
    struct clock *clock;     /* borrowed */
    struct metrics *metrics; /* borrowed */

    struct lock lock;
    struct connection_list lists[STATES]; /* guarded by lock, as all below */
    struct origin *origins[ORIGIN_LISTS]; /* owned */
    int64_t stepped_ns;
    int64_t logged_ns;
};

static uint64_t open_locked(const struct http_connections *all) REQUIRES(all->lock);
static void move_locked(struct http_connections *all,
                        struct http_connection *connection,
                        enum state to) REQUIRES(all->lock);
static void remove_locked(struct http_connections *all, struct http_connection *connection)
    REQUIRES(all->lock);
static void shut_locked(struct http_connections *all,
                        struct http_connection *connection,
                        enum metric metric,
                        const char *why) REQUIRES(all->lock);
static void step_locked(struct http_connections *all, int64_t now_ns) REQUIRES(all->lock);
static void make_room_locked(struct http_connections *all, const struct http_connection *but)
    REQUIRES(all->lock);
static void keep_to_part_locked(struct http_connections *all, struct http_connection *made)
    REQUIRES(all->lock);
static bool may_turn_locked(const struct http_connections *all,
                            const struct http_connection *connection) REQUIRES(all->lock);
static void give_turns_locked(struct http_connections *all) REQUIRES(all->lock);
static void send_away_locked(struct http_connections *all, struct http_connection *connection)
    REQUIRES(all->lock);

bool http_connections_new(uint64_t requests_max,
                          uint64_t address_requests_max,
                          int64_t idle_ns,
                          struct clock *clock,
                          struct metrics *metrics,
                          struct http_connections **all,
                          struct status *status)
{
    struct http_connections *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return status_fail_errno(status, ENOMEM, "connections of HTTP");
    lock_init(&made->lock, LOCK_RANK_SERVER);
    made->requests_max = requests_max;
    made->spare = requests_max / 4 > SPARE_MIN ? requests_max / 4 : SPARE_MIN;
    made->address_requests_max = requests_max / 2;
    if (address_requests_max > 0)
        made->address_requests_max =
            address_requests_max < requests_max ? address_requests_max : requests_max;
    made->address_waiting_max = made->spare * made->address_requests_max / requests_max;
    made->address_connections_max = made->address_requests_max + made->address_waiting_max;
    made->idle_ns = idle_ns;
    made->clock = clock;
    made->metrics = metrics;
    *all = made;
    return true;
}

void http_connections_free(struct http_connections *all)
{
    if (all == NULL)
        return;
    for (int i = 0; i < STATES; i++)
        ASSERT(all->lists[i].first == NULL);
    for (int i = 0; i < ORIGIN_LISTS; i++)
        ASSERT(all->origins[i] == NULL);
    lock_destroy(&all->lock);
    free(all);
}

uint64_t http_connections_max(const struct http_connections *all)
{
    return all->requests_max + all->spare;
}

void http_connections_step(struct http_connections *all)
{
    const int64_t now_ns = clock_monotonic_ns(all->clock);
    lock_acquire(&all->lock);
    step_locked(all, now_ns);
    lock_release(&all->lock);
}

static void step_locked(struct http_connections *all, int64_t now_ns)
{
    if (all->stepped_ns != 0 && now_ns - all->stepped_ns < step_pause_ns)
        return;
    all->stepped_ns = now_ns;

    struct http_connection *next;
    for (struct http_connection *at = all->lists[STATE_IDLE].first;
         at != NULL && now_ns - at->since_ns > all->idle_ns; at = next) {
        next = at->next;
        if (!atomic_load(&at->held))
            shut_locked(all, at, METRIC_HTTP_CLOSED_IDLE, "idle");
    }
    while (all->lists[STATE_WAITING].first != NULL &&
           now_ns - all->lists[STATE_WAITING].first->since_ns > HTTP_WAIT_MAX_NS)
        send_away_locked(all, all->lists[STATE_WAITING].first);

    uint64_t wanted = all->lists[STATE_WAITING].count;
    for (struct http_connection *at = all->lists[STATE_BUSY].first; at != NULL; at = next) {
        next = at->next;
        const uint64_t moved_bytes = atomic_load(&at->moved_bytes);
        const int64_t window_ns = now_ns - at->window_ns;
        const bool slow = window_ns >= HTTP_PATIENCE_NS &&
                          moved_bytes - at->window_bytes <
                              (uint64_t)(window_ns / NS_PER_MS) * HTTP_SLOW_BYTES_PER_S / 1000;
        /* An address that waits for its own part is no reason to close what others have. */
        const bool in_the_way = all->lists[STATE_BUSY].count >= all->requests_max ||
                                (at->origin != NULL && at->origin->counts[STATE_WAITING] > 0);
        if (wanted > 0 && slow && in_the_way && !atomic_load(&at->held)) {
            shut_locked(all, at, METRIC_HTTP_CLOSED_SLOW, "slow");
            wanted--;
        } else if (window_ns >= 2 * HTTP_PATIENCE_NS || atomic_load(&at->held)) {
            at->window_ns = now_ns;
            at->window_bytes = moved_bytes;
        }
    }
    give_turns_locked(all);
}

/* ---- lists */

static uint64_t open_locked(const struct http_connections *all)
{
    return all->lists[STATE_IDLE].count + all->lists[STATE_WAITING].count +
           all->lists[STATE_BUSY].count;
}

static void add_locked(struct http_connections *all,
                       struct http_connection *connection,
                       enum state to) REQUIRES(all->lock);
static void add_locked(struct http_connections *all,
                       struct http_connection *connection,
                       enum state to)
{
    struct connection_list *const list = &all->lists[to];
    connection->state = to;
    connection->since_ns = clock_monotonic_ns(all->clock);
    connection->next = NULL;
    connection->previous = list->last;
    if (list->last != NULL)
        list->last->next = connection;
    else
        list->first = connection;
    list->last = connection;
    list->count++;
    if (connection->origin != NULL)
        connection->origin->counts[to]++;
}

static void remove_locked(struct http_connections *all, struct http_connection *connection)
{
    struct connection_list *const list = &all->lists[connection->state];
    if (connection->previous != NULL)
        connection->previous->next = connection->next;
    else
        list->first = connection->next;
    if (connection->next != NULL)
        connection->next->previous = connection->previous;
    else
        list->last = connection->previous;
    list->count--;
    if (connection->origin != NULL)
        connection->origin->counts[connection->state]--;
}

static void move_locked(struct http_connections *all,
                        struct http_connection *connection,
                        enum state to)
{
    remove_locked(all, connection);
    add_locked(all, connection, to);
}

/* From now on it counts as gone, though the library's thread needs a moment. */
static void shut_locked(struct http_connections *all,
                        struct http_connection *connection,
                        enum metric metric,
                        const char *why)
{
    move_locked(all, connection, STATE_SHUT);
    shutdown(connection->fd, SHUT_RDWR);
    metrics_add(all->metrics, metric, 1);
    if (all->logged_ns != 0 && connection->since_ns - all->logged_ns < log_pause_ns)
        return;
    all->logged_ns = connection->since_ns;
    log_event(LOG_LEVEL_WARN, "http_connections_closed",
              "reason=%s idle=%llu waiting=%llu busy=%llu max=%llu", why,
              (unsigned long long)all->lists[STATE_IDLE].count,
              (unsigned long long)all->lists[STATE_WAITING].count,
              (unsigned long long)all->lists[STATE_BUSY].count,
              (unsigned long long)http_connections_max(all));
}

/* ---- connections */

static struct origin **origin_locked(struct http_connections *all, uint64_t address)
    REQUIRES(all->lock);
static struct origin **origin_locked(struct http_connections *all, uint64_t address)
{
    struct origin **at =
        &all->origins[(address ^ address >> 8 ^ address >> 24 ^ address >> 48) % ORIGIN_LISTS];
    while (*at != NULL && (*at)->address != address)
        at = &(*at)->next;
    return at;
}

/* False without memory. */
static bool find_origin_locked(struct http_connections *all,
                               uint64_t address,
                               struct origin **origin) REQUIRES(all->lock);
static bool find_origin_locked(struct http_connections *all,
                               uint64_t address,
                               struct origin **origin)
{
    struct origin **const at = origin_locked(all, address);
    if (*at == NULL) {
        *at = calloc(1, sizeof(**at));
        if (*at != NULL)
            (*at)->address = address;
    }
    *origin = *at;
    return *at != NULL;
}

static void forget_origin_locked(struct http_connections *all, struct origin *origin)
    REQUIRES(all->lock);
static void forget_origin_locked(struct http_connections *all, struct origin *origin)
{
    if (origin == NULL)
        return;
    for (int i = 0; i < STATES; i++)
        if (origin->counts[i] > 0)
            return;
    *origin_locked(all, origin->address) = origin->next;
    free(origin);
}

struct http_connection *http_connection_open(struct http_connections *all, int fd, uint64_t address)
{
    struct http_connection *const made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->all = all;
    made->fd = fd;
    lock_acquire(&all->lock);
    const bool ok = address == 0 || find_origin_locked(all, address, &made->origin);
    if (ok) {
        add_locked(all, made, STATE_IDLE);
        keep_to_part_locked(all, made);
        make_room_locked(all, made);
        step_locked(all, made->since_ns);
    }
    lock_release(&all->lock);
    if (ok)
        return made;
    free(made);
    return NULL;
}

/* Whoever has its part closes its own: the one idle for longest, else the new one. */
static void keep_to_part_locked(struct http_connections *all, struct http_connection *made)
{
    const struct origin *const origin = made->origin;
    if (origin == NULL ||
        origin->counts[STATE_IDLE] + origin->counts[STATE_WAITING] + origin->counts[STATE_BUSY] <=
            all->address_connections_max)
        return;
    struct http_connection *at = all->lists[STATE_IDLE].first;
    while (at != made && (at->origin != origin || atomic_load(&at->held)))
        at = at->next;
    shut_locked(all, at, METRIC_HTTP_CLOSED_ADDRESS, "address");
}

/* Whoever is idle gives way; if nobody is, whoever waits for longest is told to come again. */
static void make_room_locked(struct http_connections *all, const struct http_connection *but)
{
    int held = 0;
    struct http_connection *at = all->lists[STATE_IDLE].first;
    while (open_locked(all) > http_connections_max(all) && at != NULL &&
           held < HELD_LOOKED_AT_MAX) {
        struct http_connection *const next = at->next;
        if (atomic_load(&at->held))
            held++;
        else if (at != but)
            shut_locked(all, at, METRIC_HTTP_CLOSED_ROOM, "room");
        at = next;
    }
    if (open_locked(all) > http_connections_max(all) && all->lists[STATE_WAITING].first != NULL)
        send_away_locked(all, all->lists[STATE_WAITING].first);
}

void http_connection_close(struct http_connection *connection)
{
    struct http_connections *const all = connection->all;
    lock_acquire(&all->lock);
    remove_locked(all, connection);
    forget_origin_locked(all, connection->origin);
    give_turns_locked(all);
    lock_release(&all->lock);
    free(connection);
}

/* ---- requests */

enum http_entrance http_connection_enter(struct http_connection *connection,
                                         void (*wake)(void *argument),
                                         void *argument)
{
    struct http_connections *const all = connection->all;
    enum http_entrance entrance = HTTP_NO_ROOM;
    lock_acquire(&all->lock);
    const bool first = connection->state == STATE_IDLE && !connection->waited_in_vain;
    const bool has_part = connection->origin != NULL &&
                          connection->origin->counts[STATE_WAITING] >= all->address_waiting_max &&
                          !may_turn_locked(all, connection);
    if (first && all->lists[STATE_WAITING].count < all->spare && !has_part) {
        connection->wake = wake;
        connection->argument = argument;
        move_locked(all, connection, STATE_WAITING);
        if (may_turn_locked(all, connection)) { /* then none of those who wait may */
            connection->wake = NULL;            /* who asks need not be woken */
            give_turns_locked(all);
        } else if (all->lists[STATE_BUSY].count < all->requests_max) {
            metrics_add(all->metrics, METRIC_HTTP_ADDRESS_WAITS, 1);
        }
        step_locked(all, connection->since_ns);
    } else if (first) {
        metrics_add(all->metrics, METRIC_HTTP_WAITED_IN_VAIN, 1);
    }
    if (connection->state == STATE_BUSY)
        entrance = HTTP_ENTERED;
    else if (connection->state == STATE_WAITING)
        entrance = HTTP_WAIT_FOR_TURN;
    lock_release(&all->lock);
    return entrance;
}

static bool may_turn_locked(const struct http_connections *all,
                            const struct http_connection *connection)
{
    return all->lists[STATE_BUSY].count < all->requests_max &&
           (connection->origin == NULL ||
            connection->origin->counts[STATE_BUSY] < all->address_requests_max);
}

static void give_turns_locked(struct http_connections *all)
{
    struct http_connection *next;
    for (struct http_connection *connection = all->lists[STATE_WAITING].first; connection != NULL;
         connection = next) {
        next = connection->next;
        if (!may_turn_locked(all, connection))
            continue;
        move_locked(all, connection, STATE_BUSY);
        connection->window_ns = connection->since_ns;
        connection->window_bytes = atomic_load(&connection->moved_bytes);
        if (connection->wake != NULL)
            connection->wake(connection->argument);
    }
}

static void send_away_locked(struct http_connections *all, struct http_connection *connection)
{
    metrics_add(all->metrics, METRIC_HTTP_WAITED_IN_VAIN, 1);
    connection->waited_in_vain = true;
    move_locked(all, connection, STATE_IDLE);
    connection->wake(connection->argument);
}

void http_connection_leave(struct http_connection *connection)
{
    struct http_connections *const all = connection->all;
    lock_acquire(&all->lock);
    connection->waited_in_vain = false;
    if (connection->state != STATE_SHUT)
        move_locked(all, connection, STATE_IDLE);
    give_turns_locked(all);
    lock_release(&all->lock);
}

void http_connection_moved(struct http_connection *connection, size_t bytes)
{
    atomic_fetch_add_explicit(&connection->moved_bytes, bytes, memory_order_relaxed);
}

void http_connection_hold(struct http_connection *connection, bool held)
{
    atomic_store(&connection->held, held);
}
