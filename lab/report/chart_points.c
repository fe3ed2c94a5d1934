/*
 * chart_points.c - final quality over bytes: a point with its error bar for each method. Highlighted methods are
 * labeled with their names, the others with their numbers.
 */
#include "lab/report/panel_charts.h"

#include "lab/report/run_tables.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HIGH = 240, HIGH_CROWDED = 300, CROWD = 14 };

static bool has_bar(const fgl_plot *plot, const fgl_cell *cell) {
    return cell->sd > 0 && fgl_axis_shows(&plot->y, cell->mean - cell->sd);
}

/* Upper end of an error bar; no accuracy is above 100 %. */
static double bar_top(const fgl_plot *plot, const fgl_cell *cell) {
    double top = cell->mean + (cell->sd > 0 ? cell->sd : 0);
    return plot->y.unit == FGL_UNIT_SHARE ? fmin(top, fmax(1, cell->mean)) : top;
}

static void draw_point(const fgl_plot *plot, const char *metric, const fgl_tag *tag, bool standalone) {
    const fgl_cell *cell = tag->series->first;
    char tip[400], mean[48], sd[48], bytes[48];
    fgl_series_begin(plot->to, tag->series, standalone);
    if (has_bar(plot, cell))
        fgl_put(plot->to, "<path class=\"l\" d=\"M%.1f %.1fV%.1fm-3 0h6M%.1f %.1fh6\"/>", tag->x,
                fgl_plot_y(plot, cell->mean - cell->sd), fgl_plot_y(plot, bar_top(plot, cell)), tag->x - 3,
                fgl_plot_y(plot, cell->mean - cell->sd));
    fgl_metric_text(metric, cell->sd, sd, sizeof sd);
    snprintf(tip, sizeof tip, "%s: %s%s%s, %s sent by a worker", tag->series->name,
             fgl_metric_text(metric, cell->mean, mean, sizeof mean), cell->sd >= 0 ? " \xc2\xb1 " : "",
             cell->sd >= 0 ? sd : "", fgl_axis_text(&plot->x, cell->bytes_total, bytes, sizeof bytes));
    fgl_chart_mark(plot->to, tag->series->group, tag->x, tag->y, tip);
    if (!standalone)
        fgl_plot_hover(plot, tag->series);
    fgl_tag_draw(plot->to, tag);
    fgl_series_end(plot->to);
}

/* Points and error bars are occupied before any label is placed. */
static void occupy_point(const fgl_plot *plot, const fgl_tag *tag, fgl_label_space *room) {
    const fgl_cell *cell = tag->series->first;
    fgl_label_space_add_line(room, (fgl_box){tag->x - 6, tag->y - 6, tag->x + 6, tag->y + 6});
    if (has_bar(plot, cell))
        fgl_label_space_add_line(room, (fgl_box){tag->x - 3, fgl_plot_y(plot, bar_top(plot, cell)), tag->x + 3,
                                                 fgl_plot_y(plot, cell->mean - cell->sd)});
}

static bool drawable(const fgl_plot *plot, const fgl_cell *cell) {
    return fgl_axis_shows(&plot->x, cell->bytes_total) && fgl_axis_shows(&plot->y, cell->mean);
}

/* Set the ranges of the axes and a tag for every point that can be drawn; returns their number. */
static size_t find_ranges(fgl_plot *plot, const fgl_series *series, size_t count, fgl_tag *tag) {
    size_t points = 0;
    for (size_t i = 0; i < count; i++) {
        const fgl_cell *cell = series[i].first;
        if (!drawable(plot, cell))
            continue;
        fgl_axis_include(&plot->x, cell->bytes_total);
        fgl_axis_include(&plot->y, cell->mean);
        fgl_axis_include(&plot->y, bar_top(plot, cell));
        fgl_axis_include(&plot->y, cell->mean - (cell->sd > 0 ? cell->sd : 0));
        tag[points++] = (fgl_tag){.series = &series[i]};
    }
    fgl_plot_finish(plot);
    for (size_t i = 0; i < points; i++) {
        tag[i].x = fgl_plot_x(plot, tag[i].series->first->bytes_total);
        tag[i].y = fgl_plot_y(plot, tag[i].series->first->mean);
    }
    return points;
}

static void draw_all(const fgl_plot *plot, const char *title, const char *metric, const fgl_tag *tag, size_t count,
                     bool named, bool standalone) {
    double below = plot->bottom + 44;
    bool legend = standalone && !named;
    fgl_legend_options of = {true, false};
    fgl_chart_begin(plot->to, title, legend ? fgl_legend(NULL, tag, count, of, below) + 8 : below, standalone);
    fgl_plot_frame(plot);
    for (int lit = 0; lit < 2; lit++)
        for (size_t i = count; i-- > 0;)
            if (tag[i].series->lit == (lit == 1))
                draw_point(plot, metric, &tag[i], standalone);
    if (legend)
        fgl_legend(plot->to, tag, count, of, below);
    fgl_chart_end(plot->to);
}

bool fgl_draw_points(fgl_text *to, const char *title, const char *metric, const fgl_series *series, size_t count,
                     bool standalone) {
    fgl_axis x = {.title = "bytes sent by one worker, whole run", .log = true, .unit = FGL_UNIT_BYTES, FGL_AXIS_EMPTY};
    fgl_plot plot = {
        to, x, fgl_metric_axis(metric), 44, FGL_CHART_WIDTH - 14, 26, 26 + (count > CROWD ? HIGH_CROWDED : HIGH)};
    fgl_tag *tag = calloc(count + 1, sizeof *tag);
    size_t points = tag == NULL ? 0 : find_ranges(&plot, series, count, tag);
    fgl_label_space room = {.edge = {plot.left + 2, plot.top - 6, FGL_CHART_WIDTH - 2, plot.bottom - 1}};
    for (size_t i = 0; i < points; i++)
        occupy_point(&plot, &tag[i], &room);
    bool named = fgl_tags_place(&room, tag, points);
    if (points > 0)
        draw_all(&plot, title, metric, tag, points, named, standalone);
    fgl_label_space_free(&room);
    free(tag);
    return points > 0;
}
