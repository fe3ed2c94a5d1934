/*
 * sparse_windows.c - int8 weights in windows of 32 columns: rounding, and packing of a panel.
 *
 * Packing is greedy: a window begins at the first column that is not stored yet, and each row stores its next entries
 * inside it, at most four. Rows that are ahead leave slots empty.
 */
#include "sparse/sparse_matrix.h"

#include "base/float_bits.h"

#include <math.h>

float frugi_int8_scale(const float *row, uint32_t n, size_t stride) {
    float most = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(row[i * stride]));
    return most / 127.0f;
}

float frugi_int8_round(float w, float scale) {
    float q = scale > 0.0f ? rintf(w / scale) : 0.0f * w; /* a NaN stays one */
    return q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q;
}

static uint32_t next_entry(const float *row, uint32_t cols, uint32_t column) {
    while (column < cols && row[column] == 0.0f)
        column++;
    return column;
}

uint32_t frugi_sparse_pack_windows(const float *const row[FRUGI_SPARSE_PANEL], uint32_t cols, const uint8_t *slot,
                                   unsigned char *dst, uint16_t *base) {
    uint32_t next[FRUGI_SPARSE_PANEL], steps = 0;
    for (uint32_t r = 0; r < FRUGI_SPARSE_PANEL; r++)
        next[r] = next_entry(row[r], cols, 0);
    for (;; steps++) {
        uint32_t first = cols;
        for (uint32_t r = 0; r < FRUGI_SPARSE_PANEL; r++)
            first = next[r] < first ? next[r] : first;
        if (first == cols)
            return steps;
        if (base)
            base[steps] = (uint16_t)first;
        for (uint32_t r = 0; r < FRUGI_SPARSE_PANEL; r++)
            for (uint32_t i = 0; i < 4 && next[r] < cols && next[r] < first + FRUGI_SPARSE_WINDOW; i++) {
                if (dst) {
                    unsigned char *step = dst + (size_t)FRUGI_SPARSE_STEP * steps;
                    step[slot[4 * r + i]] = (unsigned char)(next[r] - first);
                    step[16 + slot[4 * r + i]] = (unsigned char)(int8_t)row[r][next[r]];
                }
                next[r] = next_entry(row[r], cols, next[r] + 1);
            }
    }
}
