/* step_options.c - what a call does besides its range: everything or a share, masked or not, held or not, clipped or
 * not. */
#include "compress/compressor.h"

#include "base/status.h"
#include "schedule/density.h"

#define MASK_BELOW 0.25 /* mask=auto clears momentum below this density only: above, it would vanish */

/*
 * An accumulator is multiplied by beta at every step, and by the share besides when it is sent, at a density of d
 * therefore by beta (1 - d (1 - share)) on average. With hold=auto that is the momentum. Nothing stays where nothing is
 * kept: an owner's way back has the config of the way to it, less feedback.
 */
float frugi_held_share(const struct frug_config *f, uint64_t step, uint64_t total_steps) {
    if (f->feedback != FRUGI_FEEDBACK_MERGED || frugi_control_all(f, step))
        return 0;
    if (!f->hold_auto)
        return (float)f->hold;
    double share = 1.0 - (1.0 - f->momentum / f->beta) / frugi_schedule_density(&f->schedule, step, total_steps);
    return share < 0 || f->beta == 0 ? 0 : share > 1 ? 1 : (float)share;
}

/* mask=auto and hold=auto go by the density of the schedule. */
static void heed_density(frugi_job *j) {
    const frug_compressor *c = j->c;
    double density = j->all ? 1.0 : frugi_schedule_density(&c->config.schedule, j->step, c->total_steps);
    j->hold = frugi_held_share(&c->config, j->step, c->total_steps);
    j->part = 1.0f - c->beta * j->hold;
    j->mask = c->config.feedback == FRUGI_FEEDBACK_DGC &&
              (c->config.mask == FRUGI_MASK_ON || (c->config.mask == FRUGI_MASK_AUTO && density < MASK_BELOW));
}

frug_status frugi_job_start(frugi_job *j) {
    FRUG_TRY(frugi_check_range(j->c, j->begin, j->count));
    j->all = frugi_control_all(&j->c->config, j->step);
    heed_density(j);
    j->threads = frugi_threads_for(j->c, j->count);
    j->gain = 1.0f;
    frugi_heed_norm(j);
    return FRUG_OK;
}

frug_status frugi_cut_step(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, bool *all,
                           frugi_cutting *cut) {
    *all = frugi_control_all(&c->config, step);
    frugi_control_densities(c->control, step, c->density);
    return frugi_cut(c, begin, count, step, *all ? FRUGI_CUT_ALL : FRUGI_CUT_STEP, c->slice, cut);
}
