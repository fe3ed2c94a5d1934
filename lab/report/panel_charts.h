/* panel_charts.h - the charts of a panel, one after the other. */
#ifndef FRUGI_PANEL_CHARTS_H
#define FRUGI_PANEL_CHARTS_H

#include "lab/report/chart.h"
#include "lab/report/run_stats.h"

/** A chart that was drawn. */
typedef struct frugi_chart {
    const char *kind;  /* quality-bytes, loss-time, ...: part of a file's name */
    const char *title; /* plain text */
    const char *note;  /* what the reader has to know, or "" */
    frugi_text svg;
} frugi_chart;

/** Takes charts; the chart is gone afterwards. Returns FRUGI_EXIT_OK to go on. */
typedef int (*frugi_chart_taker)(void *user, const frugi_panel *panel, const frugi_chart *chart);

/** Draw what the panel has data for, and hand it over. */
int frugi_charts(const frugi_findings *findings, const frugi_panel *panel, bool alone, frugi_chart_taker take,
                 void *user);

/** The line of a series. */
typedef struct frugi_line {
    const frugi_series *series;
    size_t count;
    const double *x, *y, *sd; /* sd may be NULL */
    bool marks, tuned;
    double *owned; /* what x and y lie in; free() */
} frugi_line;

/** Lines over two axes (their titles, units and scales are set, ticks perhaps); returns whether there was any point. */
bool frugi_draw_lines(frugi_text *to, const char *title, frugi_axis x, frugi_axis y, const frugi_line *line,
                      size_t count, bool alone);

/** Final quality over bytes, one point for each method. */
bool frugi_draw_points(frugi_text *to, const char *title, const char *metric, const frugi_series *series, size_t count,
                       bool alone);

/** Where the time of a step goes, and where the memory goes: bars. */
bool frugi_draw_times(frugi_text *to, const char *title, const frugi_panel *panel, bool alone);
bool frugi_draw_memory(frugi_text *to, const char *title, const frugi_panel *panel, bool alone);

/** Density of each layer over the steps. */
bool frugi_draw_layers(frugi_text *to, const char *title, const frugi_layers *layers, bool alone);

/** The axis that a metric is drawn on. */
frugi_axis frugi_metric_axis(const char *metric);

#endif
