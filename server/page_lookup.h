/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a digest is, decoded for a person: as JSON for the page (server/page/). Looks on this node alone, and asks no peer.
 *
 *   {"hash", "instance",
 *    "action": null or the result that is stored for it in the instance: outputs, exit code, who wrote it when,
 *    "blob":   null or {"size_bytes", "kind", ...}: a folder (Directory, or one inside of a Tree), a Command, an Action, or data}
 */
#ifndef VARVE_SERVER_PAGE_LOOKUP_H
#define VARVE_SERVER_PAGE_LOOKUP_H

#include "durability/durability.h"
#include "server/page_content.h"

enum { PAGE_MESSAGE_BYTES_MAX = 8 * 1024 * 1024 /* larger blobs are data */ };

/*
 * *json: to be freed. NOT_FOUND when there is neither; UNAVAILABLE when the disk fails; RESOURCE_EXHAUSTED. For a thread that may
 * read the disk.
 */
MUST_CHECK bool page_lookup(struct durability *durability,
                            const struct page_question *question,
                            char **json,
                            size_t *length,
                            struct status *status);

#endif
