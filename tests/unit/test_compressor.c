/* test_compressor.c - what a compressor promises, checked from outside. */
#include "base/hash.h"
#include "support/assertions.h"

#include <math.h>
#include <stdio.h>

#define N 20011u /* not a multiple of any block length: tails are part of every test */

static const char *const blocks[] = {"64", "128", "256", "1024", "4096"};
static const char *const values[] = {"f32", "bf16", "f16", "int8"};
static const char *const selectors[] = {"exact", "hist"};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static frug_layout *make_flat_layout(uint64_t n) {
    frug_layout *layout = NULL;
    OK(frug_layout_flat(n, &layout));
    return layout;
}

/* I1: what is sent plus the residual is the accumulator, bit for bit, for every code and block length. */
static void check_sent_plus_residual(const char *config, float beta) {
    frug_layout *layout = make_flat_layout(N);
    frug_compressor *c = make_compressor(config, layout, NULL);
    float *before = test_calloc(N, sizeof(float)), *after = test_calloc(N, sizeof(float));
    float *sent = test_calloc(N, sizeof(float));
    for (uint64_t step = 0; step < 4; step++) {
        float *grad = bell_array(N, step + 1);
        size_t len;
        unsigned char *frame = compress_range(c, step, 0, N, grad, &len);
        restore_range(c, frame, len, 0, N, sent);
        OK(frug_compressor_get_residual(c, (frug_range){0, N}, after));
        for (size_t i = 0; i < N; i++) {
            float acc = beta * before[i] + grad[i];
            if (sent[i] + after[i] != acc)
                fail_msg("%s step %d element %zu: %a + %a is not %a", config, (int)step, i, (double)sent[i],
                         (double)after[i], (double)acc);
        }
        memcpy(before, after, N * sizeof(float));
        test_free(frame);
        test_free(grad);
    }
    test_free(before);
    test_free(after);
    test_free(sent);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

static void sent_plus_residual_is_the_accumulator_bit_for_bit(void **state) {
    (void)state;
    for (size_t b = 0; b < COUNT(blocks); b++)
        for (size_t v = 0; v < COUNT(values); v++)
            for (size_t s = 0; s < COUNT(selectors); s++) {
                char config[128];
                snprintf(config, sizeof config, "residual=f32,block=%s,value=%s,select=%s,density=0.06", blocks[b],
                         values[v], selectors[s]);
                check_sent_plus_residual(config, 0.95f);
            }
    check_sent_plus_residual("residual=f32,value=bf16,feedback=plain,density=0.4,index=bitmap", 1.0f);
    check_sent_plus_residual("residual=f32,value=int8,feedback=merged,beta=0.5,density=1", 0.5f);
}

/* I2: over many steps without decay, everything sent plus the residual is the sum of all gradients. */
static void sent_plus_residual_is_conserved_over_many_steps(void **state) {
    (void)state;
    frug_layout *layout = make_flat_layout(N);
    frug_compressor *c = make_compressor("feedback=plain,residual=f32,value=bf16", layout, NULL);
    double *in = test_calloc(N, sizeof(double)), *out = test_calloc(N, sizeof(double));
    float *sent = test_calloc(N, sizeof(float));
    for (uint64_t step = 0; step < 50; step++) {
        float *grad = bell_array(N, step + 1);
        size_t len;
        unsigned char *frame = compress_range(c, step, 0, N, grad, &len);
        restore_range(c, frame, len, 0, N, sent);
        for (size_t i = 0; i < N; i++) {
            in[i] += (double)grad[i];
            out[i] += (double)sent[i];
        }
        test_free(frame);
        test_free(grad);
    }
    OK(frug_compressor_get_residual(c, (frug_range){0, N}, sent));
    for (size_t i = 0; i < N; i++)
        assert_true(fabs(out[i] + (double)sent[i] - in[i]) <= 1e-5);
    test_free(in);
    test_free(out);
    test_free(sent);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

/* I3: with everything sent as f32, a step is dense SGD with the sum in rank order. */
static void full_density_is_dense_sgd(void **state) {
    (void)state;
    enum { P = 3 };
    frug_layout *layout = make_flat_layout(N);
    float *grad[P], *weights = bell_array(N, 77), *expect = bell_array(N, 77);
    unsigned char *frame[P];
    const void *frames[P];
    size_t lens[P];
    frug_compressor *c[P];
    for (int p = 0; p < P; p++) {
        c[p] = make_compressor("dense,feedback=merged,residual=f32", layout, NULL);
        grad[p] = bell_array(N, (uint64_t)p + 5);
        frame[p] = compress_range(c[p], 0, 0, N, grad[p], &lens[p]);
        frames[p] = frame[p];
    }
    OK(frug_decode_apply(frug_compressor_decoder(c[0]), (frug_range){0, N}, frames, lens, P, 0.01f, 0.0f, weights));
    for (size_t i = 0; i < N; i++)
        expect[i] = expect[i] - 0.01f * ((grad[0][i] + grad[1][i]) + grad[2][i]);
    assert_same_bits(weights, expect, N * sizeof(float));
    OK(frug_decode_apply(frug_compressor_decoder(c[1]), (frug_range){0, N}, frames, lens, P, 0.01f, 0.125f, weights));
    for (size_t i = 0; i < N; i++)
        expect[i] = expect[i] * 0.875f - 0.01f * ((grad[0][i] + grad[1][i]) + grad[2][i]);
    assert_same_bits(weights, expect, N * sizeof(float));
    for (int p = 0; p < P; p++) {
        frug_compressor_destroy(c[p]);
        test_free(grad[p]);
        test_free(frame[p]);
    }
    test_free(weights);
    test_free(expect);
    frug_layout_destroy(layout);
}

/* I4: P identical workers, averaged, are one worker. */
static void identical_workers_give_the_result_of_one(void **state) {
    (void)state;
    enum { P = 4 };
    frug_layout *layout = make_flat_layout(N);
    frug_compressor *c = make_compressor("frugrad", layout, NULL);
    float *grad = bell_array(N, 9), *one = bell_array(N, 10), *four = bell_array(N, 10);
    size_t lens[P];
    unsigned char *frame = compress_range(c, 0, 0, N, grad, &lens[0]);
    const void *frames[P] = {frame, frame, frame, frame};
    lens[1] = lens[2] = lens[3] = lens[0];
    OK(frug_decode_apply(frug_compressor_decoder(c), (frug_range){0, N}, frames, lens, 1, 0.5f, 0.0f, one));
    OK(frug_decode_apply(frug_compressor_decoder(c), (frug_range){0, N}, frames, lens, P, 0.5f / P, 0.0f, four));
    assert_same_bits(one, four, N * sizeof(float));
    test_free(grad);
    test_free(one);
    test_free(four);
    test_free(frame);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

/* Run some steps of a config and hash all frames together. */
static uint64_t fingerprint(const char *config, uint64_t n, int threads, int steps, int in_buckets) {
    frug_layout *layout = make_flat_layout(n);
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = threads;
    options.total_steps = (uint64_t)steps;
    frug_compressor *c = make_compressor(config, layout, &options);
    float *sent = test_calloc(n, sizeof(float));
    uint64_t hash = FRUGI_HASH_INIT;
    for (uint64_t step = 0; step < (uint64_t)steps; step++) {
        float *grad = bell_array(n, step + 1);
        memset(sent, 0, n * sizeof *sent);
        uint64_t bucket = in_buckets ? 8192 : n;
        for (uint64_t at = 0; at < n; at += bucket) {
            uint64_t count = n - at < bucket ? n - at : bucket;
            size_t len;
            unsigned char *frame = compress_range(c, step, at, count, grad + at, &len);
            const void *frames[1] = {frame};
            OK(frug_decode_add(frug_compressor_decoder(c), (frug_range){at, count}, frames, &len, 1, 1.0f, sent + at));
            test_free(frame);
        }
        hash = frugi_hash_bytes(hash, sent, n * sizeof *sent);
        test_free(grad);
    }
    test_free(sent);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
    return hash;
}

static const char *const configs[] = {
    "frugrad",
    "frugrad,select=exact,residual=f32,value=f32",
    "frugrad,residual=int4,value=int8",
    "frugrad,residual=bf16,value=f16",
    "frugrad-paper",
    "dgc,segment=block,index=fixed,density=0.01",
    "dgc,segment=block,index=fixed,residual=int8,mask=off,density=0.3",
    "feedback=none,density=0.1",
    "feedback=plain,block=64,density=0.05",
    "block=1024,density=0.01",
    "block=4096,density=0.003",
};

static void result_does_not_depend_on_threads(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(configs); i++) {
        uint64_t one = fingerprint(configs[i], 300007, 1, 3, 0);
        assert_int_equal(one, fingerprint(configs[i], 300007, 2, 3, 0));
        assert_int_equal(one, fingerprint(configs[i], 300007, 5, 3, 0));
    }
}

static void result_does_not_depend_on_the_variant(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(configs); i++) {
        setenv("FRUG_ISA", "ref", 1);
        uint64_t ref = fingerprint(configs[i], 70003, 1, 4, 0);
        for (size_t v = 1; frug_isa_at(v); v++) {
            setenv("FRUG_ISA", frug_isa_at(v), 1);
            assert_int_equal(ref, fingerprint(configs[i], 70003, 1, 4, 0));
        }
        unsetenv("FRUG_ISA");
    }
}

static void buckets_give_the_same_result_as_one_range(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(configs); i++)
        assert_int_equal(fingerprint(configs[i], 50021, 1, 3, 0), fingerprint(configs[i], 50021, 1, 3, 1));
}

static void unknown_variant_is_rejected(void **state) {
    (void)state;
    frug_layout *layout = make_flat_layout(N);
    frug_config *config = NULL;
    frug_compressor *c = NULL;
    OK(frug_config_create("frugrad", &config));
    setenv("FRUG_ISA", "sse9", 1);
    assert_null(frug_isa());
    assert_int_equal(frug_compressor_create(config, layout, NULL, &c), FRUG_ERR_CONFIG);
    unsetenv("FRUG_ISA");
    assert_null(c);
    frug_config_destroy(config);
    frug_layout_destroy(layout);
}

/* A block with a NaN sends zeros, keeps its residual, and is counted; other blocks are not affected. */
static void a_block_with_a_nan_is_skipped(void **state) {
    (void)state;
    static const char *const kinds[] = {"residual=f32",
                                        "residual=int8",
                                        "dgc,block=256,density=0.05,residual=f32",
                                        "dgc,block=256,density=0.05,residual=bf16",
                                        "residual=f32,block=1024",
                                        "residual=f32,density=1,value=bf16"};
    const float poison[] = {NAN, INFINITY, -INFINITY};
    for (size_t kind = 0; kind < COUNT(kinds); kind++)
        for (size_t bad = 0; bad < COUNT(poison); bad++) {
            frug_layout *layout = make_flat_layout(N);
            frug_compressor *c = make_compressor(kinds[kind], layout, NULL);
            float *grad = bell_array(N, 3), *before = test_calloc(N, sizeof(float));
            float *after = test_calloc(N, sizeof(float)), *sent = test_calloc(N, sizeof(float));
            size_t len;
            test_free(compress_range(c, 0, 0, N, grad, &len));
            OK(frug_compressor_get_residual(c, (frug_range){0, N}, before));
            grad[4096 + 777] = poison[bad];
            grad[N - 1] = poison[bad]; /* in the tail */
            unsigned char *frame = compress_range(c, 1, 0, N, grad, &len);
            restore_range(c, frame, len, 0, N, sent);
            OK(frug_compressor_get_residual(c, (frug_range){0, N}, after));
            size_t block = strstr(kinds[kind], "1024") ? 1024 : 256, at = (4096 + 777) / block * block;
            for (size_t i = at; i < at + block; i++)
                assert_true(sent[i] == 0.0f);
            assert_same_bits(before + at, after + at, block * sizeof(float));
            assert_same_bits(before + N - 1, after + N - 1, sizeof(float));
            size_t moved = 0;
            for (size_t i = 0; i < N; i++) {
                assert_true(isfinite(sent[i]) && isfinite(after[i]));
                moved += sent[i] != 0.0f;
            }
            if (moved <= N / 100)
                fail_msg("%s: only %zu entries came through", kinds[kind], moved);
            frug_stats stats = {.struct_size = sizeof stats};
            frug_frame_info info = {.struct_size = sizeof info};
            OK(frug_compressor_stats(c, &stats));
            OK(frug_frame_check(frame, len, &info));
            assert_int_equal(stats.blocks_skipped, 2);
            assert_int_equal(info.skipped, 2);
            test_free(frame);
            test_free(grad);
            test_free(before);
            test_free(after);
            test_free(sent);
            frug_compressor_destroy(c);
            frug_layout_destroy(layout);
        }
}

static void a_restored_state_continues_bit_for_bit(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(configs); i++) {
        frug_layout *layout = make_flat_layout(N);
        frug_compressor *a = make_compressor(configs[i], layout, NULL), *b = make_compressor(configs[i], layout, NULL);
        float *grad = bell_array(N, 21), *more = bell_array(N, 22);
        size_t len, size = frug_compressor_state_size(a), written = 0;
        test_free(compress_range(a, 0, 0, N, grad, &len));
        unsigned char *saved = test_malloc(size);
        assert_int_equal(frug_compressor_save(a, saved, size - 1, &written), FRUG_ERR_SHORT_BUFFER);
        OK(frug_compressor_save(a, saved, size, &written));
        assert_int_equal(written, size);
        OK(frug_compressor_restore(b, saved, size));
        size_t len_a, len_b;
        unsigned char *fa = compress_range(a, 1, 0, N, more, &len_a), *fb = compress_range(b, 1, 0, N, more, &len_b);
        assert_int_equal(len_a, len_b);
        assert_same_bits(fa, fb, len_a);
        test_free(fa);
        test_free(fb);
        test_free(saved);
        test_free(grad);
        test_free(more);
        frug_compressor_destroy(a);
        frug_compressor_destroy(b);
        frug_layout_destroy(layout);
    }
}

static void a_damaged_or_mismatched_state_changes_nothing(void **state) {
    (void)state;
    frug_layout *layout = make_flat_layout(N), *other = make_flat_layout(N + 256);
    frug_compressor *c = make_compressor("frugrad", layout, NULL), *f32 = make_compressor("residual=f32", layout, NULL);
    frug_compressor *longer = make_compressor("frugrad", other, NULL);
    float *grad = bell_array(N, 4), *before = test_calloc(N, sizeof(float)), *after = test_calloc(N, sizeof(float));
    size_t len, size = frug_compressor_state_size(c);
    test_free(compress_range(c, 0, 0, N, grad, &len));
    unsigned char *saved = test_malloc(size);
    OK(frug_compressor_save(c, saved, size, &len));
    OK(frug_compressor_get_residual(c, (frug_range){0, N}, before));
    assert_int_equal(frug_compressor_restore(f32, saved, size), FRUG_ERR_MISMATCH);
    assert_int_equal(frug_compressor_restore(longer, saved, size), FRUG_ERR_MISMATCH);
    assert_int_equal(frug_compressor_restore(c, saved, size - 1), FRUG_ERR_FORMAT);
    assert_int_equal(frug_compressor_restore(c, saved, 3), FRUG_ERR_FORMAT);
    for (size_t at = 0; at < size; at += at < 64 ? 1 : 997) {
        saved[at] ^= 0x10;
        assert_int_not_equal(frug_compressor_restore(c, saved, size), FRUG_OK);
        saved[at] ^= 0x10;
    }
    OK(frug_compressor_get_residual(c, (frug_range){0, N}, after));
    assert_same_bits(before, after, N * sizeof(float));
    test_free(saved);
    test_free(grad);
    test_free(before);
    test_free(after);
    frug_compressor_destroy(c);
    frug_compressor_destroy(f32);
    frug_compressor_destroy(longer);
    frug_layout_destroy(layout);
    frug_layout_destroy(other);
}

/* Stored residuals differ from the true ones by at most one scale. */
static void quantized_residuals_have_errors_below_one_scale(void **state) {
    (void)state;
    static const struct {
        const char *config;
        float levels;
    } kinds[] = {{"feedback=merged,residual=int8,value=f32", 126.0f}, {"residual=int4,value=f32", 6.0f}};
    for (size_t k = 0; k < COUNT(kinds); k++) {
        frug_layout *layout = make_flat_layout(N);
        frug_compressor *c = make_compressor(kinds[k].config, layout, NULL);
        float *grad = bell_array(N, 6), *sent = test_calloc(N, sizeof(float)), *left = test_calloc(N, sizeof(float));
        size_t len;
        unsigned char *frame = compress_range(c, 0, 0, N, grad, &len);
        restore_range(c, frame, len, 0, N, sent);
        OK(frug_compressor_get_residual(c, (frug_range){0, N}, left));
        double error = 0;
        for (size_t at = 0; at < N; at += 256) {
            float largest = 0;
            size_t end = at + 256 < N ? at + 256 : N;
            for (size_t i = at; i < end; i++)
                largest = fmaxf(largest, fabsf(grad[i] - sent[i]));
            for (size_t i = at; i < end; i++) {
                assert_true(fabsf(grad[i] - sent[i] - left[i]) <= largest / kinds[k].levels * 1.01f);
                error += (double)(grad[i] - sent[i] - left[i]);
            }
        }
        assert_true(fabs(error / N) < 0.01 / (double)kinds[k].levels); /* rounding has no bias */
        test_free(frame);
        test_free(grad);
        test_free(sent);
        test_free(left);
        frug_compressor_destroy(c);
        frug_layout_destroy(layout);
    }
}

static void elements_that_are_not_sent_keep_their_bits(void **state) {
    (void)state;
    frug_layout *layout = make_flat_layout(N);
    frug_compressor *c = make_compressor("value=f32", layout, NULL);
    float *grad = bell_array(N, 8), *sent = test_calloc(N, sizeof(float)), *dst = test_malloc(N * sizeof(float));
    size_t len;
    unsigned char *frame = compress_range(c, 0, 0, N, grad, &len);
    const void *frames[1] = {frame};
    restore_range(c, frame, len, 0, N, sent);
    for (int sign = 0; sign < 2; sign++) {
        for (size_t i = 0; i < N; i++)
            dst[i] = i % 2 ? -0.0f : 0.0f;
        if (sign)
            OK(frug_decode_apply(frug_compressor_decoder(c), (frug_range){0, N}, frames, &len, 1, 0.5f, 0.0f, dst));
        else
            OK(frug_decode_add(frug_compressor_decoder(c), (frug_range){0, N}, frames, &len, 1, 0.5f, dst));
        for (size_t i = 0; i < N; i++)
            if (sent[i] == 0.0f)
                assert_true(!signbit(dst[i]) == !(i % 2));
            else
                assert_true(dst[i] == (sign ? -0.5f : 0.5f) * sent[i]);
    }
    test_free(frame);
    test_free(grad);
    test_free(sent);
    test_free(dst);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

static void invalid_calls_fail_and_change_nothing(void **state) {
    (void)state;
    frug_layout *layout = make_flat_layout(N);
    frug_compressor *c = make_compressor("residual=f32", layout, NULL);
    float *grad = bell_array(N, 8), *left = test_calloc(N, sizeof(float));
    size_t cap, len = 12345;
    OK(frug_compressor_bound(c, (frug_range){0, N}, &cap));
    unsigned char *frame = test_malloc(cap);
    assert_int_equal(frug_compress(c, 0, (frug_range){1, 256}, grad, frame, cap, &len), FRUG_ERR_ARG);
    assert_int_equal(frug_compress(c, 0, (frug_range){0, 255}, grad, frame, cap, &len), FRUG_ERR_ARG);
    assert_int_equal(frug_compress(c, 0, (frug_range){0, N + 1}, grad, frame, cap, &len), FRUG_ERR_ARG);
    assert_int_equal(frug_compress(c, 0, (frug_range){UINT64_MAX, 256}, grad, frame, cap, &len), FRUG_ERR_ARG);
    assert_int_equal(frug_compress(c, 0, (frug_range){0, N}, NULL, frame, cap, &len), FRUG_ERR_ARG);
    assert_int_equal(frug_compress(c, 0, (frug_range){0, N}, grad, frame, 100, &len), FRUG_ERR_SHORT_BUFFER);
    assert_int_equal(frug_compress(NULL, 0, (frug_range){0, N}, grad, frame, cap, &len), FRUG_ERR_ARG);
    assert_int_equal(len, 12345);
    OK(frug_compressor_get_residual(c, (frug_range){0, N}, left));
    for (size_t i = 0; i < N; i++)
        assert_true(left[i] == 0.0f);
    OK(frug_compress(c, 0, (frug_range){0, 0}, grad, frame, cap,
                     &len)); /* an empty range is a frame without sections */
    OK(frug_compress(c, 0, (frug_range){N, 0}, grad, frame, cap, &len));
    test_free(frame);
    test_free(grad);
    test_free(left);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

/* A real model in small: dense and compressed tensors, scalars, empty ones, gaps between them. */
static void mixed_layouts_keep_small_tensors_dense(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t ndim;
        uint64_t shape[3], offset;
    } tensors[] = {
        {"conv.weight", 3, {32, 16, 9}, FRUG_APPEND},
        {"conv.bias", 1, {32}, FRUG_APPEND},
        {"norm.weight", 1, {32}, FRUG_APPEND},
        {"scalar", 0, {0}, FRUG_APPEND},
        {"empty", 2, {0, 7}, FRUG_APPEND},
        {"fc.weight", 2, {100, 77}, 5000},
        {"long.bias", 1, {5000}, FRUG_APPEND},
    };
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    for (size_t i = 0; i < COUNT(tensors); i++) {
        frug_tensor t = FRUG_TENSOR_INIT;
        t.name = tensors[i].name;
        t.ndim = tensors[i].ndim;
        memcpy(t.shape, tensors[i].shape, sizeof tensors[i].shape);
        t.offset = tensors[i].offset;
        OK(frug_layout_add(layout, &t));
    }
    uint64_t n = frug_layout_elements(layout);
    assert_int_equal(n, 5000 + 7700 + 5000);
    frug_compressor *c = make_compressor("residual=f32,value=f32", layout, NULL);
    float *grad = bell_array(n, 13), *sent = test_calloc(n, sizeof(float));
    size_t len;
    unsigned char *frame = compress_range(c, 0, 0, n, grad, &len);
    restore_range(c, frame, len, 0, n, sent);
    for (size_t i = 4608; i < 4608 + 65; i++) /* the two vectors and the scalar */
        assert_true(sent[i] == grad[i]);
    for (size_t i = 4608 + 65; i < 5000; i++) /* the gap */
        assert_true(sent[i] == 0.0f);
    for (size_t i = 12700; i < n; i++)
        assert_true(sent[i] == grad[i]);
    size_t some = 0;
    for (size_t i = 0; i < 4608; i++)
        some += sent[i] != 0.0f;
    assert_int_equal(some, 18 * 16);
    frug_frame_info info = {.struct_size = sizeof info};
    OK(frug_frame_check(frame, len, &info));
    assert_int_equal(info.sections, 4);
    assert_int_equal(info.range.begin, 0);
    assert_int_equal(info.range.count, n);
    assert_int_equal(info.layout_hash, frug_layout_hash(layout));
    test_free(frame);
    test_free(grad);
    test_free(sent);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

static void payload_at_16_of_256_is_48_bytes_per_block(void **state) {
    (void)state;
    enum { BLOCKS = 1000 };
    frug_layout *layout = make_flat_layout(BLOCKS * 256);
    static const struct {
        const char *value;
        size_t bytes;
    } rows[] = {{"f32", 80}, {"bf16", 48}, {"f16", 49}, {"int8", 34}};
    for (size_t r = 0; r < COUNT(rows); r++) {
        char config[64];
        snprintf(config, sizeof config, "density=0.0625,value=%s", rows[r].value);
        frug_compressor *c = make_compressor(config, layout, NULL);
        float *grad = bell_array(BLOCKS * 256, 1);
        size_t len;
        test_free(compress_range(c, 0, 0, BLOCKS * 256, grad, &len));
        assert_int_equal(len, 96 + BLOCKS * rows[r].bytes);
        test_free(grad);
        frug_compressor_destroy(c);
    }
    frug_layout_destroy(layout);
}

/* At one entry of 1024, each of four blocks sends one at every fourth step. */
static void blocks_alternate_below_one_entry_per_block(void **state) {
    (void)state;
    enum { BLOCKS = 4, ALL = BLOCKS * 256 };
    frug_layout *layout = make_flat_layout(ALL);
    frug_compressor *c =
        make_compressor("density=0.0009765625,value=f32,residual=f32,feedback=plain,min_size=1", layout, NULL);
    float *grad = bell_array(ALL, 1), sent[ALL];
    int from[BLOCKS] = {0};
    for (uint64_t step = 0; step < 8; step++) {
        size_t len;
        unsigned char *frame = compress_range(c, step, 0, ALL, grad, &len);
        assert_int_equal(len, 96 + 4 + 4);
        restore_range(c, frame, len, 0, ALL, sent);
        for (int i = 0; i < ALL; i++)
            from[i / 256] += sent[i] != 0;
        test_free(frame);
    }
    for (int b = 0; b < BLOCKS; b++)
        assert_int_equal(from[b], 2);
    test_free(grad);
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
}

static void statistics_add_up(void **state) {
    (void)state;
    frug_layout *layout = make_flat_layout(256 * 4096);
    frug_compressor *c = make_compressor("residual=f32,value=f32,stats=full,select=exact", layout, NULL);
    float *grad = bell_array(256 * 4096, 2), *sent = test_calloc(256 * 4096, sizeof(float));
    size_t len;
    unsigned char *frame = compress_range(c, 0, 0, 256 * 4096, grad, &len);
    restore_range(c, frame, len, 0, 256 * 4096, sent);
    double seen = 0, kept = 0;
    for (size_t i = 0; i < 256 * 4096; i++) {
        seen += (double)grad[i] * (double)grad[i];
        kept += (double)sent[i] * (double)sent[i];
    }
    frug_stats stats = {.struct_size = sizeof stats};
    OK(frug_compressor_stats(c, &stats));
    assert_int_equal(stats.calls, 1);
    assert_int_equal(stats.bytes_sent, len);
    assert_int_equal(stats.bytes_dense, 4 * 256 * 4096);
    assert_int_equal(stats.entries_sent, 16 * 4096);
    assert_true(fabs(stats.density_now - 0.0625) < 1e-12);
    assert_true(fabs(stats.energy_sent_now - kept / seen) < 1e-6);
    assert_true(stats.seconds_compress > 0 && stats.seconds_select > 0 && stats.seconds_decode > 0);
    frug_compressor *sampled = make_compressor("residual=f32,value=f32,select=exact", layout, NULL);
    test_free(compress_range(sampled, 0, 0, 256 * 4096, grad, &len));
    OK(frug_compressor_stats(sampled, &stats));
    assert_true(fabs(stats.energy_sent_now - kept / seen) < 0.02);
    test_free(frame);
    test_free(grad);
    test_free(sent);
    frug_compressor_destroy(c);
    frug_compressor_destroy(sampled);
    frug_layout_destroy(layout);
}

/* An estimate must cover all tensors, not only those at the sampled blocks. */
static void sampled_energy_covers_all_tensors(void **state) {
    (void)state;
    static const char *const config[] = {"frugrad", "topk", "frugrad,value=f32", "rows"};
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    for (uint64_t i = 0; i < 9; i++) { /* a bias first, then matrices of a few batches each */
        char name[32];
        snprintf(name, sizeof name, i ? "layer%u.weight" : "bias", (unsigned)i);
        frug_tensor tensor = FRUG_TENSOR_INIT;
        tensor.name = name;
        tensor.ndim = i ? 2 : 1;
        tensor.shape[0] = i ? 64 + 16 * i : 8;
        tensor.shape[1] = i ? 256 : 0;
        OK(frug_layout_add(layout, &tensor));
    }
    size_t n = (size_t)frug_layout_elements(layout), len;
    float *grad = bell_array(n, 3);
    for (size_t i = 0; i < sizeof config / sizeof *config; i++) {
        double kept[2];
        for (int full = 0; full < 2; full++) {
            char text[64];
            frug_stats stats = {.struct_size = sizeof stats};
            snprintf(text, sizeof text, "%s%s", config[i], full ? ",stats=full" : "");
            frug_compressor *c = make_compressor(text, layout, NULL);
            test_free(compress_range(c, 0, 0, n, grad, &len));
            OK(frug_compressor_stats(c, &stats));
            kept[full] = stats.energy_sent_now;
            frug_compressor_destroy(c);
        }
        if (!(kept[1] > 0.1 && kept[1] < 0.99 && fabs(kept[0] - kept[1]) < 0.06))
            fail_msg("%s: %g of the energy kept by an estimate, %g in truth", config[i], kept[0], kept[1]);
    }
    test_free(grad);
    frug_layout_destroy(layout);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sampled_energy_covers_all_tensors),
        cmocka_unit_test(sent_plus_residual_is_the_accumulator_bit_for_bit),
        cmocka_unit_test(sent_plus_residual_is_conserved_over_many_steps),
        cmocka_unit_test(full_density_is_dense_sgd),
        cmocka_unit_test(identical_workers_give_the_result_of_one),
        cmocka_unit_test(result_does_not_depend_on_threads),
        cmocka_unit_test(result_does_not_depend_on_the_variant),
        cmocka_unit_test(buckets_give_the_same_result_as_one_range),
        cmocka_unit_test(unknown_variant_is_rejected),
        cmocka_unit_test(a_block_with_a_nan_is_skipped),
        cmocka_unit_test(a_restored_state_continues_bit_for_bit),
        cmocka_unit_test(a_damaged_or_mismatched_state_changes_nothing),
        cmocka_unit_test(quantized_residuals_have_errors_below_one_scale),
        cmocka_unit_test(elements_that_are_not_sent_keep_their_bits),
        cmocka_unit_test(invalid_calls_fail_and_change_nothing),
        cmocka_unit_test(mixed_layouts_keep_small_tensors_dense),
        cmocka_unit_test(payload_at_16_of_256_is_48_bytes_per_block),
        cmocka_unit_test(blocks_alternate_below_one_entry_per_block),
        cmocka_unit_test(statistics_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
