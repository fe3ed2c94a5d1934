/* file_tensors.h - tensors as files describe them: views into the bytes of a file that was read whole. */
#ifndef FRUGI_FILE_TENSORS_H
#define FRUGI_FILE_TENSORS_H

#include "frugrad.h"
#include "io/error.h"

#include <stddef.h>
#include <stdint.h>

/** Element types; those that frugi_item_to_f32() does not take only have a size. */
typedef enum frugi_dtype {
    FRUGI_F32,
    FRUGI_F64,
    FRUGI_F16,
    FRUGI_BF16,
    FRUGI_U8,
    FRUGI_OTHER8,
    FRUGI_OTHER16,
    FRUGI_OTHER32,
    FRUGI_OTHER64
} frugi_dtype;

typedef struct frugi_item {
    char *name; /* owned */
    frugi_dtype dtype;
    int big_endian;
    int fortran;                   /* the first index runs fastest */
    uint32_t ndim;                 /* at most FRUG_MAX_DIMS */
    uint64_t shape[FRUG_MAX_DIMS]; /* row-major, unless fortran */
    uint64_t count;                /* product of the shape */
    const unsigned char *data;     /* count elements inside the file's bytes; NULL where only the header was read */
    uint64_t place;                /* safetensors: where in the file they begin, in bytes */
} frugi_item;

/** Bytes of one element. */
size_t frugi_dtype_size(frugi_dtype dtype);

/** Set item->count from its shape, refusing products that no file can hold. Returns 0 or -1. */
int frugi_item_count(frugi_item *item, frugi_why *why);

/** Write a shape as "[64, 3, 3, 3]" into a buffer, and return it. */
const char *frugi_shape_text(uint32_t ndim, const uint64_t *shape, char *dst, size_t cap);

/** Whether the numbers can become f32: F32, F64, F16 and BF16. */
int frugi_item_is_float(const frugi_item *item);

/** Convert to row-major f32; dst has item->count elements. The item must be float. */
void frugi_item_to_f32(const frugi_item *item, float *dst);

#endif
