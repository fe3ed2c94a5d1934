/*
 * norm.c - what the norm of a gradient changes: how much of it leaves, and how much of it counts.
 *
 * The norm is that of the range in hand. An exchange that compresses a range part by part has the norm of the whole
 * range taken first, so that it makes no difference how the range is cut. One pass over the range, and none where no
 * option asks for a norm.
 */
#include "compress/compressor.h"

#include <math.h>

static bool measures(const frug_compressor *c) {
    return c->config.clip > 0 || (c->config.norm != FRUGI_NORM_OFF && !c->norm_told);
}

/* NaN and infinities aside; in stretches of fixed length, so that threads do not matter. */
static double norm_of(frug_compressor *c, const float *grad, uint64_t count, int threads) {
    uint64_t stretches = (count + FRUGI_NORM_STRETCH - 1) / FRUGI_NORM_STRETCH;
    double sum = 0;
    (void)threads; /* without OpenMP */
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (uint64_t i = 0; i < stretches; i++) {
        uint64_t from = i * FRUGI_NORM_STRETCH, rest = count - from;
        double energy = frugi_energy(grad + from, rest < FRUGI_NORM_STRETCH ? rest : FRUGI_NORM_STRETCH);
        c->partial[i] = energy - energy == 0 ? energy : 0;
    }
    for (uint64_t i = 0; i < stretches; i++)
        sum += c->partial[i];
    return sqrt(sum);
}

void frugi_norm_take(frug_compressor *c, uint64_t count, const float *grad) {
    c->norm_taken = true;
    c->norm_here = measures(c) ? norm_of(c, grad, count, frugi_threads_for(c, count)) : 0;
}

void frugi_norm_drop(frug_compressor *c) {
    c->norm_taken = false;
}

void frugi_heed_norm(frugi_job *j) {
    frug_compressor *c = j->c;
    if (!c->norm_taken)
        c->norm_here = measures(c) ? norm_of(c, j->grad, j->count, j->threads) : 0;
    if (c->config.norm != FRUGI_NORM_OFF)
        frugi_control_norm(c->control, j->step, c->norm_told ? c->norm : c->norm_here);
    if (c->config.clip > 0 && c->norm_here > c->config.clip)
        j->gain = (float)(c->config.clip / c->norm_here);
}
