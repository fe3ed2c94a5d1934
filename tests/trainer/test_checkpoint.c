/*
 * test_checkpoint.c - checkpoints: restoring is bit-exact; damage is detected and the file skipped; a full disk, a kill
 * and a change of the number of workers lose nothing.
 *
 * Seeds are fixed; only the times at which writers are killed vary.
 */
#include "trainer/checkpoint_helpers.h"
#include "support/thread_group.h"
#include "io/files.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <utime.h>

static char folder[256];

static int set_up(void **state) {
    (void)state;
    make_folder(folder, sizeof folder);
    fgio_files_init(); /* small limits on files become errors */
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    remove_folder(folder);
    return 0;
}

static void name_of(uint64_t step, char *path, size_t cap) {
    snprintf(path, cap, "%s/step-%09" PRIu64 ".safetensors", folder, step);
}

static int write_later(const sample_state *s, uint64_t generation, uint64_t step, uint32_t keep) {
    json_t *facts = json_pack("{s:s, s:s}", "model", "mlp", "seed", "17");
    int code = fgt_checkpoint_write(folder, keep, generation, step, &s->state, facts, NULL, 0);
    json_decref(facts);
    return code;
}

static int write_step(const sample_state *s, uint64_t step, uint32_t keep) {
    return write_later(s, 0, step, keep);
}

static int open_and_restore(const char *path, const sample_state *s, uint64_t *step, bool *redistributed) {
    fgt_checkpoint *checkpoint = NULL;
    json_t *facts = NULL;
    int code = fgt_checkpoint_open(path, s->state.comm, &checkpoint, &facts, step);
    if (code != 0)
        return code;
    const char *seed = json_string_value(json_object_get(facts, "seed"));
    code = seed != NULL && strcmp(seed, "17") == 0 ? fgt_checkpoint_restore(checkpoint, &s->state, redistributed) : 3;
    fgt_checkpoint_close(checkpoint);
    return code;
}

static bool same_states(const sample_state *a, const sample_state *b) {
    size_t n = (size_t)a->state.graph->elements, have = frug_compressor_state_size(a->state.compressor), len_a, len_b;
    size_t more = frug_optimizer_state_size(a->state.optimizer);
    unsigned char *x = malloc(have + more), *y = malloc(have + more);
    bool same = x && y && memcmp(a->state.graph->weights, b->state.graph->weights, n * sizeof(float)) == 0 &&
                memcmp(a->state.graph->buffers->data, b->state.graph->buffers->data, 5 * sizeof(float)) == 0 &&
                frug_compressor_save(a->state.compressor, x, have, &len_a) == FRUG_OK &&
                frug_compressor_save(b->state.compressor, y, have, &len_b) == FRUG_OK && len_a == len_b &&
                frug_optimizer_save(a->state.optimizer, x + have, more, &len_a) == FRUG_OK &&
                frug_optimizer_save(b->state.optimizer, y + have, more, &len_b) == FRUG_OK && len_a == len_b &&
                memcmp(x, y, have + more) == 0;
    free(x);
    free(y);
    return same;
}

/* One worker of a group: write, restore into a new worker, compare, run a step, compare again. */
static frug_status round_trip(frug_comm *comm, void *shared) {
    sample_state a, b;
    uint64_t step = 0, rank = (uint64_t)frug_comm_rank(comm);
    bool redistributed = true, good = true;
    (void)shared;
    if (!open_state(comm, 3, "frugrad,min_size=1", &a))
        return FRUG_ERR_MEMORY;
    if (!open_state(comm, 4, "frugrad,min_size=1", &b)) {
        close_state(&a);
        return FRUG_ERR_MEMORY;
    }
    a.state.graph->buffers->data[0] = (float)rank; /* every worker has its own running statistics */
    for (uint64_t i = 0; i < 3 && good; i++)
        good = step_alone(&a, i, 100 + rank);
    /* All workers have the same weights; here each has stepped alone, so make them the same again. */
    for (fgt_param *p = a.state.graph->params; p; p = p->next)
        for (size_t i = 0; i < p->rows * p->cols; i++)
            p->w[i] = (float)(p->tensor.offset + i) * 0.5f;
    good = good && write_step(&a, 3, 2) == 0 && open_and_restore(folder, &b, &step, &redistributed) == 0 && step == 3 &&
           !redistributed;
    /* The restored optimizer state is worker 0's; restore this worker's own before comparing. */
    if (good && rank > 0) {
        size_t len, size = frug_optimizer_state_size(b.state.optimizer);
        void *blob = malloc(size);
        good = blob && frug_optimizer_save(b.state.optimizer, blob, size, &len) == FRUG_OK &&
               frug_optimizer_restore(a.state.optimizer, blob, len) == FRUG_OK;
        free(blob);
    }
    good = good && same_states(&a, &b) && step_alone(&a, 3, 100 + rank) && step_alone(&b, 3, 100 + rank) &&
           same_states(&a, &b);
    close_state(&a);
    close_state(&b);
    return good ? FRUG_OK : FRUG_ERR_ARG;
}

static void restore_is_bit_exact(void **state) {
    static const int sizes[] = {1, 2, 5};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        thread_worker member[THREAD_WORKERS_MAX];
        run_workers(sizes[i], round_trip, NULL, 20.0, member);
        for (int r = 0; r < sizes[i]; r++)
            if (member[r].status != FRUG_OK)
                fail_msg("worker %d of %d: %s", r, sizes[i], member[r].error);
        remove_folder(folder);
        assert_int_equal(mkdir(folder, 0777), 0);
    }
}

static void open_single(frug_comm **comm, sample_state *s, uint64_t seed) {
    OK(frug_comm_self(comm));
    assert_true(open_state(*comm, seed, "frugrad,min_size=1", s));
    assert_true(step_alone(s, 0, seed));
}

static void close_single(frug_comm *comm, sample_state *s) {
    close_state(s);
    frug_comm_destroy(comm);
}

static void old_checkpoints_are_removed_and_directories_created(void **state) {
    frug_comm *comm;
    sample_state s;
    char deep[300], path[400];
    stderr_capture errors;
    (void)state;
    open_single(&comm, &s, 1);
    for (uint64_t step = 10; step <= 50; step += 10)
        assert_int_equal(write_step(&s, step, 2), 0);
    assert_int_equal(count_files(folder, "step-"), 2);
    name_of(40, path, sizeof path);
    assert_int_equal(access(path, R_OK), 0);
    stderr_capture_begin(&errors);
    assert_int_equal(write_later(&s, 1, 20, 1), 0); /* another run with lower steps: it must not remove later ones */
    stderr_capture_end(&errors);
    assert_non_null(strstr(errors.text, "step 50"));
    assert_int_equal(count_files(folder, "step-"), 3);
    stderr_capture_begin(&errors);
    assert_int_equal(write_later(&s, 1, 30, 1), 0); /* which is reported once */
    stderr_capture_end(&errors);
    assert_null(strstr(errors.text, "step 50"));
    assert_int_equal(count_files(folder, "step-"), 3); /* 20 has gone */
    snprintf(deep, sizeof deep, "%s/a/b", folder);
    assert_int_equal(fgt_checkpoint_write(deep, 1, 0, 7, &s.state, NULL, path, sizeof path), 0);
    assert_int_equal(access(path, R_OK), 0);
    remove_folder(deep);
    snprintf(deep, sizeof deep, "%s/a", folder);
    rmdir(deep);
    remove_folder(folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    close_single(comm, &s);
}

static void expect_newest(frug_comm *comm, uint64_t want, uint64_t at, uint64_t generation) {
    fgt_checkpoint *checkpoint = NULL;
    json_t *facts = NULL;
    uint64_t step = 0, next = 99;
    assert_int_equal(fgt_checkpoint_open(folder, comm, &checkpoint, &facts, &step), 0);
    assert_int_equal(step, want);
    assert_int_equal(fgt_checkpoint_next_generation(folder, checkpoint, at, &next), 0);
    assert_int_equal(next, generation);
    fgt_checkpoint_close(checkpoint);
}

/* The step decreases where a run resumes with more workers; the newest is still the one written last. */
static void newest_checkpoint_is_the_last_written(void **state) {
    frug_comm *comm;
    sample_state s;
    uint64_t next = 99;
    bool any = true;
    char path[400];
    (void)state;
    open_single(&comm, &s, 1);
    assert_int_equal(fgt_checkpoint_exists(folder, comm, &any), 0);
    assert_false(any);
    assert_int_equal(fgt_checkpoint_next_generation(folder, NULL, 0, &next), 0);
    assert_int_equal(next, 0);
    for (uint64_t step = 90; step <= 100; step += 10)
        assert_int_equal(write_step(&s, step, 3), 0);
    assert_int_equal(fgt_checkpoint_exists(folder, comm, &any), 0);
    assert_true(any);
    expect_newest(comm, 100, 100, 0); /* goes on */
    expect_newest(comm, 100, 200, 0); /* with half as many workers */
    expect_newest(comm, 100, 50, 1);  /* with twice as many */
    assert_int_equal(fgt_checkpoint_next_generation(folder, NULL, 0, &next), 0);
    assert_int_equal(next, 1); /* starts anew */
    assert_int_equal(write_later(&s, 1, 60, 3), 0);
    expect_newest(comm, 60, 60, 1);
    assert_int_equal(write_later(&s, 2, 55, 3), 0);
    expect_newest(comm, 55, 56, 2);
    name_of(55, path, sizeof path);
    assert_int_equal(utime(path, &(struct utimbuf){1, 1}), 0); /* a copy may have any time */
    expect_newest(comm, 55, 56, 2);
    assert_int_equal(write_later(&s, 2, 101, 1), 0);
    assert_int_equal(count_files(folder, "step-"), 1);
    remove_folder(folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    close_single(comm, &s);
}

/* Change one byte of a file, counted from the end if negative. */
static void flip(const char *path, long at) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
    int byte = fgetc(f);
    fseek(f, -1, SEEK_CUR);
    fputc(byte ^ 0x20, f);
    fclose(f);
}

static void damaged_checkpoint_is_skipped(void **state) {
    frug_comm *comm;
    sample_state s, t;
    char path[400];
    stderr_capture errors;
    struct stat st;
    uint64_t step = 0;
    bool redistributed;
    (void)state;
    open_single(&comm, &s, 1);
    assert_true(open_state(comm, 2, "frugrad,min_size=1", &t));
    for (uint64_t i = 1; i <= 2; i++)
        assert_int_equal(write_step(&s, i, 0), 0);
    name_of(2, path, sizeof path);
    assert_int_equal(stat(path, &st), 0);
    const long offsets[] = {3, 20, 2000, st.st_size / 2, -1};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        flip(path, offsets[i]);
        stderr_capture_begin(&errors);
        int code = open_and_restore(folder, &t, &step, &redistributed), alone_code;
        uint64_t unused;
        alone_code = open_and_restore(path, &t, &unused, &redistributed);
        stderr_capture_end(&errors);
        assert_int_equal(code, 0);
        assert_int_equal(step, 1);
        assert_int_equal(alone_code, 1); /* opened by its name, it is an error */
        assert_non_null(strstr(errors.text, path));
        assert_non_null(strstr(errors.text, "step 1"));
        flip(path, offsets[i]);
    }
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    stderr_capture_begin(&errors);
    assert_int_equal(open_and_restore(folder, &t, &step, &redistributed), 0);
    stderr_capture_end(&errors);
    assert_int_equal(step, 1);
    assert_true(same_states(&s, &t));
    remove_folder(folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    close_state(&t);
    close_single(comm, &s);
}

static void expect_refused(const char *path, const sample_state *s, const char *words) {
    stderr_capture errors;
    uint64_t step;
    bool redistributed;
    stderr_capture_begin(&errors);
    int code = open_and_restore(path, s, &step, &redistributed);
    stderr_capture_end(&errors);
    assert_int_equal(code, 1);
    assert_non_null(strstr(errors.text, path));
    if (!strstr(errors.text, words))
        fail_msg("the message is '%s'; expected '%s'", errors.text, words);
}

static void run_that_does_not_fit_is_refused(void **state) {
    frug_comm *comm;
    sample_state s, t;
    char path[400], other[400];
    (void)state;
    open_single(&comm, &s, 1);
    expect_refused(folder, &s, "has no checkpoint");
    name_of(5, path, sizeof path);
    expect_refused(path, &s, "No such file");
    assert_int_equal(write_step(&s, 5, 0), 0);
    assert_true(open_state(comm, 2, "frugrad,min_size=1,residual=f32", &t));
    expect_refused(path, &t, "another method");
    close_state(&t);
    assert_true(open_state(comm, 2, "frugrad,min_size=1", &t));
    t.state.graph->params->tensor.shape[0] = 20;
    expect_refused(path, &t, "'layer1.weight' has shape [40, 50]; the model has [20, 50]");
    t.state.graph->params->tensor.shape[0] = 40;
    ((char *)(uintptr_t)t.state.graph->params->tensor.name)[0] = 'L';
    expect_refused(path, &t, "has no tensor 'Layer1.weight'");
    close_state(&t);
    name_of(6, other, sizeof other);
    assert_int_equal(rename(path, other), 0);
    expect_refused(other, &s, "its metadata has step 5, its name step 6");
    t = s;
    t.state.compressor = NULL;
    t.state.optimizer = NULL;
    assert_int_equal(write_step(&t, 7, 0), 0);
    name_of(7, path, sizeof path);
    expect_refused(path, &s, "has no tensor 'frugrad.optimizer'");
    remove_folder(folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    close_single(comm, &s);
}

static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
}

/* Write step 2 with a disk that is full; the status is FRUG_OK when the worker got a failure. */
static frug_status write_to_full_disk(frug_comm *comm, void *shared) {
    sample_state s;
    (void)shared;
    if (!open_state(comm, 3, "frugrad,min_size=1", &s))
        return FRUG_ERR_MEMORY;
    int code = write_step(&s, 2, 1);
    close_state(&s);
    return code == 1 ? FRUG_OK : FRUG_ERR_ARG;
}

static void full_disk_fails_on_all_workers_and_keeps_older_files(void **state) {
    static const rlim_t rooms[] = {0, 100, 5000, 20000}; /* of 38 kB with three workers: header, weights, residuals */
    frug_comm *comm;
    sample_state s;
    stderr_capture errors;
    uint64_t step = 0;
    bool redistributed;
    (void)state;
    open_single(&comm, &s, 1);
    assert_int_equal(write_step(&s, 1, 1), 0);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        thread_worker member[THREAD_WORKERS_MAX];
        stderr_capture_begin(&errors);
        limit_files(rooms[i]);
        run_workers(3, write_to_full_disk, NULL, 20.0, member);
        limit_files(RLIM_INFINITY);
        stderr_capture_end(&errors);
        for (int r = 0; r < 3; r++)
            if (member[r].status != FRUG_OK)
                fail_msg("worker %d did not fail with room for %d bytes", r, (int)rooms[i]);
        assert_non_null(strstr(errors.text, "step-000000002.safetensors: cannot write: File too large"));
        assert_int_equal(count_files(folder, ".frugrad-"), 0);
        assert_int_equal(count_files(folder, "step-"), 1);
    }
    assert_int_equal(open_and_restore(folder, &s, &step, &redistributed), 0);
    assert_int_equal(step, 1);
    remove_folder(folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    close_single(comm, &s);
}

/* The child: announce a step, write it, until killed. */
static void write_until_killed(int announce) {
    frug_comm *comm = NULL;
    sample_state s;
    if (frug_comm_self(&comm) != FRUG_OK || !open_state(comm, 1, "frugrad,min_size=1", &s))
        _exit(1);
    for (uint64_t step = 1;; step++)
        if (write(announce, &step, sizeof step) != sizeof step || write_later(&s, 1, step, 2) != 0)
            _exit(1);
}

static void killed_writer_leaves_the_last_complete_file(void **state) {
    frug_comm *comm;
    sample_state s;
    uint64_t random = (uint64_t)time(NULL) | 1, step, left_behind = 0;
    bool redistributed;
    (void)state;
    open_single(&comm, &s, 1);
    for (int i = 0; i < 30; i++) {
        int pipe_ends[2], status;
        uint64_t announced, last = 0;
        assert_int_equal(pipe(pipe_ends), 0);
        if (i % 2) /* of an earlier run, with higher steps than the child's */
            assert_int_equal(write_step(&s, 1000000, 2), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            write_until_killed(pipe_ends[1]);
        close(pipe_ends[1]);
        for (int k = 0; k < 3; k++) /* two are written by now */
            assert_int_equal(read(pipe_ends[0], &last, sizeof last), sizeof last);
        nanosleep(&(struct timespec){0, (long)(next_random(&random) % 5000000)}, NULL);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));
        while (read(pipe_ends[0], &announced, sizeof announced) == sizeof announced)
            last = announced;
        close(pipe_ends[0]);
        left_behind += count_files(folder, ".frugrad-");
        assert_int_equal(open_and_restore(folder, &s, &step, &redistributed), 0);
        if (step != last && step + 1 != last)
            fail_msg("step %d was announced last, and %d is there", (int)last, (int)step);
        assert_int_equal(write_later(&s, 1, last + 1, 2), 0); /* which sweeps */
        assert_int_equal(count_files(folder, ".frugrad-"), 0);
        remove_folder(folder);
        assert_int_equal(mkdir(folder, 0777), 0);
    }
    print_message("%d of 30 kills hit a write\n", (int)left_behind);
    close_single(comm, &s);
}

/* ---- another number of workers ---- */

enum { OLD = 3, NEW_MOST = 5 };

typedef struct move_house {
    const char *method;
    size_t n;
    float *residual; /* of each worker, n each */
    float *weights;
} move_house;

static frug_status leave(frug_comm *comm, void *shared) {
    move_house *m = shared;
    sample_state s;
    uint64_t rank = (uint64_t)frug_comm_rank(comm);
    bool good = true;
    if (!open_state(comm, 3, m->method, &s))
        return FRUG_ERR_MEMORY;
    for (uint64_t i = 0; i < 3 && good; i++)
        good = step_alone(&s, i, 100 + rank);
    good = good && write_step(&s, 3, 1) == 0 && residual_of(&s, m->residual + rank * m->n);
    if (rank == 0)
        memcpy(m->weights, s.state.graph->weights, m->n * sizeof(float));
    close_state(&s);
    return good ? FRUG_OK : FRUG_ERR_ARG;
}

static frug_status move_in(frug_comm *comm, void *shared) {
    move_house *m = shared;
    sample_state s;
    uint64_t step, rank = (uint64_t)frug_comm_rank(comm);
    bool redistributed = false;
    if (!open_state(comm, 4, m->method, &s))
        return FRUG_ERR_MEMORY;
    bool good = open_and_restore(folder, &s, &step, &redistributed) == 0 && redistributed &&
                memcmp(m->weights, s.state.graph->weights, m->n * sizeof(float)) == 0 &&
                residual_of(&s, m->residual + rank * m->n);
    close_state(&s);
    return good ? FRUG_OK : FRUG_ERR_ARG;
}

static void mean_of(const move_house *m, int workers, double *mean) {
    for (size_t i = 0; i < m->n; i++) {
        mean[i] = 0;
        for (int r = 0; r < workers; r++)
            mean[i] += m->residual[(size_t)r * m->n + i] / (double)workers;
    }
}

/* The mean residual before and after differs by at most `part` of the largest residual: the rounding of the format. */
static void expect_kept(const char *method, int workers, double part) {
    fgt_graph *g = sample_graph(1);
    move_house m = {method, (size_t)g->elements, NULL, NULL};
    thread_worker member[THREAD_WORKERS_MAX];
    double before[4096], after[4096], largest = 0, worst = 0;
    fgt_graph_destroy(g);
    assert_true(m.n <= 4096);
    m.residual = calloc(NEW_MOST * m.n, sizeof(float));
    m.weights = calloc(m.n, sizeof(float));
    run_workers(OLD, leave, &m, 20.0, member);
    for (int r = 0; r < OLD; r++)
        assert_int_equal(member[r].status, FRUG_OK);
    mean_of(&m, OLD, before);
    run_workers(workers, move_in, &m, 20.0, member);
    for (int r = 0; r < workers; r++)
        if (member[r].status != FRUG_OK)
            fail_msg("%s, %d workers: worker %d: %s", method, workers, r, member[r].error);
    mean_of(&m, workers, after);
    for (size_t i = 0; i < m.n; i++) {
        largest = fmax(largest, fabs(before[i]));
        worst = fmax(worst, fabs(after[i] - before[i]));
    }
    assert_true(largest > 0.1);
    if (worst > part * largest)
        fail_msg("%s, %d workers: off by %g of %g", method, workers, worst, largest);
    free(m.residual);
    free(m.weights);
    remove_folder(folder);
    assert_int_equal(mkdir(folder, 0777), 0);
}

static void other_numbers_of_workers_get_the_mean_residual(void **state) {
    static const int sizes[] = {1, 2, 5};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        expect_kept("frugrad,min_size=1,residual=f32", sizes[i], 1e-6);
        expect_kept("frugrad,min_size=1,residual=bf16", sizes[i], 0x1p-8);
        expect_kept("frugrad,min_size=1,residual=int8", sizes[i], 1.0 / 127);
    }
}

/* Worker 1 has another step: no file is written. */
static frug_status disagree(frug_comm *comm, void *shared) {
    sample_state s;
    (void)shared;
    if (!open_state(comm, 3, "frugrad,min_size=1", &s))
        return FRUG_ERR_MEMORY;
    int code = write_step(&s, frug_comm_rank(comm) == 1 ? 8 : 9, 1);
    close_state(&s);
    return code == 1 ? FRUG_OK : FRUG_ERR_ARG;
}

static void disagreeing_workers_write_nothing(void **state) {
    thread_worker member[THREAD_WORKERS_MAX];
    stderr_capture errors;
    (void)state;
    stderr_capture_begin(&errors);
    run_workers(3, disagree, NULL, 20.0, member);
    stderr_capture_end(&errors);
    for (int r = 0; r < 3; r++)
        assert_int_equal(member[r].status, FRUG_OK);
    assert_non_null(strstr(errors.text, "workers 0 and 1 disagree about the step"));
    assert_int_equal(count_files(folder, "step-"), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restore_is_bit_exact),
        cmocka_unit_test(old_checkpoints_are_removed_and_directories_created),
        cmocka_unit_test(newest_checkpoint_is_the_last_written),
        cmocka_unit_test(damaged_checkpoint_is_skipped),
        cmocka_unit_test(run_that_does_not_fit_is_refused),
        cmocka_unit_test(full_disk_fails_on_all_workers_and_keeps_older_files),
        cmocka_unit_test(killed_writer_leaves_the_last_complete_file),
        cmocka_unit_test(other_numbers_of_workers_get_the_mean_residual),
        cmocka_unit_test(disagreeing_workers_write_nothing),
    };
    if (argc == 2) { /* one checkpoint in that directory, for checkpoint_format.sh */
        frug_comm *comm = NULL;
        sample_state s;
        return frug_comm_self(&comm) == FRUG_OK && open_state(comm, 1, "frugrad,min_size=1", &s)
                   ? fgt_checkpoint_write(argv[1], 1, 0, 12, &s.state, NULL, NULL, 0)
                   : 1;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
