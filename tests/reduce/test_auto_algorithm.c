/* test_auto_algorithm.c - reduce=auto: all ranks choose the same; and the cost model against the bytes really sent. */
#include "support/thread_group.h"
#include "support/test_layouts.h"

#include <math.h>
#include <stdio.h>

#define N ((size_t)1 << 18)
static const int sizes[] = {1, 2, 3, 5, 8};
#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct task {
    const char *config;
    const frug_layout *layout;
    size_t n;
    float *grad, *sum[THREAD_WORKERS_MAX];
    char algorithm[THREAD_WORKERS_MAX][16];
    frug_reduce_stats stats[THREAD_WORKERS_MAX];
} task;

static frug_status run_rank(frug_comm *comm, void *shared) {
    task *t = shared;
    int rank = frug_comm_rank(comm);
    frug_reducer *r = NULL;
    frug_status status = create_worker_reducer(t->config, t->layout, 1, comm, &r);
    if (status == FRUG_OK) {
        snprintf(t->algorithm[rank], sizeof t->algorithm[rank], "%s", frug_reducer_algorithm(r));
        status = frug_reducer_add(r, 0, (frug_range){0, t->n}, t->grad, 1.0f, t->sum[rank]);
    }
    t->stats[rank].struct_size = sizeof t->stats[rank];
    if (status == FRUG_OK)
        status = frug_reducer_stats(r, &t->stats[rank]);
    frug_reducer_destroy(r);
    return status;
}

static void run_task(task *t, int size) {
    thread_worker member[THREAD_WORKERS_MAX];
    for (int i = 0; i < size; i++)
        t->sum[i] = test_calloc(t->n, sizeof(float));
    run_workers(size, run_rank, t, 30, member);
    assert_workers_ok(t->config, member, size);
}

static void end_task(task *t, int size) {
    for (int i = 0; i < size; i++)
        test_free(t->sum[i]);
}

static void check_choice(task *t, int size) {
    run_task(t, size);
    assert_string_not_equal(t->algorithm[0], "auto");
    for (int i = 1; i < size; i++) {
        assert_string_equal(t->algorithm[i], t->algorithm[0]);
        assert_same_bits(t->sum[0], t->sum[i], t->n * sizeof(float));
    }
    assert_true(t->stats[0].calls == 1); /* statistics do not include the measurements */
    end_task(t, size);
}

static void all_ranks_choose_the_same_algorithm_and_get_the_same_bits(void **state) {
    (void)state;
    task t = {.config = "reduce=auto", .n = N, .grad = bell_array(N, 1)};
    frug_layout *flat = NULL;
    OK(frug_layout_flat(N, &flat));
    t.layout = flat;
    for (size_t s = 0; s < COUNT(sizes); s++)
        check_choice(&t, sizes[s]);
    frug_layout_destroy(flat);
    test_free(t.grad);
}

/* A sum of gradients has no momentum and no limit, so it must not be chosen in place of them, however fast it is. */
static void dense_is_not_chosen_in_place_of_momentum_or_clipping(void **state) {
    (void)state;
    static const char *const configs[] = {"frugrad-sgd,density=1,value=f32,reduce=auto", "dgc,density=1,reduce=auto",
                                          "density=1,feedback=plain,clip=1,reduce=auto"};
    task t = {.n = N, .grad = bell_array(N, 1)};
    frug_layout *flat = NULL;
    OK(frug_layout_flat(N, &flat));
    t.layout = flat;
    for (size_t i = 0; i < COUNT(configs); i++) {
        t.config = configs[i];
        check_choice(&t, 2);
        assert_string_not_equal(t.algorithm[0], "dense");
    }
    frug_layout_destroy(flat);
    test_free(t.grad);
}

/* Rows, heads, random draws, dense steps: the measurements work with any config. */
static void every_preset_can_be_measured(void **state) {
    (void)state;
    const frug_preset *preset;
    frug_layout *z = make_test_layout(40);
    task t = {.layout = z, .n = frug_layout_elements(z), .grad = make_test_gradient(z, 1)};
    for (size_t i = 0; (preset = frug_preset_at(i)); i++) {
        char config[128];
        snprintf(config, sizeof config, "%s,reduce=auto", preset->name);
        t.config = config;
        check_choice(&t, 2);
    }
    static const char *const others[] = {"reduce=auto,warmup=3", "reduce=auto,dense_every=2",
                                         "reduce=auto,dense_every=1", "reduce=auto,segment=all",
                                         "reduce=auto,schedule=frugrad"};
    for (size_t i = 0; i < COUNT(others); i++) {
        t.config = others[i];
        check_choice(&t, 2);
    }
    test_free(t.grad);
    frug_layout_destroy(z);
}

/* The formulas are exact but for frame headers and uneven shards, for which 1 % is allowed. */
static void exchanges_send_what_the_model_says(void **state) {
    (void)state;
    static const struct {
        const char *algorithm, *config;
        double down;
    } rows[] = {{"dense", "reduce=dense", 0},
                {"gather", "reduce=gather", 0},
                {"split", "reduce=split,down=1", 1},
                {"split", "reduce=split,down=2", 2}}; /* unions depend on how the supports overlap */
    task t = {.n = N, .grad = bell_array(N, 2)};
    frug_layout *flat = NULL;
    OK(frug_layout_flat(N, &flat));
    t.layout = flat;
    frug_compressor *c = make_compressor("frugrad", flat, NULL);
    size_t len = 0;
    test_free(compress_range(c, 0, 0, N, t.grad, &len));
    frug_compressor_destroy(c);
    for (size_t a = 0; a < COUNT(rows); a++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            frug_cost_estimate f = {.struct_size = sizeof f};
            frug_cost_inputs scene = FRUG_COST_INPUTS_INIT;
            t.config = rows[a].config;
            run_task(&t, sizes[s]);
            scene.params = N;
            scene.workers = (uint32_t)sizes[s];
            scene.density = 1.0 / 16;
            scene.payload = (double)len;
            scene.down = rows[a].down;
            OK(frug_cost_predict(rows[a].algorithm, &scene, &f));
            double sent = 0;
            for (int i = 0; i < sizes[s]; i++)
                sent += (double)t.stats[i].bytes_sent / sizes[s];
            if (fabs(sent - f.bytes_sent) > 0.01 * f.bytes_sent)
                fail_msg("%s, %d workers: %g bytes sent, %g predicted", rows[a].algorithm, sizes[s], sent,
                         f.bytes_sent);
            end_task(&t, sizes[s]);
        }
    frug_layout_destroy(flat);
    test_free(t.grad);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_choose_the_same_algorithm_and_get_the_same_bits),
        cmocka_unit_test(dense_is_not_chosen_in_place_of_momentum_or_clipping),
        cmocka_unit_test(every_preset_can_be_measured),
        cmocka_unit_test(exchanges_send_what_the_model_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
