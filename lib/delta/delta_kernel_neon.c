/* delta_kernel_neon.c - comparison and hash, 64 bytes at a time in four vectors. */
#include "delta/delta_kernel.h"

#include <arm_neon.h>

typedef struct lane_sums {
    uint64x2_t sum[4];
} lane_sums;

static inline lane_sums load_lanes(const uint64_t *lanes) {
    return (lane_sums){{vld1q_u64(lanes), vld1q_u64(lanes + 2), vld1q_u64(lanes + 4), vld1q_u64(lanes + 6)}};
}

static inline void store_lanes(const lane_sums *sums, uint64_t *lanes) {
    for (int i = 0; i < 4; i++)
        vst1q_u64(lanes + 2 * i, sums->sum[i]);
}

/* Two vectors at a time, so that their lower and upper halves fill a vector each. */
static inline void hash_pair(uint8x16_t v, uint8x16_t w, uint64x2_t key, uint64x2_t *sum) {
    uint32x4_t x = vreinterpretq_u32_u64(veorq_u64(vreinterpretq_u64_u8(v), key));
    uint32x4_t y = vreinterpretq_u32_u64(veorq_u64(vreinterpretq_u64_u8(w), key));
    uint32x4_t low = vuzp1q_u32(x, y), high = vuzp2q_u32(x, y);
    sum[0] = vmlal_u32(vaddq_u64(sum[0], vreinterpretq_u64_u8(v)), vget_low_u32(low), vget_low_u32(high));
    sum[1] = vmlal_high_u32(vaddq_u64(sum[1], vreinterpretq_u64_u8(w)), low, high);
}

/* Four vectors with names, because gcc keeps arrays of vectors in memory. */
typedef struct stripe {
    uint8x16_t a, b, c, d;
} stripe;

static inline stripe load_stripe(const unsigned char *p) {
    return (stripe){vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
}

static inline void store_stripe(stripe v, unsigned char *p) {
    vst1q_u8(p, v.a);
    vst1q_u8(p + 16, v.b);
    vst1q_u8(p + 32, v.c);
    vst1q_u8(p + 48, v.d);
}

static inline void hash_stripe(stripe v, uint64x2_t key, lane_sums *sums) {
    hash_pair(v.a, v.b, key, sums->sum);
    hash_pair(v.c, v.d, key, sums->sum + 2);
}

/* Sixteen bytes of all ones or all zeros per vector to bits that are set where there are zeros; sums of adjacent bytes
 * collect them. */
static inline uint8x16_t unset_bits(uint8x16_t equal) {
    static const uint8_t place[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    return vbicq_u8(vld1q_u8(place), equal);
}

static inline uint64_t collect(uint8x16_t a, uint8x16_t b) {
    uint8x16_t pairs = vpaddq_u8(a, b), fours = vpaddq_u8(pairs, pairs);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(fours, fours)), 0);
}

static inline uint64_t changed_1(stripe x, stripe y) {
    uint8x16_t front = vpaddq_u8(unset_bits(vceqq_u8(x.a, y.a)), unset_bits(vceqq_u8(x.b, y.b)));
    uint8x16_t back = vpaddq_u8(unset_bits(vceqq_u8(x.c, y.c)), unset_bits(vceqq_u8(x.d, y.d)));
    uint8x16_t all = vpaddq_u8(front, back);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(all, all)), 0);
}

static inline uint8x16_t equal_2(uint8x16_t x, uint8x16_t y) {
    return vreinterpretq_u8_u16(vceqq_u16(vreinterpretq_u16_u8(x), vreinterpretq_u16_u8(y)));
}

static inline uint32_t changed_2(stripe x, stripe y) {
    uint8x16_t front = vuzp1q_u8(equal_2(x.a, y.a), equal_2(x.b, y.b));
    uint8x16_t back = vuzp1q_u8(equal_2(x.c, y.c), equal_2(x.d, y.d));
    return (uint32_t)collect(unset_bits(front), unset_bits(back));
}

static inline uint8x16_t equal_4(uint8x16_t x, uint8x16_t y) {
    return vreinterpretq_u8_u32(vceqq_u32(vreinterpretq_u32_u8(x), vreinterpretq_u32_u8(y)));
}

static inline uint8x16_t narrow_4(uint8x16_t x, uint8x16_t y) {
    return vreinterpretq_u8_u16(vuzp1q_u16(vreinterpretq_u16_u8(x), vreinterpretq_u16_u8(y)));
}

static inline uint16_t changed_4(stripe x, stripe y) {
    uint8x16_t front = narrow_4(equal_4(x.a, y.a), equal_4(x.b, y.b));
    uint8x16_t back = narrow_4(equal_4(x.c, y.c), equal_4(x.d, y.d));
    uint8x16_t all = unset_bits(vuzp1q_u8(front, back));
    return (uint16_t)collect(all, all);
}

static inline uint8x16_t equal_8(uint8x16_t x, uint8x16_t y) {
    return vreinterpretq_u8_u64(vceqq_u64(vreinterpretq_u64_u8(x), vreinterpretq_u64_u8(y)));
}

static inline uint8x16_t narrow_8(uint8x16_t x, uint8x16_t y) {
    return vreinterpretq_u8_u32(vuzp1q_u32(vreinterpretq_u32_u8(x), vreinterpretq_u32_u8(y)));
}

static inline uint8_t changed_8(stripe x, stripe y) {
    uint8x16_t front = narrow_8(equal_8(x.a, y.a), equal_8(x.b, y.b));
    uint8x16_t back = narrow_8(equal_8(x.c, y.c), equal_8(x.d, y.d));
    uint8x16_t all = narrow_4(front, back);
    all = unset_bits(vuzp1q_u8(all, all));
    return (uint8_t)collect(all, all);
}

#define SCAN(width, type)                                                                                              \
    static void scan_##width(const unsigned char *before, const unsigned char *after, size_t stripes,                  \
                             unsigned char *changed, uint64_t *lanes) {                                                \
        lane_sums sums = load_lanes(lanes);                                                                            \
        uint64x2_t key = vdupq_n_u64(FRUGI_DELTA_KEY), step = vdupq_n_u64(FRUGI_DELTA_STEP);                           \
        for (size_t s = 0; s < stripes; s++, key = vaddq_u64(key, step)) {                                             \
            const unsigned char *p = before + FRUGI_DELTA_STRIPE * s, *q = after + FRUGI_DELTA_STRIPE * s;             \
            stripe x = load_stripe(p), y = load_stripe(q);                                                             \
            type bits = changed_##width(x, y);                                                                         \
            __builtin_memcpy(changed + sizeof bits * s, &bits, sizeof bits);                                           \
            hash_stripe(x, key, &sums);                                                                                \
        }                                                                                                              \
        store_lanes(&sums, lanes);                                                                                     \
    }

SCAN(1, uint64_t)
SCAN(2, uint32_t)
SCAN(4, uint16_t)
SCAN(8, uint8_t)

static void scan(const unsigned char *before, const unsigned char *after, size_t stripes, uint32_t width,
                 unsigned char *changed, uint64_t *lanes) {
    switch (width) {
    case 1: scan_1(before, after, stripes, changed, lanes); break;
    case 2: scan_2(before, after, stripes, changed, lanes); break;
    case 4: scan_4(before, after, stripes, changed, lanes); break;
    default: scan_8(before, after, stripes, changed, lanes); break;
    }
}

static void copy(const unsigned char *src, size_t stripes, unsigned char *dst, uint64_t *lanes) {
    lane_sums sums = load_lanes(lanes);
    uint64x2_t key = vdupq_n_u64(FRUGI_DELTA_KEY), step = vdupq_n_u64(FRUGI_DELTA_STEP);
    for (size_t s = 0; s < stripes; s++, key = vaddq_u64(key, step)) {
        stripe v = load_stripe(src + FRUGI_DELTA_STRIPE * s);
        if (dst != NULL)
            store_stripe(v, dst + FRUGI_DELTA_STRIPE * s);
        hash_stripe(v, key, &sums);
    }
    store_lanes(&sums, lanes);
}

const frugi_delta_kernel frugi_delta_kernel_neon = {scan, copy};
