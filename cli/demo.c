/*
 * demo.c - `frugrad demo`: compress and restore a generated gradient over several steps, and show what was sent and
 * what was checked. The gradient is gaussian with a scale that differs from row to row, as between the
 * rows of real layers. Every step is checked as bench does it; demo_trials.c tries the other promises.
 */
#include "args.h"
#include "commands.h"
#include "demo.h"
#include "say.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIAL_STEPS 3u

static const frugi_opt options[] = {
    {"n", 'n', "COUNT", "25000000", "elements of the gradient"},
    {"steps", 's', "COUNT", "8", "training steps to play"},
    {"config", 'c', "STRING", "frugrad", "config string of the compressor"},
    {NULL, 0, NULL, NULL, NULL},
};

const float *frugi_demo_gradient(frugi_demo *demo, uint64_t step) {
    frugi_noise(FRUGI_DIST_LAYERS, step, demo->n, demo->grad);
    return demo->grad;
}

void frugi_demo_tell(frugi_demo *demo, const char *why, const char *promise) {
    const char *on = !demo->colour ? "" : why[0] ? "\033[31m" : "\033[32m", *off = demo->colour ? "\033[0m" : "";
    if (why[0])
        printf("  %s✘ %s: %s%s\n", on, promise, why, off);
    else
        printf("  %s✔%s %s\n", on, off, promise);
    fflush(stdout);
    demo->broken |= why[0] != '\0';
}

/* ---- the steps --------------------------------------------------------------------- */

static void print_head(const frugi_demo *demo, const frugi_worker *worker) {
    const char *isa = frug_isa(), *bold = demo->colour ? "\033[1m" : "", *off = demo->colour ? "\033[0m" : "";
    printf("\n%sFruGrad %s%s: a gradient of %" PRIu64 " elements, %" PRIu64 " steps, variant %s\n  %s\n\n", bold,
           frug_version(), off, demo->n, demo->steps, isa ? isa : "?", frug_config_text(worker->config));
    printf("  %s%4s  %10s  %10s  %6s  %8s  %8s  %11s  %10s  %10s%s\n", bold, "step", "sent", "dense", "less", "entries",
           "energy", "compress", "", "restore", off);
}

static void print_step(const frugi_demo *demo, const frugi_worker *worker, uint64_t step, double compress,
                       double restore, const frugi_verdict *verdict) {
    char sent[32], dense[32], energy[16];
    uint64_t dense_bytes = demo->n * sizeof(float);
    snprintf(energy, sizeof energy, verdict->energy_kept < 0 ? "-" : "%.1f %%", 100.0 * verdict->energy_kept);
    printf("  %4" PRIu64 "  %10s  %10s  %5.1fx  %6.2f %%  %8s  %8.1f ms  %5.1f GB/s  %7.1f ms\n", step,
           frugi_bytes_text(worker->len, sent, sizeof sent), frugi_bytes_text(dense_bytes, dense, sizeof dense),
           (double)dense_bytes / (double)worker->len, 100.0 * (double)verdict->entries / (double)demo->n, energy,
           1e3 * compress, (double)dense_bytes / compress / 1e9, 1e3 * restore);
    fflush(stdout);
}

static int play_step(frugi_demo *demo, frugi_worker *worker, frugi_check *check, uint64_t step, int shown,
                     frugi_verdict *verdict) {
    const float *grad = frugi_demo_gradient(demo, step);
    if (frugi_check_before(check, worker->compressor) != FRUG_OK)
        return frugi_library_error("cannot read the residual");
    double start = frugi_now();
    int status = frugi_worker_step(worker, step, grad);
    double compressed = frugi_now();
    if (status != FRUGI_EXIT_OK)
        return status;
    const void *frame = worker->frame;
    if (frug_decompress_add(worker->compressor, &frame, &worker->len, 1, 1.0f, 0, demo->n, demo->restored) != FRUG_OK)
        return frugi_library_error("cannot restore");
    double restored = frugi_now();
    if (frugi_check_after(check, worker->compressor, grad, worker->frame, worker->len, verdict) != FRUG_OK)
        return frugi_library_error("cannot read back what was compressed");
    if (shown)
        print_step(demo, worker, step, compressed - start, restored - compressed, verdict);
    return FRUGI_EXIT_OK;
}

static void print_totals(const frugi_worker *worker) {
    frug_stats stats = {.struct_size = sizeof stats};
    char sent[32], dense[32];
    if (frug_compressor_stats(worker->compressor, &stats) != FRUG_OK || stats.bytes_sent == 0)
        return;
    printf("\n  in all %s sent instead of %s: %.1f times less, %.2f %% of the entries\n\n",
           frugi_bytes_text(stats.bytes_sent, sent, sizeof sent),
           frugi_bytes_text(stats.bytes_dense, dense, sizeof dense),
           (double)stats.bytes_dense / (double)stats.bytes_sent, 100 * stats.density_mean);
}

/* ---- what the steps promise ------------------------------------------------------------ */

static const char *count_promise(const frugi_rule *rule) {
    if (!rule->blocks)
        return rule->uncounted ? "every frame is sound and restores"
                               : "every frame restores exactly the entries it counts";
    if (!rule->known)
        return "every block sent exactly K entries";
    return rule->exact ? "every block sent exactly K entries, the largest ones"
                       : "every block sent exactly K entries, with 99 % or more of the energy of the largest K";
}

static const char *mass_promise(const frugi_rule *rule) {
    if (rule->store == FRUGI_STORE_F32 && rule->rounded)
        return "nothing is lost with an f32 residual: sent + left behind == accumulated, up to rounding the sum";
    switch (rule->store) {
    case FRUGI_STORE_INT8:
        return "nothing is lost: sent + left behind is within 1/126 of the largest rest in its block";
    case FRUGI_STORE_INT4: return "nothing is lost: sent + left behind is within 1/7 of the largest rest in its block";
    case FRUGI_STORE_BF16: return "nothing is lost: sent + left behind is within 1/128 of what was left";
    default: return "nothing is lost with an f32 residual: sent + left behind == accumulated, bit for bit";
    }
}

/* Plays some steps from the start. One verdict covers both promises: what fails is in its words. */
static int play(frugi_demo *demo, const char *config, uint64_t steps, int shown) {
    frugi_worker worker;
    frugi_check check = {0};
    frugi_verdict verdict = {0};
    int status = frugi_worker_open(&worker, config, demo->n, 0);
    if (status == FRUGI_EXIT_OK && frugi_check_open(&check, worker.config, demo->n) != 0)
        status = frugi_error("no memory to check %" PRIu64 " elements", demo->n);
    if (status == FRUGI_EXIT_OK && shown)
        print_head(demo, &worker);
    for (uint64_t step = 0; step < steps && status == FRUGI_EXIT_OK && !verdict.why[0]; step++)
        status = play_step(demo, &worker, &check, step, shown, &verdict);
    if (status == FRUGI_EXIT_OK && shown) {
        print_totals(&worker);
        frugi_demo_tell(demo, verdict.why, count_promise(&check.rule));
    }
    if (status == FRUGI_EXIT_OK && check.rule.keep != FRUGI_KEEP_NONE && check.rule.known)
        frugi_demo_tell(demo, verdict.why, mass_promise(&check.rule));
    frugi_check_close(&check);
    frugi_worker_close(&worker);
    return status;
}

/* The same config with an f32 residual, for which the promise is the strict one. */
static int play_f32(frugi_demo *demo) {
    char config[2304]; /* the longest config string, and an option more */
    frug_config *parsed = NULL;
    frugi_rule rule;
    if (frug_config_create(demo->config, &parsed) != FRUG_OK)
        return frugi_library_error("--config");
    snprintf(config, sizeof config, "%s,residual=f32", frug_config_text(parsed));
    int known = frugi_rule_of(parsed, &rule);
    frug_config_destroy(parsed);
    if (known != 0 || !rule.known || rule.store == FRUGI_STORE_F32 || rule.keep == FRUGI_KEEP_NONE)
        return FRUGI_EXIT_OK;
    return play(demo, config, TRIAL_STEPS, 0);
}

/* ---- the command --------------------------------------------------------------------------- */

static int run_parts(frugi_demo *demo) {
    int status = play(demo, demo->config, demo->steps, 1);
    if (status == FRUGI_EXIT_OK)
        status = play_f32(demo);
    if (status == FRUGI_EXIT_OK)
        status = frugi_demo_damage(demo);
    if (status == FRUGI_EXIT_OK)
        status = frugi_demo_restart(demo);
    if (status == FRUGI_EXIT_OK)
        status = frugi_demo_same_bytes(demo);
    if (status == FRUGI_EXIT_OK && demo->broken)
        status = frugi_error("a promise does not hold");
    printf("\n");
    return fflush(stdout) == 0 && !ferror(stdout) ? status : frugi_error("cannot write the table");
}

static int demo_run(const frugi_args *args) {
    frugi_demo demo = {.config = frugi_arg(args, "config")};
    int status = frugi_arg_u64(args, "n", 65536, UINT64_C(1) << 36, &demo.n);
    if (status == FRUGI_EXIT_OK)
        status = frugi_arg_u64(args, "steps", 1, 10000, &demo.steps);
    if (status == FRUGI_EXIT_OK)
        status = frugi_memory_suffices(demo.n);
    if (status != FRUGI_EXIT_OK)
        return status;
    demo.colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    demo.grad = malloc((size_t)demo.n * sizeof(float));
    demo.restored = calloc((size_t)demo.n, sizeof(float));
    status = demo.grad && demo.restored ? run_parts(&demo) : frugi_error("no memory for %" PRIu64 " elements", demo.n);
    free(demo.grad);
    free(demo.restored);
    return status;
}

const frugi_command frugi_command_demo = {
    .name = "demo",
    .summary = "compress and restore a generated gradient, and show what holds",
    .operands = "",
    .about = "Plays some training steps with a generated gradient and prints, for each, the bytes sent, the share of\n"
             "the entries and of the energy in them, and the speed. Then it tries what the library promises:\n"
             "exactly K entries a block, nothing lost, damaged frames refused, and the same bytes after a restart,\n"
             "for any number of threads and on every variant of this CPU. A broken promise makes the exit status 1.",
    .options = options,
    .run = demo_run,
};
