/* job_args.c - options to a training job: tables of which option sets which field, and checks between options. */
#define _GNU_SOURCE /* program_invocation_name */
#include "program/args/job_args.h"

#include "base/cpu.h"
#include "program/args/quantity.h"
#include "trainer/pipeline/pipeline.h"
#include "trainer/run/rate_schedule.h"
#include "trainer/sparse/master_weights.h"
#include "trainer/sparse/sparse_options.h"
#include "program/args/options_file.h"
#include "program/args/shell_quote.h"
#include "trainer/run/worker_group.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_WORKERS = 1024, MAX_THREADS = 1024 };

static int has(const fgp_args *args, const char *name) {
    return fgp_args_row(args->command, name, strlen(name)) >= 0;
}

static int given(const fgp_args *args, const char *name) {
    return has(args, name) && fgp_arg_given(args, name);
}

/* ---- fields ----------------------------------------------------------------------------- */

typedef struct field {
    const char *name;
    size_t offset; /* in fgt_job */
    double min, max;
} field;

#define FIELD(name, member, min, max)                                                                                  \
    { name, offsetof(fgt_job, member), min, max }

static const field texts[] = {
    FIELD("model", model, 0, 0),
    FIELD("data", data, 0, 0),
    FIELD("tokens", tokens, 0, 0),
    FIELD("subset", subset, 0, 0),
    FIELD("method", method, 0, 0),
    FIELD("optimizer", optimizer, 0, 0),
    FIELD("schedule", schedule, 0, 0),
    FIELD("weights", weights, 0, 0),
    FIELD("save", save, 0, 0),
    FIELD("resume", resume, 0, 0),
    FIELD("sparse", sparse, 0, 0),
    FIELD("quantize", quantize, 0, 0),
    FIELD("stage-config", stage_config, 0, 0),
    FIELD("stage-feedback", stage_feedback, 0, 0),
};
static const field small[] = {
    FIELD("workers", workers, 1, MAX_WORKERS),
    FIELD("stages", stages, 2, FGT_STAGES_MAX),
    FIELD("threads", threads, 1, MAX_THREADS),
    FIELD("batch", batch, 1, 1 << 20),
    FIELD("accumulate", accumulate, 1, 1 << 20),
    FIELD("eval-batches", eval_batches, 1, 1 << 30),
    FIELD("keep", keep, 1, 1 << 20),
};
static const field large[] = {
    FIELD("steps", steps, 1, 1e15),           FIELD("seed", seed, 0, 9007199254740992.0),
    FIELD("eval-every", eval_every, 1, 1e15), FIELD("save-every", save_every, 1, 1e15),
    FIELD("samples", samples, 1, 1e9),        FIELD("hold-out", hold_out, 1, 1e9),
};
static const field reals[] = {
    FIELD("rate", rate, 1e-12, 1e6),
    FIELD("epochs", epochs, 1e-6, 1e9),
    FIELD("timeout", timeout, 0.1, 1e9),
    FIELD("activations", activations, 0.01, 0.95),
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static void *field_address(fgt_job *job, const field *f) {
    return (char *)job + f->offset;
}

/* Whether the command has the option and it has a value; otherwise the field is unchanged. */
static int has_value(const fgp_args *args, const field *f) {
    return has(args, f->name) && fgp_arg(args, f->name) != NULL;
}

static int read_numbers(const fgp_args *args, fgt_job *job) {
    int code = FGIO_EXIT_OK;
    for (size_t i = 0; i < COUNT(small) && code == FGIO_EXIT_OK; i++) {
        uint64_t number = 0;
        if (!has_value(args, &small[i]))
            continue;
        code = fgp_arg_u64(args, small[i].name, (uint64_t)small[i].min, (uint64_t)small[i].max, &number);
        *(uint32_t *)field_address(job, &small[i]) = (uint32_t)number;
    }
    for (size_t i = 0; i < COUNT(large) && code == FGIO_EXIT_OK; i++)
        if (has_value(args, &large[i]))
            code = fgp_arg_u64(args, large[i].name, (uint64_t)large[i].min, (uint64_t)large[i].max,
                               field_address(job, &large[i]));
    for (size_t i = 0; i < COUNT(reals) && code == FGIO_EXIT_OK; i++)
        if (has_value(args, &reals[i]))
            code = fgp_arg_double(args, reals[i].name, reals[i].min, reals[i].max, field_address(job, &reals[i]));
    double bytes = 0;
    if (code == FGIO_EXIT_OK && has(args, "bucket") && fgp_arg(args, "bucket") != NULL)
        code = fgp_arg_quantity(args, "bucket", FGP_MEASURE_COUNT, 1024, 1e12, &bytes);
    job->bucket_bytes = (uint64_t)bytes;
    bytes = 0;
    if (code == FGIO_EXIT_OK && has(args, "memory") && fgp_arg(args, "memory") != NULL)
        code = fgp_arg_quantity(args, "memory", FGP_MEASURE_COUNT, 1024, 1e15, &bytes);
    job->memory_bytes = (uint64_t)bytes;
    return code;
}

static int read_clip(const fgp_args *args, fgt_job *job) {
    if (!has(args, "clip"))
        return FGIO_EXIT_OK;
    job->clip_auto = strcmp(fgp_arg(args, "clip"), "auto") == 0;
    return job->clip_auto ? FGIO_EXIT_OK : fgp_arg_double(args, "clip", 0, 1e12, &job->clip);
}

static int read_eval_split(const fgp_args *args, fgt_job *job) {
    static const char *const splits[] = {"test", "valid", NULL};
    int which = 0;
    int code = has(args, "judge") ? fgp_arg_word(args, "judge", splits, &which) : FGIO_EXIT_OK;
    job->judge_valid = which == 1;
    job->judge_test = which == 0 && given(args, "judge");
    if (code == FGIO_EXIT_OK && job->judge_test && given(args, "hold-out"))
        code = fgio_usage_error("%s: --judge test and --hold-out both select the evaluation data; give one of them",
                                args->command->name);
    return code;
}

/* Commands that do not train have neither option: the data set's default holds. */
static int read_augment(const fgp_args *args, fgt_job *job) {
    int code = has(args, "augment") ? fgp_arg_word(args, "augment", fgt_augment_names, &job->augment) : FGIO_EXIT_OK;
    if (code != FGIO_EXIT_OK || !given(args, "no-augment"))
        return code;
    if (given(args, "augment") && job->augment != FGT_AUGMENT_NONE)
        return fgio_usage_error("%s: --no-augment and --augment %s both set the augmentation; give one of them",
                                args->command->name, fgt_augment_names[job->augment]);
    job->augment = FGT_AUGMENT_NONE;
    return FGIO_EXIT_OK;
}

static int read_fields(const fgp_args *args, fgt_job *job) {
    for (size_t i = 0; i < COUNT(texts); i++)
        if (has_value(args, &texts[i]))
            *(const char **)field_address(job, &texts[i]) = fgp_arg(args, texts[i].name);
    job->overlap = !given(args, "no-overlap");
    job->alone = given(args, "alone");
    job->eval = !given(args, "no-eval");
    job->recompute = given(args, "recompute");
    int code = read_eval_split(args, job);
    if (code == FGIO_EXIT_OK)
        code = read_augment(args, job);
    if (code == FGIO_EXIT_OK)
        code = read_clip(args, job);
    return code == FGIO_EXIT_OK ? read_numbers(args, job) : code;
}

/* ---- rules between them ------------------------------------------------------------------- */

/* Cores of one worker: mpirun binds each process to its own cores or to none; threads share all cores. */
static uint32_t cores_per_worker(uint32_t workers) {
    long online = sysconf(_SC_NPROCESSORS_ONLN), ours = frugi_cpu_cores();
    long sharing = (long)workers;
    if (fgt_group_is_joined()) {
        sharing = ours < online ? 1 : fgt_group_local_size(1);
    }
    long each = sharing > 0 ? ours / sharing : 1;
    return each < 1 ? 1 : each > MAX_THREADS ? MAX_THREADS : (uint32_t)each;
}

/* --steps and --epochs exclude each other; the command line overrides the file. */
static int resolve_length(fgp_request *r) {
    if (!given(&r->args, "steps") || !given(&r->args, "epochs"))
        return FGIO_EXIT_OK;
    int typed_steps = given(r->line, "steps"), typed_epochs = given(r->line, "epochs");
    if (typed_steps == typed_epochs)
        return fgio_usage_error("%s: --steps and --epochs both set the length of training; give one of them",
                                r->line->command->name);
    if (typed_epochs)
        r->job.steps = 0;
    return FGIO_EXIT_OK;
}

/* Whether a path to resume from names a directory. Worker 0's files may be missing where others run: then its text says
 * so, that all may agree. */
static int names_directory(const char *path) {
    static const char suffix[] = ".safetensors";
    struct stat st;
    size_t length = strlen(path), tail = sizeof suffix - 1;
    if (stat(path, &st) == 0)
        return S_ISDIR(st.st_mode);
    return length < tail || strcmp(path + length - tail, suffix) != 0;
}

/* Whether two paths name the same directory, which may not exist yet. */
static int same_directory(const char *a, const char *b) {
    struct stat x, y;
    if (stat(a, &x) == 0 && stat(b, &y) == 0)
        return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    size_t m = strlen(a), n = strlen(b);
    while (m > 1 && a[m - 1] == '/')
        m--;
    while (n > 1 && b[n - 1] == '/')
        n--;
    return m == n && strncmp(a, b, m) == 0;
}

/*
 * --resume without a path continues in the directory of --save, and a run that resumes from a directory saves there. A
 * directory that is both may be empty, so that one command serves the first start and every restart.
 */
static int resolve_resume(fgp_request *r) {
    fgt_job *job = &r->job;
    if (job->resume[0] == '\0') {
        job->resume = job->save;
        if (job->resume == NULL) {
            fgio_usage_error("%s: --resume needs a path or --save", r->line->command->name);
            fgio_hint("give a checkpoint or a directory of them, or --save DIR with it");
            return FGIO_EXIT_USAGE;
        }
    }
    job->resume_if_any = job->save != NULL && same_directory(job->save, job->resume);
    if (has(&r->args, "save") && job->save == NULL && names_directory(job->resume))
        job->save = job->resume;
    if (job->resume_if_any)
        return FGIO_EXIT_OK;
    if (given(r->line, "resume") && !given(r->line, "weights"))
        job->weights = NULL; /* --resume on the command line overrides --weights in the file */
    if (job->weights != NULL)
        return fgio_usage_error("%s: --weights and --resume both set the initial weights; give one of them",
                                r->line->command->name);
    return FGIO_EXIT_OK;
}

static int resolve_paths(fgp_request *r) {
    fgt_job *job = &r->job;
    const char *name = r->line->command->name;
    int code = job->resume != NULL ? resolve_resume(r) : FGIO_EXIT_OK;
    if (code != FGIO_EXIT_OK)
        return code;
    if (job->tune != NULL && job->resume == NULL && job->weights == NULL) {
        fgio_usage_error("%s: --weights missing", name);
        fgio_hint("fine-tuning starts from a safetensors file, or continues with --resume");
        return FGIO_EXIT_USAGE;
    }
    if (given(&r->args, "save-every") && job->save == NULL)
        return fgio_usage_error("%s: --save-every needs --save DIR", name);
    return FGIO_EXIT_OK;
}

/* Reject options of text data that this run would ignore. */
static int check_text_options(const fgp_request *r) {
    const char *name = r->line->command->name, *model = r->job.model;
    int images = r->model.task == FGT_TASK_IMAGES, builtin = strcmp(r->job.data, "builtin") == 0;
    if (given(&r->args, "tokens") && images)
        return fgio_usage_error("%s: --tokens is for text, and %s is a model for images", name, model);
    if (given(&r->args, "tokens") && has(&r->args, "data") && builtin && strcmp(r->job.tokens, "bytes") != 0)
        return fgio_usage_error("%s: --tokens %s: builtin data has its own tokens", name, r->job.tokens);
    if (given(&r->args, "subset") && (r->model.task != FGT_TASK_SENTENCES || builtin))
        return fgio_usage_error("%s: --subset is for sentence tasks, not for %s on %s", name, model, r->job.data);
    return FGIO_EXIT_OK;
}

/** An option that has no effect in this run, and why. */
typedef struct unused_option {
    const char *option;
    bool unused_option;
    const char *why;
} unused_option;

static int check_idle_options(const fgp_request *r) {
    const fgt_job *job = &r->job;
    bool text = r->model.task != FGT_TASK_IMAGES, unsaved = has(&r->args, "save") && job->save == NULL;
    const char *limits = has(&r->args, "hold-out") ? "is for builtin data; --hold-out and --steps limit other data"
                                                   : "is for builtin data; --eval-batches limits other data";
    const unused_option options[] = {
        {"samples", strcmp(job->data, "builtin") != 0, limits},
        {"augment", text, "is for images"},
        {"no-augment", text, "is for images"},
        {"keep", unsaved, "is about checkpoints, and there is no --save DIR"},
        {"eval-every", !job->eval, "does nothing with --no-eval"},
        {"eval-batches", !job->eval, "does nothing with --no-eval"},
        {"judge", !job->eval, "does nothing with --no-eval"},
        {"no-overlap", job->alone, "does nothing with --alone, which exchanges nothing"},
        {"metrics-layers", job->alone, "does nothing with --alone, which exchanges nothing"},
    };
    for (size_t i = 0; i < COUNT(options); i++)
        if (options[i].unused_option && given(&r->args, options[i].option))
            return fgio_usage_error("%s: --%s %s", r->line->command->name, options[i].option, options[i].why);
    return FGIO_EXIT_OK;
}

static int check_stages(const fgp_request *r) {
    const char *name = r->line->command->name;
    fgt_stage_config config = {0};
    if (!r->job.stages && (r->job.stage_config || r->job.stage_feedback))
        return fgio_usage_error("%s: --%s needs --stages COUNT", name,
                                r->job.stage_config ? "stage-config" : "stage-feedback");
    if (r->job.stages && r->job.workers > 1)
        return fgio_usage_error("%s: --stages and --workers: the stages are the workers, of one model; give one of "
                                "them",
                                name);
    if (r->job.stage_feedback && strcmp(r->job.stage_feedback, "sample") != 0)
        return fgio_usage_error("%s: --stage-feedback '%s': expected sample", name, r->job.stage_feedback);
    int code = r->job.stage_config ? fgt_stage_config_parse(r->job.stage_config, &config) : FGIO_EXIT_OK;
    if (code == FGIO_EXIT_OK && r->job.stage_feedback && r->job.stage_config && !config.activations)
        code = fgio_usage_error("%s: --stage-feedback has no effect on activations that are not compressed", name);
    fgt_stage_config_destroy(&config);
    return code;
}

static int check_values(fgp_request *r) {
    frug_config *config = NULL;
    if (r->job.model == NULL) {
        fgio_usage_error("%s: --model missing", r->line->command->name);
        fgio_hint("frugrad help %s lists the models", r->line->command->name);
        return FGIO_EXIT_USAGE;
    }
    int code = fgt_model_parse(r->job.model, &r->model);
    if (code != FGIO_EXIT_OK)
        return code;
    if (frug_config_create(r->job.method, &config) != FRUG_OK)
        return fgio_config_error();
    frug_config_destroy(config);
    fgt_rate rate;
    fgt_sparse_options sparse;
    fgt_quantize_options quantize;
    if (r->job.schedule != NULL)
        code = fgt_rate_parse(r->job.schedule, &rate);
    if (code == FGIO_EXIT_OK && r->job.sparse != NULL)
        code = fgt_sparse_parse(r->job.sparse, &sparse);
    if (code == FGIO_EXIT_OK && r->job.quantize != NULL)
        code = fgt_quantize_parse(r->job.quantize, &quantize);
    if (code == FGIO_EXIT_OK)
        code = check_stages(r);
    if (code == FGIO_EXIT_OK)
        code = check_text_options(r);
    return code == FGIO_EXIT_OK ? check_idle_options(r) : code;
}

int fgp_request_open(const fgp_args *args, fgp_request *r) {
    *r =
        (fgp_request){.line = args,
                      .args = *args,
                      .job = {.data = "builtin", .method = "frugrad", .epochs = 1, .seed = 1, .workers = 1, .keep = 1}};
    int code = FGIO_EXIT_OK;
    if (given(args, "config"))
        code = fgp_options_file_add(fgp_arg(args, "config"), &r->args, &r->text);
    if (code == FGIO_EXIT_OK)
        code = read_fields(&r->args, &r->job);
    if (code == FGIO_EXIT_OK && has(args, "targets"))
        code = fgp_request_tune(r);
    if (code == FGIO_EXIT_OK)
        code = resolve_length(r);
    if (code == FGIO_EXIT_OK)
        code = resolve_paths(r);
    if (code == FGIO_EXIT_OK)
        code = check_values(r);
    if (r->job.threads == 0)
        r->job.threads = cores_per_worker(r->job.stages ? r->job.stages : r->job.workers);
    return code;
}

void fgp_request_close(fgp_request *r) {
    free(r->text);
    r->text = NULL;
}

/* ---- text ------------------------------------------------------------------------------------ */

const char *fgp_request_unit(const fgp_request *r) {
    return r->model.task == FGT_TASK_IMAGES ? "img" : r->model.task == FGT_TASK_SENTENCES ? "sentences" : "seq";
}

const char *fgp_request_method(const fgp_request *r) {
    return r->job.tune != NULL ? r->tune.kind : r->job.method;
}

const char *fgp_request_resume_command(const fgp_request *r, char *dst, size_t cap) {
    const fgp_opt *options = r->line->command->options;
    char name[72];
    fgp_shell_text w = {dst, cap, 0};
    if (fgt_group_is_joined())
        w.used = (size_t)snprintf(dst, cap, "mpirun -n %d", fgt_group_size(1));
    fgp_append_quoted(&w, program_invocation_name); /* as typed: it may not be on PATH */
    fgp_append_quoted(&w, r->line->command->name);
    for (int i = 0; options[i].name != NULL; i++) {
        if (!r->line->given[i] || strcmp(options[i].name, "resume") == 0 ||
            (!given(&r->args, "save") && strcmp(options[i].name, "weights") == 0))
            continue; /* with --save the same command also starts a run, so --weights stays */
        snprintf(name, sizeof name, "--%s", options[i].name);
        fgp_append_quoted(&w, name);
        if (options[i].arg != NULL)
            fgp_append_quoted(&w, r->line->value[i]);
    }
    fgp_append_quoted(&w, "--resume");
    if (!given(&r->args, "save") && r->job.save != NULL)
        fgp_append_quoted(&w, r->job.save);
    return dst + strspn(dst, " ");
}

/* ---- help: models, methods, optimizers ------------------------------------------------------------- */

enum { NAME_COLUMN = 16, WIDTH = 80 };

static void print_row(const char *name, const char *help, const char *options) {
    printf("  %-*s", NAME_COLUMN - 3, name);
    printf(" ");
    fgio_printf_wrapped(NAME_COLUMN, WIDTH, "%s%s%s", help, options != NULL && options[0] != '\0' ? "; " : "",
                        options != NULL ? options : "");
}

void fgp_help_models(void) {
    const fgt_model_kind *kind;
    printf("\nModels (NAME or NAME:option=value,...):\n");
    for (size_t i = 0; (kind = fgt_model_kind_at(i)) != NULL; i++)
        print_row(kind->name, kind->help, kind->options);
}

void fgp_help_tuning(void) {
    const frug_optimizer_kind *kind;
    fgp_help_models();
    printf("\nMethods, and the library's options that they have:\n");
    print_row(fgt_finetune_kind_at(0), "AdamW on the targets, the baseline", NULL);
    for (size_t i = 0; (kind = frug_optimizer_at(i)) != NULL; i++)
        if (fgt_finetune_supports(kind))
            print_row(kind->name, kind->help, kind->options);
}

void fgp_help_training(void) {
    const frug_optimizer_kind *kind;
    const frug_preset *preset;
    fgp_help_models();
    printf("\nOptimizers (NAME or NAME:option=value,...):\n");
    for (size_t i = 0; (kind = frug_optimizer_at(i)) != NULL; i++)
        print_row(kind->name, kind->help, kind->options);
    const fgt_sparse_help *sparse;
    printf("\nSparse weights (KIND or KIND:option=value,...):\n");
    for (size_t i = 0; (sparse = fgt_sparse_help_at(i)) != NULL; i++)
        print_row(sparse->name, sparse->help, sparse->options);
    printf("\nMethods (PRESET or PRESET,option=value,...; `frugrad inspect --config PRESET` has the details):\n");
    for (size_t i = 0; (preset = frug_preset_at(i)) != NULL; i++)
        print_row(preset->name, preset->help, NULL);
}
