/* compressor.h - the pipeline object: what compress.c, decompress.c and state.c share. */
#ifndef FRUGI_COMPRESSOR_H
#define FRUGI_COMPRESSOR_H

#include "codec/frame.h"
#include "common/layout.h"
#include "compress/kernel.h"
#include "feedback/store.h"

#define FRUGI_BATCH_ELEMENTS 4096u /* the most in a batch, and the largest block */

/** A tensor with at least one element, as the compressor sees it. */
typedef struct frugi_piece {
    uint64_t begin, count;
    uint64_t first_block; /* number of its first block among all compressed ones */
    uint32_t tensor;
    bool dense;
} frugi_piece;

/** A section being written: what the wire does not say about it. */
typedef struct frugi_slice {
    frugi_section section;
    bool dense;           /* of tensors that travel dense: nothing is left behind */
    uint64_t stored;      /* number of its first block in the residual stores */
    uint64_t payload_at;  /* first byte of its payload in the frame */
    uint64_t first_batch; /* batches of the slices before */
} frugi_slice;

/** A received frame being read, section by section. */
typedef struct frugi_cursor {
    const unsigned char *src;
    frugi_frame frame;
    frug_status verdict; /* of frugi_frame_verify() */
    uint64_t at;
    frugi_section section;
    const unsigned char *payload;
} frugi_cursor;

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
    float *padded;   /* the gradient of a last block, filled up with zeros */
    float *values;   /* the values of one block */
    uint16_t *idx;
    void *memory; /* all of the above */
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
    uint64_t blocks;      /* compressed ones */
    frugi_store residual; /* feedback other than none */
    frugi_store momentum; /* feedback=dgc */
    float *zeros;         /* a batch */
    frugi_worker *worker; /* one per thread */
    frugi_slice *slice;   /* of the frame being written: room for one per piece and one more */
    frugi_cursor *cursor; /* one per frame of the most that came together so far */
    frugi_reader *reader; /* as many for each thread */
    size_t cursors;
    frug_stats stats;
    double energy_seen, energy_left;
};

/** How many threads a number of elements is worth. */
int frugi_threads_for(const frug_compressor *c, uint64_t elements);

/** How a range is cut. */
typedef struct frugi_cutting {
    size_t slices;
    uint64_t bytes;   /* of the whole frame */
    uint64_t batches; /* of all slices */
} frugi_cutting;

/**
 * Cut a range of the flat buffer into slices at a density.
 *
 *   slices   room for one per piece; NULL to learn how many bytes any step at
 *            this density can take
 */
frug_status frugi_cut(const frug_compressor *c, uint64_t begin, uint64_t count, uint64_t step, double density,
                      frugi_slice *slices, frugi_cutting *cutting);

#endif
