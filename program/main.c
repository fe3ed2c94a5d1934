/* frugrad - the command line of libfrugrad. */
#include "program/commands.h"
#include "program/system/mpi_launch.h"

int main(int argc, char **argv) {
    fgp_launch_limited(argv);
    int code = fgp_launch(argv);
    return code == FGIO_EXIT_OK ? fgp_program(argc, argv) : code;
}
