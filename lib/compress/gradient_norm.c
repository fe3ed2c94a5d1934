/*
 * gradient_norm.c - norm of the gradient: for clipping, and for densities that depend on it (norm=follow, accordion).
 *
 * The norm is that of the range being compressed. An exchange that compresses a range part by part measures the norm of
 * the whole range first (frugi_norm_measure()), so that the result does not depend on the parts.
 *
 * A range is summed in chunks of fixed length, so that the result does not depend on the number of threads. Elements
 * between tensors may hold anything and are not read; NaN and infinity are left out. Cost: one pass over the range, if
 * a norm is needed at all.
 */
#include "compress/compressor.h"

#include "base/float_bits.h"

#include <math.h>

/* Sum of squares of the finite elements. */
static double finite_energy(const float *x, uint64_t n) {
    double energy = frugi_energy(x, n);
    if (energy - energy == 0) /* finite: squares of floats cannot overflow a double */
        return energy;
    energy = 0;
    for (uint64_t i = 0; i < n; i++)
        energy += frugi_magnitude(x[i]) < FRUGI_INF_BITS ? (double)x[i] * (double)x[i] : 0;
    return energy;
}

/* Energy of the tensors between two elements of the flat buffer. */
static double energy_between(const frugi_compress_call *call, uint64_t begin, uint64_t end) {
    double sum = 0;
    frugi_range_iter it = frugi_range_start(&call->c->partition, begin, end);
    while (frugi_range_next(&it))
        sum += finite_energy(call->grad + (it.from - call->begin), it.to - it.from);
    return sum;
}

static double measure_norm(const frugi_compress_call *call) {
    frug_compressor *c = call->c;
    uint64_t chunks = (call->count + FRUGI_NORM_CHUNK - 1) / FRUGI_NORM_CHUNK, end = call->begin + call->count;
    double sum = 0;
#pragma omp parallel for num_threads(call->threads) schedule(static) if (call->threads > 1)
    for (uint64_t i = 0; i < chunks; i++) {
        uint64_t from = call->begin + i * FRUGI_NORM_CHUNK;
        uint64_t to = end - from < FRUGI_NORM_CHUNK ? end : from + FRUGI_NORM_CHUNK;
        c->norm.partial_energy[i] = energy_between(call, from, to);
    }
    for (uint64_t i = 0; i < chunks; i++)
        sum += c->norm.partial_energy[i];
    return sqrt(sum);
}

static bool needs_norm(const frug_compressor *c) {
    return c->config.clip > 0 || (c->config.norm != FRUGI_NORM_OFF && !c->norm.is_set);
}

double frugi_norm_measure(frug_compressor *c, uint64_t begin, uint64_t count, const float *grad) {
    frugi_compress_call call = {
        .c = c, .begin = begin, .count = count, .grad = grad, .threads = frugi_threads_for(c->threads, count)};
    c->norm.range_is_set = true;
    c->norm.range_value = needs_norm(c) ? measure_norm(&call) : 0;
    return c->norm.range_value;
}

void frugi_norm_clear(frug_compressor *c) {
    c->norm.range_is_set = false;
}

void frugi_apply_norm(frugi_compress_call *call) {
    frug_compressor *c = call->c;
    if (!c->norm.range_is_set)
        c->norm.range_value = needs_norm(c) ? measure_norm(call) : 0;
    if (c->config.norm != FRUGI_NORM_OFF)
        frugi_control_set_norm(c->control, call->step, c->norm.is_set ? c->norm.value : c->norm.range_value);
    if (c->config.clip > 0 && c->norm.range_value > c->config.clip)
        call->grad_scale = (float)(c->config.clip / c->norm.range_value);
}
