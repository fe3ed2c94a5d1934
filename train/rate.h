/*
 * rate.h - how the learning rate goes over training: a factor between 0 and 1 for each step.
 *
 *   constant   cosine   linear   step:0.5,0.75:0.1 (times 0.1 at half and at three quarters)
 *
 * each with ",warmup=N": N steps of linear rise first.
 */
#ifndef FRUGI_RATE_H
#define FRUGI_RATE_H

#include <stdint.h>

#define FRUGI_RATE_STEPS 8

typedef enum frugi_rate_kind {
    FRUGI_RATE_CONSTANT,
    FRUGI_RATE_COSINE,
    FRUGI_RATE_LINEAR,
    FRUGI_RATE_STEP
} frugi_rate_kind;

typedef struct frugi_rate {
    frugi_rate_kind kind;
    uint64_t warmup;
    uint32_t count; /* of steps */
    double at[FRUGI_RATE_STEPS], factor;
} frugi_rate;

/** Returns an exit status, after a line on stderr that names the word. */
int frugi_rate_parse(const char *text, frugi_rate *rate);

/** The factor of a step, from 0, of `total`. */
double frugi_rate_at(const frugi_rate *rate, uint64_t step, uint64_t total);

#endif
