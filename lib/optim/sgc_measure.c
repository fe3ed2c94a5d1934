/*
 * sgc_measure.c - what a worker hands over of its gradient instead of the gradient, and where the time goes.
 *
 * sgc, mesgc and cesgc keep measurements only, and measuring is linear, so workers may add up 2 kappa s numbers of a
 * target instead of its n m. At a step at which a basis or shares are renewed everybody needs the mean gradient itself;
 * which steps those are is read from the state, which is the same on all workers. All other tensors hand their gradient
 * over. frug_optimizer_step() goes through the same two halves (target_step.c), so there is one algorithm.
 */
#include "base/float_bits.h"
#include "base/status.h"
#include "optim/target.h"

const frugi_tuned *frugi_stretch_sketch(const frug_optimizer *o, uint64_t step, const frugi_stretch *stretch) {
    if (stretch->part->way != FRUGI_WAY_TARGET || !frugi_is_sketch(&o->options))
        return NULL;
    const frugi_tuned *t = &o->targets->target[stretch->part->at];
    return frugi_sketch_renews(o, t, step) ? NULL : t;
}

uint64_t frugi_stretch_wants(const frug_optimizer *o, uint64_t step, const frugi_stretch *stretch) {
    const frugi_tuned *t = frugi_stretch_sketch(o, step, stretch);
    return t ? 2 * t->moments : stretch->count;
}

uint64_t frug_optimizer_wants(const frug_optimizer *o, uint64_t step, uint64_t begin, uint64_t count) {
    if (!o || frugi_range_check(o, begin, count) != FRUG_OK)
        return 0;
    frugi_stretch stretch;
    uint64_t sum = 0;
    for (size_t next = 0; frugi_stretch_next(o, begin, count, &next, &stretch);)
        sum += frugi_stretch_wants(o, step, &stretch);
    return sum;
}

frug_status frug_optimizer_measure(frug_optimizer *o, uint64_t step, uint64_t begin, uint64_t count, const float *grad,
                                   float *measured) {
    FRUG_FAIL_IF(!o || !grad, FRUG_ERR_ARG, "measure: no optimizer or no gradient");
    FRUG_TRY(frugi_range_check(o, begin, count));
    FRUG_FAIL_IF(!measured && frug_optimizer_wants(o, step, begin, count), FRUG_ERR_ARG,
                 "measure: no place for the result");
    frugi_stretch stretch;
    for (size_t next = 0; frugi_stretch_next(o, begin, count, &next, &stretch);) {
        const frugi_tuned *t = frugi_stretch_sketch(o, step, &stretch);
        const float *g = grad + (stretch.from - begin);
        if (t)
            frugi_target_measure(o, step, t, g, measured);
        else
            memcpy(measured, g, stretch.count * sizeof *g);
        measured += frugi_stretch_wants(o, step, &stretch);
    }
    return FRUG_OK;
}

frug_status frug_optimizer_time(const frug_optimizer *o, frug_optimizer_times *times) {
    FRUG_FAIL_IF(!o || !times || times->struct_size < sizeof *times, FRUG_ERR_ARG,
                 "optimizer: none there, no place for the times or struct_size unset");
    const double none[FRUGI_LAPS] = {0}, *spent = o->targets ? o->targets->seconds : none;
    *times = (frug_optimizer_times){.struct_size = sizeof *times,
                                    .seconds_project = spent[FRUGI_LAP_PROJECT],
                                    .seconds_recover = spent[FRUGI_LAP_RECOVER],
                                    .seconds_apply = spent[FRUGI_LAP_APPLY]};
    return FRUG_OK;
}
