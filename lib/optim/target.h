/*
 * target.h - optimisers that look at whole tensors: which tensors, their numbers, their states and the room to work in.
 *
 * A *target* (frugi_tuned) is a tensor of two dimensions or more, seen as a matrix of shape[0] rows. sgc, mesgc and
 * table keep something about each of c chunks of its d elements; cesgc does so with the d = rank x far numbers that are
 * left after a projection; lora, galore and apollo keep small matrices. States lie in the optimiser's arena, all else
 * in `work`, which is shared by all targets because they move one after the other.
 */
#ifndef FRUGI_TARGET_H
#define FRUGI_TARGET_H

#include "optim/subspace_basis.h"
#include "optim/optimizer.h"
#include "recover/recover.h"
#include "select/tensor_topk.h"

#define FRUGI_TARGET_HELD   0x53800000u /* 2^40 as bits: a gradient with more is not used, its squares might overflow */
#define FRUGI_TARGET_LARGE  0x76800000u /* 2^110 as bits: no mean of measurements gets there */
#define FRUGI_TARGET_LARGER 0x76000000u /* 2^109 as bits: measurements from there on are not used */
#define FRUGI_TARGET_LEVELS 16u         /* how many shares a chunk may get; four are an even share */

/* What the options targets and others accept, for messages. */
#define FRUGI_TARGET_WORDS "qv, attention, linear, all, or patterns of names with * and ?, joined by +"
#define FRUGI_OTHER_WORDS  "frozen, adamw, or patterns of names with * and ?, joined by +"

typedef struct frugi_tuned {
    uint32_t tensor;
    bool input_first;
    bool wide; /* indices of a table take 4 bytes rather than 2 */
    frugi_sides side;
    uint64_t d;       /* numbers that are cut into chunks; 0: none are */
    uint32_t c, s, k; /* chunks; entries and measurements of each, of an even share */
    uint32_t unit;    /* entries of a share, with adaptive=1 */
    uint32_t levels;  /* shares a chunk may have at most */
    uint32_t room;    /* table: entries of a chunk */
    uint32_t rank;
    /* In the arrays of all targets: where its own begin, and how many there are. */
    uint64_t moment_at, moments, basis_at, bases, index_at, level_at;
} frugi_tuned;

/** Measures and recovers s of d entries. Shared by targets of the same numbers. */
typedef struct frugi_solver {
    uint32_t s, k, d;
    frugi_matrix *matrix;
    frugi_recover *recover;
} frugi_solver;

/** A sparse vector, or what was recovered of many chunks. */
typedef struct frugi_entries {
    uint32_t *index, *count;
    float *value;
} frugi_entries;

typedef struct frugi_target_work {
    frugi_whole *whole;
    frugi_entries x, y; /* s entries, c counts */
    float *span;        /* what a solver's matrix wants */
    float *measured;    /* 2 kappa s: measurements; before that, both moments while shares change */
    uint8_t *level;     /* adaptive: shares to be */
    float *far, *step;  /* rank x far: projection, and what becomes of it. lora: both factors' gradient, both factors */
    float *near;        /* apollo: rank x near signs */
    float *factor;      /* apollo: far factors */
    void *basis;
    float *mean, *square; /* table: a chunk's entries and the new ones */
    uint32_t *place;
} frugi_target_work;

/** What a target's time is spent on. */
typedef enum frugi_lap { FRUGI_LAP_PROJECT, FRUGI_LAP_RECOVER, FRUGI_LAP_APPLY } frugi_lap;

#define FRUGI_LAPS 3

struct frugi_targets {
    frugi_tuned *target;
    size_t count;
    frugi_solver *solver;
    size_t solvers;
    uint64_t moments, bases, wides, narrows, levels; /* of all targets */
    /* In the arena. */
    float *mean, *square, *basis;
    uint32_t *wide;
    uint16_t *narrow;
    uint8_t *level;
    frugi_target_work work;
    double since, seconds[FRUGI_LAPS]; /* since: when the lap that is under way began */
};

/** Whether the optimiser's kind has targets at all. */
static inline bool frugi_has_targets(const frugi_optim_options *options) {
    return options->kind >= FRUGI_OPTIM_SGC && options->kind <= FRUGI_OPTIM_APOLLO;
}

/** Whether measurements are kept about its targets. */
static inline bool frugi_is_sketch(const frugi_optim_options *options) {
    return options->kind >= FRUGI_OPTIM_SGC && options->kind <= FRUGI_OPTIM_CESGC;
}

/** Whether a tensor is one of the option targets; and whether one that is not gets AdamW. */
bool frugi_is_target(const frugi_optim_options *options, const frug_tensor *tensor);
bool frugi_is_other(const frugi_optim_options *options, const frug_tensor *tensor);

/** Refuse names in the options targets and others that nothing in the layout has. */
frug_status frugi_names_check(const frugi_optim_options *options, const frug_layout *layout);

/** Work the numbers of a target out, check them and add it. */
frug_status frugi_target_add(frug_optimizer *o, const frug_tensor *tensor, uint32_t number);

/** Reserve solvers and work, once all targets are there. */
frug_status frugi_targets_reserve(frug_optimizer *o);
void frugi_targets_destroy(frugi_targets *all);

/** Cut up the part of the arena from `at` on, or measure it where at is NULL; and what is in it at first. */
size_t frugi_targets_arrange(frugi_targets *all, unsigned char *at);
void frugi_targets_begin(frug_optimizer *o);

/** Whether saved states are such as steps leave behind. */
bool frugi_targets_are_sound(const frug_optimizer *o, const unsigned char *arena);

/** The first element of a target's chunk; chunk c is its end. */
static inline uint64_t frugi_chunk_at(const frugi_tuned *t, uint32_t chunk) {
    return t->d * chunk / t->c;
}

static inline uint64_t frugi_chunk_most(const frugi_tuned *t) {
    return t->d / t->c + (t->d % t->c != 0);
}

/** The n entries of x with the largest magnitudes, ascending. */
void frugi_largest(frugi_target_work *work, const float *x, uint64_t len, uint32_t n, uint32_t *index, float *value);

/** Whether all magnitudes are below a bound, given as bits; a NaN never is. */
bool frugi_all_below(const float *x, uint64_t n, uint32_t bits);

/** Count the time since the last call, or since the target's turn began, as time of this lap. */
void frugi_lap_ends(frugi_targets *all, frugi_lap lap);

/* ---- how a target moves: one call a step ---- */

void frugi_target_move(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *g, float *w,
                       float keep);

/** The target whose measurements a worker hands over of a stretch, NULL where it hands over the gradient. */
const frugi_tuned *frugi_stretch_sketch(const frug_optimizer *o, uint64_t step, const frugi_stretch *stretch);

/** The two halves of a step of a sketch at which nothing is renewed. measured: 2 t->moments, of p and then of q. */
void frugi_target_measure(frug_optimizer *o, uint64_t step, const frugi_tuned *t, const float *g, float *measured);
void frugi_target_move_measured(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *measured,
                                float *w, float keep);

/* ---- the same for each kind: all numbers are finite ---- */

/** Whether the basis or the shares of a target are made or renewed at a step. */
bool frugi_sketch_renews(const frug_optimizer *o, const frugi_tuned *t, uint64_t step);

/** Renew what is due, and measure. Without anything due no state changes. */
void frugi_sketch_measure(frug_optimizer *o, uint64_t step, const frugi_tuned *t, const float *g, float *measured);
void frugi_move_sketch(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *measured,
                       float *w);
void frugi_move_table(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *g, float *w);
void frugi_move_lora(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *g, float *w,
                     float keep);
void frugi_move_galore(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *g, float *w,
                       float keep);
void frugi_move_apollo(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *g, float *w,
                       float keep);

/** Whether a target has no basis yet, or gets a new one at a step. */
bool frugi_basis_is_due(const frug_optimizer *o, const frugi_tuned *t, uint64_t step);

/** Make or renew the basis of a target when it is due, and put g's projection into work.far. */
void frugi_project(frug_optimizer *o, uint64_t step, const frugi_tuned *t, const float *g);

/** lora: draw the factor that does not begin at zero. */
void frugi_lora_begin(frug_optimizer *o, const frugi_tuned *t);

/** Whether chunks have no shares yet, or get new ones at a step. */
bool frugi_shares_are_due(const frug_optimizer *o, const frugi_tuned *t, uint64_t step);

/** Give chunks their shares of s, and bring their states to the new lengths. */
void frugi_share_out(frug_optimizer *o, const frugi_tuned *t, const float *g);

/** Recover the sparse vectors behind all chunks' measurements p. */
void frugi_recover_chunks(frug_optimizer *o, const frugi_tuned *t, const float *p, const frugi_entries *out);

/** Entries of a chunk, and the solver that holds for it; NULL for a chunk without entries. */
uint32_t frugi_chunk_entries(const frug_optimizer *o, const frugi_tuned *t, uint32_t chunk);
const frugi_solver *frugi_chunk_solver(const frug_optimizer *o, const frugi_tuned *t, uint32_t chunk);

/** Whether a target's part of a saved table is one that steps leave behind. */
bool frugi_table_is_sound(const frugi_tuned *t, const unsigned char *mean, const unsigned char *square,
                          const unsigned char *index);

#endif
