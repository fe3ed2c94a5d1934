/* compress_path.h - the two ways to compress: by blocks (block_path.c) and by units (unit_path.c). */
#ifndef FRUGI_COMPRESS_PATH_H
#define FRUGI_COMPRESS_PATH_H

#include "compress/compressor.h"

/** Operations that differ between the paths. The config of a compressor determines its path. */
typedef struct frugi_compress_path {
    bool by_units; /* frames have unit sections: ranges may not cut a tensor or a selection group */

    /** Append the sections of the current tensor of an iterator, which is not dense. */
    void (*add_sections)(frugi_section_list *list, const frugi_range_iter *it);

    /** The most bytes of a frame, except at steps that send everything. Returns FRUG_ERR_ARG. */
    frug_status (*bound)(const frug_compressor *c, frug_range range, uint64_t *bytes);

    /**
     * Make the sections of a call if they are known yet, else check the range.
     *
     *   bytes   set to the most bytes that the frame can take
     */
    frug_status (*make_sections)(const frugi_compress_call *call, frugi_frame_size *size, uint64_t *bytes);

    /** Write all payloads and update the residual; cannot fail. Sets size where make_sections() could not. */
    void (*encode)(const frugi_compress_call *call, frugi_frame_size *size);

    /** Set units, segments, density and number of selected units of a compressed tensor at a step. */
    void (*plan)(const frug_compressor *c, const frugi_tensor_view *view, uint64_t step, frug_tensor_plan *plan);
} frugi_compress_path;

extern const frugi_compress_path frugi_block_path, frugi_unit_path;

/* ---- blocks: block_path.c, block_sections.c ---------------------------------- */

/** Compress all block sections of a frame. */
void frugi_encode_blocks(const frugi_compress_call *call, const frugi_frame_size *size);

void frugi_add_block_sections(frugi_section_list *list, const frugi_range_iter *it);
void frugi_plan_blocks(const frug_compressor *c, const frugi_tensor_view *view, uint64_t step, frug_tensor_plan *plan);

/* ---- units: unit_encode.c, unit_plan.c ---------------------------------------- */

/** Append the sections of a tensor, 0 to FRUGI_SECTIONS_PER_TENSOR, by the selection made before. */
void frugi_add_unit_sections(frugi_section_list *list, const frugi_range_iter *it);

/** The most bytes that the unit sections of a range can take. */
frug_status frugi_unit_sections_bound(const frug_compressor *c, uint64_t begin, uint64_t count, uint64_t *bytes);

void frugi_plan_units(const frug_compressor *c, const frugi_tensor_view *view, uint64_t step, frug_tensor_plan *plan);

#endif
