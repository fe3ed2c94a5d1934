/*
 * launch.c - `mpirun -n 8 frugrad train ...` works although frugrad itself is not linked with MPI, which most people do
 * not have: launchers tell their processes how many there are, and then frugrad-mpi takes over. Without this, eight
 * programs would each train alone and overwrite each other's files.
 */
#include "launch.h"

#include "say.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Processes of the job: Open MPI, and all that speak PMI (MPICH, Intel MPI). */
static long processes(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text != NULL)
            return strtol(text, NULL, 10);
    }
    return 1;
}

int frugi_launch(char **argv) {
    static const char name[] = "frugrad-mpi";
    char path[PATH_MAX + sizeof name];
    long count = processes();
    if (count <= 1)
        return FRUGI_EXIT_OK;
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    memcpy(slash != NULL ? slash + 1 : path, name, sizeof name);
    execv(path, argv);
    int cause = errno;
    frugi_error("started as one of %ld processes of an MPI job, but cannot run %s: %s", count, path, strerror(cause));
    frugi_hint("build with MPI (cmake -D FRUGRAD_MPI=ON) and keep frugrad-mpi beside frugrad");
    return FRUGI_EXIT_FAIL;
}
