/*
 * run_records.c - recorded runs.
 *
 * A line is parsed by jansson, checked field by field, and kept: strings of a run point into it. A required field that
 * is missing, of another type or out of its range is an error with its name, so that charts may divide by numbers and
 * take their logarithms.
 */
#include "lab/report/run_records.h"

#include "io/files.h"
#include "lab/report/run_recipe.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A run with a loss or perplexity above this has diverged. */
#define EXPLODED 1e18

const char *const fgl_time_names[FGL_TIMES] = {"data", "forward", "backward", "blocked",  "compress",
                                               "wait", "wire",    "decode",   "optimizer"};

bool fgl_metric_up(const char *metric) {
    return strcmp(metric, "perplexity") != 0;
}

/* ---- fields ------------------------------------------------------------------------------------ */

/** An object, and the prefix of its fields in messages ("", "result."). */
typedef struct json_field {
    const json_t *object;
    const char *path;
    fgio_reason *why;
} json_field;

static int get_text(const json_field *at, const char *name, bool must, const char **text) {
    const json_t *value = json_object_get(at->object, name);
    *text = json_string_value(value);
    if (*text != NULL || (!must && (value == NULL || json_is_null(value))))
        return 0;
    return fgio_fail(at->why, value == NULL ? "%s%s is missing" : "%s%s is not a string", at->path, name);
}

/* A number in a range; one that is missing or null is NaN. */
static int get_number(const json_field *at, const char *name, double least, double most, double *number) {
    const json_t *value = json_object_get(at->object, name);
    *number = NAN;
    if (value == NULL || json_is_null(value))
        return 0;
    if (!json_is_number(value))
        return fgio_fail(at->why, "%s%s is not a number", at->path, name);
    *number = json_number_value(value);
    if (!(*number >= least && *number <= most))
        return fgio_fail(at->why, "%s%s is %g, not from %g to %g", at->path, name, *number, least, most);
    return 0;
}

static int get_object(const json_field *at, const char *name, json_field *inside) {
    const json_t *value = json_object_get(at->object, name);
    inside->object = json_is_null(value) ? NULL : value;
    inside->why = at->why;
    if (inside->object != NULL && !json_is_object(value))
        return fgio_fail(at->why, "%s%s is not an object", at->path, name);
    return 0;
}

static int get_list(const json_field *at, const char *name, size_t most, const json_t **list) {
    *list = json_object_get(at->object, name);
    if (!json_is_array(*list))
        return fgio_fail(at->why, *list == NULL ? "%s%s is missing" : "%s%s is not a list", at->path, name);
    if (json_array_size(*list) > most)
        return fgio_fail(at->why, "%s%s has %zu entries; %zu at most", at->path, name, json_array_size(*list), most);
    return 0;
}

static int read_numbers(const json_field *at, const char *name, const json_t *list, double most, double *to) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        to[i] = json_is_null(value) ? NAN : json_number_value(value);
        if (!json_is_null(value) && (!json_is_number(value) || !(fabs(to[i]) <= most)))
            return fgio_fail(at->why, "%s%s: entry %zu is not a number up to %g", at->path, name, i, most);
    }
    return 0;
}

static int get_machine(const json_field *at, fgl_machine *machine) {
    json_field inside = {NULL, "environment.", NULL};
    if (get_object(at, "environment", &inside))
        return -1;
    machine->cores = NAN;
    if (inside.object == NULL)
        return 0;
    return get_text(&inside, "version", false, &machine->version) ||
                   get_text(&inside, "commit", false, &machine->commit) ||
                   get_text(&inside, "cpu", false, &machine->cpu) ||
                   get_text(&inside, "system", false, &machine->system) ||
                   get_number(&inside, "cores", 0, 1e6, &machine->cores)
               ? -1
               : 0;
}

/* ---- a run ---------------------------------------------------------------------------------------- */

static int get_curve(const json_field *at, const char *name, const char *last, fgl_curve *curve) {
    char path[16];
    const char *const names[4] = {"step", "seconds", "bytes", last};
    const json_t *list[4];
    json_field inside = {NULL, path, NULL};
    snprintf(path, sizeof path, "%s.", name);
    if (get_object(at, name, &inside))
        return -1;
    if (inside.object == NULL)
        return 0;
    for (int i = 0; i < 4; i++) {
        if (get_list(&inside, names[i], FGL_MAX_POINTS, &list[i]))
            return -1;
        if (json_array_size(list[i]) != json_array_size(list[0]))
            return fgio_fail(at->why, "%s%s is not as long as %sstep", path, names[i], path);
    }
    size_t count = json_array_size(list[0]);
    double *numbers = calloc(4 * count + 1, sizeof *numbers);
    if (numbers == NULL)
        return fgio_fail(at->why, "out of memory");
    *curve = (fgl_curve){count, numbers, numbers + count, numbers + 2 * count, numbers + 3 * count};
    for (size_t i = 0; i < 4; i++)
        if (read_numbers(&inside, names[i], list[i], i < 3 ? EXPLODED : DBL_MAX, numbers + i * count))
            return -1;
    for (size_t i = 0; i < count; i++)
        if (fabs(curve->value[i]) > EXPLODED)
            curve->value[i] = NAN;
    return 0;
}

static int get_layer_names(const json_field *inside, fgl_layers *layers) {
    const json_t *list;
    if (get_list(inside, "names", FGL_MAX_LAYERS, &list))
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)))
            return fgio_fail(inside->why, "layers.names: entry %zu is not a string", i);
    layers->names = json_array_size(list);
    layers->name = json_object_get(inside->object, "names");
    return 0;
}

static int get_layers(const json_field *at, fgl_layers *layers) {
    json_field inside = {NULL, "layers.", NULL};
    const json_t *steps, *rows;
    if (get_object(at, "layers", &inside))
        return -1;
    if (inside.object == NULL)
        return 0;
    if (get_layer_names(&inside, layers) || get_list(&inside, "steps", FGL_MAX_MOMENTS, &steps) ||
        get_list(&inside, "density", FGL_MAX_MOMENTS, &rows))
        return -1;
    layers->moments = json_array_size(steps);
    if (json_array_size(rows) != layers->moments)
        return fgio_fail(at->why, "layers.density is not as long as layers.steps");
    layers->step = calloc(layers->moments * (1 + layers->names) + 1, sizeof *layers->step);
    if (layers->step == NULL)
        return fgio_fail(at->why, "out of memory");
    layers->density = layers->step + layers->moments;
    if (read_numbers(&inside, "steps", steps, 1e18, layers->step))
        return -1;
    for (size_t i = 0; i < layers->moments; i++) {
        const json_t *row = json_array_get(rows, i);
        if (!json_is_array(row) || json_array_size(row) != layers->names)
            return fgio_fail(at->why, "layers.density: row %zu is not a list of %zu numbers", i, layers->names);
        if (read_numbers(&inside, "density", row, 1, layers->density + i * layers->names))
            return -1;
    }
    return 0;
}

static int get_times(const json_field *result, double *times) {
    json_field inside = {NULL, "result.time_ms.", NULL};
    if (get_object(result, "time_ms", &inside))
        return -1;
    for (int i = 0; i < FGL_TIMES; i++)
        if (get_number(&inside, fgl_time_names[i], 0, 1e12, &times[i]))
            return -1;
    return 0;
}

static int get_result(const json_field *at, fgl_run *run) {
    json_field result = {NULL, "result.", NULL};
    if (get_object(at, "result", &result) || get_text(at, "error", false, &run->error))
        return -1;
    if (result.object == NULL && run->error == NULL)
        return fgio_fail(at->why, "neither result nor error is there");
    bool loss = !fgl_metric_up(run->metric);
    const struct {
        const char *name;
        double least, most, *to;
    } field[] = {
        {run->metric, strcmp(run->metric, "correlation") == 0 ? -1 : 0, loss ? DBL_MAX : 1, &run->value},
        {"step", 0, 1e15, &run->steps},
        {"workers", 0, 1e9, &run->workers},
        {"bytes_sent", 0, 1e18, &run->bytes_sent},
        {"bytes_dense", 0, 1e18, &run->bytes_dense},
        {"density_mean", 0, 1, &run->density},
        {"step_ms", 0, 1e12, &run->step_ms},
        {"model_state_bytes", 0, 1e18, &run->state_bytes},
        {"weight_bytes", 0, 1e18, &run->weight_bytes},
        {"gradient_bytes", 0, 1e18, &run->gradient_bytes},
        {"library_bytes", 0, 1e18, &run->library_bytes},
        {"states", 0, 1e18, &run->states},
        {"head_states", 0, 1e18, &run->head_states},
        {"optimizer_bytes", 0, 1e18, &run->optimizer_bytes},
    };
    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        if (get_number(&result, field[i].name, field[i].least, field[i].most, field[i].to))
            return -1;
    if (run->value > EXPLODED || (loss && run->value <= 0))
        run->value = NAN;
    return get_times(&result, run->time_ms);
}

static int get_metric(const json_field *at, const char **metric) {
    static const char *const known[] = {"accuracy", "perplexity", "correlation"};
    if (get_text(at, "metric", true, metric))
        return -1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(*metric, known[i]) == 0)
            return 0;
    return fgio_fail(at->why, "metric is '%s', not accuracy, perplexity or correlation", *metric);
}

static int get_seed_and_phase(const json_field *at, fgl_run *run) {
    const char *phase;
    const json_t *seed = json_object_get(at->object, "seed");
    if (get_text(at, "phase", true, &phase))
        return -1;
    run->test = strcmp(phase, "test") == 0;
    if (!run->test && strcmp(phase, "tune") != 0)
        return fgio_fail(at->why, "phase is '%s', not tune or test", phase);
    if (!json_is_integer(seed) || json_integer_value(seed) < 0)
        return fgio_fail(at->why, "seed is %s", seed == NULL ? "missing" : "not a whole number");
    run->seed = (uint64_t)json_integer_value(seed);
    return 0;
}

static int read_run(const json_field *at, fgl_run *run) {
    if (get_text(at, "suite", true, &run->suite) || get_text(at, "size", false, &run->size) ||
        get_text(at, "task", true, &run->task) || get_text(at, "family", false, &run->family) ||
        get_metric(at, &run->metric) || get_text(at, "method", true, &run->method) ||
        get_text(at, "label", false, &run->label) || get_text(at, "command", false, &run->command) ||
        get_text(at, "begun", false, &run->begun) || get_seed_and_phase(at, run) ||
        get_number(at, "rate", 0, 1e9, &run->rate) || get_machine(at, &run->machine) || get_result(at, run) ||
        get_curve(at, "curve", "loss", &run->curve) || get_curve(at, "evals", "value", &run->evals) ||
        get_layers(at, &run->layers))
        return -1;
    run->size = run->size == NULL ? "" : run->size;
    run->family = run->family == NULL ? "" : run->family;
    run->label = run->label == NULL || run->label[0] == '\0' ? run->method : run->label;
    return 0;
}

/* ---- a speed ---------------------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int get_median(const json_field *at, double *median) {
    const json_t *list;
    if (get_list(at, "step_ms", FGL_MAX_POINTS, &list))
        return -1;
    size_t count = json_array_size(list);
    double *times = calloc(count + 1, sizeof *times);
    if (times == NULL)
        return fgio_fail(at->why, "out of memory");
    int bad = read_numbers(at, "step_ms", list, 1e12, times);
    for (size_t i = 0; i < count && !bad; i++)
        if (!(times[i] > 0))
            bad = fgio_fail(at->why, "step_ms: entry %zu is not above 0", i);
    if (!bad && count == 0)
        bad = fgio_fail(at->why, "step_ms is empty");
    if (!bad) {
        qsort(times, count, sizeof *times, compare_doubles);
        *median = (times[(count - 1) / 2] + times[count / 2]) / 2;
    }
    free(times);
    return bad;
}

static int read_timing(const json_field *at, fgl_timing *timing) {
    if (get_text(at, "suite", true, &timing->suite) || get_text(at, "method", true, &timing->method) ||
        get_text(at, "label", false, &timing->label) || get_text(at, "model", true, &timing->model) ||
        get_text(at, "link", true, &timing->link) || get_text(at, "command", false, &timing->command) ||
        get_number(at, "workers", 1, 1e9, &timing->workers) || get_median(at, &timing->step_ms) ||
        get_machine(at, &timing->machine))
        return -1;
    timing->label = timing->label == NULL || timing->label[0] == '\0' ? timing->method : timing->label;
    return 0;
}

/* ---- the set ------------------------------------------------------------------------------------------ */

static bool same_number(double a, double b) {
    return isnan(a) ? isnan(b) : a <= b && a >= b;
}

static bool same_run(const fgl_run *a, const fgl_run *b) {
    return a->seed == b->seed && a->test == b->test && same_number(a->rate, b->rate) &&
           (a->error || b->error || same_number(a->workers, b->workers)) && strcmp(a->method, b->method) == 0 &&
           strcmp(a->task, b->task) == 0 && strcmp(a->suite, b->suite) == 0 && strcmp(a->size, b->size) == 0;
}

static bool same_timing(const fgl_timing *a, const fgl_timing *b) {
    return same_number(a->workers, b->workers) && strcmp(a->suite, b->suite) == 0 &&
           strcmp(a->method, b->method) == 0 && strcmp(a->model, b->model) == 0 && strcmp(a->link, b->link) == 0;
}

static void free_run(fgl_run *run) {
    free(run->curve.step);
    free(run->evals.step);
    free(run->layers.step);
    json_decref(run->record);
}

/* Grow an array for one more element; NULL on failure, and the old one is unchanged. */
static void *grow(void *array, size_t count, size_t *cap, size_t size, fgio_reason *why) {
    if (count < *cap)
        return array;
    size_t more = 2 * *cap + 16;
    void *bigger = count >= FGL_MAX_RUNS ? NULL : realloc(array, more * size);
    if (bigger == NULL)
        fgio_fail(why, "more than %d records, or out of memory", (int)FGL_MAX_RUNS);
    else
        *cap = more;
    return bigger;
}

static int add_run(fgl_runs *runs, const json_field *at, json_t *record) {
    fgl_run run = {.record = record};
    size_t i = 0;
    fgl_run *all = read_run(at, &run) ? NULL : grow(runs->run, runs->count, &runs->cap, sizeof run, at->why);
    if (all == NULL) {
        free_run(&run);
        return -1;
    }
    runs->run = all;
    if (runs->wanted != NULL && !runs->wanted(runs->user, &run)) {
        free_run(&run);
        return 0;
    }
    run.number = runs->records++;
    run.recipe = fgl_recipe_of(run.command);
    while (i < runs->count && !same_run(&runs->run[i], &run))
        i++;
    if (i < runs->count)
        free_run(&runs->run[i]);
    else
        runs->count++;
    runs->run[i] = run;
    return 0;
}

static int add_timing(fgl_runs *runs, const json_field *at, json_t *record) {
    fgl_timing timing = {.record = record};
    size_t i = 0;
    fgl_timing *all = NULL;
    if (!read_timing(at, &timing))
        all = grow(runs->timing, runs->timings, &runs->timings_cap, sizeof timing, at->why);
    if (all == NULL) {
        json_decref(record);
        return -1;
    }
    runs->timing = all;
    while (i < runs->timings && !same_timing(&runs->timing[i], &timing))
        i++;
    if (i < runs->timings)
        json_decref(runs->timing[i].record);
    else
        runs->timings++;
    runs->timing[i] = timing;
    return 0;
}

/* Takes ownership of the record. */
static int add_record(fgl_runs *runs, json_t *record, fgio_reason *why) {
    json_field at = {record, "", why};
    const char *kind = NULL;
    const json_t *format = json_object_get(record, "format");
    int bad = 0;
    if (!json_is_object(record))
        bad = fgio_fail(why, "not an object");
    else if (!json_is_integer(format))
        bad = fgio_fail(why, "format is %s", format == NULL ? "missing" : "not a whole number");
    else if (json_integer_value(format) != 1)
        bad = fgio_fail(why, "format is %" JSON_INTEGER_FORMAT "; this program supports format 1",
                        json_integer_value(format));
    else
        bad = get_text(&at, "kind", true, &kind);
    if (!bad && strcmp(kind, "run") == 0)
        return add_run(runs, &at, record);
    if (!bad && strcmp(kind, "speed") == 0)
        return add_timing(runs, &at, record);
    if (!bad)
        fgio_fail(why, "kind is '%s', not run or speed", kind);
    json_decref(record);
    return -1;
}

/* Prefix the reason with the line number. */
static int prefix_line(fgio_reason *why, size_t number) {
    fgio_reason plain = *why;
    return fgio_fail(why, "line %zu: %.200s", number, plain.text);
}

static bool is_blank(const char *line, size_t len) {
    while (len > 0 && strchr(" \t\r", line[len - 1]) != NULL && line[len - 1] != '\0')
        len--;
    return len == 0;
}

static int parse_line(fgl_runs *runs, const char *line, size_t len, bool whole, fgio_reason *why) {
    json_error_t error;
    if (is_blank(line, len))
        return 0;
    if (len > FGL_MAX_LINE)
        return fgio_fail(why, "%zu bytes; %d at most", len, (int)FGL_MAX_LINE);
    json_t *record = json_loadb(line, len, 0, &error);
    if (record == NULL && !whole) {
        runs->torn = 1;
        return 0;
    }
    if (record == NULL)
        return fgio_fail(why, "not JSON: column %d: %s", error.column, error.text);
    return add_record(runs, record, why);
}

int fgl_runs_parse(fgl_runs *runs, const void *data, size_t len, fgio_reason *why) {
    const char *at = data, *end = at + len;
    for (size_t number = 1; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((stop == NULL ? end : stop) - at);
        if (parse_line(runs, at, length, stop != NULL, why))
            return prefix_line(why, number);
        at += length + (stop != NULL);
    }
    fgl_runs_mark_stale(runs);
    return 0;
}

int fgl_runs_read(fgl_runs *runs, const char *path) {
    fgio_bytes bytes = {NULL, 0};
    fgio_reason why = {""};
    struct stat info;
    char file[PATH_MAX];
    int folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    if (snprintf(file, sizeof file, "%s%s", path, folder ? "/runs.jsonl" : "") >= (int)sizeof file)
        return fgio_error("%s: the name is too long", path);
    int status = fgio_file_read(file, &bytes);
    if (status == FGIO_EXIT_OK && fgl_runs_parse(runs, bytes.data, bytes.len, &why) != 0)
        status = fgio_error("%s: %s", fgio_input_name(file), why.text);
    fgio_bytes_free(&bytes);
    return status;
}

static void clear_seconds(fgl_curve *curve) {
    for (size_t i = 0; i < curve->count; i++)
        curve->seconds[i] = NAN;
}

void fgl_runs_clear_times(fgl_runs *runs) {
    for (size_t i = 0; i < runs->count; i++) {
        fgl_run *run = &runs->run[i];
        run->step_ms = NAN;
        for (int k = 0; k < FGL_TIMES; k++)
            run->time_ms[k] = NAN;
        clear_seconds(&run->curve);
        clear_seconds(&run->evals);
    }
}

void fgl_runs_free(fgl_runs *runs) {
    for (size_t i = 0; i < runs->count; i++)
        free_run(&runs->run[i]);
    for (size_t i = 0; i < runs->timings; i++)
        json_decref(runs->timing[i].record);
    free(runs->run);
    free(runs->timing);
    *runs = (fgl_runs){0};
}
