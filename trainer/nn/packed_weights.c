/* packed_weights.c - products with packed weights. */
#include "trainer/nn/packed_weights.h"

#include "trainer/nn/gemm.h"

enum { PACKED_ROWS_MOST = 32 };

void fgt_packed_allow(fgt_graph *g, fgt_param *p, size_t inputs) {
    p->packable = g->keep == FGT_KEEP_NONE;
    if (p->packable)
        fgt_work_shared_reserve(g, (size_t)FGT_UNPACKED_OUTPUTS * (inputs + 1));
}

void fgt_packed_multiply(fgt_graph *g, const frug_sparse *w, const float *x, size_t rows, size_t in, float *y,
                         size_t out) {
    float *work = fgt_work_shared(g);
    if (rows <= PACKED_ROWS_MOST) {
        frug_sparse_multiply(w, g->threads, x, rows, in, y, out, work);
        return;
    }
    for (size_t first = 0; first < out; first += FGT_UNPACKED_OUTPUTS) {
        size_t count = out - first < FGT_UNPACKED_OUTPUTS ? out - first : FGT_UNPACKED_OUTPUTS;
        frug_sparse_unpack(w, (uint32_t)first, (uint32_t)count, work);
        fgt_gemm(g->threads, rows, count, in, 1.0f, (fgt_matrix){x, in, false}, (fgt_matrix){work, in, true}, 0.0f,
                 y + first, out);
    }
}
