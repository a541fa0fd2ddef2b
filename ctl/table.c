/* SPDX-License-Identifier: MIT */
/*
 * Tables of text.
 *
 * Cells are kept as text until the table is printed, as each column is as wide as its widest cell. Failures to
 * allocate are collected: a caller fills in a table without looking, and asks once at the end. So a table is
 * either printed whole or not at all.
 */
#include "table.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct table {
    const char *columns[TABLE_COLUMNS_MAX];
    bool right[TABLE_COLUMNS_MAX];
    size_t n_columns;
    char **cells;
    size_t n_cells;
    bool spoiled;
};

/* Column names are literals of the caller, not copies. */
struct table *table_new(const char *const *columns)
{
    struct table *t = calloc(1, sizeof(*t));

    if (!t)
        return NULL;
    for (; columns[t->n_columns]; t->n_columns++) {
        assert(t->n_columns < TABLE_COLUMNS_MAX);
        t->right[t->n_columns] = columns[t->n_columns][0] == '>';
        t->columns[t->n_columns] = columns[t->n_columns] + t->right[t->n_columns];
    }
    return t;
}

/* Copes with NULL, as a table that could not be made is used like any other until it is printed. */
struct table *table_free(struct table *t)
{
    if (!t)
        return NULL;
    for (size_t i = 0; i < t->n_cells; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
    return NULL;
}

/* For the cleanup attribute. */
void table_freep(struct table **t)
{
    *t = table_free(*t);
}

/* Takes the text. */
static void table_take(struct table *t, char *text)
{
    char **cells;

    if (!t || !text || t->spoiled) {
        free(text);
        if (t)
            t->spoiled = true;
        return;
    }
    cells = reallocarray(t->cells, t->n_cells + 1, sizeof(*cells));
    if (!cells) {
        free(text);
        t->spoiled = true;
        return;
    }
    t->cells = cells;
    t->cells[t->n_cells++] = text;
}

/* An empty cell would shift the fields of the line for whoever splits it at blanks. */
void table_add(struct table *t, const char *text)
{
    table_take(t, strdup(*text ? text : "-"));
}

/* For numbers and what is put together. */
void table_addf(struct table *t, const char *format, ...)
{
    va_list arguments;
    char *text;
    int n;

    va_start(arguments, format);
    n = vasprintf(&text, format, arguments);
    va_end(arguments);
    table_take(t, n < 0 ? NULL : text);
}

/* All text is ASCII here: names are restricted, what processes call themselves has been cleaned. */
static void measure(const struct table *t, bool legend, size_t *ret_widths)
{
    size_t n;

    for (size_t i = 0; i < t->n_columns; i++)
        ret_widths[i] = legend ? strlen(t->columns[i]) : 0;
    for (size_t i = 0; i < t->n_cells; i++) {
        n = strlen(t->cells[i]);
        ret_widths[i % t->n_columns] = MAX(ret_widths[i % t->n_columns], n);
    }
}

/* The last cell of a line gets no blanks behind it. */
static void print_cell(const struct table *t, FILE *out, size_t column, const char *text, size_t width)
{
    bool last = column + 1 == t->n_columns;

    if (t->right[column])
        (void)fprintf(out, "%*s", (int)width, text);
    else
        (void)fprintf(out, "%-*s", last ? 0 : (int)width, text);
    (void)fputs(last ? "\n" : "  ", out);
}

/*
 * Needs the whole table, as a width is known with the last cell; a stream of lines has fixed widths
 * instead (verb-monitor.c).
 */
int table_print(const struct table *t, FILE *out, bool legend)
{
    size_t widths[TABLE_COLUMNS_MAX];

    if (!t || t->spoiled)
        return -ENOMEM;
    assert(t->n_cells % t->n_columns == 0);
    measure(t, legend, widths);
    for (size_t i = 0; legend && i < t->n_columns; i++)
        print_cell(t, out, i, t->columns[i], widths[i]);
    for (size_t i = 0; i < t->n_cells; i++)
        print_cell(t, out, i % t->n_columns, t->cells[i], widths[i % t->n_columns]);
    return 0;
}
