/*
 * test_stage_failure.c - a stage that fails at any message, in training and in evaluation: the others end at once, long
 * before their timeout. The linker puts __wrap_frug_comm_post() in the place of frug_comm_post().
 */
#include "base/clock.h"
#include "support/stderr_capture.h"
#include "trainer/job_helpers.h"

#include <stdatomic.h>

#define TIMEOUT 20.0 /* seconds, of a stage that waits for another one */
#define STRIDE  3    /* not every message, for time */

/** What goes wrong: the post of a rank with this number. */
static struct {
    int rank;
    atomic_int posts_left;
    const uint64_t *length; /* sent in place of the true one; NULL: the post itself fails */
} fault;

frug_status __real_frug_comm_post(frug_comm *comm, frug_message *m);
frug_status __wrap_frug_comm_post(frug_comm *comm, frug_message *m);

frug_status __wrap_frug_comm_post(frug_comm *comm, frug_message *m) {
    if (frug_comm_rank(comm) != fault.rank || (fault.length && (!m->sending || m->bytes != sizeof *fault.length)) ||
        atomic_fetch_sub(&fault.posts_left, 1) != 1)
        return __real_frug_comm_post(comm, m);
    if (!fault.length)
        return frug_set_last_error(FRUG_ERR_MEMORY, "no memory for a message");
    m->data = (void *)(uintptr_t)fault.length;
    return __real_frug_comm_post(comm, m);
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

/* One is no code of a failed stage: there are at most 64. */
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_stage_reaches_the_others),
        cmocka_unit_test(lengths_are_checked),
    };
    return cmocka_run_group_tests(tests, make_job_folder, remove_job_folder);
}
