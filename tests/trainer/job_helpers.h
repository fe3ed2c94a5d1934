/* job_helpers.h - shared by the tests of jobs: a small job, and a temporary directory for its checkpoints. */
#ifndef FRUG_TEST_JOB_HELPERS_H
#define FRUG_TEST_JOB_HELPERS_H

#include "io/error.h"
#include "trainer/checkpoint_helpers.h"
#include "trainer/run/job.h"

#include <inttypes.h>

static char job_folder[256];

static inline int make_job_folder(void **state) {
    (void)state;
    make_folder(job_folder, sizeof job_folder);
    return 0;
}

static inline int remove_job_folder(void **state) {
    (void)state;
    remove_folder(job_folder);
    return 0;
}

/** A path in the directory; valid for eight calls. */
static inline const char *path_under(const char *name) {
    static char path[8][512];
    static int next;
    char *p = path[next++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", job_folder, name);
    return p;
}

/** The checkpoint of a step that a job has written to a directory in the directory. */
static inline const char *checkpoint_under(const char *name, uint64_t step) {
    char end[100];
    snprintf(end, sizeof end, "%s/step-%09" PRIu64 ".safetensors", name, step);
    return path_under(end);
}

/** Six steps on builtin data; no checkpoint but the last. */
static inline fgt_job small_job(const char *model, const char *method, uint32_t workers) {
    return (fgt_job){.model = model,
                     .data = "builtin",
                     .method = method,
                     .schedule = "constant",
                     .rate = 0.01,
                     .steps = 6,
                     .seed = 1,
                     .workers = workers,
                     .threads = 1,
                     .batch = 4,
                     .samples = 60,
                     .save_every = 1000000,
                     .eval_every = 1000000,
                     .keep = 100,
                     .augment = FGT_AUGMENT_AUTO,
                     .overlap = true,
                     .eval = true};
}

static inline fgt_report train_job(const fgt_job *job, const fgt_job_callbacks *callbacks) {
    fgt_report report;
    assert_int_equal(fgt_job_train(job, callbacks, &report), FGIO_EXIT_OK);
    return report;
}

#endif
