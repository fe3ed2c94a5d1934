/* compressor_access.c - what other folders may ask of a compressor or set in it, besides the public functions. */
#include "compress/compress_path.h"

#include "base/status.h"
#include "feedback/residual_range.h"

const struct frug_config *frugi_compressor_config(const frug_compressor *c) {
    return &c->config;
}

const frug_layout *frugi_compressor_layout(const frug_compressor *c) {
    return c->layout;
}

uint64_t frugi_compressor_layout_hash(const frug_compressor *c) {
    return c->layout_hash;
}

const frugi_partition *frugi_compressor_partition(const frug_compressor *c) {
    return &c->partition;
}

frug_compressor_options frugi_compressor_options(const frug_compressor *c) {
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = c->threads;
    options.total_steps = c->total_steps;
    options.source = c->source;
    return options;
}

bool frugi_compressor_by_units(const frug_compressor *c) {
    return c->path->by_units;
}

uint64_t frugi_select_group_end(const frug_compressor *c, const frugi_tensor_view *view) {
    if (c->path->by_units && !view->dense) {
        const frugi_select_group *group = &c->units.select_group[view->select_group];
        view = &c->partition.view[c->units.member[group->first + group->views - 1]];
    }
    return view->begin + view->count;
}

frug_status frugi_make_step_sections(frug_compressor *c, uint64_t step, frug_range range, frugi_step_sections *made) {
    bool all = frugi_control_sends_all(&c->config, step);
    frugi_control_densities(c->control, step, c->density);
    FRUG_TRY(
        frugi_make_sections(c, range, step, all ? FRUGI_SECTIONS_DENSE : FRUGI_SECTIONS_STEP, c->section, &made->size));
    made->section = c->section;
    made->send_all = all;
    return FRUG_OK;
}

frug_status frugi_frame_sizes(frug_compressor *c, uint64_t step, const uint64_t *begin, size_t ranges, size_t *bytes) {
    bool all = frugi_control_sends_all(&c->config, step);
    frugi_control_densities(c->control, step, c->density);
    for (size_t i = 0; i < ranges; i++) {
        frugi_frame_size size;
        FRUG_TRY(frugi_make_sections(c, (frug_range){begin[i], begin[i + 1] - begin[i]}, step,
                                     all ? FRUGI_SECTIONS_DENSE : FRUGI_SECTIONS_STEP, NULL, &size));
        bytes[i] = (size_t)size.bytes;
    }
    return FRUG_OK;
}

const frugi_store *frugi_compressor_residual(const frug_compressor *c) {
    return &c->feedback.residual;
}

void frugi_compressor_residual_add(frug_compressor *c, uint64_t step, frug_range range, const float *x) {
    frugi_residual_add(&c->feedback, &c->partition, step, range, x);
}

void frugi_schedule_copy(const frug_compressor *from, frug_compressor *to, void *scratch) {
    frugi_control_export(from->control, scratch);
    frugi_control_import(to->control, scratch);
    to->norm.is_set = true;
    to->norm.value = from->norm.is_set ? from->norm.value : from->norm.range_value;
}

size_t frugi_schedule_bytes(const frug_compressor *c) {
    return frugi_control_bytes(c->control);
}
