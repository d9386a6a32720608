/* SPDX-License-Identifier: Apache-2.0 */
/* Sets the fail points that the environment asks for, in builds that have them. */
#ifndef VARVE_SERVER_FAILPOINTS_H
#define VARVE_SERVER_FAILPOINTS_H

#include "base/status.h"

/* INVALID_ARGUMENT where the text of VARVE_FAILPOINTS goes wrong. */
MUST_CHECK bool failpoints_start(struct status *status);

#endif
