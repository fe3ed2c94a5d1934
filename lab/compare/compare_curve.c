/*
 * compare_curve.c - metrics of a run, downsampled: at most 60 points, each the mean loss of the same number of steps,
 * and all evaluations and layer densities. Two passes over the file: the first counts the steps.
 */
#include "lab/compare/compare.h"

#include "io/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 60 };

/** A table of numbers, written as an object of arrays. */
typedef struct columns {
    json_t *step, *seconds, *bytes, *value;
    json_t *split; /* of evaluations: during training it may differ from the final one */
} columns;

static columns columns_new(void) {
    return (columns){json_array(), json_array(), json_array(), json_array(), json_array()};
}

static void columns_add(columns *c, json_int_t step, double seconds, double bytes, double value) {
    json_array_append_new(c->step, json_integer(step));
    json_array_append_new(c->seconds, fgio_json_real(seconds));
    json_array_append_new(c->bytes, json_integer((json_int_t)bytes));
    json_array_append_new(c->value, fgio_json_real(value));
}

/* Move the arrays into the record; an empty table is omitted. */
static void columns_move(columns *c, json_t *record, const char *name, const char *value) {
    bool empty = json_array_size(c->step) == 0;
    json_t *all = json_object();
    json_object_set_new(all, "step", c->step);
    json_object_set_new(all, "seconds", c->seconds);
    json_object_set_new(all, "bytes", c->bytes);
    json_object_set_new(all, value, c->value);
    if (json_array_size(c->split) > 0)
        json_object_set(all, "split", c->split);
    json_decref(c->split);
    if (empty)
        json_decref(all);
    else
        json_object_set_new(record, name, all);
}

static bool is_step(const json_t *line) {
    const char *kind = json_string_value(json_object_get(line, "kind"));
    return kind != NULL && strcmp(kind, "step") == 0;
}

static double number(const json_t *line, const char *key) {
    return json_number_value(json_object_get(line, key));
}

/** State while reading the lines. */
typedef struct reader {
    const char *metric;
    size_t steps, group, in_group;
    double seconds, bytes, loss;
    json_int_t step;
    columns curve, evals;
    json_t *names, *layer_steps, *layers; /* of tensors; NULL: none */
} reader;

static void count_line(reader *w, const json_t *line) {
    w->steps += is_step(line);
}

static void end_point(reader *w) {
    columns_add(&w->curve, w->step, w->seconds, w->bytes, w->loss / (double)w->in_group);
    w->loss = 0;
    w->in_group = 0;
}

static void add_layers(reader *w, const json_t *line) {
    if (w->layers == NULL) {
        w->names = json_incref(json_object_get(line, "names"));
        w->layer_steps = json_array();
        w->layers = json_array();
    }
    json_array_append(w->layer_steps, json_object_get(line, "step"));
    json_array_append(w->layers, json_object_get(line, "density"));
}

static void add_line(reader *w, const json_t *line) {
    const json_t *value = json_object_get(line, w->metric);
    if (is_step(line)) {
        w->step = json_integer_value(json_object_get(line, "step"));
        w->seconds += number(line, "seconds");
        w->bytes = number(line, "bytes_sent");
        w->loss += number(line, "loss");
        if (++w->in_group == w->group)
            end_point(w);
    } else if (json_is_array(json_object_get(line, "density"))) {
        add_layers(w, line);
    } else if (json_is_number(value)) {
        columns_add(&w->evals, w->step, w->seconds, w->bytes, json_number_value(value));
        json_array_append(w->evals.split, json_object_get(line, "kind"));
    }
}

static bool each_line(const char *path, void (*take)(reader *w, const json_t *line), reader *w) {
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return false;
    for (ssize_t length; (length = getline(&line, &room, file)) > 0;) {
        json_t *object = json_loadb(line, (size_t)length, 0, NULL);
        if (json_is_object(object))
            take(w, object);
        json_decref(object);
    }
    free(line);
    fclose(file);
    return true;
}

void fgl_curve_add(const char *path, const char *metric, json_t *record) {
    reader w = {.metric = metric};
    if (!each_line(path, count_line, &w) || w.steps == 0)
        return;
    w.group = (w.steps + POINTS - 1) / POINTS;
    w.curve = columns_new();
    w.evals = columns_new();
    each_line(path, add_line, &w);
    if (w.in_group > 0)
        end_point(&w);
    columns_move(&w.curve, record, "curve", "loss");
    columns_move(&w.evals, record, "evals", "value");
    if (w.layers != NULL)
        json_object_set_new(
            record, "layers",
            json_pack("{s:o, s:o, s:o}", "names", w.names, "steps", w.layer_steps, "density", w.layers));
}
