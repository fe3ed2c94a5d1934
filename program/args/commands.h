/* commands.h - every command of the program, one const struct per file. */
#ifndef FGP_COMMANDS_H
#define FGP_COMMANDS_H

#include "program/args/args.h"

#include <stdio.h>

extern const fgp_command fgp_command_train;      /* cmd_train.c */
extern const fgp_command fgp_command_finetune;   /* cmd_finetune.c */
extern const fgp_command fgp_command_eval;       /* cmd_eval.c */
extern const fgp_command fgp_command_serve;      /* cmd_serve.c */
extern const fgp_command fgp_command_join;       /* cmd_join.c */
extern const fgp_command fgp_command_keygen;     /* cmd_keygen.c */
extern const fgp_command fgp_command_sample;     /* cmd_sample.c */
extern const fgp_command fgp_command_prune;      /* cmd_prune.c */
extern const fgp_command fgp_command_export;     /* cmd_export.c */
extern const fgp_command fgp_command_tokens;     /* cmd_tokens.c */
extern const fgp_command fgp_command_data;       /* cmd_data.c */
extern const fgp_command fgp_command_bench;      /* cmd_bench.c */
extern const fgp_command fgp_command_compare;    /* cmd_compare.c */
extern const fgp_command fgp_command_demo;       /* cmd_demo.c */
extern const fgp_command fgp_command_inspect;    /* cmd_inspect.c */
extern const fgp_command fgp_command_compress;   /* cmd_compress.c */
extern const fgp_command fgp_command_decompress; /* cmd_decompress.c */
extern const fgp_command fgp_command_diff;       /* cmd_diff.c */
extern const fgp_command fgp_command_patch;      /* cmd_patch.c */
extern const fgp_command fgp_command_plan;       /* cmd_plan.c */
extern const fgp_command fgp_command_report;     /* cmd_report.c */
extern const fgp_command fgp_command_help;       /* cmd_help.c */
extern const fgp_command fgp_command_man;        /* cmd_man.c */

/** Run the program: find the command, parse its options, run it. Returns the exit code. */
int fgp_program(int argc, char **argv);

/** The i-th command in the order of the help, or NULL past the end. */
const fgp_command *fgp_command_at(size_t i);

/** The command of that name, or NULL. */
const fgp_command *fgp_command_find(const char *name);

/** Report an unknown command, with the nearest one as a hint. Returns FGIO_EXIT_USAGE. */
int fgp_unknown_command(const char *name);

/** Print the help of a command on stdout. */
void fgp_help_command(const fgp_command *command);

/** Print the help of the program. */
void fgp_help_program(FILE *to);

#endif
