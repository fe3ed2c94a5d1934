/*
 * test_mpi_overlap.c - submitted buckets give the same bits as synchronous calls, over MPI: on the reducer's thread if
 * the thread level allows it, else in the submitting thread. The argument is the thread level to request: funneled,
 * serialized or multiple.
 */
#include "mpi/mpi_fixture.h"
#include "support/test_layouts.h"

#include <pthread.h>

#define STEPS 3u
#define ROWS  300u

static const struct {
    const char *name;
    int level;
} levels[] = {
    {"funneled", MPI_THREAD_FUNNELED}, {"serialized", MPI_THREAD_SERIALIZED}, {"multiple", MPI_THREAD_MULTIPLE}};

static int requested, provided;

typedef struct completions {
    uint64_t begin[64];
    size_t count;
    bool other_thread, wrong;
    pthread_t caller;
} completions;

static void record_completion(void *ctx, const frug_bucket *b, frug_status status) {
    completions *d = ctx;
    d->wrong |= status != FRUG_OK;
    d->other_thread |= !pthread_equal(pthread_self(), d->caller);
    d->begin[d->count++ % 64] = b->range.begin;
}

/* One bucket per tensor, the last first: submitted or synchronous; applied to weights, or summed in place if NULL. */
static frug_status reduce_step(frug_reducer *r, const frug_layout *z, uint64_t step, float *grad, float *weights,
                               bool submit, completions *d) {
    for (size_t i = frug_layout_count(z); i-- > 0;) {
        frug_tensor t = FRUG_TENSOR_INIT;
        frug_bucket b = FRUG_BUCKET_INIT;
        frug_status status = frug_layout_get(z, i, &t);
        b.step = step;
        b.range.begin = t.offset;
        b.range.count = 1;
        for (uint32_t k = 0; k < t.ndim; k++)
            b.range.count *= t.shape[k];
        b.grad = grad + t.offset;
        b.weights = weights ? weights + t.offset : NULL;
        b.rate = 0.1f;
        b.decay = 0.01f;
        b.scale = 0.5f;
        b.done = record_completion;
        b.ctx = d;
        if (status == FRUG_OK && submit)
            status = frug_reducer_submit(r, &b);
        else if (status == FRUG_OK && weights)
            status = frug_reducer_apply(r, step, (frug_range){b.range.begin, b.range.count}, b.grad, b.rate, b.decay,
                                        b.weights);
        else if (status == FRUG_OK)
            status = frug_reducer_sum(r, step, (frug_range){b.range.begin, b.range.count}, b.grad, b.scale);
        if (status != FRUG_OK)
            return status;
        if (submit && provided == MPI_THREAD_MULTIPLE) { /* the caller may use MPI at the same time */
            int mine = (int)step, all = 0;
            MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            d->wrong |= all != (int)step * job_size();
        }
    }
    return submit ? frug_reducer_finish(r) : FRUG_OK;
}

/* A few steps; `state` gets the weights, or the sums of all steps, concatenated. */
static frug_status train(const char *text, const frug_layout *z, bool sums, bool submit, float *state, completions *d) {
    frug_comm *comm = NULL;
    frug_config *config = NULL;
    frug_reducer *r = NULL;
    size_t n = frug_layout_elements(z);
    *d = (completions){.caller = pthread_self()};
    frug_status status = frug_comm_mpi(MPI_COMM_WORLD, &comm);
    if (status == FRUG_OK)
        status = frug_config_create(text, &config);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, z, NULL, comm, &r);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++) {
        float *grad = make_test_gradient(z, 10 * (uint64_t)job_rank() + step + 1);
        status = reduce_step(r, z, step, grad, sums ? NULL : state, submit, d);
        if (sums)
            memcpy(state + step * n, grad, n * sizeof *grad);
        test_free(grad);
    }
    frug_reducer_destroy(r);
    frug_config_destroy(config);
    frug_comm_destroy(comm);
    return status;
}

static void check_completions(const char *config, const frug_layout *z, const completions *d) {
    size_t count = frug_layout_count(z);
    bool ordered = true;
    for (size_t i = 1; i < d->count; i++)
        ordered &= i % count == 0 || d->begin[i] < d->begin[i - 1];
    assert_on_all_ranks(d->count == STEPS * count && ordered && !d->wrong, "%s: %zu buckets completed, in order: %d",
                        config, d->count, ordered);
    assert_on_all_ranks(d->other_thread == (provided >= MPI_THREAD_SERIALIZED), "%s: another thread: %d", config,
                        d->other_thread);
}

static void submitting_changes_no_bit(void **state) {
    (void)state;
    static const char *const configs[] = {"frugrad", "frugrad,reduce=split,residual=f32", "reduce=dense"};
    frug_layout *z = make_test_layout(ROWS);
    size_t n = STEPS * frug_layout_elements(z), bytes = n * sizeof(float);
    for (size_t c = 0; c < 3; c++)
        for (int sums = 0; sums < 2; sums++) {
            float *sync = test_calloc(n, sizeof *sync), *async = test_calloc(n, sizeof *async);
            completions quiet, d;
            frug_status status = train(configs[c], z, sums, false, sync, &quiet);
            assert_on_all_ranks(status == FRUG_OK, "%s: %s", configs[c], frug_last_error());
            status = train(configs[c], z, sums, true, async, &d);
            assert_on_all_ranks(status == FRUG_OK, "%s, submitted: %s", configs[c], frug_last_error());
            assert_on_all_ranks(memcmp(sync, async, bytes) == 0, "%s: different bits when submitted", configs[c]);
            check_completions(configs[c], z, &d);
            memcpy(async, sync, bytes);
            MPI_Bcast(async, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
            assert_on_all_ranks(memcmp(sync, async, bytes) == 0, "%s: different bits than rank 0", configs[c]);
            test_free(sync);
            test_free(async);
        }
    frug_layout_destroy(z);
}

static void public_calls_work_over_mpi(void **state) {
    (void)state;
    frug_comm *comm = NULL;
    int rank = job_rank(), size = job_size(), all[64] = {0}, wrong = 0;
    double token = rank == 0 ? 17.5 : 0;
    frug_status status = frug_comm_mpi(MPI_COMM_WORLD, &comm);
    if (status == FRUG_OK)
        status = frug_comm_allgather(comm, &rank, sizeof rank, all);
    for (int i = 0; i < size; i++)
        wrong += all[i] != i;
    if (status == FRUG_OK && rank > 0)
        status = frug_comm_receive(comm, rank - 1, &token, sizeof token);
    if (status == FRUG_OK && rank + 1 < size)
        status = frug_comm_send(comm, rank + 1, &token, sizeof token);
    frug_comm_destroy(comm);
    assert_on_all_ranks(status == FRUG_OK && !wrong && token == 17.5, "%d wrong, token %g: %s", wrong, token,
                        frug_last_error());
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(submitting_changes_no_bit),
                                       cmocka_unit_test(public_calls_work_over_mpi)};
    requested = MPI_THREAD_MULTIPLE;
    for (size_t i = 0; argc > 1 && i < 3; i++)
        if (strcmp(argv[1], levels[i].name) == 0)
            requested = levels[i].level;
    MPI_Init_thread(&argc, &argv, requested, &provided);
    int failed = job_size() > 64 || cmocka_run_group_tests(tests, NULL, NULL);
    MPI_Finalize();
    return failed;
}
