/* cpu_name.h - the name of the CPU. */
#ifndef FGP_CPU_NAME_H
#define FGP_CPU_NAME_H

#include <stddef.h>

/** The model name of the CPU from /proc/cpuinfo; where it has none (ARM, other systems), the architecture. */
void fgp_cpu_name(char *dst, size_t cap);

#endif
