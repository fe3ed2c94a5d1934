/*
 * test_allgather.c - the all-gather in chunks: the same bits as with frug_compress() and frug_decode_apply(), for any
 * config; and no rank waits forever when a frame is damaged or the transport fails in the middle of an exchange.
 */
#include "support/thread_group.h"

#include "comm/comm.h"

#include <stdbool.h>

#define STEPS    2u
#define SMALL    701u  /* rows of the second matrix: three chunks */
#define LARGE    2701u /* ten chunks: more than are in flight at a time */
#define CHUNK    ((1u << 18) + 4096u)
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Two matrices and some dense tensors, with a gap between them; no size is a multiple of the block. */
static frug_layout *make_layout(uint64_t rows) {
    const struct {
        uint32_t ndim;
        uint64_t rows, columns, skip;
    } tensors[] = {{2, 301, 703, 0}, {1, 3001, 1, 0}, {2, 5, 5, 777}, {2, rows, 923, 0}, {1, 17, 1, 3}};
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    for (size_t i = 0; i < COUNT(tensors); i++) {
        frug_tensor t = FRUG_TENSOR_INIT;
        char name[2] = {(char)('a' + i), 0};
        t.name = name;
        t.ndim = tensors[i].ndim;
        t.shape[0] = tensors[i].rows;
        t.shape[1] = tensors[i].columns;
        t.offset = frug_layout_elements(layout) + tensors[i].skip;
        OK(frug_layout_add(layout, &t));
    }
    return layout;
}

typedef struct task {
    const char *config;
    const frug_layout *layout;
    size_t n;
    uint64_t first_step;
    double sensitivity[THREAD_WORKERS_MAX]; /* layers=sensitivity: of tensor 0 */
    float *grad[THREAD_WORKERS_MAX];
    float *weights[THREAD_WORKERS_MAX];
    float *residual[THREAD_WORKERS_MAX];
} task;

static void start_task(task *t, int size) {
    t->n = (size_t)frug_layout_elements(t->layout);
    for (int i = 0; i < size; i++) {
        uint64_t state = 77 * (uint64_t)i + 5;
        t->grad[i] = test_malloc(t->n * sizeof(float));
        for (size_t e = 0; e < t->n; e++)
            t->grad[i][e] = next_float(&state);
        t->weights[i] = test_calloc(t->n, sizeof(float));
        t->residual[i] = test_calloc(t->n, sizeof(float));
        for (size_t e = 0; e < t->n; e++)
            t->weights[i][e] = (float)(e % 97) * 0.01f;
    }
}

static void end_task(task *t, int size) {
    for (int i = 0; i < size; i++) {
        test_free(t->grad[i]);
        test_free(t->weights[i]);
        test_free(t->residual[i]);
    }
}

static frug_status train(frug_comm *comm, void *shared) {
    task *t = shared;
    int rank = frug_comm_rank(comm);
    frug_reducer *r = NULL;
    frug_status status = create_worker_reducer(t->config, t->layout, 1, comm, &r);
    if (status == FRUG_OK && t->sensitivity[rank] > 0)
        status = frug_compressor_set_signal(frug_reducer_compressor(r), FRUG_SIGNAL_SENSITIVITY, 0,
                                            &t->sensitivity[rank], 1);
    for (uint64_t s = 0; s < STEPS && status == FRUG_OK; s++)
        status = frug_reducer_apply(r, t->first_step + s, (frug_range){0, t->n}, t->grad[rank], 0.25f, 0.125f,
                                    t->weights[rank]);
    if (status == FRUG_OK)
        status = frug_compressor_get_residual(frug_reducer_compressor(r), (frug_range){0, t->n}, t->residual[rank]);
    frug_reducer_destroy(r);
    return status;
}

/* The reference: one frame per rank, all passed to frug_decode_apply(). */
static void check_against_frug_apply(const task *t, int size) {
    frug_compressor *c[THREAD_WORKERS_MAX];
    unsigned char *frame[THREAD_WORKERS_MAX];
    const void *frames[THREAD_WORKERS_MAX];
    size_t len[THREAD_WORKERS_MAX];
    float *weights = test_malloc(t->n * sizeof(float)), *residual = test_malloc(t->n * sizeof(float));
    for (size_t e = 0; e < t->n; e++)
        weights[e] = (float)(e % 97) * 0.01f;
    for (int i = 0; i < size; i++) {
        frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
        options.threads = 1;
        options.source = (uint32_t)i;
        c[i] = make_compressor(t->config, t->layout, &options);
        if (t->sensitivity[i] > 0)
            OK(frug_compressor_set_signal(c[i], FRUG_SIGNAL_SENSITIVITY, 0, &t->sensitivity[i], 1));
    }
    for (uint64_t s = 0; s < STEPS; s++) {
        for (int i = 0; i < size; i++)
            frames[i] = frame[i] = compress_range(c[i], t->first_step + s, 0, t->n, t->grad[i], &len[i]);
        OK(frug_decode_apply(frug_compressor_decoder(c[0]), (frug_range){0, t->n}, frames, len, (size_t)size, 0.25f,
                             0.125f, weights));
        for (int i = 0; i < size; i++)
            test_free(frame[i]);
    }
    for (int i = 0; i < size; i++) {
        assert_same_bits(weights, t->weights[i], t->n * sizeof(float));
        OK(frug_compressor_get_residual(c[i], (frug_range){0, t->n}, residual));
        assert_same_bits(residual, t->residual[i], t->n * sizeof(float));
        frug_compressor_destroy(c[i]);
    }
    test_free(weights);
    test_free(residual);
}

static void run_and_compare(task t, int size) {
    thread_worker member[THREAD_WORKERS_MAX];
    start_task(&t, size);
    run_workers(size, train, &t, 20, member);
    assert_workers_ok(t.config, member, size);
    check_against_frug_apply(&t, size);
    end_task(&t, size);
}

static void chunks_give_the_bits_of_whole_frames(void **state) {
    (void)state;
    static const struct {
        const char *config;
        int size;
        uint64_t first_step;
    } cases[] = {
        {"frugrad", 1, 0},
        {"frugrad", 3, 7},
        {"residual=f32,feedback=plain", 4, 0},
        {"density=0.3,index=auto,value=int8,block=1024", 2, 15},
        {"feedback=dgc,residual=int4,value=int4", 2, 0},
        {"warmup=1", 2, 0},                    /* a dense step and a sparse one */
        {"clip=0.5", 2, 0},                    /* from here on one frame: a chunk has another norm, */
        {"norm=follow", 2, 0},                 /* on which the density may depend, */
        {"segment=tensor,residual=f32", 2, 0}, /* and a tensor is one selection group */
    };
    frug_layout *layout = make_layout(SMALL), *large = make_layout(LARGE);
    run_and_compare((task){.config = "frugrad", .layout = large}, 2);
    for (size_t i = 0; i < COUNT(cases); i++) {
        task t = {.config = cases[i].config, .layout = layout, .first_step = cases[i].first_step};
        run_and_compare(t, cases[i].size);
    }
    frug_layout_destroy(layout);
    frug_layout_destroy(large);
}

/* With different sensitivities frame sizes differ between ranks, and no rank knows those of the others. */
static void ranks_with_different_frame_sizes_agree(void **state) {
    (void)state;
    frug_layout *layout = make_layout(SMALL);
    task t = {.config = "layers=sensitivity,residual=f32", .layout = layout, .sensitivity = {1, 0, 9}};
    run_and_compare(t, 3);
    frug_layout_destroy(layout);
}

/* ---- faults ---------------------------------------------------------------------------- */

typedef enum fault { DAMAGED, BROKEN } fault;

typedef struct fault_case {
    task task;
    fault fault;
    int nth; /* of the frames that rank 1 receives or sends */
} fault_case;

/* The transport of rank 1, which damages or refuses one frame. Only rank 1 uses these variables, so no lock is needed.
 */
static frug_transport inner;
static int nth_received, nth_sent, received, sent;
static const frug_message *victim;

static frug_status test_and_damage(void *ctx, frug_message *m) {
    frug_status status = inner.test(ctx, m);
    if (status == FRUG_OK && m->done && m == victim) {
        ((unsigned char *)m->data)[m->bytes / 2] ^= 4;
        victim = NULL;
    }
    return status;
}

static frug_status post_or_break(void *ctx, frug_message *m) {
    bool frame = m->bytes > 4096;
    if (frame && m->sending && ++sent == nth_sent)
        return FRUG_ERR_COMM;
    if (frame && !m->sending && ++received == nth_received)
        victim = m;
    return inner.post(ctx, m);
}

static frug_status run_with_fault(frug_comm *comm, void *shared) {
    fault_case *m = shared;
    if (frug_comm_rank(comm) == 1) {
        inner = comm->transport;
        received = sent = 0;
        nth_received = m->fault == DAMAGED ? m->nth : -1;
        nth_sent = m->fault == BROKEN ? m->nth : -1;
        comm->transport.test = test_and_damage;
        comm->transport.post = post_or_break;
    }
    return train(comm, &m->task);
}

static void check_errors(const fault_case *m, const thread_worker *member, int size) {
    for (int i = 0; i < size; i++) {
        frug_status expected = m->fault == BROKEN ? FRUG_ERR_COMM : i == 1 ? FRUG_ERR_CHECKSUM : FRUG_ERR_REMOTE;
        if (member[i].status != expected)
            fail_msg("fault %d with frame %d: rank %d gets %d: %s", (int)m->fault, m->nth, i, (int)member[i].status,
                     member[i].error);
        if (m->fault == DAMAGED && i != 1 && !strstr(member[i].error, "rank 1 failed at step 0"))
            fail_msg("rank %d: error message '%s'", i, member[i].error);
    }
}

/* Chunks are decoded one by one: only those before the damaged one have changed the weights. */
static void check_untouched(const fault_case *m, int chunk) {
    const float *w = m->task.weights[1];
    size_t n = m->task.n, first = n / (n / CHUNK) * (size_t)chunk;
    for (size_t e = first; e < n; e++)
        if (w[e] != (float)(e % 97) * 0.01f)
            fail_msg("element %zu of %zu was changed by a frame at or behind the damaged one", e, n);
    assert_true(chunk == 0 || w[50] != 50 * 0.01f);
}

static void an_error_in_a_chunk_is_an_error_on_all_ranks(void **state) {
    (void)state;
    static const struct {
        fault fault;
        int nth;
    } cases[] = {{DAMAGED, 1}, {DAMAGED, 19}, {BROKEN, 8}};
    frug_layout *layout = make_layout(LARGE);
    for (size_t i = 0; i < COUNT(cases); i++) {
        fault_case m = {{.config = "frugrad", .layout = layout}, cases[i].fault, cases[i].nth};
        thread_worker member[THREAD_WORKERS_MAX];
        start_task(&m.task, 3);
        run_workers(3, run_with_fault, &m, m.fault == BROKEN ? 0.5 : 20, member);
        check_errors(&m, member, 3);
        if (m.fault == DAMAGED)
            check_untouched(&m, (m.nth - 1) / 2); /* two frames a chunk */
        end_task(&m.task, 3);
    }
    frug_layout_destroy(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_give_the_bits_of_whole_frames),
        cmocka_unit_test(ranks_with_different_frame_sizes_agree),
        cmocka_unit_test(an_error_in_a_chunk_is_an_error_on_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
