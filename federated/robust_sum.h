/*
 * robust_sum.h - the weighted mean of the updates of a round, so that a few clients cannot decide it.
 *
 *   mean   weights are the examples of the clients, each limited to FGF_EXAMPLES_LIMIT times their median
 *   clip   also, an update whose norm is above the median of all norms is scaled down to it
 *   trim   also, of the clients that sent an index, a share with the largest and one with the smallest values does not
 *          count there. The mean of the others has the weight of all that sent the index, as in the plain mean
 *
 * Updates are summed in the order of the clients' keys, whatever the order of arrival: same updates, same bits.
 */
#ifndef FGF_ROBUST_SUM_H
#define FGF_ROBUST_SUM_H

#include "federated/update_file.h"
#include "frugrad.h"

#define FGF_EXAMPLES_LIMIT 10.0
#define FGF_TRIM_ENTRIES   (UINT64_C(8) << 20)

typedef enum fgf_robust { FGF_ROBUST_MEAN, FGF_ROBUST_CLIP, FGF_ROBUST_TRIM } fgf_robust;

/** "mean", "clip", "trim", NULL. */
extern const char *const fgf_robust_names[];

/** How updates are summed. */
typedef struct fgf_sum_rule {
    fgf_robust robust;
    double trim;          /* the share that does not count at each end, below 0.5 */
    uint64_t entries_max; /* trim: entries of all updates that may be in memory at a time, eight bytes each */
    double stale_power;   /* an update that is s rounds old has the weight (1 + s) to the power of -stale_power */
} fgf_sum_rule;

/** The factors of an update in the sum. */
typedef struct fgf_share {
    double weight; /* of all updates together: 1 */
    double limit;  /* scales the update to the allowed norm; 1: it is within */
} fgf_share;

/** Computes the factors of all updates of a round. Returns -1 without memory. */
int fgf_sum_shares(const fgf_sum_rule *rule, uint64_t round, const fgf_update *updates, size_t count,
                   fgf_share *shares);

/** Loads the frame of an update: allocated, for the caller to free; NULL after setting the reason. */
typedef void *fgf_load_fn(void *ctx, const fgf_update *update, fgio_reason *why);

/** Writes the mean to count floats; for trim, scratch is as long. Memory: one frame at a time; for trim also what
 * entries_max allows. Returns -1 after setting the reason. */
int fgf_sum_updates(const fgf_sum_rule *rule, uint64_t round, const fgf_update *updates, size_t updates_count,
                    frug_decoder *decoder, fgf_load_fn *load, void *ctx, uint64_t count, float *scratch, float *mean,
                    fgio_reason *why);

/** Decodes a frame into count floats of scratch and computes its norm and its non-zeros. Returns -1 after setting the
 * reason: the frame is invalid, or a value or the norm is not finite. */
int fgf_sum_check(frug_decoder *decoder, const void *frame, size_t len, uint64_t step, uint64_t count, float *scratch,
                  double *norm, uint64_t *entries, fgio_reason *why);

#endif
