/* test_reduce.c - every algorithm of the exchange, with workers as threads, against a sum worked out beside it. */
#include "support/thread_group.h"
#include "support/test_layouts.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#define ROWS  40u
#define STEPS 4u
static const int sizes[] = {1, 2, 3, 5, 8};
#define COUNT(a) (sizeof(a) / sizeof *(a))

/** One run: every worker's weights at the end, and what all gradients add up to. */
typedef struct task {
    const char *config;
    const frug_layout *layout;
    size_t n;
    float *grad[CREW_MOST][STEPS]; /* made beforehand: cmocka's memory is for the test's own thread */
    float *weights[CREW_MOST];
    float *left[CREW_MOST]; /* what each has not sent */
} task;

static frug_status train(frug_comm *comm, void *shared) {
    task *t = shared;
    int rank = frug_comm_rank(comm);
    frug_reducer *r = NULL;
    frug_status status = crew_reducer(t->config, t->layout, 1, comm, &r);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++)
        status = frug_reduce_add(r, step, 0, t->n, t->grad[rank][step], 1.0f, t->weights[rank]);
    if (status == FRUG_OK)
        status = frug_compressor_residual(frug_reducer_compressor(r), 0, t->n, t->left[rank]);
    frug_reducer_destroy(r);
    return status;
}

static void run_task(task *t, int size) {
    crew_member member[CREW_MOST];
    for (int i = 0; i < size; i++) {
        for (uint64_t step = 0; step < STEPS; step++)
            t->grad[i][step] = zoo_gradient(t->layout, 100 * (uint64_t)i + step + 1);
        t->weights[i] = test_calloc(t->n, sizeof(float));
        t->left[i] = test_calloc(t->n, sizeof(float));
    }
    crew(size, train, t, 20, member);
    for (int i = 0; i < size; i++)
        if (member[i].status != FRUG_OK)
            fail_msg("%s, rank %d of %d: %s", t->config, i, size, member[i].error);
}

static void end_task(task *t, int size) {
    for (int i = 0; i < size; i++) {
        for (uint64_t step = 0; step < STEPS; step++)
            test_free(t->grad[i][step]);
        test_free(t->weights[i]);
        test_free(t->left[i]);
    }
}

/* What all workers put in is what came out of the exchange and what they still have, up to rounding of the sums. */
static void check_mass(const task *t, int size) {
    double *in = test_calloc(t->n, sizeof(double)), most = 0;
    for (int p = 0; p < size; p++)
        for (uint64_t step = 0; step < STEPS; step++)
            for (size_t i = 0; i < t->n; i++)
                in[i] += (double)t->grad[p][step][i];
    for (size_t i = 0; i < t->n; i++) {
        double out = (double)t->weights[0][i];
        for (int p = 0; p < size; p++)
            out += (double)t->left[p][i];
        most = fmax(most, fabs(out - in[i]));
    }
    if (most > 1e-4)
        fail_msg("%s with %d workers: %g is missing somewhere", t->config, size, most);
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
    frug_layout *z = make_zoo(ROWS);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            task t = {.config = configs[c], .layout = z, .n = frug_layout_elements(z)};
            run_task(&t, sizes[s]);
            for (int i = 1; i < sizes[s]; i++)
                assert_same_bits(t.weights[0], t.weights[i], t.n * sizeof(float));
            check_mass(&t, sizes[s]);
            end_task(&t, sizes[s]);
        }
    frug_layout_destroy(z);
}

/* ---- the examples at the head of allgather.c and dense_allreduce.c ----------------------------------- */

typedef struct example {
    const char *config;
    uint64_t n;
    float grad[3][4], dst[3][4];
} example;

static frug_status work_out(frug_comm *comm, void *shared) {
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
        status = frug_reduce_add(r, 0, 0, e->n, e->grad[rank], 1.0f, e->dst[rank]);
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
    crew_member member[3];
    crew(3, work_out, &gather, 20, member);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(member[i].status, FRUG_OK);
        assert_same_bits(gather.dst[i], of_gather, sizeof of_gather);
    }
    crew(3, work_out, &dense, 20, member);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(member[i].status, FRUG_OK);
        assert_same_bits(dense.dst[i], of_dense, sizeof of_dense);
    }
}

/* ---- disagreement and failure -------------------------------------------------------- */

typedef enum trouble { OTHER_CONFIG, OTHER_LAYOUT, OTHER_STEP, BAD_RANGE, SILENT } trouble;

typedef struct mishap {
    trouble what;
    const frug_layout *layout, *other;
} mishap;

/* Worker 1 does something else than the others. */
static frug_status stumble(frug_comm *comm, void *shared) {
    const mishap *m = shared;
    bool odd = frug_comm_rank(comm) == 1;
    frug_reducer *r = NULL;
    if (odd && m->what == SILENT)
        return FRUG_OK;
    frug_status status = crew_reducer(odd && m->what == OTHER_CONFIG ? "density=0.5" : "frugrad",
                                      odd && m->what == OTHER_LAYOUT ? m->other : m->layout, 0, comm, &r);
    if (status != FRUG_OK)
        return status;
    size_t n = frug_layout_elements(m->layout);
    float *grad = calloc(n, sizeof(float)), *dst = calloc(n, sizeof(float));
    status = frug_reduce_add(r, odd && m->what == OTHER_STEP ? 7 : 3, 0, odd && m->what == BAD_RANGE ? n + 1 : n, grad,
                             1.0f, dst);
    free(grad);
    free(dst);
    frug_reducer_destroy(r);
    return status;
}

static void trouble_of_one_is_an_error_of_all_and_nobody_hangs(void **state) {
    (void)state;
    static const struct {
        trouble what;
        frug_status odd, others;
        const char *words;
    } cases[] = {
        {OTHER_CONFIG, FRUG_ERR_REMOTE, FRUG_ERR_REMOTE, "different config strings"},
        {OTHER_LAYOUT, FRUG_ERR_REMOTE, FRUG_ERR_REMOTE, "different layouts"},
        {OTHER_STEP, FRUG_ERR_REMOTE, FRUG_ERR_REMOTE, "at step 7"},
        {BAD_RANGE, FRUG_ERR_ARG, FRUG_ERR_REMOTE, "rank 1 failed at step 3"},
        {SILENT, FRUG_OK, FRUG_ERR_COMM, "received nothing from rank 1"},
    };
    frug_layout *z = make_zoo(ROWS), *other = make_zoo(ROWS + 1);
    for (size_t i = 0; i < COUNT(cases); i++) {
        mishap m = {cases[i].what, z, other};
        crew_member member[3];
        crew(3, stumble, &m, cases[i].what == SILENT ? 0.5 : 20, member);
        assert_int_equal(member[1].status, cases[i].odd);
        for (int p = 0; p < 3; p += 2) {
            assert_int_equal(member[p].status, cases[i].others);
            if (!strstr(member[p].error, cases[i].words))
                fail_msg("rank %d says '%s', not '%s'", p, member[p].error, cases[i].words);
        }
    }
    frug_layout_destroy(z);
    frug_layout_destroy(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_workers_get_the_same_bits_and_nothing_is_lost),
        cmocka_unit_test(the_worked_examples_hold),
        cmocka_unit_test(trouble_of_one_is_an_error_of_all_and_nobody_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
