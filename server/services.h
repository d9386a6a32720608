/* SPDX-License-Identifier: Apache-2.0 */
/* Which services the methods belong to, each once, in their order. */
#ifndef VARVE_SERVER_SERVICES_H
#define VARVE_SERVER_SERVICES_H

#include "base/bytes.h"
#include "server/call.h"

enum { SERVICES_MAX = 32 };

struct service {
    struct bytes name; /* "google.bytestream.ByteStream"; borrowed from a method's path */
    bool writes;       /* one of its methods does */
};

struct services {
    struct service items[SERVICES_MAX];
    size_t count;
};

void services_of_methods(const struct method *const *methods,
                         size_t count,
                         struct services *services);
const struct service *services_find(const struct services *services,
                                    struct bytes name); /* NULL: none */

#endif
