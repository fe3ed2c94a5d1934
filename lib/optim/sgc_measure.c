/*
 * sgc_measure.c - measurements that a worker contributes instead of its gradient, and timings.
 *
 * sgc, mesgc and cesgc store only measurements, and measuring is linear, so workers may sum 2 kappa s numbers of a
 * target instead of its n m. At a step at which a basis or shares are refreshed all workers need the mean gradient
 * itself; which steps those are follows from the state, which is the same on all workers. For all other tensors workers
 * contribute their gradient. frug_optimizer_step() runs the same two halves (target_step.c), so there is one algorithm.
 */
#include "base/float_bits.h"
#include "base/struct_size.h"
#include "base/status.h"
#include "optim/target.h"

const frugi_optim_target *frugi_optim_range_sketch(const frug_optimizer *o, uint64_t step,
                                                   const frugi_optim_range *range) {
    if (range->tensor->rule != FRUGI_UPDATE_TARGET || !frugi_is_sketch(&o->options))
        return NULL;
    const frugi_optim_target *t = &o->targets->target[range->tensor->at];
    return frugi_sketch_needs_gradient(o, t, step) ? NULL : t;
}

uint64_t frugi_optim_range_floats(const frug_optimizer *o, uint64_t step, const frugi_optim_range *range) {
    const frugi_optim_target *t = frugi_optim_range_sketch(o, step, range);
    return t ? 2 * t->moments : range->count;
}

uint64_t frug_optimizer_measure_count(const frug_optimizer *o, uint64_t step, frug_range range) {
    const uint64_t begin = range.begin, count = range.count;
    if (!o || frugi_optim_range_check(o, begin, count) != FRUG_OK)
        return 0;
    frugi_optim_range part;
    uint64_t sum = 0;
    for (size_t next = 0; frugi_optim_range_next(o, begin, count, &next, &part);)
        sum += frugi_optim_range_floats(o, step, &part);
    return sum;
}

frug_status frug_optimizer_measure(frug_optimizer *o, uint64_t step, frug_range range, const float *grad,
                                   float *measured) {
    const uint64_t begin = range.begin, count = range.count;
    FRUG_FAIL_IF(!o || !grad, FRUG_ERR_ARG, "measure: null optimizer or gradient");
    FRUG_TRY(frugi_optim_range_check(o, begin, count));
    FRUG_FAIL_IF(!measured && frug_optimizer_measure_count(o, step, (frug_range){begin, count}), FRUG_ERR_ARG,
                 "measure: null result pointer");
    frugi_optim_range part;
    for (size_t next = 0; frugi_optim_range_next(o, begin, count, &next, &part);) {
        const frugi_optim_target *t = frugi_optim_range_sketch(o, step, &part);
        const float *g = grad + (part.from - begin);
        if (t)
            frugi_target_measure(o, step, t, g, measured);
        else
            memcpy(measured, g, part.count * sizeof *g);
        measured += frugi_optim_range_floats(o, step, &part);
    }
    return FRUG_OK;
}

frug_status frug_optimizer_time(const frug_optimizer *o, frug_optimizer_times *times) {
    FRUG_FAIL_IF(!o || !frugi_struct_valid(times), FRUG_ERR_ARG,
                 "optimizer: null optimizer or times, or struct_size unset");
    const double none[FRUGI_PHASES] = {0}, *spent = o->targets ? o->targets->seconds : none;
    frug_optimizer_times made = {.struct_size = sizeof made,
                                 .seconds_project = spent[FRUGI_PHASE_PROJECT],
                                 .seconds_recover = spent[FRUGI_PHASE_RECOVER],
                                 .seconds_apply = spent[FRUGI_PHASE_APPLY]};
    frugi_struct_write(times, &made);
    return FRUG_OK;
}
