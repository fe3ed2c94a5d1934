/*
 * chart.h - what charts are made of: axes, a frame, marks, labels that keep off each other. A chart is SVG whose
 * colours are classes only (ink, series, ramp), so that the page around it or a stand-alone file decides on light and
 * dark.
 */
#ifndef FRUGI_REPORT_CHART_H
#define FRUGI_REPORT_CHART_H

#include "text.h"

#include <stdbool.h>

enum { FRUGI_CHART_WIDTH = 460, FRUGI_SERIES = 9, FRUGI_RAMP = 9, FRUGI_TICKS = 12 };

typedef enum {
    FRUGI_UNIT_PLAIN,
    FRUGI_UNIT_BYTES,
    FRUGI_UNIT_SHARE, /* 0.93 is 93 % */
    FRUGI_UNIT_HELD,  /* 1 / density: 100 is 99 % held back */
} frugi_unit;

typedef struct frugi_axis {
    const char *title;
    bool log;
    frugi_unit unit;
    double low, high; /* begin as FRUGI_AXIS_EMPTY has them */
    double tick[FRUGI_TICKS];
    int ticks; /* those that are there when the axis is finished stay */
} frugi_axis;

#define FRUGI_AXIS_EMPTY .low = 1e300, .high = -1e300

/** Make room for a number; one that the axis cannot show (NaN, on a logarithmic one 0 and less) is left out. */
void frugi_axis_see(frugi_axis *axis, double number);

/** Leave a margin and choose ticks, `most` at most. */
void frugi_axis_finish(frugi_axis *axis, int most);

/** Whether a number can be drawn at all. */
bool frugi_axis_shows(const frugi_axis *axis, double number);

/** A number in the axis's unit. */
const char *frugi_axis_text(const frugi_axis *axis, double number, char *dst, size_t cap);

/** The part of a chart that has axes; edges in pixels. */
typedef struct frugi_plot {
    frugi_text *to;
    frugi_axis x, y;
    double left, right, top, bottom;
} frugi_plot;

double frugi_plot_x(const frugi_plot *plot, double number);
double frugi_plot_y(const frugi_plot *plot, double number);

/** Draw grid, ticks and titles. */
void frugi_plot_frame(const frugi_plot *plot);

/** Width of a text in pixels, about. */
double frugi_label_width(const char *text);

/** A label cut to a width in pixels, with dots where something is missing. */
const char *frugi_label_cut(const char *text, double width, char *dst, size_t cap);

/** Move labels apart: y[] are wanted baselines, and become ones `gap` apart between top and bottom where they fit. */
void frugi_labels_spread(double *y, size_t count, double gap, double top, double bottom);

/** Draw the mark of a series. `tip` is shown by browsers when it is pointed at, and is escaped here. */
void frugi_chart_mark(frugi_text *to, size_t series, double x, double y, const char *tip);

/** Class of the colour of a series (0 is dense), and its dashes. */
int frugi_series_colour(size_t series);
const char *frugi_series_dashes(size_t series);

/** Begin and end a chart. Alone: a whole file with fixed light colours; otherwise an element of a page. */
void frugi_chart_begin(frugi_text *to, const char *title, double height, bool alone);
void frugi_chart_end(frugi_text *to);

/** The colours as CSS variables for a page, with those for dark, and the rules of the classes over them. */
void frugi_chart_page_style(frugi_text *to);

#endif
