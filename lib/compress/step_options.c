/*
 * step_options.c - options of one call that depend on the step: dense steps, momentum mask, retention, clipping.
 */
#include "compress/compressor.h"

#include "base/status.h"
#include "schedule/density.h"

#define MASK_BELOW 0.25 /* mask=auto clears momentum below this density only; above, hardly any would be left */

/*
 * An accumulator is multiplied by beta at every step, and also by the retained share r when it is sent; at density d
 * that is beta * (1 - d * (1 - r)) on average. hold=auto chooses r so that this equals the momentum. Without a residual
 * nothing is retained: reduce=split compresses shards with the same config and feedback=none.
 */
float frugi_retained_share(const struct frug_config *f, uint64_t step, uint64_t total_steps) {
    if (f->feedback != FRUGI_FEEDBACK_MERGED || frugi_control_sends_all(f, step))
        return 0;
    if (!f->hold_auto)
        return (float)f->hold;
    double share = 1.0 - (1.0 - f->momentum / f->beta) / frugi_schedule_density(&f->schedule, step, total_steps);
    return share < 0 || f->beta == 0 ? 0 : share > 1 ? 1 : (float)share;
}

/* mask=auto and hold=auto use the density of the schedule. */
static void apply_density(frugi_compress_call *call) {
    const frug_compressor *c = call->c;
    double density = call->send_all ? 1.0 : frugi_schedule_density(&c->config.schedule, call->step, c->total_steps);
    call->retained_share = frugi_retained_share(&c->config, call->step, c->total_steps);
    call->sent_share = 1.0f - c->beta * call->retained_share;
    call->mask_momentum =
        c->config.feedback == FRUGI_FEEDBACK_DGC &&
        (c->config.mask == FRUGI_MASK_ON || (c->config.mask == FRUGI_MASK_AUTO && density < MASK_BELOW));
}

frug_status frugi_call_init(frugi_compress_call *call) {
    FRUG_TRY(frugi_check_range(&call->c->partition, call->begin, call->count));
    call->send_all = frugi_control_sends_all(&call->c->config, call->step);
    apply_density(call);
    call->threads = frugi_threads_for(call->c->threads, call->count);
    call->grad_scale = 1.0f;
    frugi_apply_norm(call);
    return FRUG_OK;
}

frug_status frugi_make_step_sections(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, bool *all,
                                     frugi_frame_size *size) {
    *all = frugi_control_sends_all(&c->config, step);
    frugi_control_densities(c->control, step, c->density);
    return frugi_make_sections(c, begin, count, step, *all ? FRUGI_SECTIONS_DENSE : FRUGI_SECTIONS_STEP, c->section,
                               size);
}
