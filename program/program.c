/*
 * program.c - the program, for frugrad and frugrad-mpi.
 *
 * Finds the command, parses its options and runs it. Output is checked to have been written before the program reports
 * success.
 */
#include "program/args/commands.h"
#include "io/files.h"
#include "frugrad.h"
#include "io/error.h"
#include "trainer/run/worker_group.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int run_command_line(int argc, char **argv) {
    fgp_args args;
    int want_help = 0;
    if (argc < 2) { /* the help for people, a usage error for scripts */
        if (fgt_group_rank() == 0)
            fgp_help_program(stderr);
        return FGIO_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fgp_help_program(stdout);
        return FGIO_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0 || strcmp(argv[1], "version") == 0) {
        printf("frugrad %s\n", frug_version());
        return FGIO_EXIT_OK;
    }
    const fgp_command *command = fgp_command_find(argv[1]);
    if (command == NULL)
        return fgp_unknown_command(argv[1]);
    int code = fgp_args_parse(command, argc - 2, argv + 2, &args, &want_help);
    if (code == FGIO_EXIT_OK && want_help) {
        fgp_help_command(command);
        return FGIO_EXIT_OK;
    }
    if (code == FGIO_EXIT_OK)
        code = command->run(&args);
    if (code == FGIO_EXIT_USAGE && !fgio_hinted())
        fgio_hint("see frugrad %s --help", command->name);
    return code;
}

int fgp_program(int argc, char **argv) {
    fgio_files_init();
    int code = run_command_line(argc, argv);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == FGIO_EXIT_OK)
        code = fgio_error("standard output: %s", errno != 0 ? strerror(errno) : "write failed");
    return code;
}
