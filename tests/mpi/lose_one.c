/*
 * lose_one.c - a job in which rank 1 fails after two steps: it is killed, is stopped, or makes no calls any more. The
 * other ranks get a timeout error after 2 seconds, print it and abort the job.
 *
 *   lose_one kill|stop|idle ALGORITHM
 */
#include "frugrad/mpi.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N     100000u
#define STEPS 4u

static void lose_rank(const char *how) {
    printf("lost: %ld\n", (long)getpid());
    fflush(stdout);
    if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    else if (strcmp(how, "stop") == 0)
        raise(SIGSTOP);
    else
        sleep(60);
}

static frug_status run(frug_comm *comm, const char *how, const char *algorithm) {
    static float grad[N], weights[N];
    char text[64];
    frug_config *config = NULL;
    frug_layout *layout = NULL;
    frug_reducer *r = NULL;
    snprintf(text, sizeof text, "frugrad,reduce=%s", algorithm);
    for (size_t i = 0; i < N; i++)
        grad[i] = (float)(i % 1009);
    frug_status status = frug_config_create(text, &config);
    if (status == FRUG_OK)
        status = frug_layout_flat(N, &layout);
    if (status == FRUG_OK)
        status = frug_reducer_create(config, layout, NULL, comm, &r);
    for (uint64_t step = 0; step < STEPS && status == FRUG_OK; step++) {
        if (step == 2 && frug_comm_rank(comm) == 1)
            lose_rank(how);
        status = frug_reducer_apply(r, step, (frug_range){0, N}, grad, 0.1f, 0.0f, weights);
    }
    frug_reducer_destroy(r);
    frug_layout_destroy(layout);
    frug_config_destroy(config);
    return status;
}

int main(int argc, char **argv) {
    int level = 0;
    frug_comm *comm = NULL;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    frug_status status = argc == 3 ? frug_comm_mpi(MPI_COMM_WORLD, &comm) : FRUG_ERR_ARG;
    if (status == FRUG_OK)
        status = frug_comm_set_timeout(comm, 2);
    if (status == FRUG_OK)
        status = run(comm, argv[1], argv[2]);
    if (status != FRUG_OK) {
        fprintf(stderr, "%s: %s\n", frug_status_text(status), frug_last_error());
        sleep(1); /* let the other ranks print their errors */
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    frug_comm_destroy(comm);
    MPI_Finalize();
    return 0;
}
