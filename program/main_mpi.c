/*
 * main_mpi.c - the program frugrad-mpi: frugrad as one process of an MPI job.
 *
 * `bench reduce` then measures the exchange between the processes. Only rank 0 prints results.
 *
 *   mpirun -np 4 frugrad-mpi bench reduce
 */
#include "program/args/commands.h"
#include "frugrad/mpi.h"
#include "io/progress.h"
#include "io/error.h"
#include "program/system/interrupt.h"
#include "trainer/run/worker_group.h"

#include <stdio.h>
#include <time.h>

/* If all ranks have failed, wait until rank 0 has printed the error before any rank ends the job. Returns whether all
 * have failed. */
static int wait_for_others(void) {
    const struct timespec nap = {0, 1000000};
    MPI_Request request;
    int met = 0;
    if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS)
        return 0;
    for (int naps = 0; naps < 1000 && !met; naps++) {
        nanosleep(&nap, NULL);
        if (MPI_Test(&request, &met, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return 0;
    }
    return met;
}

int main(int argc, char **argv) {
    int level = 0;
    frug_comm *comm = NULL;
    /* A lower thread level is accepted: buckets are then exchanged when they are submitted. */
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return fgio_error("cannot initialize MPI");
    if (frug_comm_mpi(MPI_COMM_WORLD, &comm) != FRUG_OK) {
        fgio_library_error("workers");
        MPI_Abort(MPI_COMM_WORLD, FGIO_EXIT_FAIL);
    }
    int code = FGIO_EXIT_OK;
    if (frug_comm_rank(comm) != 0 && !freopen("/dev/null", "w", stdout))
        code = fgio_error("cannot open /dev/null");
    fgt_group_join(comm);
    if (frug_comm_rank(comm) != 0) {
        fgio_progress_disable();
        fgio_errors_defer(); /* an invalid command line is invalid on all ranks: rank 0 prints the error */
    }
    if (code == FGIO_EXIT_OK)
        code = fgp_program(argc, argv);
    if (code != FGIO_EXIT_OK && code != FGP_EXIT_STOPPED) {
        int all = wait_for_others();
        fgio_errors_flush(!all || code != FGIO_EXIT_USAGE);
        MPI_Abort(MPI_COMM_WORLD, code); /* other ranks may wait for this one, and messages may be in flight */
    }
    fgio_errors_flush(1);
    frug_comm_destroy(comm);
    MPI_Finalize();
    return code;
}
