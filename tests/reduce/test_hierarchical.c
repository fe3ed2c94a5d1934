/* test_hierarchical.c - reduce=nodes: dense inside a node, sparse between nodes. */
#include "comm/subgroup.h"
#include "reduce/exchange_fixture.h"

static const struct { int size, node; } groups[] = {{1, 1}, {2, 1}, {2, 2}, {3, 3}, {4, 2}, {6, 2}, {6, 3}, {8, 4}};

static void all_workers_get_the_same_bits_and_nothing_is_lost(void **state) {
    (void)state;
    static const char *const configs[] = {
        "feedback=plain,residual=f32",
        "feedback=plain,residual=f32,segment=tensor",
        "feedback=plain,residual=f32,unit=head,segment=tensor",
        "feedback=plain,residual=f32,segment=all,value=int8,warmup=1",
    };
    frug_layout *z = make_test_layout(40);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (size_t s = 0; s < COUNT(groups); s++) {
            char text[128];
            snprintf(text, sizeof text, "reduce=nodes,node=%d,%s", groups[s].node, configs[c]);
            fixture_check(text, z, groups[s].size, c < 2);
        }
    frug_layout_destroy(z);
}

/* One rank per node: the same frames as with gather, added in the same order. */
static void one_rank_per_node_equals_gather(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(40);
    fixture a = {.config = "reduce=gather,feedback=plain", .layout = z, .apply = true},
            b = {.config = "reduce=nodes,node=1,feedback=plain", .layout = z, .apply = true};
    fixture_run_ok(&a, 3);
    fixture_run_ok(&b, 3);
    assert_same_bits(a.weights[0], b.weights[0], a.n * sizeof(float));
    assert_int_equal(fixture_bytes(&a, 3), fixture_bytes(&b, 3));
    fixture_free(&a, 3);
    fixture_free(&b, 3);
    frug_layout_destroy(z);
}

/* Inside a node of 4 ranks 2 x 3 floats per element; between 2 nodes about a frame of the range in each direction. */
static void bytes_are_those_of_the_formula(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(40);
    fixture one = {.config = "reduce=nodes,node=4", .layout = z}, two = one,
            pair = {.config = "reduce=gather", .layout = z};
    uint64_t inside = FIXTURE_STEPS * 2 * 3 * sizeof(float) * frug_layout_elements(z);
    fixture_run_ok(&one, 4);
    assert_int_equal(fixture_bytes(&one, 4), inside);
    fixture_run_ok(&two, 8);
    fixture_run_ok(&pair, 2);
    uint64_t across = fixture_bytes(&two, 8) - 2 * inside, frames = fixture_bytes(&pair, 2);
    assert_true(across >= frames && across < frames + FIXTURE_STEPS * 2 * 3 * 200); /* 3 more headers and a section */
    fixture_free(&one, 4);
    fixture_free(&two, 8);
    fixture_free(&pair, 2);
    frug_layout_destroy(z);
}

static void groups_that_do_not_fill_nodes_are_refused(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(40);
    frug_config *config = NULL;
    fixture f = {.config = "reduce=nodes,node=2", .layout = z};
    fixture_run(&f, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(f.member[i].status, FRUG_ERR_ARG);
        assert_non_null(strstr(f.member[i].error, "3 workers are not a multiple of node=2"));
    }
    fixture_free(&f, 3);
    assert_int_equal(frug_config_create("reduce=nodes", &config), FRUG_ERR_CONFIG);
    frug_layout_destroy(z);
}

static void a_damaged_message_is_an_error_on_all_ranks(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(40);
    fixture f = {.config = "reduce=nodes,node=2", .layout = z};
    fixture_check_damage(&f, 4, 3);
    frug_layout_destroy(z);
}

/* Subgroups of the even and of the odd ranks: an all-gather among the even ones, and a timeout that names the rank in
 * the parent group. */
static frug_status run_subgroup(frug_comm *comm, void *shared) {
    (void)shared;
    int rank = frug_comm_rank(comm), all[3] = {-1, -1, -1}, size = rank % 2 ? 2 : 3;
    frug_message messages[8];
    frug_comm *subgroup = NULL;
    frug_status status = frugi_subgroup_create(comm, rank % 2, 2, size, 64, &subgroup);
    if (status == FRUG_OK && rank != 3)
        status = frugi_comm_allgather(subgroup, &rank, sizeof rank, all, messages);
    for (int i = 0; status == FRUG_OK && rank % 2 == 0 && i < 3; i++)
        status = all[i] == 2 * i ? FRUG_OK : FRUG_ERR_ARG;
    frug_comm_destroy(subgroup);
    return status;
}

static void a_subgroup_is_a_group(void **state) {
    (void)state;
    thread_worker member[5];
    run_workers(5, run_subgroup, NULL, 0.3, member);
    for (int i = 0; i < 5; i++)
        assert_int_equal(member[i].status, i == 1 ? FRUG_ERR_COMM : FRUG_OK);
    assert_non_null(strstr(member[1].error, "rank 1 received nothing from rank 3"));
}

/* The numbers of the example are at the begin of blocks of 64; the zeros behind them are never selected. */
static void the_worked_example_holds(void **state) {
    (void)state;
    float grad[4][128] = {{1}, {3, 1}, {0, 5}, {0, 1}}, result[4][128] = {{0}};
    float want[128] = {4, 6};
    const float second[4][2] = {{0, 2}, {1, 2}, {1, 0}, {1, 0}};
    for (int i = 0; i < 4; i++)
        memcpy(&grad[i][64], second[i], sizeof second[i]);
    want[64] = 2;
    want[65] = 4;
    worked_example l = {.config = "reduce=nodes,node=2,block=64,density=0.015625,value=f32,min_size=0", .n = 128};
    l.grad = grad[0];
    l.result = result[0];
    worked_example_check(&l, 4, want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_workers_get_the_same_bits_and_nothing_is_lost),
        cmocka_unit_test(one_rank_per_node_equals_gather),
        cmocka_unit_test(bytes_are_those_of_the_formula),
        cmocka_unit_test(groups_that_do_not_fill_nodes_are_refused),
        cmocka_unit_test(a_damaged_message_is_an_error_on_all_ranks),
        cmocka_unit_test(a_subgroup_is_a_group),
        cmocka_unit_test(the_worked_example_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
