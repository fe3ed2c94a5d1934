/*
 * sparse_multiply.c - products of a packed matrix with vectors: rounding and transposition of the vectors, and division
 * of the rows among threads.
 */
#include "sparse/sparse_columns.h"

#include "base/float_bits.h"
#include "base/status.h"
#include "base/struct_size.h"

#include <string.h>

enum { LANES_MOST = 16 };

static size_t work_bytes(const frug_sparse *m) {
    return m->form == FRUGI_SPARSE_BY_COLUMN ? frugi_columns_work_bytes(m->cols)
                                             : (size_t)m->cols * LANES_MOST * sizeof(float) + 2 * FRUGI_SPARSE_WINDOW;
}

frug_status frug_sparse_get_info(const frug_sparse *m, frug_sparse_info *info) {
    static const char *const forms[] = {"rows", "half", "windows", "columns"};
    FRUG_FAIL_IF(m == NULL || !frugi_struct_valid(info), FRUG_ERR_ARG, "no matrix, or struct_size is not set");
    frugi_struct_write(info, &(frug_sparse_info){
                                 .struct_size = sizeof *info,
                                 .rows = m->rows,
                                 .cols = m->cols,
                                 .code = m->scale ? FRUG_SPARSE_INT8 : FRUG_SPARSE_F32,
                                 .form = forms[m->form],
                                 .entries = m->entries,
                                 .bytes = m->memory,
                                 .work_bytes = work_bytes(m),
                             });
    return FRUG_OK;
}

/* ---- one vector --------------------------------------------------------------------------------- */

size_t frugi_rounded_bytes(uint32_t n) {
    return 2 * ((size_t)n + FRUGI_SPARSE_WINDOW);
}

/* Rounded to 32512 = 255 * 127 + 127 steps on either side of zero. */
frugi_rounded_vector frugi_round_vector(const float *x, uint32_t n, int8_t *work) {
    const float magic = 0x1.8p23f; /* added to a float below 2^22, the sum has the nearest integer in its lower bits */
    float most = frugi_bits_f32(frugi_largest_magnitude(x, n)), inverse = most > 0.0f ? 32512.0f / most : 0.0f;
    int8_t *high = work, *low = work + n + FRUGI_SPARSE_WINDOW;
    if (!(inverse <= FLT_MAX)) /* all of x is below 2^-112 or so */
        inverse = 0.0f;
    for (uint32_t i = 0; i < n; i++) {
        int32_t q = (int32_t)(frugi_f32_bits(x[i] * inverse + magic) - frugi_f32_bits(magic));
        int32_t h = (int32_t)(frugi_f32_bits((float)q * (1.0f / 255.0f) + magic) - frugi_f32_bits(magic));
        high[i] = (int8_t)h;
        low[i] = (int8_t)(q - 255 * h);
    }
    memset(high + n, 0, FRUGI_SPARSE_WINDOW);
    memset(low + n, 0, FRUGI_SPARSE_WINDOW);
    return (frugi_rounded_vector){high, low, most / 32512.0f};
}

static uint32_t part_begin(uint32_t panels, int part, int parts) {
    return (uint32_t)((uint64_t)panels * (unsigned)part / (unsigned)parts);
}

static void multiply_one(const frug_sparse *m, int threads, const float *x, float *y, void *work) {
    frugi_rounded_vector rounded = {0};
    if (m->form == FRUGI_SPARSE_WINDOWS)
        rounded = frugi_round_vector(x, m->cols, work);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int t = 0; t < threads; t++) {
        uint32_t first = part_begin(m->panels, t, threads), end = part_begin(m->panels, t + 1, threads);
        switch (m->form) {
        case FRUGI_SPARSE_ROWS: m->kernel->rows(m, x, first, end, y); break;
        case FRUGI_SPARSE_HALF: m->kernel->half(m, x, first, end, y); break;
        default: m->kernel->windows(m, &rounded, first, end, y);
        }
    }
}

/* ---- several vectors ---------------------------------------------------------------------------- */

static void transpose(const float *x, size_t stride, uint32_t count, uint32_t lanes, uint32_t cols, float *dst) {
    memset(dst, 0, (size_t)cols * lanes * sizeof *dst);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t c = 0; c < cols; c++)
            dst[(size_t)c * lanes + i] = x[i * stride + c];
}

static void multiply_batch(const frug_sparse *m, int threads, const float *x, size_t n, size_t x_stride, float *y,
                           size_t y_stride, float *work) {
    const uint32_t lanes = m->kernel->lanes;
    for (size_t v = 0; v < n; v += lanes) {
        uint32_t count = n - v < lanes ? (uint32_t)(n - v) : lanes;
        transpose(x + v * x_stride, x_stride, count, lanes, m->cols, work);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
        for (int t = 0; t < threads; t++)
            m->kernel->batch(m, work, part_begin(m->panels, t, threads), part_begin(m->panels, t + 1, threads), count,
                             y + v * y_stride, y_stride);
    }
}

void frug_sparse_multiply(const frug_sparse *m, int threads, const float *x, size_t n, size_t x_stride, float *y,
                          size_t y_stride, void *work) {
    if (m->form == FRUGI_SPARSE_BY_COLUMN)
        for (size_t v = 0; v < n; v++)
            frugi_columns_multiply(m, threads, x + v * x_stride, y + v * y_stride, work);
    else if (n == 1)
        multiply_one(m, threads, x, y, work);
    else
        multiply_batch(m, threads, x, n, x_stride, y, y_stride, work);
}

/* ---- dense rows --------------------------------------------------------------------------------- */

static void unpack_listed(const frug_sparse *m, uint32_t row, float *dst) {
    for (uint32_t i = m->begin[row]; i < m->begin[row + 1]; i++)
        if (m->values[i] != 0.0f)
            dst[m->columns[i]] = m->values[i];
}

static void unpack_marked(const frug_sparse *m, uint32_t row, float *dst) {
    const size_t words = frugi_sparse_mark_words(m);
    const float *value = m->values + m->begin[row];
    for (size_t i = 0; i < words; i++)
        for (uint32_t bits = m->marks[row * words + i]; bits; bits &= bits - 1)
            dst[16 * i + (size_t)__builtin_ctz(bits)] = *value++;
}

static void unpack_half(const frug_sparse *m, uint32_t row, float *dst) {
    const size_t groups = m->cols / 8, first = (row / FRUGI_SPARSE_PANEL) * groups * FRUGI_SPARSE_PANEL;
    for (size_t g = 0; g < groups; g++) {
        size_t at = first + FRUGI_SPARSE_PANEL * g + row % FRUGI_SPARSE_PANEL;
        const float *value = m->values + 4 * at;
        for (uint32_t bits = m->bytes[at]; bits; bits &= bits - 1)
            dst[8 * g + (size_t)__builtin_ctz(bits)] = *value++;
    }
}

static void unpack_windows(const frug_sparse *m, uint32_t row, float *dst) {
    const uint32_t panel = row / FRUGI_SPARSE_PANEL;
    const uint8_t *slot = m->kernel->slot + 4 * (row % FRUGI_SPARSE_PANEL);
    for (uint32_t s = m->begin[panel]; s < m->begin[panel + 1]; s++)
        for (uint32_t i = 0; i < 4; i++) {
            const unsigned char *step = m->bytes + (size_t)FRUGI_SPARSE_STEP * s;
            int8_t w = (int8_t)step[16 + slot[i]];
            if (w != 0)
                dst[m->base[s] + step[slot[i]]] = (float)w * m->scale[row];
        }
}

void frug_sparse_unpack(const frug_sparse *m, uint32_t first, uint32_t count, float *dst) {
    memset(dst, 0, (size_t)count * m->cols * sizeof *dst);
    for (uint32_t r = first; r < first + count; r++, dst += m->cols) {
        switch (m->form) {
        case FRUGI_SPARSE_ROWS: m->columns ? unpack_listed(m, r, dst) : unpack_marked(m, r, dst); break;
        case FRUGI_SPARSE_HALF: unpack_half(m, r, dst); break;
        case FRUGI_SPARSE_BY_COLUMN: frugi_columns_unpack(m, r, dst); break;
        default: unpack_windows(m, r, dst);
        }
    }
}
