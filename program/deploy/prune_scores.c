/* prune_scores.c - the highest of many scores, by a search of their bits: floats that are not negative have the order
 * of their bits. */
#include "program/deploy/prune_scores.h"

#include "base/float_bits.h"

/* The largest key that at least `keep` scores reach, digit by digit. */
static uint32_t find_threshold(const float *score, size_t n, size_t keep) {
    uint32_t threshold = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        size_t count[256] = {0}, above = 0;
        for (size_t i = 0; i < n; i++) {
            uint32_t key = frugi_f32_bits(score[i]);
            if (shift == 24 || key >> (shift + 8) == threshold >> (shift + 8))
                count[key >> shift & 255]++;
        }
        uint32_t digit = 255;
        for (; digit > 0 && above + count[digit] < keep; digit--)
            above += count[digit];
        threshold |= digit << shift;
        keep -= above;
    }
    return threshold;
}

void fgp_prune_lowest(float *score, size_t n, size_t keep) {
    uint32_t threshold = keep > 0 ? find_threshold(score, n, keep) : UINT32_MAX;
    size_t above = 0;
    for (size_t i = 0; i < n; i++)
        above += frugi_f32_bits(score[i]) > threshold;
    size_t ties = keep - above;
    for (size_t i = 0; i < n; i++) {
        uint32_t key = frugi_f32_bits(score[i]);
        int tie = key == threshold && ties > 0;
        ties -= (size_t)tie;
        if (key < threshold || (key == threshold && !tie))
            score[i] = -1.0f;
    }
}

void fgp_prune_n_of_m(float *score, size_t count, uint32_t n, uint32_t m) {
    for (size_t i = 0; i < count; i += m) {
        size_t length = count - i < m ? count - i : m;
        if (length > n)
            fgp_prune_lowest(score + i, length, n);
    }
}
