/*
 * test_recover_matrix.c - measurement matrices against their definition. Seeds are fixed; tolerances are explained
 * where they are used.
 */
#include "optim/recover_helpers.h"

static void test_gaussian_entries_are_normal(void **state) {
    (void)state;
    uint32_t k = 200, d = 1000;
    frugi_matrix *a = matrix(FRUGI_MATRIX_GAUSSIAN, k, d, 3);
    float *column = floats(frugi_matrix_stride(a));
    double sum[5] = {0}, beyond = 0, n = (double)k * d;
    for (uint32_t j = 0; j < d; j++) {
        frugi_matrix_column(a, j, column);
        for (uint32_t t = 0; t < k; t++) {
            double x = (double)column[t] * sqrt((double)k), power = x;
            for (int m = 1; m <= 4; m++, power *= x)
                sum[m] += power / n;
            beyond += fabs(x) > 1.959964 ? 1 / n : 0;
        }
    }
    /* Tolerances: five standard errors of 200,000 samples. */
    assert_true(fabs(sum[1]) < 0.011 && fabs(sum[2] - 1) < 1e-5);
    assert_true(fabs(sum[3]) < 0.043 && fabs(sum[4] - 3) < 0.12); /* 3 k / (k + 2) after scaling */
    assert_true(fabs(beyond - 0.05) < 0.0025);
    free(column);
    frugi_matrix_destroy(a);
}

/* Golden bits: workers on different machines must have the same matrix. */
static void test_matrices_match_golden_bits(void **state) {
    (void)state;
    static const uint32_t want[2][4] = {{0x247e4915u, 0x685d67ebu, 0xaaab1078u, 0xfcedcd4cu},
                                        {0xe15d9e7bu, 0xb7371998u, 0xeb61c92eu, 0xf60242ecu}};
    BOTH(kind) {
        frugi_matrix *a = matrix(kind, 50, 300, 42), *b = NULL, *other = matrix(kind, 50, 300, 43);
        OK(frugi_matrix_create(&(frugi_matrix_options){kind, 50, 300, 42, 2}, &b));
        float *x = floats(52), *y = floats(52), *z = floats(52);
        uint32_t sum[4] = {0}, differ = 0;
        for (uint32_t j = 0; j < 300; j++) {
            frugi_matrix_column(a, j, x), frugi_matrix_column(b, j, y), frugi_matrix_column(other, j, z);
            assert_memory_equal(x, y, 52 * sizeof *x);
            differ += memcmp(x, z, 52 * sizeof *x) != 0;
            for (uint32_t t = 0; t < 50; t++) {
                uint32_t bits;
                memcpy(&bits, x + t, sizeof bits);
                sum[j % 4] = (sum[j % 4] << 5 | sum[j % 4] >> 27) ^ bits;
            }
        }
        assert_true(differ > 290);
        for (int i = 0; i < 4; i++)
            if (sum[i] != want[kind][i])
                fail_msg("kind %d: 0x%08xu, 0x%08xu, 0x%08xu, 0x%08xu", (int)kind, sum[0], sum[1], sum[2], sum[3]);
        free(x), free(y), free(z);
        frugi_matrix_destroy(a), frugi_matrix_destroy(b), frugi_matrix_destroy(other);
    }
}

static const struct shape {
    uint32_t k, d;
} shapes[] = {{1, 1},     {1, 2},      {3, 3},       {2, 5},      {7, 31},      {8, 32},       {9, 33},
              {50, 100},  {64, 64},    {217, 2048},  {31, 3000},  {1, 4096},    {4096, 4096},  {217, 20000},
              {5, 40000}, {100, 8192}, {1000, 1024}, {13, 65536}, {300, 16384}, {2000, 16384}, {3, 4}};

/* Columns have length one, and A^T r is one dot product per column. Tolerance: 1e-5 of the lengths. */
static void check_columns(const frugi_matrix *a, const float *r, const float *out, uint32_t step) {
    uint32_t k = frugi_matrix_rows(a), d = frugi_matrix_columns(a);
    float *column = floats(frugi_matrix_stride(a));
    for (uint32_t j = 0; j < d; j += step) {
        double length = 0, dot = 0, norm = 0;
        frugi_matrix_column(a, j, column);
        for (uint32_t t = 0; t < k; t++) {
            length += (double)column[t] * (double)column[t];
            dot += (double)column[t] * (double)r[t];
            norm += (double)r[t] * (double)r[t];
        }
        assert_true(fabs(length - 1) < 1e-5);
        assert_true(fabs(dot - (double)out[j]) < 1e-5 * sqrt(norm));
    }
    for (uint32_t j = d; j < frugi_matrix_span(a); j++)
        assert_true(out[j] == 0.0f);
    free(column);
}

/* (A x) r == x (A^T r) for an x of every step-th entry. Tolerance: 1e-5 of the lengths. */
static void check_adjoint(const frugi_matrix *a, const float *r, const float *out, uint32_t step, uint64_t seed) {
    uint32_t k = frugi_matrix_rows(a), d = frugi_matrix_columns(a), n = 0;
    uint32_t *index = test_malloc(d * sizeof *index);
    float *x = bell_array(d, seed), *work = floats(frugi_matrix_span(a)), *p = floats(k);
    double left = 0, right = 0, xx = 0, rr = 0;
    for (uint32_t j = 0; j < d; j += step)
        index[n++] = j;
    OK(frugi_matrix_apply(a, index, x, n, work, p));
    for (uint32_t t = 0; t < k; t++) {
        left += (double)p[t] * (double)r[t];
        rr += (double)r[t] * (double)r[t];
    }
    for (uint32_t i = 0; i < n; i++) {
        right += (double)x[i] * (double)out[index[i]];
        xx += (double)x[i] * (double)x[i];
    }
    assert_true(fabs(left - right) <= 1e-5 * sqrt(xx * rr * (1 + (double)n / k)));
    free(work), free(p);
    test_free(x), test_free(index);
}

static void test_matrix_columns_and_adjoint(void **state) {
    (void)state;
    BOTH(kind) {
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            uint32_t k = shapes[i].k, d = shapes[i].d, step = (uint32_t)((uint64_t)k * d / 400000 + 1);
            if (kind == FRUGI_MATRIX_GAUSSIAN && (uint64_t)k * d > 1000000)
                continue;
            frugi_matrix *a = matrix(kind, k, d, 100 + i);
            float *r = floats(frugi_matrix_stride(a)), *out = floats(frugi_matrix_span(a)), *bell = bell_array(k, i);
            memcpy(r, bell, k * sizeof *r);
            frugi_matrix_correlate(a, r, 1, out);
            check_columns(a, r, out, step);
            check_adjoint(a, r, out, step, i + 77);
            free(r), free(out);
            test_free(bell);
            frugi_matrix_destroy(a);
        }
    }
}

/*
 * p = A x by columns and by the dense transform, against sums in double; few, many and duplicate entries. Tolerance
 * 1e-5.
 */
static void test_sparse_apply_equals_dense(void **state) {
    (void)state;
    static const uint32_t entries[] = {0, 1, 5, 60, 700};
    BOTH(kind) {
        frugi_matrix *a = matrix(kind, 90, 700, 5);
        float *work = floats(frugi_matrix_span(a)), *p = floats(90), *column = floats(92);
        for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
            uint32_t n = entries[i], *index = test_malloc((n + 1) * sizeof *index);
            uint64_t random = 9 + i;
            double dense[700] = {0}, want[90] = {0}, norm = 0;
            float *value = bell_array(n, i);
            for (uint32_t m = 0; m < n; m++) {
                index[m] = (uint32_t)(next_random(&random) >> 20) % 700;
                dense[index[m]] += (double)value[m];
            }
            for (uint32_t j = 0; j < 700; j++) {
                frugi_matrix_column(a, j, column);
                norm += dense[j] * dense[j];
                for (uint32_t t = 0; t < 90; t++)
                    want[t] += dense[j] * (double)column[t];
            }
            memset(p, 0xff, 90 * sizeof *p);
            OK(frugi_matrix_apply(a, index, value, n, work, p));
            for (uint32_t t = 0; t < 90; t++)
                assert_true(fabs(want[t] - (double)p[t]) <= 1e-5 * sqrt(norm));
            test_free(index), test_free(value);
        }
        free(work), free(p), free(column);
        frugi_matrix_destroy(a);
    }
}

static void test_batched_correlation_changes_no_bit(void **state) {
    (void)state;
    BOTH(kind) {
        frugi_matrix *a = matrix(kind, 61, 519, 6);
        uint32_t stride = frugi_matrix_stride(a), span = frugi_matrix_span(a);
        float *r = floats((size_t)7 * stride), *one = floats(span), *all = floats((size_t)7 * span);
        uint64_t random = 4;
        for (uint32_t v = 0; v < 7; v++)
            for (uint32_t t = 0; t < 61; t++)
                r[v * stride + t] = next_bell(&random);
        frugi_matrix_correlate(a, r, 7, all);
        for (uint32_t v = 0; v < 7; v++) {
            frugi_matrix_correlate(a, r + v * stride, 1, one);
            assert_memory_equal(one, all + v * span, span * sizeof *one);
        }
        free(r), free(one), free(all);
        frugi_matrix_destroy(a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gaussian_entries_are_normal),        cmocka_unit_test(test_matrices_match_golden_bits),
        cmocka_unit_test(test_matrix_columns_and_adjoint),         cmocka_unit_test(test_sparse_apply_equals_dense),
        cmocka_unit_test(test_batched_correlation_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
