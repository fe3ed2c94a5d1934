/* inspect.h - the four things frugrad inspect can show; each prints and returns an exit status. */
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

/** The value that a spelled-out config gives an option. Returns 0 when the option is only short for another. */
int fgp_config_value(const char *text, const char *option, char *dst, size_t cap);

/** A payload file or a bare frame. */
int fgp_inspect_file(const char *path, int json);

#endif
