/*
 * defaults.c - defaults of a job that has only a model, data and a method.
 *
 * Every method gets the optimizer it was published with: where the workers keep the momentum (feedback merged, dgc,
 * ef21) the receiver must not have another one. Rates have their ordinary meaning for all methods; docs/training.md has
 * the runs that they were chosen by.
 */
#include "trainer/run/defaults.h"

#include "io/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct task_defaults {
    uint32_t batch;
    double rate;        /* images; others: for a width of 1, see fgt_default_rate() */
    const char *dense;  /* optimizer with its own momentum */
    const char *merged; /* optimizer for methods whose workers keep the momentum */
    const char *sign;   /* DeMo's */
    const char *muon;   /* frugrad-muon's */
} task_defaults;

static const task_defaults defaults_of[] = {
    [FGT_TASK_IMAGES] = {32, 0.05, "sgd:momentum=0.9,decay=5e-3", "merged:momentum=0.9,decay=5e-3", "sign:decay=0.1",
                         "muon-merged:decay=0.1"},
    [FGT_TASK_LANGUAGE] = {8, 0.4, "adamw:beta2=0.99,decay=0.1", "adam-merged:decay=0.1", "sign:decay=0.1",
                           "muon-merged:decay=0.1"},
    [FGT_TASK_SENTENCES] = {16, 0.06, "adamw:decay=0.01", "adam-merged:decay=0.01", "sign:decay=0.01",
                            "muon-merged:decay=0.01"},
    [FGT_TASK_MASKED] = {16, 0.12, "adamw:decay=0.01", "adam-merged:decay=0.01", "sign:decay=0.01",
                         "muon-merged:decay=0.01"},
};

#define SIGN_RATE    1e-3 /* images: the step length is the rate, whatever the gradient */
#define TRAINED_RATE 0.02 /* for a width of 1, for transformers that start from --weights */
#define RATE_MAX     8e-3 /* maximum for a transformer */

#define CONFIG_TEXT      2048u /* of a method with another option */
#define MUON_THREADS_MAX 64u   /* of the library's option */

uint32_t fgt_default_batch(fgt_task task) {
    return defaults_of[task].batch;
}

static bool starts_with(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* For image models by the task alone. For transformers the rate falls with the width. Fine-tuning changes trained
 * weights: AdamW uses small steps, methods with few states need larger ones. */
double fgt_default_rate(const fgt_job *job, const fgt_model *model, bool trained, const char *optimizer) {
    const task_defaults *u = &defaults_of[model->task];
    bool scaled = starts_with(optimizer, "adam") || starts_with(optimizer, "microadam") ||
                  starts_with(optimizer, "sign") || starts_with(optimizer, "muon");
    if (job->tune)
        return strcmp(job->tune->kind, "full") == 0 ? 5e-5 : 2e-4;
    if (model->task == FGT_TASK_IMAGES)
        return scaled ? SIGN_RATE : u->rate;
    if (!scaled)
        return defaults_of[FGT_TASK_IMAGES].rate; /* SGD, whatever the task */
    double rate = (trained ? TRAINED_RATE : u->rate) / model->hidden;
    return rate < RATE_MAX ? rate : RATE_MAX;
}

/* A language model from scratch is worse after a short warm-up, dense or sparse: docs/training.md, "Warm-up". */
const char *fgt_default_schedule(fgt_task task, bool trained) {
    return task == FGT_TASK_LANGUAGE && !trained ? "cosine,warmup=30%" : "cosine,warmup=10%";
}

bool fgt_option_is(const frug_config *config, const char *option, const char *value) {
    return strcmp(frug_config_get(config, option), value) == 0;
}

/* Whether the workers of a method keep the momentum in their residual; with local steps it is in their optimizers. */
static bool keeps_momentum(const frug_config *config) {
    return fgt_option_is(config, "local", "0") &&
           (fgt_option_is(config, "feedback", "merged") || fgt_option_is(config, "feedback", "dgc") ||
            fgt_option_is(config, "feedback", "ef21"));
}

/* A method is identified by its preset's name where its options are not unique. */
static bool is_preset(const char *method, const char *name) {
    return strcspn(method, ",") == strlen(name) && starts_with(method, name);
}

/* EF21 is a method for SGD, whatever the task. */
static const char *default_optimizer(const fgt_job *job, fgt_task task, const frug_config *config) {
    const task_defaults *u = &defaults_of[task];
    if (fgt_option_is(config, "reduce", "dense") || job->alone || !keeps_momentum(config))
        return u->dense;
    if (fgt_option_is(config, "feedback", "ef21"))
        return defaults_of[FGT_TASK_IMAGES].merged;
    return is_preset(job->method, "demo") ? u->sign : is_preset(job->method, "frugrad-muon") ? u->muon : u->merged;
}

/* Options of the library that the trainer does not support: ignoring them would falsify an experiment. */
static int check_supported(const frug_config *config) {
    if (fgt_option_is(config, "layers", "sensitivity"))
        return fgio_usage_error("--method: layers=sensitivity needs a weight for each tensor, and this trainer has "
                                "none; use layers=even, role or budget");
    if (fgt_option_is(config, "score", "given"))
        return fgio_usage_error("--method: score=given needs a number for each attention head, and this trainer has "
                                "none; use score=l2, l1 or max");
    if (!fgt_option_is(config, "reduce", "gossip") &&
        !(fgt_option_is(config, "topology", "ring") && fgt_option_is(config, "gamma", "0.2") &&
          fgt_option_is(config, "average_every", "0")))
        return fgio_usage_error("--method: topology, gamma and average_every have no effect without reduce=gossip; "
                                "omit them");
    return FGIO_EXIT_OK;
}

static int check_local(const frug_config *config, const char *optimizer) {
    size_t name = strcspn(optimizer, ":");
    const char *merged = strstr(optimizer, "merged");
    if (fgt_option_is(config, "local", "0") || !merged || (size_t)(merged - optimizer) > name)
        return FGIO_EXIT_OK;
    return fgio_usage_error("--optimizer: %.*s leaves the momentum to the residual of gradients, but with local steps "
                            "gradients are not sent; use sgd, adamw or another one with its own momentum",
                            (int)name, optimizer);
}

/* With sparse weights no matrix is too small to compress: few of its weights may be left. */
static int create_config(const fgt_job *job, const char *optimizer, frug_config **config) {
    char text[CONFIG_TEXT];
    if (frug_config_create_for(job->method, optimizer, config) != FRUG_OK)
        return fgio_config_error();
    if (!job->sparse || strstr(job->method, "min_size=") || fgt_option_is(*config, "reduce", "dense"))
        return FGIO_EXIT_OK;
    frug_config_destroy(*config);
    *config = NULL;
    if ((size_t)snprintf(text, sizeof text, "%s%smin_size=0", job->method, *job->method ? "," : "") >= sizeof text)
        return fgio_usage_error("--method: too long for --sparse, which appends min_size=0");
    return frug_config_create_for(text, optimizer, config) == FRUG_OK ? FGIO_EXIT_OK : fgio_config_error();
}

int fgt_default_optimizer(const fgt_job *job, const fgt_model *model, bool trained, char *optimizer, size_t cap,
                          frug_config **config) {
    const char *text = job->optimizer ? job->optimizer : defaults_of[model->task].merged;
    int status = create_config(job, text, config);
    if (status == FGIO_EXIT_OK && !job->optimizer) {
        text = default_optimizer(job, model->task, *config);
        frug_config_destroy(*config);
        *config = NULL;
        status = create_config(job, text, config); /* "frugrad" depends on the optimizer */
    }
    if (status == FGIO_EXIT_OK)
        status = check_supported(*config);
    if (status == FGIO_EXIT_OK)
        status = check_local(*config, text);
    if (status != FGIO_EXIT_OK)
        return status;
    char added[32] = "";
    if (starts_with(text, "muon") && !strstr(text, "threads=")) /* its products are shared by the threads of a worker */
        snprintf(added, sizeof added, "%cthreads=%u", strchr(text, ':') ? ',' : ':',
                 job->threads < MUON_THREADS_MAX ? job->threads : MUON_THREADS_MAX);
    if (!job->optimizer && trained && starts_with(text, "adam-merged"))
        snprintf(added, sizeof added, ",gain=finetune");
    if (strlen(text) + strlen(added) >= cap)
        return fgio_usage_error("--optimizer: '%s' is too long", text);
    snprintf(optimizer, cap, "%s%s", text, added);
    return FGIO_EXIT_OK;
}

/* The number of an option in a text like sgd:momentum=0.9,decay=0; 0 where it has no such option. */
static double option_value(const char *text, const char *name) {
    char key[32];
    snprintf(key, sizeof key, "%s=", name);
    const char *at = strchr(text, ':');
    while (at && !starts_with(at + 1, key))
        at = strchr(at + 1, ',');
    return at ? strtod(at + 1 + strlen(key), NULL) : 0;
}

/* Whether an optimizer has the residual for its momentum. */
static bool leaves_momentum(const char *optimizer) {
    return starts_with(optimizer, "merged") || starts_with(optimizer, "adam-merged") ||
           (starts_with(optimizer, "muon-merged") && option_value(optimizer, "momentum") == 0);
}

void fgt_warn_optimizer(const fgt_job *job, const fgt_model *model, const frug_config *config, const char *optimizer) {
    bool workers_keep_momentum = keeps_momentum(config) && !fgt_option_is(config, "reduce", "dense") && !job->alone;
    const char *recommended = default_optimizer(job, model->task, config);
    if (!job->optimizer || job->tune)
        return;
    bool optimizer_has_momentum = (starts_with(optimizer, "sgd") && option_value(optimizer, "momentum") > 0) ||
                                  ((starts_with(optimizer, "adamw") || starts_with(optimizer, "microadam")) &&
                                   option_value(optimizer, "beta1") > 0);
    if (workers_keep_momentum && optimizer_has_momentum)
        fgio_hint("momentum is applied twice: by the workers' feedback buffer and by --optimizer %s; "
                  "the default here is %s",
                  job->optimizer, recommended);
    if (!workers_keep_momentum && leaves_momentum(optimizer))
        fgio_hint("no momentum: --optimizer %s leaves it to feedback=merged, and --method %s has another feedback; "
                  "the default here is %s",
                  job->optimizer, job->method, recommended);
    if (option_value(optimizer, "decay") == 0 && !strstr(job->optimizer, "decay=") &&
        option_value(recommended, "decay") > 0)
        fgio_hint("no weight decay: --optimizer %s has decay=0 by default; the default here is %s", job->optimizer,
                  recommended);
}
