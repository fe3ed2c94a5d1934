/*
 * bench_decode.c - times decoding.
 *
 * frug_decode_add() and frug_decode_apply() of P frames are compared with two dense vector additions of the same length
 * in the same round: what a dense exchange among three workers would add. frug_frame_check() and the checksum are
 * compared with a plain read of the same bytes. Results are compared element by element with the frames decoded one at
 * a time.
 */
#include "program/args/args.h"
#include "base/clock.h"
#include "program/bench/bench.h"
#include "program/bench/bench_check.h"
#include "io/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_MAX 16
#define SCALE      0.25f

typedef struct receiver {
    fgp_bench_worker worker;
    int count;
    void *frame[FRAMES_MAX];
    size_t len[FRAMES_MAX];
    float *sum;  /* n: of all frames, in their order */
    float *part; /* n: of one */
} receiver;

static void add(float *dst, const float *src, uint64_t n, int threads) {
    int64_t end = (int64_t)n;
    (void)threads;
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (int64_t i = 0; i < end; i++)
        dst[i] += src[i];
}

/* Consecutive steps of one worker replace one step of several workers. */
static int make_frames(receiver *r, fgp_bench *bench, int count) {
    for (r->count = 0; r->count < count; r->count++) {
        uint64_t step = (uint64_t)r->count;
        int status = fgp_worker_step(&r->worker, step, fgp_source_step(&bench->source, step));
        if (status != FGIO_EXIT_OK)
            return status;
        r->frame[r->count] = malloc(r->worker.len);
        if (!r->frame[r->count])
            return fgio_error("no memory for a frame of %zu bytes", r->worker.len);
        memcpy(r->frame[r->count], r->worker.frame, r->worker.len);
        r->len[r->count] = r->worker.len;
    }
    return FGIO_EXIT_OK;
}

static int sum_frames(receiver *r, uint64_t n) {
    for (int p = 0; p < r->count; p++) {
        const void *frame = r->frame[p];
        for (uint64_t i = 0; i < n; i++)
            r->part[i] = 0.0f;
        if (frug_decode_add(frug_compressor_decoder(r->worker.compressor), (frug_range){0, n}, &frame, &r->len[p], 1,
                            1.0f, r->part) != FRUG_OK)
            return fgio_library_error("cannot decode");
        for (uint64_t i = 0; i < n; i++)
            r->sum[i] = p == 0 ? r->part[i] : r->sum[i] + r->part[i];
    }
    return FGIO_EXIT_OK;
}

static int open_receiver(receiver *r, fgp_bench *bench, const fgp_case *which) {
    memset(r, 0, sizeof *r);
    r->sum = malloc((size_t)bench->n * sizeof(float));
    r->part = malloc((size_t)bench->n * sizeof(float));
    if (!r->sum || !r->part)
        return fgio_error("no memory for %llu elements", (unsigned long long)bench->n);
    int status = fgp_worker_open(&r->worker, which->config, bench->n, which->threads);
    if (status == FGIO_EXIT_OK)
        status = make_frames(r, bench, which->frames);
    return status == FGIO_EXIT_OK ? sum_frames(r, bench->n) : status;
}

static void close_receiver(receiver *r) {
    for (int p = 0; p < r->count; p++)
        free(r->frame[p]);
    free(r->sum);
    free(r->part);
    fgp_worker_close(&r->worker);
}

static int decode_frames(receiver *r, const fgp_case *which, uint64_t n, float *dst) {
    const void *const *frames = (const void *const *)r->frame;
    frug_compressor *c = r->worker.compressor;
    size_t count = (size_t)r->count;
    frug_status status =
        which->kind == FGP_CASE_APPLY
            ? frug_decode_apply(frug_compressor_decoder(c), (frug_range){0, n}, frames, r->len, count, SCALE,
                                which->decay, dst)
            : frug_decode_add(frug_compressor_decoder(c), (frug_range){0, n}, frames, r->len, count, SCALE, dst);
    return status == FRUG_OK ? FGIO_EXIT_OK : fgio_library_error("cannot decode");
}

/* r->part is the destination, base its previous contents. */
static int verify_sum(receiver *r, const fgp_case *which, const float *base, uint64_t n, fgp_row *row) {
    float sign = which->kind == FGP_CASE_APPLY ? -1.0f : 1.0f;
    memcpy(r->part, base, (size_t)n * sizeof(float));
    int status = decode_frames(r, which, n, r->part);
    for (uint64_t i = 0; i < n && status == FGIO_EXIT_OK && !row->why[0]; i++) {
        float step = sign * SCALE * r->sum[i], want = base[i] * (1.0f - which->decay) + step;
        /* The rounding of 1 - decay is not specified. */
        float slack = which->decay > 0 ? 1e-6f * (fabsf(base[i]) + fabsf(step)) : 0.0f;
        if (!(fabsf(r->part[i] - want) <= slack))
            snprintf(row->why, sizeof row->why, "element %llu is not the sum of the frames", (unsigned long long)i);
    }
    return status;
}

static int timed_round(receiver *r, fgp_bench *bench, const fgp_case *which, size_t round, fgp_row *row) {
    const float *grad = fgp_source_step(&bench->source, round);
    double start = frugi_clock();
    add(bench->stream, grad, bench->n, which->threads);
    add(bench->stream, grad, bench->n, which->threads);
    double added = frugi_clock();
    int status = decode_frames(r, which, bench->n, bench->stream);
    row->seconds[round] = frugi_clock() - added;
    row->limit_seconds[round] = (added - start) / 2;
    return status;
}

/* The columns that all cases of this file have in common. */
static int fill_frame_columns(const receiver *r, double n, fgp_row *row) {
    frug_section_info section = {.struct_size = sizeof section};
    if (frug_frame_section(r->frame[0], r->len[0], 0, &section) != FRUG_OK)
        return fgio_library_error("cannot describe a frame");
    row->block = section.block;
    row->k = section.density * section.block;
    row->frame_bytes = (double)r->len[0];
    row->bytes = 8 * n;
    for (int p = 0; p < r->count; p++)
        row->bytes += (double)r->len[p];
    row->limit_bytes = 12 * n;
    row->limit_count = 2;
    return FGIO_EXIT_OK;
}

int fgp_bench_decode(fgp_bench *bench, const fgp_case *which, fgp_row *row) {
    receiver r;
    int status = open_receiver(&r, bench, which);
    if (status == FGIO_EXIT_OK)
        status = verify_sum(&r, which, fgp_source_step(&bench->source, 0), bench->n, row);
    for (size_t round = 0; round < bench->rounds && status == FGIO_EXIT_OK; round++)
        status = timed_round(&r, bench, which, round, row);
    if (status == FGIO_EXIT_OK)
        status = fill_frame_columns(&r, (double)bench->n, row);
    close_receiver(&r);
    return status;
}

/* ---- checking a frame ------------------------------------------------------------ */

static volatile uint64_t sink; /* keeps the compiler from dropping the reads */

static double read_seconds(const unsigned char *bytes, size_t len) {
    double start = frugi_clock();
    uint64_t sum = 0, word;
    for (size_t i = 0; i + sizeof word <= len; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        sum += word;
    }
    sink = sum;
    return frugi_clock() - start;
}

static int check_seconds(receiver *r, fgp_bench *bench, const fgp_case *which, uint64_t step, double *seconds) {
    if (which->kind == FGP_CASE_CHECK) {
        frug_frame_info info = {.struct_size = sizeof info};
        double start = frugi_clock();
        if (frug_frame_check(r->frame[0], r->len[0], &info) != FRUG_OK)
            return fgio_library_error("cannot check a frame");
        *seconds = frugi_clock() - start;
        return FGIO_EXIT_OK;
    }
    frug_stats before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
    frug_compressor_stats(r->worker.compressor, &before);
    int status = fgp_worker_step(&r->worker, step, fgp_source_step(&bench->source, step));
    frug_compressor_stats(r->worker.compressor, &after);
    *seconds = after.seconds_checksum - before.seconds_checksum;
    return status;
}

/* One flipped bit anywhere must be detected. */
static void verify_corruption_found(receiver *r, fgp_row *row) {
    unsigned char *bytes = r->frame[0];
    frug_frame_info info = {.struct_size = sizeof info};
    for (size_t i = 0; i < 64 && !row->why[0]; i++) {
        size_t at = i * (r->len[0] - 1) / 63;
        bytes[at] ^= (unsigned char)(1u << i % 8);
        if (frug_frame_check(bytes, r->len[0], &info) == FRUG_OK)
            snprintf(row->why, sizeof row->why, "a flipped bit in byte %zu of a frame was not detected", at);
        bytes[at] ^= (unsigned char)(1u << i % 8);
    }
}

int fgp_bench_check(fgp_bench *bench, const fgp_case *which, fgp_row *row) {
    receiver r;
    int status = open_receiver(&r, bench, which);
    if (status == FGIO_EXIT_OK)
        verify_corruption_found(&r, row);
    for (size_t round = 0; round < bench->rounds && status == FGIO_EXIT_OK; round++) {
        row->limit_seconds[round] = read_seconds(r.frame[0], r.len[0]);
        status = check_seconds(&r, bench, which, round + 1, &row->seconds[round]);
    }
    if (status == FGIO_EXIT_OK)
        status = fill_frame_columns(&r, (double)bench->n, row);
    row->bytes = row->limit_bytes = row->frame_bytes;
    row->limit_count = 1;
    close_receiver(&r);
    return status;
}
