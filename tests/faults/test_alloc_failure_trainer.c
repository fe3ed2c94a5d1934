/*
 * test_alloc_failure_trainer.c - fail the n-th allocation of the process in a small training run, in one that resumes,
 * in an evaluation and in restoring a checkpoint. Each ends with an error message and a status, or with the result of
 * a run in which nothing failed; nothing leaks, and no partial checkpoint is left. Also: one of two workers that open a
 * checkpoint has no memory.
 */
#include "base/hash.h"
#include "comm/comm.h"
#include "faults/alloc_faults.h"
#include "io/error.h"
#include "support/test_clock.h"
#include "support/thread_group.h"
#include "trainer/job_helpers.h"

#include <limits.h>

static fgt_job tiny_job(void) {
    fgt_job job = small_job("mlp", "frugrad", 1);
    job.schedule = "cosine,warmup=1";
    job.steps = 2;
    job.accumulate = 1;
    job.samples = 40;
    job.save_every = 1;
    return job;
}

/* 0 if the file is not there. */
static uint64_t file_hash(const char *path) {
    FILE *f = fopen(path, "rb");
    unsigned char bytes[4096];
    uint64_t hash = FRUGI_HASH_INIT;
    if (!f)
        return 0;
    for (size_t got; (got = fread(bytes, 1, sizeof bytes, f)) > 0;)
        hash = frugi_hash_bytes(hash, bytes, got);
    fclose(f);
    return hash;
}

/* ---- what is done while an allocation fails: each returns a status, and a number that identifies its result ---- */

/* Whether a file is a complete checkpoint: one that is opened with its checksum. */
static bool is_complete(const char *path) {
    frug_comm *comm = NULL;
    fgt_checkpoint *checkpoint = NULL;
    json_t *metadata = NULL;
    uint64_t step = 0;
    bool complete = frug_comm_self(&comm) == FRUG_OK &&
                    fgt_checkpoint_open(path, comm, &checkpoint, &metadata, &step) == FGIO_EXIT_OK;
    fgt_checkpoint_close(checkpoint);
    frug_comm_destroy(comm);
    return complete;
}

/* A file that is left behind and is no complete checkpoint; empty: there was none. Not a failed assertion at once,
 * because its text would go into the captured stderr. */
static char leftover[800];

static void check_folder(const char *directory) {
    DIR *dir = opendir(directory);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        char path[800];
        snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && (e->d_name[0] == '.' || !is_complete(path)))
            memcpy(leftover, path, sizeof path);
    }
    if (dir)
        closedir(dir);
}

/* The result is the last checkpoint. */
static int train_into(const char *directory, const char *resume, uint64_t *result) {
    fgt_job job = tiny_job();
    fgt_report report;
    char last[600];
    job.save = directory;
    job.resume = resume;
    int status = fgt_job_train(&job, NULL, &report);
    fault_disarm_process();
    snprintf(last, sizeof last, "%s/step-000000002.safetensors", directory);
    *result = file_hash(last);
    check_folder(directory);
    remove_folder(directory);
    return status;
}

static int use_train(uint64_t *result) {
    return train_into(path_under("new"), NULL, result);
}

static int use_resume(uint64_t *result) {
    return train_into(path_under("again"), path_under("start/step-000000001.safetensors"), result);
}

static int use_eval(uint64_t *result) {
    fgt_job job = tiny_job();
    fgt_eval_result quality = {0};
    fgt_report report;
    job.resume = path_under("start");
    int status = fgt_job_eval(&job, FGT_SPLITS, &quality, &report);
    memcpy(result, &quality.loss, sizeof *result);
    return status;
}

/* From a directory of two: the newest one, whatever fails. The result has its step, the weights and the residual. */
static int restore_state(frug_comm *comm, sample_state *s, uint64_t *result) {
    fgt_checkpoint *checkpoint = NULL;
    json_t *metadata = NULL;
    uint64_t step = 0;
    bool redistributed = false;
    int status = fgt_checkpoint_open(path_under("samples"), comm, &checkpoint, &metadata, &step);
    if (status == FGIO_EXIT_OK)
        status = fgt_checkpoint_restore(checkpoint, &s->state, &redistributed);
    fgt_checkpoint_close(checkpoint);
    fault_disarm_process();
    *result = frugi_hash_bytes(FRUGI_HASH_INIT, &step, sizeof step);
    if (status == FGIO_EXIT_OK) {
        static float residual[1 << 14];
        size_t bytes = (size_t)s->state.graph->elements * sizeof(float);
        assert_true(bytes <= sizeof residual);
        assert_true(residual_of(s, residual));
        *result = frugi_hash_bytes(frugi_hash_bytes(*result, s->state.graph->weights, bytes), residual, bytes);
    }
    return status;
}

static int use_restore(uint64_t *result) {
    frug_comm *comm = NULL;
    sample_state s;
    long armed = fault_disarm_process();
    OK(frug_comm_self(&comm));
    assert_true(open_state(comm, 2, "frugrad", &s));
    fault_arm_process(armed);
    int status = restore_state(comm, &s, result);
    close_state(&s);
    frug_comm_destroy(comm);
    return status;
}

/* ---- the sweep ---------------------------------------------------------------------------------- */

typedef int use_fn(uint64_t *result);

static void check_leaks(const char *name, long n) {
    uint64_t now = 0;
    frug_memory(&now, NULL);
    for (int use = 0; use < FGT_USES; use++)
        now += fgt_counted_bytes((fgt_use)use);
    if (now != 0)
        fail_msg("%s: allocation %ld failed, and %llu bytes leak", name, n, (unsigned long long)now);
}

/* One run with the n-th allocation failing. */
static void run_with_fault(const char *name, use_fn *use, long n, uint64_t expected) {
    stderr_capture errors;
    uint64_t result = 0;
    stderr_capture_begin(&errors);
    fault_arm_process(n);
    int status = use(&result);
    fault_disarm_process();
    stderr_capture_end(&errors);
    check_leaks(name, n);
    char left[sizeof leftover];
    memcpy(left, leftover, sizeof left);
    leftover[0] = '\0';
    if (left[0])
        fail_msg("%s: allocation %ld failed, and %s is left: %s", name, n, left, errors.text);
    if (status == FGIO_EXIT_OK && result != expected)
        fail_msg("%s: allocation %ld failed, and the run succeeds with another result: %s", name, n, errors.text);
    if (status != FGIO_EXIT_OK && strstr(errors.text, "frugrad: ") == NULL)
        fail_msg("%s: allocation %ld failed, and the run ends with %d and no message", name, n, status);
}

/* Each of the first 200 allocations and every third of the others; under sanitizers every seventh. Without a fault the
 * run succeeds, before and after. */
static void sweep(const char *name, use_fn *use) {
    uint64_t expected = 0, result = 0;
    assert_int_equal(use(&expected), FGIO_EXIT_OK);
    fault_arm_process(LONG_MAX);
    assert_int_equal(use(&result), FGIO_EXIT_OK);
    long count = fault_count;
    bool brief = getenv("FRUG_TEST_SHORT") != NULL;
    fault_disarm_process();
    assert_true(result == expected);
    for (long n = 1; n <= count; n += brief ? 7 : n <= 200 ? 1 : 3)
        run_with_fault(name, use, n, expected);
    assert_int_equal(use(&result), FGIO_EXIT_OK);
    assert_true(result == expected);
    print_message("%s: %ld allocations\n", name, count);
}

static void training_survives_failed_allocations(void **state) {
    (void)state;
    sweep("train", use_train);
}

static void resuming_survives_failed_allocations(void **state) {
    (void)state;
    sweep("resume", use_resume);
}

static void evaluation_survives_failed_allocations(void **state) {
    (void)state;
    sweep("eval", use_eval);
}

static void restoring_survives_failed_allocations(void **state) {
    (void)state;
    sweep("restore", use_restore);
}

/* ---- a worker other than 0 ----------------------------------------------------------------------- */

#define TIMEOUT 1e-3 /* seconds of the turned clock; a worker that waits reads it as often */

/** A checkpoint that two workers open. Worker 1 has its n-th allocation fail. */
typedef struct joint_open {
    const char *path;
    long n;
    bool fired;
    atomic_bool worker_0_done;
} joint_open;

static frug_status open_jointly(frug_comm *comm, void *shared) {
    joint_open *o = shared;
    fgt_checkpoint *checkpoint = NULL;
    json_t *metadata = NULL;
    uint64_t step = 0;
    comm->poll_seconds = -1; /* sleep at once: by a clock that stands still, polling would not end */
    if (frug_comm_rank(comm) == 1)
        fault_arm(o->n);
    int code = fgt_checkpoint_open(o->path, comm, &checkpoint, &metadata, &step);
    fgt_checkpoint_close(checkpoint);
    if (frug_comm_rank(comm) == 0) {
        atomic_store(&o->worker_0_done, true);
    } else {
        o->fired = fault_fired;
        fault_arm(0);
        if (code != FGIO_EXIT_OK)
            turned_clock_pass(&o->worker_0_done, 2 * TIMEOUT);
    }
    return code == FGIO_EXIT_OK && step == 2 ? FRUG_OK : FRUG_ERR_MEMORY;
}

/* Worker 0 waits for its timeout only if it was the library that had no memory, maybe for a message. */
static void a_worker_without_memory_fails_with_a_message(void **state) {
    (void)state;
    joint_open o = {.path = path_under("samples"), .fired = true};
    use_turned_clock();
    for (o.n = 1; o.fired; o.n++) {
        thread_worker worker[2];
        stderr_capture errors;
        o.worker_0_done = false;
        stderr_capture_begin(&errors);
        run_workers(2, open_jointly, &o, TIMEOUT, worker);
        stderr_capture_end(&errors);
        check_leaks("open", o.n);
        assert_int_equal(worker[1].status, o.fired ? FRUG_ERR_MEMORY : FRUG_OK);
        if (o.fired && strstr(errors.text, "memory") == NULL && worker[1].error[0] == '\0')
            fail_msg("allocation %ld of worker 1 failed, and there is no message: %s", o.n, errors.text);
        if (worker[0].error[0] != '\0' && worker[1].error[0] == '\0')
            fail_msg("allocation %ld of worker 1 failed, and worker 0 fails: %s", o.n, errors.text);
    }
    restore_clock();
    assert_true(o.n > 6);
}

/* ---- jansson 2.14 does not survive all failed allocations itself --------------------------------- */

static _Thread_local bool parsing;

/* It frees the buckets of a hash table twice when it cannot enlarge it, which takes 256 bytes or more. */
static void *jansson_malloc(size_t bytes) {
    return bytes < 256 && !parsing ? malloc(bytes) : __real_malloc(bytes);
}

json_t *__real_json_loadb(const char *text, size_t len, size_t flags, json_error_t *error);

/* Its parser fails an assertion. Here it fails as a whole. */
json_t *__wrap_json_loadb(const char *text, size_t len, size_t flags, json_error_t *error) {
    if (fault_due(0))
        return NULL;
    parsing = true;
    json_t *parsed = __real_json_loadb(text, len, flags, error);
    parsing = false;
    return parsed;
}

/* Two checkpoints of a run, and two of the small state. */
static int set_up(void **state) {
    make_job_folder(state);
    json_set_alloc_funcs(jansson_malloc, free);
    fgt_job job = tiny_job();
    fgt_report report;
    frug_comm *comm = NULL;
    sample_state s;
    job.save = path_under("start");
    assert_int_equal(fgt_job_train(&job, NULL, &report), FGIO_EXIT_OK);
    OK(frug_comm_self(&comm));
    assert_true(open_state(comm, 1, "frugrad", &s));
    for (uint64_t step = 1; step <= 2; step++) {
        assert_true(step_alone(&s, step, 1));
        assert_int_equal(fgt_checkpoint_write(path_under("samples"), 0, 0, step, &s.state, NULL, NULL, 0),
                         FGIO_EXIT_OK);
    }
    close_state(&s);
    frug_comm_destroy(comm);
    return 0;
}

static int tear_down(void **state) {
    remove_folder(path_under("start"));
    remove_folder(path_under("samples"));
    return remove_job_folder(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_survives_failed_allocations),
        cmocka_unit_test(resuming_survives_failed_allocations),
        cmocka_unit_test(evaluation_survives_failed_allocations),
        cmocka_unit_test(restoring_survives_failed_allocations),
        cmocka_unit_test(a_worker_without_memory_fails_with_a_message),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
