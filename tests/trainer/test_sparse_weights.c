/*
 * test_sparse_weights.c - sparse weights: the text of --sparse and its schedule, selection of masks, the packed buffer;
 * and whole runs, whose masks are those that were asked for, whatever the number of workers, before and after a resume.
 */
#include "trainer/job_helpers.h"
#include "io/tensor_file.h"
#include "trainer/nn/fake_quantize.h"
#include "trainer/sparse/mask_select.h"
#include "trainer/sparse/master_weights.h"
#include "trainer/sparse/sparse_weights.h"

#include <math.h>

static fgt_sparse_options parsed(const char *text) {
    fgt_sparse_options o;
    assert_int_equal(fgt_sparse_parse(text, &o), FGIO_EXIT_OK);
    return o;
}

static void bad_texts_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "prune",
                                      "magnitude:density=0",
                                      "magnitude:density=1.5",
                                      "magnitude:density=nan",
                                      "magnitude:density",
                                      "magnitude:n=2",
                                      "magnitude:layers=some",
                                      "magnitude:from=0.7,until=0.6",
                                      "rigl:from=0.1",
                                      "nm:n=4,m=4",
                                      "nm:m=17",
                                      "nm:n=1.5",
                                      "magnitude:,",
                                      "zeros:density=0.5",
                                      "channels:layers=erk",
                                      "heads:density=0",
                                      "units:swap=0.1"};
    fgt_sparse_options o;
    fgio_errors_mute(1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (fgt_sparse_parse(bad[i], &o) != FGIO_EXIT_USAGE)
            fail_msg("'%s' was accepted", bad[i]);
    fgio_errors_mute(0);
    for (size_t i = 0; fgt_sparse_help_at(i); i++) { /* the defaults of the help are those of the parser */
        const fgt_sparse_help *help = fgt_sparse_help_at(i);
        char text[256];
        snprintf(text, sizeof text, "%s%s%s", help->name, *help->options ? ":" : "", help->options);
        fgt_sparse_options a = parsed(text), b = parsed(help->name);
        assert_memory_equal(&a, &b, sizeof a);
    }
}

static void pruning_follows_a_cube(void **state) {
    (void)state;
    fgt_sparse_options o = parsed("magnitude:density=0.1,from=0.1,until=0.5,updates=4");
    const uint64_t steps = 1000;
    assert_true(fgt_sparse_density(&o, 100, steps) == 1);
    assert_true(fabs(fgt_sparse_density(&o, 300, steps) - (1 - 0.9 * (1 - 0.125))) < 1e-12);
    assert_true(fabs(fgt_sparse_density(&o, 500, steps) - 0.1) < 1e-12);
    uint64_t due = 0;
    for (uint64_t step = 0; step <= steps; step++)
        due = due * (fgt_sparse_is_due(&o, step, steps) ? 1000 : 1) + (fgt_sparse_is_due(&o, step, steps) ? step : 0);
    assert_int_equal(due, UINT64_C(200300400500));
    o = parsed("magnitude:from=0,until=0");
    assert_true(fgt_sparse_is_due(&o, 0, steps) && !fgt_sparse_is_due(&o, 1, steps));
}

/* ---- selection ---- */

static void the_largest_are_selected_and_ties_go_to_the_lower_index(void **state) {
    (void)state;
    const float a[] = {1, -3, 0, 2, -2}, b[] = {-2, 0.5f, 3};
    const uint8_t all = 0xff, odd = 0xaa;
    uint8_t x = 0, y = 0;
    fgt_candidates set[] = {{a, &all, false, 5, &x}, {b, &all, false, 3, &y}};
    fgt_select_largest(set, 2, 3);
    assert_int_equal(x, 1 << 1 | 1 << 3);
    assert_int_equal(y, 1 << 2);
    x = 0;
    set[0] = (fgt_candidates){a, &odd, true, 5, &x};
    fgt_select_largest(set, 1, 1);
    assert_int_equal(x, 1 << 4);
    fgt_select_largest(set, 1, 100);
    assert_int_equal(x, 1 << 0 | 1 << 2 | 1 << 4);
}

static void n_of_m_is_along_inputs(void **state) {
    (void)state;
    const float w[] = {1, 2, 3, 4, 5, 6, -9, 8, 7, 0};
    fgt_param p = {.rows = 2, .cols = 5};
    fgt_group_rows rows = fgt_param_rows(&p);
    uint8_t mask[2] = {0};
    fgt_select_n_of_m(&rows, w, 2, 4, mask); /* one input of each output is left over */
    assert_int_equal(mask[0] | mask[1] << 8, 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 9);
    memset(mask, 0, sizeof mask);
    p = (fgt_param){.rows = 5, .cols = 2, .tensor.input_first = 1};
    rows = fgt_param_rows(&p);
    fgt_select_n_of_m(&rows, w, 1, 2, mask);
    assert_int_equal(mask[0] | mask[1] << 8, 1 << 2 | 1 << 3 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 9);
}

/* ---- runs ---- */

static const char *const kinds[] = {"magnitude:density=0.1,from=0.2,until=0.7,updates=3",
                                    "magnitude:density=0.1,from=0,until=0.4,updates=2,layers=global",
                                    "rigl:density=0.2,updates=3,until=0.9,layers=uniform", "nm:from=0.2,until=0.7"};

static fgt_job sparse_job(const char *kind, const char *method, uint32_t workers) {
    fgt_job job = small_job("mlp", method, workers);
    job.sparse = kind;
    job.steps = 10;
    job.save_every = 4;
    job.clip_auto = true;
    return job;
}

static void a_resumed_run_has_the_same_bits(void **state) {
    (void)state;
    static const char *const methods[] = {"frugrad", "dense", "frugrad", "frugrad,vectors=sparse"};
    static const char *const optimizers[] = {NULL, "adamw", "adam-merged", "adam-merged"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t j = 0; j < sizeof methods / sizeof *methods; j++) {
            fgt_job job = sparse_job(kinds[i], methods[j], 2);
            char middle[512];
            job.optimizer = optimizers[j];
            job.save = path_under("whole");
            fgt_report report = train_job(&job, NULL);
            snprintf(middle, sizeof middle, "%s", checkpoint_under("whole", 4));
            job.save = path_under("again");
            job.resume = middle;
            assert_int_equal(train_job(&job, NULL).bytes_sent, report.bytes_sent);
            same_files(checkpoint_under("whole", 10), checkpoint_under("again", 10), "resumed");
            remove_folder(path_under("whole"));
            remove_folder(path_under("again"));
        }
}

/* Of each tensor with a mask: how many weights are not zero, and whether every 4 of a row have at most 2. */
static void count_weights(const char *path, uint64_t *all, uint64_t *kept, bool *two_of_four) {
    fgio_tensor_file file;
    *all = *kept = 0;
    *two_of_four = true;
    assert_int_equal(fgio_tensor_file_open(path, &file), FGIO_EXIT_OK);
    for (size_t i = 0; i < file.head.count; i++) {
        const fgio_tensor *item = &file.head.item[i];
        if (item->ndim != 2)
            continue;
        float *w = malloc(item->count * sizeof *w);
        assert_int_equal(fgio_tensor_file_read_f32(&file, item, w), FGIO_EXIT_OK);
        for (uint64_t k = 0; k + 4 <= item->count; k += 4) {
            int here = (w[k] != 0) + (w[k + 1] != 0) + (w[k + 2] != 0) + (w[k + 3] != 0);
            *kept += (uint64_t)here;
            *two_of_four &= here <= 2;
        }
        *all += item->count;
        free(w);
    }
    fgio_tensor_file_close(&file);
}

static void weights_are_as_sparse_as_asked(void **state) {
    (void)state;
    static const double density[] = {0.1, 0.1, 0.2, 0.5};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        fgt_job job = sparse_job(kinds[i], "frugrad", 4);
        uint64_t all, kept;
        bool two_of_four;
        job.save = path_under("run");
        fgt_report report = train_job(&job, NULL);
        count_weights(checkpoint_under("run", 10), &all, &kept, &two_of_four);
        uint64_t pruned = report.params - report.params_kept;
        assert_true(fabs((double)pruned / (double)all - (1 - density[i])) < 0.002);
        assert_true(all - kept >= pruned); /* a weight that rigl has grown is zero until an entry is sent for it */
        assert_true(i < 3 || two_of_four);
        remove_folder(path_under("run"));
    }
}

/* ---- quantization ---- */

static void rounding_is_to_the_nearest_of_a_scale(void **state) {
    (void)state;
    const float x[] = {-127, 0.4f, 0.5f, 1.5f, 63.6f}, tiny[] = {0, 0}, bad[] = {1, NAN};
    const float eight[] = {-127, 0, 0, 2, 64};
    float y[5], z[2];
    fgt_fake_quantize(x, y, 5, 1, 8);
    assert_memory_equal(y, eight, sizeof y);
    fgt_fake_quantize(x, y, 5, 1, 4);
    assert_true(y[0] == -127 && y[1] == 0 && fabsf(y[4] - 4 * 127.0f / 7) < 1e-4f);
    fgt_fake_quantize(tiny, z, 2, 1, 8);
    assert_memory_equal(z, tiny, sizeof z);
    fgt_fake_quantize(bad, z, 2, 1, 8);
    assert_memory_equal(z, bad, sizeof z);
}

/* ReLU masks gradients by its result, so what was positive stays positive. */
static void rounded_activations_stay_positive(void **state) {
    (void)state;
    float x[] = {-0.1f, 0, 0.1f, 127, 1e-35f, 4, 0, 7};
    fgt_graph g = {.n = 2, .threads = 1};
    fgt_value v = {.data = x, .ndim = 1, .dims = {4}, .sample_size = 4, .bits = 8};
    fgt_fake_quantize_value(&g, &v);
    assert_true(x[0] == 0 && x[1] == 0 && x[2] > 0 && x[2] < 1e-20f && x[3] == 127);
    assert_true(x[4] > 0 && x[4] <= 1e-35f && x[6] == 0);
}

static void bad_bits_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"", "int7", "int8:", "int8:activations=", "int8,activations=int8", "int8888888"};
    fgt_quantize_options o;
    fgio_errors_mute(1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(fgt_quantize_parse(bad[i], &o), FGIO_EXIT_USAGE);
    fgio_errors_mute(0);
    assert_int_equal(fgt_quantize_parse("int4:activations=int8", &o), FGIO_EXIT_OK);
    assert_true(o.weights == 4 && o.activations == 8);
}

/* With 4 bits a row has at most 15 values; with and without masks, and where backward recomputes values. */
static void a_quantized_run_resumes_with_the_same_bits(void **state) {
    (void)state;
    static const char *const sparse[] = {NULL, "magnitude:density=0.3,from=0.2,until=0.7,updates=3",
                                         "rigl:density=0.2,updates=3,until=0.9", "nm:from=0.2,until=0.7"};
    for (size_t i = 0; i < sizeof sparse / sizeof *sparse; i++) {
        fgt_job job = sparse_job(sparse[i], "frugrad", 2);
        char middle[512];
        job.model = "gpt2:layers=2,width=16,heads=2,length=12,dropout=0.2";
        job.quantize = i == 1 ? "int8" : "int4:activations=int8";
        job.save = path_under("whole");
        train_job(&job, NULL);
        snprintf(middle, sizeof middle, "%s", checkpoint_under("whole", 4));
        job.save = path_under("again");
        job.resume = middle;
        job.recompute = true;
        train_job(&job, NULL);
        same_files(checkpoint_under("whole", 10), checkpoint_under("again", 10), "resumed");
        remove_folder(path_under("whole"));
        remove_folder(path_under("again"));
    }
}

static void refuse(const fgt_job *job, const char *what) {
    fgt_report report;
    fgio_errors_mute(1);
    int status = fgt_job_train(job, NULL, &report);
    fgio_errors_mute(0);
    if (status == FGIO_EXIT_OK)
        fail_msg("%s was accepted", what);
}

static void another_run_does_not_resume(void **state) {
    (void)state;
    static const char *const sparse[] = {NULL, "magnitude:from=0.2,until=0.7,updates=3", "nm:from=0.2,until=0.7"};
    for (size_t i = 0; i < sizeof sparse / sizeof *sparse; i++) {
        fgt_job job = sparse_job(sparse[i], "frugrad", 1), other;
        char middle[512];
        job.quantize = sparse[i] ? NULL : "int8";
        job.save = path_under("run");
        train_job(&job, NULL);
        snprintf(middle, sizeof middle, "%s", checkpoint_under("run", 4));
        job.save = NULL;
        job.resume = middle;
        other = job;
        other.quantize = other.sparse = NULL;
        refuse(&other, "a run without --quantize and --sparse");
        other = job;
        other.steps = 30; /* at step 4 of 10 masks have changed once, or the straight-through phase has begun */
        if (sparse[i])
            refuse(&other, sparse[i]);
        else
            train_job(&other, NULL);
        job.steps = 11;
        train_job(&job, NULL);
        remove_folder(path_under("run"));
    }
}

/* The residual of joined tensors has no boundaries of parameters, and depends on the buckets. */
static void joined_tensors_resume(void **state) {
    (void)state;
    fgt_job job = sparse_job(kinds[2], "frugrad,vectors=sparse", 2);
    char middle[512];
    job.optimizer = "adam-merged";
    job.save = path_under("run");
    train_job(&job, NULL);
    snprintf(middle, sizeof middle, "%s", checkpoint_under("run", 4));
    job.save = NULL;
    job.resume = middle;
    job.bucket_bytes = 4096;
    refuse(&job, "another --bucket");
    job.bucket_bytes = 0;
    job.workers = 3;
    train_job(&job, NULL);
    remove_folder(path_under("run"));
}

static void long_methods_are_not_cut(void **state) {
    (void)state;
    char method[1100] = "frugrad";
    for (size_t n = strlen(method); n + 16 < sizeof method; n += strlen(method + n))
        snprintf(method + n, sizeof method - n, ",seed=0");
    fgt_job job = sparse_job(kinds[0], method, 1);
    train_job(&job, NULL);
}

static void weights_of_a_checkpoint_are_quantized(void **state) {
    (void)state;
    fgt_job job = sparse_job(NULL, "frugrad", 1);
    fgio_tensor_file file;
    job.quantize = "int4";
    job.save = path_under("run");
    train_job(&job, NULL);
    assert_int_equal(fgio_tensor_file_open(checkpoint_under("run", 10), &file), FGIO_EXIT_OK);
    for (size_t i = 0; i < file.head.count; i++) {
        const fgio_tensor *item = &file.head.item[i];
        if (item->ndim != 2)
            continue;
        float *w = malloc(item->count * sizeof *w);
        assert_int_equal(fgio_tensor_file_read_f32(&file, item, w), FGIO_EXIT_OK);
        for (uint64_t row = 0; row < item->shape[0]; row++) {
            float largest = 0;
            const float *x = w + row * item->shape[1];
            for (uint64_t k = 0; k < item->shape[1]; k++)
                largest = fmaxf(largest, fabsf(x[k]));
            for (uint64_t k = 0; k < item->shape[1]; k++)
                assert_true(fabsf(x[k] / largest * 7 - rintf(x[k] / largest * 7)) < 1e-4f);
        }
        free(w);
    }
    fgio_tensor_file_close(&file);
    remove_folder(path_under("run"));
}

static void the_number_of_workers_changes_rounding_only(void **state) {
    (void)state;
    double loss[2];
    for (uint32_t i = 0; i < 2; i++) {
        fgt_job job = sparse_job(kinds[0], "dense", i ? 4 : 1);
        job.clip_auto = false;
        job.batch = i ? 4 : 16;
        loss[i] = train_job(&job, NULL).quality.loss;
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-3 * loss[0]); /* a tie near a cutoff may select another weight */
}

static void frames_are_smaller_by_the_sparsity(void **state) {
    (void)state;
    fgt_job job = sparse_job(NULL, "block=64,min_size=0,vectors=sparse", 2);
    job.optimizer = "merged";
    uint64_t dense = train_job(&job, NULL).bytes_sent;
    job.sparse = "magnitude:density=0.1,from=0,until=0";
    uint64_t sparse = train_job(&job, NULL).bytes_sent;
    assert_true(dense >= 8 * sparse);
}

/* All tensors of a bucket are one section; twenty matrices with a header each would make it 6.4 times. */
static void frames_of_small_models_too(void **state) {
    (void)state;
    fgt_job job = sparse_job(NULL, "frugrad,min_size=0,vectors=sparse", 1);
    job.model = "resnet20";
    job.steps = 1;
    job.eval = false;
    uint64_t dense = train_job(&job, NULL).bytes_sent;
    job.sparse = "magnitude:density=0.1,from=0,until=0";
    uint64_t sparse = train_job(&job, NULL).bytes_sent;
    assert_true(dense >= 8 * sparse);
}

static void methods_of_whole_tensors_are_refused(void **state) {
    (void)state;
    static const char *const methods[] = {"frugrad,unit=row", "gsgd", "sparseloco", "dgc"};
    fgt_report report;
    fgio_errors_mute(1);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        fgt_job job = sparse_job(kinds[0], methods[i], 1);
        if (fgt_job_train(&job, NULL, &report) == FGIO_EXIT_OK)
            fail_msg("%s was accepted", methods[i]);
    }
    static const char *const optimizers[] = {"microadam", "muon-merged"};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        fgt_job job = sparse_job(kinds[0], "frugrad", 1);
        job.optimizer = optimizers[i];
        if (fgt_job_train(&job, NULL, &report) == FGIO_EXIT_OK)
            fail_msg("%s was accepted", optimizers[i]);
    }
    fgio_errors_mute(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_texts_are_refused),
        cmocka_unit_test(pruning_follows_a_cube),
        cmocka_unit_test(the_largest_are_selected_and_ties_go_to_the_lower_index),
        cmocka_unit_test(n_of_m_is_along_inputs),
        cmocka_unit_test(a_resumed_run_has_the_same_bits),
        cmocka_unit_test(weights_are_as_sparse_as_asked),
        cmocka_unit_test(rounding_is_to_the_nearest_of_a_scale),
        cmocka_unit_test(rounded_activations_stay_positive),
        cmocka_unit_test(bad_bits_are_refused),
        cmocka_unit_test(a_quantized_run_resumes_with_the_same_bits),
        cmocka_unit_test(another_run_does_not_resume),
        cmocka_unit_test(joined_tensors_resume),
        cmocka_unit_test(long_methods_are_not_cut),
        cmocka_unit_test(weights_of_a_checkpoint_are_quantized),
        cmocka_unit_test(the_number_of_workers_changes_rounding_only),
        cmocka_unit_test(frames_are_smaller_by_the_sparsity),
        cmocka_unit_test(frames_of_small_models_too),
        cmocka_unit_test(methods_of_whole_tensors_are_refused),
    };
    return cmocka_run_group_tests(tests, make_job_folder, remove_job_folder);
}
