/*
 * test_blocking_transport.c - a transport that has `exchange` alone, and a worker that fails before it has a gradient:
 * what bindings of other languages need.
 */
#include "comm/comm.h"
#include "support/thread_group.h"
#include "support/test_layouts.h"

#include <stdbool.h>

#define RANKS 4
#define MANY  (20u << 20) /* elements: more chunks of reduce=gather than its window has, over any transport */
#define FEW   (1u << 18)

static const char *const configs[] = {
    "reduce=gather,feedback=plain",
    "reduce=split,feedback=plain",
    "reduce=tree,feedback=plain",
    "reduce=nodes,node=2,feedback=plain",
    "reduce=shared,value=f32,feedback=plain",
    "reduce=dense",
    "rule=threshold:absolute:1.5,segment=tensor",
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- the transport ------------------------------------------------------------------ */

static frug_status exchange_over_threads(void *ctx, frug_message *messages, size_t n) {
    return frugi_comm_exchange(ctx, messages, n);
}

static frug_status exchange_nothing(void *ctx, frug_message *messages, size_t n) {
    (void)ctx;
    (void)messages;
    (void)n;
    return frug_set_last_error(FRUG_ERR_COMM, "cable pulled");
}

static frug_status post_over_threads(void *ctx, frug_message *message) {
    return frugi_comm_post(ctx, message);
}

/* As a transport of another language: messages that were posted have a handle. */
static frug_status exchange_posted(void *ctx, frug_message *messages, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!messages[i].done && !messages[i].handle) {
            frug_status status = frugi_comm_post(ctx, &messages[i]);
            if (status != FRUG_OK)
                return status;
        }
    return frugi_comm_wait(ctx, messages, n);
}

/* With exchange alone, and with post too. */
static const frug_transport blocking[] = {
    {.struct_size = sizeof *blocking, .name = "blocking", .any_thread = 1, .exchange = exchange_over_threads},
    {.struct_size = sizeof *blocking,
     .name = "posting",
     .any_thread = 1,
     .post = post_over_threads,
     .exchange = exchange_posted},
};

typedef struct task {
    const char *config;
    const frug_layout *layout;
    const frug_transport *transport; /* NULL: threads */
    uint64_t n;
    float *grad[RANKS];
    float *left[RANKS];
} task;

static frug_status reduce_twice(frug_comm *threads, void *shared) {
    task *t = shared;
    int rank = frug_comm_rank(threads);
    frug_comm *comm = threads, *own = NULL;
    frug_reducer *r = NULL;
    frug_status status = FRUG_OK;
    if (t->transport) {
        status = frug_comm_create(t->transport, threads, rank, frug_comm_size(threads), &own);
        comm = own;
    }
    if (status == FRUG_OK)
        status = create_worker_reducer(t->config, t->layout, 1, comm, &r);
    for (uint64_t step = 0; step < 2 && status == FRUG_OK; step++)
        status = frug_reducer_sum(r, step, (frug_range){0, t->n}, t->grad[rank], 0.25f);
    if (status == FRUG_OK)
        status = frug_compressor_get_residual(frug_reducer_compressor(r), (frug_range){0, t->n}, t->left[rank]);
    frug_reducer_destroy(r);
    frug_comm_destroy(own);
    return status;
}

static void run_task(task *t) {
    thread_worker member[THREAD_WORKERS_MAX];
    for (int i = 0; i < RANKS; i++) {
        t->grad[i] = make_test_gradient(t->layout, (uint64_t)i + 1);
        t->left[i] = test_calloc(t->n, sizeof(float));
    }
    run_workers(RANKS, reduce_twice, t, 20, member);
    assert_workers_ok(t->config, member, RANKS);
}

static void a_transport_that_blocks_gives_the_same_bits(void **state) {
    (void)state;
    for (size_t c = 0; c < COUNT(configs); c++) {
        uint64_t n = c ? FEW : MANY;
        frug_layout *layout = NULL;
        OK(frug_layout_flat(n, &layout));
        task t[3] = {{.transport = NULL}, {.transport = &blocking[0]}, {.transport = &blocking[1]}};
        for (int k = 0; k < 3; k++) {
            t[k].config = configs[c];
            t[k].layout = layout;
            t[k].n = n;
            run_task(&t[k]);
            for (int i = 0; i < RANKS; i++) {
                assert_same_bits(t[0].grad[i], t[k].grad[i], n * sizeof(float));
                assert_same_bits(t[0].left[i], t[k].left[i], n * sizeof(float));
            }
        }
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < RANKS; i++) {
                test_free(t[k].grad[i]);
                test_free(t[k].left[i]);
            }
        frug_layout_destroy(layout);
    }
}

static void what_a_blocking_transport_cannot_do_is_an_error(void **state) {
    (void)state;
    frug_transport t = {.struct_size = sizeof t, .name = "broken", .exchange = exchange_nothing};
    frug_comm *comm = NULL;
    frug_message m = {.peer = 1, .bytes = 1, .data = &m};
    unsigned char byte = 0, both[2];
    OK(frug_comm_create(&t, NULL, 0, 2, &comm));
    assert_int_equal(frugi_comm_post(comm, &m), FRUG_ERR_ARG);
    assert_int_equal(frug_comm_allgather(comm, &byte, 1, both), FRUG_ERR_COMM);
    assert_non_null(strstr(frug_last_error(), "cable pulled"));
    frug_comm_destroy(comm);
    t.exchange = NULL;
    assert_int_equal(frug_comm_create(&t, NULL, 0, 2, &comm), FRUG_ERR_ARG);
}

/* ---- a worker without a gradient ---------------------------------------------------- */

typedef struct failure {
    const char *config;
    const frug_layout *layout;
    bool has_reason; /* rank 1 gives a reason; otherwise it passes no gradient */
} failure;

/* Rank 1 has no gradient in the second exchange. */
static frug_status fail_in_second(frug_comm *comm, void *shared) {
    const failure *f = shared;
    bool fails = frug_comm_rank(comm) == 1;
    size_t n = frug_layout_elements(f->layout);
    float *grad = calloc(n, sizeof(float));
    frug_reducer *r = NULL;
    frug_status status = create_worker_reducer(f->config, f->layout, 1, comm, &r);
    if (status == FRUG_OK)
        status = frug_reducer_sum(r, 0, (frug_range){0, n}, grad, 1.0f);
    if (status == FRUG_OK && fails && f->has_reason)
        status = frug_reducer_fail(r, 1, (frug_range){0, n}, "the GPU is on fire");
    else if (status == FRUG_OK)
        status = frug_reducer_sum(r, 1, (frug_range){0, n}, fails ? NULL : grad, 1.0f);
    free(grad);
    frug_reducer_destroy(r);
    return status;
}

static void all_get_the_text_of_the_worker_that_failed(void **state) {
    (void)state;
    frug_layout *layout = make_test_layout(40);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (int has_reason = 0; has_reason < 2; has_reason++) {
            failure f = {.config = configs[c], .layout = layout, .has_reason = has_reason};
            thread_worker member[THREAD_WORKERS_MAX];
            run_workers(RANKS, fail_in_second, &f, 20, member);
            for (int i = 0; i < RANKS; i++) {
                assert_int_equal(member[i].status, i == 1 ? FRUG_ERR_ARG : FRUG_ERR_REMOTE);
                assert_non_null(strstr(member[i].error, has_reason ? "the GPU is on fire" : "no gradient"));
                if (i != 1 && !strstr(member[i].error, "rank 1 failed at step 1: "))
                    fail_msg("%s: rank %d: '%s'", configs[c], i, member[i].error);
            }
        }
    frug_layout_destroy(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transport_that_blocks_gives_the_same_bits),
        cmocka_unit_test(what_a_blocking_transport_cannot_do_is_an_error),
        cmocka_unit_test(all_get_the_text_of_the_worker_that_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
