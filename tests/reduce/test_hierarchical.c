/* test_hierarchical.c - dense inside a machine, sparse between machines. */
#include "comm/subgroup.h"
#include "reduce/exchange_fixture.h"

static const struct { int size, node; } crews[] = {{1, 1}, {2, 1}, {2, 2}, {3, 3}, {4, 2}, {6, 2}, {6, 3}, {8, 4}};

static void all_workers_get_the_same_bits_and_nothing_is_lost(void **state) {
    (void)state;
    static const char *const configs[] = {
        "feedback=plain,residual=f32",
        "feedback=plain,residual=f32,segment=tensor",
        "feedback=plain,residual=f32,unit=head,segment=tensor",
        "feedback=plain,residual=f32,segment=all,value=int8,warmup=1",
    };
    frug_layout *z = make_zoo(40);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (size_t s = 0; s < COUNT(crews); s++) {
            char text[128];
            snprintf(text, sizeof text, "reduce=nodes,node=%d,%s", crews[s].node, configs[c]);
            outing o = {.config = text, .layout = z, .two_ranges = c < 2};
            outing_go(&o, crews[s].size);
            outing_check_mass(&o, crews[s].size);
            outing_bytes(&o, crews[s].size);
            outing_end(&o, crews[s].size);
        }
    frug_layout_destroy(z);
}

/* One worker per machine: the same frames as gather's, added in the same order. */
static void machines_of_one_are_gather(void **state) {
    (void)state;
    frug_layout *z = make_zoo(40);
    outing a = {.config = "reduce=gather,feedback=plain", .layout = z, .apply = true},
           b = {.config = "reduce=nodes,node=1,feedback=plain", .layout = z, .apply = true};
    outing_go(&a, 3);
    outing_go(&b, 3);
    assert_same_bits(a.weights[0], b.weights[0], a.n * sizeof(float));
    assert_int_equal(outing_bytes(&a, 3), outing_bytes(&b, 3));
    outing_end(&a, 3);
    outing_end(&b, 3);
    frug_layout_destroy(z);
}

/* Inside machines 2 x 4 bytes an element once round a machine of 4; between 2 machines, frames of about a range each.
 */
static void bytes_are_those_of_the_formula(void **state) {
    (void)state;
    frug_layout *z = make_zoo(40);
    outing one = {.config = "reduce=nodes,node=4", .layout = z}, two = one,
           pair = {.config = "reduce=gather", .layout = z};
    uint64_t inside = OUTING_STEPS * 2 * 3 * sizeof(float) * frug_layout_elements(z);
    outing_go(&one, 4);
    assert_int_equal(outing_bytes(&one, 4), inside);
    outing_go(&two, 8);
    outing_go(&pair, 2);
    uint64_t across = outing_bytes(&two, 8) - 2 * inside, frames = outing_bytes(&pair, 2);
    assert_true(across >= frames && across < frames + OUTING_STEPS * 2 * 3 * 200); /* 3 more headers and a section */
    outing_end(&one, 4);
    outing_end(&two, 8);
    outing_end(&pair, 2);
    frug_layout_destroy(z);
}

static void crews_that_do_not_fill_machines_are_refused(void **state) {
    (void)state;
    frug_layout *z = make_zoo(40);
    frug_config *config = NULL;
    outing o = {.config = "reduce=nodes,node=2", .layout = z};
    outing_try(&o, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(o.member[i].status, FRUG_ERR_ARG);
        assert_non_null(strstr(o.member[i].error, "3 workers are not a multiple of node=2"));
    }
    outing_end(&o, 3);
    assert_int_equal(frug_config_create("reduce=nodes", &config), FRUG_ERR_CONFIG);
    frug_layout_destroy(z);
}

static void a_damaged_message_is_an_error_of_all(void **state) {
    (void)state;
    frug_layout *z = make_zoo(40);
    outing o = {.config = "reduce=nodes,node=2", .layout = z};
    outing_damaged(&o, 4, 3);
    frug_layout_destroy(z);
}

/* Every other worker of a group is a group: who hears whom, and by which name a silent one is called. */
static frug_status part_work(frug_comm *comm, void *shared) {
    (void)shared;
    int rank = frug_comm_rank(comm), all[3] = {-1, -1, -1}, size = rank % 2 ? 2 : 3;
    frug_message messages[8];
    frug_comm *part = NULL;
    frug_status status = frugi_subgroup_create(comm, rank % 2, 2, size, 64, &part);
    if (status == FRUG_OK && rank != 3)
        status = frugi_comm_allgather(part, &rank, sizeof rank, all, messages);
    for (int i = 0; status == FRUG_OK && rank % 2 == 0 && i < 3; i++)
        status = all[i] == 2 * i ? FRUG_OK : FRUG_ERR_ARG;
    frug_comm_destroy(part);
    return status;
}

static void a_part_of_a_group_is_a_group(void **state) {
    (void)state;
    crew_member member[5];
    crew(5, part_work, NULL, 0.3, member);
    for (int i = 0; i < 5; i++)
        assert_int_equal(member[i].status, i == 1 ? FRUG_ERR_COMM : FRUG_OK);
    assert_non_null(strstr(member[1].error, "rank 1 received nothing from rank 3"));
}

/* The numbers of the source stand at the head of blocks of 64; the zeros behind them lose every competition. */
static void the_example_in_the_source_is_right(void **state) {
    (void)state;
    float grad[4][128] = {{1}, {3, 1}, {0, 5}, {0, 1}}, got[4][128] = {{0}};
    float want[128] = {4, 6};
    const float second[4][2] = {{0, 2}, {1, 2}, {1, 0}, {1, 0}};
    for (int i = 0; i < 4; i++)
        memcpy(&grad[i][64], second[i], sizeof second[i]);
    want[64] = 2;
    want[65] = 4;
    lesson l = {.config = "reduce=nodes,node=2,block=64,density=0.015625,value=f32,min_size=0", .n = 128};
    l.grad = grad[0];
    l.got = got[0];
    lesson_check(&l, 4, want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_workers_get_the_same_bits_and_nothing_is_lost),
        cmocka_unit_test(machines_of_one_are_gather),
        cmocka_unit_test(bytes_are_those_of_the_formula),
        cmocka_unit_test(crews_that_do_not_fill_machines_are_refused),
        cmocka_unit_test(a_damaged_message_is_an_error_of_all),
        cmocka_unit_test(a_part_of_a_group_is_a_group),
        cmocka_unit_test(the_example_in_the_source_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
