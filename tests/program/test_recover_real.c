/*
 * test_recover_real.c - sparse recovery on gradients of real runs, of training (tests/data/gradients.safetensors) and
 * of fine-tuning (finetuning.safetensors), whose means are less sparse than generated ones. The means of AdamW on the
 * largest entries come from the benchmark's own bench_reference.c, which is compared with the library's table where
 * that evicts nothing. Seeds are fixed; tolerances are given where they are used. Prints its results.
 */
#include "optim/recover_helpers.h"

#include "program/bench/bench_gradients.h"
#include "support/temp_files.h"

#define CHUNKS  2u
#define EACH    31u /* entries of a chunk */
#define ENTRIES (CHUNKS * EACH)

static fgp_recording recording;
static const fgp_recorded *stream;
static float *grad;
static uint32_t length; /* of a chunk */

static int load(const char *path) {
    if (fgp_recording_open(path, &recording) != FGIO_EXIT_OK)
        return -1;
    stream = &recording.stream[0];
    length = (uint32_t)stream->d / CHUNKS;
    return fgp_recorded_load(&recording, stream, stream->steps, &grad) == FGIO_EXIT_OK ? 0 : -1;
}

static int load_training(void **state) {
    (void)state;
    return load(FRUG_TEST_DIR "/data/gradients.safetensors");
}

static int load_tuning(void **state) {
    (void)state;
    return load(FRUG_TEST_DIR "/data/finetuning.safetensors");
}

static int unload(void **state) {
    (void)state;
    free(grad);
    fgp_recording_close(&recording);
    return 0;
}

static const float *gradient(size_t t) {
    return grad + t * stream->d;
}

static fgp_reference make_reference(uint32_t c, uint32_t s, uint32_t refresh, uint32_t kappa) {
    fgp_reference truth;
    fgp_selection choice = {.c = c, .s = s, .refresh = refresh, .kappa = kappa};
    assert_int_equal(fgp_reference_open(&truth, stream->d, &choice), FGIO_EXIT_OK);
    return truth;
}

static frug_optimizer *make_optimizer(const char *text) {
    frug_layout *layout = NULL;
    frug_optimizer *o = NULL;
    frug_tensor tensor = FRUG_TENSOR_INIT;
    tensor.name = "x";
    tensor.ndim = 2;
    memcpy(tensor.shape, stream->first->shape, sizeof tensor.shape);
    OK(frug_layout_create(&layout));
    OK(frug_layout_add(layout, &tensor));
    if (frug_optimizer_create(text, layout, NULL, &o) != FRUG_OK)
        fail_msg("%s: %s", text, frug_last_error());
    frug_layout_destroy(layout);
    return o;
}

/* ---- a mean, its measurements and the recovered vector ---- */

typedef struct problem {
    frugi_matrix *a;
    frugi_recover *recover[FRUGI_RECOVER_RESIDUAL + 1];
    uint32_t k;
    float *p, *work; /* CHUNKS x k; twice what the matrix needs */
    uint32_t index[ENTRIES], count[CHUNKS];
    float value[ENTRIES];
} problem;

static problem make_problem(frugi_matrix_kind kind, uint32_t kappa) {
    problem u = {.k = kappa * EACH};
    u.a = matrix(kind, u.k, length, 5);
    u.p = floats((size_t)CHUNKS * u.k);
    u.work = floats(2 * (size_t)frugi_matrix_span(u.a));
    return u;
}

static void free_problem(problem *u) {
    for (int method = 0; method <= FRUGI_RECOVER_RESIDUAL; method++)
        frugi_recover_destroy(u->recover[method]);
    frugi_matrix_destroy(u->a);
    free(u->p), free(u->work);
}

/* p = A x for all chunks of a vector. */
static void measure(const problem *u, const double *x, float *p) {
    uint32_t *index = test_malloc(length * sizeof *index);
    float *value = test_malloc(length * sizeof *value);
    for (uint32_t c = 0; c < CHUNKS; c++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < length; i++)
            if (fabs(x[c * length + i]) > 0) {
                index[n] = i;
                value[n++] = (float)x[c * length + i];
            }
        OK(frugi_matrix_apply(u->a, index, value, n, u->work, p + c * u->k));
    }
    test_free(index), test_free(value);
}

/* Workspaces are created on first use. */
static void recover(problem *u, frugi_recover_method method, uint32_t atoms) {
    frugi_recover_options plan = {method, EACH, atoms, 0, 0, 1};
    if (!u->recover[method])
        OK(frugi_recover_create(u->a, &plan, &u->recover[method]));
    OK(frugi_recover_run(u->recover[method], u->p, CHUNKS, u->index, u->value, u->count));
}

/* |A_S^T (p - A x)| <= 1e-5 |p| for the columns in use. */
static void expect_orthogonal(problem *u) {
    float *r = floats(frugi_matrix_stride(u->a)), *out = u->work + frugi_matrix_span(u->a);
    for (uint32_t c = 0; c < CHUNKS; c++) {
        double squares = 0;
        const float *p = u->p + c * u->k;
        OK(frugi_matrix_apply(u->a, u->index + c * EACH, u->value + c * EACH, u->count[c], u->work, r));
        for (uint32_t i = 0; i < u->k; i++) {
            squares += (double)p[i] * (double)p[i];
            r[i] = p[i] - r[i];
        }
        assert_true(squares > 0);
        frugi_matrix_correlate(u->a, r, 1, out);
        for (uint32_t i = 0; i < u->count[c]; i++)
            assert_true(fabs((double)out[u->index[c * EACH + i]]) <= 1e-5 * sqrt(squares));
    }
    free(r);
}

/* ---- claims ---- */

/* Indices are those of the naive pursuit, and residuals orthogonal, at five steps for both matrices. */
static void test_pursuit_is_right_on_real_means(void **state) {
    (void)state;
    BOTH(kind) {
        fgp_reference truth = make_reference(CHUNKS, ENTRIES, 0, 7);
        problem naive = make_problem(kind, 7), fast = make_problem(kind, 7);
        for (size_t t = 0; t < stream->steps; t++) {
            fgp_reference_step(&truth, t, gradient(t));
            if (t % 9 != 3)
                continue;
            measure(&naive, truth.mean, naive.p);
            measure(&fast, truth.mean, fast.p);
            recover(&naive, FRUGI_RECOVER_NAIVE, 1);
            for (int method = FRUGI_RECOVER_GRAM; method <= FRUGI_RECOVER_RESIDUAL; method++) {
                recover(&fast, (frugi_recover_method)method, 1);
                assert_memory_equal(fast.count, naive.count, sizeof naive.count);
                assert_memory_equal(fast.index, naive.index, sizeof naive.index);
                expect_orthogonal(&fast);
            }
        }
        free_problem(&naive), free_problem(&fast);
        fgp_reference_close(&truth);
    }
}

/* Measuring every gradient and averaging is averaging and measuring: to 1e-5 of |p| after all steps. */
static void test_mean_of_measurements_measures_the_mean(void **state) {
    (void)state;
    BOTH(kind) {
        fgp_reference truth = make_reference(CHUNKS, ENTRIES, 0, 7);
        problem u = make_problem(kind, 7);
        float *mean = floats((size_t)CHUNKS * u.k);
        double *chosen = test_calloc(stream->d, sizeof *chosen), miss = 0, squares = 0;
        for (size_t t = 0; t < stream->steps; t++) {
            fgp_reference_step(&truth, t, gradient(t));
            for (uint64_t i = 0; i < stream->d; i++)
                chosen[i] = truth.chosen[i] ? (double)gradient(t)[i] : 0;
            measure(&u, chosen, u.p);
            for (uint32_t i = 0; i < CHUNKS * u.k; i++)
                mean[i] = 0.9f * mean[i] + 0.1f * u.p[i];
        }
        measure(&u, truth.mean, u.p);
        for (uint32_t i = 0; i < CHUNKS * u.k; i++) {
            miss += pow((double)mean[i] - (double)u.p[i], 2);
            squares += pow((double)u.p[i], 2);
        }
        assert_true(squares > 0 && sqrt(miss / squares) < 1e-5);
        test_free(chosen), free(mean);
        free_problem(&u);
        fgp_reference_close(&truth);
    }
}

/* |update - AdamW's| / |AdamW's| of a table at every step; returns the first step at which some chunk has more entries
 * than there is room for. */
static size_t follow_table(uint32_t kappa, double *difference) {
    fgp_reference truth = make_reference(CHUNKS, ENTRIES, 0, kappa);
    char text[80];
    snprintf(text, sizeof text, "table:s=%u,c=%u,kappa=%u,targets=all", ENTRIES, CHUNKS, kappa);
    frug_optimizer *o = make_optimizer(text);
    float *w = floats(stream->d);
    size_t full = stream->steps;
    for (size_t t = 0; t < stream->steps; t++) {
        double miss = 0, squares = 0;
        uint64_t in_chunk[CHUNKS] = {0};
        memset(w, 0, stream->d * sizeof *w);
        OK(frug_optimizer_step(o, t, (frug_range){0, stream->d}, gradient(t), 1.0, w));
        fgp_reference_step(&truth, t, gradient(t));
        for (uint64_t i = 0; i < stream->d; i++) {
            miss += pow((double)w[i] + truth.step_sparse[i], 2);
            squares += pow(truth.step_sparse[i], 2);
            in_chunk[i / length] += fabs(truth.mean[i]) > 0;
        }
        difference[t] = sqrt(miss / squares);
        for (uint32_t c = 0; c < CHUNKS; c++)
            if (in_chunk[c] > 8 * kappa * EACH / 10 && full > t)
                full = t;
    }
    free(w);
    frug_optimizer_destroy(o);
    fgp_reference_close(&truth);
    return full;
}

/* Without evictions the table is AdamW on the largest entries, to 1e-5. At kappa = 20 there are none; at
 * 7 there are, and then it is not. */
static void test_table_is_adamw_while_the_union_fits(void **state) {
    (void)state;
    double *difference = test_malloc(stream->steps * sizeof *difference);
    static const uint32_t kappas[] = {7, 20};
    for (size_t i = 0; i < 2; i++) {
        size_t full = follow_table(kappas[i], difference);
        print_message("table, kappa %u: full at step %zu of %zu\n", kappas[i], full, stream->steps);
        assert_true(full >= 5);
        for (size_t t = 0; t < full; t++)
            assert_true(difference[t] < 1e-5);
        if (kappas[i] == 7)
            assert_true(full < stream->steps && difference[stream->steps - 1] > 1e-3);
        else
            assert_int_equal(full, stream->steps);
    }
    test_free(difference);
}

/* Share of the largest entries of the mean that are recovered, in every other step of the second half. */
static double found(frugi_matrix_kind kind, uint32_t kappa, uint32_t atoms) {
    fgp_reference truth = make_reference(CHUNKS, ENTRIES, 0, kappa);
    problem u = make_problem(kind, kappa);
    double hits = 0, all = 0;
    for (size_t t = 0; t < stream->steps; t++) {
        fgp_reference_step(&truth, t, gradient(t));
        if (t < stream->steps / 2 || t % 2)
            continue;
        measure(&u, truth.mean, u.p);
        recover(&u, FRUGI_RECOVER_RESIDUAL, atoms);
        for (uint32_t c = 0; c < CHUNKS; c++)
            for (uint32_t i = 0; i < u.count[c]; i++)
                hits += truth.best[c * length + u.index[c * EACH + i]];
        all += ENTRIES;
    }
    free_problem(&u);
    fgp_reference_close(&truth);
    return hits / all;
}

/* Increasing, within 0.05: a share of 10 steps' 62 indices has an error of about 0.02, and adjacent steps are similar.
 * By chance one index of 66 would be recovered. */
static void test_more_measurements_find_more(void **state) {
    (void)state;
    static const uint32_t kappas[] = {5, 7, 10, 14};
    BOTH(kind) {
        for (uint32_t atoms = 1; atoms <= 4; atoms += 3) {
            double before = 0.05;
            print_message("%s, %u a pass:", kind == FRUGI_MATRIX_GAUSSIAN ? "explicit" : "implicit", atoms);
            for (size_t i = 0; i < sizeof kappas / sizeof kappas[0]; i++) {
                double share = found(kind, kappas[i], atoms);
                print_message(" kappa %u: %.3f", kappas[i], share);
                assert_true(share > before - 0.05);
                before = share;
            }
            print_message("\n");
            assert_true(before > 0.5 && before < 1); /* and even 14 times as many do not find all */
        }
    }
}

/* adaptive=1 gives chunks the shares that bench_reference.c gives them. A first step's mean has s entries, which
 * are all recovered at kappa = 14; 1 index of 100 may be missed. */
static void test_shares_are_those_of_the_library(void **state) {
    (void)state;
    float *w = floats(stream->d);
    uint32_t uneven = 0;
    for (size_t t = 0; t < stream->steps; t += 5) {
        fgp_reference truth = make_reference(4, 64, 20, 14);
        frug_optimizer *o = make_optimizer("mesgc:s=64,c=4,kappa=14,adaptive=1,refresh=20,method=batch,targets=all");
        uint32_t hits = 0, moved = 0;
        memset(w, 0, stream->d * sizeof *w);
        fgp_reference_step(&truth, 0, gradient(t));
        OK(frug_optimizer_step(o, 0, (frug_range){0, stream->d}, gradient(t), 1.0, w));
        for (uint64_t i = 0; i < stream->d; i++) {
            moved += fabsf(w[i]) > 0;
            hits += fabsf(w[i]) > 0 && truth.chosen[i];
        }
        assert_int_equal(moved, 64);
        assert_true(hits >= 63);
        uneven += truth.share[0] != 16;
        frug_optimizer_destroy(o);
        fgp_reference_close(&truth);
    }
    assert_true(uneven > 0);
    free(w);
}

/* ---- invalid recordings ---- */

typedef struct bad_recording {
    const char *names[4], *why;
    uint64_t last_shape[2]; /* the others are 32 x 32 */
} bad_recording;

/* A file with these tensors at path, full of zeros; if there is a NaN, it is the last number. */
static void write_recording(const bad_recording *bad, const char *path) {
    static float numbers[4 * 1024];
    fgio_tensor item[4] = {0};
    fgio_bytes header;
    fgio_reason why;
    size_t n = 0;
    for (; n < 4 && bad->names[n]; n++) {
        item[n] = (fgio_tensor){.name = (char *)(uintptr_t)bad->names[n], .dtype = FGIO_F32, .ndim = 2};
        item[n].shape[0] = item[n].shape[1] = 32;
        item[n].count = 1024;
    }
    memcpy(item[n - 1].shape, bad->last_shape, sizeof bad->last_shape);
    numbers[n * 1024 - 1] = strcmp(bad->why, "a NaN") == 0 ? NAN : 0;
    assert_int_equal(fgio_safetensors_header(item, n, NULL, &header, &why), 0);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(header.data, 1, header.len, file), header.len);
    assert_int_equal(fwrite(numbers, 4096, n, file), n);
    assert_int_equal(fclose(file), 0);
    fgio_bytes_free(&header);
}

static void test_bad_recordings(void **state) {
    (void)state;
    static const bad_recording bad[] = {
        {{"step_0000"}, "is not named", {32, 32}},
        {{"0/x", "1/x", "2/x", "/x"}, "is not named", {32, 32}},
        {{"0/x", "1/x", "2/x", "3/"}, "is not named", {32, 32}},
        {{"0/x", "1/x", "02/x", "2/x"}, "twice", {32, 32}},
        {{"0/x", "1/x", "2/x", "3/x"}, "at the first step", {16, 64}},
        {{"0/x", "1/x", "2/x", "3/y"}, "no matrix", {32, 32}},
        {{"0/x", "1/x", "2/x", "3/x"}, "a NaN", {32, 32}},
    };
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
        char directory[TEMP_PATH_MAX], path[TEMP_PATH_MAX + 8];
        fgp_recording r;
        float *all = NULL;
        stderr_capture errors;
        temp_dir_create(directory, "bad");
        snprintf(path, sizeof path, "%s/x", directory);
        write_recording(&bad[b], path);
        stderr_capture_begin(&errors);
        int status = fgp_recording_open(path, &r);
        if (status == FGIO_EXIT_OK)
            status = fgp_recorded_load(&r, &r.stream[0], 4, &all);
        fgp_recording_close(&r);
        const char *text = stderr_capture_end(&errors);
        temp_dir_remove(directory);
        assert_null(all);
        if (status != FGIO_EXIT_FAIL || !strstr(text, bad[b].why))
            fail_msg("case %zu: status %d, '%s' without '%s'", b, status, text, bad[b].why);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pursuit_is_right_on_real_means),
        cmocka_unit_test(test_mean_of_measurements_measures_the_mean),
        cmocka_unit_test(test_table_is_adamw_while_the_union_fits),
        cmocka_unit_test(test_more_measurements_find_more),
        cmocka_unit_test(test_shares_are_those_of_the_library),
    };
    const struct CMUnitTest others[] = {cmocka_unit_test(test_bad_recordings)};
    int failed = cmocka_run_group_tests_name("training", tests, load_training, unload);
    failed += cmocka_run_group_tests_name("fine-tuning", tests, load_tuning, unload);
    return failed + cmocka_run_group_tests_name("bad recordings", others, NULL, NULL);
}
