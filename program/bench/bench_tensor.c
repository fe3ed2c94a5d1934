/*
 * bench_tensor.c - the largest of a whole tensor: frug_compress() with segment=tensor, which selects and writes a
 * frame, against std::nth_element and the emission of the same places and values. Two ways to use nth_element are
 * tried before the rounds, and the faster one goes along in every round. All three must pick the same set.
 */
#include "program/args/args.h"
#include "program/bench/bench.h"
#include "program/bench/bench_check.h"
#include "program/bench/bench_nth.h"
#include "io/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct contest {
    fgp_bench_worker worker;
    float *decoded; /* n; -0 where nothing was sent */
    uint64_t k;
    void *scratch; /* of nth_element: n numbers */
    uint32_t *index;
    float *value;
    fgp_nth_fn *rival; /* NULL when built without a C++ compiler */
} contest;

static int open_contest(contest *c, const fgp_bench *bench, const fgp_case *which) {
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
    /* Written here, so that no timed pass meets pages for the first time. */
    memset(c->scratch, 0, n * sizeof(uint32_t));
    memset(c->index, 0, n * sizeof *c->index);
    memset(c->value, 0, n * sizeof *c->value);
    return FGIO_EXIT_OK;
}

static void close_contest(contest *c) {
    fgp_worker_close(&c->worker);
    free(c->decoded);
    free(c->scratch);
    free(c->index);
    free(c->value);
}

/* Compress a step, decode it, and see that it has the k largest, as they are. */
static int check_frame(contest *c, const fgp_bench *bench, const float *grad, uint64_t step, fgp_row *row) {
    frug_frame_info info = {.struct_size = sizeof info};
    const void *frame = c->worker.frame;
    int status = fgp_worker_step(&c->worker, step, grad);
    if (status != FGIO_EXIT_OK)
        return status;
    for (uint64_t i = 0; i < bench->n; i++)
        c->decoded[i] = -0.0f;
    if (frug_frame_check(frame, c->worker.len, &info) != FRUG_OK ||
        frug_decompress_add(c->worker.compressor, &frame, &c->worker.len, 1, 1.0f, 0, bench->n, c->decoded) != FRUG_OK)
        return fgio_library_error("cannot read back what was compressed");
    c->k = info.entries;
    if (!row->why[0])
        fgp_check_whole(grad, c->decoded, bench->n, c->k, row->why, sizeof row->why);
    return FGIO_EXIT_OK;
}

#ifdef FGP_HAVE_NTH

/* Whether nth_element found what the frame has: k rising places, and each of them was sent as it is. */
static void compare(const contest *c, const float *grad, fgp_row *row) {
    for (uint64_t i = 0; i < c->k && !row->why[0]; i++) {
        uint32_t at = c->index[i];
        if ((i > 0 && at <= c->index[i - 1]) || !fgp_was_sent(c->decoded[at]) || c->value[i] != grad[at])
            snprintf(row->why, sizeof row->why, "nth_element picks other elements (element %lu)", (unsigned long)at);
    }
}

static double time_rival(contest *c, const fgp_bench *bench, const float *grad, fgp_nth_fn *rival) {
    double start = fgp_now();
    rival(grad, bench->n, c->k, c->scratch, c->index, c->value);
    return fgp_now() - start;
}

static void choose_rival(contest *c, const fgp_bench *bench, const float *grad, fgp_row *row) {
    double threshold = 0, index = 0;
    for (size_t i = 0; i < bench->warmup; i++) {
        threshold += time_rival(c, bench, grad, fgp_nth_by_threshold);
        compare(c, grad, row);
        index += time_rival(c, bench, grad, fgp_nth_by_index);
        compare(c, grad, row);
    }
    c->rival = threshold < index ? fgp_nth_by_threshold : fgp_nth_by_index;
    snprintf(row->note, sizeof row->note, "times faster than nth_element (%s)",
             threshold < index ? "of magnitudes" : "of places");
}

#else

static double time_rival(contest *c, const fgp_bench *bench, const float *grad, fgp_nth_fn *rival) {
    (void)c, (void)bench, (void)grad, (void)rival;
    return 0;
}

static void choose_rival(contest *c, const fgp_bench *bench, const float *grad, fgp_row *row) {
    (void)c, (void)bench, (void)grad;
    snprintf(row->note, sizeof row->note, "built without a C++ compiler: no nth_element to compare with");
}

#endif

/* Seconds that the compressor has spent on selection so far: everything but reading, encoding and sealing. */
static double selecting(const contest *c) {
    frug_stats stats = {.struct_size = sizeof stats};
    return frug_compressor_stats(c->worker.compressor, &stats) == FRUG_OK ? stats.seconds_select : 0;
}

/* How the selection alone compares, by the means of all rounds. */
static void note_selection(double seconds, double rival, fgp_row *row) {
    size_t used = strlen(row->note);
    if (rival > 0 && seconds > 0)
        snprintf(row->note + used, sizeof row->note - used, "; selection alone %.1f times", rival / seconds);
}

static int run_contest(contest *c, fgp_bench *bench, fgp_row *row) {
    const float *grad = fgp_source_step(&bench->source, 0);
    int status = check_frame(c, bench, grad, 0, row);
    if (status == FGIO_EXIT_OK)
        choose_rival(c, bench, grad, row);
    double before = selecting(c), rival = 0;
    for (size_t round = 0; round < bench->rounds && status == FGIO_EXIT_OK; round++) {
        grad = fgp_source_step(&bench->source, round + 1);
        row->limit_seconds[round] = time_rival(c, bench, grad, c->rival);
        rival += row->limit_seconds[round];
        double start = fgp_now();
        status = fgp_worker_step(&c->worker, round + 1, grad);
        row->seconds[round] = fgp_now() - start;
    }
    note_selection(selecting(c) - before, rival, row);
    grad = fgp_source_step(&bench->source, bench->rounds + 1);
    return status == FGIO_EXIT_OK ? check_frame(c, bench, grad, bench->rounds + 1, row) : status;
}

int fgp_bench_whole(fgp_bench *bench, const fgp_case *which, fgp_row *row) {
    contest c;
    int status = open_contest(&c, bench, which);
    if (status == FGIO_EXIT_OK)
        status = run_contest(&c, bench, row);
    row->block = 256;
    row->k = 256.0 * (double)c.k / (double)bench->n;
    row->frame_bytes = (double)c.worker.len;
    row->bytes = 4.0 * (double)bench->n + row->frame_bytes;
    row->limit_bytes = 4.0 * (double)bench->n;
    close_contest(&c);
    return status;
}
