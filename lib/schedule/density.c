/*
 * density.c - density as a function of training progress.
 *
 * A schedule is one function from progress tau in [0, 1] to sparsity. A table lists them by kind; a new
 * schedule needs a row here and a row in config/schedule_option.c. Only operations that IEEE 754 rounds
 * correctly are used: no pow() or exp(), whose last bit differs between C libraries, so that
 * workers would compute different densities.
 */
#include "schedule/density.h"

#include <string.h>

/* Linear interpolation from a to b: never outside them, and monotone in t. */
static double interpolate(double a, double b, double t) {
    double x = a + (b - a) * t, low = a < b ? a : b, high = a < b ? b : a;
    return x < low ? low : x > high ? high : x;
}

/* arg: S */
static double constant_sparsity(const frugi_schedule *schedule, double tau) {
    (void)tau;
    return schedule->arg[0];
}

/* arg: S0, SMAX, R. Linear from S0 at the start to SMAX at progress R, then constant. */
static double frugrad_sparsity(const frugi_schedule *schedule, double tau) {
    const double *arg = schedule->arg;
    /* s0 + (smax - s0) may not round to smax; the end point has to be exact. */
    if (tau >= arg[2])
        return arg[1];
    return interpolate(arg[0], arg[1], tau / arg[2]);
}

/* arg: S0, S1. Linear from S0 at the start to S1 at the end. */
static double anneal_sparsity(const frugi_schedule *schedule, double tau) {
    return tau >= 1 ? schedule->arg[1] : interpolate(schedule->arg[0], schedule->arg[1], tau);
}

static double power(double x, uint32_t n) {
    double product = x;
    for (uint32_t i = 1; i < n; i++)
        product *= x;
    return product;
}

/*
 * The largest double x in [0, 1] with power(x, n) <= y, for y in [0, 1]. Nonnegative doubles are ordered like their
 * bits, so bisecting the bits takes 62 rounds for any y; power() is monotone in x, rounding included.
 */
static double nth_root(double y, uint32_t n) {
    uint64_t low = 0, high = 0x3ff0000000000000u; /* 0 and 1 */
    double x = 0;
    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;
        memcpy(&x, &middle, sizeof x);
        if (power(x, n) <= y)
            low = middle;
        else
            high = middle - 1;
    }
    memcpy(&x, &low, sizeof x);
    return x;
}

/*
 * arg: S, E, R. The warm-up of Deep Gradient Compression: the first R of training has E equal stages, and stage
 * i = 0 .. E - 1 sends final^((i + 1) / (E + 1)), with final = 1 - S; then final. For S = 0.999 and E = 4 that is the
 * published 0.25, 0.063, 0.016, 0.004, 0.001.
 */
static double dgc_sparsity(const frugi_schedule *schedule, double tau) {
    const double *arg = schedule->arg;
    uint32_t stages = (uint32_t)arg[1];
    if (tau >= arg[2])
        return arg[0];
    /* Add a little, so that rounding does not delay a stage that starts exactly at a step. */
    uint32_t stage = (uint32_t)(tau / arg[2] * arg[1] + 1e-9);
    stage = stage < stages ? stage : stages - 1;
    double sparsity = 1.0 - power(nth_root(1.0 - arg[0], stages + 1), stage + 1);
    return sparsity < arg[0] ? sparsity : arg[0];
}

/* arg: S0, SMAX, R, SR, TAIL. As frugrad, then linear from SMAX to SR over the last TAIL of training. */
static double relax_sparsity(const frugi_schedule *schedule, double tau) {
    const double *arg = schedule->arg;
    double tail = 1.0 - arg[4];
    if (tau >= 1)
        return arg[3];
    if (tau > tail)
        return interpolate(arg[1], arg[3], (tau - tail) / arg[4]);
    return frugrad_sparsity(schedule, tau);
}

/* arg: T1, S1, T2, S2, ... Linear between these points, constant before the first and after the last. */
static double piecewise_sparsity(const frugi_schedule *schedule, double tau) {
    const double *arg = schedule->arg;
    if (tau <= arg[0])
        return arg[1];
    for (uint32_t i = 2; i < schedule->args; i += 2) {
        if (tau < arg[i])
            return interpolate(arg[i - 1], arg[i + 1], (tau - arg[i - 2]) / (arg[i] - arg[i - 2]));
        if (tau == arg[i])
            return arg[i + 1];
    }
    return arg[schedule->args - 1];
}

static double (*const sparsity_of[])(const frugi_schedule *schedule, double tau) = {
    [FRUGI_SCHEDULE_CONSTANT] = constant_sparsity, [FRUGI_SCHEDULE_FRUGRAD] = frugrad_sparsity,
    [FRUGI_SCHEDULE_ANNEAL] = anneal_sparsity,     [FRUGI_SCHEDULE_DGC] = dgc_sparsity,
    [FRUGI_SCHEDULE_RELAX] = relax_sparsity,       [FRUGI_SCHEDULE_PIECEWISE] = piecewise_sparsity,
};

static double density_at(const frugi_schedule *schedule, double tau) {
    return 1.0 - sparsity_of[schedule->kind](schedule, tau);
}

double frugi_schedule_density(const frugi_schedule *schedule, uint64_t step, uint64_t total) {
    return density_at(schedule, step >= total ? 1.0 : (double)step / (double)total);
}

double frugi_schedule_final_density(const frugi_schedule *schedule) {
    return density_at(schedule, 1.0);
}

/* The maximum is at one of the points of a piecewise schedule, and at the start or the end of the others. */
double frugi_schedule_max_density(const frugi_schedule *schedule) {
    double first = density_at(schedule, 0.0), most = density_at(schedule, 1.0);
    most = first > most ? first : most;
    for (uint32_t i = 0; schedule->kind == FRUGI_SCHEDULE_PIECEWISE && i < schedule->args; i += 2) {
        double density = density_at(schedule, schedule->arg[i]);
        most = density > most ? density : most;
    }
    return most;
}
