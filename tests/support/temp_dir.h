/* SPDX-License-Identifier: Apache-2.0 */
/* A directory of one test's own, on a real disk. */
#ifndef VARVE_TESTS_SUPPORT_TEMP_DIR_H
#define VARVE_TESTS_SUPPORT_TEMP_DIR_H

enum { TEMP_DIR_PATH_BYTES_MAX = 256 };

struct temp_dir {
    char path[TEMP_DIR_PATH_BYTES_MAX];
};

/* Makes an empty directory under $TMPDIR (else /tmp); aborts if that fails. */
void temp_dir_make(struct temp_dir *directory);

/*
 * Removes it with all that is in it; does not follow symbolic links. A directory that was never
 * made is fine.
 */
void temp_dir_remove(struct temp_dir *directory);

#endif
