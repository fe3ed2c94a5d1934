/*
 * test_mpi_reduce.c - every reduce algorithm with processes as ranks: all ranks get the same bits, which are those of
 * ranks that are threads; and an error of one rank is an error on all.
 *
 * The algorithms are the values of option `reduce`, so that a new one is tested without a change here.
 */
#include "support/thread_group.h"
#include "mpi/mpi_fixture.h"
#include "support/test_layouts.h"

#include <math.h>

#define ROWS  40u
#define STEPS 3u

static frug_layout *layout, *other_layout;
static size_t elements;
static float *grad[THREAD_WORKERS_MAX][STEPS];

static int make_data(void **state) {
    (void)state;
    layout = make_test_layout(ROWS);
    other_layout = make_test_layout(ROWS + 1);
    elements = frug_layout_elements(layout);
    for (int i = 0; i < job_size(); i++)
        for (uint64_t step = 0; step < STEPS; step++)
            grad[i][step] = make_test_gradient(layout, 100 * (uint64_t)i + step + 1);
    return 0;
}

static int free_data(void **state) {
    (void)state;
    for (int i = 0; i < job_size(); i++)
        for (uint64_t step = 0; step < STEPS; step++)
            test_free(grad[i][step]);
    frug_layout_destroy(layout);
    frug_layout_destroy(other_layout);
    return 0;
}

/** Value i of option `reduce`; false from gossip on, which is the last value and has no sum. */
static bool algorithm_at(size_t i, char algorithm[32]) {
    const frug_option *o = NULL;
    for (size_t k = 0; (o = frug_option_at(k)) && strcmp(o->name, "reduce") != 0; k++)
        continue;
    const char *at = o ? o->values : NULL;
    for (; at && i > 0; i--)
        at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL;
    if (at)
        snprintf(algorithm, 32, "%.*s", (int)strcspn(at, "|:["), at);
    return at != NULL && strcmp(algorithm, "gossip") != 0;
}

/* Options that an algorithm needs. */
static const char *extra_options(const char *algorithm) {
    if (strcmp(algorithm, "nodes") == 0)
        return job_size() % 2 == 0 ? ",node=2" : ",node=1";
    return strcmp(algorithm, "shared") == 0 ? ",value=f32" : "";
}

/* ---- results ----------------------------------------------------------------------- */

typedef struct task {
    const char *config;
    float *weights[THREAD_WORKERS_MAX];
} task;

static frug_status train(frug_comm *comm, void *shared) {
    task *t = shared;
    int rank = frug_comm_rank(comm);
    frug_reducer *r = NULL;
    frug_status status = create_worker_reducer(t->config, layout, 1, comm, &r);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++)
        status =
            frug_reducer_apply(r, step, (frug_range){0, elements}, grad[rank][step], 0.1f, 0.01f, t->weights[rank]);
    frug_reducer_destroy(r);
    return status;
}

static void fill_weights(float *weights) {
    for (size_t i = 0; i < elements; i++)
        weights[i] = (float)(i % 100) * 0.01f;
}

/* The same steps with threads of this process as ranks; `weights` gets the result. */
static frug_status train_by_threads(const char *config, float *weights) {
    task t = {.config = config};
    thread_worker member[THREAD_WORKERS_MAX];
    for (int i = 0; i < job_size(); i++) {
        t.weights[i] = i ? test_malloc(elements * sizeof(float)) : weights;
        fill_weights(t.weights[i]);
    }
    run_workers(job_size(), train, &t, 20, member);
    for (int i = 1; i < job_size(); i++)
        test_free(t.weights[i]);
    return member[0].status;
}

/* MPI_Allreduce() sums in another order: the tolerance is for three steps of 8 gradients below 5 at rate 0.1. */
static void compare(const char *config, const float *mine, const float *threads, bool summed_by_mpi) {
    double most = 0;
    bool same = memcmp(mine, threads, elements * sizeof *mine) == 0;
    for (size_t i = 0; i < elements; i++) {
        double apart = fabs((double)mine[i] - (double)threads[i]);
        if (!(apart <= most))
            most = apart;
    }
    assert_on_all_ranks(same || (summed_by_mpi && most < 1e-5), "%s differs by %g from the result of threads", config,
                        most);
}

static void compare_with_threads(const char *config) {
    frug_comm *comm = NULL;
    damaging_transport wrapper;
    size_t bytes = elements * sizeof(float);
    float *mine = test_malloc(bytes), *first = test_malloc(bytes);
    task t = {.config = config};
    fill_weights(mine);
    t.weights[job_rank()] = mine;
    frug_status status = frug_comm_mpi(MPI_COMM_WORLD, &comm);
    assert_on_all_ranks(status == FRUG_OK, "%s", frug_last_error());
    wrap_transport(comm, &wrapper, NO_DAMAGE);
    frug_comm_set_timeout(comm, 20);
    status = train(comm, &t);
    int expected = job_rank() == 0 ? train_by_threads(config, first) : 0;
    MPI_Bcast(&expected, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(first, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    frug_comm_destroy(comm);
    assert_on_all_ranks((int)status == expected, "%s: %s; with threads: %s", config, frug_last_error(),
                        frug_status_text((frug_status)expected));
    if (status == FRUG_OK) {
        compare(config, mine, first, wrapper.allreduce_calls > 0);
        memcpy(first, mine, bytes);
        MPI_Bcast(first, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
        assert_on_all_ranks(memcmp(mine, first, bytes) == 0, "%s: different bits than rank 0", config);
    }
    test_free(mine);
    test_free(first);
}

static void all_ranks_get_the_same_bits_as_threads_do(void **state) {
    (void)state;
    char algorithm[32], config[128];
    size_t n = 0;
    for (; algorithm_at(n, algorithm); n++) {
        if (strcmp(algorithm, "auto") == 0) /* depends on measured times */
            continue;
        snprintf(config, sizeof config, "frugrad,reduce=%s%s", algorithm, extra_options(algorithm));
        compare_with_threads(config);
        snprintf(config, sizeof config, "reduce=%s,feedback=plain,residual=f32,segment=tensor,value=f32%s", algorithm,
                 extra_options(algorithm));
        compare_with_threads(config);
    }
    assert_true(n >= 2);
}

/* ---- faults ---------------------------------------------------------------------------- */

typedef enum fault {
    NO_FAULT,
    OTHER_VERSION,
    OTHER_CONFIG,
    OTHER_LAYOUT,
    OTHER_STEP,
    BAD_RANGE,
    DAMAGE,
    STOPPED
} fault;

/* Run one exchange with a fault. */
static frug_status run_with_fault(frug_comm *comm, const char *text, fault mine, float *dst) {
    frug_reducer *r = NULL;
    if (mine == STOPPED)
        return FRUG_OK;
    frug_status status = create_worker_reducer(mine == OTHER_CONFIG ? "density=0.5" : text,
                                               mine == OTHER_LAYOUT ? other_layout : layout, 0, comm, &r);
    if (status == FRUG_OK)
        status = frug_reducer_add(r, mine == OTHER_STEP ? 7 : 3, (frug_range){0, elements + (mine == BAD_RANGE)},
                                  grad[frug_comm_rank(comm)][0], 1.0f, dst);
    frug_reducer_destroy(r);
    return status;
}

/* One fault of rank 1, in a new group; returns the status and error message of this rank. */
static frug_status run_fault(const char *config, fault what, char message[512]) {
    static const damage damages[STOPPED + 1] = {[OTHER_VERSION] = DAMAGE_FIRST_RECORD, [DAMAGE] = DAMAGE_PAYLOAD};
    frug_comm *comm = NULL;
    damaging_transport wrapper;
    float *dst = test_calloc(elements + 1, sizeof *dst);
    fault mine = job_rank() == 1 ? what : NO_FAULT;
    frug_status status = frug_comm_mpi(MPI_COMM_WORLD, &comm);
    assert_on_all_ranks(status == FRUG_OK, "%s", frug_last_error());
    wrap_transport(comm, &wrapper, damages[mine]);
    frug_comm_set_timeout(comm, what == STOPPED ? 0.5 : 20);
    status = run_with_fault(comm, config, mine, dst);
    snprintf(message, 512, "%s", frug_last_error());
    MPI_Barrier(MPI_COMM_WORLD);
    frug_comm_destroy(comm);
    test_free(dst);
    return status;
}

static void an_error_of_one_rank_is_an_error_on_all(void **state) {
    (void)state;
    static const struct {
        fault what;
        frug_status faulty, others;
        const char *message;
    } cases[] = {
        {OTHER_VERSION, FRUG_ERR_REMOTE, FRUG_ERR_REMOTE, "different versions of the library"},
        {OTHER_CONFIG, FRUG_ERR_REMOTE, FRUG_ERR_REMOTE, "different config strings"},
        {OTHER_LAYOUT, FRUG_ERR_REMOTE, FRUG_ERR_REMOTE, "different layouts"},
        {OTHER_STEP, FRUG_ERR_REMOTE, FRUG_ERR_REMOTE, "at step 7"},
        {BAD_RANGE, FRUG_ERR_ARG, FRUG_ERR_REMOTE, "rank 1 failed at step 3"},
        {STOPPED, FRUG_OK, FRUG_ERR_COMM, "received nothing from rank 1"},
    };
    char config[64], message[512], algorithm[32];
    for (size_t n = 0; job_size() > 1 && algorithm_at(n, algorithm); n++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            snprintf(config, sizeof config, "frugrad,reduce=%s%s", algorithm, extra_options(algorithm));
            frug_status status = run_fault(config, cases[i].what, message);
            frug_status want = job_rank() == 1 ? cases[i].faulty : cases[i].others;
            assert_on_all_ranks(status == want, "%s, case %zu: %s", algorithm, i, message);
            assert_on_all_ranks(job_rank() == 1 || strstr(message, cases[i].message),
                                "%s: error message '%s' instead of '%s'", algorithm, message, cases[i].message);
        }
}

/*
 * The error is not a timeout: the damage is detected and all ranks are notified. Partial sums have no checksum, so
 * nodes and shared could only detect that results differ, which they may not do here.
 */
static void a_damaged_payload_is_an_error_on_all_ranks(void **state) {
    (void)state;
    char config[64], message[512], algorithm[32];
    for (size_t n = 0; job_size() > 1 && algorithm_at(n, algorithm); n++) {
        if (strcmp(algorithm, "nodes") == 0 || strcmp(algorithm, "shared") == 0 || strcmp(algorithm, "auto") == 0)
            continue;
        snprintf(config, sizeof config, "frugrad,reduce=%s%s", algorithm, extra_options(algorithm));
        frug_status status = run_fault(config, DAMAGE, message);
        assert_on_all_ranks(status != FRUG_OK && status != FRUG_ERR_COMM, "%s: status %d, %s", algorithm, status,
                            message);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_get_the_same_bits_as_threads_do),
        cmocka_unit_test(an_error_of_one_rank_is_an_error_on_all),
        cmocka_unit_test(a_damaged_payload_is_an_error_on_all_ranks),
    };
    int level = 0; /* the threads of the comparison never call MPI */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    int failed = job_size() > THREAD_WORKERS_MAX || cmocka_run_group_tests(tests, make_data, free_data);
    MPI_Finalize();
    return failed;
}
