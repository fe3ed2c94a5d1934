/* inspect.h - the three things frugrad inspect can show; each prints and returns an exit status. */
#ifndef FRUGI_INSPECT_H
#define FRUGI_INSPECT_H

/** The machine: CPU, variants, threads, presets. */
int frugi_inspect_machine(int json);

/** A config string, resolved. */
int frugi_inspect_config(const char *text, int json);

/** A payload file or a bare frame. */
int frugi_inspect_file(const char *path, int json);

#endif
