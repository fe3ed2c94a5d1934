/* vectors.h - vectors of LANES floats in the compiler's vector types. LANES is 4, which is SSE2 or NEON, unless the
 * file that includes this defines it. */
#ifndef FGT_VECTORS_H
#define FGT_VECTORS_H

#include <stdint.h>

#ifndef LANES
#define LANES 4
#endif

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t int_vec __attribute__((vector_size(4 * LANES)));

/* Where memcpy() fills a vector whose lanes are used, gcc splits it into scalars. */
typedef float unaligned_vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline vec load(const float *p) {
    return *(const unaligned_vec *)p;
}

static inline void store(float *p, vec v) {
    *(unaligned_vec *)p = v;
}

#if LANES == 4
static inline float lane_sum(vec v) {
    return (v[0] + v[1]) + (v[2] + v[3]);
}
#endif

#endif
