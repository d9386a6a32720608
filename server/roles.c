/* SPDX-License-Identifier: Apache-2.0 */
#include "server/roles.h"

#include "base/compiler.h"

const char *method_role_name(enum method_role role)
{
    static const char *const names[ROLE_COUNT] = {
        [ROLE_NONE] = "none",         [ROLE_ANY] = "any",
        [ROLE_READ] = "read",         [ROLE_WRITE_CAS] = "write-cas",
        [ROLE_WRITE_AC] = "write-ac", [ROLE_REPLICATE] = "replicate",
        [ROLE_ADMIN] = "admin",
    };
    ASSERT((unsigned int)role < ROLE_COUNT);
    return names[role];
}
