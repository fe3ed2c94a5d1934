/* test_residual.c - residuals out and in again, and a restart of all workers from their compressors' states. */
#include "support/thread_group.h"
#include "support/test_layouts.h"

#include "compress/exact_frame.h"

#include <math.h>
#include <stdio.h>

#define ROWS  300u
#define STEPS 6u

static const struct {
    const char *config;
    double step; /* of the largest magnitude in a block of 256: what rounding may change at most */
} cases[] = {
    {"min_size=1,residual=f32", 0},
    {"min_size=1,residual=bf16", 0}, /* bf16 values round-trip exactly */
    {"min_size=1,residual=int8", 1.01 / 126},
    {"min_size=1,residual=int4", 1.01 / 6},
    {"min_size=1,residual=f32,segment=tensor", 0},
    {"min_size=1,residual=int8,segment=tensor", 1.01 / 126},
    {"min_size=1,residual=f32,feedback=dgc", 0},
    {"min_size=1,residual=f32,feedback=ef21,segment=tensor", 0},
    {"min_size=1,residual=f32,segment=tensor,unit=row", 0},
};
#define CASES (sizeof cases / sizeof *cases)

/* A compressor after some steps, and its residual. */
static frug_compressor *make_used_compressor(const char *config, const frug_layout *z, float *left) {
    frug_compressor *c = make_compressor(config, z, NULL);
    uint64_t n = frug_layout_elements(z);
    for (uint64_t step = 0; step < 3; step++) {
        float *grad = make_test_gradient(z, step + 1);
        size_t len;
        test_free(compress_range(c, step, 0, n, grad, &len));
        test_free(grad);
    }
    OK(frug_compressor_get_residual(c, (frug_range){0, n}, left));
    return c;
}

static double largest(const float *x, uint64_t n) {
    float most = 0;
    for (uint64_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return (double)most;
}

/* Equal within a share of the largest magnitude of each tensor; whole tensors, because blocks are not aligned. */
static void assert_near(const frug_layout *z, const float *a, const float *b, double step) {
    for (size_t i = 0; i < frug_layout_count(z); i++) {
        frug_tensor t = FRUG_TENSOR_INIT;
        uint64_t n = 1;
        OK(frug_layout_get(z, i, &t));
        for (uint32_t d = 0; d < t.ndim; d++)
            n *= t.shape[d];
        for (uint64_t from = 0; from < n; from += 256) {
            uint64_t here = n - from < 256 ? n - from : 256;
            const float *x = a + t.offset + from, *y = b + t.offset + from;
            double most = step * largest(x, here);
            for (uint64_t e = 0; e < here; e++)
                assert_true(fabs((double)x[e] - (double)y[e]) <= most);
        }
    }
}

static void a_residual_can_be_read_and_written_back(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(ROWS);
    uint64_t n = frug_layout_elements(z);
    float *left = test_calloc(n, sizeof(float)), *again = test_calloc(n, sizeof(float));
    for (size_t i = 0; i < CASES; i++) {
        frug_compressor *c = make_used_compressor(cases[i].config, z, left),
                        *fresh = make_compressor(cases[i].config, z, NULL);
        assert_true(largest(left, n) > 0);
        OK(frug_compressor_set_residual(c, (frug_range){0, n}, left));
        OK(frug_compressor_get_residual(c, (frug_range){0, n}, again));
        assert_near(z, left, again, cases[i].step);
        OK(frug_compressor_set_residual(fresh, (frug_range){0, n}, left));
        OK(frug_compressor_get_residual(fresh, (frug_range){0, n}, again));
        assert_near(z, left, again, cases[i].step);
        frug_compressor_destroy(c);
        frug_compressor_destroy(fresh);
    }
    test_free(left);
    test_free(again);
    frug_layout_destroy(z);
}

/* Rounded at random, but right on average: over all elements the error of the sum is far below its bound. */
static void quantized_formats_are_unbiased(void **state) {
    (void)state;
    enum { N = 1 << 18 };
    static const char *const configs[] = {"residual=bf16", "residual=int8", "residual=int4"};
    static const double steps[] = {0x1p-8, 1.0 / 126, 1.0 / 6};
    frug_layout *flat = NULL;
    OK(frug_layout_flat(N, &flat));
    float *x = bell_array(N, 3), *got = test_calloc(N, sizeof(float));
    for (size_t i = 0; i < 3; i++) {
        frug_compressor *c = make_compressor(configs[i], flat, NULL);
        double error = 0;
        OK(frug_compressor_set_residual(c, (frug_range){0, N}, x));
        OK(frug_compressor_get_residual(c, (frug_range){0, N}, got));
        for (size_t k = 0; k < N; k++)
            error += (double)got[k] - (double)x[k];
        /* One element's error has a deviation below a step of the largest, 4 or so: six of them. */
        assert_true(fabs(error) < 6 * 4 * steps[i] * sqrt(N));
        frug_compressor_destroy(c);
    }
    test_free(x);
    test_free(got);
    frug_layout_destroy(flat);
}

/* A written residual is a complete state: an f32 compressor continues like the one it was read from. */
static void a_written_residual_survives_a_restart(void **state) {
    (void)state;
    static const char *const configs[] = {"min_size=1,residual=f32", "min_size=1,residual=f32,segment=tensor"};
    frug_layout *z = make_test_layout(ROWS);
    uint64_t n = frug_layout_elements(z);
    float *left = test_calloc(n, sizeof(float)), *grad = make_test_gradient(z, 77);
    for (size_t i = 0; i < 2; i++) {
        frug_compressor *a = make_used_compressor(configs[i], z, left), *b = make_compressor(configs[i], z, NULL);
        frug_compressor *c = make_compressor(configs[i], z, NULL);
        size_t size = frug_compressor_state_size(a), len[3];
        unsigned char *saved = test_malloc(size), *frame[3];
        OK(frug_compressor_set_residual(b, (frug_range){0, n}, left));
        OK(frug_compressor_save(b, saved, size, &len[0]));
        OK(frug_compressor_restore(c, saved, len[0]));
        frame[0] = compress_range(a, 3, 0, n, grad, &len[0]);
        frame[1] = compress_range(b, 3, 0, n, grad, &len[1]);
        frame[2] = compress_range(c, 3, 0, n, grad, &len[2]);
        for (int k = 1; k < 3; k++) {
            assert_int_equal(len[k], len[0]);
            assert_same_bits(frame[k], frame[0], len[0]);
        }
        for (int k = 0; k < 3; k++)
            test_free(frame[k]);
        test_free(saved);
        frug_compressor_destroy(a);
        frug_compressor_destroy(b);
        frug_compressor_destroy(c);
    }
    test_free(left);
    test_free(grad);
    frug_layout_destroy(z);
}

static void only_the_given_range_is_replaced(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(ROWS);
    uint64_t n = frug_layout_elements(z);
    float *left = test_calloc(n, sizeof(float)), *again = test_calloc(n, sizeof(float)), ones[512];
    frug_compressor *c = make_used_compressor("min_size=1,residual=f32", z, left);
    for (size_t i = 0; i < 512; i++)
        left[512 + i] = ones[i] = 1;
    OK(frug_compressor_set_residual(c, (frug_range){512, 512}, ones));
    OK(frug_compressor_get_residual(c, (frug_range){0, n}, again));
    assert_same_bits(left, again, n * sizeof(float));
    ones[300] = NAN;
    assert_int_equal(frug_compressor_set_residual(c, (frug_range){512, 512}, ones), FRUG_ERR_ARG);
    ones[300] = -INFINITY;
    assert_int_equal(frug_compressor_set_residual(c, (frug_range){0, 512}, ones), FRUG_ERR_ARG);
    ones[300] = 1;
    assert_int_equal(frug_compressor_set_residual(c, (frug_range){1, 512}, ones), FRUG_ERR_ARG); /* cuts blocks */
    assert_int_equal(frug_compressor_set_residual(c, (frug_range){n, 512}, ones), FRUG_ERR_ARG);
    assert_int_equal(frug_compressor_set_residual(c, (frug_range){0, 512}, NULL), FRUG_ERR_ARG);
    assert_int_equal(frug_compressor_set_residual(NULL, (frug_range){0, 512}, ones), FRUG_ERR_ARG);
    OK(frug_compressor_get_residual(c, (frug_range){0, n}, again));
    assert_same_bits(left, again, n * sizeof(float));
    frug_compressor_destroy(c);
    c = make_compressor("feedback=none", z, NULL); /* keeps nothing */
    OK(frug_compressor_set_residual(c, (frug_range){0, 512}, ones));
    OK(frug_compressor_get_residual(c, (frug_range){0, n}, again));
    assert_true(largest(again, n) == 0);
    frug_compressor_destroy(c);
    test_free(left);
    test_free(again);
    frug_layout_destroy(z);
}

/* With feedback=dgc nothing of the momentum is left: a zero gradient adds nothing. */
static void momentum_is_replaced_too(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(ROWS);
    uint64_t n = frug_layout_elements(z);
    float *left = test_calloc(n, sizeof(float)), *none = test_calloc(n, sizeof(float));
    frug_compressor *c = make_used_compressor("min_size=1,residual=f32,feedback=dgc", z, left);
    size_t len;
    OK(frug_compressor_set_residual(c, (frug_range){0, n}, none));
    test_free(compress_range(c, 3, 0, n, none, &len));
    OK(frug_compressor_get_residual(c, (frug_range){0, n}, left));
    assert_true(largest(left, n) == 0);
    frug_compressor_destroy(c);
    test_free(left);
    test_free(none);
    frug_layout_destroy(z);
}

/* ---- a restart of all workers ----------------------------------------------------- */

typedef struct task {
    const char *config;
    const frug_layout *layout;
    size_t n;
    int restart; /* in the middle */
    float *grad[THREAD_WORKERS_MAX][STEPS], *weights[THREAD_WORKERS_MAX];
} task;

static frug_status open_reducer(const task *t, frug_comm *comm, frug_reducer **r) {
    frug_config *config = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = 1;
    options.total_steps = STEPS;
    frug_status status = frug_config_create(t->config, &config);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, t->layout, &options, comm, r);
    frug_config_destroy(config);
    return status;
}

/* Another reducer with the state of this one's compressor. */
static frug_status restart_reducer(const task *t, frug_comm *comm, frug_reducer **r) {
    size_t size = frug_compressor_state_size(frug_reducer_compressor(*r)), len = 0;
    unsigned char *saved = malloc(size);
    frug_status status = saved ? FRUG_OK : FRUG_ERR_MEMORY;
    if (status == FRUG_OK)
        status = frug_compressor_save(frug_reducer_compressor(*r), saved, size, &len);
    frug_reducer_destroy(*r);
    *r = NULL;
    if (status == FRUG_OK)
        status = open_reducer(t, comm, r);
    if (status == FRUG_OK)
        status = frug_compressor_restore(frug_reducer_compressor(*r), saved, len);
    free(saved);
    return status;
}

static frug_status train(frug_comm *comm, void *shared) {
    task *t = shared;
    int rank = frug_comm_rank(comm);
    frug_reducer *r = NULL;
    frug_status status = open_reducer(t, comm, &r);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++) {
        if (t->restart && step == STEPS / 2)
            status = restart_reducer(t, comm, &r);
        if (status == FRUG_OK)
            status =
                frug_reducer_apply(r, step, (frug_range){0, t->n}, t->grad[rank][step], 0.1f, 0.01f, t->weights[rank]);
    }
    frug_reducer_destroy(r);
    return status;
}

static void run(task *t, int size) {
    thread_worker member[THREAD_WORKERS_MAX];
    for (int i = 0; i < size; i++) {
        for (uint64_t s = 0; s < STEPS; s++)
            t->grad[i][s] = make_test_gradient(t->layout, 10 * (uint64_t)i + s + 1);
        t->weights[i] = bell_array(t->n, 5);
    }
    run_workers(size, train, t, 20, member);
    assert_workers_ok(t->config, member, size);
}

static void end(task *t, int size) {
    for (int i = 0; i < size; i++) {
        for (uint64_t s = 0; s < STEPS; s++)
            test_free(t->grad[i][s]);
        test_free(t->weights[i]);
    }
}

static void all_workers_continue_bit_for_bit(void **state) {
    (void)state;
    static const char *const reduces[] = {"reduce=gather",          "reduce=dense",
                                          "reduce=split,down=1",    "reduce=tree",
                                          "reduce=nodes,node=2",    "reduce=shared,value=f32",
                                          "reduce=split,down=union"};
    static const char *const methods[] = {"residual=f32",
                                          "residual=int8",
                                          "residual=int4,schedule=frugrad",
                                          "feedback=dgc,residual=f32",
                                          "segment=tensor,residual=bf16",
                                          "rule=threshold:track,segment=tensor,residual=f32",
                                          "norm=follow,residual=f32"};
    frug_layout *z = make_test_layout(40);
    for (size_t k = 0; k < 7 * 7; k++) {
        char config[128];
        snprintf(config, sizeof config, "min_size=1,%s,%s", methods[k / 7], reduces[k % 7]);
        task whole = {.config = config, .layout = z, .n = frug_layout_elements(z)}, cut = whole;
        cut.restart = 1;
        run(&whole, 4);
        run(&cut, 4);
        for (int i = 0; i < 4; i++)
            if (memcmp(whole.weights[i], cut.weights[i], whole.n * sizeof(float)) != 0)
                fail_msg("%s: rank %d goes on otherwise after a restart", config, i);
        end(&whole, 4);
        end(&cut, 4);
    }
    frug_layout_destroy(z);
}

/*
 * What an owner puts back is rounded by draws of its own: at the step whose draws frug_compressor_set_residual() has
 * (the last there is) the same numbers must not be rounded alike.
 */
static void written_residuals_have_their_own_random_numbers(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(ROWS);
    uint64_t n = frug_layout_elements(z);
    float *grad = make_test_gradient(z, 1), *put = test_calloc(n, sizeof(float)),
          *added = test_calloc(n, sizeof(float));
    frug_compressor *a = make_compressor("min_size=1,residual=int8", z, NULL);
    frug_compressor *b = make_compressor("min_size=1,residual=int8", z, NULL);
    OK(frug_compressor_set_residual(a, (frug_range){0, n}, grad));
    frugi_compressor_residual_add(b, UINT64_MAX, (frug_range){0, n}, grad);
    OK(frug_compressor_get_residual(a, (frug_range){0, n}, put));
    OK(frug_compressor_get_residual(b, (frug_range){0, n}, added));
    assert_near(z, put, added, 1.01 / 126);
    assert_memory_not_equal(put, added, n * sizeof(float));
    frug_compressor_destroy(a);
    frug_compressor_destroy(b);
    test_free(grad);
    test_free(put);
    test_free(added);
    frug_layout_destroy(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_residual_can_be_read_and_written_back),
        cmocka_unit_test(quantized_formats_are_unbiased),
        cmocka_unit_test(a_written_residual_survives_a_restart),
        cmocka_unit_test(only_the_given_range_is_replaced),
        cmocka_unit_test(momentum_is_replaced_too),
        cmocka_unit_test(all_workers_continue_bit_for_bit),
        cmocka_unit_test(written_residuals_have_their_own_random_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
