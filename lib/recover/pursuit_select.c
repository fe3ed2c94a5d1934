/*
 * pursuit_select.c - find the column that correlates most with the residual.
 *
 * With a Gram matrix the correlations are those of p minus one row for every column in use. This is where Batch-OMP
 * spends its time: s^2 d / 2 multiplications in all, over rows that stay in L2. Blocks of 32 columns are computed in
 * registers, and the largest magnitude of each is stored, so that the search reads d / 32 numbers and one block.
 */
#include "recover/pursuit.h"

#include "base/float_bits.h"
#include "recover/recover_lanes.h"

#define BLOCK FRUGI_MATRIX_BLOCK
#define FOURS (BLOCK / 4)

static uint32_t block_largest(const float *x) {
    uint32_t bits[BLOCK], largest = 0;
    memcpy(bits, x, sizeof bits);
    for (uint32_t i = 0; i < BLOCK; i++) {
        uint32_t m = bits[i] & FRUGI_ABS_MASK;
        largest = m > largest ? m : largest;
    }
    return largest;
}

void frugi_alpha_update(frugi_pursuit *u, const float *start, uint32_t n) {
    float *alpha = u->alpha;
    for (uint32_t i = 0; i < u->a->span; i += BLOCK) {
        frugi_float4 sum[FOURS];
        for (uint32_t v = 0; v < FOURS; v++)
            sum[v] = frugi_load4(start + i + 4 * v);
        for (uint32_t m = 0; m < n; m++) {
            const float *row = u->column[m] + i;
            frugi_float4 x = frugi_splat4(u->x32[m]);
            for (uint32_t v = 0; v < FOURS; v++)
                sum[v] -= x * frugi_load4(row + 4 * v);
        }
        for (uint32_t v = 0; v < FOURS; v++)
            frugi_store4(alpha + i + 4 * v, sum[v]);
        u->block_max[i / BLOCK] = block_largest(alpha + i);
    }
}

/* The first index of the largest magnitude, found by the maxima of the blocks. */
static uint32_t find_largest(const frugi_pursuit *u) {
    uint32_t blocks = u->a->span / BLOCK, largest = 0, at = 0;
    for (uint32_t b = 0; b < blocks; b++)
        largest = u->block_max[b] > largest ? u->block_max[b] : largest;
    while (u->block_max[at] != largest)
        at++;
    for (at *= BLOCK; frugi_magnitude(u->alpha[at]) != largest;)
        at++;
    return at;
}

bool frugi_alpha_next(frugi_pursuit *u, uint32_t *j) {
    for (;;) {
        uint32_t at = find_largest(u);
        if (frugi_magnitude(u->alpha[at]) == 0)
            return false;
        u->alpha[at] = 0.0f;
        u->block_max[at / BLOCK] = block_largest(u->alpha + at / BLOCK * BLOCK);
        if (u->excluded[at]) /* correlates only by rounding: checking it here is cheaper than clearing it in every pass
                              */
            continue;
        *j = at;
        return true;
    }
}
