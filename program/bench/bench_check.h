/*
 * bench_check.h - what must hold after a step, checked through the public API.
 *
 *   frugi_check_open(&check, config, n)
 *   frugi_check_before(&check, c)      keeps what was left behind so far
 *   frug_compress(c, ...)
 *   frugi_check_after(&check, c, grad, frame, len, &verdict)
 *
 * Counts are checked in every block, everything else in 64 stretches of 16384 elements. Of methods that do not pick the
 * largest of every block, the frame and the sum of what is sent and left behind are checked.
 */
#ifndef FRUGI_BENCH_CHECK_H
#define FRUGI_BENCH_CHECK_H

#include "frugrad.h"

#define FRUGI_CHECK_CHUNK  16384u
#define FRUGI_CHECK_CHUNKS 64u

typedef enum frugi_keep {
    FRUGI_KEEP_MERGED,
    FRUGI_KEEP_PLAIN,
    FRUGI_KEEP_DGC,
    FRUGI_KEEP_NONE,
    FRUGI_KEEP_EF21
} frugi_keep;
typedef enum frugi_store { FRUGI_STORE_INT8, FRUGI_STORE_INT4, FRUGI_STORE_BF16, FRUGI_STORE_F32 } frugi_store;
typedef enum frugi_masked { FRUGI_MASKED_AUTO, FRUGI_MASKED_ON, FRUGI_MASKED_OFF } frugi_masked;

/** What a config says, as far as the checks need it; words are numbered as in its option table. */
typedef struct frugi_rule {
    uint32_t block;
    int blocks;    /* the largest of every block are sent */
    int exact;     /* and exactly these */
    int known;     /* what accumulates can be told from outside */
    int rounded;   /* values travel so coarsely that sent + left behind may be off by a rounding of their sum */
    int uncounted; /* what it sends does not show: elements may be sent twice, in parts, or as -0 */
    frugi_keep keep;
    frugi_store store;
    frugi_masked mask;
    float beta;
    float momentum;
} frugi_rule;

typedef struct frugi_check {
    frugi_rule rule;
    uint64_t n;
    uint32_t chunks;
    uint64_t begin[FRUGI_CHECK_CHUNKS];
    uint64_t count[FRUGI_CHECK_CHUNKS];
    float *before;   /* what was left behind, chunk after chunk */
    float *momentum; /* feedback=dgc: its momentum buffer, followed from the first step on */
    int follows;     /* whether it still is */
    float *decoded;  /* n; -0 where nothing was sent */
    float *scratch;  /* three chunks */
} frugi_check;

typedef struct frugi_verdict {
    char why[200];          /* what does not hold; empty when all does */
    uint64_t entries;       /* sent in all */
    double density;         /* as the frame says */
    double energy_kept;     /* of the accumulated energy, how much was picked; negative when it is not known */
    double energy_vs_exact; /* of what the largest as many would have */
} frugi_verdict;

/** Read a config. Returns 0, or -1 if its text has an unknown form. */
int frugi_rule_of(const frug_config *config, frugi_rule *rule);

/** Bytes that an element's residual takes in memory: 0 without feedback, twice with feedback=dgc. */
double frugi_rule_residual_bytes(const frugi_rule *rule);

/** Returns 0, or -1 without memory. Close it in either case. */
int frugi_check_open(frugi_check *check, const frug_config *config, uint64_t n);
void frugi_check_close(frugi_check *check);

/** Before a step that will be checked. Steps in between may go unchecked; feedback=dgc is then no longer followed. */
frug_status frugi_check_before(frugi_check *check, const frug_compressor *compressor);

/**
 * After it: exactly K sent in every block; with select=exact the largest, ties to the lower place; with
 * select=hist at least 99 % of their energy; sent + left behind == accumulated, bit for bit or
 * within the step of the residual's format. verdict->why says what fails.
 */
frug_status frugi_check_after(frugi_check *check, frug_compressor *compressor, const float *grad, const void *frame,
                              size_t len, frugi_verdict *verdict);

/** Whether an element that was -0 before decoding was mentioned by a frame. */
int frugi_was_sent(float decoded);

/** See that exactly k elements of x were sent, as they are: the largest, of equals the first. why is empty or says. */
void frugi_check_whole(const float *x, const float *decoded, uint64_t n, uint64_t k, char *why, size_t cap);

/** Some steps passed without these calls. */
void frugi_check_skipped(frugi_check *check);

#endif
