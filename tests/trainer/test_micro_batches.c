/*
 * test_micro_batches.c - batches split into micro-batches: the same step up to rounding, with fewer activations; how
 * their number is chosen, and that a resumed run keeps it; recomputing in backward, with the same bits; runs that do
 * not fit into memory.
 */
#include "trainer/job_helpers.h"
#include "trainer/run/memory_fit.h"
#include "trainer/base/free_memory.h"
#include "io/tensor_file.h"

#include <math.h>
#include <sys/resource.h>
#include <unistd.h>

#define GPT2     "gpt2:layers=2,width=16,heads=2,length=12,dropout=0.2"
#define BERT     "bert-mini:layers=2,width=16,heads=2,length=12"
#define BERT_MLM "bert-mlm-mini:layers=2,width=16,heads=2,length=12"

static fgt_job job_of(const char *model, const char *method, uint32_t accumulate) {
    fgt_job job = small_job(model, method, 2);
    job.accumulate = accumulate;
    job.steps = 4;
    job.save_every = 2;
    return job;
}

static fgt_report train_into(fgt_job job, const char *name) {
    job.save = path_under(name);
    return train_job(&job, NULL);
}

static void remove_run(const char *name) {
    remove_folder(path_under(name));
}

/* Largest difference of the weights of two checkpoints, as a share of the largest weight. */
static double max_difference(const char *a, const char *b) {
    fgio_tensor_file x, y;
    float largest = 0, most = 0;
    assert_int_equal(fgio_tensor_file_open(a, &x), FGIO_EXIT_OK);
    assert_int_equal(fgio_tensor_file_open(b, &y), FGIO_EXIT_OK);
    for (size_t i = 0; i < x.head.count; i++) {
        const fgio_tensor *item = &x.head.item[i], *other = fgio_safetensors_find(&y.head, item->name);
        if (item->dtype != FGIO_F32 || strncmp(item->name, "frugrad.", 8) == 0)
            continue;
        assert_non_null(other);
        float *p = malloc(item->count * sizeof *p), *q = malloc(item->count * sizeof *q);
        assert_int_equal(fgio_tensor_file_read_f32(&x, item, p), FGIO_EXIT_OK);
        assert_int_equal(fgio_tensor_file_read_f32(&y, other, q), FGIO_EXIT_OK);
        for (uint64_t k = 0; k < item->count; k++) {
            largest = fmaxf(largest, fabsf(p[k]));
            most = fmaxf(most, fabsf(p[k] - q[k]));
        }
        free(p);
        free(q);
    }
    fgio_tensor_file_close(&x);
    fgio_tensor_file_close(&y);
    assert_true(largest > 0.01f);
    return (double)(most / largest);
}

/* Plain SGD, so that a gradient of another length is detected; micro-batches of masked text have unequal numbers of
 * targets, and three do not divide four samples. Clipped: by the norm of the full gradient. */
static void micro_batches_make_one_batch(void **state) {
    (void)state;
    static const struct {
        const char *model, *method;
        double clip;
    } ways[] = {{GPT2, "dense", 0.3},
                {GPT2, "dense,reduce=gather", 0.3},
                {BERT, "dense", 0},
                {BERT_MLM, "dense", 0},
                {"lenet", "dense,reduce=gather", 0}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        fgt_job job = job_of(ways[i].model, ways[i].method, 1);
        job.optimizer = "sgd:momentum=0,decay=0";
        job.rate = 0.1;
        job.clip = ways[i].clip;
        fgt_report one = train_into(job, "one");
        for (uint32_t n = 2; n <= 4; n++) {
            job.accumulate = n;
            fgt_report many = train_into(job, "many");
            double far = max_difference(checkpoint_under("one", 4), checkpoint_under("many", 4));
            if (!(far < 1e-5 && fabs(one.quality.loss - many.quality.loss) < 1e-5))
                fail_msg("%s, %s, %u micro-batches: weights differ by %g", ways[i].model, ways[i].method, n, far);
            assert_int_equal(many.accumulate, n);
            assert_int_equal(many.bytes_sent, one.bytes_sent);
            remove_run("many");
        }
        remove_run("one");
    }
}

static fgt_job tuning_of(const fgt_finetune_options *tune, const char *weights) {
    fgt_job job = job_of(GPT2, "dense", 2);
    job.tune = tune;
    job.weights = weights;
    return job;
}

/* Resuming with micro-batches: with residuals, with batch norm, and with measured gradients. */
static void resume_gives_the_same_bits(void **state) {
    (void)state;
    static const fgt_finetune_options tune = {
        .kind = "cesgc", .targets = "qv", .head = "none", .kappa = 2, .chunks = 1, .options = "s=4"};
    char start[512];
    train_into(job_of(GPT2, "frugrad", 2), "start");
    snprintf(start, sizeof start, "%s", checkpoint_under("start", 4));
    fgt_job jobs[] = {job_of(GPT2, "frugrad", 2), job_of("resnet20", "frugrad", 2), tuning_of(&tune, start)};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        jobs[i].clip = i == 2 ? 0 : 0.5;
        train_into(jobs[i], "whole");
        char middle[512];
        snprintf(middle, sizeof middle, "%s", checkpoint_under("whole", 2));
        jobs[i].resume = middle;
        jobs[i].weights = NULL;
        jobs[i].accumulate = 0; /* as the checkpoint has it */
        jobs[i].recompute = true;
        fgt_report broken = train_into(jobs[i], "broken");
        assert_int_equal(broken.accumulate, 2);
        assert_int_equal(broken.accumulate_from, FGT_ACCUMULATE_RESUMED);
        same_files(checkpoint_under("whole", 4), checkpoint_under("broken", 4), "resumed");
        remove_run("whole");
        remove_run("broken");
    }
    remove_run("start");
}

static void recomputing_gives_the_same_bits(void **state) {
    (void)state;
    static const char *const models[] = {GPT2, BERT, "resnet20"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        fgt_job job = job_of(models[i], "frugrad", 1);
        train_into(job, "kept");
        job.recompute = true;
        train_into(job, "again");
        same_files(checkpoint_under("kept", 4), checkpoint_under("again", 4), "recomputed");
        remove_run("kept");
        remove_run("again");
    }
}

/* The choice by memory: half of it for activations, all of it for everything. */
static void accumulate_is_chosen_by_memory_and_resumed(void **state) {
    (void)state;
    fgt_job job = job_of(GPT2, "frugrad", 0);
    fgt_report report = train_into(job, "free");
    assert_int_equal(report.accumulate, 1);
    assert_int_equal(report.accumulate_from, FGT_ACCUMULATE_ONE);
    remove_run("free");
    job.memory_bytes = 60u << 20;
    job.model = "gpt2:layers=2,width=32,heads=2,length=128";
    job.batch = 64;
    job.samples = 100;
    job.steps = 2;
    job.eval = false;
    job.save_every = 1;
    report = train_into(job, "tight");
    assert_int_equal(report.accumulate_from, FGT_ACCUMULATE_CHOSEN);
    assert_true(report.accumulate > 1 && 64 % report.accumulate == 0);
    assert_true(2 * report.activation_bytes <= job.memory_bytes / 2);
    assert_true(2 * report.activation_uncut > job.memory_bytes / 2);
    uint32_t chosen = report.accumulate;
    for (uint32_t threads = 1; threads <= 9; threads += 4) { /* their work space changes no choice, and so no bit */
        job.threads = threads;
        report = train_into(job, "threads");
        assert_int_equal(report.accumulate, chosen);
        same_files(checkpoint_under("tight", 2), checkpoint_under("threads", 2), "threads");
        remove_run("threads");
    }
    job.threads = 1;
    job.memory_bytes = 0;
    job.resume = checkpoint_under("tight", 1);
    report = train_into(job, "roomy");
    assert_int_equal(report.accumulate, chosen);
    same_files(checkpoint_under("tight", 2), checkpoint_under("roomy", 2), "resumed");
    remove_run("tight");
    remove_run("roomy");
}

static void refused(const fgt_job *job, int status, const char *words) {
    fgt_report report;
    stderr_capture o;
    stderr_capture_begin(&o);
    int got = fgt_job_train(job, NULL, &report);
    stderr_capture_end(&o);
    assert_int_equal(got, status);
    if (!strstr(o.text, words))
        fail_msg("the message has no '%s': %s", words, o.text);
}

static void invalid_combinations_are_refused(void **state) {
    (void)state;
    fgt_job job = job_of(GPT2, "frugrad", 2);
    train_into(job, "two");
    job.resume = path_under("two");
    job.accumulate = 4;
    refused(&job, FGIO_EXIT_FAIL, "(--accumulate 2), but this run has 4 (--accumulate 4)");
    job.resume = NULL;
    job.accumulate = 5;
    refused(&job, FGIO_EXIT_USAGE, "a batch of 4 samples cannot be split into more than 4 micro-batches");
    job.accumulate = 0;
    job.memory_bytes = 1u << 20;
    refused(&job, FGIO_EXIT_FAIL, "but 1.05 MB is what --memory allows: each of 2 workers here takes weights ");
    refused(&job, FGIO_EXIT_FAIL, "hint: --recompute would take about ");
    job = job_of("lenet", "frugrad", 0);
    job.recompute = true;
    refused(&job, FGIO_EXIT_USAGE, "--recompute: lenet has no blocks");
    remove_run("two");
}

static void memory_limits_are_detected(void **state) {
    (void)state;
    const uint64_t room = UINT64_C(1) << 30;
    struct rlimit before, limit, now;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    uint64_t shared = fgt_free_memory_machine();
    assert_true(shared > 1u << 20 && shared <= (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
    FILE *statm = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    assert_non_null(statm);
    assert_int_equal(fscanf(statm, "%lu", &pages), 1);
    fclose(statm);
    limit = before;
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + room;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    assert_int_equal(getrlimit(RLIMIT_AS, &now), 0);
    uint64_t own = fgt_free_memory_process();
    setrlimit(RLIMIT_AS, &before);
    if (now.rlim_cur != limit.rlim_cur) /* qemu ignores it */
        skip();
    assert_true(own > room / 2 && own < room + room / 2);
}

/* Accurate enough to refuse a run. The peak is that of the whole process, so the larger ones come later. */
static void estimate_matches_allocation(void **state) {
    (void)state;
    static const struct {
        const char *method;
        uint32_t accumulate, stages;
    } ways[] = {{"frugrad", 1, 0}, {"frugrad", 2, 0}, {"dense", 2, 0}, {"topk", 2, 0}, {"topk", 4, 2}, {"topk", 4, 3}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        fgt_report report = {0};
        fgt_memory_need need;
        fgt_job job = job_of("gpt2:layers=2,width=256,heads=4,length=64", ways[i].method, ways[i].accumulate);
        job.workers = 1;
        job.stages = ways[i].stages;
        job.steps = 1;
        job.eval = false;
        assert_int_equal(fgt_job_train(&job, NULL, &report), FGIO_EXIT_OK);
        fgt_run run = {.job = &job, .report = &report, .batch = job.batch};
        snprintf(run.optimizer, sizeof run.optimizer, "%s", report.optimizer);
        OK(frug_config_create_for(job.method, run.optimizer, &run.config));
        assert_int_equal(fgt_model_parse(job.model, &run.model), FGIO_EXIT_OK);
        fgt_data_options want = {.task = run.model.task, .path = "builtin", .length = 64, .samples = 60, .seed = 1};
        assert_int_equal(fgt_data_open(&want, &run.data), FGIO_EXIT_OK);
        assert_int_equal(fgt_memory_estimate(&run, ways[i].accumulate, FGT_KEEP_ALL, &need), FGIO_EXIT_OK);
        fgt_data_close(run.data);
        frug_config_destroy(run.config);
        double estimated = (double)(need.weights + need.gradients + need.library);
        double allocated = (double)report.model_state_bytes * (ways[i].stages ? ways[i].stages : 1);
        if (!(estimated > 0.8 * allocated && estimated < 1.3 * allocated))
            fail_msg("%s, %u, %u stages: %.0f bytes estimated, %.0f allocated", ways[i].method, ways[i].accumulate,
                     ways[i].stages, estimated, allocated);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(estimate_matches_allocation),                /* first: see there */
        cmocka_unit_test(accumulate_is_chosen_by_memory_and_resumed), /* before models with a larger peak */
        cmocka_unit_test(micro_batches_make_one_batch),
        cmocka_unit_test(resume_gives_the_same_bits),
        cmocka_unit_test(recomputing_gives_the_same_bits),
        cmocka_unit_test(invalid_combinations_are_refused),
        cmocka_unit_test(memory_limits_are_detected),
    };
    return cmocka_run_group_tests(tests, make_job_folder, remove_job_folder);
}
