/*
 * test_sgc_state.c - properties of all whole-tensor optimizers: exact memory, restored states, threads, invalid
 * gradients, options and states. Seeds are those of sparse_gradient() and bell_array(); all comparisons are by bits.
 */
#include "optim/sgc_helpers.h"

#include "base/crc32c.h"

#include <math.h>
#include <stdio.h>

static void run_steps(frug_optimizer *o, uint64_t from, uint64_t to, float *w) {
    float g[TUNE_N];
    for (uint64_t t = from; t < to; t++) {
        sparse_gradient(g, TUNE_N, t, 3);
        OK(frug_optimizer_step(o, t, (frug_range){0, TUNE_N}, g, 0.01, w));
    }
}

/* ---- memory ------------------------------------------------------------------ */

/* q is 24 x 50, v is 60 x 20: 1200 elements each. Sizes follow from docs/optimizers.md. */
static const struct {
    const char *text;
    uint64_t states, bytes;
} sizes[] = {
    {"sgc:s=24", 2 * 2 * 168, 2 * 8 * 168},
    {"mesgc:s=24,c=8", 2 * 2 * 168, 2 * 8 * 168},
    {"mesgc:s=24,c=8,adaptive=1", 2 * 2 * 168, 2 * (8 * 168 + 8)},
    {"mesgc:s=24,c=8,others=adamw", 2 * 2 * 168 + 2 * 970, 2 * 8 * 168 + 8 * 970},
    {"cesgc:s=16,c=2,rank=6,kappa=5", 2 * 2 * 80, 2 * 8 * 80 + 4 * 6 * (24 + 20)},
    {"table:s=24,c=8,kappa=2", 2 * 2 * 8 * 4, 2 * 10 * 8 * 4}, /* floor(8 * 6 / 10) = 4 */
    {"table:s=24,c=1,kappa=7", 2 * 2 * 134, 2 * 10 * 134},     /* floor(8 * 168 / 10) */
    {"lora:rank=3", 2 * 3 * (74 + 80), 12 * 3 * (74 + 80)},
    {"galore:rank=5", 2 * 5 * (50 + 60), 8 * 5 * (50 + 60) + 4 * 5 * (24 + 20)},
    {"apollo:rank=4", 2 * 4 * (50 + 60), 2 * 4 + 8 * 4 * (50 + 60)},
    {"adamw", 2 * 3370, 8 * 3370},
    {"sgd", 3370, 4 * 3370},
};

static void state_sizes_match_documentation(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        frug_optimizer *o = target_optimizer(sizes[k].text);
        if (frug_optimizer_state_count(o) != sizes[k].states || frug_optimizer_state_size(o) != 40 + sizes[k].bytes)
            fail_msg("%s: %d states in %zu bytes", sizes[k].text, (int)frug_optimizer_state_count(o),
                     frug_optimizer_state_size(o) - 40);
        frug_optimizer_destroy(o);
    }
    frug_optimizer *o = single_optimizer("table:s=24,c=1,kappa=7", 300, 300); /* indices of 4 bytes from 65537 on */
    assert_int_equal(frug_optimizer_state_size(o), 40 + 12 * (8 * 168 / 12));
    frug_optimizer_destroy(o);
    assert_int_equal(frug_optimizer_state_count(NULL), 0);
}

static void steps_allocate_nothing(void **state) {
    (void)state;
    for (size_t k = 0; k < EVERY_TUNED; k++) {
        uint64_t before = 0, peak_before = 0, after = 0, peak = 0;
        frug_optimizer *o = target_optimizer(every_tuned[k]);
        float *w = bell_array(TUNE_N, 1);
        frug_memory(&before, &peak_before);
        run_steps(o, 0, 9, w);
        frug_memory(&after, &peak);
        assert_true(before == after && peak == peak_before);
        test_free(w);
        frug_optimizer_destroy(o);
    }
}

/* ---- identical bits ------------------------------------------------------------- */

/*
 * CRC-32C of weights and state after 9 steps on the machine of the first run (aarch64, gcc 12): every other compiler,
 * processor and vector width must give the same.
 */
static const uint32_t known_bits[EVERY_TUNED] = {0x27f9813bu, 0x7ae45837u, 0x63ecc5bfu, 0x4c7ec8e9u, 0x2c59a7a4u,
                                                 0x37647952u, 0xd84b8b54u, 0x65ba850bu, 0x3b9915d5u, 0x2be17cd1u,
                                                 0x64dfd36du, 0xe24b94f4u, 0xe2d07164u, 0xdbdafb80u};

static void results_are_bit_identical_everywhere(void **state) {
    (void)state;
    for (size_t k = 0; k < EVERY_TUNED; k++) {
        frug_optimizer *o = target_optimizer(every_tuned[k]);
        float *w = bell_array(TUNE_N, 8);
        size_t len = 0;
        run_steps(o, 0, 9, w);
        unsigned char *bytes = save_optimizer(o, &len);
        uint32_t crc = frugi_crc32c(frugi_crc32c(0, w, TUNE_N * sizeof *w), bytes, len);
        if (crc != known_bits[k])
            fail_msg("%s: 0x%08x, not 0x%08x", every_tuned[k], crc, known_bits[k]);
        test_free(bytes);
        test_free(w);
        frug_optimizer_destroy(o);
    }
}

static void threads_give_the_same_bits(void **state) {
    (void)state;
    for (size_t k = 0; k < EVERY_TUNED; k++) {
        char text[256];
        snprintf(text, sizeof text, "%s,threads=3", every_tuned[k]);
        frug_optimizer *a = target_optimizer(every_tuned[k]), *b = target_optimizer(text);
        float *w = bell_array(TUNE_N, 5), *x = bell_array(TUNE_N, 5);
        run_steps(a, 0, 9, w);
        run_steps(b, 0, 9, x);
        assert_same_bits(w, x, TUNE_N * sizeof *w);
        assert_same_bits(a->arena, b->arena, a->arena_bytes);
        test_free(w);
        test_free(x);
        frug_optimizer_destroy(a);
        frug_optimizer_destroy(b);
    }
}

static void restored_state_continues_bit_for_bit(void **state) {
    (void)state;
    for (size_t k = 0; k < EVERY_TUNED; k++) {
        frug_optimizer *a = target_optimizer(every_tuned[k]), *b = target_optimizer(every_tuned[k]);
        float *w = bell_array(TUNE_N, 5), *x = bell_array(TUNE_N, 5);
        size_t len = 0;
        run_steps(a, 0, 12, w);
        run_steps(b, 0, 7, x);
        unsigned char *bytes = save_optimizer(b, &len);
        frug_optimizer_destroy(b);
        b = target_optimizer(every_tuned[k]);
        unsigned char *odd = test_malloc(len + 1); /* at any address */
        memcpy(odd + 1, bytes, len);
        OK(frug_optimizer_restore(b, odd + 1, len));
        run_steps(b, 7, 12, x);
        assert_same_bits(w, x, TUNE_N * sizeof *w);
        assert_same_bits(a->arena, b->arena, a->arena_bytes);
        test_free(odd);
        test_free(bytes);
        test_free(w);
        test_free(x);
        frug_optimizer_destroy(a);
        frug_optimizer_destroy(b);
    }
}

/* Tensor by tensor from the last to the first, and all at once. Gaps and frozen tensors do not change. */
static void partitions_give_the_same_bits(void **state) {
    (void)state;
    static const uint64_t cuts[] = {0, Q_N, BIAS, V, K, MLP, TUNE_N};
    for (size_t k = 0; k < EVERY_TUNED; k++) {
        frug_optimizer *a = target_optimizer(every_tuned[k]), *b = target_optimizer(every_tuned[k]);
        float *w = bell_array(TUNE_N, 5), *x = bell_array(TUNE_N, 5), *start = bell_array(TUNE_N, 5), g[TUNE_N];
        run_steps(a, 0, 9, w);
        for (uint64_t t = 0; t < 9; t++) {
            sparse_gradient(g, TUNE_N, t, 3);
            for (size_t i = sizeof cuts / sizeof *cuts - 1; i > 0; i--)
                OK(frug_optimizer_step(b, t, (frug_range){cuts[i - 1], cuts[i] - cuts[i - 1]}, g + cuts[i - 1], 0.01,
                                       x + cuts[i - 1]));
        }
        assert_same_bits(w, x, TUNE_N * sizeof *w);
        assert_same_bits(w + Q_N, start + Q_N, 7 * sizeof *w);
        bool frozen = !strstr(every_tuned[k], "others=adamw");
        assert_true((memcmp(w + MLP, start + MLP, MLP_N * sizeof *w) == 0) == frozen);
        assert_true((memcmp(w + BIAS, start + BIAS, 50 * sizeof *w) == 0) == frozen);
        assert_true(memcmp(w, start, Q_N * sizeof *w) != 0 && memcmp(w + V, start + V, V_N * sizeof *w) != 0);
        test_free(w);
        test_free(x);
        test_free(start);
        frug_optimizer_destroy(a);
        frug_optimizer_destroy(b);
    }
}

/* ---- selection of tensors ------------------------------------------------------------ */

static const struct {
    const char *targets;
    int q, v, k, mlp;
} choices[] = {
    {"qv", 1, 1, 0, 0},        {"attention", 1, 1, 1, 0}, {"linear", 1, 1, 1, 1}, {"all", 1, 1, 1, 1},
    {"layer.0.*", 1, 1, 1, 0}, {"*.?", 1, 1, 1, 0},       {"*1*", 0, 0, 0, 1},    {"layer.0.v", 0, 1, 0, 0},
    {"*.*.*l*p", 0, 0, 0, 1},  {"?????.0.k", 0, 0, 1, 0}, {"qv+*.k", 1, 1, 1, 0}, {"*.q+*mlp+*.q", 1, 0, 0, 1},
};

static void targets_are_selected_by_role_or_name(void **state) {
    (void)state;
    float *adamw = bell_array(TUNE_N, 5);
    frug_optimizer *o = target_optimizer("adamw:decay=0");
    run_steps(o, 0, 3, adamw);
    frug_optimizer_destroy(o);
    for (size_t k = 0; k < sizeof choices / sizeof *choices; k++) {
        char text[128];
        snprintf(text, sizeof text, "table:s=16,c=4,others=adamw,targets=%s", choices[k].targets);
        o = target_optimizer(text);
        float *w = bell_array(TUNE_N, 5);
        run_steps(o, 0, 3, w);
        const int cuts[] = {!choices[k].q, 1, !choices[k].v, !choices[k].k, !choices[k].mlp};
        const size_t at[] = {Q, BIAS, V, K, MLP}, n[] = {Q_N, 50, V_N, K_N, MLP_N};
        for (size_t i = 0; i < 5; i++) {
            assert_int_equal(frug_optimizer_can_split(o, i), cuts[i]);
            assert_int_equal(memcmp(w + at[i], adamw + at[i], n[i] * sizeof *w) == 0, cuts[i]);
        }
        test_free(w);
        frug_optimizer_destroy(o);
    }
    test_free(adamw);
    assert_int_equal(frug_optimizer_can_split(NULL, 0), 1);
}

/* The named ones are updated by AdamW; all others except the targets are frozen. */
static void others_are_selected_by_name(void **state) {
    (void)state;
    static const struct {
        const char *others;
        int bias, k, mlp;
    } named[] = {{"frozen", 0, 0, 0}, {"adamw", 1, 1, 1},    {"*bias", 1, 0, 0},      {"layer.1*+*.k", 0, 1, 1},
                 {"*", 1, 1, 1},      {"layer.0*", 1, 1, 0}, {"layer.?.m??", 0, 0, 1}};
    float *adamw = bell_array(TUNE_N, 5), *start = bell_array(TUNE_N, 5);
    frug_optimizer *o = target_optimizer("adamw:decay=0");
    run_steps(o, 0, 3, adamw);
    frug_optimizer_destroy(o);
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        char text[128];
        snprintf(text, sizeof text, "table:s=16,c=4,others=%s", named[i].others);
        o = target_optimizer(text);
        frug_optimizer *again = target_optimizer(frug_optimizer_text(o));
        assert_string_equal(frug_optimizer_text(o), frug_optimizer_text(again));
        assert_int_equal(frug_optimizer_state_count(o), frug_optimizer_state_count(again));
        frug_optimizer_destroy(again);
        float *w = bell_array(TUNE_N, 5);
        run_steps(o, 0, 3, w);
        const int moves[] = {named[i].bias, named[i].k, named[i].mlp};
        const size_t at[] = {BIAS, K, MLP}, n[] = {50, K_N, MLP_N};
        for (size_t j = 0; j < 3; j++)
            assert_same_bits(w + at[j], (moves[j] ? adamw : start) + at[j], n[j] * sizeof *w);
        assert_true(memcmp(w, start, Q_N * sizeof *w) != 0);
        test_free(w);
        frug_optimizer_destroy(o);
    }
    test_free(adamw);
    test_free(start);
}

/* Both lists of maximal length, and every number with the most digits: the printed text still fits. */
static void longest_text_fits(void **state) {
    (void)state;
    char targets[100] = "*.q", others[100] = "*bias", text[512];
    while (strlen(targets) < 95)
        strcat(targets, "+*.v");
    while (strlen(others) < 95)
        strcat(others, "+*bias");
    const char *real = "1.2345678901234567e-05";
    snprintf(text, sizeof text,
             "cesgc:s=16,kappa=5,c=4,rank=6,matrix=explicit,refresh=1000000000,scale=%s,beta1=%s,beta2=%s,eps=%s,"
             "decay=%s,targets=%s,others=%s,threads=64",
             real, real, real, real, real, targets, others);
    frug_optimizer *o = target_optimizer(text), *again = target_optimizer(frug_optimizer_text(o));
    assert_string_equal(frug_optimizer_text(o), frug_optimizer_text(again));
    assert_non_null(strstr(frug_optimizer_text(o), others));
    assert_non_null(strstr(frug_optimizer_text(o), ",threads=64"));
    frug_optimizer_destroy(o);
    frug_optimizer_destroy(again);
    snprintf(text, sizeof text, "table:targets=*%s", targets);
    frug_layout *layout = target_layout();
    assert_int_equal(frug_optimizer_create(text, layout, NULL, &o), FRUG_ERR_CONFIG);
    frug_layout_destroy(layout);
}

/* ---- invalid input ------------------------------------------------------------------ */

/* The whole tensor is skipped, weights and states; the others are updated. */
static void nonfinite_tensor_is_skipped(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1.2e12f};
    for (size_t k = 0; k < EVERY_TUNED; k++) {
        frug_optimizer *o = target_optimizer(every_tuned[k]);
        float *w = bell_array(TUNE_N, 6), *start = bell_array(TUNE_N, 6), g[TUNE_N];
        for (uint64_t t = 0; t < 4; t++) {
            sparse_gradient(g, TUNE_N, t, 2);
            g[V + 1199] = bad[t];
            OK(frug_optimizer_step(o, t, (frug_range){0, TUNE_N}, g, 0.01, w));
        }
        assert_same_bits(w + V, start + V, V_N * sizeof *w);
        assert_true(memcmp(w, start, Q_N * sizeof *w) != 0);
        run_steps(o, 4, 6, w); /* and is updated again at the next valid gradient */
        assert_true(memcmp(w + V, start + V, V_N * sizeof *w) != 0);
        size_t len = 0;
        unsigned char *bytes = save_optimizer(o, &len);
        OK(frug_optimizer_restore(o, bytes, len));
        for (size_t i = 0; i < TUNE_N; i++)
            assert_true(isfinite(w[i]));
        test_free(bytes);
        test_free(w);
        test_free(start);
        frug_optimizer_destroy(o);
    }
}

/* Only zeros, the smallest floats and the largest that are used: weights stay finite, states can be restored. */
static void extreme_gradients_give_finite_states(void **state) {
    (void)state;
    static const float sizes_of[] = {0.0f, 1e-45f, 1e-25f, 1.09e12f};
    for (size_t k = 0; k < EVERY_TUNED; k++)
        for (size_t n = 0; n < 4; n++) {
            frug_optimizer *o = target_optimizer(every_tuned[k]);
            float *w = bell_array(TUNE_N, 6), *start = bell_array(TUNE_N, 6), g[TUNE_N];
            for (uint64_t t = 0; t < 6; t++) {
                for (size_t i = 0; i < TUNE_N; i++)
                    g[i] = (i * 7 + t) % 3 ? sizes_of[n] : -sizes_of[n];
                OK(frug_optimizer_step(o, t, (frug_range){0, TUNE_N}, g, 1e-4, w));
            }
            size_t len = 0;
            unsigned char *bytes = save_optimizer(o, &len);
            OK(frug_optimizer_restore(o, bytes, len));
            for (size_t i = 0; i < TUNE_N; i++)
                assert_true(isfinite(w[i]) && fabsf(w[i] - start[i]) < 0.1f);
            test_free(bytes);
            test_free(w);
            test_free(start);
            frug_optimizer_destroy(o);
        }
}

static const struct {
    const char *text, *why;
} refusals[] = {
    {"sgc:s=1200", "config: s=1200 in 1 chunks is not sparse: 1200 entries of 1200 in tensor 'layer.0.q'"},
    {"sgc:s=200",
     "config: kappa s = 1400 measurements are more than the 1200 numbers of a chunk of tensor 'layer.0.q'"},
    {"sgc:s=0", "config: bad value '0' of s at position 7; accepted: 1 to 16777216"},
    {"mesgc:c=0", "config: bad value '0' of c at position 9; accepted: 1 to 16777216"},
    {"mesgc:s=2400,c=2400", "config: c=2400 chunks are more than the 1200 numbers of tensor 'layer.0.q'"},
    {"mesgc:s=30,c=8", "config: s=30 entries are not divisible by c=8 chunks"},
    {"mesgc:s=32,c=1,adaptive=1", "config: adaptive=1 needs more than one chunk"},
    {"mesgc:s=32,c=8,adaptive=1,matrix=explicit",
     "config: adaptive=1 needs one matrix per share, and so matrix=implicit"},
    {"mesgc:s=45,c=9,adaptive=1",
     "config: adaptive=1 assigns s in shares of 2 entries, and s=45 is not a multiple of that"},
    {"mesgc:s=40,c=8,kappa=29,adaptive=1",
     "config: adaptive=1: chunks of 150 in tensor 'layer.0.q' are too short for s=40 entries in all"},
    {"cesgc:s=16,c=4,rank=21", "config: rank=21 is above the 20 of tensor 'layer.0.v' (60 x 20)"},
    {"cesgc:s=64,c=4,rank=1", "config: s=64 in 4 chunks is not sparse: 16 entries of 12 in tensor 'layer.0.q'"},
    {"table:s=200,c=1",
     "config: kappa s = 1400 states are more than the 1200 numbers of a chunk of tensor 'layer.0.q'"},
    {"lora:rank=25", "config: rank=25 is above the 24 of tensor 'layer.0.q' (24 x 50)"},
    {"lora:rank=0", "config: bad value '0' of rank at position 11; accepted: 1 to 4096"},
    {"galore:rank=4,kappa=7", "config: unknown option 'kappa' of galore"},
    {"apollo:rank=4,per=row", "config: unknown value 'row' of per at position 19; accepted: channel tensor"},
    {"sgc:targets=", "config: option 'targets' at position 5 needs a value; accepted: qv, attention, linear"},
    {"sgc:targets=layer.7.*", "config: targets=layer.7.* matches no tensor of two dimensions in this layout; accepted"},
    {"sgc:targets=*bias", "config: targets=*bias matches no tensor of two dimensions in this layout; accepted"},
    {"sgc:targets=qv+layer.7.*+*.k", "config: targets=layer.7.* matches no tensor of two dimensions in this layout"},
    {"sgc:targets=qv++*.k", "config: bad value 'qv++*.k' of targets at position 13; accepted: qv, attention, linear"},
    {"sgc:targets=+qv", "config: bad value '+qv' of targets at position 13"},
    {"sgc:others=*bias+", "config: bad value '*bias+' of others at position 12; accepted: frozen, adamw, or patterns"},
    {"sgc:s=24,others=*bias+classifier*",
     "config: others=classifier* matches no tensor in this layout that is not a target; accepted: frozen"},
    {"sgc:s=24,others=*.q", "config: others=*.q matches no tensor in this layout that is not a target"},
    {"table:kappa=1", "config: bad value '1' of kappa at position 13; accepted: 2 to 64"},
};

static void invalid_options_are_refused(void **state) {
    (void)state;
    frug_layout *layout = target_layout();
    for (size_t k = 0; k < sizeof refusals / sizeof *refusals; k++) {
        frug_optimizer *o = NULL;
        assert_int_equal(frug_optimizer_create(refusals[k].text, layout, NULL, &o), FRUG_ERR_CONFIG);
        if (!strstr(frug_last_error(), refusals[k].why))
            fail_msg("%s: %s", refusals[k].text, frug_last_error());
        assert_null(o);
    }
    frug_layout_destroy(layout);
}

static void range_that_cuts_a_target_is_refused(void **state) {
    (void)state;
    frug_optimizer *o = target_optimizer("mesgc:s=24,c=8");
    float w[TUNE_N] = {0}, g[TUNE_N] = {0};
    assert_int_equal(frug_optimizer_step(o, 0, (frug_range){0, 256}, g, 0.1, w), FRUG_ERR_ARG);
    assert_string_equal(frug_last_error(),
                        "range: its end at element 256 cuts tensor 'layer.0.q', which mesgc updates as a whole");
    assert_int_equal(frug_optimizer_step(o, 0, (frug_range){V + 256, 256}, g, 0.1, w), FRUG_ERR_ARG);
    assert_string_equal(frug_last_error(),
                        "range: its begin at element 1513 cuts tensor 'layer.0.v', which mesgc updates as a whole");
    OK(frug_optimizer_step(o, 0, (frug_range){K, 256}, g, 0.1, w)); /* a frozen tensor may be cut */
    frug_optimizer_destroy(o);
}

/* ---- forged states ---------------------------------------------------------------------- */

static void write_checksum(unsigned char *bytes, size_t len) {
    memset(bytes + 12, 0, 4);
    uint32_t crc = frugi_crc32c(0, bytes, len);
    memcpy(bytes + 12, &crc, 4);
}

/* Change some bytes of a state after 3 steps, write a valid checksum, and expect this status. */
static void check_forged_state(const char *text, size_t at, const void *patch, size_t size, frug_status want) {
    frug_optimizer *o = target_optimizer(text);
    float *w = bell_array(TUNE_N, 6), *x = bell_array(TUNE_N, 6);
    size_t len = 0;
    run_steps(o, 0, 3, w);
    unsigned char *bytes = save_optimizer(o, &len), *before = save_optimizer(o, &len);
    assert_true(40 + at + size <= len);
    memcpy(bytes + 40 + at, patch, size);
    write_checksum(bytes, len);
    if (frug_optimizer_restore(o, bytes, len) != want)
        fail_msg("%s, %zu: %s", text, at, frug_last_error());
    unsigned char *after = save_optimizer(o, &len);
    if (want != FRUG_OK)
        assert_memory_equal(before, after, len);
    run_steps(o, 3, 5, x);
    test_free(before);
    test_free(after);
    test_free(bytes);
    test_free(w);
    test_free(x);
    frug_optimizer_destroy(o);
}

static void forged_states_are_refused(void **state) {
    (void)state;
    const float nan = NAN, minus = -1, one = 1;
    static const char *const with_squares[] = {"lora:rank=3", "galore:rank=5", "apollo:rank=4", "table:s=24,c=8"};
    for (size_t k = 0; k < EVERY_TUNED; k++)
        check_forged_state(every_tuned[k], 4, &nan, 4, FRUG_ERR_FORMAT);
    for (size_t k = 0; k < 4; k++) { /* the first number of the squares */
        frug_optimizer *o = target_optimizer(with_squares[k]);
        check_forged_state(with_squares[k], 4 * o->targets->moments, &minus, 4, FRUG_ERR_FORMAT);
        frug_optimizer_destroy(o);
    }
    check_forged_state("sgc:s=24", 8 * 168, &minus, 4, FRUG_OK); /* measured squares have signs */
    check_forged_state("galore:rank=5", 8 * 550 + 8, &nan, 4, FRUG_ERR_FORMAT);

    /* table:s=24,c=8,kappa=2: 64 entries in 16 chunks of 4; 128 floats, then indices of 2 bytes below 150. */
    const uint16_t far_off = 150, twice[] = {7, 7}, sound[] = {1, 2};
    const char *table = "table:s=24,c=8,kappa=2";
    check_forged_state(table, 512, &far_off, 2, FRUG_ERR_FORMAT);
    check_forged_state(table, 512, twice, 4, FRUG_ERR_FORMAT);
    check_forged_state(table, 512, sound, 2, FRUG_OK);
    const float none = 0;
    frug_optimizer *o = target_optimizer("table:s=8,c=8,kappa=20"); /* after one step 1 of 16 is used */
    float *w = bell_array(TUNE_N, 6);
    size_t len = 0;
    run_steps(o, 0, 1, w);
    unsigned char *bytes = save_optimizer(o, &len);
    memcpy(bytes + 40 + 4 * 5, &one, 4); /* an entry after unused capacity */
    write_checksum(bytes, len);
    assert_int_equal(frug_optimizer_restore(o, bytes, len), FRUG_ERR_FORMAT);
    memcpy(bytes + 40 + 4 * 5, &none, 4);
    write_checksum(bytes, len);
    OK(frug_optimizer_restore(o, bytes, len));
    test_free(bytes);
    test_free(w);
    frug_optimizer_destroy(o);

    /* mesgc:s=32,c=8,adaptive=1,kappa=5: 2 x 160 measurements, twice, then the shares of 2 x 8 chunks. */
    const uint8_t many = 200, zero[8] = {0}, uneven[8] = {16, 16}, one_more[8] = {5, 4, 4, 4, 4, 4, 4, 4};
    const char *shared = "mesgc:s=32,c=8,adaptive=1,refresh=3,kappa=5";
    check_forged_state(shared, 4 * 640, &many, 1, FRUG_ERR_FORMAT);
    check_forged_state(shared, 4 * 640, one_more, 8, FRUG_ERR_FORMAT);
    check_forged_state(shared, 4 * 640, uneven, 8, FRUG_OK);
    check_forged_state(shared, 4 * 640, zero, 8, FRUG_OK);
}

static void other_options_are_a_mismatch(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"sgc:s=24", "mesgc:s=24,c=1"},
        {"sgc:s=24", "sgc:s=24,matrix=explicit"},
        {"mesgc:s=24,c=8", "mesgc:s=24,c=4"},
        {"mesgc:s=24,c=8,kappa=4", "mesgc:s=32,c=8,kappa=3"},
        {"mesgc:s=24,c=8,targets=*.q", "mesgc:s=24,c=8,targets=*.v"},
    };
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        frug_optimizer *a = target_optimizer(pairs[k][0]), *b = target_optimizer(pairs[k][1]);
        size_t len = 0;
        unsigned char *bytes = save_optimizer(a, &len);
        assert_int_equal(len, frug_optimizer_state_size(b));
        assert_int_equal(frug_optimizer_restore(b, bytes, len), FRUG_ERR_MISMATCH);
        test_free(bytes);
        frug_optimizer_destroy(a);
        frug_optimizer_destroy(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_sizes_match_documentation),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(results_are_bit_identical_everywhere),
        cmocka_unit_test(threads_give_the_same_bits),
        cmocka_unit_test(restored_state_continues_bit_for_bit),
        cmocka_unit_test(partitions_give_the_same_bits),
        cmocka_unit_test(targets_are_selected_by_role_or_name),
        cmocka_unit_test(others_are_selected_by_name),
        cmocka_unit_test(longest_text_fits),
        cmocka_unit_test(nonfinite_tensor_is_skipped),
        cmocka_unit_test(extreme_gradients_give_finite_states),
        cmocka_unit_test(invalid_options_are_refused),
        cmocka_unit_test(range_that_cuts_a_target_is_refused),
        cmocka_unit_test(forged_states_are_refused),
        cmocka_unit_test(other_options_are_a_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
