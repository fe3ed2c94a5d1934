/*
 * gpu_launch.h - what the host side of the GPU's compressor hands to its kernels.
 *
 * Everything a launch needs travels as its argument: tables of slices, addresses of frames. So nothing is copied, no
 * memory has to outlive the call, and a stream that is being captured into a graph records all of it.
 */
#ifndef FRUGI_GPU_LAUNCH_H
#define FRUGI_GPU_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FRUGI_GPU_STRETCH      256u /* elements of a tensor in a row that a warp takes: a block, or several short ones */
#define FRUGI_GPU_SLICES       40u  /* in one launch */
#define FRUGI_GPU_FRAMES       64u  /* in one sum */
#define FRUGI_GPU_HEADER       48u  /* bytes of a frame's and of a section's header */
#define FRUGI_GPU_UNITS_HEADER 96u  /* bytes of the header of a section by units */

/** A section by blocks of a frame: codec/section.h and compressor.h have the words. */
typedef struct frugi_gpu_slice {
    uint64_t begin, count; /* elements of the flat buffer */
    uint64_t kappa, first;
    uint32_t carried; /* of first * kappa: what is below the point */
    uint32_t tensor;
    uint64_t stored;
    uint64_t payload_at; /* in the frame */
    uint64_t index_at, value_at, bytes;
    uint32_t stretches_before; /* of the slices before, in this launch */
    uint32_t stretches, blocks;
    uint8_t index, value, dense, last; /* last: elements of the last block less one */
} frugi_gpu_slice;

typedef struct frugi_gpu_table {
    frugi_gpu_slice slice[FRUGI_GPU_SLICES];
    uint32_t slices;
    uint32_t stretches; /* of all slices */
    uint32_t block;     /* elements of one: 64, 128 or 256 */
} frugi_gpu_table;

/**
 * Tables of checksums: a checksum is linear, so tables hold what bits or bytes of it become when it is moved.
 *
 *   step    the bytes of a checksum, moved past 128 bytes
 *   lane    the bits of a checksum, moved past lane l's word of a group and those behind it, 32 - l words
 *   power   the bits of a checksum, moved past d * 16^j words
 */
typedef struct frugi_gpu_crc {
    uint32_t step[4][256];
    uint32_t lane[32][32];
    uint32_t power[7][16][32];
} frugi_gpu_crc;

/** What kernels of one compressor tell each other; all zeros between calls: the last to read it clears it. */
typedef struct frugi_gpu_desk {
    uint32_t done;                  /* thread blocks that have finished */
    uint32_t held;                  /* blocks held back */
    uint32_t crc[FRUGI_GPU_FRAMES]; /* of the frames' bodies, without inversions */
    float gain;                     /* of a clipped gradient */
} frugi_gpu_desk;

/** The outcome of sums so far: 0, or the negative frug_status of the first thing that was wrong. */
typedef struct frugi_gpu_verdict {
    int32_t status;
    uint32_t frame;
} frugi_gpu_verdict;

/**
 * The header of a frame as it must be, but for source, held and checksum; and what a checksum is made of that the
 * bytes behind the header do not change: the header's part with this source and nothing held, and the powers that move
 * other values of the two fields to the end of the frame.
 */
typedef struct frugi_gpu_frame {
    unsigned char header[FRUGI_GPU_HEADER];
    uint32_t base, source, source_power, held_power;
} frugi_gpu_frame;

typedef struct frugi_gpu_press {
    frugi_gpu_table table;
    const float *grad; /* element begin */
    const float *gain; /* of the gradient, on the device; NULL: 1 */
    unsigned char *frame;
    unsigned char *residual;
    uint16_t *scale;
    frugi_gpu_desk *desk;
    uint64_t begin, step, seed;
    float beta, hold, part;                      /* hold: of what is sent, that share stays, and a part leaves */
    uint32_t value, residual_format, kept, hist; /* kept: a residual takes part */
    const frugi_gpu_crc *crc;
    frugi_gpu_frame what;
    uint32_t bytes; /* of the frame */
    uint32_t last;  /* no launch follows: write the frame's header */
    uint32_t run;   /* stretches that a warp takes one after the other */
} frugi_gpu_press;

typedef struct frugi_gpu_keep {
    frugi_gpu_table table;
    const float *values; /* element begin */
    unsigned char *residual;
    uint16_t *scale;
    uint64_t begin, step, seed;
    uint32_t residual_format;
} frugi_gpu_keep;

typedef struct frugi_gpu_span {
    uint64_t begin, end; /* elements of the flat buffer */
} frugi_gpu_span;

typedef struct frugi_gpu_norm {
    const float *grad; /* element begin */
    const frugi_gpu_span *piece;
    uint64_t begin, count;
    uint32_t pieces, stretch, stretches;
    double *partial; /* one per stretch */
    double *result;  /* NULL: nobody asks */
    double clip;
    float *gain; /* NULL: nothing is clipped */
} frugi_gpu_norm;

/** A section by units of value=qsgd: a whole tensor, in groups that share a norm. */
typedef struct frugi_gpu_run {
    unsigned char header[FRUGI_GPU_UNITS_HEADER];
    uint64_t begin, count;
    uint64_t payload_at; /* in the frame */
    uint64_t value_at, bytes;
    uint64_t key;    /* of the random numbers */
    uint64_t stored; /* number of its first block */
    uint32_t groups, groups_before;
} frugi_gpu_run;

typedef struct frugi_gpu_runs {
    frugi_gpu_run run[FRUGI_GPU_SLICES];
    uint32_t runs, groups;         /* groups of all runs */
    uint32_t group, levels, width; /* values of a group; bits of a field */
} frugi_gpu_runs;

typedef struct frugi_gpu_quant {
    frugi_gpu_runs runs;
    const float *grad; /* element begin */
    const float *gain; /* as of frugi_gpu_press */
    unsigned char *frame;
    unsigned char *held; /* one for each block */
    frugi_gpu_desk *desk;
    uint64_t begin;
    uint32_t block;   /* elements of one: 64, 128 or 256 */
    uint32_t largest; /* norms are largest magnitudes */
} frugi_gpu_quant;

typedef struct frugi_gpu_quant_sum {
    frugi_gpu_runs runs;
    const unsigned char *frame[FRUGI_GPU_FRAMES];
    uint32_t frames;
    float *dst; /* element begin */
    uint64_t begin;
    float keep, gain;
    frugi_gpu_verdict *verdict;
} frugi_gpu_quant_sum;

typedef struct frugi_gpu_sum {
    frugi_gpu_table table;
    const unsigned char *frame[FRUGI_GPU_FRAMES];
    uint32_t frames;
    float *dst; /* element begin */
    uint64_t begin;
    float keep, gain;
    frugi_gpu_verdict *verdict;
    uint32_t checked; /* by frugi_gpu_check_*(); otherwise the sum checks as it goes */
} frugi_gpu_sum;

/**
 * Accumulate, select, encode and keep all blocks of a table, which are of that length; write the sections' headers and,
 * last, the frame's.
 */
cudaError_t frugi_gpu_press_64(const frugi_gpu_press *press, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_press_128(const frugi_gpu_press *press, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_press_256(const frugi_gpu_press *press, int processors, cudaStream_t stream);

/** The norm of a range, and the factor that brings it down to `clip`. */
cudaError_t frugi_gpu_norm_launch(const frugi_gpu_norm *norm, int processors, cudaStream_t stream);

/** Add numbers to what the blocks of a table have left behind. */
cudaError_t frugi_gpu_keep_launch(const frugi_gpu_keep *keep, int processors, cudaStream_t stream);

/** Add up the checksums of frames' bodies on the desk, at crc[0] and on. All are of one length. */
cudaError_t frugi_gpu_crc_launch(const unsigned char *const *frame, uint32_t frames, uint64_t bytes,
                                 const frugi_gpu_crc *crc, frugi_gpu_desk *desk, int processors, cudaStream_t stream);

/** Write the header of a frame that no press_launch was the last of. */
cudaError_t frugi_gpu_seal_launch(const frugi_gpu_frame *what, unsigned char *frame, frugi_gpu_desk *desk,
                                  cudaStream_t stream);

/** See whether the headers of frames, and their checksums, are what they must be. */
cudaError_t frugi_gpu_judge_launch(const frugi_gpu_frame *what, const frugi_gpu_sum *sum, frugi_gpu_desk *desk,
                                   cudaStream_t stream);

/** See whether the sections' headers, indices and values of a table are. */
cudaError_t frugi_gpu_check_64(const frugi_gpu_sum *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_check_128(const frugi_gpu_sum *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_check_256(const frugi_gpu_sum *sum, int processors, cudaStream_t stream);

/** dst = keep * dst + gain * (sum of the frames), if nothing was wrong so far. */
cudaError_t frugi_gpu_sum_64(const frugi_gpu_sum *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_sum_128(const frugi_gpu_sum *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_sum_256(const frugi_gpu_sum *sum, int processors, cudaStream_t stream);

/** The same three for sections of value=qsgd: encode them, check them, add them up. */
cudaError_t frugi_gpu_quant_launch(const frugi_gpu_quant *quant, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_quant_check_launch(const frugi_gpu_quant_sum *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_quant_sum_launch(const frugi_gpu_quant_sum *sum, int processors, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
