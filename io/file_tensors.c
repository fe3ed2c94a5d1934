/*
 * file_tensors.c - conversion of tensors from files to row-major f32.
 *
 * Elements are assembled byte by byte, so that the host's byte order and the alignment inside the file do not matter;
 * compilers turn the common cases into loads.
 */
#include "io/file_tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

size_t fgio_dtype_size(fgio_dtype dtype) {
    switch (dtype) {
    case FGIO_F64:
    case FGIO_OTHER64: return 8;
    case FGIO_F32:
    case FGIO_OTHER32: return 4;
    case FGIO_F16:
    case FGIO_BF16:
    case FGIO_OTHER16: return 2;
    default: return 1;
    }
}

int fgio_tensor_is_float(const fgio_tensor *item) {
    return item->dtype == FGIO_F32 || item->dtype == FGIO_F64 || item->dtype == FGIO_F16 || item->dtype == FGIO_BF16;
}

int fgio_tensor_set_count(fgio_tensor *item, fgio_reason *why) {
    const uint64_t most = UINT64_C(1) << 48; /* the layout's limit; times 8 bytes still fits 64 bits */
    uint64_t count = 1;
    for (uint32_t d = 0; d < item->ndim; d++)
        if (item->shape[d] == 0)
            count = 0;
    for (uint32_t d = 0; d < item->ndim && count != 0; d++) {
        if (item->shape[d] > most / count)
            return fgio_fail(why, "the shape has more than 2^48 elements");
        count *= item->shape[d];
    }
    item->count = count;
    return 0;
}

const char *fgio_shape_text(uint32_t ndim, const uint64_t *shape, char *dst, size_t cap) {
    size_t at = 0;
    for (uint32_t d = 0; d < ndim && at < cap; d++)
        at += (size_t)snprintf(dst + at, cap - at, "%s%" PRIu64, d == 0 ? "[" : ", ", shape[d]);
    if (at < cap)
        snprintf(dst + at, cap - at, "%s]", ndim == 0 ? "[" : "");
    return dst;
}

static uint64_t load_bits(const unsigned char *src, size_t size, int big_endian) {
    uint64_t bits = 0;
    for (size_t i = 0; i < size; i++)
        bits |= (uint64_t)src[big_endian ? size - 1 - i : i] << 8 * i;
    return bits;
}

static float float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float float_of_f16(uint32_t half) {
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
    if (exponent == 0x1f)
        return float_of_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0)
        return float_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float subnormal = (float)fraction * 0x1p-24f; /* exact: a subnormal half is a whole number of 2^-24 */
    return sign != 0 ? -subnormal : subnormal;
}

static float load_float(const unsigned char *src, fgio_dtype dtype, int big_endian) {
    switch (dtype) {
    case FGIO_F64: {
        uint64_t bits = load_bits(src, 8, big_endian);
        double value;
        memcpy(&value, &bits, sizeof value);
        return (float)value;
    }
    case FGIO_F16: return float_of_f16((uint32_t)load_bits(src, 2, big_endian));
    case FGIO_BF16: return float_of_bits((uint32_t)load_bits(src, 2, big_endian) << 16);
    default: return float_of_bits((uint32_t)load_bits(src, 4, big_endian));
    }
}

/* Read the source in order (Fortran: first index fastest) and update the destination index incrementally. */
static void transpose_to_f32(const fgio_tensor *item, float *dst) {
    uint64_t index[FRUG_MAX_DIMS] = {0}, stride[FRUG_MAX_DIMS] = {0};
    uint64_t step = 1, to = 0;
    size_t size = fgio_dtype_size(item->dtype);
    for (uint32_t d = item->ndim; d-- > 0; step *= item->shape[d])
        stride[d] = step;
    for (uint64_t i = 0; i < item->count; i++) {
        dst[to] = load_float(item->data + i * size, item->dtype, item->big_endian);
        for (uint32_t d = 0; d < item->ndim; d++) {
            to += stride[d];
            if (++index[d] < item->shape[d])
                break;
            to -= stride[d] * item->shape[d];
            index[d] = 0;
        }
    }
}

void fgio_tensor_to_f32(const fgio_tensor *item, float *dst) {
    size_t size = fgio_dtype_size(item->dtype);
    if (item->fortran && item->ndim > 1) {
        transpose_to_f32(item, dst);
    } else if (item->dtype == FGIO_F32 && !item->big_endian) {
        for (uint64_t i = 0; i < item->count; i++)
            dst[i] = float_of_bits((uint32_t)load_bits(item->data + 4 * i, 4, 0));
    } else {
        for (uint64_t i = 0; i < item->count; i++)
            dst[i] = load_float(item->data + i * size, item->dtype, item->big_endian);
    }
}
