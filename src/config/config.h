/*
 * config.h - what a config string means: one struct, read by every stage.
 *
 * The words of the enumerations stand in option_table.c, in this order.
 */
#ifndef FRUGI_CONFIG_H
#define FRUGI_CONFIG_H

#include "frugrad.h"

typedef enum frugi_selector { FRUGI_SELECT_HIST, FRUGI_SELECT_EXACT } frugi_selector;

typedef enum frugi_feedback { FRUGI_FEEDBACK_MERGED, FRUGI_FEEDBACK_PLAIN, FRUGI_FEEDBACK_DGC, FRUGI_FEEDBACK_NONE } frugi_feedback;

typedef enum frugi_residual { FRUGI_RESIDUAL_INT8, FRUGI_RESIDUAL_INT4, FRUGI_RESIDUAL_BF16, FRUGI_RESIDUAL_F32 } frugi_residual;

typedef enum frugi_mask { FRUGI_MASK_AUTO, FRUGI_MASK_ON, FRUGI_MASK_OFF } frugi_mask;

typedef enum frugi_index_choice { FRUGI_INDEX_AUTO, FRUGI_INDEX_LOCAL, FRUGI_INDEX_BITMAP } frugi_index_choice;

/* The numbers are those of the wire format. */
typedef enum frugi_value { FRUGI_VALUE_F32 = 0, FRUGI_VALUE_BF16 = 1, FRUGI_VALUE_F16 = 2, FRUGI_VALUE_INT8 = 3 } frugi_value;

typedef enum frugi_schedule_kind { FRUGI_SCHEDULE_CONSTANT, FRUGI_SCHEDULE_FRUGRAD } frugi_schedule_kind;

/** schedule=kind[:number]...; the numbers mean what schedule.c says. */
typedef struct frugi_schedule {
    frugi_schedule_kind kind;
    double arg[3];
} frugi_schedule;

typedef enum frugi_stats_level { FRUGI_STATS_SAMPLE, FRUGI_STATS_FULL } frugi_stats_level;

#define FRUGI_CONFIG_TEXT_MAX 512

struct frug_config {
    uint32_t block; /* 64, 128, 256, 1024 or 4096 */
    frugi_selector select;
    frugi_schedule schedule;
    frugi_feedback feedback;
    double beta;     /* decay of the residual; "auto" is resolved: 0.95, or 0.99 from 98 % sparsity on */
    int beta_auto;   /* whether it was "auto" */
    double momentum; /* of feedback=dgc */
    frugi_mask mask;
    frugi_residual residual;
    frugi_index_choice index;
    frugi_value value;
    uint64_t min_size; /* smaller tensors travel dense */
    int vectors_dense; /* one-dimensional tensors travel dense */
    uint64_t seed;
    frugi_stats_level stats;
    char text[FRUGI_CONFIG_TEXT_MAX]; /* every option spelled out */
};

#endif
