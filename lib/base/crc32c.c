/*
 * crc32c.c - CRC-32C by table, and the arithmetic that combines checksums.
 *
 * A checksum register is a polynomial over GF(2) modulo the Castagnoli
 * polynomial, bit 31 holding x^0. Appending n zero bytes multiplies it by
 * x^(8n), so ranges of a buffer can be checksummed in parallel (by threads, or by
 * independent streams of one thread) and combined afterwards. Cost: O(log n) to combine.
 */
#include "base/crc32c.h"

#include "base/cpu.h"

#define POLYNOMIAL 0x82f63b78u

static uint32_t update_byte(uint32_t state, unsigned char byte) {
    static const uint32_t table[16] = {0x00000000u, 0x105ec76fu, 0x20bd8edeu, 0x30e349b1u, 0x417b1dbcu, 0x5125dad3u,
                                       0x61c69362u, 0x7198540du, 0x82f63b78u, 0x92a8fc17u, 0xa24bb5a6u, 0xb21572c9u,
                                       0xc38d26c4u, 0xd3d3e1abu, 0xe330a81au, 0xf36e6f75u};
    state ^= byte;
    state = (state >> 4) ^ table[state & 15u];
    return (state >> 4) ^ table[state & 15u];
}

uint32_t frugi_crc32c_ref(uint32_t state, const unsigned char *p, size_t len) {
    for (size_t i = 0; i < len; i++)
        state = update_byte(state, p[i]);
    return state;
}

uint32_t frugi_crc32c_multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int i = 0; i < 32; i++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = (b >> 1) ^ (POLYNOMIAL & (0u - (b & 1u)));
    }
    return product;
}

uint32_t frugi_crc32c_shift(uint32_t state, uint64_t len) {
    uint32_t power = 0x00800000u; /* x^8: one zero byte */
    for (; len; len >>= 1, power = frugi_crc32c_multiply(power, power))
        if (len & 1)
            state = frugi_crc32c_multiply(power, state);
    return state;
}

uint32_t frugi_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b) {
    return frugi_crc32c_shift(crc_a, len_b) ^ crc_b;
}

uint32_t frugi_crc32c(uint32_t crc, const void *data, size_t len) {
    uint32_t state = ~crc;
#if defined(__aarch64__)
    if (frugi_cpu_has_crc32c())
        return ~frugi_crc32c_arm(state, data, len);
#elif defined(__x86_64__)
    if (frugi_cpu_has_crc32c())
        return ~frugi_crc32c_x86(state, data, len);
#endif
    return ~frugi_crc32c_ref(state, data, len);
}
