/*
 * select_ref.c - the reference selector: bisection on the bits of the magnitude.
 *
 * The k-th largest key is built from its top bit down: a bit stays set if k keys
 * reach that far. No sorting, no data-dependent branch, the same cost for every
 * input, and short enough to be the oracle of the fast variants.
 */
#include "select/select.h"

#include "common/bits.h"

static uint32_t count_reaching(const float *acc, uint32_t n, uint32_t shift, uint32_t threshold) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += (frugi_magnitude(acc[i]) >> shift) >= threshold;
    return count;
}

void frugi_select_ref(const float *acc, uint32_t n, uint32_t k, frugi_selector how, uint16_t *idx) {
    const uint32_t shift = how == FRUGI_SELECT_EXACT ? 0 : 16;
    uint32_t threshold = 0;
    for (uint32_t bit = 1u << (30 - shift); bit; bit >>= 1)
        if (count_reaching(acc, n, shift, threshold | bit) >= k)
            threshold |= bit;
    /* All above the threshold go first; those on it fill up in index order. */
    uint32_t on_it = k - count_reaching(acc, n, shift, threshold + 1);
    for (uint32_t i = 0, out = 0; i < n && out < k; i++) {
        uint32_t key = frugi_magnitude(acc[i]) >> shift;
        if (key < threshold || (key == threshold && on_it == 0))
            continue;
        on_it -= key == threshold;
        idx[out++] = (uint16_t)i;
    }
}
