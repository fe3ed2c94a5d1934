/*
 * block_select_ref.c - the reference selector: bisection on the bits of the magnitude.
 *
 * The k-th largest key is built from its top bit down: a bit stays set if at least k keys reach the value with that
 * bit set. No sorting, no data-dependent branch. Upper and lower halves of the magnitudes are searched one after the
 * other, because 16-bit keys are counted eight at a time; hist stops after the upper half. It handles every block
 * length, and tests compare the fast variants with it.
 */
#include "select/block_select.h"

#include "base/float_bits.h"

#define BLOCK_MAX 4096u /* the longest block */
#define STEP      32u   /* keys counted per loop iteration; arrays are padded with zeros to a multiple */

typedef uint16_t eight_u16 __attribute__((vector_size(16)));

/* Number of keys that are at least t > 0. */
static uint32_t count_reaching(const uint16_t *key, uint32_t n, uint16_t t) {
    eight_u16 count[STEP / 8] = {{0}};
    for (uint32_t i = 0; i < n; i += STEP)
        for (uint32_t j = 0; j < STEP / 8; j++) {
            eight_u16 v;
            memcpy(&v, key + i + 8 * j, sizeof v);
            count[j] -= (eight_u16)(v >= t);
        }
    eight_u16 sum = (count[0] + count[1]) + (count[2] + count[3]);
    return (uint32_t)(sum[0] + sum[1] + sum[2] + sum[3]) + (uint32_t)(sum[4] + sum[5] + sum[6] + sum[7]);
}

/* The k-th largest of n keys. */
static uint16_t kth_largest(const uint16_t *key, uint32_t n, uint32_t k) {
    uint16_t threshold = 0;
    for (uint16_t bit = 0x8000; bit; bit >>= 1)
        if (count_reaching(key, n, threshold | bit) >= k)
            threshold |= bit;
    return threshold;
}

void frugi_select_ref(const float *acc, uint32_t n, uint32_t k, frugi_selector how, uint16_t *idx) {
    uint16_t upper[BLOCK_MAX + STEP], lower[BLOCK_MAX + STEP];
    if (k == 0) /* below one entry per block, blocks alternate */
        return;
    for (uint32_t i = 0; i < n; i++) {
        upper[i] = (uint16_t)(frugi_magnitude(acc[i]) >> 16);
        lower[i] = (uint16_t)frugi_f32_bits(acc[i]);
    }
    memset(upper + n, 0, STEP * sizeof *upper);
    uint16_t high = kth_largest(upper, n, k), low = 0;
    uint32_t above = count_reaching(upper, n, (uint16_t)(high + 1)),
             reaching = high ? count_reaching(upper, n, high) : n;
    if (how == FRUGI_SELECT_EXACT && reaching > k) { /* compare entries at the upper threshold by their lower halves */
        for (uint32_t i = 0; i < n; i++)
            lower[i] = upper[i] == high ? lower[i] : 0;
        memset(lower + n, 0, STEP * sizeof *lower);
        low = kth_largest(lower, n, k - above);
        above += low < UINT16_MAX ? count_reaching(lower, n, (uint16_t)(low + 1)) : 0;
    }
    /* Select all above the threshold, and entries at the threshold in index order until there are k. */
    uint32_t ties = k - above;
    for (uint32_t i = 0, out = 0; i < n && out < k; i++) {
        uint32_t key = (uint32_t)upper[i] << 16 | (how == FRUGI_SELECT_EXACT ? lower[i] : 0);
        uint32_t threshold = (uint32_t)high << 16 | low;
        if (key < threshold || (key == threshold && ties == 0))
            continue;
        ties -= key == threshold;
        idx[out++] = (uint16_t)i;
    }
}
