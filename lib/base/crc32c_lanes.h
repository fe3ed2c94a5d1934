/*
 * crc32c_lanes.h - the body of the hardware variants, which define WORD(state, u64) and OCTET(state, u8).
 *
 * A CRC instruction has a latency of 2 or 3 cycles and a throughput of one per cycle, so each long range is split into
 * three thirds whose checksums are computed in parallel and combined: thirds of LONG_THIRD bytes while the data lasts,
 * then thirds of SHORT_THIRD bytes.
 */
#include "base/crc32c.h"

#include <string.h>

/* The lengths of the thirds in bytes, and x^(8 length): the factor that appends as many zero bytes to a register. */
#define LONG_THIRD  16384u
#define LONG_SHIFT  0xbf455269u
#define SHORT_THIRD 512u
#define SHORT_SHIFT 0x74c360a4u

static inline uint64_t load_u64(const unsigned char *p) {
    uint64_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

static inline uint32_t crc_thirds(uint32_t state, const unsigned char *p, size_t third, uint32_t shift) {
    uint32_t a = state, b = 0, c = 0;
    for (size_t i = 0; i < third; i += 8) {
        a = WORD(a, load_u64(p + i));
        b = WORD(b, load_u64(p + third + i));
        c = WORD(c, load_u64(p + 2 * third + i));
    }
    return frugi_crc32c_multiply(frugi_crc32c_multiply(a, shift) ^ b, shift) ^ c;
}

static uint32_t crc_lanes(uint32_t state, const unsigned char *p, size_t len) {
    for (; len >= 3 * LONG_THIRD; len -= 3 * LONG_THIRD, p += 3 * LONG_THIRD)
        state = crc_thirds(state, p, LONG_THIRD, LONG_SHIFT);
    for (; len >= 3 * SHORT_THIRD; len -= 3 * SHORT_THIRD, p += 3 * SHORT_THIRD)
        state = crc_thirds(state, p, SHORT_THIRD, SHORT_SHIFT);
    for (; len >= 8; len -= 8, p += 8)
        state = WORD(state, load_u64(p));
    for (; len; len--, p++)
        state = OCTET(state, *p);
    return state;
}
