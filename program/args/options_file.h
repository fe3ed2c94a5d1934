/* options_file.h - options out of a file, one a line, in the words of the command line. */
#ifndef FGP_OPTIONS_FILE_H
#define FGP_OPTIONS_FILE_H

#include "program/args/args.h"

/**
 * Add what a file says to what the command line says, which wins. Lines are `option = value`, `option value` or
 * `--option value`; a switch stands alone or with yes or no; '#' begins a comment at the start of a line and after a
 * space.
 *
 *   args    gets the values of options that it does not have
 *   *text   what these values point into: free() it after the last use of args; NULL on failure
 *
 * Returns FGIO_EXIT_OK; FGIO_EXIT_FAIL where the file cannot be read and FGIO_EXIT_USAGE for a line that is wrong,
 * after one line on stderr with the number of that line.
 */
int fgp_settings_add(const char *path, fgp_args *args, char **text);

#endif
