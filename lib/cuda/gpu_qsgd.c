/*
 * gpu_qsgd.c - host side of value=qsgd: the sections of a range and their positions in a frame.
 *
 * Everything is sent, so sections by units have a fixed size like those by blocks, and one call of the plan lays out
 * both. Tensors that are sent dense are encoded by blocks. Steps that send everything uncompressed have no sections by
 * units.
 */
#include "cuda/gpu_compressor.h"

#include <string.h>

frug_status frugi_cuda_qsgd_create(frug_cuda *g) {
    if (!frugi_compressor_by_units(g->plan))
        return FRUG_OK;
    frugi_select_all_units(g->plan);
    TRY_CUDA("allocate skip flags", cudaMalloc((void **)&g->skipped, frugi_cuda_blocks(g) + 1));
    return FRUG_OK;
}

static frugi_gpu_qsgd_section make_qsgd_section(const frug_compressor *plan, uint64_t step,
                                                const frugi_frame_section *slice) {
    const frugi_section *s = &slice->section;
    frugi_gpu_qsgd_section section = {.begin = s->begin,
                                      .count = s->count,
                                      .payload_at = slice->payload_at,
                                      .value_at = s->value_at,
                                      .bytes = s->bytes,
                                      .key = frugi_rounding_key(plan, step, slice->view->number),
                                      .stored = slice->view->first_block,
                                      .groups = (uint32_t)((s->count - 1) / s->group + 1)};
    frugi_section_write(s, section.header);
    return section;
}

/* Fill a table with the next sections by units, as many as one launch takes; returns the section to continue from. */
static size_t fill_qsgd_table(const frug_cuda *g, const frugi_step_sections *cut, uint64_t step, size_t from,
                              frugi_gpu_qsgd_table *table) {
    *table = (frugi_gpu_qsgd_table){.group = g->config.bucket, .levels = g->config.levels, .width = 1};
    for (uint32_t levels = table->levels; levels; levels >>= 1)
        table->width++;
    for (; from < cut->size.sections && table->sections < FRUGI_GPU_SECTIONS; from++) {
        if (cut->section[from].section.block)
            continue;
        frugi_gpu_qsgd_section *section = &table->section[table->sections++];
        *section = make_qsgd_section(g->plan, step, &cut->section[from]);
        section->groups_before = table->groups;
        table->groups += section->groups;
    }
    return from;
}

frug_status frugi_cuda_qsgd_check_range(const frug_cuda *g, const frugi_step_sections *cut, uint64_t begin,
                                        uint64_t count) {
    for (size_t i = 0; i < cut->size.sections; i++) {
        const frugi_section *s = &cut->section[i].section;
        FRUG_FAIL_IF(!s->block && (s->begin < begin || s->begin + s->count > begin + count), FRUG_ERR_ARG,
                     "cuda: the range cuts tensor '%s', which value=qsgd encodes whole",
                     frugi_compressor_layout(g->plan)->tensor[s->tensor].name);
    }
    return FRUG_OK;
}

frug_status frugi_cuda_qsgd_encode(frug_cuda *g, const frugi_step_sections *cut, const frugi_gpu_compress_args *args,
                                   frug_stream stream) {
    frugi_gpu_qsgd_encode_args quant = {.grad = args->grad,
                                        .gain = args->gain,
                                        .frame = args->frame,
                                        .skipped = g->skipped,
                                        .workspace = g->workspace,
                                        .begin = args->begin,
                                        .block = g->config.block,
                                        .largest = g->config.qnorm == FRUGI_QNORM_MAX};
    for (size_t at = 0; at < cut->size.sections;) {
        at = fill_qsgd_table(g, cut, args->step, at, &quant.table);
        if (quant.table.sections)
            TRY_CUDA("compress", frugi_gpu_qsgd_encode_launch(&quant, g->processors, stream));
    }
    /* Discard the checksums of the sections by blocks, and compute that of the whole body. */
    const unsigned char *frame = args->frame;
    TRY_CUDA("checksum", cudaMemsetAsync(g->workspace->crc, 0, sizeof *g->workspace->crc, stream));
    TRY_CUDA("checksum", frugi_gpu_crc_launch(&frame, 1, args->bytes, g->crc, g->workspace, g->processors, stream));
    return FRUG_OK;
}

frug_status frugi_cuda_qsgd_sum(const frug_cuda *g, const frugi_step_sections *cut, uint64_t step,
                                const frugi_gpu_sum_args *sum, bool only_check, frug_stream stream) {
    frugi_gpu_qsgd_sum_args quant = {.frames = sum->frames,
                                     .dst = sum->dst,
                                     .begin = sum->begin,
                                     .keep = sum->keep,
                                     .gain = sum->gain,
                                     .error = sum->error};
    memcpy(quant.frame, sum->frame, sizeof quant.frame);
    for (size_t at = 0; at < cut->size.sections;) {
        at = fill_qsgd_table(g, cut, step, at, &quant.table);
        if (quant.table.sections && only_check)
            TRY_CUDA("check", frugi_gpu_qsgd_check_launch(&quant, g->processors, stream));
        else if (quant.table.sections)
            TRY_CUDA("sum", frugi_gpu_qsgd_sum_launch(&quant, g->processors, stream));
    }
    return FRUG_OK;
}
