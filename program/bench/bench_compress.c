/*
 * bench_compress.c - times frug_compress() against the streaming limit.
 *
 * The limit is a pass e = beta * e + g over arrays of the same length, which moves the bytes that compressing with an
 * f32 residual must move. A second limit is a pass that moves the bytes of the residual's own format. All run in every
 * round, one after the other, so that a machine that slows down slows all. Some steps before the rounds and one after
 * them are checked. With several threads a second compressor with one thread runs too, for the speed-up and because its
 * bytes must be the same.
 */
#include "program/args/args.h"
#include "base/clock.h"
#include "program/bench/bench.h"
#include "program/bench/bench_check.h"
#include "io/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static frug_status add_matrix(frug_layout *layout, const char *name, uint64_t rows, uint64_t columns) {
    frug_tensor tensor = FRUG_TENSOR_INIT;
    tensor.name = name;
    tensor.role = FRUG_ROLE_LINEAR;
    tensor.ndim = 2;
    tensor.shape[0] = rows;
    tensor.shape[1] = columns;
    return rows > 0 && columns > 0 ? frug_layout_add(layout, &tensor) : FRUG_OK;
}

static frug_status make_layout(uint64_t n, uint32_t columns, frug_layout **layout) {
    if (!columns)
        return frug_layout_flat(n, layout);
    frug_status status = frug_layout_create(layout);
    if (status == FRUG_OK)
        status = add_matrix(*layout, "matrix", n / columns, columns);
    return status == FRUG_OK ? add_matrix(*layout, "rest", 1, n % columns) : status;
}

int fgp_worker_open_matrix(fgp_bench_worker *worker, const char *config, uint64_t n, uint32_t columns, int threads) {
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = threads;
    memset(worker, 0, sizeof *worker);
    if (frug_config_create(config, &worker->config) != FRUG_OK || make_layout(n, columns, &worker->layout) != FRUG_OK ||
        frug_compressor_create(worker->config, worker->layout, &options, &worker->compressor) != FRUG_OK ||
        frug_compressor_bound(worker->compressor, (frug_range){0, n}, &worker->cap) != FRUG_OK)
        return fgio_library_error("cannot create a compressor");
    worker->frame = malloc(worker->cap);
    return worker->frame ? FGIO_EXIT_OK : fgio_error("no memory for a frame of %zu bytes", worker->cap);
}

int fgp_worker_open(fgp_bench_worker *worker, const char *config, uint64_t n, int threads) {
    return fgp_worker_open_matrix(worker, config, n, 0, threads);
}

void fgp_worker_close(fgp_bench_worker *worker) {
    frug_compressor_destroy(worker->compressor);
    frug_layout_destroy(worker->layout);
    frug_config_destroy(worker->config);
    free(worker->frame);
    memset(worker, 0, sizeof *worker);
}

int fgp_worker_step(fgp_bench_worker *worker, uint64_t step, const float *grad) {
    uint64_t n = frug_layout_elements(worker->layout);
    if (frug_compress(worker->compressor, step, (frug_range){0, n}, grad, worker->frame, worker->cap, &worker->len) !=
        FRUG_OK)
        return fgio_library_error("cannot compress");
    return FGIO_EXIT_OK;
}

typedef struct thread_pair {
    fgp_bench_worker many;
    fgp_bench_worker one; /* open when many has more than one thread */
    fgp_check check;
    int two;
} thread_pair;

static int open_thread_pair(thread_pair *p, const fgp_bench *bench, const fgp_case *which) {
    memset(p, 0, sizeof *p);
    p->two = which->threads > 1;
    int status = fgp_worker_open_matrix(&p->many, which->config, bench->n, which->columns, which->threads);
    if (status == FGIO_EXIT_OK && p->two)
        status = fgp_worker_open_matrix(&p->one, which->config, bench->n, which->columns, 1);
    if (status == FGIO_EXIT_OK && fgp_check_open(&p->check, p->many.config, bench->n) != 0)
        status = fgio_error("no memory to check %llu elements", (unsigned long long)bench->n);
    return status;
}

static void close_thread_pair(thread_pair *p) {
    fgp_check_close(&p->check);
    fgp_worker_close(&p->one);
    fgp_worker_close(&p->many);
}

static void compare_frames(const thread_pair *p, fgp_row *row) {
    if (!row->why[0] && (p->many.len != p->one.len || memcmp(p->many.frame, p->one.frame, p->one.len) != 0))
        snprintf(row->why, sizeof row->why, "the frame of several threads differs from that of one");
}

static int checked_step(thread_pair *p, uint64_t step, const float *grad, fgp_row *row) {
    fgp_check_result verdict;
    if (fgp_check_before(&p->check, p->many.compressor) != FRUG_OK)
        return fgio_library_error("cannot read the residual");
    int status = fgp_worker_step(&p->many, step, grad);
    if (status == FGIO_EXIT_OK && p->two)
        status = fgp_worker_step(&p->one, step, grad);
    if (status != FGIO_EXIT_OK)
        return status;
    if (p->two)
        compare_frames(p, row);
    if (fgp_check_after(&p->check, p->many.compressor, grad, p->many.frame, p->many.len, &verdict) != FRUG_OK)
        return fgio_library_error("cannot read back what was compressed");
    if (!row->why[0])
        snprintf(row->why, sizeof row->why, "%s", verdict.why);
    row->k = verdict.density * p->check.rule.block;
    if (verdict.energy_kept >= 0) {
        row->energy_kept = verdict.energy_kept;
        row->energy_vs_exact = verdict.energy_vs_exact;
    }
    return FGIO_EXIT_OK;
}

/* A pass over a residual of the same format, or -1 where there is none. */
static double time_own_limit(const thread_pair *p, fgp_bench *bench, const fgp_case *which, const float *grad) {
    const fgp_check_rule *rule = &p->check.rule;
    if (rule->keep == FGP_KEEP_NONE || rule->store == FGP_STORE_F32)
        return -1;
    double start = frugi_clock();
    fgp_stream_stored_pass(bench->stored, rule->store, grad, bench->n, which->threads);
    return frugi_clock() - start;
}

static int timed_step(thread_pair *p, fgp_bench *bench, const fgp_case *which, uint64_t step, size_t round,
                      fgp_row *row) {
    const float *grad = fgp_source_step(&bench->source, step);
    double start = frugi_clock();
    fgp_stream_pass(bench->stream, 0.95f, grad, bench->n, which->threads);
    double streamed = frugi_clock();
    int status = fgp_worker_step(&p->many, step, grad);
    double compressed = frugi_clock();
    row->own_seconds[round] = time_own_limit(p, bench, which, grad);
    double second = frugi_clock();
    if (status == FGIO_EXIT_OK && p->two) {
        status = fgp_worker_step(&p->one, step, grad);
        row->one_seconds[round] = frugi_clock() - second;
        compare_frames(p, row);
    }
    row->limit_seconds[round] = streamed - start;
    row->seconds[round] = compressed - streamed;
    return status;
}

static int run_rounds(thread_pair *p, fgp_bench *bench, const fgp_case *which, fgp_row *row) {
    uint64_t step = 0;
    int status = FGIO_EXIT_OK;
    for (; step < bench->warmup && status == FGIO_EXIT_OK; step++)
        status = checked_step(p, step, fgp_source_step(&bench->source, step), row);
    for (size_t round = 0; round < bench->rounds && status == FGIO_EXIT_OK; round++, step++)
        status = timed_step(p, bench, which, step, round, row);
    fgp_check_skipped(&p->check);
    if (status == FGIO_EXIT_OK)
        status = checked_step(p, step, fgp_source_step(&bench->source, step), row);
    return status;
}

int fgp_bench_compress(fgp_bench *bench, const fgp_case *which, fgp_row *row) {
    thread_pair p;
    int status = open_thread_pair(&p, bench, which);
    if (status == FGIO_EXIT_OK)
        status = run_rounds(&p, bench, which, row);
    double n = (double)bench->n;
    row->block = p.check.rule.block;
    row->frame_bytes = (double)p.many.len;
    row->bytes = n * (4 + 2 * fgp_check_residual_bytes(&p.check.rule)) + row->frame_bytes;
    row->limit_bytes = 12 * n;
    close_thread_pair(&p);
    return status;
}
