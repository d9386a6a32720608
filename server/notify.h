/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a service manager (systemd's protocol sd_notify) is told: that the server serves, how it is,
 * that it stops, and that it is alive. One datagram each to the socket that the manager named.
 * Without a manager nothing is sent, and nothing fails.
 *
 * Does not judge whether the server is alive: that is server/progress.h's.
 */
#ifndef VARVE_SERVER_NOTIFY_H
#define VARVE_SERVER_NOTIFY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { NOTIFY_STATUS_BYTES_MAX = 200 };

struct notify {
    /* Set by notify_init(), never changed. */
    int fd; /* owned; -1: nobody listens */
    struct sockaddr_un address;
    socklen_t address_bytes;
    int64_t alive_every_ns; /* 0: nobody asks */

    int64_t alive_ns;                     /* of the maintenance thread: when it was told last */
    char status[NOTIFY_STATUS_BYTES_MAX]; /* of the maintenance thread: what was told last */
    _Atomic bool failing;                 /* the last datagram did not get there */
};

/* What the manager puts into the environment; each may be NULL. */
struct notify_environment {
    const char *socket_name;  /* NOTIFY_SOCKET: a path, or @NAME in the abstract name space */
    const char *watchdog_us;  /* WATCHDOG_USEC: not alive for so long, it is killed */
    const char *watchdog_pid; /* WATCHDOG_PID: whom that means */
};

/* The real environment. Not while another thread changes it. */
struct notify_environment notify_environment(void);

/* What cannot be used is logged (notify_failed) and left out. */
void notify_init(struct notify *notify, const struct notify_environment *environment);
void notify_destroy(struct notify *notify);

/* Any thread. A manager that does not read is waited for, some seconds. */
void notify_ready(struct notify *notify);
/* Files are read again; notify_ready() says that it is over. */
void notify_reloading(struct notify *notify, int64_t now_ns);
/* for_ns: how much time the stop may take from now on. */
void notify_stopping(struct notify *notify, int64_t for_ns);

/* ---- one thread at a time */

/* One line for a person; sent when it is another than before. */
void notify_status(struct notify *notify, const char *text);
/* Call it often: sends when it is time for it, twice in the manager's interval. */
void notify_alive(struct notify *notify, int64_t now_ns);

#endif
