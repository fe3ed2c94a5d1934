/*
 * bit_pack.h - pack fields of one to eight bits, stored as a byte each, into consecutive bits, and back.
 *
 * Eight fields are one 64-bit word. Three rounds of mask, shift and or combine adjacent ones: fields to pairs,
 * pairs to fours, fours to all eight. That is a dozen operations for eight fields of any width; only bits and
 * whole bytes have shorter ways. Eight fields of w bits fill w bytes, so every eighth field starts at a byte.
 */
#ifndef FRUGI_BIT_PACK_H
#define FRUGI_BIT_PACK_H

#include "base/float_bits.h"

/** Bytes of n fields. */
static inline uint64_t frugi_packed_bytes(uint64_t n, uint32_t width) {
    return n / 8 * width + (n % 8 * width + 7) / 8;
}

/** Pack eight fields, one byte each, into the low 8 * width bits. */
static inline uint64_t frugi_pack8(uint64_t x, uint32_t width) {
    const uint64_t ones = 0x00ff00ff00ff00ffu, twos = 0x0000ffff0000ffffu, fours = 0xffffffffu;
    if (width == 1)
        return x * 0x0102040810204080u >> 56; /* every product of two bits has a place of its own */
    x = (x & ones) | ((x >> 8 & ones) << width);
    x = (x & twos) | ((x >> 16 & twos) << 2 * width);
    return (x & fours) | (x >> 32) << 4 * width;
}

/** The inverse of frugi_pack8(). */
static inline uint64_t frugi_unpack8(uint64_t x, uint32_t width) {
    const uint64_t ones = (((uint64_t)1 << width) - 1) * 0x0001000100010001u;
    const uint64_t twos = (((uint64_t)1 << 2 * width) - 1) * 0x0000000100000001u;
    const uint64_t fours = ((uint64_t)1 << 4 * width) - 1;
    x = (x & fours) | (x >> 4 * width & fours) << 32;
    x = (x & twos) | (x >> 2 * width & twos) << 16;
    return (x & ones) | (x >> width & ones) << 8;
}

/**
 * Pack n fields.
 *
 *   field   n bytes below 2^width, then zeros up to a multiple of eight
 *   room    bytes that may be written at out, at least frugi_packed_bytes(); stores may write past the fields within it
 */
static inline void frugi_pack(const uint8_t *field, uint32_t n, uint32_t width, unsigned char *out, uint64_t room) {
    if (width == 8) {
        memcpy(out, field, n);
        return;
    }
    for (; width == 1 && n >= 64; n -= 64, field += 64, out += 8, room -= 8) {
        uint64_t x = 0;
        for (uint32_t i = 0; i < 64; i += 8)
            x |= frugi_pack8(frugi_get64(field + i), 1) << i;
        frugi_put64(out, x);
    }
    for (uint32_t i = 0; i < n; i += 8, out += width, room -= width) {
        uint64_t x = frugi_pack8(frugi_get64(field + i), width);
        if (room >= 8) {
            frugi_put64(out, x);
            continue;
        }
        memcpy(out, &x, room < width ? room : width);
        if (room <= width)
            return;
    }
}

/** Unpack n fields, rounded up to a multiple of eight; room: bytes that may be read at in. */
static inline void frugi_unpack(const unsigned char *in, uint64_t room, uint32_t n, uint32_t width, uint8_t *field) {
    for (uint32_t i = 0; i < n; i += 8, in += width, room -= width) {
        uint64_t x = 0;
        if (room >= 8)
            x = frugi_get64(in);
        else
            memcpy(&x, in, room);
        frugi_put64(field + i, frugi_unpack8(x, width));
        if (room <= width)
            return;
    }
}

#endif
