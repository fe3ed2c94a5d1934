/*
 * compare_tune.c - text and initial weights of `frugrad finetune` runs, made once, in the directory of the comparison:
 * the sentences of SST-2 as plain text for a language model, and, if no weights are given, a small model that `frugrad
 * train` trains in seconds.
 */
#include "lab/compare/compare.h"

#include "io/files.h"
#include "io/progress.h"
#include "io/unpack_file.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_FILE = 1 << 28 };

/* ---- text --------------------------------------------------------------------------------------------- */

/** A part of a line. */
typedef struct slice {
    char *at;
    size_t len;
} slice;

/* The n-th field of a line, without surrounding spaces; empty if there are fewer. */
static slice field(char *line, size_t len, size_t n) {
    char *at = line, *end = line + len;
    for (; n > 0 && at != NULL; n--) {
        at = memchr(at, '\t', (size_t)(end - at));
        at = at == NULL ? NULL : at + 1;
    }
    if (at == NULL)
        return (slice){end, 0};
    char *tab = memchr(at, '\t', (size_t)(end - at));
    end = tab == NULL ? end : tab;
    while (at < end && *at == ' ')
        at++;
    while (at < end && (end[-1] == ' ' || end[-1] == '\r'))
        end--;
    return (slice){at, (size_t)(end - at)};
}

/* The column of the sentences; 64: there is none. */
static size_t find_column(char *head, size_t len) {
    for (size_t n = 0; n < 64; n++) {
        slice p = field(head, len, n);
        if (p.len == 8 && memcmp(p.at, "sentence", 8) == 0)
            return n;
    }
    return 64;
}

/* Extract the sentences of a table in place, one per line: the header line leaves room for the last newline. */
static bool extract_sentences(fgio_bytes *bytes) {
    char *text = (char *)bytes->data, *end = text + bytes->len;
    char *stop = bytes->len == 0 ? NULL : memchr(text, '\n', bytes->len);
    size_t column = stop == NULL ? 64 : find_column(text, (size_t)(stop - text)), used = 0;
    if (column == 64)
        return false;
    for (char *at = stop + 1; at < end; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop == NULL ? end : stop;
        slice p = field(at, (size_t)(stop - at), column);
        memmove(text + used, p.at, p.len);
        used += p.len;
        text[used++] = '\n';
    }
    bytes->len = used;
    return true;
}

static int make_text(const char *from, const char *table, const char *path) {
    fgio_bytes bytes = {NULL, 0};
    if (fgio_file_exists(path))
        return FGIO_EXIT_OK;
    char *packed = fgio_unpack_find(from, table);
    if (packed == NULL)
        return fgio_error("%s/%s: does not exist", from, table);
    int code = fgio_unpack_file(packed, MAX_FILE, &bytes);
    if (code == FGIO_EXIT_OK && !extract_sentences(&bytes))
        code = fgio_error("%s: no column 'sentence'", packed);
    if (code == FGIO_EXIT_OK)
        code = fgio_file_write(path, bytes.data, bytes.len);
    free(packed);
    fgio_bytes_free(&bytes);
    return code;
}

int fgl_compare_make_text(const char *from, const char *to) {
    static const char *const names[][2] = {
        {"train.tsv", "train.txt"}, {"dev.tsv", "valid.txt"}, {"test_labeled.tsv", "test.txt"}};
    char path[4300];
    int code = fgio_directory_make(to);
    for (size_t i = 0; i < sizeof names / sizeof *names && code == FGIO_EXIT_OK; i++) {
        snprintf(path, sizeof path, "%s/%s", to, names[i][1]);
        code = make_text(from, names[i][0], path);
    }
    return code;
}

/* ---- weights ------------------------------------------------------------------------------------------ */

/* Run this program with other arguments, and wait; its standard output is dropped. */
static int run_command(const fgl_command_line *words) {
    extern char **environ;
    posix_spawn_file_actions_t actions;
    pid_t pid = 0;
    int status = 0;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return fgio_error("out of memory");
    int failed = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (failed == 0)
        failed = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, (char *const *)(uintptr_t)words->word, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0)
        return fgio_error("cannot start a process: %s", strerror(failed));
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return fgio_error("cannot wait for a process: %s", strerror(errno));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? FGIO_EXIT_OK : FGIO_EXIT_FAIL;
}

int fgl_compare_train_initial(const fgl_compare *c) {
    int code = FGIO_EXIT_OK;
    for (size_t i = 0; i < c->suite.tasks && code == FGIO_EXIT_OK; i++) {
        char path[4200];
        fgl_command_line words;
        if (c->suite.task[i].before == NULL || fgio_file_exists(fgl_command_weights(c, i, path, sizeof path)))
            continue;
        fgl_command_initial(c, i, &words);
        fgl_command_add(&words, "--quiet", NULL);
        fgio_progress *meter = fgio_progress_begin(0, "task %s: training the initial model", c->suite.task[i].id);
        int failed = run_command(&words);
        fgio_progress_end(meter);
        if (failed != FGIO_EXIT_OK)
            code = fgio_error("task %s: cannot train the initial model", c->suite.task[i].id);
    }
    return code;
}
