/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_stamp.h"

#include <sys/stat.h>

#include "base/compiler.h"

uint64_t file_stamp(char *const *paths, size_t count)
{
    uint64_t stamp = 1;
    for (size_t i = 0; i < count; i++) {
        struct stat about;
        if (stat(paths[i], &about) != 0)
            return 0;
        const uint64_t facts[] = {(uint64_t)about.st_ino, (uint64_t)about.st_size,
                                  (uint64_t)about.st_mtim.tv_sec, (uint64_t)about.st_mtim.tv_nsec,
                                  (uint64_t)about.st_ctim.tv_nsec};
        for (size_t j = 0; j < ARRAY_LENGTH(facts); j++)
            stamp = (stamp ^ facts[j]) * UINT64_C(0x9e3779b97f4a7c15) + (stamp >> 29);
    }
    return stamp != 0 ? stamp : 1;
}
