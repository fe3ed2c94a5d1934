/*
 * gpu_residual_add.c - add values to the residual on the device: what the owner of a shard has summed and did not send.
 * The CPU's counterpart is frugi_compressor_residual_add().
 */
#include "cuda/gpu_compressor.h"

#include "base/philox.h"

frug_status frug_cuda_residual_add(frug_cuda *g, uint64_t step, frug_range range, const float *values,
                                   frug_stream stream) {
    FRUG_FAIL_IF(!g || (!values && range.count), FRUG_ERR_ARG, "cuda: null compressor or values");
    frugi_step_sections cut;
    FRUG_TRY(frugi_cuda_check_device(g));
    FRUG_TRY(frugi_make_step_sections(g->plan, step, range, &cut));
    frugi_gpu_residual_add_args args = {.values = values,
                                        .residual = g->residual,
                                        .scale = g->scale,
                                        .begin = range.begin,
                                        .step = step,
                                        .seed = g->config.seed ^
                                                FRUGI_SECOND_STREAM, /* as in frugi_compressor_residual_add() */
                                        .residual_format = (uint32_t)g->config.residual};
    for (size_t at = 0; frugi_cuda_has_residual(g) && at < cut.size.sections;) {
        at = frugi_cuda_fill_table(g, &cut, at, &args.table);
        TRY_CUDA("add to residual", frugi_gpu_residual_add_launch(&args, g->processors, stream));
    }
    return FRUG_OK;
}
