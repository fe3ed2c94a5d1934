/* test_partial_sums.c - for every algorithm a sum in place equals a sum added to zeros; gaps between tensors do not
 * change. */
#include "support/thread_group.h"

#include "reduce/reducer.h"

#define STEPS 2u
#define GAP   37u

/* The second one divides long ranges into chunks. */
static const char *const configs[] = {
    "reduce=dense",
    "reduce=gather,residual=f32",
    "reduce=gather,segment=tensor,residual=f32",
    "reduce=gather,segment=tensor,unit=row,residual=f32",
    "reduce=split,down=1,residual=f32",
    "reduce=split,down=union,residual=f32,segment=tensor",
    "reduce=tree,residual=f32",
    "reduce=shared,residual=f32,value=f32",
    "reduce=nodes,node=2,residual=f32",
};

/** Tensors with gaps before, between and after them; with 540 rows long enough for the chunks of reduce=gather. */
static frug_layout *layout_with_gaps(uint64_t rows) {
    const uint64_t shape[][2] = {{rows, 1000}, {1, 3}, {64, 256}, {17, 33}};
    static const char *const name[] = {"long", "short", "even", "odd"};
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    uint64_t at = GAP;
    for (size_t i = 0; i < 4; i++, at += GAP) {
        frug_tensor t = FRUG_TENSOR_INIT;
        t.name = name[i];
        t.ndim = 2;
        t.shape[0] = shape[i][0];
        t.shape[1] = shape[i][1];
        t.offset = at;
        OK(frug_layout_add(layout, &t));
        at += shape[i][0] * shape[i][1];
    }
    return layout;
}

typedef struct task {
    const char *config;
    const frug_layout *layout;
    size_t n;
    int in_place;
    float *grad[THREAD_WORKERS_MAX][STEPS], *sum[THREAD_WORKERS_MAX][STEPS];
    uint64_t memory; /* bytes of rank 0's buffers */
} task;

static frug_status train(frug_comm *comm, void *shared) {
    task *t = shared;
    int rank = frug_comm_rank(comm);
    frug_reducer *r = NULL;
    frug_status status = create_worker_reducer(t->config, t->layout, 0, comm, &r);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++)
        status = t->in_place
                     ? frug_reducer_sum(r, step, (frug_range){0, t->n}, t->grad[rank][step], -0.5f)
                     : frug_reducer_add(r, step, (frug_range){0, t->n}, t->grad[rank][step], -0.5f, t->sum[rank][step]);
    if (rank == 0 && r)
        t->memory = r->send_buf.bytes + r->recv_buf.bytes;
    frug_reducer_destroy(r);
    return status;
}

static void run(task *t, int size) {
    thread_worker member[THREAD_WORKERS_MAX];
    for (int i = 0; i < size; i++)
        for (uint64_t s = 0; s < STEPS; s++) {
            t->grad[i][s] = bell_array(t->n, 10 * (uint64_t)i + s + 1);
            t->sum[i][s] = test_calloc(t->n, sizeof(float));
        }
    run_workers(size, train, t, 20, member);
    assert_workers_ok(t->config, member, size);
}

static void free_task(task *t, int size) {
    for (int i = 0; i < size; i++)
        for (uint64_t s = 0; s < STEPS; s++) {
            test_free(t->grad[i][s]);
            test_free(t->sum[i][s]);
        }
}

/* A sum in place writes the sums of tensors and does not change the elements between them. */
static void compare(const task *add, const task *sum, int rank, uint64_t step) {
    float *expected = test_malloc(add->n * sizeof *expected);
    float *before = bell_array(add->n, 10 * (uint64_t)rank + step + 1);
    memcpy(expected, before, add->n * sizeof *expected);
    for (size_t i = 0; i < frug_layout_count(add->layout); i++) {
        frug_tensor t = FRUG_TENSOR_INIT;
        OK(frug_layout_get(add->layout, i, &t));
        memcpy(expected + t.offset, add->sum[rank][step] + t.offset, t.shape[0] * t.shape[1] * sizeof *expected);
    }
    assert_same_bits(sum->grad[rank][step], expected, add->n * sizeof *expected);
    test_free(before);
    test_free(expected);
}

static void a_sum_in_place_equals_a_sum_added_to_zeros(void **state) {
    (void)state;
    static const int sizes[] = {1, 4};
    for (size_t c = 0; c < sizeof configs / sizeof *configs; c++) {
        frug_layout *layout = layout_with_gaps(c == 1 ? 540 : 20);
        for (size_t k = 0; k < 2; k++) {
            task add = {.config = configs[c], .layout = layout, .n = frug_layout_elements(layout)}, sum = add;
            if (sizes[k] == 1 && strstr(configs[c], "nodes"))
                continue;
            sum.in_place = 1;
            run(&add, sizes[k]);
            run(&sum, sizes[k]);
            for (int i = 0; i < sizes[k]; i++)
                for (uint64_t s = 0; s < STEPS; s++)
                    compare(&add, &sum, i, s);
            free_task(&add, sizes[k]);
            free_task(&sum, sizes[k]);
        }
        frug_layout_destroy(layout);
    }
}

/* A ring needs memory for one chunk of the bucket, and for the elements between tensors. */
static void a_dense_sum_in_place_needs_no_second_copy(void **state) {
    (void)state;
    frug_layout *layout = layout_with_gaps(20);
    task t = {.config = "reduce=dense", .layout = layout, .n = frug_layout_elements(layout), .in_place = 1};
    run(&t, 4);
    assert_true(t.memory <= (t.n / 4 + 1 + 4 * GAP) * sizeof(float));
    free_task(&t, 4);
    frug_layout_destroy(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_in_place_equals_a_sum_added_to_zeros),
        cmocka_unit_test(a_dense_sum_in_place_needs_no_second_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
