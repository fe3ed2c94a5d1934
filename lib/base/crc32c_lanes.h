/*
 * crc32c_lanes.h - the body of the hardware variants, which define WORD(state, u64) and OCTET(state, u8).
 *
 * A CRC instruction has its result after two or three cycles but a new one can start every cycle, so three
 * independent thirds of each long stretch are summed side by side and joined: long ones where there is enough,
 * then short ones.
 */
#include "base/crc32c.h"

#include <string.h>

/* The thirds' lengths in bytes, and x^(8 length): what appending that many zeros multiplies a register by. */
#define LONG_THIRD  16384u
#define LONG_SHIFT  0xbf455269u
#define SHORT_THIRD 512u
#define SHORT_SHIFT 0x74c360a4u

static inline uint64_t word_at(const unsigned char *p) {
    uint64_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

static inline uint32_t crc_thirds(uint32_t state, const unsigned char *p, size_t third, uint32_t shift) {
    uint32_t a = state, b = 0, c = 0;
    for (size_t i = 0; i < third; i += 8) {
        a = WORD(a, word_at(p + i));
        b = WORD(b, word_at(p + third + i));
        c = WORD(c, word_at(p + 2 * third + i));
    }
    return frugi_crc32c_times(frugi_crc32c_times(a, shift) ^ b, shift) ^ c;
}

static uint32_t crc_lanes(uint32_t state, const unsigned char *p, size_t len) {
    for (; len >= 3 * LONG_THIRD; len -= 3 * LONG_THIRD, p += 3 * LONG_THIRD)
        state = crc_thirds(state, p, LONG_THIRD, LONG_SHIFT);
    for (; len >= 3 * SHORT_THIRD; len -= 3 * SHORT_THIRD, p += 3 * SHORT_THIRD)
        state = crc_thirds(state, p, SHORT_THIRD, SHORT_SHIFT);
    for (; len >= 8; len -= 8, p += 8)
        state = WORD(state, word_at(p));
    for (; len; len--, p++)
        state = OCTET(state, *p);
    return state;
}
