/* error_feedback.c - the arithmetic of error feedback, by blocks. */
#include "feedback/error_feedback.h"

#include "base/float_bits.h"
#include "base/philox.h"
#include "base/status.h"

#define MASK_BELOW 0.25 /* mask=auto clears momentum below this density only; above, hardly any would be left */

frug_status frugi_feedback_create(const struct frug_config *config, uint64_t before, uint64_t blocks,
                                  frugi_feedback_state *fb) {
    *fb = (frugi_feedback_state){.kind = config->feedback,
                                 .block = config->block,
                                 .seed = config->seed,
                                 .before = before,
                                 .kernel = frugi_accumulate_kernel_chosen(),
                                 .beta = frugi_feedback_beta(config),
                                 .momentum_rate = config->feedback == FRUGI_FEEDBACK_DGC ? (float)config->momentum
                                                                                         : (float)config->theta};
    if (frugi_has_residual(fb))
        FRUG_TRY(frugi_store_create(config->residual, config->block, blocks, &fb->residual));
    if (frugi_has_momentum(fb))
        FRUG_TRY(frugi_store_create(config->residual, config->block, blocks, &fb->momentum));
    return FRUG_OK;
}

void frugi_feedback_destroy(frugi_feedback_state *fb) {
    frugi_store_destroy(&fb->residual);
    frugi_store_destroy(&fb->momentum);
}

/* Without a residual nothing is retained: reduce=split compresses shards with the same config and feedback=none. */
frugi_feedback_step frugi_feedback_at(const struct frug_config *f, double density, bool send_all) {
    frugi_feedback_step step = {.retained_share = send_all ? 0 : (float)frugi_retention(f, density)};
    step.sent_share = 1.0f - frugi_feedback_beta(f) * step.retained_share;
    step.mask_momentum =
        f->feedback == FRUGI_FEEDBACK_DGC &&
        (f->mask == FRUGI_MASK_ON || (f->mask == FRUGI_MASK_AUTO && !send_all && density < MASK_BELOW));
    return step;
}

/* ---- before selection ---- */

void frugi_feedback_load(const frugi_feedback_state *fb, uint64_t b, uint32_t blocks, float *residual) {
    for (uint32_t i = 0; i < blocks; i++)
        frugi_store_load(&fb->residual, b + i, residual + (size_t)i * fb->block);
}

/* Momentum of n elements. */
static const float *update_dgc(float mu, const float *grad, float *momentum, size_t n) {
    for (size_t i = 0; i < n; i++)
        momentum[i] = mu * momentum[i] + grad[i];
    return momentum;
}

/* Smoothed gradient of n elements. */
static const float *update_ef21(float theta, const float *grad, float *smoothed, float *change, size_t n) {
    for (size_t i = 0; i < n; i++) {
        change[i] = theta * (grad[i] - smoothed[i]);
        smoothed[i] += change[i];
    }
    return change;
}

const float *frugi_feedback_momentum(const frugi_feedback_state *fb, uint64_t b, uint32_t blocks, const float *grad,
                                     float *momentum, float *change) {
    size_t n = (size_t)blocks * fb->block;
    if (!frugi_has_momentum(fb))
        return grad;
    for (uint32_t i = 0; i < blocks; i++)
        frugi_store_load(&fb->momentum, b + i, momentum + (size_t)i * fb->block);
    return fb->kind == FRUGI_FEEDBACK_DGC ? update_dgc(fb->momentum_rate, grad, momentum, n)
                                          : update_ef21(fb->momentum_rate, grad, momentum, change, n);
}

bool frugi_feedback_accumulate(const frugi_feedback_state *fb, uint64_t b, const float *residual, const float *grad,
                               float *acc, float *momentum, float *change) {
    const float *added = frugi_feedback_momentum(fb, b, 1, grad, momentum, change);
    for (uint32_t i = 0; i < fb->block; i++)
        acc[i] = fb->beta * residual[i] + added[i];
    return frugi_all_finite(acc, fb->block) && (!frugi_has_momentum(fb) || frugi_all_finite(momentum, fb->block));
}

bool frugi_feedback_accumulate_in_place(frugi_feedback_state *fb, uint64_t b, const float *grad, float *acc) {
    if (!frugi_has_momentum(fb))
        return fb->kernel->add(acc, grad, fb->beta, fb->block);
    float *momentum = frugi_store_floats(&fb->momentum, b);
    return fb->kind == FRUGI_FEEDBACK_DGC ? fb->kernel->add_dgc(acc, momentum, grad, fb->momentum_rate, fb->block)
                                          : fb->kernel->add_ef21(acc, momentum, grad, fb->momentum_rate, fb->block);
}

float frugi_feedback_preview(const frugi_feedback_state *fb, uint64_t element, float grad) {
    if (!frugi_has_residual(fb))
        return grad;
    float residual = frugi_store_floats(&fb->residual, 0)[element];
    float momentum = frugi_has_momentum(fb) ? frugi_store_floats(&fb->momentum, 0)[element] : 0.0f;
    switch (fb->kind) {
    case FRUGI_FEEDBACK_DGC: return residual + (fb->momentum_rate * momentum + grad);
    case FRUGI_FEEDBACK_EF21: return residual + fb->momentum_rate * (grad - momentum);
    default: return fb->beta * residual + grad;
    }
}

/* ---- after selection ---- */

void frugi_feedback_retain(const frugi_feedback_step *step, float *values, float *retained, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        retained[i] = step->retained_share * values[i];
        values[i] *= step->sent_share;
    }
}

void frugi_feedback_mask(const frugi_feedback_state *fb, float *momentum, const uint16_t *idx, uint32_t k) {
    if (!idx)
        memset(momentum, 0, fb->block * sizeof *momentum);
    for (uint32_t e = 0; idx && e < k; e++)
        momentum[idx[e]] = 0.0f;
}

void frugi_feedback_mask_marked(const frugi_feedback_state *fb, float *momentum, const uint8_t *sent) {
    for (uint32_t i = 0; i < fb->block; i++)
        momentum[i] = sent[i] ? 0.0f : momentum[i];
}

/* Residual and momentum are rounded by independent numbers. */
void frugi_feedback_store(frugi_feedback_state *fb, uint64_t step, uint64_t b, uint32_t blocks, const bool *skip,
                          const float *residual, const float *momentum) {
    _Static_assert(FRUGI_STORE_RUN == FRUGI_RANDOM_RUN, "one random number for each block");
    uint32_t random[FRUGI_STORE_RUN], inverted[FRUGI_STORE_RUN];
    if (!residual && !momentum)
        return;
    frugi_random_run(fb->seed, step, fb->before + b, random);
    for (uint32_t i = 0; i < FRUGI_STORE_RUN; i++)
        inverted[i] = ~random[i];
    if (residual)
        frugi_store_save_run(&fb->residual, b, blocks, skip, residual, random);
    if (momentum)
        frugi_store_save_run(&fb->momentum, b, blocks, skip, momentum, inverted);
}
