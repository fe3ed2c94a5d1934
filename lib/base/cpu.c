/*
 * cpu.c - detection of CPU features.
 *
 * Features are read from the operating system (getauxval) or from the compiler's CPUID support, never derived from
 * the CPU's name: some machines disable instructions that their model has.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include "base/cpu.h"

#include "frugrad.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif
#endif

static const char *const names[FRUGI_ISA_COUNT] = {"ref", "neon", "avx2", "avx512"};

const char *frugi_isa_name(frugi_isa isa) {
    return names[isa];
}

#if defined(__x86_64__)
/* These also check that the operating system saves the registers. */
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("popcnt");
}

/* The extensions that all server CPUs since Skylake have in common. */
static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

bool frugi_isa_runs(frugi_isa isa) {
    switch (isa) {
    case FRUGI_ISA_REF: return true;
#if defined(__aarch64__)
    case FRUGI_ISA_NEON: return true; /* part of the base architecture */
#elif defined(__x86_64__)
    case FRUGI_ISA_AVX2: return has_avx2();
    case FRUGI_ISA_AVX512: return has_avx2() && has_avx512();
#endif
    default: return false;
    }
}

frugi_isa frugi_isa_best(void) {
    int i = FRUGI_ISA_COUNT - 1;
    while (!frugi_isa_runs((frugi_isa)i)) /* the reference always does */
        i--;
    return (frugi_isa)i;
}

frugi_isa frugi_isa_chosen(void) {
    const char *forced = getenv("FRUG_ISA");
    if (!forced || !*forced)
        return frugi_isa_best();
    for (int i = 0; i < FRUGI_ISA_COUNT; i++)
        if (strcmp(forced, names[i]) == 0 && frugi_isa_runs((frugi_isa)i))
            return (frugi_isa)i;
    return FRUGI_ISA_COUNT;
}

int frugi_cpu_cores(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef CPU_COUNT
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        cores = CPU_COUNT(&allowed);
#endif
    return cores > 1 ? (int)cores : 1;
}

bool frugi_cpu_has_dot_product(void) {
#if defined(__aarch64__) && defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return false;
#endif
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
