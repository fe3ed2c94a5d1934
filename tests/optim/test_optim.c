/*
 * test_optim.c - optimizers against reference loops in double, against PyTorch, and against each other. Seeds are those
 * of sparse_gradient() and bell_array(); each tolerance is explained at its test.
 */
#include "optim/optim_helpers.h"

#include "base/crc32c.h"

#include <math.h>
#include <stdio.h>

/* ---- against PyTorch ------------------------------------------------------ */

typedef struct golden {
    const char *text;
    double rate;
    float want[4];
} golden;

/*
 * From PyTorch 1.13:
 *   w = torch.nn.Parameter(torch.tensor([[0.5, -1.25, 2.0, 0.0]])); o = OPTIMIZER([w])
 *   for t in range(20):
 *       w.grad = torch.tensor([[((t*7+i*5)%13-6)/8*(1 if i != 3 else 1e-4) for i in range(4)]]); o.step()
 * with SGD(lr=.05, momentum=.9); SGD(lr=.05, momentum=.9, nesterov=True, weight_decay=.1); SGD(lr=.05,
 * weight_decay=.1); AdamW(lr=.01); AdamW(lr=.01, betas=(.8, .95), eps=1e-6, weight_decay=.5).
 */
static const golden goldens[] = {
    {"sgd", 0.05, {0.9381906390190125f, -1.1740151643753052f, 1.662844181060791f, -1.8333238358536619e-06f}},
    {"sgd:nesterov=1,coupled=1,decay=0.1",
     0.05,
     {0.5617611408233643f, -0.5186613202095032f, 0.6928656697273254f, -2.1550868041231297e-06f}},
    {"sgd:momentum=0,coupled=1,decay=0.1",
     0.05,
     {0.5230949521064758f, -1.1127040386199951f, 1.7749547958374023f, -1.2350136557870428e-06f}},
    {"adamw", 0.01, {0.5460495948791504f, -1.2376118898391724f, 1.9559435844421387f, 0.00783410482108593f}},
    {"adamw:beta1=0.8,beta2=0.95,eps=1e-6,decay=0.5",
     0.01,
     {0.48918643593788147f, -1.121994972229004f, 1.7763952016830444f, 0.005783919710665941f}},
};

/* Tolerance: 20 steps of some roundings each, 4e-7 times the largest magnitude a weight had (3). */
static void steps_match_pytorch(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof goldens / sizeof *goldens; k++) {
        frug_optimizer *o = flat_optimizer(goldens[k].text, 4);
        float w[4] = {0.5f, -1.25f, 2.0f, 0.0f};
        for (uint64_t t = 0; t < 20; t++) {
            float g[4];
            for (uint64_t i = 0; i < 4; i++)
                g[i] = (float)(((double)((t * 7 + i * 5) % 13) - 6) / 8 * (i != 3 ? 1 : 1e-4));
            OK(frug_optimizer_step(o, t, (frug_range){0, 4}, g, goldens[k].rate, w));
        }
        for (size_t i = 0; i < 4; i++)
            if (!(fabsf(w[i] - goldens[k].want[i]) <= 1.2e-6f))
                fail_msg("%s: weight %zu is %.9g, PyTorch has %.9g", goldens[k].text, i, (double)w[i],
                         (double)goldens[k].want[i]);
        frug_optimizer_destroy(o);
    }
}

/* ---- against reference loops in double ------------------------------------- */

#define N     700u
#define STEPS 50u

typedef struct reference {
    const char *text;
    double momentum, nesterov, beta1, beta2, decay;
    void (*step)(const struct reference *r, double t, double rate, double g, double *w, double state[2]);
} reference;

static void sgd_step(const reference *r, double t, double rate, double g, double *w, double state[2]) {
    (void)t;
    state[0] = r->momentum * state[0] + g;
    *w = *w * (1 - rate * r->decay) - rate * (r->nesterov > 0 ? g + r->momentum * state[0] : state[0]);
}

static void adam_step(const reference *r, double t, double rate, double g, double *w, double state[2]) {
    state[0] = r->beta1 * state[0] + (1 - r->beta1) * g;
    state[1] = r->beta2 * state[1] + (1 - r->beta2) * g * g;
    double m = state[0] / (1 - pow(r->beta1, t)), v = state[1] / (1 - pow(r->beta2, t));
    *w = *w * (1 - rate * r->decay) - rate * m / (sqrt(v) + 1e-8);
}

static void sign_step(const reference *r, double t, double rate, double g, double *w, double state[2]) {
    (void)t, (void)state;
    *w = *w * (1 - rate * r->decay) - rate * (g > 0 ? 1 : g < 0 ? -1 : 0);
}

static const reference references[] = {
    {"sign:decay=0.2", 0, 0, 0, 0, 0.2, sign_step},
    {"sgd:decay=0.2", 0.9, 0, 0, 0, 0.2, sgd_step},
    {"sgd:momentum=0.8,nesterov=1", 0.8, 1, 0, 0, 0, sgd_step},
    {"sgd:momentum=0,decay=0.1", 0, 0, 0, 0, 0.1, sgd_step},
    {"merged:momentum=0.5,gain=1", 0, 0, 0, 0, 0, sgd_step},
    {"adamw", 0, 0, 0.9, 0.999, 0.01, adam_step},
    /* Everything is sent and the residual is empty: RMSProp with bias correction is Adam with beta1 = 0. */
    {"adam-merged:state=f32,beta2=0.95,decay=0.05", 0, 0, 0, 0.95, 0.05, adam_step},
    {"adam-merged:state=f32,beta2=0,decay=0", 0, 0, 0, 0, 0, adam_step},
    /* A window that covers all steps is Adam; its means are weighted means, with the same normalization as Adam's. */
    {"microadam:window=50,entries=255,state=f32", 0, 0, 0.9, 0.999, 0, adam_step},
    {"microadam:window=64,entries=255,state=f32,beta1=0.5,beta2=0.9", 0, 0, 0.5, 0.9, 0, adam_step},
};

/*
 * Tolerance 2e-6 (1 + |w|): float against double. At rate 0.01 weights change by at most 0.5 (Adam) in 50 steps.
 * Gradients have less than 255 nonzeros per block, so that the window can store all.
 */
static void steps_match_reference_loops(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof references / sizeof *references; k++) {
        const reference *r = &references[k];
        frug_optimizer *o = flat_optimizer(r->text, N);
        float *w = bell_array(N, 3), g[N];
        double want[N], memory[N][2] = {{0}};
        for (size_t i = 0; i < N; i++)
            want[i] = (double)w[i];
        for (uint64_t t = 0; t < STEPS; t++) {
            double rate = 0.01 * (1 + (double)(t % 3));
            sparse_gradient(g, N, t, 2);
            OK(frug_optimizer_step(o, t, (frug_range){0, N}, g, rate, w));
            for (size_t i = 0; i < N; i++)
                r->step(r, (double)t + 1, rate, (double)g[i], &want[i], memory[i]);
        }
        for (size_t i = 0; i < N; i++)
            if (!(fabs((double)w[i] - want[i]) <= 2e-6 * (1 + fabs(want[i]))))
                fail_msg("%s: weight %zu is %.9g, not %.9g", r->text, i, (double)w[i], want[i]);
        test_free(w);
        frug_optimizer_destroy(o);
    }
}

/* ---- the window ----------------------------------------------------------- */

#define WINDOW 4u

/* Rank of x among the `entries` largest of a block, ties to the lower index. */
static int is_stored(const float *g, size_t begin, size_t end, size_t i, size_t entries) {
    size_t above = 0;
    for (size_t j = begin; j < end; j++)
        above += fabsf(g[j]) > fabsf(g[i]) || (j < i && fabsf(g[j]) == fabsf(g[i]));
    return g[i] != 0 && above < entries;
}

/*
 * Both means over the last WINDOW steps; entries beyond the capacity count only in the step in which they arrive.
 * Tolerance 2e-6 (1 + |w|) as above.
 */
static void window_drops_old_and_small_entries(void **state) {
    (void)state;
    const size_t entries = 9;
    frug_optimizer *o = flat_optimizer("microadam:window=4,entries=9,state=f32,beta1=0.8,beta2=0.95", N);
    float *w = bell_array(N, 4), g[STEPS][N], kept[STEPS][N];
    for (uint64_t t = 0; t < STEPS; t++) {
        float before[N];
        memcpy(before, w, sizeof before);
        sparse_gradient(g[t], N, t, t % 2 ? 8 : 100); /* 32 per block, or 2 or 3 */
        for (size_t i = 0; i < N; i++) {
            size_t begin = i / 256 * 256, end = begin + 256 < N ? begin + 256 : N;
            kept[t][i] = is_stored(g[t], begin, end, i, entries) ? g[t][i] : 0;
        }
        OK(frug_optimizer_step(o, t, (frug_range){0, N}, g[t], 0.01, w));
        for (size_t i = 0; i < N; i++) {
            double m = 0, v = 0, reach = t + 1 < WINDOW ? (double)t + 1 : WINDOW;
            for (uint64_t age = 0; age < WINDOW && age <= t; age++) {
                double x = (double)(age ? kept[t - age][i] : g[t][i]);
                m += 0.2 * pow(0.8, (double)age) * x / (1 - pow(0.8, reach));
                v += 0.05 * pow(0.95, (double)age) * x * x / (1 - pow(0.95, reach));
            }
            double want = (double)before[i] - 0.01 * m / (sqrt(v) + 1e-8);
            if (!(fabs((double)w[i] - want) <= 2e-6 * (1 + fabs(want))))
                fail_msg("step %d, weight %zu is %.9g, not %.9g", (int)t, i, (double)w[i], want);
        }
    }
    test_free(w);
    frug_optimizer_destroy(o);
}

/* ---- dense tensors --------------------------------------------------------- */

/* Run an optimizer over the layout with gaps for some steps, always from the same weights. */
static float *train(const char *text, const char *compressor_text, double rate) {
    frug_optimizer *o = optimizer_with_gaps(text, compressor_text);
    float *w = bell_array(OPTIM_N, 9), g[OPTIM_N];
    for (uint64_t t = 0; t < 12; t++) {
        sparse_gradient(g, OPTIM_N, t, 16);
        OK(frug_optimizer_step(o, t, (frug_range){0, OPTIM_N}, g, rate, w));
    }
    frug_optimizer_destroy(o);
    return w;
}

static void assert_range_equal(const float *a, const float *b, size_t begin, size_t count) {
    assert_same_bits(a + begin, b + begin, count * sizeof *a);
}

static void dense_tensors_use_the_plain_rule(void **state) {
    (void)state;
    static const char *const pairs[][3] = {
        /* kind; equivalent rule of the bias; of the matrices */
        {"merged:momentum=0.75,decay=0.1", "sgd:momentum=0.75", NULL},
        {"adam-merged:state=f32,decay=0", "adamw:beta2=0.99,decay=0", "adamw:beta1=0,beta2=0.99,decay=0"},
        {"microadam:window=20,entries=255,state=f32", "adamw:decay=0", "adamw:decay=0"},
        {"sign:beta2=0.999,decay=0", "adamw:decay=0", NULL},
    };
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        float *w = train(pairs[k][0], "min_size=100,warmup=3", 0.01);
        float *bias = train(pairs[k][1], "min_size=100", 0.01);
        assert_range_equal(w, bias, OPTIM_BIAS, 300);
        if (pairs[k][2]) { /* the same, up to rounding */
            float *rest = train(pairs[k][2], "min_size=100", 0.01);
            for (size_t i = OPTIM_BIG; i < OPTIM_N; i++)
                assert_true(fabsf(w[i] - rest[i]) <= 4e-6f);
            test_free(rest);
        }
        test_free(bias);
        test_free(w);
    }
}

static void beta2_auto_spans_several_arrivals(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"min_size=100", "beta2=0.99,"},
                                           {"min_size=100,density=0.5", "beta2=0.99,"},
                                           {"min_size=100,density=0.015625", "beta2=0.9975,"},
                                           {"min_size=100,density=0.001", "beta2=0.999,"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        frug_optimizer *o = optimizer_with_gaps("adam-merged", cases[i][0]);
        if (!strstr(frug_optimizer_text(o), cases[i][1]))
            fail_msg("%s: %s", cases[i][0], frug_optimizer_text(o));
        frug_optimizer_destroy(o);
    }
}

/* At high rates, gain=auto of adam-merged is 1 - retention, but at least one half. */
static void retention_lowers_the_gain_of_adam(void **state) {
    (void)state;
    static const struct {
        const char *optimizer, *config;
        double gain;
    } cases[] = {{"adam-merged", "frugrad-adam", 0.5},
                 {"adam-merged", "frugrad-adam,density=0.01", 0.5},
                 {"adam-merged", "frugrad-adam,density=0.0078125", 0.64},
                 {"adam-merged", "frugrad-adam,density=0.001,block=4096", 1},
                 {"adam-merged", "frugrad", 1},
                 {"adam-merged", "frugrad,hold=0.25", 0.75},
                 {"adam-merged", "frugrad-adam,feedback=none", 1},
                 {"adam-merged:gain=1", "frugrad-adam", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        frug_optimizer *o = optimizer_with_gaps(cases[i].optimizer, cases[i].config);
        if (fabs(frug_optimizer_gain(o, 1e6) - cases[i].gain) > 1e-12)
            fail_msg("%s, %s: %g", cases[i].optimizer, cases[i].config, frug_optimizer_gain(o, 1e6));
        frug_optimizer_destroy(o);
    }
}

static frug_optimizer *adam_of_matrices(const char *text, const char *config, uint64_t side) {
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    add_tensor(layout, "square", 0, side ? side : 1, side ? side : 4096 * 4096);
    add_tensor(layout, "vector", 4096 * 4096, 0, 100000);
    frug_compressor *c = make_compressor(config, layout, NULL);
    frug_optimizer *o = NULL;
    OK(frug_optimizer_create(text, layout, c, &o));
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
    return o;
}

/* Rate times width decides; the products below are exact. */
static void low_rates_have_a_larger_gain(void **state) {
    (void)state;
    static const struct {
        const char *config;
        uint64_t side;
        double rate, gain;
    } cases[] = {{"frugrad-adam", 128, 0, 1.25},
                 {"frugrad-adam", 128, 0x1p-9, 0.875}, /* a width of 1/4 of the rate: half way */
                 {"frugrad-adam", 256, 0x1p-10, 0.875},
                 {"frugrad-adam", 128, 1e3, 0.5},
                 {"frugrad-adam,density=0.0001220703125,hold=0.5", 128, 0, 2},
                 {"frugrad-adam", 0, 0x1p-13, 0.875}, /* one row of 4096^2: a matrix of 2048 x 8192 */
                 {"frugrad", 128, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        frug_optimizer *o = adam_of_matrices("adam-merged", cases[i].config, cases[i].side);
        if (fabs(frug_optimizer_gain(o, cases[i].rate) - cases[i].gain) > 1e-9)
            fail_msg("%s, %g: %g", cases[i].config, cases[i].rate, frug_optimizer_gain(o, cases[i].rate));
        frug_optimizer_destroy(o);
    }
}

/* Of trained weights a rate is high sooner. The usual 0.02 over the width has nearly the gain of low rates. */
static void trained_weights_have_a_gain_of_their_own(void **state) {
    (void)state;
    static const struct {
        double rate, gain, error;
    } cases[] = {{0, 1.25, 0}, {0.02 / 128, 1.25, 0.03}, {0x1p-12, 0.875, 1e-9}, {0.08 / 128, 0.5, 0.001}};
    frug_optimizer *o = adam_of_matrices("adam-merged:gain=finetune", "frugrad-adam", 128);
    assert_non_null(strstr(frug_optimizer_text(o), "gain=finetune"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (fabs(frug_optimizer_gain(o, cases[i].rate) - cases[i].gain) > cases[i].error)
            fail_msg("%g: %g", cases[i].rate, frug_optimizer_gain(o, cases[i].rate));
    frug_optimizer_destroy(o);

    frug_layout *layout = layout_with_gaps();
    frug_compressor *c = make_compressor("min_size=100", layout, NULL);
    assert_int_equal(frug_optimizer_create("merged:gain=finetune", layout, c, &o), FRUG_ERR_CONFIG);
    assert_non_null(strstr(frug_last_error(), "gain=finetune is for adam-merged"));
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

static void merged_momentum_has_a_gain(void **state) {
    (void)state;
    frug_layout *layout = layout_with_gaps();
    frug_optimizer *o = optimizer_with_gaps("merged:momentum=0.75", "min_size=100");
    assert_true(frug_optimizer_gain(o, 1) == 4.0);
    frug_optimizer_destroy(o);
    o = optimizer_with_gaps("merged", "dgc,min_size=100"); /* that momentum has its full strength already */
    assert_true(frug_optimizer_gain(o, 1) == 1.0);
    frug_optimizer_destroy(o);
    o = flat_optimizer("adam-merged", 10);
    assert_true(frug_optimizer_gain(o, 1) == 1.0);
    frug_optimizer_destroy(o);

    float *w = train("merged:momentum=0.75", "min_size=100", 0.25), *x = train("sgd:momentum=0", "min_size=100", 1);
    assert_range_equal(w, x, OPTIM_BIG, 3000);
    test_free(w);
    test_free(x);

    frug_compressor *c = make_compressor("feedback=none,min_size=100", layout, NULL);
    assert_int_equal(frug_optimizer_create("merged", layout, c, &o), FRUG_ERR_CONFIG);
    assert_non_null(strstr(frug_last_error(), "needs a compressor with feedback=merged, dgc or ef21"));
    OK(frug_optimizer_create("merged:gain=3", layout, c, &o));
    assert_true(frug_optimizer_gain(o, 1) == 3.0);
    frug_optimizer_destroy(o);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

/* ---- common properties ----------------------------------------------------- */

static void decay_skips_vectors_without_decay_all(void **state) {
    (void)state;
    static const char *const texts[] = {"sgd:decay=0.5",         "sgd:coupled=1,momentum=0,decay=0.5",
                                        "adamw:decay=0.5",       "merged:decay=0.5",
                                        "adam-merged:decay=0.5", "microadam:decay=0.5",
                                        "sign:decay=0.5"};
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        for (int all = 0; all < 2; all++) {
            char text[64];
            snprintf(text, sizeof text, "%s,decay_all=%d", texts[k], all);
            frug_optimizer *o = optimizer_with_gaps(text, "min_size=100");
            float w[OPTIM_N], g[OPTIM_N] = {0};
            for (size_t i = 0; i < OPTIM_N; i++)
                w[i] = 1;
            OK(frug_optimizer_step(o, 0, (frug_range){0, OPTIM_N}, g, 0.5, w));
            assert_true(w[OPTIM_MATRIX] == 0.75f && w[OPTIM_N - 1] == 0.75f);
            assert_true(w[OPTIM_BIAS + 299] == (all ? 0.75f : 1.0f));
            assert_true(w[OPTIM_BIAS - 1] == 1.0f && w[OPTIM_BIG - 1] == 1.0f);
            frug_optimizer_destroy(o);
        }
    }
}

/* Ranges end at tensors and at multiples of 256 inside them; their order does not matter. */
static void partitions_give_the_same_bits(void **state) {
    (void)state;
    static const uint64_t cuts[] = {0, 256, 740, 753, OPTIM_BIAS + 256, OPTIM_BIG, OPTIM_BIG + 512, OPTIM_N};
    for (size_t k = 0; k < EVERY_OPTIMIZER; k++) {
        frug_optimizer *a = optimizer_with_gaps(every_optimizer[k], "min_size=100");
        frug_optimizer *b = optimizer_with_gaps(every_optimizer[k], "min_size=100");
        float *w = bell_array(OPTIM_N, 5), *x = bell_array(OPTIM_N, 5), *start = bell_array(OPTIM_N, 5), g[OPTIM_N];
        for (uint64_t t = 0; t < 15; t++) {
            sparse_gradient(g, OPTIM_N, t, 16);
            OK(frug_optimizer_step(a, t, (frug_range){0, OPTIM_N}, g, 0.01, w));
            for (size_t i = sizeof cuts / sizeof *cuts - 1; i > 0; i--)
                OK(frug_optimizer_step(b, t, (frug_range){cuts[i - 1], cuts[i] - cuts[i - 1]}, g + cuts[i - 1], 0.01,
                                       x + cuts[i - 1]));
        }
        assert_same_bits(w, x, OPTIM_N * sizeof *w);
        assert_range_equal(w, start, 740, 13); /* the gaps, where gradients were nonzero */
        assert_range_equal(w, start, OPTIM_BIAS + 300, 5);
        assert_true(memcmp(w, start, 740 * sizeof *w) != 0);
        size_t len = 0;
        unsigned char *left = save_optimizer(a, &len), *right = save_optimizer(b, &len);
        assert_memory_equal(left, right, len);
        test_free(left);
        test_free(right);
        test_free(w);
        test_free(x);
        test_free(start);
        frug_optimizer_destroy(a);
        frug_optimizer_destroy(b);
    }
}

/*
 * CRC-32C of weights and state after 25 steps, on the machine of the first run (aarch64, gcc 12): every other compiler,
 * processor and vector width must give the same.
 */
static const uint32_t known_bits[EVERY_OPTIMIZER] = {0xf0791e50u, 0xd3a6f164u, 0x456cf85bu, 0x35c024ccu, 0xe52b09cfu,
                                                     0x91a2dff4u, 0x58344d67u, 0xc6bb52d4u, 0xbdc885bcu, 0xaba24312u,
                                                     0x1b9af7dcu, 0x36c2f60cu, 0x08a067c5u, 0x5c9fdee6u};

static void results_are_bit_identical_everywhere(void **state) {
    (void)state;
    for (size_t k = 0; k < EVERY_OPTIMIZER; k++) {
        frug_optimizer *o = optimizer_with_gaps(every_optimizer[k], "min_size=100");
        float *w = bell_array(OPTIM_N, 8), g[OPTIM_N];
        for (uint64_t t = 0; t < 25; t++) {
            sparse_gradient(g, OPTIM_N, t, 16);
            OK(frug_optimizer_step(o, t, (frug_range){0, OPTIM_N}, g, 0.01, w));
        }
        size_t len = 0;
        unsigned char *bytes = save_optimizer(o, &len);
        uint32_t crc = frugi_crc32c(frugi_crc32c(0, w, OPTIM_N * sizeof *w), bytes, len);
        if (crc != known_bits[k])
            fail_msg("%s: 0x%08x, not 0x%08x", every_optimizer[k], crc, known_bits[k]);
        test_free(bytes);
        test_free(w);
        frug_optimizer_destroy(o);
    }
}

/* A block of 256 with a NaN, an infinity or a huge gradient is skipped, and its states do not change. */
static void nonfinite_block_is_skipped(void **state) {
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1e19f};
    for (size_t k = 0; k < EVERY_OPTIMIZER; k++) {
        frug_optimizer *o = optimizer_with_gaps(every_optimizer[k], "min_size=100");
        float *w = bell_array(OPTIM_N, 6), *start = bell_array(OPTIM_N, 6), g[OPTIM_N];
        for (uint64_t t = 0; t < 4; t++) {
            sparse_gradient(g, OPTIM_N, t, 2);
            g[OPTIM_BIG + 300] = bad[t];
            g[OPTIM_BIAS + 3] = bad[t];
            OK(frug_optimizer_step(o, t, (frug_range){0, OPTIM_N}, g, 0.01, w));
        }
        assert_range_equal(w, start, OPTIM_BIG + 256, 256);
        assert_range_equal(w, start, OPTIM_BIAS, 256);
        for (size_t i = 0; i < OPTIM_N; i++)
            assert_true(isfinite(w[i]));
        assert_true(w[OPTIM_BIG + 5] != start[OPTIM_BIG + 5] || w[OPTIM_BIG + 6] != start[OPTIM_BIG + 6]);
        size_t len = 0;
        unsigned char *bytes = save_optimizer(o, &len);
        OK(frug_optimizer_restore(o, bytes, len));
        test_free(bytes);
        test_free(w);
        test_free(start);
        frug_optimizer_destroy(o);
    }
}

/* The largest gradient that is not skipped gives states that are finite and can be restored. */
static void huge_gradients_give_finite_states(void **state) {
    (void)state;
    for (size_t k = 0; k < EVERY_OPTIMIZER; k++) {
        frug_optimizer *o = optimizer_with_gaps(every_optimizer[k], "min_size=100");
        float w[OPTIM_N] = {0}, g[OPTIM_N];
        for (size_t i = 0; i < OPTIM_N; i++)
            g[i] = i % 2 ? 9.2e18f : -9.2e18f;
        for (uint64_t t = 0; t < 100; t++)
            OK(frug_optimizer_step(o, t, (frug_range){0, OPTIM_N}, g, 1e-20, w));
        size_t len = 0;
        unsigned char *bytes = save_optimizer(o, &len);
        OK(frug_optimizer_restore(o, bytes, len));
        test_free(bytes);
        for (size_t i = 0; i < OPTIM_N; i++)
            assert_true(isfinite(w[i]));
        frug_optimizer_destroy(o);
    }
}

static void invalid_calls_are_refused(void **state) {
    (void)state;
    frug_optimizer *o = optimizer_with_gaps("sgd", "min_size=100");
    float w[OPTIM_N] = {0}, g[OPTIM_N] = {0};
    assert_int_equal(frug_optimizer_step(NULL, 0, (frug_range){0, 1}, g, 0.1, w), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_step(o, 0, (frug_range){0, 256}, NULL, 0.1, w), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_step(o, 0, (frug_range){0, OPTIM_N + 1}, g, 0.1, w), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_step(o, 0, (frug_range){5, UINT64_MAX}, g, 0.1, w), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_step(o, 0, (frug_range){0, 100}, g, 0.1, w), FRUG_ERR_ARG);
    assert_string_equal(frug_last_error(), "range: its end at element 100 cuts a block of 256 in tensor 'matrix'");
    assert_int_equal(frug_optimizer_step(o, 0, (frug_range){0, 256}, g, (double)NAN, w), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_step(o, 0, (frug_range){0, 256}, g, -0.1, w), FRUG_ERR_ARG);
    frug_optimizer_destroy(o);
    frug_optimizer_destroy(NULL);

    frug_layout *layout = layout_with_gaps(), *other = NULL;
    OK(frug_layout_flat(OPTIM_N, &other));
    frug_compressor *c = make_compressor("frugrad", other, NULL);
    assert_int_equal(frug_optimizer_create("sgd", layout, c, &o), FRUG_ERR_ARG);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
    frug_layout_destroy(other);
}

static void count_warnings(void *ctx, frug_log_level level, const char *message) {
    if (level == FRUG_LOG_WARN && strstr(message, "momentum"))
        ++*(int *)ctx;
}

static void momentum_of_both_sides_or_of_neither_is_warned_about(void **state) {
    (void)state;
    static const struct {
        const char *config, *optimizer;
        int warnings;
    } cases[] = {
        {"frugrad", "sgd", 1},
        {"frugrad", "adamw", 1},
        {"dgc", "sgd", 1},
        {"frugrad", "sgd:momentum=0", 0},
        {"frugrad", "merged", 0},
        {"frugrad", "adam-merged", 0},
        {"frugrad,feedback=none", "adam-merged", 1},
        {"frugrad,feedback=none", "adamw", 0},
        {"frugrad,feedback=none", "muon-merged", 1},
        {"frugrad,feedback=none", "muon-merged:momentum=0.9", 0},
    };
    frug_layout *layout = NULL;
    OK(frug_layout_flat(4096, &layout));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        frug_config *config = NULL;
        frug_compressor *c = NULL;
        frug_optimizer *o = NULL;
        int warnings = 0;
        OK(frug_config_create(cases[i].config, &config));
        OK(frug_compressor_create(config, layout, NULL, &c));
        frug_set_log(count_warnings, &warnings);
        OK(frug_optimizer_create(cases[i].optimizer, layout, c, &o));
        frug_set_log(NULL, NULL);
        if (warnings != cases[i].warnings)
            fail_msg("%s with %s: %d warnings", cases[i].optimizer, cases[i].config, warnings);
        frug_optimizer_destroy(o);
        frug_compressor_destroy(c);
        frug_config_destroy(config);
    }
    frug_layout_destroy(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_match_pytorch),
        cmocka_unit_test(steps_match_reference_loops),
        cmocka_unit_test(window_drops_old_and_small_entries),
        cmocka_unit_test(dense_tensors_use_the_plain_rule),
        cmocka_unit_test(beta2_auto_spans_several_arrivals),
        cmocka_unit_test(merged_momentum_has_a_gain),
        cmocka_unit_test(retention_lowers_the_gain_of_adam),
        cmocka_unit_test(low_rates_have_a_larger_gain),
        cmocka_unit_test(trained_weights_have_a_gain_of_their_own),
        cmocka_unit_test(decay_skips_vectors_without_decay_all),
        cmocka_unit_test(partitions_give_the_same_bits),
        cmocka_unit_test(results_are_bit_identical_everywhere),
        cmocka_unit_test(nonfinite_block_is_skipped),
        cmocka_unit_test(huge_gradients_give_finite_states),
        cmocka_unit_test(invalid_calls_are_refused),
        cmocka_unit_test(momentum_of_both_sides_or_of_neither_is_warned_about),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
