/*
 * bench_reduce.c - `frugrad bench reduce`: whole exchanges, from gradient to weights, by every algorithm of the option
 * reduce.
 *
 * The algorithms run in turn in every round, the uncompressed one among them, because times of one run are not
 * comparable with those of another. After each exchange all workers compare their weights; the first exchange of gather
 * is also compared with frames made and added by one worker alone.
 */
#include "program/bench/bench_reduce.h"
#include "base/clock.h"

#include "program/args/args.h"
#include "program/bench/bench.h"
#include "program/bench/bench_noise.h"
#include "io/progress.h"
#include "io/error.h"
#include "trainer/run/worker_group.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRADIENTS 2u /* of each worker, in turn */

/** Numbers that the workers gather from each other. */
typedef struct measurement {
    double seconds; /* of an exchange */
    uint64_t hash;  /* of the weights after it */
    uint64_t sent;  /* per exchange */
    double compress, wait, wire, decode;
} measurement;

/** One worker of the benchmark. */
typedef struct worker_state {
    const fgp_reduce_run *run;
    frug_comm *comm;
    int rank, size;
    measurement *all; /* the last one of every worker */
    frug_layout *layout;
    frug_reducer *reducer[FGP_MAX_ALGORITHMS];
    fgp_reduce_row *row;
    size_t rows;
    float *grad; /* GRADIENTS x n */
    float *weights;
} worker_state;

static uint64_t seed_of(int rank, size_t which) {
    return (uint64_t)rank * GRADIENTS + which;
}

static uint64_t hash_of(const float *x, uint64_t n) {
    uint64_t lane[4] = {1, 2, 3, 4}, hash = n, i = 0;
    for (; i + 4 <= n; i += 4)
        for (size_t k = 0; k < 4; k++) {
            uint32_t bits;
            memcpy(&bits, &x[i + k], sizeof bits);
            lane[k] = (lane[k] ^ bits) * 0x9e3779b97f4a7c15u;
            lane[k] ^= lane[k] >> 29;
        }
    for (; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        hash = (hash ^ bits) * 0x9e3779b97f4a7c15u;
    }
    for (size_t k = 0; k < 4; k++)
        hash = (hash ^ lane[k]) * 0x9e3779b97f4a7c15u;
    return hash;
}

/* All-gather the measurements into h->all; also a barrier. */
static int gather_measurements(worker_state *h, measurement mine) {
    return frug_comm_allgather(h->comm, &mine, sizeof mine, h->all) == FRUG_OK ? FGIO_EXIT_OK
                                                                               : fgio_library_error("workers");
}

/* ---- the algorithms ------------------------------------------------------------------ */

static fgp_reduce_row *add_row(worker_state *h, const char *word, size_t length) {
    fgp_reduce_row *row = &h->row[h->rows];
    if (h->rows == FGP_MAX_ALGORITHMS || length >= sizeof row->name)
        return NULL;
    *row = (fgp_reduce_row){0};
    memcpy(row->name, word, length);
    snprintf(row->config, sizeof row->config, "%s,reduce=%s", h->run->base, row->name);
    h->rows++;
    return row;
}

/* The config of one algorithm, with options that only this one has, against the dense sum. Returns false where the
 * config has the default algorithm: then all are listed. */
static bool list_named(worker_state *h) {
    frug_config *config = NULL;
    if (frug_config_create(h->run->base, &config) != FRUG_OK)
        return false;
    const char *name = frug_config_get(config, "reduce");
    bool named = strcmp(name, "gather") != 0;
    fgp_reduce_row *row = named ? add_row(h, "dense", 5) : NULL;
    if (row)
        snprintf(row->config, sizeof row->config, "reduce=dense");
    bool wanted = named && strcmp(name, "dense") != 0 && (!h->run->filter || strstr(name, h->run->filter));
    row = wanted ? add_row(h, name, strcspn(name, ":")) : NULL;
    if (row)
        snprintf(row->config, sizeof row->config, "%s", h->run->base);
    frug_config_destroy(config);
    return named;
}

/* One row for each value of the option reduce that is a sum; dense, the baseline, first. */
static void list_algorithms(worker_state *h) {
    const frug_option *option = NULL;
    for (size_t i = 0; (option = frug_option_at(i)) && strcmp(option->name, "reduce") != 0; i++)
        ;
    if (list_named(h))
        return;
    add_row(h, "dense", 5);
    for (const char *word = option ? option->values : "", *end; *word; word = *end ? end + 1 : end) {
        end = word + strcspn(word, "|");
        size_t length = strcspn(word, "|:");
        char name[sizeof h->row->name] = "";
        snprintf(name, sizeof name, "%.*s", (int)length, word);
        if (strcmp(name, "dense") != 0 && strcmp(name, "gossip") != 0 &&
            (!h->run->filter || strstr(name, h->run->filter)))
            add_row(h, name, length);
    }
}

/* An algorithm that cannot run here (number of workers, a value that needs an argument) is skipped by all workers. */
static void open_reducer(worker_state *h, size_t i) {
    fgp_reduce_row *row = &h->row[i];
    frug_config *config = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = h->run->threads;
    if (frug_config_create(row->config, &config) != FRUG_OK ||
        frug_reducer_create(config, h->layout, &options, h->comm, &h->reducer[i]) != FRUG_OK)
        snprintf(row->skipped, sizeof row->skipped, "%s", frug_last_error());
    frug_config_destroy(config);
}

/* ---- one exchange, verified ------------------------------------------------------------- */

static const float *gradient_of(const worker_state *h, uint64_t step) {
    return h->grad + step % GRADIENTS * h->run->n;
}

/* All workers must have the same weights; *slowest: the longest time of any worker. */
static int compare_weights(worker_state *h, size_t i, double seconds, uint64_t step, double *slowest) {
    measurement mine = {.seconds = seconds, .hash = hash_of(h->weights, h->run->n)};
    int status = gather_measurements(h, mine);
    *slowest = 0;
    for (int p = 0; p < h->size && status == FGIO_EXIT_OK; p++) {
        *slowest = fmax(*slowest, h->all[p].seconds);
        if (h->all[p].hash != h->all[0].hash && !h->row[i].wrong[0])
            snprintf(h->row[i].wrong, sizeof h->row[i].wrong, "workers 0 and %d have different weights at step %llu", p,
                     (unsigned long long)step);
    }
    return status;
}

static int run_exchange(worker_state *h, size_t i, uint64_t step, double *seconds) {
    int status = gather_measurements(h, (measurement){0}); /* barrier */
    if (status != FGIO_EXIT_OK)
        return status;
    double start = frugi_clock();
    if (frug_reducer_add(h->reducer[i], step, (frug_range){0, h->run->n}, gradient_of(h, step), 1.0f / (float)h->size,
                         h->weights) != FRUG_OK)
        return fgio_library_error(h->row[i].name);
    return compare_weights(h, i, frugi_clock() - start, step, seconds);
}

/* The frames of all workers at step 0, made here one after the other. Returns an exit code. */
static int make_all_frames(const worker_state *h, const char *config, void **frame, size_t *len) {
    float *grad = malloc((size_t)h->run->n * sizeof *grad);
    int status = grad ? FGIO_EXIT_OK : fgio_error("no memory to verify the exchange");
    for (int p = 0; p < h->size && status == FGIO_EXIT_OK; p++) {
        fgp_bench_worker w;
        fgp_generate_gradient(FGP_DIST_GAUSSIAN, seed_of(p, 0), h->run->n, grad);
        status = fgp_worker_open(&w, config, h->run->n, h->run->threads);
        if (status == FGIO_EXIT_OK)
            status = fgp_worker_step(&w, 0, grad);
        frame[p] = w.frame;
        len[p] = w.len;
        w.frame = NULL;
        fgp_worker_close(&w);
    }
    free(grad);
    return status;
}

/* The weights of worker 0 after the first exchange must be the sum of all frames. */
static int compare_with_frames(const worker_state *h, fgp_reduce_row *row) {
    void **frame = calloc((size_t)h->size, sizeof(void *));
    size_t *len = calloc((size_t)h->size, sizeof *len);
    float *sum = calloc((size_t)h->run->n, sizeof *sum);
    fgp_bench_worker w = {0};
    int status = frame && len && sum ? FGIO_EXIT_OK : fgio_error("no memory to verify the exchange");
    if (status == FGIO_EXIT_OK)
        status = make_all_frames(h, row->config, frame, len);
    if (status == FGIO_EXIT_OK)
        status = fgp_worker_open(&w, row->config, h->run->n, h->run->threads);
    if (status == FGIO_EXIT_OK &&
        frug_decode_add(frug_compressor_decoder(w.compressor), (frug_range){0, h->run->n}, (const void *const *)frame,
                        len, (size_t)h->size, 1.0f / (float)h->size, sum) != FRUG_OK)
        status = fgio_library_error("cannot add the frames");
    if (status == FGIO_EXIT_OK && memcmp(sum, h->weights, (size_t)h->run->n * sizeof *sum) != 0)
        snprintf(row->wrong, sizeof row->wrong, "the weights are not the sum of all workers' frames");
    row->compared = status == FGIO_EXIT_OK;
    fgp_worker_close(&w);
    for (int p = 0; frame && p < h->size; p++)
        free(frame[p]);
    free(frame);
    free(len);
    free(sum);
    return status;
}

/* The first exchange of each algorithm starts from zero weights and is not timed. */
static int verify_first_exchange(worker_state *h, size_t i) {
    double seconds;
    memset(h->weights, 0, (size_t)h->run->n * sizeof(float));
    int status = run_exchange(h, i, 0, &seconds);
    if (status == FGIO_EXIT_OK && h->rank == 0 && strcmp(h->row[i].name, "gather") == 0)
        status = compare_with_frames(h, &h->row[i]);
    return status;
}

/* ---- the run ------------------------------------------------------------------------------ */

static frug_reduce_stats stats_of(const worker_state *h, size_t i) {
    frug_reduce_stats s = {.struct_size = sizeof s};
    frug_reducer_stats(h->reducer[i], &s);
    return s;
}

/* Times by phase and bytes, from the statistics of all workers in the timed rounds. */
static int collect_stats(worker_state *h, size_t i, frug_reduce_stats before) {
    frug_reduce_stats s = stats_of(h, i);
    double rounds = (double)h->run->rounds;
    uint64_t bytes = (s.bytes_sent - before.bytes_sent) / h->run->rounds;
    measurement mine = {.sent = bytes,
                        .compress = (s.seconds_compress - before.seconds_compress) / rounds,
                        .wait = (s.seconds_wait - before.seconds_wait) / rounds,
                        .wire = (s.seconds_wire - before.seconds_wire) / rounds,
                        .decode = (s.seconds_decode - before.seconds_decode) / rounds};
    fgp_reduce_row *row = &h->row[i];
    int status = gather_measurements(h, mine);
    for (int p = 0; p < h->size && status == FGIO_EXIT_OK; p++) {
        const measurement *theirs = &h->all[p];
        row->sent = fmax(row->sent, (double)theirs->sent);
        row->compress += theirs->compress / h->size;
        row->wait += theirs->wait / h->size;
        row->wire += theirs->wire / h->size;
        row->decode += theirs->decode / h->size;
    }
    return status;
}

static int measure_rounds(worker_state *h) {
    frug_reduce_stats before[FGP_MAX_ALGORITHMS];
    int status = FGIO_EXIT_OK;
    for (size_t i = 0; i < h->rows && status == FGIO_EXIT_OK; i++)
        if (!h->row[i].skipped[0]) {
            status = verify_first_exchange(h, i);
            before[i] = stats_of(h, i);
        }
    for (size_t r = 0; r < h->run->rounds && status == FGIO_EXIT_OK; r++)
        for (size_t i = 0; i < h->rows && status == FGIO_EXIT_OK; i++)
            if (!h->row[i].skipped[0])
                status = run_exchange(h, i, r + 1, &h->row[i].seconds[r]);
    for (size_t i = 0; i < h->rows && status == FGIO_EXIT_OK; i++)
        if (!h->row[i].skipped[0])
            status = collect_stats(h, i, before[i]);
    return status;
}

static int prepare_worker(worker_state *h) {
    uint64_t n = h->run->n;
    h->row = calloc(FGP_MAX_ALGORITHMS, sizeof *h->row);
    h->grad = malloc(GRADIENTS * (size_t)n * sizeof(float));
    h->weights = calloc((size_t)n, sizeof(float));
    h->all = calloc((size_t)h->size, sizeof *h->all);
    if (!h->row || !h->grad || !h->weights || !h->all)
        return fgio_error("no memory for %llu elements", (unsigned long long)n);
    for (size_t i = 0; i < GRADIENTS; i++)
        fgp_generate_gradient(FGP_DIST_GAUSSIAN, seed_of(h->rank, i), n, h->grad + i * n);
    if (frug_layout_flat(n, &h->layout) != FRUG_OK)
        return fgio_library_error("layout");
    list_algorithms(h);
    for (size_t i = 0; i < h->rows; i++)
        open_reducer(h, i);
    return FGIO_EXIT_OK;
}

static int run_worker(frug_comm *comm, void *shared) {
    worker_state h = {.run = shared, .comm = comm, .rank = frug_comm_rank(comm), .size = frug_comm_size(comm)};
    int status = prepare_worker(&h);
    fgio_progress *meter = h.rank == 0 ? fgio_progress_begin(0, "measuring exchanges") : NULL;
    if (status == FGIO_EXIT_OK)
        status = measure_rounds(&h);
    fgio_progress_end(meter);
    if (status == FGIO_EXIT_OK && h.rank == 0)
        status = fgp_reduce_print(h.run, frug_comm_transport(comm), h.row, h.rows);
    for (size_t i = 0; i < h.rows; i++)
        frug_reducer_destroy(h.reducer[i]);
    frug_layout_destroy(h.layout);
    free(h.all);
    free(h.row);
    free(h.grad);
    free(h.weights);
    return status;
}

int fgp_bench_reduce(const fgp_reduce_run *run) {
    fgp_reduce_run own = *run;
    /* Gradients, weights, and a residual and two payloads for each of some algorithms; verifying needs two more. */
    double each = (GRADIENTS + 1 + 3 * 3) * sizeof(float) * (double)run->n;
    int local = fgt_group_is_joined() ? 1 : run->workers;
    int status = fgp_check_memory(local * each, "bench reduce",
                                  "every worker keeps a state of its own; give a "
                                  "smaller --n or fewer --workers");
    return status == FGIO_EXIT_OK ? fgt_group_run(run->workers, run_worker, &own) : status;
}
