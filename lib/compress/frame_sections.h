/* frame_sections.h - the sections of a frame that is being written. */
#ifndef FRUGI_FRAME_SECTIONS_H
#define FRUGI_FRAME_SECTIONS_H

#include "codec/frame.h"
#include "layout/partition.h"
#include "select/tensor_topk.h"

/** Elements whose number is known beforehand may be selected by the encoder, without a list. */
typedef enum frugi_encoder_selects {
    FRUGI_ENCODER_SELECTS_NOTHING, /* what is in a list, or all units */
    FRUGI_ENCODER_SELECTS_FOURS,   /* N of every 4 elements; the index code is the bitmap */
    FRUGI_ENCODER_SELECTS_ABOVE    /* elements above a cutoff; codes are coo and f32 */
} frugi_encoder_selects;

/** A section being written: its wire header, and what the encoder needs besides. */
typedef struct frugi_frame_section {
    frugi_section section;
    bool dense;                    /* of dense tensors, which have no residual */
    uint64_t stored;               /* number of its first block in the residual stores */
    uint64_t payload_at;           /* offset of its payload in the frame */
    uint64_t first_batch;          /* batches of all sections before */
    const frugi_tensor_view *view; /* this and what follows: unit sections only */
    const uint32_t *list;          /* selected units; NULL for all, or if the encoder selects */
    frugi_encoder_selects selects; /* what the encoder selects by itself */
    frugi_cutoff cutoff;           /* FRUGI_ENCODER_SELECTS_ABOVE: the cutoff */
    const float *values;           /* accumulators of the elements in list, if they were copied; else NULL */
    bool rest_left;                /* the accumulators in list are residuals already */
    float draw_unit;               /* if not 0: entries are sent as plus or minus this */
} frugi_frame_section;

/** Size of a frame. */
typedef struct frugi_frame_size {
    size_t sections;  /* sections */
    uint64_t bytes;   /* of the whole frame */
    uint64_t batches; /* of all sections */
} frugi_frame_size;

typedef enum frugi_section_mode {
    FRUGI_SECTIONS_STEP,  /* a normal step; unit sections by the selection made before */
    FRUGI_SECTIONS_DENSE, /* a step that sends everything */
    FRUGI_SECTIONS_BOUND  /* the most bytes of any step except those that send everything; without unit sections */
} frugi_section_mode;

/** The sections of a frame so far. */
typedef struct frugi_section_list {
    const frug_compressor *c;
    uint64_t step;
    frugi_section_mode mode;
    frugi_frame_section *sections; /* NULL if only the size is needed */
    frugi_frame_section last;
    frugi_frame_size size;
} frugi_section_list;

/**
 * Divide a range of the flat buffer into the sections of a frame.
 *
 *   sections   room for FRUGI_SECTIONS_PER_TENSOR per tensor and one more; NULL if only the size is needed
 */
frug_status frugi_make_sections(const frug_compressor *c, frug_range range, uint64_t step, frugi_section_mode mode,
                                frugi_frame_section *sections, frugi_frame_size *size);

/** Append a section, or merge it into the last one where both are dense and adjacent. */
void frugi_append_section(frugi_section_list *list, frugi_frame_section fs);

#endif
