/*
 * core.h - compress one worker's gradient into a frame, and add up the frames of all workers.
 *
 *   frug_config       what to do, parsed from one string ("frugrad,value=int8")
 *   frug_layout       the tensors of a flat parameter buffer
 *   frug_compressor   state of one worker for one layout: the residual
 *   frug_decoder      checks frames and adds them up; needs the layout only
 *
 * One step of data-parallel training with P workers and any transport:
 *
 *   frug_range all = {0, n};
 *   frug_compress(c, step, all, grad, frame, cap, &len);                                     each worker
 *   ... exchange the frames (all-gather) ...
 *   frug_decode_apply(frug_compressor_decoder(c), all, frames, lens, P, rate / P, 0, w);     each worker
 *
 * Rules of all headers: functions return FRUG_OK or a negative frug_status, and write output parameters only on
 * FRUG_OK. Arguments come in this order: object, step, range, inputs, outputs. Rates and scales are double. The library
 * never prints, exits or aborts. Its only global state is the log callback.
 *
 * A struct with a struct_size may grow at its end in a later release. Callers set struct_size to the sizeof that they
 * were compiled with (the *_INIT macros do): fields behind it are not touched and have their defaults.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_CORE_H
#define FRUGRAD_CORE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FRUG_API   __attribute__((visibility("default")))
#define FRUG_CHECK __attribute__((visibility("default"), warn_unused_result)) /* FRUG_API, and the status matters */
#else
#define FRUG_API
#define FRUG_CHECK
#endif

/* ---- version, status, log ---------------------------------------------- */

#define FRUG_VERSION_MAJOR 1
#define FRUG_VERSION_MINOR 0
#define FRUG_VERSION_PATCH 0

/** Version of the library in use, as "major.minor.patch". */
FRUG_API const char *frug_version(void);

typedef enum frug_status {
    FRUG_OK = 0,
    FRUG_ERR_ARG = -1,          /* a null pointer, a range outside the layout, ... */
    FRUG_ERR_MEMORY = -2,       /* an allocation failed */
    FRUG_ERR_CONFIG = -3,       /* bad config string, or bad FRUG_ISA in the environment */
    FRUG_ERR_SHORT_BUFFER = -4, /* the destination is shorter than the bound */
    FRUG_ERR_FORMAT = -5,       /* received bytes violate the format */
    FRUG_ERR_CHECKSUM = -6,     /* received bytes were damaged */
    FRUG_ERR_VERSION = -7,      /* received bytes have an unknown version */
    FRUG_ERR_MISMATCH = -8,     /* valid bytes, but for another layout or config */
    FRUG_ERR_REMOTE = -9,       /* another rank failed, or ranks disagree; the rank that failed returns its own error */
    FRUG_ERR_COMM = -10,        /* transport failure or timeout */
    FRUG_ERR_DEVICE = -11       /* the GPU or its driver failed */
} frug_status;

/** A short English phrase for a status. Never NULL. */
FRUG_API const char *frug_status_text(frug_status status);

/** Why the last failing call of this thread failed, as one sentence. "" before the first failure. Valid until the next
 *  failing call of this thread. */
FRUG_API const char *frug_last_error(void);

/** For transports and other libraries on top of this one: set frug_last_error() of this thread, log it, and return
 *  status. After post and test of a transport the library sets a text of its own. The text is copied; NULL stands for
 *  frug_status_text(status). */
FRUG_API frug_status frug_set_last_error(frug_status status, const char *text);

/** Bytes that the library has allocated in this process, now and at most; either may be NULL. What a transport such as
 *  MPI allocates itself is not counted. */
FRUG_API void frug_memory(uint64_t *now, uint64_t *peak);

typedef enum frug_log_level { FRUG_LOG_ERROR = 0, FRUG_LOG_WARN = 1, FRUG_LOG_INFO = 2 } frug_log_level;

typedef void frug_log_fn(void *ctx, frug_log_level level, const char *message);

/**
 * Install the function that receives log messages; NULL (the default) drops them. An error is logged once, where it is
 * detected. Threads: install before other calls; fn may then be called from any thread.
 */
FRUG_API void frug_set_log(frug_log_fn *fn, void *ctx);

/** Name of the i-th instruction-set variant that runs on this CPU, best last ("ref", "neon", ...); NULL past the end.
 */
FRUG_API const char *frug_isa_at(size_t i);

/** Name of the variant in use: the best, or the one that FRUG_ISA names in the environment; NULL if that cannot run. */
FRUG_API const char *frug_isa(void);

/* ---- configuration ------------------------------------------------------ */

/** One row of the option table, which the parser, the help and the man page share. */
typedef struct frug_option {
    const char *name;
    const char *values;   /* accepted words or numbers */
    const char *fallback; /* the default */
    const char *help;
} frug_option;

/** A named config string. */
typedef struct frug_preset {
    const char *name;
    const char *text;
    const char *help;
} frug_preset;

/** The i-th option or preset, or NULL past the end. */
FRUG_API const frug_option *frug_option_at(size_t i);
FRUG_API const frug_preset *frug_preset_at(size_t i);

typedef struct frug_config frug_config;

/**
 * Parse a config string: [preset][,option=value]...
 *
 *   "frugrad"   "frugrad,schedule=constant:0.99,value=int8"   "residual=f32"
 *
 * Later options win over earlier ones. FRUG_ERR_CONFIG for an unknown word: frug_last_error() then gives its position
 * and the nearest known word. A config is immutable and may be shared between threads.
 */
FRUG_CHECK frug_status frug_config_create(const char *text, frug_config **config);

/**
 * The same for a given optimizer, such as "merged" or "adam-merged:beta2=0.95". The preset "frugrad" is then
 * "frugrad-adam" if the optimizer's name begins with "adam", "frugrad-muon" if it begins with "muon", and "frugrad-sgd"
 * otherwise. Other texts are unaffected.
 */
FRUG_CHECK frug_status frug_config_create_for(const char *text, const char *optimizer, frug_config **config);

FRUG_API void frug_config_destroy(frug_config *config);

/** The config with every option spelled out; parses to itself. Owned by the config. */
FRUG_API const char *frug_config_text(const frug_config *config);

/** Value of one option as text, as in frug_config_text(); NULL if there is no such option. Owned by the config. */
FRUG_API const char *frug_config_get(const frug_config *config, const char *option);

/* ---- layout ------------------------------------------------------------- */

/** Elements begin .. begin + count - 1 of the flat buffer. */
typedef struct frug_range {
    uint64_t begin, count;
} frug_range;

/** What a tensor is used for; some methods treat roles differently. */
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
    FRUG_ROLE_ATTN_QKV /* queries, keys and values of all heads in one tensor, one after the other */
} frug_role;

/** Name of a role ("conv", "attn_q", ...), or NULL. */
FRUG_API const char *frug_role_name(frug_role role);

#define FRUG_MAX_DIMS 8
#define FRUG_APPEND   UINT64_MAX

typedef struct frug_tensor {
    size_t struct_size; /* sizeof(frug_tensor), set by FRUG_TENSOR_INIT */
    const char *name;
    frug_role role;
    uint32_t ndim;                 /* 0 (a scalar) to FRUG_MAX_DIMS */
    uint64_t shape[FRUG_MAX_DIMS]; /* row-major, the last dimension is contiguous */
    uint64_t offset;               /* first element in the flat buffer; FRUG_APPEND: after the last tensor */
    uint32_t heads;                /* attention heads of queries; 0: unknown, or no attention */
    uint32_t kv_heads;             /* heads of keys and values (grouped queries); 0: the same as heads */
    uint32_t module;               /* tensors of one attention module share a number other than 0 */
    uint32_t input_first;          /* 1: stored (in, out) as by GPT-2; 0: (out, in) as by PyTorch's Linear */
    uint32_t absent;               /* 1: of another process: it has a number and a position, but no states here */
} frug_tensor;

#define FRUG_TENSOR_INIT                                                                                               \
    { sizeof(frug_tensor), NULL, FRUG_ROLE_OTHER, 0, {0}, FRUG_APPEND, 0, 0, 0, 0, 0 }

typedef struct frug_layout frug_layout;

FRUG_CHECK frug_status frug_layout_create(frug_layout **layout);
FRUG_API void frug_layout_destroy(frug_layout *layout);

/**
 * Add the next tensor. The name is copied. Offsets rise, tensors do not overlap; gaps are allowed and never touched.
 * Returns FRUG_ERR_ARG for a missing name, too many dimensions, more than 2^48 elements or an overlap; FRUG_ERR_MEMORY.
 *
 * Absent tensors are for a model that is divided over processes (pipeline stages). Compressors and optimizers of the
 * layout store nothing for them, and their functions return FRUG_ERR_ARG for a range that has elements of one.
 * Everything else is as if they were there: selection, rounding and steps of the other tensors have the bits of the
 * whole model. The residual is stored from the first to the last compressed tensor that is not absent.
 */
FRUG_CHECK frug_status frug_layout_add(frug_layout *layout, const frug_tensor *tensor);

/** A layout of one two-dimensional tensor of n elements, for buffers without structure. */
FRUG_CHECK frug_status frug_layout_flat(uint64_t n, frug_layout **layout);

/** Number of tensors. */
FRUG_API size_t frug_layout_count(const frug_layout *layout);

/** Length of the flat buffer: one past the last element of the last tensor. */
FRUG_API uint64_t frug_layout_elements(const frug_layout *layout);

/** Describe tensor i, with its offset; the name is owned by the layout. */
FRUG_API frug_status frug_layout_get(const frug_layout *layout, size_t i, frug_tensor *tensor);

/** A hash of names, shapes and offsets of all tensors, and of which are absent. */
FRUG_API uint64_t frug_layout_hash(const frug_layout *layout);

/* ---- compressor --------------------------------------------------------- */

typedef struct frug_compressor_options {
    size_t struct_size;   /* sizeof(frug_compressor_options), set by FRUG_COMPRESSOR_OPTIONS_INIT */
    int threads;          /* 0: as many as OpenMP would use; in a reducer ranks of a host share its cores */
    uint64_t total_steps; /* length of training, for schedules; 0: schedules are at their end */
    uint32_t source;      /* this worker's rank, recorded in its frames */
} frug_compressor_options;

#define FRUG_COMPRESSOR_OPTIONS_INIT                                                                                   \
    { sizeof(frug_compressor_options), 0, 0, 0 }

typedef struct frug_compressor frug_compressor;

/**
 * Create the compressor of one worker. Layout and config are copied.
 *
 *   options   NULL for the defaults
 *
 * Tensors of one dimension or below the option min_size are sent dense.
 * Memory per compressed parameter: the bytes of the option residual (4, 2, 1.01 or 0.51; twice that with feedback=dgc
 * or ef21; 0 with feedback=none). Methods other than top-k within blocks of single entries need all accumulators at
 * once: 4 bytes more per compressed parameter unless residual is f32, 1 more with feedback=dgc, 8 per unit that can be
 * sent in a step (12 with rule=probabilistic), 8 per unit of several entries, 9 more per unit with rule=learned.
 *
 * Threads: one compressor per thread; it uses options->threads itself. Allocates here and never later. Returns
 * FRUG_ERR_ARG, FRUG_ERR_CONFIG (FRUG_ISA), FRUG_ERR_MEMORY.
 */
FRUG_CHECK frug_status frug_compressor_create(const frug_config *config, const frug_layout *layout,
                                              const frug_compressor_options *options, frug_compressor **compressor);

FRUG_API void frug_compressor_destroy(frug_compressor *compressor);

/**
 * Upper bound of the bytes that frug_compress() writes for a range, at any step.
 *
 *   range   starts at the first element of a tensor or a multiple of the block length into one, and ends likewise or
 *           at the end of a tensor; FRUG_ERR_ARG for others
 */
FRUG_CHECK frug_status frug_compressor_bound(const frug_compressor *compressor, frug_range range, size_t *bytes);

/**
 * Add a gradient range to the residual, select the entries to send, and write them as one frame.
 *
 *   step   optimizer step, from 0; drives the schedule and the rounding
 *   grad   range.count floats; grad[0] is element range.begin
 *   dst    frug_compressor_bound() bytes are always enough
 *   *len   bytes written
 *
 * Call once per range and step, the ranges of a step in any order. The option clip uses the norm of the range; so does
 * the option norm unless FRUG_SIGNAL_NORM gives the norm of the whole gradient, which a step of several ranges needs.
 * A block with a NaN or an infinity is skipped: its gradient is ignored, and frame and statistics count it. Top-k
 * within blocks of single entries then sends zeros and keeps the block's residual; other methods let the residual
 * compete. On an error the compressor is unchanged.
 *
 * Deterministic: same inputs, same bytes, for any thread count and instruction set. Threads: one call at a time per
 * compressor. Never allocates. Cost: one pass over the range. Returns FRUG_ERR_ARG, FRUG_ERR_SHORT_BUFFER.
 */
FRUG_CHECK frug_status frug_compress(frug_compressor *compressor, uint64_t step, frug_range range, const float *grad,
                                     void *dst, size_t cap, size_t *len);

/** What a caller may know that a compressor cannot compute. */
typedef enum frug_signal {
    FRUG_SIGNAL_NORM,        /* one number: norm of the whole gradient, the same on all ranks (norm=...) */
    FRUG_SIGNAL_SENSITIVITY, /* one number per tensor: cost of compressing it (layers=sensitivity) */
    FRUG_SIGNAL_HEADS        /* one number per head of a tensor's module: its importance (score=given) */
} frug_signal;

/**
 * Set a signal before a step; it is valid until it is set again.
 *
 *   tensor          number in the layout; ignored by FRUG_SIGNAL_NORM
 *   values, count   finite and not negative; FRUG_SIGNAL_HEADS: one per head (per group of heads that share keys)
 *
 * Ranks must set the same values to send the same. FRUG_ERR_ARG also if the config does not use the signal.
 */
FRUG_API frug_status frug_compressor_set_signal(frug_compressor *compressor, frug_signal signal, size_t tensor,
                                                const double *values, size_t count);

/** What a step would send of one tensor. */
typedef struct frug_tensor_plan {
    size_t struct_size;      /* sizeof(frug_tensor_plan), set by the caller */
    int dense;               /* the tensor is sent whole */
    const char *unit;        /* "element", "row", ... */
    uint64_t unit_h, unit_w; /* height and width of a unit in elements */
    uint64_t units;
    uint64_t segments; /* selection groups; 0: the tensor shares one with other tensors */
    uint64_t selected; /* units that will be sent; rule=threshold and rule=probabilistic depend on the data */
    double density;    /* of the schedule, with everything that changes it */
} frug_tensor_plan;

/** Compute what a step would send of tensor i. Returns FRUG_ERR_ARG. */
FRUG_API frug_status frug_compressor_plan(const frug_compressor *compressor, uint64_t step, size_t tensor,
                                          frug_tensor_plan *plan);

/** Bytes that frug_compressor_save() writes. */
FRUG_API size_t frug_compressor_state_size(const frug_compressor *compressor);

/** Write the state that a later run needs to continue bit for bit: residual, learned masks, sensitivities. Set
 *  FRUG_SIGNAL_NORM and FRUG_SIGNAL_HEADS again after a restore. Returns FRUG_ERR_ARG, FRUG_ERR_SHORT_BUFFER. */
FRUG_CHECK frug_status frug_compressor_save(const frug_compressor *compressor, void *dst, size_t cap, size_t *len);

/** Restore a saved state. The bytes are untrusted; on an error the compressor is unchanged. Returns FRUG_ERR_ARG,
 *  FRUG_ERR_FORMAT, _CHECKSUM, _VERSION, FRUG_ERR_MISMATCH (another layout, block, feedback or residual format). */
FRUG_CHECK frug_status frug_compressor_restore(frug_compressor *compressor, const void *src, size_t len);

/** Copy the residual of a range as floats. Zeros for dense tensors and feedback=none. */
FRUG_CHECK frug_status frug_compressor_get_residual(const frug_compressor *compressor, frug_range range, float *dst);

/** Replace the residual of a range, rounded to its format; feedback=dgc: its momentum becomes zero. Dense tensors and
 *  feedback=none ignore it. Returns FRUG_ERR_ARG, also for NaN and infinities. */
FRUG_CHECK frug_status frug_compressor_set_residual(frug_compressor *compressor, frug_range range, const float *src);

typedef struct frug_stats {
    size_t struct_size;      /* sizeof(frug_stats), set by the caller */
    uint64_t calls;          /* of frug_compress() */
    uint64_t bytes_sent;     /* frame bytes written */
    uint64_t bytes_dense;    /* bytes of f32 gradients of the same ranges */
    uint64_t entries_sent;   /* gradient entries written */
    uint64_t entries_seen;   /* gradient entries read */
    uint64_t blocks_skipped; /* because of a NaN or an infinity */
    double density_now;      /* entries sent / seen in the last call */
    double density_mean;     /* the same over all calls */
    double energy_sent_now;  /* sent / accumulated energy (sum of squares) in the last call */
    double energy_sent_mean; /* the same over all calls */
    double seconds_feedback; /* read, accumulate, find candidates; thread time */
    double seconds_select;
    double seconds_encode;
    double seconds_store;    /* write the residual */
    double seconds_checksum; /* wall time */
    double seconds_compress; /* wall time of frug_compress() */
    double seconds_decode;   /* wall time of the compressor's decoder */
} frug_stats;

/** Totals since creation. With stats=sample (the default) energy and stage times are estimates from one batch of blocks
 *  in 64 of each tensor; with stats=full they are exact. */
FRUG_API frug_status frug_compressor_stats(const frug_compressor *compressor, frug_stats *stats);

/* ---- decoder ------------------------------------------------------------ */

typedef struct frug_decoder frug_decoder;

/** Create a decoder for frames of a layout, whatever their config. The layout is copied. threads as in
 *  frug_compressor_options. Threads: one call at a time per decoder. */
FRUG_CHECK frug_status frug_decoder_create(const frug_layout *layout, int threads, frug_decoder **decoder);
FRUG_API void frug_decoder_destroy(frug_decoder *decoder);

/** The decoder that a compressor has for its own layout; owned by the compressor. */
FRUG_API frug_decoder *frug_compressor_decoder(frug_compressor *compressor);

/**
 * Add the scaled sum of several frames to a dense range: dst[i] += scale * (frames[0][i] + frames[1][i] + ...), summed
 * in that order.
 *
 *   range          the range that dst covers; every frame must lie inside it
 *   frames, lens   count_frames frames of one range; untrusted, checked completely before dst changes
 *
 * Frames carry their own codes: only the layout must match the sender's. Elements that no frame has keep their bits.
 * Deterministic, as frug_compress(). Allocates only when given more frames than before. Returns FRUG_ERR_ARG,
 * FRUG_ERR_FORMAT, FRUG_ERR_CHECKSUM, FRUG_ERR_VERSION, FRUG_ERR_MISMATCH (another layout, or frames of different
 * sections), FRUG_ERR_MEMORY.
 */
FRUG_CHECK frug_status frug_decode_add(frug_decoder *decoder, frug_range range, const void *const *frames,
                                       const size_t *lens, size_t count_frames, double scale, float *dst);

/**
 * One SGD step from the frames: w[i] = w[i] * (1 - decay) - rate * (frames[0][i] + frames[1][i] + ...).
 *
 *   rate    learning rate divided by the number of workers; of SGD without momentum: for a rate that goes with a
 *           momentum of 0.9 give ten times that, or use the optimizer "merged" of optim.h, which does so
 *   decay   learning rate times weight decay; with 0 weights that no frame has keep their bits
 *
 * Otherwise as frug_decode_add().
 */
FRUG_CHECK frug_status frug_decode_apply(frug_decoder *decoder, frug_range range, const void *const *frames,
                                         const size_t *lens, size_t count_frames, double rate, double decay,
                                         float *weights);

#ifdef __cplusplus
}
#endif

#endif
