/*
 * sparse_columns.c - dense matrices for vectors of which many elements are zero, as thresholded activations: they are
 * stored column by column, and the columns of zeros are not read.
 *
 * Eight columns at a time are added to the sums of some thousand rows, which stay in the L1 cache. A column is read
 * from its begin to its end, because prefetchers of CPUs follow nothing that is shorter: pieces of columns whose sums
 * stay in registers took longer the more of them were skipped. While eight columns are added, the begins of the next
 * eight are fetched. f32: products are added in the order of the columns, so that all variants give the same bits;
 * int8: sums are exact.
 */
#include "sparse/sparse_columns.h"

#include "base/alloc.h"
#include "base/float_bits.h"
#include "base/status.h"

#include <string.h>

enum { ROWS_MOST = 3072, LINE = 64, LINES_AHEAD = 8 };

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* ---- packing ------------------------------------------------------------------------------------ */

static void store_column_row(frug_sparse *m, uint32_t row, const float *w, size_t step) {
    if (m->bytes)
        m->scale[row] = frugi_int8_scale(w, m->cols, step);
    for (uint32_t c = 0; c < m->cols; c++) {
        float value = w[c * step];
        m->entries += value != 0.0f;
        if (m->bytes)
            m->bytes[(size_t)c * m->stride + row] = (unsigned char)(int8_t)frugi_int8_round(value, m->scale[row]);
        else
            m->values[(size_t)c * m->stride + row] = value;
    }
}

static frug_status reserve_columns(frug_sparse *m, frug_sparse_code code) {
    const size_t count = (size_t)m->stride * m->cols, slack = LINE; /* rows behind the last are zero */
    if (code == FRUG_SPARSE_INT8) {
        m->bytes = frugi_calloc(count + slack, 1);
        m->scale = frugi_calloc(m->rows, sizeof *m->scale);
        m->memory = count + m->rows * sizeof *m->scale;
    } else {
        m->values = frugi_calloc(count + slack, sizeof *m->values);
        m->memory = count * sizeof *m->values;
    }
    return m->values || (m->bytes && m->scale) ? FRUG_OK : frugi_fail(FRUG_ERR_MEMORY, "no memory for a packed matrix");
}

frug_status frug_sparse_create_columns(const float *w, uint32_t rows, uint32_t cols, int input_first,
                                       frug_sparse_code code, frug_sparse **matrix) {
    FRUG_FAIL_IF(w == NULL || matrix == NULL || rows == 0 || cols == 0, FRUG_ERR_ARG, "no weights, or an empty matrix");
    FRUG_FAIL_IF(code != FRUG_SPARSE_F32 && code != FRUG_SPARSE_INT8, FRUG_ERR_ARG, "unknown code of weights");
    FRUG_FAIL_IF(cols > FRUGI_SPARSE_COLUMNS || rows > UINT32_MAX - FRUGI_COLUMN_ROWS, FRUG_ERR_ARG,
                 "%u x %u; a packed matrix has at most %u columns", rows, cols, FRUGI_SPARSE_COLUMNS);
    FRUG_FAIL_IF(!frugi_all_finite(w, (size_t)rows * cols), FRUG_ERR_ARG, "the matrix has a NaN or an infinity");
    const frugi_sparse_kernel *kernel = NULL;
    FRUG_TRY(frugi_sparse_kernel_chosen(&kernel));
    frug_sparse *m = frugi_calloc(1, sizeof *m);
    FRUG_FAIL_IF(m == NULL, FRUG_ERR_MEMORY, "no memory for a packed matrix");
    m->kernel = kernel;
    m->form = FRUGI_SPARSE_BY_COLUMN;
    m->rows = rows;
    m->cols = cols;
    m->stride = (rows + FRUGI_COLUMN_ROWS - 1) / FRUGI_COLUMN_ROWS * FRUGI_COLUMN_ROWS;
    frug_status status = reserve_columns(m, code);
    for (uint32_t r = 0; r < rows && status == FRUG_OK; r++)
        store_column_row(m, r, w + (input_first ? r : (size_t)r * cols), input_first ? rows : 1);
    if (status == FRUG_OK)
        *matrix = m;
    else
        frug_sparse_destroy(m);
    return status;
}

void frugi_columns_unpack(const frug_sparse *m, uint32_t row, float *dst) {
    for (uint32_t c = 0; c < m->cols; c++) {
        size_t at = (size_t)c * m->stride + row;
        dst[c] = m->bytes ? (float)(int8_t)m->bytes[at] * m->scale[row] : m->values[at];
    }
}

/* ---- products ----------------------------------------------------------------------------------- */

/** The elements of a vector that are not zero, and zeros up to a multiple of eight. */
typedef struct active_columns {
    uint32_t count;
    uint32_t *index;
    float *value;       /* f32 */
    int8_t *high, *low; /* int8 */
    float scale;
} active_columns;

size_t frugi_columns_work_bytes(uint32_t cols) {
    return (size_t)(cols + FRUGI_COLUMNS_AT_ONCE) * (sizeof(uint32_t) + sizeof(float)) +
           2 * (size_t)(cols + FRUGI_COLUMNS_AT_ONCE) + frugi_rounded_bytes(cols);
}

static active_columns find_active(const frug_sparse *m, const float *x, void *work) {
    const uint32_t room = m->cols + FRUGI_COLUMNS_AT_ONCE;
    active_columns a = {.index = work};
    a.value = (float *)(a.index + room);
    a.high = (int8_t *)(a.value + room);
    a.low = a.high + room;
    frugi_rounded_vector rounded = {0};
    if (m->bytes)
        rounded = frugi_round_vector(x, m->cols, a.low + room);
    a.scale = rounded.scale;
    for (uint32_t c = 0; c < m->cols; c++) {
        a.index[a.count] = c;
        a.value[a.count] = x[c];
        if (m->bytes) {
            a.high[a.count] = rounded.high[c];
            a.low[a.count] = rounded.low[c];
        }
        a.count += x[c] != 0.0f;
    }
    for (; a.count % FRUGI_COLUMNS_AT_ONCE; a.count++) { /* its last column is in the cache */
        a.index[a.count] = a.index[a.count - 1];
        a.value[a.count] = 0.0f;
        a.high[a.count] = a.low[a.count] = 0;
    }
    return a;
}

static void fetch_begins(const char *const column[FRUGI_COLUMNS_AT_ONCE]) {
    for (uint32_t j = 0; j < FRUGI_COLUMNS_AT_ONCE; j++)
        for (int line = 0; line < LINES_AHEAD; line++)
            __builtin_prefetch(column[j] + line * LINE);
}

/* The begins of eight columns, from a row on. */
static void columns_at(const frug_sparse *m, const uint32_t *index, uint32_t row,
                       const char *column[FRUGI_COLUMNS_AT_ONCE]) {
    const char *w = m->bytes ? (const char *)m->bytes : (const char *)m->values;
    const size_t each = m->bytes ? 1 : sizeof(float);
    for (uint32_t j = 0; j < FRUGI_COLUMNS_AT_ONCE; j++)
        column[j] = w + each * ((size_t)index[j] * m->stride + row);
}

static void multiply_f32(const frug_sparse *m, const active_columns *a, uint32_t first, uint32_t rows, float *y) {
    float sums[ROWS_MOST];
    const char *column[FRUGI_COLUMNS_AT_ONCE], *next[FRUGI_COLUMNS_AT_ONCE];
    memset(sums, 0, rows * sizeof *sums);
    for (uint32_t i = 0; i < a->count; i += FRUGI_COLUMNS_AT_ONCE) {
        columns_at(m, a->index + i, first, column);
        if (i + FRUGI_COLUMNS_AT_ONCE < a->count) {
            columns_at(m, a->index + i + FRUGI_COLUMNS_AT_ONCE, first, next);
            fetch_begins(next);
        }
        m->kernel->columns((const float *const *)column, a->value + i, rows, sums);
    }
    memcpy(y + first, sums, min_u32(rows, m->rows - first) * sizeof *sums);
}

static void multiply_int8(const frug_sparse *m, const active_columns *a, uint32_t first, uint32_t rows, float *y) {
    int32_t high[ROWS_MOST], low[ROWS_MOST];
    const char *column[FRUGI_COLUMNS_AT_ONCE], *next[FRUGI_COLUMNS_AT_ONCE];
    memset(high, 0, rows * sizeof *high);
    memset(low, 0, rows * sizeof *low);
    for (uint32_t i = 0; i < a->count; i += FRUGI_COLUMNS_AT_ONCE) {
        columns_at(m, a->index + i, first, column);
        if (i + FRUGI_COLUMNS_AT_ONCE < a->count) {
            columns_at(m, a->index + i + FRUGI_COLUMNS_AT_ONCE, first, next);
            fetch_begins(next);
        }
        m->kernel->columns_int8((const int8_t *const *)column, a->high + i, a->low + i, rows, high, low);
    }
    for (uint32_t r = 0; r < min_u32(rows, m->rows - first); r++) {
        double sum = 255.0 * (double)high[r] + (double)low[r]; /* exact */
        y[first + r] = (float)(sum * ((double)m->scale[first + r] * (double)a->scale));
    }
}

void frugi_columns_multiply(const frug_sparse *m, int threads, const float *x, float *y, void *work) {
    const active_columns a = find_active(m, x, work);
    const uint32_t units = m->stride / FRUGI_COLUMN_ROWS;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        uint32_t row = (uint32_t)((uint64_t)units * (unsigned)t / (unsigned)threads) * FRUGI_COLUMN_ROWS;
        uint32_t end = (uint32_t)((uint64_t)units * (unsigned)(t + 1) / (unsigned)threads) * FRUGI_COLUMN_ROWS;
        for (; row < end; row += ROWS_MOST)
            (m->bytes ? multiply_int8 : multiply_f32)(m, &a, row, min_u32(ROWS_MOST, end - row), y);
    }
}
