/* SPDX-License-Identifier: MIT */
/*
 * reclaimctl as people and scripts use it: the program itself against a fake daemon, its output, its words
 * when something is wrong, its exit status, and the file that --persist writes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <event2/event.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "control-fake.h"
#include "ctl.h"
#include "table.h"

enum {
    OUTPUT_BYTES = 64 * 1024,
    ARGUMENTS_MAX = 16,
    HANG_SECONDS = 60,
};

/* A fresh directory for each test, with the daemon's socket and the configuration in it. */
static char directory[64];
static char program[PATH_MAX];
static pid_t daemon_pid;

/* What the last run left. */
static char out[OUTPUT_BYTES], err[OUTPUT_BYTES];

static const char *path_of(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

/* Beside the tests in the build directory, or where RECLAIMCTL says. */
static void find_program(void)
{
    ssize_t n;

    if (getenv("RECLAIMCTL")) {
        (void)snprintf(program, sizeof(program), "%s", getenv("RECLAIMCTL"));
        return;
    }
    n = readlink("/proc/self/exe", program, sizeof(program) - 64);
    assert_true(n > 0);
    program[n] = '\0';
    for (int i = 0; i < 3; i++)
        *strrchr(program, '/') = '\0';
    (void)strcat(program, "/ctl/reclaimctl");
}

static int socket_bind(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.*s", (int)sizeof(address.sun_path) - 1,
                   path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static void daemon_run(int fd, struct fake *fake)
{
    struct event_base *base = event_base_new();
    struct control *control;

    alarm(HANG_SECONDS);
    if (control_new(base, &fake_ops, fake, &control) < 0 || control_listen(control, fd) < 0)
        _exit(1);
    (void)event_base_dispatch(base);
    _exit(0);
}

/* A process of its own: the program runs against it as against the real one. */
static void daemon_start(struct fake *fake)
{
    int fd = socket_bind(path_of("control"));

    daemon_pid = fork();
    assert_true(daemon_pid >= 0);
    if (daemon_pid == 0)
        daemon_run(fd, fake);
    (void)close(fd);
}

static void daemon_stop(void)
{
    if (daemon_pid <= 0)
        return;
    (void)kill(daemon_pid, SIGKILL);
    assert_int_equal(waitpid(daemon_pid, NULL, 0), daemon_pid);
    daemon_pid = 0;
    (void)unlink(path_of("control"));
}

static int setup_alone(void **state)
{
    alarm(HANG_SECONDS);
    strcpy(directory, "/tmp/test-ctl.XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)setenv("RECLAIMD_RUNTIME_DIRECTORY", directory, 1);
    (void)unsetenv("RECLAIMD_CONFIG_DIRECTORY");
    (void)setenv("TZ", "UTC", 1);
    return 0;
}

static int setup(void **state)
{
    char config_file[128];
    struct fake fake;

    assert_int_equal(setup_alone(state), 0);
    fake_init(&fake);
    (void)snprintf(config_file, sizeof(config_file), "%s", path_of("etc/reclaimd.conf"));
    fake.config_file = config_file; /* the daemon's process has its own copy */
    daemon_start(&fake);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static int teardown(void **state)
{
    daemon_stop();
    return nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void read_back(int fd, char *to)
{
    ssize_t n = pread(fd, to, OUTPUT_BYTES - 1, 0);

    assert_true(n >= 0);
    to[n] = '\0';
    (void)close(fd);
}

static int output_fd = -1; /* where run() sends the output instead, if not -1 */

/* Runs the program with the words of a line; no quoting. Its exit status; `out` and `err` hold what it wrote.
 */
static int run(const char *line)
{
    char words[512], *argv[ARGUMENTS_MAX + 2] = {program}, *rest = words;
    int fds[2], status, n = 1;
    pid_t pid;

    (void)snprintf(words, sizeof(words), "%s", line);
    while (n <= ARGUMENTS_MAX && (argv[n] = strsep(&rest, " ")))
        n += *argv[n] != '\0';
    for (int i = 0; i < 2; i++)
        assert_true((fds[i] = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) >= 0);
    pid = fork();
    if (pid == 0) {
        (void)dup2(output_fd >= 0 ? output_fd : fds[0], STDOUT_FILENO);
        (void)dup2(fds[1], STDERR_FILENO);
        (void)execv(program, argv);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    read_back(fds[0], out);
    read_back(fds[1], err);
    if (!WIFEXITED(status))
        fail_msg("'%s' died of signal %d", line, WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void expect_out(const char *line, const char *expected)
{
    if (run(line) != 0 || strcmp(out, expected) != 0 || *err)
        fail_msg("'%s' printed\n%s%s\nexpected\n%s", line, out, err, expected);
}

/* Every one of the texts, up to a NULL, stands in what was printed, in that order. */
static void expect_parts(const char *line, const char *const *parts)
{
    const char *at = out;

    if (run(line) != 0)
        fail_msg("'%s' failed: %s", line, err);
    for (; *parts; parts++) {
        at = strstr(at, *parts);
        if (!at)
            fail_msg("'%s' printed\n%s\nwithout '%s' in its place", line, out, *parts);
        at += strlen(*parts);
    }
}

/* One line on standard error that begins with the program's name and has these words in it. */
static void expect_failure(const char *line, int status, const char *words)
{
    int got = run(line);

    if (got != status || !strstr(err, words) || strncmp(err, "reclaimctl: ", 12) != 0 ||
        strchr(err, '\n') != err + strlen(err) - 1)
        fail_msg("'%s' exited with %d and said\n%s\nexpected %d and '%s'", line, got, err, status, words);
}

static void file_write(const char *path, const char *text)
{
    _cleanup_fclose_ FILE *f = fopen(path, "we");

    assert_non_null(f);
    (void)fputs(text, f);
}

static const char *file_read(const char *path)
{
    static char text[4096];
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    size_t n;

    if (!f)
        return "";
    n = fread(text, 1, sizeof(text) - 1, f);
    text[n] = '\0';
    return text;
}

static unsigned directory_count(const char *path)
{
    _cleanup_closedir_ DIR *d = opendir(path);
    unsigned n = 0;

    while (d && readdir(d))
        n++;
    return n < 2 ? 0 : n - 2;
}

/* Tables and words, in this process */

static const char *table_text(const struct table *t, bool legend)
{
    static char text[1024];
    FILE *f = fmemopen(text, sizeof(text), "w");

    assert_int_equal(table_print(t, f, legend), 0);
    (void)fclose(f);
    return text;
}

static void table_is_as_wide_as_its_cells(void **state)
{
    static const char *const columns[] = {"NAME", ">N", "END", NULL};
    _cleanup_(table_freep) struct table *t = table_new(columns);

    assert_string_equal(table_text(t, true), "NAME  N  END\n");
    table_add(t, "a");
    table_addf(t, "%d", 5);
    table_add(t, "x y");
    table_add(t, "longer name");
    table_addf(t, "%d", 12345);
    table_add(t, "");
    assert_string_equal(table_text(t, true), "NAME             N  END\n"
                                             "a                5  x y\n"
                                             "longer name  12345  -\n");
    assert_string_equal(table_text(t, false), "a                5  x y\n"
                                              "longer name  12345  -\n");
}

struct duration_case {
    uint64_t usec;
    const char *text;
};

static const struct duration_case durations[] = {
    {0, "0us"},
    {999, "999us"},
    {1000, "1ms"},
    {1500, "1.5ms"},
    {1049, "1ms"},
    {2300000, "2.3s"},
    {59999999, "59.9s"},
    {60 * USEC_PER_SEC, "1min"},
    {90 * USEC_PER_SEC, "1min 30s"},
    {USEC_PER_HOUR, "1h"},
    {USEC_PER_HOUR + USEC_PER_SEC, "1h"},
    {50 * USEC_PER_HOUR, "2d 2h"},
};

static void durations_have_two_units_at_most(void **state)
{
    char text[FORMAT_BYTES];

    for (size_t i = 0; i < ARRAY_SIZE(durations); i++)
        assert_string_equal(ctl_duration(durations[i].usec, text), durations[i].text);
}

/* The command line */

static void wrong_command_lines_exit_with_two(void **state)
{
    static const char *const cases[][2] = {
        {"", "no verb"},
        {"statsu", "unknown verb 'statsu'; did you mean status?"},
        {"strace", "unknown verb 'strace'; did you mean trace?"},
        {"monitor --events purge", "--events does not go with monitor"},
        {"qqqqqqqqqq", "--help lists them"},
        {"show", "usage: reclaimctl show ARENA"},
        {"show a b", "too many arguments; usage: reclaimctl show ARENA"},
        {"status x", "usage: reclaimctl status\n"},
        {"status --forse", "did you mean --force?"},
        {"status --jsn=short", "did you mean --json?"},
        {"status --force", "--force does not go with status"},
        {"drain --arena x", "--arena does not go with drain"},
        {"status -q", "unknown option '-q'"},
        {"get x --arena", "--arena needs a value"},
        {"status --no-legend=1", "takes no value"},
        {"status --json=xml", "pretty, short and off"},
        {"set drain-interval", "drain-interval"},
        {"set a=1 b=2 a=3", "a is there twice"},
        {"create-arena x", "needs --size"},
        {"create-arena", "usage: reclaimctl create-arena NAME --size SIZE"},
        {"create-arena x --size 5x", "5x"},
        {"create-arena x --size 1M --mode 0999", "write it like 0600"},
        {"create-arena x --size 1M --mode 1777", "write it like 0600"},
        {"evict router", "'router' is no client's number"},
        {"evict 0", "'0' is no client's number"},
        {"monitor --interval often", "often"},
        {"monitor --count 0", "no number of lines"},
        {"list-parameters a --arena b", "once"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        expect_failure(cases[i][0], 2, cases[i][1]);
        assert_string_equal(out, "");
    }
}

static void missing_daemon_is_one_line(void **state)
{
    char expected[512];
    int fd;

    (void)snprintf(
        expected, sizeof(expected),
        "reclaimctl: no daemon at %s/control: No such file or directory; is reclaimd.service running?",
        directory);
    expect_failure("status", 1, expected);
    fd = socket_bind(path_of("control"));
    (void)close(fd); /* a dead one's socket */
    expect_failure("status", 1, "control: Connection refused; is reclaimd.service running?");
    expect_failure("--control /tmp/none.such list-arenas", 1, "no daemon at /tmp/none.such:");
    expect_failure("--runtime-directory /tmp/none.such list-arenas", 1,
                   "no daemon at /tmp/none.such/control:");
}

/* Says one thing to whoever connects, and hangs up. */
static void stranger_start(const char *says)
{
    int fd = socket_bind(path_of("control")), peer;

    daemon_pid = fork();
    if (daemon_pid != 0) {
        (void)close(fd);
        return;
    }
    alarm(HANG_SECONDS);
    while ((peer = accept(fd, NULL, NULL)) >= 0) {
        char byte;

        (void)recv(peer, &byte, 1, 0);
        if (says)
            (void)send(peer, says, strlen(says) + 1, MSG_NOSIGNAL);
        (void)shutdown(peer, SHUT_WR);
        while (recv(peer, &byte, 1, 0) > 0)
            ;
        (void)close(peer);
    }
    _exit(0);
}

static void strange_answers_are_told(void **state)
{
    static const char *const cases[][2] = {
        {NULL, "hung up"},
        {"hello", "is not reclaimd"},
        {"[]", "is not reclaimd"},
        {"{}", "has no arenas"},
        {"{\"parameters\":{\"arenas\":7}}", "has no arenas"},
        {"{\"error\":\"org.varlink.service.MethodNotFound\",\"parameters\":{\"method\":\"x\"}}", "older"},
        {"{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{\"parameter\":\"x\"}}",
         "refuses 'x'"},
        {"{\"error\":\"org.example.Odd\"}", "org.example.Odd"},
        {"{\"continues\":true,\"parameters\":{\"arenas\":[]}}", "hung up"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        stranger_start(cases[i][0]);
        expect_failure("list-arenas", 1, cases[i][1]);
        daemon_stop();
    }
}

/* Looking */

static void status_is_one_screen(void **state)
{
    static const char *const parts[] = {
        "reclaimd 1.2.3, running since 2023-11-14 22:13:20 (1min 30s), pid 4242, user ",
        "\n2 arenas, 3 clients of at most 1024, 3M resident, 12 wake-ups, 21 membarriers, 70 callbacks run, "
        "7 waiting\n"
        "memory was short: drained and purged 3 times, 4 more warnings let pass\n\n",
        "ARENA   STATE    CLIENTS  SIZE  IN-USE  PENDING  LAZY  BACKED  GRACE-PERIODS  OLDEST-READER\n",
        "routes  ready          2   64M   31.2K     320B    8K      1M              7  77/78:1.5ms\n",
        "tables  stalled        1    1M      0B       0B    0B      0B              0  -\n",
        "\nSTALLED  CLIENT  PID  TID  USER ",
        "FOR  GRACE-PERIOD  WAITING-OBJECTS  WAITING  CALLERS  COMMAND\n",
        "routes        2    0    0 ",
        "  22s             8               10     320B        1  bad?[31m\n",
        "tables        3   80   81 ",
        "1min30s             5                3      48B        0  tabler\n",
        NULL,
    };

    expect_parts("status", parts);
    assert_null(strchr(out, '\x1b'));
}

static void lists_are_tables(void **state)
{
    static const char *const arenas[] = {"ARENA ", " MODE ", "routes ", " 0640 ", "tables ", " yes ", NULL};
    static const char *const clients[] = {"CLIENT ",  "COMMAND\n",  "     1 ",  " routes ",
                                          "router\n", "bad?[31m\n", "tabler\n", NULL};

    expect_parts("list-arenas", arenas);
    expect_parts("list-clients", clients);
    assert_non_null(strstr(out, "  STALLS-FOR  SINCE "));
    assert_non_null(strstr(out, "  1min30s  ")); /* of tables alone */
    assert_int_equal(run("list-clients tables --no-legend"), 0);
    assert_ptr_equal(strchr(out, '\n'), out + strlen(out) - 1);
    assert_non_null(strstr(out, " tables "));
    expect_failure("list-clients nothere", 1, "no arena 'nothere'");
}

static void show_tells_every_figure(void **state)
{
    static const char *const parts[] = {
        "Arena                      routes\n",
        "Mode                       0640\n",
        "Address                    0x550000000000\n",
        "Oldest reader              client 1, pid 77, tid 78, for 1.5ms\n",
        "In use, objects            1000\n",
        "Pending                    320B\n",
        "Oldest pending             2.5ms\n",
        "Longest grace period       900us\n",
        "Drains by drain-interval   5\n",
        "Objects a page             2.5\n",
        "Pages by their objects     1: 2, 4..7: 1, 512..: 1\n",
        NULL,
    };

    expect_parts("show routes", parts);
    expect_failure("show nothere", 1, "no arena 'nothere'; list-arenas shows");
}

static void json_is_for_machines(void **state)
{
    struct json_object *o;

    assert_int_equal(run("list-arenas --json=short"), 0);
    assert_ptr_equal(strchr(out, '\n'), out + strlen(out) - 1);
    o = json_tokener_parse(out);
    assert_int_equal(json_object_array_length(o), 2);
    assert_int_equal(ctl_number(o, "0/figures/pendingBytes"), 320);
    (void)json_object_put(o);
    assert_int_equal(run("--json pretty status"), 0);
    assert_true(strchr(out, '\n') < out + strlen(out) - 1);
    o = json_tokener_parse(out);
    assert_int_equal(ctl_number(o, "status/pid"), 4242);
    assert_string_equal(ctl_text(o, "arenas/1/name"), "tables");
    (void)json_object_put(o);
    expect_out("--json=off get wake-from-gp", "NAME          VALUE  ORIGIN\nwake-from-gp  no     built-in\n");
}

static void help_and_versions(void **state)
{
    static const char *const verbs[] = {"  status ", "  show ARENA ", "  audit [ARENA] ", "--persist", NULL};

    expect_parts("--help", verbs);
    expect_parts("show --help", verbs);
    expect_parts("help", verbs);
    for (const char *at = out; *at; at = strchr(at, '\n') + 1)
        if (strchr(at, '\n') - at > 80)
            fail_msg("wider than 80 columns: %.*s", (int)(strchr(at, '\n') - at), at);
    expect_out("--version", "reclaimctl " RECLAIMD_VERSION "\n");
    expect_out("version", "reclaimctl " RECLAIMD_VERSION "\nreclaimd " RECLAIMD_VERSION "\n");
    assert_int_equal(run("introspect"), 0);
    assert_non_null(strstr(out, "\ninterface org.reclaimd.Control\n"));
    assert_non_null(strstr(out, "\nmethod GetStatus() -> (status: Status)\n"));
}

static void source_path(const char *file, char ret[static PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%s", __FILE__);
    *strrchr(ret, '/') = '\0';
    (void)strcat(ret, "/../../");
    (void)strcat(ret, file);
}

static void completion_path(char ret[static PATH_MAX])
{
    source_path("completions/bash/reclaimctl", ret);
}

/* Each figure of `show` is explained, under its label and its name with --json; no label reaches into the values. */
static void manual_explains_each_figure(void **state)
{
    static char manual[64 * 1024];
    char path[PATH_MAX], label[64];
    _cleanup_fclose_ FILE *f = NULL;
    unsigned n = 0;

    source_path("man/reclaimctl.1.scd", path);
    f = fopen(path, "re");
    if (!f)
        skip(); /* the source is not where it was built from */
    manual[fread(manual, 1, sizeof(manual) - 1, f)] = '\0';
    assert_int_equal(run("show routes"), 0);
    for (char *rest = strstr(out, "\nClients "), *line; (line = strsep(&rest, "\n"));) {
        if (!*line)
            continue;
        assert_true(strlen(line) > 27 && line[26] == ' ' && line[27] != ' ');
        (void)snprintf(label, sizeof(label), "_%.26s", line);
        while (label[strlen(label) - 1] == ' ')
            label[strlen(label) - 1] = '\0';
        (void)strcat(label, "_ (_");
        if (!strstr(manual, label))
            fail_msg("reclaimctl(1) does not explain '%s'", label);
        n++;
    }
    assert_true(n > 40);
}

/* What bash offers for a line that it has split into these words, the last one being completed. */
static void expect_completion(const char *words, const char *expected)
{
    char path[PATH_MAX], command[3 * PATH_MAX], got[1024];
    size_t n;
    FILE *f;

    completion_path(path);
    (void)snprintf(command, sizeof(command),
                   "bash -c '. \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _reclaimctl; "
                   "echo \"${COMPREPLY[*]}\"' '%s' '%s' %s",
                   path, program, words);
    assert_non_null(f = popen(command, "re"));
    n = fread(got, 1, sizeof(got) - 1, f);
    got[n] = '\0';
    assert_int_equal(pclose(f), 0);
    assert_string_equal(got, expected);
}

static void completion_knows_what_the_daemon_knows(void **state)
{
    char path[PATH_MAX];

    completion_path(path);
    if (access(path, R_OK) < 0)
        skip(); /* the source is not where it was built from */
    expect_completion("show ''", "routes tables\n");
    expect_completion("set wa", "wake-from-gp=\n");
    expect_completion("set wake-from-gp =", "no yes auto\n");
    expect_completion("set wake-from-gp = y", "yes\n");
    expect_completion("set drain-interval=1s wake-from-gp = a", "auto\n");
    expect_completion("set drain-interval =", "\n");
    expect_completion("--json = s", "short\n");
}

/* Every verb of --help is known to the completion, and the other way round. */
static void completion_follows_help(void **state)
{
    char path[PATH_MAX], script[16384], name[64], *words, *end, *at;
    _cleanup_fclose_ FILE *f = NULL;
    unsigned n_help = 0, n_script = 0;

    completion_path(path);
    f = fopen(path, "re");
    if (!f)
        skip(); /* the source is not where it was built from */
    script[fread(script, 1, sizeof(script) - 1, f)] = '\0';
    words = strstr(script, "verbs='");
    end = strchr(words + strlen("verbs='"), '\'');
    assert_non_null(end);
    *end = '\0';
    for (at = words; (at = strpbrk(at, "' \n")); n_script += *at > ' ')
        at += strspn(at, "' \n");
    assert_int_equal(run("--help"), 0);
    at = strstr(out, "Verbs");
    for (at = strchr(at, '\n') + 1; sscanf(at, "  %63[a-z-]", name) == 1;
         at = strchr(at, '\n') + 1, n_help++) {
        char *found = strstr(words, name);

        if (!found)
            fail_msg("the completion does not know %s", name);
    }
    assert_int_equal(n_help, n_script);
}

/* Parameters */

static void parameters_are_listed(void **state)
{
    expect_out("list-parameters",
               "NAME            VALUE  DEFAULT  SCOPE   ORIGIN    RANGE          DESCRIPTION\n"
               "drain-interval  1s     1s       arena   built-in  1ms..1h        Time from defer to drain.\n"
               "wake-from-gp    no     no       arena   built-in  no, yes, auto  Who wakes.\n"
               "callback-limit  10     10       daemon  built-in  1..10000       Entries a pass.\n");
    expect_out("get callback-limit drain-interval --no-legend",
               "callback-limit  10  built-in\ndrain-interval  1s  built-in\n");
    expect_failure("get drain-intervall", 1, "did you mean drain-interval?");
}

static void set_prints_from_what_to_what(void **state)
{
    expect_out("set drain-interval=250ms", "drain-interval: 1s -> 250ms\n");
    expect_out("set drain-interval=250ms wake-from-gp=yes",
               "drain-interval: 250ms, unchanged\nwake-from-gp: no -> yes\n");
    expect_out("set callback-limit=10", "callback-limit: 10, unchanged, now set at runtime\n");
    expect_out("set --dry-run callback-limit=10",
               "callback-limit: 10, unchanged, would be set at runtime (dry run)\n");
    expect_out("set --dry-run wake-from-gp=auto", "wake-from-gp: yes -> auto (dry run)\n");
    expect_out("set --arena routes drain-interval=1s", "drain-interval of routes: 250ms -> 1s\n");
    expect_out("get wake-from-gp --no-legend", "wake-from-gp  yes  runtime\n");
    expect_out("reset wake-from-gp", "wake-from-gp: yes -> no\n");
    expect_failure("set wake-from-gp=yes drain-interval=5us", 1, "drain-interval: '5us' is below 1ms");
    expect_out("get wake-from-gp --no-legend", "wake-from-gp  no  built-in\n");
    expect_failure("set nonsense=1", 1, "unknown parameter 'nonsense'");
}

#define HEAD "# Written by reclaimctl --persist, which keeps other lines as they are.\n"

static void persist_keeps_other_lines(void **state)
{
    char file[128], said[256];

    (void)snprintf(file, sizeof(file), "%s", path_of("etc/reclaimd.conf.d/50-reclaimctl.conf"));
    (void)snprintf(said, sizeof(said), "drain-interval: 1s -> 250ms\nwritten to %s\n", file);
    expect_out("set drain-interval=250ms --persist", said);
    assert_string_equal(file_read(file), HEAD "[reclaimd]\ndrain-interval = 250ms\n");
    assert_int_equal(run("set --persist --arena routes wake-from-gp=yes"), 0);
    assert_int_equal(run("set --persist callback-limit=20 drain-interval=2s"), 0);
    assert_string_equal(file_read(file), HEAD "[reclaimd]\ncallback-limit = 20\ndrain-interval = 2s\n"
                                              "\n[arena routes]\nwake-from-gp = yes\n");
    file_write(file, "; mine\n[ reclaimd ]\ndrain-interval=9s\ndrain-interval-2 = 1\n\n[arena routes]\n# "
                     "why\nsize = 64M\n");
    assert_int_equal(run("set --persist drain-interval=3s"), 0);
    assert_int_equal(run("set --persist --arena routes drain-interval=4s"), 0);
    assert_string_equal(file_read(file),
                        HEAD "; mine\n[ reclaimd ]\ndrain-interval-2 = 1\ndrain-interval = 3s\n\n"
                             "[arena routes]\n# why\nsize = 64M\ndrain-interval = 4s\n");
    assert_int_equal(run("reset --persist drain-interval"), 0);
    assert_non_null(strstr(out, "drain-interval: 4s -> 1s\n"));
    assert_string_equal(file_read(file), HEAD "; mine\n[ reclaimd ]\ndrain-interval-2 = 1\n\n"
                                              "[arena routes]\n# why\nsize = 64M\ndrain-interval = 4s\n");
    assert_int_equal(directory_count(path_of("etc/reclaimd.conf.d")), 1);
}

/* What the daemon would not read is told before anything is changed, by its place. */
static void persist_refuses_what_the_daemon_would(void **state)
{
    static const char *const cases[][2] = {
        {"[reclaimd]\nno sign here\n", ":2: this is neither [section] nor NAME = VALUE"},
        {"[reclaimd]\n  wake-from-gp = no\n", ":2: this line begins with blanks"},
        {"# why\nwake-from-gp = no\n[reclaimd]\n", ":2: this stands before any section"},
        {"[arena]\n", ":1: this is no section"},
        {"[reclaimd\n", ":1: this is no section"},
        {"[arena a/b]\nsize = 1M\n", ":1: this is no section"},
        {"[reclaimd] wake-from-gp = no\n", ":1: this is no section"},
    };
    char file[128];

    assert_int_equal(run("set --persist wake-from-gp=auto"), 0);
    (void)snprintf(file, sizeof(file), "%s", path_of("etc/reclaimd.conf.d/50-reclaimctl.conf"));
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        file_write(file, cases[i][0]);
        expect_failure("set --persist drain-interval=3s", 1, cases[i][1]);
        expect_failure("reset --persist drain-interval", 1, cases[i][1]);
        assert_string_equal(file_read(file), cases[i][0]);
    }
    expect_out("get drain-interval --no-legend", "drain-interval  1s  built-in\n");
    file_write(file, "[arena\tx] ; whose\n\n   # indented\n[ reclaimd ]\ndrain-interval : 9s\n");
    assert_int_equal(run("set --persist drain-interval=3s"), 0);
    assert_string_equal(file_read(file),
                        HEAD "[arena\tx] ; whose\n\n   # indented\n[ reclaimd ]\ndrain-interval = 3s\n");
}

static void persist_follows_the_daemon(void **state)
{
    char said[512];
    struct stat st;

    (void)setenv("RECLAIMD_CONFIG_DIRECTORY", path_of("far/off"), 1);
    expect_failure("set --persist wake-from-gp=yes", 1, "--persist: cannot make the directory of ");
    (void)setenv("RECLAIMD_CONFIG_DIRECTORY", path_of("other"), 1);
    assert_int_equal(run("set --persist wake-from-gp=yes"), 0);
    (void)snprintf(said, sizeof(said), "wake-from-gp: no -> yes\nwritten to %s\n",
                   path_of("other/reclaimd.conf.d/50-reclaimctl.conf"));
    (void)snprintf(said + strlen(said), sizeof(said) - strlen(said),
                   "note: RECLAIMD_CONFIG_DIRECTORY is set; the daemon itself reads %s\n",
                   path_of("etc/reclaimd.conf.d"));
    assert_string_equal(out, said);
    assert_int_equal(access(path_of("etc"), F_OK), -1);
    (void)setenv("RECLAIMD_CONFIG_DIRECTORY", path_of("etc"), 1);
    assert_int_equal(run("set --persist wake-from-gp=no"), 0);
    assert_null(strstr(out, "note:"));
    assert_int_equal(stat(path_of("etc/reclaimd.conf.d"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0755);
}

static void persist_needs_a_place_beside_a_file(void **state)
{
    struct fake fake;

    fake_init(&fake);
    fake.config_file = "/dev/null";
    daemon_start(&fake);
    expect_failure("set --persist wake-from-gp=yes", 1, "the daemon reads /dev/null, which is no file");
    expect_out("get wake-from-gp --no-legend", "wake-from-gp  no  built-in\n");
}

/* The file is changed first: when the daemon cannot follow, what holds now is told. */
static void persist_reset_tells_what_holds(void **state)
{
    assert_int_equal(run("set --persist drain-interval=3s"), 0);
    assert_int_equal(run("reload"), 0);
    assert_int_equal(run("reset --persist drain-interval"), 1);
    assert_non_null(strstr(err, "reclaimd.conf:3: unknown key 'drain'\n"));
    assert_non_null(strstr(err, "drain-interval: the drop-in no longer has it; the daemon keeps 3s\n"));
}

/* A value that would be back after the next start is told; JSON stays JSON, and others' values are not ours. */
static void reset_tells_what_the_drop_in_has(void **state)
{
    char expected[512];

    assert_int_equal(run("set --persist drain-interval=3s"), 0);
    (void)snprintf(expected, sizeof(expected),
                   "drain-interval: 3s -> 1s\nwake-from-gp: no, unchanged\n"
                   "note: %s still has drain-interval; reset --persist takes it out\n",
                   path_of("etc/reclaimd.conf.d/50-reclaimctl.conf"));
    expect_out("reset drain-interval wake-from-gp", expected);
    assert_int_equal(run("reset drain-interval --json=short"), 0);
    assert_null(strstr(out, "note"));
    assert_int_equal(run("reset --arena routes drain-interval"), 0);
    assert_null(strstr(out, "note"));
    (void)setenv("RECLAIMD_CONFIG_DIRECTORY", directory, 1); /* the daemon reads its own all the same */
    assert_int_equal(run("reset drain-interval"), 0);
    assert_non_null(strstr(out, "note"));
    (void)unsetenv("RECLAIMD_CONFIG_DIRECTORY");
    assert_int_equal(run("reset --persist drain-interval"), 0);
    assert_int_equal(run("reset drain-interval"), 0);
    assert_null(strstr(out, "note"));
}

static void persist_is_all_or_nothing(void **state)
{
    const char *file;

    expect_failure("set --persist drain-interval=5us", 1, "below 1ms");
    expect_failure("reset --persist nonsense", 1, "unknown parameter");
    assert_int_equal(run("set --persist --dry-run drain-interval=7s"), 0);
    assert_int_equal(access(path_of("etc"), F_OK), -1); /* refused, so not even the folders were made */
    expect_failure("set --persist drain-interval=5#1", 2, "cannot stand in a configuration file");
    expect_failure("set --persist --arena a/b drain-interval=5s", 1, "no arena 'a/b'");

    file = path_of("file");
    file_write(file, "");
    (void)setenv("RECLAIMD_CONFIG_DIRECTORY", file, 1);
    expect_failure("set --persist wake-from-gp=yes", 1, "--persist: cannot read ");
    expect_out("get wake-from-gp --no-legend", "wake-from-gp  no  built-in\n");
}

/* Making it work */

static void arenas_are_made_and_removed(void **state)
{
    expect_out("create-arena new --size 64M --owner 0 --group 0 --mode 0660 --transient", "");
    expect_failure("create-arena routes --size 64M", 1, "there is an arena of that name already");
    expect_failure("create-arena a/b --size 64M", 1, "a/b");
    expect_failure("create-arena new --size 1T", 1, "64G is the most (arena-size-max)");
    expect_failure("create-arena new --size 1M --owner no.such.user", 1, "no user 'no.such.user'");
    expect_failure("create-arena new --size 1M --group no.such.group", 1, "no group 'no.such.group'");
    expect_failure("remove-arena routes", 1, "--force removes it all the same");
    expect_out("remove-arena routes --force", "");
    expect_failure("remove-arena nothere", 1, "no arena 'nothere'");
    expect_out("evict 2 --kill", "");
    expect_failure("evict 99", 1, "no client 99");
    expect_out("--json=short create-arena new --size 64M", "{}\n");
    expect_out("--json=pretty remove-arena routes --force", "{}\n");
    expect_out("evict 2 --json=short", "{}\n");
}

static void work_says_how_long_and_how_much(void **state)
{
    expect_out("drain", "routes: 10 objects freed (320B) in 2.5ms\ntables: 0 objects freed (0B) in 100us\n");
    expect_out("barrier routes", "routes: 10 objects freed (320B) in 2.5ms\n");
    expect_out("purge routes", "routes: 320B given back in 2.5ms\n");
    expect_out("synchronize routes", "routes: a grace period in 2.5ms\n");
    expect_out("audit",
               "routes: sound, 10 objects looked at in 2.5ms\ntables: sound, 0 objects looked at in 100us\n");
    expect_failure("purge", 1, "arena tables: cannot punch a hole");
    assert_string_equal(out, "routes: 320B given back in 2.5ms\n");
    expect_failure("synchronize tables", 1, "is stalled");
}

static void audit_fails_with_a_list(void **state)
{
    struct fake fake;

    fake_init(&fake);
    fake.complaint = "span 3: 5 objects are lost";
    daemon_start(&fake);
    expect_failure("audit", 1, "the audit has 1 complaint");
    assert_string_equal(out, "routes: 1 complaint\n  span 3: 5 objects are lost\n"
                             "tables: sound, 0 objects looked at in 100us\n");
    expect_failure("audit --json=short", 1, "the audit has 1 complaint");
    assert_non_null(strstr(out, "\"complaints\":[\"span 3: 5 objects are lost\"]"));
}

static void reload_tells_what_stays(void **state)
{
    expect_out("reload",
               "drain-interval: 1s -> 2s\nn2: made, 64M\n"
               "wake-from-gp: stays yes as set at runtime; the files say no\n"
               "routes: stays 256M, the files say 512M; to make it anew: reclaimctl remove-arena routes, "
               "then reload\n");
    expect_failure("reload", 1, "reclaimd.conf:3: unknown key 'drain'");
}

/* Short output and output longer than a buffer, of those who print in different ways. */
static void lost_output_is_told(void **state)
{
    static const char *const lines[] = {"--json=short list-arenas",
                                        "--json=short status",
                                        "list-parameters",
                                        "help",
                                        "--help",
                                        "--version",
                                        "introspect",
                                        "--json=short introspect",
                                        "monitor --count 1",
                                        "trace",
                                        "status"};

    output_fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(output_fd >= 0);
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        expect_failure(lines[i], 1, "cannot write the output: ");
    output_fd = fd_close(output_fd);
}

static void monitor_prints_lines(void **state)
{
    unsigned n = 0;

    assert_int_equal(run("monitor --interval 10ms --count 3"), 0);
    assert_memory_equal(out, "TIME ", 5);
    for (const char *at = out; (at = strchr(at, '\n')); at++)
        n++;
    assert_int_equal(n, 4);
    assert_int_equal(run("monitor routes --no-legend --interval 10ms --count 1"), 0);
    assert_non_null(strstr(out, "        2        1        1     ")); /* clients, readers, those that stall */
    assert_int_equal(run("monitor routes --json=short --interval 10ms --count 1"), 0);
    assert_non_null(strstr(out, "\"inUseBytes\":32000"));
    expect_failure("monitor --interval 0", 2, "--interval: '0' is out of range; 10ms..1h");
    expect_failure("monitor --interval 2h", 2, "10ms..1h");
    expect_failure("monitor --interval foo", 2, "--interval: 'foo'");
}

#define EVENTS                                                                                               \
    "{\"monotonicUSec\":1234000050,\"event\":\"gp_end\",\"arena\":\"routes\",\"number\":7,\"durationUSec\":" \
    "1500},"                                                                                                 \
    "{\"monotonicUSec\":1234000062,\"event\":\"bulk_free\",\"arena\":\"routes\",\"objects\":3,\"bytes\":"    \
    "4096},"                                                                                                 \
    "{\"monotonicUSec\":1234100000,\"event\":\"unheard_of\",\"arena\":\"tables\",\"what\":\"ever\"}"

/* Everything that the daemon tells, an event that this reclaimctl does not know too, and then its end. */
static void trace_prints_a_line_an_event(void **state)
{
    stranger_start("{\"continues\":true,\"parameters\":{\"events\":[" EVENTS "],\"dropped\":12}}");
    expect_failure("trace", 1, "hung up");
    assert_string_equal(out, "           TIME  EVENT          ARENA         WHAT\n"
                             "    1234.000050  gp_end         routes        number=7 duration=1.5ms\n"
                             "    1234.000062  bulk_free      routes        objects=3 bytes=4K\n"
                             "    1234.100000  unheard_of     tables        what=ever\n"
                             "... 12 events dropped\n");
    expect_failure("trace --json=short --no-legend", 1, "hung up");
    assert_non_null(strstr(out, ",\"number\":7,\"durationUSec\":1500}\n{\"monotonicUSec\":1234000062,"));
    assert_non_null(strstr(out, "\"what\":\"ever\"}\n{\"dropped\":12}\n"));
    daemon_stop();
    stranger_start("{\"continues\":true,\"parameters\":{\"events\":[],\"dropped\":1}}");
    expect_failure("trace --no-legend", 1, "hung up");
    assert_string_equal(out, "... 1 event dropped\n");
    daemon_stop();
    stranger_start("{\"parameters\":{}}");
    expect_failure("trace", 1, "has no events");
}

#define STALL(event, more)                                                                                   \
    "{\"monotonicUSec\":1000000,\"event\":\"" event "\",\"arena\":\"routes\",\"client\":3,\"pid\":7," more   \
    "\"command\":\"router\"}"
#define STALL_FIGURES                                                                                        \
    "\"tid\":8,\"number\":5,\"durationUSec\":21000000,\"objects\":1,\"bytes\":4096,\"waiters\":2,"

static void trace_tells_stalls_in_words(void **state)
{
    stranger_start("{\"continues\":true,\"parameters\":{\"dropped\":0,\"events\":[" STALL(
        "stall",
        STALL_FIGURES) "," STALL("stall_ended",
                                 STALL_FIGURES) "," STALL("stall_kill",
                                                          "\"errno\":0,") "," STALL("stall_kill",
                                                                                    "\"errno\":1,") "]}}");
    expect_failure("trace --no-legend", 1, "hung up");
    assert_string_equal(
        out, "       1.000000  stall          routes        client 3 (pid 7, tid 8, router) holds up grace "
             "period 5 for 21s; 1 object (4K) and 2 callers wait\n"
             "       1.000000  stall_ended    routes        client 3 (pid 7, tid 8, router) held up grace "
             "period 5 for 21s, and does no longer\n"
             "       1.000000  stall_kill     routes        client 3 (pid 7, router) is killed, as "
             "stall-action says\n"
             "       1.000000  stall_kill     routes        client 3 (pid 7, router) cannot be killed: "
             "Operation not permitted\n");
}

static void trace_is_refused_in_words(void **state)
{
    expect_failure("trace nothere", 1, "no arena 'nothere'");
    expect_failure("trace --events gp_start,gp_stop", 1, "no event 'gp_stop'; there are bulk_free, ");
    assert_string_equal(out, "");
}

/* Ctrl-C is how it ends. */
static void trace_ends_well_when_interrupted(void **state)
{
    char *argv[] = {program, (char *)"trace", (char *)"routes", NULL}, byte;
    int fds[2], status;
    pid_t pid;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        (void)dup2(fds[1], STDOUT_FILENO);
        (void)execv(program, argv);
        _exit(127);
    }
    assert_int_equal(read(fds[0], &byte, 1), 1); /* the legend: it listens */
    assert_int_equal(kill(pid, SIGINT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

#define CTL_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define CTL_TEST_ALONE(name) cmocka_unit_test_setup_teardown(name, setup_alone, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_as_wide_as_its_cells),
        cmocka_unit_test(durations_have_two_units_at_most),
        CTL_TEST(wrong_command_lines_exit_with_two),
        CTL_TEST_ALONE(missing_daemon_is_one_line),
        CTL_TEST_ALONE(strange_answers_are_told),
        CTL_TEST(status_is_one_screen),
        CTL_TEST(lists_are_tables),
        CTL_TEST(show_tells_every_figure),
        CTL_TEST(json_is_for_machines),
        CTL_TEST(help_and_versions),
        CTL_TEST(completion_follows_help),
        CTL_TEST(completion_knows_what_the_daemon_knows),
        CTL_TEST(parameters_are_listed),
        CTL_TEST(set_prints_from_what_to_what),
        CTL_TEST(persist_keeps_other_lines),
        CTL_TEST(persist_is_all_or_nothing),
        CTL_TEST(persist_refuses_what_the_daemon_would),
        CTL_TEST(persist_follows_the_daemon),
        CTL_TEST_ALONE(persist_needs_a_place_beside_a_file),
        CTL_TEST(persist_reset_tells_what_holds),
        CTL_TEST(reset_tells_what_the_drop_in_has),
        CTL_TEST(arenas_are_made_and_removed),
        CTL_TEST(work_says_how_long_and_how_much),
        CTL_TEST_ALONE(audit_fails_with_a_list),
        CTL_TEST(reload_tells_what_stays),
        CTL_TEST(lost_output_is_told),
        CTL_TEST(manual_explains_each_figure),
        CTL_TEST(monitor_prints_lines),
        CTL_TEST_ALONE(trace_prints_a_line_an_event),
        CTL_TEST_ALONE(trace_tells_stalls_in_words),
        CTL_TEST(trace_is_refused_in_words),
        CTL_TEST(trace_ends_well_when_interrupted),
    };

    find_program();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
