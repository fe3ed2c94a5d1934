/*
 * frugrad_cuda.h - frames made and added up on a GPU, byte for byte those of the CPU.
 *
 *   frug_cuda_compress(c, step, 0, n, grad, frame, cap, &len, stream);
 *   ... exchange the frames, on the device, on the same stream ...
 *   frug_cuda_decompress_add(c, step, frames, P, 1.0f / P, 0, n, grad, stream);
 *
 * Calls go onto a stream and return at once; none allocates, waits or reads anything back. Lengths are known before a
 * gradient is read, and all workers' frames of a step have the same one. Streams may be captured into graphs, but a
 * graph repeats the step it was captured with.
 *
 * What there is: top-k within blocks of 64, 128 and 256 (select exact or hist), values f32, bf16, f16 and int8, places
 * as bytes or bitmaps, feedback none, plain and merged, residuals in every format, every schedule, clip; and value=qsgd
 * without feedback. What needs more (norm, layers=sensitivity, units other than elements, dgc, ef21) is refused when
 * the compressor is made.
 *
 * Link with libfrugrad_cuda. SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_CUDA_H
#define FRUGRAD_CUDA_H

#include <frugrad.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct frug_cuda frug_cuda;

/** A cudaStream_t; NULL is the default stream. */
typedef struct CUstream_st *frug_stream;

/**
 * Make one worker's compressor on the current device. Arguments as of frug_compressor_create(); threads is ignored.
 *
 * Memory on the device: the residual, as on the CPU, and some kilobytes. Returns FRUG_ERR_ARG, FRUG_ERR_CONFIG (what
 * there is no kernel for), FRUG_ERR_MEMORY, FRUG_ERR_DEVICE. Since 0.2.
 */
FRUG_API frug_status frug_cuda_create(const frug_config *config, const frug_layout *layout, const frug_options *options,
                                      frug_cuda **cuda);
FRUG_API void frug_cuda_destroy(frug_cuda *cuda);

/** The most bytes a range can take, at any step. */
FRUG_API frug_status frug_cuda_bound(const frug_cuda *cuda, uint64_t begin, uint64_t count, size_t *bytes);

/**
 * As frug_compress(), on the device that the compressor was made on.
 *
 *   grad, dst   memory of that device; dst at a multiple of four bytes
 *   *len        is right when the call returns, though the bytes are written later; also with FRUG_ERR_SHORT_BUFFER,
 *               so that a call with cap 0 asks how long a frame will be and does nothing else
 *
 * Threads: one call at a time. Calls on different streams must not overlap on the device. Returns FRUG_ERR_ARG,
 * FRUG_ERR_SHORT_BUFFER, FRUG_ERR_DEVICE. Since 0.2.
 */
FRUG_API frug_status frug_cuda_compress(frug_cuda *cuda, uint64_t step, uint64_t begin, uint64_t count,
                                        const float *grad, void *dst, size_t cap, size_t *len, frug_stream stream);

#define FRUG_CUDA_FRAMES 64 /* that can be added up at once */

/**
 * dst += scale * (frames[0] + frames[1] + ...), as frug_decompress_add().
 *
 *   frames   an array on the host of addresses on the device: frames of this step and range, each as long as
 *            frug_cuda_compress() says, at multiples of four bytes, of workers with the same config
 *
 * Bytes are untrusted. Headers and checksums are checked first: if one is not what it must be, dst stays as it is.
 * Places and values are checked while they are added: a frame that is wrong there though its checksum is right, which
 * no damage on the way makes, leaves dst worthless, but nothing outside of it changes. Either way the dst of all later
 * calls stay as they are until frug_cuda_verdict() has told. Since 0.2.
 */
FRUG_API frug_status frug_cuda_decompress_add(frug_cuda *cuda, uint64_t step, const void *const *frames,
                                              size_t count_frames, float scale, uint64_t begin, uint64_t count,
                                              float *dst, frug_stream stream);

/** One step of stochastic gradient descent straight from the frames, as frug_apply(). Checks all before it changes any.
 */
FRUG_API frug_status frug_cuda_apply(frug_cuda *cuda, uint64_t step, const void *const *frames, size_t count_frames,
                                     float rate, float decay, uint64_t begin, uint64_t count, float *weights,
                                     frug_stream stream);

/**
 * Add numbers to what a range has left behind: what the owner of a part has summed and did not send on, say. Ranges as
 * of frug_cuda_compress(), at most one call for a range and step, after its frame was made.
 *
 *   values   memory of the device, element begin first; finite
 *
 * Tensors that travel dense, and feedback=none, keep nothing. A block to which only zeros are added keeps its bits, and
 * so does one whose sum is not finite. Returns FRUG_ERR_ARG, FRUG_ERR_DEVICE. Since 0.2.
 */
FRUG_API frug_status frug_cuda_keep(frug_cuda *cuda, uint64_t step, uint64_t begin, uint64_t count, const float *values,
                                    frug_stream stream);

/**
 * The Euclidean norm of a gradient range, as clip and norm take it on the CPU: bit for bit, what is not finite aside.
 *
 *   grad   memory of the device, element begin first
 *   norm   one double there, or in memory of the host that the device can write
 *
 * For schedules on the host: wait for the stream, then read it. Returns FRUG_ERR_ARG, FRUG_ERR_DEVICE. Since 0.2.
 */
FRUG_API frug_status frug_cuda_norm(frug_cuda *cuda, uint64_t begin, uint64_t count, const float *grad, double *norm,
                                    frug_stream stream);

/**
 * Wait for the stream, and say whether all frames since the last verdict were sound: FRUG_OK, or FRUG_ERR_CHECKSUM,
 * FRUG_ERR_FORMAT, FRUG_ERR_MISMATCH for the first that was not.
 */
FRUG_API frug_status frug_cuda_verdict(frug_cuda *cuda, frug_stream stream);

/**
 * Hand what was left behind to a compressor of the same config and layout on the CPU, or take it from one: to save and
 * restore states, and to go on elsewhere bit for bit. Both wait for the device. Return FRUG_ERR_ARG,
 * FRUG_ERR_MISMATCH, FRUG_ERR_DEVICE.
 */
FRUG_API frug_status frug_cuda_to_host(frug_cuda *cuda, frug_compressor *compressor);
FRUG_API frug_status frug_cuda_from_host(frug_cuda *cuda, const frug_compressor *compressor);

#ifdef __cplusplus
}
#endif

#endif
