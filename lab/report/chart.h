/*
 * chart.h - what charts are made of: axes, a frame, marks, labels that keep off each other. A chart is SVG whose
 * colors are classes only (series, ramp), so that the page around it or a stand-alone file decides on light and dark.
 */
#ifndef FRUGI_CHART_H
#define FRUGI_CHART_H

#include "lab/report/chart_series.h"
#include "lab/report/text_buffer.h"

#include <stdbool.h>

enum { FRUGI_CHART_WIDTH = 460, FRUGI_COLORS = 9, FRUGI_RAMP = 9, FRUGI_TICKS = 12 };

/** Names wider than so many pixels stand in the legend alone. */
enum { FRUGI_NAME_MOST = 170 };

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

/** Choose the ticks of both axes, and move the left edge until the texts of the y-axis fit. */
void frugi_plot_finish(frugi_plot *plot);

/** Draw grid, ticks and titles. */
void frugi_plot_frame(const frugi_plot *plot);

/** The name above the plot while a series of a page is pointed at. */
void frugi_plot_hover(const frugi_plot *plot, const frugi_series *series);

/* ---- labels ---------------------------------------------------------------------------------------- */

/** Width of a text in pixels, in the widest of the common faces. */
double frugi_label_width(const char *text);

/** A label cut to a width in pixels, with dots where something is missing. */
const char *frugi_label_cut(const char *text, double width, char *dst, size_t cap);

/** A label in two lines where it is wider than `width`; what does not fit in two is cut. Returns how many lines. */
int frugi_label_wrap(const char *text, double width, char line[2][200]);

typedef struct frugi_box {
    double x0, y0, x1, y1;
} frugi_box;

/** Where labels may be: inside of `edge`, on no other label, and where there is a choice on no line. */
typedef struct frugi_room {
    frugi_box edge;
    frugi_box *label, *line; /* what is taken; free() */
    size_t labels, labels_cap, lines, lines_cap;
} frugi_room;

void frugi_room_take_label(frugi_room *room, frugi_box box);
void frugi_room_take_line(frugi_room *room, frugi_box box);
void frugi_room_free(frugi_room *room);

/** Find a place for a label near a point and take it; false where there is none that is free. */
bool frugi_room_place(frugi_room *room, double x, double y, double width, frugi_box *box);

/** The label of a series at a point: its name, its number where a name is too long or not highlighted, or nothing. */
typedef struct frugi_tag {
    const frugi_series *series;
    double x, y;
    frugi_box box;
    bool placed, named;
} frugi_tag;

/** Place the tags of a chart, those of highlighted series first. Returns whether all of them are names. */
bool frugi_tags_place(frugi_room *room, frugi_tag *tag, size_t count);

void frugi_tag_draw(frugi_text *to, const frugi_tag *tag);

/** What a legend shows. */
typedef struct frugi_legend_of {
    bool marks; /* besides lines */
    bool tuned; /* of fine-tuning, whose groups have other names */
} frugi_legend_of;

/** Names and numbers of series by group, below a chart; `to` NULL measures. Returns where it ends. */
double frugi_legend(frugi_text *to, const frugi_tag *tag, size_t count, frugi_legend_of of, double y);

/* ---- series ----------------------------------------------------------------------------------------- */

/** Begin and end the element of a series, in whose color lines (class l) and marks (class p) inside of it are. */
void frugi_series_begin(frugi_text *to, const frugi_series *series, bool alone);
void frugi_series_end(frugi_text *to);

/** Draw the mark of a series. `tip` is shown by browsers when it is pointed at, and is escaped here; NULL: none. */
void frugi_chart_mark(frugi_text *to, frugi_group group, double x, double y, const char *tip);

/** Dashes of a series' line; "" for none. */
const char *frugi_series_dashes(const frugi_series *s);

/** Begin and end a chart. Alone: a whole file with its title and fixed light colors; otherwise an element of a page. */
void frugi_chart_begin(frugi_text *to, const char *title, double height, bool alone);
void frugi_chart_end(frugi_text *to);

/** The colors as CSS variables for a page, with those for dark, and the rules of the classes over them; and rules by
 * which the first `most` series of a panel can be picked. */
void frugi_chart_page_style(frugi_text *to, size_t most);

#endif
