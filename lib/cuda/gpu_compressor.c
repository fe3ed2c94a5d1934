/*
 * gpu_compressor.c - host side of the GPU compressor: validate options, allocate device memory, lay out frames, launch
 * kernels.
 *
 * A CPU compressor without a residual (`plan`) has the layout and the schedule. It divides ranges into sections, which
 * are passed to the kernels as arguments.
 */
#include "frugrad/cuda.h"

#include "base/crc32c.h"
#include "cuda/gpu_compressor.h"

#include <assert.h>
#include <stdlib.h>

#define MAX_FRAME_BYTES ((uint64_t)1 << 30) /* limit of the tables of checksum powers */

frug_status frugi_cuda_error(const char *frame_header, cudaError_t error) {
    return frugi_fail(error == cudaErrorMemoryAllocation ? FRUG_ERR_MEMORY : FRUG_ERR_DEVICE, "cuda: %s: %s",
                      frame_header, cudaGetErrorString(error));
}

/* ---- kernels ---------------------------------------------------------------------------------------- */

/** Kernels that are compiled for one block length. */
typedef struct kernels {
    uint32_t block;
    cudaError_t (*compress)(const frugi_gpu_compress_args *, int, cudaStream_t);
    cudaError_t (*check)(const frugi_gpu_sum_args *, int, cudaStream_t);
    cudaError_t (*sum)(const frugi_gpu_sum_args *, int, cudaStream_t);
} kernels;

static const kernels all_kernels[] = {{64, frugi_gpu_compress_64, frugi_gpu_check_64, frugi_gpu_sum_64},
                                      {128, frugi_gpu_compress_128, frugi_gpu_check_128, frugi_gpu_sum_128},
                                      {256, frugi_gpu_compress_256, frugi_gpu_check_256, frugi_gpu_sum_256},
                                      {1024, frugi_gpu_compress_1024, frugi_gpu_check_1024, frugi_gpu_sum_1024},
                                      {4096, frugi_gpu_compress_4096, frugi_gpu_check_4096, frugi_gpu_sum_4096}};

/* NULL if there are none for this length. */
static const kernels *kernels_for(uint32_t block) {
    for (size_t i = 0; i < sizeof all_kernels / sizeof *all_kernels; i++)
        if (all_kernels[i].block == block)
            return &all_kernels[i];
    return NULL;
}

/* ---- create and destroy ------------------------------------------------------------------------------ */

static frug_status check_config(const struct frug_config *f, const frug_compressor *plan) {
    bool qsgd = f->value == FRUGI_VALUE_QSGD && f->unit == FRUGI_UNIT_ELEMENT && f->segment != FRUGI_SEGMENT_GROUP;
    FRUG_FAIL_IF(qsgd && f->feedback != FRUGI_FEEDBACK_NONE, FRUG_ERR_CONFIG,
                 "cuda: value=qsgd is supported with feedback=none only");
    FRUG_FAIL_IF((frugi_compressor_by_units(plan) && !qsgd) || !kernels_for(f->block), FRUG_ERR_CONFIG,
                 "cuda: unsupported config; accepted: top-k of blocks with value=f32, bf16, f16 or int8; value=qsgd");
    FRUG_FAIL_IF(f->feedback == FRUGI_FEEDBACK_DGC || f->feedback == FRUGI_FEEDBACK_EF21, FRUG_ERR_CONFIG,
                 "cuda: unsupported feedback; accepted: merged plain none");
    FRUG_FAIL_IF(frugi_compressor_partition(plan)->any_absent, FRUG_ERR_CONFIG,
                 "cuda: layouts with absent tensors are not supported");
    FRUG_FAIL_IF(f->norm != FRUGI_NORM_OFF, FRUG_ERR_CONFIG,
                 "cuda: norm is not supported: frame lengths would depend on the gradient; use norm=off");
    FRUG_FAIL_IF(f->mean != FRUGI_MEAN_ALL, FRUG_ERR_CONFIG,
                 "cuda: mean=senders is not supported: kernels sum frames and do not count them");
    FRUG_FAIL_IF(f->layers == FRUGI_LAYERS_SENSITIVITY, FRUG_ERR_CONFIG,
                 "cuda: layers=sensitivity is not supported: sensitivities cannot be set for a GPU compressor");
    return FRUG_OK;
}

static size_t residual_bytes(const frug_cuda *g) {
    size_t elements = (size_t)frugi_cuda_blocks(g) * g->config.block;
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

static frug_status alloc_residual(frug_cuda *g) {
    uint64_t blocks = frugi_cuda_blocks(g);
    size_t bytes = residual_bytes(g);
    if (!frugi_cuda_has_residual(g))
        return FRUG_OK;
    TRY_CUDA("allocate residual", cudaMalloc((void **)&g->residual, bytes));
    TRY_CUDA("clear residual", cudaMemset(g->residual, g->config.residual == FRUGI_RESIDUAL_INT4 ? 0x88 : 0, bytes));
    if (!has_scales(g))
        return FRUG_OK;
    TRY_CUDA("allocate scales", cudaMalloc((void **)&g->scale, blocks * sizeof *g->scale));
    TRY_CUDA("clear scales", cudaMemset(g->scale, 0, blocks * sizeof *g->scale));
    return FRUG_OK;
}

static frug_status make_crc_tables(frug_cuda *g) {
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
    TRY_CUDA("copy checksum tables", error);
    return FRUG_OK;
}

static frug_status init(frug_cuda *g, const frug_config *config, const frug_layout *layout,
                        const frug_compressor_options *options) {
    struct frug_config plan = *config;
    plan.feedback = FRUGI_FEEDBACK_NONE; /* the residual is on the device */
    g->config = *config;
    FRUG_TRY(frug_compressor_create(&plan, layout, options, &g->plan));
    FRUG_TRY(check_config(config, g->plan));
    TRY_CUDA("get device", cudaGetDevice(&g->device));
    TRY_CUDA("get device attribute", cudaDeviceGetAttribute(&g->processors, cudaDevAttrMultiProcessorCount, g->device));
    FRUG_TRY(alloc_residual(g));
    FRUG_TRY(make_crc_tables(g));
    FRUG_TRY(frugi_cuda_norm_create(g));
    FRUG_TRY(frugi_cuda_qsgd_create(g));
    TRY_CUDA("allocate workspace", cudaMalloc((void **)&g->workspace, sizeof *g->workspace));
    TRY_CUDA("allocate workspace", cudaMalloc((void **)&g->error, sizeof *g->error));
    TRY_CUDA("clear workspace", cudaMemset(g->workspace, 0, sizeof *g->workspace));
    TRY_CUDA("clear workspace", cudaMemset(g->error, 0, sizeof *g->error));
    /* The calls above used the default stream, for which other streams need not wait. */
    TRY_CUDA("synchronize", cudaDeviceSynchronize());
    return FRUG_OK;
}

frug_status frug_cuda_create(const frug_config *config, const frug_layout *layout,
                             const frug_compressor_options *options, frug_cuda **cuda) {
    FRUG_FAIL_IF(!config || !layout || !cuda, FRUG_ERR_ARG, "cuda: null config, layout or result pointer");
    frug_cuda *g = calloc(1, sizeof *g);
    FRUG_FAIL_IF(!g, FRUG_ERR_MEMORY, "cuda: out of memory");
    frug_status status = init(g, config, layout, options);
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
    cudaFree(g->workspace);
    cudaFree(g->error);
    cudaFree(g->tensor);
    cudaFree(g->partial);
    cudaFree(g->skipped);
    frug_compressor_destroy(g->plan);
    free(g);
}

frug_status frug_cuda_bound(const frug_cuda *g, frug_range range, size_t *bytes) {
    const uint64_t begin = range.begin, count = range.count;
    FRUG_FAIL_IF(!g, FRUG_ERR_ARG, "cuda: null compressor");
    return frug_compressor_bound(g->plan, (frug_range){begin, count}, bytes);
}

/* ---- compress and sum -------------------------------------------------------------------------------- */

/** A range at a step: its sections, and the header that its frame must have. */
typedef struct planned_range {
    frugi_step_sections cut;
    frugi_gpu_frame_header header;
} planned_range;

frug_status frugi_cuda_check_device(const frug_cuda *g) {
    int device;
    TRY_CUDA("device", cudaGetDevice(&device));
    FRUG_FAIL_IF(device != g->device, FRUG_ERR_ARG, "cuda: the compressor is on device %d, the current one is %d",
                 g->device, device);
    return FRUG_OK;
}

static frug_status plan_range(frug_cuda *g, uint64_t step, uint64_t begin, uint64_t count, planned_range *r) {
    FRUG_TRY(frugi_cuda_check_device(g));
    FRUG_TRY(frugi_make_step_sections(g->plan, step, (frug_range){begin, count}, &r->cut));
    FRUG_TRY(frugi_cuda_qsgd_check_range(g, &r->cut, begin, count));
    FRUG_FAIL_IF(r->cut.size.bytes > MAX_FRAME_BYTES, FRUG_ERR_ARG,
                 "cuda: a frame of %llu bytes is too long; at most %llu", (unsigned long long)r->cut.size.bytes,
                 (unsigned long long)MAX_FRAME_BYTES);
    frugi_frame frame = {.bytes = r->cut.size.bytes,
                         .step = step,
                         .layout_hash = frugi_compressor_layout_hash(g->plan),
                         .source = frugi_compressor_options(g->plan).source,
                         .sections = (uint32_t)r->cut.size.sections};
    frugi_frame_write(&frame, r->header.bytes);
    uint64_t body = r->cut.size.bytes - FRUGI_GPU_HEADER;
    const uint32_t one = 0x80000000u; /* x^0 */
    r->header.base = frugi_crc32c_shift(~frugi_crc32c(0, r->header.bytes, FRUGI_GPU_HEADER), body);
    r->header.source = frame.source;
    r->header.source_power = frugi_crc32c_shift(one, body + FRUGI_GPU_HEADER - 32);
    r->header.skipped_power = frugi_crc32c_shift(one, body + FRUGI_GPU_HEADER - 40);
    return FRUG_OK;
}

static frugi_gpu_section make_section(const frugi_frame_section *slice) {
    const frugi_section *s = &slice->section;
    return (frugi_gpu_section){.begin = s->begin,
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
                               .index = (uint32_t)s->index & 15u,
                               .value = (uint32_t)s->value & 255u,
                               .dense = slice->dense,
                               .last = (s->last_length - 1) & 4095u};
}

size_t frugi_cuda_fill_table(const frug_cuda *g, const frugi_step_sections *cut, size_t from,
                             frugi_gpu_section_table *table) {
    uint32_t each = g->config.block > FRUGI_GPU_WARP_TILE ? 1 : FRUGI_GPU_WARP_TILE / g->config.block;
    table->sections = 0;
    table->tiles = 0;
    table->block = g->config.block;
    for (; from < cut->size.sections && table->sections < FRUGI_GPU_SECTIONS; from++) {
        if (!cut->section[from].section.block) /* a section by units: gpu_qsgd.c */
            continue;
        frugi_gpu_section *s = &table->section[table->sections++];
        *s = make_section(&cut->section[from]);
        s->tiles = (s->blocks + each - 1) / each;
        s->tiles_before = table->tiles;
        table->tiles += s->tiles;
    }
    return from;
}

frug_status frug_cuda_compress(frug_cuda *g, uint64_t step, frug_range range, const float *grad, void *dst, size_t cap,
                               size_t *len, frug_stream stream) {
    const uint64_t begin = range.begin, count = range.count;
    FRUG_FAIL_IF(!g || (!grad && count) || !dst || !len, FRUG_ERR_ARG,
                 "cuda: null compressor, gradient, destination or length pointer");
    FRUG_FAIL_IF((uintptr_t)dst % 4 != 0, FRUG_ERR_ARG, "cuda: the destination is not aligned to 4 bytes");
    planned_range r;
    FRUG_TRY(plan_range(g, step, begin, count, &r));
    *len = r.cut.size.bytes; /* also if the buffer is too short */
    FRUG_FAIL_IF(cap < r.cut.size.bytes, FRUG_ERR_SHORT_BUFFER, "cuda: the frame has %llu bytes, the buffer only %zu",
                 (unsigned long long)r.cut.size.bytes, cap);
    frugi_feedback_step feedback = frugi_step_feedback(&g->config, step, frugi_compressor_options(g->plan).total_steps);
    frugi_gpu_compress_args args = {.grad = grad,
                                    .frame = dst,
                                    .residual = g->residual,
                                    .scale = g->scale,
                                    .workspace = g->workspace,
                                    .crc = g->crc,
                                    .frame_header = r.header,
                                    .bytes = (uint32_t)r.cut.size.bytes,
                                    .begin = begin,
                                    .step = step,
                                    .seed = g->config.seed,
                                    .beta = frugi_feedback_beta(&g->config),
                                    .retention = feedback.retained_share,
                                    .sent_share = feedback.sent_share,
                                    .value = r.cut.send_all ? FRUGI_VALUE_F32 : (uint32_t)g->config.value,
                                    .residual_format = (uint32_t)g->config.residual,
                                    .has_residual = frugi_cuda_has_residual(g),
                                    .hist = g->config.select == FRUGI_SELECT_HIST};
    bool units = frugi_compressor_by_units(g->plan) && !r.cut.send_all;
    FRUG_TRY(frugi_cuda_clip(g, &args, count, stream));
    for (size_t at = 0; at < r.cut.size.sections;) {
        at = frugi_cuda_fill_table(g, &r.cut, at, &args.table);
        args.last = at == r.cut.size.sections && !units;
        if (args.table.sections)
            TRY_CUDA("compress", kernels_for(g->config.block)->compress(&args, g->processors, stream));
    }
    if (units)
        FRUG_TRY(frugi_cuda_qsgd_encode(g, &r.cut, &args, stream));
    if (units || r.cut.size.sections == 0)
        TRY_CUDA("write frame header", frugi_gpu_frame_header_launch(&r.header, dst, g->workspace, stream));
    return FRUG_OK;
}

/* Check frames before the first element of dst changes: completely, or only what the sum kernel does not check. */
static frug_status check_frames(frug_cuda *g, const planned_range *r, uint64_t step, frugi_gpu_sum_args *sum,
                                frug_stream stream) {
    TRY_CUDA("checksum", frugi_gpu_crc_launch(sum->frame, sum->frames, r->cut.size.bytes, g->crc, g->workspace,
                                              g->processors, stream));
    TRY_CUDA("check", frugi_gpu_check_frames_launch(&r->header, sum, g->workspace, stream));
    for (size_t at = 0; sum->checked && at < r->cut.size.sections;) {
        at = frugi_cuda_fill_table(g, &r->cut, at, &sum->table);
        if (sum->table.sections)
            TRY_CUDA("check", kernels_for(g->config.block)->check(sum, g->processors, stream));
    }
    return frugi_cuda_qsgd_sum(g, &r->cut, step, sum, true, stream);
}

static frug_status sum_frames(frug_cuda *g, uint64_t step, const void *const *frames, size_t count_frames,
                              const frugi_target *t, bool check_first, frug_stream stream) {
    FRUG_FAIL_IF(!g || (!frames && count_frames) || (!t->dst && t->count), FRUG_ERR_ARG,
                 "cuda: null compressor, frames or destination");
    FRUG_FAIL_IF(count_frames > FRUGI_GPU_FRAMES, FRUG_ERR_ARG, "cuda: %zu frames are too many; at most %u per call",
                 count_frames, FRUGI_GPU_FRAMES);
    planned_range r;
    frugi_gpu_sum_args sum = {.frames = (uint32_t)count_frames,
                              .dst = t->dst,
                              .begin = t->begin,
                              .keep = t->keep,
                              .gain = t->gain,
                              .error = g->error,
                              .checked = check_first};
    for (size_t i = 0; i < count_frames; i++) {
        FRUG_FAIL_IF(!frames[i] || (uintptr_t)frames[i] % 4 != 0, FRUG_ERR_ARG,
                     "cuda: frame %zu is null or not aligned to 4 bytes", i);
        sum.frame[i] = frames[i];
    }
    FRUG_TRY(plan_range(g, step, t->begin, t->count, &r));
    if (count_frames)
        FRUG_TRY(check_frames(g, &r, step, &sum, stream));
    for (size_t at = 0; at < r.cut.size.sections;) {
        at = frugi_cuda_fill_table(g, &r.cut, at, &sum.table);
        if (sum.table.sections)
            TRY_CUDA("sum", kernels_for(g->config.block)->sum(&sum, g->processors, stream));
    }
    return frugi_cuda_qsgd_sum(g, &r.cut, step, &sum, false, stream);
}

frug_status frug_cuda_decode_add(frug_cuda *g, uint64_t step, frug_range range, const void *const *frames,
                                 size_t count_frames, double scale, float *dst, frug_stream stream) {
    const uint64_t begin = range.begin, count = range.count;
    frugi_target t = {.dst = dst, .begin = begin, .count = count, .keep = 1.0f, .gain = (float)scale};
    return sum_frames(g, step, frames, count_frames, &t, false, stream);
}

frug_status frug_cuda_decode_apply(frug_cuda *g, uint64_t step, frug_range range, const void *const *frames,
                                   size_t count_frames, double rate, double decay, float *weights, frug_stream stream) {
    const uint64_t begin = range.begin, count = range.count;
    frugi_target t = {
        .dst = weights, .begin = begin, .count = count, .keep = 1.0f - (float)decay, .gain = -(float)rate};
    return sum_frames(g, step, frames, count_frames, &t, true, stream);
}

frug_status frug_cuda_check(frug_cuda *g, frug_stream stream) {
    frugi_gpu_error error;
    FRUG_FAIL_IF(!g, FRUG_ERR_ARG, "cuda: null compressor");
    TRY_CUDA("copy status", cudaMemcpyAsync(&error, g->error, sizeof error, cudaMemcpyDeviceToHost, stream));
    TRY_CUDA("copy status", cudaStreamSynchronize(stream));
    if (error.status == FRUG_OK)
        return FRUG_OK;
    TRY_CUDA("clear status", cudaMemsetAsync(g->error, 0, sizeof *g->error, stream));
    frug_status status = (frug_status)error.status;
    FRUG_FAIL_IF(status == FRUG_ERR_CHECKSUM, status, "cuda: frame %u was damaged in transfer: checksum mismatch",
                 error.frame);
    FRUG_FAIL_IF(status == FRUG_ERR_FORMAT, status, "cuda: invalid index or value in frame %u", error.frame);
    return frugi_fail(FRUG_ERR_MISMATCH, "cuda: frame %u belongs to another step, range, layout or config",
                      error.frame);
}

/* ---- state ------------------------------------------------------------------------------------------ */

static frug_status check_same_config(const frug_cuda *g, const frug_compressor *c) {
    FRUG_FAIL_IF(!g || !c, FRUG_ERR_ARG, "cuda: null compressor");
    const struct frug_config *f = frugi_compressor_config(c);
    FRUG_FAIL_IF(frugi_compressor_layout_hash(c) != frugi_compressor_layout_hash(g->plan) ||
                     f->feedback != g->config.feedback || f->residual != g->config.residual ||
                     f->block != g->config.block || f->min_size != g->config.min_size ||
                     frugi_compressor_partition(c)->blocks != frugi_cuda_blocks(g),
                 FRUG_ERR_MISMATCH, "cuda: the compressors differ in layout, feedback, residual, block or min_size");
    return frugi_cuda_check_device(g);
}

static frug_status copy_state(const frug_cuda *g, const frug_compressor *c, enum cudaMemcpyKind way) {
    FRUG_TRY(check_same_config(g, c));
    if (!frugi_cuda_has_residual(g))
        return FRUG_OK;
    size_t bytes = residual_bytes(g), scales = frugi_cuda_blocks(g) * sizeof(uint16_t);
    const frugi_store *host = frugi_compressor_residual(c);
    bool out = way == cudaMemcpyDeviceToHost;
    TRY_CUDA("state", cudaDeviceSynchronize());
    TRY_CUDA("state", cudaMemcpy(out ? host->data : g->residual, out ? g->residual : host->data, bytes, way));
    if (has_scales(g))
        TRY_CUDA("state", cudaMemcpy(out ? host->scale : g->scale, out ? g->scale : host->scale, scales, way));
    TRY_CUDA("state", cudaDeviceSynchronize()); /* cudaMemcpy to the device may return before the data is there */
    return FRUG_OK;
}

frug_status frug_cuda_to_host(frug_cuda *g, frug_compressor *compressor) {
    return copy_state(g, compressor, cudaMemcpyDeviceToHost);
}

frug_status frug_cuda_from_host(frug_cuda *g, const frug_compressor *compressor) {
    return copy_state(g, compressor, cudaMemcpyHostToDevice);
}
