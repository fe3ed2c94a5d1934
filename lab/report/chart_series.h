/*
 * chart_series.h - how methods look in the charts of a panel: their groups, colors and numbers, and which are highlighted.
 * A chart tells about six lines apart; the others are gray, numbered, and named by the legend.
 */
#ifndef FRUGI_CHART_SERIES_H
#define FRUGI_CHART_SERIES_H

#include "lab/report/run_stats.h"

/** Highlighted ones, and all that charts have; tables have more. */
enum { FRUGI_LIT_MOST = 6, FRUGI_SERIES_MOST = 64 };

typedef enum {
    FRUGI_GROUP_BASELINE,
    FRUGI_GROUP_OURS,
    FRUGI_GROUP_SPARSE,
    FRUGI_GROUP_QUANTIZED,
    FRUGI_GROUP_OTHER,
    FRUGI_GROUP_VARIANT,
    FRUGI_GROUPS
} frugi_group;

typedef struct frugi_series {
    const frugi_cell *first; /* the method; the first one where several are one line */
    char name[160];
    int number; /* from 1 */
    frugi_group group;
    int color, dash; /* dense is black, FruGrad is blue in every chart */
    bool lit;        /* highlighted */
} frugi_series;

/**
 * The series of a panel: one for each method, or for each stem (see frugi_method_stem()) where `frugi_panel_by_stem()`.
 * To be freed. Returns how many, 0 also without memory.
 */
size_t frugi_series_make(const frugi_panel *panel, frugi_series **series);

/** Whether charts draw methods whose ids differ in a number alone as one line: over workers, sparsity or states. */
bool frugi_panel_by_stem(const frugi_panel *panel);

/** Whether the workers of a panel's methods differ. */
bool frugi_workers_vary(const frugi_panel *panel);

bool frugi_same_stem(const frugi_cell *a, const frugi_cell *b);

const char *frugi_group_name(frugi_group group, bool tuned);

#endif
