/* SPDX-License-Identifier: Apache-2.0 */
#include "server/services.h"

static struct bytes service_of(const struct method *method)
{
    ASSERT(method->path[0] == '/');
    const char *const name = method->path + 1;
    const char *const slash = strchr(name, '/');
    ASSERT(slash != NULL);
    return bytes_of(name, (size_t)(slash - name));
}

static struct service *find(struct services *services, struct bytes name)
{
    for (size_t i = 0; i < services->count; i++)
        if (bytes_equal(services->items[i].name, name))
            return &services->items[i];
    return NULL;
}

void services_of_methods(const struct method *const *methods,
                         size_t count,
                         struct services *services)
{
    services->count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct bytes name = service_of(methods[i]);
        struct service *service = find(services, name);
        if (service == NULL) {
            ASSERT(services->count < SERVICES_MAX);
            service = &services->items[services->count++];
            *service = (struct service){.name = name};
        }
        if (methods[i]->role == ROLE_WRITE_CAS || methods[i]->role == ROLE_WRITE_AC)
            service->writes = true;
    }
}

const struct service *services_find(const struct services *services, struct bytes name)
{
    for (size_t i = 0; i < services->count; i++)
        if (bytes_equal(services->items[i].name, name))
            return &services->items[i];
    return NULL;
}
