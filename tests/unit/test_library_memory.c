/* test_library_memory.c - the memory that the library reports: it is the same as before after objects are destroyed,
 * and a residual counts in full. */
#include "frugrad/experimental.h"
#include "support/thread_group.h"
#include "support/test_layouts.h"

static uint64_t bytes_in_use(void) {
    uint64_t now = 0;
    frug_memory(&now, NULL);
    return now;
}

static void a_residual_is_counted_and_freed(void **state) {
    (void)state;
    const uint64_t n = 1u << 20;
    static const struct {
        const char *config;
        double bytes; /* per parameter, at least */
    } cases[] = {{"residual=f32", 4},
                 {"residual=bf16", 2},
                 {"residual=int8", 1},
                 {"residual=int4", 0.5},
                 {"feedback=dgc,residual=f32", 8},
                 {"feedback=none", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t before = bytes_in_use(), peak = 0;
        frug_compressor *c = NULL;
        frug_config *config = NULL;
        frug_layout *layout = NULL;
        frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
        options.threads = 1;
        OK(frug_config_create(cases[i].config, &config));
        OK(frug_layout_flat(n, &layout));
        OK(frug_compressor_create(config, layout, &options, &c));
        uint64_t grown = bytes_in_use() - before;
        assert_true((double)grown >= cases[i].bytes * (double)n);
        assert_true((double)grown < cases[i].bytes * (double)n * 1.02 + 600e3); /* and scratch */
        frug_memory(NULL, &peak);
        assert_true(peak >= before + grown);
        frug_compressor_destroy(c);
        frug_layout_destroy(layout);
        frug_config_destroy(config);
        assert_int_equal(bytes_in_use(), before);
    }
}

/* A decoder needs no memory in proportion to the layout's elements. */
static void a_decoder_is_small(void **state) {
    (void)state;
    frug_layout *layout = NULL;
    frug_decoder *d = NULL;
    OK(frug_layout_flat(1u << 30, &layout));
    uint64_t before = bytes_in_use();
    OK(frug_decoder_create(layout, 1, &d));
    assert_true(bytes_in_use() - before < 80e3);
    frug_decoder_destroy(d);
    assert_int_equal(bytes_in_use(), before);
    frug_layout_destroy(layout);
}

static void failed_calls_leak_nothing(void **state) {
    (void)state;
    uint64_t before = bytes_in_use();
    frug_config *config = NULL;
    frug_layout *z = make_test_layout(40), *other = NULL;
    assert_int_equal(frug_config_create("density=nought", &config), FRUG_ERR_CONFIG);
    OK(frug_layout_flat(100, &other));
    frug_layout_destroy(other);
    frug_layout_destroy(z);
    assert_int_equal(bytes_in_use(), before);
}

typedef struct task {
    const char *config;
    const frug_layout *layout;
    float *grad[THREAD_WORKERS_MAX], *weights[THREAD_WORKERS_MAX];
} task;

static frug_status reduce(frug_comm *comm, void *shared) {
    task *t = shared;
    int rank = frug_comm_rank(comm);
    frug_reducer *r = NULL;
    size_t n = frug_layout_elements(t->layout);
    frug_status status = create_worker_reducer(t->config, t->layout, 0, comm, &r);
    frug_bucket b = FRUG_BUCKET_INIT;
    b.range.count = n;
    b.grad = t->grad[rank];
    b.weights = t->weights[rank];
    for (b.step = 0; b.step < 2 && status == FRUG_OK; b.step++)
        status = frug_reducer_submit(r, &b);
    if (status == FRUG_OK)
        status = frug_reducer_finish(r);
    if (status == FRUG_OK)
        status = frug_comm_allgather(comm, NULL, 0, NULL);
    frug_reducer_destroy(r);
    return status;
}

static frug_status gossip(frug_comm *comm, void *shared) {
    task *t = shared;
    int rank = frug_comm_rank(comm);
    frug_config *config = NULL;
    frug_gossip *g = NULL;
    frug_status status = frug_config_create(t->config, &config);
    if (status == FRUG_OK)
        status = frug_gossip_create(config, t->layout, NULL, comm, NULL, &g);
    for (uint64_t step = 0; step < 2 && status == FRUG_OK; step++)
        status = frug_gossip_step(g, step, t->weights[rank]);
    frug_gossip_destroy(g);
    frug_config_destroy(config);
    return status;
}

static void groups_leak_nothing(void **state) {
    (void)state;
    static const struct {
        const char *config;
        worker_fn *work;
    } cases[] = {
        {"reduce=gather", reduce},
        {"reduce=dense", reduce},
        {"reduce=split,down=2", reduce},
        {"reduce=split,down=union", reduce},
        {"reduce=tree", reduce},
        {"reduce=shared,value=f32", reduce},
        {"reduce=nodes,node=2", reduce},
        {"reduce=auto", reduce},
        {"segment=tensor,rule=learned,unit=row", reduce},
        {"segment=tensor,rule=probabilistic,feedback=none", reduce},
        {"rule=hybrid,segment=all,frequency=on", reduce},
        {"reduce=gossip,feedback=none,average_every=2", gossip},
    };
    frug_layout *z = make_test_layout(300);
    task t = {.layout = z};
    for (int i = 0; i < 4; i++) {
        t.grad[i] = make_test_gradient(z, (uint64_t)i + 1);
        t.weights[i] = bell_array(frug_layout_elements(z), 7);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        thread_worker member[THREAD_WORKERS_MAX];
        uint64_t before = bytes_in_use();
        t.config = cases[i].config;
        run_workers(4, cases[i].work, &t, 20, member);
        for (int k = 0; k < 4; k++)
            if (member[k].status != FRUG_OK)
                fail_msg("%s, rank %d: %s", t.config, k, member[k].error);
        if (bytes_in_use() != before)
            fail_msg("%s: %lld bytes are left", t.config, (long long)(bytes_in_use() - before));
    }
    for (int i = 0; i < 4; i++) {
        test_free(t.grad[i]);
        test_free(t.weights[i]);
    }
    frug_layout_destroy(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_residual_is_counted_and_freed),
        cmocka_unit_test(a_decoder_is_small),
        cmocka_unit_test(failed_calls_leak_nothing),
        cmocka_unit_test(groups_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
