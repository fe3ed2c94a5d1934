/*
 * gradient_norm.c - what the norm of the gradient changes: how much leaves, and how much of the gradient counts.
 *
 * The norm is that of the range in hand. An exchange that compresses a range part by part has the norm of the whole
 * range taken first, so that it makes no difference how the range is cut.
 *
 * A range is summed in stretches of fixed length, so that threads do not matter. Elements between tensors may hold
 * anything and are not looked at; of a tensor with a NaN or an infinity the others count. Cost: one pass, where a norm
 * is needed at all.
 */
#include "compress/compressor.h"

#include "base/float_bits.h"

#include <math.h>

/* The energy of what is finite. */
static double sound_energy(const float *x, uint64_t n) {
    double energy = frugi_energy(x, n);
    if (energy - energy == 0) /* floats are too small for their squares to add up to infinity */
        return energy;
    energy = 0;
    for (uint64_t i = 0; i < n; i++)
        energy += frugi_magnitude(x[i]) < FRUGI_INF_BITS ? (double)x[i] * (double)x[i] : 0;
    return energy;
}

/* The energy of the tensors between two elements of the flat buffer. */
static double energy_between(const frugi_job *j, uint64_t from, uint64_t to) {
    const frug_compressor *c = j->c;
    double sum = 0;
    for (size_t i = frugi_piece_at(c, from); i < c->pieces && c->piece[i].begin < to; i++) {
        uint64_t begin = c->piece[i].begin, end = begin + c->piece[i].count;
        begin = begin > from ? begin : from;
        end = end < to ? end : to;
        sum += sound_energy(j->grad + (begin - j->begin), end - begin);
    }
    return sum;
}

static double norm_of(const frugi_job *j) {
    frug_compressor *c = j->c;
    uint64_t stretches = (j->count + FRUGI_NORM_STRETCH - 1) / FRUGI_NORM_STRETCH, end = j->begin + j->count;
    double sum = 0;
#pragma omp parallel for num_threads(j->threads) schedule(static) if (j->threads > 1)
    for (uint64_t i = 0; i < stretches; i++) {
        uint64_t from = j->begin + i * FRUGI_NORM_STRETCH;
        c->partial[i] = energy_between(j, from, end - from < FRUGI_NORM_STRETCH ? end : from + FRUGI_NORM_STRETCH);
    }
    for (uint64_t i = 0; i < stretches; i++)
        sum += c->partial[i];
    return sqrt(sum);
}

static bool measures(const frug_compressor *c) {
    return c->config.clip > 0 || (c->config.norm != FRUGI_NORM_OFF && !c->norm_told);
}

void frugi_norm_take(frug_compressor *c, uint64_t begin, uint64_t count, const float *grad) {
    frugi_job j = {.c = c, .begin = begin, .count = count, .grad = grad, .threads = frugi_threads_for(c, count)};
    c->norm_taken = true;
    c->norm_here = measures(c) ? norm_of(&j) : 0;
}

void frugi_norm_drop(frug_compressor *c) {
    c->norm_taken = false;
}

void frugi_heed_norm(frugi_job *j) {
    frug_compressor *c = j->c;
    if (!c->norm_taken)
        c->norm_here = measures(c) ? norm_of(j) : 0;
    if (c->config.norm != FRUGI_NORM_OFF)
        frugi_control_norm(c->control, j->step, c->norm_told ? c->norm : c->norm_here);
    if (c->config.clip > 0 && c->norm_here > c->config.clip)
        j->gain = (float)(c->config.clip / c->norm_here);
}
