/* SPDX-License-Identifier: MIT */
/*
 * Small macros that every part of the project shares. Needs nothing but the compiler, so the installed
 * library, the daemon and the tests may all include it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* <sys/param.h> brings its own, which evaluate an argument twice. */
#undef MIN
#undef MAX

/* How many elements a real array has; a pointer is refused at compile time. */
#define ARRAY_SIZE(array)                                                                                    \
    (sizeof(array) / sizeof((array)[0]) +                                                                    \
     0 * sizeof(struct {                                                                                     \
         int must_be_an_array[__builtin_types_compatible_p(__typeof__(array), __typeof__(&(array)[0])) ? -1  \
                                                                                                       : 1]; \
     }))

/* Joins two tokens after expanding them; UNIQUE_NAME() gives nested uses of one macro names of their own. */
#define JOIN_EXPANDED_(a, b) a##b
#define JOIN(a, b) JOIN_EXPANDED_(a, b)
#define UNIQUE_NAME(stem) JOIN(stem, __COUNTER__)

/* Each argument is evaluated once; both should have one type, as nothing warns of a changed sign. */
#define MIN(a, b) PICK_(a, b, <, UNIQUE_NAME(pick_a_), UNIQUE_NAME(pick_b_))
#define MAX(a, b) PICK_(a, b, >, UNIQUE_NAME(pick_a_), UNIQUE_NAME(pick_b_))
#define PICK_(a, b, wins, a_, b_) PICK_NAMED_(a, b, wins, a_, b_)
#define PICK_NAMED_(a, b, wins, a_, b_)                                                                      \
    __extension__({                                                                                          \
        __typeof__(a) a_ = (a);                                                                              \
        __typeof__(b) b_ = (b);                                                                              \
        a_ wins b_ ? a_ : b_;                                                                                \
    })

/* Where the common path goes; a hint only. */
#define likely(condition) __builtin_expect(!!(condition), 1)
#define unlikely(condition) __builtin_expect(!!(condition), 0)

/* A condition that must hold when this is compiled. */
#define assert_cc(condition) _Static_assert(condition, #condition)

/* The quotient rounded up; neither operand may be negative, and n + d - 1 must not overflow. */
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))

/* The multiple of a power of two at or below n, and the one at or above; the result has the type of n. */
#define ALIGN_DOWN(n, alignment) ((__typeof__(n))((n) & ~(__typeof__(n))((alignment) - 1)))
#define ALIGN_UP(n, alignment) ALIGN_DOWN((__typeof__(n))((n) + ((alignment) - 1)), alignment)
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
