/*
 * unit_value_loops.h - the loops of unit_value_kernel.h in vectors of any width; the body of their variants.
 *
 * The sums of a pass are eight doubles: enough to hide the latency of an addition, and in the same order on every
 * machine. Fields are computed as a byte each, a few hundred at a time so that they stay in the L1 cache, and then
 * packed. The last step of a value group works on a copy padded with zeros. The encoder computes the rounding error
 * with the function of the decoder, so the two cannot disagree.
 *
 * The including file defines
 *   VECTOR   bytes of a vector: 16, 32 or 64
 *   load_wide(const float *x)   a vector of doubles from floats
 *   narrow_step(const lanes_u32 *q, uint8_t *out)   narrow sixteen numbers below 256 to bytes
 */
#include "codec/unit_value_kernel.h"

#include "codec/bit_pack.h"
#include "codec/unit_value_lanes.h"

#define CHUNK   512u
#define STEP    16u /* values that are encoded together */
#define VECTORS (STEP / LANES)
#define WEYL    0x9e3779b9u /* 2^32 over the golden ratio */
#define EIGHT   8u          /* values that are added to the sums together */
#define WIDE    (VECTOR / 8u)
#define SUMS    (EIGHT / WIDE)

typedef double wide_f64 __attribute__((vector_size(VECTOR)));
typedef int64_t wide_s64 __attribute__((vector_size(VECTOR)));

/** Eight sums in several vectors. */
typedef struct eight_sums {
    wide_f64 part[SUMS];
} eight_sums;

static ALWAYS_INLINE wide_f64 load_wide(const float *x);
static ALWAYS_INLINE void narrow_step(const lanes_u32 *q, uint8_t *out);

/* ---- sums -------------------------------------------------------------------------------------- */

static ALWAYS_INLINE wide_f64 magnitudes(wide_f64 x) {
    return (wide_f64)((wide_s64)x & INT64_MAX);
}

/* By value: with its address taken, gcc would store the sums in every round. */
static ALWAYS_INLINE double add_sums(eight_sums sum) {
    double lane[EIGHT], all = 0;
    memcpy(lane, &sum, sizeof lane);
    for (uint32_t i = 0; i < EIGHT; i++)
        all += lane[i];
    return all;
}

static ALWAYS_INLINE void add_eight(const float *v, int square, eight_sums *sum) {
#pragma GCC unroll 4
    for (uint32_t j = 0; j < SUMS; j++) {
        wide_f64 x = load_wide(v + j * WIDE);
        sum->part[j] += square ? x * x : magnitudes(x);
    }
}

static ALWAYS_INLINE double sum_all(const float *v, uint64_t n, int square) {
    eight_sums sum = {0};
    uint64_t i = 0;
    for (; i + EIGHT <= n; i += EIGHT)
        add_eight(v + i, square, &sum);
    if (i < n) {
        float rest[EIGHT] = {0};
        memcpy(rest, v + i, (n - i) * sizeof *v);
        add_eight(rest, square, &sum);
    }
    return add_sums(sum);
}

static double sum_magnitudes(const float *v, uint64_t n) {
    return sum_all(v, n, 0);
}

static double sum_squares(const float *v, uint64_t n) {
    return sum_all(v, n, 1);
}

/* Add eight values, or their magnitudes, to one sum or the other. */
static ALWAYS_INLINE void split_eight(const float *v, int absolute, double limit, eight_sums *yes, eight_sums *no,
                                      wide_s64 *count) {
#pragma GCC unroll 4
    for (uint32_t j = 0; j < SUMS; j++) {
        wide_f64 x = load_wide(v + j * WIDE);
        x = absolute ? magnitudes(x) : x;
        wide_s64 below = x < limit;
        yes->part[j] += (wide_f64)((wide_s64)x & below);
        no->part[j] += (wide_f64)((wide_s64)x & ~below);
        count[j] -= below;
    }
}

static ALWAYS_INLINE frugi_split_sum split_all(const float *v, uint64_t n, int absolute, double limit) {
    eight_sums yes = {0}, no = {0};
    wide_s64 count[SUMS] = {0};
    uint64_t i = 0, all = 0, lane[EIGHT];
    for (; i + EIGHT <= n; i += EIGHT)
        split_eight(v + i, absolute, limit, &yes, &no, count);
    if (i < n) {
        float rest[EIGHT] = {0};
        memcpy(rest, v + i, (n - i) * sizeof *v);
        split_eight(rest, absolute, limit, &yes, &no, count);
        all -= 0.0 < limit ? EIGHT - (n - i) : 0; /* the zeros after the last value were counted */
    }
    memcpy(lane, count, sizeof lane);
    for (i = 0; i < EIGHT; i++)
        all += lane[i];
    return (frugi_split_sum){add_sums(yes), add_sums(no), all};
}

static frugi_split_sum split_by_sign(const float *v, uint64_t n) {
    return split_all(v, n, 0, 0.0);
}

static frugi_split_sum split_by_size(const float *v, uint64_t n, float least) {
    return split_all(v, n, 1, (double)least);
}

/* ---- fields ------------------------------------------------------------------------------------ */

/* Encode sixteen values; random: the random numbers of the first vector. */
static ALWAYS_INLINE void encode_step(quantize_fn quantize, dequantize_fn dequantize, const frugi_value_group_scale *s,
                                      float *v, lanes_u32 random, int error, uint8_t *field) {
    lanes_u32 q[VECTORS];
#pragma GCC unroll 4
    for (uint32_t j = 0; j < VECTORS; j++, random += LANES * WEYL) {
        lanes_f32 x = load_lanes(v + LANES * j);
        q[j] = quantize(s, x, random);
        if (error)
            store_lanes(v + LANES * j, x - dequantize(s, q[j]));
    }
    narrow_step(q, field);
}

/* Encode at most CHUNK values; the fields after the last are zero. */
static ALWAYS_INLINE void encode_chunk(quantize_fn quantize, dequantize_fn dequantize,
                                       const frugi_value_group_scale *scale, float *v, uint32_t n, uint32_t random,
                                       int error, uint8_t *field) {
    const frugi_value_group_scale s = *scale; /* a local copy, which stores cannot alias */
    lanes_u32 numbers;
    uint32_t i = 0;
    for (uint32_t l = 0; l < LANES; l++)
        numbers[l] = random + l * WEYL;
    for (; i + STEP <= n; i += STEP, numbers += STEP * WEYL)
        encode_step(quantize, dequantize, &s, v + i, numbers, error, field + i);
    if (i < n) {
        float rest[STEP] = {0};
        memcpy(rest, v + i, (n - i) * sizeof *v);
        encode_step(quantize, dequantize, &s, rest, numbers, error, field + i);
        if (error)
            memcpy(v + i, rest, (n - i) * sizeof *v);
        memset(field + n, 0, i + STEP - n);
    }
}

static ALWAYS_INLINE void encode_fields(const frugi_value_group_scale *s, float *v, uint32_t n, uint32_t random,
                                        int error, uint8_t *field) {
    switch (s->code) {
    case FRUGI_VALUE_INT4: encode_chunk(quantize_int4, dequantize_int4, s, v, n, random, error, field); break;
    case FRUGI_VALUE_SIGN: encode_chunk(quantize_sign, dequantize_sign, s, v, n, random, error, field); break;
    case FRUGI_VALUE_TWO_BIT: encode_chunk(quantize_two_bit, dequantize_two_bit, s, v, n, random, error, field); break;
    case FRUGI_VALUE_QSGD: encode_chunk(quantize_qsgd, dequantize_qsgd, s, v, n, random, error, field); break;
    default: encode_chunk(quantize_onebit, dequantize_onebit, s, v, n, random, error, field); break;
    }
}

static void quantize(const frugi_value_group_scale *s, float *v, uint64_t n, int error, unsigned char *out) {
    uint8_t field[CHUNK];
    uint64_t room = frugi_packed_bytes(n, s->width);
    for (uint64_t i = 0; i < n; i += CHUNK) {
        uint32_t k = (uint32_t)(n - i < CHUNK ? n - i : CHUNK), random = s->random + (uint32_t)i * WEYL;
        if (error)
            encode_fields(s, v + i, k, random, 1, field);
        else
            encode_fields(s, v + i, k, random, 0, field);
        uint64_t at = frugi_packed_bytes(i, s->width);
        frugi_pack(field, k, s->width, out + at, room - at);
    }
}
