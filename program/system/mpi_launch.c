/*
 * mpi_launch.c - `mpirun -n 8 frugrad train ...` runs frugrad-mpi.
 *
 * frugrad itself is not linked with MPI, which most users do not have. MPI launchers set the number of processes in the
 * environment; frugrad then executes frugrad-mpi. Without this, eight programs would each train alone and overwrite
 * each other's files.
 */
#include "program/system/mpi_launch.h"

#include "trainer/base/blas.h"
#include "io/error.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Variables set by launchers: Open MPI, those with PMI (MPICH, Intel MPI), and `srun --mpi=pmix`. PMIx sets only a
 * rank, and Slurm sets a number of tasks also for tasks that are no MPI job: it counts where there is a rank. */
static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL};
static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", NULL};
static const char *const slurm_sizes[] = {"SLURM_STEP_NUM_TASKS", NULL};

/* The first variable of a list that is set; 0 if none is. */
static long first_number(const char *const *names) {
    for (; *names != NULL; names++)
        if (getenv(*names) != NULL)
            return strtol(getenv(*names), NULL, 10);
    return 0;
}

static const char *const computing[] = {"train", "finetune", "eval", "sample", "demo", "bench", "plan", NULL};

/* Read the path of this program; its name in it, behind the last slash, or NULL if there is none. */
static char *own_path(char path[PATH_MAX]) {
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    return slash == NULL ? NULL : slash + 1;
}

static bool is_computing(const char *command) {
    for (const char *const *name = computing; command != NULL && *name != NULL; name++)
        if (strcmp(command, *name) == 0)
            return true;
    return false;
}

/* Whether the variable was not set, and is now. */
static bool set_default(const char *name, const char *value) {
    return getenv(name) == NULL && setenv(name, value, 1) == 0;
}

void fgp_set_thread_variables(char **argv) {
    char path[PATH_MAX];
    const char *name = own_path(path);
    if (argv[0] == NULL || name == NULL || strncmp(name, "frugrad", strlen("frugrad")) != 0)
        return; /* it may run inside another program, such as ld.so */
    bool spin = is_computing(argv[1]) && getenv("OMP_WAIT_POLICY") == NULL && set_default("GOMP_SPINCOUNT", "10000");
    bool blas = fgt_memory_limit() != UINT64_MAX && set_default("OPENBLAS_NUM_THREADS", "1");
    if (spin || blas)
        execv(path, argv);
}

int fgp_mpi_launch(char **argv) {
    static const char name[] = "frugrad-mpi";
    char path[PATH_MAX + sizeof name];
    long count = first_number(sizes);
    if (count == 0 && getenv("PMIX_RANK") != NULL)
        count = first_number(slurm_sizes);
    if (count <= 1)
        return FGIO_EXIT_OK;
    char *own = own_path(path);
    memcpy(own != NULL ? own : path, name, sizeof name);
    execv(path, argv);
    int cause = errno;
    if (first_number(ranks) > 0) /* only rank 0 prints the error */
        return FGIO_EXIT_FAIL;
    if (cause == ENOENT) {
        fgio_error("started as %ld processes of an MPI job, but built without MPI: there is no %s", count, path);
        fgio_hint("install it (Debian: apt-get install libopenmpi-dev openmpi-bin) and build again (make, or make "
                  "install), which finds it; on one machine --workers %ld needs no MPI",
                  count);
    } else {
        fgio_error("started as %ld processes of an MPI job, but cannot run %s: %s", count, path, strerror(cause));
    }
    return FGIO_EXIT_FAIL;
}
