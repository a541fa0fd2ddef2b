/* SPDX-License-Identifier: MIT */
/* Base64, one way: what the service manager wraps binary values of environment variables in. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* Bytes decoded into ret, or -EINVAL (no base64), -ENOBUFS (more than size). */
ssize_t base64_decode(const char *text, void *ret, size_t size);
