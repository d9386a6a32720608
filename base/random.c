/* SPDX-License-Identifier: Apache-2.0 */
#include "base/random.h"

#include <errno.h>
#include <sys/random.h>

#include "base/compiler.h"

bool random_fill(void *data, size_t length, struct status *status)
{
    ssize_t got;
    ASSERT(length <= RANDOM_BYTES_MAX);
    do
        got = getrandom(data, length, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return status_fail_errno(status, errno, "getrandom");
    ASSERT((size_t)got == length); /* as promised for up to so many */
    return true;
}
