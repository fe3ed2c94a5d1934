/*
 * test_optim_state.c - state of optimizers: storage of roots, sizes, save and restore, damaged and forged bytes. Then
 * the text: every kind, and invalid text.
 */
#include "optim/optim_helpers.h"

#include "base/float_bits.h"
#include "base/crc32c.h"
#include "base/philox.h"
#include "optim/optimizer.h"

#include <math.h>
#include <stdio.h>

#define B 256u

/* ---- stored roots ---------------------------------------------------------- */

/* Roots over `decades` orders of magnitude, some of them 0. */
static void make_roots(float *root, uint64_t seed, double decades) {
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (uint32_t i = 0; i < B; i++) {
        double u = (double)next_float(&state);
        root[i] = i % 7 == 3 ? 0 : (float)pow(10, decades * (u - 1) / 2);
    }
}

/*
 * The error of a stored root is at most the scale, which is the block's largest root over 254, plus up to 1/128 because
 * it is a bf16; the error of bf16 is 1/128 of the root. A nonzero root does not become 0.
 */
static void stored_roots_are_close_and_nonzero(void **state) {
    (void)state;
    static const char *const texts[] = {"adam-merged:state=int8", "adam-merged:state=bf16", "adam-merged:state=f32"};
    for (size_t k = 0; k < 3; k++) {
        frug_optimizer *o = flat_optimizer(texts[k], B);
        for (uint64_t seed = 0; seed < 200; seed++) {
            float root[B], back[B], largest = 0;
            make_roots(root, seed, (double)(seed % 40));
            for (uint32_t i = 0; i < B; i++)
                largest = root[i] > largest ? root[i] : largest;
            frugi_roots_save(o, 0, root, frugi_random(1, seed, 0));
            frugi_roots_load(o, 0, back);
            for (uint32_t i = 0; i < B; i++) {
                float unit = k == 0 ? largest / 254 * (1 + 0x1p-7f) : k == 1 ? root[i] * 0x1p-7f : 0;
                assert_true(fabsf(back[i] - root[i]) <= unit * (1 + 1e-5f) + 1e-38f);
                assert_int_equal(back[i] > 0, root[i] > 0);
            }
        }
        frug_optimizer_destroy(o);
    }
}

/* The smallest roots stay positive, too. */
static void tiny_roots_stay_positive(void **state) {
    (void)state;
    static const float tiny[] = {1e-45f, 1e-40f, 1e-37f, 1e-33f, 1e-30f};
    frug_optimizer *o = flat_optimizer("adam-merged:state=int8", B);
    for (size_t k = 0; k < sizeof tiny / sizeof *tiny; k++) {
        float root[B] = {0}, back[B];
        root[5] = tiny[k];
        root[6] = tiny[k] / 4;
        frugi_roots_save(o, 0, root, 12345);
        frugi_roots_load(o, 0, back);
        for (uint32_t i = 0; i < B; i++)
            assert_int_equal(back[i] > 0, root[i] > 0);
    }
    frug_optimizer_destroy(o);
}

/*
 * Roots decay without entries, though codes are coarse: next to an entry that arrives at every step, the mean root of
 * 100 others after 60 steps without is near the exact one, 0.95^30 = 0.215 of its start. (Rounded up or to nearest,
 * they would not change.) The standard error is about 1 % of it; 10 % are allowed.
 */
static void roots_decay_without_entries(void **state) {
    (void)state;
    frug_optimizer *o = flat_optimizer("adam-merged:state=int8,beta2=0.95,decay=0", B);
    float w[B] = {0}, g[B] = {0}, before[B], after[B];
    for (uint64_t t = 0; t < 100; t++) {
        g[0] = 1;
        for (uint32_t i = 1; i <= 100; i++)
            g[i] = t < 40 ? 0.1f : 0;
        if (t == 40)
            frugi_roots_load(o, 0, before);
        OK(frug_optimizer_step(o, t, (frug_range){0, B}, g, 1e-3, w));
    }
    frugi_roots_load(o, 0, after);
    double sum_before = 0, sum_after = 0;
    for (uint32_t i = 1; i <= 100; i++) {
        sum_before += (double)before[i];
        sum_after += (double)after[i];
    }
    assert_true(fabs(sum_after / sum_before / pow(0.95, 30) - 1) < 0.1);
    assert_true(fabs(sum_before / 100 / (0.1 * sqrt(1 - pow(0.95, 40))) - 1) < 0.02);
    frug_optimizer_destroy(o);
}

/* ---- sizes, save and restore ----------------------------------------------- */

/* Bytes per parameter of a large tensor, without the header. */
static void state_sizes_match_documentation(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double bytes;
    } want[] = {{"sgd:momentum=0", 0},
                {"sgd", 4},
                {"adamw", 8},
                {"sign", 0},
                {"merged", 0},
                {"merged:inertia=0.5", 4},
                {"adam-merged:inertia=0.5", 5 + 2.0 / B},
                {"adam-merged", 1 + 2.0 / B},
                {"adam-merged:state=bf16", 2},
                {"adam-merged:state=f32", 4},
                {"microadam", 10 * (16 * 3 + 1.0) / B},
                {"microadam:window=10,entries=4", 10 * (4 * 3 + 1.0) / B},
                {"microadam:window=5,entries=8,state=f32", 5 * (8 * 5 + 1.0) / B}};
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        frug_optimizer *o = flat_optimizer(want[k].text, 100 * B);
        assert_true(frug_optimizer_state_size(o) == 40 + (size_t)(want[k].bytes * 100 * B + 0.5));
        frug_optimizer_destroy(o);
    }
    frug_optimizer *o =
        optimizer_with_gaps("adam-merged", "min_size=100"); /* 3 + 12 blocks; the bias has two floats each */
    assert_int_equal(frug_optimizer_state_size(o), 40 + 15 * (B + 2) + 300 * 8);
    frug_optimizer_destroy(o);
}

static void run_steps(frug_optimizer *o, uint64_t from, uint64_t to, float *w) {
    float g[OPTIM_N];
    for (uint64_t t = from; t < to; t++) {
        sparse_gradient(g, OPTIM_N, t, 16);
        OK(frug_optimizer_step(o, t, (frug_range){0, OPTIM_N}, g, 0.01, w));
    }
}

static void restored_state_continues_bit_for_bit(void **state) {
    (void)state;
    for (size_t k = 0; k < EVERY_OPTIMIZER; k++) {
        frug_optimizer *a = optimizer_with_gaps(every_optimizer[k], "min_size=100");
        float *w = bell_array(OPTIM_N, 2), *x = bell_array(OPTIM_N, 2);
        size_t len = 0;
        run_steps(a, 0, 30, w);
        frug_optimizer *b = optimizer_with_gaps(frug_optimizer_text(a), "min_size=100");
        run_steps(b, 0, 3, x); /* its state is replaced */
        memcpy(x, w, OPTIM_N * sizeof *x);
        unsigned char *bytes = save_optimizer(a, &len);
        OK(frug_optimizer_restore(b, bytes, len));
        run_steps(a, 30, 50, w);
        run_steps(b, 30, 50, x);
        assert_same_bits(w, x, OPTIM_N * sizeof *w);
        assert_int_equal(frug_optimizer_save(a, bytes, len - 1, &len), FRUG_ERR_SHORT_BUFFER);
        test_free(bytes);
        test_free(w);
        test_free(x);
        frug_optimizer_destroy(a);
        frug_optimizer_destroy(b);
    }
}

/* ---- damaged and forged states --------------------------------------------- */

static void write_checksum(unsigned char *state, size_t len) {
    frugi_put32(state + 12, 0);
    frugi_put32(state + 12, frugi_crc32c(0, state, len));
}

/* Refused, and the optimizer does not change. */
static void assert_refused(frug_optimizer *o, const unsigned char *bytes, size_t len, frug_status why) {
    size_t before_len = 0, after_len = 0;
    unsigned char *before = save_optimizer(o, &before_len);
    assert_int_equal(frug_optimizer_restore(o, bytes, len), why);
    unsigned char *after = save_optimizer(o, &after_len);
    assert_memory_equal(before, after, before_len);
    test_free(before);
    test_free(after);
}

static void damaged_states_are_refused(void **state) {
    (void)state;
    frug_optimizer *o = flat_optimizer("adam-merged", 300);
    float w[300] = {0}, g[300];
    size_t len = 0;
    sparse_gradient(g, 300, 1, 2);
    OK(frug_optimizer_step(o, 0, (frug_range){0, 300}, g, 0.1, w));
    unsigned char *bytes = save_optimizer(o, &len);
    for (size_t cut = 0; cut < len; cut++)
        assert_int_not_equal(frug_optimizer_restore(o, bytes, cut), FRUG_OK);
    for (size_t bit = 0; bit < 8 * len; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(frug_optimizer_restore(o, bytes, len), FRUG_OK);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    bytes[4] = 2;
    assert_refused(o, bytes, len, FRUG_ERR_VERSION);
    bytes[4] = 1;
    OK(frug_optimizer_restore(o, bytes, len));
    static const char *const others[] = {"adamw", "adam-merged:state=bf16", "microadam", "sgd:momentum=0"};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        frug_optimizer *p = flat_optimizer(others[k], 300);
        assert_refused(p, bytes, len, FRUG_ERR_MISMATCH);
        frug_optimizer_destroy(p);
    }
    frug_optimizer *p = flat_optimizer("adam-merged", 301);
    assert_refused(p, bytes, len, FRUG_ERR_MISMATCH);
    frug_optimizer_destroy(p);
    test_free(bytes);
    frug_optimizer_destroy(o);

    /* The same layout and text, but other tensors are dense. */
    o = optimizer_with_gaps("merged", "min_size=100");
    p = optimizer_with_gaps("merged", "min_size=2000");
    bytes = save_optimizer(o, &len);
    assert_int_not_equal(frug_optimizer_restore(p, bytes, len), FRUG_OK);
    test_free(bytes);
    frug_optimizer_destroy(o);
    frug_optimizer_destroy(p);
}

typedef struct forgery {
    const char *text;
    size_t at; /* after the header */
    uint32_t bits;
    int bytes; /* of bits */
} forgery;

/* 300 elements, two blocks: states that no step can produce, with a valid checksum. */
static const forgery forgeries[] = {
    {"sgd", 4 * 7, 0x7fc00000u, 4},                     /* a NaN */
    {"sgd", 4 * 299, 0xff800000u, 4},                   /* an infinity */
    {"adamw", 4 * 299, 0x7f800000u, 4},                 /* in the mean */
    {"adamw", 4 * 300, 0xbf800000u, 4},                 /* a negative square */
    {"adamw", 4 * 599, 0x7f800001u, 4},                 /* a NaN as the last square */
    {"adam-merged", 512, 0x8001u, 2},                   /* a negative scale */
    {"adam-merged", 514, 0x7f80u, 2},                   /* an infinite one */
    {"adam-merged:state=bf16", 2 * 5, 0x7fc0u, 2},      /* a NaN */
    {"adam-merged:state=f32", 4 * 511, 0x7f000000u, 4}, /* a root whose square is infinite */
};

static void forged_states_are_refused(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof forgeries / sizeof *forgeries; k++) {
        const forgery *f = &forgeries[k];
        frug_optimizer *o = flat_optimizer(f->text, 300);
        size_t len = 0;
        unsigned char *bytes = save_optimizer(o, &len);
        for (int i = 0; i < f->bytes; i++)
            bytes[40 + f->at + (size_t)i] = (unsigned char)(f->bits >> (8 * i));
        write_checksum(bytes, len);
        assert_refused(o, bytes, len, FRUG_ERR_FORMAT);
        test_free(bytes);
        frug_optimizer_destroy(o);
    }
}

typedef struct forged_list {
    size_t list; /* 0 and 1 of the first block, 2 and 3 of the second, which has 44 elements */
    unsigned char count, index[4];
    uint16_t value[4];
    frug_status want;
} forged_list;

/* With capacity 4: 4 lists of values (2 bytes each), then of indices, then 4 counts. */
static const forged_list forged_lists[] = {
    {0, 2, {3, 9}, {0x3f80, 0xbf80}, FRUG_OK},
    {3, 1, {43}, {0x3f80}, FRUG_OK},
    {1, 4, {0, 1, 2, 255}, {0x5f00, 0, 0x8000, 0xdf00}, FRUG_OK},
    {3, 1, {44}, {0x3f80}, FRUG_ERR_FORMAT},           /* after the end of the tensor */
    {0, 5, {1, 2, 3, 4}, {0}, FRUG_ERR_FORMAT},        /* more than the capacity */
    {0, 255, {1, 2, 3, 4}, {0}, FRUG_ERR_FORMAT},      /* likewise */
    {2, 2, {7, 7}, {0x3f80, 0x3f80}, FRUG_ERR_FORMAT}, /* twice */
    {2, 3, {1, 9, 3}, {0x3f80}, FRUG_ERR_FORMAT},      /* not ascending */
    {1, 1, {0}, {0x7f80}, FRUG_ERR_FORMAT},            /* an infinity */
    {1, 2, {0, 1}, {0x3f80, 0xffc0}, FRUG_ERR_FORMAT}, /* a NaN */
    {1, 1, {0}, {0x5f80}, FRUG_ERR_FORMAT},            /* a gradient that would have been skipped */
};

static void forged_windows_are_refused(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof forged_lists / sizeof *forged_lists; k++) {
        const forged_list *f = &forged_lists[k];
        frug_optimizer *o = flat_optimizer("microadam:window=2,entries=4", 300);
        float w[300] = {0}, g[300] = {0};
        size_t len = 0;
        unsigned char *bytes = save_optimizer(o, &len);
        assert_int_equal(len, 40 + 52);
        memcpy(bytes + 40 + 8 * f->list, f->value, 8);
        memcpy(bytes + 40 + 32 + 4 * f->list, f->index, 4);
        bytes[40 + 48 + f->list] = f->count;
        write_checksum(bytes, len);
        if (f->want == FRUG_OK)
            OK(frug_optimizer_restore(o, bytes, len));
        else
            assert_refused(o, bytes, len, f->want);
        OK(frug_optimizer_step(o, 1, (frug_range){0, 300}, g, 0.1, w));
        test_free(bytes);
        frug_optimizer_destroy(o);
    }
}

/* ---- the text --------------------------------------------------------------- */

/* Large enough for the defaults of every kind. */
static frug_optimizer *large_optimizer(const char *text) {
    frug_layout *layout = NULL;
    frug_optimizer *o = NULL;
    frug_tensor t = FRUG_TENSOR_INIT;
    t.name = "q";
    t.role = FRUG_ROLE_ATTN_Q;
    t.ndim = 2;
    t.shape[0] = t.shape[1] = 128;
    OK(frug_layout_create(&layout));
    OK(frug_layout_add(layout, &t));
    if (frug_optimizer_create(text, layout, NULL, &o) != FRUG_OK)
        fail_msg("%s: %s", text, frug_last_error());
    frug_layout_destroy(layout);
    return o;
}

static void every_kind_prints_all_options(void **state) {
    (void)state;
    const frug_optimizer_kind *kind;
    size_t kinds = 0;
    for (; (kind = frug_optimizer_at(kinds)); kinds++) {
        char want[512];
        snprintf(want, sizeof want, "%s:%s", kind->name, kind->options);
        char *settled = strstr(want, "beta2=auto"); /* the text has the resolved number */
        if (settled)
            memcpy(settled, "beta2=0.99", strlen("beta2=0.99"));
        frug_optimizer *o = large_optimizer(kind->name);
        assert_string_equal(frug_optimizer_text(o), want);
        assert_true(strlen(kind->help) > 0);
        frug_optimizer_destroy(o);
    }
    assert_int_equal(kinds, 15);
    frug_optimizer *o = flat_optimizer("sgd:decay=0.1,momentum=0.5,momentum=0.8", 10); /* the last one counts */
    assert_string_equal(frug_optimizer_text(o), "sgd:momentum=0.8,nesterov=0,coupled=0,decay=0.1,decay_all=0");
    frug_optimizer_destroy(o);
}

/* docs/optimizers.md has a row for every kind, with its default options. */
static void documentation_lists_every_kind(void **state) {
    (void)state;
    static char page[1 << 16];
    FILE *file = fopen(FRUG_TEST_DIR "/../docs/optimizers.md", "r");
    assert_non_null(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    const frug_optimizer_kind *kind;
    for (size_t i = 0; (kind = frug_optimizer_at(i)); i++) {
        char row[512];
        snprintf(row, sizeof row, "| `%s` | `%s` |", kind->name, kind->options);
        if (!strstr(page, row))
            fail_msg("docs/optimizers.md has no row '%s'", row);
    }
}

static const struct {
    const char *text, *why;
} refusals[] = {
    {"", "config: unknown optimizer '' at position 1; accepted: sgd adamw merged adam-merged microadam "
         "sgc mesgc cesgc table lora galore apollo sign muon muon-merged"},
    {"sdg", "config: unknown optimizer 'sdg' at position 1; did you mean 'sgd'?"},
    {"adamw ", "config: byte 0x20 at position 6 is not allowed"},
    {"sgd:", "config: option=value expected at position 5"},
    {"sgd:decay=0.1,", "config: option=value expected at position 15"},
    {"sgd:momentun=0.9", "config: unknown option 'momentun' of sgd at position 5; did you mean 'momentum'?"},
    {"adamw:momentum=0.9", "config: unknown option 'momentum' of adamw at position 7; accepted: beta1 beta2 eps decay "
                           "decay_all"},
    {"sgd:momentum", "config: option 'momentum' at position 5 needs a value; accepted: 0 to 0.999999"},
    {"sgd:momentum=1", "config: bad value '1' of momentum at position 14; accepted: 0 to 0.999999"},
    {"sgd:momentum=nan", "config: bad value 'nan' of momentum at position 14; accepted: 0 to 0.999999"},
    {"sgd:nesterov=2", "config: bad value '2' of nesterov at position 14; accepted: 0 or 1"},
    {"sgd:nesterov=1,momentum=0", "config: nesterov=1 needs a momentum"},
    {"sgd:coupled=1", "config: coupled=1 does nothing without decay"},
    {"merged:decay_all=1", "config: decay_all=1 does nothing without decay"},
    {"adamw:eps=0", "config: bad value '0' of eps at position 11; accepted: 1e-30 to 1"},
    {"merged:gain=-1",
     "config: bad value '-1' of gain at position 13; accepted: auto, 1e-6 to 1e6; adam-merged also finetune"},
    {"adam-merged:state=int9", "config: unknown value 'int9' of state at position 19; did you mean 'int8'?"},
    {"microadam:state=int8", "config: microadam has no state=int8; accepted: f32 bf16"},
    {"microadam:window=65", "config: bad value '65' of window at position 18; accepted: 1 to 64"},
    {"microadam:entries=256", "config: bad value '256' of entries at position 19; accepted: 1 to 255"},
};

static void invalid_text_is_refused_by_name(void **state) {
    (void)state;
    frug_layout *layout = layout_with_gaps();
    for (size_t k = 0; k < sizeof refusals / sizeof *refusals; k++) {
        frug_optimizer *o = NULL;
        assert_int_equal(frug_optimizer_create(refusals[k].text, layout, NULL, &o), FRUG_ERR_CONFIG);
        assert_string_equal(frug_last_error(), refusals[k].why);
        assert_null(o);
    }
    char lengthy[600];
    memset(lengthy, 'x', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = 0;
    frug_optimizer *o = NULL;
    assert_int_equal(frug_optimizer_create(lengthy, layout, NULL, &o), FRUG_ERR_CONFIG);
    assert_int_equal(frug_optimizer_create(NULL, layout, NULL, &o), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_create("sgd", NULL, NULL, &o), FRUG_ERR_ARG);
    assert_int_equal(frug_optimizer_create("sgd", layout, NULL, NULL), FRUG_ERR_ARG);
    frug_layout_destroy(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_roots_are_close_and_nonzero),
        cmocka_unit_test(tiny_roots_stay_positive),
        cmocka_unit_test(roots_decay_without_entries),
        cmocka_unit_test(state_sizes_match_documentation),
        cmocka_unit_test(restored_state_continues_bit_for_bit),
        cmocka_unit_test(damaged_states_are_refused),
        cmocka_unit_test(forged_states_are_refused),
        cmocka_unit_test(forged_windows_are_refused),
        cmocka_unit_test(every_kind_prints_all_options),
        cmocka_unit_test(documentation_lists_every_kind),
        cmocka_unit_test(invalid_text_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
