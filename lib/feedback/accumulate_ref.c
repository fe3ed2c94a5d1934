/* accumulate_ref.c - the loops of accumulate_kernel.h for any CPU, and the choice between variants. */
#include "feedback/accumulate_loops.h"

#include "base/cpu.h"

const frugi_accumulate_kernel frugi_accumulate_ref = {add, add_dgc, add_ef21, all_finite};

/* AVX-512 would gain nothing: memory is the limit. */
const frugi_accumulate_kernel *frugi_accumulate_kernel_chosen(void) {
    switch (frugi_isa_chosen()) {
#if defined(__aarch64__)
    case FRUGI_ISA_NEON: return &frugi_accumulate_neon;
#elif defined(__x86_64__)
    case FRUGI_ISA_AVX2:
    case FRUGI_ISA_AVX512: return &frugi_accumulate_avx2;
#endif
    default: return &frugi_accumulate_ref;
    }
}
