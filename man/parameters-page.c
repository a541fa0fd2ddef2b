/* SPDX-License-Identifier: MIT */
/*
 * Prints reclaimd.conf(5) in scdoc's markup: the page's text with the daemon's table of parameters in its
 * place, so that the page says what the daemon does. Runs at build time only.
 */
#include <stdio.h>
#include <string.h>

#include "parameters.h"

static void parameter_print(const struct parameter *parameter)
{
    int is_word = parameter->type == PARAMETER_CHOICE || parameter->type == PARAMETER_BOOLEAN;
    char range[PARAMETER_RANGE_BYTES];

    printf("*%s*\n\t%s %s: %s", parameter->name, parameter->doc, is_word ? "One of" : "Range",
           parameter_range_format(parameter, range));
    if (*parameter->unit)
        printf(" (%s)", parameter->unit);
    printf("; default: _%s_.%s\n\n", parameter->default_text,
           parameter->scope == PARAMETER_SCOPE_ARENA ? " An arena may have its own." : "");
}

int main(int argc, char *argv[])
{
    char line[1024];
    FILE *page = argc == 2 ? fopen(argv[1], "re") : NULL;

    if (!page) {
        fprintf(stderr, "Usage: parameters-page FILE\n");
        return 2;
    }
    while (fgets(line, sizeof(line), page))
        if (strcmp(line, "@PARAMETERS@\n") != 0)
            (void)fputs(line, stdout);
        else
            for (size_t i = 0; parameter_get(i); i++)
                parameter_print(parameter_get(i));
    return fclose(page) == 0 && fflush(stdout) == 0 ? 0 : 1;
}
