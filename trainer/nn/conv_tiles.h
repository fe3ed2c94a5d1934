/*
 * conv_tiles.h - the kernels of direct convolution (kernels.h) for vectors of LANES floats, in the compiler's vector
 * types.
 *
 * A tile of pixels computes CHANNELS output channels x VECTORS vectors in registers: a tap loads VECTORS vectors of the
 * image and CHANNELS weights. UNROLL taps are in one iteration. A tile of weights sums ROWS output channels x
 * COLS weights of each, in lanes that are added at the end. Included by one file per variant, which defines these sizes
 * so that the sums and the operands of one step fill the registers, the type vec, and lane_sum().
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

static inline void add_vector(vec acc[ROWS][COLS], const float *const dy[ROWS], const float *const x[COLS], size_t at) {
#if COLS > ROWS
    vec a[ROWS];
    for (int i = 0; i < ROWS; i++)
        a[i] = load(dy[i] + at);
    for (int j = 0; j < COLS; j++) {
        vec b = load(x[j] + at);
        for (int i = 0; i < ROWS; i++)
            acc[i][j] += a[i] * b;
    }
#else
    vec b[COLS];
    for (int j = 0; j < COLS; j++)
        b[j] = load(x[j] + at);
    for (int i = 0; i < ROWS; i++) {
        vec a = load(dy[i] + at);
        for (int j = 0; j < COLS; j++)
            acc[i][j] += a * b[j];
    }
#endif
}

static void conv_weights(fgt_conv_weights *s) {
    vec acc[ROWS][COLS] = {{{0}}};
    for (size_t n = 0; n < s->images; n++)
        for (size_t y = 0; y < s->height; y++) {
            const float *from = s->x + n * s->x_image + y * s->x_pitch, *x[COLS];
            const float *grad = s->dy + n * s->dy_image + y * s->dy_pitch, *dy[ROWS];
            for (int j = 0; j < COLS; j++)
                x[j] = from + s->col[j];
            for (int i = 0; i < ROWS; i++)
                dy[i] = grad + s->row[i];
            for (size_t at = 0; at < s->width; at += LANES)
                add_vector(acc, dy, x, at);
        }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLS; j++)
            s->sums[i][j] = lane_sum(acc[i][j]);
}

#define CONV_KERNEL                                                                                                    \
    { LANES, CHANNELS, VECTORS, ROWS, COLS, CHANNELS_MAX, conv_pixels, conv_weights }
