/* test_common_support.c - everyone sends at the same places: drawn by all, or chosen by one worker after the other. */
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
    frug_layout *z = make_zoo(40);
    for (size_t c = 0; c < COUNT(configs); c++)
        for (size_t s = 0; s < COUNT(sizes); s++) {
            char text[160];
            snprintf(text, sizeof text, "reduce=shared,value=f32,%s", configs[c]);
            outing o = {.config = text, .layout = z, .two_ranges = c < 2};
            outing_go(&o, sizes[s]);
            outing_check_mass(&o, sizes[s]);
            outing_bytes(&o, sizes[s]);
            outing_end(&o, sizes[s]);
        }
    frug_layout_destroy(z);
}

/* A follower keeps what frug_compress() keeps: with twins as workers all accumulate alike, so all have the same left.
 */
static void a_follower_keeps_what_a_chooser_keeps(void **state) {
    (void)state;
    static const char *const configs[] = {"feedback=merged,residual=f32", "feedback=dgc,residual=int8",
                                          "feedback=ef21,residual=bf16,segment=tensor,clip=3",
                                          "feedback=dgc,mask=off,residual=f32,unit=run:8,segment=tensor"};
    frug_layout *z = make_zoo(40);
    for (size_t c = 0; c < COUNT(configs); c++) {
        char text[160];
        snprintf(text, sizeof text, "reduce=shared,value=f32,%s", configs[c]);
        outing o = {.config = text, .layout = z};
        for (int i = 0; i < 3; i++)
            for (uint64_t step = 0; step < OUTING_STEPS; step++) {
                o.grad[i][step] = zoo_gradient(z, step + 1);
                if (step == 1)
                    o.grad[i][step][3000] = NAN; /* a block held back, in the first compressed tensor */
            }
        outing_go(&o, 3);
        for (int i = 1; i < 3; i++)
            assert_same_bits(o.left[0], o.left[i], o.n * sizeof(float));
        outing_end(&o, 3);
    }
    frug_layout_destroy(z);
}

/* Where everything leaves it is the sum of everything. */
static void with_density_one_it_is_a_dense_sum(void **state) {
    (void)state;
    frug_layout *z = make_zoo(40);
    outing a = {.config = "reduce=dense", .layout = z, .whole = true, .apply = true},
           b = {.config = "reduce=shared,value=f32,density=1", .layout = z, .whole = true, .apply = true};
    outing_go(&a, 3);
    outing_go(&b, 3);
    assert_same_bits(a.weights[0], b.weights[0], a.n * sizeof(float));
    outing_end(&a, 3);
    outing_end(&b, 3);
    frug_layout_destroy(z);
}

static uint64_t most_bytes_sent(const char *config, const frug_layout *z, int size) {
    uint64_t most = 0;
    outing o = {.config = config, .layout = z};
    outing_go(&o, size);
    for (int i = 0; i < size; i++)
        most = o.stats[i].bytes_sent > most ? o.stats[i].bytes_sent : most;
    outing_end(&o, size);
    return most;
}

/* 2 (P - 1) / P floats a place and step; and, unless drawn, a byte for its place to up to log2 P others. */
static void bytes_are_those_of_the_formula(void **state) {
    (void)state;
    frug_layout *z = make_zoo(40);
    uint64_t n = frug_layout_elements(z);
    uint64_t drawn = most_bytes_sent("reduce=shared,value=f32,vectors=sparse,min_size=0,rule=random,segment=tensor,"
                                     "density=0.125",
                                     z, 8);
    double want = OUTING_STEPS * 2.0 * 7 / 8 * 4 * 0.125 * (double)n;
    assert_true((double)drawn > 0.98 * want && (double)drawn < 1.02 * want);
    uint64_t chosen = most_bytes_sent("reduce=shared,value=f32,vectors=sparse,min_size=0,density=0.125", z, 8);
    assert_true((double)chosen > want && (double)chosen < 1.5 * want);
    frug_layout_destroy(z);
}

static void a_damaged_message_is_an_error_of_all(void **state) {
    (void)state;
    frug_layout *z = make_zoo(40);
    for (int rank = 1; rank < 5; rank += 3) {
        outing o = {.config = "reduce=shared,value=f32", .layout = z};
        outing_damaged(&o, 5, rank);
    }
    frug_layout_destroy(z);
}

/* 20 000 mutilated messages (seed 5): read within bounds or refused, never a place outside or out of order. */
static void hostile_places_are_refused_or_in_order(void **state) {
    (void)state;
    frug_layout *z = make_zoo(40);
    frug_compressor *c = make_compressor("", z, NULL);
    uint64_t n = frug_layout_elements(z), kept = 0, seed = 5;
    uint32_t *place = test_malloc(n * sizeof *place), *back = test_malloc(n * sizeof *back);
    unsigned char *bytes = test_malloc(frugi_gaps_bound(c, n)), *bad = test_malloc(frugi_gaps_bound(c, n));
    for (uint64_t i = 0; i < n; i++)
        if (c->piece[frugi_piece_at(c, i)].dense || i % 700 == 0)
            place[kept++] = (uint32_t)i;
    size_t len = frugi_gaps_encode(c, 0, n, place, kept, bytes);
    assert_true(len <= frugi_gaps_bound(c, n));
    assert_true(frugi_gaps_decode(c, 0, n, bytes, len, back, kept));
    assert_same_bits(place, back, kept * sizeof *place);
    assert_false(frugi_gaps_decode(c, 0, n, bytes, len, back, kept + 1));
    assert_false(frugi_gaps_decode(c, 0, n, bytes, len - 1, back, kept));
    for (int i = 0; i < 20000; i++) {
        memcpy(bad, bytes, len);
        for (uint64_t k = next_random(&seed) % 3 + 1; k; k--)
            bad[next_random(&seed) % len] = (unsigned char)next_random(&seed);
        if (frugi_gaps_decode(c, 0, n, bad, len, back, kept))
            for (uint64_t k = 0; k < kept; k++)
                assert_true(back[k] < n && (k == 0 || back[k] > back[k - 1]));
    }
    test_free(place);
    test_free(back);
    test_free(bytes);
    test_free(bad);
    frug_compressor_destroy(c);
    frug_layout_destroy(z);
}

static void what_cannot_be_shared_is_refused(void **state) {
    (void)state;
    frug_config *config = NULL;
    assert_int_equal(frug_config_create("reduce=shared", &config), FRUG_ERR_CONFIG);
    assert_non_null(strstr(frug_last_error(), "needs value=f32, not value=bf16"));
    assert_int_equal(frug_config_create("reduce=shared,value=f32,rule=learned,segment=tensor", &config),
                     FRUG_ERR_CONFIG);
    assert_non_null(strstr(frug_last_error(), "rule=learned cannot"));
}

static void the_example_in_the_source_is_right(void **state) {
    (void)state;
    float grad[3][64] = {{5, 0, 0, 1}, {1, 0, 7, 0}, {2}}, got[3][64] = {{0}};
    const float want[64] = {8};
    lesson l = {.config = "reduce=shared,block=64,density=0.015625,value=f32,min_size=0", .n = 64};
    l.grad = grad[0];
    l.got = got[0];
    lesson_check(&l, 3, want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_workers_get_the_same_bits_and_nothing_is_lost),
        cmocka_unit_test(a_follower_keeps_what_a_chooser_keeps),
        cmocka_unit_test(with_density_one_it_is_a_dense_sum),
        cmocka_unit_test(bytes_are_those_of_the_formula),
        cmocka_unit_test(a_damaged_message_is_an_error_of_all),
        cmocka_unit_test(hostile_places_are_refused_or_in_order),
        cmocka_unit_test(what_cannot_be_shared_is_refused),
        cmocka_unit_test(the_example_in_the_source_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
