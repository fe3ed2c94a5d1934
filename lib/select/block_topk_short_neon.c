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

INLINE void accumulate_format(const frugi_batch *batch, size_t b, size_t block, frugi_residual format) {
    const float *grad = batch->grad + block * b;
    const residual_block residual = residual_of(batch, b, format);
    const stored_scale scale = scale_of(&residual, format);
    float *acc = batch->acc + block * b, *saved = batch->saved ? batch->saved + block * b : NULL;
    const float32x4_t beta = vdupq_n_f32(batch->beta);
    uint16x8x2_t half[8];
    uint16x8_t max = vdupq_n_u16(0);
#pragma GCC unroll 8
    for (size_t i = 0; i < block / 16; i++) {
        size_t o = 16 * i;
        half[i] =
            accumulate_16(grad + o, residual_16(&residual, &scale, format, o), acc + o, saved ? saved + o : NULL, beta);
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

INLINE void accumulate_block(const frugi_batch *batch, size_t b, size_t block) {
    accumulate_format(batch, b, block, FRUGI_RESIDUAL_F32);
}

INLINE void accumulate_stored_blocks(frugi_batch *batch, size_t block, frugi_residual format) {
    frugi_batch copy = *batch; /* a local copy, which byte stores cannot alias */
    copy.saved = NULL;
    for (size_t b = 0; b < copy.blocks; b++)
        accumulate_format(&copy, b, block, format);
}

static void accumulate_stored_64(frugi_batch *batch) {
    accumulate_by_format(batch, 64, accumulate_stored_blocks);
}

static void accumulate_stored_128(frugi_batch *batch) {
    accumulate_by_format(batch, 128, accumulate_stored_blocks);
}

#include "select/block_topk_short.h"

const frugi_block_kernel frugi_block_kernel_64_neon = {accumulate_64, accumulate_stored_64, select_64};
const frugi_block_kernel frugi_block_kernel_128_neon = {accumulate_128, accumulate_stored_128, select_128};
