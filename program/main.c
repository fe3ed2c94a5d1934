/* main.c - the program frugrad, the command line of libfrugrad. */
#include "program/args/commands.h"
#include "program/system/mpi_launch.h"

int main(int argc, char **argv) {
    fgp_set_thread_variables(argv);
    int code = fgp_mpi_launch(argv);
    return code == FGIO_EXIT_OK ? fgp_program(argc, argv) : code;
}
