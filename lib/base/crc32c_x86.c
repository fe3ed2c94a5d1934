/* crc32c_x86.c - CRC-32C with the instructions of SSE 4.2. */
#include <nmmintrin.h>
#define WORD(state, w)  (uint32_t) _mm_crc32_u64((state), (w))
#define OCTET(state, b) _mm_crc32_u8((state), (b))
#include "base/crc32c_lanes.h"

uint32_t frugi_crc32c_x86(uint32_t state, const unsigned char *p, size_t len) {
    return crc_lanes(state, p, len);
}
