/* delta_chunk.c - the code of chunks, for any CPU. */
#include "delta/delta_chunk_loops.h"

const frugi_delta_chunk_code frugi_delta_chunk_code_plain = {encode_chunk, decode_chunk, apply_chunk};
