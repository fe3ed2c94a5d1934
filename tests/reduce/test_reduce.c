/* test_reduce.c - reduce=dense and reduce=gather with threads as ranks: sums, worked examples, faults. */
#include "comm/comm.h"
#include "compress/compressor.h"
#include "compress/threads.h"
#include "support/test_layouts.h"
#include "support/thread_group.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define ROWS  40u
#define STEPS 4u
static const int sizes[] = {1, 2, 3, 5, 8};
#define COUNT(a) (sizeof(a) / sizeof *(a))

/** One run, with the final weights and residuals of all ranks. */
typedef struct task {
    const char *config;
    const frug_layout *layout;
    size_t n;
    float *grad[THREAD_WORKERS_MAX][STEPS]; /* allocated by the test's thread, as cmocka requires */
    float *weights[THREAD_WORKERS_MAX];
    float *residual[THREAD_WORKERS_MAX];
} task;

static frug_status train(frug_comm *comm, void *shared) {
    task *t = shared;
    int rank = frug_comm_rank(comm);
    frug_reducer *r = NULL;
    frug_status status = create_worker_reducer(t->config, t->layout, 1, comm, &r);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++)
        status = frug_reducer_add(r, step, (frug_range){0, t->n}, t->grad[rank][step], 1.0f, t->weights[rank]);
    if (status == FRUG_OK)
        status = frug_compressor_get_residual(frug_reducer_compressor(r), (frug_range){0, t->n}, t->residual[rank]);
    frug_reducer_destroy(r);
    return status;
}

static void run_task(task *t, int size) {
    thread_worker member[THREAD_WORKERS_MAX];
    for (int i = 0; i < size; i++) {
        for (uint64_t step = 0; step < STEPS; step++)
            t->grad[i][step] = make_test_gradient(t->layout, 100 * (uint64_t)i + step + 1);
        t->weights[i] = test_calloc(t->n, sizeof(float));
        t->residual[i] = test_calloc(t->n, sizeof(float));
    }
    run_workers(size, train, t, 20, member);
    assert_workers_ok(t->config, member, size);
}

static void end_task(task *t, int size) {
    for (int i = 0; i < size; i++) {
        for (uint64_t step = 0; step < STEPS; step++)
            test_free(t->grad[i][step]);
        test_free(t->weights[i]);
        test_free(t->residual[i]);
    }
}

/* The sum of all gradients is the result of the exchange plus all residuals, up to rounding. */
static void check_conservation(const task *t, int size) {
    double *in = test_calloc(t->n, sizeof(double)), most = 0;
    for (int p = 0; p < size; p++)
        for (uint64_t step = 0; step < STEPS; step++)
            for (size_t i = 0; i < t->n; i++)
                in[i] += (double)t->grad[p][step][i];
    for (size_t i = 0; i < t->n; i++) {
        double out = (double)t->weights[0][i];
        for (int p = 0; p < size; p++)
            out += (double)t->residual[p][i];
        most = fmax(most, fabs(out - in[i]));
    }
    if (most > 1e-4)
        fail_msg("%s with %d workers: results and residuals differ from the gradients by %g", t->config, size, most);
    test_free(in);
}

static void all_workers_get_the_same_bits_and_nothing_is_lost(void **state) {
    (void)state;
    static const char *const configs[] = {
        "reduce=dense",
        "reduce=gather,feedback=plain,residual=f32",
        "reduce=gather,feedback=plain,residual=f32,segment=tensor",
        "reduce=gather,feedback=plain,residual=f32,rule=threshold:absolute:1.5,segment=tensor",
    };
    frug_layout *z = make_test_layout(ROWS);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            task t = {.config = configs[c], .layout = z, .n = frug_layout_elements(z)};
            run_task(&t, sizes[s]);
            for (int i = 1; i < sizes[s]; i++)
                assert_same_bits(t.weights[0], t.weights[i], t.n * sizeof(float));
            check_conservation(&t, sizes[s]);
            end_task(&t, sizes[s]);
        }
    frug_layout_destroy(z);
}

/* ---- worked examples of allgather.c and dense_allreduce.c ------------------------------- */

typedef struct example {
    const char *config;
    uint64_t n;
    float grad[3][4], dst[3][4];
} example;

static frug_status run_example(frug_comm *comm, void *shared) {
    example *e = shared;
    int rank = frug_comm_rank(comm);
    frug_layout *layout = NULL;
    frug_config *config = NULL;
    frug_reducer *r = NULL;
    frug_status status = frug_layout_flat(e->n, &layout);
    if (status == FRUG_OK)
        status = frug_config_create(e->config, &config);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, layout, NULL, comm, &r);
    if (status == FRUG_OK)
        status = frug_reducer_add(r, 0, (frug_range){0, e->n}, e->grad[rank], 1.0f, e->dst[rank]);
    frug_reducer_destroy(r);
    frug_config_destroy(config);
    frug_layout_destroy(layout);
    return status;
}

static void the_worked_examples_hold(void **state) {
    (void)state;
    example gather = {"segment=1:4,feedback=none,value=f32,min_size=1,reduce=gather",
                      4,
                      {{5, 1, 0, 0}, {0, 0, 7, 1}, {1, 0.5f, 0, 0}},
                      {{0}}},
            dense = {"reduce=dense", 3, {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}, {{0}}};
    static const float of_gather[4] = {6, 0, 7, 0}, of_dense[4] = {12, 15, 18};
    thread_worker member[3];
    run_workers(3, run_example, &gather, 20, member);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(member[i].status, FRUG_OK);
        assert_same_bits(gather.dst[i], of_gather, sizeof of_gather);
    }
    run_workers(3, run_example, &dense, 20, member);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(member[i].status, FRUG_OK);
        assert_same_bits(dense.dst[i], of_dense, sizeof of_dense);
    }
}

/* ---- disagreement and failure -------------------------------------------------------- */

typedef enum fault { OTHER_CONFIG, OTHER_LAYOUT, NO_LAYOUT, OTHER_STEP, BAD_RANGE, BAD_SCALE, STOPPED } fault;

typedef struct fault_case {
    fault fault;
    const frug_layout *layout, *other;
} fault_case;

/* Rank 1 does something different. */
static frug_status run_with_fault(frug_comm *comm, void *shared) {
    const fault_case *m = shared;
    bool faulty = frug_comm_rank(comm) == 1;
    frug_reducer *r = NULL;
    if (faulty && m->fault == STOPPED)
        return FRUG_OK;
    const frug_layout *layout = !faulty || m->fault > NO_LAYOUT || m->fault == OTHER_CONFIG ? m->layout
                                : m->fault == OTHER_LAYOUT                                  ? m->other
                                                                                            : NULL;
    frug_status status =
        create_worker_reducer(faulty && m->fault == OTHER_CONFIG ? "density=0.5" : "frugrad", layout, 0, comm, &r);
    if (status != FRUG_OK)
        return status;
    size_t n = frug_layout_elements(m->layout);
    float *grad = calloc(n, sizeof(float)), *dst = calloc(n, sizeof(float));
    status = frug_reducer_add(r, faulty && m->fault == OTHER_STEP ? 7 : 3,
                              (frug_range){0, faulty && m->fault == BAD_RANGE ? n + 1 : n}, grad,
                              faulty && m->fault == BAD_SCALE ? (double)NAN : 1.0, dst);
    free(grad);
    free(dst);
    frug_reducer_destroy(r);
    return status;
}

static void an_error_of_one_rank_is_an_error_on_all(void **state) {
    (void)state;
    static const struct {
        fault fault;
        frug_status faulty, others;
        const char *message;
    } cases[] = {
        {OTHER_CONFIG, FRUG_ERR_REMOTE, FRUG_ERR_REMOTE, "different config strings"},
        {OTHER_LAYOUT, FRUG_ERR_REMOTE, FRUG_ERR_REMOTE, "different layouts"},
        {NO_LAYOUT, FRUG_ERR_ARG, FRUG_ERR_REMOTE, "rank 1 failed at step 0: reducer: config or layout is NULL"},
        {OTHER_STEP, FRUG_ERR_REMOTE, FRUG_ERR_REMOTE, "at step 7"},
        {BAD_RANGE, FRUG_ERR_ARG, FRUG_ERR_REMOTE, "rank 1 failed at step 3"},
        {BAD_SCALE, FRUG_ERR_ARG, FRUG_ERR_REMOTE, "rank 1 failed at step 3: reduce: a scale, rate or decay is not"},
        {STOPPED, FRUG_OK, FRUG_ERR_COMM, "received nothing from rank 1"},
    };
    frug_layout *z = make_test_layout(ROWS), *other = make_test_layout(ROWS + 1);
    for (size_t i = 0; i < COUNT(cases); i++) {
        fault_case m = {cases[i].fault, z, other};
        thread_worker member[3];
        run_workers(3, run_with_fault, &m, cases[i].fault == STOPPED ? 0.5 : 20, member);
        assert_int_equal(member[1].status, cases[i].faulty);
        for (int p = 0; p < 3; p += 2) {
            assert_int_equal(member[p].status, cases[i].others);
            if (!strstr(member[p].error, cases[i].message))
                fail_msg("rank %d: error message '%s' instead of '%s'", p, member[p].error, cases[i].message);
        }
    }
    frug_layout_destroy(z);
    frug_layout_destroy(other);
}

/* Its frames have changes of the gradient, which a step of SGD would take for gradients. */
static void ef21_is_not_applied(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(ROWS);
    frug_comm *comm = NULL;
    frug_reducer *r = NULL;
    float *grad = make_test_gradient(z, 1), *weights = test_calloc(frug_layout_elements(z), sizeof(float));
    OK(frug_comm_self(&comm));
    OK(create_worker_reducer("feedback=ef21", z, 1, comm, &r));
    frug_range all = {0, frug_layout_elements(z)};
    assert_int_equal(frug_reducer_apply(r, 0, all, grad, 0.1, 0, weights), FRUG_ERR_CONFIG);
    assert_non_null(strstr(frug_last_error(), "only optimizer=merged adds up"));
    OK(frug_reducer_sum(r, 0, all, grad, 1));
    frug_reducer_destroy(r);
    frug_comm_destroy(comm);
    test_free(grad);
    test_free(weights);
    frug_layout_destroy(z);
}

/* What a reducer takes: the options' number of threads, else OpenMP's if the environment has one, else the group's. */
static void a_reducer_has_its_share_of_the_cores(void **state) {
    (void)state;
    static const struct {
        const char *environment;
        int given, threads;
    } cases[] = {{NULL, 0, 3}, {NULL, 2, 2}, {"1", 2, 2}};
    const char *before = getenv("OMP_NUM_THREADS");
    char *kept = before ? strdup(before) : NULL;
    frug_layout *z = make_test_layout(ROWS);
    frug_comm *comm = NULL;
    OK(frug_comm_self(&comm));
    comm->transport.threads = 3;
    for (size_t i = 0; i < COUNT(cases); i++) {
        frug_reducer *r = NULL;
        if (cases[i].environment)
            setenv("OMP_NUM_THREADS", cases[i].environment, 1);
        else
            unsetenv("OMP_NUM_THREADS");
        OK(create_worker_reducer("frugrad", z, cases[i].given, comm, &r));
        assert_int_equal(frug_reducer_compressor(r)->threads, frugi_thread_count(cases[i].threads));
        frug_reducer_destroy(r);
    }
    if (kept)
        setenv("OMP_NUM_THREADS", kept, 1);
    free(kept);
    frug_comm_destroy(comm);
    frug_layout_destroy(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_workers_get_the_same_bits_and_nothing_is_lost),
        cmocka_unit_test(the_worked_examples_hold),
        cmocka_unit_test(an_error_of_one_rank_is_an_error_on_all),
        cmocka_unit_test(ef21_is_not_applied),
        cmocka_unit_test(a_reducer_has_its_share_of_the_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
