/* test_async.c - buckets handed over give what buckets one after the other give, and errors come out at the end. */
#include "crew.h"
#include "zoo.h"

#include <stdio.h>

#define STEPS 3u

typedef struct task {
    const frug_layout *layout;
    size_t n;
    int later; /* submit and finish, or reduce at once */
    int bad;   /* rank 1 hands over a range that does not exist */
    float *grad[CREW_MOST][STEPS];
    float *weights[CREW_MOST];
} task;

/* One bucket per tensor, last one first, as backward would. */
static frug_status step_of(frug_reducer *r, const task *t, int rank, uint64_t step) {
    for (size_t i = frug_layout_count(t->layout); i-- > 0;) {
        frug_tensor tensor = FRUG_TENSOR_INIT;
        frug_status status = frug_layout_get(t->layout, i, &tensor);
        uint64_t n = 1;
        for (uint32_t d = 0; d < tensor.ndim; d++)
            n *= tensor.shape[d];
        const float *grad = t->grad[rank][step] + tensor.offset;
        float *weights = t->weights[rank] + tensor.offset;
        if (t->bad && rank == 1 && i == 3)
            n = 1u << 30;
        if (status == FRUG_OK)
            status = (t->later ? frug_reducer_submit : frug_reduce_apply)(r, step, tensor.offset, n, grad, 0.5f, 0.01f,
                                                                          weights);
        if (status != FRUG_OK)
            return status;
    }
    return frug_reducer_finish(r);
}

/* The buckets add up to the totals, and each is known by its place. */
static frug_status check_books(const frug_reducer *r, const task *t) {
    frug_reduce_stats all = {.struct_size = sizeof all};
    frug_bucket_stats b = {.struct_size = sizeof b};
    frug_status status = frug_reducer_stats(r, &all);
    uint64_t sent = 0, elements = 0, count = 0;
    for (; status == FRUG_OK && frug_reducer_bucket(r, (size_t)count, &b) == FRUG_OK; count++) {
        sent += b.stats.bytes_sent;
        elements += b.count;
    }
    return status == FRUG_OK && sent == all.bytes_sent && count == all.calls && elements == STEPS * t->n && b.step == 0
               ? FRUG_OK
               : FRUG_ERR_MISMATCH;
}

static frug_status train(frug_comm *comm, void *shared) {
    task *t = shared;
    frug_config *config = NULL;
    frug_reducer *r = NULL;
    frug_status status = frug_config_create("frugrad,min_size=1,residual=f32", &config);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, t->layout, NULL, comm, &r);
    frug_config_destroy(config);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++)
        status = step_of(r, t, frug_comm_rank(comm), step);
    if (status == FRUG_OK)
        status = check_books(r, t);
    frug_reducer_destroy(r);
    return status;
}

static void run(task *t, int size, crew_member *member) {
    for (int i = 0; i < size; i++) {
        for (uint64_t s = 0; s < STEPS; s++)
            t->grad[i][s] = zoo_gradient(t->layout, 10 * (uint64_t)i + s + 1);
        t->weights[i] = bell_array(t->n, 5);
    }
    crew(size, train, t, 20, member);
}

static void end(task *t, int size) {
    for (int i = 0; i < size; i++) {
        for (uint64_t s = 0; s < STEPS; s++)
            test_free(t->grad[i][s]);
        test_free(t->weights[i]);
    }
}

static void handing_over_changes_no_bit(void **state) {
    (void)state;
    frug_layout *z = make_zoo(60);
    for (int size = 1; size <= 4; size++) {
        task now = {.layout = z, .n = frug_layout_elements(z)}, later = now;
        crew_member member[CREW_MOST];
        later.later = 1;
        run(&now, size, member);
        for (int i = 0; i < size; i++)
            assert_int_equal(member[i].status, FRUG_OK);
        run(&later, size, member);
        for (int i = 0; i < size; i++) {
            assert_int_equal(member[i].status, FRUG_OK);
            assert_same_bits(now.weights[i], later.weights[i], now.n * sizeof(float));
            assert_same_bits(now.weights[0], now.weights[i], now.n * sizeof(float));
        }
        end(&now, size);
        end(&later, size);
    }
    frug_layout_destroy(z);
}

static void an_error_comes_out_at_the_end_on_every_worker(void **state) {
    (void)state;
    frug_layout *z = make_zoo(60);
    task t = {.layout = z, .n = frug_layout_elements(z), .later = 1, .bad = 1};
    crew_member member[CREW_MOST];
    run(&t, 3, member);
    assert_int_equal(member[1].status, FRUG_ERR_ARG);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(member[i].status, FRUG_ERR_REMOTE);
        assert_non_null(strstr(member[i].error, "rank 1 failed"));
    }
    end(&t, 3);
    frug_layout_destroy(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handing_over_changes_no_bit),
        cmocka_unit_test(an_error_comes_out_at_the_end_on_every_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
