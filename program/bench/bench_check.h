/*
 * bench_check.h - checks of a compression step through the public API.
 *
 *   fgp_check_open(&check, config, n)
 *   fgp_check_before(&check, c)      saves the residual
 *   frug_compress(c, ...)
 *   fgp_check_after(&check, c, grad, frame, len, &result)
 *
 * Counts are checked in every block, everything else in 64 chunks of 16384 elements. Of methods that do not select the
 * largest of every block, the frame and the sum of sent entries and residual are checked.
 */
#ifndef FGP_BENCH_CHECK_H
#define FGP_BENCH_CHECK_H

#include "frugrad.h"

#define FGP_CHECK_CHUNK  16384u
#define FGP_CHECK_CHUNKS 64u

typedef enum fgp_check_record {
    FGP_KEEP_MERGED,
    FGP_KEEP_PLAIN,
    FGP_KEEP_DGC,
    FGP_KEEP_NONE,
    FGP_KEEP_EF21
} fgp_check_record;
typedef enum fgp_store { FGP_STORE_INT8, FGP_STORE_INT4, FGP_STORE_BF16, FGP_STORE_F32 } fgp_store;
typedef enum fgp_masked { FGP_MASKED_AUTO, FGP_MASKED_ON, FGP_MASKED_OFF } fgp_masked;

/** The options of a config that the checks need; enumerators are numbered as in the option table. */
typedef struct fgp_check_rule {
    uint32_t block;
    int blocks;    /* top-k of every block */
    int exact;     /* exact top-k */
    int known;     /* the accumulator can be computed from outside */
    int rounded;   /* values are quantized so coarsely that sent + residual may differ by a rounding of their sum */
    int uncounted; /* sent elements cannot be counted: they may be sent twice, in parts, or as -0 */
    fgp_check_record keep;
    fgp_store store;
    fgp_masked mask;
    float beta;
    float momentum;
} fgp_check_rule;

typedef struct fgp_check {
    fgp_check_rule rule;
    uint64_t n;
    uint32_t chunks;
    uint64_t begin[FGP_CHECK_CHUNKS];
    uint64_t count[FGP_CHECK_CHUNKS];
    float *before;      /* residual before the step, by chunks */
    float *momentum;    /* feedback=dgc: its momentum, computed along from the first step */
    int momentum_known; /* no step was skipped */
    float *decoded;     /* n; -0 where nothing was sent */
    float *scratch;     /* three chunks */
} fgp_check;

typedef struct fgp_check_result {
    char why[200];          /* failed check; empty if all passed */
    uint64_t entries;       /* sent in total */
    double density;         /* from the frame */
    double energy_kept;     /* share of the accumulator's energy that was sent; negative if unknown */
    double energy_vs_exact; /* over the energy of as many largest entries */
} fgp_check_result;

/** Parse a config. Returns 0, or -1 if its text has an unknown form. */
int fgp_check_rule_of(const frug_config *config, fgp_check_rule *rule);

/** Bytes of residual per element: 0 without feedback, twice with feedback=dgc. */
double fgp_check_residual_bytes(const fgp_check_rule *rule);

/** Returns 0, or -1 without memory. Close it in either case. */
int fgp_check_open(fgp_check *check, const frug_config *config, uint64_t n);
void fgp_check_close(fgp_check *check);

/** Call before a step that is checked. Other steps need no calls, but then the momentum of feedback=dgc is unknown. */
frug_status fgp_check_before(fgp_check *check, const frug_compressor *compressor);

/**
 * Call after it. Checks: exactly K sent in every block; with select=exact the largest, ties to the lower index; with
 * select=hist at least 99 % of their energy; sent + residual == accumulator, bit for bit or within one step of the
 * residual's format. result->why is the failed check.
 */
frug_status fgp_check_after(fgp_check *check, frug_compressor *compressor, const float *grad, const void *frame,
                            size_t len, fgp_check_result *result);

/** Whether an element that was -0 before decoding is in the frame. */
int fgp_was_sent(float decoded);

/** Check that exactly the k largest elements of x were sent unchanged, of equal ones the first. why: the failed check,
 * or "". */
void fgp_check_whole(const float *x, const float *decoded, uint64_t n, uint64_t k, char *why, size_t cap);

/** Steps were run without these calls. */
void fgp_check_skipped(fgp_check *check);

#endif
