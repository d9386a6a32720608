/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random names (UUID version 4), which REAPI wants for uploads and tools give to their invocations.
 */
#ifndef VARVE_CLIENT_UUID_H
#define VARVE_CLIENT_UUID_H

enum { UUID_TEXT_BYTES = 37 }; /* with the NUL */

void uuid_random(char text[UUID_TEXT_BYTES]);

#endif
