/* SPDX-License-Identifier: MIT */
/* reclaim-scale: measures reclaimd and its peers. See reclaim-scale(1). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compare.h"
#include "kfree.h"
#include "options.h"
#include "read.h"
#include "report.h"
#include "tests.h"
#include "words.h"

enum {
    EXIT_USAGE = 2,
};

static const struct bench_test *const tests[] = {
    [TEST_KFREE] = &test_kfree,   [TEST_READ] = &test_read,   [TEST_SYNC] = &test_sync,
    [TEST_DRAIN] = &test_drain,   [TEST_PURGE] = &test_purge, [TEST_IDLE] = &test_idle,
    [TEST_ATTACH] = &test_attach, [TEST_POLL] = &test_poll,
};
assert_cc(ARRAY_SIZE(tests) == _TEST_MAX);

/* A run that went through may still have found what must not be. */
static const char *find_complaint(const struct comparison *c)
{
    for (size_t i = 0; c->test->complain && i < c->n_entries; i++) {
        for (size_t run = 0; run < c->n_runs; run++) {
            const char *complaint = c->test->complain(&c->entries[i].runs[run]);

            if (complaint)
                return complaint;
        }
    }
    return NULL;
}

/* By the daemon's own judgement, before anything runs. */
static int check_settings(const struct comparison *c, char *message, size_t size)
{
    int r = 0;

    for (size_t i = 0; i < c->n_entries && r >= 0; i++) {
        const char *settings[SETTINGS_MAX + 1];
        size_t n = entry_settings(c, &c->entries[i], settings);

        r = n ? service_check_settings(settings, n, message, size) : 0;
    }
    return r;
}

/* What a long run is for must not fail at its end. Leaves no file behind. */
static int check_writable(const char *path, char *message, size_t size)
{
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1, r = 0;

    if (fd >= 0) {
        (void)close(fd);
        (void)unlink(path);
    } else if (path && (errno != EEXIST || access(path, W_OK) < 0)) {
        r = -errno;
        (void)snprintf(message, size, "cannot write %s: %s", path, strerror(-r));
    }
    return r == -EINVAL ? -EIO : r;
}

static int prepare(struct comparison *c, const struct bench_options *o, char *message, size_t size)
{
    int r = comparison_init(c, o, tests[o->test], message, size);

    if (r >= 0)
        r = check_settings(c, message, size);
    if (r >= 0)
        r = check_writable(o->json_path, message, size);
    return r < 0 ? r : check_writable(o->plot_path, message, size);
}

static int measure(struct comparison *c)
{
    const struct bench_options *o = c->options;
    int r = comparison_run(c);

    if (r >= 0 && (c->n_entries > 1 || c->n_runs > 1))
        r = report_print(c);
    if (r >= 0 && o->json_path)
        r = report_write_json(c, o->json_path);
    if (r >= 0 && o->plot_path)
        r = report_write_plot(c, o->plot_path);
    return r;
}

int main(int argc, char **argv)
{
    static struct comparison comparison; /* large */
    struct bench_options options;
    char message[WORDS_BYTES] = "";
    const char *complaint;
    int r = options_parse(argc, argv, &options, message, sizeof(message));

    if (r >= 0 && options.help) {
        options_print_help();
        return EXIT_SUCCESS;
    }
    if (r >= 0)
        r = prepare(&comparison, &options, message, sizeof(message));
    if (r < 0) {
        (void)fprintf(stderr, "reclaim-scale: %s\n", message);
        return r == -EINVAL ? EXIT_USAGE : EXIT_FAILURE;
    }
    r = measure(&comparison);
    complaint = r < 0 ? words_get() : find_complaint(&comparison);
    comparison_deinit(&comparison);
    if (r < 0 || complaint) {
        (void)fprintf(stderr, "reclaim-scale: %s\n", complaint ? complaint : "failed without a word");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
