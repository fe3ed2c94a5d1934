/* kernel_table.h - where the set bits of a byte are: one byte per set bit, lowest first. */
#ifndef FRUGI_KERNEL_TABLE_H
#define FRUGI_KERNEL_TABLE_H

#include <stdint.h>

extern const uint64_t frugi_bit_places[256];
extern const uint8_t frugi_bit_count[256];

#endif
