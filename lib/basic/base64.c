/* SPDX-License-Identifier: MIT */
/* See base64.h. */
#include "basic/base64.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;

    return at ? (int)(at - digits) : -1;
}

ssize_t base64_decode(const char *text, void *ret, size_t size)
{
    size_t length = strlen(text), n = 0;
    uint32_t bits = 0;
    unsigned n_bits = 0;

    if (length % 4 != 0)
        return -EINVAL;
    for (int padding = 0; length > 0 && text[length - 1] == '=' && padding < 2; padding++)
        length--;
    for (size_t i = 0; i < length; i++) {
        int digit = digit_of(text[i]);

        if (digit < 0)
            return -EINVAL;
        bits = bits << 6 | (uint32_t)digit;
        n_bits += 6;
        if (n_bits < 8)
            continue;
        n_bits -= 8;
        if (n == size)
            return -ENOBUFS;
        ((uint8_t *)ret)[n++] = (uint8_t)(bits >> n_bits);
    }
    return (ssize_t)n;
}
