/* test_common_support.c - reduce=shared: all ranks send the same indices, drawn by all or selected by a leader. */
#include "reduce/exchange_fixture.h"
#include "reduce/index_gaps.h"

static const int sizes[] = {1, 2, 3, 5, 8};

static void all_workers_get_the_same_bits_and_nothing_is_lost(void **state) {
    (void)state;
    static const char *const configs[] = {
        "feedback=plain,residual=f32",
        "feedback=plain,residual=f32,rule=random,segment=tensor",
        "feedback=plain,residual=f32,segment=tensor,unit=tile:4x4",
        "feedback=plain,residual=f32,rule=threshold:absolute:1.5,segment=tensor,warmup=1",
        "feedback=plain,residual=f32,rule=random,unit=row,segment=tensor,dense_every=3",
        "feedback=plain,residual=f32,segment=all,block=64,density=0.002",
    };
    frug_layout *z = make_test_layout(40);
    for (size_t c = 0; c < COUNT(configs); c++) {
        char text[160];
        snprintf(text, sizeof text, "reduce=shared,value=f32,%s", configs[c]);
        for (size_t s = 0; s < COUNT(sizes); s++)
            fixture_check(text, z, sizes[s], c < 2);
    }
    frug_layout_destroy(z);
}

/* Ranks that are not the leader update their residual as frug_compress() does: with the same gradients on all ranks all
 * residuals are the same. */
static void residuals_are_the_same_with_and_without_being_leader(void **state) {
    (void)state;
    static const char *const configs[] = {"feedback=merged,residual=f32", "feedback=dgc,residual=int8",
                                          "feedback=ef21,residual=bf16,segment=tensor,clip=3",
                                          "feedback=dgc,mask=off,residual=f32,unit=run:8,segment=tensor"};
    frug_layout *z = make_test_layout(40);
    for (size_t c = 0; c < COUNT(configs); c++) {
        char text[160];
        snprintf(text, sizeof text, "reduce=shared,value=f32,%s", configs[c]);
        fixture f = {.config = text, .layout = z};
        for (int i = 0; i < 3; i++)
            for (uint64_t step = 0; step < FIXTURE_STEPS; step++) {
                f.grad[i][step] = make_test_gradient(z, step + 1);
                if (step == 1)
                    f.grad[i][step][3000] = NAN; /* a skipped block in the first compressed tensor */
            }
        fixture_run_ok(&f, 3);
        for (int i = 1; i < 3; i++)
            assert_same_bits(f.residual[0], f.residual[i], f.n * sizeof(float));
        fixture_free(&f, 3);
    }
    frug_layout_destroy(z);
}

static void density_one_is_a_dense_sum(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(40);
    fixture a = {.config = "reduce=dense", .layout = z, .integers = true, .apply = true},
            b = {.config = "reduce=shared,value=f32,density=1", .layout = z, .integers = true, .apply = true};
    fixture_run_ok(&a, 3);
    fixture_run_ok(&b, 3);
    assert_same_bits(a.weights[0], b.weights[0], a.n * sizeof(float));
    fixture_free(&a, 3);
    fixture_free(&b, 3);
    frug_layout_destroy(z);
}

static uint64_t most_bytes_sent(const char *config, const frug_layout *z, int size) {
    uint64_t most = 0;
    fixture f = {.config = config, .layout = z};
    fixture_run_ok(&f, size);
    for (int i = 0; i < size; i++)
        most = f.stats[i].bytes_sent > most ? f.stats[i].bytes_sent : most;
    fixture_free(&f, size);
    return most;
}

/* 2 (P - 1) / P floats per index and step; and, unless drawn, a byte per index to up to log2 P other ranks. */
static void bytes_are_those_of_the_formula(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(40);
    uint64_t n = frug_layout_elements(z);
    uint64_t drawn = most_bytes_sent("reduce=shared,value=f32,vectors=sparse,min_size=0,rule=random,segment=tensor,"
                                     "density=0.125",
                                     z, 8);
    double want = FIXTURE_STEPS * 2.0 * 7 / 8 * 4 * 0.125 * (double)n;
    assert_true((double)drawn > 0.98 * want && (double)drawn < 1.02 * want);
    uint64_t chosen = most_bytes_sent("reduce=shared,value=f32,vectors=sparse,min_size=0,density=0.125", z, 8);
    assert_true((double)chosen > want && (double)chosen < 1.5 * want);
    frug_layout_destroy(z);
}

static void a_damaged_message_is_an_error_on_all_ranks(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(40);
    for (int rank = 1; rank < 5; rank += 3) {
        fixture f = {.config = "reduce=shared,value=f32", .layout = z};
        fixture_check_damage(&f, 5, rank);
    }
    frug_layout_destroy(z);
}

/* 20 000 mutated messages (seed 5) are refused, or decode to ascending indices inside the range. */
static void malformed_indices_are_refused_or_in_order(void **state) {
    (void)state;
    frug_layout *z = make_test_layout(40);
    frug_compressor *c = make_compressor("", z, NULL);
    const frugi_partition *tensors = frugi_compressor_partition(c);
    uint64_t n = frug_layout_elements(z), count = 0, seed = 5;
    uint32_t *index = test_malloc(n * sizeof *index), *decoded = test_malloc(n * sizeof *decoded);
    unsigned char *bytes = test_malloc(frugi_gaps_bound(c, n)), *mutated = test_malloc(frugi_gaps_bound(c, n));
    for (uint64_t i = 0; i < n; i++)
        if (tensors->view[frugi_view_at(tensors, i)].dense || i % 700 == 0)
            index[count++] = (uint32_t)i;
    size_t len = frugi_gaps_encode(c, 0, n, index, count, bytes);
    assert_true(len <= frugi_gaps_bound(c, n));
    assert_true(frugi_gaps_decode(c, 0, n, bytes, len, decoded, count));
    assert_same_bits(index, decoded, count * sizeof *index);
    assert_false(frugi_gaps_decode(c, 0, n, bytes, len, decoded, count + 1));
    assert_false(frugi_gaps_decode(c, 0, n, bytes, len - 1, decoded, count));
    for (int i = 0; i < 20000; i++) {
        memcpy(mutated, bytes, len);
        for (uint64_t k = next_random(&seed) % 3 + 1; k; k--)
            mutated[next_random(&seed) % len] = (unsigned char)next_random(&seed);
        if (frugi_gaps_decode(c, 0, n, mutated, len, decoded, count))
            for (uint64_t k = 0; k < count; k++)
                assert_true(decoded[k] < n && (k == 0 || decoded[k] > decoded[k - 1]));
    }
    test_free(index);
    test_free(decoded);
    test_free(bytes);
    test_free(mutated);
    frug_compressor_destroy(c);
    frug_layout_destroy(z);
}

static void unsupported_configs_are_refused(void **state) {
    (void)state;
    frug_config *config = NULL;
    assert_int_equal(frug_config_create("reduce=shared", &config), FRUG_ERR_CONFIG);
    assert_non_null(strstr(frug_last_error(), "needs value=f32, not value=bf16"));
    assert_int_equal(frug_config_create("reduce=shared,value=f32,rule=learned,segment=tensor", &config),
                     FRUG_ERR_CONFIG);
    assert_non_null(strstr(frug_last_error(), "rule=learned does not support"));
}

static void the_worked_example_holds(void **state) {
    (void)state;
    float grad[3][64] = {{5, 0, 0, 1}, {1, 0, 7, 0}, {2}}, result[3][64] = {{0}};
    const float want[64] = {8};
    worked_example l = {.config = "reduce=shared,block=64,density=0.015625,value=f32,min_size=0", .n = 64};
    l.grad = grad[0];
    l.result = result[0];
    worked_example_check(&l, 3, want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_workers_get_the_same_bits_and_nothing_is_lost),
        cmocka_unit_test(residuals_are_the_same_with_and_without_being_leader),
        cmocka_unit_test(density_one_is_a_dense_sum),
        cmocka_unit_test(bytes_are_those_of_the_formula),
        cmocka_unit_test(a_damaged_message_is_an_error_on_all_ranks),
        cmocka_unit_test(malformed_indices_are_refused_or_in_order),
        cmocka_unit_test(unsupported_configs_are_refused),
        cmocka_unit_test(the_worked_example_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
