/*
 * gpu_compressor.c - the host side of the GPU's compressor: what is cut how, where everything lies, and which kernels
 * go onto the stream.
 *
 * A compressor of the CPU without memory of its own (plan) knows the layout and the schedule and cuts ranges into
 * slices; they go to the kernels as arguments.
 */
#include "frugrad_cuda.h"

#include "base/crc32c.h"
#include "cuda/gpu_compressor.h"

#include <assert.h>
#include <stdlib.h>

#define FRAME_MOST ((uint64_t)1 << 30) /* as far as the tables of powers reach */

frug_status frugi_cuda_failed(const char *what, cudaError_t error) {
    return frugi_fail(error == cudaErrorMemoryAllocation ? FRUG_ERR_MEMORY : FRUG_ERR_DEVICE, "cuda: %s: %s", what,
                      cudaGetErrorString(error));
}

/* ---- kernels ---------------------------------------------------------------------------------------- */

/** Those that are compiled for a length of blocks. */
typedef struct kernels {
    uint32_t block;
    cudaError_t (*press)(const frugi_gpu_press *, int, cudaStream_t);
    cudaError_t (*check)(const frugi_gpu_sum *, int, cudaStream_t);
    cudaError_t (*sum)(const frugi_gpu_sum *, int, cudaStream_t);
} kernels;

static const kernels all_kernels[] = {{64, frugi_gpu_press_64, frugi_gpu_check_64, frugi_gpu_sum_64},
                                      {128, frugi_gpu_press_128, frugi_gpu_check_128, frugi_gpu_sum_128},
                                      {256, frugi_gpu_press_256, frugi_gpu_check_256, frugi_gpu_sum_256}};

/* Or NULL. */
static const kernels *kernels_for(uint32_t block) {
    for (size_t i = 0; i < sizeof all_kernels / sizeof *all_kernels; i++)
        if (all_kernels[i].block == block)
            return &all_kernels[i];
    return NULL;
}

/* ---- making one ------------------------------------------------------------------------------------ */

static frug_status check_config(const struct frug_config *f, const frug_compressor *plan) {
    bool qsgd = f->value == FRUGI_VALUE_QSGD && f->unit == FRUGI_UNIT_ELEMENT && f->segment != FRUGI_SEGMENT_GROUP;
    FRUG_FAIL_IF(qsgd && f->feedback != FRUGI_FEEDBACK_NONE, FRUG_ERR_CONFIG,
                 "cuda: there are kernels for value=qsgd with feedback=none only");
    FRUG_FAIL_IF((plan->by_units && !qsgd) || !kernels_for(f->block), FRUG_ERR_CONFIG,
                 "cuda: there are kernels for the largest of blocks of 64, 128 or 256 entries as f32, bf16, f16 or "
                 "int8, and for value=qsgd, only");
    FRUG_FAIL_IF(f->feedback == FRUGI_FEEDBACK_DGC || f->feedback == FRUGI_FEEDBACK_EF21, FRUG_ERR_CONFIG,
                 "cuda: there are kernels for feedback=merged, plain and none only");
    FRUG_FAIL_IF(f->norm != FRUGI_NORM_OFF, FRUG_ERR_CONFIG,
                 "cuda: with norm the lengths of frames depend on the gradient; here they are known before it is read");
    FRUG_FAIL_IF(f->layers == FRUGI_LAYERS_SENSITIVITY, FRUG_ERR_CONFIG,
                 "cuda: layers=sensitivity goes by what a compressor is told, and this one cannot be told anything");
    return FRUG_OK;
}

static size_t residual_bytes(const frug_cuda *g) {
    size_t elements = (size_t)g->plan->blocks * g->config.block;
    switch (g->config.residual) {
    case FRUGI_RESIDUAL_F32: return 4 * elements;
    case FRUGI_RESIDUAL_BF16: return 2 * elements;
    case FRUGI_RESIDUAL_INT8: return elements;
    case FRUGI_RESIDUAL_INT4: return elements / 2;
    }
    return 0;
}

static bool has_scales(const frug_cuda *g) {
    return g->config.residual == FRUGI_RESIDUAL_INT8 || g->config.residual == FRUGI_RESIDUAL_INT4;
}

static frug_status make_residual(frug_cuda *g) {
    uint64_t blocks = g->plan->blocks;
    size_t bytes = residual_bytes(g);
    if (!frugi_cuda_keeps(g))
        return FRUG_OK;
    TRY_CUDA("memory for the residual", cudaMalloc((void **)&g->residual, bytes));
    TRY_CUDA("residual", cudaMemset(g->residual, g->config.residual == FRUGI_RESIDUAL_INT4 ? 0x88 : 0, bytes));
    if (!has_scales(g))
        return FRUG_OK;
    TRY_CUDA("memory for scales", cudaMalloc((void **)&g->scale, blocks * sizeof *g->scale));
    TRY_CUDA("scales", cudaMemset(g->scale, 0, blocks * sizeof *g->scale));
    return FRUG_OK;
}

static frug_status make_tables(frug_cuda *g) {
    static_assert(sizeof(frugi_gpu_crc) == 4 * (1024 + 1024 + 3584), "no padding");
    frugi_gpu_crc *t = malloc(sizeof *t);
    FRUG_FAIL_IF(!t, FRUG_ERR_MEMORY, "cuda: out of memory");
    for (uint32_t i = 0; i < 1024; i++) {
        t->step[i / 256][i % 256] = frugi_crc32c_shift((i % 256) << (i / 256 * 8), 128);
        t->lane[i / 32][i % 32] = frugi_crc32c_shift(1u << i / 32, 4 * (32 - i % 32));
    }
    for (uint32_t i = 0; i < 3584; i++)
        t->power[i / 512][i / 32 % 16][i % 32] =
            frugi_crc32c_shift(1u << i % 32, (uint64_t)(i / 32 % 16) << (4 * (i / 512) + 2));
    cudaError_t error = cudaMalloc((void **)&g->crc, sizeof *t);
    if (error == cudaSuccess)
        error = cudaMemcpy(g->crc, t, sizeof *t, cudaMemcpyHostToDevice);
    free(t);
    TRY_CUDA("tables", error);
    return FRUG_OK;
}

static frug_status fill(frug_cuda *g, const frug_config *config, const frug_layout *layout,
                        const frug_options *options) {
    struct frug_config plan = *config;
    plan.feedback = FRUGI_FEEDBACK_NONE; /* what is left behind lies on the device */
    g->config = *config;
    FRUG_TRY(frug_compressor_create(&plan, layout, options, &g->plan));
    FRUG_TRY(check_config(config, g->plan));
    TRY_CUDA("no device", cudaGetDevice(&g->device));
    TRY_CUDA("device", cudaDeviceGetAttribute(&g->processors, cudaDevAttrMultiProcessorCount, g->device));
    FRUG_TRY(make_residual(g));
    FRUG_TRY(make_tables(g));
    FRUG_TRY(frugi_cuda_norm_make(g));
    FRUG_TRY(frugi_cuda_qsgd_make(g));
    TRY_CUDA("memory", cudaMalloc((void **)&g->desk, sizeof *g->desk));
    TRY_CUDA("memory", cudaMalloc((void **)&g->verdict, sizeof *g->verdict));
    TRY_CUDA("memory", cudaMemset(g->desk, 0, sizeof *g->desk));
    TRY_CUDA("verdict", cudaMemset(g->verdict, 0, sizeof *g->verdict));
    TRY_CUDA("device", cudaDeviceSynchronize()); /* streams need not wait for the default one, where all this went */
    return FRUG_OK;
}

frug_status frug_cuda_create(const frug_config *config, const frug_layout *layout, const frug_options *options,
                             frug_cuda **cuda) {
    FRUG_FAIL_IF(!config || !layout || !cuda, FRUG_ERR_ARG, "cuda: no config, no layout or no place for the result");
    frug_cuda *g = calloc(1, sizeof *g);
    FRUG_FAIL_IF(!g, FRUG_ERR_MEMORY, "cuda: out of memory");
    frug_status status = fill(g, config, layout, options);
    if (status == FRUG_OK)
        *cuda = g;
    else
        frug_cuda_destroy(g);
    return status;
}

void frug_cuda_destroy(frug_cuda *g) {
    if (!g)
        return;
    cudaFree(g->residual);
    cudaFree(g->scale);
    cudaFree(g->crc);
    cudaFree(g->desk);
    cudaFree(g->verdict);
    cudaFree(g->piece);
    cudaFree(g->partial);
    cudaFree(g->held);
    frug_compressor_destroy(g->plan);
    free(g);
}

frug_status frug_cuda_bound(const frug_cuda *g, uint64_t begin, uint64_t count, size_t *bytes) {
    FRUG_FAIL_IF(!g, FRUG_ERR_ARG, "cuda: no compressor");
    return frug_compressor_bound(g->plan, begin, count, bytes);
}

/* ---- calls ------------------------------------------------------------------------------------------ */

/** A range at a step: how it is cut, and the header its frame must have. */
typedef struct range {
    frugi_cutting cut;
    frugi_gpu_frame frame;
    bool all; /* everything leaves */
} range;

frug_status frugi_cuda_here(const frug_cuda *g) {
    int device;
    TRY_CUDA("device", cudaGetDevice(&device));
    FRUG_FAIL_IF(device != g->device, FRUG_ERR_ARG, "cuda: the compressor is on device %d, the current one is %d",
                 g->device, device);
    return FRUG_OK;
}

static frug_status cut_range(frug_cuda *g, uint64_t step, uint64_t begin, uint64_t count, range *r) {
    FRUG_TRY(frugi_cuda_here(g));
    FRUG_TRY(frugi_cut_step(g->plan, step, begin, count, &r->all, &r->cut));
    FRUG_TRY(frugi_cuda_qsgd_fits(g, &r->cut, begin, count));
    FRUG_FAIL_IF(r->cut.bytes > FRAME_MOST, FRUG_ERR_ARG, "cuda: a frame of %llu bytes; %llu are the most",
                 (unsigned long long)r->cut.bytes, (unsigned long long)FRAME_MOST);
    frugi_frame frame = {.bytes = r->cut.bytes,
                         .step = step,
                         .layout_hash = g->plan->layout_hash,
                         .source = g->plan->source,
                         .sections = (uint32_t)r->cut.slices};
    frugi_frame_write(&frame, r->frame.header);
    uint64_t body = r->cut.bytes - FRUGI_GPU_HEADER;
    const uint32_t one = 0x80000000u; /* x^0 */
    r->frame.base = frugi_crc32c_shift(~frugi_crc32c(0, r->frame.header, FRUGI_GPU_HEADER), body);
    r->frame.source = frame.source;
    r->frame.source_power = frugi_crc32c_shift(one, body + FRUGI_GPU_HEADER - 32);
    r->frame.held_power = frugi_crc32c_shift(one, body + FRUGI_GPU_HEADER - 40);
    return FRUG_OK;
}

static frugi_gpu_slice to_gpu(const frugi_slice *slice) {
    const frugi_section *s = &slice->section;
    return (frugi_gpu_slice){.begin = s->begin,
                             .count = s->count,
                             .kappa = s->kappa,
                             .first = s->first,
                             .carried = (uint32_t)(s->first * s->kappa),
                             .stored = slice->stored,
                             .payload_at = slice->payload_at,
                             .index_at = s->index_at,
                             .value_at = s->value_at,
                             .bytes = s->bytes,
                             .blocks = (uint32_t)s->blocks,
                             .tensor = s->tensor,
                             .index = (uint8_t)s->index,
                             .value = (uint8_t)s->value,
                             .dense = slice->dense,
                             .last = (uint8_t)(s->last_length - 1)};
}

size_t frugi_cuda_table(const frug_cuda *g, const frugi_cutting *cut, size_t from, frugi_gpu_table *table) {
    uint32_t each = FRUGI_GPU_STRETCH / g->config.block;
    table->slices = 0;
    table->stretches = 0;
    table->block = g->config.block;
    for (; from < cut->slices && table->slices < FRUGI_GPU_SLICES; from++) {
        if (!g->plan->slice[from].section.block) /* by units: gpu_qsgd.c */
            continue;
        frugi_gpu_slice *s = &table->slice[table->slices++];
        *s = to_gpu(&g->plan->slice[from]);
        s->stretches = (s->blocks + each - 1) / each;
        s->stretches_before = table->stretches;
        table->stretches += s->stretches;
    }
    return from;
}

frug_status frug_cuda_compress(frug_cuda *g, uint64_t step, uint64_t begin, uint64_t count, const float *grad,
                               void *dst, size_t cap, size_t *len, frug_stream stream) {
    FRUG_FAIL_IF(!g || (!grad && count) || !dst || !len, FRUG_ERR_ARG,
                 "cuda: no compressor, gradient, destination or place for the length");
    FRUG_FAIL_IF((uintptr_t)dst % 4 != 0, FRUG_ERR_ARG, "cuda: the destination is not at a multiple of four bytes");
    range r;
    FRUG_TRY(cut_range(g, step, begin, count, &r));
    *len = r.cut.bytes; /* also where there is no room for it */
    FRUG_FAIL_IF(cap < r.cut.bytes, FRUG_ERR_SHORT_BUFFER, "cuda: %llu bytes to write, room for %zu",
                 (unsigned long long)r.cut.bytes, cap);
    frugi_gpu_press press = {.grad = grad,
                             .frame = dst,
                             .residual = g->residual,
                             .scale = g->scale,
                             .desk = g->desk,
                             .crc = g->crc,
                             .what = r.frame,
                             .bytes = (uint32_t)r.cut.bytes,
                             .begin = begin,
                             .step = step,
                             .seed = g->config.seed,
                             .beta = g->config.feedback == FRUGI_FEEDBACK_MERGED ? (float)g->config.beta : 1.0f,
                             .value = r.all ? FRUGI_VALUE_F32 : (uint32_t)g->config.value,
                             .residual_format = (uint32_t)g->config.residual,
                             .kept = frugi_cuda_keeps(g),
                             .hist = g->config.select == FRUGI_SELECT_HIST};
    bool units = g->plan->by_units && !r.all;
    press.hold = frugi_held_share(&g->config, step, g->plan->total_steps);
    press.part = 1.0f - press.beta * press.hold;
    FRUG_TRY(frugi_cuda_clip(g, &press, count, stream));
    for (size_t at = 0; at < r.cut.slices;) {
        at = frugi_cuda_table(g, &r.cut, at, &press.table);
        press.last = at == r.cut.slices && !units;
        if (press.table.slices)
            TRY_CUDA("compress", kernels_for(g->config.block)->press(&press, g->processors, stream));
    }
    if (units)
        FRUG_TRY(frugi_cuda_qsgd_press(g, &r.cut, &press, stream));
    if (units || r.cut.slices == 0)
        TRY_CUDA("seal", frugi_gpu_seal_launch(&r.frame, dst, g->desk, stream));
    return FRUG_OK;
}

/* What is wrong with frames, before the first element of dst changes: all of it, or what the sum does not see. */
static frug_status check_frames(frug_cuda *g, const range *r, uint64_t step, frugi_gpu_sum *sum, frug_stream stream) {
    TRY_CUDA("checksum",
             frugi_gpu_crc_launch(sum->frame, sum->frames, r->cut.bytes, g->crc, g->desk, g->processors, stream));
    TRY_CUDA("check", frugi_gpu_judge_launch(&r->frame, sum, g->desk, stream));
    for (size_t at = 0; sum->checked && at < r->cut.slices;) {
        at = frugi_cuda_table(g, &r->cut, at, &sum->table);
        if (sum->table.slices)
            TRY_CUDA("check", kernels_for(g->config.block)->check(sum, g->processors, stream));
    }
    return frugi_cuda_qsgd_sum(g, &r->cut, step, sum, true, stream);
}

static frug_status combine(frug_cuda *g, uint64_t step, const void *const *frames, size_t count_frames,
                           const frugi_target *t, bool check_first, frug_stream stream) {
    FRUG_FAIL_IF(!g || (!frames && count_frames) || (!t->dst && t->count), FRUG_ERR_ARG,
                 "cuda: no compressor, no frames or no destination");
    FRUG_FAIL_IF(count_frames > FRUGI_GPU_FRAMES, FRUG_ERR_ARG, "cuda: %zu frames; %u are the most at once",
                 count_frames, FRUGI_GPU_FRAMES);
    range r;
    frugi_gpu_sum sum = {.frames = (uint32_t)count_frames,
                         .dst = t->dst,
                         .begin = t->begin,
                         .keep = t->keep,
                         .gain = t->gain,
                         .verdict = g->verdict,
                         .checked = check_first};
    for (size_t i = 0; i < count_frames; i++) {
        FRUG_FAIL_IF(!frames[i] || (uintptr_t)frames[i] % 4 != 0, FRUG_ERR_ARG,
                     "cuda: frame %zu is missing or not at a multiple of four bytes", i);
        sum.frame[i] = frames[i];
    }
    FRUG_TRY(cut_range(g, step, t->begin, t->count, &r));
    if (count_frames)
        FRUG_TRY(check_frames(g, &r, step, &sum, stream));
    for (size_t at = 0; at < r.cut.slices;) {
        at = frugi_cuda_table(g, &r.cut, at, &sum.table);
        if (sum.table.slices)
            TRY_CUDA("sum", kernels_for(g->config.block)->sum(&sum, g->processors, stream));
    }
    return frugi_cuda_qsgd_sum(g, &r.cut, step, &sum, false, stream);
}

frug_status frug_cuda_decompress_add(frug_cuda *g, uint64_t step, const void *const *frames, size_t count_frames,
                                     float scale, uint64_t begin, uint64_t count, float *dst, frug_stream stream) {
    frugi_target t = {.dst = dst, .begin = begin, .count = count, .keep = 1.0f, .gain = scale};
    return combine(g, step, frames, count_frames, &t, false, stream);
}

frug_status frug_cuda_apply(frug_cuda *g, uint64_t step, const void *const *frames, size_t count_frames, float rate,
                            float decay, uint64_t begin, uint64_t count, float *weights, frug_stream stream) {
    frugi_target t = {.dst = weights, .begin = begin, .count = count, .keep = 1.0f - decay, .gain = -rate};
    return combine(g, step, frames, count_frames, &t, true, stream);
}

frug_status frug_cuda_verdict(frug_cuda *g, frug_stream stream) {
    frugi_gpu_verdict found;
    FRUG_FAIL_IF(!g, FRUG_ERR_ARG, "cuda: no compressor");
    TRY_CUDA("verdict", cudaMemcpyAsync(&found, g->verdict, sizeof found, cudaMemcpyDeviceToHost, stream));
    TRY_CUDA("verdict", cudaStreamSynchronize(stream));
    if (found.status == FRUG_OK)
        return FRUG_OK;
    TRY_CUDA("verdict", cudaMemsetAsync(g->verdict, 0, sizeof *g->verdict, stream));
    frug_status status = (frug_status)found.status;
    FRUG_FAIL_IF(status == FRUG_ERR_CHECKSUM, status, "cuda: frame %u was damaged on the way", found.frame);
    FRUG_FAIL_IF(status == FRUG_ERR_FORMAT, status, "cuda: frame %u holds an invalid index or value", found.frame);
    return frugi_fail(FRUG_ERR_MISMATCH, "cuda: frame %u is of another step, range, layout or config", found.frame);
}

/* ---- states ----------------------------------------------------------------------------------------- */

static frug_status check_twin(const frug_cuda *g, const frug_compressor *c) {
    FRUG_FAIL_IF(!g || !c, FRUG_ERR_ARG, "cuda: no compressor");
    FRUG_FAIL_IF(c->layout_hash != g->plan->layout_hash || c->config.feedback != g->config.feedback ||
                     c->config.residual != g->config.residual || c->config.block != g->config.block ||
                     c->blocks != g->plan->blocks || c->config.min_size != g->config.min_size,
                 FRUG_ERR_MISMATCH, "cuda: the compressors differ in layout, feedback, residual, block or min_size");
    return frugi_cuda_here(g);
}

static frug_status move_state(const frug_cuda *g, const frug_compressor *c, enum cudaMemcpyKind way) {
    FRUG_TRY(check_twin(g, c));
    if (!frugi_cuda_keeps(g))
        return FRUG_OK;
    size_t bytes = residual_bytes(g), scales = g->plan->blocks * sizeof(uint16_t);
    bool out = way == cudaMemcpyDeviceToHost;
    TRY_CUDA("state", cudaDeviceSynchronize());
    TRY_CUDA("state",
             cudaMemcpy(out ? c->residual.data : g->residual, out ? g->residual : c->residual.data, bytes, way));
    if (has_scales(g))
        TRY_CUDA("state", cudaMemcpy(out ? (void *)c->residual.scale : (void *)g->scale,
                                     out ? (void *)g->scale : (void *)c->residual.scale, scales, way));
    TRY_CUDA("state", cudaDeviceSynchronize()); /* a copy to the device may return before it is there */
    return FRUG_OK;
}

frug_status frug_cuda_to_host(frug_cuda *g, frug_compressor *compressor) {
    return move_state(g, compressor, cudaMemcpyDeviceToHost);
}

frug_status frug_cuda_from_host(frug_cuda *g, const frug_compressor *compressor) {
    return move_state(g, compressor, cudaMemcpyHostToDevice);
}
