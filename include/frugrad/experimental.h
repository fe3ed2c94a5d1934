/*
 * experimental.h - gossip. May change or go in any release.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_EXPERIMENTAL_H
#define FRUGRAD_EXPERIMENTAL_H

#include <frugrad/reduce.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- gossip: exchange with neighbors only ----------------------------------------- */

typedef struct frug_gossip frug_gossip;

/**
 * Create one worker's end of compressed gossip (CHOCO-SGD). The options topology, gamma and average_every set who the
 * neighbors are, how far a worker moves toward them, and how often all workers are averaged. Selection and encoding are
 * those of the config, without a residual (as with feedback=none): what has not been sent is part of the difference to
 * what the neighbors know.
 *
 *   start   the weights that all workers start from, so that they need not be sent; NULL: neighbors know nothing yet
 *   comm    owned by the caller; must outlive the gossip
 *
 * Collective: every rank calls it with the same config, layout, total_steps and start; if they differ, every rank
 * returns FRUG_ERR_REMOTE. Memory: three floats per parameter. Allocates here and while buffers grow in the first
 * steps. Returns FRUG_ERR_CONFIG for a graph that this group cannot form, and for rule=random and rule=probabilistic,
 * which send scaled entries; the config may contain reduce=gossip.
 */
FRUG_CHECK frug_status frug_gossip_create(const frug_config *config, const frug_layout *layout,
                                          const frug_compressor_options *options, frug_comm *comm, const float *start,
                                          frug_gossip **gossip);
FRUG_API void frug_gossip_destroy(frug_gossip *gossip);

/**
 * Exchange compressed changes of the weights with the neighbors and move toward them. Call it after each local step of
 * the optimizer; the mean over all workers does not change.
 *
 * Every rank calls it step by step. A rank that fails notifies its neighbors, which notify theirs at the next step, and
 * so on: every rank returns an error, and the gossip has ended. Weights are changed only on FRUG_OK.
 *
 * Deterministic: same inputs on all ranks, same bits. Threads: one call at a time. Returns FRUG_ERR_ARG,
 * FRUG_ERR_REMOTE, FRUG_ERR_COMM, and the errors of frug_decode_add().
 */
FRUG_CHECK frug_status frug_gossip_step(frug_gossip *gossip, uint64_t step, float *weights);

/** The gossip's compressor, to read statistics. */
FRUG_API frug_compressor *frug_gossip_compressor(frug_gossip *gossip);

/** Totals since creation; an average over all workers counts as a ring would send it. */
FRUG_API frug_status frug_gossip_stats(const frug_gossip *gossip, frug_reduce_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
