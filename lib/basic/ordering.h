/* SPDX-License-Identifier: MIT */
/*
 * The one header that names every ordering operation the project uses. All are macros or inline wrappers
 * over the compiler's atomics: they work on a plain integer or pointer of 1..8 bytes, naturally aligned, in
 * private or shared memory, and never take a lock. Needs nothing but the compiler.
 *
 * Reading guide. "Before" and "after" mean program order in the calling thread. Every non-relaxed use
 * elsewhere carries a comment that says what it orders against what, and "pairs with f()", at both ends.
 *
 *     operation          earlier loads  earlier stores   later loads  later stores   may not move across it
 *     load_acquire()     -              -                held         held
 *     store_release()    held           held             -            -
 *     full_fence()       held           held             held         held
 *     compiler_fence()   held against the compiler only; the processor may still reorder
 */
#pragma once

#include <stdint.h>

/* Loads once, whole, in no order. For values whose staleness is harmless; say why where it is used. */
#define load_relaxed(pointer) __atomic_load_n((pointer), __ATOMIC_RELAXED)

/* Stores once, whole, in no order. For words that only their writer reads, or
   that a later operation publishes. */
#define store_relaxed(pointer, value) __atomic_store_n((pointer), (value), __ATOMIC_RELAXED)

/* What the writer did before the store_release() that this load sees is visible to everything after it. */
#define load_acquire(pointer) __atomic_load_n((pointer), __ATOMIC_ACQUIRE)

/* Everything before it is visible to whoever load_acquire()s the value. It does not order later loads. */
#define store_release(pointer, value) __atomic_store_n((pointer), (value), __ATOMIC_RELEASE)

/* Adds and returns the value before. No order: for counters and numbers that publish nothing themselves. */
#define fetch_add_relaxed(pointer, value) __atomic_fetch_add((pointer), (value), __ATOMIC_RELAXED)

/* Subtracts and returns the value before. No order, as above. */
#define fetch_sub_relaxed(pointer, value) __atomic_fetch_sub((pointer), (value), __ATOMIC_RELAXED)

/* Subtracts; the last one to drop a reference sees all that the others did before dropping theirs. */
#define fetch_sub_acq_rel(pointer, value) __atomic_fetch_sub((pointer), (value), __ATOMIC_ACQ_REL)

/* Sets bits and returns the value before. No order: for flags that publish nothing themselves. */
#define fetch_or_relaxed(pointer, bits) __atomic_fetch_or((pointer), (bits), __ATOMIC_RELAXED)

/* Clears the bits that are not in the mask and returns the value before. No order, as above. */
#define fetch_and_relaxed(pointer, mask) __atomic_fetch_and((pointer), (mask), __ATOMIC_RELAXED)

/* Stores and returns the value before. Acquires what the former owner released and releases what is ours. */
#define exchange_acq_rel(pointer, value) __atomic_exchange_n((pointer), (value), __ATOMIC_ACQ_REL)

/* If *pointer == *expected, stores value and is true; else loads it into *expected. Acquires and releases. */
#define compare_exchange_acq_rel(pointer, expected, value)                                                   \
    __atomic_compare_exchange_n((pointer), (expected), (value), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

/* The same without order, for a word that publishes nothing. */
#define compare_exchange_relaxed(pointer, expected, value)                                                   \
    __atomic_compare_exchange_n((pointer), (expected), (value), 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)

/* Turns earlier relaxed loads into acquires: what comes after it comes after them. */
static inline void acquire_fence(void)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

/* Turns later relaxed stores into releases: they carry everything before the fence. */
static inline void release_fence(void)
{
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

/*
 * Orders everything before it against everything after it, a store against a later load too: the one that
 * store-then-look-at-the-other-side protocols need. Tens of cycles; membarrier() replaces one side of a pair.
 */
static inline void full_fence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/*
 * Binds the compiler only: no instruction. Enough against a signal handler of the same thread, and against
 * another thread when the other side issues membarrier(), which stands in for the full fence missing here.
 */
static inline void compiler_fence(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/*
 * What one thread did before sanitizer_release() another sees after sanitizer_acquire() of the same address: a note for
 * ThreadSanitizer, and no code elsewhere. For orders that hold by operations that it does not see, inside of libraries.
 */
#if defined(__has_feature) /* clang's way; gcc's is the macro */
#if __has_feature(thread_sanitizer)
#define ORDERING_SANITIZED
#endif
#elif defined(__SANITIZE_THREAD__)
#define ORDERING_SANITIZED
#endif
#ifdef ORDERING_SANITIZED
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define sanitizer_acquire(pointer) __tsan_acquire(pointer)
#define sanitizer_release(pointer) __tsan_release(pointer)
#else
#define sanitizer_acquire(pointer) ((void)(pointer))
#define sanitizer_release(pointer) ((void)(pointer))
#endif

/* Tells the processor that this is a spin loop. Orders nothing. */
static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#elif defined(__riscv)
    __asm__ __volatile__(".insn i 0x0F, 0, x0, x0, 0x010"); /* the "pause" hint, for assemblers without it */
#else
    compiler_fence();
#endif
}
