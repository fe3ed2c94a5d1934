/* options_file.h - options from a file, one per line, with the names of the command line. */
#ifndef FGP_OPTIONS_FILE_H
#define FGP_OPTIONS_FILE_H

#include "program/args/args.h"

/**
 * Add the options of a file; the command line overrides them. Lines are `option = value`, `option value` or
 * `--option value`; a switch has no value, or yes or no; '#' begins a comment at the start of a line and after a
 * space.
 *
 *   args    gets the values of options that it does not have
 *   *text   what these values point into: free() it after the last use of args; NULL on failure
 *
 * Returns FGIO_EXIT_OK; FGIO_EXIT_FAIL if the file cannot be read, FGIO_EXIT_USAGE for an invalid line, after an error
 * message with the number of that line.
 */
int fgp_options_file_add(const char *path, fgp_args *args, char **text);

#endif
