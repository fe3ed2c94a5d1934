/*
 * metrics.c - metrics as JSON lines.
 *
 * A resumed run repeats the steps after its checkpoint, so their lines are dropped first: the file is rewritten without
 * them. Every line is appended by one write().
 */
#include "io/metrics.h"

#include "io/files.h"
#include "io/error.h"
#include "io/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fgio_metrics {
    char *path;
    int fd;
};

/* Whether a line is a JSON object of a step up to the resumed one. */
static int belongs_to_run(const char *line, size_t len, uint64_t resumed) {
    json_error_t error;
    json_t *object = len > 0 && line[len - 1] == '\n' ? json_loadb(line, len, 0, &error) : NULL;
    const json_t *step = json_object_get(object, "step");
    int kept = json_is_object(object);
    if (kept && json_is_integer(step))
        kept = json_integer_value(step) < 0 || (uint64_t)json_integer_value(step) <= resumed;
    else if (kept && json_is_real(step))
        kept = json_real_value(step) <= (double)resumed;
    json_decref(object);
    return kept;
}

static int copy_lines(FILE *from, const char *path, uint64_t resumed, fgio_writer *to) {
    char *line = NULL;
    size_t room = 0;
    int code = FGIO_EXIT_OK;
    for (ssize_t len; code == FGIO_EXIT_OK && (len = getline(&line, &room, from)) >= 0;)
        if (belongs_to_run(line, (size_t)len, resumed))
            code = fgio_writer_put(to, line, (size_t)len);
    if (code == FGIO_EXIT_OK && ferror(from))
        code = fgio_error("%s: cannot read: %s", path, strerror(errno));
    free(line);
    return code;
}

/* Drop the lines of steps after the one resumed from. */
static int drop_later_steps(const char *path, uint64_t resumed) {
    fgio_writer writer;
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* a pipe has no lines of before, and reading it would wait */
        return FGIO_EXIT_OK;
    FILE *from = fopen(path, "rbe");
    if (from == NULL)
        return errno == ENOENT ? FGIO_EXIT_OK : fgio_error("%s: cannot open: %s", path, strerror(errno));
    int code = fgio_writer_open(path, &writer);
    if (code == FGIO_EXIT_OK) {
        code = copy_lines(from, path, resumed, &writer);
        if (code == FGIO_EXIT_OK)
            code = fgio_writer_commit(&writer);
        else
            fgio_writer_abort(&writer);
    }
    fclose(from);
    return code;
}

int fgio_metrics_open(const char *path, uint64_t resumed, fgio_metrics **metrics) {
    int code = resumed == 0 ? FGIO_EXIT_OK : drop_later_steps(path, resumed);
    if (code != FGIO_EXIT_OK)
        return code;
    fgio_metrics *made = calloc(1, sizeof *made);
    char *copy = made == NULL ? NULL : strdup(path);
    if (copy == NULL) {
        free(made);
        return fgio_error("%s: out of memory", path);
    }
    made->path = copy;
    made->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (resumed == 0 ? O_TRUNC : 0), 0666);
    if (made->fd < 0) {
        code = fgio_error("%s: cannot open: %s", path, strerror(errno));
        fgio_metrics_close(made);
        return code;
    }
    *metrics = made;
    return FGIO_EXIT_OK;
}

int fgio_metrics_put(fgio_metrics *metrics, json_t *object) {
    char *text = object == NULL ? NULL : fgio_json_dump(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    size_t len = text == NULL ? 0 : strlen(text);
    if (text == NULL)
        return fgio_error("%s: cannot write: no JSON object, or out of memory", metrics->path);
    text[len] = '\n'; /* overwrites the terminating zero: one write() per line */
    fgio_writer direct = {metrics->path, NULL, NULL, metrics->fd};
    off_t before = lseek(metrics->fd, 0, SEEK_END);
    int code = fgio_writer_put(&direct, text, len + 1);
    if (code != FGIO_EXIT_OK && before >= 0 && ftruncate(metrics->fd, before) != 0)
        code = fgio_error("%s: ends in half a line", metrics->path); /* the next line would be damaged */
    free(text);
    return code;
}

void fgio_metrics_close(fgio_metrics *metrics) {
    if (metrics == NULL)
        return;
    if (metrics->fd >= 0)
        close(metrics->fd);
    free(metrics->path);
    free(metrics);
}
