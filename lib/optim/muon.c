/*
 * muon.c - update rules of muon and muon-merged: matrices move by their orthogonalized momentum (Jordan et al., 2024).
 *
 * With m = momentum m + g and x = g + momentum m (Nesterov), w = decay w - rate 0.2 sqrt(longer side) ortho(x). The
 * factor makes the root mean square of a step that of AdamW's, about 0.2 (Liu et al., 2025). muon-merged leaves the
 * momentum to the compressor's residual: x = g, and no state. With a momentum of its own it stores m in one of the
 * formats of option `state`, rounded stochastically, like the roots of adam-merged and for the same reason: rounded to
 * nearest, small numbers would not decay.
 */
#include "optim/target.h"

#include "base/float_bits.h"
#include "base/philox.h"
#include "optim/newton_schulz.h"

#include <math.h>

#define SCALE          0.2
#define SEED           0x6d756f6eu
#define WEYL           0x9e3779b9u /* derives the random numbers of a block's elements from one */
#define LEVELS         126.0f      /* one less than the largest code: stochastic rounding may add one */
#define SMALLEST_SCALE 0x0880u     /* 2^-110: 32768 over it is finite */
#define LARGEST_SCALE  0x5b80u     /* 2^56 */
#define LARGEST        0x5f80u     /* 2^64, the upper half of its bits */

static unsigned char *codes_at(const frug_optimizer *o, uint64_t block) {
    return o->targets->code + block * FRUGI_OPTIM_BLOCK * frugi_state_bytes(o->options.state);
}

static void load_momentum(const frug_optimizer *o, uint64_t block, float *m) {
    const unsigned char *at = codes_at(o, block);
    if (o->options.state == FRUGI_STATE_F32) {
        memcpy(m, at, FRUGI_OPTIM_BLOCK * sizeof *m);
    } else if (o->options.state == FRUGI_STATE_BF16) {
        const uint16_t *half = (const uint16_t *)(const void *)at;
        for (uint32_t i = 0; i < FRUGI_OPTIM_BLOCK; i++)
            m[i] = frugi_bf16_f32(half[i]);
    } else {
        const float scale = frugi_bf16_f32(o->targets->code_scale[block]);
        for (uint32_t i = 0; i < FRUGI_OPTIM_BLOCK; i++)
            m[i] = (float)(int8_t)at[i] * scale;
    }
}

/* m / scale + 128 in fixed point with 15 fractional bits, plus a random fraction, truncated. */
static void save_int8(unsigned char *code, const float *m, float inverse, uint32_t random) {
    for (uint32_t i = 0; i < FRUGI_OPTIM_BLOCK; i++) {
        uint32_t fixed = (uint32_t)(int32_t)(m[i] * inverse + 4194304.0f);
        code[i] = (unsigned char)(((fixed + ((random + i * WEYL) >> 17)) >> 15) - 128u);
    }
}

static void save_momentum(const frug_optimizer *o, uint64_t block, const float *m, uint32_t random) {
    unsigned char *at = codes_at(o, block);
    if (o->options.state == FRUGI_STATE_F32) {
        memcpy(at, m, FRUGI_OPTIM_BLOCK * sizeof *m);
        return;
    }
    if (o->options.state == FRUGI_STATE_BF16) {
        uint16_t *half = (uint16_t *)(void *)at;
        for (uint32_t i = 0; i < FRUGI_OPTIM_BLOCK; i++)
            half[i] = (uint16_t)((frugi_f32_bits(m[i]) + ((random + i * WEYL) >> 16)) >> 16);
        return;
    }
    float largest = frugi_bits_f32(frugi_largest_magnitude(m, FRUGI_OPTIM_BLOCK));
    uint16_t scale = frugi_f32_bf16_up(largest / LEVELS);
    if (largest > 0 && scale < SMALLEST_SCALE)
        scale = SMALLEST_SCALE;
    if (scale > LARGEST_SCALE) /* only a restored state can be that large; 127 times this scale still holds it */
        scale = LARGEST_SCALE;
    o->targets->code_scale[block] = scale;
    save_int8(at, m, scale ? 32768.0f / frugi_bf16_f32(scale) : 0, random);
}

/* m = momentum m + g, and x = g + momentum m. */
static const float *add_momentum(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t,
                                 const float *g) {
    const uint64_t n = (uint64_t)t->side.rows * t->side.cols;
    const float momentum = args->momentum;
    float *x = o->targets->work.moved;
    uint64_t block = t->code_at, number = t->first_number;
    for (uint64_t at = 0; at < n; at += FRUGI_OPTIM_BLOCK, block++, number++) {
        uint32_t here = n - at < FRUGI_OPTIM_BLOCK ? (uint32_t)(n - at) : FRUGI_OPTIM_BLOCK;
        float m[FRUGI_OPTIM_BLOCK];
        load_momentum(o, block, m);
        for (uint32_t i = 0; i < here; i++) {
            m[i] = momentum * m[i] + g[at + i];
            x[at + i] = g[at + i] + momentum * m[i];
        }
        save_momentum(o, block, m, frugi_random(SEED, args->step, number));
    }
    return x;
}

bool frugi_step_muon(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t, const float *g,
                     float *w, float decay_factor) {
    const int threads = (int)o->options.threads;
    const float *x = o->options.momentum > 0 ? add_momentum(o, args, t, g) : g;
    const float *q = frugi_orthogonalizer(&t->side, x, o->targets->work.square_matrices, threads);
    frugi_phase_end(o->targets, FRUGI_PHASE_PROJECT);
    const float rate = (float)(SCALE * sqrt((double)t->side.longer)) * args->rate;
    if (q)
        frugi_add_orthogonalized(&t->side, q, x, decay_factor, -rate, w, threads);
    return q != NULL;
}

bool frugi_momentum_is_valid(const frug_optimizer *like, const unsigned char *code, const unsigned char *scale) {
    const uint64_t blocks = like->targets->codes, n = blocks * FRUGI_OPTIM_BLOCK;
    uint32_t bad = 0;
    if (like->options.state == FRUGI_STATE_INT8)
        for (uint64_t b = 0; b < blocks; b++)
            bad |= frugi_get16(scale + 2 * b) > LARGEST_SCALE;
    else if (like->options.state == FRUGI_STATE_BF16)
        for (uint64_t i = 0; i < n; i++)
            bad |= (frugi_get16(code + 2 * i) & 0x7fffu) >= LARGEST;
    else
        for (uint64_t i = 0; i < n; i++)
            bad |= (frugi_get32(code + 4 * i) & FRUGI_ABS_MASK) >= (uint32_t)LARGEST << 16;
    return !bad;
}
