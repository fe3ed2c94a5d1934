/*
 * test_gemm.c - matrix products by our own kernels, of every variant that this machine has, against their definition:
 * random sizes around those of tiles and panels, transposed operands, row strides, and what is done with the old
 * result. And vector times matrix in parts, with fewer rows than parts.
 */
#include "trainer/nn/gemm.h"
#include "trainer/base/keyed_random.h"
#include "frugrad.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct product {
    size_t m, n, k;
    bool a_turned, b_turned;
    float alpha, beta;
    size_t a_stride, b_stride, stride;
    float *a, *b, *c, *before;
} product;

static uint64_t state_of_draws;

static size_t draw(size_t bound) {
    return (size_t)(fgt_random(1, FGT_STREAM_SAMPLE, state_of_draws++) % bound);
}

static float *draw_numbers(size_t count) {
    float *x = test_malloc((count + 1) * sizeof *x);
    for (size_t i = 0; i < count; i++)
        x[i] = (float)draw(1000) * 0.001f - 0.5f;
    return x;
}

static product draw_product(bool tall) {
    static const float betas[] = {0.0f, 1.0f, 0.5f};
    product p = {.m = tall ? 1030 : 1 + draw(40), .n = 1 + draw(120), .k = draw(300), .alpha = 0.75f};
    p.a_turned = draw(2);
    p.b_turned = draw(2);
    p.beta = betas[draw(3)];
    p.a_stride = (p.a_turned ? p.m : p.k) + draw(3);
    p.b_stride = (p.b_turned ? p.k : p.n) + draw(3);
    p.stride = p.n + draw(3);
    p.a = draw_numbers((p.a_turned ? p.k : p.m) * p.a_stride);
    p.b = draw_numbers((p.b_turned ? p.n : p.k) * p.b_stride);
    p.c = draw_numbers(p.m * p.stride);
    p.before = test_malloc(p.m * p.stride * sizeof *p.before);
    for (size_t i = 0; i < p.m * p.stride; i++) {
        p.before[i] = p.c[i];
        p.c[i] = p.beta == 0.0f && i % p.stride < p.n ? NAN : p.c[i]; /* with beta 0 it must not be read */
    }
    return p;
}

static double expected_at(const product *p, size_t i, size_t j) {
    double sum = p->beta == 0.0f ? 0.0 : (double)p->beta * (double)p->before[i * p->stride + j];
    for (size_t q = 0; q < p->k; q++)
        sum += (double)p->alpha * (double)(p->a_turned ? p->a[q * p->a_stride + i] : p->a[i * p->a_stride + q]) *
               (double)(p->b_turned ? p->b[j * p->b_stride + q] : p->b[q * p->b_stride + j]);
    return sum;
}

static void check_product(const fgt_conv_kernel *kernel, bool tall) {
    product p = draw_product(tall);
    fgt_gemm_packed(kernel, p.m, p.n, p.k, p.alpha, (fgt_matrix){p.a, p.a_stride, p.a_turned},
                    (fgt_matrix){p.b, p.b_stride, p.b_turned}, p.beta, p.c, p.stride);
    for (size_t i = 0; i < p.m; i++)
        for (size_t j = 0; j < p.stride; j++) {
            float got = p.c[i * p.stride + j];
            if (j >= p.n)
                assert_true(got == p.before[i * p.stride + j]);
            else if (!(fabs((double)got - expected_at(&p, i, j)) < 1e-4))
                fail_msg("%s, %zu x %zu x %zu: (%zu, %zu) is %g, not %g", getenv("FRUG_ISA"), p.m, p.n, p.k, i, j,
                         (double)got, expected_at(&p, i, j));
        }
    test_free(p.a);
    test_free(p.b);
    test_free(p.c);
    test_free(p.before);
}

static void products_match_their_definition(void **state) {
    (void)state;
    for (size_t v = 0; frug_isa_at(v); v++) {
        setenv("FRUG_ISA", frug_isa_at(v), 1);
        const fgt_conv_kernel *kernel = fgt_kernels_chosen()->conv;
        for (int i = 0; kernel && i < 150; i++)
            check_product(kernel, i == 100);
    }
    unsetenv("FRUG_ISA");
}

/* ---- vector times matrix ---- */

enum { COLUMNS = 37, ROWS_MOST = 17 };

/* The memory for the sums of parts holds something else before. */
static void multiply_rows(int threads, size_t k, const float *x, const float *b, const float *before, float *y) {
    float work[FGT_GEMV_PARTS * COLUMNS];
    for (size_t i = 0; i < FGT_GEMV_PARTS * COLUMNS; i++)
        work[i] = 1000.0f;
    memcpy(y, before, COLUMNS * sizeof *y);
    fgt_gemv_rows(threads, COLUMNS, k, x, (fgt_matrix){b, COLUMNS, false}, 1.0f, y, work);
}

static void few_rows_are_multiplied(void **state) {
    (void)state;
    for (size_t k = 0; k <= ROWS_MOST; k++) {
        float *x = draw_numbers(k), *b = draw_numbers(k * COLUMNS), *before = draw_numbers(COLUMNS);
        float one[COLUMNS], two[COLUMNS];
        multiply_rows(1, k, x, b, before, one);
        multiply_rows(2, k, x, b, before, two);
        assert_memory_equal(one, two, sizeof one);
        for (size_t c = 0; c < COLUMNS; c++) {
            double sum = (double)before[c];
            for (size_t r = 0; r < k; r++)
                sum += (double)x[r] * (double)b[r * COLUMNS + c];
            if (!(fabs((double)one[c] - sum) < 1e-5))
                fail_msg("%zu rows: column %zu is %g, not %g", k, c, (double)one[c], sum);
        }
        test_free(x);
        test_free(b);
        test_free(before);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_match_their_definition),
                                       cmocka_unit_test(few_rows_are_multiplied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
