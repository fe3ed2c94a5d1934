/*
 * dense_update.c - the ways whose state is plain floats: none (also signs), momentum, Adam. One pass, element by
 * element; the compiler turns the loops into vectors of whatever width there is. Only + - * / and square roots, each
 * rounded once, so every machine gets the same bits.
 */
#include "optim/optimizer.h"

#include <math.h>

void frugi_move_direct(float *restrict w, const float *restrict g, uint32_t n, float keep, float rate) {
    for (uint32_t i = 0; i < n; i++)
        w[i] = w[i] * keep - rate * g[i];
}

/* Nothing arrived, or what did cancels out: nothing moves. */
void frugi_move_sign(float *restrict w, const float *restrict g, uint32_t n, float keep, float rate) {
    for (uint32_t i = 0; i < n; i++)
        w[i] = w[i] * keep - rate * (float)((g[i] > 0) - (g[i] < 0));
}

void frugi_move_sum(float *restrict sum, float *restrict w, const float *restrict g, uint32_t n, float keep,
                    float rate) {
    for (uint32_t i = 0; i < n; i++) {
        sum[i] += g[i];
        w[i] = w[i] * keep - rate * sum[i];
    }
}

void frugi_move_momentum(const frugi_move *move, bool nesterov, float *restrict u, float *restrict w,
                         const float *restrict g, uint32_t n, float keep) {
    const float momentum = move->momentum, rate = move->rate;
    if (nesterov) {
        for (uint32_t i = 0; i < n; i++) {
            u[i] = momentum * u[i] + g[i];
            w[i] = w[i] * keep - rate * (g[i] + momentum * u[i]);
        }
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        u[i] = momentum * u[i] + g[i];
        w[i] = w[i] * keep - rate * u[i];
    }
}

void frugi_move_adam(const frugi_move *move, float *restrict m, float *restrict v, float *restrict w,
                     const float *restrict g, uint32_t n, float keep) {
    const float beta1 = move->beta1, rest1 = move->rest1, beta2 = move->beta2, rest2 = move->rest2;
    const float rate = move->adam_rate, root_gain = move->root_gain, eps = move->eps;
    for (uint32_t i = 0; i < n; i++) {
        m[i] = beta1 * m[i] + rest1 * g[i];
        v[i] = beta2 * v[i] + rest2 * (g[i] * g[i]);
        w[i] = w[i] * keep - rate * (m[i] / (sqrtf(v[i]) * root_gain + eps));
    }
}
