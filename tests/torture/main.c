/* SPDX-License-Identifier: MIT */
/* reclaim-torture: proves that nothing is reused under a reader. See reclaim-torture(1). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/words.h"
#include "run.h"

enum {
    EXIT_USAGE = 2,
    EXIT_SKIP = 77, /* as test suites have it */
};

static int conclude(int r, const struct torture_options *options)
{
    const char *words = words_get();

    printf("Seed: %" PRIu64 "\n", options->seed);
    if (r == -ENOTSUP) {
        printf("End of test: SKIPPED: %s\n", words ? words : "not possible here");
        return EXIT_SKIP;
    }
    if (r < 0) {
        printf("End of test: FAILURE: %s\n", words ? words : "without a word");
        return EXIT_FAILURE;
    }
    printf("End of test: SUCCESS\n");
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct torture_options options;
    char message[WORDS_BYTES] = "";
    int r = options_parse(argc, argv, &options, message, sizeof(message));

    if (r < 0) {
        (void)fprintf(stderr, "reclaim-torture: %s\n", message);
        return EXIT_USAGE;
    }
    if (options.help) {
        options_print_help();
        return EXIT_SUCCESS;
    }
    printf("Seed: %" PRIu64 "\n", options.seed);
    (void)fflush(stdout);
    r = options.kill_points ? run_kill_points(&options) : run_torture(&options);
    return conclude(r, &options);
}
