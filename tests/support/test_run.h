/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a Check suite as a test program: `return test_run(suite);` is the whole of a main().
 *
 * Each test is its own process (CK_FORK=no turns that off, for a debugger). Names of tests that
 * failed and a summary go to stdout.
 */
#ifndef VARVE_TESTS_SUPPORT_TEST_RUN_H
#define VARVE_TESTS_SUPPORT_TEST_RUN_H

#include <check.h>

/*
 * Frees the suite. The exit status: EXIT_SUCCESS if every test passed and there was at least one.
 */
int test_run(Suite *suite);

#endif
