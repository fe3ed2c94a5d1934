/* gpu_compressor.h - the GPU's compressor, as the files of its host side share it. */
#ifndef FRUGI_GPU_COMPRESSOR_H
#define FRUGI_GPU_COMPRESSOR_H

#include "frugrad_cuda.h"

#include "base/status.h"
#include "compress/compressor.h"
#include "cuda/gpu_launch.h"

struct frug_cuda {
    struct frug_config config;
    frug_compressor *plan;
    int device, processors;
    unsigned char *residual; /* on the device, as everything below */
    uint16_t *scale;
    frugi_gpu_crc *crc;
    frugi_gpu_desk *desk;
    frugi_gpu_verdict *verdict;
    frugi_gpu_span *piece; /* all tensors */
    double *partial;       /* sums of squares, for norms */
    unsigned char *held;   /* value=qsgd: blocks held back */
};

/** A status and a sentence for an error of the runtime. */
frug_status frugi_cuda_failed(const char *what, cudaError_t error);

#define TRY_CUDA(what, call)                                                                                           \
    do {                                                                                                               \
        cudaError_t try_error_ = (call);                                                                               \
        if (try_error_ != cudaSuccess)                                                                                 \
            return frugi_cuda_failed((what), try_error_);                                                              \
    } while (0)

/** Whether the current device is the compressor's. */
frug_status frugi_cuda_here(const frug_cuda *cuda);

/** Whether anything is left behind at all. */
static inline bool frugi_cuda_keeps(const frug_cuda *g) {
    return g->config.feedback != FRUGI_FEEDBACK_NONE && g->plan->blocks > 0;
}

/** The next slices of a cut range, as many as go into one launch; returns where to go on. */
size_t frugi_cuda_table(const frug_cuda *cuda, const frugi_cutting *cut, size_t from, frugi_gpu_table *table);

/* gpu_norm.c */

/** Memory for norms, freed with the compressor. */
frug_status frugi_cuda_norm_make(frug_cuda *cuda);

/** Have a gradient range scaled as clip says, when it is read. */
frug_status frugi_cuda_clip(frug_cuda *cuda, frugi_gpu_press *press, uint64_t count, frug_stream stream);

/* gpu_qsgd.c: sections by units. Where a range has none, sums do nothing. */

/** Make the plan send everything; memory for blocks held back, freed with the compressor. */
frug_status frugi_cuda_qsgd_make(frug_cuda *cuda);

/** Whether a range that was cut cuts no tensor that has to be whole. */
frug_status frugi_cuda_qsgd_fits(const frug_cuda *cuda, const frugi_cutting *cut, uint64_t begin, uint64_t count);

/** Put the sections into a frame, and take the checksum of all of it. */
frug_status frugi_cuda_qsgd_press(frug_cuda *cuda, const frugi_cutting *cut, const frugi_gpu_press *press,
                                  frug_stream stream);

/** Check those of received frames, or add them up. */
frug_status frugi_cuda_qsgd_sum(const frug_cuda *cuda, const frugi_cutting *cut, uint64_t step,
                                const frugi_gpu_sum *sum, bool only_check, frug_stream stream);

#endif
