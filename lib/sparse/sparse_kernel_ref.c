/* sparse_kernel_ref.c - the products of packed matrices in plain C, and the table of variants. */
#define LANES 8
#include "sparse/sparse_rows.h"
#define COLUMN_LANES 4
#include "sparse/sparse_column_lanes.h"

static void rows_ref(const frug_sparse *m, const float *x, uint32_t first, uint32_t end, float *y) {
    for (uint32_t r = first * FRUGI_SPARSE_PANEL; r < rows_end(m, end); r++) {
        float sum = 0.0f;
        for (uint32_t i = m->begin[r]; i < m->begin[r + 1]; i++)
            sum += m->values[i] * x[m->columns[i]];
        y[r] = sum;
    }
}

static void half_ref(const frug_sparse *m, const float *x, uint32_t first, uint32_t end, float *y) {
    const size_t marks = (size_t)m->cols / 8 * FRUGI_SPARSE_PANEL; /* bytes of a panel */
    for (uint32_t panel = first; panel < end; panel++) {
        float sums[FRUGI_SPARSE_PANEL] = {0};
        const float *value = m->values + 4 * marks * panel;
        for (size_t i = 0; i < marks; i++)
            for (uint32_t bits = m->bytes[marks * panel + i]; bits; bits &= bits - 1)
                sums[i % FRUGI_SPARSE_PANEL] +=
                    *value++ * x[8 * (i / FRUGI_SPARSE_PANEL) + (size_t)__builtin_ctz(bits)];
        store_panel(m, panel, sums, y);
    }
}

static void windows_ref(const frug_sparse *m, const frugi_rounded_vector *x, uint32_t first, uint32_t end, float *y) {
    for (uint32_t panel = first; panel < end; panel++) {
        int32_t high[FRUGI_SPARSE_PANEL] = {0}, low[FRUGI_SPARSE_PANEL] = {0};
        for (uint32_t s = m->begin[panel]; s < m->begin[panel + 1]; s++) {
            const unsigned char *step = m->bytes + (size_t)FRUGI_SPARSE_STEP * s;
            for (uint32_t i = 0; i < 16; i++) {
                uint32_t column = (uint32_t)m->base[s] + step[i];
                int32_t w = (int8_t)step[16 + i];
                high[i / 4] += w * x->high[column];
                low[i / 4] += w * x->low[column];
            }
        }
        store_windows(m, x, panel, high, low, y);
    }
}

static void columns_int8_ref(const int8_t *const column[FRUGI_COLUMNS_AT_ONCE],
                             const int8_t high[FRUGI_COLUMNS_AT_ONCE], const int8_t low[FRUGI_COLUMNS_AT_ONCE],
                             uint32_t rows, int32_t *high_sums, int32_t *low_sums) {
    for (uint32_t j = 0; j < FRUGI_COLUMNS_AT_ONCE; j++)
        for (uint32_t r = 0; r < rows; r++) {
            high_sums[r] += column[j][r] * high[j];
            low_sums[r] += column[j][r] * low[j];
        }
}

const frugi_sparse_kernel frugi_sparse_kernel_ref = {
    .lanes = LANES,
    .slot = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    .rows = rows_ref,
    .half = half_ref,
    .windows = windows_ref,
    .batch = multiply_batch,
    .columns = columns_f32,
    .columns_int8 = columns_int8_ref,
};

const frugi_sparse_kernel *frugi_sparse_kernel_for(frugi_isa isa) {
    switch (isa) {
#if defined(__aarch64__)
    case FRUGI_ISA_NEON: return frugi_cpu_has_dot_product() ? &frugi_sparse_kernel_dot : &frugi_sparse_kernel_neon;
#elif defined(__x86_64__)
    case FRUGI_ISA_AVX2: return &frugi_sparse_kernel_avx2;
    case FRUGI_ISA_AVX512: return &frugi_sparse_kernel_avx512;
#endif
    default: return &frugi_sparse_kernel_ref;
    }
}
