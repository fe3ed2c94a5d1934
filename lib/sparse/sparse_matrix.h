/*
 * sparse_matrix.h - a packed matrix in memory, in one of four forms. A panel is four rows.
 *
 *   rows      f32. The entries of one row after the other, each with its column; where the kernel expands vectors by a
 *             mask, with one mark per column instead of columns
 *   half      f32, at most 4 entries in every 8 columns (2:4 and 4:8). For each panel and each 8 columns: a byte of
 *             marks of each row, with exactly 4 ones, and 4 values of each row. Nothing has to be counted
 *   columns   f32 or int8, dense: one column after the other, so that columns can be skipped (sparse_columns.c)
 *   windows   int8. Steps of 16 slots, 4 for each row of a panel. All columns of a step are in a window of 32 columns,
 *             which a kernel holds in registers and looks them up in; slots without an entry have weight 0
 */
#ifndef FRUGI_SPARSE_MATRIX_H
#define FRUGI_SPARSE_MATRIX_H

#include "frugrad/sparse.h"
#include "sparse/sparse_kernel.h"

#define FRUGI_SPARSE_PANEL   4u
#define FRUGI_SPARSE_WINDOW  32u
#define FRUGI_SPARSE_STEP    32u /* bytes: 16 columns in the window, 16 weights */
#define FRUGI_SPARSE_COLUMNS 65536u

typedef enum frugi_sparse_form {
    FRUGI_SPARSE_ROWS,
    FRUGI_SPARSE_HALF,
    FRUGI_SPARSE_WINDOWS,
    FRUGI_SPARSE_BY_COLUMN
} frugi_sparse_form;

struct frug_sparse {
    const frugi_sparse_kernel *kernel;
    frugi_sparse_form form;
    uint32_t rows, cols, panels;
    uint32_t stride; /* columns: elements of a column, with zeros behind the last row */
    uint64_t entries;
    uint32_t *begin; /* rows: first value of each row, and the end; windows: first step of each panel, and the end */
    float *values;   /* rows: padded with zeros to a multiple of 8 for each row unless there are marks; half; columns */
    uint16_t *columns;     /* rows: of each value; NULL with marks */
    uint16_t *marks;       /* rows: one bit per column, rounded up to 16 for each row */
    unsigned char *bytes;  /* half: the marks; windows: the steps; columns: int8 */
    uint32_t (*lookup)[4]; /* half: where the four ones of each of the 256 bytes are, as the kernel needs it */
    uint16_t *base;        /* windows: first column of each step's window */
    float *scale;          /* int8: of each row */
    size_t memory;         /* bytes of all of these */
};

/** Where the rows of a matrix come from, one at a time. */
typedef struct frugi_row_source {
    void *ctx;
    /** Write a row as dense f32, and return its scale: weights are what was written times it. */
    float (*read)(void *ctx, uint32_t row, float *dst);
} frugi_row_source;

/** The kernel in use; FRUG_ERR_CONFIG if FRUG_ISA names none that runs here. */
frug_status frugi_sparse_kernel_chosen(const frugi_sparse_kernel **kernel);

/** Pack the rows of a source. int8: what it writes are integers of -127 to 127. The rows are read in
 *  their order, twice. */
frug_status frugi_sparse_build(const frugi_row_source *source, uint32_t rows, uint32_t cols, frug_sparse_code code,
                               const frugi_sparse_kernel *kernel, frug_sparse **matrix);

/** Steps of a panel, given its rows. dst, of zeros, and base may be NULL, to count only. */
uint32_t frugi_sparse_pack_windows(const float *const row[FRUGI_SPARSE_PANEL], uint32_t cols, const uint8_t *slot,
                                   unsigned char *dst, uint16_t *base);

/** Marks of 16 columns per row. */
static inline size_t frugi_sparse_mark_words(const frug_sparse *m) {
    return ((size_t)m->cols + 15) / 16;
}

/** Scale of int8 weights for a row: its largest magnitude / 127. */
float frugi_int8_scale(const float *row, uint32_t n, size_t stride);

/** Nearest integer of w / scale, within -127 to 127. */
float frugi_int8_round(float w, float scale);

#endif
