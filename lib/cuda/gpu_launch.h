/*
 * gpu_launch.h - arguments of the kernels, shared by the host side and the kernels.
 *
 * Everything a launch needs is passed by value: tables of sections, addresses of frames. So nothing is copied, no
 * memory has to outlive the call, and a stream that is being captured into a graph records all of it.
 */
#ifndef FRUGI_GPU_LAUNCH_H
#define FRUGI_GPU_LAUNCH_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Elements of a warp tile: consecutive elements that a warp processes together, a part of a block or several blocks.
 */
#define FRUGI_GPU_WARP_TILE 256u

#define FRUGI_GPU_SECTIONS     40u /* per launch */
#define FRUGI_GPU_FRAMES       64u /* per sum */
#define FRUGI_GPU_HEADER       48u /* bytes of a frame header, and of the header of a section by blocks */
#define FRUGI_GPU_UNITS_HEADER 96u /* bytes of the header of a section by units */

/** A section by blocks of a frame; for the fields see codec/section.h and compressor.h. */
typedef struct frugi_gpu_section {
    uint64_t begin, count; /* elements of the flat buffer */
    uint64_t kappa, first;
    uint32_t carried; /* fractional part of first * kappa */
    uint32_t tensor;
    uint64_t stored;
    uint64_t payload_at; /* in the frame */
    uint64_t index_at, value_at, bytes;
    uint32_t tiles_before; /* of the sections before, in this launch */
    uint32_t tiles, blocks;
    uint32_t index : 4, value : 8, dense : 1, last : 12; /* last: elements of the last block, minus 1 */
} frugi_gpu_section;

typedef struct frugi_gpu_section_table {
    frugi_gpu_section section[FRUGI_GPU_SECTIONS];
    uint32_t sections;
    uint32_t tiles; /* of all sections */
    uint32_t block; /* elements per block */
} frugi_gpu_section_table;

/**
 * Checksum tables. A CRC is linear, so each table has the result of shifting single bits or bytes of a checksum.
 *
 *   step    the bytes of a checksum, shifted past 128 bytes
 *   lane    the bits of a checksum, shifted past lane l's word of a group and those after it, 32 - l words
 *   power   the bits of a checksum, shifted past d * 16^j words
 */
typedef struct frugi_gpu_crc {
    uint32_t step[4][256];
    uint32_t lane[32][32];
    uint32_t power[7][16][32];
} frugi_gpu_crc;

/** Device memory shared by the kernels of one compressor. All zeros between calls: its last reader clears it. */
typedef struct frugi_gpu_workspace {
    uint32_t done;                  /* thread blocks that have finished */
    uint32_t skipped;               /* blocks skipped */
    uint32_t crc[FRUGI_GPU_FRAMES]; /* checksums of the frames' bodies, without inversions */
    float gain;                     /* clipping factor */
} frugi_gpu_workspace;

/** The first error found by a sum: 0, or a negative frug_status and the number of the frame. */
typedef struct frugi_gpu_error {
    int32_t status;
    uint32_t frame;
} frugi_gpu_error;

/**
 * The header that a frame must have, except for source, skipped and checksum; and the parts of its checksum that do not
 * depend on the body: the contribution of the header with this source and 0 skipped blocks, and the powers that shift
 * other values of the two fields to the end of the frame.
 */
typedef struct frugi_gpu_frame_header {
    unsigned char bytes[FRUGI_GPU_HEADER];
    uint32_t base, source, source_power, skipped_power;
} frugi_gpu_frame_header;

typedef struct frugi_gpu_compress_args {
    frugi_gpu_section_table table;
    const float *grad; /* from element `begin` on */
    const float *gain; /* factor of the gradient, in device memory; NULL: 1 */
    unsigned char *frame;
    unsigned char *residual;
    uint16_t *scale;
    frugi_gpu_workspace *workspace;
    uint64_t begin, step, seed;
    float beta, retention, sent_share; /* retention: share of a sent entry that the residual retains */
    uint32_t value, residual_format, has_residual, hist; /* hist: select=hist */
    const frugi_gpu_crc *crc;
    frugi_gpu_frame_header frame_header;
    uint32_t bytes;      /* of the frame */
    uint32_t last;       /* no launch follows: write the frame's header */
    uint32_t warp_tiles; /* consecutive tiles of a warp */
} frugi_gpu_compress_args;

typedef struct frugi_gpu_residual_add_args {
    frugi_gpu_section_table table;
    const float *values; /* from element `begin` on */
    unsigned char *residual;
    uint16_t *scale;
    uint64_t begin, step, seed;
    uint32_t residual_format;
} frugi_gpu_residual_add_args;

typedef struct frugi_gpu_range {
    uint64_t begin, end; /* elements of the flat buffer */
} frugi_gpu_range;

typedef struct frugi_gpu_norm_args {
    const float *grad; /* from element `begin` on */
    const frugi_gpu_range *tensor;
    uint64_t begin, count;
    uint32_t tensors, range, ranges; /* range: elements per range */
    double *partial;                 /* one per range */
    double *result;                  /* NULL: not wanted */
    double clip;
    float *gain; /* NULL: no clipping */
} frugi_gpu_norm_args;

/** A section by units of value=qsgd: a whole tensor, in value groups that share a norm. */
typedef struct frugi_gpu_qsgd_section {
    unsigned char header[FRUGI_GPU_UNITS_HEADER];
    uint64_t begin, count;
    uint64_t payload_at; /* in the frame */
    uint64_t value_at, bytes;
    uint64_t key;    /* of the random number generator */
    uint64_t stored; /* number of its first block */
    uint32_t groups, groups_before;
} frugi_gpu_qsgd_section;

typedef struct frugi_gpu_qsgd_table {
    frugi_gpu_qsgd_section section[FRUGI_GPU_SECTIONS];
    uint32_t sections, groups;     /* groups: of all sections */
    uint32_t group, levels, width; /* values per group; levels; bits per field */
} frugi_gpu_qsgd_table;

typedef struct frugi_gpu_qsgd_encode_args {
    frugi_gpu_qsgd_table table;
    const float *grad; /* from element `begin` on */
    const float *gain; /* as in frugi_gpu_compress_args */
    unsigned char *frame;
    unsigned char *skipped; /* one flag per block */
    frugi_gpu_workspace *workspace;
    uint64_t begin;
    uint32_t block;   /* elements per block */
    uint32_t largest; /* norms are largest magnitudes */
} frugi_gpu_qsgd_encode_args;

typedef struct frugi_gpu_qsgd_sum_args {
    frugi_gpu_qsgd_table table;
    const unsigned char *frame[FRUGI_GPU_FRAMES];
    uint32_t frames;
    float *dst; /* from element `begin` on */
    uint64_t begin;
    float keep, gain;
    frugi_gpu_error *error;
} frugi_gpu_qsgd_sum_args;

typedef struct frugi_gpu_sum_args {
    frugi_gpu_section_table table;
    const unsigned char *frame[FRUGI_GPU_FRAMES];
    uint32_t frames;
    float *dst; /* from element `begin` on */
    uint64_t begin;
    float keep, gain;
    frugi_gpu_error *error;
    uint32_t checked; /* by frugi_gpu_check_*(); otherwise the sum kernel checks frames itself */
} frugi_gpu_sum_args;

/**
 * Accumulate, select, encode and update the residual of all blocks of a table, which have that length; write the
 * section headers and, in the last launch, the frame header.
 */
cudaError_t frugi_gpu_compress_64(const frugi_gpu_compress_args *args, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_compress_128(const frugi_gpu_compress_args *args, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_compress_256(const frugi_gpu_compress_args *args, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_compress_1024(const frugi_gpu_compress_args *args, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_compress_4096(const frugi_gpu_compress_args *args, int processors, cudaStream_t stream);

/** The norm of a range, and the factor that clips it to `clip`. */
cudaError_t frugi_gpu_norm_launch(const frugi_gpu_norm_args *norm, int processors, cudaStream_t stream);

/** Add values to the residual of the blocks of a table. */
cudaError_t frugi_gpu_residual_add_launch(const frugi_gpu_residual_add_args *keep, int processors, cudaStream_t stream);

/** Compute the checksums of frames' bodies into workspace->crc, from crc[0] on. All frames have the same length. */
cudaError_t frugi_gpu_crc_launch(const unsigned char *const *frame, uint32_t frames, uint64_t bytes,
                                 const frugi_gpu_crc *crc, frugi_gpu_workspace *workspace, int processors,
                                 cudaStream_t stream);

/** Write the header of a frame for which no compression launch had `last` set. */
cudaError_t frugi_gpu_frame_header_launch(const frugi_gpu_frame_header *frame_header, unsigned char *frame,
                                          frugi_gpu_workspace *workspace, cudaStream_t stream);

/** Check frame headers and checksums. */
cudaError_t frugi_gpu_check_frames_launch(const frugi_gpu_frame_header *frame_header, const frugi_gpu_sum_args *sum,
                                          frugi_gpu_workspace *workspace, cudaStream_t stream);

/** Check section headers, indices and values of a table. */
cudaError_t frugi_gpu_check_64(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_check_128(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_check_256(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_check_1024(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_check_4096(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream);

/** dst = keep * dst + gain * (sum of the frames), unless an error was found before. */
cudaError_t frugi_gpu_sum_64(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_sum_128(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_sum_256(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_sum_1024(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_sum_4096(const frugi_gpu_sum_args *sum, int processors, cudaStream_t stream);

/** The same three for sections of value=qsgd: encode, check, sum. */
cudaError_t frugi_gpu_qsgd_encode_launch(const frugi_gpu_qsgd_encode_args *args, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_qsgd_check_launch(const frugi_gpu_qsgd_sum_args *sum, int processors, cudaStream_t stream);
cudaError_t frugi_gpu_qsgd_sum_launch(const frugi_gpu_qsgd_sum_args *sum, int processors, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
