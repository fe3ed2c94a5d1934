/*
 * test_alloc_failure.c - fail the n-th allocation, for every n, in each use of the library: the call returns
 * FRUG_ERR_MEMORY, nothing leaks, nothing crashes, and the next attempt works.
 */
#include "comm/comm.h"
#include "support/assertions.h"
#include "support/test_clock.h"
#include "support/thread_group.h"

#include "faults/alloc_faults.h"

enum { ROWS = 96, COLS = 128, N = ROWS * COLS + 64, FRAMES = 3, ATTEMPTS = 2000 };

static frug_status add_tensor(frug_layout *layout, const char *name, frug_role role, uint64_t rows, uint64_t cols) {
    frug_tensor t = FRUG_TENSOR_INIT;
    t.name = name;
    t.role = role;
    t.ndim = cols ? 2 : 1;
    t.shape[0] = rows;
    t.shape[1] = cols;
    t.heads = role == FRUG_ROLE_ATTN_Q ? 8 : 0;
    t.module = role == FRUG_ROLE_ATTN_Q ? 1 : 0;
    return frug_layout_add(layout, &t);
}

static frug_status make_layout(frug_layout **layout) {
    frug_status status = frug_layout_create(layout);
    if (status == FRUG_OK)
        status = add_tensor(*layout, "block.attn.q", FRUG_ROLE_ATTN_Q, ROWS, COLS);
    if (status == FRUG_OK)
        status = add_tensor(*layout, "block.bias", FRUG_ROLE_BIAS, 64, 0);
    return status;
}

static float grad[N], sum[N];

static unsigned char frame[FRAMES][8 * N + 4096];
static size_t frame_bytes[FRAMES];

static frug_status decode(frug_decoder *decoder) {
    const void *frames[FRAMES];
    for (size_t i = 0; i < FRAMES; i++)
        frames[i] = frame[i];
    return frug_decode_add(decoder, (frug_range){0, N}, frames, frame_bytes, FRAMES, 1, sum);
}

static frug_status compress_and_decode(frug_compressor *c) {
    static unsigned char saved[sizeof frame[0]];
    size_t cap = 0, len = 0;
    frug_status status = frug_compressor_bound(c, (frug_range){0, N}, &cap);
    assert_true(status != FRUG_OK || cap <= sizeof frame[0]);
    for (uint64_t i = 0; i < FRAMES && status == FRUG_OK; i++)
        status = frug_compress(c, i, (frug_range){0, N}, grad, frame[i], sizeof frame[i], &frame_bytes[i]);
    if (status == FRUG_OK)
        status = decode(frug_compressor_decoder(c));
    if (status == FRUG_OK)
        status = frug_compressor_save(c, saved, sizeof saved, &len);
    if (status == FRUG_OK)
        status = frug_compressor_restore(c, saved, len);
    return status;
}

static frug_status use_compressor(const void *text) {
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    frug_compressor *c = NULL;
    frug_status status = frug_config_create(text, &config);
    if (status == FRUG_OK)
        status = make_layout(&layout);
    if (status == FRUG_OK)
        status = frug_compressor_create(config, layout, NULL, &c);
    if (status == FRUG_OK)
        status = compress_and_decode(c);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    return status;
}

/* A decoder by the layout alone, of the frames that were compressed last. */
static frug_status use_decoder(const void *text) {
    frug_layout *layout = NULL;
    frug_decoder *decoder = NULL;
    (void)text;
    frug_status status = make_layout(&layout);
    if (status == FRUG_OK)
        status = frug_decoder_create(layout, 2, &decoder);
    if (status == FRUG_OK)
        status = decode(decoder);
    frug_decoder_destroy(decoder);
    frug_layout_destroy(layout);
    return status;
}

static frug_status step_and_restore(frug_optimizer *optimizer) {
    size_t len = 0, room = frug_optimizer_state_size(optimizer);
    unsigned char *state = __real_malloc(room);
    frug_status status = frug_optimizer_step(optimizer, 0, (frug_range){0, N}, grad, 0.1, sum);
    if (status == FRUG_OK)
        status = frug_optimizer_save(optimizer, state, room, &len);
    if (status == FRUG_OK)
        status = frug_optimizer_restore(optimizer, state, len);
    free(state);
    return status;
}

static frug_status use_optimizer(const void *text) {
    frug_layout *layout = NULL;
    frug_optimizer *optimizer = NULL;
    frug_status status = make_layout(&layout);
    if (status == FRUG_OK)
        status = frug_optimizer_create(text, layout, NULL, &optimizer);
    if (status == FRUG_OK)
        status = step_and_restore(optimizer);
    frug_optimizer_destroy(optimizer);
    frug_layout_destroy(layout);
    return status;
}

/* Run `use` with the n-th allocation failing, for n = 1, 2, ... until none fails. */
static void sweep(frug_status (*use)(const void *text), const char *text) {
    long failed = 0;
    for (long n = 1; n < ATTEMPTS; n++) {
        uint64_t now = 1;
        fault_arm(n);
        frug_status status = use(text);
        bool fired = fault_fired;
        fault_arm(0);
        frug_memory(&now, NULL);
        if (now != 0)
            fail_msg("%s: allocation %ld failed, and %llu bytes leak", text, n, (unsigned long long)now);
        if (!fired) {
            if (status != FRUG_OK)
                fail_msg("%s: no allocation failed, but: %s", text, frug_last_error());
            assert_true(failed > 0);
            return;
        }
        failed++;
        if (status != FRUG_ERR_MEMORY)
            fail_msg("%s: allocation %ld failed, and the call returns %d (%s)", text, n, status, frug_last_error());
        assert_true(strlen(frug_last_error()) > 0);
    }
    fail_msg("%s: more than %d allocations", text, ATTEMPTS);
}

static void a_compressor_survives_every_failed_allocation(void **state) {
    (void)state;
    static const char *const configs[] = {
        "frugrad",       "dense",        "topk",    "dgc",
        "feedback=ef21", "hybrid",       "qsgd",    "onebit",
        "learned",       "2:4",          "rows",    "heads",
        "channels",      "threshold",    "randomk", "rule=probabilistic,segment=tensor,feedback=none,value=f32",
        "frugrad-adam",  "residual=int4"};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        frug_config *config = NULL;
        const char *text = configs[i];
        if (frug_config_create(text, &config) != FRUG_OK)
            fail_msg("%s: %s", text, frug_last_error());
        frug_config_destroy(config);
        sweep(use_compressor, text);
    }
}

static void a_decoder_survives_every_failed_allocation(void **state) {
    (void)state;
    static const char *const configs[] = {"frugrad", "topk"}; /* by blocks, by units */
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        OK(use_compressor(configs[i]));
        sweep(use_decoder, configs[i]);
    }
}

static void an_optimizer_survives_every_failed_allocation(void **state) {
    (void)state;
    for (size_t i = 0; frug_optimizer_at(i) != NULL; i++)
        sweep(use_optimizer, frug_optimizer_at(i)->name);
    sweep(use_optimizer, "muon-merged:targets=all,momentum=0.9");
}

#define TIMEOUT 1e-3 /* seconds of the turned clock; a rank that waits reads it as often */

/** Two ranks, the second of which has its n-th allocation fail. */
typedef struct exchange {
    const char *config;
    long n;
    bool fired;
    atomic_bool rank_0_done;
} exchange;

static frug_status exchange_once(frug_comm *comm, void *shared) {
    exchange *e = shared;
    float mine[N];
    frug_layout *layout = NULL;
    frug_reducer *reducer = NULL;
    comm->poll_seconds = -1; /* sleep at once: by a clock that stands still, polling would not end */
    memcpy(mine, grad, sizeof mine);
    frug_status status = make_layout(&layout);
    if (frug_comm_rank(comm) == 1)
        fault_arm(e->n);
    if (status == FRUG_OK)
        status = create_worker_reducer(e->config, layout, 1, comm, &reducer);
    for (uint64_t step = 0; step < 2 && status == FRUG_OK; step++)
        status = frug_reducer_sum(reducer, step, (frug_range){0, N}, mine, 0.5f);
    if (frug_comm_rank(comm) == 1) {
        e->fired = fault_fired;
        fault_arm(0);
    }
    frug_reducer_destroy(reducer);
    frug_layout_destroy(layout);
    if (frug_comm_rank(comm) == 0)
        atomic_store(&e->rank_0_done, true);
    else if (status != FRUG_OK)
        turned_clock_pass(&e->rank_0_done, 2 * TIMEOUT); /* maybe it could not tell rank 0 */
    return status;
}

static void a_rank_without_memory_fails_alone_and_is_reported(void **state) {
    (void)state;
    static const char *const configs[] = {"frugrad,reduce=gather",
                                          "frugrad,reduce=split",
                                          "topk,reduce=tree",
                                          "frugrad,reduce=shared,value=f32",
                                          "dense",
                                          "frugrad,reduce=nodes,node=1"};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        exchange e = {.config = configs[i], .fired = true};
        use_turned_clock();
        for (e.n = 1; e.fired; e.n++) {
            thread_worker member[2];
            uint64_t now = 1;
            e.rank_0_done = false;
            run_workers(2, exchange_once, &e, TIMEOUT, member);
            frug_memory(&now, NULL);
            if (now != 0)
                fail_msg("%s: allocation %ld of rank 1 failed, and %llu bytes leak", e.config, e.n,
                         (unsigned long long)now);
            if (!e.fired)
                assert_int_equal(member[0].status | member[1].status, FRUG_OK);
            else if (member[0].status == FRUG_OK ||
                     (member[1].status != FRUG_ERR_MEMORY && member[1].status != FRUG_ERR_COMM))
                fail_msg("%s: allocation %ld of rank 1 failed; rank 0 returns %d (%s), rank 1 %d (%s)", e.config, e.n,
                         member[0].status, member[0].error, member[1].status, member[1].error);
        }
        restore_clock();
        assert_true(e.n > 3);
    }
}

/** Four ranks, the second of which finds no memory for the n-th payload or buffer of PAYLOAD bytes or more. */
enum { RANKS = 4, PAYLOAD = 256 };

static frug_status exchange_payloads(frug_comm *comm, void *shared) {
    exchange *e = shared;
    float mine[N];
    int rank = frug_comm_rank(comm);
    frug_layout *layout = NULL;
    frug_reducer *reducer = NULL;
    frug_status status = make_layout(&layout);
    if (status == FRUG_OK)
        status = create_worker_reducer(e->config, layout, 1, comm, &reducer);
    if (rank == 1)
        fault_arm_large(e->n, PAYLOAD);
    for (uint64_t step = 0; step < 2 && status == FRUG_OK; step++) {
        for (size_t i = 0; i < N; i++) /* frames of different lengths */
            mine[i] = (i + step) % 4 < (size_t)rank ? 0.0f : grad[(i + 1000 * (size_t)rank) % N];
        status = frug_reducer_sum(reducer, step, (frug_range){0, N}, mine, 0.5f);
    }
    if (rank == 1) {
        e->fired = fault_fired;
        fault_arm(0);
    }
    frug_reducer_destroy(reducer);
    frug_layout_destroy(layout);
    return status;
}

static void no_rank_waits_for_one_without_memory_for_payloads(void **state) {
    (void)state;
    static const char *const configs[] = {"frugrad,reduce=gather",
                                          "threshold,reduce=gather",
                                          "frugrad,reduce=split",
                                          "threshold,reduce=split,down=2",
                                          "topk,reduce=split,down=union",
                                          "topk,reduce=tree",
                                          "frugrad,reduce=shared,value=f32",
                                          "dense",
                                          "frugrad,reduce=nodes,node=2"};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        exchange e = {.config = configs[i], .fired = true};
        for (e.n = 1; e.fired; e.n++) {
            thread_worker member[RANKS];
            run_workers(RANKS, exchange_payloads, &e, 20, member);
            for (int r = 0; r < RANKS; r++) {
                frug_status expected = !e.fired ? FRUG_OK : r == 1 ? FRUG_ERR_MEMORY : FRUG_ERR_REMOTE;
                if (member[r].status != expected)
                    fail_msg("%s: payload %ld of rank 1 failed; rank %d returns %d (%s)", e.config, e.n, r,
                             member[r].status, member[r].error);
            }
        }
        assert_true(e.n > 2);
    }
}

int main(void) {
    uint64_t seed = 7;
    for (size_t i = 0; i < N; i++)
        grad[i] = next_bell(&seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_compressor_survives_every_failed_allocation),
        cmocka_unit_test(a_decoder_survives_every_failed_allocation),
        cmocka_unit_test(an_optimizer_survives_every_failed_allocation),
        cmocka_unit_test(a_rank_without_memory_fails_alone_and_is_reported),
        cmocka_unit_test(no_rank_waits_for_one_without_memory_for_payloads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
