/*
 * CRC-32C with eight tables (Kounavis and Berry's slicing): eight bytes a round and nothing but C,
 * which is more than disks write. The library has a quicker one, but the program sees only its public header.
 */
#include "io/checksum.h"

#include <pthread.h>

enum { SLICES = 8 };

static uint32_t table[SLICES][256];
static pthread_once_t table_made = PTHREAD_ONCE_INIT;

static void make_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t rest = i;
        for (int bit = 0; bit < 8; bit++)
            rest = rest >> 1 ^ (rest & 1 ? 0x82f63b78u : 0);
        table[0][i] = rest;
    }
    for (int s = 1; s < SLICES; s++)
        for (int i = 0; i < 256; i++)
            table[s][i] = table[s - 1][i] >> 8 ^ table[0][table[s - 1][i] & 0xff];
}

static uint32_t load32(const unsigned char *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

uint32_t fgio_checksum(uint32_t sum, const void *bytes, size_t len) {
    const unsigned char *at = bytes;
    pthread_once(&table_made, make_table);
    sum = ~sum;
    for (; len >= SLICES; len -= SLICES, at += SLICES) {
        uint32_t low = sum ^ load32(at), high = load32(at + 4);
        sum = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^
              table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^ table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
    }
    for (; len > 0; len--, at++)
        sum = sum >> 8 ^ table[0][(sum ^ *at) & 0xff];
    return ~sum;
}
