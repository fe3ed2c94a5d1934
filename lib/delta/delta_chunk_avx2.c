/* delta_chunk_avx2.c - the code of chunks, with the bit instructions that CPUs with AVX2 have. */
#include "delta/delta_chunk_loops.h"

const frugi_delta_chunk_code frugi_delta_chunk_code_avx2 = {encode_chunk, decode_chunk, apply_chunk};
