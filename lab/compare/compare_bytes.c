/*
 * compare_bytes.c - suite bytes: the same number of bytes for all methods instead of the same number of steps.
 *
 * A method that sends twice as much per step gets half the steps, with a warm-up of half the length. The bytes per step
 * are read from runs of another suite in the same runs.jsonl: each method's test with seed 1 and the same number of
 * workers. The bytes of most methods do not depend on the gradients.
 */
#include "lab/compare/compare.h"

#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The reference method: all others get its bytes. FruGrad with the library's defaults and the task's steps. */
static const char reference[] = "plain";

static bool is_reference_run(const fgl_compare *c, const json_t *record) {
    const json_t *result = json_object_get(record, "result");
    return fgio_json_equals(record, "suite", c->suite.bytes_of) && fgio_json_equals(record, "size", c->suite.size) &&
           fgio_json_equals(record, "phase", "test") && json_integer_value(json_object_get(record, "seed")) == 1 &&
           json_integer_value(json_object_get(result, "workers")) == c->workers;
}

void fgl_bytes_add_record(fgl_compare *c, const json_t *record) {
    const json_t *result = json_object_get(record, "result");
    double bytes = json_number_value(json_object_get(result, "bytes_sent"));
    double steps = json_number_value(json_object_get(result, "steps"));
    if (c->suite.bytes_of == NULL || !is_reference_run(c, record) || !(bytes > 0) || !(steps >= 1))
        return;
    for (size_t task = 0; task < c->suite.tasks; task++) {
        if (!fgio_json_equals(record, "task", c->suite.task[task].id))
            continue;
        if (fgio_json_equals(record, "method", reference))
            c->equal_bytes[task] = bytes / steps;
        for (size_t method = 0; method < c->suite.methods; method++)
            if (fgio_json_equals(record, "method", c->suite.method[method].id))
                c->step_bytes[task][method] = bytes / steps;
    }
}

uint32_t fgl_bytes_steps(const fgl_compare *c, size_t task, size_t method) {
    uint32_t usual = c->suite.task[task].steps;
    double own = c->step_bytes[task][method], equal = c->equal_bytes[task];
    if (c->suite.bytes_of == NULL)
        return usual;
    if (!(own > 0) || !(equal > 0))
        return 0;
    return (uint32_t)fmin(fmax(round(usual * equal / own), 1), 1e9);
}

const char *fgl_bytes_schedule(const fgl_compare *c, size_t task, size_t method, char *dst, size_t cap) {
    const fgl_compare_task *t = &c->suite.task[task];
    static const char key[] = "warmup=";
    const char *warmup = strstr(t->schedule, key);
    uint32_t steps = fgl_bytes_steps(c, task, method);
    if (warmup == NULL || steps == t->steps)
        snprintf(dst, cap, "%s", t->schedule);
    else
        snprintf(dst, cap, "%.*s%.0f", (int)(warmup - t->schedule + (long)sizeof key - 1), t->schedule,
                 round(strtod(warmup + sizeof key - 1, NULL) * steps / t->steps));
    return dst;
}

int fgl_bytes_check(const fgl_compare *c) {
    size_t known = 0, unknown = 0;
    for (size_t task = 0; task < c->suite.tasks; task++)
        for (size_t method = 0; method < c->suite.methods; method++)
            if (c->suite.method[method].families & c->suite.task[task].family)
                *(fgl_bytes_steps(c, task, method) > 0 ? &known : &unknown) += 1;
    if (unknown == 0)
        return FGIO_EXIT_OK;
    if (known > 0) {
        fgio_hint("%zu of %zu cells are skipped: suite %s has no test of them with seed 1, which gives the bytes of a "
                  "step",
                  unknown, known + unknown, c->suite.bytes_of);
        return FGIO_EXIT_OK;
    }
    fgio_error("suite %s needs the bytes of runs of suite %s, and there are none", c->suite.name, c->suite.bytes_of);
    fgio_hint("first: frugrad compare --suite %s with the same --out DIR, size, workers, tasks and methods, '%s' among "
              "them",
              c->suite.bytes_of, reference);
    return FGIO_EXIT_FAIL;
}
