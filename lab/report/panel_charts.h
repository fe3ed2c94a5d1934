/* panel_charts.h - drawing the charts of a panel. */
#ifndef FGL_PANEL_CHARTS_H
#define FGL_PANEL_CHARTS_H

#include "lab/report/chart.h"
#include "lab/report/run_stats.h"

/** A finished chart. */
typedef struct fgl_chart {
    const char *kind;  /* quality-bytes, loss-time, ...: part of a file's name */
    const char *title; /* plain text */
    const char *note;  /* an explanation, or "" */
    fgl_text svg;
} fgl_chart;

/** Called with every chart, which is freed afterwards. Returns FGIO_EXIT_OK to continue. */
typedef int (*fgl_chart_fn)(void *user, const fgl_panel *panel, const fgl_chart *chart);

/** Draw all charts that the panel has data for. */
int fgl_charts(const fgl_findings *findings, const fgl_panel *panel, bool standalone, fgl_chart_fn emit, void *user);

/** The line of a series. */
typedef struct fgl_line {
    const fgl_series *series;
    size_t count;
    const double *x, *y, *sd; /* sd may be NULL */
    bool marks, tuned;
    double *owned; /* memory of x and y; free() */
} fgl_line;

/** Lines over two axes (their titles, units and scales are set, ticks perhaps); returns whether there was any point. */
bool fgl_draw_lines(fgl_text *to, const char *title, fgl_axis x, fgl_axis y, const fgl_line *line, size_t count,
                    bool standalone);

/** Final quality over bytes, one point for each method. */
bool fgl_draw_points(fgl_text *to, const char *title, const char *metric, const fgl_series *series, size_t count,
                     bool standalone);

/** Where the time of a step goes, and where the memory goes: bars. */
bool fgl_draw_times(fgl_text *to, const char *title, const fgl_panel *panel, bool standalone);
bool fgl_draw_memory(fgl_text *to, const char *title, const fgl_panel *panel, bool standalone);

/** Density of each layer over the steps. */
bool fgl_draw_layers(fgl_text *to, const char *title, const fgl_layers *layers, bool standalone);

/** The axis that a metric is drawn on. */
fgl_axis fgl_metric_axis(const char *metric);

#endif
