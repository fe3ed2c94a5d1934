/*
 * receiver_momentum.c - receiver momentum whose weight falls with sparsity: option inertia of merged and adam-merged.
 *
 * What waits in the residual is the momentum, so where nearly everything leaves at once there is none: at the start of
 * a schedule that begins dense. At density d and decay b of the residual a gradient waits b (1 - d) / (1 - b (1 - d))
 * steps on average, while ordinary momentum m delays it by m / (1 - m). The receiver makes up for the difference D with
 * a velocity of its own, of momentum D / (1 + D): m at density 1, and nothing where the residual delays by itself.
 *
 * The velocity is a float for each compressed parameter. It is let go before the first step from which on its momentum
 * stays at or below LIMIT: as much as that, the residual's own delay varies anyway. Densities are those of the schedule
 * and of warm-up; what modifies them from tensor to tensor, and single dense steps, do not count.
 */
#include "base/alloc.h"
#include "base/status.h"
#include "compress/compressor.h"
#include "optim/optimizer.h"
#include "schedule/density.h"

#define LIMIT  0.5
#define LOOKS  16384u /* how many steps of a schedule are looked at: all, or evenly spread */
#define SPENT  1e-20  /* less than this of 1 does not change it */
#define ALWAYS UINT64_MAX

/* By the schedule alone, whether or not the velocity is still there. */
static double wanted_at(const frugi_inertia *i, uint64_t step) {
    if (i->fixed)
        return i->momentum;
    double density = step < i->warmup ? 1 : frugi_schedule_density(&i->schedule, step, i->total);
    double stays = i->beta * (1 - density), missing = i->momentum / (1 - i->momentum) - stays / (1 - stays);
    return stays == 0 ? i->momentum : stays < 1 && missing > 0 ? missing / (1 + missing) : 0;
}

static bool matters(const frugi_inertia *i, uint64_t step) {
    return wanted_at(i, step) > (i->fixed ? 0 : LIMIT);
}

/* The first step from which on it does not matter any more. */
static uint64_t find_end(const frugi_inertia *i) {
    uint64_t end = i->total > i->warmup ? i->total : i->warmup, stride = end / LOOKS + 1;
    if (matters(i, end)) /* schedules stand still from there on */
        return ALWAYS;
    while (end > 0 && !matters(i, end - 1))
        end -= end < stride ? end : stride;
    while (matters(i, end)) /* less than a stride, and none where end was the last step */
        end++;
    return end;
}

frug_status frugi_inertia_begin(frug_optimizer *o, const frug_compressor *c) {
    const frugi_optim_options *f = &o->options;
    frugi_inertia *i = &o->inertia;
    if (f->inertia == 0)
        return FRUG_OK;
    i->fixed = f->inertia > 0;
    i->momentum = i->fixed ? f->inertia : f->kind == FRUGI_OPTIM_MERGED ? f->momentum : f->beta1;
    FRUG_FAIL_IF(!i->fixed && (!c || c->config.feedback != FRUGI_FEEDBACK_MERGED), FRUG_ERR_CONFIG,
                 "config: inertia=auto goes by how long a compressor with feedback=merged keeps entries waiting, and "
                 "there is none; say a number or off");
    FRUG_FAIL_IF(c && (c->config.hold_auto || c->config.hold > 0), FRUG_ERR_CONFIG,
                 "config: the compressor's hold keeps momentum up already, and inertia would count it twice; choose "
                 "hold=off or inertia=off");
    if (c) {
        i->beta = c->config.beta;
        i->schedule = c->config.schedule;
        i->total = c->total_steps;
        i->warmup = c->config.warmup;
    }
    i->product = 1;
    i->end = find_end(i);
    i->floats = o->used[FRUGI_WAY_DIRECT] + FRUGI_OPTIM_BLOCK * o->used[FRUGI_WAY_ROOT];
    if (i->end == 0)
        return FRUG_OK;
    i->velocity = frugi_alloc((size_t)i->floats * sizeof *i->velocity);
    FRUG_FAIL_IF(!i->velocity, FRUG_ERR_MEMORY, "optimizer: no memory for %llu floats of velocity",
                 (unsigned long long)i->floats);
    return FRUG_OK;
}

void frugi_inertia_end(frug_optimizer *o) {
    frugi_free(o->inertia.velocity);
    o->inertia.velocity = NULL;
}

bool frugi_inertia_lasts(const frug_optimizer *o) {
    return o->inertia.velocity && o->inertia.end == ALWAYS;
}

/* The product of all momenta up to this step tells what the weights of a mean have not added up to yet. */
void frugi_inertia_seek(frug_optimizer *o, uint64_t step) {
    frugi_inertia *i = &o->inertia;
    if (i->velocity && step >= i->end)
        frugi_inertia_end(o);
    if (!i->velocity || step + 1 == i->known)
        return;
    uint64_t from = step >= i->known ? i->known : 0;
    double product = from ? i->product : 1;
    for (; from <= step && product > SPENT; from++)
        product *= wanted_at(i, from);
    i->product = product;
    i->now = wanted_at(i, step);
    i->known = step + 1;
}

frug_status frug_optimizer_seek(frug_optimizer *o, uint64_t step) {
    FRUG_FAIL_IF(!o, FRUG_ERR_ARG, "seek: no optimizer");
    frugi_inertia_seek(o, step);
    return FRUG_OK;
}

void frugi_move_inertia(const frugi_move *move, float *restrict u, float *restrict w, const float *restrict g,
                        uint32_t n, float keep) {
    const float inertia = move->inertia, rate = move->inertia_rate;
    for (uint32_t i = 0; i < n; i++) {
        u[i] = inertia * u[i] + g[i];
        w[i] = w[i] * keep - rate * u[i];
    }
}

/* m becomes the mean of what arrived, and mean that without its bias. */
void frugi_move_mean(const frugi_move *move, float *restrict m, const float *restrict g, uint32_t n,
                     float *restrict mean) {
    const float inertia = move->inertia, rest = move->inertia_rest, gain = move->inertia_gain;
    for (uint32_t i = 0; i < n; i++) {
        m[i] = inertia * m[i] + rest * g[i];
        mean[i] = gain * m[i];
    }
}
