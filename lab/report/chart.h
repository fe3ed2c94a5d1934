/*
 * chart.h - elements of charts: axes, a frame, marks, labels that do not overlap.
 *
 * A chart is SVG whose colors are classes only (series, ramp), so that the page around it or a standalone file selects
 * light or dark colors.
 */
#ifndef FGL_CHART_H
#define FGL_CHART_H

#include "lab/report/chart_series.h"
#include "lab/report/text_buffer.h"

#include <stdbool.h>

enum { FGL_CHART_WIDTH = 460, FGL_COLORS = 9, FGL_RAMP = 9, FGL_TICKS = 12 };

/** Names wider than this many pixels are only in the legend. */
enum { FGL_MAX_NAME = 170 };

typedef enum {
    FGL_UNIT_PLAIN,
    FGL_UNIT_BYTES,
    FGL_UNIT_SHARE,    /* 0.93 is 93 % */
    FGL_UNIT_SPARSITY, /* 1 / density: 100 is 99 % sparsity */
} fgl_unit;

typedef struct fgl_axis {
    const char *title;
    bool log;
    fgl_unit unit;
    double low, high; /* initialized by FGL_AXIS_EMPTY */
    double tick[FGL_TICKS];
    int ticks; /* ticks set before fgl_axis_finish() are kept */
} fgl_axis;

#define FGL_AXIS_EMPTY .low = 1e300, .high = -1e300

/** Extend the range to a number; one that the axis cannot show (NaN, on a logarithmic axis 0 or less) is ignored. */
void fgl_axis_include(fgl_axis *axis, double number);

/** Add a margin and set at most `most` ticks. */
void fgl_axis_finish(fgl_axis *axis, int most);

/** Whether a number can be drawn at all. */
bool fgl_axis_shows(const fgl_axis *axis, double number);

/** A number in the axis's unit. */
const char *fgl_axis_text(const fgl_axis *axis, double number, char *dst, size_t cap);

/** The part of a chart that has axes; edges in pixels. */
typedef struct fgl_plot {
    fgl_text *to;
    fgl_axis x, y;
    double left, right, top, bottom;
} fgl_plot;

double fgl_plot_x(const fgl_plot *plot, double number);
double fgl_plot_y(const fgl_plot *plot, double number);

/** Set the ticks of both axes, and move the left edge until the labels of the y-axis fit. */
void fgl_plot_finish(fgl_plot *plot);

/** Draw grid, ticks and titles. */
void fgl_plot_frame(const fgl_plot *plot);

/** The name above the plot while the pointer is over a series. */
void fgl_plot_hover(const fgl_plot *plot, const fgl_series *series);

/* ---- labels ---------------------------------------------------------------------------------------- */

/** Width of a text in pixels, in the widest of the common fonts. */
double fgl_label_width(const char *text);

/** A label cut to a width in pixels, with an ellipsis. */
const char *fgl_label_cut(const char *text, double width, char *dst, size_t cap);

/** A label in two lines if it is wider than `width`; more is cut. Returns the number of lines. */
int fgl_label_wrap(const char *text, double width, char line[2][200]);

typedef struct fgl_box {
    double x0, y0, x1, y1;
} fgl_box;

/** Free space for labels: inside `edge`, on no other label, and if possible on no line. */
typedef struct fgl_label_space {
    fgl_box edge;
    fgl_box *label, *line; /* occupied boxes; free() */
    size_t labels, labels_cap, lines, lines_cap;
} fgl_label_space;

void fgl_label_space_add_label(fgl_label_space *room, fgl_box box);
void fgl_label_space_add_line(fgl_label_space *room, fgl_box box);
void fgl_label_space_free(fgl_label_space *room);

/** Find a free box for a label near a point and occupy it; false if there is none. */
bool fgl_label_space_place(fgl_label_space *room, double x, double y, double width, fgl_box *box);

/** The label of a series at a point: its name, its number if the name is too long or not highlighted, or nothing. */
typedef struct fgl_tag {
    const fgl_series *series;
    double x, y;
    fgl_box box;
    bool placed, named;
} fgl_tag;

/** Place the tags of a chart, those of highlighted series first. Returns whether all of them are names. */
bool fgl_tags_place(fgl_label_space *room, fgl_tag *tag, size_t count);

void fgl_tag_draw(fgl_text *to, const fgl_tag *tag);

/** Options of a legend. */
typedef struct fgl_legend_options {
    bool marks; /* besides lines */
    bool tuned; /* of fine-tuning, whose groups have other names */
} fgl_legend_options;

/** Names and numbers of series by group, below a chart; `to` NULL: only measure. Returns its lower edge. */
double fgl_legend(fgl_text *to, const fgl_tag *tag, size_t count, fgl_legend_options of, double y);

/* ---- series ----------------------------------------------------------------------------------------- */

/** Begin and end the element of a series, which sets the color of lines (class l) and marks (class p) in it. */
void fgl_series_begin(fgl_text *to, const fgl_series *series, bool standalone);
void fgl_series_end(fgl_text *to);

/** Draw the mark of a series. `tip` is its tooltip, escaped here; NULL: none. */
void fgl_chart_mark(fgl_text *to, fgl_group group, double x, double y, const char *tip);

/** Dashes of a series' line; "" for none. */
const char *fgl_series_dashes(const fgl_series *s);

/** Begin and end a chart. Alone: a whole file with its title and fixed light colors; otherwise an element of a page. */
void fgl_chart_begin(fgl_text *to, const char *title, double height, bool standalone);
void fgl_chart_end(fgl_text *to);

/** The style sheet of a page: colors as CSS variables, for light and dark, the rules of the classes, and rules to
 * highlight the first `most` series of a panel. */
void fgl_chart_page_style(fgl_text *to, size_t most);

#endif
