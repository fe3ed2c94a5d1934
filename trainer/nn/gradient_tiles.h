/* gradient_tiles.h - passing a small gradient, computed as a whole, to the sink tile by tile. */
#ifndef FGT_GRADIENT_TILES_H
#define FGT_GRADIENT_TILES_H

#include "trainer/nn/graph.h"

#include <string.h>

/** Row at which the last tile begins: tiles are passed from the last to the first. */
static inline size_t fgt_last_tile_begin(const fgt_param *p) {
    return (p->rows - 1) / p->tile * p->tile;
}

/** Copies the gradient of a parameter into the sink, unless the parameter is frozen. */
static inline void fgt_sink_copy_grad(fgt_graph *g, const fgt_param *p, const float *grad) {
    for (size_t first = p->frozen ? 0 : fgt_last_tile_begin(p) + p->tile; first > 0;) {
        first -= p->tile;
        float *tile = g->sink->open(g->sink, p, first);
        memcpy(tile, grad + first * p->cols, fgt_tile_rows(p, first) * p->cols * sizeof *tile);
        g->sink->close(g->sink, p, first);
    }
}

#endif
