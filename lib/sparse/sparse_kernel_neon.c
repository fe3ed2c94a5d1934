/*
 * sparse_kernel_neon.c - the products of packed matrices.
 *
 * rows: four columns are extracted from one word, and sums are four scalars. half: a lookup of bytes selects four of
 * the eight elements that the rows of a panel share. windows: 32 elements of each half of the rounded vector are in two
 * registers, and one lookup of bytes selects those of all 16 slots. CPUs with dot products of bytes have a kernel of
 * their own for them.
 */
#define LANES 8
#include "sparse/sparse_rows.h"
#define COLUMN_LANES 4
#include "sparse/sparse_column_lanes.h"

#include <arm_neon.h>

/* sum += x[column] * w[lane]. gcc would copy the lane to a register first. */
#define ADD_LANE(sum, column, w, lane) __asm__("fmla %s0, %s1, %2.s[" #lane "]" : "+w"(sum) : "w"(x[column]), "x"(w))

static void rows_neon(const frug_sparse *m, const float *x, uint32_t first, uint32_t end, float *y) {
    for (uint32_t r = first * FRUGI_SPARSE_PANEL; r < rows_end(m, end); r++) {
        float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
        const float *value = m->values + m->begin[r], *stop = m->values + m->begin[r + 1];
        const uint16_t *column = m->columns + m->begin[r];
        for (; value < stop; value += 8, column += 8) {
            float32x4_t front = vld1q_f32(value), back = vld1q_f32(value + 4);
            uint64_t four[2];
            memcpy(four, column, sizeof four);
            ADD_LANE(a, four[0] & 0xffff, front, 0);
            ADD_LANE(b, four[0] >> 16 & 0xffff, front, 1);
            ADD_LANE(c, four[0] >> 32 & 0xffff, front, 2);
            ADD_LANE(d, four[0] >> 48, front, 3);
            ADD_LANE(a, four[1] & 0xffff, back, 0);
            ADD_LANE(b, four[1] >> 16 & 0xffff, back, 1);
            ADD_LANE(c, four[1] >> 32 & 0xffff, back, 2);
            ADD_LANE(d, four[1] >> 48, back, 3);
        }
        y[r] = (a + b) + (c + d);
    }
}

/* Add the products of one row with four of eight elements. The table is named by register, where gcc would copy it for
 * every lookup. */
#define ADD_HALF(sum, row)                                                                                             \
    do {                                                                                                               \
        uint8x16_t at = vreinterpretq_u8_u32(vld1q_u32(m->lookup[marks >> 8 * (row)&255]));                            \
        __asm__("tbl %0.16b, {v30.16b, v31.16b}, %0.16b" : "+w"(at) : "w"(low), "w"(high));                            \
        (sum) = vfmaq_f32((sum), vld1q_f32(value + 4 * (row)), vreinterpretq_f32_u8(at));                              \
    } while (0)

static void half_neon(const frug_sparse *m, const float *x, uint32_t first, uint32_t end, float *y) {
    const size_t groups = m->cols / 8;
    const unsigned char *bytes = m->bytes + FRUGI_SPARSE_PANEL * groups * first;
    const float *value = m->values + 16 * groups * first;
    for (uint32_t panel = first; panel < end; panel++) {
        float32x4_t a = vdupq_n_f32(0.0f), b = a, c = a, d = a;
        for (size_t g = 0; g < groups; g++, bytes += FRUGI_SPARSE_PANEL, value += 16) {
            register float32x4_t low __asm__("v30") = vld1q_f32(x + 8 * g);
            register float32x4_t high __asm__("v31") = vld1q_f32(x + 8 * g + 4);
            uint32_t marks;
            memcpy(&marks, bytes, sizeof marks);
            ADD_HALF(a, 0);
            ADD_HALF(b, 1);
            ADD_HALF(c, 2);
            ADD_HALF(d, 3);
        }
        float sums[FRUGI_SPARSE_PANEL] = {vaddvq_f32(a), vaddvq_f32(b), vaddvq_f32(c), vaddvq_f32(d)};
        store_panel(m, panel, sums, y);
    }
}

static inline int8x16_t look_up(const int8_t *x, uint8x16_t at) {
    return vqtbl2q_s8((int8x16x2_t){{vld1q_s8(x), vld1q_s8(x + 16)}}, at);
}

/* Add the products of 16 slots; pairs of products of magnitude 127 * 127 fit in 16 bits. */
static inline int32x4_t add_products(int32x4_t sum, int8x16_t w, int8x16_t x) {
    return vpadalq_s16(sum, vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(x)), w, x));
}

#if defined(__clang__)
#define HAS_DOT __attribute__((target("dotprod")))
#define SDOT    "sdot"
#else
#define HAS_DOT
#define SDOT ".arch armv8.2-a+dotprod\n\tsdot"
#endif

/* The same by one instruction that not every CPU has. */
HAS_DOT static inline int32x4_t add_dot_products(int32x4_t sum, int8x16_t w, int8x16_t x) {
    __asm__(SDOT " %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(w), "w"(x));
    return sum;
}

#define WINDOWS(name, add)                                                                                             \
    static void name(const frug_sparse *m, const frugi_rounded_vector *x, uint32_t first, uint32_t end, float *y) {    \
        for (uint32_t panel = first; panel < end; panel++) {                                                           \
            int32x4_t high = vdupq_n_s32(0), low = high;                                                               \
            int32_t sums[2][FRUGI_SPARSE_PANEL];                                                                       \
            for (uint32_t s = m->begin[panel]; s < m->begin[panel + 1]; s++) {                                         \
                const unsigned char *step = m->bytes + (size_t)FRUGI_SPARSE_STEP * s;                                  \
                uint8x16_t at = vld1q_u8(step);                                                                        \
                int8x16_t w = vreinterpretq_s8_u8(vld1q_u8(step + 16));                                                \
                high = add(high, w, look_up(x->high + m->base[s], at));                                                \
                low = add(low, w, look_up(x->low + m->base[s], at));                                                   \
            }                                                                                                          \
            vst1q_s32(sums[0], high);                                                                                  \
            vst1q_s32(sums[1], low);                                                                                   \
            store_windows(m, x, panel, sums[0], sums[1], y);                                                           \
        }                                                                                                              \
    }

WINDOWS(windows_neon, add_products)
HAS_DOT WINDOWS(windows_dot, add_dot_products)

    /* ---- columns of int8 ---- */

    /* 16 rows of four columns: a register has the four weights of each of four rows. */
    static inline void interleave(const int8_t *const column[4], uint32_t r, int8x16_t rows[4]) {
    int8x16_t a = vld1q_s8(column[0] + r), b = vld1q_s8(column[1] + r);
    int8x16_t c = vld1q_s8(column[2] + r), d = vld1q_s8(column[3] + r);
    int16x8_t ab_low = vreinterpretq_s16_s8(vzip1q_s8(a, b)), ab_high = vreinterpretq_s16_s8(vzip2q_s8(a, b));
    int16x8_t cd_low = vreinterpretq_s16_s8(vzip1q_s8(c, d)), cd_high = vreinterpretq_s16_s8(vzip2q_s8(c, d));
    rows[0] = vreinterpretq_s8_s16(vzip1q_s16(ab_low, cd_low));
    rows[1] = vreinterpretq_s8_s16(vzip2q_s16(ab_low, cd_low));
    rows[2] = vreinterpretq_s8_s16(vzip1q_s16(ab_high, cd_high));
    rows[3] = vreinterpretq_s8_s16(vzip2q_s16(ab_high, cd_high));
}

/* Four elements of a vector, four times. */
static inline int8x16_t repeat_four(const int8_t *x) {
    int32_t four;
    memcpy(&four, x, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

/* Products of the four weights of a row, by an instruction that not every CPU has, or without it. */
static inline int32x4_t add_quads(int32x4_t sum, int8x16_t w, int8x16_t x) {
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}

#define COLUMNS(name, add)                                                                                             \
    static void name(const int8_t *const column[FRUGI_COLUMNS_AT_ONCE], const int8_t high[FRUGI_COLUMNS_AT_ONCE],      \
                     const int8_t low[FRUGI_COLUMNS_AT_ONCE], uint32_t rows, int32_t *high_sums, int32_t *low_sums) {  \
        const int8x16_t h[2] = {repeat_four(high), repeat_four(high + 4)};                                             \
        const int8x16_t l[2] = {repeat_four(low), repeat_four(low + 4)};                                               \
        for (uint32_t r = 0; r < rows; r += FRUGI_COLUMN_ROWS) {                                                       \
            int8x16_t front[4], back[4];                                                                               \
            interleave(column, r, front);                                                                              \
            interleave(column + 4, r, back);                                                                           \
            for (uint32_t i = 0; i < 4; i++) {                                                                         \
                int32_t *to_high = high_sums + r + 4 * i, *to_low = low_sums + r + 4 * i;                              \
                vst1q_s32(to_high, add(add(vld1q_s32(to_high), front[i], h[0]), back[i], h[1]));                       \
                vst1q_s32(to_low, add(add(vld1q_s32(to_low), front[i], l[0]), back[i], l[1]));                         \
            }                                                                                                          \
        }                                                                                                              \
    }

COLUMNS(columns_int8_neon, add_quads)
HAS_DOT COLUMNS(columns_int8_dot, add_dot_products)

#define KERNEL(slots, windows_function, columns_function)                                                              \
    {                                                                                                                  \
        .lanes = LANES, .slot = slots, .lookup_first = 0x03020100u /* the bytes of a float */,                         \
        .lookup_step = 0x04040404u, .rows = rows_neon, .half = half_neon, .windows = windows_function,                 \
        .batch = multiply_batch, .columns = columns_f32, .columns_int8 = columns_function                              \
    }
#define SPLIT_SLOTS                                                                                                    \
    { 0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15 } /* add_products() adds i and i + 8 */
#define ADJACENT_SLOTS                                                                                                 \
    { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 }

    const frugi_sparse_kernel frugi_sparse_kernel_neon = KERNEL(SPLIT_SLOTS, windows_neon, columns_int8_neon);
const frugi_sparse_kernel frugi_sparse_kernel_dot = KERNEL(ADJACENT_SLOTS, windows_dot, columns_int8_dot);
