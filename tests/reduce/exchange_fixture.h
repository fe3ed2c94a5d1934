/* exchange_fixture.h - run a few steps of one reduce algorithm with threads as ranks, and check the results. */
#ifndef FRUG_TEST_EXCHANGE_FIXTURE_H
#define FRUG_TEST_EXCHANGE_FIXTURE_H

#include "comm/comm.h"
#include "support/thread_group.h"
#include "support/test_layouts.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#define FIXTURE_STEPS 4u
#define COUNT(a)      (sizeof(a) / sizeof *(a))

typedef struct fixture {
    const char *config;
    const frug_layout *layout;
    size_t n;
    bool apply;      /* frug_reducer_apply() with a decay, from weights of 1; else frug_reducer_add() from 0 */
    bool integers;   /* gradients are small integers: sums are exact in any order */
    bool two_ranges; /* exchange the first tensor, then the other ones */
    int damage;      /* this rank receives its long messages with a flipped bit; 0: none */
    float *grad[THREAD_WORKERS_MAX][FIXTURE_STEPS]; /* allocated by the test's thread, as cmocka requires */
    float *weights[THREAD_WORKERS_MAX];
    float *residual[THREAD_WORKERS_MAX];
    frug_reduce_stats stats[THREAD_WORKERS_MAX];
    thread_worker member[THREAD_WORKERS_MAX];
} fixture;

/* ---- a transport that damages received messages ------------------------------------------ */

static inline frug_status damaging_post(void *ctx, frug_message *m) {
    frug_comm *inner = ctx;
    return inner->transport.post(inner->ctx, m);
}

static inline frug_status damaging_test(void *ctx, frug_message *m) {
    frug_comm *inner = ctx;
    frug_status status = inner->transport.test(inner->ctx, m);
    if (status == FRUG_OK && m->done && !m->sending && m->bytes > 1000)
        ((unsigned char *)m->data)[m->bytes / 2] ^= 4;
    return status;
}

static inline void damaging_abandon(void *ctx, frug_message *m) {
    frug_comm *inner = ctx;
    inner->transport.abandon(inner->ctx, m);
}

/* Sync rounds are not damaged. */
static inline frug_status damaging_allgather(void *ctx, const frug_comm *comm, int tag, const void *mine, size_t bytes,
                                             void *all) {
    frug_comm *inner = ctx;
    return inner->short_allgather(inner->ctx, comm, tag, mine, bytes, all);
}

static inline frug_status wrap_damaging(frug_comm *inner, frug_comm **comm) {
    frug_transport t = {.struct_size = sizeof t, .name = "crooked", .post = damaging_post, .test = damaging_test};
    t.abandon = damaging_abandon;
    frug_status status = frug_comm_create(&t, inner, inner->rank, inner->size, comm);
    if (status == FRUG_OK)
        (*comm)->short_allgather = damaging_allgather;
    return status;
}

/* ---- ranks -------------------------------------------------------------------------------- */

static inline frug_status fixture_step(fixture *f, frug_reducer *r, int rank, uint64_t step, uint64_t begin,
                                       uint64_t count) {
    const float *grad = f->grad[rank][step] + begin;
    float *dst = f->weights[rank] + begin;
    if (f->apply)
        return frug_reducer_apply(r, step, (frug_range){begin, count}, grad, 0.5f, 0.25f, dst);
    return frug_reducer_add(r, step, (frug_range){begin, count}, grad, 1.0f, dst);
}

static inline frug_status fixture_work(frug_comm *comm, void *shared) {
    fixture *f = shared;
    int rank = frug_comm_rank(comm);
    frug_comm *wrapped = NULL;
    frug_config *config = NULL;
    frug_reducer *r = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = 1;
    frug_status status = frug_config_create(f->config, &config);
    if (status == FRUG_OK && f->damage && f->damage == rank)
        status = wrap_damaging(comm, &wrapped);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, f->layout, &options, wrapped ? wrapped : comm, &r);
    frug_config_destroy(config);
    uint64_t first = f->two_ranges ? 40 * 64 : f->n;
    for (uint64_t step = 0; step < FIXTURE_STEPS && status == FRUG_OK; step++) {
        status = fixture_step(f, r, rank, step, 0, first);
        if (status == FRUG_OK && f->two_ranges)
            status = fixture_step(f, r, rank, step, first, f->n - first);
    }
    if (status == FRUG_OK)
        status = frug_compressor_get_residual(frug_reducer_compressor(r), (frug_range){0, f->n}, f->residual[rank]);
    if (status == FRUG_OK) {
        f->stats[rank].struct_size = sizeof f->stats[rank];
        status = frug_reducer_stats(r, &f->stats[rank]);
    }
    frug_reducer_destroy(r);
    frug_comm_destroy(wrapped);
    return status;
}

/** Create gradients, unless the test has, and run all ranks. Their status is in member[]. */
static inline void fixture_run(fixture *f, int size) {
    f->n = frug_layout_elements(f->layout);
    for (int i = 0; i < size; i++) {
        for (uint64_t step = 0; step < FIXTURE_STEPS && !f->grad[i][step]; step++) {
            f->grad[i][step] = make_test_gradient(f->layout, 100 * (uint64_t)i + step + 1);
            for (size_t e = 0; f->integers && e < f->n; e++)
                f->grad[i][step][e] = roundf(f->grad[i][step][e] * 100);
        }
        f->weights[i] = test_calloc(f->n, sizeof(float));
        f->residual[i] = test_calloc(f->n, sizeof(float));
        for (size_t e = 0; f->apply && e < f->n; e++)
            f->weights[i][e] = 1;
    }
    run_workers(size, fixture_work, f, 20, f->member);
}

/** Run; all ranks must succeed and get the same bits. */
static inline void fixture_run_ok(fixture *f, int size) {
    fixture_run(f, size);
    assert_workers_ok(f->config, f->member, size);
    for (int i = 1; i < size; i++)
        assert_same_bits(f->weights[0], f->weights[i], f->n * sizeof(float));
}

static inline void fixture_free(fixture *f, int size) {
    for (int i = 0; i < size; i++) {
        for (uint64_t step = 0; step < FIXTURE_STEPS; step++)
            test_free(f->grad[i][step]);
        test_free(f->weights[i]);
        test_free(f->residual[i]);
    }
}

/** The sum of all gradients is the result of the exchange plus all residuals, up to rounding. */
static inline void fixture_check_conservation(const fixture *f, int size) {
    double *in = test_calloc(f->n, sizeof(double)), most = 0;
    for (int p = 0; p < size; p++)
        for (uint64_t step = 0; step < FIXTURE_STEPS; step++)
            for (size_t i = 0; i < f->n; i++)
                in[i] += (double)f->grad[p][step][i];
    for (size_t i = 0; i < f->n; i++) {
        double out = (double)f->weights[0][i];
        for (int p = 0; p < size; p++)
            out += (double)f->residual[p][i];
        most = fmax(most, fabs(out - in[i]));
    }
    if (!(most <= 1e-4))
        fail_msg("%s with %d workers: results and residuals differ from the gradients by %g", f->config, size, most);
    test_free(in);
}

/** Check that all bytes sent were received; returns their number. */
static inline uint64_t fixture_bytes(const fixture *f, int size) {
    uint64_t sent = 0, received = 0;
    for (int i = 0; i < size; i++) {
        sent += f->stats[i].bytes_sent;
        received += f->stats[i].bytes_received;
    }
    assert_int_equal(sent, received);
    return sent;
}

/** With a damaged message to one rank all ranks get an error, and no rank runs into its timeout. */
static inline void fixture_check_damage(fixture *f, int size, int rank) {
    f->damage = rank;
    fixture_run(f, size);
    for (int i = 0; i < size; i++) {
        assert_int_not_equal(f->member[i].status, FRUG_OK);
        assert_int_not_equal(f->member[i].status, FRUG_ERR_COMM);
    }
    fixture_free(f, size);
}

/** One exchange of a few numbers, in blocks of 64 with one selected entry each. Row i of grad is the gradient of rank
 * i.
 */
typedef struct worked_example {
    const char *config;
    size_t n;
    const float *grad;
    float *result; /* as grad */
} worked_example;

static inline frug_status worked_example_work(frug_comm *comm, void *shared) {
    const worked_example *l = shared;
    size_t at = (size_t)frug_comm_rank(comm) * l->n;
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    frug_reducer *r = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = 1;
    frug_status status = frug_config_create(l->config, &config);
    if (status == FRUG_OK)
        status = frug_layout_flat(l->n, &layout);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, layout, &options, comm, &r);
    if (status == FRUG_OK)
        status = frug_reducer_add(r, 0, (frug_range){0, l->n}, l->grad + at, 1.0f, l->result + at);
    frug_reducer_destroy(r);
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    return status;
}

static inline void worked_example_check(const worked_example *l, int size, const float *want) {
    thread_worker member[THREAD_WORKERS_MAX];
    run_workers(size, worked_example_work, (void *)(uintptr_t)l, 20, member);
    for (int i = 0; i < size; i++) {
        if (member[i].status != FRUG_OK)
            fail_msg("rank %d: %s", i, member[i].error);
        assert_same_bits(l->result + (size_t)i * l->n, want, l->n * sizeof(float));
    }
}

/** All ranks get the same bits, nothing is lost, and all bytes sent are received. */
static inline void fixture_check(const char *config, const frug_layout *layout, int size, bool two_ranges) {
    fixture f = {.config = config, .layout = layout, .two_ranges = two_ranges};
    fixture_run_ok(&f, size);
    fixture_check_conservation(&f, size);
    fixture_bytes(&f, size);
    fixture_free(&f, size);
}

#endif
