/* cpu_name.h - what machine this is. */
#ifndef FGP_CPU_NAME_H
#define FGP_CPU_NAME_H

#include <stddef.h>

/** The CPU's name as Linux gives it on x86; other systems and ARM have none there, and the architecture must do. */
void fgp_machine_cpu(char *dst, size_t cap);

#endif
