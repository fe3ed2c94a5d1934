/*
 * tensor_topk_scan.h - the scans of tensor_topk_kernel.h in vectors of any width; the body of their variants.
 *
 * The results of 64 comparisons are packed into the bits of one word. Cost: about one instruction per element, so
 * memory bandwidth is the limit.
 *
 * The including file defines
 *   VECTOR   bytes of a vector
 *   MARKS    the type of a comparison of all lanes of a vector: lanes that are all ones or all zeros, or bits
 *   reach(x, key)      the lanes whose magnitudes are at least key
 *   less(v, limit)     the lanes that are less than limit
 *   pack(m)            one bit per lane of 64 lanes
 *   add_marks(sum, m)  1 is added to each lane of sum that is marked
 *   clear_marks(x, m)  the marked elements become 0
 *   take(x, bits, words, base, index, value)   as in the table of kernels
 */
#include "base/float_bits.h"
#include "select/bit_positions.h"

#define WIDTH   (VECTOR / 4u)
#define GROUP   64u
#define TOP_BIT 0x80000000u
#define VECTORS (GROUP / WIDTH)

typedef uint32_t lanes __attribute__((vector_size(VECTOR)));

typedef int32_t signed_lanes __attribute__((vector_size(VECTOR)));

INLINE MARKS reach(const float *x, uint32_t key);
INLINE MARKS less(signed_lanes v, int32_t limit);
INLINE uint64_t pack(const MARKS *m);
INLINE lanes add_marks(lanes sum, MARKS m);
INLINE void clear_marks(float *x, MARKS m);
static uint32_t take(const float *x, const uint64_t *bits, uint32_t words, uint32_t base, uint32_t *index,
                     float *value);

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
            sum[j] = add_marks(sum[j], reach(x + i + j * WIDTH, key));
    uint64_t reaching = sum_lanes(sum);
    for (; i < n; i++)
        reaching += frugi_magnitude(x[i]) >= key;
    return reaching;
}

/* The elements of a group that are inside the bracket, as bits; the counters of those not below it are incremented.
 * Both ends are moved by 2^31, because there may be no comparison of unsigned numbers. */
INLINE uint64_t inside_bits(const float *x, uint32_t from, uint32_t width, lanes *reaching) {
    MARKS in[VECTORS];
#pragma GCC unroll 16
    for (uint32_t j = 0; j < VECTORS; j++) {
        lanes d = load_magnitudes(x + j * WIDTH) - (from - TOP_BIT);
        reaching[j % 4] += d >> 31; /* magnitudes are below 2^31 */
        in[j] = less((signed_lanes)d, (int32_t)(width - TOP_BIT));
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
    uint64_t below = i - sum_lanes(sum), written = out;
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
    uint32_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        clear_marks(x + i, reach(x + i, key));
    for (; i < n; i++)
        x[i] = frugi_magnitude(x[i]) >= key ? 0.0f : x[i];
}

/* All comparisons come first: the CPU would have to wait for the bits of a word before it could write its entries. */
static uint32_t emit(const float *x, uint32_t n, uint32_t base, uint32_t key, uint32_t *index, float *value) {
    uint64_t bits[FRUGI_TOPK_CHUNK / GROUP];
    uint32_t words = n / GROUP;
    for (uint32_t w = 0; w < words; w++) {
        MARKS reaching[VECTORS];
#pragma GCC unroll 16
        for (uint32_t j = 0; j < VECTORS; j++)
            reaching[j] = reach(x + w * GROUP + j * WIDTH, key);
        bits[w] = pack(reaching);
    }
    uint32_t out = take(x, bits, words, base, index, value);
    for (uint32_t i = words * GROUP; i < n; i++) {
        index[out] = base + i;
        value[out] = x[i];
        out += frugi_magnitude(x[i]) >= key;
    }
    return out;
}
