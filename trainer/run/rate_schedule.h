/*
 * rate_schedule.h - how the learning rate goes up and down in the course of training.
 *
 *   constant            1 from beginning to end
 *   cosine              half a wave, from 1 to 0
 *   linear              a straight line from 1 to 0
 *   step:0.5,0.75:0.1   times 0.1 after half of the steps, and again after three quarters
 *
 * Each takes ",warmup=STEPS" or ",warmup=PERCENT%" (of all steps) at its end: so many steps that rise in a straight
 * line to 1. cosine and linear then fall over the steps that are left. The numbers are shares of the rate that the user
 * names.
 */
#ifndef FGT_RATE_SCHEDULE_H
#define FGT_RATE_SCHEDULE_H

#include <stdint.h>

typedef enum fgt_rate_kind { FGT_RATE_CONSTANT, FGT_RATE_COSINE, FGT_RATE_LINEAR, FGT_RATE_STEP } fgt_rate_kind;

#define FGT_RATE_MARKS 8

typedef struct fgt_rate {
    fgt_rate_kind kind;
    uint64_t warmup;     /* steps */
    double warmup_share; /* of all steps, instead; 0: `warmup` steps */
    int marks;           /* of a step schedule: */
    double mark[FGT_RATE_MARKS];
    double factor;
} fgt_rate;

/** Read a schedule. Returns an exit status, after a line on stderr. */
int fgt_rate_parse(const char *text, fgt_rate *rate);

/**
 * The share of the rate that holds at a step, 0 to 1.
 *
 *   total   steps of the whole training; 0: not known, which leaves it at 1 after the warm-up
 *
 * The same bits on every machine: workers that multiply by it stay the same.
 */
double fgt_rate_at(const fgt_rate *rate, uint64_t step, uint64_t total);

#endif
