/* SPDX-License-Identifier: Apache-2.0 */
#include "server/failpoints.h"

#include "base/failpoint.h"

#ifdef FAILPOINTS

bool failpoints_start(struct status *status)
{
    const char *bad = NULL;
    if (failpoint_init_from_environment(&bad))
        return true;
    return status_fail(status, STATUS_INVALID_ARGUMENT,
                       "VARVE_FAILPOINTS is wrong from here on: \"%.100s\"", bad);
}

#else

bool failpoints_start(struct status *status)
{
    (void)status;
    return true;
}

#endif
