/*
 * test_receiver.c - what the receiver of feedback=ef21 has to do, as docs/methods.md says it: add the sum of all frames
 * to a buffer that it keeps, with the part of dense tensors cleared before each step; the mean over workers is then the
 * gradient to step by. And the mean over those who sent an entry (mean=senders).
 */
#include "support/test_layouts.h"

#include <math.h>
#include <stdio.h>

enum { WORKERS = 2, ROWS = 40, COLS = 150, MATRIX = ROWS * COLS, VECTOR = 30, N = MATRIX + VECTOR, STEPS = 400 };

/* One step of all workers, each with a gradient that never changes. */
static void step_all(frug_compressor **c, float *const *grad, uint64_t step, float *received) {
    const void *frames[WORKERS];
    size_t lens[WORKERS];
    for (int p = 0; p < WORKERS; p++)
        frames[p] = compress_range(c[p], step, 0, N, grad[p], &lens[p]);
    memset(received + MATRIX, 0, VECTOR * sizeof *received);
    OK(frug_decode_add(frug_compressor_decoder(c[0]), (frug_range){0, N}, frames, lens, WORKERS, 1.0f, received));
    for (int p = 0; p < WORKERS; p++)
        test_free((void *)frames[p]);
}

/*
 * With a constant gradient g the smoothed one is g (1 - 0.9^t), which after 400 steps is g to the last bit or so. The
 * sum at the receiver differs from it by the residual at density 1/8, which decreases likewise. Tolerance: a thousandth
 * of the largest entry; without the buffer, or with the dense part not cleared, the error would be of the order of the
 * entries.
 */
static void receiver_state_of_ef21_becomes_the_mean_gradient(void **state) {
    (void)state;
    static const char *const methods[] = {"segment=block", "segment=tensor", "rule=threshold:track,segment=tensor",
                                          "segment=tensor,unit=row", "segment=tensor,warmup=3,dense_every=50"};
    frug_layout *z = NULL;
    OK(frug_layout_create(&z));
    test_layout_add(z, "w", FRUG_ROLE_LINEAR, TEST_SHAPE(ROWS, COLS), 0, 0, 0, 0);
    test_layout_add(z, "b", FRUG_ROLE_BIAS, TEST_SHAPE(VECTOR), 0, 0, 0, 0);
    float *grad[WORKERS] = {bell_array(N, 1), bell_array(N, 2)};
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        char config[128];
        snprintf(config, sizeof config, "%s,density=0.125,feedback=ef21,residual=f32,value=f32", methods[m]);
        frug_compressor *c[WORKERS];
        for (int p = 0; p < WORKERS; p++)
            c[p] = make_compressor(config, z, NULL);
        float *received = test_calloc(N, sizeof *received);
        for (uint64_t step = 0; step < STEPS; step++)
            step_all(c, grad, step, received);
        for (size_t i = 0; i < N; i++)
            if (!(fabsf(received[i] - (grad[0][i] + grad[1][i])) < 0.005f))
                fail_msg("%s element %zu: %g received, the sum of the gradients is %g", config, i, (double)received[i],
                         (double)(grad[0][i] + grad[1][i]));
        for (int p = 0; p < WORKERS; p++)
            frug_compressor_destroy(c[p]);
        test_free(received);
    }
    for (int p = 0; p < WORKERS; p++)
        test_free(grad[p]);
    frug_layout_destroy(z);
}

/*
 * The optimizer merged is such a receiver: with a gradient that never changes, its steps become rate * gain * gradient.
 * A restart in between changes nothing. Other optimizers would step by the changes alone, and are refused.
 */
static void the_optimizer_merged_sums_the_changes(void **state) {
    (void)state;
    frug_layout *z = NULL;
    OK(frug_layout_create(&z));
    test_layout_add(z, "w", FRUG_ROLE_LINEAR, TEST_SHAPE(ROWS, COLS), 0, 0, 0, 0);
    float *grad = bell_array(MATRIX, 1), *w = test_calloc(MATRIX, sizeof *w), *before = test_calloc(MATRIX, sizeof *w);
    frug_compressor *c = make_compressor("density=0.125,feedback=ef21,residual=f32,value=f32", z, NULL);
    frug_optimizer *o = NULL, *again = NULL;
    OK(frug_optimizer_create("merged:momentum=0.75", z, c, &o));
    assert_true(frug_optimizer_gain(o, 1e-3) == 4);
    for (uint64_t step = 0; step < STEPS; step++) {
        float *sum = test_calloc(MATRIX, sizeof *sum);
        size_t len = 0;
        void *frame = compress_range(c, step, 0, MATRIX, grad, &len);
        OK(frug_decode_add(frug_compressor_decoder(c), (frug_range){0, MATRIX}, (const void *const[]){frame}, &len, 1,
                           1.0f, sum));
        memcpy(before, w, MATRIX * sizeof *w);
        OK(frug_optimizer_step(o, step, (frug_range){0, MATRIX}, sum, 0.01, w));
        test_free(frame);
        test_free(sum);
        if (step == STEPS / 2) {
            size_t bytes = frug_optimizer_state_size(o), saved = 0;
            unsigned char *state_bytes = test_malloc(bytes);
            OK(frug_optimizer_save(o, state_bytes, bytes, &saved));
            OK(frug_optimizer_create("merged:momentum=0.75", z, c, &again));
            OK(frug_optimizer_restore(again, state_bytes, saved));
            frug_optimizer_destroy(o);
            o = again;
            test_free(state_bytes);
        }
    }
    for (size_t i = 0; i < MATRIX; i++)
        if (!(fabsf(before[i] - w[i] - 0.04f * grad[i]) < 2e-4f))
            fail_msg("element %zu moves by %g, not by %g", i, (double)(before[i] - w[i]), (double)(0.04f * grad[i]));
    static const char *const others[] = {"sgd", "adamw", "adam-merged", "microadam", "sign"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(frug_optimizer_create(others[i], z, c, &again), FRUG_ERR_CONFIG);
    frug_optimizer_destroy(o);
    frug_compressor_destroy(c);
    frug_layout_destroy(z);
    test_free(grad);
    test_free(w);
    test_free(before);
}

/* Frames decoded one by one say who sent what; all values are different from 0. */
static void expect_mean_of_senders(const void *const *frames, const size_t *lens, frug_compressor *c, float *expected) {
    float *one = test_calloc(N, sizeof *one), *senders = test_calloc(N, sizeof *senders);
    for (int p = 0; p < 3; p++) {
        memset(one, 0, N * sizeof *one);
        OK(frug_decode_add(frug_compressor_decoder(c), (frug_range){0, N}, &frames[p], &lens[p], 1, 1.0, one));
        for (size_t i = 0; i < N; i++) {
            expected[i] += one[i];
            senders[i] += one[i] != 0.0f;
        }
    }
    for (size_t i = 0; i < N; i++)
        expected[i] *= senders[i] > 0 ? 3.0f / senders[i] : 0.0f;
    test_free(one);
    test_free(senders);
}

static void mean_of_senders_divides_by_those_who_sent_an_entry(void **state) {
    (void)state;
    static const char *const methods[] = {"", "index=bitmap", "value=int8,block=64", "value=two_bit,block=1024",
                                          "segment=tensor,index=auto"};
    frug_layout *z = NULL;
    OK(frug_layout_create(&z));
    test_layout_add(z, "w", FRUG_ROLE_LINEAR, TEST_SHAPE(ROWS, COLS), 0, 0, 0, 0);
    test_layout_add(z, "b", FRUG_ROLE_BIAS, TEST_SHAPE(VECTOR), 0, 0, 0, 0);
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
        char config[128];
        snprintf(config, sizeof config, "local=4,mean=senders,density=0.25%s%s", *methods[m] ? "," : "", methods[m]);
        frug_compressor *c = make_compressor(config, z, NULL);
        float *expected = test_calloc(N, sizeof *expected), *got = test_calloc(N, sizeof *got);
        const void *frames[3];
        size_t lens[3];
        for (unsigned p = 0; p < 3; p++) {
            float *grad = bell_array(N, p + 1);
            frames[p] = compress_range(c, 0, 0, N, grad, &lens[p]);
            test_free(grad);
        }
        expect_mean_of_senders(frames, lens, c, expected);
        OK(frug_decode_add(frug_compressor_decoder(c), (frug_range){0, N}, frames, lens, 3, 1.0, got));
        for (size_t i = 0; i < N; i++)
            if (got[i] != expected[i])
                fail_msg("%s element %zu: %g, not %g", config, i, (double)got[i], (double)expected[i]);
        for (int p = 0; p < 3; p++)
            test_free((void *)frames[p]);
        test_free(expected);
        test_free(got);
        frug_compressor_destroy(c);
    }
    frug_layout_destroy(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(receiver_state_of_ef21_becomes_the_mean_gradient),
                                       cmocka_unit_test(the_optimizer_merged_sums_the_changes),
                                       cmocka_unit_test(mean_of_senders_divides_by_those_who_sent_an_entry)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
