/*
 * test_muon.c - muon and muon-merged against loops in double, which tensors they orthogonalize, states, threads and
 * invalid input. Seeds are those of sparse_gradient() and bell_array(); each tolerance is explained at its test.
 */
#include "optim/sgc_helpers.h"

#include "base/crc32c.h"
#include "base/float_bits.h"
#include "optim/newton_schulz.h"
#include "optim/packed_product.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const every_muon[] = {"muon:gain=4",
                                         "muon:momentum=0,decay=0,targets=all",
                                         "muon-merged:beta2=0.95",
                                         "muon-merged:beta2=0.95,momentum=0.9,targets=qv",
                                         "muon-merged:beta2=0.95,momentum=0.5,state=bf16,decay=0",
                                         "muon-merged:beta2=0.95,momentum=0.5,state=f32,decay_all=1"};

#define EVERY_MUON (sizeof every_muon / sizeof *every_muon)

/* ---- Newton-Schulz ----------------------------------------------------------------- */

/* Five steps on x itself (rows x cols), in double. */
static void orthogonalize(double *x, size_t rows, size_t cols) {
    static double gram[64 * 64], p[64 * 64], next[64 * 64];
    double norm = 0;
    for (size_t i = 0; i < rows * cols; i++)
        norm += x[i] * x[i];
    for (size_t i = 0; i < rows * cols; i++)
        x[i] /= fmax(sqrt(norm), 1e-7);
    for (int step = 0; step < 5; step++) {
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < rows; j++) {
                gram[i * rows + j] = 0;
                for (size_t t = 0; t < cols; t++)
                    gram[i * rows + j] += x[i * cols + t] * x[j * cols + t];
            }
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < rows; j++) {
                double square = 0;
                for (size_t t = 0; t < rows; t++)
                    square += gram[i * rows + t] * gram[t * rows + j];
                p[i * rows + j] = (i == j ? 3.4445 : 0) - 4.7750 * gram[i * rows + j] + 2.0315 * square;
            }
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < cols; j++) {
                next[i * cols + j] = 0;
                for (size_t t = 0; t < rows; t++)
                    next[i * cols + j] += p[i * rows + t] * x[t * cols + j];
            }
        memcpy(x, next, rows * cols * sizeof *x);
    }
}

/* beta c + alpha A B in the order of packed_product.h. */
static void multiply_simply(const frugi_large_product *p, float beta, float alpha, float *c) {
    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < p->n; j++) {
            float *at = c + i * p->n + j, scale = beta;
            for (size_t first = 0; first < p->k; first += 256, scale = 1) {
                float sum = 0, product;
                for (size_t t = first; t < p->k && t < first + 256; t++)
                    sum = fmaf(p->a.data[i * p->a.row + t * p->a.col], p->b.data[t * p->b.row + j * p->b.col], sum);
                product = alpha * sum;
                *at = scale != 0 ? scale * *at + product : product;
            }
        }
}

static void check_product(const frugi_large_product *p, float beta) {
    const size_t bytes = p->m * p->n * sizeof(float);
    float *want = bell_array(p->m * p->n, 3), *got = test_malloc(bytes);
    float *before = bell_array(p->m * p->n, 3);
    multiply_simply(p, beta, 0.7f, want);
    for (size_t i = 0; frug_isa_at(i) != NULL; i++) {
        setenv("FRUG_ISA", frug_isa_at(i), 1);
        for (int threads = 1; threads <= 3; threads += 2) {
            memcpy(got, before, bytes);
            frugi_multiply_large(p, beta, 0.7f, got, threads);
            assert_same_bits(want, got, bytes);
        }
    }
    unsetenv("FRUG_ISA");
    test_free(want);
    test_free(got);
    test_free(before);
}

static void products_have_the_same_bits_in_every_variant(void **state) {
    (void)state;
    static const size_t sizes[][3] = {{1, 1, 1}, {7, 50, 3}, {64, 97, 300}, {13, 48, 256}, {9, 16, 513}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const size_t m = sizes[k][0], n = sizes[k][1], depth = sizes[k][2];
        float *a = bell_array(m * depth, k + 1), *b = bell_array(depth * n, k + 7);
        for (int transposed = 0; transposed < 4; transposed++) {
            frugi_large_product p = {{a, depth, 1}, {b, n, 1}, m, n, depth, false};
            if (transposed & 1)
                p.a = (frugi_strided){a, 1, m};
            if (transposed & 2)
                p.b = (frugi_strided){b, 1, depth};
            check_product(&p, 0);
            check_product(&p, 0.5f);
        }
        frugi_large_product gram = {{a, depth, 1}, {a, 1, depth}, m, m, depth, true};
        check_product(&gram, 0);
        test_free(a);
        test_free(b);
    }
}

/* The steps of the reference are on rows, those of the code on the shorter side: the same in exact arithmetic. */
static void steps_on_the_gram_matrix_are_steps_on_the_matrix(void **state) {
    (void)state;
    static const size_t shapes[][2] = {{16, 64}, {64, 16}, {33, 33}, {1, 40}, {40, 1}, {7, 19}, {64, 64}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const size_t rows = shapes[k][0], cols = shapes[k][1], n = rows * cols;
        const frugi_sides side = frugi_sides_make(rows, cols);
        float *x = bell_array(n, k + 1), *w = test_malloc(n * sizeof *w);
        float *work = test_malloc(frugi_orthogonalizer_floats(&side) * sizeof *work);
        static double want[64 * 64];
        for (size_t i = 0; i < n; i++)
            want[i] = (double)x[i];
        orthogonalize(want, rows, cols);
        memset(w, 0, n * sizeof *w);
        const float *q = frugi_orthogonalizer(&side, x, work, 1);
        assert_non_null(q);
        frugi_add_orthogonalized(&side, q, x, 1, 1, w, 1);
        for (size_t i = 0; i < n; i++)
            if (!(fabs((double)w[i] - want[i]) <= 1e-3)) /* 64 x 64 has singular values of a thousandth of its norm */
                fail_msg("%zu x %zu, %zu: %.9g, not %.9g", rows, cols, i, (double)w[i], want[i]);
        test_free(x);
        test_free(w);
        test_free(work);
    }
}

/* Rows of a wide matrix become orthogonal, with lengths between 0.68 and 1.21. */
static void rows_become_orthogonal(void **state) {
    (void)state;
    const frugi_sides side = frugi_sides_make(12, 300);
    float *x = bell_array(12 * 300, 3), w[12 * 300] = {0}, work[4 * 12 * 12];
    for (size_t i = 0; i < 12 * 300; i++)
        x[i] *= 1 + (float)(i / 300); /* of different lengths */
    frugi_add_orthogonalized(&side, frugi_orthogonalizer(&side, x, work, 1), x, 1, 1, w, 1);
    for (size_t a = 0; a < 12; a++)
        for (size_t b = 0; b < 12; b++) {
            double dot = 0;
            for (size_t i = 0; i < 300; i++)
                dot += (double)w[a * 300 + i] * (double)w[b * 300 + i];
            assert_true(a == b ? dot > 0.46 && dot < 1.46 : fabs(dot) < 0.5);
        }
    test_free(x);
}

/* One by one: five times the polynomial at 1 is 0.7010 - 0.0028 = what the reference computes. */
static void a_number_becomes_its_sign_nearly(void **state) {
    (void)state;
    double x = 1;
    for (int step = 0; step < 5; step++)
        x = 3.4445 * x - 4.7750 * x * x * x + 2.0315 * x * x * x * x * x;
    frug_optimizer *o = single_optimizer("muon-merged:gain=1,decay=0", 1, 1);
    float w = 0;
    OK(frug_optimizer_step(o, 0, (frug_range){0, 1}, &(float){-123}, 1, &w));
    assert_true(fabs((double)w - 0.2 * x) < 1e-6);
    OK(frug_optimizer_step(o, 1, (frug_range){0, 1}, &(float){123}, 1, &w));
    assert_true(fabs((double)w) < 1e-6);
    frug_optimizer_destroy(o);
}

/* ---- the update --------------------------------------------------------------------- */

/* Twelve steps with momentum, decay and gain against loops in double: 2e-4 of weights that move by 0.01 to 0.1. */
static void steps_follow_the_formula(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double momentum, gain, decay;
    } cases[] = {{"muon", 0.95, 4, 0.1},
                 {"muon:momentum=0,gain=1,decay=0", 0, 1, 0},
                 {"muon-merged", 0, 6, 0.1},
                 {"muon-merged:momentum=0.9,state=f32,gain=2", 0.9, 2, 0.1}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        frug_optimizer *o = single_optimizer(cases[k].text, 32, 64);
        static double m[D], x[D], want[D];
        float *w = bell_array(D, 1), g[D];
        memset(m, 0, sizeof m);
        assert_true(frug_optimizer_gain(o, 1e-3) == cases[k].gain);
        for (size_t i = 0; i < D; i++)
            want[i] = (double)w[i];
        for (uint64_t t = 0; t < 12; t++) {
            const double rate = 0.003 * cases[k].gain;
            sparse_gradient(g, D, t, 3);
            OK(frug_optimizer_step(o, t, (frug_range){0, D}, g, 0.003, w));
            for (size_t i = 0; i < D; i++) {
                m[i] = cases[k].momentum * m[i] + (double)g[i];
                x[i] = (double)g[i] + cases[k].momentum * m[i];
            }
            orthogonalize(x, 32, 64);
            for (size_t i = 0; i < D; i++)
                want[i] = want[i] * (1 - rate * cases[k].decay) - rate * 0.2 * 8 * x[i];
        }
        for (size_t i = 0; i < D; i++)
            if (!(fabs((double)w[i] - want[i]) <= 2e-4))
                fail_msg("%s: weight %zu is %.9g, not %.9g", cases[k].text, i, (double)w[i], want[i]);
        test_free(w);
        frug_optimizer_destroy(o);
    }
}

/* In an int8 or bf16 momentum, 30 steps without a gradient leave 0.9^30: rounding has no bias. */
static void short_momentum_decays(void **state) {
    (void)state;
    static const char *const texts[] = {"muon-merged:momentum=0.9", "muon-merged:momentum=0.9,state=bf16"};
    for (size_t k = 0; k < 2; k++) {
        frug_optimizer *o = single_optimizer(texts[k], 32, 64), *exact = single_optimizer("muon:momentum=0.9", 32, 64);
        float *w = bell_array(D, 1), *x = bell_array(D, 1), g[D];
        for (uint64_t t = 0; t < 40; t++) {
            sparse_gradient(g, D, t, t < 10 ? 1 : 1u << 30);
            g[0] = 20; /* holds the scale of a block */
            OK(frug_optimizer_step(o, t, (frug_range){0, D}, g, 0.001, w));
            OK(frug_optimizer_step(exact, t, (frug_range){0, D}, g, 0.001, x));
        }
        double sum = 0, want = 0;
        for (size_t i = 256; i < D; i++) {
            double code =
                k ? (double)frugi_bf16_f32(((const uint16_t *)(void *)o->targets->code)[i])
                  : (double)(int8_t)o->targets->code[i] * (double)frugi_bf16_f32(o->targets->code_scale[i / 256]);
            double sign = ((const float *)(void *)exact->targets->code)[i] < 0 ? -1 : 1;
            sum += sign * code;
            want += fabs((double)((const float *)(void *)exact->targets->code)[i]);
        }
        if (!(fabs(sum / want - 1) < 0.05))
            fail_msg("%s: %g of %g", texts[k], sum, want);
        test_free(w);
        test_free(x);
        frug_optimizer_destroy(o);
        frug_optimizer_destroy(exact);
    }
}

/* ---- which tensors -------------------------------------------------------------------- */

typedef struct described {
    const char *name;
    frug_role role;
    uint64_t shape[4];
    bool body;
} described;

static void check_body(const described *tensors, size_t count) {
    frug_layout *layout = NULL;
    frug_optimizer *o = NULL;
    OK(frug_layout_create(&layout));
    for (size_t i = 0; i < count; i++) {
        frug_tensor t = FRUG_TENSOR_INIT;
        t.name = tensors[i].name;
        t.role = tensors[i].role;
        for (; t.ndim < 4 && tensors[i].shape[t.ndim]; t.ndim++)
            t.shape[t.ndim] = tensors[i].shape[t.ndim];
        OK(frug_layout_add(layout, &t));
    }
    OK(frug_optimizer_create("muon", layout, NULL, &o));
    for (size_t i = 0; i < count; i++)
        if (frug_optimizer_can_split(o, i) == tensors[i].body)
            fail_msg("%s is %staken", tensors[i].name, tensors[i].body ? "not " : "");
    frug_optimizer_destroy(o);
    frug_layout_destroy(layout);
}

static void embeddings_heads_and_vectors_are_left_to_adam(void **state) {
    (void)state;
    static const described gpt2[] = {
        {"wte", FRUG_ROLE_EMBEDDING, {300, 24}, false},     {"h.0.qkv.weight", FRUG_ROLE_ATTN_QKV, {72, 24}, true},
        {"h.0.o.weight", FRUG_ROLE_ATTN_O, {24, 24}, true}, {"h.0.up.weight", FRUG_ROLE_LINEAR, {96, 24}, true},
        {"h.0.up.bias", FRUG_ROLE_BIAS, {96}, false},       {"h.0.down.weight", FRUG_ROLE_LINEAR, {24, 96}, true},
        {"out.weight", FRUG_ROLE_LINEAR, {300, 24}, false}};
    static const described resnet[] = {{"stem", FRUG_ROLE_CONV, {16, 3, 3, 3}, true},
                                       {"stem.norm", FRUG_ROLE_NORM, {16}, false},
                                       {"stage.conv", FRUG_ROLE_CONV, {32, 16, 3, 3}, true},
                                       {"fc.weight", FRUG_ROLE_LINEAR, {10, 32}, false}};
    static const described roleless[] = {{"model.embed_tokens.weight", FRUG_ROLE_OTHER, {300, 24}, false},
                                         {"layers.0.qkv.weight", FRUG_ROLE_OTHER, {72, 24}, true},
                                         {"layers.1.qkv.weight", FRUG_ROLE_OTHER, {72, 24}, true},
                                         {"layers.1.up.weight", FRUG_ROLE_OTHER, {96, 24}, true},
                                         {"layers.1.down.weight", FRUG_ROLE_OTHER, {24, 96}, true},
                                         {"lm_head.weight", FRUG_ROLE_OTHER, {300, 24}, false},
                                         {"classes", FRUG_ROLE_OTHER, {5, 24}, false}};
    check_body(gpt2, sizeof gpt2 / sizeof *gpt2);
    check_body(resnet, sizeof resnet / sizeof *resnet);
    check_body(roleless, sizeof roleless / sizeof *roleless);
}

/* Tensors that are no targets move as adamw and adam-merged at gain times the rate. */
static void others_are_those_of_adam_at_the_same_rate(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"muon:targets=matrix", "adamw:beta2=0.95,decay=0.1"},
        {"muon-merged:targets=matrix,beta2=0.95", "adam-merged:beta2=0.95,decay=0.1"}};
    for (size_t k = 0; k < 2; k++) {
        frug_optimizer *o = optimizer_with_gaps(pairs[k][0], "min_size=100"),
                       *plain = optimizer_with_gaps(pairs[k][1], "min_size=100");
        float *w = bell_array(OPTIM_N, 2), *x = bell_array(OPTIM_N, 2), g[OPTIM_N];
        for (uint64_t t = 0; t < 9; t++) {
            sparse_gradient(g, OPTIM_N, t, 16);
            for (size_t i = 0; i < 740; i++) /* the blocks of roots have other numbers, and so other random ones */
                g[i] *= k == 0;
            OK(frug_optimizer_step(o, t, (frug_range){0, OPTIM_N}, g, 0.0078125, w));
            OK(frug_optimizer_step(plain, t, (frug_range){0, OPTIM_N}, g, 0.0078125 * frug_optimizer_gain(o, 1e-3), x));
        }
        assert_same_bits(w + OPTIM_BIAS, x + OPTIM_BIAS, 300 * sizeof *w);
        for (size_t i = OPTIM_BIG; i < OPTIM_N; i++)
            assert_true(fabsf(w[i] - x[i]) <= (k ? 0.02f : 0.0f)); /* int8 roots, rounded stochastically */
        assert_int_equal(frug_optimizer_can_split(o, 0), 0);
        assert_int_equal(frug_optimizer_can_split(o, 2), 1);
        test_free(w);
        test_free(x);
        frug_optimizer_destroy(o);
        frug_optimizer_destroy(plain);
    }
    /* What is sent dense has no residual, and no momentum in it. */
    frug_optimizer *o = optimizer_with_gaps("muon-merged:targets=all", "min_size=2000");
    assert_int_equal(frug_optimizer_can_split(o, 0), 1);
    assert_int_equal(frug_optimizer_can_split(o, 2), 0);
    frug_optimizer_destroy(o);
}

/* ---- states ----------------------------------------------------------------------------- */

static void run_steps(frug_optimizer *o, uint64_t from, uint64_t to, float *w) {
    float g[TUNE_N];
    for (uint64_t t = from; t < to; t++) {
        sparse_gradient(g, TUNE_N, t, 3);
        OK(frug_optimizer_step(o, t, (frug_range){0, TUNE_N}, g, 0.01, w));
    }
}

/* CRC-32C of weights and state after 9 steps on the machine of the first run (x86-64, gcc 12). */
static const uint32_t known_bits[EVERY_MUON] = {0xceaba6d7u, 0x80bcc02bu, 0x1efbad92u,
                                                0xae636b4du, 0x2f236baeu, 0x57a9e336u};

static void results_are_bit_identical_everywhere(void **state) {
    (void)state;
    for (size_t k = 0; k < EVERY_MUON; k++) {
        frug_optimizer *o = target_optimizer(every_muon[k]);
        float *w = bell_array(TUNE_N, 8);
        size_t len = 0;
        run_steps(o, 0, 9, w);
        unsigned char *bytes = save_optimizer(o, &len);
        uint32_t crc = frugi_crc32c(frugi_crc32c(0, w, TUNE_N * sizeof *w), bytes, len);
        if (crc != known_bits[k])
            fail_msg("%s: 0x%08x, not 0x%08x", every_muon[k], crc, known_bits[k]);
        test_free(bytes);
        test_free(w);
        frug_optimizer_destroy(o);
    }
}

/* Three threads, tensor by tensor from the last to the first, and a restart after five steps. */
static void threads_partitions_and_restarts_give_the_same_bits(void **state) {
    (void)state;
    static const uint64_t cuts[] = {0, Q_N, BIAS, V, K, MLP, TUNE_N};
    for (size_t k = 0; k < EVERY_MUON; k++) {
        char text[256];
        snprintf(text, sizeof text, "%s,threads=3", every_muon[k]);
        frug_optimizer *a = target_optimizer(every_muon[k]), *b = target_optimizer(text), *c = target_optimizer(text);
        float *w = bell_array(TUNE_N, 5), *x = bell_array(TUNE_N, 5), g[TUNE_N];
        size_t len = 0;
        run_steps(a, 0, 9, w);
        run_steps(b, 0, 5, x);
        unsigned char *bytes = save_optimizer(b, &len);
        OK(frug_optimizer_restore(c, bytes, len));
        for (uint64_t t = 5; t < 9; t++) {
            sparse_gradient(g, TUNE_N, t, 3);
            for (size_t i = sizeof cuts / sizeof *cuts - 1; i > 0; i--)
                OK(frug_optimizer_step(c, t, (frug_range){cuts[i - 1], cuts[i] - cuts[i - 1]}, g + cuts[i - 1], 0.01,
                                       x + cuts[i - 1]));
        }
        assert_same_bits(w, x, TUNE_N * sizeof *w);
        assert_same_bits(a->arena, c->arena, a->arena_bytes);
        test_free(bytes);
        test_free(w);
        test_free(x);
        frug_optimizer_destroy(a);
        frug_optimizer_destroy(b);
        frug_optimizer_destroy(c);
    }
}

/* q and v have 1200 elements, 5 blocks, k has 600, 3 blocks, mlp 320, 2 blocks of roots, and the bias 50. */
static void state_sizes_match_documentation(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {{"muon:targets=attention", 4 * 256 * 13 + 8 * (320 + 50)},
                 {"muon-merged:targets=attention", 258 * (2 + 1)},
                 {"muon-merged:targets=attention,momentum=0.9", 258 * 13 + 258 * (2 + 1)},
                 {"muon-merged:targets=attention,momentum=0.9,state=bf16", 512 * 13 + 512 * (2 + 1)}};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        frug_optimizer *o = target_optimizer(sizes[k].text);
        assert_int_equal(frug_optimizer_state_size(o), 40 + sizes[k].bytes);
        uint64_t before = 0, peak_before = 0, after = 0, peak = 0;
        float *w = bell_array(TUNE_N, 1);
        frug_memory(&before, &peak_before);
        run_steps(o, 0, 3, w);
        frug_memory(&after, &peak);
        assert_true(before == after && peak == peak_before);
        test_free(w);
        frug_optimizer_destroy(o);
    }
}

/* ---- invalid input ------------------------------------------------------------------------ */

/* Weights stay finite, states can be restored; a gradient of zeros lets weights decay. */
static void extreme_gradients_give_finite_states(void **state) {
    (void)state;
    static const float sizes[] = {0.0f, 1e-45f, 1e-25f, 1.09e12f, NAN};
    for (size_t k = 0; k < EVERY_MUON; k++)
        for (size_t n = 0; n < 5; n++) {
            frug_optimizer *o = target_optimizer(every_muon[k]);
            float *w = bell_array(TUNE_N, 6), *start = bell_array(TUNE_N, 6), g[TUNE_N];
            for (uint64_t t = 0; t < 6; t++) {
                for (size_t i = 0; i < TUNE_N; i++)
                    g[i] = (i * 7 + t) % 3 ? sizes[n] : -sizes[n];
                OK(frug_optimizer_step(o, t, (frug_range){0, TUNE_N}, g, 1e-4, w));
            }
            size_t len = 0;
            unsigned char *bytes = save_optimizer(o, &len);
            OK(frug_optimizer_restore(o, bytes, len));
            for (size_t i = 0; i < TUNE_N; i++)
                assert_true(isfinite(w[i]) && fabsf(w[i] - start[i]) < 0.1f);
            assert_int_equal(memcmp(w, start, Q_N * sizeof *w) == 0,
                             n == 4 || (n < 3 && strstr(every_muon[k], "decay=0") != NULL));
            test_free(bytes);
            test_free(w);
            test_free(start);
            frug_optimizer_destroy(o);
        }
}

static void check_forged_state(const char *text, size_t at, const void *patch, size_t size, frug_status want) {
    frug_optimizer *o = single_optimizer(text, 32, 64);
    float *w = bell_array(D, 6), g[D];
    size_t len = 0;
    sparse_gradient(g, D, 1, 3);
    OK(frug_optimizer_step(o, 0, (frug_range){0, D}, g, 0.01, w));
    unsigned char *bytes = save_optimizer(o, &len);
    memcpy(bytes + 40 + at, patch, size);
    memset(bytes + 12, 0, 4);
    uint32_t crc = frugi_crc32c(0, bytes, len);
    memcpy(bytes + 12, &crc, 4);
    if (frug_optimizer_restore(o, bytes, len) != want)
        fail_msg("%s, %zu: %s", text, at, frug_last_error());
    for (uint64_t t = 1; t < 4; t++)
        OK(frug_optimizer_step(o, t, (frug_range){0, D}, g, 0.01, w));
    for (size_t i = 0; i < D; i++)
        assert_true(isfinite(w[i]));
    unsigned char *after = save_optimizer(o, &len);
    OK(frug_optimizer_restore(o, after, len));
    test_free(after);
    test_free(bytes);
    test_free(w);
    frug_optimizer_destroy(o);
}

static void forged_states_are_refused(void **state) {
    (void)state;
    const float nan = NAN, large = 1e19f, too_large = 1e20f;
    const uint16_t inf = 0x7f80, negative_scale = 0x8000, scale = 0x5b80;
    check_forged_state("muon", 4, &nan, 4, FRUG_ERR_FORMAT);
    check_forged_state("muon", 4, &too_large, 4, FRUG_ERR_FORMAT);
    check_forged_state("muon", 4, &large, 4, FRUG_OK);
    check_forged_state("muon-merged:momentum=0.9,state=bf16", 2, &inf, 2, FRUG_ERR_FORMAT);
    check_forged_state("muon-merged:momentum=0.9", D, &negative_scale, 2, FRUG_ERR_FORMAT);
    check_forged_state("muon-merged:momentum=0.9", D, &inf, 2, FRUG_ERR_FORMAT);
    check_forged_state("muon-merged:momentum=0.9", D, &scale, 2, FRUG_OK);
}

static void invalid_options_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *why;
    } refusals[] = {
        {"muon:momentum=1", "config: bad value '1' of momentum at position 15; accepted: 0 to 0.999999"},
        {"muon:beta2=auto", "config: beta2=auto depends on the density and needs adam-merged or muon-merged"},
        {"muon:state=int8", "config: unknown option 'state' of muon"},
        {"muon:targets=nothing*", "config: targets=nothing* matches no tensor of two dimensions in this layout"},
        {"muon-merged:decay=0,decay_all=1", "config: decay_all=1 does nothing without decay"},
        {"muon-merged:others=frozen", "config: unknown option 'others' of muon-merged"},
    };
    frug_layout *layout = target_layout();
    for (size_t k = 0; k < sizeof refusals / sizeof *refusals; k++) {
        frug_optimizer *o = NULL;
        assert_int_equal(frug_optimizer_create(refusals[k].text, layout, NULL, &o), FRUG_ERR_CONFIG);
        if (!strstr(frug_last_error(), refusals[k].why))
            fail_msg("%s: %s", refusals[k].text, frug_last_error());
    }
    frug_layout_destroy(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_have_the_same_bits_in_every_variant),
        cmocka_unit_test(steps_on_the_gram_matrix_are_steps_on_the_matrix),
        cmocka_unit_test(rows_become_orthogonal),
        cmocka_unit_test(a_number_becomes_its_sign_nearly),
        cmocka_unit_test(steps_follow_the_formula),
        cmocka_unit_test(short_momentum_decays),
        cmocka_unit_test(embeddings_heads_and_vectors_are_left_to_adam),
        cmocka_unit_test(others_are_those_of_adam_at_the_same_rate),
        cmocka_unit_test(results_are_bit_identical_everywhere),
        cmocka_unit_test(threads_partitions_and_restarts_give_the_same_bits),
        cmocka_unit_test(state_sizes_match_documentation),
        cmocka_unit_test(extreme_gradients_give_finite_states),
        cmocka_unit_test(forged_states_are_refused),
        cmocka_unit_test(invalid_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
