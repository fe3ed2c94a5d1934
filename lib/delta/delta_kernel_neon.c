/* delta_kernel_neon.c - comparison and hash, 128 bytes at a time in eight vectors. */
#include "delta/delta_kernel.h"

#include "delta/delta_chunk.h"

#include <arm_neon.h>

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

/* The sums of all lanes: two vectors for each of a stripe. */
typedef struct lane_sums {
    uint64x2_t a0, a1, b0, b1, c0, c1, d0, d1;
} lane_sums;

static inline lane_sums load_lanes(const uint64_t *lanes) {
    return (lane_sums){vld1q_u64(lanes),     vld1q_u64(lanes + 2),  vld1q_u64(lanes + 4),  vld1q_u64(lanes + 6),
                       vld1q_u64(lanes + 8), vld1q_u64(lanes + 10), vld1q_u64(lanes + 12), vld1q_u64(lanes + 14)};
}

static inline void store_lanes(lane_sums s, uint64_t *lanes) {
    vst1q_u64(lanes, s.a0);
    vst1q_u64(lanes + 2, s.a1);
    vst1q_u64(lanes + 4, s.b0);
    vst1q_u64(lanes + 6, s.b1);
    vst1q_u64(lanes + 8, s.c0);
    vst1q_u64(lanes + 10, s.c1);
    vst1q_u64(lanes + 12, s.d0);
    vst1q_u64(lanes + 14, s.d1);
}

typedef uint64x2_t key_vector;

static inline key_vector spread(uint64_t number) {
    return vdupq_n_u64(number);
}

static inline key_vector add_keys(key_vector a, key_vector b) {
    return vaddq_u64(a, b);
}

static inline void hash_vector(uint8x16_t v, uint8x16_t w, uint64x2_t key, uint64x2_t next, uint64x2_t *low,
                               uint64x2_t *high) {
    uint32x4_t x = vreinterpretq_u32_u64(veorq_u64(vreinterpretq_u64_u8(v), key));
    uint32x4_t y = vreinterpretq_u32_u64(veorq_u64(vreinterpretq_u64_u8(w), next));
    *low = vmlal_u32(*low, vget_low_u32(x), vget_low_u32(y));
    *high = vmlal_high_u32(*high, x, y);
}

static inline void hash_block(stripe x, stripe y, uint64x2_t key, lane_sums *s) {
    uint64x2_t next = add_keys(key, spread(FRUGI_DELTA_STEP));
    hash_vector(x.a, y.a, key, next, &s->a0, &s->a1);
    hash_vector(x.b, y.b, key, next, &s->b0, &s->b1);
    hash_vector(x.c, y.c, key, next, &s->c0, &s->c1);
    hash_vector(x.d, y.d, key, next, &s->d0, &s->d1);
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

#include "delta/delta_scan.h"

const frugi_delta_kernel frugi_delta_kernel_neon = {scan, copy, &frugi_delta_chunk_code_plain};
