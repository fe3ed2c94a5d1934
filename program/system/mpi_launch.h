/* mpi_launch.h - starting frugrad-mpi under mpirun, and restarting with variables for OpenMP and BLAS. */
#ifndef FGP_MPI_LAUNCH_H
#define FGP_MPI_LAUNCH_H

/**
 * If an MPI launcher started this program as one of several processes, execute frugrad-mpi from the same directory.
 * Returns FGIO_EXIT_OK if there is no launcher, FGIO_EXIT_FAIL after an error message; otherwise does not return.
 */
int fgp_mpi_launch(char **argv);

/**
 * Execute the program again with variables that its libraries read when they are loaded, unless they are set:
 * - GOMP_SPINCOUNT=10000, without OMP_WAIT_POLICY, for commands that compute: threads of GCC's OpenMP then wait for each
 *   other by polling for a moment only. By default they poll for milliseconds, which multiplies the time of a step on a
 *   machine with other work.
 * - OPENBLAS_NUM_THREADS=1, if the memory of the process is limited: OpenBLAS starts a thread for every core, and each
 *   allocates a buffer; if that fails it retries forever, and the program could not even exit. The trainer does not use
 *   these threads.
 */
void fgp_set_thread_variables(char **argv);

#endif
