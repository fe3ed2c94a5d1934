/* test_gossip.c - communication graphs, and gossip: the mean is preserved, ranks converge, errors spread. */
#include "frugrad/experimental.h"
#include "support/thread_group.h"
#include "support/test_layouts.h"

#include "reduce/gossip_topology.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#define COUNT(a)  (sizeof(a) / sizeof *(a))
#define MAX_STEPS 100
static const char *const topologies[] = {"topology=ring", "topology=torus", "topology=random:2", "topology=random:3:9",
                                         "topology=random:4:7"};

/* ---- graphs -------------------------------------------------------------------------- */

static frug_status make_graph(const char *text, int size, frugi_topology *t) {
    frug_config *config = NULL;
    OK(frug_config_create(text, &config));
    frug_status status = frugi_topology_create(config, size, t);
    frug_config_destroy(config);
    return status;
}

/* After `size` rounds of mixing a weight of rank 0 has reached every rank of a connected graph. */
static void check_connected(const frugi_topology *t) {
    double x[16] = {1}, y[16];
    for (int round = 0; round < t->size; round++) {
        for (int i = 0; i < t->size; i++) {
            y[i] = 0;
            for (int j = 0; j < t->size; j++)
                y[i] += frugi_topology_weight(t, i, j) * x[j];
        }
        memcpy(x, y, sizeof x);
    }
    for (int i = 0; i < t->size; i++)
        assert_true(x[i] > 0);
}

static void mixing_matrix_is_symmetric_and_its_rows_sum_to_one(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 5, 6, 8, 9, 16};
    size_t created = 0;
    for (size_t k = 0; k < COUNT(topologies); k++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            frugi_topology t = {0}, again = {0};
            bool faulty = strstr(topologies[k], ":3") && sizes[s] % 2 && sizes[s] > 4;
            assert_int_equal(make_graph(topologies[k], sizes[s], &t), faulty ? FRUG_ERR_CONFIG : FRUG_OK);
            if (faulty)
                continue;
            OK(make_graph(topologies[k], sizes[s], &again));
            assert_memory_equal(t.degree, again.degree, (size_t)t.size * sizeof(int));
            assert_memory_equal(t.neighbor, again.neighbor, (size_t)(t.size * t.max_degree) * sizeof(int));
            for (int i = 0; i < t.size; i++) {
                double sum = 0;
                for (int j = 0; j < t.size; j++) {
                    double w = frugi_topology_weight(&t, i, j);
                    assert_true(w >= 0 && w == frugi_topology_weight(&t, j, i));
                    sum += w;
                }
                assert_true(fabs(sum - 1) < 1e-12 && frugi_topology_weight(&t, i, i) > 0);
            }
            check_connected(&t);
            frugi_topology_destroy(&t);
            frugi_topology_destroy(&again);
            created++;
        }
    assert_int_equal(created, COUNT(topologies) * COUNT(sizes) - 2);
}

static void graphs_have_the_configured_degrees(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int size, degree;
    } cases[] = {{"topology=ring", 9, 2},      {"topology=ring", 2, 1},      {"topology=torus", 16, 4},
                 {"topology=torus", 9, 4},     {"topology=torus", 6, 3},     {"topology=torus", 5, 2},
                 {"topology=random:3", 16, 3}, {"topology=random:4", 16, 4}, {"topology=random:9", 4, 3}};
    for (size_t k = 0; k < COUNT(cases); k++) {
        frugi_topology t = {0};
        OK(make_graph(cases[k].text, cases[k].size, &t));
        for (int i = 0; i < t.size; i++)
            assert_int_equal(t.degree[i], cases[k].degree);
        frugi_topology_destroy(&t);
    }
    frugi_topology a = {0}, b = {0};
    OK(make_graph("topology=random:4:1", 16, &a));
    OK(make_graph("topology=random:4:2", 16, &b));
    assert_memory_not_equal(a.neighbor, b.neighbor, 64 * sizeof(int));
    frugi_topology_destroy(&a);
    frugi_topology_destroy(&b);
    assert_int_equal(make_graph("topology=random:1", 4, &a), FRUG_ERR_CONFIG);
}

/* ---- mixing ---------------------------------------------------------------------------- */

typedef enum fault { NO_FAULT, NO_WEIGHTS, OTHER_STEP, OTHER_START, OTHER_GAMMA, STOPPED } fault;

typedef struct task {
    const char *config;
    const frug_layout *layout;
    size_t n;
    uint64_t steps;
    float *x[THREAD_WORKERS_MAX];
    const float *start;
    fault fault; /* of rank 1, at step 3 */
    uint64_t bytes[THREAD_WORKERS_MAX];
} task;

static frug_status create_gossip(frug_comm *comm, const task *t, bool faulty, frug_gossip **g) {
    frug_config *config = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = 1;
    frug_status status = frug_config_create(faulty && t->fault == OTHER_GAMMA ? "gamma=0.3" : t->config, &config);
    if (status == FRUG_OK)
        status = frug_gossip_create(config, t->layout, &options, comm,
                                    faulty && t->fault == OTHER_START ? t->x[1] : t->start, g);
    frug_config_destroy(config);
    return status;
}

static frug_status run_gossip(frug_comm *comm, void *shared) {
    task *t = shared;
    int rank = frug_comm_rank(comm);
    bool faulty = rank == 1;
    frug_gossip *g = NULL;
    float *before = test_malloc(t->n * sizeof *before);
    frug_status status = create_gossip(comm, t, faulty, &g);
    for (uint64_t step = 0; step < t->steps && status == FRUG_OK; step++) {
        bool now = faulty && step == 3;
        if (now && t->fault == STOPPED)
            break;
        memcpy(before, t->x[rank], t->n * sizeof *before);
        status = frug_gossip_step(g, now && t->fault == OTHER_STEP ? 7 : step,
                                  now && t->fault == NO_WEIGHTS ? NULL : t->x[rank]);
        if (status != FRUG_OK && memcmp(before, t->x[rank], t->n * sizeof *before) != 0)
            status = FRUG_ERR_MISMATCH; /* after an error weights are as before */
    }
    frug_reduce_stats stats = {.struct_size = sizeof stats};
    if (g && frug_gossip_stats(g, &stats) == FRUG_OK)
        t->bytes[rank] = stats.bytes_sent;
    frug_gossip_destroy(g);
    test_free(before);
    return status;
}

static task make_task(const char *config, const frug_layout *layout, int size, uint64_t steps) {
    task t = {.config = config, .layout = layout, .n = frug_layout_elements(layout), .steps = steps};
    for (int i = 0; i < size; i++) {
        uint64_t seed = 77 * (uint64_t)i + 5;
        t.x[i] = test_malloc(t.n * sizeof(float));
        for (size_t k = 0; k < t.n; k++)
            t.x[i][k] = next_float(&seed);
    }
    return t;
}

static void run_task(task *t, int size) {
    thread_worker member[THREAD_WORKERS_MAX];
    run_workers(size, run_gossip, t, 20, member);
    assert_workers_ok(t->config, member, size);
}

static void end_task(task *t, int size) {
    for (int i = 0; i < size; i++)
        test_free(t->x[i]);
}

static double *mean_of(const task *t, int size) {
    double *mean = test_calloc(t->n, sizeof *mean);
    for (int i = 0; i < size; i++)
        for (size_t k = 0; k < t->n; k++)
            mean[k] += (double)t->x[i][k] / size;
    return mean;
}

/* Mean squared distance of the ranks from their mean. */
static double distance(const task *t, int size) {
    double *mean = mean_of(t, size), sum = 0;
    for (int i = 0; i < size; i++)
        for (size_t k = 0; k < t->n; k++)
            sum += ((double)t->x[i][k] - mean[k]) * ((double)t->x[i][k] - mean[k]);
    test_free(mean);
    return sum / (double)t->n / size;
}

/* Weights are in [-1, 1); the rounding error of 20 steps is below 1e-6. */
static void mixing_leaves_the_mean_as_it_is(void **state) {
    (void)state;
    static const char *const configs[] = {"density=0.1,value=f32", "segment=tensor,density=0.05,topology=random:4:7",
                                          "value=int8,topology=torus", "density=1,value=qsgd,gamma=0.5"};
    static const int sizes[] = {1, 2, 3, 5, 8};
    frug_layout *z = make_test_layout(4);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            task t = make_task(configs[c], z, sizes[s], 20);
            double *before = mean_of(&t, sizes[s]), was = distance(&t, sizes[s]), most = 0;
            run_task(&t, sizes[s]);
            double *after = mean_of(&t, sizes[s]);
            for (size_t k = 0; k < t.n; k++)
                most = fmax(most, fabs(after[k] - before[k]));
            if (most > 1e-6 || (sizes[s] > 1 && distance(&t, sizes[s]) >= was))
                fail_msg("%s, %d workers: the mean moves by %g, the distance goes from %g to %g", configs[c], sizes[s],
                         most, was, distance(&t, sizes[s]));
            test_free(before);
            test_free(after);
            end_task(&t, sizes[s]);
        }
    frug_layout_destroy(z);
}

/* With everything sent and gamma = 1 a step is x_i = sum_j w_ij x_j, to 1e-6 of weights in [-1, 1). */
static void everything_sent_equals_plain_mixing(void **state) {
    (void)state;
    static const int sizes[] = {2, 3, 5, 8};
    frug_layout *z = make_test_layout(4);
    for (size_t k = 0; k < COUNT(topologies); k++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            char config[96];
            frugi_topology graph = {0};
            int size = sizes[s];
            snprintf(config, sizeof config, "density=1,value=f32,gamma=1,%s", topologies[k]);
            if (make_graph(config, size, &graph) != FRUG_OK)
                continue;
            task t = make_task(config, z, size, 1), old = make_task(config, z, size, 1);
            run_task(&t, size);
            for (int i = 0; i < size; i++)
                for (size_t e = 0; e < t.n; e++) {
                    double sum = 0;
                    for (int j = 0; j < size; j++)
                        sum += frugi_topology_weight(&graph, i, j) * (double)old.x[j][e];
                    if (fabs(sum - (double)t.x[i][e]) > 1e-6)
                        fail_msg("%s, rank %d, element %zu: %g, not %g", config, i, e, (double)t.x[i][e], sum);
                }
            end_task(&t, size);
            end_task(&old, size);
            frugi_topology_destroy(&graph);
        }
    frug_layout_destroy(z);
}

/* Every quarter of the steps divides the distance by at least 2. */
static void ranks_converge_geometrically(void **state) {
    (void)state;
    static const char *const configs[] = {"density=0.1,value=f32", "density=0.1,value=int8,topology=torus",
                                          "segment=tensor,density=0.1,value=bf16,topology=random:3:9"};
    frug_layout *z = NULL;
    OK(frug_layout_flat(4096, &z));
    for (size_t c = 0; c < COUNT(configs); c++) {
        task t = make_task(configs[c], z, 8, 0);
        double before = distance(&t, 8);
        end_task(&t, 8);
        for (uint64_t steps = MAX_STEPS / 4; steps <= MAX_STEPS; steps += MAX_STEPS / 4) {
            t = make_task(configs[c], z, 8, steps);
            run_task(&t, 8);
            double now = distance(&t, 8);
            if (now > before / 2)
                fail_msg("%s: %g after %llu steps, %g before", configs[c], now, (unsigned long long)steps, before);
            before = now;
            end_task(&t, 8);
        }
    }
    frug_layout_destroy(z);
}

static void gossip_is_deterministic_and_averages_when_asked(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(4);
    task a = make_task("average_every=4", z, 5, 11), b = make_task("average_every=4", z, 5, 11);
    run_task(&a, 5);
    run_task(&b, 5);
    for (int i = 0; i < 5; i++)
        assert_same_bits(a.x[i], b.x[i], a.n * sizeof(float));
    assert_memory_not_equal(b.x[0], b.x[1], a.n * sizeof(float));
    task c = make_task("average_every=4", z, 5, 8), d = make_task("average_every=4", z, 5, 8);
    double *mean = mean_of(&d, 5);
    run_task(&c, 5);
    for (int i = 0; i < 5; i++)
        assert_same_bits(c.x[0], c.x[i], a.n * sizeof(float));
    for (size_t k = 0; k < a.n; k++)
        assert_true(fabs(mean[k] - (double)c.x[0][k]) < 1e-6);
    test_free(mean);
    end_task(&a, 5);
    end_task(&b, 5);
    end_task(&c, 5);
    end_task(&d, 5);
    frug_layout_destroy(z);
}

/* If all ranks have the start weights, nothing is sent and no bit changes. */
static void a_common_start_is_not_sent(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(4);
    task t = make_task("frugrad", z, 3, 5), old = make_task("frugrad", z, 3, 5);
    for (int i = 1; i < 3; i++)
        memcpy(t.x[i], t.x[0], t.n * sizeof(float));
    t.start = old.x[0];
    run_task(&t, 3);
    for (int i = 0; i < 3; i++)
        assert_same_bits(t.x[i], old.x[0], t.n * sizeof(float));
    end_task(&t, 3);
    end_task(&old, 3);
    frug_layout_destroy(z);
}

/* A frame for each neighbor, and every fourth step what a ring all-reduce of the weights sends. */
static void averages_are_counted_as_a_ring_sends_them(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(4);
    task without = make_task("feedback=none", z, 5, 8), with = make_task("average_every=4,feedback=none", z, 5, 8);
    run_task(&without, 5);
    run_task(&with, 5);
    uint64_t bytes = with.n * sizeof(float);
    for (int i = 0; i < 5; i++)
        assert_int_equal(with.bytes[i], without.bytes[i] + 2 * 2 * (bytes - bytes / 5));
    end_task(&without, 5);
    end_task(&with, 5);
    frug_layout_destroy(z);
}

/* Gossip has no sum; a reducer refuses it before any rank waits. */
static void reducers_refuse_gossip(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(1);
    frug_config *config = NULL;
    frug_comm *comm = NULL;
    frug_reducer *r = NULL;
    OK(frug_config_create("gsgd", &config));
    OK(frug_comm_self(&comm));
    assert_int_equal(frug_reducer_create(config, z, NULL, comm, &r), FRUG_ERR_CONFIG);
    assert_non_null(strstr(frug_last_error(), "frug_gossip_create()"));
    assert_null(r);
    frug_gossip *g = NULL;
    OK(frug_gossip_create(config, z, NULL, comm, NULL, &g));
    assert_non_null(frug_gossip_compressor(g));
    frug_gossip_destroy(g);
    frug_comm_destroy(comm);
    frug_config_destroy(config);
    frug_layout_destroy(z);
}

/* The worked example of gossip.c: 2 and 6 become 4 and 4. */
static void the_worked_example_holds(void **state) {
    (void)state;
    frug_layout *one = NULL;
    OK(frug_layout_flat(1, &one));
    task t = make_task("density=1,value=f32,gamma=1", one, 2, 1);
    t.x[0][0] = 2;
    t.x[1][0] = 6;
    run_task(&t, 2);
    assert_true(t.x[0][0] == 4 && t.x[1][0] == 4);
    end_task(&t, 2);
    frug_layout_destroy(one);
}

/* A rank sends to its neighbors only: as much in a ring of 8 as in one of 3. */
static void bytes_do_not_grow_with_the_group(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(4);
    task few = make_task("frugrad", z, 3, 4), many = make_task("frugrad", z, 8, 4);
    run_task(&few, 3);
    run_task(&many, 8);
    assert_true(few.bytes[0] > 0 && few.bytes[0] == many.bytes[0]);
    end_task(&few, 3);
    end_task(&many, 8);
    frug_layout_destroy(z);
}

/* ---- failure ---------------------------------------------------------------------------- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* In a ring of 6 an error needs three steps to reach the opposite rank; it must not need a timeout. */
static void an_error_of_one_rank_reaches_all(void **state) {
    (void)state;
    static const struct {
        fault fault;
        frug_status faulty, others;
    } cases[] = {{NO_WEIGHTS, FRUG_ERR_ARG, FRUG_ERR_REMOTE},
                 {OTHER_STEP, FRUG_ERR_REMOTE, FRUG_ERR_REMOTE},
                 {OTHER_START, FRUG_ERR_REMOTE, FRUG_ERR_REMOTE},
                 {OTHER_GAMMA, FRUG_ERR_REMOTE, FRUG_ERR_REMOTE},
                 {STOPPED, FRUG_OK, FRUG_ERR_COMM}};
    static const char *const configs[] = {"frugrad", "frugrad,average_every=2", "frugrad,average_every=3"};
    frug_layout *z = make_test_layout(4);
    for (size_t i = 0; i < COUNT(configs) * COUNT(cases); i++) {
        thread_worker member[6];
        task t = make_task(configs[i / COUNT(cases)], z, 6, 40);
        t.fault = cases[i % COUNT(cases)].fault;
        t.start = cases[i % COUNT(cases)].fault == OTHER_START ? t.x[0] : NULL;
        double start = now();
        run_workers(6, run_gossip, &t, t.fault == STOPPED ? 1.0 : 60, member);
        assert_true(now() - start < 30);
        for (int p = 0; p < 6; p++)
            if (member[p].status != (p == 1 ? cases[i % COUNT(cases)].faulty : cases[i % COUNT(cases)].others))
                fail_msg("%s, case %zu, rank %d: status %d, %s", t.config, i % COUNT(cases), p, (int)member[p].status,
                         member[p].error);
        end_task(&t, 6);
    }
    frug_layout_destroy(z);
}

static void rules_that_scale_entries_up_are_refused(void **state) {
    (void)state;
    static const char *const configs[] = {"rule=random,segment=tensor",
                                          "rule=probabilistic,segment=tensor,feedback=none"};
    frug_layout *z = make_test_layout(4);
    for (size_t i = 0; i < COUNT(configs); i++) {
        thread_worker member[2];
        task t = make_task(configs[i], z, 2, 1);
        run_workers(2, run_gossip, &t, 20, member);
        assert_int_equal(member[0].status, FRUG_ERR_CONFIG);
        assert_int_equal(member[1].status, FRUG_ERR_CONFIG);
        end_task(&t, 2);
    }
    frug_layout_destroy(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixing_matrix_is_symmetric_and_its_rows_sum_to_one),
        cmocka_unit_test(graphs_have_the_configured_degrees),
        cmocka_unit_test(mixing_leaves_the_mean_as_it_is),
        cmocka_unit_test(everything_sent_equals_plain_mixing),
        cmocka_unit_test(ranks_converge_geometrically),
        cmocka_unit_test(gossip_is_deterministic_and_averages_when_asked),
        cmocka_unit_test(averages_are_counted_as_a_ring_sends_them),
        cmocka_unit_test(reducers_refuse_gossip),
        cmocka_unit_test(a_common_start_is_not_sent),
        cmocka_unit_test(the_worked_example_holds),
        cmocka_unit_test(bytes_do_not_grow_with_the_group),
        cmocka_unit_test(an_error_of_one_rank_reaches_all),
        cmocka_unit_test(rules_that_scale_entries_up_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
