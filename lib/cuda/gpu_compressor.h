/* gpu_compressor.h - the GPU compressor, internal to the host side. */
#ifndef FRUGI_GPU_COMPRESSOR_H
#define FRUGI_GPU_COMPRESSOR_H

#include "frugrad/cuda.h"

#include "base/status.h"
#include "compress/compressor_access.h"
#include "cuda/gpu_launch.h"

struct frug_cuda {
    struct frug_config config;
    frug_compressor *plan;
    int device, processors;
    unsigned char *residual; /* this and all pointers below: device memory */
    uint16_t *scale;
    frugi_gpu_crc *crc;
    frugi_gpu_workspace *workspace;
    frugi_gpu_error *error;
    frugi_gpu_range *tensor; /* ranges of all tensors */
    double *partial;         /* sums of squares, for norms */
    unsigned char *skipped;  /* value=qsgd: one flag per block, 1 if it is skipped */
};

/** Status and message for an error of the CUDA runtime. */
frug_status frugi_cuda_error(const char *frame_header, cudaError_t error);

#define TRY_CUDA(frame_header, call)                                                                                   \
    do {                                                                                                               \
        cudaError_t try_error_ = (call);                                                                               \
        if (try_error_ != cudaSuccess)                                                                                 \
            return frugi_cuda_error((frame_header), try_error_);                                                       \
    } while (0)

/** FRUG_OK if the current device is the compressor's. */
frug_status frugi_cuda_check_device(const frug_cuda *cuda);

/** Number of compressed blocks. */
static inline uint64_t frugi_cuda_blocks(const frug_cuda *g) {
    return frugi_compressor_partition(g->plan)->blocks;
}

/** Whether the compressor has a residual. */
static inline bool frugi_cuda_has_residual(const frug_cuda *g) {
    return g->config.feedback != FRUGI_FEEDBACK_NONE && frugi_cuda_blocks(g) > 0;
}

/** Fill a table with the next sections by blocks, as many as one launch takes; returns the section to continue from. */
size_t frugi_cuda_fill_table(const frug_cuda *cuda, const frugi_step_sections *cut, size_t from,
                             frugi_gpu_section_table *table);

/* gpu_norm.c */

/** Allocate memory for norms, freed with the compressor. */
frug_status frugi_cuda_norm_create(frug_cuda *cuda);

/** Compute the clipping factor of a gradient range and have the kernels apply it when they read the gradient. */
frug_status frugi_cuda_clip(frug_cuda *cuda, frugi_gpu_compress_args *args, uint64_t count, frug_stream stream);

/* gpu_qsgd.c: sections by units. Where a range has none, these calls do nothing. */

/** Make the plan send everything; allocate flags of skipped blocks, freed with the compressor. */
frug_status frugi_cuda_qsgd_create(frug_cuda *cuda);

/** FRUG_OK if the range cuts no tensor that has to be encoded whole. */
frug_status frugi_cuda_qsgd_check_range(const frug_cuda *cuda, const frugi_step_sections *cut, uint64_t begin,
                                        uint64_t count);

/** Encode the sections into a frame, and compute the checksum of its body. */
frug_status frugi_cuda_qsgd_encode(frug_cuda *cuda, const frugi_step_sections *cut, const frugi_gpu_compress_args *args,
                                   frug_stream stream);

/** Check the sections of received frames, or sum them. */
frug_status frugi_cuda_qsgd_sum(const frug_cuda *cuda, const frugi_step_sections *cut, uint64_t step,
                                const frugi_gpu_sum_args *sum, bool only_check, frug_stream stream);

#endif
