/* cpu.h - the instruction-set variants that this CPU supports, and the one in use. */
#ifndef FRUGI_CPU_H
#define FRUGI_CPU_H

#include <stdbool.h>

typedef enum frugi_isa { FRUGI_ISA_REF, FRUGI_ISA_NEON, FRUGI_ISA_AVX2, FRUGI_ISA_AVX512, FRUGI_ISA_COUNT } frugi_isa;

/** Whether this build has the variant and the CPU, as reported by the operating system, supports it. */
bool frugi_isa_runs(frugi_isa isa);

/** Name of a variant: "ref", "neon", "avx2", "avx512". */
const char *frugi_isa_name(frugi_isa isa);

/** The best variant of this CPU. */
frugi_isa frugi_isa_best(void);

/** The best variant, or the one named by FRUG_ISA; FRUGI_ISA_COUNT if the CPU does not support that one. */
frugi_isa frugi_isa_chosen(void);

/** Number of cores that this process may use. */
int frugi_cpu_cores(void);

/** Whether the CPU has dot products of bytes (FEAT_DotProd of ARM). */
bool frugi_cpu_has_dot_product(void);

/** Whether the CPU has CRC-32C instructions. */
bool frugi_cpu_has_crc32c(void);

#endif
