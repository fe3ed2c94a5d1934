/* inspect.h - the four things frugrad inspect can show; each prints and returns an exit status. */
#ifndef FRUGI_INSPECT_H
#define FRUGI_INSPECT_H

#include <stddef.h>

/** The machine: CPU, variants, threads, presets. */
int frugi_inspect_machine(int json);

/** A config string, resolved. */
int frugi_inspect_config(const char *text, int json);

struct frugi_args;

/** What a config would send of the model that --model names. */
int frugi_inspect_model(const struct frugi_args *args, const char *config, int json);

/** The value that a spelled-out config gives an option. Returns 0 when the option is only short for another. */
int frugi_config_value(const char *text, const char *option, char *dst, size_t cap);

/** A payload file or a bare frame. */
int frugi_inspect_file(const char *path, int json);

#endif
