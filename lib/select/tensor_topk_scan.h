/*
 * tensor_topk_scan.h - the scans of tensor_topk_kernel.h in vectors of any width; the body of their variants.
 *
 * The results of 64 comparisons are packed into the bits of one word. Words without a bit are skipped; for others at
 * least eight indices are written, so that the usual density of a few percent takes no more branches. Cost: about one
 * instruction per element, so memory bandwidth is the limit.
 *
 * The including file defines
 *   VECTOR   bytes of a vector
 *   STRIDE   bits of a word that write_lanes() takes: 8 or 16
 *   FEW      up to this many bits of a word, at most 8, are written one by one
 *   pack(const lanes *m)   one bit per lane of 64 lanes that are all ones or all zeros
 *   rotate_1(v), rotate_2(v), rotate_3(v)   element i of every four becomes element i + 1, i + 2, i + 3 modulo 4
 *   write_lanes(bits, x, base, index, value)   write base + position and value of set bits; STRIDE entries are
 *            overwritten
 */
#include "base/float_bits.h"
#include "select/bit_positions.h"

#define WIDTH   (VECTOR / 4u)
#define GROUP   64u
#define VECTORS (GROUP / WIDTH)

typedef uint32_t lanes __attribute__((vector_size(VECTOR)));

typedef int32_t signed_lanes __attribute__((vector_size(VECTOR)));

INLINE uint64_t pack(const lanes *m);
INLINE signed_lanes rotate_1(signed_lanes v);
INLINE signed_lanes rotate_2(signed_lanes v);
INLINE signed_lanes rotate_3(signed_lanes v);
INLINE void write_lanes(uint32_t bits, const float *x, uint32_t base, uint32_t *index, float *value);

INLINE lanes load_magnitudes(const float *x) {
    lanes v;
    memcpy(&v, x, sizeof v);
    return v & FRUGI_ABS_MASK;
}

/* The sum of all lanes of four vectors, which fits into 32 bits. */
INLINE uint64_t sum_lanes(const lanes *v) {
    lanes four = (v[0] + v[1]) + (v[2] + v[3]);
    uint32_t lane[WIDTH], sum = 0;
    memcpy(lane, &four, sizeof lane);
    for (uint32_t l = 0; l < WIDTH; l++)
        sum += lane[l];
    return sum;
}

INLINE uint32_t lowest(uint64_t bits) {
    return (uint32_t)__builtin_ctzll(bits | (uint64_t)1 << 63); /* 63 if no bit is set: a valid index of the group */
}

static uint64_t count(const float *x, uint64_t n, uint32_t key) {
    lanes sum[4] = {{0}};
    uint64_t i = 0;
    for (; i + 4 * WIDTH <= n; i += 4 * WIDTH)
        for (uint32_t j = 0; j < 4; j++)
            sum[j] -= (lanes)(load_magnitudes(x + i + j * WIDTH) >= key);
    uint64_t reaching = sum_lanes(sum);
    for (; i < n; i++)
        reaching += frugi_magnitude(x[i]) >= key;
    return reaching;
}

/* The elements of a group that are inside the bracket, as bits; the counters of those below it are incremented. */
INLINE uint64_t inside_bits(const float *x, uint32_t from, uint32_t width, lanes *below) {
    lanes in[VECTORS];
#pragma GCC unroll 16
    for (uint32_t j = 0; j < VECTORS; j++) {
        lanes d = load_magnitudes(x + j * WIDTH) - from;
        below[j % 4] += d >> 31; /* both are below 2^31 */
        in[j] = (lanes)(d < width);
    }
    return pack(in);
}

static uint64_t gather(const float *x, uint64_t n, uint32_t from, uint32_t width, uint32_t *list, uint64_t room,
                       uint64_t *inside) {
    lanes sum[4] = {{0}};
    uint64_t i = 0, out = 0;
    for (; i + GROUP <= n && out + GROUP <= room; i += GROUP) {
        uint64_t bits = inside_bits(x + i, from, width, sum);
        list[out] = frugi_magnitude(x[i + lowest(bits)]);
        out += bits != 0;
        for (bits &= bits - 1; bits; bits &= bits - 1)
            list[out++] = frugi_magnitude(x[i + lowest(bits)]);
    }
    uint64_t below = sum_lanes(sum), written = out;
    if (n - i > GROUP) { /* the list is full */
        uint64_t low = n - i - count(x + i, n - i, from);
        *inside = out + n - i - low - count(x + i, n - i, from + width);
        return below + low;
    }
    for (; i < n; i++) {
        uint32_t key = frugi_magnitude(x[i]);
        below += key < from;
        if (key - from >= width)
            continue;
        out++;
        if (written < room)
            list[written++] = key;
    }
    *inside = out;
    return below;
}

static void clear(float *x, uint32_t n, uint32_t key) {
    for (uint32_t i = 0; i < n; i++)
        x[i] = frugi_bits_f32(frugi_magnitude(x[i]) >= key ? 0 : frugi_f32_bits(x[i]));
}

/* An element is selected if fewer than k others are larger, or equal and before it: adding 1 to those before it makes
 * one comparison of the two. */
static void mark_fours(const float *x, uint32_t words, uint32_t k, uint32_t mask, uint64_t *bits) {
    signed_lanes first, second, third, lane;
    for (uint32_t l = 0; l < WIDTH; l++)
        lane[l] = (int32_t)(l % 4);
    first = -(lane > 2);
    second = -(lane > 1);
    third = -(lane > 0);
    for (uint32_t w = 0; w < words; w++, x += GROUP) {
        lanes in[VECTORS];
#pragma GCC unroll 16
        for (uint32_t j = 0; j < VECTORS; j++) {
            signed_lanes key = (signed_lanes)(load_magnitudes(x + j * WIDTH) & mask);
            signed_lanes larger = (rotate_1(key) + first > key) + (rotate_2(key) + second > key) +
                                  (rotate_3(key) + third > key); /* minus their number */
            in[j] = (lanes)(larger > -(int32_t)k);
        }
        bits[w] = pack(in);
    }
}

/* For each byte of a word, the number of set bits up to its end. */
INLINE uint64_t count_bits_before(uint64_t bits) {
    bits -= bits >> 1 & 0x5555555555555555u;
    bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return bits * 0x0101010101010101u;
}

/* Write base + position and value of the set bits of a word: a few one by one, many in lanes. Up to FRUGI_TOPK_EXTRA
 * more are overwritten. Returns their number. */
INLINE uint32_t write_entries(uint64_t bits, const float *x, uint32_t base, uint32_t *index, float *value) {
    uint64_t before = count_bits_before(bits);
    uint32_t n = (uint32_t)(before >> 56);
    if (n <= FEW) {
#pragma GCC unroll 8
        for (uint32_t j = 0; j < FEW; j++, bits &= bits - 1) {
            uint32_t at = lowest(bits);
            index[j] = base + at;
            value[j] = x[at];
        }
        return n;
    }
    before <<= 8;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < GROUP; i += STRIDE) {
        uint32_t out = (uint32_t)(before >> i) & 255u, some = (uint32_t)(bits >> i) & ((1u << STRIDE) - 1);
        write_lanes(some, x + i, base + i, index + out, value + out);
    }
    return n;
}

static uint32_t emit(const float *x, uint32_t n, uint32_t base, uint32_t key, uint32_t *index, float *value) {
    uint32_t i = 0, out = 0;
    for (; i + GROUP <= n; i += GROUP) {
        lanes reach[VECTORS];
#pragma GCC unroll 16
        for (uint32_t j = 0; j < VECTORS; j++)
            reach[j] = (lanes)(load_magnitudes(x + i + j * WIDTH) >= key);
        uint64_t bits = pack(reach);
        if (bits)
            out += write_entries(bits, x + i, base + i, index + out, value + out);
    }
    for (; i < n; i++) {
        index[out] = base + i;
        value[out] = x[i];
        out += frugi_magnitude(x[i]) >= key;
    }
    return out;
}

static uint32_t take(const float *x, const uint64_t *bits, uint32_t words, uint32_t base, uint32_t *index,
                     float *value) {
    uint32_t out = 0;
    for (uint32_t w = 0; w < words; w++)
        if (bits[w])
            out += write_entries(bits[w], x + w * GROUP, base + w * GROUP, index + out, value + out);
    return out;
}
