/* block_encode.h - encode the selected entries of a batch of blocks. */
#ifndef FRUGI_BLOCK_ENCODE_H
#define FRUGI_BLOCK_ENCODE_H

#include "compress/compressor.h"

/** The section and buffers of the current batch, blocks `at` .. at + blocks - 1 of the section. */
typedef struct frugi_section_batch {
    const frugi_section *section;
    unsigned char *payload;
    uint64_t at;
    uint64_t stored;   /* number of its first block in the residual stores */
    bool has_residual; /* false for dense tensors and feedback=none */
    bool any_skipped;  /* a block has a NaN or an infinity */
    float *acc;
} frugi_section_batch;

/** Encode indices and values of ws->batch; the accumulators keep what was not sent. */
void frugi_encode_batch(const frugi_compress_call *call, frugi_workspace *ws, const frugi_section_batch *s);

#endif
