/*
 * 03_mpi.c - the sum of gradients over the processes of an MPI job.
 *
 *   mpicc 03_mpi.c $(pkg-config --cflags --libs frugrad_mpi) -o 03_mpi && mpirun -n 2 ./03_mpi
 */
#include <frugrad.h>
#include <frugrad/mpi.h>

#include <stdio.h>

enum { N = 1 << 16, STEPS = 20 };

static int run(frug_comm *comm) {
    static float grad[N];
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    frug_reducer *reducer = NULL;
    int rank = frug_comm_rank(comm), size = frug_comm_size(comm);
    int failed = frug_config_create("frugrad", &config) || frug_layout_flat(N, &layout) ||
                 frug_reducer_create(config, layout, NULL, comm, &reducer);
    for (uint64_t step = 0; step < STEPS && !failed; step++) {
        for (int i = 0; i < N; i++)
            grad[i] = (float)((i * 7 + rank + (int)step) % 101) - 50.0f;
        failed = frug_reducer_sum(reducer, step, (frug_range){0, N}, grad, 1.0 / size) != FRUG_OK;
    }
    frug_reduce_stats stats = {.struct_size = sizeof stats};
    failed = failed || frug_reducer_stats(reducer, &stats);
    if (failed)
        fprintf(stderr, "03_mpi: rank %d: %s\n", rank, frug_last_error());
    else if (rank == 0)
        printf("%d ranks, %d steps: each sent %.1f %% of the bytes of dense gradients\n", size, STEPS,
               100.0 * (double)stats.bytes_sent / (STEPS * sizeof grad * (double)(size > 1 ? size - 1 : 1)));
    frug_reducer_destroy(reducer);
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    return failed;
}

int main(int argc, char **argv) {
    int level = 0;
    frug_comm *comm = NULL;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    int failed = frug_comm_mpi(MPI_COMM_WORLD, &comm) || run(comm);
    if (failed)
        MPI_Abort(MPI_COMM_WORLD, 1);
    frug_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
