/* checksum.h - CRC-32C, by which a file shows that it is whole. */
#ifndef FGIO_CHECKSUM_H
#define FGIO_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/** Go on with a checksum over more bytes; begin with 0. Any thread may call it. */
uint32_t fgio_checksum(uint32_t sum, const void *bytes, size_t len);

#endif
