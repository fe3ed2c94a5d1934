/*
 * tile_grid.h - a tensor as a matrix cut into units, which are kept or dropped whole.
 *
 * Every unit of the literature is a tile: an element is 1 x 1, a run 1 x L of one long row, a row 1 x cols, a column
 * rows x 1, an output channel of a convolution a row of the matrix (out) x (in * kh * kw), an attention head
 * some rows of Q, K, V or some columns of O. Units are numbered row by row of tiles; those at the lower and right
 * edge may be smaller.
 */
#ifndef FRUGI_TILE_GRID_H
#define FRUGI_TILE_GRID_H

#include <stdint.h>

typedef struct frugi_grid {
    uint64_t rows, cols;          /* elements, row-major */
    uint64_t h, w;                /* of a unit */
    uint64_t down, across, units; /* worked out by frugi_grid_measure() */
} frugi_grid;

/** A unit: `h` stretches of `w` elements, the first at `at`, each `cols` after the one before. */
typedef struct frugi_tile {
    uint64_t at, h, w;
} frugi_tile;

#define FRUGI_GRID_MOST_ELEMENTS ((uint64_t)1 << 48)
#define FRUGI_GRID_MOST_UNITS    ((uint64_t)UINT32_MAX)

/** Fill in what follows from the rest. Returns 0 for a grid that cannot be. */
static inline int frugi_grid_measure(frugi_grid *g) {
    if (!g->rows || !g->cols || !g->h || !g->w || g->h > g->rows || g->w > g->cols ||
        g->rows > FRUGI_GRID_MOST_ELEMENTS / g->cols)
        return 0;
    g->down = (g->rows - 1) / g->h + 1;
    g->across = (g->cols - 1) / g->w + 1;
    g->units = g->down * g->across;
    return g->units <= FRUGI_GRID_MOST_UNITS;
}

static inline frugi_tile frugi_grid_tile(const frugi_grid *g, uint64_t u) {
    uint64_t r = u / g->across * g->h, c = u % g->across * g->w;
    frugi_tile t = {.at = r * g->cols + c, .h = g->rows - r, .w = g->cols - c};
    t.h = t.h < g->h ? t.h : g->h;
    t.w = t.w < g->w ? t.w : g->w;
    return t;
}

/** Elements of unit u. */
static inline uint64_t frugi_grid_size(const frugi_grid *g, uint64_t u) {
    frugi_tile t = frugi_grid_tile(g, u);
    return t.h * t.w;
}

/** Whether all units have h * w elements. */
static inline int frugi_grid_even(const frugi_grid *g) {
    return g->rows % g->h == 0 && g->cols % g->w == 0;
}

/** Whether unit u is the u-th stretch of h * w elements, so that values need no gathering. */
static inline int frugi_grid_flat(const frugi_grid *g) {
    return g->across == 1 || (g->h == 1 && g->cols % g->w == 0) || (g->h == 1 && g->rows == 1);
}

#endif
