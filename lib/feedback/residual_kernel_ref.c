/*
 * residual_kernel_ref.c - the loops of the residual formats with vectors of 16 bytes, and the choice between variants.
 */
#include "feedback/residual_kernel.h"

#include "base/float_bits.h"
#include "feedback/residual_format.h"

#define WEYL_FOUR (4u * FRUGI_WEYL)

/* The largest magnitude of a block; compilers unroll the loop over 64 elements. */
static uint32_t largest_magnitude(const float *src, uint32_t n) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i += 64) {
        uint32_t here = frugi_largest_magnitude(src + i, 64);
        most = here > most ? here : most;
    }
    return most;
}

/* Vectors of 16 bytes; auto-vectorization of the loops below is several times slower. */
typedef float four_f32 __attribute__((vector_size(16)));
typedef uint32_t four_u32 __attribute__((vector_size(16)));
typedef uint16_t eight_u16 __attribute__((vector_size(16)));
typedef unsigned char sixteen_u8 __attribute__((vector_size(16)));

static inline four_u32 load_four(const float *x) {
    four_u32 v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* Narrow 8 numbers to 16 bits, and 16 numbers to 8 bits. */
static inline eight_u16 lower_halves(four_u32 a, four_u32 b) {
    return __builtin_shufflevector((eight_u16)a, (eight_u16)b, 0, 2, 4, 6, 8, 10, 12, 14);
}

static inline sixteen_u8 lower_bytes(eight_u16 a, eight_u16 b) {
    return __builtin_shufflevector((sixteen_u8)a, (sixteen_u8)b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                                   30);
}

/* The random numbers of elements 0 .. 3; add WEYL_FOUR for those of the next four. */
static inline four_u32 first_random(uint32_t random) {
    four_u32 d = {random, random + FRUGI_WEYL, random + 2 * FRUGI_WEYL, random + 3 * FRUGI_WEYL};
    return d;
}

/*
 * x / scale as integers, with stochastic rounding. inverse is 32768 / scale, so that x * inverse is the quotient with
 * 15 fractional bits; adding 1.5 * 2^23 leaves it, rounded to an integer, in the low bits of the sum. The random
 * number is added to the fractional bits, which are then shifted out. The low byte of the result is 128 too large,
 * because of the number added.
 */
static inline four_u32 round_stochastic(const float *x, float inverse, four_u32 *random) {
    four_u32 sum = (four_u32)((four_f32)load_four(x) * inverse + FRUGI_ROUND_SHIFT) + (*random >> 17);
    *random += WEYL_FOUR;
    return sum >> 15;
}

static inline eight_u16 round_eight(const float *x, float inverse, four_u32 *random) {
    four_u32 a = round_stochastic(x, inverse, random), b = round_stochastic(x + 4, inverse, random);
    return lower_halves(a, b);
}

static void load_bf16(const unsigned char *data, uint32_t n, float *dst) {
    for (uint32_t i = 0; i < n; i += 16) {
        uint16_t h[16];
        memcpy(h, data + 2 * i, sizeof h);
        for (uint32_t j = 0; j < 16; j++)
            dst[i + j] = frugi_bf16_f32(h[j]);
    }
}

static inline four_u32 round_to_upper_half(const float *x, four_u32 *random) {
    four_u32 u = load_four(x), r = u + (*random >> 16);
    four_u32 overflow = (four_u32)((r & FRUGI_ABS_MASK) >= FRUGI_INF_BITS); /* truncate these instead */
    *random += WEYL_FOUR;
    return ((r & ~overflow) | (u & overflow)) >> 16;
}

static void save_bf16(unsigned char *data, uint32_t n, const float *src, uint32_t random) {
    four_u32 d = first_random(random);
    for (uint32_t i = 0; i < n; i += 8) {
        four_u32 a = round_to_upper_half(src + i, &d), b = round_to_upper_half(src + i + 4, &d);
        eight_u16 h = lower_halves(a, b);
        memcpy(data + 2 * i, &h, sizeof h);
    }
}

static void load_int8(const unsigned char *data, uint32_t n, float scale, float *dst) {
    for (uint32_t i = 0; i < n; i++)
        dst[i] = (float)(signed char)data[i] * scale;
}

static void save_int8(unsigned char *data, uint32_t n, const float *src, float inverse, uint32_t random) {
    four_u32 d = first_random(random);
    for (uint32_t i = 0; i < n; i += 16) {
        eight_u16 a = round_eight(src + i, inverse, &d), b = round_eight(src + i + 8, inverse, &d);
        sixteen_u8 q = lower_bytes(a, b) - 128;
        memcpy(data + i, &q, sizeof q);
    }
}

static void load_int4(const unsigned char *data, uint32_t n, float scale, float *dst) {
    for (uint32_t i = 0; i < n / 2; i++) {
        dst[2 * i] = (float)((int)(data[i] & 15u) - 8) * scale;
        dst[2 * i + 1] = (float)((int)(data[i] >> 4) - 8) * scale;
    }
}

static void save_int4(unsigned char *data, uint32_t n, const float *src, float inverse, uint32_t random) {
    four_u32 d = first_random(random);
    for (uint32_t i = 0; i < n; i += 16) {
        eight_u16 a = round_eight(src + i, inverse, &d), b = round_eight(src + i + 8, inverse, &d);
        sixteen_u8 q = lower_bytes(a, b) - 120; /* offset of 8 */
        /* Pack two adjacent bytes into the two halves of one byte. */
        eight_u16 pair = (eight_u16)q;
        eight_u16 both = (pair & 15u) | (pair >> 4);
        sixteen_u8 packed = lower_bytes(both, both);
        memcpy(data + i / 2, &packed, 8);
    }
}

const frugi_residual_kernel frugi_residual_kernel_ref = {largest_magnitude, load_bf16, load_int8, load_int4,
                                                         save_bf16,         save_int8, save_int4};

const frugi_residual_kernel *frugi_residual_kernel_for(frugi_isa isa) {
#if defined(__aarch64__)
    if (isa == FRUGI_ISA_NEON)
        return &frugi_residual_kernel_neon;
#elif defined(__x86_64__)
    if (isa == FRUGI_ISA_AVX512)
        return &frugi_residual_kernel_avx512;
    if (isa == FRUGI_ISA_AVX2)
        return &frugi_residual_kernel_avx2;
#endif
    (void)isa;
    return &frugi_residual_kernel_ref;
}
