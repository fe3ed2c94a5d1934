/*
 * Lines: losses, evaluations, scaling, sparsity. Names stand at the ends of the lines, moved apart, each with a sample
 * of its line, and joined to it where it ends near the edge. Losses that explode would flatten all others, so the upper
 * edge is at most a little above where the lines begin, and what goes beyond is cut off by an inner svg element.
 */
#include "charts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LABEL_GAP 14.0

enum { NEAR = 45, SWATCH = 16 };

frugi_axis frugi_metric_axis(const char *metric) {
    frugi_axis axis = {FRUGI_AXIS_EMPTY};
    if (!frugi_metric_up(metric)) {
        axis.title = "perplexity (lower is better)";
        axis.log = true;
    } else if (metric[0] == 'a') {
        axis.title = "accuracy";
        axis.unit = FRUGI_UNIT_SHARE;
    } else {
        axis.title = "correlation";
    }
    return axis;
}

static bool shown(const frugi_plot *plot, const frugi_line *line, size_t i) {
    return frugi_axis_shows(&plot->x, line->x[i]) && frugi_axis_shows(&plot->y, line->y[i]);
}

static void put_tip(const frugi_plot *plot, const frugi_line *line, size_t i, char *tip, size_t cap) {
    char x[48], y[48], sd[64] = "";
    if (line->sd != NULL && line->sd[i] > 0) {
        char text[48];
        snprintf(sd, sizeof sd, " \xc2\xb1 %s", frugi_axis_text(&plot->y, line->sd[i], text, sizeof text));
    }
    snprintf(tip, cap, "%.*s: %s%s at %s", (int)line->name_len, line->name,
             frugi_axis_text(&plot->y, line->y[i], y, sizeof y), sd,
             frugi_axis_text(&plot->x, line->x[i], x, sizeof x));
}

/* Drawn relative to the inner element, whose corner is the plot's. */
static void draw_line(const frugi_plot *plot, const frugi_line *line) {
    bool pen = false;
    char tip[300];
    frugi_put(plot->to, "<path class=\"s%d\"", frugi_series_colour(line->series));
    if (frugi_series_dashes(line->series)[0] != '\0')
        frugi_put(plot->to, " stroke-dasharray=\"%s\"", frugi_series_dashes(line->series));
    frugi_put_raw(plot->to, " d=\"");
    for (size_t i = 0; i < line->count; i++) {
        if (!shown(plot, line, i)) {
            pen = false;
            continue;
        }
        frugi_put(plot->to, "%c%.1f %.1f", pen ? 'L' : 'M', frugi_plot_x(plot, line->x[i]),
                  frugi_plot_y(plot, line->y[i]));
        pen = true;
    }
    frugi_put_raw(plot->to, "\"><title>");
    snprintf(tip, sizeof tip, "%.*s", (int)line->name_len, line->name);
    frugi_put_escaped(plot->to, tip);
    frugi_put_raw(plot->to, "</title></path>\n");
    for (size_t i = 0; i < line->count && line->marks; i++) {
        if (!shown(plot, line, i))
            continue;
        double x = frugi_plot_x(plot, line->x[i]);
        if (line->sd != NULL && line->sd[i] > 0 && frugi_axis_shows(&plot->y, line->y[i] - line->sd[i]))
            frugi_put(plot->to, "<path class=\"s%d\" d=\"M%.1f %.1fV%.1f\"/>", frugi_series_colour(line->series), x,
                      frugi_plot_y(plot, line->y[i] - line->sd[i]), frugi_plot_y(plot, line->y[i] + line->sd[i]));
        put_tip(plot, line, i, tip, sizeof tip);
        frugi_chart_mark(plot->to, line->series, x, frugi_plot_y(plot, line->y[i]), tip);
    }
}

static bool last_point(const frugi_plot *plot, const frugi_line *line, size_t *last) {
    for (size_t i = line->count; i-- > 0;)
        if (shown(plot, line, i)) {
            *last = i;
            return true;
        }
    return false;
}

static void draw_names(const frugi_plot *plot, const frugi_line *line, size_t count) {
    double *y = calloc(2 * count + 1, sizeof *y), *want = y + count;
    double *end = calloc(count + 1, sizeof *end);
    size_t *which = calloc(count + 1, sizeof *which), names = 0, last;
    if (y != NULL && end != NULL && which != NULL) {
        for (size_t k = 0; k < count; k++)
            if (last_point(plot, &line[k], &last)) {
                which[names] = k;
                end[names] = frugi_plot_x(plot, line[k].x[last]);
                y[names] = fmin(fmax(frugi_plot_y(plot, line[k].y[last]), plot->top), plot->bottom);
                want[names] = y[names];
                names++;
            }
        frugi_labels_spread(y, names, LABEL_GAP, plot->top, plot->bottom);
    }
    for (size_t k = 0; k < names; k++) {
        char name[200], cut[200];
        const frugi_line *l = &line[which[k]];
        int colour = frugi_series_colour(l->series);
        snprintf(name, sizeof name, "%.*s", (int)l->name_len, l->name);
        if (end[k] > plot->right - NEAR)
            frugi_put(plot->to, "<path class=\"s%d\" style=\"stroke-width:.7;opacity:.6\" d=\"M%.1f %.1fL%.1f %.1f\"/>",
                      colour, end[k] + 5, want[k], plot->right + 8, y[k]);
        frugi_put(plot->to, "<path class=\"s%d\" stroke-dasharray=\"%s\" d=\"M%.1f %.1fh%d\"/>", colour,
                  frugi_series_dashes(l->series), plot->right + 8, y[k], SWATCH);
        frugi_put(plot->to, "<text class=\"f%d\" x=\"%.1f\" y=\"%.1f\">", colour, plot->right + 12 + SWATCH, y[k] + 4);
        frugi_put_escaped(plot->to,
                          frugi_label_cut(name, FRUGI_CHART_WIDTH - plot->right - 12 - SWATCH, cut, sizeof cut));
        frugi_put_raw(plot->to, "</text>\n");
    }
    free(y);
    free(end);
    free(which);
}

/* The upper edge: all of it, unless something explodes. */
static void see_lines(frugi_axis *x, frugi_axis *y, const frugi_line *line, size_t count, double *widest) {
    double start = -1e300;
    for (size_t k = 0; k < count; k++) {
        char name[200];
        bool first = true;
        snprintf(name, sizeof name, "%.*s", (int)line[k].name_len, line[k].name);
        *widest = fmax(*widest, frugi_label_width(name));
        for (size_t i = 0; i < line[k].count; i++) {
            if (!frugi_axis_shows(x, line[k].x[i]) || !frugi_axis_shows(y, line[k].y[i]))
                continue;
            frugi_axis_see(x, line[k].x[i]);
            frugi_axis_see(y, line[k].y[i]);
            start = first ? fmax(start, line[k].y[i]) : start;
            first = false;
        }
    }
    if (!line[0].marks && !y->log && start > 0 && y->high > 1.3 * start && y->unit == FRUGI_UNIT_PLAIN)
        y->high = 1.3 * start;
}

bool frugi_draw_lines(frugi_text *to, const char *title, frugi_axis x, frugi_axis y, const frugi_line *line,
                      size_t count, bool alone) {
    double widest = 0;
    if (count == 0)
        return false;
    see_lines(&x, &y, line, count, &widest);
    if (x.low > x.high)
        return false;
    frugi_axis_finish(&x, 6);
    frugi_axis_finish(&y, 6);
    double high = fmax(230, LABEL_GAP * (double)count);
    frugi_plot plot = {to, x, y, 52, FRUGI_CHART_WIDTH - 14 - SWATCH - fmin(widest, 124), 26, 26 + high};
    frugi_chart_begin(to, title, plot.bottom + 44, alone);
    frugi_plot_frame(&plot);
    double left = plot.left - 6, top = plot.top - 6, wide = plot.right - left + 8, tall = plot.bottom - top + 2;
    frugi_put(to, "<svg x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" viewBox=\"%.1f %.1f %.1f %.1f\">\n", left,
              top, wide, tall, left, top, wide, tall);
    for (size_t k = count; k-- > 0;) /* dense on top */
        draw_line(&plot, &line[k]);
    frugi_put_raw(to, "</svg>\n");
    draw_names(&plot, line, count);
    frugi_chart_end(to);
    return true;
}
