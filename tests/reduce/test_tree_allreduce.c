/* test_tree_allreduce.c - recursive doubling: the same bits on all ranks, nothing lost, and the bytes sent. */
#include "reduce/exchange_fixture.h"

static const int sizes[] = {1, 2, 3, 5, 8};

static void all_workers_get_the_same_bits_and_nothing_is_lost(void **state) {
    (void)state;
    static const char *const configs[] = {
        "reduce=tree,feedback=plain,residual=f32",
        "reduce=tree,feedback=plain,residual=f32,segment=tensor",
        "reduce=tree,feedback=plain,residual=f32,density=0.5,value=int8",
    };
    frug_layout *z = make_test_layout(40);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (size_t s = 0; s < COUNT(sizes); s++)
            fixture_check(configs[c], z, sizes[s], c == 0);
    frug_layout_destroy(z);
}

/* Integers are added without rounding, so the order does not matter. */
static void the_sum_equals_that_of_gather(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(40);
    for (size_t s = 0; s < COUNT(sizes); s++)
        for (int apply = 0; apply < 2; apply++) {
            fixture a = {.config = "reduce=gather,feedback=plain,residual=f32,value=f32", .layout = z},
                    b = {.config = "reduce=tree,feedback=plain,residual=f32,value=f32", .layout = z};
            a.integers = b.integers = true;
            a.apply = b.apply = apply;
            fixture_run_ok(&a, sizes[s]);
            fixture_run_ok(&b, sizes[s]);
            for (int i = 0; i < sizes[s]; i++) {
                assert_same_bits(a.weights[i], b.weights[i], a.n * sizeof(float));
                assert_same_bits(a.residual[i], b.residual[i], a.n * sizeof(float));
            }
            fixture_free(&a, sizes[s]);
            fixture_free(&b, sizes[s]);
        }
    frug_layout_destroy(z);
}

static uint64_t bytes_of(const char *config, const frug_layout *z, int size) {
    fixture f = {.config = config, .layout = z};
    fixture_run_ok(&f, size);
    uint64_t bytes = fixture_bytes(&f, size);
    fixture_free(&f, size);
    return bytes;
}

static void bytes_are_those_of_the_formula(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(40);
    uint64_t n = frug_layout_elements(z), raw = FIXTURE_STEPS * n * sizeof(float);
    /* Two ranks exchange their frames, as with gather. */
    assert_int_equal(bytes_of("reduce=tree", z, 2), bytes_of("reduce=gather", z, 2));
    /* Dense frames are longer than raw floats: 3 rounds of 8 ranks; 2 rounds of 4, and one message each way for rank 4.
     */
    assert_int_equal(bytes_of("reduce=tree,density=1,value=f32", z, 8), 3 * 8 * raw);
    assert_int_equal(bytes_of("reduce=tree,density=1,value=f32", z, 5), (2 * 4 + 2) * raw);
    /* Supports overlap: less than gather, because sums of two are not twice as long. */
    uint64_t tree = bytes_of("reduce=tree,density=0.25,value=f32", z, 8),
             gather = bytes_of("reduce=gather,density=0.25,value=f32", z, 8);
    assert_true(tree < gather && tree > gather / 4);
    frug_layout_destroy(z);
}

/* 3e38 + 3e38 is infinite, which no frame can encode; all ranks still get the same bits. */
static void a_sum_that_overflows_is_infinite_on_all_ranks(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(40);
    fixture f = {.config = "reduce=tree,value=f32,feedback=none", .layout = z};
    fixture_run(&f, 5);
    for (int i = 0; i < 5; i++) {
        f.grad[i][0][7] = 3e38f;
        test_free(f.weights[i]);
        test_free(f.residual[i]);
    }
    fixture_run_ok(&f, 5);
    assert_true(isinf(f.weights[0][7]));
    fixture_free(&f, 5);
    frug_layout_destroy(z);
}

static void a_damaged_message_is_an_error_on_all_ranks(void **state) {
    (void)state;
    static const char *const configs[] = {"reduce=tree", "reduce=tree,density=1,value=f32"};
    frug_layout *z = make_test_layout(40);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (int rank = 1; rank < 5; rank += 3) {
            fixture f = {.config = configs[c], .layout = z};
            fixture_check_damage(&f, 5, rank);
        }
    frug_layout_destroy(z);
}

static void the_worked_example_holds(void **state) {
    (void)state;
    float grad[3][64] = {{5}, {0, 0, 7}, {1}}, result[3][64] = {{0}};
    const float want[64] = {6, 0, 7, 0};
    worked_example l = {.config = "reduce=tree,block=64,density=0.015625,value=f32,min_size=0", .n = 64};
    l.grad = grad[0];
    l.result = result[0];
    worked_example_check(&l, 3, want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_workers_get_the_same_bits_and_nothing_is_lost),
        cmocka_unit_test(the_sum_equals_that_of_gather),
        cmocka_unit_test(bytes_are_those_of_the_formula),
        cmocka_unit_test(a_sum_that_overflows_is_infinite_on_all_ranks),
        cmocka_unit_test(a_damaged_message_is_an_error_on_all_ranks),
        cmocka_unit_test(the_worked_example_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
