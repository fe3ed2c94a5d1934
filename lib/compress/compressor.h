/* compressor.h - the pipeline object: what compress.c, decompress.c and compressor_state.c share. */
#ifndef FRUGI_COMPRESSOR_H
#define FRUGI_COMPRESSOR_H

#include "codec/frame.h"
#include "codec/unit_index.h"
#include "layout/layout.h"
#include "select/block_kernel.h"
#include "residual/residual_format.h"
#include "schedule/controller.h"
#include "select/learned_mask.h"
#include "select/tensor_topk.h"

#define FRUGI_BATCH_ELEMENTS 4096u /* the most in a batch, and the largest block */
#define FRUGI_SAMPLE         64u   /* statistics look at one batch, block or stretch in so many */

/** A tensor with at least one element, as the compressor sees it. */
typedef struct frugi_piece {
    uint64_t begin, count;
    uint64_t first_block; /* number of its first block among all compressed ones */
    uint32_t tensor;
    bool dense;
    /* Compressed ones only. */
    size_t number;   /* among them */
    frugi_grid grid; /* its units */
    size_t contest;  /* in which they compete */
    /* What leaves at this step, as frugi_choose() left it. */
    const uint32_t *list; /* units, ascending; NULL for all */
    uint64_t kept;
    const float *values;   /* of the elements in list, where they are at hand; else NULL */
    const uint32_t *drawn; /* rule=probabilistic: elements that leave as plus or minus draw_unit */
    uint64_t draws;
    float draw_unit;
} frugi_piece;

/**
 * Units that compete with each other when segment is tensor: those of one tensor, or the heads of one attention module,
 * each of which is units of several tensors. With segment=all several contests are decided together.
 */
typedef struct frugi_contest {
    size_t first, pieces;   /* c->member[first] ... are its pieces */
    uint64_t units;         /* that compete: of its piece, or heads */
    uint64_t first_unit;    /* units of the contests before: places in c->score */
    uint64_t first_segment; /* segments of the contests before */
    bool heads;
    bool single; /* its units are elements, compared as they are */
    bool told;   /* score=given: the caller has said what its heads weigh */
    uint32_t module;
    float level;           /* rule=threshold:track: the threshold in force; 0: none yet */
    frugi_learned learned; /* rule=learned */
} frugi_contest;

/** A section being written: what the wire does not say about it. */
typedef struct frugi_slice {
    frugi_section section;
    bool dense;               /* of tensors that travel dense: nothing is left behind */
    uint64_t stored;          /* number of its first block in the residual stores */
    uint64_t payload_at;      /* first byte of its payload in the frame */
    uint64_t first_batch;     /* batches of the slices before */
    const frugi_piece *piece; /* of a section by units; what follows likewise */
    const uint32_t *list;     /* units sent; NULL for all */
    const float *values;      /* the elements of list, where they are at hand; else NULL */
    float draw_unit;          /* not 0: they leave as plus or minus this */
} frugi_slice;

/** A received frame being read, section by section. */
typedef struct frugi_cursor {
    const unsigned char *src;
    frugi_frame frame;
    frug_status verdict; /* of frugi_frame_verify() */
    uint64_t at;
    bool live; /* section and payload are those it stands at */
    frugi_section section;
    const unsigned char *payload;
} frugi_cursor;

#define FRUGI_LAYERS 2u /* the most sections by units of one frame that may cover the same elements */

/** A section by units that takes part in a sum. */
typedef struct frugi_voice {
    frugi_section section;
    const unsigned char *payload;
} frugi_voice;

/** One thread's place in it. */
typedef struct frugi_listener {
    frugi_walk walk;
    uint64_t at;   /* number of the next value */
    bool mentions; /* the unit in hand */
} frugi_listener;

/** One thread's place in a section of a received frame. */
typedef struct frugi_reader {
    const frugi_section *section;
    const unsigned char *scale, *index, *value; /* of the next block */
    uint64_t walk;                              /* for frugi_count_next() */
    uint32_t scale_bytes, value_bytes;
    bool bytes; /* indices are one byte each */
} frugi_reader;

/** What the threads of one call add up. */
typedef struct frugi_tally {
    double energy_seen, energy_left;
    double feedback, select, encode, store; /* seconds */
    uint64_t held;
} frugi_tally;

/** One thread's scratch. */
typedef struct frugi_worker {
    frugi_batch batch;
    frugi_lanes lanes;
    frugi_tally tally;
    float *acc;      /* accumulators that are not changed in place */
    float *saved;    /* residuals as they were before */
    float *momentum; /* feedback=dgc */
    float *padded;   /* the gradient of a batch: of a last block, filled up with zeros; or scaled */
    float *values;   /* the values of one block, or of one stretch of a section by units */
    uint16_t *idx;
    uint32_t *units; /* numbers of units in a window */
    void *memory;    /* all of the above */
} frugi_worker;

struct frug_compressor {
    struct frug_config config;
    frug_layout *layout;
    uint64_t layout_hash;
    uint64_t total_steps;
    uint32_t source;
    int threads;
    float beta;          /* decay of the residual in use */
    uint32_t batch_most; /* blocks in a batch */
    const frugi_kernel *kernel;
    frugi_piece *piece;
    size_t pieces;
    uint64_t blocks; /* compressed ones */
    frugi_control *control;
    double *density; /* of each compressed piece at this step */
    bool norm_told;  /* the caller knows the norm of the whole gradient: */
    double norm;
    double norm_here;     /* of the range in hand, where an option asks for it */
    bool norm_taken;      /* an exchange has taken it already */
    double *partial;      /* sums of squares of stretches of a gradient */
    frugi_store residual; /* feedback other than none */
    frugi_store momentum; /* feedback=dgc, and the smoothed gradient of feedback=ef21 */

    /* Sections by units (by_units): see partition.c. */
    bool by_units;
    frugi_contest *contest;
    size_t contests;
    size_t *member;   /* pieces, contest by contest */
    frugi_span *span; /* one per contest */
    frugi_whole *whole;
    float *work;    /* accumulators, where they are not the residual itself; cut into blocks like the stores */
    bool direct;    /* the accumulators of this step are the gradient itself */
    float *score;   /* one per unit that competes, where that is not an element */
    float *given;   /* what the caller says of heads; as score */
    float *scratch; /* one per unit that competes: rule=learned, unit=head */
    uint32_t *list; /* room for all units that leave */
    float *taken;   /* the elements of list, where they were taken along */
    uint64_t list_room;
    uint64_t *claim_blocks; /* rule=hybrid: blocks of each contest */
    uint32_t *claim_last;   /* and elements of the last one */
    uint16_t *claim;        /* rule=hybrid: entries per block */
    uint8_t *often;         /* frequency=on: how often blocks sent much */
    uint8_t *sent;          /* feedback=dgc: elements that leave, as bytes */
    uint8_t *held;          /* blocks held back at this step */

    float *zeros;             /* a batch */
    frugi_worker *worker;     /* one per thread */
    frugi_slice *slice;       /* of the frame being written: room for FRUGI_LAYERS per piece and one more */
    frugi_cursor *cursor;     /* one per frame of the most that came together so far */
    frugi_reader *reader;     /* as many for each thread */
    frugi_voice *voice;       /* FRUGI_LAYERS per frame */
    frugi_listener *listener; /* as many for each thread */
    size_t cursors;
    frug_stats stats;
    double energy_seen, energy_left;
};

/** Whether the momentum store is in use. */
static inline bool frugi_has_momentum(const frug_compressor *c) {
    return c->config.feedback == FRUGI_FEEDBACK_DGC || c->config.feedback == FRUGI_FEEDBACK_EF21;
}

#define FRUGI_NORM_STRETCH 65536u /* elements summed in one go for a norm */

/** The sum of squares. */
static inline double frugi_energy(const float *x, uint64_t n) {
    double sum[4] = {0};
    uint64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (size_t j = 0; j < 4; j++)
            sum[j] += (double)x[i + j] * (double)x[i + j];
    for (; i < n; i++)
        sum[0] += (double)x[i] * (double)x[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/** The batches, blocks or stretches of one tensor, of which statistics may look at some only. */
typedef struct frugi_sampled {
    uint64_t items;
    uint64_t length, total; /* elements of an item, the last ones aside; of all items */
} frugi_sampled;

/**
 * Statistics look at one item in FRUGI_SAMPLE of each tensor, so that no tensor is left out and none stands for
 * another; with stats=full at all. It is not the first: rows at the beginning of an embedding are not like the others;
 * nor the last, which may be short. Returns how many times item i counts; 0 where it is not looked at.
 */
static inline double frugi_sample_weight(const frug_compressor *c, const frugi_sampled *of, uint64_t i) {
    uint64_t step = c->config.stats == FRUGI_STATS_FULL ? 1 : FRUGI_SAMPLE;
    uint64_t first = i - i % step, window = of->items - first < step ? of->items - first : step;
    if (window == 1 || i != first + (window - 1) / 3)
        return window == 1 ? 1 : 0;
    uint64_t begin = first * of->length, end = first + window == of->items ? of->total : begin + window * of->length;
    uint64_t rest = of->total - i * of->length;
    return (double)(end - begin) / (double)(rest < of->length ? rest : of->length);
}

/** How many threads a number of elements is worth. */
int frugi_threads_for(const frug_compressor *c, uint64_t elements);

/** One frug_compress() call. */
typedef struct frugi_job {
    frug_compressor *c;
    uint64_t step, begin, count;
    const float *grad; /* element begin */
    unsigned char *frame;
    bool all;   /* everything leaves: warm-up, or a periodic dense step */
    bool mask;  /* whether sent entries lose their momentum */
    float hold; /* share of a sent entry that stays */
    float part; /* share of an entry that is sent: 1 - beta hold */
    float gain; /* of the gradient: below 1 when it is clipped */
    int threads;
} frugi_job;

/** Work out the rest of a job from compressor, step, range and gradient. */
frug_status frugi_job_start(frugi_job *job);

/** The share of an entry that stays when it is sent at a step (hold). */
FRUGI_SHARED float frugi_held_share(const struct frug_config *config, uint64_t step, uint64_t total_steps);

/** How a range is cut. */
typedef struct frugi_cutting {
    size_t slices;
    uint64_t bytes;   /* of the whole frame */
    uint64_t batches; /* of all slices */
} frugi_cutting;

typedef enum frugi_cut_for {
    FRUGI_CUT_STEP, /* a step as it is; sections by units as selected before */
    FRUGI_CUT_ALL,  /* a step that sends everything */
    FRUGI_CUT_BOUND /* the most bytes any step can take, those that send everything aside; no slices */
} frugi_cut_for;

/**
 * Cut a range of the flat buffer into slices.
 *
 *   slices   room for FRUGI_LAYERS per piece and one more; NULL to learn the bytes
 */
frug_status frugi_cut(const frug_compressor *c, uint64_t begin, uint64_t count, uint64_t step, frugi_cut_for what,
                      frugi_slice *slices, frugi_cutting *cutting);

/** Cut a range into c->slice as a step does that goes by no norm; *all: everything leaves. For other processors. */
FRUGI_SHARED frug_status frugi_cut_step(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, bool *all,
                                        frugi_cutting *cut);

/** Whether a range lies inside the layout. */
frug_status frugi_check_range(const frug_compressor *c, uint64_t begin, uint64_t count);

/** The first piece that ends after an element. */
size_t frugi_piece_at(const frug_compressor *c, uint64_t element);

/* partition.c: what competes with what. */
frug_status frugi_plan(frug_compressor *c);
void frugi_plan_destroy(frug_compressor *c);

/** The share of a contest's units that leaves, by the densities of its pieces. */
double frugi_contest_density(const frug_compressor *c, const frugi_contest *contest, const double *density);

/** Units of a contest that a density lets through: at least 1. */
uint64_t frugi_contest_count(const frugi_contest *contest, double density);

/** Segments of a contest, and the length of one in units. */
uint64_t frugi_contest_segment(const frug_compressor *c, const frugi_contest *contest);

/** The contests of a range that cuts no tensor and no attention module; begin/count as in frug_compress(). */
frug_status frugi_contests_of(const frug_compressor *c, uint64_t begin, uint64_t count, size_t *first, size_t *end);

/** The most bytes that the sections by units of a range can take. */
frug_status frugi_units_bound(const frug_compressor *c, uint64_t begin, uint64_t count, uint64_t *bytes);

/* unit_accumulate.c: fold a range into what was left behind, whole. */

/** The accumulators of a piece after frugi_accumulate(). */
const float *frugi_accumulated(const frugi_job *j, const frugi_piece *piece);
void frugi_accumulate(const frugi_job *j);

/**
 * Move a smoothed gradient on by one step. Returns what that adds to the accumulator: for feedback=dgc all of it, for
 * feedback=ef21 how far it has moved, which is written to `moved` (may be grad).
 */
const float *frugi_smooth(const frug_compressor *c, float *momentum, float *moved, const float *grad, size_t n);

/** Put back what stays after the values were taken. */
void frugi_put_back(const frugi_job *j);

/* gradient_norm.c */

/** Let the norm of a gradient range decide how much leaves and how much counts. */
void frugi_heed_norm(frugi_job *job);

/** Take the norm of a whole range before its parts are compressed one by one, until it is dropped. */
FRUGI_SHARED void frugi_norm_take(frug_compressor *c, uint64_t begin, uint64_t count, const float *grad);
FRUGI_SHARED void frugi_norm_drop(frug_compressor *c);

/* unit_select.c: which units leave. Fills list, kept, drawn, draws and draw_unit of the pieces of the contests first ..
 * end
 * - 1. */
void frugi_choose(const frugi_job *j, size_t first, size_t end);

/** The key of rule=random's draw. */
uint64_t frugi_draw_key(const frug_compressor *c, uint64_t step, size_t contest);

/* unit_encode.c: the sections by units of a frame. */

/** The sections that a piece takes, 0 to FRUGI_LAYERS, measured. */
size_t frugi_units_sections(const frug_compressor *c, const frugi_piece *piece, uint64_t step, frugi_slice *slice);

/** Write the payload of a slice by units, leaving in the accumulators what stays. */
void frugi_units_encode(const frugi_job *j, const frugi_slice *slice);

/* unit_decode.c */

/** dst = keep * dst + gain * sum, element by element; with keep 0 what dst holds counts for nothing, even a NaN. */
typedef struct frugi_target {
    float *dst; /* element begin */
    uint64_t begin, count;
    float keep, gain;
} frugi_target;

/**
 * The two halves of frug_decompress_add(): check frames whole, then add them up. In between nothing else of the
 * compressor may be used.
 */
frug_status frugi_frames_open(frug_compressor *c, const void *const *frames, const size_t *lens, size_t count_frames,
                              const frugi_target *target);
frug_status frugi_frames_sum(frug_compressor *c, size_t count_frames, const frugi_target *target);

/**
 * The same for frames of which each covers a range of its own and has a target of its own.
 */
frug_status frugi_parts_open(frug_compressor *c, const void *const *frames, const size_t *lens, size_t count_frames,
                             const frugi_target *targets);
frug_status frugi_parts_sum(frug_compressor *c, size_t count_frames, const frugi_target *targets);

/** Add up sections by units of the same elements. */
void frugi_sum_units(const frug_compressor *c, size_t voices, const frugi_target *target);

/** dst = keep * dst + gain * sum as in frugi_target, and the sum back to nothing (frugi_nothing()). */
void frugi_finish(float *dst, float *sum, uint64_t n, float keep, float gain);

/** The zero that, times gain, is -0: adding that changes no bits, not even those of -0. Sums start from it. */
static inline float frugi_nothing(float gain) {
    return gain < 0 ? 0.0f : -0.0f;
}

#endif
