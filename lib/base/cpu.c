/*
 * cpu.c - detection of CPU features.
 *
 * Features are read from the operating system (getauxval) or from the compiler's CPUID support, never derived from
 * the CPU's name: some machines disable instructions that their model has.
 */
#include "base/cpu.h"

#include "frugrad.h"

#include <stdlib.h>
#include <string.h>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

static const char *const names[FRUGI_ISA_COUNT] = {"ref", "neon", "avx2"};

const char *frugi_isa_name(frugi_isa isa) {
    return names[isa];
}

bool frugi_isa_runs(frugi_isa isa) {
    switch (isa) {
    case FRUGI_ISA_REF: return true;
#if defined(__aarch64__)
    case FRUGI_ISA_NEON: return true; /* part of the base architecture */
#elif defined(__x86_64__)
    case FRUGI_ISA_AVX2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
#endif
    default: return false;
    }
}

frugi_isa frugi_isa_chosen(void) {
    const char *forced = getenv("FRUG_ISA");
    for (int i = FRUGI_ISA_COUNT - 1; i >= 0; i--) {
        if (forced && *forced && strcmp(forced, names[i]) != 0)
            continue;
        if (frugi_isa_runs((frugi_isa)i))
            return (frugi_isa)i;
    }
    return FRUGI_ISA_COUNT;
}

bool frugi_cpu_has_crc32c(void) {
#if defined(__aarch64__) && defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#elif defined(__x86_64__)
    return __builtin_cpu_supports("sse4.2");
#else
    return false;
#endif
}

const char *frug_isa_at(size_t i) {
    for (int isa = 0; isa < FRUGI_ISA_COUNT; isa++)
        if (frugi_isa_runs((frugi_isa)isa) && i-- == 0)
            return names[isa];
    return NULL;
}

const char *frug_isa(void) {
    frugi_isa isa = frugi_isa_chosen();
    return isa == FRUGI_ISA_COUNT ? NULL : names[isa];
}
