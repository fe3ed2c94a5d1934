/*
 * test_mpi_overlap.c - buckets handed over between processes give the bits of buckets reduced one after the other, on a
 * thread of the reducer's own where MPI allows it, at once where it does not. The argument is the thread level to ask
 * for: funneled, serialized or multiple.
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

static int asked, got;

typedef struct diary {
    uint64_t begin[64];
    size_t told;
    bool other_thread, wrong;
    pthread_t caller;
} diary;

static void write_down(void *ctx, const frug_bucket *b, frug_status status) {
    diary *d = ctx;
    d->wrong |= status != FRUG_OK;
    d->other_thread |= !pthread_equal(pthread_self(), d->caller);
    d->begin[d->told++ % 64] = b->begin;
}

/* One bucket per tensor, last first. With `handed` by submit; with weights applied, without summed in place. */
static frug_status step_of(frug_reducer *r, const frug_layout *z, uint64_t step, float *grad, float *weights,
                           bool handed, diary *d) {
    for (size_t i = frug_layout_count(z); i-- > 0;) {
        frug_tensor t = FRUG_TENSOR_INIT;
        frug_bucket b = FRUG_BUCKET_INIT;
        frug_status status = frug_layout_get(z, i, &t);
        b.step = step;
        b.begin = t.offset;
        b.count = 1;
        for (uint32_t k = 0; k < t.ndim; k++)
            b.count *= t.shape[k];
        b.grad = grad + t.offset;
        b.weights = weights ? weights + t.offset : NULL;
        b.rate = 0.1f;
        b.decay = 0.01f;
        b.scale = 0.5f;
        b.done = write_down;
        b.ctx = d;
        if (status == FRUG_OK && handed)
            status = frug_reducer_submit(r, &b);
        else if (status == FRUG_OK && weights)
            status = frug_reduce_apply(r, step, b.begin, b.count, b.grad, b.rate, b.decay, b.weights);
        else if (status == FRUG_OK)
            status = frug_reduce_sum(r, step, b.begin, b.count, b.grad, b.scale);
        if (status != FRUG_OK)
            return status;
        if (handed && got == MPI_THREAD_MULTIPLE) { /* the caller's own messages go on meanwhile */
            int mine = (int)step, all = 0;
            MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            d->wrong |= all != (int)step * job_size();
        }
    }
    return handed ? frug_reducer_finish(r) : FRUG_OK;
}

/* A short training; `state` gets the weights, or the sums of all steps one behind the other. */
static frug_status train(const char *text, const frug_layout *z, bool sums, bool handed, float *state, diary *d) {
    frug_comm *comm = NULL;
    frug_config *config = NULL;
    frug_reducer *r = NULL;
    size_t n = frug_layout_elements(z);
    *d = (diary){.caller = pthread_self()};
    frug_status status = frug_comm_mpi(MPI_COMM_WORLD, &comm);
    if (status == FRUG_OK)
        status = frug_config_create(text, &config);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, z, NULL, comm, &r);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++) {
        float *grad = zoo_gradient(z, 10 * (uint64_t)job_rank() + step + 1);
        status = step_of(r, z, step, grad, sums ? NULL : state, handed, d);
        if (sums)
            memcpy(state + step * n, grad, n * sizeof *grad);
        test_free(grad);
    }
    frug_reducer_destroy(r);
    frug_config_destroy(config);
    frug_comm_destroy(comm);
    return status;
}

static void check_diary(const char *config, const frug_layout *z, const diary *d) {
    size_t count = frug_layout_count(z);
    bool ordered = true;
    for (size_t i = 1; i < d->told; i++)
        ordered &= i % count == 0 || d->begin[i] < d->begin[i - 1];
    all_fine(d->told == STEPS * count && ordered && !d->wrong, "%s: %zu ends of buckets told, in order: %d", config,
             d->told, ordered);
    all_fine(d->other_thread == (got >= MPI_THREAD_SERIALIZED), "%s: another thread: %d", config, d->other_thread);
}

static void handing_over_changes_no_bit(void **state) {
    (void)state;
    static const char *const configs[] = {"frugrad", "frugrad,reduce=split,residual=f32", "reduce=dense"};
    frug_layout *z = make_zoo(ROWS);
    size_t n = STEPS * frug_layout_elements(z), bytes = n * sizeof(float);
    for (size_t c = 0; c < 3; c++)
        for (int sums = 0; sums < 2; sums++) {
            float *now = test_calloc(n, sizeof *now), *later = test_calloc(n, sizeof *later);
            diary quiet, d;
            frug_status status = train(configs[c], z, sums, false, now, &quiet);
            all_fine(status == FRUG_OK, "%s: %s", configs[c], frug_last_error());
            status = train(configs[c], z, sums, true, later, &d);
            all_fine(status == FRUG_OK, "%s, handed over: %s", configs[c], frug_last_error());
            all_fine(memcmp(now, later, bytes) == 0, "%s: other bits when handed over", configs[c]);
            check_diary(configs[c], z, &d);
            memcpy(later, now, bytes);
            MPI_Bcast(later, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
            all_fine(memcmp(now, later, bytes) == 0, "%s: other bits than rank 0", configs[c]);
            test_free(now);
            test_free(later);
        }
    frug_layout_destroy(z);
}

/* Bytes by the public calls, over MPI as over threads. */
static void bytes_go_round(void **state) {
    (void)state;
    frug_comm *comm = NULL;
    int rank = job_rank(), size = job_size(), all[64] = {0}, wrong = 0;
    double token = rank == 0 ? 17.5 : 0;
    frug_status status = frug_comm_mpi(MPI_COMM_WORLD, &comm);
    if (status == FRUG_OK)
        status = frug_comm_gather(comm, &rank, sizeof rank, all);
    for (int i = 0; i < size; i++)
        wrong += all[i] != i;
    if (status == FRUG_OK && rank > 0)
        status = frug_comm_receive(comm, rank - 1, &token, sizeof token);
    if (status == FRUG_OK && rank + 1 < size)
        status = frug_comm_send(comm, rank + 1, &token, sizeof token);
    frug_comm_destroy(comm);
    all_fine(status == FRUG_OK && !wrong && token == 17.5, "%d wrong, token %g: %s", wrong, token, frug_last_error());
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(handing_over_changes_no_bit), cmocka_unit_test(bytes_go_round)};
    asked = MPI_THREAD_MULTIPLE;
    for (size_t i = 0; argc > 1 && i < 3; i++)
        if (strcmp(argv[1], levels[i].name) == 0)
            asked = levels[i].level;
    MPI_Init_thread(&argc, &argv, asked, &got);
    int failed = job_size() > 64 || cmocka_run_group_tests(tests, NULL, NULL);
    MPI_Finalize();
    return failed;
}
