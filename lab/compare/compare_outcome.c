/*
 * compare_outcome.c - the record of a run: what was requested and where it ran, the trainer's result, and its curve.
 *
 * A failed run is recorded with its last error message. A run whose loss is not finite has diverged, which is a
 * property of its method and rate, not an error of this program.
 */
#include "lab/compare/compare.h"

#include "io/files.h"
#include "frugrad.h"
#include "io/json.h"
#include "program/system/cpu_name.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { MAX_OUTPUT = 1 << 20, MAX_MESSAGE = 400 };

void fgl_last_message(const char *path, char *dst, size_t cap) {
    char line[1024], last[1024] = "ended without a message";
    FILE *file = fopen(path, "rbe");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != '\0' && strncmp(line, "  hint: ", 8) != 0)
            memcpy(last, line, sizeof last);
    }
    if (file != NULL)
        fclose(file);
    fgio_printable(strncmp(last, "frugrad: ", 9) == 0 ? last + 9 : last, dst, cap);
}

/* The trainer's output; NULL if it is not a JSON object. */
static json_t *read_result(const char *path) {
    struct stat st;
    fgio_bytes bytes = {NULL, 0};
    json_t *result = NULL;
    if (stat(path, &st) == 0 && st.st_size > 0 && st.st_size <= MAX_OUTPUT &&
        fgio_file_read(path, &bytes) == FGIO_EXIT_OK)
        result = json_loadb((const char *)bytes.data, bytes.len, 0, NULL);
    fgio_bytes_free(&bytes);
    if (!json_is_object(result)) {
        json_decref(result);
        result = NULL;
    }
    return result;
}

static json_t *environment(void) {
    char cpu[128], system[256] = "?";
    struct utsname name;
    fgp_cpu_name(cpu, sizeof cpu);
    if (uname(&name) == 0)
        snprintf(system, sizeof system, "%s %s %s", name.sysname, name.release, name.machine);
    return json_pack("{s:s, s:s?, s:o, s:I, s:o}", "version", frug_version(), "commit", getenv("FRUGRAD_COMMIT"), "cpu",
                     fgio_json_text(cpu), "cores", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "system",
                     fgio_json_text(system));
}

static void set_request(const fgl_compare *c, const fgl_trial *run, json_t *record) {
    const fgl_compare_task *t = &c->suite.task[run->task];
    const fgl_method *m = &c->suite.method[run->method];
    const struct {
        const char *key, *text;
    } texts[] = {
        {"kind", "run"},
        {"suite", c->suite.name},
        {"size", c->suite.size},
        {"task", t->id},
        {"family", fgl_task_family(t)},
        {"metric", fgl_task_metric(t)},
        {"method", m->id},
        {"label", m->label},
        {"phase", run->tune ? "tune" : "test"},
    };
    char command[8192];
    fgl_command_line words;
    json_object_set_new(record, "format", json_integer(1));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        json_object_set_new(record, texts[i].key, fgio_json_text(texts[i].text));
    json_object_set_new(record, "seed", json_integer(run->seed));
    json_object_set_new(record, "rate", json_real(run->rate));
    fgl_command_make(c, run, false, &words);
    json_object_set_new(record, "command", fgio_json_text(fgl_command_text(&words, command, sizeof command)));
}

static void set_error(const fgl_ended *e, json_t *record, fgl_outcome *o) {
    char message[MAX_MESSAGE];
    if (e->status > 128)
        snprintf(message, sizeof message, "ended by signal %d", e->status - 128);
    else
        fgl_last_message(e->files->err, message, sizeof message);
    o->diverged = e->status == FGIO_EXIT_FAIL && strstr(message, "is not finite") != NULL;
    o->refused = !o->diverged && (e->status == FGIO_EXIT_USAGE || e->run->tune);
    json_object_set_new(record, "status", json_integer(e->status));
    json_object_set_new(record, "error", fgio_json_text(message));
    if (o->diverged)
        json_object_set_new(record, "diverged", json_true());
}

json_t *fgl_record_make(const fgl_compare *c, const fgl_ended *e, fgl_outcome *o) {
    const char *metric = fgl_task_metric(&c->suite.task[e->run->task]);
    json_t *record = json_object(), *result = e->status == 0 ? read_result(e->files->out) : NULL;
    *o = (fgl_outcome){.run = *e->run, .value = NAN, .seconds = e->seconds};
    set_request(c, e->run, record);
    json_object_set_new(record, "environment", environment());
    json_object_set_new(record, "begun", json_string(e->begun));
    json_object_set_new(record, "seconds", json_real(e->seconds));
    const json_t *value = json_object_get(result, metric);
    if (json_is_number(value))
        o->value = json_number_value(value);
    if (result != NULL)
        json_object_set_new(record, "result", result);
    else
        set_error(e, record, o);
    fgl_curve_add(e->files->metrics, metric, record);
    return record;
}
