/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/support/process_watch.h"

#include <math.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { METRICS_BYTES_MAX = 1 << 20 };

static size_t read_proc(pid_t pid, const char *name, char *text, size_t capacity)
{
    char path[64];
    if (pid == 0)
        snprintf(path, sizeof(path), "/proc/self/%s", name);
    else
        snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    const size_t length = fread(text, 1, capacity - 1, file);
    fclose(file);
    text[length] = '\0';
    return length;
}

/* "VmRSS:     1234 kB" */
static uint64_t status_bytes(const char *status, const char *key)
{
    const char *line = strstr(status, key);
    unsigned long long kilobytes;
    if (line == NULL || sscanf(line + strlen(key), " %llu kB", &kilobytes) != 1)
        return 0;
    return kilobytes << 10;
}

struct process_use process_use_now(pid_t pid)
{
    struct process_use use = {.cpu_seconds = NAN};
    char text[8192];
    /* utime and stime, fields 14 and 15; the name in field 2 may have anything in it but the last ')'. */
    const char *behind_name =
        read_proc(pid, "stat", text, sizeof(text)) > 0 ? strrchr(text, ')') : NULL;
    unsigned long long user, kernel;
    if (behind_name != NULL &&
        sscanf(behind_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
               &kernel) == 2)
        use.cpu_seconds = (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
    if (read_proc(pid, "status", text, sizeof(text)) > 0) {
        use.rss_bytes = status_bytes(text, "VmRSS:");
        use.rss_peak_bytes = status_bytes(text, "VmHWM:");
    }
    return use;
}

static int connect_to(const char *address)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    if (colon == NULL || (size_t)(colon - address) >= sizeof(host))
        return -1;
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
        return -1;
    const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, 0);
    const struct timeval limit = {.tv_sec = 2};
    const bool connected = fd >= 0 &&
                           setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0 &&
                           setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0 &&
                           connect(fd, found->ai_addr, found->ai_addrlen) == 0;
    freeaddrinfo(found);
    if (connected)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static double sum_of_series(const char *text, const char *name)
{
    double sum = NAN;
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, strlen(name)) != 0)
            continue;
        const char *value = strchr(line, ' ');
        if (value != NULL)
            sum = (isnan(sum) ? 0 : sum) + strtod(value, NULL);
    }
    return sum;
}

double server_syncs_now(const char *address)
{
    static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
    double syncs = NAN;
    char *text = malloc(METRICS_BYTES_MAX);
    const int fd = text != NULL ? connect_to(address) : -1;
    if (fd >= 0 && send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) == sizeof(request) - 1) {
        size_t length = 0;
        for (ssize_t got; length < METRICS_BYTES_MAX - 1 &&
                          (got = recv(fd, text + length, METRICS_BYTES_MAX - 1 - length, 0)) > 0;)
            length += (size_t)got;
        text[length] = '\0';
        syncs = sum_of_series(text, "varve_segment_syncs_total");
    }
    if (fd >= 0)
        close(fd);
    free(text);
    return syncs;
}
