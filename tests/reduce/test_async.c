/* test_async.c - submitted buckets give the same bits as synchronous calls, and frug_reducer_finish() returns errors.
 */
#include "support/thread_group.h"
#include "support/test_layouts.h"

#include "comm/comm.h"

#include <assert.h>
#include <stdio.h>

#define STEPS   3u
#define BUCKETS 64u

typedef enum mode { SYNC_APPLY, ASYNC_APPLY, SYNC_SUM, ASYNC_SUM } mode;

/** The completed buckets of a rank, in the order of their callbacks. */
typedef struct completions {
    uint64_t begin[BUCKETS * STEPS];
    frug_status status[BUCKETS * STEPS];
    size_t count;
} completions;

typedef struct task {
    const frug_layout *layout;
    const char *config;
    size_t n;
    mode mode;
    int invalid_range; /* of one bucket of rank 1 */
    int one_thread;    /* the transport may only be called from the thread that created it */
    float *grad[THREAD_WORKERS_MAX][STEPS];
    float *weights[THREAD_WORKERS_MAX];
    completions completions[THREAD_WORKERS_MAX];
} task;

static void record_completion(void *ctx, const frug_bucket *b, frug_status status) {
    completions *d = ctx;
    d->begin[d->count] = b->range.begin;
    d->status[d->count++] = status;
    assert(frug_config_create("no such word", NULL) !=
           FRUG_OK); /* an error in the callback must not hide the bucket's error */
}

static frug_status reduce_bucket(frug_reducer *r, task *t, int rank, uint64_t step, uint64_t begin, uint64_t n) {
    frug_bucket b = FRUG_BUCKET_INIT;
    b.step = step;
    b.range.begin = begin;
    b.range.count = n;
    b.grad = t->grad[rank][step] + begin;
    b.rate = 0.5f;
    b.decay = 0.01f;
    b.scale = 0.25f;
    b.weights = t->mode == ASYNC_APPLY ? t->weights[rank] + begin : NULL;
    b.done = record_completion;
    b.ctx = &t->completions[rank];
    switch (t->mode) {
    case SYNC_APPLY:
        return frug_reducer_apply(r, step, (frug_range){begin, n}, b.grad, b.rate, b.decay, t->weights[rank] + begin);
    case SYNC_SUM: return frug_reducer_sum(r, step, (frug_range){begin, n}, b.grad, b.scale);
    default: return frug_reducer_submit(r, &b);
    }
}

/* One bucket per tensor, the last tensor first, as in a backward pass. */
static frug_status reduce_step(frug_reducer *r, task *t, int rank, uint64_t step) {
    for (size_t i = frug_layout_count(t->layout); i-- > 0;) {
        frug_tensor tensor = FRUG_TENSOR_INIT;
        frug_status status = frug_layout_get(t->layout, i, &tensor);
        uint64_t n = 1;
        for (uint32_t d = 0; d < tensor.ndim; d++)
            n *= tensor.shape[d];
        if (t->invalid_range && rank == 1 && i == 3)
            n = 1u << 30;
        if (status == FRUG_OK)
            status = reduce_bucket(r, t, rank, step, tensor.offset, n);
        if (status != FRUG_OK)
            return status;
    }
    return frug_reducer_finish(r);
}

/* The statistics of all buckets add up to the totals. */
static frug_status check_stats(const frug_reducer *r, const task *t) {
    frug_reduce_stats all = {.struct_size = sizeof all};
    frug_bucket_stats b = {.struct_size = sizeof b};
    frug_status status = frug_reducer_stats(r, &all);
    uint64_t sent = 0, elements = 0, count = 0;
    for (; status == FRUG_OK && frug_reducer_bucket(r, (size_t)count, &b) == FRUG_OK; count++) {
        sent += b.stats.bytes_sent;
        elements += b.range.count;
    }
    return status == FRUG_OK && sent == all.bytes_sent && count == all.calls && elements == STEPS * t->n && b.step == 0
               ? FRUG_OK
               : FRUG_ERR_MISMATCH;
}

static frug_status train(frug_comm *comm, void *shared) {
    task *t = shared;
    frug_reducer *r = NULL;
    comm->transport.any_thread = !t->one_thread;
    frug_status status = create_worker_reducer(t->config, t->layout, 0, comm, &r);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++)
        status = reduce_step(r, t, frug_comm_rank(comm), step);
    if (status == FRUG_OK)
        status = check_stats(r, t);
    frug_reducer_destroy(r);
    return status;
}

static void run(task *t, int size, thread_worker *member) {
    for (int i = 0; i < size; i++) {
        for (uint64_t s = 0; s < STEPS; s++)
            t->grad[i][s] = make_test_gradient(t->layout, 10 * (uint64_t)i + s + 1);
        t->weights[i] = bell_array(t->n, 5);
        t->completions[i].count = 0;
    }
    run_workers(size, train, t, 20, member);
}

static void free_task(task *t, int size) {
    for (int i = 0; i < size; i++) {
        for (uint64_t s = 0; s < STEPS; s++)
            test_free(t->grad[i][s]);
        test_free(t->weights[i]);
    }
}

/* Compare weights, and gradients, which sums in place overwrite. */
static void compare(const task *sync, const task *async, int size) {
    for (int i = 0; i < size; i++) {
        assert_same_bits(sync->weights[i], async->weights[i], sync->n * sizeof(float));
        assert_same_bits(sync->weights[0], sync->weights[i], sync->n * sizeof(float));
        for (uint64_t s = 0; s < STEPS; s++)
            assert_same_bits(sync->grad[i][s], async->grad[i][s], sync->n * sizeof(float));
        assert_int_equal(async->completions[i].count, STEPS * frug_layout_count(sync->layout));
        for (size_t k = 0; k < async->completions[i].count; k++) {
            assert_int_equal(async->completions[i].status[k], FRUG_OK);
            assert_true(k % frug_layout_count(sync->layout) == 0 ||
                        async->completions[i].begin[k] < async->completions[i].begin[k - 1]);
        }
    }
}

static void submitting_changes_no_bit(void **state) {
    (void)state;
    static const char *const configs[] = {"frugrad,min_size=1,residual=f32", "reduce=dense"};
    frug_layout *z = make_test_layout(60);
    for (int k = 0; k < 16 * 2; k++) {
        int size = k / 2 % 4 + 1, sums = k / 8 % 2;
        task sync = {.layout = z, .config = configs[k % 2], .n = frug_layout_elements(z)}, async = sync;
        thread_worker member[THREAD_WORKERS_MAX];
        sync.mode = sums ? SYNC_SUM : SYNC_APPLY;
        async.mode = sums ? ASYNC_SUM : ASYNC_APPLY;
        async.one_thread = k / 16;
        run(&sync, size, member);
        for (int i = 0; i < size; i++)
            assert_int_equal(member[i].status, FRUG_OK);
        run(&async, size, member);
        for (int i = 0; i < size; i++)
            assert_int_equal(member[i].status, FRUG_OK);
        compare(&sync, &async, size);
        free_task(&sync, size);
        free_task(&async, size);
    }
    frug_layout_destroy(z);
}

static void an_error_is_returned_by_finish_on_every_rank(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(60);
    for (int one_thread = 0; one_thread < 2; one_thread++) {
        task t = {.layout = z,
                  .config = "frugrad,min_size=1",
                  .n = frug_layout_elements(z),
                  .mode = ASYNC_APPLY,
                  .invalid_range = 1};
        size_t all = frug_layout_count(z), good = all - 4;
        thread_worker member[THREAD_WORKERS_MAX];
        t.one_thread = one_thread;
        run(&t, 3, member);
        for (int i = 0; i < 3; i++) {
            frug_status expected = i == 1 ? FRUG_ERR_ARG : FRUG_ERR_REMOTE;
            assert_int_equal(member[i].status, expected);
            assert_non_null(strstr(member[i].error, i == 1 ? "range" : "rank 1 failed"));
            assert_int_equal(t.completions[i].count, all);
            for (size_t k = 0; k < all; k++)
                assert_int_equal(t.completions[i].status[k], k < good ? FRUG_OK : expected);
        }
        free_task(&t, 3);
    }
    frug_layout_destroy(z);
}

/* Buckets 0 and 1 of one element each; a call in between is refused on every rank, whatever was reduced already. */
static frug_status call_before_finish(frug_comm *comm, void *shared) {
    const task *t = shared;
    float x[2] = {1, 2};
    frug_reducer *r = NULL;
    comm->transport.any_thread = !t->one_thread;
    frug_status status = create_worker_reducer("reduce=dense", t->layout, 1, comm, &r);
    frug_bucket b = FRUG_BUCKET_INIT;
    b.range.count = 1;
    b.grad = x;
    b.scale = 1;
    if (status == FRUG_OK)
        status = frug_reducer_submit(r, &b);
    if (status == FRUG_OK && frug_reducer_sum(r, 0, (frug_range){1, 1}, x + 1, 1) != FRUG_ERR_ARG)
        status = FRUG_ERR_MISMATCH;
    if (status == FRUG_OK && !strstr(frug_last_error(), "call frug_reducer_finish() first"))
        status = FRUG_ERR_MISMATCH;
    if (status == FRUG_OK)
        status = frug_reducer_finish(r);
    if (status == FRUG_OK)
        status = frug_reducer_sum(r, 0, (frug_range){1, 1}, x + 1, 1);
    frug_reducer_destroy(r);
    return status != FRUG_OK ? status : x[0] == 3 && x[1] == 6 ? FRUG_OK : FRUG_ERR_MISMATCH;
}

static void a_call_before_finish_is_refused(void **state) {
    (void)state;
    frug_layout *z = NULL;
    OK(frug_layout_flat(2, &z));
    for (int one_thread = 0; one_thread < 2; one_thread++) {
        task t = {.layout = z, .one_thread = one_thread};
        thread_worker member[THREAD_WORKERS_MAX];
        run_workers(3, call_before_finish, &t, 20, member);
        assert_workers_ok("a call before finish", member, 3);
    }
    frug_layout_destroy(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(submitting_changes_no_bit),
        cmocka_unit_test(an_error_is_returned_by_finish_on_every_rank),
        cmocka_unit_test(a_call_before_finish_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
