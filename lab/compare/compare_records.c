/*
 * compare_records.c - runs.jsonl: a line for every run that has ended, appended by one write() and synced before the
 * next run begins.
 *
 * An incomplete last line is the result of a power cut or a kill, and is cut off; any other invalid line means another
 * file, or a damaged one, and is an error.
 */
#include "lab/compare/compare.h"

#include "io/files.h"
#include "io/json.h"
#include "lab/report/run_recipe.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct fgl_records {
    char path[4200];
    int fd;
    size_t others; /* runs of these cells by other commands */
};

int fgl_outcome_add(fgl_compare *c, const fgl_outcome *outcome) {
    if (c->outcomes == c->room) {
        size_t room = c->room ? 2 * c->room : 64;
        fgl_outcome *more = realloc(c->outcome, room * sizeof *more);
        if (more == NULL)
            return fgio_error("out of memory");
        c->outcome = more;
        c->room = room;
    }
    c->outcome[c->outcomes++] = *outcome;
    return FGIO_EXIT_OK;
}

/* ---- reading -------------------------------------------------------------------------------------- */

/* The task of a record; -1: none. */
static long task_of(const fgl_suite *s, const json_t *record) {
    for (size_t i = 0; i < s->tasks; i++)
        if (fgio_json_equals(record, "task", s->task[i].id))
            return (long)i;
    return -1;
}

/* Rows of different families may have the same method id. */
static long method_of(const fgl_compare *c, const json_t *record, long task) {
    for (size_t i = 0; task >= 0 && i < c->suite.methods; i++)
        if (fgl_suite_has(c, (size_t)task, i) && fgio_json_equals(record, "method", c->suite.method[i].id))
            return (long)i;
    return -1;
}

/* Why a record is invalid; NULL: it is valid. */
static const char *check_record(const json_t *record) {
    static const char *const texts[] = {"suite", "size", "task", "method", "phase", "command"};
    const json_t *format = json_object_get(record, "format"), *result = json_object_get(record, "result");
    if (!json_is_object(record))
        return "not a JSON object";
    if (!json_is_integer(format) || json_integer_value(format) != 1)
        return "\"format\" is not 1";
    if (!json_is_string(json_object_get(record, "kind")))
        return "no \"kind\"";
    if (!fgio_json_equals(record, "kind", "run"))
        return NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!json_is_string(json_object_get(record, texts[i])))
            return "a run without suite, size, task, method, phase or command";
    if (!json_is_integer(json_object_get(record, "seed")) || !json_is_number(json_object_get(record, "rate")))
        return "a run without seed or rate";
    if (!json_is_object(result) && !json_is_string(json_object_get(record, "error")))
        return "a run with neither result nor error";
    return NULL;
}

/* The run of a record in this comparison; false: there is none. */
static bool cell_of(const fgl_compare *c, const json_t *record, fgl_trial *run) {
    const fgl_suite *s = &c->suite;
    long task = task_of(s, record), method = method_of(c, record, task);
    json_int_t seed = json_integer_value(json_object_get(record, "seed"));
    if (!fgio_json_equals(record, "kind", "run") || !fgio_json_equals(record, "suite", s->name) ||
        !fgio_json_equals(record, "size", s->size) || task < 0 || method < 0 || seed < 0 || seed > UINT32_MAX)
        return false;
    *run = (fgl_trial){(size_t)task, (size_t)method, fgio_json_equals(record, "phase", "tune"), (uint32_t)seed,
                       json_number_value(json_object_get(record, "rate"))};
    return true;
}

/* Whether the command of a record equals the current command line of that run. */
static bool has_same_command(const fgl_compare *c, const json_t *record, const fgl_trial *run) {
    char command[8192];
    fgl_command_line words;
    fgl_command_make(c, run, false, &words);
    fgl_command_text(&words, command, sizeof command);
    return fgl_recipe_with_data(command) == fgl_recipe_with_data(json_string_value(json_object_get(record, "command")));
}

bool fgl_records_has(const fgl_compare *c, const json_t *record) {
    fgl_trial run;
    return cell_of(c, record, &run) && has_same_command(c, record, &run);
}

/* A record of this comparison becomes an outcome, if its command is the current one. Failed runs are repeated; diverged
 * runs are not failed. */
static int add_recorded_outcome(fgl_compare *c, const json_t *record) {
    bool diverged = json_is_true(json_object_get(record, "diverged"));
    const json_t *result = json_object_get(record, "result");
    fgl_outcome o = {.diverged = diverged, .seconds = json_number_value(json_object_get(record, "seconds"))};
    if (!cell_of(c, record, &o.run) || (result == NULL && !diverged))
        return FGIO_EXIT_OK;
    if (!has_same_command(c, record, &o.run)) {
        c->records->others++;
        return FGIO_EXIT_OK;
    }
    const json_t *value = json_object_get(result, fgl_task_metric(&c->suite.task[o.run.task]));
    o.value = json_is_number(value) ? json_number_value(value) : NAN;
    return fgl_outcome_add(c, &o);
}

static int add_recorded_bytes(fgl_compare *c, const json_t *record) {
    fgl_bytes_add_record(c, record);
    return FGIO_EXIT_OK;
}

typedef int record_fn(fgl_compare *c, const json_t *record);

static int read_lines(fgl_compare *c, const fgio_bytes *bytes, record_fn *then, size_t *whole) {
    const char *text = (const char *)bytes->data;
    size_t at = 0, line = 0;
    int code = FGIO_EXIT_OK;
    while (at < bytes->len && code == FGIO_EXIT_OK) {
        const char *end = memchr(text + at, '\n', bytes->len - at);
        if (end == NULL)
            break;
        size_t length = (size_t)(end - text) - at;
        json_error_t error;
        json_t *record = json_loadb(text + at, length, JSON_REJECT_DUPLICATES, &error);
        const char *wrong = record == NULL ? error.text : check_record(record);
        line++;
        if (wrong != NULL)
            code = fgio_error("%s: line %zu: %s", c->records->path, line, wrong);
        else
            code = then(c, record);
        json_decref(record);
        at += length + 1;
    }
    *whole = at;
    return code;
}

static int load_records(fgl_compare *c, bool to_write) {
    fgl_records *l = c->records;
    fgio_bytes bytes = {NULL, 0};
    size_t whole = 0;
    int code = fgio_file_read(l->path, &bytes);
    if (code == FGIO_EXIT_OK)
        code =
            read_lines(c, &bytes, add_recorded_bytes, &whole); /* first, because the runs of suite bytes depend on it */
    if (code == FGIO_EXIT_OK)
        code = read_lines(c, &bytes, add_recorded_outcome, &whole);
    if (code == FGIO_EXIT_OK && to_write && whole < bytes.len && ftruncate(l->fd, (off_t)whole) != 0)
        code = fgio_error("%s: ends in half a line, which cannot be cut off: %s", l->path, strerror(errno));
    if (code == FGIO_EXIT_OK && l->others > 0)
        fgio_hint("%s: %zu run%s of these methods by other commands; they are ignored here", l->path, l->others,
                  l->others == 1 ? "" : "s");
    fgio_bytes_free(&bytes);
    return code;
}

int fgl_records_open(fgl_compare *c, bool to_write) {
    struct stat st;
    fgl_records *l = calloc(1, sizeof *l);
    if (l == NULL)
        return fgio_error("out of memory");
    c->records = l;
    snprintf(l->path, sizeof l->path, "%s/runs.jsonl", c->out);
    l->fd = open(l->path, (to_write ? O_RDWR | O_CREAT | O_APPEND : O_RDONLY) | O_CLOEXEC, 0666);
    if (l->fd < 0 && errno == ENOENT && !to_write)
        return FGIO_EXIT_OK;
    if (l->fd < 0)
        return fgio_error("%s: cannot open: %s", l->path, strerror(errno));
    if (fstat(l->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return fgio_error("%s: not a plain file", l->path);
    if (to_write && flock(l->fd, LOCK_EX | LOCK_NB) != 0)
        return fgio_error("%s: in use by another comparison", l->path);
    return load_records(c, to_write);
}

void fgl_records_close(fgl_compare *c) {
    if (c->records != NULL && c->records->fd >= 0)
        close(c->records->fd);
    free(c->records);
    free(c->outcome);
    c->records = NULL;
    c->outcome = NULL;
    c->outcomes = c->room = 0;
}

/* ---- writing -------------------------------------------------------------------------------------- */

int fgl_records_append(fgl_compare *c, json_t *record) {
    const fgl_records *l = c->records;
    char *text = record == NULL ? NULL : json_dumps(record, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(record);
    if (text == NULL)
        return fgio_error("%s: cannot write: out of memory", l->path);
    size_t length = strlen(text);
    text[length] = '\n'; /* overwrites the terminating zero: one write() per line */
    off_t before = lseek(l->fd, 0, SEEK_END);
    ssize_t done = write(l->fd, text, length + 1);
    int code = FGIO_EXIT_OK;
    if (done != (ssize_t)length + 1 || fsync(l->fd) != 0) {
        code = fgio_error("%s: cannot write: %s", l->path, done >= 0 && errno == 0 ? "disk full" : strerror(errno));
        if (before >= 0 && ftruncate(l->fd, before) != 0)
            code = fgio_error("%s: ends in half a line", l->path);
    }
    free(text);
    return code;
}
