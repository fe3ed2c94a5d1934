/* crc32c.h - CRC-32C (Castagnoli), the checksum of frames and saved states. */
#ifndef FRUGI_CRC32C_H
#define FRUGI_CRC32C_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/** Continue checksum crc (0 at the start) with len more bytes. */
uint32_t frugi_crc32c(uint32_t crc, const void *data, size_t len);

/** The checksum of A followed by B, from the checksums of A and B and the length of B. */
uint32_t frugi_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);

/* The variants. Each takes and returns the register without the final inversion. */
uint32_t frugi_crc32c_ref(uint32_t state, const unsigned char *p, size_t len);
uint32_t frugi_crc32c_arm(uint32_t state, const unsigned char *p, size_t len);
uint32_t frugi_crc32c_x86(uint32_t state, const unsigned char *p, size_t len);

/** Product of two registers as polynomials over GF(2). */
uint32_t frugi_crc32c_multiply(uint32_t a, uint32_t b);

/** The register after len more zero bytes. */
uint32_t frugi_crc32c_shift(uint32_t state, uint64_t len);

#endif
