/*
 * gpu_residual_add.c - put numbers back into what was left behind on the device: what the owner of a part has summed
 * and did not send on. The CPU's counterpart is frugi_residual_add().
 */
#include "cuda/gpu_compressor.h"

#include "base/philox.h"

frug_status frug_cuda_keep(frug_cuda *g, uint64_t step, uint64_t begin, uint64_t count, const float *values,
                           frug_stream stream) {
    FRUG_FAIL_IF(!g || (!values && count), FRUG_ERR_ARG, "cuda: no compressor or no numbers");
    bool all;
    frugi_cutting cut;
    FRUG_TRY(frugi_cuda_here(g));
    FRUG_TRY(frugi_cut_step(g->plan, step, begin, count, &all, &cut));
    frugi_gpu_keep keep = {.values = values,
                           .residual = g->residual,
                           .scale = g->scale,
                           .begin = begin,
                           .step = step,
                           .seed = g->config.seed ^ FRUGI_OTHER_DRAWS, /* as frugi_residual_add() draws */
                           .residual_format = (uint32_t)g->config.residual};
    for (size_t at = 0; frugi_cuda_keeps(g) && at < cut.slices;) {
        at = frugi_cuda_table(g, &cut, at, &keep.table);
        TRY_CUDA("keep", frugi_gpu_keep_launch(&keep, g->processors, stream));
    }
    return FRUG_OK;
}
