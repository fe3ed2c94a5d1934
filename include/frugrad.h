/*
 * frugrad.h - send a few percent of a gradient, keep the rest for later.
 *
 * The three objects of this library:
 *
 *   frug_config      what to do, parsed from one string ("frugrad,value=int8")
 *   frug_layout      the tensors of a flat parameter buffer
 *   frug_compressor  the state of one worker for one layout: what it has not sent yet
 *
 * One step of data-parallel training with P workers and any transport:
 *
 *   frug_compress(c, step, 0, n, grad, frame, cap, &len);     each worker
 *   ... exchange the frames (all-gather) ...
 *   frug_apply(c, frames, lens, P, lr / P, 0, 0, n, weights);  each worker
 *
 * The library never prints, exits or aborts. Functions return FRUG_OK or a
 * negative frug_status; output parameters are written only on FRUG_OK.
 * There is no global state but the log callback.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_H
#define FRUGRAD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FRUG_API __attribute__((visibility("default")))
#else
#define FRUG_API
#endif

/* ---- version, status, log ---------------------------------------------- */

#define FRUG_VERSION_MAJOR 0
#define FRUG_VERSION_MINOR 2
#define FRUG_VERSION_PATCH 0

/** The version of the library in use, as "major.minor.patch". */
FRUG_API const char *frug_version(void);

typedef enum frug_status {
    FRUG_OK = 0,
    FRUG_ERR_ARG = -1,          /* a null pointer, a range outside the layout, ... */
    FRUG_ERR_MEMORY = -2,       /* the system has no memory left */
    FRUG_ERR_CONFIG = -3,       /* the config string or FRUG_ISA is not understood */
    FRUG_ERR_SHORT_BUFFER = -4, /* the destination has less room than the bound */
    FRUG_ERR_FORMAT = -5,       /* received bytes break the wire format */
    FRUG_ERR_CHECKSUM = -6,     /* received bytes were damaged on the way */
    FRUG_ERR_VERSION = -7,      /* received bytes come from an unknown version */
    FRUG_ERR_MISMATCH = -8,     /* sound bytes, but for another layout or config */
    FRUG_ERR_REMOTE = -9,       /* another worker failed, or workers disagree; all of them get this */
    FRUG_ERR_COMM = -10,        /* the transport failed, or a worker has not been heard of for too long */
    FRUG_ERR_DEVICE = -11       /* a GPU, or its driver, failed */
} frug_status;

/** One short English phrase for a status. Never NULL. */
FRUG_API const char *frug_status_text(frug_status status);

/**
 * Why the last failing call of this thread failed, as one sentence.
 *
 * Empty before the first failure. Valid until this thread's next failing call.
 */
FRUG_API const char *frug_last_error(void);

/**
 * Bytes of memory that this library holds in this process, and the most it has held; either may be NULL.
 * What a transport such as MPI takes for itself is not in it. Since 0.2.
 */
FRUG_API void frug_memory(uint64_t *now, uint64_t *peak);

typedef enum frug_log_level { FRUG_LOG_ERROR = 0, FRUG_LOG_WARN = 1, FRUG_LOG_INFO = 2 } frug_log_level;

typedef void frug_log_fn(void *ctx, frug_log_level level, const char *message);

/**
 * Install the function that receives log messages; NULL (the default) drops them.
 *
 * An error is logged once, where it is first noticed.
 * Threads: install before other calls; fn may then be called from any thread.
 */
FRUG_API void frug_set_log(frug_log_fn *fn, void *ctx);

/**
 * Name of the i-th instruction-set variant that runs on this CPU, best last
 * ("ref", "neon", ...); NULL past the end.
 */
FRUG_API const char *frug_isa_at(size_t i);

/**
 * Name of the variant in use: the best one, or the one FRUG_ISA names in the
 * environment. NULL when FRUG_ISA names one that does not run here.
 */
FRUG_API const char *frug_isa(void);

/* ---- configuration ------------------------------------------------------ */

/** One row of the option table: what the parser, the help and the man page read. */
typedef struct frug_option {
    const char *name;
    const char *values;   /* the accepted words or numbers */
    const char *fallback; /* what holds when the string does not mention it */
    const char *help;
} frug_option;

/** A named config string. */
typedef struct frug_preset {
    const char *name;
    const char *text;
    const char *help;
} frug_preset;

/** The i-th option, or NULL past the end. */
FRUG_API const frug_option *frug_option_at(size_t i);

/** The i-th preset, or NULL past the end. */
FRUG_API const frug_preset *frug_preset_at(size_t i);

typedef struct frug_config frug_config;

/**
 * Parse a config string: [preset][,option=value]...
 *
 *   "frugrad"   "frugrad,schedule=constant:0.99,value=int8"   "residual=f32"
 *
 * A word that is not known gets FRUG_ERR_CONFIG; frug_last_error() then gives
 * its position and the nearest known word. Later options win over earlier ones.
 *
 * Threads: a config is immutable and may be shared. Cost: O(length). Since 0.1.
 */
FRUG_API frug_status frug_config_create(const char *text, frug_config **config);

/**
 * The same for an optimiser that is known by its text, as "merged" or "adam-merged:beta2=0.95": the preset "frugrad"
 * then is the one that was measured best with it, "frugrad-adam" where the text begins with "adam" and "frugrad-sgd"
 * elsewhere. Options behind it win as ever, and texts that name another preset or none mean what they say. Since 0.2.
 */
FRUG_API frug_status frug_config_create_for(const char *text, const char *optimizer, frug_config **config);

FRUG_API void frug_config_destroy(frug_config *config);

/**
 * The config with every option spelled out, as a string that parses to itself.
 * Owned by the config.
 */
FRUG_API const char *frug_config_text(const frug_config *config);

/* ---- layout ------------------------------------------------------------- */

/** What a tensor is for; methods that treat layers differently go by it. */
typedef enum frug_role {
    FRUG_ROLE_OTHER = 0,
    FRUG_ROLE_CONV,
    FRUG_ROLE_LINEAR,
    FRUG_ROLE_EMBEDDING,
    FRUG_ROLE_ATTN_Q,
    FRUG_ROLE_ATTN_K,
    FRUG_ROLE_ATTN_V,
    FRUG_ROLE_ATTN_O,
    FRUG_ROLE_NORM,
    FRUG_ROLE_BIAS,
    FRUG_ROLE_ATTN_QKV /* queries, keys and values of all heads in one tensor, one kind after the other */
} frug_role;

/** The name of a role ("conv", "attn_q", ...), or NULL if there is none such. */
FRUG_API const char *frug_role_name(frug_role role);

#define FRUG_MAX_DIMS 8
#define FRUG_APPEND   UINT64_MAX

typedef struct frug_tensor {
    size_t struct_size; /* sizeof(frug_tensor), set by FRUG_TENSOR_INIT */
    const char *name;
    frug_role role;
    uint32_t ndim;                 /* 0 (a scalar) to FRUG_MAX_DIMS */
    uint64_t shape[FRUG_MAX_DIMS]; /* row-major, the last one runs fastest */
    uint64_t offset;               /* first element in the flat buffer; FRUG_APPEND = after the last tensor */
    uint32_t heads;                /* attention heads of queries; 0: unknown, or no attention */
    uint32_t kv_heads;             /* heads of keys and values (grouped queries); 0: as many as heads */
    uint32_t module;               /* tensors of one attention module share a number other than 0 */
    uint32_t input_first;          /* 1: stored (in, out) as by GPT-2; 0: (out, in) as by PyTorch's Linear */
} frug_tensor;

#define FRUG_TENSOR_INIT                                                                                               \
    { sizeof(frug_tensor), NULL, FRUG_ROLE_OTHER, 0, {0}, FRUG_APPEND, 0, 0, 0, 0 }

typedef struct frug_layout frug_layout;

FRUG_API frug_status frug_layout_create(frug_layout **layout);
FRUG_API void frug_layout_destroy(frug_layout *layout);

/**
 * Add the next tensor of the flat buffer. The name is copied.
 *
 * Tensors come in rising offset and do not overlap; gaps are allowed and never
 * touched. Returns FRUG_ERR_ARG for a missing name, too many dimensions, a size
 * beyond 2^48 elements or an overlap; FRUG_ERR_MEMORY.
 */
FRUG_API frug_status frug_layout_add(frug_layout *layout, const frug_tensor *tensor);

/** A layout of one two-dimensional tensor of n elements, for buffers without structure. */
FRUG_API frug_status frug_layout_flat(uint64_t n, frug_layout **layout);

/** Number of tensors. */
FRUG_API size_t frug_layout_count(const frug_layout *layout);

/** Length of the flat buffer: one past the last tensor's last element. */
FRUG_API uint64_t frug_layout_elements(const frug_layout *layout);

/** Describe tensor i, offset filled in; the name stays owned by the layout. */
FRUG_API frug_status frug_layout_get(const frug_layout *layout, size_t i, frug_tensor *tensor);

/* ---- compressor --------------------------------------------------------- */

typedef struct frug_options {
    size_t struct_size;   /* sizeof(frug_options), set by FRUG_OPTIONS_INIT */
    int threads;          /* 0: as many as OpenMP would use */
    uint64_t total_steps; /* length of training, for schedules; 0: schedules stand at their end */
    uint32_t source;      /* this worker's rank, recorded in its frames */
} frug_options;

#define FRUG_OPTIONS_INIT                                                                                              \
    { sizeof(frug_options), 0, 0, 0 }

typedef struct frug_compressor frug_compressor;

/**
 * Make the compressor of one worker. The layout and the config are copied.
 *
 *   options   NULL for the defaults
 *
 * Tensors of one dimension or below the option min_size travel dense.
 * Memory: for every compressed parameter the bytes of the option residual
 * (4, 2, 1.01 or 0.51; twice with feedback=dgc or ef21; none with feedback=none).
 * Methods other than top-k within blocks of single entries look at whole tensors
 * and take more: 4 bytes for every compressed parameter unless residual is f32
 * (with feedback=none touched only when a gradient is clipped or holds a NaN), 1
 * with feedback=dgc, 8 for every unit that can leave at a step (12 with
 * rule=probabilistic), 8 for every unit of several entries, 9 more for every unit
 * with rule=learned.
 *
 * Threads: one compressor per thread; it uses options->threads itself.
 * Allocates: here and nowhere later. Returns FRUG_ERR_ARG, FRUG_ERR_CONFIG
 * (FRUG_ISA), FRUG_ERR_MEMORY. Since 0.1.
 */
FRUG_API frug_status frug_compressor_create(const frug_config *config, const frug_layout *layout,
                                            const frug_options *options, frug_compressor **compressor);

FRUG_API void frug_compressor_destroy(frug_compressor *compressor);

/**
 * The most bytes frug_compress() can write for a range, at any step.
 *
 *   begin, count   a range of the flat buffer: it starts at the first element of
 *                  a tensor or a multiple of the block length into it, and ends
 *                  likewise or at the end of a tensor
 *
 * Returns FRUG_ERR_ARG for a range that cuts a block or leaves the layout.
 */
FRUG_API frug_status frug_compressor_bound(const frug_compressor *compressor, uint64_t begin, uint64_t count,
                                           size_t *bytes);

/**
 * Fold one gradient range into what was left behind, pick what leaves now, and
 * write it as one frame.
 *
 *   step   the optimiser step, from 0; drives the schedule and the rounding
 *   grad   element begin of the flat gradient, so that a bucket needs no whole
 *          gradient around it; count floats
 *   dst    a dst of frug_compressor_bound() bytes cannot fail for room
 *   *len   bytes written
 *
 * Call once per range and step, the ranges of a step in any order. The option clip
 * goes by the norm of the range; so does the option norm, unless the compressor is
 * told the norm of the whole (FRUG_SIGNAL_NORM), which a step of several ranges
 * needs, because the last one is what the next step compares with. A block with
 * a NaN or an infinity is held back, and the frame and the statistics count it:
 * its gradient counts for nothing. Top-k within blocks of single entries then
 * sends zeros and leaves what was left behind as it was; other methods let that
 * compete with the rest. On an error nothing of the compressor has changed.
 *
 * Deterministic: same inputs, same bytes, for any thread count and variant.
 * Threads: one call at a time per compressor. Allocates: never. Cost: one pass
 * over count elements. Returns FRUG_ERR_ARG, FRUG_ERR_SHORT_BUFFER. Since 0.1.
 */
FRUG_API frug_status frug_compress(frug_compressor *compressor, uint64_t step, uint64_t begin, uint64_t count,
                                   const float *grad, void *dst, size_t cap, size_t *len);

/**
 * Add the scaled sum of several workers' frames to a dense range:
 * dst[i] += scale * (frames[0][i] + frames[1][i] + ...), summed in that order.
 *
 *   frames, lens   count_frames frames of one range; untrusted, checked whole
 *                  before the first element of dst changes
 *   begin, count   the range that dst covers; every frame must lie inside it
 *
 * The frames carry their own codes: only the layout must be the same as the
 * sender's. An element that no frame mentions keeps its bits.
 *
 * Deterministic, as frug_compress(). Threads: as there. Allocates: only when
 * given more frames than ever before. Returns FRUG_ERR_ARG, FRUG_ERR_FORMAT,
 * FRUG_ERR_CHECKSUM, FRUG_ERR_VERSION, FRUG_ERR_MISMATCH (another layout, or
 * frames that cut the range differently), FRUG_ERR_MEMORY. Since 0.1.
 */
FRUG_API frug_status frug_decompress_add(frug_compressor *compressor, const void *const *frames, const size_t *lens,
                                         size_t count_frames, float scale, uint64_t begin, uint64_t count, float *dst);

/**
 * One step of stochastic gradient descent straight from the frames:
 * w[i] = w[i] * (1 - decay) - rate * (frames[0][i] + frames[1][i] + ...).
 *
 *   rate    learning rate over the number of workers
 *   decay   learning rate times weight decay; 0 leaves unmentioned weights' bits
 *
 * Everything else as frug_decompress_add(). Since 0.1.
 */
FRUG_API frug_status frug_apply(frug_compressor *compressor, const void *const *frames, const size_t *lens,
                                size_t count_frames, float rate, float decay, uint64_t begin, uint64_t count,
                                float *weights);

/** What a caller may know that a compressor cannot see. */
typedef enum frug_signal {
    FRUG_SIGNAL_NORM,        /* one number: the norm of the whole gradient, the same on all workers (norm=...) */
    FRUG_SIGNAL_SENSITIVITY, /* one number for a tensor: what compressing it costs (layers=sensitivity) */
    FRUG_SIGNAL_HEADS        /* one number per head of a tensor's module: attention entropy, gradient times output,
                                or any other importance (score=given) */
} frug_signal;

/**
 * Tell the compressor something before a step; it holds until it is told again.
 *
 *   tensor          number in the layout; ignored by FRUG_SIGNAL_NORM
 *   values, count   finite numbers that are not negative; FRUG_SIGNAL_HEADS takes one per head (per group of
 *                   heads that share keys and values)
 *
 * For workers to send alike they must be told alike. Returns FRUG_ERR_ARG, also for
 * what the config has no use for. Since 0.2.
 */
FRUG_API frug_status frug_compressor_tell(frug_compressor *compressor, frug_signal signal, size_t tensor,
                                          const double *values, size_t count);

/** What a step would send of one tensor. */
typedef struct frug_plan {
    size_t struct_size;      /* sizeof(frug_plan), set by the caller */
    int dense;               /* the tensor travels whole */
    const char *unit;        /* "element", "row", ... */
    uint64_t unit_h, unit_w; /* elements of a unit, down and across */
    uint64_t units;
    uint64_t segments; /* competitions; 0: the tensor competes with others */
    uint64_t kept;     /* units to be sent; what rule=threshold and rule=probabilistic send depends on the data */
    double density;    /* of the schedule, with all that changes it */
} frug_plan;

/** Say what a step would send of tensor i. Returns FRUG_ERR_ARG. Since 0.2. */
FRUG_API frug_status frug_compressor_plan(const frug_compressor *compressor, uint64_t step, size_t tensor,
                                          frug_plan *plan);

/** Bytes that frug_compressor_save() writes. */
FRUG_API size_t frug_compressor_state_size(const frug_compressor *compressor);

/**
 * Write all that a later run needs to go on bit for bit: what was left behind,
 * what was learned and the sensitivities that were told. The norm and the weights
 * of heads, where the caller tells them, are to be told again.
 * Returns FRUG_ERR_ARG, FRUG_ERR_SHORT_BUFFER.
 */
FRUG_API frug_status frug_compressor_save(const frug_compressor *compressor, void *dst, size_t cap, size_t *len);

/**
 * Take up a saved state. The bytes are untrusted; on an error the compressor is
 * as it was. Returns FRUG_ERR_ARG, FRUG_ERR_FORMAT, FRUG_ERR_CHECKSUM,
 * FRUG_ERR_VERSION, FRUG_ERR_MISMATCH (another layout, block, feedback or
 * residual format).
 */
FRUG_API frug_status frug_compressor_restore(frug_compressor *compressor, const void *src, size_t len);

/**
 * Replace what a range has left behind, as far as the residual's format can say it: src has what
 * frug_compressor_residual() would give. With feedback=dgc the momentum of the range becomes zero.
 * So residuals can be handed on to other workers. Dense tensors and feedback=none ignore it.
 * Returns FRUG_ERR_ARG, also for NaN and infinities. Since 0.2.
 */
FRUG_API frug_status frug_compressor_put_residual(frug_compressor *compressor, uint64_t begin, uint64_t count,
                                                  const float *src);

/**
 * Copy what a range has left behind into dst, as floats. A dense tensor and
 * feedback=none leave zeros. begin and count as in frug_compress().
 */
FRUG_API frug_status frug_compressor_residual(const frug_compressor *compressor, uint64_t begin, uint64_t count,
                                              float *dst);

typedef struct frug_stats {
    size_t struct_size;      /* sizeof(frug_stats), set by the caller */
    uint64_t calls;          /* frug_compress() calls */
    uint64_t bytes_sent;     /* frame bytes written */
    uint64_t bytes_dense;    /* what f32 gradients of the same ranges would take */
    uint64_t entries_sent;   /* gradient entries written */
    uint64_t entries_seen;   /* gradient entries read */
    uint64_t blocks_held;    /* blocks held back for a NaN or an infinity */
    double density_now;      /* entries sent / seen in the last call */
    double density_mean;     /* the same over all calls */
    double energy_kept_now;  /* sent / accumulated energy (sum of squares) in the last call */
    double energy_kept_mean; /* the same over all calls */
    double seconds_feedback; /* read, accumulate and mark candidates; thread time */
    double seconds_select;
    double seconds_encode;
    double seconds_store;    /* put back what stays */
    double seconds_checksum; /* wall time */
    double seconds_compress; /* wall time of frug_compress() */
    double seconds_decode;   /* wall time of frug_decompress_add() and frug_apply() */
} frug_stats;

/**
 * Totals since creation. With stats=sample (the default) energy and stage times
 * are estimates from one batch of blocks in 64 of each tensor; with stats=full they are exact.
 */
FRUG_API frug_status frug_compressor_stats(const frug_compressor *compressor, frug_stats *stats);

/* ---- workers: who there is, and how bytes get from one to another --------------- */

/** A message on its way: `bytes` bytes at `data` from or to a peer. A transport keeps what it needs in `handle`. */
typedef struct frug_message {
    int peer;
    int tag;     /* messages between two workers with the same tag arrive in the order they were posted */
    int sending; /* 1: to the peer, 0: from the peer, which sends exactly as many bytes */
    void *data;
    size_t bytes;
    void *handle;
    int done;
} frug_message;

/**
 * What a transport can do. MPI (frugrad_mpi.h) and threads come with the library; another one is a table like this.
 * Functions return FRUG_OK or an error; none may block but `wait` and `exchange`.
 */
typedef struct frug_transport {
    size_t struct_size; /* sizeof(frug_transport) */
    const char *name;
    int any_thread; /* 1: may be called from any thread, one at a time; 0: only from the one that made it */
    frug_status (*post)(void *ctx, frug_message *message);     /* start it; data stays until it is done */
    frug_status (*test)(void *ctx, frug_message *message);     /* set done if it is */
    frug_status (*wait)(void *ctx, double seconds);            /* until something may have changed; or NULL */
    frug_status (*allreduce)(void *ctx, float *x, uint64_t n); /* sum over all workers, in place; or NULL */
    void (*abandon)(void *ctx, frug_message *message);         /* forget one that will not be done; or NULL */
    void (*destroy)(void *ctx);                                /* or NULL */
    /* Start all of some messages and wait until they are complete; or NULL. A transport that can only block has this
     * and neither post nor test: a bucket is then exchanged in one frame, not in chunks. Since 0.2. */
    frug_status (*exchange)(void *ctx, frug_message *messages, size_t n);
} frug_transport;

typedef struct frug_comm frug_comm;

/** A group of one. */
FRUG_API frug_status frug_comm_self(frug_comm **comm);

/**
 * A group of workers that are threads of this process: one handle each, comms[0 .. size - 1].
 * Each is used by one thread; the group lives until the last handle is destroyed.
 */
FRUG_API frug_status frug_comm_threads(int size, frug_comm **comms);

/** A group over any transport, seen from one of its workers. On FRUG_OK the comm owns ctx. */
FRUG_API frug_status frug_comm_create(const frug_transport *transport, void *ctx, int rank, int size, frug_comm **comm);
FRUG_API void frug_comm_destroy(frug_comm *comm);

/** For the makers of transports: have frug_last_error() say why, log it, and return status. The text is copied. */
FRUG_API frug_status frug_transport_fail(frug_status status, const char *why);

FRUG_API int frug_comm_rank(const frug_comm *comm);
FRUG_API int frug_comm_size(const frug_comm *comm);
FRUG_API const char *frug_comm_transport(const frug_comm *comm);

/**
 * How long a worker waits for others before it gives up with FRUG_ERR_COMM; 60 seconds unless set.
 * A worker that has been killed is noticed after that time at the latest.
 */
FRUG_API frug_status frug_comm_set_deadline(frug_comm *comm, double seconds);

/**
 * Bytes from one worker to another; the other calls the opposite with as many. Messages between two workers arrive in
 * order. Not while a reducer of this group has buckets under way. Returns FRUG_ERR_ARG, FRUG_ERR_COMM. Since 0.2.
 */
FRUG_API frug_status frug_comm_send(frug_comm *comm, int peer, const void *data, size_t bytes);
FRUG_API frug_status frug_comm_receive(frug_comm *comm, int peer, void *data, size_t bytes);

/**
 * Everyone gets everyone's `bytes` bytes, in rank order: all has size * bytes. Collective, so it makes workers meet.
 * For short pieces: everyone sends to everyone. Otherwise as frug_comm_send().
 */
FRUG_API frug_status frug_comm_gather(frug_comm *comm, const void *mine, size_t bytes, void *all);

/* ---- reduce: the sum over all workers ------------------------------------------ */

typedef struct frug_reducer frug_reducer;

/**
 * Make one worker's end of an exchange: a compressor, and the algorithm that the config's option reduce names.
 *
 *   options   as of frug_compressor_create(); the source is the worker's rank
 *   comm      stays the caller's and must outlive the reducer
 *
 * Collective: all workers of the group call it, with the same config, layout and total_steps; where they differ, or the
 * library's version does, every worker gets FRUG_ERR_REMOTE and the same words. Allocates: here and while
 * buffers grow in the first steps. Since 0.2.
 */
FRUG_API frug_status frug_reducer_create(const frug_config *config, const frug_layout *layout,
                                         const frug_options *options, frug_comm *comm, frug_reducer **reducer);
FRUG_API void frug_reducer_destroy(frug_reducer *reducer);

/**
 * Compress this worker's gradient, exchange, and add the scaled sum of what all workers sent:
 * dst[i] += scale * (worker 0's [i] + worker 1's [i] + ...). All workers add the same bits.
 *
 * Collective, step by step and range by range in the same order; begin, count and grad as in frug_compress().
 * A worker that fails tells the others instead of leaving them waiting: they get FRUG_ERR_REMOTE, which names it.
 * After an error the range of dst may have been changed in part.
 *
 * Threads: one call at a time per reducer. Returns also FRUG_ERR_COMM. Since 0.2.
 */
FRUG_API frug_status frug_reduce_add(frug_reducer *reducer, uint64_t step, uint64_t begin, uint64_t count,
                                     const float *grad, float scale, float *dst);

/** The same as a step of stochastic gradient descent; rate, decay and weights as in frug_apply(). */
FRUG_API frug_status frug_reduce_apply(frug_reducer *reducer, uint64_t step, uint64_t begin, uint64_t count,
                                       const float *grad, float rate, float decay, float *weights);

/** The same in place: grad becomes scale * (worker 0's + worker 1's + ...); gaps between tensors stay as they are. */
FRUG_API frug_status frug_reduce_sum(frug_reducer *reducer, uint64_t step, uint64_t begin, uint64_t count, float *grad,
                                     float scale);

/**
 * Take part in an exchange as a worker that has failed before it: for a caller that has no gradient to give and must
 * not leave the others waiting. They get FRUG_ERR_REMOTE with this worker's rank and `why`. Collective, in place of one
 * of the calls above. Returns FRUG_ERR_ARG, with `why` as the error text. Since 0.2.
 */
FRUG_API frug_status frug_reduce_fail(frug_reducer *reducer, uint64_t step, uint64_t begin, uint64_t count,
                                      const char *why);

/** A bucket to hand over: a range of the gradient, and what is to become of the sum. */
typedef struct frug_bucket {
    size_t struct_size; /* sizeof(frug_bucket), set by FRUG_BUCKET_INIT */
    uint64_t step, begin, count;
    float *grad;       /* element begin; the reducer's until the bucket is done */
    float *weights;    /* element begin: as frug_reduce_apply() with rate and decay; NULL: as frug_reduce_sum() */
    float rate, decay; /* with weights */
    float scale;       /* without */
    /* Called when the bucket is done, in the order of hand-over, on the reducer's thread; or NULL. It must not call the
     * reducer. status is that of the bucket: after an error those that wait are dropped with the same one. */
    void (*done)(void *ctx, const struct frug_bucket *bucket, frug_status status);
    void *ctx;
} frug_bucket;

#define FRUG_BUCKET_INIT                                                                                               \
    { sizeof(frug_bucket), 0, 0, 0, NULL, NULL, 0, 0, 1, NULL, NULL }

/**
 * Hand over a bucket as backward finishes it, and go on computing: compression, exchange and what becomes of the sum
 * happen on a thread of the reducer's own, in the order of the calls.
 *
 * Waits while four buckets are on their way, so memory in flight is bounded. The bucket itself is copied. Over a
 * transport that may only be called from one thread (any_thread is 0: MPI below MPI_THREAD_SERIALIZED) the bucket is
 * reduced at once; over MPI at MPI_THREAD_SERIALIZED the caller must not call MPI until the finish. Errors come from
 * frug_reducer_finish(); buckets behind one that failed are dropped on this worker, and the others notice at their next
 * exchange. Since 0.2.
 */
FRUG_API frug_status frug_reducer_submit(frug_reducer *reducer, const frug_bucket *bucket);

/** Wait until all buckets handed over are done. Between submit and finish nothing else of the reducer may be used. */
FRUG_API frug_status frug_reducer_finish(frug_reducer *reducer);

/** The reducer's compressor, to save and restore its state or to look at its statistics. */
FRUG_API frug_compressor *frug_reducer_compressor(frug_reducer *reducer);

/** The name of the algorithm in use ("gather", ...). */
FRUG_API const char *frug_reducer_algorithm(const frug_reducer *reducer);

typedef struct frug_reduce_stats {
    size_t struct_size; /* sizeof(frug_reduce_stats), set by the caller */
    uint64_t calls;
    uint64_t bytes_sent, bytes_received; /* payload, without what the transport adds */
    double seconds_compress;
    double seconds_wait;   /* for other workers to come to the same point */
    double seconds_wire;   /* for payloads */
    double seconds_decode; /* check, sum and apply */
    double seconds_total;
    double seconds_blocked; /* of the thread that hands over buckets, waiting in submit and finish */
} frug_reduce_stats;

/** Totals since creation. */
FRUG_API frug_status frug_reducer_stats(const frug_reducer *reducer, frug_reduce_stats *stats);

#define FRUG_BUCKETS_KNOWN 64

/** One exchange: a bucket handed over, or a call. */
typedef struct frug_bucket_stats {
    size_t struct_size; /* sizeof(frug_bucket_stats), set by the caller */
    uint64_t step, begin, count;
    frug_reduce_stats stats; /* of this exchange alone */
} frug_bucket_stats;

/**
 * How one of the last FRUG_BUCKETS_KNOWN exchanges went: 0 is the latest. Returns FRUG_ERR_ARG where there is none.
 * Adding up and applying are one pass, so decode has both.
 */
FRUG_API frug_status frug_reducer_bucket(const frug_reducer *reducer, size_t back, frug_bucket_stats *bucket);

/* ---- optimisers: what becomes of a sum -------------------------------------------- */

/** One kind of optimiser and what may stand behind its name. */
typedef struct frug_optimizer_kind {
    const char *name;
    const char *options; /* "momentum=0.9,nesterov=0,decay=0": names and what holds unless given */
    const char *help;
} frug_optimizer_kind;

/** The i-th kind, or NULL past the end. */
FRUG_API const frug_optimizer_kind *frug_optimizer_at(size_t i);

typedef struct frug_optimizer frug_optimizer;

/**
 * Make an optimiser: name[:option=value[,option=value]...].
 *
 *   layout       the tensors, copied
 *   compressor   tells which tensors travel whole (they get ordinary states where the others' momentum lives in the
 *                residual), and how dense what arrives will be (inertia=auto). NULL: none travels whole. Only
 *                looked at here
 *
 * Allocates: here and nowhere later. Returns FRUG_ERR_ARG, FRUG_ERR_CONFIG (a word that is not known, and the nearest
 * one that is), FRUG_ERR_MEMORY. Since 0.2.
 */
FRUG_API frug_status frug_optimizer_create(const char *text, const frug_layout *layout,
                                           const frug_compressor *compressor, frug_optimizer **optimizer);
FRUG_API void frug_optimizer_destroy(frug_optimizer *optimizer);

/** The optimiser with every option spelled out, as a text that makes the same one. */
FRUG_API const char *frug_optimizer_text(const frug_optimizer *optimizer);

/**
 * Change the weights of one range by the mean gradient of all workers.
 *
 *   step      from 0; the same for all ranges of a step, each range once per step
 *   grad      element begin; the mean over the workers, with zeros where nothing arrived
 *   rate      learning rate of this step, in the terms of the ordinary optimiser: a merged one multiplies it by its
 *             gain
 *   weights   element begin
 *
 * A range begins and ends at a tensor or a multiple of 256 elements into one, whatever the compressor's block length;
 * within a tensor only where frug_optimizer_cuts() says so. A tensor moved as a whole is held back as a whole.
 * A block of 256 whose gradient holds a NaN, an infinity or a magnitude from 2^63 on is held back, weights and states.
 * Deterministic: a function of the calls, so all workers stay the same.
 * Threads: one call at a time. Allocates: never. Returns FRUG_ERR_ARG. Since 0.2.
 */
FRUG_API frug_status frug_optimizer_step(frug_optimizer *optimizer, uint64_t step, uint64_t begin, uint64_t count,
                                         const float *grad, double rate, float *weights);

/**
 * Say which step comes next. A velocity (inertia=auto) that no step from there on needs is let go, as the first such
 * step would do: so what is saved before a step and what goes on from there are of one size. Since 0.2.
 */
FRUG_API frug_status frug_optimizer_seek(frug_optimizer *optimizer, uint64_t step);

/** What a merged optimiser multiplies the rate by; 1 for others. */
FRUG_API double frug_optimizer_gain(const frug_optimizer *optimizer);

/**
 * Whether a range may end within a tensor: 1, or 0 for one that the optimiser looks at as a whole. Then a range that
 * cuts it is refused. Since 0.2.
 */
FRUG_API int frug_optimizer_cuts(const frug_optimizer *optimizer, size_t tensor);

/**
 * How many numbers the optimiser keeps about gradients: two a parameter for AdamW, 2 kappa s a tensor for sgc.
 * Bases, factors, places and scales are not counted; frug_optimizer_state_size() has everything. Since 0.2.
 */
FRUG_API uint64_t frug_optimizer_states(const frug_optimizer *optimizer);

/**
 * What a worker has to hand over of its gradient of a range at a step, in floats. A tensor that stands still takes
 * none; a target of sgc, mesgc and cesgc takes 2 kappa s measurements, but at the steps at which its basis or its
 * shares are renewed, and all else takes the gradient itself. Ranges as in frug_optimizer_step(); 0 for one that is
 * refused there. Which steps renew is read from the state: ask before the step is made. Since 0.2.
 */
FRUG_API uint64_t frug_optimizer_wants(const frug_optimizer *optimizer, uint64_t step, uint64_t begin, uint64_t count);

/**
 * Measure a worker's own gradient of a range: what frug_optimizer_wants() counts, tensor by tensor in the order of the
 * layout; of a target that is measured, measurements of the gradient and then of its squares, chunk by chunk.
 *
 * Workers add up what this writes, divide by their number and go on with frug_optimizer_step_measured(). Means of
 * measurements of gradients are exact; those of squares are means over the workers' squares, no less than the square
 * of the mean gradient. A gradient that would be held back is measured as NaN, so that all workers hold it back; one
 * that is handed over as it is gets judged by the mean.
 *
 *   grad       element begin
 *   measured   room for frug_optimizer_wants() floats; may be NULL where that is 0
 *
 * Does not change the optimiser's state. Deterministic. Threads: one call at a time. Allocates: never. Returns
 * FRUG_ERR_ARG. Since 0.2.
 */
FRUG_API frug_status frug_optimizer_measure(frug_optimizer *optimizer, uint64_t step, uint64_t begin, uint64_t count,
                                            const float *grad, float *measured);

/**
 * Change the weights of one range by the mean of all workers' measurements. With one worker, measuring and then this
 * gives the bits that frug_optimizer_step() gives. Measurements are not trusted: a target with a NaN, an infinity or a
 * magnitude from 2^109 on among its own is held back. Since 0.2.
 */
FRUG_API frug_status frug_optimizer_step_measured(frug_optimizer *optimizer, uint64_t step, uint64_t begin,
                                                  uint64_t count, const float *measured, double rate, float *weights);

/** Where an optimiser's time went since it was made; of those that look at whole tensors. */
typedef struct frug_optimizer_times {
    size_t struct_size;     /* sizeof(frug_optimizer_times), set by the caller */
    double seconds_project; /* bases, projections, selections and measurements */
    double seconds_recover; /* from measurements back to entries; table: looking entries up and letting them go */
    double seconds_apply;   /* all else: means and weights */
} frug_optimizer_times;

/** Totals since creation, of steps and measuring; 0 for kinds that look at no tensor whole. Since 0.2. */
FRUG_API frug_status frug_optimizer_time(const frug_optimizer *optimizer, frug_optimizer_times *times);

/** State out and in, as with compressors: bit for bit, untrusted bytes, unchanged on an error. */
FRUG_API size_t frug_optimizer_state_size(const frug_optimizer *optimizer);
FRUG_API frug_status frug_optimizer_save(const frug_optimizer *optimizer, void *dst, size_t cap, size_t *len);
FRUG_API frug_status frug_optimizer_restore(frug_optimizer *optimizer, const void *src, size_t len);

/* ---- parameter servers: push gradients, pull what all have changed ---------------- */

/**
 * Serve: the first ranks of the group, as many as the config's option servers says, each own a range of the weights;
 * the others are workers (frug_client). Returns when every worker has left or fallen silent.
 *
 *   weights   the whole flat buffer; only the server's own range of it is read and changed. Workers start from it
 *
 * With staleness=0 a step is applied when every live worker's gradient of it is there, summed in the order of ranks:
 * weights = (1 - decay) weights - rate / workers * sum. All workers then apply the same bits, and nothing depends on
 * who came first. With staleness=N each gradient is applied as it comes, divided by the number of live workers, and a
 * worker may be N steps ahead of the slowest; the result depends on the order of arrival, but servers and workers still
 * apply the same bits in the same order.
 *
 * A worker that is silent for longer than the comm's deadline, or sends what cannot be accepted, is dropped with a
 * warning in the log, and the others go on. It may come back with a higher epoch. So the deadline must be longer
 * than a step takes a worker to compute.
 *
 * Memory: a float and a number per parameter of the range beside the weights, and the frames under way. Returns
 * FRUG_ERR_ARG, FRUG_ERR_CONFIG, FRUG_ERR_MEMORY, FRUG_ERR_COMM (nobody has said goodbye). Since 0.2.
 */
FRUG_API frug_status frug_server_run(const frug_config *config, const frug_layout *layout, const frug_options *options,
                                     frug_comm *comm, float *weights);

typedef struct frug_client frug_client;

/**
 * Make a worker's end: a compressor with nothing left behind, known to all servers.
 *
 *   epoch     0, and higher each time the same rank comes back after a failure
 *   weights   get the servers' current ones, whole
 *   comm      stays the caller's and must outlive the client
 *
 * Config, layout and total_steps must be those of the servers. Returns FRUG_ERR_ARG, FRUG_ERR_CONFIG,
 * FRUG_ERR_MEMORY, FRUG_ERR_REMOTE (a server refuses, and why), FRUG_ERR_COMM. Since 0.2.
 */
FRUG_API frug_status frug_client_create(const frug_config *config, const frug_layout *layout,
                                        const frug_options *options, frug_comm *comm, uint64_t epoch, float *weights,
                                        frug_client **client);
FRUG_API void frug_client_destroy(frug_client *client);

/** The step that the servers wait for, when the client was made: where a worker that comes back goes on. */
FRUG_API uint64_t frug_client_start(const frug_client *client);

/**
 * Compress a whole gradient and hand it to the servers.
 *
 *   rate    learning rate; the servers divide by the number of workers. In step, the lowest rank's counts
 *   decay   learning rate times weight decay
 *
 * Each push is followed by a pull. Pushing a step again sends the same frames again, and servers that have them ignore
 * them. After an error but FRUG_ERR_ARG the client is of no more use: destroy it and make one with a higher epoch.
 */
FRUG_API frug_status frug_client_push(frug_client *client, uint64_t step, const float *grad, float rate, float decay);

/** Wait until the step that was pushed last may be left behind, and apply what has changed since the last pull. */
FRUG_API frug_status frug_client_pull(frug_client *client, float *weights);

/** Say goodbye, so that nobody waits for this worker any more. */
FRUG_API frug_status frug_client_leave(frug_client *client);

/** The client's compressor, to tell it something or to look at its statistics. */
FRUG_API frug_compressor *frug_client_compressor(frug_client *client);

/** Totals since creation; seconds_wait is the time spent in pulls. */
FRUG_API frug_status frug_client_stats(const frug_client *client, frug_reduce_stats *stats);

/* ---- gossip: workers that talk to neighbours only ------------------------------- */

typedef struct frug_gossip frug_gossip;

/**
 * Make one worker's end of compressed gossip (CHOCO-SGD). The config's options topology, gamma and average_every say
 * who talks to whom, how far a worker moves towards its neighbours, and how often all are averaged; all that selects
 * and encodes holds as well, but nothing is left behind (as with feedback=none): what has not been sent is still the
 * difference to what the neighbours know.
 *
 *   start   the weights that all workers start from, so that they need not be sent; NULL: neighbours know nothing yet
 *   comm    stays the caller's and must outlive the gossip
 *
 * Collective: all workers call it with the same config, layout, total_steps and start; where they differ, all get
 * FRUG_ERR_REMOTE. Memory: three floats per parameter. Allocates: here and while buffers grow in the first steps.
 * Returns FRUG_ERR_CONFIG for a graph that this group cannot form, and for rule=random and rule=probabilistic, which
 * send more than there is; the config may say reduce=gossip, and need not. Since 0.2.
 */
FRUG_API frug_status frug_gossip_create(const frug_config *config, const frug_layout *layout,
                                        const frug_options *options, frug_comm *comm, const float *start,
                                        frug_gossip **gossip);
FRUG_API void frug_gossip_destroy(frug_gossip *gossip);

/**
 * Tell the neighbours how the weights have changed, hear the same from them, and move towards them. Call it after each
 * local step of the optimiser; the mean over all workers stays as it is.
 *
 * All workers call it step by step. A worker that fails tells its neighbours, they tell theirs at the next step, and so
 * on: all get an error, and the gossip has ended. Weights are changed only on FRUG_OK.
 *
 * Deterministic: same inputs on all workers, same bits. Threads: one call at a time. Returns FRUG_ERR_ARG,
 * FRUG_ERR_REMOTE, FRUG_ERR_COMM, and the errors of frug_decompress_add(). Since 0.2.
 */
FRUG_API frug_status frug_gossip_step(frug_gossip *gossip, uint64_t step, float *weights);

/** The gossip's compressor, to look at its statistics. Since 0.2. */
FRUG_API frug_compressor *frug_gossip_compressor(frug_gossip *gossip);

/** Totals since creation; an average over all counts as a ring would send it. */
FRUG_API frug_status frug_gossip_stats(const frug_gossip *gossip, frug_reduce_stats *stats);

/* ---- predict: what an exchange would cost ----------------------------------- */

/** Where training would run, and what a worker would send. Seconds and bytes; a bandwidth is in bytes a second. */
typedef struct frug_scene {
    size_t struct_size; /* sizeof(frug_scene), set by FRUG_SCENE_INIT */
    uint64_t params;
    uint32_t workers;
    uint32_t per_node;                   /* workers that share a node (nodes); divides workers */
    uint32_t servers;                    /* workers that also serve (server) */
    double latency, bandwidth;           /* of a message between two workers; of one worker, each way at once */
    double node_latency, node_bandwidth; /* the same inside a node */
    double density;                      /* share of the entries that a worker sends */
    double payload;                      /* bytes of a worker's frame */
    double down;         /* split, server: what is handed on of a sum, in multiples of density; 0: all of it */
    double payload_down; /* bytes of frames with that many entries; 0: down * payload */
    double compress;     /* seconds a parameter: accumulate, select and encode */
    double decode;       /* seconds a parameter: the pass over what is added to */
    double decode_frame; /* seconds a parameter and frame: look through it */
    double decode_entry; /* seconds an entry: add it */
    double compute;      /* of a step, without any exchange */
    int overlap;         /* buckets travel while the backward pass goes on */
} frug_scene;

#define FRUG_SCENE_INIT                                                                                                \
    { sizeof(frug_scene), 0, 1, 1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/** What a step would cost. */
typedef struct frug_forecast {
    size_t struct_size;                /* sizeof(frug_forecast), set by the caller */
    double bytes_sent, bytes_received; /* of a worker, on average, without what the transport adds */
    double bytes_busiest;              /* one way, of the worker that all others wait for */
    double rounds;                     /* messages that must wait for one another */
    double seconds_compress;
    double seconds_wire;
    double seconds_decode;
    double seconds_exposed; /* of the wire: what computing, and working on other chunks, do not hide */
    double seconds_step;    /* compute + compress + decode + exposed */
    double speedup;         /* over the step with algorithm dense */
} frug_forecast;

/** The name of the i-th algorithm that can be predicted ("dense", "gather", ...), or NULL past the end. */
FRUG_API const char *frug_predictable_at(size_t i);

/**
 * Predict a step with an algorithm. docs/scaling.md has the formulas; unions are those of independent supports.
 *
 * Deterministic; allocates: never. Cost: some hundred operations. Returns FRUG_ERR_ARG for an unknown name and for
 * numbers that cannot be. Since 0.2.
 */
FRUG_API frug_status frug_predict(const char *algorithm, const frug_scene *scene, frug_forecast *forecast);

/* ---- looking into a frame ----------------------------------------------- */

typedef struct frug_frame_info {
    size_t struct_size; /* sizeof(frug_frame_info), set by the caller */
    uint32_t version;
    uint32_t source;
    uint64_t step;
    uint64_t layout_hash;
    uint64_t bytes;
    uint64_t begin;    /* first element of the flat buffer the frame covers */
    uint64_t count;    /* from there to the last one covered */
    uint64_t entries;  /* gradient entries inside */
    uint32_t sections; /* frug_frame_section() takes 0 .. sections - 1 */
    uint32_t held;     /* blocks held back by the sender */
} frug_frame_info;

#define FRUG_INDEX_CODES 8

typedef struct frug_section_info {
    size_t struct_size; /* sizeof(frug_section_info), set by the caller */
    const char *index;  /* "none", "local", "bitmap", "coo", "csr", "rle", "rice", "seeded" */
    const char *value;  /* "f32", "bf16", "f16", "int8", "int4", "sign", "two_bit", "qsgd", "onebit" */
    uint32_t block;     /* elements per block; 0 in a section by units */
    uint32_t tensor;    /* number of the (first) tensor in the layout */
    uint64_t begin;
    uint64_t count;
    uint64_t entries;
    uint64_t bytes;          /* of the section with its header */
    double density;          /* as the schedule set it; of a section by units, the share of entries sent */
    uint64_t unit_h, unit_w; /* elements of a unit, down and across; 1 and 1 in a section by blocks */
    uint64_t units, kept;    /* how many there are and how many were sent */
    /* Bytes that the same places would take in each index code, in the order of frug_index_code_at();
     * UINT64_MAX where the code cannot say them. */
    uint64_t index_bytes[FRUG_INDEX_CODES];
} frug_section_info;

/** The name of the i-th index code ("none", "local", ...), or NULL past FRUG_INDEX_CODES. */
FRUG_API const char *frug_index_code_at(size_t i);

/**
 * Check a frame whole (structure, lengths, checksum, indices) and describe it.
 * Returns FRUG_ERR_ARG, FRUG_ERR_FORMAT, FRUG_ERR_CHECKSUM, FRUG_ERR_VERSION.
 */
FRUG_API frug_status frug_frame_check(const void *frame, size_t len, frug_frame_info *info);

/** Describe section i of a frame that frug_frame_check() has passed. */
FRUG_API frug_status frug_frame_section(const void *frame, size_t len, uint32_t i, frug_section_info *info);

/** A number that two layouts share only if their tensors have the same names, shapes and offsets. */
FRUG_API uint64_t frug_layout_hash(const frug_layout *layout);

#ifdef __cplusplus
}
#endif

#endif
