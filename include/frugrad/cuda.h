/*
 * cuda.h - compress and decode on a GPU, byte for byte the frames of the CPU.
 *
 *   frug_range all = {0, n};
 *   frug_cuda_compress(c, step, all, grad, frame, cap, &len, stream);
 *   ... exchange the frames, on the device, on the same stream ...
 *   frug_cuda_decode_add(c, step, all, frames, P, 1.0 / P, grad, stream);
 *
 * Calls are queued on a stream and return at once; none allocates, waits or reads anything back. The length of a frame
 * is known before a gradient is read, and all ranks' frames of a step have the same length. Streams may be captured
 * into graphs, but a graph repeats the step it was captured with.
 *
 * Supported: top-k within blocks (select exact or hist), values f32, bf16, f16 and int8, every index code of blocks,
 * feedback none, plain and merged, every residual format, every schedule, clip; and value=qsgd without feedback.
 * Everything else (norm, layers=sensitivity, units other than elements, dgc, ef21) is refused at creation.
 *
 * Link with libfrugrad_cuda. SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_CUDA_H
#define FRUGRAD_CUDA_H

#include <frugrad/core.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct frug_cuda frug_cuda;

/** A cudaStream_t; NULL is the default stream. */
typedef struct CUstream_st *frug_stream;

/**
 * Create one worker's compressor on the current device. Arguments as of frug_compressor_create(); threads is ignored.
 *
 * Memory on the device: the residual, as on the CPU, and some kilobytes. Returns FRUG_ERR_ARG, FRUG_ERR_CONFIG (no
 * kernel for this config), FRUG_ERR_MEMORY, FRUG_ERR_DEVICE.
 */
FRUG_CHECK frug_status frug_cuda_create(const frug_config *config, const frug_layout *layout,
                                        const frug_compressor_options *options, frug_cuda **cuda);
FRUG_API void frug_cuda_destroy(frug_cuda *cuda);

/** Upper bound of the bytes of a range, at any step. */
FRUG_CHECK frug_status frug_cuda_bound(const frug_cuda *cuda, frug_range range, size_t *bytes);

/**
 * As frug_compress(), on the device of the compressor.
 *
 *   grad, dst   device memory; dst is aligned to four bytes
 *   *len        is valid when the call returns, although the bytes are written later; also with FRUG_ERR_SHORT_BUFFER:
 *               a call with cap 0 returns the length of the frame and does nothing else
 *
 * Threads: one call at a time. Calls on different streams must not overlap on the device. Returns FRUG_ERR_ARG,
 * FRUG_ERR_SHORT_BUFFER, FRUG_ERR_DEVICE.
 */
FRUG_CHECK frug_status frug_cuda_compress(frug_cuda *cuda, uint64_t step, frug_range range, const float *grad,
                                          void *dst, size_t cap, size_t *len, frug_stream stream);

#define FRUG_CUDA_FRAMES 64 /* that can be added up in one call */

/**
 * dst += scale * (frames[0] + frames[1] + ...), as frug_decode_add().
 *
 *   frames   a host array of device addresses: frames of this step and range, each of the length that
 *            frug_cuda_compress() gives, aligned to four bytes, from ranks with the same config
 *
 * Bytes are untrusted. Headers and checksums are checked first; if one is bad, dst is not changed. Indices and values
 * are checked while they are added: a forged frame with a valid checksum may corrupt dst, never memory outside it.
 * After any bad frame later calls do not change their dst until frug_cuda_check() has reported it.
 */
FRUG_CHECK frug_status frug_cuda_decode_add(frug_cuda *cuda, uint64_t step, frug_range range, const void *const *frames,
                                            size_t count_frames, double scale, float *dst, frug_stream stream);

/** One SGD step from the frames, as frug_decode_apply(). Checks everything before it changes anything. */
FRUG_CHECK frug_status frug_cuda_decode_apply(frug_cuda *cuda, uint64_t step, frug_range range,
                                              const void *const *frames, size_t count_frames, double rate, double decay,
                                              float *weights, frug_stream stream);

/**
 * Add values to the residual of a range, such as what a shard owner summed and did not send on. Ranges as of
 * frug_cuda_compress(); at most one call per range and step, after its frame was made.
 *
 *   values   device memory; values[0] is element range.begin; finite
 *
 * Dense tensors and feedback=none have no residual. A block to which only zeros are added keeps its bits, as does one
 * whose sum is not finite. Returns FRUG_ERR_ARG, FRUG_ERR_DEVICE.
 */
FRUG_CHECK frug_status frug_cuda_residual_add(frug_cuda *cuda, uint64_t step, frug_range range, const float *values,
                                              frug_stream stream);

/**
 * The Euclidean norm of a gradient range, as the options clip and norm compute it on the CPU: bit for bit, except for
 * values that are not finite.
 *
 *   grad   device memory; grad[0] is element range.begin
 *   norm   one double in device memory, or in host memory that the device can write
 *
 * For schedules on the host: wait for the stream, then read it. Returns FRUG_ERR_ARG, FRUG_ERR_DEVICE.
 */
FRUG_CHECK frug_status frug_cuda_norm(frug_cuda *cuda, frug_range range, const float *grad, double *norm,
                                      frug_stream stream);

/** Wait for the stream and return whether all frames since the last check were valid: FRUG_OK, or FRUG_ERR_CHECKSUM,
 *  FRUG_ERR_FORMAT or FRUG_ERR_MISMATCH for the first that was not. */
FRUG_CHECK frug_status frug_cuda_check(frug_cuda *cuda, frug_stream stream);

/** Copy the residual to a compressor of the same config and layout on the CPU, or from one: to save and restore states,
 *  and to continue elsewhere bit for bit. Both wait for the device. Return FRUG_ERR_ARG, FRUG_ERR_MISMATCH,
 *  FRUG_ERR_DEVICE. */
FRUG_CHECK frug_status frug_cuda_to_host(frug_cuda *cuda, frug_compressor *compressor);
FRUG_CHECK frug_status frug_cuda_from_host(frug_cuda *cuda, const frug_compressor *compressor);

#ifdef __cplusplus
}
#endif

#endif
