/*
 * target.h - optimizers of whole tensors: which tensors, their sizes, states and scratch memory.
 *
 * A *target* (frugi_optim_target) is a tensor of two dimensions or more, seen as a matrix of shape[0] rows. sgc, mesgc
 * and table store something for each of c chunks of its d elements; cesgc does so with the d = rank x longer numbers
 * that a projection gives; lora, galore and apollo store small matrices, muon a momentum. States are in the optimizer's
 * arena, everything else in `work`, which all targets share because they are updated one after the other.
 */
#ifndef FRUGI_TARGET_H
#define FRUGI_TARGET_H

#include "optim/subspace_basis.h"
#include "optim/optimizer.h"
#include "recover/recover.h"
#include "select/tensor_topk.h"

#define FRUGI_TARGET_GRAD_LIMIT                                                                                        \
    0x53800000u /* 2^40 as bits: a larger gradient is skipped, its squares might overflow                              \
                 */
#define FRUGI_TARGET_STATE_LIMIT    0x76800000u /* 2^110 as bits: means of measurements are below */
#define FRUGI_TARGET_MEASURED_LIMIT 0x76000000u /* 2^109 as bits: larger measurements are skipped */
#define FRUGI_TARGET_LEVELS         16u         /* shares of a chunk at most; four are an even share */

/* What the options targets and others accept, for error messages. */
#define FRUGI_TARGET_WORDS "qv, attention, linear, body, all, or patterns of names with * and ?, joined by +"
#define FRUGI_OTHER_WORDS  "frozen, adamw, or patterns of names with * and ?, joined by +"

typedef struct frugi_optim_target {
    uint32_t tensor;
    bool input_first;
    bool wide; /* indices of a table have 4 bytes instead of 2 */
    frugi_sides side;
    uint64_t d;        /* numbers that are divided into chunks; 0: none */
    uint32_t c, s, k;  /* chunks; entries and measurements of each, for an even share */
    uint32_t unit;     /* entries of a share, with adaptive=1 */
    uint32_t levels;   /* shares of a chunk at most */
    uint32_t capacity; /* table: entries of a chunk at most */
    uint32_t rank;
    /* Offsets in the arrays of all targets, and counts. */
    uint64_t moment_at, moments, basis_at, bases, index_at, level_at, code_at;
    uint64_t first_number; /* of its first block among those of all targets, also of absent ones: for random numbers */
} frugi_optim_target;

/** Measures and recovers s of d entries. Shared by targets with the same s and d. */
typedef struct frugi_solver {
    uint32_t s, k, d;
    frugi_matrix *matrix;
    frugi_recover *recover;
} frugi_solver;

/** A sparse vector, or the recovered entries of many chunks. */
typedef struct frugi_entries {
    uint32_t *index, *count;
    float *value;
} frugi_entries;

typedef struct frugi_target_work {
    frugi_topk *whole;
    frugi_entries x, y; /* s entries, c counts */
    float *span;        /* scratch of frugi_matrix_apply() */
    float *measured;    /* 2 kappa s: measurements; while shares change, a copy of both moments */
    uint8_t *level;     /* adaptive: new shares */
    float *projected,
        *update;   /* rank x longer: projection, and update in it. lora: gradient of both factors, old factors */
    float *signs;  /* apollo: rank x shorter random signs */
    float *factor; /* apollo: one factor per row or column along the longer side */
    void *basis;
    float *moved;           /* muon: gradient and momentum of a target */
    float *square_matrices; /* muon: scratch of frugi_orthogonalizer() */
    float *mean, *square;   /* table: a chunk's entries and the new ones */
    uint32_t *index;
} frugi_target_work;

/** Phases of an update, for timings. */
typedef enum frugi_phase { FRUGI_PHASE_PROJECT, FRUGI_PHASE_RECOVER, FRUGI_PHASE_APPLY } frugi_phase;

#define FRUGI_PHASES 3

struct frugi_optim_targets {
    frugi_optim_target *target;
    size_t count;
    frugi_solver *solver;
    size_t solvers;
    uint64_t moments, bases, wides, narrows, levels, codes; /* of all targets; codes: in blocks */
    /* In the arena. */
    float *mean, *square, *basis;
    unsigned char *code;  /* muon: the momentum, block by block */
    uint16_t *code_scale; /* its scales: bf16, one per block; int8 only */
    uint32_t *wide;
    uint16_t *narrow;
    uint8_t *level;
    frugi_target_work work;
    double phase_start, seconds[FRUGI_PHASES]; /* phase_start: when the current phase began */
};

/** Whether this kind of optimizer has targets. */
static inline bool frugi_has_targets(const frugi_optim_options *options) {
    return options->kind >= FRUGI_OPTIM_SGC && options->kind != FRUGI_OPTIM_SIGN;
}

static inline bool frugi_is_muon(const frugi_optim_options *options) {
    return options->kind == FRUGI_OPTIM_MUON || options->kind == FRUGI_OPTIM_MUON_MERGED;
}

/** Whether its targets are stored as measurements. */
static inline bool frugi_is_sketch(const frugi_optim_options *options) {
    return options->kind >= FRUGI_OPTIM_SGC && options->kind <= FRUGI_OPTIM_CESGC;
}

/** Whether a tensor of the layout is selected by option targets; whether another one is trained by AdamW. */
bool frugi_is_target(const frugi_optim_options *options, const frug_layout *layout, const frug_tensor *tensor);
bool frugi_is_other(const frugi_optim_options *options, const frug_tensor *tensor);

/** Refuse names in options targets and others that match no tensor of the layout. */
frug_status frugi_names_check(const frugi_optim_options *options, const frug_layout *layout);

/** Compute and check the sizes of a target and add it. */
frug_status frugi_target_add(frug_optimizer *o, const frug_tensor *tensor, const frugi_optim_tensor *p);

/** Create solvers and allocate scratch memory, once all targets were added. */
frug_status frugi_targets_reserve(frug_optimizer *o);
void frugi_targets_destroy(frugi_optim_targets *all);

/** Set the pointers into the arena from `at` on, or only compute the size if at is NULL; initialize the states. */
size_t frugi_targets_place_arena(frugi_optim_targets *all, uint64_t state, unsigned char *at);
void frugi_targets_init(frug_optimizer *o);

/** Whether saved states are such as steps can produce. */
bool frugi_targets_are_valid(const frug_optimizer *o, const unsigned char *arena);

/** The first element of a target's chunk; chunk c is its end. */
static inline uint64_t frugi_chunk_begin(const frugi_optim_target *t, uint32_t chunk) {
    return t->d * chunk / t->c;
}

static inline uint64_t frugi_chunk_max_length(const frugi_optim_target *t) {
    return t->d / t->c + (t->d % t->c != 0);
}

/** The n entries of x with the largest magnitudes, ascending. */
void frugi_select_largest(frugi_target_work *work, const float *x, uint64_t len, uint32_t n, uint32_t *index,
                          float *value);

/** Whether all magnitudes are below a bound, given as bits; false for a NaN. */
bool frugi_all_below(const float *x, uint64_t n, uint32_t bits);

/** Add the time since the last call, or since the update of the target began, to this phase. */
void frugi_phase_end(frugi_optim_targets *all, frugi_phase phase);

/* ---- update of a target, once per step ---- */

void frugi_target_update(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t, const float *g,
                         float *w, float decay_factor);

/** The target whose measurements a worker contributes, NULL if it contributes the gradient. */
const frugi_optim_target *frugi_optim_range_sketch(const frug_optimizer *o, uint64_t update,
                                                   const frugi_optim_range *range);

/**
 * The two halves of a step of a sketch at which nothing is refreshed. measured: 2 t->moments, first of the gradient,
 * then of its squares.
 */
void frugi_target_measure(frug_optimizer *o, uint64_t update, const frugi_optim_target *t, const float *g,
                          float *measured);
void frugi_target_update_measured(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t,
                                  const float *measured, float *w, float decay_factor);

/* ---- update rules: all numbers are finite ---- */

/** Whether the basis or the shares of a target are created or refreshed at a step. */
bool frugi_sketch_needs_gradient(const frug_optimizer *o, const frugi_optim_target *t, uint64_t update);

/** Renew what is due, and measure. If nothing is due no state changes. */
void frugi_sketch_measure(frug_optimizer *o, uint64_t update, const frugi_optim_target *t, const float *g,
                          float *measured);
void frugi_step_sketch(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t,
                       const float *measured, float *w);
void frugi_step_table(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t, const float *g,
                      float *w);
void frugi_step_lora(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t, const float *g,
                     float *w, float decay_factor);
void frugi_step_galore(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t, const float *g,
                       float *w, float decay_factor);
void frugi_step_apollo(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t, const float *g,
                       float *w, float decay_factor);

/** Returns false, and leaves w as it is, if there is nothing to orthogonalize. */
bool frugi_step_muon(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t, const float *g,
                     float *w, float decay_factor);

/** Whether a saved momentum is such as steps can produce. */
bool frugi_momentum_is_valid(const frug_optimizer *like, const unsigned char *code, const unsigned char *scale);

/** Whether a target has no basis yet, or gets a new one at a step. */
bool frugi_basis_is_due(const frug_optimizer *o, const frugi_optim_target *t, uint64_t update);

/** Create or refresh the basis of a target if it is due, and write g's projection to work.projected. */
void frugi_project_gradient(frug_optimizer *o, uint64_t update, const frugi_optim_target *t, const float *g);

/** lora: initialize the factor that is not zero at first. */
void frugi_lora_init(frug_optimizer *o, const frugi_optim_target *t);

/** Whether chunks have no shares yet, or get new ones at a step. */
bool frugi_shares_are_due(const frug_optimizer *o, const frugi_optim_target *t, uint64_t update);

/** Assign shares of s to chunks, and convert their states to the new lengths. */
void frugi_assign_shares(frug_optimizer *o, const frugi_optim_target *t, const float *g);

/** Recover the sparse vectors of all chunks from their measurements p. */
void frugi_recover_chunks(frug_optimizer *o, const frugi_optim_target *t, const float *p, const frugi_entries *out);

/** Entries of a chunk, and its solver; NULL for a chunk without entries. */
uint32_t frugi_chunk_entries(const frug_optimizer *o, const frugi_optim_target *t, uint32_t chunk);
const frugi_solver *frugi_chunk_solver(const frug_optimizer *o, const frugi_optim_target *t, uint32_t chunk);

/** Whether a target's range of a saved table is such as steps can produce. */
bool frugi_table_is_valid(const frugi_optim_target *t, const unsigned char *mean, const unsigned char *square,
                          const unsigned char *index);

#endif
