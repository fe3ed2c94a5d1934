/*
 * pursuit_select.c - which column correlates most with what is not yet explained.
 *
 * With a Gram matrix the correlations follow from those of p by subtracting a row for every column in use. This is
 * where Batch-OMP spends its time: s^2 d / 2 multiplications in all, over rows that stay in the second cache. Blocks of
 * 32 columns are finished in registers, and each leaves its largest magnitude behind, so that the search looks at d /
 * 32 numbers and one block.
 */
#include "recover/pursuit.h"

#include "base/float_bits.h"
#include "recover/recover_lanes.h"

#define BLOCK FRUGI_MATRIX_BLOCK
#define FOURS (BLOCK / 4)

static uint32_t largest(const float *x) {
    uint32_t bits[BLOCK], most = 0;
    memcpy(bits, x, sizeof bits);
    for (uint32_t i = 0; i < BLOCK; i++) {
        uint32_t m = bits[i] & FRUGI_ABS_MASK;
        most = m > most ? m : most;
    }
    return most;
}

void frugi_alpha_update(frugi_pursuit *u, const float *start, uint32_t n) {
    float *alpha = u->alpha;
    for (uint32_t i = 0; i < u->a->span; i += BLOCK) {
        frugi_four sum[FOURS];
        for (uint32_t v = 0; v < FOURS; v++)
            sum[v] = frugi_load(start + i + 4 * v);
        for (uint32_t m = 0; m < n; m++) {
            const float *row = u->column[m] + i;
            frugi_four x = frugi_spread(u->x32[m]);
            for (uint32_t v = 0; v < FOURS; v++)
                sum[v] -= x * frugi_load(row + 4 * v);
        }
        for (uint32_t v = 0; v < FOURS; v++)
            frugi_store(alpha + i + 4 * v, sum[v]);
        u->most[i / BLOCK] = largest(alpha + i);
    }
}

/* The first place of the largest magnitude; blocks say where to look. */
static uint32_t first_largest(const frugi_pursuit *u) {
    uint32_t blocks = u->a->span / BLOCK, most = 0, at = 0;
    for (uint32_t b = 0; b < blocks; b++)
        most = u->most[b] > most ? u->most[b] : most;
    while (u->most[at] != most)
        at++;
    for (at *= BLOCK; frugi_magnitude(u->alpha[at]) != most;)
        at++;
    return at;
}

bool frugi_alpha_next(frugi_pursuit *u, uint32_t *j) {
    for (;;) {
        uint32_t at = first_largest(u);
        if (frugi_magnitude(u->alpha[at]) == 0)
            return false;
        u->alpha[at] = 0.0f;
        u->most[at / BLOCK] = largest(u->alpha + at / BLOCK * BLOCK);
        if (u->taken[at]) /* correlates by rounding only, so it is cheaper to meet it here than to strike it every pass
                           */
            continue;
        *j = at;
        return true;
    }
}
