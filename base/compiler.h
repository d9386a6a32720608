/* SPDX-License-Identifier: Apache-2.0 */
/* What every file needs from the compiler: ASSERT, MUST_CHECK and annotations. */
#ifndef VARVE_BASE_COMPILER_H
#define VARVE_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

/* A failure that may not be dropped. gcc is not silenced by a (void) cast. */
#define MUST_CHECK __attribute__((warn_unused_result))

#define PRINTF_LIKE(format_index, first_argument)                                                  \
    __attribute__((format(printf, format_index, first_argument)))

/* The caller holds this lock. clang checks it; gcc ignores it. */
#if defined(__clang__)
#define REQUIRES(lock_expression) __attribute__((requires_capability(lock_expression)))
#define ACQUIRES(lock_expression) __attribute__((acquire_capability(lock_expression)))
#define RELEASES(lock_expression) __attribute__((release_capability(lock_expression)))
#define CAPABILITY(name) __attribute__((capability(name)))
#define UNCHECKED_LOCKING __attribute__((no_thread_safety_analysis))
#else
#define REQUIRES(lock_expression)
#define ACQUIRES(lock_expression)
#define RELEASES(lock_expression)
#define CAPABILITY(name)
#define UNCHECKED_LOCKING
#endif

/*
 * What our own code must never do; always on, in release too. Prints the condition, file and line
 * to stderr and aborts. Never used on what a disk, a network or a client can do.
 */
#define ASSERT(condition) ((condition) ? (void)0 : assert_failed(#condition, __FILE__, __LINE__))

__attribute__((noreturn, cold)) void assert_failed(const char *condition,
                                                   const char *file,
                                                   int line);

#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* The object of which `member` is at `pointer`. */
#define CONTAINER_OF(pointer, type, member)                                                        \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

#endif
