/* SPDX-License-Identifier: Apache-2.0 */
#include "base/compiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void assert_failed(const char *condition, const char *file, int line)
{
    char text[512];
    const int formatted =
        snprintf(text, sizeof(text), "assertion failed: %s, %s:%d\n", condition, file, line);

    /* write() and not stdio: no lock that a broken program may hold, nothing left in a buffer. */
    size_t length = formatted < 0 ? 0 : (size_t)formatted;
    if (length >= sizeof(text)) {
        length = sizeof(text) - 1;
        text[length - 1] = '\n';
    }
    const ssize_t written = write(STDERR_FILENO, text, length);
    (void)written;
    abort();
}
