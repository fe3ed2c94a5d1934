/*
 * gpu_qsgd.c - the host side of value=qsgd on the device: which sections a range has, and where they lie in a frame.
 *
 * Everything is sent, so the sections by units of a frame are as fixed as those by blocks, and one call of the plan
 * cuts both; tensors that travel dense go the way of blocks. Steps that send everything as it is have no sections by
 * units.
 */
#include "cuda/gpu_compressor.h"

#include "base/philox.h"

#include <string.h>

frug_status frugi_cuda_qsgd_make(frug_cuda *g) {
    frug_compressor *plan = g->plan;
    if (!plan->by_units)
        return FRUG_OK;
    for (size_t i = 0; i < plan->pieces; i++) /* what a choice would say */
        plan->piece[i].kept = plan->piece[i].dense ? 0 : plan->piece[i].grid.units;
    TRY_CUDA("memory", cudaMalloc((void **)&g->held, plan->blocks + 1));
    return FRUG_OK;
}

/* As the random numbers of unit_encode.c. */
static uint64_t key_of(const frug_compressor *plan, uint64_t step, const frugi_piece *piece) {
    uint64_t at = 2 * (uint64_t)piece->number, high = frugi_random(plan->config.seed, step, at);
    uint64_t key = high << 32 | frugi_random(plan->config.seed, step, at + 1);
    return key ^ ((uint64_t)plan->source * 0x9e3779b97f4a7c15u);
}

static frugi_gpu_run to_gpu(const frug_compressor *plan, uint64_t step, const frugi_slice *slice) {
    const frugi_section *s = &slice->section;
    frugi_gpu_run run = {.begin = s->begin,
                         .count = s->count,
                         .payload_at = slice->payload_at,
                         .value_at = s->value_at,
                         .bytes = s->bytes,
                         .key = key_of(plan, step, slice->piece),
                         .stored = slice->piece->first_block,
                         .groups = (uint32_t)((s->count - 1) / s->group + 1)};
    frugi_section_write(s, run.header);
    return run;
}

/* The next sections by units of a cut range, as many as go into one launch; returns where to go on. */
static size_t fill_runs(const frug_cuda *g, const frugi_cutting *cut, uint64_t step, size_t from,
                        frugi_gpu_runs *runs) {
    const frug_compressor *plan = g->plan;
    *runs = (frugi_gpu_runs){.group = plan->config.bucket, .levels = plan->config.levels, .width = 1};
    for (uint32_t levels = runs->levels; levels; levels >>= 1)
        runs->width++;
    for (; from < cut->slices && runs->runs < FRUGI_GPU_SLICES; from++) {
        if (plan->slice[from].section.block)
            continue;
        frugi_gpu_run *run = &runs->run[runs->runs++];
        *run = to_gpu(plan, step, &plan->slice[from]);
        run->groups_before = runs->groups;
        runs->groups += run->groups;
    }
    return from;
}

frug_status frugi_cuda_qsgd_fits(const frug_cuda *g, const frugi_cutting *cut, uint64_t begin, uint64_t count) {
    for (size_t i = 0; i < cut->slices; i++) {
        const frugi_section *s = &g->plan->slice[i].section;
        FRUG_FAIL_IF(!s->block && (s->begin < begin || s->begin + s->count > begin + count), FRUG_ERR_ARG,
                     "cuda: the range cuts tensor '%s', which value=qsgd encodes whole",
                     g->plan->layout->tensor[s->tensor].name);
    }
    return FRUG_OK;
}

frug_status frugi_cuda_qsgd_press(frug_cuda *g, const frugi_cutting *cut, const frugi_gpu_press *press,
                                  frug_stream stream) {
    frugi_gpu_quant quant = {.grad = press->grad,
                             .gain = press->gain,
                             .frame = press->frame,
                             .held = g->held,
                             .desk = g->desk,
                             .begin = press->begin,
                             .block = g->config.block,
                             .largest = g->config.qnorm == FRUGI_QNORM_MAX};
    for (size_t at = 0; at < cut->slices;) {
        at = fill_runs(g, cut, press->step, at, &quant.runs);
        if (quant.runs.runs)
            TRY_CUDA("compress", frugi_gpu_quant_launch(&quant, g->processors, stream));
    }
    const unsigned char *frame = press->frame; /* checksums of the sections by blocks are there, but others follow */
    TRY_CUDA("checksum", cudaMemsetAsync(g->desk->crc, 0, sizeof *g->desk->crc, stream));
    TRY_CUDA("checksum", frugi_gpu_crc_launch(&frame, 1, press->bytes, g->crc, g->desk, g->processors, stream));
    return FRUG_OK;
}

frug_status frugi_cuda_qsgd_sum(const frug_cuda *g, const frugi_cutting *cut, uint64_t step, const frugi_gpu_sum *sum,
                                bool only_check, frug_stream stream) {
    frugi_gpu_quant_sum quant = {.frames = sum->frames,
                                 .dst = sum->dst,
                                 .begin = sum->begin,
                                 .keep = sum->keep,
                                 .gain = sum->gain,
                                 .verdict = sum->verdict};
    memcpy(quant.frame, sum->frame, sizeof quant.frame);
    for (size_t at = 0; at < cut->slices;) {
        at = fill_runs(g, cut, step, at, &quant.runs);
        if (quant.runs.runs && only_check)
            TRY_CUDA("check", frugi_gpu_quant_check_launch(&quant, g->processors, stream));
        else if (quant.runs.runs)
            TRY_CUDA("sum", frugi_gpu_quant_sum_launch(&quant, g->processors, stream));
    }
    return FRUG_OK;
}
