/* job.c - what a call does besides its range: everything or a share, masked or not, clipped or not. */
#include "compress/compressor.h"

#include "common/status.h"
#include "schedule/schedule.h"

#include <math.h>

#define MASK_BELOW 0.25 /* mask=auto clears momentum below this density only: above, it would vanish */

/* The norm of a gradient range, NaN and infinities aside; in stretches of fixed length, so that threads do not matter.
 */
static double norm_of(const frugi_job *j) {
    frug_compressor *c = j->c;
    uint64_t stretches = (j->count + FRUGI_NORM_STRETCH - 1) / FRUGI_NORM_STRETCH;
    double sum = 0;
#pragma omp parallel for num_threads(j->threads) schedule(static) if (j->threads > 1)
    for (uint64_t i = 0; i < stretches; i++) {
        uint64_t from = i * FRUGI_NORM_STRETCH, rest = j->count - from;
        double energy = frugi_energy(j->grad + from, rest < FRUGI_NORM_STRETCH ? rest : FRUGI_NORM_STRETCH);
        c->partial[i] = energy - energy == 0 ? energy : 0;
    }
    for (uint64_t i = 0; i < stretches; i++)
        sum += c->partial[i];
    return sqrt(sum);
}

/* What the norm of the gradient changes: how much leaves, and how much of the gradient counts. */
static void heed_norm(frugi_job *j) {
    frug_compressor *c = j->c;
    bool follow = c->config.norm != FRUGI_NORM_OFF, measure = c->config.clip > 0 || (follow && !c->norm_told);
    double norm = measure ? norm_of(j) : 0;
    if (follow)
        frugi_control_norm(c->control, j->step, c->norm_told ? c->norm : norm);
    if (c->config.clip > 0 && norm > c->config.clip)
        j->gain = (float)(c->config.clip / norm);
}

/* mask=auto goes by the density of the schedule. */
static bool masks(const frugi_job *j) {
    const frug_compressor *c = j->c;
    double density = j->all ? 1.0 : frugi_schedule_density(&c->config.schedule, j->step, c->total_steps);
    return c->config.feedback == FRUGI_FEEDBACK_DGC &&
           (c->config.mask == FRUGI_MASK_ON || (c->config.mask == FRUGI_MASK_AUTO && density < MASK_BELOW));
}

frug_status frugi_job_start(frugi_job *j) {
    FRUG_TRY(frugi_check_range(j->c, j->begin, j->count));
    j->all = frugi_control_all(&j->c->config, j->step);
    j->mask = masks(j);
    j->threads = frugi_threads_for(j->c, j->count);
    j->gain = 1.0f;
    heed_norm(j);
    return FRUG_OK;
}
