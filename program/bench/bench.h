/* bench.h - types and functions that the files of `frugrad bench` share: gradients, cases, rows of the table. */
#ifndef FGP_BENCH_H
#define FGP_BENCH_H

#include "program/bench/bench_check.h"
#include "program/bench/bench_noise.h"
#include "frugrad.h"

#include <stddef.h>
#include <stdint.h>

#define FGP_BENCH_ROUNDS_MAX 1000u

/* ---- bench_source.c: a gradient for every step ------------------------------- */

typedef struct fgp_gradient_source {
    const char *name; /* the distribution, or the file */
    uint64_t n;
    size_t steps;    /* number of different gradients; then they repeat */
    uint64_t length; /* elements of a recorded step */
    float *recorded; /* steps x length, or NULL */
    float *grad;     /* generated: steps x n; recorded: n, filled anew for each step */
} fgp_gradient_source;

/**
 * Check that the machine has the memory that bench needs for n elements, about ten arrays. Systems that overcommit
 * would kill the program later instead. Returns an exit code, after an error message.
 */
int fgp_bench_check_memory(uint64_t n);

/** Check that the machine has that many bytes of memory. Otherwise print an error that begins with `what`, and a hint.
 */
int fgp_check_memory(double bytes, const char *what, const char *why);

/** Generate the gradients. Returns an exit code, after an error message. Close it in either case. */
int fgp_source_generate(fgp_gradient_source *source, fgp_dist dist, uint64_t n);

/** Read the tensors step_... of a safetensors file; otherwise as fgp_source_generate(). */
int fgp_source_load(fgp_gradient_source *source, const char *path, uint64_t n);

void fgp_source_close(fgp_gradient_source *source);

/** The gradient of a step, n floats, valid until the next call. Consecutive steps differ. */
const float *fgp_source_step(fgp_gradient_source *source, uint64_t step);

/* ---- the run ------------------------------------------------------------------- */

typedef struct fgp_bench {
    uint64_t n;
    size_t warmup; /* checked and untimed steps */
    size_t rounds; /* timed steps */
    int json;
    fgp_gradient_source source;
    float *stream; /* n: the residual of the streaming pass, the weights of apply */
    void *stored;  /* n: the residual of such a pass in another format than f32 */
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
    char config[2304]; /* the longest config string and one more option */
    fgp_case_kind kind;
    int threads;
    int frames;       /* decode and apply: frames per call */
    uint32_t columns; /* of the matrix that the elements form; 0: one row */
    float decay;      /* apply */
} fgp_case;

/** One row of the table; negative: the case does not have this number. */
typedef struct fgp_row {
    double seconds[FGP_BENCH_ROUNDS_MAX];       /* the call */
    double limit_seconds[FGP_BENCH_ROUNDS_MAX]; /* the baseline pass */
    double own_seconds[FGP_BENCH_ROUNDS_MAX];   /* the pass over a residual of the same format; negative: none */
    double one_seconds[FGP_BENCH_ROUNDS_MAX];   /* the call with one thread, when threads > 1 */
    size_t rounds;
    uint32_t block;
    double k;           /* entries per block */
    double bytes;       /* moved by the call */
    double limit_bytes; /* moved by the baseline pass */
    double limit_count; /* baseline passes in the ratio: 1, or 2 dense additions */
    double frame_bytes;
    double energy_kept;
    double energy_vs_exact;
    char why[200]; /* failed check; empty if all passed */
    char note[80]; /* a remark */
} fgp_row;

/** Time and verify one case. Returns an exit code, after an error message if it could not run. */
int fgp_bench_compress(fgp_bench *bench, const fgp_case *which, fgp_row *row);
int fgp_bench_tensor(fgp_bench *bench, const fgp_case *which, fgp_row *row);
int fgp_bench_decode(fgp_bench *bench, const fgp_case *which, fgp_row *row);
int fgp_bench_check(fgp_bench *bench, const fgp_case *which, fgp_row *row);

/** dst = beta * dst + src: two reads and a write per element, the memory traffic of compressing with an f32 residual.
 */
void fgp_stream_pass(float *dst, float beta, const float *src, uint64_t n, int threads);

/** The same for a residual in another format, of which dst has room for n. */
void fgp_stream_stored_pass(void *dst, fgp_store store, const float *src, uint64_t n, int threads);

/* ---- one compressor and its frame ------------------------------------------------ */

typedef struct fgp_bench_worker {
    frug_config *config;
    frug_layout *layout;
    frug_compressor *compressor;
    unsigned char *frame;
    size_t cap;
    size_t len;
} fgp_bench_worker;

/** Create a compressor for n elements in one tensor. Returns an exit code, after an error message. */
int fgp_worker_open(fgp_bench_worker *worker, const char *config, uint64_t n, int threads);

/** The same for a matrix; elements that do not fill a row are a second tensor. columns 0: one row. */
int fgp_worker_open_matrix(fgp_bench_worker *worker, const char *config, uint64_t n, uint32_t columns, int threads);

void fgp_worker_close(fgp_bench_worker *worker);

/** Compress one step into worker->frame. Returns an exit code, after an error message. */
int fgp_worker_step(fgp_bench_worker *worker, uint64_t step, const float *grad);

/* ---- bench_print.c ----------------------------------------------------------------- */

void fgp_bench_print_head(const fgp_bench *bench);
int fgp_bench_print_row(const fgp_bench *bench, const fgp_case *which, const fgp_row *row);

#endif
