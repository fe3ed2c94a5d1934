/*
 * experimental.h - parameter servers and gossip. May change or go in any release.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_EXPERIMENTAL_H
#define FRUGRAD_EXPERIMENTAL_H

#include <frugrad/reduce.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- parameter servers: push gradients, pull changed weights ------------------- */

/**
 * Run a server. The first ranks of the group, as many as the option servers says, each own a shard of the weights; the
 * others are workers (frug_client). Returns when every worker has left or timed out.
 *
 *   weights   the whole flat buffer; only the server's shard is read and changed. Workers start from it
 *
 * With staleness=0 a step is applied when the gradients of all live workers have arrived, summed in rank order:
 * weights = (1 - decay) weights - rate / workers * sum. Every worker then applies the same bits, whatever the order of
 * arrival. With staleness=N each gradient is applied on arrival, divided by the number of live workers, and a worker
 * may be N steps ahead of the slowest; the result depends on the order of arrival, but servers and workers still apply
 * the same bits in the same order.
 *
 * A worker that sends nothing for longer than the comm's timeout, or sends invalid data, is dropped with a warning in
 * the log, and the others continue. It may return with a higher epoch. The timeout must be longer than a worker's step.
 *
 * Memory: a float and a number per parameter of the shard beside the weights, and the frames in flight. Returns
 * FRUG_ERR_ARG, FRUG_ERR_CONFIG, FRUG_ERR_MEMORY, FRUG_ERR_COMM (no worker left properly).
 */
FRUG_CHECK frug_status frug_server_run(const frug_config *config, const frug_layout *layout,
                                       const frug_compressor_options *options, frug_comm *comm, float *weights);

typedef struct frug_client frug_client;

/**
 * Create a worker's client: a compressor with an empty residual, registered with all servers.
 *
 *   epoch     0, and higher each time the same rank returns after a failure
 *   weights   receive the servers' current weights
 *   comm      owned by the caller; must outlive the client
 *
 * Config, layout and total_steps must equal those of the servers. Returns FRUG_ERR_ARG, FRUG_ERR_CONFIG,
 * FRUG_ERR_MEMORY, FRUG_ERR_REMOTE (a server refuses; the message has the reason), FRUG_ERR_COMM.
 */
FRUG_CHECK frug_status frug_client_create(const frug_config *config, const frug_layout *layout,
                                          const frug_compressor_options *options, frug_comm *comm, uint64_t epoch,
                                          float *weights, frug_client **client);
FRUG_API void frug_client_destroy(frug_client *client);

/** The step that the servers expected when the client was created: where a returning worker continues. */
FRUG_API uint64_t frug_client_start(const frug_client *client);

/**
 * Compress a whole gradient and send it to the servers.
 *
 *   rate    learning rate; the servers divide by the number of workers. With staleness=0 the lowest rank's rate counts
 *   decay   learning rate times weight decay
 *
 * Each push is followed by a pull. Pushing a step again sends the same frames, and servers that have them ignore them.
 * After an error other than FRUG_ERR_ARG destroy the client and create one with a higher epoch.
 */
FRUG_CHECK frug_status frug_client_push(frug_client *client, uint64_t step, const float *grad, double rate,
                                        double decay);

/** Wait until the last pushed step is complete, and apply what has changed since the last pull. */
FRUG_CHECK frug_status frug_client_pull(frug_client *client, float *weights);

/** Leave the group, so that no server waits for this worker. */
FRUG_CHECK frug_status frug_client_leave(frug_client *client);

/** The client's compressor, to set signals or to read statistics. */
FRUG_API frug_compressor *frug_client_compressor(frug_client *client);

/** Totals since creation; seconds_wait is the time spent in pulls. */
FRUG_API frug_status frug_client_stats(const frug_client *client, frug_reduce_stats *stats);

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
