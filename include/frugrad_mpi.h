/*
 * frugrad_mpi.h - workers that are the processes of an MPI job.
 *
 *   MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
 *   frug_comm_mpi(MPI_COMM_WORLD, &comm);
 *   frug_reducer_create(config, layout, NULL, comm, &reducer);
 *
 * Link with libfrugrad_mpi and libfrugrad, and compile with the mpicc of the MPI that libfrugrad_mpi was built with
 * (Open MPI and MPICH differ in their binary interface).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_MPI_H
#define FRUGRAD_MPI_H

#include "frugrad.h"

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A group of workers: the processes of an MPI communicator, with their ranks in it.
 *
 *   mpi   an intra-communicator. It is duplicated, so no message of the caller can be taken for one of ours, and stays
 *         the caller's. Errors on the duplicate are returned, whatever the caller's error handler does; but
 *         MPICH takes errors of messages that have arrived to MPI_COMM_WORLD's handler, which by default ends the job.
 *
 * Collective: all processes of mpi call it, and all call frug_comm_destroy(), before MPI_Finalize().
 *
 * When something goes wrong:
 *   - A process that ends early, or is killed, is MPI's own business: mpirun ends the job, with an exit status other
 *     than 0. One that stands still is noticed by the deadline of the group: the others get FRUG_ERR_COMM.
 *   - MPI cannot call back a large message that is under way. After FRUG_ERR_COMM it may therefore still read or write
 *     the buffers of the call that failed: report the error and end the job with MPI_Abort(); do not go on with MPI.
 *   - reduce=dense sums with MPI_Allreduce(), inside which no deadline holds. A process that stands still is noticed
 *     before and after the sum.
 *
 * Deterministic: messages are delivered as they are; the order of a sum by MPI_Allreduce() is MPI's.
 * Threads: MPI_THREAD_FUNNELED or better; only the thread that calls into a group calls MPI. With MPI_THREAD_SERIALIZED
 * or better buckets that are handed over (frug_reducer_submit()) travel on a thread of the reducer's own: between that
 * and frug_reducer_finish() the caller may then call MPI itself only with MPI_THREAD_MULTIPLE. Below, a bucket is
 * exchanged when it is handed over. Groups used by several threads at the same time need MPI_THREAD_MULTIPLE.
 * Allocates: a few words per message under way, used again. Returns FRUG_ERR_ARG (no communicator, an
 * inter-communicator, MPI not initialised or finalised), FRUG_ERR_COMM, FRUG_ERR_MEMORY. Since 0.2.
 */
FRUG_API frug_status frug_comm_mpi(MPI_Comm mpi, frug_comm **comm);

#ifdef __cplusplus
}
#endif

#endif
