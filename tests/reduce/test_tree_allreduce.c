/* test_tree_allreduce.c - sums of two, four, eight workers: the same bits everywhere, nothing lost, and how many bytes.
 */
#include "reduce/exchange_fixture.h"

static const int sizes[] = {1, 2, 3, 5, 8};

static void all_workers_get_the_same_bits_and_nothing_is_lost(void **state) {
    (void)state;
    static const char *const configs[] = {
        "reduce=tree,feedback=plain,residual=f32",
        "reduce=tree,feedback=plain,residual=f32,segment=tensor",
        "reduce=tree,feedback=plain,residual=f32,density=0.5,value=int8",
    };
    frug_layout *z = make_zoo(40);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            outing o = {.config = configs[c], .layout = z, .two_ranges = c == 0};
            outing_go(&o, sizes[s]);
            outing_check_mass(&o, sizes[s]);
            outing_bytes(&o, sizes[s]);
            outing_end(&o, sizes[s]);
        }
    frug_layout_destroy(z);
}

/* Whole numbers are added without rounding, so the order does not show. */
static void the_sum_is_that_of_gather(void **state) {
    (void)state;
    frug_layout *z = make_zoo(40);
    for (size_t s = 0; s < COUNT(sizes); s++)
        for (int apply = 0; apply < 2; apply++) {
            outing a = {.config = "reduce=gather,feedback=plain,residual=f32,value=f32", .layout = z},
                   b = {.config = "reduce=tree,feedback=plain,residual=f32,value=f32", .layout = z};
            a.whole = b.whole = true;
            a.apply = b.apply = apply;
            outing_go(&a, sizes[s]);
            outing_go(&b, sizes[s]);
            for (int i = 0; i < sizes[s]; i++) {
                assert_same_bits(a.weights[i], b.weights[i], a.n * sizeof(float));
                assert_same_bits(a.left[i], b.left[i], a.n * sizeof(float));
            }
            outing_end(&a, sizes[s]);
            outing_end(&b, sizes[s]);
        }
    frug_layout_destroy(z);
}

static uint64_t bytes_of(const char *config, const frug_layout *z, int size) {
    outing o = {.config = config, .layout = z};
    outing_go(&o, size);
    uint64_t bytes = outing_bytes(&o, size);
    outing_end(&o, size);
    return bytes;
}

static void bytes_are_those_of_the_formula(void **state) {
    (void)state;
    frug_layout *z = make_zoo(40);
    uint64_t n = frug_layout_elements(z), raw = OUTING_STEPS * n * sizeof(float);
    /* Two workers swap their frames, as with gather. */
    assert_int_equal(bytes_of("reduce=tree", z, 2), bytes_of("reduce=gather", z, 2));
    /* Where everything is sent a frame is longer than the floats: 3 rounds of 8 workers; 2 of 4, and 1 there and back.
     */
    assert_int_equal(bytes_of("reduce=tree,density=1,value=f32", z, 8), 3 * 8 * raw);
    assert_int_equal(bytes_of("reduce=tree,density=1,value=f32", z, 5), (2 * 4 + 2) * raw);
    /* Sparse ones overlap: less than gather's, because sums of two are not twice as long. */
    uint64_t tree = bytes_of("reduce=tree,density=0.25,value=f32", z, 8),
             gather = bytes_of("reduce=gather,density=0.25,value=f32", z, 8);
    assert_true(tree < gather && tree > gather / 4);
    frug_layout_destroy(z);
}

/* 3e38 + 3e38 is no float; no frame can say so, and all workers still get the same. */
static void a_sum_beyond_the_largest_float_is_infinite_everywhere(void **state) {
    (void)state;
    frug_layout *z = make_zoo(40);
    outing o = {.config = "reduce=tree,value=f32,feedback=none", .layout = z};
    outing_try(&o, 5);
    for (int i = 0; i < 5; i++) {
        o.grad[i][0][7] = 3e38f;
        test_free(o.weights[i]);
        test_free(o.left[i]);
    }
    outing_go(&o, 5);
    assert_true(isinf(o.weights[0][7]));
    outing_end(&o, 5);
    frug_layout_destroy(z);
}

static void a_damaged_message_is_an_error_of_all(void **state) {
    (void)state;
    static const char *const configs[] = {"reduce=tree", "reduce=tree,density=1,value=f32"};
    frug_layout *z = make_zoo(40);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (int rank = 1; rank < 5; rank += 3) {
            outing o = {.config = configs[c], .layout = z};
            outing_damaged(&o, 5, rank);
        }
    frug_layout_destroy(z);
}

static void the_example_in_the_source_is_right(void **state) {
    (void)state;
    float grad[3][64] = {{5}, {0, 0, 7}, {1}}, got[3][64] = {{0}};
    const float want[64] = {6, 0, 7, 0};
    lesson l = {.config = "reduce=tree,block=64,density=0.015625,value=f32,min_size=0", .n = 64};
    l.grad = grad[0];
    l.got = got[0];
    lesson_check(&l, 3, want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_workers_get_the_same_bits_and_nothing_is_lost),
        cmocka_unit_test(the_sum_is_that_of_gather),
        cmocka_unit_test(bytes_are_those_of_the_formula),
        cmocka_unit_test(a_sum_beyond_the_largest_float_is_infinite_everywhere),
        cmocka_unit_test(a_damaged_message_is_an_error_of_all),
        cmocka_unit_test(the_example_in_the_source_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
