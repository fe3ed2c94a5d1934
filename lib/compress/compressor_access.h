/* compressor_access.h - what other folders may ask of a compressor or set in it, besides the public functions. */
#ifndef FRUGI_COMPRESSOR_ACCESS_H
#define FRUGI_COMPRESSOR_ACCESS_H

#include "compress/decoder.h"
#include "compress/frame_sections.h"
#include "layout/partition.h"
#include "config/config.h"
#include "feedback/error_feedback.h"

/* ---- what it was made from ------------------------------------------------------ */

const struct frug_config *frugi_compressor_config(const frug_compressor *c);
const frug_layout *frugi_compressor_layout(const frug_compressor *c);
uint64_t frugi_compressor_layout_hash(const frug_compressor *c);
const frugi_partition *frugi_compressor_partition(const frug_compressor *c);

/** Its options; threads is the number in use. */
frug_compressor_options frugi_compressor_options(const frug_compressor *c);

/* ---- sections and selection groups ---------------------------------------------- */

/** Whether frames have unit sections: ranges then may not cut a tensor or a selection group. */
bool frugi_compressor_by_units(const frug_compressor *c);

/** The end of the last tensor in the selection group of a tensor; of the tensor itself where it has no group. */
uint64_t frugi_select_group_end(const frug_compressor *c, const frugi_tensor_view *view);

/**
 * Sizes of the frames of consecutive ranges at a step, by blocks, where no option depends on a norm.
 *
 *   begin   ranges + 1 numbers: range i is the elements begin[i] .. begin[i + 1] - 1
 *
 * Returns FRUG_ERR_ARG.
 */
frug_status frugi_frame_sizes(frug_compressor *c, uint64_t step, const uint64_t *begin, size_t ranges, size_t *bytes);

/** The sections of a range at a step. */
typedef struct frugi_step_sections {
    const frugi_frame_section *section; /* valid until the next call with this compressor */
    frugi_frame_size size;
    bool send_all; /* the step sends everything */
} frugi_step_sections;

/**
 * Make the sections of a range at a step, where no option depends on a norm; unit sections by the selection made
 * before. Returns FRUG_ERR_ARG.
 */
frug_status frugi_make_step_sections(frug_compressor *c, uint64_t step, frug_range range, frugi_step_sections *made);

/** Select all units of all compressed tensors, for frugi_make_step_sections(). */
void frugi_select_all_units(frug_compressor *c);

/** Key of the random numbers that round the values of compressed tensor `number` at a step. */
uint64_t frugi_rounding_key(const frug_compressor *c, uint64_t step, size_t number);

/* ---- residual ------------------------------------------------------------------- */

/**
 * Add finite numbers to the residual of a range: what a shard's rank has summed and not sent. Dense tensors and
 * feedback=none have no residual. A block to which only zeros are added keeps its bits, and so does one whose sum would
 * not be finite.
 */
void frugi_compressor_residual_add(frug_compressor *c, uint64_t step, frug_range range, const float *x);

/** Where the residual is stored; without data for feedback=none. */
const frugi_store *frugi_compressor_residual(const frug_compressor *c);

/** What a config does at a step with entries that are sent. */
frugi_feedback_step frugi_step_feedback(const struct frug_config *config, uint64_t step, uint64_t total_steps);

/* ---- norm and schedule ---------------------------------------------------------- */

#define FRUGI_NORM_CHUNK 65536u /* elements per partial sum of a norm */

/**
 * Measure the norm of a range that is compressed part by part; it holds for all calls until frugi_norm_clear(). Returns
 * it, or 0 where no option needs it.
 */
double frugi_norm_measure(frug_compressor *c, uint64_t begin, uint64_t count, const float *grad);
void frugi_norm_clear(frug_compressor *c);

/**
 * Copy the state of the density controller and the norm of the gradient to a compressor of the same layout, so that its
 * next call has the same densities.
 *
 *   scratch   frugi_schedule_bytes(from) bytes
 */
void frugi_schedule_copy(const frug_compressor *from, frug_compressor *to, void *scratch);
size_t frugi_schedule_bytes(const frug_compressor *c);

#endif
