/*
 * compare_command.c - the command line of a run.
 *
 * It contains everything that decides the result, so a recorded run is identified by its command line, and anybody can
 * repeat it.
 */
#include "lab/compare/compare.h"

#include "program/args/shell_quote.h"

#include <stdio.h>
#include <string.h>

enum { DEFAULT_WORKERS = 4 };

/* Threads of a run's compressors on the host: of this program one a run; runs on a GPU share THREADS_TORCH. They do not
 * change the result. */
enum { THREADS = 1, THREADS_TORCH = 16 };

/* Rate of the head if the scale is searched; and the smallest scale, which leaves the targets unchanged. */
static const char head_rate[] = "0.001", no_scale[] = "1e-6";

/* Training of initial models that are in no file. */
enum { INITIAL_STEPS = 40 };

void fgl_command_add(fgl_command_line *w, const char *word, const char *value) {
    const char *both[2] = {word, value};
    for (int i = 0; i < 2 && both[i] != NULL; i++) {
        size_t length = strlen(both[i]) + 1;
        if (w->count >= FGL_MAX_ARGUMENTS || length > sizeof w->text - w->used)
            return; /* cannot happen: paths have at most 4096 bytes, and there are few */
        w->word[w->count++] = memcpy(w->text + w->used, both[i], length);
        w->used += length;
    }
    w->word[w->count] = NULL;
}

static void add_number(fgl_command_line *w, const char *word, uint64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    fgl_command_add(w, word, text);
}

static void add_optimizer(fgl_command_line *w, const fgl_compare_task *t, const fgl_method *m) {
    static const char *const merged[] = {"merged:momentum=0.9,decay=5e-3", "adam-merged:beta2=0.95,decay=0.1",
                                         "adam-merged:beta2=0.99,decay=0.01"};
    static const char *const plain[] = {"sgd:momentum=0,decay=5e-3", "adamw:beta1=0,beta2=0.95,decay=0.1",
                                        "adamw:beta1=0,decay=0.01"};
    static const char *const decay[] = {"0.1", "0.1", "0.01"};
    int at = fgl_family_index(t);
    char text[64];
    if (m->optimizer == FGL_OPTIMIZER_MERGED && m->inertia[0] != '\0') {
        snprintf(text, sizeof text, "%s,inertia=%s", merged[at], m->inertia);
        fgl_command_add(w, "--optimizer", text);
    } else if (m->optimizer == FGL_OPTIMIZER_MERGED)
        fgl_command_add(w, "--optimizer", merged[at]);
    else if (m->optimizer == FGL_OPTIMIZER_PLAIN)
        fgl_command_add(w, "--optimizer", plain[at]);
    else if (m->optimizer == FGL_OPTIMIZER_MUON) {
        snprintf(text, sizeof text, "muon:%sdecay=%s", t->muon != NULL ? t->muon : "", decay[at]);
        fgl_command_add(w, "--optimizer", text);
    }
}

static void add_data(fgl_command_line *w, const fgl_compare *c, size_t task, bool unpacked) {
    const fgl_compare_task *t = &c->suite.task[task];
    char path[4096];
    unpacked = unpacked && c->unpacked[task][0] != '\0';
    fgl_command_add(w, "--data", unpacked ? c->unpacked[task] : c->folder[task]);
    if (t->tokens != NULL && strcmp(t->tokens, "bytes") != 0) {
        snprintf(path, sizeof path, "%s/%s", c->data, t->tokens);
        fgl_command_add(w, "--tokens", path);
    } else if (t->tokens != NULL) {
        fgl_command_add(w, "--tokens", t->tokens);
    }
    if (t->subset != NULL)
        fgl_command_add(w, "--subset", t->subset);
    if (t->samples > 0)
        add_number(w, "--samples", t->samples);
}

static const char *initial_folder(const fgl_compare *c, size_t task, char *dst, size_t cap) {
    snprintf(dst, cap, "%s/work/before-%s", c->out != NULL ? c->out : "DIR", c->suite.task[task].id);
    return dst;
}

const char *fgl_command_weights(const fgl_compare *c, size_t task, char *dst, size_t cap) {
    const fgl_compare_task *t = &c->suite.task[task];
    char folder[4096];
    if (t->weights != NULL)
        snprintf(dst, cap, "%s/%s", c->suite.tunes ? c->weights : c->data, t->weights);
    else
        snprintf(dst, cap, "%.4000s/step-%09d.safetensors", initial_folder(c, task, folder, sizeof folder),
                 INITIAL_STEPS);
    return dst;
}

void fgl_command_initial(const fgl_compare *c, size_t task, fgl_command_line *w) {
    const fgl_compare_task *t = &c->suite.task[task];
    char folder[4096];
    *w = (fgl_command_line){.count = 0};
    fgl_command_add(w, "frugrad", "train");
    fgl_command_add(w, "--model", t->before);
    add_number(w, "--samples", t->samples);
    fgl_command_add(w, "--rate", "0.005");
    add_number(w, "--threads", 1);
    add_number(w, "--batch", 16);
    add_number(w, "--steps", INITIAL_STEPS);
    fgl_command_add(w, "--no-eval", NULL);
    fgl_command_add(w, "--save", initial_folder(c, task, folder, sizeof folder));
}

static void add_tuning(fgl_command_line *w, const fgl_method *m, const char *searched) {
    bool scaled = m->optimizer == FGL_OPTIMIZER_SCALE;
    if (m->states > 0)
        add_number(w, "--states", m->states);
    fgl_command_add(w, "--targets", "qv");
    if (scaled || m->optimizer == FGL_OPTIMIZER_HEAD)
        fgl_command_add(w, "--scale", scaled ? searched : no_scale);
    fgl_command_add(w, "--rate", scaled ? head_rate : searched);
}

/* Searches are evaluated on held-out samples, not on the test split; only tests evaluate during training. */
static void add_evaluation(fgl_command_line *w, const fgl_compare_task *t, uint32_t steps, bool tune) {
    uint32_t parts = tune ? 0 : t->evals;
    add_number(w, "--eval-every", parts > 0 ? (steps + parts) / (parts + 1) : 1000000000);
    if (t->eval_batches > 0)
        add_number(w, "--eval-batches", t->eval_batches);
    if (tune && t->hold_out > 0)
        add_number(w, "--hold-out", t->hold_out);
    else if (tune)
        fgl_command_add(w, "--judge", "valid");
}

/* The same number of samples per step for any number of workers. */
static uint32_t batch_of(const fgl_compare_task *t, uint32_t workers) {
    uint32_t batch = t->batch * DEFAULT_WORKERS / workers;
    return batch > 0 ? batch : 1;
}

static uint32_t threads_torch(const fgl_compare *c) {
    uint32_t share = THREADS_TORCH / c->jobs;
    return share > 0 ? share : 1;
}

void fgl_command_make(const fgl_compare *c, const fgl_trial *run, bool unpacked, fgl_command_line *w) {
    const fgl_compare_task *t = &c->suite.task[run->task];
    const fgl_method *m = &c->suite.method[run->method];
    uint32_t workers = m->workers ? m->workers : c->workers, steps = fgl_bytes_steps(c, run->task, run->method);
    char rate[32], schedule[64], weights[4200];
    *w = (fgl_command_line){.count = 0};
    if (t->trainer != NULL) {
        fgl_command_add(w, "python3", "-m");
        fgl_command_add(w, t->trainer, NULL);
    } else {
        fgl_command_add(w, "frugrad", c->suite.tunes ? "finetune" : "train");
    }
    fgl_command_add(w, "--model", t->model);
    if (c->suite.tunes || t->weights != NULL)
        fgl_command_add(w, "--weights", fgl_command_weights(c, run->task, weights, sizeof weights));
    add_data(w, c, run->task, unpacked);
    fgl_command_add(w, "--method", m->config);
    snprintf(rate, sizeof rate, "%g", run->rate);
    if (c->suite.tunes) {
        add_tuning(w, m, rate);
    } else {
        add_optimizer(w, t, m);
        fgl_command_add(w, "--rate", rate);
    }
    fgl_command_add(w, "--clip", m->clip[0] != '\0' ? m->clip : "0");
    fgl_command_add(w, "--schedule", fgl_bytes_schedule(c, run->task, run->method, schedule, sizeof schedule));
    add_number(w, "--workers", workers);
    add_number(w, "--threads", t->trainer != NULL ? threads_torch(c) : THREADS);
    add_number(w, "--batch", batch_of(t, workers));
    add_number(w, "--steps", steps);
    add_number(w, "--seed", run->seed);
    if (t->family == FGL_VISION && t->trainer == NULL)
        fgl_command_add(w, "--no-augment", NULL);
    add_evaluation(w, t, steps, run->tune);
    if (t->passes != NULL)
        fgl_command_add(w, "--passes", t->passes);
}

const char *fgl_command_text(const fgl_command_line *w, char *dst, size_t cap) {
    fgp_shell_text to = {dst, cap, 0};
    to.used = (size_t)snprintf(dst, cap, "%s", w->word[0]);
    for (size_t i = 1; i < w->count; i++)
        fgp_append_quoted(&to, w->word[i]);
    return dst;
}
