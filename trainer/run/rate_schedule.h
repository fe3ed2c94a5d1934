/*
 * rate_schedule.h - the learning rate as a function of the step.
 *
 *   constant            always 1
 *   cosine              half a cosine wave, from 1 to 0
 *   linear              a straight line from 1 to 0
 *   step:0.5,0.75:0.1   times 0.1 after half of the steps, and again after three quarters
 *
 * Each accepts ",warmup=STEPS" or ",warmup=PERCENT%" (of all steps) at its end: this many steps that rise in a straight
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

/** Parses a schedule. Returns an exit status, after an error message. */
int fgt_rate_parse(const char *text, fgt_rate *rate);

/**
 * The factor of the rate at a step, 0 to 1.
 *
 *   total   steps of the whole training; 0: not known: 1 after the warm-up
 *
 * The same bits on every machine, so that workers stay identical.
 */
double fgt_rate_at(const fgt_rate *rate, uint64_t step, uint64_t total);

#endif
