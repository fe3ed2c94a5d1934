/*
 * optimizer.h - what becomes of a sum: the optimiser's options, its parts of the flat buffer, and its states.
 *
 * A *part* is a tensor; a *way* is how the weights of a part move. An optimiser has one way for tensors that are
 * compressed and one for those that travel whole. All states lie in one arena that is reserved when the optimiser is
 * made, is all zeros then, and is what a saved state holds.
 */
#ifndef FRUGI_OPTIMIZER_H
#define FRUGI_OPTIMIZER_H

#include "layout/layout.h"
#include "config/config.h"

#include <stdbool.h>

#define FRUGI_OPTIM_BLOCK  256u /* elements that share a scale, a list and a decision to hold back; ranges end there */
#define FRUGI_OPTIM_WINDOW 64u  /* the longest window */
#define FRUGI_OPTIM_TEXT   512u
#define FRUGI_OPTIM_NAMES  96u         /* of a list of patterns; two of them and all numbers fit FRUGI_OPTIM_TEXT */
#define FRUGI_OPTIM_HELD   0x5f000000u /* 2^63 as bits: a gradient from there on, an infinity or a NaN is not used */

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
    FRUGI_OPTIM_SIGN
} frugi_optim;

typedef struct frugi_targets frugi_targets;

/** How a state is stored; the order is that of the words of the option state. */
typedef enum frugi_optim_state { FRUGI_STATE_F32, FRUGI_STATE_BF16, FRUGI_STATE_INT8 } frugi_optim_state;

typedef struct frugi_optim_options {
    frugi_optim kind;
    double momentum, beta1, beta2, eps, decay;
    double gain;    /* 0: auto; beta2 below 0: auto, until the optimizer is made */
    double inertia; /* 0: off; below 0: auto */
    uint64_t nesterov, coupled, decay_all;
    uint64_t state; /* frugi_optim_state */
    uint64_t window, entries;
    /* Of those that look at whole tensors; numbers are for each tensor. */
    uint64_t s, kappa, c, rank, refresh, adaptive, threads;
    uint64_t explicit_matrix, atoms4, per_tensor; /* numbers of words */
    double scale, alpha, growth;
    char targets[FRUGI_OPTIM_NAMES], others[FRUGI_OPTIM_NAMES];
} frugi_optim_options;

typedef enum frugi_way {
    FRUGI_WAY_DIRECT,   /* w -= rate gain g: no state */
    FRUGI_WAY_MOMENTUM, /* a float: the momentum */
    FRUGI_WAY_ADAM,     /* two floats: means of the gradient and of its square */
    FRUGI_WAY_ROOT,     /* the root of the mean square, short */
    FRUGI_WAY_WINDOW,   /* the last lists of what arrived */
    FRUGI_WAY_FROZEN,   /* does not move */
    FRUGI_WAY_TARGET,   /* as a whole: target.h */
    FRUGI_WAY_SIGN,     /* w -= rate sign(g): no state */
    FRUGI_WAY_SUM       /* a float: the gradient, as the sum of the changes that feedback=ef21 sends */
} frugi_way;

#define FRUGI_WAYS 9

/** A velocity beside the momentum in the residual: receiver_momentum.c. */
typedef struct frugi_inertia {
    float *velocity; /* of compressed tensors, as their part's `at` says; NULL: none, or let go */
    uint64_t floats;
    bool fixed; /* a number, and not the schedule, says its momentum */
    double momentum, beta;
    frugi_schedule schedule;
    uint64_t total, warmup;
    uint64_t end; /* the first step that does without */
    /* Of one step, known - 1: its momentum, and the product of all up to it. */
    uint64_t known;
    double now, product;
} frugi_inertia;

typedef struct frugi_part {
    uint64_t begin, count;
    uint64_t at; /* of its state: floats, for roots and windows blocks, of the parts before that go the same way; number
                    of its target */
    uint32_t tensor;
    frugi_way way;
    bool decays;
    bool whole; /* travels whole */
} frugi_part;

/** What a range has of a part. */
typedef struct frugi_stretch {
    const frugi_part *part;
    uint64_t from, count; /* from: in the flat buffer */
} frugi_stretch;

/** What one call of frug_optimizer_step() does to every element: all that depends on step and rate. */
typedef struct frugi_move {
    uint64_t step;
    float rate, merged;      /* learning rate; and times the gain */
    float keep;              /* of a weight that decays */
    float momentum, coupled; /* coupled: decay that is added to the gradient */
    float beta1, rest1;      /* rest: 1 - beta */
    float beta2, rest2;
    float eps;
    float adam_rate;                /* rate over the bias correction of the mean */
    float root_gain;                /* 1 over the root of the correction of the mean square */
    float window_rate, window_root; /* the same for as many steps as the window reaches back */
    float mean_gain;                /* 1 over the bias correction of the mean */
    float inertia, inertia_rest;    /* momentum of the velocity, and what is left to 1 */
    float inertia_rate;             /* learning rate of a velocity that adds gradients up */
    float inertia_gain;             /* 1 over the bias correction of one that is a mean */
    float least_root;               /* least root_gain * root of the mean square, for a mean of 1 */
} frugi_move;

struct frug_optimizer {
    frugi_optim_options options;
    char text[FRUGI_OPTIM_TEXT];
    frug_layout *layout;
    uint64_t layout_hash, shape_hash;
    double gain;
    frugi_part *part;
    size_t parts;
    uint64_t used[FRUGI_WAYS];                                /* floats or blocks of all parts of a way */
    float age1[FRUGI_OPTIM_WINDOW], age2[FRUGI_OPTIM_WINDOW]; /* what an entry of so many steps ago weighs */

    frugi_inertia inertia;
    void *arena;
    size_t arena_bytes;
    /* In the arena, in this order. */
    float *momentum;      /* FRUGI_WAY_MOMENTUM */
    float *sum;           /* FRUGI_WAY_SUM */
    float *mean, *square; /* FRUGI_WAY_ADAM */
    unsigned char *root;  /* FRUGI_WAY_ROOT: elements, block by block */
    uint16_t *scale;      /* their scales: bf16, one per block; int8 only */
    unsigned char *value; /* FRUGI_WAY_WINDOW: for each block, for each place in the window, room for entries values */
    uint8_t *index, *count; /* likewise: where they are, ascending, and how many */
    frugi_targets *targets; /* FRUGI_WAY_TARGET; NULL: there are none */
};

/** Read name[:option=value[,option=value]...]. The text is untrusted. */
frug_status frugi_optim_parse(const char *text, frugi_optim_options *options);

/** Spell every option out. */
void frugi_optim_print(const frugi_optim_options *options, char text[FRUGI_OPTIM_TEXT]);

/** base^n by squaring: the last bit of pow() differs between C libraries. */
static inline double frugi_power(double base, uint64_t n) {
    double result = 1;
    for (; n; n >>= 1, base *= base)
        if (n & 1)
            result *= base;
    return result;
}

/** Whether a range lies in the layout and cuts nothing that may not be cut. */
frug_status frugi_range_check(const frug_optimizer *o, uint64_t begin, uint64_t count);

/** The next stretch of a range that moves, in the order of the layout; *next is 0 before the first. */
bool frugi_stretch_next(const frug_optimizer *o, uint64_t begin, uint64_t count, size_t *next, frugi_stretch *stretch);

/** Floats that a worker hands over of a stretch at a step. */
uint64_t frugi_stretch_wants(const frug_optimizer *o, uint64_t step, const frugi_stretch *stretch);

/** Bytes of one stored root or value. */
static inline size_t frugi_state_bytes(uint64_t state) {
    return state == FRUGI_STATE_F32 ? 4 : state == FRUGI_STATE_BF16 ? 2 : 1;
}

/* The ways, a block each: n <= FRUGI_OPTIM_BLOCK elements of w and g; keep is what decay leaves of a weight. */
void frugi_move_direct(float *restrict w, const float *restrict g, uint32_t n, float keep, float rate);
void frugi_move_sign(float *restrict w, const float *restrict g, uint32_t n, float keep, float rate);
void frugi_move_sum(float *restrict sum, float *restrict w, const float *restrict g, uint32_t n, float keep,
                    float rate);
void frugi_move_momentum(const frugi_move *move, bool nesterov, float *restrict u, float *restrict w,
                         const float *restrict g, uint32_t n, float keep);
void frugi_move_adam(const frugi_move *move, float *restrict m, float *restrict v, float *restrict w,
                     const float *restrict g, uint32_t n, float keep);
void frugi_move_root(frug_optimizer *o, const frugi_move *move, uint64_t block, float *restrict w,
                     const float *restrict g, uint32_t n, float keep);
void frugi_move_window(frug_optimizer *o, const frugi_move *move, uint64_t block, float *restrict w,
                       const float *restrict g, uint32_t n, float keep);

/* With a velocity u, or a mean m of which the one without bias goes to `mean`. */
void frugi_move_inertia(const frugi_move *move, float *restrict u, float *restrict w, const float *restrict g,
                        uint32_t n, float keep);
void frugi_move_mean(const frugi_move *move, float *restrict m, const float *restrict g, uint32_t n,
                     float *restrict mean);

/** Make the velocity, if one is asked for and needed; go to a step, from which on it may not be; let it go. */
frug_status frugi_inertia_begin(frug_optimizer *o, const frug_compressor *compressor);
void frugi_inertia_seek(frug_optimizer *o, uint64_t step);
void frugi_inertia_end(frug_optimizer *o);
bool frugi_inertia_lasts(const frug_optimizer *o); /* it is there, and is never let go */

/** Keep the roots of a block, and take them out again. dice: a random number of this block and step. */
void frugi_roots_save(frug_optimizer *o, uint64_t block, const float *root, uint32_t dice);
void frugi_roots_load(const frug_optimizer *o, uint64_t block, float *root);

/** Whether the arena of a saved state, from outside, is one that steps can leave behind. */
bool frugi_roots_are_sound(const frug_optimizer *like, const unsigned char *root, const unsigned char *scale);
bool frugi_window_is_sound(const frug_optimizer *like, const unsigned char *value, const unsigned char *index,
                           const unsigned char *count);

#endif
