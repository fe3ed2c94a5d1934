/*
 * args.h - commands, their option tables, and parsed command lines.
 *
 * A command is one const struct in its own file; its option table feeds the parser, --help and the man page, so the
 * three cannot disagree.
 */
#ifndef FGP_ARGS_H
#define FGP_ARGS_H

#include "io/error.h"

#include <stddef.h>
#include <stdint.h>

#define FGP_MAX_OPTIONS 64

/** One row of an option table; a row with name NULL ends the table. */
typedef struct fgp_opt {
    const char *name;     /* long name without dashes */
    char letter;          /* short name, or 0 */
    const char *arg;      /* placeholder in the help; NULL for a switch; "[PATH]": optional */
    const char *fallback; /* default value; NULL for none */
    const char *help;
} fgp_opt;

typedef struct fgp_args fgp_args;

typedef struct fgp_command {
    const char *name;
    const char *summary;    /* one line, no full stop */
    const char *operands;   /* as shown in the usage line ("IN", "[FILE]"); "" for none */
    size_t min_operands;    /* checked before run() */
    size_t max_operands;    /* checked before run() */
    const char *about;      /* a paragraph for the help and the man page, with line breaks */
    const fgp_opt *options; /* without --help, which every command has */
    void (*more)(void);     /* prints further lines of the help, below the options; NULL for none */
    int hidden;             /* not listed by --help */
    int (*run)(const fgp_args *args);
} fgp_command;

struct fgp_args {
    const fgp_command *command;
    const char *value[FGP_MAX_OPTIONS]; /* by row of the option table; the last one given wins */
    int given[FGP_MAX_OPTIONS];         /* how often */
    size_t operand_count;
    const char *const *operand;
};

/**
 * Parse a command line: --name=value, --name value, -n value, -nvalue, operands
 * in between, `--` ends the options. The operands are moved to the front of argv.
 * An optional value is the next argument unless that begins with a dash; "" if there is none.
 *
 *   argc, argv   what follows the command's name
 *   *want_help   set when --help or -h is there; nothing else is then checked
 *
 * Returns FGIO_EXIT_OK, or FGIO_EXIT_USAGE after an error message.
 */
int fgp_args_parse(const fgp_command *command, int argc, char **argv, fgp_args *args, int *want_help);

/** The value of an option or its default; NULL if it has neither. The name must be in the table. */
const char *fgp_arg(const fgp_args *args, const char *name);

/** The row of an option in the command's table, -1 if there is none. `length` characters of name count. */
int fgp_args_row(const fgp_command *command, const char *name, size_t length);

/** The nearest option name by edit distance; NULL if none is near. */
const char *fgp_args_nearest(const fgp_command *command, const char *word);

/** Whether the option was given. */
int fgp_arg_given(const fgp_args *args, const char *name);

/** Parse an option that is a whole number from min to max. Returns FGIO_EXIT_OK or, after an error message,
 * FGIO_EXIT_USAGE. */
int fgp_arg_u64(const fgp_args *args, const char *name, uint64_t min, uint64_t max, uint64_t *number);

/** Parse an option that is a finite number from min to max; otherwise as fgp_arg_u64(). */
int fgp_arg_double(const fgp_args *args, const char *name, double min, double max, double *number);

/** Parse an option that is one of the words of a NULL-terminated list: *which is its index. As fgp_arg_u64(). */
int fgp_arg_word(const fgp_args *args, const char *name, const char *const *words, int *which);

#endif
