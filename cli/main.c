/* frugrad - the command line of libfrugrad. */
#include "commands.h"

int main(int argc, char **argv) {
    return frugi_program(argc, argv);
}
