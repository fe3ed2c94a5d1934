/*
 * chart.h - what charts are made of: axes, a frame, marks, labels that keep off each other. A chart is SVG whose
 * colors are classes only (series, ramp), so that the page around it or a stand-alone file decides on light and dark.
 */
#ifndef FGL_CHART_H
#define FGL_CHART_H

#include "lab/report/chart_series.h"
#include "lab/report/text_buffer.h"

#include <stdbool.h>

enum { FGL_CHART_WIDTH = 460, FGL_COLORS = 9, FGL_RAMP = 9, FGL_TICKS = 12 };

/** Names wider than so many pixels stand in the legend alone. */
enum { FGL_NAME_MOST = 170 };

typedef enum {
    FGL_UNIT_PLAIN,
    FGL_UNIT_BYTES,
    FGL_UNIT_SHARE, /* 0.93 is 93 % */
    FGL_UNIT_HELD,  /* 1 / density: 100 is 99 % held back */
} fgl_unit;

typedef struct fgl_axis {
    const char *title;
    bool log;
    fgl_unit unit;
    double low, high; /* begin as FGL_AXIS_EMPTY has them */
    double tick[FGL_TICKS];
    int ticks; /* those that are there when the axis is finished stay */
} fgl_axis;

#define FGL_AXIS_EMPTY .low = 1e300, .high = -1e300

/** Make room for a number; one that the axis cannot show (NaN, on a logarithmic one 0 and less) is left out. */
void fgl_axis_see(fgl_axis *axis, double number);

/** Leave a margin and choose ticks, `most` at most. */
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

/** Choose the ticks of both axes, and move the left edge until the texts of the y-axis fit. */
void fgl_plot_finish(fgl_plot *plot);

/** Draw grid, ticks and titles. */
void fgl_plot_frame(const fgl_plot *plot);

/** The name above the plot while a series of a page is pointed at. */
void fgl_plot_hover(const fgl_plot *plot, const fgl_series *series);

/* ---- labels ---------------------------------------------------------------------------------------- */

/** Width of a text in pixels, in the widest of the common faces. */
double fgl_label_width(const char *text);

/** A label cut to a width in pixels, with dots where something is missing. */
const char *fgl_label_cut(const char *text, double width, char *dst, size_t cap);

/** A label in two lines where it is wider than `width`; what does not fit in two is cut. Returns how many lines. */
int fgl_label_wrap(const char *text, double width, char line[2][200]);

typedef struct fgl_box {
    double x0, y0, x1, y1;
} fgl_box;

/** Where labels may be: inside of `edge`, on no other label, and where there is a choice on no line. */
typedef struct fgl_room {
    fgl_box edge;
    fgl_box *label, *line; /* what is taken; free() */
    size_t labels, labels_cap, lines, lines_cap;
} fgl_room;

void fgl_room_take_label(fgl_room *room, fgl_box box);
void fgl_room_take_line(fgl_room *room, fgl_box box);
void fgl_room_free(fgl_room *room);

/** Find a place for a label near a point and take it; false where there is none that is free. */
bool fgl_room_place(fgl_room *room, double x, double y, double width, fgl_box *box);

/** The label of a series at a point: its name, its number where a name is too long or not highlighted, or nothing. */
typedef struct fgl_tag {
    const fgl_series *series;
    double x, y;
    fgl_box box;
    bool placed, named;
} fgl_tag;

/** Place the tags of a chart, those of highlighted series first. Returns whether all of them are names. */
bool fgl_tags_place(fgl_room *room, fgl_tag *tag, size_t count);

void fgl_tag_draw(fgl_text *to, const fgl_tag *tag);

/** What a legend shows. */
typedef struct fgl_legend_of {
    bool marks; /* besides lines */
    bool tuned; /* of fine-tuning, whose groups have other names */
} fgl_legend_of;

/** Names and numbers of series by group, below a chart; `to` NULL measures. Returns where it ends. */
double fgl_legend(fgl_text *to, const fgl_tag *tag, size_t count, fgl_legend_of of, double y);

/* ---- series ----------------------------------------------------------------------------------------- */

/** Begin and end the element of a series, in whose color lines (class l) and marks (class p) inside of it are. */
void fgl_series_begin(fgl_text *to, const fgl_series *series, bool alone);
void fgl_series_end(fgl_text *to);

/** Draw the mark of a series. `tip` is shown by browsers when it is pointed at, and is escaped here; NULL: none. */
void fgl_chart_mark(fgl_text *to, fgl_group group, double x, double y, const char *tip);

/** Dashes of a series' line; "" for none. */
const char *fgl_series_dashes(const fgl_series *s);

/** Begin and end a chart. Alone: a whole file with its title and fixed light colors; otherwise an element of a page. */
void fgl_chart_begin(fgl_text *to, const char *title, double height, bool alone);
void fgl_chart_end(fgl_text *to);

/** The colors as CSS variables for a page, with those for dark, and the rules of the classes over them; and rules by
 * which the first `most` series of a panel can be picked. */
void fgl_chart_page_style(fgl_text *to, size_t most);

#endif
