/* SPDX-License-Identifier: MIT */
/* What reaches the journal, with libsystemd's last step in our hands, and what reaches stderr. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "log.h"

static char sent[4096]; /* the fields, a line each */

int __wrap_sd_journal_sendv(const struct iovec *iovecs, int n);
int __wrap_sd_journal_sendv(const struct iovec *iovecs, int n)
{
    sent[0] = '\0';
    for (int i = 0; i < n; i++) {
        (void)strncat(sent, iovecs[i].iov_base, iovecs[i].iov_len);
        (void)strcat(sent, "\n");
    }
    return 0;
}

/* Our stderr is a file that JOURNAL_STREAM may name; its contents are returned. */
static const char *with_stderr(int max_level, bool journal, void (*run)(void))
{
    static char text[4096];
    int fd = memfd_create("stderr", MFD_CLOEXEC), saved = dup(STDERR_FILENO);
    char stream[64];
    struct stat st;
    ssize_t n;

    assert_true(fd >= 0 && saved >= 0 && fstat(fd, &st) == 0);
    (void)snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino + !journal);
    assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
    (void)dup2(fd, STDERR_FILENO);
    log_init(max_level);
    run();
    (void)dup2(saved, STDERR_FILENO);
    n = pread(fd, text, sizeof(text) - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    (void)close(saved);
    (void)close(fd);
    return text;
}

static void say_with_fields(void)
{
    struct log_fields f = {.n = 0};

    log_fields_add(&f, "MESSAGE_ID=%s", "0123");
    log_fields_add(&f, "RECLAIMD_COMMAND=%s", "a\nb");
    log_fields_add(&f, "LONG=%0200d", 1);
    log_message_with(LOG_WARNING, &f, "reader %d stalls", 7);
}

static void say_plainly(void)
{
    log_notice("%s", "hello");
    log_debug("not this one");
}

static void fields_go_to_the_journal(void **state)
{
    char *rest;

    assert_string_equal(with_stderr(LOG_INFO, true, say_with_fields), "");
    rest = strstr(sent, "LONG=000");
    assert_non_null(rest);
    assert_int_equal(strlen(rest), LOG_FIELD_BYTES); /* cut, and its newline */
    *rest = '\0';
    assert_string_equal(sent,
                        "MESSAGE=reader 7 stalls\nPRIORITY=4\nMESSAGE_ID=0123\nRECLAIMD_COMMAND=a\nb\n");
}

static void plain_messages_go_there_too(void **state)
{
    assert_string_equal(with_stderr(LOG_INFO, true, say_plainly), "");
    assert_string_equal(sent, "MESSAGE=hello\nPRIORITY=5\n");
}

/* Whoever has another stderr than the one that the variable names reads lines there. */
static void stderr_gets_the_line_alone(void **state)
{
    sent[0] = '\0';
    assert_string_equal(with_stderr(LOG_INFO, false, say_with_fields), "reclaimd: reader 7 stalls\n");
    assert_string_equal(with_stderr(LOG_INFO, false, say_plainly), "reclaimd: hello\n");
    assert_string_equal(with_stderr(LOG_ERR, false, say_with_fields), "");
    assert_string_equal(sent, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_go_to_the_journal),
        cmocka_unit_test(plain_messages_go_there_too),
        cmocka_unit_test(stderr_gets_the_line_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
