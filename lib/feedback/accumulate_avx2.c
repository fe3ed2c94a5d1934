/* accumulate_avx2.c - the loops of accumulate_kernel.h for x86-64 with AVX2. */
#include "feedback/accumulate_loops.h"

const frugi_accumulate_kernel frugi_accumulate_avx2 = {add, add_dgc, add_ef21, all_finite};
