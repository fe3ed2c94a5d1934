/*
 * adam_merged.c - update rule of adam-merged: no mean of the gradient, which is in the compressor's residual, and the
 * root of the mean square in 4, 2 or about 1 byte.
 *
 * The mean square decays everywhere, also where no entry arrived: found to be clearly better than decay at arrivals
 * only. The root is stored instead of the square, because it spans half the orders of magnitude. int8 is 0 to 255 times
 * the block's scale, a 254th of its largest root rounded up to bf16. Roots are rounded stochastically, like residuals:
 * rounded to nearest, or up, a root would not change any more as soon as its decay per step is less than one code; with
 * beta2 = 0.95 that is everything below a seventh of the largest. An element that ever had a gradient has a root above
 * 0, so that a tiny denominator never makes a huge step.
 */
#include "optim/optimizer.h"

#include "base/float_bits.h"
#include "base/philox.h"

#include <math.h>

#define WEYL           0x9e3779b9u /* 2^32 / golden ratio: derives the random numbers of a block's elements from one */
#define SEED           0x726f6f74u
#define LEVELS         254.0f  /* one less than a byte holds: stochastic rounding may add one */
#define SMALLEST_SCALE 0x0880u /* 2^-110: 32768 over it is finite */
#define LARGEST_SCALE  0x5b80u /* 2^56: 255 times it, squared, is finite */
#define LARGEST_ROOT   0x5f80u /* 2^64, the upper half of its bits: its square is finite, too */

static unsigned char *roots_at(const frug_optimizer *o, uint64_t block) {
    return o->root + block * FRUGI_OPTIM_BLOCK * frugi_state_bytes(o->options.state);
}

void frugi_roots_load(const frug_optimizer *o, uint64_t block, float *root) {
    const unsigned char *at = roots_at(o, block);
    if (o->options.state == FRUGI_STATE_F32) {
        memcpy(root, at, FRUGI_OPTIM_BLOCK * sizeof *root);
    } else if (o->options.state == FRUGI_STATE_BF16) {
        const uint16_t *half = (const uint16_t *)(const void *)at;
        for (uint32_t i = 0; i < FRUGI_OPTIM_BLOCK; i++)
            root[i] = frugi_bf16_f32(half[i]);
    } else {
        const float scale = frugi_bf16_f32(o->scale[block]);
        for (uint32_t i = 0; i < FRUGI_OPTIM_BLOCK; i++)
            root[i] = (float)at[i] * scale;
    }
}

/* q, or 1 if it is 0 and the root is not. Without a branch, so that gcc vectorizes the loop. */
static inline uint32_t above_zero(uint32_t q, uint32_t root_bits) {
    uint32_t touched = (root_bits + 0x7fffffffu) >> 31, none = (q - 1u) >> 31;
    return q + (touched & none);
}

static void save_bf16(uint16_t *half, const float *root, uint32_t random) {
    for (uint32_t i = 0; i < FRUGI_OPTIM_BLOCK; i++) {
        uint32_t bits = frugi_f32_bits(root[i]);
        half[i] = (uint16_t)above_zero((bits + ((random + i * WEYL) >> 16)) >> 16, bits);
    }
}

/*
 * root / scale in fixed point with 15 fractional bits, in the low bits of a float to which 2^23 was added; plus a
 * random fraction, truncated.
 */
static void save_int8(uint8_t *code, const float *root, float inverse, uint32_t random) {
    for (uint32_t i = 0; i < FRUGI_OPTIM_BLOCK; i++) {
        uint32_t fixed = frugi_f32_bits(root[i] * inverse + 8388608.0f) & 0x7fffffu;
        code[i] = (uint8_t)above_zero((fixed + ((random + i * WEYL) >> 17)) >> 15, frugi_f32_bits(root[i]));
    }
}

void frugi_roots_save(frug_optimizer *o, uint64_t block, const float *root, uint32_t random) {
    unsigned char *at = roots_at(o, block);
    if (o->options.state == FRUGI_STATE_F32) {
        memcpy(at, root, FRUGI_OPTIM_BLOCK * sizeof *root);
        return;
    }
    if (o->options.state == FRUGI_STATE_BF16) {
        save_bf16((uint16_t *)(void *)at, root, random);
        return;
    }
    float largest = frugi_bits_f32(frugi_largest_magnitude(root, FRUGI_OPTIM_BLOCK));
    uint16_t scale = frugi_f32_bf16_up(largest / LEVELS);
    if (largest > 0 && scale < SMALLEST_SCALE)
        scale = SMALLEST_SCALE;
    if (scale > LARGEST_SCALE) /* only a restored state can be that large; 255 times this scale still holds it */
        scale = LARGEST_SCALE;
    o->scale[block] = scale;
    save_int8(at, root, scale ? 32768.0f / frugi_bf16_f32(scale) : 0, random);
}

void frugi_step_root(frug_optimizer *o, const frugi_step_args *args, uint64_t block, uint64_t number, float *restrict w,
                     const float *restrict g, uint32_t n, float decay_factor) {
    const float beta2 = args->beta2, one_minus_beta2 = args->one_minus_beta2;
    const float rate = args->merged, root_gain = args->root_gain, eps = args->eps;
    float root[FRUGI_OPTIM_BLOCK], corrected[FRUGI_OPTIM_BLOCK];
    const float *mean = g;
    if (o->inertia.velocity) {
        frugi_step_mean(args, o->inertia.velocity + block * FRUGI_OPTIM_BLOCK, g, n, corrected);
        mean = corrected;
    }
    frugi_roots_load(o, block, root);
    for (uint32_t i = 0; i < n; i++) {
        root[i] = sqrtf(beta2 * (root[i] * root[i]) + one_minus_beta2 * (g[i] * g[i]));
        w[i] = w[i] * decay_factor - rate * (mean[i] / (root[i] * root_gain + eps));
    }
    if (!args->squares_frozen)
        frugi_roots_save(o, block, root, frugi_random(SEED, args->step, number));
}

bool frugi_roots_are_valid(const frug_optimizer *like, const unsigned char *root, const unsigned char *scale) {
    uint64_t blocks = like->used[FRUGI_UPDATE_ROOT], n = blocks * FRUGI_OPTIM_BLOCK;
    uint32_t bad = 0;
    if (like->options.state == FRUGI_STATE_INT8)
        for (uint64_t b = 0; b < blocks; b++)
            bad |= frugi_get16(scale + 2 * b) > LARGEST_SCALE;
    else if (like->options.state == FRUGI_STATE_BF16)
        for (uint64_t i = 0; i < n; i++)
            bad |= frugi_get16(root + 2 * i) >= LARGEST_ROOT;
    else
        for (uint64_t i = 0; i < n; i++)
            bad |= frugi_get32(root + 4 * i) >= (uint32_t)LARGEST_ROOT << 16;
    return !bad;
}
