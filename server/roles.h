/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller must be allowed to do. No role includes another. */
#ifndef VARVE_SERVER_ROLES_H
#define VARVE_SERVER_ROLES_H

enum method_role {
    ROLE_NONE, /* nothing: everybody may, without showing anything */
    ROLE_ANY,  /* one of those below, whichever */
    ROLE_READ,
    ROLE_WRITE_CAS,
    ROLE_WRITE_AC,
    ROLE_REPLICATE,
    ROLE_ADMIN,
    ROLE_COUNT
};

/* "write-ac", as the access file has it. Static storage. */
const char *method_role_name(enum method_role role);

#endif
