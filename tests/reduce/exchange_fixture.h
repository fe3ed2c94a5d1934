/* exchange_fixture.h - a few steps of a crew through one algorithm of the exchange, and what must hold afterwards. */
#ifndef FRUG_TEST_EXCHANGE_FIXTURE_H
#define FRUG_TEST_EXCHANGE_FIXTURE_H

#include "comm/comm.h"
#include "support/thread_group.h"
#include "support/test_layouts.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#define OUTING_STEPS 4u
#define COUNT(a)     (sizeof(a) / sizeof *(a))

typedef struct outing {
    const char *config;
    const frug_layout *layout;
    size_t n;
    bool apply;      /* frug_reduce_apply() with a decay, from weights of 1; else frug_reduce_add() from 0 */
    bool whole;      /* gradients are small whole numbers: sums are exact in any order */
    bool two_ranges; /* the first tensor, then the rest */
    int damage;      /* this rank gets its long messages with a flipped bit; 0: none */
    float *grad[CREW_MOST][OUTING_STEPS]; /* made beforehand: cmocka's memory is for the test's own thread */
    float *weights[CREW_MOST];
    float *left[CREW_MOST]; /* what each has not sent */
    frug_reduce_stats stats[CREW_MOST];
    crew_member member[CREW_MOST];
} outing;

/* ---- a transport that damages what it brings ------------------------------------------- */

static inline frug_status crooked_post(void *ctx, frug_message *m) {
    frug_comm *inner = ctx;
    return inner->transport.post(inner->ctx, m);
}

static inline frug_status crooked_test(void *ctx, frug_message *m) {
    frug_comm *inner = ctx;
    frug_status status = inner->transport.test(inner->ctx, m);
    if (status == FRUG_OK && m->done && !m->sending && m->bytes > 1000)
        ((unsigned char *)m->data)[m->bytes / 2] ^= 4;
    return status;
}

static inline void crooked_abandon(void *ctx, frug_message *m) {
    frug_comm *inner = ctx;
    inner->transport.abandon(inner->ctx, m);
}

/* Short pieces go the way of the other ranks. */
static inline frug_status crooked_gather(void *ctx, const frug_comm *comm, int tag, const void *mine, size_t bytes,
                                         void *all) {
    frug_comm *inner = ctx;
    return inner->short_allgather(inner->ctx, comm, tag, mine, bytes, all);
}

static inline frug_status crooked(frug_comm *inner, frug_comm **comm) {
    frug_transport t = {.struct_size = sizeof t, .name = "crooked", .post = crooked_post, .test = crooked_test};
    t.abandon = crooked_abandon;
    frug_status status = frug_comm_create(&t, inner, inner->rank, inner->size, comm);
    if (status == FRUG_OK)
        (*comm)->short_allgather = crooked_gather;
    return status;
}

/* ---- the crew ----------------------------------------------------------------------------- */

static inline frug_status outing_step(outing *o, frug_reducer *r, int rank, uint64_t step, uint64_t begin,
                                      uint64_t count) {
    const float *grad = o->grad[rank][step] + begin;
    float *dst = o->weights[rank] + begin;
    if (o->apply)
        return frug_reduce_apply(r, step, begin, count, grad, 0.5f, 0.25f, dst);
    return frug_reduce_add(r, step, begin, count, grad, 1.0f, dst);
}

static inline frug_status outing_work(frug_comm *comm, void *shared) {
    outing *o = shared;
    int rank = frug_comm_rank(comm);
    frug_comm *bent = NULL;
    frug_config *config = NULL;
    frug_reducer *r = NULL;
    frug_options options = FRUG_OPTIONS_INIT;
    options.threads = 1;
    frug_status status = frug_config_create(o->config, &config);
    if (status == FRUG_OK && o->damage && o->damage == rank)
        status = crooked(comm, &bent);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, o->layout, &options, bent ? bent : comm, &r);
    frug_config_destroy(config);
    uint64_t first = o->two_ranges ? 40 * 64 : o->n;
    for (uint64_t step = 0; step < OUTING_STEPS && status == FRUG_OK; step++) {
        status = outing_step(o, r, rank, step, 0, first);
        if (status == FRUG_OK && o->two_ranges)
            status = outing_step(o, r, rank, step, first, o->n - first);
    }
    if (status == FRUG_OK)
        status = frug_compressor_residual(frug_reducer_compressor(r), 0, o->n, o->left[rank]);
    if (status == FRUG_OK) {
        o->stats[rank].struct_size = sizeof o->stats[rank];
        status = frug_reducer_stats(r, &o->stats[rank]);
    }
    frug_reducer_destroy(r);
    frug_comm_destroy(bent);
    return status;
}

/** Make gradients, unless the test has, and go. Whoever fails says so in member[]. */
static inline void outing_try(outing *o, int size) {
    o->n = frug_layout_elements(o->layout);
    for (int i = 0; i < size; i++) {
        for (uint64_t step = 0; step < OUTING_STEPS && !o->grad[i][step]; step++) {
            o->grad[i][step] = zoo_gradient(o->layout, 100 * (uint64_t)i + step + 1);
            for (size_t e = 0; o->whole && e < o->n; e++)
                o->grad[i][step][e] = roundf(o->grad[i][step][e] * 100);
        }
        o->weights[i] = test_calloc(o->n, sizeof(float));
        o->left[i] = test_calloc(o->n, sizeof(float));
        for (size_t e = 0; o->apply && e < o->n; e++)
            o->weights[i][e] = 1;
    }
    crew(size, outing_work, o, 20, o->member);
}

static inline void outing_go(outing *o, int size) {
    outing_try(o, size);
    for (int i = 0; i < size; i++)
        if (o->member[i].status != FRUG_OK)
            fail_msg("%s, rank %d of %d: %s", o->config, i, size, o->member[i].error);
    for (int i = 1; i < size; i++)
        assert_same_bits(o->weights[0], o->weights[i], o->n * sizeof(float));
}

static inline void outing_end(outing *o, int size) {
    for (int i = 0; i < size; i++) {
        for (uint64_t step = 0; step < OUTING_STEPS; step++)
            test_free(o->grad[i][step]);
        test_free(o->weights[i]);
        test_free(o->left[i]);
    }
}

/** What all workers put in is what came out of the exchange and what they still have, up to rounding of the sums. */
static inline void outing_check_mass(const outing *o, int size) {
    double *in = test_calloc(o->n, sizeof(double)), most = 0;
    for (int p = 0; p < size; p++)
        for (uint64_t step = 0; step < OUTING_STEPS; step++)
            for (size_t i = 0; i < o->n; i++)
                in[i] += (double)o->grad[p][step][i];
    for (size_t i = 0; i < o->n; i++) {
        double out = (double)o->weights[0][i];
        for (int p = 0; p < size; p++)
            out += (double)o->left[p][i];
        most = fmax(most, fabs(out - in[i]));
    }
    if (!(most <= 1e-4))
        fail_msg("%s with %d workers: %g is missing somewhere", o->config, size, most);
    test_free(in);
}

/** Everything that was sent was received; returns how much. */
static inline uint64_t outing_bytes(const outing *o, int size) {
    uint64_t sent = 0, received = 0;
    for (int i = 0; i < size; i++) {
        sent += o->stats[i].bytes_sent;
        received += o->stats[i].bytes_received;
    }
    assert_int_equal(sent, received);
    return sent;
}

/** With a damaged message to one rank everyone gets an error, and nobody waits for the deadline. */
static inline void outing_damaged(outing *o, int size, int rank) {
    o->damage = rank;
    outing_try(o, size);
    for (int i = 0; i < size; i++) {
        assert_int_not_equal(o->member[i].status, FRUG_OK);
        assert_int_not_equal(o->member[i].status, FRUG_ERR_COMM);
    }
    outing_end(o, size);
}

/** One exchange of a few numbers, in blocks of 64 of which one leaves: row i of grad is worker i's. */
typedef struct lesson {
    const char *config;
    size_t n;
    const float *grad;
    float *got; /* as grad */
} lesson;

static inline frug_status lesson_work(frug_comm *comm, void *shared) {
    const lesson *l = shared;
    size_t at = (size_t)frug_comm_rank(comm) * l->n;
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    frug_reducer *r = NULL;
    frug_options options = FRUG_OPTIONS_INIT;
    options.threads = 1;
    frug_status status = frug_config_create(l->config, &config);
    if (status == FRUG_OK)
        status = frug_layout_flat(l->n, &layout);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, layout, &options, comm, &r);
    if (status == FRUG_OK)
        status = frug_reduce_add(r, 0, 0, l->n, l->grad + at, 1.0f, l->got + at);
    frug_reducer_destroy(r);
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    return status;
}

static inline void lesson_check(const lesson *l, int size, const float *want) {
    crew_member member[CREW_MOST];
    crew(size, lesson_work, (void *)(uintptr_t)l, 20, member);
    for (int i = 0; i < size; i++) {
        if (member[i].status != FRUG_OK)
            fail_msg("rank %d: %s", i, member[i].error);
        assert_same_bits(l->got + (size_t)i * l->n, want, l->n * sizeof(float));
    }
}

#endif
