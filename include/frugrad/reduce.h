/*
 * reduce.h - groups of workers, the sum of their gradients, and a model of what an exchange costs.
 *
 *   frug_comm_threads(4, comms);                                    or frug_comm_mpi() of frugrad/mpi.h
 *   frug_reducer_create(config, layout, NULL, comm, &reducer);      each worker
 *   frug_reducer_sum(reducer, step, all, grad, 1.0 / workers);      each worker, each step
 *
 * If a rank fails, it returns its error and every other rank FRUG_ERR_REMOTE naming it; no rank waits longer than the
 * timeout.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_REDUCE_H
#define FRUGRAD_REDUCE_H

#include <frugrad/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- groups of workers -------------------------------------------------- */

/** A message in flight: `bytes` bytes at `data` from or to a peer. A transport keeps its own data in `handle`. */
typedef struct frug_message {
    int peer;
    int tag;     /* messages between two ranks with the same tag arrive in the order in which they were posted */
    int sending; /* 1: to the peer; 0: from the peer, which sends exactly as many bytes */
    void *data;
    size_t bytes;
    void *handle;
    int done;
} frug_message;

/**
 * A transport. Threads and MPI (frugrad/mpi.h) are built in; any other is a table like this one.
 * Functions return FRUG_OK or an error; only `wait`, `allreduce` and `exchange` may block.
 */
typedef struct frug_transport {
    size_t struct_size; /* sizeof(frug_transport) */
    const char *name;
    int any_thread; /* 1: may be called from any thread, one at a time; 0: only from the thread that created it */
    frug_status (*post)(void *ctx, frug_message *message);     /* start; data must stay valid until it is done */
    frug_status (*test)(void *ctx, frug_message *message);     /* set done if it is */
    frug_status (*wait)(void *ctx, double seconds);            /* until something may have changed; or NULL */
    frug_status (*allreduce)(void *ctx, float *x, uint64_t n); /* sum over all ranks, in place; or NULL */
    void (*abandon)(void *ctx, frug_message *message);         /* cancel one that will not complete; or NULL */
    void (*destroy)(void *ctx);                                /* or NULL */
    /* Of some messages, skip those that are done, start those that are not posted yet (handle is NULL), and wait until
     * all are complete; or NULL. For a transport that cannot tell without blocking whether a message is complete: it
     * has this in place of test. Without post too, a bucket is exchanged in one frame, not in chunks. */
    frug_status (*exchange)(void *ctx, frug_message *messages, size_t n);
    int threads; /* of each rank's reducer, where its options and OMP_NUM_THREADS give none; 0: all cores */
} frug_transport;

typedef struct frug_comm frug_comm;

/** A group of one rank. */
FRUG_CHECK frug_status frug_comm_self(frug_comm **comm);

/** A group whose ranks are threads of this process: one handle each, comms[0 .. size - 1]. One thread uses each handle;
 *  the group exists until the last handle is destroyed. */
FRUG_CHECK frug_status frug_comm_threads(int size, frug_comm **comms);

/** A group over any transport, as seen by one rank. On FRUG_OK the comm owns ctx. */
FRUG_CHECK frug_status frug_comm_create(const frug_transport *transport, void *ctx, int rank, int size,
                                        frug_comm **comm);
FRUG_API void frug_comm_destroy(frug_comm *comm);

FRUG_API int frug_comm_rank(const frug_comm *comm);
FRUG_API int frug_comm_size(const frug_comm *comm);
FRUG_API const char *frug_comm_transport(const frug_comm *comm);

/** How long a rank waits for others before it fails with FRUG_ERR_COMM; 60 seconds by default. A wait begins again with
 *  each message that is complete, so it must be longer than the longest message takes. */
FRUG_API frug_status frug_comm_set_timeout(frug_comm *comm, double seconds);

/** Send bytes to another rank, which receives as many. Messages between two ranks arrive in order. Not while a reducer
 *  of this group has buckets in flight. Returns FRUG_ERR_ARG, FRUG_ERR_COMM. */
FRUG_CHECK frug_status frug_comm_send(frug_comm *comm, int peer, const void *data, size_t bytes);
FRUG_CHECK frug_status frug_comm_receive(frug_comm *comm, int peer, void *data, size_t bytes);

/** Start a message to or from another rank and return; its tag is 0 to 7. Tag, done and handle are changed here: set
 *  the tag again to post the struct again. The struct and its data must stay valid until a wait for it returns. On an
 *  error nothing was started. Otherwise as frug_comm_send().
 */
FRUG_CHECK frug_status frug_comm_post(frug_comm *comm, frug_message *message);

/** Wait until some messages that were posted are complete. On an error those that are not are given up. */
FRUG_CHECK frug_status frug_comm_wait(frug_comm *comm, frug_message *messages, size_t n);

/** All-gather of `bytes` bytes from every rank, in rank order: all has size * bytes. Collective. For short data,
 * because every rank sends to every other. Otherwise as frug_comm_send(). */
FRUG_CHECK frug_status frug_comm_allgather(frug_comm *comm, const void *mine, size_t bytes, void *all);

/* ---- the sum over all workers -------------------------------------------- */

typedef struct frug_reducer frug_reducer;

/**
 * Create one rank's reducer: a compressor and the algorithm that the option reduce names.
 *
 *   options   as of frug_compressor_create(); source is set to the rank
 *   comm      owned by the caller; must outlive the reducer
 *
 * The options transform and local say what the trainers and hooks do around a reducer; it ignores them.
 *
 * Collective: every rank calls it with the same config, layout and total_steps. If they differ, or the library's
 * version does, or creation fails on one of them, every rank returns an error. Allocates here and while buffers grow
 * in the first steps. Returns FRUG_ERR_REMOTE, FRUG_ERR_CONFIG, FRUG_ERR_ARG, FRUG_ERR_MEMORY, FRUG_ERR_COMM.
 */
FRUG_CHECK frug_status frug_reducer_create(const frug_config *config, const frug_layout *layout,
                                           const frug_compressor_options *options, frug_comm *comm,
                                           frug_reducer **reducer);
FRUG_API void frug_reducer_destroy(frug_reducer *reducer);

/**
 * Compress this rank's gradient, exchange, and add the scaled sum of what all ranks sent:
 * dst[i] += scale * (rank 0's [i] + rank 1's [i] + ...). Every rank adds the same bits.
 *
 * Collective, in the same order of steps and ranges on every rank; range and grad as in frug_compress(). If a rank
 * fails, it returns its error and every other rank FRUG_ERR_REMOTE naming it. After an error the range of dst may be
 * partly changed, and residuals may lack what was selected for this step: restore the state of the compressor before
 * the step is repeated, or lose that. With reduce=dense nothing is compressed, so a NaN gets into the sum.
 * Threads: one call at a time per reducer. Also returns FRUG_ERR_ARG, FRUG_ERR_COMM.
 */
FRUG_CHECK frug_status frug_reducer_add(frug_reducer *reducer, uint64_t step, frug_range range, const float *grad,
                                        double scale, float *dst);

/** The same as one SGD step; rate, decay and weights as in frug_decode_apply(). Not for feedback=ef21. */
FRUG_CHECK frug_status frug_reducer_apply(frug_reducer *reducer, uint64_t step, frug_range range, const float *grad,
                                          double rate, double decay, float *weights);

/** The same in place: grad becomes scale * (rank 0's + rank 1's + ...); gaps between tensors are not changed. */
FRUG_CHECK frug_status frug_reducer_sum(frug_reducer *reducer, uint64_t step, frug_range range, float *grad,
                                        double scale);

/**
 * Take part in an exchange as a rank that has failed before it: for a caller that has no gradient and must not let the
 * others wait. They return FRUG_ERR_REMOTE naming this rank and `why`. Collective, in place of one of the calls above.
 * Returns FRUG_ERR_ARG, with `why` as the error text.
 */
FRUG_CHECK frug_status frug_reducer_fail(frug_reducer *reducer, uint64_t step, frug_range range, const char *why);

/** A bucket to exchange in the background: a range of the gradient, and what to do with the sum. */
typedef struct frug_bucket {
    size_t struct_size; /* sizeof(frug_bucket), set by FRUG_BUCKET_INIT */
    uint64_t step;
    frug_range range;
    float *grad;        /* grad[0] is element range.begin; must stay valid until the bucket is done */
    float *weights;     /* as frug_reducer_apply() with rate and decay; NULL: as frug_reducer_sum() with scale */
    double rate, decay; /* with weights */
    double scale;       /* without */
    /* Called when the bucket is done, in the order of submission, on the reducer's thread; or NULL. Must not call the
     * reducer. After an error all buckets that wait complete with the same status. */
    void (*done)(void *ctx, const struct frug_bucket *bucket, frug_status status);
    void *ctx;
} frug_bucket;

#define FRUG_BUCKET_INIT                                                                                               \
    { sizeof(frug_bucket), 0, {0, 0}, NULL, NULL, 0, 0, 1, NULL, NULL }

/**
 * Start the exchange of a bucket and return. Compression, exchange and update run on a thread of the reducer, in the
 * order of the calls. The struct is copied.
 *
 * Blocks while four buckets are in flight, which bounds the memory. Over a transport with any_thread 0 (MPI below
 * MPI_THREAD_SERIALIZED) the bucket is exchanged before the call returns; over MPI at MPI_THREAD_SERIALIZED the caller
 * must not call MPI until frug_reducer_finish(). Errors are returned by frug_reducer_finish(); buckets behind a failed
 * one are dropped on this rank, and the other ranks detect it at their next exchange.
 */
FRUG_CHECK frug_status frug_reducer_submit(frug_reducer *reducer, const frug_bucket *bucket);

/** Wait until all submitted buckets are done. Between submit and finish nothing else of the reducer may be used. */
FRUG_CHECK frug_status frug_reducer_finish(frug_reducer *reducer);

/** The reducer's compressor, to save and restore its state or to read its statistics. */
FRUG_API frug_compressor *frug_reducer_compressor(frug_reducer *reducer);

/** Name of the algorithm in use ("gather", ...). */
FRUG_API const char *frug_reducer_algorithm(const frug_reducer *reducer);

typedef struct frug_reduce_stats {
    size_t struct_size; /* sizeof(frug_reduce_stats), set by the caller */
    uint64_t calls;
    uint64_t bytes_sent, bytes_received; /* payload, without what the transport adds */
    double seconds_compress;
    double seconds_wait;   /* for other ranks to reach the same point */
    double seconds_wire;   /* for payloads */
    double seconds_decode; /* check, sum and apply */
    double seconds_total;
    double seconds_blocked; /* of the submitting thread, in submit and finish */
} frug_reduce_stats;

/** Totals since creation. */
FRUG_API frug_status frug_reducer_stats(const frug_reducer *reducer, frug_reduce_stats *stats);

#define FRUG_BUCKETS_KNOWN 64

/** Statistics of one exchange: a bucket or a call. */
typedef struct frug_bucket_stats {
    size_t struct_size; /* sizeof(frug_bucket_stats), set by the caller */
    uint64_t step;
    frug_range range;
    frug_reduce_stats stats; /* of this exchange alone */
} frug_bucket_stats;

/** Statistics of one of the last FRUG_BUCKETS_KNOWN exchanges: 0 is the latest. FRUG_ERR_ARG if there is none. Summing
 *  and applying are one pass, so seconds_decode has both. */
FRUG_API frug_status frug_reducer_bucket(const frug_reducer *reducer, size_t back, frug_bucket_stats *bucket);

/* ---- cost model ------------------------------------------------------------ */

/** Where training would run, and what a worker would send. Seconds and bytes; bandwidths in bytes per second. */
typedef struct frug_cost_inputs {
    size_t struct_size; /* sizeof(frug_cost_inputs), set by FRUG_COST_INPUTS_INIT */
    uint64_t params;
    uint32_t workers;
    uint32_t per_node;                   /* workers that share a node (reduce=nodes); divides workers */
    uint32_t servers;                    /* workers that also serve (reduce=server) */
    double latency, bandwidth;           /* of a message between two workers; of one worker, each direction */
    double node_latency, node_bandwidth; /* the same inside a node */
    double density;                      /* share of the entries that a worker sends */
    double payload;                      /* bytes of a worker's frame */
    double down;         /* split, server: entries of a sum that are sent on, in multiples of density; 0: all */
    double payload_down; /* bytes of frames with that many entries; 0: down * payload */
    double compress;     /* seconds per parameter: accumulate, select and encode */
    double decode;       /* seconds per parameter: the pass over the destination */
    double decode_frame; /* seconds per parameter and frame: scan it */
    double decode_entry; /* seconds per entry: add it */
    double compute;      /* seconds of a step without any exchange */
    int overlap;         /* buckets are exchanged during the backward pass */
} frug_cost_inputs;

/* One worker on one node, one server, no latency, bandwidths of 1, density 1, everything else 0. */
#define FRUG_COST_INPUTS_INIT                                                                                          \
    { sizeof(frug_cost_inputs), 0, 1, 1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** What a step would cost. */
typedef struct frug_cost_estimate {
    size_t struct_size;                /* sizeof(frug_cost_estimate), set by the caller */
    double bytes_sent, bytes_received; /* per worker, on average, without what the transport adds */
    double bytes_busiest;              /* one direction, of the worker that all others wait for */
    double rounds;                     /* messages that depend on each other */
    double seconds_compress;
    double seconds_wire;
    double seconds_decode;
    double seconds_exposed; /* of the wire: not hidden by computing or by work on other buckets */
    double seconds_step;    /* compute + compress + decode + exposed */
    double speedup;         /* over the step with reduce=dense */
} frug_cost_estimate;

/** Name of the i-th algorithm that can be predicted ("dense", "gather", ...), or NULL past the end. */
FRUG_API const char *frug_cost_algorithm_at(size_t i);

/** Predict a step with an algorithm. docs/scaling.md has the formulas; unions assume independent supports. Never
 *  allocates. Returns FRUG_ERR_ARG for an unknown name and for impossible numbers. */
FRUG_CHECK frug_status frug_cost_predict(const char *algorithm, const frug_cost_inputs *inputs,
                                         frug_cost_estimate *estimate);

#ifdef __cplusplus
}
#endif

#endif
