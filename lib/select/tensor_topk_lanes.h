/* tensor_topk_lanes.h - primitives of tensor_topk_scan.h where a comparison gives lanes of ones and zeros. */
#ifndef FRUGI_TENSOR_TOPK_LANES_H
#define FRUGI_TENSOR_TOPK_LANES_H

INLINE lanes less(signed_lanes v, int32_t limit) {
    return (lanes)(v < limit);
}

INLINE lanes add_marks(lanes sum, lanes m) {
    return sum - m;
}

INLINE void clear_marks(float *x, lanes m) {
    lanes v;
    memcpy(&v, x, sizeof v);
    v &= ~m;
    memcpy(x, &v, sizeof v);
}

#endif
