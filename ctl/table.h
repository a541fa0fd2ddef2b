/* SPDX-License-Identifier: MIT */
/*
 * Tables: columns as wide as their widest cell, two blanks between them, no blanks at the end of a line. A
 * column never vanishes and an empty cell is "-", so that scripts can count on the fields of a line.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "basic/macro.h"

enum {
    TABLE_COLUMNS_MAX = 16,
};

struct table;

/* Names in capitals; one that begins with '>' is of a column of numbers, set to the right. NULL ends them. */
struct table *table_new(const char *const *columns);
struct table *table_free(struct table *t);
void table_freep(struct table **t);

/* The next cell, row by row from the left. Without memory the table is spoiled, which table_print() tells. */
void table_add(struct table *t, const char *text);
void table_addf(struct table *t, const char *format, ...) _printf_(2, 3);

/* -ENOMEM: a cell was lost, nothing has been printed. */
int table_print(const struct table *t, FILE *out, bool legend);
