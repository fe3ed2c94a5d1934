/*
 * optimizer.h - the optimizer: options, update rules of the tensors, and states.
 *
 * An *update rule* is how the weights of a tensor are updated. An optimizer has one rule for tensors that are
 * compressed and one for those that are sent dense. All states are in one arena that is allocated with the optimizer,
 * is all zeros at first, and is what a saved state contains.
 */
#ifndef FRUGI_OPTIMIZER_H
#define FRUGI_OPTIMIZER_H

#include "layout/layout.h"
#include "config/config.h"

#include <stdbool.h>

#define FRUGI_OPTIM_BLOCK                                                                                              \
    256u /* elements that share a scale, a list, and are skipped together; ranges end at multiples */
#define FRUGI_OPTIM_WINDOW     64u /* the longest window */
#define FRUGI_OPTIM_TEXT       512u
#define FRUGI_OPTIM_NAMES      96u         /* bytes of a list of patterns; two and all numbers fit FRUGI_OPTIM_TEXT */
#define FRUGI_OPTIM_GRAD_LIMIT 0x5f000000u /* 2^63 as bits: gradients from there on, infinities and NaN are skipped */

typedef enum frugi_optim {
    FRUGI_OPTIM_SGD,
    FRUGI_OPTIM_ADAMW,
    FRUGI_OPTIM_MERGED,
    FRUGI_OPTIM_ADAM_MERGED,
    FRUGI_OPTIM_MICROADAM,
    FRUGI_OPTIM_SGC,
    FRUGI_OPTIM_MESGC,
    FRUGI_OPTIM_CESGC,
    FRUGI_OPTIM_TABLE,
    FRUGI_OPTIM_LORA,
    FRUGI_OPTIM_GALORE,
    FRUGI_OPTIM_APOLLO,
    FRUGI_OPTIM_SIGN,
    FRUGI_OPTIM_MUON,
    FRUGI_OPTIM_MUON_MERGED
} frugi_optim;

typedef struct frugi_optim_targets frugi_optim_targets;

/** Storage format of a state, in the order of the values of option `state`. */
typedef enum frugi_optim_state { FRUGI_STATE_F32, FRUGI_STATE_BF16, FRUGI_STATE_INT8 } frugi_optim_state;

typedef struct frugi_optim_options {
    frugi_optim kind;
    double momentum, beta1, beta2, eps, decay;
    double gain;    /* 0: auto; < 0: finetune. beta2 < 0: auto, until the optimizer is created */
    double inertia; /* 0: off; < 0: auto */
    uint64_t nesterov, coupled, decay_all;
    uint64_t state; /* frugi_optim_state */
    uint64_t window, entries;
    /* Optimizers of whole tensors; numbers are per tensor. */
    uint64_t s, kappa, c, rank, refresh, adaptive, threads;
    uint64_t explicit_matrix, atoms4, per_tensor; /* numbers of keywords */
    double scale, alpha, growth;
    char targets[FRUGI_OPTIM_NAMES], others[FRUGI_OPTIM_NAMES];
} frugi_optim_options;

typedef enum frugi_update_rule {
    FRUGI_UPDATE_DIRECT,   /* w -= rate gain g: no state */
    FRUGI_UPDATE_MOMENTUM, /* a float: the momentum */
    FRUGI_UPDATE_ADAM,     /* two floats: means of the gradient and of its square */
    FRUGI_UPDATE_ROOT,     /* the root of the mean square, in a short format */
    FRUGI_UPDATE_WINDOW,   /* lists of the last entries */
    FRUGI_UPDATE_FROZEN,   /* not trained, or absent */
    FRUGI_UPDATE_TARGET,   /* a whole tensor: target.h */
    FRUGI_UPDATE_SIGN,     /* w -= rate sign(g): no state */
    FRUGI_UPDATE_SUM       /* a float: the gradient, as the sum of the differences that feedback=ef21 sends */
} frugi_update_rule;

#define FRUGI_UPDATE_RULES 9

/** A velocity in addition to the momentum in the residual: receiver_momentum.c. */
typedef struct frugi_inertia {
    float *velocity; /* of compressed tensors, at their `at`; NULL: none, or freed */
    uint64_t floats;
    bool fixed; /* momentum is a given number, not derived from the schedule */
    double momentum, beta;
    frugi_schedule schedule;
    uint64_t total, warmup;
    uint64_t end; /* the first step without it */
    /* For step known - 1: its momentum, and the product of all up to it. */
    uint64_t known;
    double now, product;
} frugi_inertia;

typedef struct frugi_optim_tensor {
    uint64_t begin, count;
    uint64_t at; /* offset of its state: floats (rules ROOT and WINDOW: blocks) of the tensors before with the same
                    rule; rule TARGET: number of its target */
    uint64_t first_number; /* of its first block among those of all tensors with the same rule, also of absent ones: for
                              random numbers */
    uint32_t number;       /* of the tensor in the layout */
    frugi_update_rule rule;
    bool decays;
    bool dense; /* sent dense */
} frugi_optim_tensor;

/** The part of a tensor that is in a range. */
typedef struct frugi_optim_range {
    const frugi_optim_tensor *tensor;
    uint64_t from, count; /* from: in the flat buffer */
} frugi_optim_range;

/** Arguments of one call of frug_optimizer_step(): everything that depends on step and rate. */
typedef struct frugi_step_args {
    uint64_t step;
    float rate, merged;      /* learning rate; the same times the gain */
    float decay_factor;      /* factor of a weight that decays */
    float momentum, coupled; /* coupled: decay that is added to the gradient */
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float eps;
    float adam_rate;                  /* rate / bias correction of the mean */
    float root_gain;                  /* 1 / root of the bias correction of the mean square */
    float window_rate, window_root;   /* the same for the number of steps in the window */
    float mean_gain;                  /* 1 / bias correction of the mean */
    float inertia, one_minus_inertia; /* momentum of the velocity */
    float inertia_rate;               /* learning rate of a velocity that is a sum of gradients */
    float inertia_gain;               /* 1 / bias correction of one that is a mean */
    bool squares_frozen;              /* mean squares are not stored */
    float min_root;                   /* lower bound of root_gain * root of the mean square, for a mean of 1 */
} frugi_step_args;

struct frug_optimizer {
    frugi_optim_options options;
    char text[FRUGI_OPTIM_TEXT];
    frug_layout *layout;
    uint64_t layout_hash, shape_hash;
    double gain;                         /* at high rates, and at all unless gain_low is another */
    double gain_low;                     /* of adam-merged, at low rates */
    double mean_width;                   /* the smaller side of matrices, weighted by size; 0: there are none */
    double high_rate;                    /* times the width: half way between both gains */
    uint64_t frozen_since, frozen_until; /* the steps between them do not change mean squares */
    frugi_optim_tensor *tensor;
    size_t tensors;
    uint64_t used[FRUGI_UPDATE_RULES]; /* floats or blocks of all tensors with a rule */
    float age_weight1[FRUGI_OPTIM_WINDOW],
        age_weight2[FRUGI_OPTIM_WINDOW]; /* weight of an entry of this many steps ago */

    frugi_inertia inertia;
    void *arena;
    size_t arena_bytes;
    /* In the arena, in this order. */
    float *momentum;      /* FRUGI_UPDATE_MOMENTUM */
    float *sum;           /* FRUGI_UPDATE_SUM */
    float *mean, *square; /* FRUGI_UPDATE_ADAM */
    unsigned char *root;  /* FRUGI_UPDATE_ROOT: elements, block by block */
    uint16_t *scale;      /* their scales: bf16, one per block; int8 only */
    unsigned char *value; /* FRUGI_UPDATE_WINDOW: for each block, for each slot of the window, up to `entries` values */
    uint8_t *index, *count;       /* likewise: their indices, ascending, and how many */
    frugi_optim_targets *targets; /* FRUGI_UPDATE_TARGET; NULL: none */
};

/** Parse name[:option=value[,option=value]...]. The text is untrusted. */
frug_status frugi_optim_parse(const char *text, frugi_optim_options *options);

/** Print all options. */
void frugi_optim_print(const frugi_optim_options *options, char text[FRUGI_OPTIM_TEXT]);

/** base^n by squaring: the last bit of pow() differs between C libraries. */
static inline double frugi_power(double base, uint64_t n) {
    double result = 1;
    for (; n; n >>= 1, base *= base)
        if (n & 1)
            result *= base;
    return result;
}

/** FRUG_OK if a range is inside the layout and cuts no block and no target. */
frug_status frugi_optim_range_check(const frug_optimizer *o, uint64_t begin, uint64_t count);

/** The next part of a range that is trained, in the order of the layout; *next is 0 before the first. */
bool frugi_optim_range_next(const frug_optimizer *o, uint64_t begin, uint64_t count, size_t *next,
                            frugi_optim_range *range);

/** Floats that a worker contributes for a part of a range at a step. */
uint64_t frugi_optim_range_floats(const frug_optimizer *o, uint64_t step, const frugi_optim_range *range);

/** Bytes of one stored root or value. */
static inline size_t frugi_state_bytes(uint64_t state) {
    return state == FRUGI_STATE_F32 ? 4 : state == FRUGI_STATE_BF16 ? 2 : 1;
}

/*
 * Update rules, for one block each: n <= FRUGI_OPTIM_BLOCK elements of w and g; decay_factor is the factor of the
 * weight, 1 - rate decay. number: of the block, for random numbers.
 */
void frugi_step_direct(float *restrict w, const float *restrict g, uint32_t n, float decay_factor, float rate);
void frugi_step_sign(float *restrict w, const float *restrict g, uint32_t n, float decay_factor, float rate);
void frugi_step_sum(float *restrict sum, float *restrict w, const float *restrict g, uint32_t n, float decay_factor,
                    float rate);
void frugi_step_momentum(const frugi_step_args *args, bool nesterov, float *restrict u, float *restrict w,
                         const float *restrict g, uint32_t n, float decay_factor);
void frugi_step_adam(const frugi_step_args *args, float *restrict m, float *restrict v, float *restrict w,
                     const float *restrict g, uint32_t n, float decay_factor);
void frugi_step_root(frug_optimizer *o, const frugi_step_args *args, uint64_t block, uint64_t number, float *restrict w,
                     const float *restrict g, uint32_t n, float decay_factor);
void frugi_step_window(frug_optimizer *o, const frugi_step_args *args, uint64_t block, float *restrict w,
                       const float *restrict g, uint32_t n, float decay_factor);

/* With a velocity u, or a mean m, whose bias-corrected value is written to `mean`. */
void frugi_step_inertia(const frugi_step_args *args, float *restrict u, float *restrict w, const float *restrict g,
                        uint32_t n, float decay_factor);
void frugi_step_mean(const frugi_step_args *args, float *restrict m, const float *restrict g, uint32_t n,
                     float *restrict mean);

/** Allocate the velocity, if it is enabled and needed; go to a step, which may free it; free it. */
frug_status frugi_inertia_create(frug_optimizer *o, const frug_compressor *compressor);
void frugi_inertia_seek(frug_optimizer *o, uint64_t step);
void frugi_inertia_destroy(frug_optimizer *o);
bool frugi_inertia_is_permanent(const frug_optimizer *o); /* it exists and is never freed */

/** Store and load the roots of a block. random: a random number of this block and step. */
void frugi_roots_save(frug_optimizer *o, uint64_t block, const float *root, uint32_t dice);
void frugi_roots_load(const frug_optimizer *o, uint64_t block, float *root);

/** Whether the arena of a saved, untrusted state is one that steps can produce. */
bool frugi_roots_are_valid(const frug_optimizer *like, const unsigned char *root, const unsigned char *scale);
bool frugi_window_is_valid(const frug_optimizer *like, const unsigned char *value, const unsigned char *index,
                           const unsigned char *count);

#endif
