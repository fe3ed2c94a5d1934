/* mpi_launch.h - being started by mpirun, or with a limit on memory. */
#ifndef FGP_MPI_LAUNCH_H
#define FGP_MPI_LAUNCH_H

/**
 * Where an MPI launcher started this program as one of several processes, become frugrad-mpi, which lies beside it.
 * Returns FGIO_EXIT_OK where there is no launcher, FGIO_EXIT_FAIL after a line on stderr; otherwise not at all.
 */
int fgp_launch(char **argv);

/**
 * Where memory of the process is limited, start the program again with OPENBLAS_NUM_THREADS=1, unless it is set.
 * OpenBLAS starts a thread for every core when it is loaded, and each takes a buffer; those that get none try for ever,
 * and the program could not even end. The trainer does not use these threads.
 */
void fgp_launch_limited(char **argv);

#endif
