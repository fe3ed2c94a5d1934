/* test_sparse.c - packed matrices: what was packed comes back, and every variant computes the same products. */
#include "support/assertions.h"

#include "base/float_bits.h"
#include "frugrad/sparse.h"
#include "sparse/sparse_matrix.h"

#include <math.h>

typedef struct matrix {
    uint32_t rows, cols;
    float *w;
} matrix;

typedef enum pattern { AT_RANDOM, TWO_OF_FOUR, FOUR_OF_EIGHT, EVERY_ONE, NONE, ONE_COLUMN } pattern;

static int selected(pattern p, uint32_t r, uint32_t c, uint64_t random) {
    switch (p) {
    case AT_RANDOM: return random % 5 == 0;
    case TWO_OF_FOUR: return (c + r) % 4 < 2;
    case FOUR_OF_EIGHT: return (c + r) % 8 < 4;
    case EVERY_ONE: return 1;
    case ONE_COLUMN: return c == r % 3;
    default: return 0;
    }
}

static matrix make_matrix(uint32_t rows, uint32_t cols, pattern p) {
    matrix m = {rows, cols, test_malloc((size_t)rows * cols * sizeof(float))};
    uint64_t state = 7 + rows + cols;
    for (size_t i = 0; i < (size_t)rows * cols; i++) {
        float value = (float)(int32_t)(next_random(&state) >> 40) * 0x1p-20f - 8.0f;
        m.w[i] = selected(p, (uint32_t)(i / cols), (uint32_t)(i % cols), next_random(&state) >> 20) ? value : 0.0f;
    }
    return m;
}

static float *make_vectors(uint32_t cols, size_t n) {
    float *x = test_malloc(n * cols * sizeof *x);
    uint64_t state = 99;
    for (size_t i = 0; i < n * cols; i++)
        x[i] = (float)(int32_t)(next_random(&state) >> 44) * 0x1p-19f - 1.0f;
    return x;
}

static frug_sparse *pack(const matrix *m, frug_sparse_code code, frug_sparse_info *info) {
    frug_sparse *packed = NULL;
    OK(frug_sparse_create(m->w, m->rows, m->cols, 0, code, &packed));
    *info = (frug_sparse_info){.struct_size = sizeof *info};
    OK(frug_sparse_get_info(packed, info));
    return packed;
}

static void *make_work(const frug_sparse_info *info) {
    void *work = aligned_alloc(64, (info->work_bytes + 63) / 64 * 64);
    assert_non_null(work);
    return work;
}

static const struct {
    uint32_t rows, cols;
    pattern pattern;
    const char *form; /* of f32 */
} samples[] = {
    {64, 256, AT_RANDOM, "rows"}, {5, 37, AT_RANDOM, "rows"},      {1, 1, EVERY_ONE, "rows"},
    {9, 48, EVERY_ONE, "rows"},   {8, 64, TWO_OF_FOUR, "half"},    {7, 24, TWO_OF_FOUR, "half"},
    {6, 20, TWO_OF_FOUR, "rows"}, {10, 40, FOUR_OF_EIGHT, "half"}, {6, 33, NONE, "rows"},
    {12, 70, ONE_COLUMN, "rows"},
};
enum { SAMPLES = sizeof samples / sizeof samples[0], VECTORS = 19 };

static void packed_weights_come_back(void **state) {
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        matrix m = make_matrix(samples[i].rows, samples[i].cols, samples[i].pattern);
        float *back = test_malloc((size_t)m.rows * m.cols * sizeof *back);
        frug_sparse_info info;
        frug_sparse *packed = pack(&m, FRUG_SPARSE_F32, &info);
        assert_string_equal(info.form, samples[i].form);
        frug_sparse_unpack(packed, 0, m.rows, back);
        assert_memory_equal(back, m.w, (size_t)m.rows * m.cols * sizeof *back);
        frug_sparse_destroy(packed);
        test_free(back);
        test_free(m.w);
    }
}

/* Half a step, and what f32 arithmetic adds to it. */
static void int8_weights_are_the_nearest(void **state) {
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++) {
        matrix m = make_matrix(samples[i].rows, samples[i].cols, samples[i].pattern);
        float *row = test_malloc(m.cols * sizeof *row);
        frug_sparse_info info;
        frug_sparse *packed = pack(&m, FRUG_SPARSE_INT8, &info);
        for (uint32_t r = 0; r < m.rows; r++) {
            const float *w = m.w + (size_t)r * m.cols;
            double step = (double)frugi_bits_f32(frugi_largest_magnitude(w, m.cols)) / 127;
            frug_sparse_unpack(packed, r, 1, row);
            for (uint32_t c = 0; c < m.cols; c++)
                assert_true(fabs((double)row[c] - (double)w[c]) <= 0.50001 * step);
        }
        frug_sparse_destroy(packed);
        test_free(row);
        test_free(m.w);
    }
}

/* The transpose, packed with input_first, has the same products. */
static void input_first_is_the_transpose(void **state) {
    (void)state;
    matrix m = make_matrix(13, 40, AT_RANDOM);
    float *turned = test_malloc(13 * 40 * sizeof *turned), back[13 * 40];
    for (uint32_t r = 0; r < 13; r++)
        for (uint32_t c = 0; c < 40; c++)
            turned[c * 13 + r] = m.w[r * 40 + c];
    frug_sparse *packed = NULL;
    OK(frug_sparse_create(turned, 13, 40, 1, FRUG_SPARSE_F32, &packed));
    frug_sparse_unpack(packed, 0, 13, back);
    assert_memory_equal(back, m.w, sizeof back);
    frug_sparse_destroy(packed);
    test_free(turned);
    test_free(m.w);
}

typedef struct dense_source {
    const matrix *m;
    int int8;
} dense_source;

static float read_row(void *ctx, uint32_t row, float *dst) {
    const dense_source *s = ctx;
    const float *w = s->m->w + (size_t)row * s->m->cols;
    float scale = s->int8 ? frugi_int8_scale(w, s->m->cols, 1) : 1.0f;
    for (uint32_t c = 0; c < s->m->cols; c++)
        dst[c] = s->int8 ? frugi_int8_round(w[c], scale) : w[c];
    return scale;
}

/* Sums in double, of the weights as they were packed. int8: x is rounded to 1 / 65024 of its largest magnitude. f32:
 * 300 terms and fewer, each rounded by 2^-24 of at most the sum of magnitudes. */
static void check_products(const frug_sparse *packed, const matrix *m, const float *x, const float *y,
                           double rounding) {
    float *row = test_malloc(m->cols * sizeof *row);
    for (uint32_t r = 0; r < m->rows; r++) {
        double sum = 0, magnitudes = 0, weights = 0;
        frug_sparse_unpack(packed, r, 1, row);
        for (uint32_t c = 0; c < m->cols; c++) {
            sum += (double)row[c] * (double)x[c];
            magnitudes += fabs((double)row[c] * (double)x[c]);
            weights += fabs((double)row[c]);
        }
        assert_true(fabs((double)y[r] - sum) <= 300 * 0x1p-24 * magnitudes + rounding * weights);
    }
    test_free(row);
}

static void compare_with_reference(const frug_sparse *packed, const frug_sparse *reference, const matrix *m, int int8) {
    float *x = make_vectors(m->cols, VECTORS), *y = test_malloc(VECTORS * m->rows * sizeof *y),
          *expected = test_malloc(VECTORS * m->rows * sizeof *expected);
    frug_sparse_info info = {.struct_size = sizeof info};
    OK(frug_sparse_get_info(packed, &info));
    void *work = make_work(&info);
    double largest = (double)frugi_bits_f32(frugi_largest_magnitude(x, m->cols));
    frug_sparse_multiply(packed, 1, x, 1, m->cols, y, m->rows, work);
    frug_sparse_multiply(reference, 1, x, 1, m->cols, expected, m->rows, work);
    check_products(packed, m, x, y, int8 ? largest / 65000 : 0);
    if (int8)
        assert_memory_equal(y, expected, m->rows * sizeof *y);
    frug_sparse_multiply(packed, 3, x, 1, m->cols, expected, m->rows, work);
    assert_memory_equal(y, expected, m->rows * sizeof *y);
    frug_sparse_multiply(packed, 1, x, VECTORS, m->cols, y, m->rows, work);
    frug_sparse_multiply(reference, 2, x, VECTORS, m->cols, expected, m->rows, work);
    assert_memory_equal(y, expected, VECTORS * m->rows * sizeof *y);
    for (size_t v = 0; v < VECTORS; v++)
        check_products(packed, m, x + v * m->cols, y + v * m->rows, 0);
    free(work);
    test_free(x);
    test_free(y);
    test_free(expected);
}

static void check_kernel(const frugi_sparse_kernel *kernel) {
    for (size_t i = 0; i < SAMPLES; i++)
        for (int int8 = 0; int8 < 2; int8++) {
            matrix m = make_matrix(samples[i].rows, samples[i].cols, samples[i].pattern);
            dense_source dense = {&m, int8};
            frugi_row_source source = {&dense, read_row};
            frug_sparse_code code = int8 ? FRUG_SPARSE_INT8 : FRUG_SPARSE_F32;
            frug_sparse *packed = NULL, *reference = NULL;
            OK(frugi_sparse_build(&source, m.rows, m.cols, code, kernel, &packed));
            OK(frugi_sparse_build(&source, m.rows, m.cols, code, &frugi_sparse_kernel_ref, &reference));
            compare_with_reference(packed, reference, &m, int8);
            frug_sparse_destroy(packed);
            frug_sparse_destroy(reference);
            test_free(m.w);
        }
}

/* Weights by columns: zeros of the vector are skipped, the variants agree bit for bit, and so do numbers of threads. */
static void check_columns(const frugi_sparse_kernel *kernel, const matrix *m, frug_sparse_code code) {
    float *x = make_vectors(m->cols, 2), *y = test_malloc(2 * m->rows * sizeof *y),
          *expected = test_malloc(2 * m->rows * sizeof *expected);
    frug_sparse_info info = {.struct_size = sizeof info};
    frug_sparse *packed = NULL;
    for (uint32_t c = 0; c < m->cols; c++)
        x[c] = c % 3 == 1 || m->cols == 1 ? 0.0f : x[c];
    OK(frug_sparse_create_columns(m->w, m->rows, m->cols, 0, code, &packed));
    OK(frug_sparse_get_info(packed, &info));
    assert_string_equal(info.form, "columns");
    assert_int_equal(info.code, code);
    void *work = make_work(&info);
    packed->kernel = &frugi_sparse_kernel_ref;
    frug_sparse_multiply(packed, 1, x, 2, m->cols, expected, m->rows, work);
    packed->kernel = kernel;
    frug_sparse_multiply(packed, 3, x, 2, m->cols, y, m->rows, work);
    assert_memory_equal(y, expected, 2 * m->rows * sizeof *y);
    for (size_t v = 0; v < 2; v++) {
        double largest = (double)frugi_bits_f32(frugi_largest_magnitude(x + v * m->cols, m->cols));
        check_products(packed, m, x + v * m->cols, y + v * m->rows, code == FRUG_SPARSE_INT8 ? largest / 65000 : 0);
    }
    free(work);
    frug_sparse_destroy(packed);
    test_free(x);
    test_free(y);
    test_free(expected);
}

static void columns_of_zeros_are_skipped(void **state) {
    (void)state;
    for (size_t i = 0; i < SAMPLES; i++)
        for (int isa = 0; isa < FRUGI_ISA_COUNT; isa++) {
            matrix m = make_matrix(samples[i].rows, samples[i].cols, samples[i].pattern);
            for (int int8 = 0; int8 < 2 && frugi_isa_runs((frugi_isa)isa); int8++) {
                check_columns(frugi_sparse_kernel_for((frugi_isa)isa), &m, int8 ? FRUG_SPARSE_INT8 : FRUG_SPARSE_F32);
#if defined(__aarch64__)
                check_columns(&frugi_sparse_kernel_neon, &m, int8 ? FRUG_SPARSE_INT8 : FRUG_SPARSE_F32);
#endif
            }
            test_free(m.w);
        }
}

static void columns_of_input_first_matrices(void **state) {
    (void)state;
    matrix m = make_matrix(3, 5, EVERY_ONE);
    for (int int8 = 0; int8 < 2; int8++) {
        frug_sparse *packed = NULL;
        float transposed[15];
        for (uint32_t r = 0; r < 3; r++)
            for (uint32_t c = 0; c < 5; c++)
                transposed[c * 3 + r] = m.w[r * 5 + c];
        frug_sparse *straight = NULL;
        float plain[5], other[5];
        OK(frug_sparse_create_columns(transposed, 3, 5, 1, (frug_sparse_code)int8, &packed));
        OK(frug_sparse_create_columns(m.w, 3, 5, 0, (frug_sparse_code)int8, &straight));
        for (uint32_t r = 0; r < 3; r++) {
            frug_sparse_unpack(packed, r, 1, plain);
            frug_sparse_unpack(straight, r, 1, other);
            assert_memory_equal(plain, other, sizeof plain);
        }
        frug_sparse_destroy(packed);
        frug_sparse_destroy(straight);
    }
    test_free(m.w);
}

static void variants_agree(void **state) {
    (void)state;
    for (int isa = 0; isa < FRUGI_ISA_COUNT; isa++)
        if (frugi_isa_runs((frugi_isa)isa))
            check_kernel(frugi_sparse_kernel_for((frugi_isa)isa));
#if defined(__aarch64__)
    check_kernel(&frugi_sparse_kernel_neon); /* also where the CPU has dot products */
#endif
}

static void vectors_of_extremes_are_rounded_safely(void **state) {
    (void)state;
    static const float extremes[] = {0.0f, 0x1p-140f, 0x1p-120f, 3e38f, 1.0f};
    matrix m = make_matrix(4, 16, EVERY_ONE);
    frug_sparse_info info;
    frug_sparse *packed = pack(&m, FRUG_SPARSE_INT8, &info);
    void *work = make_work(&info);
    for (size_t i = 0; i < sizeof extremes / sizeof extremes[0]; i++) {
        float x[16], y[4];
        for (uint32_t c = 0; c < 16; c++)
            x[c] = c % 2 ? -extremes[i] : extremes[i] / 2;
        frug_sparse_multiply(packed, 1, x, 1, 16, y, 4, work);
        for (uint32_t r = 0; r < 4; r++)
            assert_true(extremes[i] > 0x1p-110f ? y[r] != 0.0f : fabsf(y[r]) <= 200 * extremes[i]);
    }
    free(work);
    frug_sparse_destroy(packed);
    test_free(m.w);
}

static void bad_matrices_are_refused(void **state) {
    (void)state;
    float w[4] = {1, 2, NAN, 0};
    frug_sparse *packed = NULL;
    assert_int_equal(frug_sparse_create(w, 2, 2, 0, FRUG_SPARSE_F32, &packed), FRUG_ERR_ARG);
    assert_int_equal(frug_sparse_create(w, 2, 2, 0, FRUG_SPARSE_INT8, &packed), FRUG_ERR_ARG);
    assert_int_equal(frug_sparse_create(w, 0, 2, 0, FRUG_SPARSE_F32, &packed), FRUG_ERR_ARG);
    assert_int_equal(frug_sparse_create(NULL, 2, 2, 0, FRUG_SPARSE_F32, &packed), FRUG_ERR_ARG);
    assert_int_equal(frug_sparse_create(w, 1, 65537, 0, FRUG_SPARSE_F32, &packed), FRUG_ERR_ARG);
    assert_int_equal(frug_sparse_create(w, 1, 2, 0, (frug_sparse_code)7, &packed), FRUG_ERR_ARG);
    assert_int_equal(frug_sparse_create_columns(w, 2, 2, 0, FRUG_SPARSE_F32, &packed), FRUG_ERR_ARG);
    assert_int_equal(frug_sparse_create_columns(w, 0, 2, 0, FRUG_SPARSE_F32, &packed), FRUG_ERR_ARG);
    assert_int_equal(frug_sparse_create_columns(w, 1, 65537, 0, FRUG_SPARSE_F32, &packed), FRUG_ERR_ARG);
    assert_int_equal(frug_sparse_create_columns(w, 1, 2, 0, (frug_sparse_code)7, &packed), FRUG_ERR_ARG);
    assert_null(packed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_weights_come_back),
        cmocka_unit_test(int8_weights_are_the_nearest),
        cmocka_unit_test(input_first_is_the_transpose),
        cmocka_unit_test(variants_agree),
        cmocka_unit_test(columns_of_zeros_are_skipped),
        cmocka_unit_test(columns_of_input_first_matrices),
        cmocka_unit_test(vectors_of_extremes_are_rounded_safely),
        cmocka_unit_test(bad_matrices_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
