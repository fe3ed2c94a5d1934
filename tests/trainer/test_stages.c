/*
 * test_stages.c - pipeline stages: the bits of a run without them, for every kind of model; compressed links; the same
 * bits after a restart; memory of samples; what is refused.
 */
#include "support/stderr_capture.h"
#include "support/temp_files.h"
#include "trainer/job_helpers.h"
#include "io/tensor_file.h"

#include <math.h>

#define GPT2     "gpt2:layers=3,width=16,heads=2,length=12,dropout=0.2"
#define BERT     "bert-mini:layers=2,width=16,heads=2,length=12"
#define BERT_MLM "bert-mlm-mini:layers=2,width=16,heads=2,length=12"

static fgt_job staged_job(const char *model, const char *method, uint32_t stages) {
    fgt_job job = small_job(model, method, 1);
    job.accumulate = 3; /* does not divide the batch */
    job.batch = 8;
    job.steps = 4;
    job.stages = stages;
    job.stage_config = stages ? "dense" : NULL;
    return job;
}

static fgt_report train_into(fgt_job job, const char *name) {
    job.save = path_under(name);
    return train_job(&job, NULL);
}

/* All weights and running statistics of two checkpoints. */
static void assert_same_weights(const char *a, const char *b) {
    fgio_tensor_file x, y;
    size_t compared = 0;
    assert_int_equal(fgio_tensor_file_open(a, &x), FGIO_EXIT_OK);
    assert_int_equal(fgio_tensor_file_open(b, &y), FGIO_EXIT_OK);
    for (size_t i = 0; i < x.head.count; i++) {
        const fgio_tensor *item = &x.head.item[i], *other = fgio_safetensors_find(&y.head, item->name);
        if (strncmp(item->name, "frugrad.", 8) == 0)
            continue;
        assert_non_null(other);
        float *p = malloc(item->count * sizeof *p), *q = malloc(item->count * sizeof *q);
        assert_int_equal(fgio_tensor_file_read_f32(&x, item, p), FGIO_EXIT_OK);
        assert_int_equal(fgio_tensor_file_read_f32(&y, other, q), FGIO_EXIT_OK);
        assert_memory_equal(p, q, item->count * sizeof *p);
        compared++;
        free(p);
        free(q);
    }
    assert_true(compared > 3);
    fgio_tensor_file_close(&x);
    fgio_tensor_file_close(&y);
}

/* Tied and other last layers, batch norm, dropout, masked text, clipping by the norm of all stages, residuals and
 * states that are rounded at random, recomputed blocks. */
static void stages_do_not_change_a_bit(void **state) {
    (void)state;
    static const struct {
        const char *model, *method;
        uint32_t stages;
        double clip;
        bool recompute;
    } ways[] = {{"lenet", "frugrad", 2, 0, false},
                {"resnet20", "dense", 3, 0.5, false},
                {"resnet20", "frugrad", 2, 0, true},
                {GPT2, "frugrad", 2, 0, false},
                {GPT2, "dense", 3, 0.3, true},
                {GPT2, "frugrad-muon", 4, 0, false},
                {BERT, "topk,density=0.1", 2, 0, false},
                {BERT_MLM, "dense", 3, 0, false},
                {GPT2, "dgc,residual=int8", 3, 0, false},
                {GPT2, "learned", 2, 0, false},
                {GPT2, "qsgd", 3, 0, false},
                {BERT_MLM, "residual=int4,vectors=sparse,min_size=0", 3, 0, false}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        fgt_job job = staged_job(ways[i].model, ways[i].method, 0);
        job.clip = ways[i].clip;
        job.recompute = ways[i].recompute;
        fgt_report whole = train_into(job, "whole");
        job.stages = ways[i].stages;
        job.stage_config = "dense";
        fgt_report staged = train_into(job, "staged");
        assert_same_weights(checkpoint_under("whole", 4), checkpoint_under("staged", 4));
        assert_true(whole.quality.loss == staged.quality.loss && whole.train_loss == staged.train_loss);
        assert_int_equal(staged.stages, ways[i].stages);
        assert_true(staged.bytes_sent >= staged.bytes_dense && 10 * staged.bytes_sent < 11 * staged.bytes_dense);
        remove_folder(path_under("whole"));
        remove_folder(path_under("staged"));
    }
}

/* Bytes of the tensors of a checkpoint whose names begin with a text. */
static uint64_t bytes_named(const char *path, const char *begin) {
    fgio_tensor_file file;
    uint64_t sum = 0;
    assert_int_equal(fgio_tensor_file_open(path, &file), FGIO_EXIT_OK);
    for (size_t i = 0; i < file.head.count; i++)
        if (strncmp(file.head.item[i].name, begin, strlen(begin)) == 0)
            sum += file.head.item[i].count;
    fgio_tensor_file_close(&file);
    return sum;
}

/* No layer is on two stages: all stages together have the weights and states of a run without them, in memory and in a
 * checkpoint, and headers. */
static void each_stage_has_the_states_of_its_layers(void **state) {
    (void)state;
    static const char *const models[] = {GPT2, BERT_MLM, "resnet20"}, *const methods[] = {"frugrad", "dense", "topk"};
    for (size_t i = 0; i < 3; i++) {
        fgt_job job = staged_job(models[i], methods[i], 0);
        train_into(job, "whole");
        job.stages = 3;
        fgt_report staged = train_into(job, "staged");
        const char *a = checkpoint_under("whole", 4), *b = checkpoint_under("staged", 4);
        uint64_t whole = bytes_named(a, "frugrad.residual") + bytes_named(a, "frugrad.optimizer"), sum = 0, weights = 0;
        for (uint32_t s = 0; s < 3; s++) {
            sum += staged.stage_bytes[s].states;
            weights += staged.stage_bytes[s].weights;
            assert_true(staged.stage_bytes[s].weights > 0);
        }
        assert_true(sum >= whole && sum < whole + whole / 20 + 2000);
        assert_true(weights >= 4 * staged.params && weights < 4 * staged.params + 64 * 200); /* lines of 64 bytes */
        assert_int_equal(bytes_named(b, "frugrad.residual") + bytes_named(b, "frugrad.optimizer"), sum);
        remove_folder(path_under("whole"));
        remove_folder(path_under("staged"));
    }
}

static void weights_of_a_file_are_loaded(void **state) {
    (void)state;
    fgt_job job = staged_job("resnet20", "frugrad", 0);
    job.seed = 5;
    train_into(job, "file");
    job.seed = 1;
    job.weights = checkpoint_under("file", 4);
    train_into(job, "whole");
    job.stages = 3;
    job.stage_config = "dense";
    train_into(job, "staged");
    assert_same_weights(checkpoint_under("whole", 4), checkpoint_under("staged", 4));
}

static void frames_are_a_quarter(void **state) {
    (void)state;
    fgt_job job = staged_job("resnet20", "dense", 2);
    fgt_report dense = train_job(&job, NULL);
    job.stage_config = NULL;
    fgt_report packed = train_job(&job, NULL);
    assert_int_equal(packed.bytes_dense, dense.bytes_dense);
    assert_in_range(100 * packed.bytes_sent / dense.bytes_sent, 25, 27);
    assert_true(fabs(packed.train_loss / dense.train_loss - 1) < 0.01);
}

/* --clip auto: each stage has limits of its own. Feedback by sample: memories of both ends. */
static void a_restart_does_not_change_a_bit(void **state) {
    (void)state;
    for (int feedback = 0; feedback < 2; feedback++) {
        fgt_job job = staged_job(GPT2, "frugrad", 3);
        job.samples = 16;
        job.steps = 6;
        job.clip_auto = true;
        job.bucket_bytes = 4096;
        job.save_every = 3;
        job.stage_config = "density=1,value=int4/density=0.5,value=int8";
        job.stage_feedback = feedback ? "sample" : NULL;
        train_into(job, "through");
        job.resume = checkpoint_under("through", 3);
        train_into(job, "again");
        same_files(checkpoint_under("through", 6), checkpoint_under("again", 6), "after a restart");
        remove_folder(path_under("through"));
        remove_folder(path_under("again"));
    }
}

/* What the last message of a sample did not carry is in the next one, so a coarse code comes close to floats. */
static void changes_of_samples_are_more_accurate(void **state) {
    (void)state;
    double loss[3];
    for (int i = 0; i < 3; i++) {
        fgt_job job = staged_job("lenet", "dense", 2);
        job.samples = 16;
        job.augment = FGT_AUGMENT_NONE;
        job.steps = 40;
        job.stage_config = i == 0 ? "dense" : "density=1,value=two_bit/dense";
        job.stage_feedback = i == 2 ? "sample" : NULL;
        job.eval = false;
        loss[i] = train_job(&job, NULL).train_loss;
    }
    assert_true(fabs(loss[2] - loss[0]) < 0.5 * fabs(loss[1] - loss[0]));
}

static void assert_refused(const fgt_job *job, const char *why) {
    fgt_report report;
    stderr_capture capture;
    stderr_capture_begin(&capture);
    int status = fgt_job_train(job, NULL, &report);
    const char *text = stderr_capture_end(&capture);
    assert_int_not_equal(status, FGIO_EXIT_OK);
    if (!strstr(text, why))
        fail_msg("expected '%s' in: %s", why, text);
}

static void memory_of_samples_is_estimated(void **state) {
    (void)state;
    fgt_job job = staged_job("lenet", "dense", 2);
    job.augment = FGT_AUGMENT_NONE;
    job.stage_config = NULL;
    job.samples = 4000;
    job.memory_bytes = 40000000;
    train_job(&job, NULL);
    job.stage_feedback = "sample";
    assert_refused(&job, ", and each stage for --stage-feedback 18.82 MB"); /* 6 x 14 x 14 floats a sample */
    job.samples = 8000;
    assert_refused(&job, "hint: without --stage-feedback it would take about ");
    job.stage_feedback = NULL;
    job.stages = 3;
    job.memory_bytes = 1000000;
    assert_refused(&job, "3 stages together take weights");
    assert_refused(&job, "fewer --stages or a smaller model take less");
}

static void what_does_not_go_together_is_refused(void **state) {
    (void)state;
    char text[1000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    fgt_job job = staged_job("mlp", "frugrad", 40);
    job.accumulate = 8;
    assert_refused(&job, "can be divided into at most");
    job = staged_job(GPT2, "frugrad", 2);
    job.stage_feedback = "sample";
    job.stage_config = NULL;
    assert_refused(&job, "no sample is seen twice");
    job = staged_job("lenet", "frugrad", 2);
    job.stage_feedback = "sample";
    job.stage_config = NULL;
    job.samples = 16;
    assert_refused(&job, "every epoch has other images");
    job = staged_job(GPT2, "frugrad", 2);
    job.stage_feedback = "sample";
    job.stage_config = NULL;
    job.data = path_under("text");
    job.tokens = "bytes";
    job.steps = 40;
    assert_int_equal(mkdir(job.data, 0777), 0);
    temp_dir_write_text(job.data, "train.txt", text);
    assert_refused(&job, "windows of a text begin elsewhere in every epoch");
    remove_folder(path_under("text"));
    job = staged_job("lenet", "gsgd", 2);
    assert_refused(&job, "does not support reduce=gossip");
    job = staged_job("lenet", "frugrad", 2);
    job.sparse = "magnitude";
    assert_refused(&job, "does not support --sparse");
    job = staged_job("lenet", "frugrad", 2);
    job.stage_config = "rule=learned,segment=tensor";
    assert_refused(&job, "remembers earlier messages");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_do_not_change_a_bit),      cmocka_unit_test(each_stage_has_the_states_of_its_layers),
        cmocka_unit_test(weights_of_a_file_are_loaded),    cmocka_unit_test(frames_are_a_quarter),
        cmocka_unit_test(a_restart_does_not_change_a_bit), cmocka_unit_test(changes_of_samples_are_more_accurate),
        cmocka_unit_test(memory_of_samples_is_estimated),  cmocka_unit_test(what_does_not_go_together_is_refused),
    };
    return cmocka_run_group_tests(tests, make_job_folder, remove_job_folder);
}
