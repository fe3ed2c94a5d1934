/* cpu.h - which instruction-set variants run here, and which one is in use. */
#ifndef FRUGI_CPU_H
#define FRUGI_CPU_H

#include <stdbool.h>

typedef enum frugi_isa { FRUGI_ISA_REF, FRUGI_ISA_NEON, FRUGI_ISA_AVX2, FRUGI_ISA_COUNT } frugi_isa;

/** Whether this build has the variant and this CPU, as the operating system reports it, runs it. */
bool frugi_isa_runs(frugi_isa isa);

/** Name of a variant: "ref", "neon", "avx2". */
const char *frugi_isa_name(frugi_isa isa);

/** The best variant, or the one FRUG_ISA names; FRUGI_ISA_COUNT when that one does not run here. */
frugi_isa frugi_isa_chosen(void);

/** Whether the CPU computes CRC-32C by itself. */
bool frugi_cpu_has_crc32c(void);

#endif
