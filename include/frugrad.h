/*
 * frugrad.h - data-parallel training that sends a few percent of the gradient.
 *
 *   frugrad/core.h     config, layout, compressor, decoder
 *   frugrad/frames.h    check and describe a frame
 *   frugrad/reduce.h   groups of workers and the sum over all of them
 *   frugrad/optim.h    optimizers that turn the sum into updates of weights
 *
 * Included on their own where they are wanted:
 *
 *   frugrad/mpi.h            workers that are MPI processes (libfrugrad_mpi)
 *   frugrad/cuda.h           compression on a GPU (libfrugrad_cuda)
 *   frugrad/federated.h      clients and server of federated training (libfrugrad_federated)
 *   frugrad/experimental.h   gossip; may change in any release
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_H
#define FRUGRAD_H

#include <frugrad/core.h>
#include <frugrad/frames.h>
#include <frugrad/optim.h>
#include <frugrad/reduce.h>

#endif
