/* mpi_launch.h - starting frugrad-mpi under mpirun, and restarting with fewer BLAS threads under a memory limit. */
#ifndef FGP_MPI_LAUNCH_H
#define FGP_MPI_LAUNCH_H

/**
 * If an MPI launcher started this program as one of several processes, execute frugrad-mpi from the same directory.
 * Returns FGIO_EXIT_OK if there is no launcher, FGIO_EXIT_FAIL after an error message; otherwise does not return.
 */
int fgp_mpi_launch(char **argv);

/**
 * If the memory of the process is limited, execute the program again with OPENBLAS_NUM_THREADS=1, unless it is set.
 * OpenBLAS starts a thread for every core when it is loaded, and each allocates a buffer; if that fails it retries
 * forever, and the program could not even exit. The trainer does not use these threads.
 */
void fgp_limit_blas_threads(char **argv);

#endif
