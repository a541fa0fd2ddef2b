/* SPDX-License-Identifier: MIT */
/* Report: what a comparison found out, as a table for people, as JSON for programs and as a picture. */
#pragma once

#include <json-c/json.h>

#include "compare.h"

/*
 * Figures as rows, entries as columns; medians, and of the main figure also spread and ratio to the first.
 * Other figures only if some entry's is not 0.
 */
int report_print(const struct comparison *c);

/* The object that the interface describes. NULL: no memory. */
struct json_object *report_to_json(const struct comparison *c);

/* -errno with words_set(). */
int report_write_json(const struct comparison *c, const char *path);

/* Bars of the main figure's medians with their spread as whiskers, as SVG. The same errors. */
int report_write_plot(const struct comparison *c, const char *path);
