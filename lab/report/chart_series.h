/*
 * chart_series.h - methods in the charts of a panel: their groups, colors and numbers, and which are highlighted.
 *
 * About six lines of a chart can be distinguished; the others are gray, numbered, and named by the legend.
 */
#ifndef FGL_CHART_SERIES_H
#define FGL_CHART_SERIES_H

#include "lab/report/run_stats.h"

/** The most series that are highlighted, and that charts have; tables have more. */
enum { FGL_MAX_HIGHLIGHTED = 6, FGL_MAX_SERIES = 64 };

typedef enum {
    FGL_GROUP_BASELINE,
    FGL_GROUP_OURS,
    FGL_GROUP_SPARSE,
    FGL_GROUP_QUANTIZED,
    FGL_GROUP_OTHER,
    FGL_GROUP_VARIANT,
    FGL_GROUPS
} fgl_group;

typedef struct fgl_series {
    const fgl_cell *first; /* the method; the first one if several form a line */
    char name[160];
    int number; /* from 1 */
    fgl_group group;
    int color, dash; /* dense is black, FruGrad is blue in every chart */
    bool lit;        /* highlighted */
} fgl_series;

/**
 * The series of a panel: one for each method, or for each stem (see fgl_method_stem()) where `fgl_panel_by_stem()`.
 * To be freed. Returns their number; 0 also if out of memory.
 */
size_t fgl_series_make(const fgl_panel *panel, fgl_series **series);

/** Whether charts draw methods whose ids differ in a number alone as one line: over workers, sparsity or states. */
bool fgl_panel_by_stem(const fgl_panel *panel);

/** Whether the workers of a panel's methods differ. */
bool fgl_workers_vary(const fgl_panel *panel);

bool fgl_same_stem(const fgl_cell *a, const fgl_cell *b);

const char *fgl_group_name(fgl_group group, bool tuned);

#endif
