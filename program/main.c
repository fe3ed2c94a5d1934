/* frugrad - the command line of libfrugrad. */
#include "program/commands.h"
#include "program/system/mpi_launch.h"

int main(int argc, char **argv) {
    frugi_launch_limited(argv);
    int code = frugi_launch(argv);
    return code == FRUGI_EXIT_OK ? frugi_program(argc, argv) : code;
}
