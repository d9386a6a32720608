/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last warnings and errors of the log, for who looks at the process by itself: LOG_RECENT_MAX lines as they were written,
 * longer ones cut. Memory of the process, as the log is; any thread, with whatever locks held.
 */
#ifndef VARVE_BASE_LOG_RECENT_H
#define VARVE_BASE_LOG_RECENT_H

#include <stddef.h>
#include <stdint.h>

enum { LOG_RECENT_MAX = 100, LOG_RECENT_BYTES_MAX = 600 };

/* A plain value. */
struct log_recent {
    uint64_t number;                 /* 1 for the first since the start */
    char line[LOG_RECENT_BYTES_MAX]; /* without its newline; UTF-8 */
};

/* length: without the newline. */
void log_recent_keep(const char *line, size_t length);

/* Copies those with numbers above `after`, the newest `max` of them, oldest first; how many. */
size_t log_recent_copy(uint64_t after, struct log_recent *lines, size_t max);

#endif
