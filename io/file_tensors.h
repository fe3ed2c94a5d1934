/* file_tensors.h - a tensor as a file describes it: a view into the bytes of a file that was read whole. */
#ifndef FGIO_FILE_TENSORS_H
#define FGIO_FILE_TENSORS_H

#include "frugrad.h"
#include "io/error.h"

#include <stddef.h>
#include <stdint.h>

/** Element types. FGIO_U8 and FGIO_OTHER* have a size only; fgio_tensor_to_f32() does not convert them. */
typedef enum fgio_dtype {
    FGIO_F32,
    FGIO_F64,
    FGIO_F16,
    FGIO_BF16,
    FGIO_U8,
    FGIO_OTHER8,
    FGIO_OTHER16,
    FGIO_OTHER32,
    FGIO_OTHER64
} fgio_dtype;

typedef struct fgio_tensor {
    char *name; /* owned */
    fgio_dtype dtype;
    const char *word; /* safetensors: the name of the dtype in the file */
    int big_endian;
    int fortran;                   /* column-major: the first index is the fastest */
    uint32_t ndim;                 /* at most FRUG_MAX_DIMS */
    uint64_t shape[FRUG_MAX_DIMS]; /* row-major, unless fortran */
    uint64_t count;                /* product of the shape */
    const unsigned char *data;     /* count elements inside the file's bytes; NULL if only the header was read */
    uint64_t offset;               /* safetensors: offset of the data in the file, in bytes */
} fgio_tensor;

/** Bytes of one element. */
size_t fgio_dtype_size(fgio_dtype dtype);

/** Set item->count from its shape. Returns 0, or -1 for more than 2^48 elements. */
int fgio_tensor_set_count(fgio_tensor *item, fgio_reason *why);

/** Write a shape as "[64, 3, 3, 3]" into a buffer, and return it. */
const char *fgio_shape_text(uint32_t ndim, const uint64_t *shape, char *dst, size_t cap);

/** Whether the elements can be converted to f32: F32, F64, F16 and BF16. */
int fgio_tensor_is_float(const fgio_tensor *item);

/** Convert to row-major f32; dst has item->count elements. The item must be float. */
void fgio_tensor_to_f32(const fgio_tensor *item, float *dst);

#endif
