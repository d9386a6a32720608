/* SPDX-License-Identifier: Apache-2.0 */
#include "server/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum { MESSAGE_BYTES_MAX = NOTIFY_STATUS_BYTES_MAX + 100, WAIT_FOR_READER_S = 5 };

static bool understand_address(struct notify *notify, const char *name);
static int64_t understand_watchdog(const struct notify_environment *environment);
static bool send_message(struct notify *notify, const char *message);
static void warn_of(const char *what, int error);

struct notify_environment notify_environment(void)
{
    return (struct notify_environment){.socket_name = getenv("NOTIFY_SOCKET"),
                                       .watchdog_us = getenv("WATCHDOG_USEC"),
                                       .watchdog_pid = getenv("WATCHDOG_PID")};
}

void notify_init(struct notify *notify, const struct notify_environment *environment)
{
    *notify = (struct notify){.fd = -1};
    const char *const name = environment->socket_name;
    if (name == NULL || name[0] == '\0')
        return;
    if (!understand_address(notify, name)) {
        warn_of("NOTIFY_SOCKET", EINVAL);
        return;
    }
    notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (notify->fd < 0) {
        warn_of("socket", errno);
        return;
    }
    const struct timeval wait = {.tv_sec = WAIT_FOR_READER_S};
    if (setsockopt(notify->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) != 0)
        warn_of("SO_SNDTIMEO", errno);
    notify->alive_every_ns = understand_watchdog(environment) / 2;
}

/* The abstract name space is marked by @, and its names have no zero byte at the end. */
static bool understand_address(struct notify *notify, const char *name)
{
    const size_t length = strlen(name);
    if ((name[0] != '/' && name[0] != '@') || length < 2 ||
        length >= sizeof(notify->address.sun_path))
        return false;
    notify->address.sun_family = AF_UNIX;
    memcpy(notify->address.sun_path, name, length);
    size_t path_bytes = length + 1;
    if (name[0] == '@') {
        notify->address.sun_path[0] = '\0';
        path_bytes = length;
    }
    notify->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path_bytes);
    return true;
}

/* 0: none, or not for this process. */
static int64_t understand_watchdog(const struct notify_environment *environment)
{
    const int64_t day_us = INT64_C(86400) * 1000 * 1000;
    char *end;
    if (environment->watchdog_us == NULL || environment->watchdog_us[0] == '\0')
        return 0;
    if (environment->watchdog_pid != NULL &&
        strtoll(environment->watchdog_pid, &end, 10) != getpid())
        return 0;
    errno = 0;
    const int64_t period_us = strtoll(environment->watchdog_us, &end, 10);
    if (errno != 0 || *end != '\0' || period_us <= 0) {
        warn_of("WATCHDOG_USEC", EINVAL);
        return 0;
    }
    return (period_us < day_us ? period_us : day_us) * NS_PER_US;
}

void notify_destroy(struct notify *notify)
{
    if (notify->fd >= 0)
        close(notify->fd);
    notify->fd = -1;
}

void notify_ready(struct notify *notify)
{
    (void)send_message(notify, "READY=1");
}

void notify_reloading(struct notify *notify, int64_t now_ns)
{
    char message[MESSAGE_BYTES_MAX];
    snprintf(message, sizeof(message), "RELOADING=1\nMONOTONIC_USEC=%" PRId64, now_ns / NS_PER_US);
    (void)send_message(notify, message);
}

void notify_stopping(struct notify *notify, int64_t for_ns)
{
    char message[MESSAGE_BYTES_MAX];
    snprintf(message, sizeof(message), "STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=%" PRId64,
             for_ns / NS_PER_US);
    (void)send_message(notify, message);
}

void notify_status(struct notify *notify, const char *text)
{
    char line[NOTIFY_STATUS_BYTES_MAX];
    char message[MESSAGE_BYTES_MAX];
    snprintf(line, sizeof(line), "%s", text);
    for (char *at = line; *at != '\0'; at++)
        if (*at == '\n')
            *at = ' '; /* it would begin the next assignment */
    if (strcmp(line, notify->status) == 0)
        return;
    snprintf(message, sizeof(message), "STATUS=%s", line);
    if (send_message(notify, message))
        memcpy(notify->status, line, sizeof(line));
}

void notify_alive(struct notify *notify, int64_t now_ns)
{
    if (notify->alive_every_ns == 0 ||
        (notify->alive_ns != 0 && now_ns - notify->alive_ns < notify->alive_every_ns))
        return;
    if (send_message(notify, "WATCHDOG=1"))
        notify->alive_ns = now_ns;
}

/* False when it did not get there. The first failure after a success is logged. */
static bool send_message(struct notify *notify, const char *message)
{
    if (notify->fd < 0)
        return true;
    const size_t length = strlen(message);
    ssize_t sent;
    do {
        sent =
            sendto(notify->fd, message, length, MSG_NOSIGNAL,
                   (const struct sockaddr *)(const void *)&notify->address, notify->address_bytes);
    } while (sent < 0 && errno == EINTR);
    const bool failed = sent != (ssize_t)length;
    if (!atomic_exchange(&notify->failing, failed) && failed)
        warn_of("NOTIFY_SOCKET", errno);
    return !failed;
}

static void warn_of(const char *what, int error)
{
    struct log_text text;
    log_event(LOG_LEVEL_WARN, "notify_failed", "at=%s reason=%s", what,
              log_quote(&text, strerrordesc_np(error)));
}
