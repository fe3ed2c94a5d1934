/* block_topk_short_neon.c - the kernels for 64 and 128 elements with NEON. */
#include "select/block_topk_neon.h"

/* Keys of sixteen elements. */
INLINE uint8x16_t short_keys(uint16x8_t top, uint16x8_t a, uint16x8_t b) {
    a = vsubq_u16(top, a);
    b = vsubq_u16(top, b);
    uint8x16_t one = vqmovn_high_u16(vqmovn_u16(a), b);
    uint8x16_t many = vqshrn_high_n_u16(vqshrn_n_u16(a, STEPS_SHIFT), b, STEPS_SHIFT);
    return vmvnq_u8(vminq_u8(one, vqaddq_u8(many, vdupq_n_u8(STEPS_ONE))));
}

INLINE void accumulate_block(const frugi_batch *batch, size_t b, size_t block) {
    const float *grad = batch->grad + block * b, *before = batch->before + block * b;
    float *acc = batch->acc + block * b, *saved = batch->saved ? batch->saved + block * b : NULL;
    const float32x4_t beta = vdupq_n_f32(batch->beta);
    uint16x8x2_t half[8];
    uint16x8_t max = vdupq_n_u16(0);
#pragma GCC unroll 8
    for (size_t i = 0; i < block / 16; i++) {
        size_t o = 16 * i;
        half[i] = accumulate_16(grad + o, load_16(before + o), acc + o, saved ? saved + o : NULL, beta);
        max = vmaxq_u16(max, vmaxq_u16(half[i].val[0], half[i].val[1]));
    }
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++) /* the maximum ends up in all lanes, without leaving the vector registers */
        max = vpmaxq_u16(max, max);
    vst1q_lane_u16(&batch->lanes->top[b], max, 0);
#pragma GCC unroll 8
    for (size_t i = 0; i < block / 16; i++)
        vst1q_u8(batch->lanes->slot[b] + 16 * i, short_keys(max, half[i].val[0], half[i].val[1]));
}

#include "select/block_topk_short.h"

const frugi_block_kernel frugi_block_kernel_64_neon = {accumulate_64, NULL, select_64};
const frugi_block_kernel frugi_block_kernel_128_neon = {accumulate_128, NULL, select_128};
