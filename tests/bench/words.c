/* SPDX-License-Identifier: MIT */
/* The line of the first failure, in an anonymous mapping that fork shares. */
#include "words.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#include "basic/ordering.h"

static struct words {
    unsigned taken; /* by the first that fails */
    unsigned ready; /* text is whole */
    char text[WORDS_BYTES];
} * words;

int words_init(void)
{
    if (!words) {
        void *p = mmap(NULL, sizeof(*words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED)
            return -errno;
        words = p;
    }
    words->taken = 0;
    words->ready = 0;
    return 0;
}

int words_set(int r, const char *format, ...)
{
    unsigned untaken = 0;
    va_list ap;

    if (!words || !compare_exchange_relaxed(&words->taken, &untaken, 1))
        return r;
    va_start(ap, format);
    (void)vsnprintf(words->text, sizeof(words->text), format, ap);
    va_end(ap);
    store_release(&words->ready, 1); /* after the text; pairs with words_get() */
    return r;
}

const char *words_get(void)
{
    /* acquire: the text that stood before ready; pairs with words_set() */
    return words && load_acquire(&words->ready) ? words->text : NULL;
}
