/* SPDX-License-Identifier: Apache-2.0 */
/* Tells whether files are still what they were, without reading them: for what is read again when it changes. */
#ifndef VARVE_BASE_FILE_STAMP_H
#define VARVE_BASE_FILE_STAMP_H

#include <stddef.h>
#include <stdint.h>

/* A number of which file each path leads to, its size and its times; 0 when one cannot be looked at. */
uint64_t file_stamp(char *const *paths, size_t count);

#endif
