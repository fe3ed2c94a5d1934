/*
 * mpi.h - workers that are the processes of an MPI job.
 *
 *   MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
 *   frug_comm_mpi(MPI_COMM_WORLD, &comm);
 *   frug_reducer_create(config, layout, NULL, comm, &reducer);
 *
 * Link with libfrugrad_mpi and libfrugrad, and compile with the mpicc of the MPI that libfrugrad_mpi was built with
 * (Open MPI and MPICH have different binary interfaces).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_MPI_H
#define FRUGRAD_MPI_H

#include <frugrad/reduce.h>

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * A group of workers: the processes of an MPI communicator, with their ranks in it.
 *
 *   mpi   an intra-communicator, owned by the caller. It is duplicated, so messages of the caller and ours cannot be
 *         confused. Errors on the duplicate are returned, whatever the caller's error handler does; but MPICH reports
 *         errors of received messages to the handler of MPI_COMM_WORLD, which by default ends the job.
 *
 * Collective: all processes of mpi call it, and all call frug_comm_destroy(), before MPI_Finalize().
 *
 * Failures:
 *   - A process that exits early or is killed: mpirun ends the job with an exit status other than 0. A process that
 *     hangs is detected by the group's timeout: the others return FRUG_ERR_COMM.
 *   - MPI cannot cancel a large message in flight. After FRUG_ERR_COMM it may still read or write the buffers of the
 *     failed call: report the error and end the job with MPI_Abort().
 *   - reduce=dense sums with MPI_Allreduce(), to which no timeout applies. A process that hangs is detected before and
 *     after the sum.
 *
 * Deterministic: messages are delivered unchanged; the order of a sum by MPI_Allreduce() is MPI's.
 * Threads: MPI_THREAD_FUNNELED or better; only the thread that calls into a group calls MPI. With MPI_THREAD_SERIALIZED
 * or better, buckets (frug_reducer_submit()) are exchanged on a thread of the reducer: until frug_reducer_finish() the
 * caller may then call MPI itself only with MPI_THREAD_MULTIPLE. Below that, a bucket is exchanged when it is
 * submitted. Groups used by several threads at the same time need MPI_THREAD_MULTIPLE. Allocates a few words per
 * message in flight, which are reused. The reducers of a host's ranks share its cores, unless their options or
 * OMP_NUM_THREADS give a number of threads. Returns FRUG_ERR_ARG (no communicator, an inter-communicator, MPI not
 * initialized or finalized), FRUG_ERR_COMM, FRUG_ERR_MEMORY.
 */
FRUG_CHECK frug_status frug_comm_mpi(MPI_Comm mpi, frug_comm **comm);

#ifdef __cplusplus
}
#endif

#endif
