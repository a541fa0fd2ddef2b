/* SPDX-License-Identifier: MIT */
/* A bar chart in SVG: one bar an entry, its median written above, the runs' spread as a whisker. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "basic/cleanup.h"
#include "report.h"
#include "statistics.h"
#include "words.h"

enum { /* pixels */
       BAR_WIDTH = 70,
       BAR_STEP = 130, /* labels have this width */
       LEFT = 90,
       RIGHT = 20,
       TOP = 60,
       PLOT_HEIGHT = 320,
       BOTTOM = 60,
       N_LINES = 5, /* of the grid */
};

/* What XML wants written differently. */
static void put_text(FILE *f, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            (void)fputs("&lt;", f);
        else if (*text == '&')
            (void)fputs("&amp;", f);
        else
            (void)fputc(*text, f);
    }
}

static void put_label(FILE *f, double x, double y, const char *anchor, const char *text)
{
    (void)fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    put_text(f, text);
    (void)fputs("</text>\n", f);
}

static void put_line(FILE *f, double x1, double y1, double x2, double y2, const char *colour)
{
    (void)fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2,
                  y2, colour);
}

/* The next of 1, 2, 5 times a power of ten: where the axis ends. */
static double round_up(double value)
{
    static const double steps[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(value > 0 ? value : 1)));

    for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
        if (steps[i] * power >= value)
            return steps[i] * power;
    return 10 * power;
}

/* Downwards, as SVG counts. */
static double y_of(double value, double top)
{
    return TOP + PLOT_HEIGHT * (1 - value / top);
}

/* Lines at round values, the lowest of them the axis. */
static void put_grid(FILE *f, enum figure figure, double top, int width)
{
    char text[32];

    for (int i = 0; i <= N_LINES; i++) {
        double value = top * i / N_LINES, y = y_of(value, top);

        put_line(f, LEFT, y, width - RIGHT, y, i ? "#ddd" : "#333");
        put_label(f, LEFT - 8, y + 4, "end", figure_format(figure, value, text, sizeof(text)));
    }
}

/* The first entry, which the others are compared with, has a colour of its own. */
static void put_bar(FILE *f, enum figure figure, const struct spread *s, const char *label, double top,
                    size_t i)
{
    double centre = LEFT + BAR_STEP * ((double)i + 0.5), y = y_of(s->median, top);
    char text[32];

    (void)fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"%s\"/>\n",
                  centre - BAR_WIDTH / 2.0, y, BAR_WIDTH, TOP + PLOT_HEIGHT - y, i ? "#8aa4c8" : "#2f6db5");
    put_line(f, centre, y_of(s->min, top), centre, y_of(s->max, top), "#222");
    put_line(f, centre - 8, y_of(s->min, top), centre + 8, y_of(s->min, top), "#222");
    put_line(f, centre - 8, y_of(s->max, top), centre + 8, y_of(s->max, top), "#222");
    put_label(f, centre, y_of(s->max, top) - 6, "middle",
              figure_format(figure, s->median, text, sizeof(text)));
    put_label(f, centre, TOP + PLOT_HEIGHT + 20, "middle", label);
}

static void put_head(FILE *f, const struct comparison *c, int width)
{
    char title[160];

    (void)snprintf(title, sizeof(title),
                   "reclaim-scale %s: %s (median of %zu run%s, whiskers: lowest and highest)",
                   test_to_string(c->options->test), figure_to_string(c->test->main_figure), c->n_runs,
                   c->n_runs == 1 ? "" : "s");
    (void)fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
        width, TOP + PLOT_HEIGHT + BOTTOM);
    put_label(f, LEFT, TOP / 2.0, "start", title);
}

static int put_plot(FILE *f, const struct comparison *c)
{
    int width = MAX(LEFT + BAR_STEP * (int)c->n_entries + RIGHT, 620); /* the title's width at least */
    struct spread spreads[ENTRIES_MAX];
    double highest = 0, top;

    for (size_t i = 0; i < c->n_entries; i++) {
        int r = statistics_figure(c->entries[i].runs, c->n_runs, c->test->main_figure, &spreads[i]);

        if (r < 0)
            return words_set(r, "nothing to plot: %s has no %s", c->entries[i].label,
                             figure_to_string(c->test->main_figure));
        highest = MAX(highest, spreads[i].max);
    }
    top = round_up(highest);
    put_head(f, c, width);
    put_grid(f, c->test->main_figure, top, width);
    for (size_t i = 0; i < c->n_entries; i++)
        put_bar(f, c->test->main_figure, &spreads[i], c->entries[i].label, top, i);
    (void)fputs("</svg>\n", f);
    return 0;
}

int report_write_plot(const struct comparison *c, const char *path)
{
    FILE *f = fopen(path, "we");
    int r;

    if (!f)
        return words_set(-errno, "cannot write %s: %s", path, strerror(errno));
    r = put_plot(f, c);
    if ((ferror(f) | fclose(f)) && r >= 0)
        r = words_set(-EIO, "cannot write all of %s", path);
    return r;
}
