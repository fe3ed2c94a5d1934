/* compressor.c - create and destroy a compressor; frame bound; plan of a tensor; residual and signals of the caller. */
#include "compress/compress_path.h"

#include "base/alloc.h"
#include "base/status.h"
#include "base/struct_size.h"
#include "feedback/residual_range.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

/* Decide which tensors are sent dense. */
static void classify_tensors(frug_compressor *c) {
    for (size_t i = 0; i < c->partition.views; i++) {
        frugi_tensor_view *view = &c->partition.view[i];
        bool vector = c->layout->tensor[view->tensor].ndim < 2;
        view->dense = view->count < c->config.min_size || (vector && c->config.vectors_dense);
    }
}

/* Number the blocks of compressed tensors: those from the first to the last tensor that is not absent are stored. */
static void number_blocks(frug_compressor *c) {
    frugi_partition *p = &c->partition;
    size_t first = p->views, end = 0;
    for (size_t i = 0; i < p->views; i++)
        if (!p->view[i].dense && !p->view[i].absent) {
            first = first < i ? first : i;
            end = i + 1;
        }
    uint64_t number = 0;
    for (size_t i = 0; i < p->views; i++) {
        frugi_tensor_view *view = &p->view[i];
        uint64_t blocks = view->dense ? 0 : (view->count + c->config.block - 1) / c->config.block;
        view->first_number = number;
        view->first_block = p->blocks;
        p->blocks_before += i < first ? blocks : 0;
        p->blocks += i >= first && i < end ? blocks : 0;
        number += blocks;
    }
}

/* Whether a config is top-k of elements in blocks, with codes of block sections. All others need unit sections. */
static bool fits_blocks(const struct frug_config *f) {
    return f->rule == FRUGI_RULE_TOPK && f->segment == FRUGI_SEGMENT_BLOCK && f->unit == FRUGI_UNIT_ELEMENT &&
           f->layers != FRUGI_LAYERS_BUDGET && f->value <= FRUGI_VALUE_INT8 &&
           (f->index == FRUGI_INDEX_FIXED || f->index == FRUGI_INDEX_LOCAL || f->index == FRUGI_INDEX_BITMAP);
}

/* The controller covers compressed tensors only. */
static frug_status make_controller(frug_compressor *c) {
    frugi_control_tensor *tensor = frugi_calloc(c->partition.views + 1, sizeof *tensor);
    size_t count = 0;
    FRUG_FAIL_IF(!tensor, FRUG_ERR_MEMORY, "compressor: out of memory");
    for (size_t i = 0; i < c->partition.views; i++)
        if (!c->partition.view[i].dense) {
            c->partition.view[i].number = count;
            tensor[count++] =
                (frugi_control_tensor){c->layout->tensor[c->partition.view[i].tensor].role, c->partition.view[i].count};
        }
    frug_status status = frugi_control_create(&c->config, tensor, count, c->total_steps, &c->control);
    frugi_free(tensor);
    FRUG_TRY(status);
    c->density = frugi_calloc(count + 1, sizeof *c->density);
    FRUG_FAIL_IF(!c->density, FRUG_ERR_MEMORY, "compressor: out of memory");
    return FRUG_OK;
}

/* One allocation per thread; every array starts on a cache line. */
static frug_status make_workspace(const frug_compressor *c, frugi_workspace *ws) {
    size_t batch = FRUGI_BATCH_ELEMENTS, chunk = c->config.bucket > batch ? c->config.bucket : batch;
    size_t floats = 3 * batch + 2 * chunk + FRUGI_GATHER_SLACK;
    ws->memory = frugi_alloc(floats * sizeof(float) + batch * (sizeof(uint16_t) + sizeof(uint32_t)));
    FRUG_FAIL_IF(!ws->memory, FRUG_ERR_MEMORY, "compressor: out of memory");
    ws->acc = ws->memory;
    ws->saved = ws->acc + batch;
    ws->momentum = ws->saved + batch;
    ws->padded = ws->momentum + batch;
    ws->values = ws->padded + chunk;
    ws->units = (uint32_t *)(void *)(ws->values + chunk + FRUGI_GATHER_SLACK);
    ws->idx = (uint16_t *)(void *)(ws->units + batch);
    return FRUG_OK;
}

/* The decoder uses the workspaces: the compressor does not need them while it decodes. */
static frug_status make_decoder(frug_compressor *c) {
    FRUG_TRY(frugi_decoder_init(&c->decoder, &c->partition, c->layout_hash, c->threads));
    for (int i = 0; i < c->threads; i++) {
        const frugi_workspace *ws = &c->workspace[i];
        c->decoder.scratch[i] = (frugi_decode_scratch){
            .sum = ws->acc, .other_sum = ws->saved, .values = ws->values, .units = ws->units, .idx = ws->idx};
    }
    c->decoder.by_senders = c->config.mean == FRUGI_MEAN_SENDERS;
    return FRUG_OK;
}

static frug_status make_buffers(frug_compressor *c) {
    uint64_t chunks = frug_layout_elements(c->layout) / FRUGI_NORM_CHUNK + 1;
    c->section = frugi_calloc(FRUGI_SECTIONS_PER_TENSOR * c->partition.views + 1, sizeof *c->section);
    c->norm.partial_energy = frugi_calloc(chunks, sizeof *c->norm.partial_energy);
    c->zeros = frugi_alloc(FRUGI_BATCH_ELEMENTS * sizeof *c->zeros);
    c->workspace = frugi_alloc((size_t)c->threads * sizeof *c->workspace);
    FRUG_FAIL_IF(!c->section || !c->norm.partial_energy || !c->zeros || !c->workspace, FRUG_ERR_MEMORY,
                 "compressor: out of memory");
    for (int i = 0; i < c->threads; i++)
        FRUG_TRY(make_workspace(c, &c->workspace[i]));
    FRUG_TRY(make_decoder(c));
    return frugi_feedback_create(&c->config, c->partition.blocks_before, c->partition.blocks, &c->feedback);
}

static frug_status init(frug_compressor *c, const frug_config *config, const frug_layout *layout,
                        const frug_compressor_options *options) {
    frugi_isa isa = frugi_isa_chosen();
    FRUG_FAIL_IF(isa == FRUGI_ISA_COUNT, FRUG_ERR_CONFIG,
                 "FRUG_ISA=%s is not supported by this CPU; the best available is %s", getenv("FRUG_ISA"),
                 frugi_isa_name(frugi_isa_best()));
    c->config = *config;
    c->total_steps = options->total_steps;
    c->source = options->source;
    c->threads = frugi_thread_count(options->threads);
    c->kernel = frugi_block_kernel_for(isa, config->block);
    c->encode_bf16 = frugi_bf16_encoder_for(isa);
    c->max_batch_blocks = FRUGI_BATCH_ELEMENTS / config->block;
    if (c->max_batch_blocks > FRUGI_BATCH_BLOCKS)
        c->max_batch_blocks = FRUGI_BATCH_BLOCKS;
    c->stats.struct_size = sizeof c->stats;
    FRUG_TRY(frugi_layout_copy(layout, &c->layout));
    c->layout_hash = frug_layout_hash(layout);
    FRUG_TRY(frugi_partition_create(c->layout, &c->partition));
    classify_tensors(c);
    number_blocks(c);
    FRUG_TRY(make_controller(c));
    c->path = fits_blocks(config) ? &frugi_block_path : &frugi_unit_path;
    if (c->path->by_units)
        FRUG_TRY(frugi_select_groups_create(c));
    return make_buffers(c);
}

frug_status frug_compressor_create(const frug_config *config, const frug_layout *layout,
                                   const frug_compressor_options *options, frug_compressor **compressor) {
    frug_compressor_options full = FRUG_COMPRESSOR_OPTIONS_INIT;
    FRUG_FAIL_IF(!config || !layout || !compressor, FRUG_ERR_ARG, "compressor: config, layout or result is NULL");
    FRUG_FAIL_IF(options && !frugi_struct_valid(options), FRUG_ERR_ARG,
                 "compressor: initialize options with FRUG_COMPRESSOR_OPTIONS_INIT");
    if (options)
        frugi_struct_read(&full, options);
    FRUG_FAIL_IF(full.threads < 0, FRUG_ERR_ARG, "compressor: negative number of threads: %d", full.threads);
    frug_compressor *c = frugi_calloc(1, sizeof *c);
    FRUG_FAIL_IF(!c, FRUG_ERR_MEMORY, "compressor: out of memory");
    frug_status status = init(c, config, layout, &full);
    if (status == FRUG_OK)
        *compressor = c;
    else
        frug_compressor_destroy(c);
    return status;
}

void frug_compressor_destroy(frug_compressor *c) {
    if (!c)
        return;
    for (int i = 0; c->workspace && i < c->threads; i++)
        frugi_free(c->workspace[i].memory);
    frugi_free(c->workspace);
    frugi_feedback_destroy(&c->feedback);
    frugi_select_groups_destroy(c);
    frugi_control_destroy(c->control);
    frugi_free(c->density);
    frugi_free(c->norm.partial_energy);
    frugi_free(c->zeros);
    frugi_decoder_free(&c->decoder);
    frugi_free(c->section);
    frugi_partition_destroy(&c->partition);
    frug_layout_destroy(c->layout);
    frugi_free(c);
}

frug_decoder *frug_compressor_decoder(frug_compressor *c) {
    return c ? &c->decoder : NULL;
}

frug_status frug_compressor_bound(const frug_compressor *c, frug_range range, size_t *bytes) {
    FRUG_FAIL_IF(!c || !bytes, FRUG_ERR_ARG, "bound: compressor or result is NULL");
    frugi_frame_size all = {0};
    uint64_t most;
    FRUG_TRY(c->path->bound(c, range, &most));
    if (c->config.warmup || c->config.dense_every)
        FRUG_TRY(frugi_make_sections(c, range, 0, FRUGI_SECTIONS_DENSE, NULL, &all));
    *bytes = all.bytes > most ? all.bytes : most;
    return FRUG_OK;
}

frug_status frug_compressor_plan(const frug_compressor *c, uint64_t step, size_t tensor, frug_tensor_plan *plan) {
    FRUG_FAIL_IF(!c || !frugi_struct_valid(plan), FRUG_ERR_ARG,
                 "plan: compressor or result is NULL, or its struct_size is not set");
    FRUG_FAIL_IF(tensor >= c->layout->count, FRUG_ERR_ARG, "plan: no tensor %zu: the layout has %zu", tensor,
                 c->layout->count);
    const frug_tensor *t = &c->layout->tensor[tensor];
    frug_tensor_plan made = {.struct_size = sizeof made, .unit = "element", .unit_h = 1, .unit_w = 1, .density = 1};
    size_t i = frugi_view_at(&c->partition, t->offset);
    made.units = made.selected = frugi_tensor_elements(t);
    made.dense = 1;
    if (made.units && !c->partition.view[i].dense && !frugi_control_sends_all(&c->config, step)) {
        made.dense = 0;
        c->path->plan(c, &c->partition.view[i], step, &made);
    }
    frugi_struct_write(plan, &made);
    return FRUG_OK;
}

frug_status frug_compressor_get_residual(const frug_compressor *c, frug_range range, float *dst) {
    frugi_frame_size size;
    FRUG_FAIL_IF(!c || (!dst && range.count), FRUG_ERR_ARG, "residual: compressor or destination is NULL");
    FRUG_TRY(frugi_make_sections(c, range, 0, FRUGI_SECTIONS_DENSE, NULL, &size));
    frugi_residual_read(&c->feedback, &c->partition, range, dst);
    return FRUG_OK;
}

frug_status frug_compressor_set_residual(frug_compressor *c, frug_range range, const float *src) {
    frugi_frame_size size;
    FRUG_FAIL_IF(!c || (!src && range.count), FRUG_ERR_ARG, "residual: compressor or source is NULL");
    FRUG_TRY(frugi_make_sections(c, range, 0, FRUGI_SECTIONS_DENSE, NULL, &size));
    return frugi_residual_write(&c->feedback, &c->partition, range, src);
}

/* Signals about one tensor: its sensitivity, or the scores of its heads. */
static frug_status set_tensor_signal(frug_compressor *c, frug_signal signal, size_t tensor, const double *values,
                                     size_t count) {
    FRUG_FAIL_IF(tensor >= c->layout->count, FRUG_ERR_ARG, "signal: no tensor %zu: the layout has %zu", tensor,
                 c->layout->count);
    const char *name = c->layout->tensor[tensor].name;
    const frugi_tensor_view *view = c->partition.view;
    while (view < c->partition.view + c->partition.views && (view->tensor != tensor || view->dense))
        view++;
    FRUG_FAIL_IF(view == c->partition.view + c->partition.views, FRUG_ERR_ARG, "signal: tensor '%s' is sent dense",
                 name);
    if (signal == FRUG_SIGNAL_SENSITIVITY) {
        FRUG_FAIL_IF(c->config.layers != FRUGI_LAYERS_SENSITIVITY, FRUG_ERR_ARG,
                     "signal: the sensitivity of tensor '%s' needs layers=sensitivity", name);
        FRUG_FAIL_IF(count != 1, FRUG_ERR_ARG, "signal: the sensitivity of tensor '%s' is 1 number, not %zu", name,
                     count);
        frugi_control_set_weight(c->control, view->number, values[0]);
        return FRUG_OK;
    }
    FRUG_FAIL_IF(!c->units.given_scores || !c->units.select_group[view->select_group].heads, FRUG_ERR_ARG,
                 "signal: tensor '%s' has no heads whose scores can be set; this needs unit=head,score=given", name);
    FRUG_FAIL_IF(view->absent, FRUG_ERR_ARG, "signal: tensor '%s' is absent: it has no scores", name);
    frugi_select_group *group = &c->units.select_group[view->select_group];
    FRUG_FAIL_IF(count != group->units, FRUG_ERR_ARG, "signal: %zu scores for the %llu heads of tensor '%s'", count,
                 (unsigned long long)group->units, name);
    for (size_t i = 0; i < count; i++)
        c->units.given_scores[group->first_unit + i] = values[i] < FLT_MAX ? (float)values[i] : FLT_MAX;
    group->scores_given = true;
    return FRUG_OK;
}

frug_status frug_compressor_set_signal(frug_compressor *c, frug_signal signal, size_t tensor, const double *values,
                                       size_t count) {
    FRUG_FAIL_IF(!c || !values || count == 0, FRUG_ERR_ARG, "signal: compressor or values are missing");
    for (size_t i = 0; i < count; i++)
        FRUG_FAIL_IF(!(values[i] >= 0 && values[i] <= DBL_MAX), FRUG_ERR_ARG,
                     "signal: value %zu is negative or not finite", i);
    switch (signal) {
    case FRUG_SIGNAL_NORM:
        FRUG_FAIL_IF(count != 1, FRUG_ERR_ARG, "signal: the norm is 1 number, not %zu", count);
        FRUG_FAIL_IF(c->config.norm == FRUGI_NORM_OFF, FRUG_ERR_ARG,
                     "signal: the norm needs norm=follow or norm=accordion");
        c->norm.is_set = true;
        c->norm.value = values[0];
        return FRUG_OK;
    case FRUG_SIGNAL_SENSITIVITY:
    case FRUG_SIGNAL_HEADS: return set_tensor_signal(c, signal, tensor, values, count);
    }
    return frugi_fail(FRUG_ERR_ARG, "signal: unknown signal %d", (int)signal);
}
