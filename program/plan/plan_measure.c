/*
 * plan_measure.c - the inputs of a prediction: speeds of compressing and decoding, bytes of a frame, speed of a link.
 *
 * All are the best of some repetitions, since other load only adds time.
 */
#include "program/bench/bench.h"
#include "base/clock.h"
#include "program/plan/plan.h"
#include "io/error.h"
#include "trainer/run/worker_group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENTS ((uint64_t)1 << 20)
#define WARM     2u  /* warm-up steps, to fill the residual */
#define TRIES    12u /* some 10 ms: a thread may wait for a busy core for several milliseconds */
#define FRAMES   8u
#define MANY     0.5 /* density of a frame with many entries */

static double minimum(double a, double b) {
    return a < b ? a : b;
}

/* ---- compress and decode ------------------------------------------------------------- */

/* The canonical config with another density. */
static int set_density(const char *config, double density, char *text, size_t cap) {
    frug_config *parsed = NULL;
    if (frug_config_create(config, &parsed) != FRUG_OK)
        return fgio_config_error();
    if (density > 0) /* a block sends at least one entry, so low densities need long blocks */
        snprintf(text, cap, "%s,density=%.10g%s", frug_config_text(parsed), density,
                 density < FGP_PLAN_LONG_BLOCKS_BELOW ? ",block=4096" : "");
    else
        snprintf(text, cap, "%s", frug_config_text(parsed));
    frug_config_destroy(parsed);
    return FGIO_EXIT_OK;
}

static int time_compress(fgp_bench_worker *worker, const float *grad, double *seconds) {
    int status = FGIO_EXIT_OK;
    *seconds = 1e9;
    for (unsigned i = 0; i < WARM + TRIES && status == FGIO_EXIT_OK; i++) {
        double start = frugi_clock();
        status = fgp_worker_step(worker, i, grad);
        if (i >= WARM)
            *seconds = minimum(*seconds, frugi_clock() - start);
    }
    return status;
}

static int time_decode(fgp_bench_worker *worker, size_t frames, float *dst, double *seconds) {
    const void *frame[FRAMES];
    size_t len[FRAMES];
    *seconds = 1e9;
    for (size_t i = 0; i < frames; i++) {
        frame[i] = worker->frame;
        len[i] = worker->len;
    }
    for (unsigned i = 0; i <= TRIES; i++) {
        double start = frugi_clock();
        if (frug_decode_add(frug_compressor_decoder(worker->compressor), (frug_range){0, ELEMENTS}, frame, len, frames,
                            1.0f, dst) != FRUG_OK)
            return fgio_library_error("cannot decode");
        if (i > 0)
            *seconds = minimum(*seconds, frugi_clock() - start);
    }
    return FGIO_EXIT_OK;
}

/* Seconds per element for the pass, and for each frame with its entries. */
static int decode_speed(fgp_bench_worker *worker, float *dst, double *pass, double *frame) {
    double one, many, n = (double)ELEMENTS;
    int status;
    if ((status = time_decode(worker, 1, dst, &one)) || (status = time_decode(worker, FRAMES, dst, &many)))
        return status;
    *frame = many > one ? (many - one) / ((FRAMES - 1) * n) : 0;
    *pass = one / n - *frame;
    if (*pass < 0.05 * one / n)
        *pass = 0.05 * one / n; /* noise may make the difference negative */
    return FGIO_EXIT_OK;
}

static int measure(fgp_bench_worker *worker, const float *grad, float *dst, fgp_speed *speed) {
    frug_frame_info info = {.struct_size = sizeof info};
    double compress;
    int status;
    if ((status = time_compress(worker, grad, &compress)) ||
        (status = decode_speed(worker, dst, &speed->decode, &speed->decode_frame)))
        return status;
    if (frug_frame_check(worker->frame, worker->len, &info) != FRUG_OK || info.entries == 0)
        return fgio_error("plan: '%s' sends nothing of a gaussian gradient", speed->config);
    double n = (double)ELEMENTS;
    speed->density = minimum((double)info.entries / n, 1);
    speed->payload = (double)worker->len / n;
    speed->compress = compress / n;
    speed->decode_entry = 0;
    return FGIO_EXIT_OK;
}

/* Separate the cost per entry from the cost per element with a second frame that has many more entries, as sums have.
 */
static int measure_entries(const char *config, const float *grad, float *dst, fgp_speed *speed) {
    char text[sizeof speed->config];
    fgp_bench_worker worker = {0};
    double pass, frame = 0;
    int status = set_density(config, MANY, text, sizeof text);
    if (status == FGIO_EXIT_OK)
        status = fgp_worker_open(&worker, text, ELEMENTS, 0);
    if (status == FGIO_EXIT_OK)
        status = fgp_worker_step(&worker, 0, grad);
    if (status == FGIO_EXIT_OK)
        status = decode_speed(&worker, dst, &pass, &frame);
    fgp_worker_close(&worker);
    if (status == FGIO_EXIT_OK && frame > speed->decode_frame && speed->density < MANY / 2) {
        double most = speed->decode_frame / speed->density;
        speed->decode_entry = minimum(most, (frame - speed->decode_frame) / (MANY - speed->density));
        speed->decode_frame -= speed->decode_entry * speed->density;
    }
    /* Differences of times: noise may make them negative. */
    speed->decode = speed->decode > 0 ? speed->decode : 0;
    speed->decode_frame = speed->decode_frame > 0 ? speed->decode_frame : 0;
    return status;
}

double fgp_speed_decode(const fgp_speed *speed) {
    return speed->decode + speed->decode_frame + speed->density * speed->decode_entry;
}

/* Bytes of a frame with a multiple of the entries. */
static int measure_down(const char *config, double times, const float *grad, const fgp_speed *speed, double *bytes) {
    char text[sizeof speed->config];
    fgp_bench_worker worker = {0};
    int status = set_density(config, minimum(1, times * speed->density), text, sizeof text);
    if (status == FGIO_EXIT_OK)
        status = fgp_worker_open(&worker, text, ELEMENTS, 0);
    if (status == FGIO_EXIT_OK)
        status = fgp_worker_step(&worker, 0, grad);
    *bytes = (double)worker.len / (double)ELEMENTS;
    fgp_worker_close(&worker);
    return status;
}

int fgp_speed_measure(const char *config, double density, fgp_speed *speed) {
    fgp_bench_worker worker = {0};
    float *grad = malloc(ELEMENTS * sizeof(float)), *dst = calloc(ELEMENTS, sizeof(float));
    int status = grad && dst ? set_density(config, density, speed->config, sizeof speed->config)
                             : fgio_error("no memory for %llu elements", (unsigned long long)ELEMENTS);
    if (status == FGIO_EXIT_OK) {
        fgp_generate_gradient(FGP_DIST_GAUSSIAN, 1, ELEMENTS, grad);
        status = fgp_worker_open(&worker, speed->config, ELEMENTS, 0);
    }
    if (status == FGIO_EXIT_OK)
        status = measure(&worker, grad, dst, speed);
    fgp_worker_close(&worker);
    if (status == FGIO_EXIT_OK && density > 0)
        status = measure_entries(config, grad, dst, speed);
    if (status == FGIO_EXIT_OK && density > 0) {
        if ((status = measure_down(config, 2, grad, speed, &speed->down_two)) == FGIO_EXIT_OK)
            status = measure_down(config, 4, grad, speed, &speed->down_four);
    } else { /* the density of this config cannot be changed */
        speed->down_two = 2 * speed->payload;
        speed->down_four = 4 * speed->payload;
    }
    free(grad);
    free(dst);
    return status;
}

/* ---- the link ---------------------------------------------------------------------------- */

#define SMALL       ((uint64_t)1 << 8) /* elements of a message */
#define LARGE       ((uint64_t)1 << 17)
#define REPETITIONS 4u /* messages of each size; the first large one allocates buffers */

static frug_status exchange_once(frug_reducer *r, uint64_t step, uint64_t count, const float *grad, float *dst,
                                 double *seconds) {
    frug_reduce_stats before = {.struct_size = sizeof before}, after = before;
    frug_status status = frug_reducer_stats(r, &before);
    if (status == FRUG_OK)
        status = frug_reducer_add(r, step, (frug_range){0, count}, grad, 1.0f, dst);
    if (status == FRUG_OK)
        status = frug_reducer_stats(r, &after);
    *seconds = minimum(*seconds, after.seconds_wire - before.seconds_wire);
    return status;
}

static frug_status measure_exchanges(frug_reducer *r, int others, const float *grad, float *dst, double *latency,
                                     double *bandwidth) {
    double small = 1e9, large = 1e9;
    frug_status status = FRUG_OK;
    for (uint64_t i = 0; i < 2 * REPETITIONS && status == FRUG_OK; i++)
        status = exchange_once(r, i, i % 2 ? LARGE : SMALL, grad, dst, i % 2 ? &large : &small);
    double bytes = sizeof(float) * (double)others, slope = (large - small) / ((double)(LARGE - SMALL) * bytes);
    if (!(slope > 0)) /* noise: use the large message for bandwidth alone */
        slope = large / ((double)LARGE * bytes);
    double rest = small - (double)SMALL * bytes * slope;
    *latency = rest > 0 ? rest : 0;
    *bandwidth = 1 / slope;
    return status;
}

frug_status fgp_link_measure(frug_comm *comm, double *latency, double *bandwidth) {
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    frug_reducer *r = NULL;
    float *both = calloc(2 * LARGE, sizeof(float));
    frug_status status = both ? frug_config_create("dense,reduce=gather", &config) : FRUG_ERR_MEMORY;
    options.threads = 1;
    if (status == FRUG_OK)
        status = frug_layout_flat(LARGE, &layout);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, layout, &options, comm, &r);
    if (status == FRUG_OK)
        status = measure_exchanges(r, frug_comm_size(comm) - 1, both, both + LARGE, latency, bandwidth);
    frug_reducer_destroy(r);
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    free(both);
    return status;
}

typedef struct link {
    double latency, bandwidth;
} link;

/* All workers measure; the results of rank 0 are used. */
static int measure_worker(frug_comm *comm, void *shared) {
    link mine = {0};
    if (fgp_link_measure(comm, &mine.latency, &mine.bandwidth) != FRUG_OK)
        return fgio_error("plan: --measure: %s", frug_last_error());
    if (frug_comm_rank(comm) == 0 || fgt_group_is_joined())
        *(link *)shared = mine;
    return FGIO_EXIT_OK;
}

int fgp_link_measure_team(int workers, double *latency, double *bandwidth) {
    link found = {0};
    int code = fgt_group_run(workers, measure_worker, &found);
    *latency = found.latency;
    *bandwidth = found.bandwidth;
    return code;
}
