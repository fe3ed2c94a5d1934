/* block_index.c - encode, decode and check the indices of a block. */
#include "codec/block_index.h"

#include "base/float_bits.h"

static const char *const names[] = {"none", "local", "bitmap", "coo", "csr", "rle", "rice", "seeded"};

const char *frugi_index_name(uint32_t code) {
    return code < sizeof names / sizeof *names ? names[code] : NULL;
}

uint64_t frugi_index_bytes(frugi_index code, uint32_t block, uint64_t blocks, uint64_t entries) {
    switch (code) {
    case FRUGI_INDEX_CODE_NONE: return 0;
    case FRUGI_INDEX_CODE_LOCAL: return block > 256 ? 2 * entries : entries;
    case FRUGI_INDEX_CODE_BITMAP: return blocks * (block / 8);
    default: break; /* not in sections by blocks */
    }
    return 0;
}

typedef unsigned char sixteen __attribute__((vector_size(16)));
typedef uint16_t sixteen_u16 __attribute__((vector_size(32)));

static unsigned char *encode_bytes(const uint16_t *idx, uint32_t k, unsigned char *out) {
    uint32_t j = 0;
    for (; j + 16 <= k; j += 16) {
        sixteen_u16 wide;
        memcpy(&wide, idx + j, sizeof wide);
        sixteen narrow = __builtin_convertvector(wide, sixteen);
        memcpy(out + j, &narrow, sizeof narrow);
    }
    for (; j < k; j++)
        out[j] = (unsigned char)idx[j];
    return out + k;
}

/* Set one byte per element, then pack eight bytes into eight bits by one multiplication: no dependency between bits. */
static unsigned char *encode_bitmap(const uint16_t *idx, uint32_t k, uint32_t block, unsigned char *out) {
    unsigned char flag[4096];
    memset(flag, 0, block);
    for (uint32_t j = 0; j < k; j++)
        flag[idx[j]] = 1;
    for (uint32_t i = 0; i < block / 8; i++)
        out[i] = (unsigned char)((frugi_get64(flag + 8 * i) * 0x0102040810204080u) >> 56);
    return out + block / 8;
}

void frugi_index_encode(frugi_index code, uint32_t block, uint32_t blocks, const uint32_t *k, const uint16_t *idx,
                        unsigned char *out) {
    for (uint32_t b = 0; b < blocks; b++, idx += block) {
        if (code == FRUGI_INDEX_CODE_BITMAP) {
            out = encode_bitmap(idx, k[b], block, out);
        } else if (code == FRUGI_INDEX_CODE_LOCAL && block <= 256) {
            out = encode_bytes(idx, k[b], out);
        } else if (code == FRUGI_INDEX_CODE_LOCAL) {
            memcpy(out, idx, 2 * (size_t)k[b]);
            out += 2 * (size_t)k[b];
        }
    }
}

static void decode_bitmap(uint32_t block, const unsigned char *in, uint16_t *idx) {
    for (uint32_t w = 0; w < block; w += 64)
        for (uint64_t bits = frugi_get64(in + w / 8); bits; bits &= bits - 1)
            *idx++ = (uint16_t)(w + (uint32_t)__builtin_ctzll(bits));
}

void frugi_index_decode(frugi_index code, uint32_t block, const unsigned char *in, uint32_t k, uint16_t *idx) {
    if (code == FRUGI_INDEX_CODE_BITMAP)
        decode_bitmap(block, in, idx);
    else
        for (uint32_t j = 0; j < k; j++)
            idx[j] = code == FRUGI_INDEX_CODE_NONE ? (uint16_t)j : block > 256 ? frugi_get16(in + 2 * j) : in[j];
}

static int check_bitmap(uint32_t block, const unsigned char *in, uint32_t k, uint32_t length) {
    uint32_t count = 0, beyond = 0;
    for (uint32_t w = 0; w < block; w += 64) {
        uint64_t bits = frugi_get64(in + w / 8);
        count += (uint32_t)__builtin_popcountll(bits);
        if (w + 64 > length)
            beyond |= (w >= length ? bits : bits >> (length - w)) != 0;
    }
    return count == k && !beyond;
}

int frugi_index_check(frugi_index code, uint32_t block, const unsigned char *in, uint32_t k, uint32_t length) {
    uint32_t bad = 0;
    if (code == FRUGI_INDEX_CODE_NONE)
        return k == length;
    if (code == FRUGI_INDEX_CODE_BITMAP)
        return check_bitmap(block, in, k, length);
    if (k == 0)
        return 1;
    if (block > 256) {
        for (uint32_t j = 1; j < k; j++)
            bad |= frugi_get16(in + 2 * j) <= frugi_get16(in + 2 * j - 2);
        return !bad && frugi_get16(in + 2 * k - 2) < length;
    }
    for (uint32_t j = 1; j < k; j++)
        bad |= in[j] <= in[j - 1];
    return !bad && in[k - 1] < length;
}

uint64_t frugi_index_descents(const unsigned char *in, uint64_t n) {
    const unsigned char *previous = in - 1;
    uint64_t descents = 0, at = 0;
    while (at + 16 <= n) {
        sixteen count = {0}; /* a counter per lane, which is enough for 255 rounds */
        for (int round = 0; round < 255 && at + 16 <= n; round++, at += 16) {
            sixteen here, before;
            memcpy(&here, in + at, sizeof here);
            memcpy(&before, previous + at, sizeof before);
            count -= (sixteen)(here <= before);
        }
        for (int i = 0; i < 16; i++)
            descents += count[i];
    }
    for (; at < n; at++)
        descents += in[at] <= previous[at];
    return descents;
}
