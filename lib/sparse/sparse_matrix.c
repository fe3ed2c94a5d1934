/*
 * sparse_matrix.c - packs a matrix, row by row: it never exists as dense f32 here.
 *
 * The first pass over the rows counts, which decides the form and the sizes; the second one stores.
 */
#include "sparse/sparse_matrix.h"

#include "base/alloc.h"
#include "base/float_bits.h"
#include "base/status.h"

#include <string.h>

#define HALF_LEAST 0.375 /* density from which four of eight are stored as such; below it, zeros would cost more */

/* ---- the first pass ----------------------------------------------------------------------------- */

typedef struct survey {
    uint64_t entries, stored; /* stored: with the padding of rows */
    uint64_t steps;           /* of windows */
    bool finite, half;        /* half: at most 4 entries in every 8 columns */
} survey;

static uint32_t count_entries(const float *row, uint32_t n) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += row[i] != 0.0f;
    return count;
}

/* One bit for each of eight columns. Counting them as floats instead is miscompiled by gcc 12 at -O3. */
static uint32_t mark_entries(const float *eight) {
    uint32_t marks = 0;
    for (uint32_t i = 0; i < 8; i++)
        marks |= (uint32_t)(eight[i] != 0.0f) << i;
    return marks;
}

static uint64_t padded(const frugi_sparse_kernel *kernel, uint32_t entries) {
    return kernel->marks ? entries : ((uint64_t)entries + 7) / 8 * 8;
}

static void survey_row(const frugi_sparse_kernel *kernel, const float *row, uint32_t cols, survey *s) {
    uint32_t entries = count_entries(row, cols);
    s->entries += entries;
    s->stored += padded(kernel, entries);
    s->finite = s->finite && frugi_all_finite(row, cols);
    for (uint32_t i = 0; i + 8 <= cols; i += 8)
        s->half = s->half && __builtin_popcount(mark_entries(row + i)) <= 4;
}

/* Reads a panel into `rows`, with zeros for rows behind the last. */
static void read_panel(const frugi_row_source *source, const frug_sparse *m, uint32_t panel, float *rows,
                       float *scale) {
    for (uint32_t i = 0; i < FRUGI_SPARSE_PANEL; i++) {
        uint32_t r = panel * FRUGI_SPARSE_PANEL + i;
        float *row = rows + (size_t)i * m->cols;
        scale[i] = 0.0f;
        if (r < m->rows)
            scale[i] = source->read(source->ctx, r, row);
        else
            memset(row, 0, (size_t)m->cols * sizeof *row);
    }
}

static uint32_t pack_windows(const frug_sparse *m, const float *rows, unsigned char *dst, uint16_t *base) {
    const float *const row[] = {rows, rows + m->cols, rows + 2 * (size_t)m->cols, rows + 3 * (size_t)m->cols};
    return frugi_sparse_pack_windows(row, m->cols, m->kernel->slot, dst, base);
}

static survey survey_rows(const frugi_row_source *source, const frug_sparse *m, bool windows, float *rows) {
    survey s = {.finite = true, .half = m->cols % 8 == 0 && !windows};
    float scale[FRUGI_SPARSE_PANEL];
    for (uint32_t panel = 0; panel < m->panels; panel++) {
        read_panel(source, m, panel, rows, scale);
        for (uint32_t i = 0; i < FRUGI_SPARSE_PANEL; i++)
            survey_row(m->kernel, rows + (size_t)i * m->cols, m->cols, &s);
        if (windows)
            s.steps += pack_windows(m, rows, NULL, NULL);
    }
    s.half = s.half && (double)s.entries >= HALF_LEAST * (double)m->rows * m->cols;
    return s;
}

/* ---- the second pass ---------------------------------------------------------------------------- */

static void store_row(frug_sparse *m, uint32_t r, const float *row) {
    uint32_t at = m->begin[r];
    for (uint32_t c = 0; c < m->cols; c++) {
        if (row[c] == 0.0f)
            continue;
        if (m->columns)
            m->columns[at] = (uint16_t)c;
        else
            m->marks[frugi_sparse_mark_words(m) * r + c / 16] |= (uint16_t)(1u << c % 16);
        m->values[at++] = row[c];
    }
    m->begin[r + 1] = m->begin[r] + (uint32_t)padded(m->kernel, at - m->begin[r]);
}

/* Marks and values of eight columns of one row: the entries, and the first zeros, so that there are four. */
static unsigned char store_half(const float *eight, float *value) {
    uint32_t marks = mark_entries(eight);
    while (__builtin_popcount(marks) < 4)
        marks |= marks + 1; /* the lowest zero */
    for (uint32_t bits = marks; bits; bits &= bits - 1)
        *value++ = eight[__builtin_ctz(bits)];
    return (unsigned char)marks;
}

static void store_half_panel(frug_sparse *m, uint32_t panel, const float *rows) {
    for (size_t g = 0; g < m->cols / 8; g++)
        for (uint32_t i = 0; i < FRUGI_SPARSE_PANEL; i++) {
            size_t at = FRUGI_SPARSE_PANEL * (panel * (size_t)(m->cols / 8) + g) + i;
            m->bytes[at] = store_half(rows + (size_t)i * m->cols + 8 * g, m->values + 4 * at);
        }
}

static void store_panel_rows(frug_sparse *m, uint32_t panel, const float *rows, const float *scale) {
    uint32_t first = panel * FRUGI_SPARSE_PANEL, count = m->rows - first;
    count = count < FRUGI_SPARSE_PANEL ? count : FRUGI_SPARSE_PANEL;
    switch (m->form) {
    case FRUGI_SPARSE_ROWS:
        for (uint32_t i = 0; i < count; i++)
            store_row(m, first + i, rows + (size_t)i * m->cols);
        break;
    case FRUGI_SPARSE_HALF: store_half_panel(m, panel, rows); break;
    default: {
        uint32_t at = m->begin[panel];
        memcpy(m->scale + first, scale, count * sizeof *scale);
        m->begin[panel + 1] = at + pack_windows(m, rows, m->bytes + (size_t)FRUGI_SPARSE_STEP * at, m->base + at);
    }
    }
}

static void fill_lookup(frug_sparse *m) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t k = 0;
        for (uint32_t bit = 0; bit < 8; bit++)
            if (byte >> bit & 1u && k < 4)
                m->lookup[byte][k++] = m->kernel->lookup_first + bit * m->kernel->lookup_step;
    }
}

/* ---- memory ------------------------------------------------------------------------------------- */

/* Zeroed memory that counts as the matrix's; *failed is set without memory. */
static void *reserve(frug_sparse *m, uint64_t count, size_t each, bool *failed) {
    void *p = frugi_alloc((size_t)count * each + 64); /* kernels may read a vector behind the end */
    m->memory += (size_t)count * each;
    *failed = *failed || p == NULL;
    return p;
}

static frug_status reserve_form(frug_sparse *m, const survey *s) {
    bool failed = false;
    uint64_t groups = (uint64_t)m->panels * FRUGI_SPARSE_PANEL * (m->cols / 8);
    if (m->form == FRUGI_SPARSE_ROWS) {
        m->begin = reserve(m, (uint64_t)m->rows + 1, sizeof *m->begin, &failed);
        m->values = reserve(m, s->stored, sizeof *m->values, &failed);
        if (m->kernel->marks)
            m->marks = reserve(m, m->rows * (uint64_t)frugi_sparse_mark_words(m), sizeof *m->marks, &failed);
        else
            m->columns = reserve(m, s->stored, sizeof *m->columns, &failed);
    } else if (m->form == FRUGI_SPARSE_HALF) {
        m->bytes = reserve(m, groups, 1, &failed);
        m->values = reserve(m, 4 * groups, sizeof *m->values, &failed);
        m->lookup = reserve(m, 256, sizeof *m->lookup, &failed);
    } else {
        m->begin = reserve(m, (uint64_t)m->panels + 1, sizeof *m->begin, &failed);
        m->bytes = reserve(m, s->steps, FRUGI_SPARSE_STEP, &failed);
        m->base = reserve(m, s->steps, sizeof *m->base, &failed);
        m->scale = reserve(m, m->rows, sizeof *m->scale, &failed);
    }
    return failed ? frugi_fail(FRUG_ERR_MEMORY, "no memory for a packed matrix") : FRUG_OK;
}

void frug_sparse_destroy(frug_sparse *m) {
    if (m == NULL)
        return;
    frugi_free(m->begin);
    frugi_free(m->values);
    frugi_free(m->columns);
    frugi_free(m->marks);
    frugi_free(m->bytes);
    frugi_free(m->lookup);
    frugi_free(m->base);
    frugi_free(m->scale);
    frugi_free(m);
}

static frug_status pack(const frugi_row_source *source, frug_sparse_code code, float *rows, frug_sparse *m) {
    bool windows = code == FRUG_SPARSE_INT8;
    float scale[FRUGI_SPARSE_PANEL];
    survey s = survey_rows(source, m, windows, rows);
    FRUG_FAIL_IF(!s.finite, FRUG_ERR_ARG, "the matrix has a NaN or an infinity");
    FRUG_FAIL_IF(s.stored > UINT32_MAX || s.steps > UINT32_MAX, FRUG_ERR_ARG, "more than 2^32 - 1 entries");
    m->form = windows ? FRUGI_SPARSE_WINDOWS : s.half ? FRUGI_SPARSE_HALF : FRUGI_SPARSE_ROWS;
    m->entries = s.entries;
    FRUG_TRY(reserve_form(m, &s));
    if (m->lookup)
        fill_lookup(m);
    for (uint32_t panel = 0; panel < m->panels; panel++) {
        read_panel(source, m, panel, rows, scale);
        store_panel_rows(m, panel, rows, scale);
    }
    return FRUG_OK;
}

frug_status frugi_sparse_build(const frugi_row_source *source, uint32_t rows, uint32_t cols, frug_sparse_code code,
                               const frugi_sparse_kernel *kernel, frug_sparse **matrix) {
    FRUG_FAIL_IF(cols > FRUGI_SPARSE_COLUMNS, FRUG_ERR_ARG, "%u columns; a packed matrix has at most %u", cols,
                 FRUGI_SPARSE_COLUMNS);
    frug_sparse *m = frugi_calloc(1, sizeof *m);
    float *panel = frugi_alloc(((size_t)cols * FRUGI_SPARSE_PANEL + 1) * sizeof *panel);
    frug_status status = m && panel ? FRUG_OK : frugi_fail(FRUG_ERR_MEMORY, "no memory for a packed matrix");
    if (status == FRUG_OK) {
        m->kernel = kernel;
        m->rows = rows;
        m->cols = cols;
        m->panels = (uint32_t)(((uint64_t)rows + FRUGI_SPARSE_PANEL - 1) / FRUGI_SPARSE_PANEL);
        status = pack(source, code, panel, m);
    }
    frugi_free(panel);
    if (status == FRUG_OK)
        *matrix = m;
    else
        frug_sparse_destroy(m);
    return status;
}

/* ---- from dense weights ------------------------------------------------------------------------- */

typedef struct dense_matrix {
    const float *w;
    uint32_t cols;
    size_t row_stride, column_stride;
    bool int8;
} dense_matrix;

static float read_dense(void *ctx, uint32_t row, float *dst) {
    const dense_matrix *d = ctx;
    const float *w = d->w + row * d->row_stride;
    float scale = d->int8 ? frugi_int8_scale(w, d->cols, d->column_stride) : 1.0f;
    for (uint32_t c = 0; c < d->cols; c++) {
        float value = w[c * d->column_stride];
        dst[c] = d->int8 ? frugi_int8_round(value, scale) : value;
    }
    return scale;
}

frug_status frugi_sparse_kernel_chosen(const frugi_sparse_kernel **kernel) {
    frugi_isa isa = frugi_isa_chosen();
    FRUG_FAIL_IF(isa == FRUGI_ISA_COUNT, FRUG_ERR_CONFIG, "FRUG_ISA names a variant that this CPU does not support");
    *kernel = frugi_sparse_kernel_for(isa);
    return FRUG_OK;
}

frug_status frug_sparse_create(const float *w, uint32_t rows, uint32_t cols, int input_first, frug_sparse_code code,
                               frug_sparse **matrix) {
    FRUG_FAIL_IF(w == NULL || matrix == NULL || rows == 0 || cols == 0, FRUG_ERR_ARG, "no weights, or an empty matrix");
    FRUG_FAIL_IF(code != FRUG_SPARSE_F32 && code != FRUG_SPARSE_INT8, FRUG_ERR_ARG, "unknown code of weights");
    const frugi_sparse_kernel *kernel = NULL;
    FRUG_TRY(frugi_sparse_kernel_chosen(&kernel));
    dense_matrix dense = {w, cols, input_first ? 1 : cols, input_first ? rows : 1, code == FRUG_SPARSE_INT8};
    return frugi_sparse_build(&(frugi_row_source){&dense, read_dense}, rows, cols, code, kernel, matrix);
}
