/*
 * bench_gradients.h - `frugrad bench recover --gradients FILE`: what reading a recording, knowing the truth, comparing
 * with it and printing share.
 */
#ifndef FGP_BENCH_GRADIENTS_H
#define FGP_BENCH_GRADIENTS_H

#include "program/args/args.h"
#include "io/tensor_file.h"

#include <stddef.h>
#include <stdint.h>

/* ---- bench_recording.c: recordings ----------------------------------------------------------------- */

/** The gradients of one tensor, step by step. */
typedef struct fgp_recorded {
    const char *name; /* in the file's header */
    const fgio_item *first;
    const fgio_item *const *item; /* one a step, in order */
    size_t steps;
    uint64_t d; /* elements */
} fgp_recorded;

typedef struct fgp_recording {
    fgio_tensor_file file;
    const fgio_item **item; /* all, by name and step */
    fgp_recorded *stream;
    size_t count;
    size_t left_out; /* vectors and small tensors */
} fgp_recording;

#define FGP_STREAM_LEAST 1024u /* elements of a tensor that is worth compressing */

/** Open a safetensors file of tensors "<step>/<name>". Says why and returns an exit status when it cannot; close it in
 * either case. */
int fgp_recording_open(const char *path, fgp_recording *recording);
void fgp_recording_close(fgp_recording *recording);

/** Read the first `steps` gradients of a stream, steps x d floats, all finite; free() them. The same. */
int fgp_recorded_load(const fgp_recording *recording, const fgp_recorded *stream, size_t steps, float **grad);

/* ---- bench_truth.c: what AdamW would know --------------------------------------------------------- */

/** How the s entries of a gradient are chosen. */
typedef struct fgp_choice {
    uint32_t c;       /* chunks */
    uint32_t s;       /* entries in all, a multiple of c */
    uint32_t refresh; /* steps after which chunks get new shares of s; 0: all have the same */
    uint32_t kappa;   /* limits the shares */
} fgp_choice;

/** The means of AdamW on the chosen entries and on the whole gradient, and the steps that follow from them. */
typedef struct fgp_truth {
    fgp_choice choice;
    uint64_t d;
    uint32_t *share, *count;                           /* c: entries, and those of the s largest of all */
    float *rounded;                                    /* d: the mean */
    double *mean, *square, *whole_mean, *whole_square; /* d; of the chosen entries, and of all */
    double *step_sparse, *step_whole;                  /* d; m / (sqrt(v) + eps), bias corrected */
    uint8_t *chosen, *largest, *best;                  /* d: of g, of g whatever the chunks, and of mean by chunks */
    uint64_t *key;                                     /* d; scratch */
    double correct1, correct2;                         /* 1 - beta^t */
    double energy;                                     /* share of |g|^2 that was chosen */
    double overlap;                                    /* share of the s largest of all that were chosen */
    double in_union;                                   /* entries of the mean */
    double heavy;                                      /* entries that hold nine tenths of its squares */
    double error_best;                                 /* |m - its best| / |m|, as many entries as were chosen */
} fgp_truth;

/** Says why and returns an exit status when it cannot; close it in either case. */
int fgp_truth_open(fgp_truth *truth, uint64_t d, const fgp_choice *choice);
void fgp_truth_close(fgp_truth *truth);

/** Take in the gradient of step t, from 0. */
void fgp_truth_step(fgp_truth *truth, size_t t, const float *g);

/** Mark the n of `count` numbers with the largest magnitudes; of equals the first. key has room for count. */
void fgp_mark_largest(const float *x, uint64_t count, uint64_t n, uint64_t *key, uint8_t *mark);

/* ---- rows ------------------------------------------------------------------------------------------ */

typedef struct fgp_gradient_run {
    uint64_t s, chunk; /* of --s (0: 31 of every 2048) and --chunk */
    int threads, quick, json;
    const char *filter; /* of --case, or NULL */
} fgp_gradient_run;

/** One case on one tensor, or on the average of all; means over the second half of the steps. NaN: not measured. */
typedef struct fgp_gradient_row {
    const char *tensor;
    char name[48];
    uint32_t kappa, c, s;
    size_t steps, tensors;
    double bytes;        /* of states */
    double found;        /* share of the largest entries of the mean that came back, as many as were chosen */
    double error;        /* |x - m| / |m| */
    double error_best;   /* the same of the best x with so many entries */
    double in_union;     /* entries of m, over s */
    double heavy;        /* entries that hold nine tenths of its squares, over s */
    double cosine;       /* of the step and that of AdamW on the chosen entries */
    double cosine_whole; /* and that of AdamW on the whole gradient */
    double energy, overlap;
    double ms; /* of processor time a chunk and step */
    char wrong[160];
} fgp_gradient_row;

void fgp_gradient_head(const fgp_gradient_run *run, const char *path, const fgp_recording *recording);
int fgp_gradient_print(const fgp_gradient_run *run, const fgp_gradient_row *row);

/** The command, once --gradients is there. Returns an exit status. */
int fgp_bench_gradients(const fgp_args *args);

#endif
