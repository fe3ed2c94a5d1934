/*
 * bench_tensor.c - top-k of a whole tensor: frug_compress() with segment=tensor against std::nth_element.
 *
 * frug_compress() selects and writes a frame; nth_element selects, and the same indices and values are stored. Two ways
 * to use nth_element are tried before the rounds, and the faster one runs in every round. All must select the same set.
 */
#include "program/args/args.h"
#include "base/clock.h"
#include "program/bench/bench.h"
#include "program/bench/bench_check.h"
#include "program/bench/bench_nth.h"
#include "io/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct tensor_bench {
    fgp_bench_worker worker;
    float *decoded; /* n; -0 where nothing was sent */
    uint64_t k;
    void *scratch; /* of nth_element: n numbers */
    uint32_t *index;
    float *value;
    fgp_nth_fn *baseline; /* NULL when built without a C++ compiler */
} tensor_bench;

static int open_tensor_bench(tensor_bench *c, const fgp_bench *bench, const fgp_case *which) {
    memset(c, 0, sizeof *c);
    if (bench->n > UINT32_MAX)
        return fgio_error("%s: at most %lu elements; give a smaller --n", which->name, (unsigned long)UINT32_MAX);
    int status = fgp_worker_open(&c->worker, which->config, bench->n, which->threads);
    if (status != FGIO_EXIT_OK)
        return status;
    size_t n = (size_t)bench->n;
    c->decoded = malloc(n * sizeof *c->decoded);
    c->scratch = malloc(n * sizeof(uint32_t));
    c->index = malloc(n * sizeof *c->index);
    c->value = malloc(n * sizeof *c->value);
    if (!c->decoded || !c->scratch || !c->index || !c->value)
        return fgio_error("no memory to select among %zu elements", n);
    /* Touch the pages before the timed passes. */
    memset(c->scratch, 0, n * sizeof(uint32_t));
    memset(c->index, 0, n * sizeof *c->index);
    memset(c->value, 0, n * sizeof *c->value);
    return FGIO_EXIT_OK;
}

static void close_tensor_bench(tensor_bench *c) {
    fgp_worker_close(&c->worker);
    free(c->decoded);
    free(c->scratch);
    free(c->index);
    free(c->value);
}

/* Compress a step, decode it, and check that it has the k largest values, unchanged. */
static int check_frame(tensor_bench *c, const fgp_bench *bench, const float *grad, uint64_t step, fgp_row *row) {
    frug_frame_info info = {.struct_size = sizeof info};
    const void *frame = c->worker.frame;
    int status = fgp_worker_step(&c->worker, step, grad);
    if (status != FGIO_EXIT_OK)
        return status;
    for (uint64_t i = 0; i < bench->n; i++)
        c->decoded[i] = -0.0f;
    if (frug_frame_check(frame, c->worker.len, &info) != FRUG_OK ||
        frug_decode_add(frug_compressor_decoder(c->worker.compressor), (frug_range){0, bench->n}, &frame,
                        &c->worker.len, 1, 1.0f, c->decoded) != FRUG_OK)
        return fgio_library_error("cannot read back what was compressed");
    c->k = info.entries;
    if (!row->why[0])
        fgp_check_whole(grad, c->decoded, bench->n, c->k, row->why, sizeof row->why);
    return FGIO_EXIT_OK;
}

#ifdef FGP_HAVE_NTH

/* Whether nth_element selected the entries of the frame: k ascending indices, each sent unchanged. */
static void compare_selections(const tensor_bench *c, const float *grad, fgp_row *row) {
    for (uint64_t i = 0; i < c->k && !row->why[0]; i++) {
        uint32_t at = c->index[i];
        if ((i > 0 && at <= c->index[i - 1]) || !fgp_was_sent(c->decoded[at]) || c->value[i] != grad[at])
            snprintf(row->why, sizeof row->why, "nth_element selects other elements (element %lu)", (unsigned long)at);
    }
}

static double time_baseline(tensor_bench *c, const fgp_bench *bench, const float *grad, fgp_nth_fn *baseline) {
    double start = frugi_clock();
    baseline(grad, bench->n, c->k, c->scratch, c->index, c->value);
    return frugi_clock() - start;
}

static void select_baseline(tensor_bench *c, const fgp_bench *bench, const float *grad, fgp_row *row) {
    double threshold = 0, index = 0;
    for (size_t i = 0; i < bench->warmup; i++) {
        threshold += time_baseline(c, bench, grad, fgp_nth_by_threshold);
        compare_selections(c, grad, row);
        index += time_baseline(c, bench, grad, fgp_nth_by_index);
        compare_selections(c, grad, row);
    }
    c->baseline = threshold < index ? fgp_nth_by_threshold : fgp_nth_by_index;
    snprintf(row->note, sizeof row->note, "times faster than nth_element (%s)",
             threshold < index ? "of magnitudes" : "of indices");
}

#else

static double time_baseline(tensor_bench *c, const fgp_bench *bench, const float *grad, fgp_nth_fn *baseline) {
    (void)c, (void)bench, (void)grad, (void)baseline;
    return 0;
}

static void select_baseline(tensor_bench *c, const fgp_bench *bench, const float *grad, fgp_row *row) {
    (void)c, (void)bench, (void)grad;
    snprintf(row->note, sizeof row->note, "built without a C++ compiler: no nth_element to compare with");
}

#endif

/* Seconds that the compressor has spent on selection so far: without reading, encoding and the checksum. */
static double selection_seconds(const tensor_bench *c) {
    frug_stats stats = {.struct_size = sizeof stats};
    return frug_compressor_stats(c->worker.compressor, &stats) == FRUG_OK ? stats.seconds_select : 0;
}

/* Speed of the selection alone, by the means of all rounds. */
static void note_selection(double seconds, double baseline, fgp_row *row) {
    size_t used = strlen(row->note);
    if (baseline > 0 && seconds > 0)
        snprintf(row->note + used, sizeof row->note - used, "; selection alone %.1f times", baseline / seconds);
}

static int run_rounds(tensor_bench *c, fgp_bench *bench, fgp_row *row) {
    const float *grad = fgp_source_step(&bench->source, 0);
    int status = check_frame(c, bench, grad, 0, row);
    if (status == FGIO_EXIT_OK)
        select_baseline(c, bench, grad, row);
    double before = selection_seconds(c), baseline = 0;
    for (size_t round = 0; round < bench->rounds && status == FGIO_EXIT_OK; round++) {
        grad = fgp_source_step(&bench->source, round + 1);
        row->limit_seconds[round] = time_baseline(c, bench, grad, c->baseline);
        baseline += row->limit_seconds[round];
        double start = frugi_clock();
        status = fgp_worker_step(&c->worker, round + 1, grad);
        row->seconds[round] = frugi_clock() - start;
    }
    note_selection(selection_seconds(c) - before, baseline, row);
    grad = fgp_source_step(&bench->source, bench->rounds + 1);
    return status == FGIO_EXIT_OK ? check_frame(c, bench, grad, bench->rounds + 1, row) : status;
}

int fgp_bench_tensor(fgp_bench *bench, const fgp_case *which, fgp_row *row) {
    tensor_bench c;
    int status = open_tensor_bench(&c, bench, which);
    if (status == FGIO_EXIT_OK)
        status = run_rounds(&c, bench, row);
    row->block = 256;
    row->k = 256.0 * (double)c.k / (double)bench->n;
    row->frame_bytes = (double)c.worker.len;
    row->bytes = 4.0 * (double)bench->n + row->frame_bytes;
    row->limit_bytes = 4.0 * (double)bench->n;
    close_tensor_bench(&c);
    return status;
}
