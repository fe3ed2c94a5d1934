/*
 * compare_command.c - the command line of a run. All that decides its result is in it, so a recorded run is one of
 * these words again, and anybody can type it.
 */
#include "lab/compare/compare.h"

#include "program/args/shell_quote.h"

#include <stdio.h>
#include <string.h>

enum { WORKERS_USUAL = 4 };

/* Threads of a run's compressors on the host: runs of this program share the cores, while on a GPU there is one at a
 * time. They do not change what comes out. */
enum { THREADS = 1, THREADS_TORCH = 16 };

/* Of the head, where the scale is searched; and a scale by which targets stay where they are, the least there is. */
static const char head_rate[] = "0.001", no_scale[] = "1e-6";

/* How models that are fine-tuned without any file begin. */
enum { BEFORE_STEPS = 40 };

void fgl_words_add(fgl_command_line *w, const char *word, const char *value) {
    const char *both[2] = {word, value};
    for (int i = 0; i < 2 && both[i] != NULL; i++) {
        size_t length = strlen(both[i]) + 1;
        if (w->count >= FGL_WORDS_MOST || length > sizeof w->text - w->used)
            return; /* paths are 4096 bytes at most, and there are few of them */
        w->word[w->count++] = memcpy(w->text + w->used, both[i], length);
        w->used += length;
    }
    w->word[w->count] = NULL;
}

static void add_number(fgl_command_line *w, const char *word, uint64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    fgl_words_add(w, word, text);
}

static void add_optimizer(fgl_command_line *w, const fgl_compare_task *t, const fgl_method *m) {
    static const char *const merged[] = {"merged:momentum=0.9,decay=5e-3", "adam-merged:beta2=0.95,decay=0.1",
                                         "adam-merged:decay=0.01"};
    static const char *const plain[] = {"sgd:momentum=0,decay=5e-3", "adamw:beta1=0,beta2=0.95,decay=0.1",
                                        "adamw:beta1=0,decay=0.01"};
    int at = t->family == FGL_VISION ? 0 : t->family == FGL_LANGUAGE ? 1 : 2;
    if (m->mover == FGL_MOVER_MERGED && m->inertia[0] != '\0') {
        char text[64];
        snprintf(text, sizeof text, "%s,inertia=%s", merged[at], m->inertia);
        fgl_words_add(w, "--optimizer", text);
    } else if (m->mover == FGL_MOVER_MERGED)
        fgl_words_add(w, "--optimizer", merged[at]);
    else if (m->mover == FGL_MOVER_PLAIN)
        fgl_words_add(w, "--optimizer", plain[at]);
}

static void add_data(fgl_command_line *w, const fgl_compare *c, size_t task, bool unpacked) {
    const fgl_compare_task *t = &c->suite.task[task];
    char path[4096];
    unpacked = unpacked && c->unpacked[task][0] != '\0';
    fgl_words_add(w, "--data", unpacked ? c->unpacked[task] : c->folder[task]);
    if (t->tokens != NULL && strcmp(t->tokens, "bytes") != 0) {
        snprintf(path, sizeof path, "%s/%s", c->data, t->tokens);
        fgl_words_add(w, "--tokens", path);
    } else if (t->tokens != NULL) {
        fgl_words_add(w, "--tokens", t->tokens);
    }
    if (t->subset != NULL)
        fgl_words_add(w, "--subset", t->subset);
    if (t->samples > 0)
        add_number(w, "--samples", t->samples);
}

static const char *before_folder(const fgl_compare *c, size_t task, char *dst, size_t cap) {
    snprintf(dst, cap, "%s/work/before-%s", c->out != NULL ? c->out : "DIR", c->suite.task[task].id);
    return dst;
}

const char *fgl_words_weights(const fgl_compare *c, size_t task, char *dst, size_t cap) {
    const fgl_compare_task *t = &c->suite.task[task];
    char folder[4096];
    if (t->weights != NULL)
        snprintf(dst, cap, "%s/%s", c->weights, t->weights);
    else
        snprintf(dst, cap, "%.4000s/step-%09d.safetensors", before_folder(c, task, folder, sizeof folder),
                 BEFORE_STEPS);
    return dst;
}

void fgl_words_before(const fgl_compare *c, size_t task, fgl_command_line *w) {
    const fgl_compare_task *t = &c->suite.task[task];
    char folder[4096];
    *w = (fgl_command_line){.count = 0};
    fgl_words_add(w, "frugrad", "train");
    fgl_words_add(w, "--model", t->before);
    add_number(w, "--samples", t->samples);
    fgl_words_add(w, "--rate", "0.005");
    add_number(w, "--threads", 1);
    add_number(w, "--batch", 16);
    add_number(w, "--steps", BEFORE_STEPS);
    fgl_words_add(w, "--no-eval", NULL);
    fgl_words_add(w, "--save", before_folder(c, task, folder, sizeof folder));
}

static void add_tuning(fgl_command_line *w, const fgl_method *m, const char *searched) {
    bool scaled = m->mover == FGL_MOVER_SCALE;
    if (m->states > 0)
        add_number(w, "--states", m->states);
    fgl_words_add(w, "--targets", "qv");
    if (scaled || m->mover == FGL_MOVER_HEAD)
        fgl_words_add(w, "--scale", scaled ? searched : no_scale);
    fgl_words_add(w, "--rate", scaled ? head_rate : searched);
}

/* A search is judged by samples that are neither trained on nor tested on; only tests show how it went on the way. */
static void add_judge(fgl_command_line *w, const fgl_compare_task *t, uint32_t steps, bool tune) {
    uint32_t parts = tune ? 0 : t->evals;
    add_number(w, "--eval-every", parts > 0 ? (steps + parts) / (parts + 1) : 1000000000);
    if (t->eval_batches > 0)
        add_number(w, "--eval-batches", t->eval_batches);
    if (tune && t->hold_out > 0)
        add_number(w, "--hold-out", t->hold_out);
    else if (tune)
        fgl_words_add(w, "--judge", "valid");
}

/* As many samples a step, whatever the number of workers. */
static uint32_t batch_of(const fgl_compare_task *t, uint32_t workers) {
    uint32_t batch = t->batch * WORKERS_USUAL / workers;
    return batch > 0 ? batch : 1;
}

void fgl_words_of(const fgl_compare *c, const fgl_trial *run, bool unpacked, fgl_command_line *w) {
    const fgl_compare_task *t = &c->suite.task[run->task];
    const fgl_method *m = &c->suite.method[run->method];
    uint32_t workers = m->workers ? m->workers : c->workers, steps = fgl_bytes_steps(c, run->task, run->method);
    char rate[32], schedule[64], weights[4200];
    *w = (fgl_command_line){.count = 0};
    if (t->trainer != NULL) {
        fgl_words_add(w, "python3", "-m");
        fgl_words_add(w, t->trainer, NULL);
    } else {
        fgl_words_add(w, "frugrad", c->suite.tunes ? "finetune" : "train");
    }
    fgl_words_add(w, "--model", t->model);
    if (c->suite.tunes)
        fgl_words_add(w, "--weights", fgl_words_weights(c, run->task, weights, sizeof weights));
    add_data(w, c, run->task, unpacked);
    fgl_words_add(w, "--method", m->config);
    snprintf(rate, sizeof rate, "%g", run->rate);
    if (c->suite.tunes) {
        add_tuning(w, m, rate);
    } else {
        add_optimizer(w, t, m);
        fgl_words_add(w, "--rate", rate);
    }
    fgl_words_add(w, "--clip", m->clip[0] != '\0' ? m->clip : "0");
    fgl_words_add(w, "--schedule", fgl_bytes_schedule(c, run->task, run->method, schedule, sizeof schedule));
    add_number(w, "--workers", workers);
    add_number(w, "--threads", t->trainer != NULL ? THREADS_TORCH : THREADS);
    add_number(w, "--batch", batch_of(t, workers));
    add_number(w, "--steps", steps);
    add_number(w, "--seed", run->seed);
    if (t->family == FGL_VISION && t->trainer == NULL)
        fgl_words_add(w, "--no-augment", NULL);
    add_judge(w, t, steps, run->tune);
}

const char *fgl_words_text(const fgl_command_line *w, char *dst, size_t cap) {
    fgp_shell_text to = {dst, cap, 0};
    to.used = (size_t)snprintf(dst, cap, "%s", w->word[0]);
    for (size_t i = 1; i < w->count; i++)
        fgp_append_quoted(&to, w->word[i]);
    return dst;
}
