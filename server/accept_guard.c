/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nobody tells us when a connection is closed. So each accepted socket is remembered by its
 * descriptor and inode; whoever has to know how many there are looks which descriptors still are
 * those sockets.
 */
#include "server/accept_guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "server/address.h"

enum { ADDRESS_CONNECTIONS_MIN = 1024 };
/* A full table is looked through again no sooner than this. */
static const int64_t sweep_pause_ns = 10 * NS_PER_MS;
static const int64_t log_pause_ns = 10 * NS_PER_S;

static struct {
    _Atomic bool started;
    _Atomic int left_alone; /* a listening socket; 0: none */
    struct lock lock;
    struct metrics *metrics; /* guarded by lock, as all below; borrowed */
    uint64_t connections_max;
    uint64_t descriptors_max;
    uint64_t left_alone_descriptors; /* above those */
    uint64_t address_connections_max;
    ino_t *inodes;       /* owned; by descriptor, 0 where there is no connection of ours */
    uint64_t *addresses; /* owned; likewise: where it comes from */
    int highest;         /* no descriptor above it is remembered */
    uint64_t connections;
    int spare; /* owned; -1 when it could not be opened again */
    int64_t swept_ns;
    int64_t logged_ns;
} guard;

static bool admit(int fd, bool left_alone);
static bool remember_locked(int fd, bool left_alone) REQUIRES(guard.lock);
static uint64_t count_locked(uint64_t address) REQUIRES(guard.lock);
static void sweep_locked(void) REQUIRES(guard.lock);
static void note_shed_locked(const char *reason) REQUIRES(guard.lock);
static int shed_with_spare(int listening);
static int open_spare(void);

bool accept_guard_start(uint64_t connections_max,
                        uint64_t address_connections_max,
                        uint64_t descriptors_max,
                        struct metrics *metrics,
                        struct status *status)
{
    ASSERT(!atomic_load(&guard.started));
    guard.inodes = calloc(descriptors_max, sizeof(*guard.inodes));
    guard.addresses = calloc(descriptors_max, sizeof(*guard.addresses));
    if (guard.inodes == NULL || guard.addresses == NULL) {
        free(guard.inodes);
        free(guard.addresses);
        return status_fail_errno(status, ENOMEM, "table of connections");
    }
    lock_init(&guard.lock, LOCK_RANK_LEAF);
    guard.metrics = metrics;
    guard.connections_max = connections_max;
    guard.address_connections_max = address_connections_max;
    if (address_connections_max == 0)
        guard.address_connections_max = connections_max / 2 > ADDRESS_CONNECTIONS_MIN
                                            ? connections_max / 2
                                            : ADDRESS_CONNECTIONS_MIN;
    guard.descriptors_max = descriptors_max;
    guard.left_alone_descriptors = 0;
    guard.highest = -1;
    guard.connections = 0;
    guard.swept_ns = 0;
    guard.logged_ns = 0;
    guard.spare = open_spare();
    atomic_store(&guard.started, true);
    return true;
}

void accept_guard_stop(void)
{
    if (!atomic_exchange(&guard.started, false))
        return;
    atomic_store(&guard.left_alone, 0);
    if (guard.spare >= 0)
        close(guard.spare);
    lock_destroy(&guard.lock);
    free(guard.inodes);
    free(guard.addresses);
    guard.inodes = NULL;
    guard.addresses = NULL;
}

static int open_spare(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void accept_guard_leave_alone(int listening, uint64_t descriptors)
{
    if (!atomic_load(&guard.started))
        return;
    lock_acquire(&guard.lock);
    guard.left_alone_descriptors = descriptors;
    lock_release(&guard.lock);
    atomic_store(&guard.left_alone, listening);
}

/* Both ways of writing one of IPv4 are the same. */
static bool parse_peer(const char *peer, struct in6_addr *address, uint16_t *port)
{
    enum { HOST_BYTES_MAX = 64 };
    char host[HOST_BYTES_MAX];
    const bool six = strncmp(peer, "ipv6:", 5) == 0;
    const char *const colon = strrchr(peer, ':');
    if ((!six && strncmp(peer, "ipv4:", 5) != 0) || colon == NULL || colon < peer + 5)
        return false;
    const char *from = peer + 5;
    size_t length = (size_t)(colon - from);
    const size_t bracket = six && *from == '%' ? 3 : 1; /* %5B, or [ */
    if (six && length > 2 * bracket) {
        from += bracket;
        length -= 2 * bracket;
    }
    const char *const prefix = six ? "" : "::ffff:";
    if (strlen(prefix) + length >= sizeof(host))
        return false;
    memcpy(host, prefix, strlen(prefix));
    memcpy(host + strlen(prefix), from, length);
    host[strlen(prefix) + length] = '\0';
    *port = (uint16_t)strtoul(colon + 1, NULL, 10);
    return inet_pton(AF_INET6, host, address) == 1;
}

static bool comes_from(int fd, const struct in6_addr *wanted, uint16_t port)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof(address);
    if (getpeername(fd, (struct sockaddr *)(void *)&address, &length) != 0)
        return false;
    if (address.ss_family == AF_INET) {
        const struct sockaddr_in *const four = (const void *)&address;
        return ntohs(four->sin_port) == port && IN6_IS_ADDR_V4MAPPED(wanted) &&
               memcmp(wanted->s6_addr + 12, &four->sin_addr, sizeof(four->sin_addr)) == 0;
    }
    const struct sockaddr_in6 *const six = (const void *)&address;
    return address.ss_family == AF_INET6 && ntohs(six->sin6_port) == port &&
           memcmp(wanted, &six->sin6_addr, sizeof(*wanted)) == 0;
}

/* Whoever owns it may close it at any time, and another get its number: what is asked and shut down is one copy of it. */
static bool shut_locked(const struct in6_addr *wanted, uint16_t port) REQUIRES(guard.lock);
static bool shut_locked(const struct in6_addr *wanted, uint16_t port)
{
    for (int fd = 0; fd <= guard.highest; fd++) {
        if (guard.inodes[fd] == 0 || !comes_from(fd, wanted, port))
            continue;
        const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        const bool same = copy >= 0 && comes_from(copy, wanted, port);
        if (same)
            shutdown(copy, SHUT_RDWR);
        if (copy >= 0)
            close(copy);
        if (same)
            return true;
    }
    return false;
}

bool accept_guard_shut(const char *peer)
{
    struct in6_addr wanted;
    uint16_t port;
    if (!atomic_load(&guard.started) || !parse_peer(peer, &wanted, &port))
        return false;
    lock_acquire(&guard.lock);
    const bool shut = shut_locked(&wanted, port);
    lock_release(&guard.lock);
    return shut;
}

void accept_guard_step(void)
{
    lock_acquire(&guard.lock);
    sweep_locked();
    if (guard.spare < 0)
        guard.spare = open_spare();
    lock_release(&guard.lock);
}

/*
 * By its symbol the C library's function; what it returns besides are EAGAIN and EINTR in place of
 * some errors.
 */
__attribute__((visibility("default"))) int guarded_accept4(int listening,
                                                           struct sockaddr *address,
                                                           socklen_t *length,
                                                           int flags) __asm__("accept4");

int guarded_accept4(int listening, struct sockaddr *address, socklen_t *length, int flags)
{
    const int accepted = (int)syscall(SYS_accept4, listening, address, length, flags);
    if (!atomic_load(&guard.started))
        return accepted;
    if (accepted >= 0) {
        if (admit(accepted, listening == atomic_load(&guard.left_alone)))
            return accepted;
        close(accepted);
        errno = EINTR; /* the caller tries again, for the next one in the queue */
        return -1;
    }
    switch (errno) {
    case EMFILE:
    case ENFILE:
        errno = shed_with_spare(listening);
        break;
    case ENOBUFS:
    case ENOMEM:
        errno = EAGAIN;
        break;
    case EAGAIN:
    case EINTR:
    case EBADF:
    case EINVAL:
    case ENOTSOCK:
    case EFAULT:
        break; /* nothing new, or the listener is gone */
    default:
        /* Of the connection that was to be accepted: ECONNABORTED, EPROTO, EPERM, ENETDOWN, ... */
        errno = EINTR;
        break;
    }
    return -1;
}

static bool admit(int fd, bool left_alone)
{
    lock_acquire(&guard.lock);
    const bool admitted = remember_locked(fd, left_alone);
    lock_release(&guard.lock);
    return admitted;
}

static bool remember_locked(int fd, bool left_alone)
{
    if ((uint64_t)fd >= guard.descriptors_max) {
        if (left_alone && (uint64_t)fd < guard.descriptors_max + guard.left_alone_descriptors)
            return true;
        note_shed_locked("descriptors");
        return false;
    }
    struct stat about;
    if (fstat(fd, &about) != 0)
        return false;
    if (guard.inodes[fd] != 0) {
        guard.inodes[fd] = 0; /* that one was closed */
        guard.connections--;
    }
    if (guard.connections >= guard.connections_max)
        sweep_locked();
    if (guard.connections >= guard.connections_max && !left_alone) {
        note_shed_locked("max-connections");
        return false;
    }
    const uint64_t address = address_of_peer(fd);
    if (address != 0 && count_locked(address) >= guard.address_connections_max) {
        sweep_locked();
        if (count_locked(address) >= guard.address_connections_max) {
            metrics_add(guard.metrics, METRIC_LIMITED_CONNECTIONS, 1);
            note_shed_locked("address-connections");
            return false;
        }
    }
    guard.inodes[fd] = about.st_ino;
    guard.addresses[fd] = address;
    guard.connections++;
    if (fd > guard.highest)
        guard.highest = fd;
    return true;
}

static uint64_t count_locked(uint64_t address)
{
    uint64_t count = 0;
    for (int fd = 0; fd <= guard.highest; fd++)
        count += guard.inodes[fd] != 0 && guard.addresses[fd] == address;
    return count;
}

static void sweep_locked(void)
{
    const int64_t now_ns = clock_monotonic_ns(clock_real());
    if (now_ns - guard.swept_ns < sweep_pause_ns)
        return;
    guard.swept_ns = now_ns;
    int highest = -1;
    for (int fd = 0; fd <= guard.highest; fd++) {
        struct stat about;
        if (guard.inodes[fd] == 0)
            continue;
        if (fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode) && about.st_ino == guard.inodes[fd]) {
            highest = fd;
            continue;
        }
        guard.inodes[fd] = 0;
        guard.connections--;
    }
    guard.highest = highest;
    metrics_set(guard.metrics, METRIC_CONNECTIONS, (int64_t)guard.connections);
}

static void note_shed_locked(const char *reason)
{
    metrics_add(guard.metrics, METRIC_CONNECTIONS_SHED, 1);
    const int64_t now_ns = clock_monotonic_ns(clock_real());
    if (guard.logged_ns != 0 && now_ns - guard.logged_ns < log_pause_ns)
        return;
    guard.logged_ns = now_ns;
    log_event(LOG_LEVEL_WARN, "connections_shed",
              "reason=%s connections=%llu max_connections=%llu max_descriptors=%llu", reason,
              (unsigned long long)guard.connections, (unsigned long long)guard.connections_max,
              (unsigned long long)guard.descriptors_max);
}

/*
 * Closes one connection with the spare descriptor; the errno for the caller. The kernel says EMFILE
 * also when nobody waits to be accepted, so the end of the queue shows here alone; a caller that is
 * told to try again would do so for ever.
 */
static int shed_with_spare(int listening)
{
    int fd = -1;
    lock_acquire(&guard.lock);
    if (guard.spare >= 0) {
        close(guard.spare);
        fd = (int)syscall(SYS_accept4, listening, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            close(fd);
            note_shed_locked("descriptors");
        }
    }
    guard.spare = open_spare();
    lock_release(&guard.lock);
    return fd >= 0 ? EINTR : EAGAIN;
}
