/*
 * options_file.c - options from a file.
 *
 * The command's option table is the grammar, so a file can have any option of the command line, and errors are reported
 * in the same way, with the line number.
 */
#include "program/args/options_file.h"

#include "io/files.h"

#include <stdlib.h>
#include <string.h>

#define SPACE " \t\r"

enum { MAX_BYTES = 1 << 20 };

typedef struct reader {
    const char *path;
    size_t line; /* from 1 */
    const fgp_args *line_args;
    fgp_args *args;
} reader;

/* Remove the comment, and white space at both ends. */
static char *trim(char *line) {
    line += strspn(line, SPACE);
    for (char *p = line; *p != '\0'; p++)
        if (*p == '#' && (p == line || strchr(SPACE, p[-1]) != NULL))
            *p = '\0';
    size_t length = strlen(line);
    while (length > 0 && strchr(SPACE, line[length - 1]) != NULL)
        line[--length] = '\0';
    return line;
}

static int unknown_option(const reader *r, const char *word) {
    fgio_usage_error("%s: line %zu: %s has no option '%s'", r->path, r->line, r->args->command->name, word);
    const char *nearest = fgp_args_nearest(r->args->command, word);
    if (nearest != NULL)
        fgio_hint("did you mean %s?", nearest);
    else
        fgio_hint("see frugrad %s --help", r->args->command->name);
    return FGIO_EXIT_USAGE;
}

static int read_switch(const reader *r, const char *name, const char *value, int *on) {
    static const char *const yes[] = {"", "yes", "true", "on", "1"}, *const no[] = {"no", "false", "off", "0"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (strcmp(value, yes[i]) == 0) {
            *on = 1;
            return FGIO_EXIT_OK;
        }
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (strcmp(value, no[i]) == 0) {
            *on = 0;
            return FGIO_EXIT_OK;
        }
    return fgio_usage_error("%s: line %zu: '%s' is a switch: yes or no, not '%s'", r->path, r->line, name, value);
}

/* A later line overrides an earlier one; the command line overrides both. */
static int set_option(const reader *r, int row, const char *value) {
    const fgp_opt *option = &r->args->command->options[row];
    int on = 1;
    if (strcmp(option->name, "config") == 0)
        return fgio_usage_error("%s: line %zu: a file cannot name another one", r->path, r->line);
    if (option->arg == NULL) {
        int code = read_switch(r, option->name, value, &on);
        if (code != FGIO_EXIT_OK)
            return code;
    } else if (value[0] == '\0' && option->arg[0] != '[') {
        return fgio_usage_error("%s: line %zu: %s needs a value (%s)", r->path, r->line, option->name, option->arg);
    }
    if (r->line_args->given[row])
        return FGIO_EXIT_OK;
    r->args->value[row] = option->arg == NULL ? NULL : value;
    r->args->given[row] = on;
    return FGIO_EXIT_OK;
}

static int read_line(const reader *r, char *line) {
    char *word = trim(line);
    if (*word == '\0')
        return FGIO_EXIT_OK;
    if (strncmp(word, "--", 2) == 0)
        word += 2;
    size_t length = strcspn(word, SPACE "=");
    char *value = word + length;
    value += strspn(value, SPACE);
    if (*value == '=')
        value++;
    value += strspn(value, SPACE);
    int row = fgp_args_row(r->args->command, word, length);
    if (row < 0) {
        word[length] = '\0';
        return unknown_option(r, word);
    }
    return set_option(r, row, value);
}

static int read_text(const char *path, char **text) {
    fgio_bytes bytes = {NULL, 0};
    int code = fgio_file_read(path, &bytes);
    if (code != FGIO_EXIT_OK)
        return code;
    const unsigned char *zero_byte = memchr(bytes.data, '\0', bytes.len);
    char *copy = NULL;
    if (bytes.len > MAX_BYTES)
        code = fgio_error("%s: a file of options has at most %d bytes, not %zu", path, MAX_BYTES, bytes.len);
    else if (zero_byte != NULL)
        code = fgio_error("%s: byte %zu is zero; expected lines of text", path, (size_t)(zero_byte - bytes.data));
    else if ((copy = malloc(bytes.len + 1)) == NULL)
        code = fgio_error("%s: not enough memory to read it", path);
    if (code == FGIO_EXIT_OK) {
        memcpy(copy, bytes.data, bytes.len);
        copy[bytes.len] = '\0';
        *text = copy;
    }
    fgio_bytes_free(&bytes);
    return code;
}

int fgp_options_file_add(const char *path, fgp_args *args, char **text) {
    const fgp_args line_args = *args;
    reader r = {.path = fgio_input_name(path), .line_args = &line_args, .args = args};
    *text = NULL;
    int code = read_text(path, text);
    char *next = *text;
    while (code == FGIO_EXIT_OK && next != NULL) {
        char *line = next, *end = strchr(line, '\n');
        next = end != NULL ? end + 1 : NULL;
        if (end != NULL)
            *end = '\0';
        r.line++;
        code = read_line(&r, line);
    }
    if (code != FGIO_EXIT_OK) {
        free(*text);
        *text = NULL;
    }
    return code;
}
