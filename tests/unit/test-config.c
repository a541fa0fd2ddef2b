/* SPDX-License-Identifier: MIT */
/*
 * What an administrator relies on: files and drop-ins are read in order, every mistake is told with file and
 * line, a bad configuration is never used, the command line is understood, --print-config can be read back,
 * and the installed reclaimd.conf says what the daemon does. `test-config --print-default` writes that file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "config.h"
#include "options.h"
#include "settings.h"

/* A fresh directory for each test. */
static char directory[64];
static char main_file[96];

static int directory_make(void **state)
{
    strcpy(directory, "/tmp/test-config-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    (void)snprintf(main_file, sizeof(main_file), "%s/r.conf", directory);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static int directory_remove(void **state)
{
    return nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    _cleanup_fclose_ FILE *stream = fopen(path, "we");

    assert_non_null(stream);
    assert_int_equal(fwrite(bytes, 1, n, stream), n);
}

/* name: below the directory; r.conf is the main file. */
static void write_file(const char *name, const char *text)
{
    char path[320];

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    write_bytes(path, text, strlen(text));
}

static void make_drop_in_directory(void)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s.d", main_file);
    assert_int_equal(mkdir(path, 0700), 0);
}

static struct options options_of(const char *config_file)
{
    return (struct options){.config_file = config_file, .config_is_named = true};
}

static void load(struct settings *ret)
{
    _cleanup_(config_errors_deinit) struct config_errors errors = {};
    struct options options = options_of(main_file);
    int r = settings_load(&options, ret, &errors);

    if (r < 0)
        config_errors_print(&errors, stderr);
    assert_int_equal(r, 0);
}

/* Loads what must fail; the errors' text with the directory's name taken off each line. */
static char *load_errors(void)
{
    _cleanup_(config_errors_deinit) struct config_errors errors = {};
    struct config config = {};
    char *text = NULL;
    size_t n_text;
    FILE *stream = open_memstream(&text, &n_text);
    size_t n_directory = strlen(directory) + 1;

    assert_int_equal(config_load(main_file, true, &config, &errors), -EBADMSG);
    assert_null(config.parameters);
    for (size_t i = 0; i < errors.n; i++) {
        assert_memory_equal(errors.lines[i], directory, n_directory - 1);
        (void)fprintf(stream, "%s\n", errors.lines[i] + n_directory);
    }
    if (errors.n_more > 0)
        (void)fprintf(stream, "%zu more\n", errors.n_more);
    assert_int_equal(fclose(stream), 0);
    return text;
}

static void assert_value(const struct settings *settings, const char *arena, const char *name,
                         const char *value, const char *origin)
{
    char text[PARAMETER_TEXT_BYTES], origin_text[PARAMETER_ORIGIN_BYTES];
    const struct parameter *parameter = NULL;
    struct parameter_origin from;

    assert_int_equal(parameter_find(name, &parameter, NULL), 0);
    assert_string_equal(parameter_store_format(settings->store, arena, parameter, &from, text), value);
    (void)parameter_origin_format(&from, origin_text);
    /* Only the file's own name: the directory has another each time. */
    assert_string_equal(strrchr(origin_text, '/') ? strrchr(origin_text, '/') + 1 : origin_text, origin);
}

static void a_file_is_read(void **state)
{
    _cleanup_(settings_deinit) struct settings settings = {};

    write_file("r.conf", "\357\273\277# a comment\n"
                         "   ; an indented comment\n"
                         "\n"
                         "[reclaimd]   # for all\n"
                         "drain-interval = 1min 30s ; slowly\r\n"
                         "flood-bytes=8M\n"
                         "flood-interval : 2ms\n"
                         "admin-group = wheel\n"
                         "[ arena  routes-of-a.long_name-of-48-characters-123456789 ]\n"
                         "size = 64M\n"
                         "drain-interval = 5ms\n"
                         "[arena other]\n"
                         "zero-on-free = yes");
    load(&settings);
    assert_value(&settings, NULL, "drain-interval", "1min 30s", "r.conf:5");
    assert_value(&settings, NULL, "flood-bytes", "8M", "r.conf:6");
    assert_value(&settings, NULL, "flood-interval", "2ms", "r.conf:7");
    assert_value(&settings, NULL, "admin-group", "wheel", "r.conf:8");
    assert_value(&settings, "routes-of-a.long_name-of-48-characters-123456789", "drain-interval", "5ms",
                 "r.conf:11");
    assert_value(&settings, "other", "zero-on-free", "yes", "r.conf:13");
    assert_value(&settings, NULL, "zero-on-free", "no", "built-in");
    assert_int_equal(settings.arenas.n, 1);
    assert_string_equal(settings.arenas.items[0].name, "routes-of-a.long_name-of-48-characters-123456789");
    assert_int_equal(settings.arenas.items[0].size_bytes, 64 << 20);
    assert_int_equal(settings.arenas.items[0].line, 10);
}

static void drop_ins_are_read_in_order_of_bytes(void **state)
{
    _cleanup_(settings_deinit) struct settings settings = {};

    make_drop_in_directory();
    write_file("r.conf",
               "[reclaimd]\nbatches = 1\nflood-objects = 1\nwake-direct = 1\n[arena a]\nsize = 1M\n");
    write_file("r.conf.d/50-b.conf", "[reclaimd]\nbatches = 3\n[arena a]\nsize = 2M\n");
    write_file("r.conf.d/50-B.conf", "[reclaimd]\nbatches = 2\nflood-objects = 2\n");
    write_file("r.conf.d/99-z.conf.off", "[reclaimd]\nwake-flood = 9\n");
    write_file("r.conf.d/.99.conf", "[reclaimd]\nwake-flood = 9\n");
    write_file("r.conf.d/.conf", "[reclaimd]\nwake-flood = 9\n");
    load(&settings);
    assert_value(&settings, NULL, "batches", "3", "50-b.conf:2");
    assert_value(&settings, NULL, "flood-objects", "2", "50-B.conf:3");
    assert_value(&settings, NULL, "wake-direct", "1", "r.conf:4");
    assert_value(&settings, NULL, "wake-flood", "64", "built-in");
    assert_int_equal(settings.arenas.n, 1);
    assert_int_equal(settings.arenas.items[0].size_bytes, 2 << 20);
}

static void a_missing_file_is_an_error_only_when_named(void **state)
{
    _cleanup_(config_errors_deinit) struct config_errors errors = {};
    _cleanup_(config_deinit) struct config config = {};
    _cleanup_free_ char *text = NULL;

    make_drop_in_directory();
    write_file("r.conf.d/1.conf", "[arena a]\nsize = 1M\n");
    assert_int_equal(config_load(main_file, false, &config, &errors), 0);
    assert_int_equal(config.arenas.n, 1);
    text = load_errors();
    assert_string_equal(text, "r.conf: cannot open it: No such file or directory\n");
}

/* Nobody writes into the pipe: it must not be waited for. */
static void a_pipe_is_refused(void **state)
{
    _cleanup_free_ char *text = NULL;

    assert_int_equal(mkfifo(main_file, 0600), 0);
    text = load_errors();
    assert_string_equal(text, "r.conf: cannot read it: it is a pipe\n");
}

static void each_mistake_is_told_once(void **state)
{
    static const struct {
        const char *text, *errors;
    } cases[] = {
        {"batches = 2\nbatching = no\n",
         "r.conf:1: this stands before any section; write [reclaimd] above it\n"},
        {"[reclaim]\nx = 1\ny = 2\n",
         "r.conf:1: unknown section [reclaim]; write [reclaimd] or [arena NAME]\n"},
        {"[reclaim]\n", "r.conf:1: unknown section [reclaim]; write [reclaimd] or [arena NAME]\n"},
        {"[arena]\n",
         "r.conf:1: '' is not an arena's name; use 1 to 48 of letters, digits, '.', '_' and '-'\n"},
        {"[arena a/b]\n",
         "r.conf:1: 'a/b' is not an arena's name; use 1 to 48 of letters, digits, '.', '_' and '-'\n"},
        {"[arenas a]\n", "r.conf:1: unknown section [arenas a]; write [reclaimd] or [arena NAME]\n"},
        {"[]\n", "r.conf:1: unknown section []; write [reclaimd] or [arena NAME]\n"},
        {"[reclaimd\n", "r.conf:1: the section has no ']' at its end; write [reclaimd] or [arena NAME]\n"},
        {"[reclaimd] batches = 2\n",
         "r.conf:1: the section has no ']' at its end; write [reclaimd] or [arena NAME]\n"},
        {"[reclaimd]\nbatchs = 2\n", "r.conf:2: unknown parameter 'batchs'; did you mean batches?\n"},
        {"[reclaimd]\nBatches = 2\n", "r.conf:2: unknown parameter 'Batches'; did you mean batches?\n"},
        {"[reclaimd]\nbatches = 65\n", "r.conf:2: batches: '65' is above 64; range 1..64\n"},
        {"[reclaimd]\nbatches =\n", "r.conf:2: batches: '' is not a number; write it in digits, like 512\n"},
        {"[reclaimd]\nbatches 2\n", "r.conf:2: this is neither [section] nor NAME = VALUE\n"},
        {"[reclaimd]\nbatches ; = 2\nb ; = 2\n", "r.conf:2: this is neither [section] nor NAME = VALUE\n"
                                                 "r.conf:3: this is neither [section] nor NAME = VALUE\n"},
        {"[reclaimd]\nbatches = 2\n 3\n",
         "r.conf:3: an indented line would continue the one above; begin it in the first column\n"},
        {"[reclaimd]\n\tbatches = 2\n",
         "r.conf:2: an indented line would continue the one above; begin it in the first column\n"},
        {"[reclaimd]\nbatches = 2\n\nbatches = 3\n",
         "r.conf:4: batches is already set in line 2; keep one of the two\n"},
        {"[arena a]\nbatches = 2\n[arena b]\nbatches = 2\n[arena a]\nbatches = 2\n",
         "r.conf:6: batches is already set in line 2; keep one of the two\n"},
        {"[arena a]\nsize = 1M\nsize = 1M\n",
         "r.conf:3: size is already set in line 2; keep one of the two\n"},
        {"[arena a]\nsize = 64m\n", "r.conf:2: size: '64m' is not a size; write it as 64M\n"},
        {"[arena a]\nsize = 4K\n", "r.conf:2: size: '4K' is not between 1M and 2T\n"},
        {"[arena a]\nsize = 99E\n", "r.conf:2: size: '99E' is not between 1M and 2T\n"},
        {"[arena a]\nclients-max = 4\n",
         "r.conf:2: clients-max belongs to the whole daemon; write it below [reclaimd]\n"},
        {"[reclaimd]\nsize = 1M\n", "r.conf:2: size belongs to an arena; write it below [arena NAME]\n"},
        {"[reclaimd]\nbatches = 0\nbatching = x\n\n# fine\nexpedited = yes\nnonsense\n",
         "r.conf:2: batches: '0' is below 1; range 1..64\n"
         "r.conf:3: batching: 'x' is not yes or no\n"
         "r.conf:7: this is neither [section] nor NAME = VALUE\n"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_free_ char *text = NULL;

        write_file("r.conf", cases[i].text);
        text = load_errors();
        assert_string_equal(text, cases[i].errors);
    }
}

static void mistakes_in_all_files_are_told_together(void **state)
{
    _cleanup_free_ char *text = NULL;

    make_drop_in_directory();
    write_file("r.conf", "[reclaimd]\nbatches = 0\n");
    write_file("r.conf.d/1.conf", "[reclaimd]\nflood-objects = 0\n");
    text = load_errors();
    assert_string_equal(text, "r.conf:2: batches: '0' is below 1; range 1..64\n"
                              "r.conf.d/1.conf:2: flood-objects: '0' is below 1; range 1..2147483648\n");
}

static void after_twenty_mistakes_the_rest_is_counted(void **state)
{
    _cleanup_(config_errors_deinit) struct config_errors errors = {};
    struct config config = {};
    char lines[1000] = "[reclaimd]\n";

    for (int i = 0; i < 25; i++)
        strcat(lines, "what\n");
    write_file("r.conf", lines);
    assert_int_equal(config_load(main_file, true, &config, &errors), -EBADMSG);
    assert_int_equal(errors.n, CONFIG_ERRORS_MAX);
    assert_int_equal(errors.n_more, 5);
    assert_non_null(strstr(errors.lines[19], "r.conf:21: "));
}

/* "batches = " and digits so that the line has n bytes, without the newline; the value is 2. */
static void write_line_of(size_t n, const char *begin)
{
    char text[600] = "[reclaimd]\n";
    size_t n_begin = strlen(begin), n_text = strlen(text);

    memset(text + n_text, '0', n);
    memcpy(text + n_text, begin, n_begin);
    strcpy(text + n_text + n - 1, "2\nwake-direct = 7\n");
    write_file("r.conf", text);
}

static void long_lines_are_refused_not_cut(void **state)
{
    _cleanup_(settings_deinit) struct settings settings = {};
    _cleanup_free_ char *text = NULL;

    write_line_of(CONFIG_LINE_MAX + 1, "batches = ");
    text = load_errors();
    assert_string_equal(text, "r.conf:2: the line has 200 bytes; 199 are allowed\n");
    write_line_of(CONFIG_LINE_MAX, "batches = ");
    load(&settings);
    assert_value(&settings, NULL, "batches", "2", "r.conf:2");
    assert_value(&settings, NULL, "wake-direct", "7", "r.conf:3");
}

static void long_comments_are_no_matter(void **state)
{
    _cleanup_(settings_deinit) struct settings settings = {};

    write_line_of(500, "  # batches = ");
    load(&settings);
    assert_value(&settings, NULL, "batches", "2", "built-in");
    assert_value(&settings, NULL, "wake-direct", "7", "r.conf:3");
}

static void blanks_hide_nothing(void **state)
{
    _cleanup_free_ char *text = NULL;
    char blanks[300];

    memset(blanks, ' ', sizeof(blanks));
    strcpy(blanks + 250, "batches = 3\n");
    write_file("r.conf", blanks);
    text = load_errors();
    assert_string_equal(text, "r.conf:1: the line has 261 bytes; 199 are allowed\n");
}

static void what_is_no_text_is_refused(void **state)
{
    static const char nul[] = "[reclaimd]\nbatches\0 = 3\n# a\0b\n";
    _cleanup_free_ char *of_nul = NULL, *of_directory = NULL, *of_size = NULL, *big = NULL;

    write_bytes(main_file, nul, sizeof(nul) - 1);
    of_nul = load_errors();
    assert_string_equal(of_nul, "r.conf:2: the line holds a NUL byte; this is no text file\n"
                                "r.conf:3: the line holds a NUL byte; this is no text file\n");
    big = malloc(CONFIG_FILE_BYTES_MAX + 100);
    assert_non_null(big);
    memset(big, 'x', CONFIG_FILE_BYTES_MAX + 100);
    write_bytes(main_file, big, CONFIG_FILE_BYTES_MAX + 100);
    of_size = load_errors();
    assert_string_equal(of_size, "r.conf: the file is larger than 1048576 bytes\n");
    /* An endless file of empty lines must end too. */
    memset(big, '\n', CONFIG_FILE_BYTES_MAX + 100);
    write_bytes(main_file, big, CONFIG_FILE_BYTES_MAX + 100);
    free(steal_pointer(of_size));
    of_size = load_errors();
    assert_string_equal(of_size, "r.conf: the file is larger than 1048576 bytes\n");
    write_bytes(main_file, big, CONFIG_FILE_BYTES_MAX);
    {
        _cleanup_(settings_deinit) struct settings settings = {};

        load(&settings);
    }
    assert_int_equal(unlink(main_file), 0);
    assert_int_equal(mkdir(main_file, 0700), 0);
    of_directory = load_errors();
    assert_string_equal(of_directory, "r.conf: cannot read it: Is a directory\n");
}

static void a_bad_reload_changes_nothing(void **state)
{
    _cleanup_(settings_deinit) struct settings settings = {};
    _cleanup_(parameter_changes_deinit) struct parameter_changes changes = {};
    _cleanup_(config_errors_deinit) struct config_errors errors = {};
    struct options options = options_of(main_file);

    write_file("r.conf", "[reclaimd]\nbatches = 3\n[arena a]\nsize = 1M\n");
    load(&settings);
    write_file("r.conf", "[reclaimd]\nbatches = 4\nbatching = what\n[arena a]\nsize = 2M\n");
    assert_int_equal(settings_reload(&settings, &options, &changes, &errors), -EBADMSG);
    assert_int_equal(errors.n, 1);
    assert_null(changes.items);
    assert_value(&settings, NULL, "batches", "3", "r.conf:2");
    assert_int_equal(settings.arenas.items[0].size_bytes, 1 << 20);

    write_file("r.conf", "[reclaimd]\n\nbatches = 4\n[arena b]\nsize = 2M\n");
    config_errors_deinit(&errors);
    assert_int_equal(settings_reload(&settings, &options, &changes, &errors), 0);
    assert_int_equal(changes.n, 1);
    assert_string_equal(changes.items[0].before, "3");
    assert_string_equal(changes.items[0].after, "4");
    assert_value(&settings, NULL, "batches", "4", "r.conf:3");
    assert_int_equal(settings.arenas.n, 1);
    assert_string_equal(settings.arenas.items[0].name, "b");
}

enum {
    ARGUMENTS_MAX = 16,
};

/* Splits at blanks; the words live in the static buffer. */
static int words_split(const char *line, char *argv[static ARGUMENTS_MAX + 2])
{
    static char buffer[512];
    int n = 1;

    (void)snprintf(buffer, sizeof(buffer), "%s", line);
    argv[0] = (char *)"reclaimd";
    for (char *word = strtok(buffer, " "); word && n <= ARGUMENTS_MAX; word = strtok(NULL, " "))
        argv[n++] = word;
    argv[n] = NULL;
    return n;
}

static int parse(const char *line, struct options *ret, struct error_line *ret_why)
{
    char *argv[ARGUMENTS_MAX + 2];
    int argc = words_split(line, argv);

    return options_parse(argc, argv, ret, ret_why);
}

static void the_command_line_is_understood(void **state)
{
    _cleanup_(options_deinit) struct options options = {};

    assert_int_equal(parse("", &options, NULL), 0);
    assert_int_equal(options.action, OPTIONS_RUN);
    assert_string_equal(options.config_file, RECLAIMD_CONFIG_FILE);
    assert_false(options.config_is_named);
    assert_null(options.runtime_directory);
    assert_int_equal(options.log_level, LOG_INFO);
    assert_int_equal(parse("--config f --set batches=3 --set=drain-interval=2s --arena a:64M --arena b:1G "
                           "--log-level debug",
                           &options, NULL),
                     0);
    assert_string_equal(options.config_file, "f");
    assert_true(options.config_is_named);
    assert_int_equal(options.n_sets, 2);
    assert_string_equal(options.sets[1].name, "drain-interval");
    assert_string_equal(options.sets[1].value, "2s");
    assert_int_equal(options.arenas.n, 2);
    assert_string_equal(options.arenas.items[1].name, "b");
    assert_int_equal(options.arenas.items[1].size_bytes, 1 << 30);
    assert_null(options.arenas.items[1].file);
    assert_int_equal(options.log_level, LOG_DEBUG);
    options_deinit(&options);
    assert_int_equal(parse("--runtime-directory /x --check-config --log-level err", &options, NULL), 0);
    assert_string_equal(options.runtime_directory, "/x");
    assert_int_equal(options.action, OPTIONS_CHECK_CONFIG);
    assert_int_equal(options.log_level, LOG_ERR);
    assert_int_equal(parse("--print-config", &options, NULL), 0);
    assert_int_equal(options.action, OPTIONS_PRINT_CONFIG);
    assert_int_equal(parse("--version --print-config", &options, NULL), 0);
    assert_int_equal(options.action, OPTIONS_VERSION);
    assert_int_equal(parse("-h --version", &options, NULL), 0);
    assert_int_equal(options.action, OPTIONS_HELP);
}

static void a_wrong_command_line_is_told_in_words(void **state)
{
    static const struct {
        const char *line, *words;
    } cases[] = {
        {"--supervise", "unknown option '--supervise'"},
        {"--confg f", "unknown option '--confg'; did you mean --config?"},
        {"-x", "unknown option '-x'"},
        {"now", "unexpected argument 'now'; reclaimd takes only options"},
        {"--config", "'--config' needs a value"},
        {"--config=", "--config is empty; leave it out or name one"},
        {"--runtime-directory=", "--runtime-directory is empty; leave it out or name one"},
        {"--check-config=yes", "'--check-config=yes' takes no value"},
        {"--set batches", "'batches' is not an assignment; write it like drain-interval=1s"},
        {"--set batches=3 --set batches=65", "batches: '65' is above 64; range 1..64"},
        {"--set batchs=3", "unknown parameter 'batchs'; did you mean batches?"},
        {"--arena a", "--arena: 'a' is not an arena and its size; write it like routes:64M"},
        {"--arenaa=a:1M", "unknown option '--arenaa=a:1M'; did you mean --arena?"},
        {"--arena a:64mb", "--arena: size: '64mb' is not a size; write it as 64M"},
        {"--arena a:1K", "--arena: size: '1K' is not between 1M and 2T"},
        {"--arena a:1M --arena a:2M", "--arena: a is named twice; give it one size"},
        {"--log-level loud", "'loud' is not a log level; use err, warning, notice, info or debug"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct options options = {.n_sets = 99};
        struct error_line why = {};

        assert_int_equal(parse(cases[i].line, &options, &why), -EINVAL);
        assert_string_equal(why.text, cases[i].words);
        assert_int_equal(options.n_sets, 99);
    }
}

/* Runs what main() runs first; *ret_out and *ret_err are the caller's to free. */
static int start(const char *line, char **ret_out, char **ret_err)
{
    _cleanup_(options_deinit) struct options options = {};
    _cleanup_(settings_deinit) struct settings settings = {};
    char *argv[ARGUMENTS_MAX + 2];
    int argc = words_split(line, argv);
    size_t n_out, n_err;
    FILE *out = open_memstream(ret_out, &n_out), *err = open_memstream(ret_err, &n_err);
    int status = settings_start(argc, argv, out, err, &options, &settings);

    assert_int_equal(fclose(out), 0);
    assert_int_equal(fclose(err), 0);
    assert_true((status == -1) == (settings.store != NULL));
    return status;
}

static void assert_start(const char *line, int status, const char *out, const char *err)
{
    _cleanup_free_ char *out_text = NULL, *err_text = NULL;

    assert_int_equal(start(line, &out_text, &err_text), status);
    if (out)
        assert_string_equal(out_text, out);
    if (err)
        assert_string_equal(err_text, err);
}

static void starting_ends_with_the_right_status(void **state)
{
    char line[256], expected[256];

    assert_start("--version", 0, "reclaimd " RECLAIMD_VERSION "\n", "");
    assert_start("--help", 0, NULL, "");
    assert_start("--log-level loud", 2, "",
                 "reclaimd: 'loud' is not a log level; use err, warning, notice, info or debug\n"
                 "Try 'reclaimd --help'.\n");
    write_file("r.conf", "[reclaimd]\nbatches = 3\n");
    (void)snprintf(line, sizeof(line), "--check-config --config %s", main_file);
    assert_start(line, 0, "OK\n", "");
    (void)snprintf(line, sizeof(line), "--config %s", main_file);
    assert_start(line, -1, "", "");
    write_file("r.conf", "[reclaimd]\nbatches = 0\n");
    (void)snprintf(expected, sizeof(expected), "%s:2: batches: '0' is below 1; range 1..64\n", main_file);
    assert_start(line, 1, "", expected);
    (void)snprintf(line, sizeof(line), "--print-config --config %s", main_file);
    assert_start(line, 1, "", expected);
}

/* The lines of --print-config without their origins, which differ when they are read back. */
static char *print_values(const char *line)
{
    char *text = NULL;
    _cleanup_free_ char *err = NULL;
    char *to;

    assert_int_equal(start(line, &text, &err), 0);
    assert_string_equal(err, "");
    to = text;
    for (const char *from = text; *from; from++)
        if (strncmp(from, " ; ", 3) == 0)
            from += strcspn(from, "\n") - 1;
        else
            *to++ = *from;
    *to = '\0';
    return text;
}

static void what_is_printed_can_be_read_back(void **state)
{
    static const char options[] = "--set batches=7 --arena c:3M --arena a:2M";
    _cleanup_free_ char *first = NULL, *second = NULL;
    char line[256];

    write_file("r.conf",
               "[reclaimd]\ndrain-interval = 1min 30s\nclient-pending-max = 64M\nadmin-group = off\n"
               "[arena a]\nsize = 1M\nbatches = 5\nstall-timeout = off\n"
               "[arena b]\npurge-threshold = 1536M\n");
    (void)snprintf(line, sizeof(line), "--print-config --config %s %s", main_file, options);
    first = print_values(line);
    assert_non_null(strstr(first, "drain-interval      = 1min 30s\n"));
    assert_non_null(strstr(first, "[arena a]\nsize                = 2M"));
    assert_non_null(strstr(first, "[arena b]\npurge-threshold     = 1536M"));
    assert_non_null(strstr(first, "[arena c]\nsize                = 3M"));
    /* --set stands above the arena's own value in the file, so that is not in force. */
    assert_null(strstr(first, "batches             = 5"));
    write_file("r.conf", first);
    (void)snprintf(line, sizeof(line), "--print-config --config %s", main_file);
    second = print_values(line);
    assert_string_equal(first, second);
}

static void printed_lines_are_never_too_long(void **state)
{
    char name[210], line[512], path[400];
    _cleanup_free_ char *out = NULL, *err = NULL;

    memset(name, 'n', 200);
    name[200] = '\0';
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    write_file(name, "[reclaimd]\nadmin-group = abcdefghijklmnopqrstuvwxyz123456\n");
    (void)snprintf(line, sizeof(line), "--print-config --config %s", path);
    assert_int_equal(start(line, &out, &err), 0);
    assert_non_null(strstr(out, "nnn:2\n"));
    write_file("r.conf", out);
    (void)snprintf(line, sizeof(line), "--check-config --config %s", main_file);
    assert_start(line, 0, "OK\n", "");
}

/* The configuration that is installed, made from the table. */
static void default_file_print(FILE *stream)
{
    char range[PARAMETER_RANGE_BYTES];

    (void)fprintf(
        stream,
        "# The configuration of reclaimd; see reclaimd.conf(5).\n"
        "#\n"
        "# Every parameter stands here with its built-in value. To change one, take away the '#' or,\n"
        "# better, write it into a file of your own in reclaimd.conf.d beside this one, below\n"
        "# [reclaimd]. Then: reclaimctl reload. What was set with reclaimctl set stays until a reset.\n"
        "\n[reclaimd]\n");
    for (size_t i = 0; parameter_get(i); i++) {
        const struct parameter *parameter = parameter_get(i);

        (void)fprintf(stream, "\n# %s\n# %s%s%s%s\n#%s = %s\n", parameter->doc,
                      parameter_range_format(parameter, range), *parameter->unit ? " " : "", parameter->unit,
                      parameter->scope == PARAMETER_SCOPE_ARENA ? "; an arena may have its own" : "",
                      parameter->name, parameter->default_text);
    }
    (void)fprintf(
        stream,
        "\n# An arena with parameters of its own. With a size it is made at start; without, this holds\n"
        "# when somebody makes an arena of that name.\n"
        "#[arena NAME]\n"
        "#size = 64M\n"
        "#drain-interval = 1s\n");
}

/* Beside this source, wherever that is from here: meson names sources relative to where it runs the tests. */
static FILE *default_file_open(void)
{
    char path[512];
    const char *end = strstr(__FILE__, "tests/unit/");

    assert_non_null(end);
    (void)snprintf(path, sizeof(path), "%.*ssystemd/reclaimd.conf", (int)(end - __FILE__), __FILE__);
    return fopen(path, "re");
}

static void the_installed_file_says_what_the_daemon_does(void **state)
{
    _cleanup_fclose_ FILE *stream = default_file_open();
    _cleanup_free_ char *expected = NULL, *found = NULL;
    size_t n_expected, n_found = 1 << 16;
    FILE *memory = open_memstream(&expected, &n_expected);

    default_file_print(memory);
    assert_int_equal(fclose(memory), 0);
    assert_non_null(stream);
    found = calloc(1, n_found);
    assert_non_null(found);
    (void)fread(found, 1, n_found - 1, stream);
    assert_string_equal(found, expected);
}

static void the_installed_file_changes_nothing_as_it_stands(void **state)
{
    _cleanup_free_ char *text = NULL, *with = NULL, *without = NULL;
    size_t n_text;
    FILE *memory = open_memstream(&text, &n_text);
    char line[256];

    default_file_print(memory);
    assert_int_equal(fclose(memory), 0);
    /* With every value's '#' taken away it is still right, and says the built-in values. */
    for (char *c = text; (c = strstr(c, "\n#")); c++)
        if (c[2] != ' ' && c[2] != '\n' && c[2] != '[')
            c[1] = '\n';
    write_file("r.conf", text);
    *strstr(text, "#[arena") = '\0';
    write_file("r.conf", text);
    (void)snprintf(line, sizeof(line), "--print-config --config %s", main_file);
    with = print_values(line);
    write_file("r.conf", "");
    without = print_values(line);
    assert_string_equal(with, without);
}

#define FILE_TEST(f) cmocka_unit_test_setup_teardown(f, directory_make, directory_remove)

int main(int argc, char *argv[])
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(a_file_is_read),
        FILE_TEST(drop_ins_are_read_in_order_of_bytes),
        FILE_TEST(a_missing_file_is_an_error_only_when_named),
        FILE_TEST(a_pipe_is_refused),
        FILE_TEST(each_mistake_is_told_once),
        FILE_TEST(mistakes_in_all_files_are_told_together),
        FILE_TEST(after_twenty_mistakes_the_rest_is_counted),
        FILE_TEST(long_lines_are_refused_not_cut),
        FILE_TEST(long_comments_are_no_matter),
        FILE_TEST(blanks_hide_nothing),
        FILE_TEST(what_is_no_text_is_refused),
        FILE_TEST(a_bad_reload_changes_nothing),
        cmocka_unit_test(the_command_line_is_understood),
        cmocka_unit_test(a_wrong_command_line_is_told_in_words),
        FILE_TEST(starting_ends_with_the_right_status),
        FILE_TEST(what_is_printed_can_be_read_back),
        FILE_TEST(printed_lines_are_never_too_long),
        cmocka_unit_test(the_installed_file_says_what_the_daemon_does),
        FILE_TEST(the_installed_file_changes_nothing_as_it_stands),
    };

    if (argc == 2 && strcmp(argv[1], "--print-default") == 0) {
        default_file_print(stdout);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
