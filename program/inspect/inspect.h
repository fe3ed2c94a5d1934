/* inspect.h - the four things that `frugrad inspect` shows; each function prints and returns an exit code. */
#ifndef FGP_INSPECT_H
#define FGP_INSPECT_H

#include <stddef.h>

/** The machine: CPU, variants, threads, presets. */
int fgp_inspect_machine(int json);

/** A config string, resolved. */
int fgp_inspect_config(const char *text, int json);

struct fgp_args;

/** What a config would send of the model that --model names. */
int fgp_inspect_model(const struct fgp_args *args, const char *config, int json);

/** A payload file or a bare frame. */
int fgp_inspect_file(const char *path, int json);

#endif
