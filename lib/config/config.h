/*
 * config.h - the parsed form of a config string: one struct, read by every stage.
 *
 * option_table.c lists the words of the enumerations in the same order.
 */
#ifndef FRUGI_CONFIG_H
#define FRUGI_CONFIG_H

#include "frugrad.h"

/* ---- selection ---- */

/** Where units compete. */
typedef enum frugi_segment {
    FRUGI_SEGMENT_BLOCK,
    FRUGI_SEGMENT_TENSOR,
    FRUGI_SEGMENT_ALL,
    FRUGI_SEGMENT_GROUP
} frugi_segment;

/** What is selected as a whole. */
typedef enum frugi_unit {
    FRUGI_UNIT_ELEMENT,
    FRUGI_UNIT_RUN,
    FRUGI_UNIT_TILE,
    FRUGI_UNIT_ROW,
    FRUGI_UNIT_COLUMN,
    FRUGI_UNIT_CHANNEL,
    FRUGI_UNIT_HEAD
} frugi_unit;

typedef enum frugi_rule {
    FRUGI_RULE_TOPK,
    FRUGI_RULE_THRESHOLD,
    FRUGI_RULE_RANDOM,
    FRUGI_RULE_PROBABILISTIC,
    FRUGI_RULE_HYBRID,
    FRUGI_RULE_LEARNED
} frugi_rule;

/** rule=threshold:... */
typedef enum frugi_threshold {
    FRUGI_THRESHOLD_ABSOLUTE,
    FRUGI_THRESHOLD_PERCENTILE,
    FRUGI_THRESHOLD_TRACK
} frugi_threshold;

/** The score of a unit of several elements. */
typedef enum frugi_score { FRUGI_SCORE_L2, FRUGI_SCORE_L1, FRUGI_SCORE_MAX, FRUGI_SCORE_GIVEN } frugi_score;

typedef enum frugi_selector { FRUGI_SELECT_HIST, FRUGI_SELECT_EXACT } frugi_selector;

/* ---- density ---- */

typedef enum frugi_schedule_kind {
    FRUGI_SCHEDULE_CONSTANT,
    FRUGI_SCHEDULE_FRUGRAD,
    FRUGI_SCHEDULE_ANNEAL,
    FRUGI_SCHEDULE_DGC,
    FRUGI_SCHEDULE_RELAX,
    FRUGI_SCHEDULE_PIECEWISE
} frugi_schedule_kind;

#define FRUGI_SCHEDULE_ARGS 16

/** schedule=kind[:number]...; density.c documents the numbers. */
typedef struct frugi_schedule {
    frugi_schedule_kind kind;
    uint32_t args;
    double arg[FRUGI_SCHEDULE_ARGS];
} frugi_schedule;

typedef enum frugi_layers {
    FRUGI_LAYERS_EVEN,
    FRUGI_LAYERS_ROLE,
    FRUGI_LAYERS_BUDGET,
    FRUGI_LAYERS_SENSITIVITY
} frugi_layers;

typedef enum frugi_norm_rule { FRUGI_NORM_OFF, FRUGI_NORM_FOLLOW, FRUGI_NORM_ACCORDION } frugi_norm_rule;

/* ---- error feedback ---- */

typedef enum frugi_feedback {
    FRUGI_FEEDBACK_MERGED,
    FRUGI_FEEDBACK_PLAIN,
    FRUGI_FEEDBACK_DGC,
    FRUGI_FEEDBACK_NONE,
    FRUGI_FEEDBACK_EF21
} frugi_feedback;

typedef enum frugi_residual {
    FRUGI_RESIDUAL_INT8,
    FRUGI_RESIDUAL_INT4,
    FRUGI_RESIDUAL_BF16,
    FRUGI_RESIDUAL_F32
} frugi_residual;

typedef enum frugi_mask { FRUGI_MASK_AUTO, FRUGI_MASK_ON, FRUGI_MASK_OFF } frugi_mask;

/* ---- encoding and exchange ---- */

typedef enum frugi_index_choice {
    FRUGI_INDEX_FIXED, /* the shorter of local and bitmap, which does not depend on the gradient */
    FRUGI_INDEX_AUTO,  /* the shortest code for this gradient */
    FRUGI_INDEX_LOCAL,
    FRUGI_INDEX_BITMAP,
    FRUGI_INDEX_COO,
    FRUGI_INDEX_CSR,
    FRUGI_INDEX_RLE,
    FRUGI_INDEX_RICE
} frugi_index_choice;

/* The numbers are those of the wire format. */
typedef enum frugi_value {
    FRUGI_VALUE_F32 = 0,
    FRUGI_VALUE_BF16 = 1,
    FRUGI_VALUE_F16 = 2,
    FRUGI_VALUE_INT8 = 3,
    FRUGI_VALUE_INT4 = 4,
    FRUGI_VALUE_SIGN = 5,
    FRUGI_VALUE_TWO_BIT = 6,
    FRUGI_VALUE_QSGD = 7,
    FRUGI_VALUE_ONEBIT = 8
} frugi_value;

/** The scale of a value group of value=qsgd. */
typedef enum frugi_qnorm { FRUGI_QNORM_L2, FRUGI_QNORM_MAX } frugi_qnorm;

/** How workers sum their gradients: reduce/. */
typedef enum frugi_reduce {
    FRUGI_REDUCE_GATHER,
    FRUGI_REDUCE_DENSE,
    FRUGI_REDUCE_SPLIT,
    FRUGI_REDUCE_TREE,
    FRUGI_REDUCE_NODES,
    FRUGI_REDUCE_SHARED,
    FRUGI_REDUCE_AUTO,
    FRUGI_REDUCE_GOSSIP /* no sum: weights are averaged with neighbors */
} frugi_reduce;

/** What a rank sends of the sum of its shard, in multiples of what a worker sends; or all of it: reduce/split.c. */
typedef enum frugi_down { FRUGI_DOWN_1, FRUGI_DOWN_2, FRUGI_DOWN_4, FRUGI_DOWN_UNION } frugi_down;

/** Which workers are neighbors in gossip. */
typedef enum frugi_topology_kind {
    FRUGI_TOPOLOGY_RING,
    FRUGI_TOPOLOGY_TORUS,
    FRUGI_TOPOLOGY_RANDOM
} frugi_topology_kind;

/** What callers transform blocks of gradients to before they compress them. */
typedef enum frugi_transform { FRUGI_TRANSFORM_OFF, FRUGI_TRANSFORM_COSINE, FRUGI_TRANSFORM_HADAMARD } frugi_transform;

/** How `block` and `beta` are found; the values of auto and sgd depend on the final sparsity: resolve_auto(). */
typedef enum frugi_choice { FRUGI_CHOICE_NUMBER, FRUGI_CHOICE_AUTO, FRUGI_CHOICE_SGD } frugi_choice;

/** How the retention of feedback=merged is found: config/retention.c. */
typedef enum frugi_hold {
    FRUGI_HOLD_NUMBER,   /* off is 0 */
    FRUGI_HOLD_MOMENTUM, /* auto: preserves the momentum at the density of the step */
    FRUGI_HOLD_ADAM      /* by the density of the step alone */
} frugi_hold;

/** What a sum of differences is divided by. */
typedef enum frugi_mean { FRUGI_MEAN_ALL, FRUGI_MEAN_SENDERS } frugi_mean;

typedef enum frugi_stats_level { FRUGI_STATS_SAMPLE, FRUGI_STATS_FULL } frugi_stats_level;

#define FRUGI_CONFIG_TEXT_MAX 2048

struct frug_config {
    frugi_rule rule;
    frugi_threshold threshold; /* of rule=threshold */
    double threshold_at;       /* of threshold:absolute */
    uint32_t hybrid_most;      /* of rule=hybrid: limit of entries per block */
    uint64_t refresh, age;     /* of rule=learned: steps between new masks, and after which a unit is always included */
    double rate;               /* of rule=learned: learning rate of the scores */
    frugi_segment segment;
    uint32_t group_keep, group_of; /* segment=N:M */
    uint32_t block;                /* 64, 128, 256, 1024 or 4096; "auto" and "sgd" are resolved */
    frugi_choice block_choice;
    frugi_unit unit;
    uint32_t unit_h, unit_w; /* size of a tile; a run is 1 x L */
    frugi_score score;
    frugi_selector select;

    frugi_schedule schedule;
    frugi_layers layers;
    frugi_norm_rule norm;
    int frequency;        /* larger limits for blocks that have sent many entries */
    int strict;           /* scale the densities of tensors to the total of the schedule */
    uint64_t warmup;      /* number of steps at the start that send everything */
    uint64_t dense_every; /* after which number of steps one sends everything; 0: never */

    frugi_transform transform; /* of blocks, by the caller */
    frugi_feedback feedback;
    double beta; /* decay of the residual; "auto" and "sgd" are resolved */
    frugi_choice beta_choice;
    double momentum; /* of feedback=dgc; the momentum that hold=auto preserves */
    double hold;     /* retention: of feedback=merged, the share of a sent entry that stays, if it is a number */
    frugi_hold hold_rule;
    double theta; /* of feedback=ef21: weight of the new gradient */
    frugi_mask mask;
    double clip; /* clip gradients to this norm; 0: do not */
    frugi_residual residual;

    frugi_index_choice index;
    frugi_value value;
    uint32_t bucket;   /* values that share a scale, where they are not grouped by blocks; "auto" is resolved */
    int bucket_auto;   /* whether it was "auto" */
    uint32_t levels;   /* of value=qsgd */
    frugi_qnorm qnorm; /* of value=qsgd */

    frugi_reduce reduce;
    frugi_down down; /* of reduce=split */
    uint64_t node;   /* of reduce=nodes: workers per node; 0: unknown */
    frugi_topology_kind topology;
    uint32_t degree;        /* of topology=random */
    uint64_t graph_seed;    /* likewise */
    double gamma;           /* of gossip: step size towards the mean of the neighbors */
    uint64_t average_every; /* of gossip: steps between averages over all workers; 0: never */
    uint64_t local;         /* steps of each worker between exchanges of the difference; 0: gradients, at every step */
    double outer;           /* of local steps: rate of the mean difference */
    double outer_momentum;  /* of local steps: Nesterov momentum of the mean differences */
    frugi_mean mean;        /* of local steps */

    uint64_t min_size; /* smaller tensors are sent dense */
    int vectors_dense; /* one-dimensional tensors are sent dense */
    uint64_t seed;
    frugi_stats_level stats;
    double density_gain; /* factor of every density, clipped to 1; 1 except for the sums of reduce=split; not in text */
    uint64_t given;      /* bit i: row i of the option table was in the user's text, not only in a preset */
    char text[FRUGI_CONFIG_TEXT_MAX];  /* canonical text with every option */
    char items[FRUGI_CONFIG_TEXT_MAX]; /* the same as name, value, name, value, ..., each terminated by 0 */
};

/** The retention of option hold at a density, from 0 to 1; 0 unless feedback is merged. Only IEEE operations of one
 *  rounding, so all workers compute the same bits. */
double frugi_retention(const struct frug_config *config, double density);

#endif
