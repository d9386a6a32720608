/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_recent.h"

#include <pthread.h>
#include <string.h>

#include "base/bytes.h"
#include "base/compiler.h"

/*
 * A bare mutex: lines are logged under any lock, so this one has no rank. Under it nothing is called.
 */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t kept; /* guarded by mutex, as below: lines so far */
static char lines_kept[LOG_RECENT_MAX]
                      [LOG_RECENT_BYTES_MAX]; /* number n at n - 1, round and round */

void log_recent_keep(const char *line, size_t length)
{
    if (length >= LOG_RECENT_BYTES_MAX)
        length = bytes_utf8_prefix(bytes_of(line, LOG_RECENT_BYTES_MAX - 1));
    ASSERT(pthread_mutex_lock(&mutex) == 0);
    char *const to = lines_kept[kept++ % LOG_RECENT_MAX];
    memcpy(to, line, length);
    to[length] = '\0';
    ASSERT(pthread_mutex_unlock(&mutex) == 0);
}

size_t log_recent_copy(uint64_t after, struct log_recent *lines, size_t max)
{
    ASSERT(pthread_mutex_lock(&mutex) == 0);
    uint64_t count = kept > after ? kept - after : 0;
    if (count > LOG_RECENT_MAX)
        count = LOG_RECENT_MAX;
    if (count > max)
        count = max;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t number = kept - count + i + 1;
        lines[i].number = number;
        memcpy(lines[i].line, lines_kept[(number - 1) % LOG_RECENT_MAX], LOG_RECENT_BYTES_MAX);
    }
    ASSERT(pthread_mutex_unlock(&mutex) == 0);
    return (size_t)count;
}
