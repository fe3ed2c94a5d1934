/*
 * test_stage_failure.c - a stage that fails at any message, in training and in evaluation: the others end at once, long
 * before their timeout. After a stage that stops they end at their timeout. The linker puts __wrap_frug_comm_post() in
 * the place of frug_comm_post(), and the same for frug_comm_allgather().
 */
#include "base/clock.h"
#include "support/stderr_capture.h"
#include "trainer/job_helpers.h"

#include <stdatomic.h>
#include <time.h>

#define TIMEOUT 20.0 /* seconds, of a stage that waits for another one */
#define STRIDE  3    /* not every message, for time */

/** What goes wrong: the post of a rank with this number. */
static struct {
    int rank;
    atomic_int posts_left;
    const uint64_t *length; /* sent in place of the true one; NULL: the post itself fails */
    bool forever;           /* and all posts after it */
} fault;

frug_status __real_frug_comm_post(frug_comm *comm, frug_message *m);
frug_status __wrap_frug_comm_post(frug_comm *comm, frug_message *m);

frug_status __wrap_frug_comm_post(frug_comm *comm, frug_message *m) {
    if (frug_comm_rank(comm) != fault.rank || (fault.length && (!m->sending || m->bytes != sizeof *fault.length)))
        return __real_frug_comm_post(comm, m);
    const int left = atomic_fetch_sub(&fault.posts_left, 1);
    if (left > 1 || (left < 1 && !fault.forever))
        return __real_frug_comm_post(comm, m);
    if (!fault.length)
        return frug_set_last_error(FRUG_ERR_MEMORY,
                                   left == 1 ? "no memory for a message" : "no memory for the failure");
    m->data = (void *)(uintptr_t)fault.length;
    return __real_frug_comm_post(comm, m);
}

/** A stage that stops for longer than two timeouts, before its gather with this number at the end of passes. */
static struct {
    double timeout;
    atomic_int gathers_left; /* of rank 1 */
} stop;

frug_status __real_frug_comm_allgather(frug_comm *comm, const void *mine, size_t bytes, void *all);
frug_status __wrap_frug_comm_allgather(frug_comm *comm, const void *mine, size_t bytes, void *all);

frug_status __wrap_frug_comm_allgather(frug_comm *comm, const void *mine, size_t bytes, void *all) {
    const long ms = (long)(3e3 * stop.timeout);
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    if (frug_comm_rank(comm) == 1 && bytes == sizeof(uint64_t) && atomic_fetch_sub(&stop.gathers_left, 1) == 1)
        nanosleep(&pause, NULL);
    return __real_frug_comm_allgather(comm, mine, bytes, all);
}

static fgt_job failing_job(const char *model) {
    fgt_job job = small_job(model, "dense", 1);
    job.clip = 0.5; /* stages exchange norms */
    job.accumulate = 3;
    job.batch = 8;
    job.steps = 2;
    job.eval_every = 1;
    job.eval_batches = 2;
    job.stages = 3;
    job.timeout = TIMEOUT;
    return job;
}

/* Stage 0 reports what it receives, and others what they detect. A message of which only the length was sent does not
 * name the stage but its rank. */
static void assert_named(const char *text) {
    char stage[64], rank[64];
    snprintf(stage, sizeof stage, "stage %d has failed", fault.rank);
    snprintf(rank, sizeof rank, "from rank %d", fault.rank);
    if (!strstr(text, fault.length ? "another number of bytes" : "no memory for a message") &&
        !(fault.length && strstr(text, "failed to receive")))
        fail_msg("no reason in: %s", text);
    if (!fault.length && fault.rank > 0 && !strstr(text, stage) && !strstr(text, rank))
        fail_msg("no stage %d in: %s", fault.rank, text);
}

/* Whether the job ended before anything went wrong. */
static bool ends_at_once(const fgt_job *job) {
    fgt_report report;
    stderr_capture capture;
    double start = frugi_clock();
    stderr_capture_begin(&capture);
    int status = fgt_job_train(job, NULL, &report);
    const char *text = stderr_capture_end(&capture);
    assert_true(frugi_clock() - start < TIMEOUT / 4);
    bool failed = atomic_load(&fault.posts_left) <= 0;
    assert_int_equal(status, failed ? FGIO_EXIT_FAIL : FGIO_EXIT_OK);
    if (failed)
        assert_named(text);
    return !failed;
}

/* Stage 0 also has the last chunk of the tied model; the other one is a chain. */
static void a_failed_stage_reaches_the_others(void **state) {
    (void)state;
    static const char *const models[] = {"gpt2:layers=3,width=16,heads=2,length=12", "lenet"};
    for (int i = 0; i < 2; i++)
        for (fault.rank = 0; fault.rank < 3; fault.rank++) {
            fgt_job job = failing_job(models[i]);
            bool ended = false;
            int at = 1;
            for (; !ended; at += STRIDE) {
                atomic_store(&fault.posts_left, at);
                ended = ends_at_once(&job);
            }
            assert_true(at > 40);
        }
}

/* UINT64_MAX - 128 is the first length below the codes of failed stages. */
static void lengths_are_checked(void **state) {
    (void)state;
    static const uint64_t lengths[] = {UINT64_MAX - 128, UINT64_MAX / 2, 0, 5};
    for (fault.rank = 0; fault.rank < 3; fault.rank++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            fgt_job job = failing_job("lenet");
            fault.length = &lengths[i];
            atomic_store(&fault.posts_left, 2);
            assert_false(ends_at_once(&job));
        }
    fault.length = NULL;
}

/* Of the gathers of one number the first compares weights; the second is in training, the third in evaluation. */
static void a_stopped_stage_costs_one_timeout(void **state) {
    (void)state;
    fgt_job job = failing_job("lenet");
    fgt_report report;
    stderr_capture capture;
    stop.timeout = job.timeout = 0.5;
    job.clip = 0;
    fault.rank = -1;
    for (int at = 2; at <= 3; at++) {
        atomic_store(&stop.gathers_left, at);
        stderr_capture_begin(&capture);
        int status = fgt_job_train(&job, NULL, &report);
        const char *text = stderr_capture_end(&capture);
        assert_int_equal(status, FGIO_EXIT_FAIL);
        assert_true(atomic_load(&stop.gathers_left) <= 0);
        for (int rank = 0; rank < 3; rank += 2) {
            char start[64];
            snprintf(start, sizeof start, "timeout: rank %d received nothing", rank);
            const char *first = strstr(text, start);
            if (!first || strstr(first + 1, start))
                fail_msg("not one timeout of rank %d in: %s", rank, text);
        }
    }
}

/* The others cannot receive the failure, and end at their timeout. */
static void the_first_error_is_reported(void **state) {
    (void)state;
    fgt_job job = failing_job("lenet");
    fgt_report report;
    stderr_capture capture;
    job.timeout = 0.5;
    fault.rank = 1;
    fault.forever = true;
    atomic_store(&fault.posts_left, 10);
    stderr_capture_begin(&capture);
    int status = fgt_job_train(&job, NULL, &report);
    const char *text = stderr_capture_end(&capture);
    fault.forever = false;
    assert_int_equal(status, FGIO_EXIT_FAIL);
    if (!strstr(text, "no memory for a message") || strstr(text, "no memory for the failure"))
        fail_msg("not the first error: %s", text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_stage_reaches_the_others),
        cmocka_unit_test(lengths_are_checked),
        cmocka_unit_test(a_stopped_stage_costs_one_timeout),
        cmocka_unit_test(the_first_error_is_reported),
    };
    return cmocka_run_group_tests(tests, make_job_folder, remove_job_folder);
}
