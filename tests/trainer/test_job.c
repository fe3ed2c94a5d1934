/*
 * test_job.c - whole jobs in this process, through job.h: the number of workers, interruptions, evaluations and the
 * batches of an evaluation must not change the result.
 *
 * All jobs have seed 1 and builtin data, so numbers are reproducible. Files are compared byte for byte; where sums have
 * another order, weights agree to 1e-5 of the largest.
 */
#include "trainer/job_helpers.h"
#include "trainer/run/worker.h"

#include <math.h>
#include <pthread.h>

static fgt_job cosine_job(const char *model, const char *method, uint32_t workers) {
    fgt_job job = small_job(model, method, workers);
    job.schedule = "cosine,warmup=2";
    return job;
}

static void remove_run(const char *name) {
    remove_folder(path_under(name));
}

/* ---- the same weights everywhere ------------------------------------------------------------ */

/** A run as fgt_job_train() creates it, but its workers are inspected at the end. */
typedef struct evaluations {
    fgt_run run;
    float *weights[4]; /* of each worker */
    size_t elements;
} evaluations;

typedef struct job_worker {
    pthread_t thread;
    frug_comm *comm;
    evaluations *all;
    int status;
} job_worker;

static void *run_worker(void *arg) {
    job_worker *h = arg;
    fgt_worker w;
    h->status = fgt_worker_open(&w, &h->all->run, h->comm, true);
    if (h->status == FGIO_EXIT_OK)
        h->status = fgt_worker_train(&w);
    if (h->status == FGIO_EXIT_OK) {
        size_t n = (size_t)w.graph->elements;
        float *copy = malloc(n * sizeof *copy);
        if (copy)
            memcpy(copy, w.graph->weights, n * sizeof *copy);
        h->all->weights[w.rank] = copy;
        if (w.rank == 0)
            h->all->elements = n;
    }
    fgt_worker_close(&w);
    return NULL;
}

static void train_and_evaluate(const fgt_job *job, evaluations *l) {
    fgt_report report = {0};
    job_worker h[4] = {0};
    frug_comm *comm[4];
    l->run = (fgt_run){.job = job, .report = &report, .base_rate = job->rate, .batch = job->batch};
    snprintf(l->run.optimizer, sizeof l->run.optimizer, "%s", job->optimizer);
    OK(frug_config_create_for(job->method, job->optimizer, &l->run.config));
    assert_int_equal(fgt_model_parse(job->model, &l->run.model), FGIO_EXIT_OK);
    l->run.schedule = job->schedule;
    assert_int_equal(fgt_rate_parse(l->run.schedule, &l->run.rate), FGIO_EXIT_OK);
    const fgt_model *m = &l->run.model;
    fgt_data_options want = {.task = m->task,
                             .path = "builtin",
                             .length = m->length,
                             .channels = m->channels,
                             .height = m->height,
                             .width = m->width,
                             .classes = m->classes,
                             .samples = job->samples,
                             .seed = job->seed};
    assert_int_equal(fgt_data_open(&want, &l->run.data), FGIO_EXIT_OK);
    OK(frug_comm_threads((int)job->workers, comm));
    for (uint32_t i = 0; i < job->workers; i++) {
        h[i] = (job_worker){.comm = comm[i], .all = l};
        assert_int_equal(pthread_create(&h[i].thread, NULL, run_worker, &h[i]), 0);
    }
    for (uint32_t i = 0; i < job->workers; i++)
        pthread_join(h[i].thread, NULL);
    for (uint32_t i = 0; i < job->workers; i++) {
        assert_int_equal(h[i].status, FGIO_EXIT_OK);
        frug_comm_destroy(comm[i]);
    }
    fgt_data_close(l->run.data);
    frug_config_destroy(l->run.config);
}

static void free_evaluations(evaluations *l) {
    for (int i = 0; i < 4; i++)
        free(l->weights[i]);
    *l = (evaluations){0};
}

static void workers_have_the_same_weights(void **state) {
    (void)state;
    static const char *const ways[][3] = {
        {"lenet", "frugrad", "merged"},           {"lenet", "dense,reduce=dense", "sgd:momentum=0.9"},
        {"gpt2-nano", "qsgd", "adamw"},           {"gpt2-nano", "frugrad,reduce=split,down=2", "adam-merged"},
        {"gpt2-nano", "topk,norm=follow", "sgd"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (uint32_t workers = 2; workers <= 3; workers++) {
            fgt_job job = cosine_job(ways[i][0], ways[i][1], workers);
            evaluations l = {0};
            job.optimizer = ways[i][2];
            job.eval = false;
            job.clip = i % 2 ? 0.5 : 0;
            train_and_evaluate(&job, &l);
            for (uint32_t r = 1; r < workers; r++)
                assert_memory_equal(l.weights[0], l.weights[r], l.elements * sizeof(float));
            free_evaluations(&l);
        }
}

/* P workers with batches of n equal one with a batch of P n. */
static void workers_make_one_large_batch(void **state) {
    (void)state;
    fgt_job job = cosine_job("lenet", "dense,reduce=dense", 1);
    job.optimizer = "sgd:momentum=0.9,decay=5e-3";
    job.eval = false;
    job.batch = 12;
    evaluations one = {0}, many = {0};
    train_and_evaluate(&job, &one);
    for (uint32_t workers = 2; workers <= 3; workers++) {
        float largest = 0, max_difference = 0;
        job.workers = workers;
        job.batch = 12 / workers;
        train_and_evaluate(&job, &many);
        for (size_t i = 0; i < one.elements; i++) {
            largest = fmaxf(largest, fabsf(one.weights[0][i]));
            max_difference = fmaxf(max_difference, fabsf(one.weights[0][i] - many.weights[0][i]));
        }
        assert_true(largest > 0.1f);
        if (!(max_difference < 1e-5f * largest))
            fail_msg("%u workers: weights up to %g differ by %g", workers, (double)largest, (double)max_difference);
        free_evaluations(&many);
    }
    free_evaluations(&one);
}

/* ---- gossip -------------------------------------------------------------------------------------- */

/* Two workers that send all entries with gamma 1 have the mean of their weights after each step; without momentum that
 * is a step by the mean gradient. At density 0.4 their weights differ during training, but not at the end. */
static void gossip_of_all_entries_equals_the_mean_gradient(void **state) {
    (void)state;
    static const char *const methods[] = {"dense", "gsgd,density=1,gamma=1", "gsgd"};
    evaluations l[3] = {0};
    for (size_t i = 0; i < 3; i++) {
        fgt_job job = cosine_job("lenet", methods[i], 2);
        job.optimizer = "sgd:momentum=0,decay=5e-3";
        job.rate = 0.1;
        job.eval = false;
        train_and_evaluate(&job, &l[i]);
        assert_memory_equal(l[i].weights[0], l[i].weights[1], l[i].elements * sizeof(float));
    }
    float largest = 0, max_difference = 0, sparse = 0;
    for (size_t k = 0; k < l[0].elements; k++) {
        largest = fmaxf(largest, fabsf(l[0].weights[0][k]));
        max_difference = fmaxf(max_difference, fabsf(l[0].weights[0][k] - l[1].weights[0][k]));
        sparse = fmaxf(sparse, fabsf(l[0].weights[0][k] - l[2].weights[0][k]));
    }
    if (!(max_difference < 1e-5f * largest && sparse > 10 * max_difference))
        fail_msg("weights up to %g differ by %g, at density 0.4 by %g", (double)largest, (double)max_difference,
                 (double)sparse);
    for (size_t i = 0; i < 3; i++)
        free_evaluations(&l[i]);
}

/* The mean is evaluated and saved, running statistics too; evaluations on the way have no effect. */
static void gossip_evaluates_the_mean(void **state) {
    (void)state;
    fgt_report reported[2];
    for (uint32_t often = 0; often < 2; often++) {
        fgt_job job = cosine_job("resnet20", "gsgd", 3);
        job.batch = 2;
        job.rate = 0.05;
        job.steps = 4;
        job.eval_every = often ? 2 : 1000000;
        job.save_every = 0;
        job.save = path_under(often ? "often" : "once");
        reported[often] = train_job(&job, NULL);
        assert_string_equal(reported[often].algorithm, "gossip");
        assert_int_equal(reported[often].step, 4);
    }
    same_files(checkpoint_under("often", 4), checkpoint_under("once", 4), "looking");
    fgt_job job = cosine_job("resnet20", "gsgd", 1);
    fgt_report report;
    fgt_eval_result q;
    job.resume = checkpoint_under("once", 4);
    assert_int_equal(fgt_job_eval(&job, FGT_SPLITS, &q, &report), FGIO_EXIT_OK);
    if (!(fabs(q.loss - reported[0].quality.loss) < 1e-5 * q.loss))
        fail_msg("the file has loss %.9g, the run reported %.9g", q.loss, reported[0].quality.loss);
    assert_true(reported[0].bytes_sent == reported[1].bytes_sent && reported[0].density_mean < 0.45);
    assert_true(reported[0].bytes_sent >
                4 * 2 * 4 * reported[0].params * 4 / 10); /* 40 % of floats to each of two neighbors */
    assert_true(reported[0].bytes_sent < 4 * 2 * 4 * reported[0].params * 5 / 10);
    remove_run("often");
    remove_run("once");
}

/* ---- defaults of a method --------------------------------------------------------------------------- */

static void note_rate(void *ctx, const fgt_progress *p) {
    *(double *)ctx = p->rate;
}

static void optimizers_go_with_the_method(void **state) {
    (void)state;
    static const struct {
        const char *model, *method, *optimizer;
        double rate;
        bool alone;
    } ways[] = {{"mlp", "demo", "sign:", 1e-3, false},
                {"mlp", "demo,density=0.01", "sign:", 1e-3, false},
                {"mlp", "demo", "sgd:", 0.05, true},
                {"mlp", "demo,feedback=none", "sgd:", 0.05, false},
                {"mlp", "block=4096,density=0.0078125,beta=0.999", "merged:", 0.05, false},
                {"mlp", "gsgd", "sgd:", 0.05, false},
                {"mlp", "dgc", "merged:", 0.05, false},
                {"mlp", "frugrad,feedback=ef21", "merged:", 0.05, false},
                {"mlp", "feedback=plain", "sgd:", 0.05, false},
                {"gpt2-nano", "demo", "sign:", 8e-3, false},
                {"gpt2-nano", "frugrad", "adam-merged:", 8e-3, false},
                {"gpt2-nano", "dgc", "adam-merged:", 8e-3, false},
                {"gpt2-nano", "frugrad-muon", "muon-merged:momentum=0,gain=6", 8e-3, false},
                {"mlp", "frugrad-muon,density=0.01", "muon-merged:", 1e-3, false},
                {"gpt2-nano", "frugrad,feedback=ef21", "merged:", 0.05, false},
                {"gpt2-nano:width=192", "dense", "adamw:beta1=0.9,beta2=0.99", 0.4 / 192, false},
                {"gpt2-nano", "gsgd", "adamw:", 8e-3, false}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        double rate = 0;
        const fgt_job_callbacks watch = {.ctx = &rate, .step = note_rate};
        fgt_job job = cosine_job(ways[i].model, ways[i].method, 2);
        job.rate = 0; /* what suits */
        job.schedule = "constant";
        job.steps = 1;
        job.eval = false;
        job.alone = ways[i].alone;
        fgt_report report = train_job(&job, &watch);
        if (strncmp(report.optimizer, ways[i].optimizer, strlen(ways[i].optimizer)) != 0 || rate != ways[i].rate)
            fail_msg("%s, %s: %s at %g", ways[i].model, ways[i].method, report.optimizer, rate);
    }
}

/* ---- norms and clipping ------------------------------------------------------------------------- */

static void note_norm(void *ctx, const fgt_progress *p) {
    double *norm = ctx;
    norm[0] = p->norm;
    norm[1] = p->clipped;
}

/* Length of one step of plain SGD, as a multiple of the rate: the norm of the applied gradient. */
static double length_of_step(const char *method, double clip, double reported[2]) {
    fgt_job job = cosine_job("lenet", method, 1);
    const fgt_job_callbacks watch = {.ctx = reported, .step = note_norm};
    double sum = 0;
    job.optimizer = "sgd:momentum=0,decay=0";
    job.schedule = "constant";
    job.eval = false;
    job.steps = 1;
    job.clip = clip;
    job.save = path_under("norm");
    fgt_report report = train_job(&job, &watch);
    fgt_model m;
    fgt_graph *before, *after;
    fgt_data_info info = {.name = "any", .channels = 1, .height = 28, .width = 28, .classes = 10};
    assert_int_equal(fgt_model_parse("lenet", &m), FGIO_EXIT_OK);
    assert_int_equal(fgt_model_build(&m, &info, 1, 1, &before), FGIO_EXIT_OK);
    assert_int_equal(fgt_model_build(&m, &info, 1, 1, &after), FGIO_EXIT_OK);
    fgt_graph_init(before, 1);
    assert_int_equal(fgt_weights_load(report.checkpoint, after, NULL), FGIO_EXIT_OK);
    for (uint64_t i = 0; i < before->elements; i++) {
        double d = (double)after->weights[i] - (double)before->weights[i];
        sum += d * d;
    }
    fgt_graph_destroy(before);
    fgt_graph_destroy(after);
    remove_run("norm");
    return sqrt(sum) / job.rate;
}

static void norm_is_that_of_the_applied_gradient(void **state) {
    (void)state;
    static const char *const methods[] = {"dense,reduce=dense",
                                          "dense,reduce=gather"}; /* exactly; by a mean of norms */
    for (size_t i = 0; i < 2; i++) {
        double reported[2], length = length_of_step(methods[i], 0, reported);
        assert_true(fabs(length - reported[0]) < 1e-4 * length); /* weights are floats: their change has fewer digits */
        assert_true(reported[1] == 1);
        double clip = 0.25 * length, clipped = length_of_step(methods[i], clip, reported);
        if (!(fabs(clipped - clip) < 1e-3 * clip && fabs(reported[0] - length) < 1e-4 * length))
            fail_msg("%s: clipped to %g is %g, of norm %g", methods[i], clip, clipped, reported[0]);
        assert_true(fabs(reported[1] - 0.25) < 1e-3);
    }
}

/* ---- interruption and resume ----------------------------------------------------------------------- */

static void resume_gives_the_same_bits(void **state) {
    (void)state;
    static const struct {
        const char *model, *method, *optimizer;
        double clip;
        uint32_t workers;
    } ways[] = {
        {"mlp", "frugrad", NULL, 0, 1},
        {"mlp", "frugrad,norm=follow", NULL, 0, 2}, /* it uses the norm of the step before the interruption */
        {"mlp", "dense,reduce=dense", "sgd:momentum=0.9", 0.5, 3},
        {"lenet", "frugrad", "microadam", 0.5, 2},
        {"resnet20", "frugrad", NULL, 0.5, 3}, /* running statistics; bytes that three do not divide */
        {"gpt2-nano", "topk", "adamw", 0, 2},
        {"gpt2-nano", "frugrad-muon", NULL, 0, 2},
        {"lenet", "frugrad", "muon-merged:momentum=0.9", 0, 2},
        {"lenet", "dense", "muon", 0, 2},
        {"mlp", "frugrad-paper", "merged:inertia=auto", 0, 2}, /* the velocity has been freed by then */
        {"mlp", "schedule=frugrad:0.5:0.94:1", "adam-merged:inertia=auto", 0, 2}, /* and here it has not */
        /* Below 0: limits from the running norm, of several buckets. */
        {"lenet", "frugrad", NULL, -1, 2},
        {"lenet", "dense", NULL, -1, 2},
        {"mlp", "dgc", NULL, -1, 2},
        {"mlp", "frugrad,feedback=ef21", NULL, -1, 2}, /* the receiver's sum */
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        fgt_job job = cosine_job(ways[i].model, ways[i].method, ways[i].workers);
        job.batch = 1;
        job.optimizer = ways[i].optimizer;
        job.clip = ways[i].clip > 0 ? ways[i].clip : 0;
        job.clip_auto = ways[i].clip < 0;
        job.bucket_bytes = job.clip_auto ? 64u << 10 : 0;
        job.eval_every = 3; /* not where the break is */
        job.eval_batches = 1;
        job.save = path_under("whole");
        job.save_every = 4;
        fgt_report whole = train_job(&job, NULL);
        job.save = path_under("broken");
        job.resume = checkpoint_under("whole", 4);
        fgt_report broken = train_job(&job, NULL);
        assert_int_equal(whole.bytes_sent, broken.bytes_sent);
        assert_true(whole.quality.loss == broken.quality.loss);
        same_files(checkpoint_under("whole", 6), checkpoint_under("broken", 6), ways[i].method);
        remove_run("whole");
        remove_run("broken");
    }
}

static void stop_in_third(void *ctx, const fgt_progress *p) {
    (void)ctx;
    if (p->step == 2) /* the current step is the last */
        fgt_job_interrupt();
}

static void interrupted_run_is_resumed(void **state) {
    (void)state;
    const fgt_job_callbacks watch = {.step = stop_in_third};
    fgt_job job = cosine_job("resnet20", "frugrad", 2);
    job.batch = 1;
    job.eval_every = 3; /* the interruption is at a step with an evaluation */
    job.eval_batches = 1;
    job.save = path_under("stopped");
    fgt_report report = train_job(&job, &watch);
    assert_true(report.interrupted);
    assert_int_equal(report.step, 3);
    assert_string_equal(report.checkpoint, checkpoint_under("stopped", 3));
    job.resume = path_under("stopped");
    report = train_job(&job, NULL); /* the next job is not meant */
    assert_false(report.interrupted);
    assert_int_equal(report.step, 6);
    job.resume = NULL;
    job.save = path_under("whole");
    train_job(&job, NULL);
    same_files(checkpoint_under("whole", 6), checkpoint_under("stopped", 6), "interrupted");
    remove_run("whole");
    remove_run("stopped");
}

static void resume_with_another_number_of_workers(void **state) {
    (void)state;
    fgt_job job = cosine_job("mlp", "frugrad", 2);
    job.save = path_under("two");
    fgt_report two = train_job(&job, NULL);
    job.workers = 3;
    job.batch = 4;
    job.steps = 12;
    job.resume = path_under("two");
    job.save = path_under("three");
    fgt_report three = train_job(&job, NULL);
    assert_int_equal(three.step, 12);
    assert_int_equal(three.workers, 3);
    assert_true(three.bytes_sent > two.bytes_sent); /* goes on counting */
    job.rate = 0.02;
    assert_int_equal(fgt_job_train(&job, NULL, &three), FGIO_EXIT_FAIL);
    remove_run("two");
    remove_run("three");
}

/* ---- evaluation ------------------------------------------------------------------------------------ */

static void evaluation_does_not_change_training(void **state) {
    (void)state;
    fgt_job job = cosine_job("resnet20", "frugrad", 2);
    job.batch = 1;
    job.steps = 3;
    job.eval_batches = 1;
    job.eval_every = 1;
    job.save = path_under("looked");
    train_job(&job, NULL);
    job.eval = false;
    job.save = path_under("blind");
    train_job(&job, NULL);
    same_files(checkpoint_under("looked", 3), checkpoint_under("blind", 3), "evaluation");
    remove_run("looked");
    remove_run("blind");
}

static void evaluation_depends_on_the_weights_alone(void **state) {
    (void)state;
    static const char *const models[] = {"resnet20", "bert-mini:layers=1,width=32,heads=2,length=16",
                                         "bert-mlm-mini:layers=1,width=32,heads=2,length=16", "gpt2-nano:dropout=0.3"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        fgt_job job = cosine_job(models[i], "frugrad", 2);
        job.batch = 2;
        job.steps = 2;
        job.samples = 56; /* 7 to test on */
        job.save = path_under("run");
        fgt_report run = train_job(&job, NULL), report;
        job.resume = path_under("run");
        fgt_report again = train_job(&job, NULL); /* nothing left to do but to evaluate */
        assert_true(again.quality.loss == run.quality.loss);
        for (uint32_t workers = 1; workers <= 3; workers++) {
            fgt_eval_result q;
            job.workers = workers;
            job.batch = 6 - workers;
            assert_int_equal(fgt_job_eval(&job, FGT_SPLITS, &q, &report), FGIO_EXIT_OK);
            assert_true(q.asked == run.quality.asked && q.accuracy == run.quality.accuracy);
            if (!(fabs(q.loss - run.quality.loss) < 1e-5 * run.quality.loss))
                fail_msg("%s, %u workers: loss %.9g, not %.9g", models[i], workers, q.loss, run.quality.loss);
        }
        remove_run("run");
    }
}

/* Evaluation images are not augmented, also those of the training split. */
static void evaluation_images_are_not_augmented(void **state) {
    (void)state;
    fgt_job job = cosine_job("lenet", "frugrad", 1);
    fgt_report report;
    fgt_eval_result q[2];
    job.save = path_under("run");
    train_job(&job, NULL);
    job.resume = path_under("run");
    for (int i = 0; i < 2; i++) {
        job.augment = i ? FGT_AUGMENT_AUTO : FGT_AUGMENT_NONE;
        assert_int_equal(fgt_job_eval(&job, FGT_TRAIN, &q[i], &report), FGIO_EXIT_OK);
    }
    assert_true(q[0].asked == 60 && q[0].loss == q[1].loss);
    remove_run("run");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_have_the_same_weights),
        cmocka_unit_test(workers_make_one_large_batch),
        cmocka_unit_test(norm_is_that_of_the_applied_gradient),
        cmocka_unit_test(resume_gives_the_same_bits),
        cmocka_unit_test(interrupted_run_is_resumed),
        cmocka_unit_test(resume_with_another_number_of_workers),
        cmocka_unit_test(evaluation_does_not_change_training),
        cmocka_unit_test(evaluation_depends_on_the_weights_alone),
        cmocka_unit_test(evaluation_images_are_not_augmented),
        cmocka_unit_test(gossip_of_all_entries_equals_the_mean_gradient),
        cmocka_unit_test(gossip_evaluates_the_mean),
        cmocka_unit_test(optimizers_go_with_the_method),
    };
    return cmocka_run_group_tests(tests, make_job_folder, remove_job_folder);
}
