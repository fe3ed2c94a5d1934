/*
 * conv_tiles.h - the kernels of direct convolution (kernels.h) for vectors of LANES floats, in the compiler's vector
 * types.
 *
 * A tile of pixels computes CHANNELS output channels x VECTORS vectors in registers: a tap loads VECTORS vectors of the
 * image and CHANNELS weights. UNROLL taps are in one iteration. Included by one file per variant, which defines these
 * sizes so that the sums and the operands of one step fill the registers, and the type vec.
 */
#include "trainer/nn/kernels.h"

enum { TAPS_UNROLLED = UNROLL }; /* a pragma does not expand macros */

/* acc += x * weight for one tap. NEON multiplies by a lane of a vector, others by a vector of equal lanes. */
static inline __attribute__((always_inline)) void add_tap(vec acc[CHANNELS][VECTORS], const vec x[VECTORS],
                                                          const float *w, const uint32_t vectors) {
#if defined(__aarch64__)
    vec weights[CHANNELS / LANES];
    for (int i = 0; i < CHANNELS / LANES; i++)
        weights[i] = load(w + i * LANES);
    for (uint32_t j = 0; j < vectors; j++)
        for (int i = 0; i < CHANNELS; i++)
            acc[i][j] += x[j] * weights[i / LANES][i % LANES];
#else
    for (int i = 0; i < CHANNELS; i++)
        for (uint32_t j = 0; j < vectors; j++)
            acc[i][j] += x[j] * w[i];
#endif
}

static inline __attribute__((always_inline)) void pixel_tile(const fgt_conv_pixels *s, const uint32_t vectors) {
    vec acc[CHANNELS][VECTORS] = {{{0}}}, x[VECTORS];
    const float *w = s->w, *from[VECTORS];
    for (uint32_t j = 0; j < vectors; j++)
        from[j] = s->x[j];
    for (uint32_t i = 0; i < s->out; i++) /* the results go to memory that is not in the cache */
        for (uint32_t j = 0; j < vectors; j++)
            __builtin_prefetch(s->y[j] + i * s->y_plane, 1);
    for (uint32_t c = 0; c < s->in; c++) {
#pragma GCC unroll TAPS_UNROLLED
        for (const size_t *tap = s->tap, *end = tap + s->taps; tap < end; tap++, w += CHANNELS) {
            for (uint32_t j = 0; j < vectors; j++)
                x[j] = load((const float *)((const char *)from[j] + *tap));
            add_tap(acc, x, w, vectors);
        }
        for (uint32_t j = 0; j < vectors; j++)
            from[j] += s->plane;
    }
    for (uint32_t i = 0; i < CHANNELS && i < s->out; i++)
        for (uint32_t j = 0; j < vectors; j++) {
            float *y = s->y[j] + i * s->y_plane;
            store(y, s->add ? load(y) + acc[i][j] : acc[i][j]);
        }
}

static void conv_pixels(const fgt_conv_pixels *s) {
    switch (s->vectors) {
    case 1: pixel_tile(s, 1); break;
    case 2: pixel_tile(s, 2); break;
#if VECTORS == 6
    case 3: pixel_tile(s, 3); break;
    case 4: pixel_tile(s, 4); break;
    case 5: pixel_tile(s, 5); break;
#endif
    default: pixel_tile(s, VECTORS);
    }
}

/* Lanes of a and b in turn: of their first halves, and of their second. */
#define FIRST(j)  ((j) % 2 * LANES + (j) / 2)
#define SECOND(j) (FIRST(j) + LANES / 2)
#if LANES == 4
#define EACH_LANE(f) f(0), f(1), f(2), f(3)
#elif LANES == 8
#define EACH_LANE(f) f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)
#else
#define EACH_LANE(f)                                                                                                   \
    f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)
#endif

/* The numbers of `rows` vectors, lane by lane. Each step moves the highest bit of their position below the lowest. */
static inline __attribute__((always_inline)) void interleave(vec *a, const uint32_t rows) {
    vec b[LANES];
    for (uint32_t step = rows; step > 1; step /= 2) {
        for (uint32_t i = 0; i < rows / 2; i++) {
            b[2 * i] = __builtin_shufflevector(a[i], a[i + rows / 2], EACH_LANE(FIRST));
            b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + rows / 2], EACH_LANE(SECOND));
        }
        for (uint32_t i = 0; i < rows; i++)
            a[i] = b[i];
    }
}

static void conv_pack(const float *from, size_t plane, size_t rows, float *to) {
    vec a[CHANNELS];
    for (uint32_t i = 0; i < CHANNELS; i++)
        a[i] = load(from + (i < rows ? i : rows - 1) * plane);
    interleave(a, CHANNELS);
    for (uint32_t i = 0; i < CHANNELS; i++)
        store(to + i * LANES, a[i]);
}

static void conv_transpose(const float *from, size_t plane, float *const *to) {
    vec a[LANES];
    for (uint32_t i = 0; i < LANES; i++)
        a[i] = load(from + i * plane);
    interleave(a, LANES);
    for (uint32_t i = 0; i < LANES; i++)
        store(to[i], a[i]);
}

#define CONV_KERNEL                                                                                                    \
    { LANES, CHANNELS, VECTORS, CHANNELS_MAX, FRAME_MAX, conv_pixels, conv_pack, conv_transpose }
