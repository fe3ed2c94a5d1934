/*
 * test_block_topk.c - every variant of the block kernel gives the reference's bits.
 *
 * One table of distributions, run over all counts and batch sizes for several steps in a
 * row: each step starts from the residual of the previous one.
 */
#include "support/assertions.h"

#include "base/float_bits.h"
#include "feedback/residual_format.h"
#include "select/block_kernel.h"

#include <math.h>
#include <stdio.h>

#define LENGTH 4096u /* elements of the largest batch */
#define STEPS  4

static const uint32_t lengths[] = {64, 128, 256, 1024, 2048, 4096}; /* of blocks that have variants */
static uint32_t block;                                              /* the length in hand */

typedef float draw(uint32_t i, uint64_t *random);

static float bell(uint32_t i, uint64_t *random) {
    (void)i;
    return next_bell(random);
}

static float heavy_tailed(uint32_t i, uint64_t *random) {
    (void)i;
    float u = next_float(random);
    return u / (1e-3f + u * u * u * u);
}

static float few_values(uint32_t i, uint64_t *random) {
    (void)i;
    return (float)(int)(next_float(random) * 4);
}

static float all_equal(uint32_t i, uint64_t *random) {
    (void)i, (void)random;
    return 0.25f;
}

static float all_zero(uint32_t i, uint64_t *random) {
    (void)i, (void)random;
    return 0.0f;
}

static float sparse(uint32_t i, uint64_t *random) {
    float u = next_float(random);
    return i % 40 == i / block ? u : 0.0f;
}

static float denormal(uint32_t i, uint64_t *random) {
    (void)i;
    return ldexpf(next_float(random), -135);
}

static float tiny_and_normal(uint32_t i, uint64_t *random) {
    return ldexpf(next_float(random), i % 8 ? -140 : 0);
}

static float signed_zeros(uint32_t i, uint64_t *random) {
    return i % 9 ? (i % 2 ? -0.0f : 0.0f) : next_float(random);
}

static float huge(uint32_t i, uint64_t *random) {
    (void)i;
    return next_float(random) * 1.5e38f;
}

static float alternating(uint32_t i, uint64_t *random) {
    return (i % 2 ? -1.0f : 1.0f) * (1 + 1e-6f * next_float(random));
}

static float all_exponents(uint32_t i, uint64_t *random) {
    (void)i;
    return ldexpf(next_float(random), (int)(next_random(random) % 250) - 125);
}

static float ten_octaves(uint32_t i, uint64_t *random) {
    (void)i;
    return ldexpf(1 + next_float(random), -(int)(next_random(random) % 10));
}

static float large_adjacent_values(uint32_t i, uint64_t *random) {
    return next_float(random) * (i / 8 % 5 ? 0.01f : 1.0f);
}

static float rising(uint32_t i, uint64_t *random) {
    (void)random;
    return (float)(i % block);
}

static float with_nan(uint32_t i, uint64_t *random) {
    float u = next_bell(random);
    return i % 1201 == 0 ? NAN : u;
}

static float with_infinity(uint32_t i, uint64_t *random) {
    float u = next_bell(random);
    return i % 777 == 255 ? -INFINITY : u;
}

static float only_infinity(uint32_t i, uint64_t *random) {
    (void)random;
    return i / block % 2 ? INFINITY : 1.0f;
}

static const struct distribution {
    const char *name;
    draw *draw;
} distributions[] = {
    {"bell", bell},
    {"heavy-tailed", heavy_tailed},
    {"few values", few_values},
    {"all equal", all_equal},
    {"all zero", all_zero},
    {"sparse", sparse},
    {"denormal", denormal},
    {"tiny and normal", tiny_and_normal},
    {"signed zeros", signed_zeros},
    {"huge", huge},
    {"alternating", alternating},
    {"all exponents", all_exponents},
    {"ten octaves", ten_octaves},
    {"large neighbours", large_adjacent_values},
    {"rising", rising},
    {"with NaN", with_nan},
    {"with infinity", with_infinity},
    {"only infinity", only_infinity},
};

static const uint32_t counts[] = {0,   1,   2,   3,   4,   8,   12,  13,   15,   16,   17,   20,   23,   24,   25,
                                  31,  32,  33,  41,  63,  64,  65,  100,  127,  128,  129,  200,  248,  249,  255,
                                  256, 257, 300, 511, 512, 513, 900, 1023, 1024, 1025, 2047, 2048, 3000, 4095, 4096};

#define NDISTRIBUTIONS (sizeof distributions / sizeof *distributions)
#define NCOUNTS        (sizeof counts / sizeof *counts)
#define NLENGTHS       (sizeof lengths / sizeof *lengths)

/* What one variant works on. */
typedef struct side {
    const frugi_block_kernel *kernel;
    _Alignas(64) float residual[LENGTH];
    _Alignas(64) float saved[LENGTH];
    uint16_t idx[LENGTH];
    frugi_batch_scratch lanes;
    frugi_batch batch;
} side;

static void run(side *s, const float *grad, bool in_place, frugi_batch shape) {
    static float out[LENGTH];
    s->batch = shape;
    s->batch.grad = grad;
    s->batch.before = s->residual;
    s->batch.acc = in_place ? s->residual : out;
    s->batch.saved = in_place ? s->saved : NULL;
    s->batch.idx = s->idx;
    s->batch.lanes = &s->lanes;
    memset(s->idx, 0xff, sizeof s->idx);
    (shape.stored && s->kernel->accumulate_stored ? s->kernel->accumulate_stored : s->kernel->accumulate)(&s->batch);
    s->kernel->select(&s->batch);
    if (!in_place) {
        memcpy(s->saved, s->residual, sizeof s->saved);
        memcpy(s->residual, out, shape.blocks * block * sizeof *out);
    }
}

static void compare(const side *a, const side *b, const char *what) {
    size_t n = a->batch.blocks * block;
    if (memcmp(a->residual, b->residual, n * sizeof(float)))
        fail_msg("%s: the sums differ", what);
    for (uint32_t i = 0; i < a->batch.blocks; i++) {
        if (a->batch.skipped[i] != b->batch.skipped[i])
            fail_msg("%s: block %u is skipped by one only", what, i);
        if (a->batch.skipped[i] && memcmp(a->saved + block * i, b->saved + block * i, block * sizeof(float)))
            fail_msg("%s: block %u is skipped, and its residual was not saved", what, i);
        if (!a->batch.skipped[i] && memcmp(a->idx + block * i, b->idx + block * i, a->batch.k[i] * sizeof *a->idx))
            fail_msg("%s: block %u has other winners", what, i);
    }
}

/* The bitmap, if there is one, has the same entries as the list of indices. */
static void check_bitmap(const side *s, const char *what) {
    for (uint32_t i = 0; s->batch.bitmap && i < s->batch.blocks; i++) {
        const unsigned char *bits = s->batch.bitmap + i * (block / 8);
        uint32_t n = 0;
        for (uint32_t e = 0; e < block && !s->batch.skipped[i]; e++)
            if (bits[e / 8] >> (e % 8) & 1 && (n == s->batch.k[i] || s->idx[block * i + n++] != e))
                fail_msg("%s: element %u of block %u is in the bitmap only", what, e, i);
        if (!s->batch.skipped[i] && n != s->batch.k[i])
            fail_msg("%s: the bitmap of block %u has %u entries", what, i, n);
    }
}

/* Gather and scatter by the kernel, which may use the bitmap, equal those by indices. */
static void check_gather(const side *s, const char *what) {
    static float values[LENGTH + FRUGI_GATHER_SLACK], acc[LENGTH], expected[LENGTH];
    frugi_batch batch = s->batch;
    float *v = values;
    if (!batch.moves)
        return;
    memcpy(acc, s->residual, sizeof acc);
    memcpy(expected, s->residual, sizeof expected);
    batch.acc = acc;
    batch.moves->gather(&batch, values);
    for (uint32_t i = 0; i < batch.blocks; i++)
        for (uint32_t e = 0; e < batch.k[i]; e++, v++) {
            float *x = &expected[block * i + (batch.skipped[i] ? 0 : s->idx[block * i + e])];
            if (frugi_f32_bits(*v) != (batch.skipped[i] ? 0 : frugi_f32_bits(*x)))
                fail_msg("%s: value %u of block %u was gathered from elsewhere", what, e, i);
            *v += 1.5f;
            *x = batch.skipped[i] ? *x : *v;
        }
    batch.moves->scatter(&batch, values);
    if (memcmp(acc, expected, batch.blocks * block * sizeof *acc))
        fail_msg("%s: values were scattered to elsewhere", what);
}

/* What the caller of the kernel does with selected entries, and with a skipped block. */
static void clear_selected(side *s) {
    for (uint32_t i = 0; i < s->batch.blocks; i++) {
        float *x = s->residual + block * i;
        if (s->batch.skipped[i])
            memcpy(x, s->saved + block * i, block * sizeof *x);
        else
            for (uint32_t j = 0; j < s->batch.k[i]; j++)
                x[s->idx[block * i + j]] = 0.0f;
    }
}

static void compare_steps(side *ref, side *fast, const struct distribution *d, frugi_batch shape, bool in_place) {
    static float grad[LENGTH];
    uint64_t random = 77 + shape.blocks + 1000u * shape.k[0];
    memset(ref->residual, 0, sizeof ref->residual);
    memset(fast->residual, 0, sizeof fast->residual);
    for (int step = 0; step < STEPS; step++) {
        char what[128];
        snprintf(what, sizeof what, "%s, k %u, %u blocks, %s, step %d", d->name, shape.k[0], shape.blocks,
                 shape.select == FRUGI_SELECT_EXACT ? "exact" : "hist", step);
        for (uint32_t i = 0; i < LENGTH; i++)
            grad[i] = d->draw(i, &random);
        run(ref, grad, in_place, shape);
        run(fast, grad, in_place, shape);
        compare(ref, fast, what);
        check_bitmap(fast, what);
        check_gather(fast, what);
        clear_selected(ref);
        clear_selected(fast);
    }
}

/* Blocks of the largest batch. */
static uint32_t most_blocks(void) {
    return LENGTH / block < FRUGI_BATCH_BLOCKS ? LENGTH / block : FRUGI_BATCH_BLOCKS;
}

static frugi_batch make_shape(uint32_t k, uint32_t blocks, frugi_selector select) {
    frugi_batch shape = {.block = block, .blocks = blocks, .length = block, .beta = 0.9375f, .select = select};
    for (uint32_t i = 0; i < FRUGI_BATCH_BLOCKS; i++)
        shape.k[i] = k;
    return shape;
}

/* Runs `test` for every variant that this machine has. */
static void for_each_variant(void (*test)(side *ref, side *fast)) {
    static side ref, fast;
    for (frugi_isa isa = FRUGI_ISA_REF + 1; isa < FRUGI_ISA_COUNT; isa++)
        for (size_t i = 0; i < NLENGTHS && frugi_isa_runs(isa); i++) {
            block = lengths[i];
            ref.kernel = &frugi_block_kernel_ref;
            fast.kernel = frugi_block_kernel_for(isa, block);
            print_message("%s, blocks of %u\n", frugi_isa_name(isa), block);
            assert_ptr_not_equal(fast.kernel, ref.kernel);
            test(&ref, &fast);
        }
}

static void every_distribution_and_count(side *ref, side *fast) {
    for (size_t d = 0; d < NDISTRIBUTIONS; d++)
        for (size_t i = 0; i < NCOUNTS && counts[i] <= block; i++)
            for (int how = 0; how < 2; how++)
                compare_steps(ref, fast, &distributions[d],
                              make_shape(counts[i], most_blocks(), how ? FRUGI_SELECT_EXACT : FRUGI_SELECT_HIST),
                              i % 2 != 0);
}

static void every_batch_size(side *ref, side *fast) {
    for (uint32_t blocks = 1; blocks <= most_blocks(); blocks++)
        for (size_t d = 0; d < NDISTRIBUTIONS; d++)
            compare_steps(ref, fast, &distributions[d], make_shape(block / 16, blocks, FRUGI_SELECT_EXACT), true);
}

/* The scratch memory has the data of the last batch, or arbitrary bytes. */
static void mixed_counts_and_dirty_scratch(side *ref, side *fast) {
    uint64_t random = 5;
    for (int round = 0; round < 300; round++) {
        frugi_batch shape = make_shape(1, 1 + (uint32_t)(next_random(&random) % most_blocks()),
                                       round % 2 ? FRUGI_SELECT_EXACT : FRUGI_SELECT_HIST);
        uint32_t most = counts[next_random(&random) % NCOUNTS];
        most = most < block ? most : block;
        for (uint32_t i = 0; i < FRUGI_BATCH_BLOCKS; i++)
            shape.k[i] = (uint32_t)(next_random(&random) % (most + 1));
        if (round % 3 == 0)
            memset(&fast->lanes, round & 255, sizeof fast->lanes);
        compare_steps(ref, fast, &distributions[next_random(&random) % NDISTRIBUTIONS], shape, round % 2 == 0);
    }
}

/* A residual of random bytes, as it is stored, and as floats. */
typedef struct stored {
    frugi_residual format;
    unsigned char data[2 * LENGTH];
    uint16_t scale[FRUGI_BATCH_BLOCKS];
    float floats[LENGTH];
} stored;

static void draw_stored(stored *r, frugi_residual format, uint64_t *random) {
    const frugi_residual_kernel *load = &frugi_residual_kernel_ref;
    r->format = format;
    for (uint32_t i = 0; i < sizeof r->data; i++)
        r->data[i] = (unsigned char)next_random(random);
    for (uint32_t i = 0; i < LENGTH; i++)
        r->data[2 * i + 1] &= format == FRUGI_RESIDUAL_BF16 ? 0xbf : 0xff; /* finite */
    for (uint32_t b = 0; b < LENGTH / block && b < FRUGI_BATCH_BLOCKS; b++) {
        float *floats = r->floats + b * block, scale;
        r->scale[b] =
            (uint16_t)(FRUGI_STORE_MIN_SCALE + next_random(random) % (FRUGI_STORE_CLAMP_SCALE - FRUGI_STORE_MIN_SCALE));
        scale = frugi_bf16_f32(r->scale[b]);
        if (format == FRUGI_RESIDUAL_BF16)
            load->load_bf16(r->data + 2 * b * block, block, floats);
        else if (format == FRUGI_RESIDUAL_INT8)
            load->load_int8(r->data + b * block, block, scale, floats);
        else
            load->load_int4(r->data + b * block / 2, block, scale, floats);
    }
}

static void every_stored_format(side *ref, side *fast) {
    static const frugi_residual formats[] = {FRUGI_RESIDUAL_BF16, FRUGI_RESIDUAL_INT8, FRUGI_RESIDUAL_INT4};
    static float grad[LENGTH];
    static stored r;
    uint64_t random = 6;
    for (int round = 0; fast->kernel->accumulate_stored && round < 300; round++) {
        const struct distribution *d = &distributions[next_random(&random) % NDISTRIBUTIONS];
        uint32_t k = counts[next_random(&random) % NCOUNTS] % (block + 1);
        frugi_batch shape = make_shape(k, most_blocks(), FRUGI_SELECT_EXACT);
        draw_stored(&r, formats[round % 3], &random);
        shape.format = r.format;
        shape.stored = r.data;
        shape.scale = r.scale;
        memcpy(ref->residual, r.floats, sizeof r.floats);
        memcpy(fast->residual, r.floats, sizeof r.floats);
        for (uint32_t i = 0; i < LENGTH; i++)
            grad[i] = d->draw(i, &random);
        run(ref, grad, false, shape);
        run(fast, grad, false, shape);
        compare(ref, fast, d->name);
    }
}

static void variants_agree_on_every_distribution_and_count(void **state) {
    (void)state;
    for_each_variant(every_distribution_and_count);
}

static void variants_agree_on_every_batch_size(void **state) {
    (void)state;
    for_each_variant(every_batch_size);
}

static void variants_accumulate_every_stored_format(void **state) {
    (void)state;
    for_each_variant(every_stored_format);
}

static void variants_agree_on_mixed_counts_with_dirty_scratch(void **state) {
    (void)state;
    for_each_variant(mixed_counts_and_dirty_scratch);
}

/* A batch of zeros with one value: whether its block, and no other, is skipped. */
static bool is_skipped(side *s, uint32_t at, float value) {
    static float grad[LENGTH];
    memset(s->residual, 0, sizeof s->residual);
    memset(grad, 0, sizeof grad);
    grad[at] = value;
    run(s, grad, true, make_shape(16, most_blocks(), FRUGI_SELECT_EXACT));
    for (uint32_t i = 0; i < most_blocks(); i++)
        assert_true(i == at / block || !s->batch.skipped[i]);
    return s->batch.skipped[at / block];
}

static void check_skipped(side *s) {
    uint32_t last = (most_blocks() - 1) * block;
    assert_true(is_skipped(s, 0, NAN));
    assert_true(is_skipped(s, last + block - 1, -INFINITY));
    assert_false(is_skipped(s, last + 50, 3.4e38f));
    assert_int_equal(s->idx[last + 15], 50);
}

/* Check that some blocks are skipped at all; otherwise the table above proves nothing about them. */
static void only_blocks_with_nan_or_infinity_are_skipped(void **state) {
    (void)state;
    static side s;
    for (frugi_isa isa = FRUGI_ISA_REF; isa < FRUGI_ISA_COUNT; isa++)
        for (size_t i = 0; i < NLENGTHS && frugi_isa_runs(isa); i++) {
            block = lengths[i];
            s.kernel = frugi_block_kernel_for(isa, block);
            check_skipped(&s);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_agree_on_every_distribution_and_count),
        cmocka_unit_test(variants_agree_on_every_batch_size),
        cmocka_unit_test(variants_agree_on_mixed_counts_with_dirty_scratch),
        cmocka_unit_test(variants_accumulate_every_stored_format),
        cmocka_unit_test(only_blocks_with_nan_or_infinity_are_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
