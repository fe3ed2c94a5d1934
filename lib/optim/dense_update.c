/*
 * dense_update.c - update rules whose state is plain floats: none (also sign), sum, momentum, Adam. One pass, element
 * by element; the compiler vectorizes the loops. Only + - * / and square roots, each rounded once, so every machine
 * computes the same bits.
 */
#include "optim/optimizer.h"

#include <math.h>

void frugi_step_direct(float *restrict w, const float *restrict g, uint32_t n, float decay_factor, float rate) {
    for (uint32_t i = 0; i < n; i++)
        w[i] = w[i] * decay_factor - rate * g[i];
}

/* An element without a gradient, or whose contributions cancel out, does not change. */
void frugi_step_sign(float *restrict w, const float *restrict g, uint32_t n, float decay_factor, float rate) {
    for (uint32_t i = 0; i < n; i++)
        w[i] = w[i] * decay_factor - rate * (float)((g[i] > 0) - (g[i] < 0));
}

void frugi_step_sum(float *restrict sum, float *restrict w, const float *restrict g, uint32_t n, float decay_factor,
                    float rate) {
    for (uint32_t i = 0; i < n; i++) {
        sum[i] += g[i];
        w[i] = w[i] * decay_factor - rate * sum[i];
    }
}

void frugi_step_momentum(const frugi_step_args *args, bool nesterov, float *restrict u, float *restrict w,
                         const float *restrict g, uint32_t n, float decay_factor) {
    const float momentum = args->momentum, rate = args->rate;
    if (nesterov) {
        for (uint32_t i = 0; i < n; i++) {
            u[i] = momentum * u[i] + g[i];
            w[i] = w[i] * decay_factor - rate * (g[i] + momentum * u[i]);
        }
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        u[i] = momentum * u[i] + g[i];
        w[i] = w[i] * decay_factor - rate * u[i];
    }
}

void frugi_step_adam(const frugi_step_args *args, float *restrict m, float *restrict v, float *restrict w,
                     const float *restrict g, uint32_t n, float decay_factor) {
    const float beta1 = args->beta1, one_minus_beta1 = args->one_minus_beta1, beta2 = args->beta2,
                one_minus_beta2 = args->one_minus_beta2;
    const float rate = args->adam_rate, root_gain = args->root_gain, eps = args->eps;
    const bool frozen = args->squares_frozen;
    for (uint32_t i = 0; i < n; i++) {
        float square = beta2 * v[i] + one_minus_beta2 * (g[i] * g[i]);
        m[i] = beta1 * m[i] + one_minus_beta1 * g[i];
        w[i] = w[i] * decay_factor - rate * (m[i] / (sqrtf(square) * root_gain + eps));
        v[i] = frozen ? v[i] : square;
    }
}
