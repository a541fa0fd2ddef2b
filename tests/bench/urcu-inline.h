/* SPDX-License-Identifier: MIT */
/*
 * liburcu's membarrier flavour with its small functions inlined. Its headers allow that in any program: see
 * the notes on the length of these functions in urcu/static/urcu-memb.h. Only names with their prefix are
 * used.
 */
#pragma once

#define URCU_INLINE_SMALL_FUNCTIONS 1
#define _LGPL_SOURCE 1
#include <urcu/urcu-memb.h>
