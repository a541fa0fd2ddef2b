/* SPDX-License-Identifier: MIT */
/* reclaimd: the service. */
#include <stdio.h>
#include <stdlib.h>

#include "log.h"
#include "manager.h"
#include "options.h"
#include "settings.h"

int main(int argc, char *argv[])
{
    struct options options;
    struct settings settings;
    struct manager *m;
    int r = settings_start(argc, argv, stdout, stderr, &options, &settings);

    if (r >= 0)
        return r;
    log_init(options.log_level);
    r = manager_new(&options, &settings, &m);
    if (r == 0) {
        r = manager_run(m);
        (void)manager_free(m);
    }
    settings_deinit(&settings);
    options_deinit(&options);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
