/*
 * bench_stream.c - passes that move the bytes a compression must move, and compute next to nothing: the limits.
 *
 * A pass with a stored residual adds the upper bits of the gradient to it, without regard to meaning: what counts is
 * that all bytes are read and the residual is written.
 */
#include "base/float_bits.h"
#include "program/bench/bench.h"

void fgp_stream_pass(float *dst, float beta, const float *src, uint64_t n, int threads) {
    int64_t end = (int64_t)n;
    (void)threads;
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (int64_t i = 0; i < end; i++)
        dst[i] = beta * dst[i] + src[i];
}

static void stream_bf16(uint16_t *dst, const float *src, int64_t n, int threads) {
    (void)threads;
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (int64_t i = 0; i < n; i++)
        dst[i] = (uint16_t)(dst[i] + (frugi_f32_bits(src[i]) >> 16));
}

static void stream_int8(uint8_t *dst, const float *src, int64_t n, int threads) {
    (void)threads;
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (int64_t i = 0; i < n; i++)
        dst[i] = (uint8_t)(dst[i] + (frugi_f32_bits(src[i]) >> 24));
}

/* A pair of elements has one byte. */
static void stream_int4(uint8_t *dst, const float *src, int64_t pairs, int threads) {
    (void)threads;
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (int64_t i = 0; i < pairs; i++)
        dst[i] = (uint8_t)(dst[i] + (frugi_f32_bits(src[2 * i]) >> 28) + (frugi_f32_bits(src[2 * i + 1]) >> 28 << 4));
}

void fgp_stream_stored_pass(void *dst, fgp_store store, const float *src, uint64_t n, int threads) {
    switch (store) {
    case FGP_STORE_INT8: stream_int8(dst, src, (int64_t)n, threads); break;
    case FGP_STORE_INT4: stream_int4(dst, src, (int64_t)(n / 2), threads); break;
    case FGP_STORE_BF16: stream_bf16(dst, src, (int64_t)n, threads); break;
    case FGP_STORE_F32: fgp_stream_pass(dst, 0.95f, src, n, threads); break;
    }
}
