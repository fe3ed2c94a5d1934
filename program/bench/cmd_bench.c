/*
 * cmd_bench.c - `frugrad bench`: the table of cases and their order.
 *
 * A case is a name, a config string and what to time; the timing and the checks are in bench_compress.c and
 * bench_decode.c. Every ratio is between things timed in turn in the same rounds, because absolute times of different
 * runs are not comparable.
 */
#include "program/args/args.h"
#include "program/args/quantity.h"
#include "program/bench/bench.h"
#include "program/bench/bench_recover.h"
#include "program/bench/bench_reduce.h"
#include "program/bench/bench_spmv.h"
#include "program/args/commands.h"
#include "io/progress.h"
#include "io/error.h"
#include "trainer/run/worker_group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CASES_MAX 128

typedef struct list {
    fgp_case item[CASES_MAX];
    size_t count;
    double density;
    const char *filter;
    const char *config; /* of --config, or NULL */
} list;

static const fgp_opt options[] = {
    {"n", 'n', "COUNT", NULL, "elements; 25600000, or 2560000 with --quick"},
    {"k", 'k', "COUNT", "16", "entries to send of every 256"},
    {"density", 0, "SHARE", NULL, "the same as a share of all entries, instead of --k"},
    {"threads", 't', "COUNT", NULL, "threads; by default one, and the main cases with two as well"},
    {"rounds", 'r', "COUNT", NULL, "timed rounds of each case; 15, of reduce 9, or 3 with --quick"},
    {"workers", 'w', "COUNT", "4", "reduce: workers, as threads; under mpirun the number of its processes"},
    {"dist", 0, "WORD", "gaussian", "generated gradients: gaussian, laplace, heavy, layers, sparse or ties"},
    {"grad", 'g', "FILE", NULL, "recorded gradients instead: a safetensors file with tensors step_0000, ..."},
    {"gradients", 0, "FILE", NULL, "recover: recorded gradients, tensors named <step>/<name>, to study"},
    {"s", 's', "COUNT", NULL, "recover --gradients: entries taken of a tensor's gradient; 31 of every 2048"},
    {"chunk", 0, "COUNT", "2048", "recover --gradients: elements of a chunk"},
    {"config", 'c', "STRING", NULL, "measure this config string instead of the table of cases"},
    {"case", 0, "TEXT", NULL, "only cases with this text in their names"},
    {"quick", 'q', NULL, NULL, "a short run, to check that everything works"},
    {"json", 'j', NULL, NULL, "one JSON object per line for each case"},
    {NULL, 0, NULL, NULL, NULL},
};

/* ---- the cases -------------------------------------------------------------------- */

static void add_case(list *l, fgp_case_kind kind, const char *name, const char *config, int threads, int frames) {
    if ((l->filter && !strstr(name, l->filter)) || l->count == CASES_MAX)
        return;
    fgp_case *c = &l->item[l->count++];
    *c = (fgp_case){.kind = kind, .threads = threads, .frames = frames};
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->config, sizeof c->config, "%s", config);
}

/* Adds compress/SELECT/RESIDUAL with more options over it, named by suffix. */
static void add_compress(list *l, const char *select, const char *residual, const char *suffix, double density,
                         const char *more, int threads) {
    char name[64], config[256];
    snprintf(name, sizeof name, "compress/%s/%s%s", select, residual, suffix);
    snprintf(config, sizeof config, "select=%s,residual=%s,density=%.10g%s", select, residual, density, more);
    add_case(l, FGP_CASE_COMPRESS, name, config, threads, 0);
}

static void add_main_cases(list *l, int threads) {
    add_compress(l, "exact", "f32", "", l->density, "", threads);
    add_compress(l, "hist", "f32", "", l->density, "", threads);
    add_compress(l, "exact", "f32", "/value=f32", l->density, ",value=f32", threads);
    add_compress(l, "hist", "f32", "/value=f32", l->density, ",value=f32", threads);
    add_compress(l, "hist", "int8", "", l->density, "", threads);
}

static void add_residuals(list *l, int threads) {
    static const char *const formats[] = {"bf16", "int8", "int4"};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        add_compress(l, "exact", formats[i], "", l->density, "", threads);
        if (strcmp(formats[i], "int8") != 0) /* a main case already */
            add_compress(l, "hist", formats[i], "", l->density, "", threads);
    }
}

static void add_sweeps(list *l, int threads) {
    static const int kept[] = {8, 16, 32, 64, 128};
    static const int blocks[] = {64, 128, 1024, 4096};
    static const struct {
        int block;
        double density;
    } sparse[] = {{1024, 0.01}, {4096, 0.01}, {4096, 0.001}};
    static const char *const others[] = {"value=f16",      "value=int8",   "value=int4",
                                         "feedback=plain", "feedback=dgc", "feedback=none"};
    char suffix[32], more[32];
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        double density = kept[i] / 256.0;
        snprintf(suffix, sizeof suffix, "/K=%d", kept[i]);
        if (density < l->density || density > l->density) {
            add_compress(l, "exact", "f32", suffix, density, "", threads);
            add_compress(l, "hist", "f32", suffix, density, "", threads);
        }
    }
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        snprintf(suffix, sizeof suffix, "/B=%d", blocks[i]);
        snprintf(more, sizeof more, ",block=%d", blocks[i]);
        add_compress(l, "exact", "f32", suffix, l->density, more, threads);
        add_compress(l, "hist", "f32", suffix, l->density, more, threads);
    }
    for (size_t i = 0; i < sizeof sparse / sizeof sparse[0]; i++) {
        snprintf(suffix, sizeof suffix, "/B=%d/density=%g", sparse[i].block, sparse[i].density);
        snprintf(more, sizeof more, ",block=%d", sparse[i].block);
        add_compress(l, "exact", "f32", suffix, sparse[i].density, more, threads);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(suffix, sizeof suffix, "/%s", others[i]);
        snprintf(more, sizeof more, ",%s", others[i]);
        add_compress(l, "hist", "f32", suffix, l->density, more, threads);
    }
}

static void add_decode_cases(list *l, const char *config, int threads) {
    add_case(l, FGP_CASE_DECODE, "decode/4", config, threads, 4);
    add_case(l, FGP_CASE_DECODE, "decode/8", config, threads, 8);
    add_case(l, FGP_CASE_APPLY, "apply/4", config, threads, 4);
    add_case(l, FGP_CASE_APPLY, "apply/4/decay", config, threads, 4);
    if (l->count && strcmp(l->item[l->count - 1].name, "apply/4/decay") == 0)
        l->item[l->count - 1].decay = 1e-4f;
    add_case(l, FGP_CASE_CHECK, "frame-check", config, threads, 1);
    add_case(l, FGP_CASE_CHECKSUM, "checksum", config, threads, 1);
}

static void add_on_matrix(list *l, const char *name, const char *config, int threads) {
    size_t before = l->count;
    add_case(l, FGP_CASE_COMPRESS, name, config, threads, 0);
    if (l->count > before)
        l->item[before].columns = 1024;
}

/* Some methods of each kind besides block top-k, on a matrix of 1024 columns. */
static void add_method_cases(list *l, int threads) {
    static const char *const presets[] = {"topk", "threshold", "randomk", "hybrid", "2:4",
                                          "rows", "learned",   "dgc",     "qsgd",   "onebit"};
    static const struct {
        const char *name, *config; /* appended to the density of the run */
    } others[] = {
        {"random", "rule=random,segment=tensor,residual=f32"},
        {"tensor", "segment=tensor,residual=f32"},
        {"tensor/index=rice", "segment=tensor,residual=f32,index=rice"},
    };
    char name[64], config[256];
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        snprintf(name, sizeof name, "compress/%s", presets[i]);
        add_on_matrix(l, name, presets[i], threads);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(name, sizeof name, "compress/%s", others[i].name);
        snprintf(config, sizeof config, "density=%.10g,%s", l->density, others[i].config);
        add_on_matrix(l, name, config, threads);
    }
    snprintf(config, sizeof config, "density=%.10g,segment=tensor,feedback=none,value=f32,index=coo", l->density);
    add_case(l, FGP_CASE_WHOLE, "topk/whole", config, threads, 0);
}

static void add_cases(list *l, int threads, int second) {
    char config[64];
    snprintf(config, sizeof config, "select=hist,density=%.10g", l->density);
    if (l->config) {
        add_case(l, FGP_CASE_COMPRESS, "compress/config", l->config, threads, 0);
        if (second)
            add_case(l, FGP_CASE_COMPRESS, "compress/config", l->config, 2, 0);
        add_decode_cases(l, l->config, threads);
        return;
    }
    add_main_cases(l, threads);
    if (second)
        add_main_cases(l, 2);
    add_residuals(l, threads);
    add_sweeps(l, threads);
    add_method_cases(l, threads);
    add_decode_cases(l, config, threads);
    if (second)
        add_case(l, FGP_CASE_DECODE, "decode/4", config, 2, 4);
}

/* ---- the command line ----------------------------------------------------------------- */

static int read_density(const fgp_args *args, double *density) {
    uint64_t k = 0;
    if (fgp_arg_given(args, "density") && fgp_arg_given(args, "k"))
        return fgio_usage_error("--k and --density exclude each other; give one of them");
    if (fgp_arg_given(args, "density"))
        return fgp_arg_quantity(args, "density", FGP_MEASURE_SHARE, 1e-6, 1, density);
    int status = fgp_arg_u64(args, "k", 1, 256, &k);
    *density = (double)k / 256.0;
    return status;
}

static int read_count(const fgp_args *args, const char *name, uint64_t fallback, uint64_t min, uint64_t max,
                      uint64_t *count) {
    *count = fallback;
    return fgp_arg_given(args, name) ? fgp_arg_u64(args, name, min, max, count) : FGIO_EXIT_OK;
}

static int read_elements(const fgp_args *args, uint64_t fallback, uint64_t min, uint64_t *n) {
    double number = (double)fallback;
    int status = fgp_arg_given(args, "n")
                     ? fgp_arg_quantity(args, "n", FGP_MEASURE_COUNT, (double)min, (double)(UINT64_C(1) << 36), &number)
                     : FGIO_EXIT_OK;
    *n = (uint64_t)number;
    return status;
}

static int check_config(const char *text) {
    frug_config *parsed = NULL;
    if (frug_config_create(text, &parsed) != FRUG_OK)
        return fgio_config_error();
    frug_config_destroy(parsed);
    return FGIO_EXIT_OK;
}

static int read_run(const fgp_args *args, fgp_bench *bench, list *l) {
    int quick = fgp_arg_given(args, "quick"), status;
    uint64_t rounds = 0, threads = 0;
    if ((status = read_elements(args, quick ? 2560000 : 25600000, 65536, &bench->n)) ||
        (status = read_count(args, "rounds", quick ? 3 : 15, 1, FGP_BENCH_ROUNDS_MAX, &rounds)) ||
        (status = read_count(args, "threads", 1, 1, 1024, &threads)) || (status = read_density(args, &l->density)))
        return status;
    bench->rounds = (size_t)rounds;
    bench->warmup = quick ? 2 : 4;
    bench->json = fgp_arg_given(args, "json");
    l->filter = fgp_arg(args, "case");
    l->config = fgp_arg(args, "config");
    if (l->config && (status = check_config(l->config)) != FGIO_EXIT_OK)
        return status;
    int second = !fgp_arg_given(args, "threads") && sysconf(_SC_NPROCESSORS_ONLN) >= 2;
#ifndef _OPENMP
    if (threads > 1)
        return fgio_usage_error("--threads %d: this program was built without OpenMP", (int)threads);
    second = 0;
#endif
    add_cases(l, (int)threads, second);
    return l->count ? FGIO_EXIT_OK : fgio_usage_error("no case has '%s' in its name", l->filter ? l->filter : "");
}

static int open_source(const fgp_args *args, fgp_bench *bench) {
    int dist = 0;
    const char *path = fgp_arg(args, "grad");
    int status = fgp_arg_word(args, "dist", fgp_dist_names, &dist);
    if (status != FGIO_EXIT_OK)
        return status;
    status = path ? fgp_source_load(&bench->source, path, bench->n)
                  : fgp_source_generate(&bench->source, (fgp_dist)dist, bench->n);
    if (status != FGIO_EXIT_OK)
        return status;
    bench->stream = malloc((size_t)bench->n * sizeof(float));
    bench->stored = calloc((size_t)bench->n, sizeof(uint16_t));
    if (!bench->stream || !bench->stored)
        return fgio_error("no memory for %llu elements", (unsigned long long)bench->n);
    /* Touch the pages before the timed passes. */
    memcpy(bench->stream, fgp_source_step(&bench->source, 0), (size_t)bench->n * sizeof(float));
    return FGIO_EXIT_OK;
}

static int run_case(fgp_bench *bench, const fgp_case *which, fgp_row *row) {
    int status;
    memset(row, 0, sizeof *row);
    row->rounds = bench->rounds;
    row->limit_count = 1;
    row->energy_kept = row->energy_vs_exact = -1;
    fgio_progress *meter = fgio_progress_begin(0, "case %s", which->name);
    switch (which->kind) {
    case FGP_CASE_COMPRESS: status = fgp_bench_compress(bench, which, row); break;
    case FGP_CASE_WHOLE: status = fgp_bench_tensor(bench, which, row); break;
    case FGP_CASE_DECODE:
    case FGP_CASE_APPLY: status = fgp_bench_decode(bench, which, row); break;
    default: status = fgp_bench_check(bench, which, row);
    }
    fgio_progress_end(meter);
    if (status == FGIO_EXIT_OK)
        status = fgp_bench_print_row(bench, which, row);
    if (status == FGIO_EXIT_OK && row->why[0]) {
        fgio_error("case %s does not verify: %s", which->name, row->why);
        bench->failed++;
    }
    return status;
}

static int run_all(fgp_bench *bench, const list *l) {
    fgp_row *row = malloc(sizeof *row);
    int status = row ? FGIO_EXIT_OK : fgio_error("no memory for the results");
    fgp_bench_print_head(bench);
    for (size_t i = 0; i < l->count && status == FGIO_EXIT_OK; i++)
        status = run_case(bench, &l->item[i], row);
    free(row);
    return status == FGIO_EXIT_OK && bench->failed ? FGIO_EXIT_FAIL : status;
}

/* The exchange has other cases and defaults, and shares some options. */
static int bench_reduce(const fgp_args *args) {
    static const char *const other[] = {"dist", "grad", "gradients", "s", "chunk"};
    int quick = fgp_arg_given(args, "quick"), status;
    const char *config = fgp_arg(args, "config");
    uint64_t rounds = 0, threads = 0, workers = 0;
    fgp_reduce_run run = {.json = fgp_arg_given(args, "json"), .filter = fgp_arg(args, "case")};
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (fgp_arg_given(args, other[i]))
            return fgio_usage_error("bench reduce takes no --%s", other[i]);
    if ((status = read_elements(args, quick ? 2560000 : 25600000, 4096, &run.n)) ||
        (status = read_count(args, "rounds", quick ? 3 : 9, 1, FGP_REDUCE_ROUNDS_MAX, &rounds)) ||
        (status = read_count(args, "threads", 1, 1, 1024, &threads)) ||
        (status = fgp_arg_u64(args, "workers", 1, 256, &workers)) || (status = read_density(args, &run.density)))
        return status;
    run.rounds = (size_t)rounds;
    run.threads = (int)threads;
    run.workers = fgt_group_size((int)workers);
    int density = !config || fgp_arg_given(args, "density") || fgp_arg_given(args, "k");
    int length = density ? snprintf(run.base, sizeof run.base, "%s%sdensity=%.10g", config ? config : "residual=f32",
                                    config && !*config ? "" : ",", run.density)
                         : snprintf(run.base, sizeof run.base, "%s", config);
    if (length < 0 || (size_t)length >= sizeof run.base)
        return fgio_usage_error("--config is too long");
    status = check_config(run.base);
    return status == FGIO_EXIT_OK ? fgp_bench_reduce(&run) : status;
}

/* Options that only `bench recover` has. */
static int reject_recover_options(const fgp_args *args) {
    static const char *const other[] = {"gradients", "s", "chunk"};
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        if (fgp_arg_given(args, other[i]))
            return fgio_usage_error("--%s is for bench recover", other[i]);
    return FGIO_EXIT_OK;
}

static int bench_run(const fgp_args *args) {
    static list l;
    fgp_bench bench = {0};
    if (args->operand_count && strcmp(args->operand[0], "reduce") == 0)
        return bench_reduce(args);
    if (args->operand_count && strcmp(args->operand[0], "recover") == 0)
        return fgp_bench_recover(args);
    if (args->operand_count && strcmp(args->operand[0], "spmv") == 0)
        return fgp_bench_spmv(args);
    if (args->operand_count)
        return fgio_usage_error("bench: unknown operand '%s'; give reduce, recover, spmv or none", args->operand[0]);
    int status = reject_recover_options(args);
    if (status == FGIO_EXIT_OK)
        status = read_run(args, &bench, &l);
    if (status == FGIO_EXIT_OK)
        status = fgp_bench_check_memory(bench.n);
    if (status == FGIO_EXIT_OK)
        status = open_source(args, &bench);
    if (status == FGIO_EXIT_OK)
        status = run_all(&bench, &l);
    fgp_source_close(&bench.source);
    free(bench.stream);
    free(bench.stored);
    return status;
}

const fgp_command fgp_command_bench = {
    .name = "bench",
    .summary = "measure compression against the speed of memory, and verify it",
    .operands = "[reduce|recover|spmv]",
    .max_operands = 1,
    .about =
        "Every case is timed in turn with its baseline, in the same rounds, and its results are\n"
        "checked through the public interface. For compress, limit is the speed of e = beta * e + g over arrays\n"
        "of the same length and ratio the share of it that the whole call reaches; own is the share of a pass\n"
        "that moves the bytes of the residual's own format. For decode and apply, limit is one dense vector\n"
        "addition and ratio the time of two of them over the time of the call. For topk/whole, limit is\n"
        "std::nth_element and ratio says how many times faster the call is. A case that fails its checks makes\n"
        "the exit code 1.\n\n"
        "`bench reduce` measures whole exchanges between workers instead, from gradient to weights: every value of\n"
        "the option reduce against the dense sum in the same rounds. By bytes is how many times less is sent,\n"
        "of that the share which is gained in time. With --config and a reduce other than gather only that one is\n"
        "measured, as --config frugrad,reduce=nodes,node=2. frugrad-mpi is the same program for the processes of an\n"
        "MPI job.\n\n"
        "`bench recover` measures sparse recovery: several forms of matching pursuit and two measurement matrices, in\n"
        "milliseconds for a chunk, against the naive one and against the stored matrix in the same rounds. Found\n"
        "is the share of true indices that was recovered. With --gradients it is a study of recorded gradients "
        "instead:\n"
        "how closely sketches and tables of several sizes track AdamW's means, and how near their\n"
        "steps are to AdamW's on the same selected entries and on the whole gradient.\n\n"
        "`bench spmv` measures the matrix products of one decoded token of GPT-2 small by one thread: packed sparse\n"
        "weights, f32 and int8, against dense ones by OpenBLAS in the same rounds. Memory is relative to dense f32.",
    .options = options,
    .run = bench_run,
};
