/*
 * tensor_topk_words.h - take() of tensor_topk_kernel.h, word by word; the body of some variants.
 *
 * Words without a bit are skipped; for others at least FEW entries are written, so that the usual density of a few
 * percent takes no more branches.
 *
 * The including file includes tensor_topk_scan.h and defines
 *   FEW                up to this many bits of a word, at most 8, are written one by one
 *   count_bits(bits)   the number of set bits
 *   write_many(bits, x, base, index, value)   write base + position and value of the set bits of a word; up to
 *            FRUGI_TOPK_EXTRA more may be overwritten
 */
/* Write base + position and value of the set bits of a word. Up to FRUGI_TOPK_EXTRA more are overwritten. Returns their
 * number. */
INLINE uint32_t write_entries(uint64_t bits, const float *x, uint32_t base, uint32_t *index, float *value) {
    uint32_t n = count_bits(bits);
    if (n > FEW) {
        write_many(bits, x, base, index, value);
        return n;
    }
#pragma GCC unroll 8
    for (uint32_t j = 0; j < FEW; j++, bits &= bits - 1) {
        uint32_t at = lowest(bits);
        index[j] = base + at;
        value[j] = x[at];
    }
    return n;
}

static uint32_t take(const float *x, const uint64_t *bits, uint32_t words, uint32_t base, uint32_t *index,
                     float *value) {
    uint32_t out = 0;
    for (uint32_t w = 0; w < words; w++)
        if (bits[w])
            out += write_entries(bits[w], x + w * GROUP, base + w * GROUP, index + out, value + out);
    return out;
}
