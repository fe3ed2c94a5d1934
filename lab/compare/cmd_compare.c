/*
 * cmd_compare.c - `frugrad compare`: many runs of `frugrad train` or `frugrad finetune`, for every method and task,
 * each method with its own search of the learning rate, and a table of results. It can be stopped at any time and
 * resumed.
 */
#include "lab/compare/compare.h"

#include "program/args/commands.h"
#include "io/files.h"
#include "lab/report/run_tables.h"
#include "io/status_line.h"
#include "program/system/interrupt.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const fgp_opt options[] = {
    {"suite", 0, "NAME", "paper",
     "what to compare: paper (the published methods), ablation (FruGrad without its parts), sparsity (50 to 99.9 % "
     "not sent), structured (rows, channels, heads, tiles), scaling (1 to 8 workers), momentum (where it is kept), "
     "bytes (the ablation's rows with as many bytes instead of as many steps, after suite ablation with the same "
     "--out), evidence (models of real size, with methods that rival; size full only), sgc (fine-tuning with few "
     "optimizer states)"},
    {"size", 0, "NAME", "smoke",
     "smoke: seconds, no data needed; small: about an hour on two cores for the paper's methods; full: hours on a GPU, "
     "through PyTorch; paper: longer, with ResNet-50, GPT-2 small and BERT-base"},
    {"data", 'd', "DIR", NULL,
     "directory with fashion-mnist/, cifar10/, wikitext-2/, linux-text/, glue/, minilm/, boolq/ and tokenizers/, as "
     "far "
     "as there are such"},
    {"weights", 0, "DIR", NULL, "suite sgc: directory with gpt2-bytes.safetensors and bert.safetensors"},
    {"out", 'o', "DIR", NULL, "directory for runs.jsonl, a line for every run; recorded runs are not repeated"},
    {"tasks", 0, "LIST", NULL, "only these, as lenet-fashion,bert-sst2 [all]"},
    {"methods", 0, "LIST", NULL, "only these, as dense,frugrad,topk [all]"},
    {"seeds", 0, "COUNT", NULL, "test runs of each method and task [3; smoke 1]"},
    {"rates", 0, "COUNT", NULL, "learning rates of each search [3; smoke 1: the task's own, without a search]"},
    {"workers", 'w', "COUNT", NULL, "workers of a run, as threads [4; suite sgc 1]"},
    {"jobs", 0, "COUNT", NULL,
     "runs at a time; several share a GPU best under CUDA's MPS [the cores; full and paper 1]"},
    {"seconds", 0, "NUMBER", NULL,
     "time limit: start a run only if the longest recorded run of its task would still end in time [no limit]"},
    {"plan", 0, NULL, NULL, "only print the commands that would be run"},
    {NULL, 0, NULL, NULL, NULL},
};

enum { MAX_COUNT = 100, MAX_JOBS = 256 };

/* ---- the command line --------------------------------------------------------------------------------- */

static bool listed(const char *list, const char *id) {
    size_t length = strlen(id);
    for (const char *p = list; p != NULL; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, id, length) == 0 && (p[length] == ',' || p[length] == '\0'))
            return true;
    }
    return false;
}

/* Reject entries of a list that match no id. */
static int check_list(const char *option, const char *list, const char *const *ids, const fgl_suite *s) {
    char word[64];
    for (const char *p = list; p != NULL; p = strchr(p, ',')) {
        p += *p == ',';
        size_t length = strcspn(p, ",");
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), p);
        int known = 0;
        for (size_t i = 0; ids[i] != NULL; i++)
            known |= strcmp(ids[i], word) == 0;
        if (known)
            continue;
        fgio_usage_error("compare: --%s: suite %s of size %s has no '%s'", option, s->name, s->size, word);
        fgio_hint_choices(word, ids);
        return FGIO_EXIT_USAGE;
    }
    return FGIO_EXIT_OK;
}

static int filter_tasks(fgl_suite *s, const char *list) {
    const char *ids[FGL_MAX_TASKS + 1] = {NULL};
    size_t kept = 0;
    for (size_t i = 0; i < s->tasks; i++)
        ids[i] = s->task[i].id;
    int code = list == NULL ? FGIO_EXIT_OK : check_list("tasks", list, ids, s);
    for (size_t i = 0; i < s->tasks && code == FGIO_EXIT_OK; i++)
        if (list == NULL || listed(list, s->task[i].id))
            s->task[kept++] = s->task[i];
    s->tasks = kept;
    return code;
}

static int filter_methods(fgl_suite *s, const char *list) {
    const char *ids[FGL_MAX_METHODS + 1] = {NULL};
    size_t kept = 0;
    for (size_t i = 0; i < s->methods; i++)
        ids[i] = s->method[i].id;
    int code = list == NULL ? FGIO_EXIT_OK : check_list("methods", list, ids, s);
    for (size_t i = 0; i < s->methods && code == FGIO_EXIT_OK; i++)
        if (list == NULL || listed(list, s->method[i].id))
            s->method[kept++] = s->method[i];
    s->methods = kept;
    return code;
}

static int read_count(const fgp_args *args, const char *name, uint64_t most, uint32_t fallback, uint32_t *to) {
    uint64_t count = fallback;
    int code = FGIO_EXIT_OK;
    if (fgp_arg(args, name) != NULL)
        code = fgp_arg_u64(args, name, 1, most, &count);
    *to = (uint32_t)count;
    return code;
}

static int read_numbers(const fgp_args *args, bool smoke, fgl_compare *c) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    cores = cores < 1 ? 1 : cores > MAX_JOBS ? MAX_JOBS : cores;
    c->seconds = INFINITY;
    int code = read_count(args, "seeds", MAX_COUNT, smoke ? 1 : 3, &c->seeds);
    if (code == FGIO_EXIT_OK)
        code = read_count(args, "rates", MAX_COUNT, smoke ? 1 : 3, &c->rates);
    if (code == FGIO_EXIT_OK)
        code = read_count(args, "workers", MAX_COUNT, c->suite.tunes ? 1 : 4, &c->workers);
    if (code == FGIO_EXIT_OK)
        code = read_count(args, "jobs", MAX_JOBS, c->suite.task[0].trainer != NULL ? 1 : (uint32_t)cores, &c->jobs);
    if (code == FGIO_EXIT_OK && fgp_arg(args, "seconds") != NULL)
        code = fgp_arg_double(args, "seconds", 0, 1e9, &c->seconds);
    return code;
}

static int parse_args(const fgp_args *args, fgl_compare *c) {
    int suite = 0, size = 0;
    int code = fgp_arg_word(args, "suite", fgl_suite_names, &suite);
    if (code == FGIO_EXIT_OK)
        code = fgp_arg_word(args, "size", fgl_size_names, &size);
    if (code == FGIO_EXIT_OK && fgl_tasks_of(fgl_suite_names[suite], size) == NULL)
        code = fgio_usage_error("compare: suite %s has no size %s; it has %s", fgl_suite_names[suite],
                                fgl_size_names[size],
                                fgl_tasks_of(fgl_suite_names[suite], 0) != NULL ? "smoke, small and full" : "full");
    if (code != FGIO_EXIT_OK)
        return code;
    fgl_suite_make(suite, size, &c->suite);
    c->data = fgp_arg(args, "data");
    c->out = fgp_arg(args, "out");
    c->weights = fgp_arg(args, "weights");
    code = read_numbers(args, size == 0, c);
    if (code == FGIO_EXIT_OK)
        code = filter_tasks(&c->suite, fgp_arg(args, "tasks"));
    if (code == FGIO_EXIT_OK)
        code = filter_methods(&c->suite, fgp_arg(args, "methods"));
    if (code == FGIO_EXIT_OK && c->out == NULL && !fgp_arg_given(args, "plan"))
        code = fgio_usage_error("compare: --out DIR missing");
    if (code == FGIO_EXIT_OK && c->weights != NULL && !c->suite.tunes)
        code = fgio_usage_error("compare: --weights: only suite sgc uses weights");
    if (code == FGIO_EXIT_OK && c->out != NULL && strlen(c->out) > (c->suite.tunes ? 1500 : 3800))
        code = fgio_usage_error("compare: --out: too long");
    if (code == FGIO_EXIT_OK)
        code = fgl_compare_find_data(c, fgp_arg_given(args, "tasks"));
    return code;
}

/* ---- before ------------------------------------------------------------------------------------------- */

static void print_command(const fgl_compare *c, const fgl_trial *run, const char *end) {
    char text[8192];
    fgl_command_line words;
    if (fgl_search_find(c, run) != NULL)
        return;
    fgl_command_make(c, run, false, &words);
    printf("%s%s\n", fgl_command_text(&words, text, sizeof text), end);
}

static void print_cell(const fgl_compare *c, size_t task, size_t method) {
    double rate = 0;
    int rates = (int)fgl_search_rates(c, task, method);
    bool known = fgl_search_best(c, task, method, &rate);
    printf("# %s, %s: %s\n", c->suite.task[task].id, c->suite.method[method].id, c->suite.method[method].label);
    for (int i = 0; rates > 1 && i < rates; i++) {
        fgl_trial run = {task, method, true, FGL_TUNE_SEED, fgl_search_rate(c, task, method, i)};
        print_command(c, &run, "");
    }
    for (uint32_t seed = 1; seed <= c->seeds; seed++) {
        fgl_trial run = {task, method, false, seed, known ? rate : fgl_search_rate(c, task, method, rates / 2)};
        print_command(c, &run, known ? "" : "   # at the best rate");
    }
}

/* "; about 1:30:00 at 2 a time", or nothing as long as no run has been timed. */
static const char *format_duration(const fgl_compare *c, double seconds, char *dst, size_t cap) {
    char clock[32];
    dst[0] = '\0';
    if (isfinite(seconds))
        snprintf(dst, cap, "; about %s at %u a time", fgio_duration_text(seconds / c->jobs, clock, sizeof clock),
                 c->jobs);
    return dst;
}

static void print_plan(const fgl_compare *c) {
    double seconds = 0;
    char duration[64];
    size_t left = fgl_search_left(c, &seconds);
    for (size_t task = 0; task < c->suite.tasks; task++) {
        if (c->suite.task[task].before != NULL) {
            char text[8192];
            fgl_command_line words;
            fgl_command_initial(c, task, &words);
            printf("# before: %s\n", fgl_command_text(&words, text, sizeof text));
        }
        for (size_t method = 0; method < c->suite.methods; method++)
            if (fgl_suite_has(c, task, method))
                print_cell(c, task, method);
    }
    printf("# %zu run%s, and more where a best rate is at the edge of its search; %zu are recorded already%s\n", left,
           left == 1 ? "" : "s", c->outcomes, format_duration(c, seconds, duration, sizeof duration));
}

/* ---- after -------------------------------------------------------------------------------------------- */

/* Other records in the file have other tasks, methods or commands: `frugrad report` shows them. */
static bool belongs_to_comparison(const void *user, const fgl_run *run) {
    return fgl_records_has(user, run->record);
}

static int print_remaining(const fgl_compare *c, int code) {
    double seconds = 0;
    char duration[64];
    size_t left = fgl_search_left(c, &seconds);
    if (fgl_report_tables(c->out, belongs_to_comparison, c, stdout) != FGIO_EXIT_OK && code == FGIO_EXIT_OK)
        code = FGIO_EXIT_FAIL;
    if (code == FGP_EXIT_STOPPED)
        fgio_error("interrupted; %zu run%s left. Run the same command to resume", left, left == 1 ? " is" : "s are");
    else if (left > 0)
        fgio_error("%s; %zu run%s left%s. Run the same command to resume",
                   code == FGIO_EXIT_OK ? "no time for another run" : "incomplete", left, left == 1 ? " is" : "s are",
                   format_duration(c, seconds, duration, sizeof duration));
    return code;
}

static int print_plan_only(fgl_compare *c) {
    int code = c->out == NULL ? FGIO_EXIT_OK : fgl_records_open(c, false);
    if (code == FGIO_EXIT_OK)
        code = fgl_bytes_check(c);
    if (code == FGIO_EXIT_OK)
        print_plan(c);
    return code;
}

static int compare(fgl_compare *c) {
    char work[4096];
    snprintf(work, sizeof work, "%s/work", c->out);
    int code = fgio_directory_make(work);
    if (code == FGIO_EXIT_OK)
        code = fgl_records_open(c, true);
    if (code == FGIO_EXIT_OK)
        code = fgl_bytes_check(c);
    if (code == FGIO_EXIT_OK)
        code = fgl_compare_trainers(c);
    if (code == FGIO_EXIT_OK)
        code = fgl_compare_unpack(c);
    if (code == FGIO_EXIT_OK)
        code = fgl_compare_train_initial(c);
    return code == FGIO_EXIT_OK ? print_remaining(c, fgl_pool_run(c)) : code;
}

static int compare_run(const fgp_args *args) {
    fgl_compare *c = calloc(1, sizeof *c);
    if (c == NULL)
        return fgio_error("out of memory");
    int code = parse_args(args, c);
    if (code == FGIO_EXIT_OK)
        code = (fgp_arg_given(args, "plan") ? print_plan_only : compare)(c);
    fgl_records_close(c);
    free(c);
    return code;
}

const fgp_command fgp_command_compare = {
    .name = "compare",
    .summary = "train the same models with many methods, and compare",
    .operands = "",
    .about =
        "Every run is a `frugrad train` of its own; of suite sgc a `frugrad finetune`, of sizes full and paper a\n"
        "`python3 -m frugrad.torch.train`, which trains on a GPU through PyTorch ($FRUGRAD_PYTHON is another Python).\n"
        "Each method and task gets the same search of the learning rate, evaluated on held-out samples, then\n"
        "tests at the best rate. Ctrl-C, a power cut or --seconds end it at any time; the same command resumes it. A "
        "run\n"
        "that diverges or fails is recorded, and the others continue.\n"
        "\n"
        "  frugrad compare --out runs/smoke\n"
        "  frugrad compare --suite paper --size small --data data/ --out runs/paper\n"
        "  frugrad compare --suite sparsity --size small --data data/ --out runs/sparsity --tasks lenet-fashion\n"
        "  frugrad compare --suite sgc --size small --data data/ --weights weights/ --out runs/sgc\n"
        "  frugrad compare --suite paper --size full --data data/ --out runs/full",
    .options = options,
    .run = compare_run,
};
