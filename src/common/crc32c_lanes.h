/*
 * crc32c_lanes.h - the body of the hardware variants, which define WORD(state, u64) and OCTET(state, u8).
 *
 * One CRC instruction takes about three cycles but a new one starts every cycle, so three
 * independent thirds of each long stretch are summed side by side and joined.
 */
#include "common/crc32c.h"

#include <string.h>

#define THIRD 4096u /* bytes; long enough that joining is free, short enough to stay in the first cache */

static inline uint64_t word_at(const unsigned char *p) {
    uint64_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

static uint32_t crc_lanes(uint32_t state, const unsigned char *p, size_t len) {
    uint32_t shift1 = len >= 3 * THIRD ? frugi_crc32c_shift(0x80000000u, THIRD) : 0; /* x^(8 THIRD) */
    for (; len >= 3 * THIRD; len -= 3 * THIRD, p += 3 * THIRD) {
        uint32_t a = state, b = 0, c = 0;
        for (size_t i = 0; i < THIRD; i += 8) {
            a = WORD(a, word_at(p + i));
            b = WORD(b, word_at(p + THIRD + i));
            c = WORD(c, word_at(p + 2 * THIRD + i));
        }
        state = frugi_crc32c_times(frugi_crc32c_times(a, shift1) ^ b, shift1) ^ c;
    }
    for (; len >= 8; len -= 8, p += 8)
        state = WORD(state, word_at(p));
    for (; len; len--, p++)
        state = OCTET(state, *p);
    return state;
}
