/* test_async.c - buckets handed over give what buckets one after the other give, and errors come out at the end. */
#include "support/thread_group.h"
#include "support/test_layouts.h"

#include "comm/comm.h"

#include <stdio.h>

#define STEPS   3u
#define BUCKETS 64u

typedef enum how { AT_ONCE, LATER, SUMS_AT_ONCE, SUMS_LATER } how;

/** The ends of a worker's buckets, in the order they were told. */
typedef struct diary {
    uint64_t begin[BUCKETS * STEPS];
    frug_status status[BUCKETS * STEPS];
    size_t told;
} diary;

typedef struct task {
    const frug_layout *layout;
    const char *config;
    size_t n;
    how how;
    int bad;        /* rank 1 hands over a range that does not exist */
    int one_thread; /* the transport may only be called from the thread that made it */
    float *grad[CREW_MOST][STEPS];
    float *weights[CREW_MOST];
    diary diary[CREW_MOST];
} task;

static void write_down(void *ctx, const frug_bucket *b, frug_status status) {
    diary *d = ctx;
    d->begin[d->told] = b->begin;
    d->status[d->told++] = status;
    frug_config_create("no such word", NULL); /* what fails in here must not hide why the bucket failed */
}

static frug_status one(frug_reducer *r, task *t, int rank, uint64_t step, uint64_t begin, uint64_t n) {
    frug_bucket b = FRUG_BUCKET_INIT;
    b.step = step;
    b.begin = begin;
    b.count = n;
    b.grad = t->grad[rank][step] + begin;
    b.rate = 0.5f;
    b.decay = 0.01f;
    b.scale = 0.25f;
    b.weights = t->how == LATER ? t->weights[rank] + begin : NULL;
    b.done = write_down;
    b.ctx = &t->diary[rank];
    switch (t->how) {
    case AT_ONCE: return frug_reduce_apply(r, step, begin, n, b.grad, b.rate, b.decay, t->weights[rank] + begin);
    case SUMS_AT_ONCE: return frug_reduce_sum(r, step, begin, n, b.grad, b.scale);
    default: return frug_reducer_submit(r, &b);
    }
}

/* One bucket per tensor, last one first, as backward would. */
static frug_status step_of(frug_reducer *r, task *t, int rank, uint64_t step) {
    for (size_t i = frug_layout_count(t->layout); i-- > 0;) {
        frug_tensor tensor = FRUG_TENSOR_INIT;
        frug_status status = frug_layout_get(t->layout, i, &tensor);
        uint64_t n = 1;
        for (uint32_t d = 0; d < tensor.ndim; d++)
            n *= tensor.shape[d];
        if (t->bad && rank == 1 && i == 3)
            n = 1u << 30;
        if (status == FRUG_OK)
            status = one(r, t, rank, step, tensor.offset, n);
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
    frug_reducer *r = NULL;
    comm->transport.any_thread = !t->one_thread;
    frug_status status = crew_reducer(t->config, t->layout, 0, comm, &r);
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
        t->diary[i].told = 0;
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

/* Weights, and gradients, which sums take the place of. */
static void compare(const task *now, const task *later, int size) {
    for (int i = 0; i < size; i++) {
        assert_same_bits(now->weights[i], later->weights[i], now->n * sizeof(float));
        assert_same_bits(now->weights[0], now->weights[i], now->n * sizeof(float));
        for (uint64_t s = 0; s < STEPS; s++)
            assert_same_bits(now->grad[i][s], later->grad[i][s], now->n * sizeof(float));
        assert_int_equal(later->diary[i].told, STEPS * frug_layout_count(now->layout));
        for (size_t k = 0; k < later->diary[i].told; k++) {
            assert_int_equal(later->diary[i].status[k], FRUG_OK);
            assert_true(k % frug_layout_count(now->layout) == 0 ||
                        later->diary[i].begin[k] < later->diary[i].begin[k - 1]);
        }
    }
}

static void handing_over_changes_no_bit(void **state) {
    (void)state;
    static const char *const configs[] = {"frugrad,min_size=1,residual=f32", "reduce=dense"};
    frug_layout *z = make_zoo(60);
    for (int k = 0; k < 16 * 2; k++) {
        int size = k / 2 % 4 + 1, sums = k / 8 % 2;
        task now = {.layout = z, .config = configs[k % 2], .n = frug_layout_elements(z)}, later = now;
        crew_member member[CREW_MOST];
        now.how = sums ? SUMS_AT_ONCE : AT_ONCE;
        later.how = sums ? SUMS_LATER : LATER;
        later.one_thread = k / 16;
        run(&now, size, member);
        for (int i = 0; i < size; i++)
            assert_int_equal(member[i].status, FRUG_OK);
        run(&later, size, member);
        for (int i = 0; i < size; i++)
            assert_int_equal(member[i].status, FRUG_OK);
        compare(&now, &later, size);
        end(&now, size);
        end(&later, size);
    }
    frug_layout_destroy(z);
}

static void an_error_comes_out_at_the_end_on_every_worker(void **state) {
    (void)state;
    frug_layout *z = make_zoo(60);
    for (int one_thread = 0; one_thread < 2; one_thread++) {
        task t = {.layout = z, .config = "frugrad,min_size=1", .n = frug_layout_elements(z), .how = LATER, .bad = 1};
        size_t all = frug_layout_count(z), good = all - 4;
        crew_member member[CREW_MOST];
        t.one_thread = one_thread;
        run(&t, 3, member);
        for (int i = 0; i < 3; i++) {
            frug_status expected = i == 1 ? FRUG_ERR_ARG : FRUG_ERR_REMOTE;
            assert_int_equal(member[i].status, expected);
            assert_non_null(strstr(member[i].error, i == 1 ? "range" : "rank 1 failed"));
            assert_int_equal(t.diary[i].told, all);
            for (size_t k = 0; k < all; k++)
                assert_int_equal(t.diary[i].status[k], k < good ? FRUG_OK : expected);
        }
        end(&t, 3);
    }
    frug_layout_destroy(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handing_over_changes_no_bit),
        cmocka_unit_test(an_error_comes_out_at_the_end_on_every_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
