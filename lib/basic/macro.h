/* SPDX-License-Identifier: MIT */
/*
 * Small macros that every part of the project shares. Needs nothing but the compiler, so the installed
 * library, the daemon and the tests may all include it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* How many elements a real array has; a pointer is refused at compile time. */
#define ARRAY_SIZE(array)                                                                                    \
    (sizeof(array) / sizeof((array)[0]) +                                                                    \
     0 * sizeof(struct {                                                                                     \
         int must_be_an_array[__builtin_types_compatible_p(__typeof__(array), __typeof__(&(array)[0])) ? -1  \
                                                                                                       : 1]; \
     }))

/* Each argument is evaluated once; both must have one common type after the usual conversions. */
#define MIN(a, b)                                                                                            \
    __extension__({                                                                                          \
        __typeof__(a) min_a_ = (a);                                                                          \
        __typeof__(b) min_b_ = (b);                                                                          \
        min_a_ < min_b_ ? min_a_ : min_b_;                                                                   \
    })

#define MAX(a, b)                                                                                            \
    __extension__({                                                                                          \
        __typeof__(a) max_a_ = (a);                                                                          \
        __typeof__(b) max_b_ = (b);                                                                          \
        max_a_ > max_b_ ? max_a_ : max_b_;                                                                   \
    })

/* Where the common path goes; a hint only. */
#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

/* A condition that must hold when this is compiled. */
#define assert_cc(condition) _Static_assert(condition, #condition)

/* The quotient rounded up; neither operand may be negative, and n + d - 1 must not overflow. */
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))

/* The next multiple of a power of two, and the one at or below; the result has the type of n. */
#define ALIGN_UP(n, alignment) ((__typeof__(n))(((n) + ((alignment) - 1)) & ~(__typeof__(n))((alignment) - 1)))
#define ALIGN_DOWN(n, alignment) ((__typeof__(n))((n) & ~(__typeof__(n))((alignment) - 1)))
#define IS_ALIGNED(n, alignment) (((n) & (__typeof__(n))((alignment) - 1)) == 0)
#define IS_POWER_OF_TWO(n) ((n) > 0 && ((n) & ((n) - 1)) == 0)

/* The struct around a member. */
#ifndef container_of
#define container_of(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))
#endif

#define _printf_(format_index, first_argument) __attribute__((format(printf, format_index, first_argument)))
#define _hidden_ __attribute__((visibility("hidden")))
#define _public_ __attribute__((visibility("default")))
#define _unused_ __attribute__((unused))
#define _must_check_ __attribute__((warn_unused_result))

enum {
    CACHE_LINE_BYTES = 64, /* x86-64 and most aarch64; only speed depends on it */
};
