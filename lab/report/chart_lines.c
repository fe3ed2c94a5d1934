/*
 * chart_lines.c - line charts: losses, evaluations, scaling, sparsity.
 *
 * Highlighted lines have their names at the end, the others their numbers. Diverging losses would flatten all others,
 * so the upper edge is at most a little above the beginning of the lines, and lines are clipped there.
 */
#include "lab/report/panel_charts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HIGH = 240, HIGH_CROWDED = 300, CROWD = 14, MARGIN = 14, MAX_BOXES = 200 };

fgl_axis fgl_metric_axis(const char *metric) {
    fgl_axis axis = {FGL_AXIS_EMPTY};
    if (!fgl_metric_up(metric)) {
        axis.title = "perplexity (lower is better)";
        axis.log = true;
    } else if (metric[0] == 'a') {
        axis.title = "accuracy";
        axis.unit = FGL_UNIT_SHARE;
    } else {
        axis.title = "correlation";
    }
    return axis;
}

static bool shown(const fgl_plot *plot, const fgl_line *line, size_t i) {
    return fgl_axis_shows(&plot->x, line->x[i]) && fgl_axis_shows(&plot->y, line->y[i]);
}

static void put_tip(const fgl_plot *plot, const fgl_line *line, size_t i, char *tip, size_t cap) {
    char x[48], y[48], sd[64] = "";
    if (line->sd != NULL && line->sd[i] > 0) {
        char text[48];
        snprintf(sd, sizeof sd, " \xc2\xb1 %s", fgl_axis_text(&plot->y, line->sd[i], text, sizeof text));
    }
    snprintf(tip, cap, "%s: %s%s at %s", line->series->name, fgl_axis_text(&plot->y, line->y[i], y, sizeof y), sd,
             fgl_axis_text(&plot->x, line->x[i], x, sizeof x));
}

/* ---- one line ------------------------------------------------------------------------------------------ */

typedef struct pixel {
    double x, y;
} pixel;

static pixel pixel_of(const fgl_plot *plot, const fgl_line *line, size_t i) {
    return (pixel){fgl_plot_x(plot, line->x[i]), fgl_plot_y(plot, line->y[i])};
}

/* The intersection of the segment from a to b with the upper edge. */
static pixel at_edge(pixel a, pixel b, double edge) {
    return (pixel){a.x + (b.x - a.x) * (edge - a.y) / (b.y - a.y), edge};
}

/* The path of a line, clipped at the upper edge. */
static void put_path(const fgl_plot *plot, const fgl_line *line) {
    double edge = plot->top - 4;
    bool pen = false;
    for (size_t i = 0; i < line->count; i++) {
        if (!shown(plot, line, i)) {
            pen = false;
            continue;
        }
        pixel p = pixel_of(plot, line, i), last = p;
        bool joined = i > 0 && shown(plot, line, i - 1);
        if (joined)
            last = pixel_of(plot, line, i - 1);
        if (p.y < edge && last.y >= edge && joined) {
            pixel q = at_edge(last, p, edge);
            fgl_put(plot->to, "%c%.1f %.1f", pen ? 'L' : 'M', q.x, q.y);
        }
        if (p.y >= edge && last.y < edge) {
            pixel q = at_edge(last, p, edge);
            fgl_put(plot->to, "M%.1f %.1f", q.x, q.y);
            pen = true;
        }
        if (p.y >= edge)
            fgl_put(plot->to, "%c%.1f %.1f", pen ? 'L' : 'M', p.x, p.y);
        pen = p.y >= edge;
    }
}

static void draw_marks(const fgl_plot *plot, const fgl_line *line) {
    char tip[400];
    for (size_t i = 0; i < line->count && line->marks; i++) {
        if (!shown(plot, line, i))
            continue;
        pixel p = pixel_of(plot, line, i);
        if (line->sd != NULL && line->sd[i] > 0 && fgl_axis_shows(&plot->y, line->y[i] - line->sd[i]))
            fgl_put(plot->to, "<path class=\"l\" d=\"M%.1f %.1fV%.1f\"/>", p.x,
                    fgl_plot_y(plot, line->y[i] - line->sd[i]), fgl_plot_y(plot, line->y[i] + line->sd[i]));
        put_tip(plot, line, i, tip, sizeof tip);
        fgl_chart_mark(plot->to, line->series->group, p.x, p.y, tip);
    }
}

static void draw_line(const fgl_plot *plot, const fgl_line *line, const fgl_tag *tag, bool standalone) {
    const char *dashes = fgl_series_dashes(line->series);
    fgl_series_begin(plot->to, line->series, standalone);
    fgl_put_raw(plot->to, "<path class=\"l\"");
    if (dashes[0] != '\0')
        fgl_put(plot->to, " stroke-dasharray=\"%s\"", dashes);
    fgl_put_raw(plot->to, " d=\"");
    put_path(plot, line);
    fgl_put_raw(plot->to, "\"/>");
    if (!standalone) { /* a wider transparent line for the pointer */
        fgl_put_raw(plot->to, "<path class=\"h\" d=\"");
        put_path(plot, line);
        fgl_put_raw(plot->to, "\"/>");
        fgl_plot_hover(plot, line->series);
    }
    draw_marks(plot, line);
    fgl_tag_draw(plot->to, tag);
    fgl_series_end(plot->to);
}

/* ---- where names may be ---------------------------------------------------------------------------------- */

/* Occupy boxes along a line; at most MAX_BOXES of them. */
static void occupy_line(const fgl_plot *plot, const fgl_line *line, fgl_label_space *room) {
    size_t most = room->lines + MAX_BOXES;
    for (size_t i = 0; i < line->count && room->lines < most; i++) {
        if (!shown(plot, line, i))
            continue;
        pixel p = pixel_of(plot, line, i), last = i > 0 && shown(plot, line, i - 1) ? pixel_of(plot, line, i - 1) : p;
        int parts = 1 + (int)(fmin(fabs(p.x - last.x) + fabs(p.y - last.y), 400) / 10);
        for (int k = 1; k <= parts; k++) {
            double x = last.x + (p.x - last.x) * k / parts, y = last.y + (p.y - last.y) * k / parts;
            fgl_label_space_add_line(room, (fgl_box){x - 2, y - 2, x + 2, y + 2});
        }
    }
}

/* A tag where each line ends. */
static void tag_line_ends(const fgl_plot *plot, const fgl_line *line, size_t count, fgl_tag *tag) {
    for (size_t k = 0; k < count; k++) {
        tag[k] = (fgl_tag){.series = line[k].series, .x = plot->right, .y = plot->bottom};
        for (size_t i = 0; i < line[k].count; i++)
            if (shown(plot, &line[k], i)) {
                tag[k].x = fgl_plot_x(plot, line[k].x[i]);
                tag[k].y = fmax(fgl_plot_y(plot, line[k].y[i]), plot->top);
            }
    }
}

/* The ranges of the axes; the upper edge is limited if a line diverges. */
static void find_ranges(fgl_axis *x, fgl_axis *y, const fgl_line *line, size_t count, double *widest) {
    double start = -1e300;
    for (size_t k = 0; k < count; k++) {
        double width = fgl_label_width(line[k].series->name);
        bool first = true;
        *widest = fmax(*widest, line[k].series->lit && width <= FGL_MAX_NAME ? width : 16);
        for (size_t i = 0; i < line[k].count; i++) {
            if (!fgl_axis_shows(x, line[k].x[i]) || !fgl_axis_shows(y, line[k].y[i]))
                continue;
            fgl_axis_include(x, line[k].x[i]);
            fgl_axis_include(y, line[k].y[i]);
            start = first ? fmax(start, line[k].y[i]) : start;
            first = false;
        }
    }
    if (!line[0].marks && !y->log && start > 0 && y->high > 1.3 * start && y->unit == FGL_UNIT_PLAIN)
        y->high = 1.3 * start;
}

static void draw_all(const fgl_plot *plot, const char *title, const fgl_line *line, const fgl_tag *tag, size_t count,
                     bool named, bool standalone) {
    double below = plot->bottom + 44;
    bool legend = standalone && !named;
    fgl_legend_options of = {false, line[0].tuned};
    for (size_t k = 0; k < count; k++)
        of.marks |= line[k].marks;
    fgl_chart_begin(plot->to, title, legend ? fgl_legend(NULL, tag, count, of, below) + 8 : below, standalone);
    fgl_plot_frame(plot);
    for (int lit = 0; lit < 2; lit++)
        for (size_t k = count; k-- > 0;) /* highlighted ones on top, dense topmost */
            if (line[k].series->lit == (lit == 1))
                draw_line(plot, &line[k], &tag[k], standalone);
    if (legend)
        fgl_legend(plot->to, tag, count, of, below);
    fgl_chart_end(plot->to);
}

bool fgl_draw_lines(fgl_text *to, const char *title, fgl_axis x, fgl_axis y, const fgl_line *line, size_t count,
                    bool standalone) {
    double widest = 0;
    if (count == 0)
        return false;
    find_ranges(&x, &y, line, count, &widest);
    fgl_tag *tag = x.low > x.high ? NULL : calloc(count, sizeof *tag);
    if (tag == NULL)
        return false;
    fgl_plot plot = {to, x, y, 44, FGL_CHART_WIDTH - MARGIN - widest, 26, 26 + (count > CROWD ? HIGH_CROWDED : HIGH)};
    fgl_plot_finish(&plot);
    fgl_label_space room = {.edge = {plot.left + 2, plot.top - 6, FGL_CHART_WIDTH - 2, plot.bottom - 1}};
    for (size_t k = 0; k < count; k++)
        occupy_line(&plot, &line[k], &room);
    tag_line_ends(&plot, line, count, tag);
    bool named = fgl_tags_place(&room, tag, count);
    draw_all(&plot, title, line, tag, count, named, standalone);
    fgl_label_space_free(&room);
    free(tag);
    return true;
}
