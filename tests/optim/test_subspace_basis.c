/*
 * test_subspace_basis.c - products and leading singular vectors against reference loops in double. Seeds are those of
 * bell_array(); each tolerance is explained at its test.
 */
#include "support/assertions.h"

#include "optim/subspace_basis.h"
#include "optim/matrix_product.h"

#include <math.h>

/* Sums of up to 60 products of numbers near 1: 60 roundings of 6e-8 of sums near 10. */
static void products_match_reference_loops(void **state) {
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 1}, {4, 16, 8}, {5, 17, 60}, {9, 35, 3}, {3, 50, 31}, {16, 64, 20}};
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        const size_t m = shapes[n][0], cols = shapes[n][1], k = shapes[n][2];
        float *a = bell_array(m * k, 1), *b = bell_array(k * cols, 2), *c = bell_array(m * cols, 3);
        float *was = bell_array(m * cols, 3), *three = bell_array(m * cols, 3);
        const frugi_product p = {a, k, 1, b, cols, m, cols, k}, turned = {a, 1, m, b, cols, m, cols, k};
        frugi_multiply(&p, 0.5f, 2.0f, c, 1);
        frugi_multiply(&p, 0.5f, 2.0f, three, 3);
        assert_same_bits(c, three, m * cols * sizeof *c);
        for (int rule = 0; rule < 2; rule++) {
            for (size_t i = 0; i < m * cols; i++) {
                double want = rule ? 0 : 0.5 * (double)was[i];
                for (size_t t = 0; t < k; t++)
                    want += 2 * (double)a[rule ? t * m + i / cols : i / cols * k + t] * (double)b[t * cols + i % cols];
                assert_true(fabs((double)c[i] - want) <= 4e-5);
            }
            frugi_multiply(&turned, 0, 2.0f, c, 1);
        }
        float *y = test_malloc(m * k * sizeof *y), *again = test_malloc(m * k * sizeof *y);
        frugi_multiply_rows(was, m, b, k, cols, y, 1);
        frugi_multiply_rows(was, m, b, k, cols, again, 2);
        assert_same_bits(y, again, m * k * sizeof *y);
        for (size_t i = 0; i < m * k; i++) {
            double want = 0;
            for (size_t t = 0; t < cols; t++)
                want += (double)was[i / k * cols + t] * (double)b[i % k * cols + t];
            assert_true(fabs((double)y[i] - want) <= 4e-5);
        }
        float *const all[] = {a, b, c, was, three, y, again};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            test_free(all[i]);
    }
}

/* ---- singular vectors ------------------------------------------------------ */

#define SHORTER 40u

/* Eigenvalues, descending, and eigenvectors (rows of v) of a symmetric matrix: plain Jacobi rotations. */
static void jacobi(double t[SHORTER][SHORTER], double v[SHORTER][SHORTER]) {
    memset(v, 0, sizeof(double[SHORTER][SHORTER]));
    for (size_t i = 0; i < SHORTER; i++)
        v[i][i] = 1;
    for (int sweep = 0; sweep < 40; sweep++)
        for (size_t p = 0; p < SHORTER; p++)
            for (size_t q = p + 1; q < SHORTER; q++) {
                double angle = 0.5 * atan2(2 * t[p][q], t[q][q] - t[p][p]), c = cos(angle), s = sin(angle);
                for (size_t i = 0; i < SHORTER; i++) {
                    double a = t[i][p], b = t[i][q];
                    t[i][p] = c * a - s * b;
                    t[i][q] = s * a + c * b;
                }
                for (size_t i = 0; i < SHORTER; i++) {
                    double a = t[p][i], b = t[q][i];
                    t[p][i] = c * a - s * b;
                    t[q][i] = s * a + c * b;
                    a = v[p][i], b = v[q][i];
                    v[p][i] = c * a - s * b;
                    v[q][i] = s * a + c * b;
                }
            }
    for (size_t i = 0; i < SHORTER; i++)
        for (size_t j = i + 1; j < SHORTER; j++)
            if (t[j][j] > t[i][i]) {
                double swap = t[i][i], row[SHORTER];
                t[i][i] = t[j][j];
                t[j][j] = swap;
                memcpy(row, v[i], sizeof row);
                memcpy(v[i], v[j], sizeof row);
                memcpy(v[j], row, sizeof row);
            }
}

/* Singular values that decrease by a fifth each: weighted rank-one matrices of random vectors. */
static float *decaying_matrix(size_t rows, size_t cols, size_t terms) {
    float *g = test_calloc(rows * cols, sizeof *g), *u = bell_array(rows * SHORTER, 5),
          *v = bell_array(cols * SHORTER, 6);
    double weight = 1e-3;
    for (size_t k = 0; k < terms; k++, weight *= 0.8)
        for (size_t i = 0; i < rows * cols; i++)
            g[i] += (float)(weight * (double)u[k * rows + i / cols] * (double)v[k * cols + i % cols]);
    test_free(u);
    test_free(v);
    return g;
}

static float *make_basis(const frugi_sides *side, const float *g, size_t rank, int threads) {
    float *basis = test_malloc(rank * side->shorter * sizeof *basis);
    void *work = test_malloc(frugi_basis_work_bytes(side, rank));
    frugi_compute_basis(side, g, rank, 7, work, basis, threads);
    test_free(work);
    return basis;
}

/* Rows of length one that are orthogonal to 2e-6, the precision of floats. */
static void assert_orthonormal(const float *basis, size_t rank, size_t near) {
    for (size_t i = 0; i < rank; i++)
        for (size_t j = 0; j <= i; j++) {
            double sum = 0;
            for (size_t e = 0; e < near; e++)
                sum += (double)basis[i * near + e] * (double)basis[j * near + e];
            assert_true(fabs(sum - (i == j)) <= 2e-6);
        }
}

/*
 * Each of the eight leading vectors has a cosine of at least 0.99 with Jacobi's, and together they have 0.999 of the
 * energy of the best eight; with all 40, all of it, and the vectors are equal to 1e-4.
 */
static void leading_vectors_match_jacobi(void **state) {
    (void)state;
    static const size_t shapes[][2] = {{SHORTER, 64}, {64, SHORTER}, {SHORTER, SHORTER}};
    for (size_t n = 0; n < 3; n++) {
        const frugi_sides side = frugi_sides_make(shapes[n][0], shapes[n][1]);
        assert_int_equal(side.shorter, SHORTER);
        float *g = decaying_matrix(side.rows, side.cols, SHORTER);
        static double t[SHORTER][SHORTER], v[SHORTER][SHORTER];
        for (size_t i = 0; i < SHORTER; i++)
            for (size_t j = 0; j < SHORTER; j++) {
                t[i][j] = 0;
                for (size_t e = 0; e < side.longer; e++)
                    t[i][j] += side.tall ? (double)g[e * side.cols + i] * (double)g[e * side.cols + j]
                                         : (double)g[i * side.cols + e] * (double)g[j * side.cols + e];
            }
        static double copy[SHORTER][SHORTER];
        memcpy(copy, t, sizeof copy);
        jacobi(t, v);
        float *basis = make_basis(&side, g, 8, 1), *again = make_basis(&side, g, 8, 3);
        assert_same_bits(basis, again, 8 * SHORTER * sizeof *basis);
        assert_orthonormal(basis, 8, SHORTER);
        double held = 0, best = 0;
        for (size_t i = 0; i < 8; i++) {
            double cosine = 0;
            for (size_t e = 0; e < SHORTER; e++) {
                cosine += (double)basis[i * SHORTER + e] * v[i][e];
                for (size_t f = 0; f < SHORTER; f++)
                    held += (double)basis[i * SHORTER + e] * copy[e][f] * (double)basis[i * SHORTER + f];
            }
            best += t[i][i];
            assert_true(fabs(cosine) >= 0.99);
        }
        assert_true(held >= 0.999 * best && held <= best * (1 + 1e-5));
        float *all = make_basis(&side, g, SHORTER, 1);
        assert_orthonormal(all, SHORTER, SHORTER);
        for (size_t i = 0; i < 12; i++) {
            double cosine = 0;
            for (size_t e = 0; e < SHORTER; e++)
                cosine += (double)all[i * SHORTER + e] * v[i][e];
            assert_true(fabs(cosine) >= 1 - 1e-4);
        }
        test_free(all);
        test_free(basis);
        test_free(again);
        test_free(g);
    }
}

/*
 * A gradient of rank 3, of zeros, tiny or huge still gives orthonormal directions, and the three are among the first.
 */
static void degenerate_gradients_give_a_basis(void **state) {
    (void)state;
    static const float factors[] = {1.0f, 0.0f, 1e-36f, 1e18f};
    const frugi_sides side = frugi_sides_make(SHORTER, 64);
    for (size_t n = 0; n < 4; n++) {
        float *g = decaying_matrix(SHORTER, 64, 3);
        double all = 0, held = 0;
        for (size_t i = 0; i < SHORTER * 64; i++) {
            g[i] *= factors[n];
            all += (double)g[i] * (double)g[i];
        }
        float *basis = make_basis(&side, g, 6, 1), y[6 * 64];
        assert_orthonormal(basis, 6, SHORTER);
        frugi_project_to_longer(&side, basis, 6, g, y, 1);
        for (size_t i = 0; i < 3 * 64; i++)
            held += (double)y[i] * (double)y[i];
        assert_true(held >= 0.9999 * all);
        test_free(basis);
        test_free(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_match_reference_loops),
        cmocka_unit_test(leading_vectors_match_jacobi),
        cmocka_unit_test(degenerate_gradients_give_a_basis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
