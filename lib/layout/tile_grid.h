/*
 * tile_grid.h - a tensor as a matrix of units, which are selected as a whole.
 *
 * Every kind of unit is a tile: an element is 1 x 1, a run 1 x L of one long row, a row 1 x cols, a column
 * rows x 1, an output channel of a convolution a row of the matrix (out) x (in * kh * kw), an attention head
 * some rows of Q, K, V or some columns of O. Units are numbered row by row of tiles; those at the lower and right
 * edge may be smaller.
 */
#ifndef FRUGI_TILE_GRID_H
#define FRUGI_TILE_GRID_H

#include <stdint.h>

typedef struct frugi_grid {
    uint64_t rows, cols;          /* elements, row-major */
    uint64_t h, w;                /* size of a unit */
    uint64_t down, across, units; /* computed by frugi_grid_measure() */
} frugi_grid;

/** A unit: `h` rows of `w` elements, the first at `at`, each `cols` after the previous one. */
typedef struct frugi_tile {
    uint64_t at, h, w;
} frugi_tile;

#define FRUGI_GRID_ELEMENTS_MAX ((uint64_t)1 << 48)
#define FRUGI_GRID_UNITS_MAX    ((uint64_t)UINT32_MAX)

/** Compute the derived fields. Returns 0 if the grid is invalid. */
static inline int frugi_grid_measure(frugi_grid *g) {
    if (!g->rows || !g->cols || !g->h || !g->w || g->h > g->rows || g->w > g->cols ||
        g->rows > FRUGI_GRID_ELEMENTS_MAX / g->cols)
        return 0;
    g->down = (g->rows - 1) / g->h + 1;
    g->across = (g->cols - 1) / g->w + 1;
    g->units = g->down * g->across;
    return g->units <= FRUGI_GRID_UNITS_MAX;
}

static inline frugi_tile frugi_grid_tile(const frugi_grid *g, uint64_t u) {
    uint64_t r = u / g->across * g->h, c = u % g->across * g->w;
    frugi_tile t = {.at = r * g->cols + c, .h = g->rows - r, .w = g->cols - c};
    t.h = t.h < g->h ? t.h : g->h;
    t.w = t.w < g->w ? t.w : g->w;
    return t;
}

/** Number of elements of unit u. */
static inline uint64_t frugi_grid_size(const frugi_grid *g, uint64_t u) {
    frugi_tile t = frugi_grid_tile(g, u);
    return t.h * t.w;
}

/** Whether all units have h * w elements. */
static inline int frugi_grid_is_uniform(const frugi_grid *g) {
    return g->rows % g->h == 0 && g->cols % g->w == 0;
}

/** Whether unit u is the u-th range of h * w consecutive elements, so that its values need not be gathered. */
static inline int frugi_grid_is_contiguous(const frugi_grid *g) {
    return g->across == 1 || (g->h == 1 && g->cols % g->w == 0) || (g->h == 1 && g->rows == 1);
}

#endif
