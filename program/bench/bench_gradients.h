/* bench_gradients.h - types and functions that the files of `frugrad bench recover --gradients FILE` share. */
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
    const fgio_tensor *first;
    const fgio_tensor *const *item; /* one per step, in order */
    size_t steps;
    uint64_t d; /* elements */
} fgp_recorded;

typedef struct fgp_recording {
    fgio_tensor_file file;
    const fgio_tensor **item; /* all, by name and step */
    fgp_recorded *stream;
    size_t count;
    size_t left_out; /* vectors and small tensors */
} fgp_recording;

#define FGP_MIN_TENSOR 1024u /* elements of a tensor that is worth compressing */

/** Open a safetensors file of tensors "<step>/<name>". Returns an exit code, after an error message; close it in either
 * case. */
int fgp_recording_open(const char *path, fgp_recording *recording);
void fgp_recording_close(fgp_recording *recording);

/** Read the first `steps` gradients of a stream, steps x d floats, all finite; free() them. Returns an exit code. */
int fgp_recorded_load(const fgp_recording *recording, const fgp_recorded *stream, size_t steps, float **grad);

/* ---- bench_reference.c: AdamW with full state ------------------------------------------------------- */

/** How the s entries of a gradient are selected. */
typedef struct fgp_selection {
    uint32_t c;       /* chunks */
    uint32_t s;       /* entries in total, a multiple of c */
    uint32_t refresh; /* steps after which chunks get new shares of s; 0: all have the same */
    uint32_t kappa;   /* limits the shares */
} fgp_selection;

/** The means of AdamW on the selected entries and on the whole gradient, and the resulting steps. */
typedef struct fgp_reference {
    fgp_selection choice;
    uint64_t d;
    uint32_t *share, *count;                           /* c: entries, and how many of the s largest of all */
    float *rounded;                                    /* d: the mean */
    double *mean, *square, *whole_mean, *whole_square; /* d; of the selected entries, and of all */
    double *step_sparse, *step_whole;                  /* d; m / (sqrt(v) + eps), bias corrected */
    uint8_t *chosen, *largest, *best; /* d: largest of g by chunks, of g overall, and of mean by chunks */
    uint64_t *key;                    /* d; scratch */
    double correct1, correct2;        /* 1 - beta^t */
    double energy;                    /* share of |g|^2 that was selected */
    double overlap;                   /* share of the s largest of all that were selected */
    double in_union;                  /* non-zero entries of the mean */
    double heavy;                     /* entries with 90 % of its energy */
    double error_best;                /* |m - best| / |m|, best: as many of the largest entries as selected */
} fgp_reference;

/** Returns an exit code, after an error message; close it in either case. */
int fgp_reference_open(fgp_reference *truth, uint64_t d, const fgp_selection *choice);
void fgp_reference_close(fgp_reference *truth);

/** Process the gradient of step t, from 0. */
void fgp_reference_step(fgp_reference *truth, size_t t, const float *g);

/** Mark the n of `count` numbers with the largest magnitudes, of equal ones the first. key: scratch of count. */
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
    double found;        /* share of the largest entries of the mean that were recovered, as many as selected */
    double error;        /* |x - m| / |m| */
    double error_best;   /* the same of the best x with this many entries */
    double in_union;     /* entries of m, over s */
    double heavy;        /* entries with 90 % of its energy, over s */
    double cosine;       /* of the step and that of AdamW on the selected entries */
    double cosine_whole; /* and that of AdamW on the whole gradient */
    double energy, overlap;
    double ms; /* of CPU time per chunk and step */
    char wrong[160];
} fgp_gradient_row;

void fgp_gradient_head(const fgp_gradient_run *run, const char *path, const fgp_recording *recording);
int fgp_gradient_print(const fgp_gradient_run *run, const fgp_gradient_row *row);

/** The command with --gradients. Returns an exit code. */
int fgp_bench_gradients(const fgp_args *args);

#endif
