/*
 * bench_check.h - what must hold after a step, checked through the public API.
 *
 *   fgp_check_open(&check, config, n)
 *   fgp_check_before(&check, c)      keeps what was left behind so far
 *   frug_compress(c, ...)
 *   fgp_check_after(&check, c, grad, frame, len, &verdict)
 *
 * Counts are checked in every block, everything else in 64 stretches of 16384 elements. Of methods that do not pick the
 * largest of every block, the frame and the sum of what is sent and left behind are checked.
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

/** What a config says, as far as the checks need it; words are numbered as in its option table. */
typedef struct fgp_rule {
    uint32_t block;
    int blocks;    /* the largest of every block are sent */
    int exact;     /* and exactly these */
    int known;     /* what accumulates can be told from outside */
    int rounded;   /* values travel so coarsely that sent + left behind may be off by a rounding of their sum */
    int uncounted; /* what it sends does not show: elements may be sent twice, in parts, or as -0 */
    fgp_check_record keep;
    fgp_store store;
    fgp_masked mask;
    float beta;
    float momentum;
} fgp_rule;

typedef struct fgp_check {
    fgp_rule rule;
    uint64_t n;
    uint32_t chunks;
    uint64_t begin[FGP_CHECK_CHUNKS];
    uint64_t count[FGP_CHECK_CHUNKS];
    float *before;   /* what was left behind, chunk after chunk */
    float *momentum; /* feedback=dgc: its momentum buffer, followed from the first step on */
    int follows;     /* whether it still is */
    float *decoded;  /* n; -0 where nothing was sent */
    float *scratch;  /* three chunks */
} fgp_check;

typedef struct fgp_verdict {
    char why[200];          /* what does not hold; empty when all does */
    uint64_t entries;       /* sent in all */
    double density;         /* as the frame says */
    double energy_kept;     /* of the accumulated energy, how much was picked; negative when it is not known */
    double energy_vs_exact; /* of what the largest as many would have */
} fgp_verdict;

/** Read a config. Returns 0, or -1 if its text has an unknown form. */
int fgp_rule_of(const frug_config *config, fgp_rule *rule);

/** Bytes that an element's residual takes in memory: 0 without feedback, twice with feedback=dgc. */
double fgp_rule_residual_bytes(const fgp_rule *rule);

/** Returns 0, or -1 without memory. Close it in either case. */
int fgp_check_open(fgp_check *check, const frug_config *config, uint64_t n);
void fgp_check_close(fgp_check *check);

/** Before a step that will be checked. Steps in between may go unchecked; feedback=dgc is then no longer followed. */
frug_status fgp_check_before(fgp_check *check, const frug_compressor *compressor);

/**
 * After it: exactly K sent in every block; with select=exact the largest, ties to the lower place; with
 * select=hist at least 99 % of their energy; sent + left behind == accumulated, bit for bit or
 * within the step of the residual's format. verdict->why says what fails.
 */
frug_status fgp_check_after(fgp_check *check, frug_compressor *compressor, const float *grad, const void *frame,
                            size_t len, fgp_verdict *verdict);

/** Whether an element that was -0 before decoding was mentioned by a frame. */
int fgp_was_sent(float decoded);

/** See that exactly k elements of x were sent, as they are: the largest, of equals the first. why is empty or says. */
void fgp_check_whole(const float *x, const float *decoded, uint64_t n, uint64_t k, char *why, size_t cap);

/** Some steps passed without these calls. */
void fgp_check_skipped(fgp_check *check);

#endif
