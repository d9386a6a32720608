/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/temp_dir.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/compiler.h"

void temp_dir_make(struct temp_dir *directory)
{
    const char *parent = getenv("TMPDIR");
    const int length = snprintf(directory->path, sizeof(directory->path), "%s/varve-test-XXXXXX",
                                parent != NULL && parent[0] != '\0' ? parent : "/tmp");
    ASSERT(length > 0 && (size_t)length < sizeof(directory->path));
    ASSERT(mkdtemp(directory->path) != NULL);
}

static int remove_entry(const char *path, const struct stat *stat, int kind, struct FTW *place)
{
    (void)stat;
    (void)kind;
    (void)place;
    return remove(path);
}

void temp_dir_remove(struct temp_dir *directory)
{
    enum { DESCRIPTORS_MAX = 16 };
    if (directory->path[0] == '\0')
        return;
    ASSERT(nftw(directory->path, remove_entry, DESCRIPTORS_MAX, FTW_DEPTH | FTW_PHYS) == 0);
    directory->path[0] = '\0';
}
