/*
 * error_feedback.h - error feedback: what was accumulated and not sent is added to the next gradient.
 *
 * With gradient g, residual r, momentum m and accumulator a, a step computes
 *
 *   merged   a = beta r + g                      r = a - sent   with retention: r = a - sent_share of it
 *   plain    a = r + g                           r = a - sent
 *   dgc      m = mu m + g,       a = r + m       r = a - sent   with a mask: m = 0 where an entry is sent
 *   ef21     d = theta (g - m),  a = r + d       r = a - sent   m = m + d
 *   none     a = g
 *
 * Everything is done block by block, in buffers of the caller, who selects and encodes between
 * frugi_feedback_accumulate() and frugi_feedback_store(). A block in which a NaN or an infinity comes up is skipped.
 */
#ifndef FRUGI_ERROR_FEEDBACK_H
#define FRUGI_ERROR_FEEDBACK_H

#include "feedback/accumulate_kernel.h"
#include "feedback/residual_format.h"

/** Residual and momentum of the compressed blocks. */
typedef struct frugi_feedback_state {
    frugi_feedback kind;
    uint32_t block;
    uint64_t seed;   /* of stochastic rounding */
    uint64_t before; /* compressed blocks of the layout before the first in the stores: random numbers count them */
    const frugi_accumulate_kernel *kernel;
    float beta;           /* factor of the residual; 1 unless kind is merged */
    float momentum_rate;  /* dgc: mu; ef21: theta */
    frugi_store residual; /* unless kind is none */
    frugi_store momentum; /* dgc: momentum; ef21: smoothed gradient */
} frugi_feedback_state;

/** What a step does with entries that are sent. */
typedef struct frugi_feedback_step {
    bool mask_momentum;   /* dgc: their momentum is cleared */
    float retained_share; /* option hold: share of an entry that stays in the residual */
    float sent_share;     /* share of an entry that is sent: 1 - beta * retained_share */
} frugi_feedback_step;

/** Create a state of zeros for a number of blocks, which come after `before` others. Returns FRUG_ERR_MEMORY. */
frug_status frugi_feedback_create(const struct frug_config *config, uint64_t before, uint64_t blocks,
                                  frugi_feedback_state *fb);
void frugi_feedback_destroy(frugi_feedback_state *fb);

/** The factor of the residual. */
static inline float frugi_feedback_beta(const struct frug_config *config) {
    return config->feedback == FRUGI_FEEDBACK_MERGED ? (float)config->beta : 1.0f;
}

static inline bool frugi_has_residual(const frugi_feedback_state *fb) {
    return fb->kind != FRUGI_FEEDBACK_NONE;
}

static inline bool frugi_has_momentum(const frugi_feedback_state *fb) {
    return fb->kind == FRUGI_FEEDBACK_DGC || fb->kind == FRUGI_FEEDBACK_EF21;
}

/** Whether residual and momentum can be updated in their stores: these have floats. */
static inline bool frugi_residual_in_place(const frugi_feedback_state *fb) {
    return frugi_has_residual(fb) && fb->residual.format == FRUGI_RESIDUAL_F32;
}

/**
 * Options of a step.
 *
 *   density    of the schedule
 *   send_all   whether the step sends everything
 */
frugi_feedback_step frugi_feedback_at(const struct frug_config *config, double density, bool send_all);

/* ---- before selection ---- */

/** Load the residual of consecutive blocks, from block b on. */
void frugi_feedback_load(const frugi_feedback_state *fb, uint64_t b, uint32_t blocks, float *residual);

/**
 * Load and update the momentum of consecutive blocks. Returns what is added to the residual: the momentum (dgc), its
 * change (ef21), or the gradient, where there is no momentum.
 *
 *   momentum   receives the updated momentum, which is not stored yet
 *   change     scratch, may be grad
 */
const float *frugi_feedback_momentum(const frugi_feedback_state *fb, uint64_t b, uint32_t blocks, const float *grad,
                                     float *momentum, float *change);

/**
 * Compute the accumulators of block b. Returns whether all numbers are finite; else the block has to be skipped.
 *
 *   residual   of the block
 *   acc        receives the accumulators
 *   momentum, change   as in frugi_feedback_momentum()
 */
bool frugi_feedback_accumulate(const frugi_feedback_state *fb, uint64_t b, const float *residual, const float *grad,
                               float *acc, float *momentum, float *change);

/**
 * The same in place, if frugi_residual_in_place() or if there is no momentum: acc, which has the residual of block b,
 * receives the accumulators, and the momentum is stored. Changes nothing if a number is not finite.
 */
bool frugi_feedback_accumulate_in_place(frugi_feedback_state *fb, uint64_t b, const float *grad, float *acc);

/**
 * What the accumulator of one element will be, where frugi_residual_in_place() or without a residual.
 *
 *   element   its number in the stores
 */
float frugi_feedback_preview(const frugi_feedback_state *fb, uint64_t element, float grad);

/* ---- after selection ---- */

/**
 * Option hold: divide n values into what is sent and what the residual retains. A gradient whose entry is sent at every
 * step is still sent with a total weight of 1:
 * sent_share * (1 + beta * retained_share + (beta * retained_share)^2 + ...) = 1.
 */
void frugi_feedback_retain(const frugi_feedback_step *step, float *values, float *retained, uint32_t n);

/** Clear the momentum of k entries of a block; of all its entries if idx is NULL. */
void frugi_feedback_mask(const frugi_feedback_state *fb, float *momentum, const uint16_t *idx, uint32_t k);

/** The same for entries that are marked by a byte each. */
void frugi_feedback_mask_marked(const frugi_feedback_state *fb, float *momentum, const uint8_t *sent);

/**
 * Store residual and momentum of consecutive blocks, from block b on, at most FRUGI_STORE_RUN.
 *
 *   skip       blocks to leave as they are
 *   residual   what was not sent; NULL if the store has it already or keeps what it has
 *   momentum   NULL likewise
 */
void frugi_feedback_store(frugi_feedback_state *fb, uint64_t step, uint64_t b, uint32_t blocks, const bool *skip,
                          const float *residual, const float *momentum);

#endif
