/* SPDX-License-Identifier: MIT */
/* The tests that need no loop of their own for each peer; kfree and read have headers to themselves. */
#pragma once

#include "run.h"

extern const struct bench_test test_sync, test_drain, test_purge, test_idle, test_attach, test_poll;
