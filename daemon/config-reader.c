/* SPDX-License-Identifier: MIT */
/* A reader of lines for inih that counts them and turns away the ones that inih would misread. */
#include "config-reader.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

/* Reads one line without its newline. The length is the whole line's; what does not fit is dropped. */
static bool line_read(struct config_reader *reader, char *buffer, size_t size, size_t *ret_length,
                      bool *ret_has_nul)
{
    size_t n = 0;
    bool has_nul = false;
    int c = EOF;

    while (reader->n_bytes <= CONFIG_FILE_BYTES_MAX && (c = getc_unlocked(reader->stream)) != EOF) {
        reader->n_bytes++;
        if (c == '\n')
            break;
        has_nul = has_nul || c == '\0';
        if (n < size - 1)
            buffer[n] = (char)c;
        n++;
    }
    if (reader->n_bytes > CONFIG_FILE_BYTES_MAX || (n == 0 && c == EOF))
        return false;
    buffer[n < size ? n : size - 1] = '\0';
    *ret_length = n;
    *ret_has_nul = has_nul;
    return true;
}

/* Both signs, as inih has it; after a value only ";" begins one, and only after a blank. */
static bool is_comment(const char *text)
{
    return *text == '#' || *text == ';';
}

/* "reclaimd" or "arena NAME", with any blanks around the words. */
static int section_parse(struct config_reader *reader, char *text, struct error_line *ret_why)
{
    char *name = text_strip(text);
    size_t n = strcspn(name, " \t");

    if (strcmp(name, "reclaimd") == 0) {
        reader->section = CONFIG_SECTION_DAEMON;
        return 0;
    }
    if (n != strlen("arena") || strncmp(name, "arena", n) != 0)
        return error_line_set(ret_why, -EINVAL, "unknown section [%s]; write [reclaimd] or [arena NAME]",
                              text_quote(name).text);
    name = text_strip(name + n);
    if (!arena_name_is_valid(name)) {
        parse_error_describe(PARSE_ARENA_NAME, -EINVAL, name, ret_why);
        return -EINVAL;
    }
    reader->section = CONFIG_SECTION_ARENA;
    strcpy(reader->arena, name);
    return 0;
}

/*
 * Until the line has proved to be a section, its keys belong to none: they are skipped, as complaining of
 * each would bury the one mistake that there is.
 */
static void section_begin(struct config_reader *reader, char *line)
{
    struct error_line why = {.text = "the section has no ']' at its end; write [reclaimd] or [arena NAME]"};
    char *end = strchr(line, ']');
    char *rest = end ? text_strip(end + 1) : NULL;

    reader->section = CONFIG_SECTION_WRONG;
    if (end && (!*rest || is_comment(rest))) {
        *end = '\0';
        if (section_parse(reader, line + 1, &why) >= 0)
            return;
    }
    config_errors_add(reader->errors, reader->file, reader->line, "%s", why.text);
}

/* Whether a name's end stands before any comment: inih takes "a ; b = c" for a comment. */
static bool is_assignment(const char *line)
{
    size_t n = strcspn(line, "=:");

    for (size_t i = 1; i < n; i++)
        if (line[i] == ';' && isspace((unsigned char)line[i - 1]))
            return false;
    return line[n] != '\0';
}

/* What is wrong with a line that is neither empty, a comment nor a section, or NULL. */
static const char *key_complaint(const char *line)
{
    if (isspace((unsigned char)*line))
        return "an indented line would continue the one above; begin it in the first column";
    if (!is_assignment(line))
        return "this is neither [section] nor NAME = VALUE";
    return NULL;
}

/* Checks a line, tells what is wrong, and says whether it is one for inih to split. */
static bool line_check(struct config_reader *reader, char *line, size_t length, bool has_nul)
{
    const char *text = line + strspn(line, " \t\r\f\v");
    const char *complaint;

    if (has_nul || (length > CONFIG_LINE_MAX && !is_comment(text))) {
        config_errors_add(reader->errors, reader->file, reader->line,
                          has_nul ? "the line holds a NUL byte; this is no text file"
                                  : "the line has %zu bytes; %d are allowed",
                          length, CONFIG_LINE_MAX);
        return false;
    }
    if (!*text || is_comment(text))
        return false;
    if (*line == '[') {
        section_begin(reader, line);
        return false;
    }
    complaint = key_complaint(line);
    if (complaint)
        config_errors_add(reader->errors, reader->file, reader->line, "%s", complaint);
    return !complaint;
}

/* Tells of an end that is none; once, since inih stops at the first NULL. */
static void end_check(const struct config_reader *reader)
{
    if (ferror(reader->stream))
        config_errors_add(reader->errors, reader->file, 0, "cannot read it: %m");
    else if (reader->n_bytes > CONFIG_FILE_BYTES_MAX)
        config_errors_add(reader->errors, reader->file, 0, "the file is larger than %d bytes",
                          CONFIG_FILE_BYTES_MAX);
}

/*
 * inih's buffer is also ours: a line that it may see is left in it, for any other it finds an empty string,
 * and the end of the file is NULL. A carriage return at the end is a blank to inih.
 */
char *config_reader_read(char *buffer, int size, void *stream)
{
    struct config_reader *reader = stream;
    size_t length;
    bool has_nul;

    if (!line_read(reader, buffer, (size_t)size, &length, &has_nul)) {
        end_check(reader);
        return NULL;
    }
    reader->line++;
    /* The byte order mark that inih skips would look like part of a name here. */
    if (reader->line == 1 && strncmp(buffer, "\357\273\277", 3) == 0) {
        memmove(buffer, buffer + 3, (size_t)size - 3);
        length -= 3;
    }
    if (!line_check(reader, buffer, length, has_nul))
        *buffer = '\0';
    return buffer;
}
