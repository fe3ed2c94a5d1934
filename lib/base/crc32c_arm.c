/* crc32c_arm.c - CRC-32C with the instructions of ARMv8's CRC extension. */
#include <arm_acle.h>
#define WORD(state, w)  __crc32cd((state), (w))
#define OCTET(state, b) __crc32cb((state), (b))
#include "base/crc32c_lanes.h"

uint32_t frugi_crc32c_arm(uint32_t state, const unsigned char *p, size_t len) {
    return crc_lanes(state, p, len);
}
