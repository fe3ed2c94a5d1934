/* bench.h - what the parts of `frugrad bench` share: the gradients, the cases, the rows of the table. */
#ifndef FGP_BENCH_H
#define FGP_BENCH_H

#include "program/bench/bench_noise.h"
#include "frugrad.h"

#include <stddef.h>
#include <stdint.h>

#define FGP_BENCH_ROUNDS_MAX 1000u

/* ---- bench_source.c: a gradient for every step ------------------------------- */

typedef struct fgp_gradient_source {
    const char *name; /* the distribution, or the file */
    uint64_t n;
    size_t steps;    /* how many there are before they come again */
    uint64_t length; /* elements of a recorded step */
    float *recorded; /* steps x length, or NULL */
    float *grad;     /* generated: steps x n; recorded: n, filled anew for each step */
} fgp_gradient_source;

/**
 * See that bench can hold what it needs for n elements: about ten arrays. Systems that promise more memory
 * than they have would kill the program later instead. Returns an exit status, after a line on stderr.
 */
int fgp_memory_suffices(uint64_t n);

/** See that the machine has that many bytes. Otherwise one line on stderr says what needs them and, as a hint, why. */
int fgp_memory_holds(double bytes, const char *what, const char *why);

/** Make the gradients. Says why and returns an exit status when it cannot. Close it in either case. */
int fgp_source_generate(fgp_gradient_source *source, fgp_dist dist, uint64_t n);

/** Read the tensors step_... of a safetensors file. Otherwise the same. */
int fgp_source_load(fgp_gradient_source *source, const char *path, uint64_t n);

void fgp_source_close(fgp_gradient_source *source);

/** The gradient of a step, n floats, until the next call. Never the same twice in a row. */
const float *fgp_source_step(fgp_gradient_source *source, uint64_t step);

/* ---- the run ------------------------------------------------------------------- */

typedef struct fgp_bench {
    uint64_t n;
    size_t warmup; /* checked and untimed steps */
    size_t rounds; /* timed steps */
    int json;
    fgp_gradient_source source;
    float *stream; /* n: the residual of the streaming pass, the weights of apply */
    size_t failed; /* cases that did not verify */
} fgp_bench;

typedef enum fgp_case_kind {
    FGP_CASE_COMPRESS,
    FGP_CASE_WHOLE,
    FGP_CASE_DECODE,
    FGP_CASE_APPLY,
    FGP_CASE_CHECK,
    FGP_CASE_CHECKSUM
} fgp_case_kind;

typedef struct fgp_case {
    char name[64];
    char config[2304]; /* the longest config string, and an option more */
    fgp_case_kind kind;
    int threads;
    int frames;       /* decode and apply: how many at once */
    uint32_t columns; /* of the matrix that the elements make up; 0: one row */
    float decay;      /* apply */
} fgp_case;

/** One line of the table; a negative number is one that the case does not have. */
typedef struct fgp_row {
    double seconds[FGP_BENCH_ROUNDS_MAX];       /* the call */
    double limit_seconds[FGP_BENCH_ROUNDS_MAX]; /* the pass it is held against */
    double one_seconds[FGP_BENCH_ROUNDS_MAX];   /* the call with one thread, when threads > 1 */
    size_t rounds;
    uint32_t block;
    double k;           /* entries per block */
    double bytes;       /* moved by the call */
    double limit_bytes; /* moved by the pass */
    double limit_count; /* passes that the ratio counts: 1, or 2 dense additions */
    double frame_bytes;
    double energy_kept;
    double energy_vs_exact;
    char why[200]; /* what does not verify; empty when all does */
    char note[80]; /* what else there is to say */
} fgp_row;

/** Time and verify one case. Returns an exit status after a line on stderr when it could not run. */
int fgp_bench_compress(fgp_bench *bench, const fgp_case *which, fgp_row *row);
int fgp_bench_whole(fgp_bench *bench, const fgp_case *which, fgp_row *row);
int fgp_bench_decode(fgp_bench *bench, const fgp_case *which, fgp_row *row);
int fgp_bench_check(fgp_bench *bench, const fgp_case *which, fgp_row *row);

/** dst = beta * dst + src: two reads and a write an element, which is what compressing with an f32 residual moves. */
void fgp_stream(float *dst, float beta, const float *src, uint64_t n, int threads);

/* ---- one compressor and its frame ------------------------------------------------ */

typedef struct fgp_bench_worker {
    frug_config *config;
    frug_layout *layout;
    frug_compressor *compressor;
    unsigned char *frame;
    size_t cap;
    size_t len;
} fgp_bench_worker;

/** Make a compressor for n elements in one tensor. Says why and returns an exit status when it cannot. */
int fgp_worker_open(fgp_bench_worker *worker, const char *config, uint64_t n, int threads);

/** The same for a matrix of so many columns; what does not fill a row is a tensor of its own. 0: one row. */
int fgp_worker_open_matrix(fgp_bench_worker *worker, const char *config, uint64_t n, uint32_t columns, int threads);

void fgp_worker_close(fgp_bench_worker *worker);

/** Compress one step into worker->frame. The same. */
int fgp_worker_step(fgp_bench_worker *worker, uint64_t step, const float *grad);

/* ---- bench_print.c ----------------------------------------------------------------- */

void fgp_report_head(const fgp_bench *bench);
int fgp_report_row(const fgp_bench *bench, const fgp_case *which, const fgp_row *row);

#endif
