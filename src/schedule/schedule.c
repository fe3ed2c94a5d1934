/*
 * schedule.c - density as a function of training progress.
 *
 * A schedule is one function from progress tau in [0, 1] to sparsity, kept in a table by kind, so that a
 * new one is a row here and a row in config/schedule_option.c. Only operations that IEEE 754 rounds
 * correctly are used: no pow() or exp(), whose last bit differs between C libraries and would make
 * workers disagree on how much to send.
 */
#include "schedule/schedule.h"

/* arg: S */
static double constant_sparsity(const double *arg, double tau) {
    (void)tau;
    return arg[0];
}

/* arg: S0, SMAX, R. Straight from S0 at the start to SMAX at progress R, then flat. */
static double frugrad_sparsity(const double *arg, double tau) {
    /* s0 + (smax - s0) may round to a neighbour of smax; the end point has to be exact. */
    if (tau >= arg[2])
        return arg[1];
    return arg[0] + (arg[1] - arg[0]) * (tau / arg[2]);
}

static double (*const sparsity[])(const double *arg, double tau) = {
    [FRUGI_SCHEDULE_CONSTANT] = constant_sparsity,
    [FRUGI_SCHEDULE_FRUGRAD] = frugrad_sparsity,
};

double frugi_schedule_density(const frugi_schedule *schedule, uint64_t step, uint64_t total) {
    double tau = step >= total ? 1.0 : (double)step / (double)total;
    return 1.0 - sparsity[schedule->kind](schedule->arg, tau);
}

double frugi_schedule_final_density(const frugi_schedule *schedule) {
    return frugi_schedule_density(schedule, 0, 0);
}
