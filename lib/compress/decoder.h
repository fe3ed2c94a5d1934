/* decoder.h - struct frug_decoder: checks frames and adds them up. It needs the layout only, no config. */
#ifndef FRUGI_DECODER_H
#define FRUGI_DECODER_H

#include "codec/frame.h"
#include "codec/unit_index.h"
#include "layout/partition.h"

#define FRUGI_DECODE_WINDOW       FRUGI_MAX_BLOCK /* most elements that are summed at a time */
#define FRUGI_SECTIONS_PER_TENSOR 2u /* the most unit sections of one frame that may cover the same elements */

/** Position in a received frame, which is read section by section. */
typedef struct frugi_cursor {
    const unsigned char *src;
    frugi_frame frame;
    frug_status status; /* of frugi_frame_verify() */
    uint64_t at;
    bool live; /* section and payload are valid; false past the last section */
    frugi_section section;
    const unsigned char *payload;
} frugi_cursor;

/** A unit section of a received frame. */
typedef struct frugi_unit_source {
    frugi_section section;
    const unsigned char *payload;
} frugi_unit_source;

/** Position of one thread in a frugi_unit_source. */
typedef struct frugi_unit_cursor {
    frugi_index_reader walk;
    uint64_t at;   /* number of the next value */
    bool has_unit; /* the section contains the current unit */
} frugi_unit_cursor;

/** Position of one thread in a block section of a received frame. */
typedef struct frugi_block_reader {
    const frugi_section *section;
    const unsigned char *scale, *index, *value; /* of the next block */
    uint64_t walk;                              /* for frugi_count_next() */
    uint32_t scale_bytes, value_bytes;
    bool bytes; /* indices are one byte each */
} frugi_block_reader;

/** Scratch memory of one thread: arrays of FRUGI_DECODE_WINDOW elements. */
typedef struct frugi_decode_scratch {
    float *sum, *other_sum; /* blocks are summed in one while the other is added to its destination */
    float *values;
    uint32_t *units; /* numbers of units in a window */
    uint16_t *idx;
} frugi_decode_scratch;

struct frug_decoder {
    const frugi_partition *partition; /* the compressor's, or own_partition */
    uint64_t layout_hash;
    int threads;
    frugi_decode_scratch *scratch;    /* one per thread */
    size_t capacity;                  /* frames that the four arrays below have room for */
    frugi_cursor *cursor;             /* one per frame */
    frugi_block_reader *block_reader; /* one per thread and frame */
    frugi_unit_source *unit_source;   /* FRUGI_SECTIONS_PER_TENSOR per frame */
    frugi_unit_cursor *unit_cursor;   /* one per thread and unit_source */
    double seconds;                   /* spent in frug_decode_add() and frug_decode_apply() */
    bool by_senders; /* option mean: sums are divided by the frames that contain the entry, times all frames */
    /* A decoder of its own; zero in that of a compressor. */
    frugi_partition own_partition;
    void *own_scratch; /* the allocation behind the arrays of scratch */
};

/**
 * Initialize a decoder that uses the partition of another object. The caller then sets the arrays of every
 * decoder->scratch, and calls frugi_decoder_free() at the end, after a failure too. Returns FRUG_ERR_MEMORY.
 */
frug_status frugi_decoder_init(frug_decoder *decoder, const frugi_partition *partition, uint64_t layout_hash,
                               int threads);
void frugi_decoder_free(frug_decoder *decoder);

/** Destination: dst = keep * dst + gain * sum, element by element. With keep 0, dst is overwritten, even a NaN. */
typedef struct frugi_target {
    float *dst; /* element begin */
    uint64_t begin, count;
    float keep, gain;
} frugi_target;

/**
 * The two halves of frug_decode_add(): check frames completely, then add them up. No other function of the decoder may
 * be called in between, nor one of its compressor, whose scratch memory it shares.
 */
frug_status frugi_frames_open(frug_decoder *decoder, const void *const *frames, const size_t *lens, size_t count_frames,
                              const frugi_target *target);
frug_status frugi_frames_sum(frug_decoder *decoder, size_t count_frames, const frugi_target *target);

/** The same for frames that each cover a range of their own and have a target of their own. */
frug_status frugi_frames_open_each(frug_decoder *decoder, const void *const *frames, const size_t *lens,
                                   size_t count_frames, const frugi_target *targets);
frug_status frugi_frames_sum_each(frug_decoder *decoder, size_t count_frames, const frugi_target *targets);

/** Add up the first `count` sections of decoder->unit_source, which cover the same elements: unit_decode.c. */
void frugi_sum_unit_sections(const frug_decoder *decoder, size_t count, size_t count_frames,
                             const frugi_target *target);

/** Option mean=senders: sum times frames over senders, so that a caller who divides by the frames has the mean of those
 *  that contain the entry; then reset senders to 0. */
void frugi_scale_by_senders(float *sum, uint32_t *senders, uint64_t n, size_t frames);

/** dst = keep * dst + gain * sum as in frugi_target; then reset sum to frugi_sum_start(). */
void frugi_add_scaled_sum(float *dst, float *sum, uint64_t n, float keep, float gain);

/** Start value of a sum: the zero that gives -0 times gain. Adding -0 changes no bits, not even those of -0. */
static inline float frugi_sum_start(float gain) {
    return gain < 0 ? 0.0f : -0.0f;
}

#endif
