/* test_reduce_scatter.c - reduce=split: shards, results, residuals, and the bytes sent. */
#include "support/thread_group.h"
#include "support/test_layouts.h"

#include "reduce/shards.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#define ROWS     40u
#define STEPS    4u
#define COUNT(a) (sizeof(a) / sizeof *(a))
static const int sizes[] = {1, 2, 3, 5, 8};

/** One run. Memory is allocated by the test's thread, as cmocka requires. */
typedef struct task {
    const char *config;
    const frug_layout *layout;
    size_t n;
    uint64_t steps;
    uint64_t restart; /* at this step all ranks save, destroy, create and restore; 0: never */
    float decay;
    int threads; /* of each worker; 0: 1 */
    float *grad[THREAD_WORKERS_MAX][STEPS];
    float *weights[THREAD_WORKERS_MAX];
    float *residual[THREAD_WORKERS_MAX];
    uint64_t sent[THREAD_WORKERS_MAX], received[THREAD_WORKERS_MAX];
} task;

/* Replace a reducer by a new one with the saved state of its compressor. */
static frug_status recreate_from_state(const task *t, frug_comm *comm, frug_reducer **r) {
    frug_compressor *c = frug_reducer_compressor(*r);
    size_t cap = frug_compressor_state_size(c), len = 0;
    void *state = malloc(cap);
    frug_status status = frug_compressor_save(c, state, cap, &len);
    frug_reducer_destroy(*r);
    *r = NULL;
    if (status == FRUG_OK)
        status = create_worker_reducer(t->config, t->layout, t->threads ? t->threads : 1, comm, r);
    if (status == FRUG_OK)
        status = frug_compressor_restore(frug_reducer_compressor(*r), state, len);
    free(state);
    return status;
}

static frug_status train(frug_comm *comm, void *shared) {
    task *t = shared;
    int rank = frug_comm_rank(comm);
    frug_reducer *r = NULL;
    frug_reduce_stats stats = {.struct_size = sizeof stats};
    frug_status status = create_worker_reducer(t->config, t->layout, t->threads ? t->threads : 1, comm, &r);
    for (uint64_t step = 0; step < t->steps && status == FRUG_OK; step++) {
        if (step && step == t->restart)
            status = recreate_from_state(t, comm, &r);
        if (status == FRUG_OK)
            status = t->decay > 0 ? frug_reducer_apply(r, step, (frug_range){0, t->n}, t->grad[rank][step], -1.0f,
                                                       t->decay, t->weights[rank])
                                  : frug_reducer_add(r, step, (frug_range){0, t->n}, t->grad[rank][step], 1.0f,
                                                     t->weights[rank]);
    }
    if (status == FRUG_OK)
        status = frug_compressor_get_residual(frug_reducer_compressor(r), (frug_range){0, t->n}, t->residual[rank]);
    if (status == FRUG_OK)
        status = frug_reducer_stats(r, &stats);
    t->sent[rank] = stats.bytes_sent;
    t->received[rank] = stats.bytes_received;
    frug_reducer_destroy(r);
    return status;
}

static void begin_task(task *t, const char *config, const frug_layout *layout, int size, uint64_t steps) {
    *t = (task){.config = config, .layout = layout, .n = frug_layout_elements(layout), .steps = steps};
    for (int i = 0; i < size; i++) {
        for (uint64_t step = 0; step < steps; step++)
            t->grad[i][step] = make_test_gradient(layout, 100 * (uint64_t)i + step + 1);
        t->weights[i] = test_calloc(t->n, sizeof(float));
        t->residual[i] = test_calloc(t->n, sizeof(float));
    }
}

static void run_task(task *t, int size) {
    thread_worker member[THREAD_WORKERS_MAX];
    run_workers(size, train, t, 20, member);
    assert_workers_ok(t->config, member, size);
    for (int i = 1; i < size; i++)
        if (memcmp(t->weights[0], t->weights[i], t->n * sizeof(float)) != 0)
            fail_msg("%s: ranks 0 and %d of %d have different weights", t->config, i, size);
}

static void end_task(task *t, int size) {
    for (int i = 0; i < size; i++) {
        for (uint64_t step = 0; step < t->steps; step++)
            test_free(t->grad[i][step]);
        test_free(t->weights[i]);
        test_free(t->residual[i]);
    }
}

/* The sum of all gradients is the result plus all residuals, up to rounding of f32 sums. */
static void check_conservation(const task *t, int size) {
    double most = 0;
    for (size_t i = 0; i < t->n; i++) {
        double missing = -(double)t->weights[0][i];
        for (int p = 0; p < size; p++) {
            missing -= (double)t->residual[p][i];
            for (uint64_t step = 0; step < t->steps; step++)
                missing += (double)t->grad[p][step][i];
        }
        most = fmax(most, fabs(missing));
    }
    if (most > 1e-4)
        fail_msg("%s with %d workers: results and residuals differ from the gradients by %g", t->config, size, most);
}

/* ---- results -------------------------------------------------------------------------- */

static void all_workers_get_the_same_bits_and_nothing_is_lost(void **state) {
    (void)state;
    static const char *const configs[] = {
        "down=1",
        "down=2",
        "down=4,value=int8",
        "down=union",
        "down=2,segment=tensor",
        "down=2,value=int4",
        "down=2,unit=head,segment=tensor",
        "down=2,segment=2:4",
        "down=2,segment=1:4,index=auto",
        "down=2,rule=random,segment=tensor",
        "down=2,rule=threshold:track,segment=tensor,unit=run:4",
        "down=2,rule=learned,segment=tensor",
        "down=4,rule=hybrid,segment=tensor,frequency=on",
        "down=2,warmup=1,dense_every=3,layers=role,strict=on",
        "down=union,rule=threshold:absolute:1.5,segment=tensor",
    };
    frug_layout *z = make_test_layout(ROWS);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (size_t s = 0; s < COUNT(sizes); s += c < 4 ? 1 : 2) { /* fewer sizes for the less common configs */
            char config[256];
            task t;
            snprintf(config, sizeof config, "reduce=split,feedback=plain,residual=f32,%s", configs[c]);
            begin_task(&t, config, z, sizes[s], STEPS);
            run_task(&t, sizes[s]);
            check_conservation(&t, sizes[s]);
            end_task(&t, sizes[s]);
        }
    frug_layout_destroy(z);
}

/*
 * With decay, which must be applied to every weight once, and with options that depend on the norm of the whole range.
 * With rule=random all ranks draw the same units, so that all of the sum is sent for any `down`.
 */
static void union_of_f32_values_is_gather_bit_for_bit(void **state) {
    (void)state;
    static const char *const configs[] = {
        "value=f32",
        "value=f32,clip=3,norm=follow",
        "value=f32,segment=tensor,residual=f32,feedback=dgc",
        "value=f32,unit=head,segment=tensor,feedback=ef21",
        "value=f32,rule=random,segment=tensor,down=2",
        "value=f32,rule=random,unit=row,segment=tensor,feedback=none,down=1",
        "value=f32,warmup=1,vectors=sparse,min_size=1,block=64",
    };
    frug_layout *z = make_test_layout(ROWS);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (size_t s = c ? 1 : 0; s < COUNT(sizes); s += c ? 2 : 1) {
            char config_text[2][256];
            task t[2];
            for (size_t i = 0; i < 2; i++) {
                const char *down = strstr(configs[c], ",down="); /* an option of split only */
                int len = (int)(i || !down ? strlen(configs[c]) : (size_t)(down - configs[c]));
                snprintf(config_text[i], sizeof config_text[i], "reduce=%s,%.*s", i ? "split,down=union" : "gather",
                         len, configs[c]);
                begin_task(&t[i], config_text[i], z, sizes[s], STEPS);
                t[i].decay = strstr(configs[c], "ef21") ? 0 : 0.125f; /* ef21 has no apply */
                for (int p = 0; p < sizes[s]; p++)
                    for (size_t e = 0; e < t[i].n; e++)
                        t[i].weights[p][e] = (float)(e % 100);
                run_task(&t[i], sizes[s]);
            }
            assert_same_bits(t[0].weights[0], t[1].weights[0], t[0].n * sizeof(float));
            for (int p = 0; p < sizes[s]; p++)
                assert_same_bits(t[0].residual[p], t[1].residual[p], t[0].n * sizeof(float));
            end_task(&t[0], sizes[s]);
            end_task(&t[1], sizes[s]);
        }
    frug_layout_destroy(z);
}

static void everything_in_f32_is_the_dense_sum_in_rank_order(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(ROWS);
    for (size_t s = 0; s < COUNT(sizes); s++) {
        task t;
        begin_task(&t, "reduce=split,density=1,value=f32", z, sizes[s], 1);
        run_task(&t, sizes[s]);
        for (size_t e = 0; e < t.n; e++) {
            float sum = 0;
            for (int p = 0; p < sizes[s]; p++)
                sum += t.grad[p][0][e];
            assert_true(t.weights[0][e] == sum);
        }
        end_task(&t, sizes[s]);
    }
    frug_layout_destroy(z);
}

/* Option `hold` does not apply to the second selection: with one rank and down=2 it sends all of the first one. */
static void retention_is_for_the_first_selection_only(void **state) {
    (void)state;
    static const char *const configs[] = {"segment=block", "segment=tensor", "segment=tensor,unit=row",
                                          "segment=tensor,rule=random"};
    frug_layout *z = make_test_layout(ROWS);
    for (size_t c = 0; c < COUNT(configs); c++) {
        char config_text[2][256];
        task t[2];
        for (size_t i = 0; i < 2; i++) {
            snprintf(config_text[i], sizeof config_text[i], "reduce=%s,value=f32,residual=f32,density=0.25,hold=0.5,%s",
                     i ? "split,down=2" : "gather", configs[c]);
            begin_task(&t[i], config_text[i], z, 1, STEPS);
            run_task(&t[i], 1);
        }
        if (memcmp(t[0].weights[0], t[1].weights[0], t[0].n * sizeof(float)) != 0 ||
            memcmp(t[0].residual[0], t[1].residual[0], t[0].n * sizeof(float)) != 0)
            fail_msg("%s: differs from gather", config_text[1]);
        end_task(&t[0], 1);
        end_task(&t[1], 1);
    }
    frug_layout_destroy(z);
}

/* The second selection must depend only on the state of the first compressor, which is saved. */
static void a_restart_changes_no_bit(void **state) {
    (void)state;
    static const char *const configs[] = {
        "reduce=split,down=2",
        "reduce=split,down=2,rule=threshold:track,segment=tensor,norm=follow",
        "reduce=split,down=2,rule=learned:2:3:0.1,segment=tensor",
        "reduce=split,down=2,rule=hybrid,segment=tensor,frequency=on,norm=accordion",
        "reduce=split,down=2,rule=probabilistic,segment=tensor,feedback=none",
    };
    frug_layout *z = make_test_layout(ROWS);
    for (size_t c = 0; c < COUNT(configs); c++) {
        task t[2];
        for (size_t i = 0; i < 2; i++) {
            begin_task(&t[i], configs[c], z, 3, STEPS);
            t[i].restart = i ? 2 : 0;
            run_task(&t[i], 3);
        }
        assert_same_bits(t[0].weights[0], t[1].weights[0], t[0].n * sizeof(float));
        for (int p = 0; p < 3; p++)
            assert_same_bits(t[0].residual[p], t[1].residual[p], t[0].n * sizeof(float));
        end_task(&t[0], 3);
        end_task(&t[1], 3);
    }
    frug_layout_destroy(z);
}

static frug_layout *one_tensor(uint64_t rows, uint64_t cols) {
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    test_layout_add(layout, "w", FRUG_ROLE_LINEAR, TEST_SHAPE(rows, cols), 0, 0, 0, 0);
    return layout;
}

/* The worked example of reduce_scatter.c. */
static void the_worked_example_holds(void **state) {
    (void)state;
    static const char config[] = "reduce=split,down=1,block=64,density=0.015625,value=f32,min_size=1,feedback=plain,"
                                 "residual=f32";
    frug_layout *layout = one_tensor(2, 64);
    for (uint64_t steps = 1; steps <= 2; steps++) {
        task t;
        begin_task(&t, config, layout, 2, steps);
        for (int p = 0; p < 2; p++)
            for (uint64_t step = 0; step < steps; step++)
                memset(t.grad[p][step], 0, t.n * sizeof(float));
        t.grad[0][0][0] = 5;
        t.grad[0][0][67] = 2;
        t.grad[1][0][1] = 7;
        t.grad[1][0][67] = 4;
        run_task(&t, 2);
        assert_true(t.weights[1][1] == 7 && t.weights[1][67] == 6);
        /* What the owner does not send is in its residual, and is sent when there is nothing larger. */
        assert_true(t.residual[0][0] == (steps == 1 ? 5 : 0) && t.weights[1][0] == (steps == 1 ? 0 : 5));
        end_task(&t, 2);
    }
    frug_layout_destroy(layout);
}

/* ---- bytes ---------------------------------------------------------------------------- */

static uint64_t bytes_per_worker(const frug_layout *layout, const char *config, int size, float *grad) {
    task t = {.config = config, .layout = layout, .n = frug_layout_elements(layout), .steps = 1};
    uint64_t most = 0;
    for (int i = 0; i < size; i++) {
        t.grad[i][0] = grad + i; /* the same numbers, shifted by one per rank */
        t.weights[i] = test_calloc(t.n, sizeof(float));
        t.residual[i] = test_calloc(t.n, sizeof(float));
    }
    run_task(&t, size);
    for (int i = 0; i < size; i++) {
        most = t.sent[i] > most ? t.sent[i] : most;
        test_free(t.weights[i]);
        test_free(t.residual[i]);
    }
    return most;
}

static void bytes_hardly_grow_with_workers(void **state) {
    (void)state;
    frug_layout *layout = one_tensor(500, 512);
    float *grad = bell_array(frug_layout_elements(layout) + THREAD_WORKERS_MAX, 7);
    uint64_t gather = bytes_per_worker(layout, "reduce=gather", 8, grad);
    uint64_t split[3] = {bytes_per_worker(layout, "reduce=split,down=2", 4, grad),
                         bytes_per_worker(layout, "reduce=split,down=2", 8, grad),
                         bytes_per_worker(layout, "reduce=split,down=2", 16, grad)};
    if ((double)split[1] > 0.45 * (double)gather || (double)split[2] >= 1.3 * (double)split[0])
        fail_msg("gather %llu, split %llu, %llu and %llu", (unsigned long long)gather, (unsigned long long)split[0],
                 (unsigned long long)split[1], (unsigned long long)split[2]);
    print_message("8 workers: %.3f of gather; 4 to 16 workers: %.3f\n", (double)split[1] / (double)gather,
                  (double)split[2] / (double)split[0]);
    test_free(grad);
    frug_layout_destroy(layout);
}

/* By blocks, frame sizes depend on config and step only: other compressors of the test give the size of each frame. */
static void bytes_sent_are_those_of_the_formula(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(ROWS);
    size_t n = frug_layout_elements(z);
    for (size_t s = 0; s < COUNT(sizes); s++) {
        int size = sizes[s];
        uint64_t cut[THREAD_WORKERS_MAX + 1];
        size_t up[THREAD_WORKERS_MAX] = {0}, down[THREAD_WORKERS_MAX] = {0}, all_up = 0, all_down = 0;
        frug_compressor *c = make_compressor("density=0.0625", z, NULL), *d = make_compressor("density=0.125", z, NULL);
        task t;
        begin_task(&t, "reduce=split,down=2,density=0.0625", z, size, 1);
        run_task(&t, size);
        frugi_shards_cut(c, 0, n, size, cut);
        for (int i = 0; i < size; i++) {
            uint64_t count = cut[i + 1] - cut[i];
            test_free(compress_range(c, 0, cut[i], count, t.grad[0][0] + cut[i], &up[i]));
            test_free(compress_range(d, 0, cut[i], count, t.grad[0][0] + cut[i], &down[i]));
            all_up += up[i];
            all_down += down[i];
        }
        for (int i = 0; i < size; i++) {
            size_t others = (size_t)size - 1;
            assert_int_equal(t.sent[i], all_up - up[i] + others * down[i]);
            assert_int_equal(t.received[i], others * up[i] + all_down - down[i]);
        }
        end_task(&t, size);
        frug_compressor_destroy(c);
        frug_compressor_destroy(d);
    }
    frug_layout_destroy(z);
}

static void threads_change_no_bit(void **state) {
    (void)state;
    static const char *const configs[] = {"reduce=split,down=2", "reduce=split,down=union,segment=tensor,clip=100"};
    frug_layout *z = make_test_layout(3000);
    for (size_t c = 0; c < COUNT(configs); c++) {
        task t[2];
        for (size_t i = 0; i < 2; i++) {
            begin_task(&t[i], configs[c], z, 2, 2);
            t[i].threads = i ? 3 : 1;
            run_task(&t[i], 2);
        }
        assert_same_bits(t[0].weights[0], t[1].weights[0], t[0].n * sizeof(float));
        assert_same_bits(t[0].residual[1], t[1].residual[1], t[0].n * sizeof(float));
        end_task(&t[0], 2);
        end_task(&t[1], 2);
    }
    frug_layout_destroy(z);
}

/* ---- shards ------------------------------------------------------------------------------ */

/* Blocks of a range, tensor by tensor. */
static uint64_t blocks_in(const frug_compressor *c, uint64_t from, uint64_t to) {
    const frugi_partition *p = frugi_compressor_partition(c);
    uint64_t blocks = 0, block = frugi_compressor_config(c)->block;
    for (size_t i = 0; i < p->views; i++) {
        uint64_t a = p->view[i].begin, b = a + p->view[i].count;
        a = a > from ? a : from;
        b = b < to ? b : to;
        blocks += a < b ? (b - a + block - 1) / block : 0;
    }
    return blocks;
}

static void shards_are_even_and_divide_no_module(void **state) {
    (void)state;
    static const char *const configs[] = {"block=64", "block=4096", "segment=tensor", "unit=head,segment=tensor"};
    frug_layout *z = make_test_layout(ROWS);
    size_t n = frug_layout_elements(z);
    for (size_t k = 0; k < COUNT(configs); k++) {
        frug_compressor *c = make_compressor(configs[k], z, NULL);
        for (int size = 1; size <= THREAD_WORKERS_MAX; size++)
            for (uint64_t begin = 0; begin <= ROWS * 64; begin += ROWS * 64) { /* all, and all but the first tensor */
                uint64_t cut[THREAD_WORKERS_MAX + 1], least = UINT64_MAX, most = 0;
                size_t bound, full = 0;
                frugi_shards_cut(c, begin, n - begin, size, cut);
                assert_true(cut[0] == begin && cut[size] == n);
                for (int i = 0; i < size; i++) {
                    assert_true(cut[i] <= cut[i + 1]);
                    if (cut[i] == cut[i + 1])
                        continue;
                    OK(frug_compressor_bound(c, (frug_range){cut[i], cut[i + 1] - cut[i]}, &bound));
                    full++;
                }
                for (int i = 0; i < size; i++) {
                    uint64_t blocks = blocks_in(c, cut[i], cut[i + 1]);
                    least = blocks < least ? blocks : least;
                    most = blocks > most ? blocks : most;
                }
                assert_true(frugi_compressor_by_units(c) || most - least <= 1);
                assert_true(size == 1 || full >= 2);
            }
        frug_compressor_destroy(c);
    }
    frug_layout_destroy(z);
}

static void a_range_of_a_buffer_with_gaps_is_reduced(void **state) {
    (void)state;
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    for (uint64_t i = 0; i < 3; i++) {
        frug_tensor t = FRUG_TENSOR_INIT;
        static const char *const names[] = {"a", "b", "c"};
        t.name = names[i];
        t.ndim = 2;
        t.shape[0] = 20;
        t.shape[1] = 300;
        t.offset = 10 + i * 7000;
        OK(frug_layout_add(layout, &t));
    }
    for (int size = 1; size <= 8; size += 7) {
        task t[2];
        for (size_t i = 0; i < 2; i++) {
            begin_task(&t[i], i ? "reduce=split,down=union,value=f32" : "reduce=gather,value=f32", layout, size, 2);
            t[i].decay = 0.5f;
            for (int p = 0; p < size; p++)
                for (size_t e = 0; e < t[i].n; e++)
                    t[i].weights[p][e] = 1;
            run_task(&t[i], size);
        }
        assert_same_bits(t[0].weights[0], t[1].weights[0], t[0].n * sizeof(float));
        end_task(&t[0], size);
        end_task(&t[1], size);
    }
    frug_layout_destroy(layout);
}

/* ---- faults ------------------------------------------------------------------------------ */

static void an_overflow_at_one_owner_is_an_error_on_all_ranks(void **state) {
    (void)state;
    frug_layout *layout = one_tensor(16, 512);
    thread_worker member[3];
    task t;
    begin_task(&t, "reduce=split,down=2", layout, 3, 1);
    for (int p = 0; p < 3; p++)
        t.grad[p][0][t.n - 1] = 3e38f;
    run_workers(3, train, &t, 20, member);
    assert_int_equal(member[2].status, FRUG_ERR_ARG);
    assert_non_null(strstr(member[2].error, "overflows"));
    for (int p = 0; p < 2; p++) {
        assert_int_equal(member[p].status, FRUG_ERR_REMOTE);
        assert_non_null(strstr(member[p].error, "rank 2 failed at step 0"));
    }
    end_task(&t, 3);
    frug_layout_destroy(layout);
}

static void a_missing_gradient_is_an_error_on_all_ranks(void **state) {
    (void)state;
    frug_layout *layout = one_tensor(16, 512);
    thread_worker member[3];
    task t;
    begin_task(&t, "reduce=split,down=2", layout, 3, 1);
    float *saved = t.grad[1][0];
    t.grad[1][0] = NULL;
    run_workers(3, train, &t, 20, member);
    t.grad[1][0] = saved;
    for (int p = 0; p < 3; p++)
        assert_int_equal(member[p].status, p == 1 ? FRUG_ERR_ARG : FRUG_ERR_REMOTE);
    end_task(&t, 3);
    frug_layout_destroy(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_workers_get_the_same_bits_and_nothing_is_lost),
        cmocka_unit_test(union_of_f32_values_is_gather_bit_for_bit),
        cmocka_unit_test(everything_in_f32_is_the_dense_sum_in_rank_order),
        cmocka_unit_test(retention_is_for_the_first_selection_only),
        cmocka_unit_test(a_restart_changes_no_bit),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(the_worked_example_holds),
        cmocka_unit_test(bytes_hardly_grow_with_workers),
        cmocka_unit_test(bytes_sent_are_those_of_the_formula),
        cmocka_unit_test(shards_are_even_and_divide_no_module),
        cmocka_unit_test(a_range_of_a_buffer_with_gaps_is_reduced),
        cmocka_unit_test(an_overflow_at_one_owner_is_an_error_on_all_ranks),
        cmocka_unit_test(a_missing_gradient_is_an_error_on_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
