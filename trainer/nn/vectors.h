/* vectors.h - vectors of LANES floats in the compiler's vector types; LANES is defined by the file that includes this.
 */
#ifndef FGT_VECTORS_H
#define FGT_VECTORS_H

typedef float vec __attribute__((vector_size(4 * LANES)));

/* Where memcpy() fills a vector whose lanes are used, gcc splits it into scalars. */
typedef float unaligned_vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline vec load(const float *p) {
    return *(const unaligned_vec *)p;
}

static inline void store(float *p, vec v) {
    *(unaligned_vec *)p = v;
}

#endif
