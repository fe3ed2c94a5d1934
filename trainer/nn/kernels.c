/* kernels.c - the table of kernels for the variant of the instruction set in use. */
#include "trainer/nn/kernels.h"

#include "base/cpu.h"

const fgt_kernels *fgt_kernels_chosen(void) {
    switch (frugi_isa_chosen()) {
#if defined(__aarch64__)
    case FRUGI_ISA_NEON: return &fgt_kernels_neon;
#elif defined(__x86_64__)
    case FRUGI_ISA_AVX2: return &fgt_kernels_avx2;
    case FRUGI_ISA_AVX512: return &fgt_kernels_avx512;
#endif
    default: return &fgt_kernels_ref;
    }
}
