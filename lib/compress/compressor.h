/* compressor.h - struct frug_compressor and the functions that the files of lib/compress share. */
#ifndef FRUGI_COMPRESSOR_H
#define FRUGI_COMPRESSOR_H

#include "base/float_bits.h"
#include "codec/bf16_encode.h"
#include "codec/frame.h"
#include "codec/unit_index.h"
#include "codec/unit_value.h"
#include "compress/compressor_access.h"
#include "compress/decoder.h"
#include "layout/partition.h"
#include "compress/threads.h"
#include "layout/layout.h"
#include "select/block_kernel.h"
#include "schedule/controller.h"
#include "select/learned_mask.h"
#include "select/tensor_topk.h"

#include <assert.h>

#define FRUGI_BATCH_ELEMENTS FRUGI_MAX_BLOCK /* largest batch */
#define FRUGI_STATS_PERIOD   64u             /* statistics sample one batch, block or chunk in this many */

static_assert(FRUGI_BATCH_BLOCKS <= FRUGI_STORE_RUN, "the residual of a batch is stored in one run");

/**
 * Selection group: the units that compete when segment is tensor. These are the units of one tensor, or the heads of
 * one attention module, where a head is made of units of several tensors. With segment=all several groups are selected
 * from together.
 */
typedef struct frugi_select_group {
    size_t first, views;    /* its tensors are c->units.member[first] .. c->units.member[first + views - 1] */
    uint64_t units;         /* competing units: those of its tensor, or heads */
    uint64_t first_unit;    /* units of all groups before that are not absent; offset into c->units.score */
    uint64_t first_segment; /* segments of all groups before */
    bool absent;            /* its tensors are: nothing is stored for it */
    bool heads;
    bool elementwise;  /* units are elements, compared by magnitude without scores */
    bool scores_given; /* score=given: the caller has set the scores of the heads */
    uint32_t module;
    float threshold;    /* rule=threshold:track: current threshold; 0: none yet */
    uint64_t found_for; /* if not 0: `found` is the cutoff of this many units, of this group and what it selects with */
    frugi_cutoff found;
    frugi_learned learned; /* rule=learned */
} frugi_select_group;

/** The units of a tensor that are sent at this step. */
typedef struct frugi_unit_selection {
    const uint32_t *list; /* selected units, ascending; NULL for all, or if the encoder selects */
    uint64_t selected;    /* number of selected units */
    frugi_encoder_selects selects;
    frugi_cutoff cutoff;
    const float *values;   /* accumulators of the elements in list, if they were copied; else NULL */
    bool rest_left;        /* the accumulators in list are residuals already */
    const uint32_t *drawn; /* rule=probabilistic: elements that are sent as plus or minus draw_unit */
    uint64_t draws;
    float draw_unit;
} frugi_unit_selection;

/** Statistics of one thread in one call. */
typedef struct frugi_tally {
    double energy_seen, energy_left;
    double feedback, select, encode, store; /* seconds */
    uint64_t skipped;                       /* blocks with a NaN or an infinity */
} frugi_tally;

/** Scratch memory of one thread. */
typedef struct frugi_workspace {
    frugi_batch batch;
    frugi_batch_scratch lanes;
    frugi_tally tally;
    float *acc;      /* accumulators, where they are not updated in place */
    float *saved;    /* residuals before the update */
    float *momentum; /* feedback=dgc and feedback=ef21 */
    float *padded;   /* gradient of a batch, if it must be padded with zeros or scaled */
    float *values;   /* values of a batch, or of a chunk of a unit section */
    uint16_t *idx;
    uint32_t *units; /* numbers of units in a window */
    void *memory;    /* the allocation behind the arrays above */
} frugi_workspace;

/** The norm of the gradient: gradient_norm.c. */
typedef struct frugi_norm_state {
    bool is_set;            /* the caller has set the norm of the whole gradient: */
    double value;           /* this one */
    double range_value;     /* norm of the range being compressed, if an option needs it */
    bool range_is_set;      /* range_value was set by frugi_norm_measure() and stays until frugi_norm_clear() */
    double *partial_energy; /* sums of squares of the chunks of a gradient */
} frugi_norm_state;

/** Selection groups and arrays of unit sections: select_groups.c. Empty unless the path is by units. */
typedef struct frugi_unit_state {
    frugi_select_group *select_group;
    size_t select_groups;
    size_t *member;                  /* indices into partition.view, group by group */
    frugi_unit_selection *selection; /* of each compressed tensor at this step: unit_select.c */
    frugi_float_array *span;         /* one per group */
    frugi_topk *topk;
    bool watched; /* topk looks at accumulators as they are computed */
    const frugi_value_kernel *value_kernel;
    float *accumulators; /* in blocks like the stores; NULL where the residual store serves */
    bool acc_is_grad;    /* the accumulators of this step are the gradient itself */
    float *score;        /* one per competing unit, unless units are elements */
    float *given_scores; /* score=given: set by the caller; as score */
    float *unit_scratch; /* one per unit of the largest tensor: rule=learned, unit=head */
    uint32_t *list;      /* lists of selected units, one after the other */
    float *list_values;  /* accumulators of the elements in list, if they were copied */
    uint64_t list_capacity;
    uint64_t *hybrid_blocks;      /* rule=hybrid: blocks of each group */
    uint32_t *hybrid_last_length; /* rule=hybrid: elements of each group's last block */
    uint16_t *hybrid_count;       /* rule=hybrid: entries per block */
    uint8_t *hybrid_frequency;    /* rule=hybrid, frequency=on: how often a block sent many entries, 0 to 15 */
    uint8_t *sent_mask;           /* feedback=dgc, unless residual=f32: 1 for elements sent at this step */
    uint8_t *skipped;             /* 1 for blocks skipped at this step */
} frugi_unit_state;

struct frug_compressor {
    struct frug_config config;
    frug_layout *layout;
    uint64_t layout_hash;
    uint64_t total_steps;
    uint32_t source;
    int threads;
    uint32_t max_batch_blocks; /* blocks in a batch */
    const frugi_block_kernel *kernel;
    frugi_bf16_encoder *encode_bf16;
    const struct frugi_compress_path *path; /* compress_path.h */
    frugi_partition partition;
    frugi_control *control;
    double *density; /* of each compressed tensor at this step */
    frugi_norm_state norm;
    frugi_feedback_state feedback;

    frugi_unit_state units;

    float *zeros;                 /* a batch */
    frugi_workspace *workspace;   /* one per thread */
    frugi_frame_section *section; /* of the frame being written: FRUGI_SECTIONS_PER_TENSOR per tensor, and one more */
    frug_decoder decoder;         /* shares partition and the arrays of workspace */
    frug_stats stats;             /* except seconds_decode */
    double energy_seen, energy_left;
};

/** The sum of squares. */
static inline double frugi_energy(const float *x, uint64_t n) {
    double sum[4] = {0};
    uint64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (size_t j = 0; j < 4; j++)
            sum[j] += (double)x[i + j] * (double)x[i + j];
    for (; i < n; i++)
        sum[0] += (double)x[i] * (double)x[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* ---- statistics: compressor_stats.c ----------------------------------------- */

/** The batches, blocks or chunks of one tensor, of which statistics may sample some only. */
typedef struct frugi_stats_items {
    uint64_t items;
    uint64_t length, total; /* elements of an item, except of the last ones; elements of all items */
} frugi_stats_items;

/**
 * Weight of item i in the statistics; 0 if it is not sampled. One item in FRUGI_STATS_PERIOD of each tensor is sampled,
 * so that every tensor is represented; with stats=full every item is. The sampled item is not the first of its window,
 * because the first rows of an embedding are not typical, and not the last, which may be short.
 */
static inline double frugi_stats_weight(const frug_compressor *c, const frugi_stats_items *of, uint64_t i) {
    if (c->config.stats == FRUGI_STATS_FULL)
        return 1;
    uint64_t first = i - i % FRUGI_STATS_PERIOD, left = of->items - first;
    uint64_t window = left < FRUGI_STATS_PERIOD ? left : FRUGI_STATS_PERIOD;
    if (window == 1 || i != first + (window - 1) / 3)
        return window == 1 ? 1 : 0;
    uint64_t begin = first * of->length, end = first + window == of->items ? of->total : begin + window * of->length;
    uint64_t rest = of->total - i * of->length;
    return (double)(end - begin) / (double)(rest < of->length ? rest : of->length);
}

/** Count one call: bytes and entries sent for a number of elements. */
void frugi_stats_count(frug_compressor *c, uint64_t bytes, uint64_t entries, uint64_t elements);

/** Add the tallies of all threads to the statistics. */
void frugi_stats_add_tallies(frug_compressor *c);

/* ---- one call: step_options.c ------------------------------------------------ */

/** Arguments and options of one frug_compress() call. */
typedef struct frugi_compress_call {
    frug_compressor *c;
    uint64_t step, begin, count;
    const float *grad; /* element begin */
    unsigned char *frame;
    const struct frugi_compress_path *path; /* that of the compressor; by blocks if everything is sent */
    bool send_all;                          /* everything is sent: warm-up, or a periodic dense step */
    frugi_feedback_step feedback;
    float grad_scale; /* below 1 if the gradient is clipped */
    int threads;
} frugi_compress_call;

/** Fill in the options of a call from compressor, step, range and gradient. */
frug_status frugi_call_init(frugi_compress_call *call);

/**
 * The gradient of a batch or block, scaled by grad_scale and padded with zeros from `count` to `room` elements. Returns
 * grad itself where nothing has to change, else ws->padded.
 */
static inline const float *frugi_scaled_gradient(const frugi_compress_call *call, frugi_workspace *ws,
                                                 const float *grad, uint32_t count, uint32_t room) {
    if (count == room && call->grad_scale == 1.0f)
        return grad;
    for (uint32_t i = 0; i < count; i++)
        ws->padded[i] = call->grad_scale * grad[i];
    memset(ws->padded + count, 0, (room - count) * sizeof *grad);
    return ws->padded;
}

/* ---- units and selection groups: select_groups.c ------------------------------------- */

frug_status frugi_select_groups_create(frug_compressor *c);
void frugi_select_groups_destroy(frug_compressor *c);

/** Density of a selection group: the mean over its tensors. */
double frugi_select_group_density(const frug_compressor *c, const frugi_select_group *group, const double *density);

/** Number of units that a density selects from a group: at least 1. */
uint64_t frugi_select_group_count(const frugi_select_group *group, double density);

/**
 * The most units of a group that are selected at a step. With segment=all this is the group's contribution to the
 * common budget, which other groups may use: it is not limited by the group's own units.
 */
uint64_t frugi_select_group_most(const frug_compressor *c, const frugi_select_group *group);

/** Length of a segment of a group, in units. */
uint64_t frugi_select_group_segment(const frug_compressor *c, const frugi_select_group *group);

/**
 * The selection groups first .. end - 1 of a range. Returns FRUG_ERR_ARG if the range cuts a tensor or an attention
 * module; begin and count as in frug_compress().
 */
frug_status frugi_select_groups_in(const frug_compressor *c, uint64_t begin, uint64_t count, size_t *first,
                                   size_t *end);

/* ---- accumulators of unit sections: unit_accumulate.c ------------------------------ */

/**
 * Add the gradient of the range to the residual, for all compressed tensors, which are those of groups first ..
 * end - 1. Where the largest of whole tensors are selected, the search for the cutoff is done along the way.
 */
void frugi_accumulate_range(const frugi_compress_call *call, size_t first, size_t end);

/** The accumulators of a tensor after frugi_accumulate_range(). */
const float *frugi_accumulators(const frugi_compress_call *call, const frugi_tensor_view *view);

/** Store residual and momentum after the selected values were encoded. */
void frugi_store_residual(const frugi_compress_call *call);

/* ---- gradient_norm.c ------------------------------------------------------------- */

/** Measure the norm of the range where an option needs it; pass it to the controller and clip by it. */
void frugi_apply_norm(frugi_compress_call *call);

/* ---- unit_select.c --------------------------------------------------------------- */

/** Select units of groups first .. end - 1: sets c->units.selection of their tensors. */
void frugi_select_units(const frugi_compress_call *call, size_t first, size_t end);

/** Number of units to select from groups first .. end - 1 together, by the densities. */
uint64_t frugi_target_count(const frug_compressor *c, size_t first, size_t end);

/** Random key of a group and step, for rule=random and stochastic rounding. */
uint64_t frugi_draw_key(const frug_compressor *c, uint64_t step, size_t number);

/* ---- unit_encode.c --------------------------------------------------------------- */

/** Set index code, index_bytes and Rice parameter of a unit section: the requested code, or the shortest. */
void frugi_set_index_code(frugi_index_choice choice, const uint32_t *list, frugi_section *section);

/** Write the payload of a unit section; the accumulators keep what was not sent. */
void frugi_encode_unit_section(const frugi_compress_call *call, const frugi_frame_section *fs);

#endif
