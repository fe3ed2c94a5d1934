/* launch.h - being started by mpirun. */
#ifndef FRUGI_LAUNCH_H
#define FRUGI_LAUNCH_H

/**
 * Where an MPI launcher started this program as one of several processes, become frugrad-mpi, which lies beside it.
 * Returns FRUGI_EXIT_OK where there is no launcher, FRUGI_EXIT_FAIL after a line on stderr; otherwise not at all.
 */
int frugi_launch(char **argv);

#endif
