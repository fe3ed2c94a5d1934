/*
 * Final quality over bytes: a point with its error bar and its name for each method. A name takes the first of some
 * places around its point where it covers no other name, point or bar; where all are taken, it goes further away and
 * gets a line.
 */
#include "charts.h"

#include "tables.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NAME_HIGH = 13, CROWD = 14 };

typedef struct box {
    double x0, y0, x1, y1;
} box;

typedef struct scene {
    frugi_plot plot;
    const frugi_panel *panel;
    box *taken;
    size_t count;
} scene;

static bool overlap(const box *a, const box *b) {
    return a->x0 < b->x1 && b->x0 < a->x1 && a->y0 < b->y1 && b->y0 < a->y1;
}

/* How much of a place is taken; outside of the chart it is as good as full. */
static double cost(const scene *s, const box *b) {
    double sum = 0;
    if (b->x0 < s->plot.left || b->x1 > FRUGI_CHART_WIDTH - 2 || b->y0 < s->plot.top - 8 || b->y1 > s->plot.bottom)
        sum += 1e6;
    for (size_t i = 0; i < s->count; i++)
        if (overlap(b, &s->taken[i]))
            sum += (fmin(b->x1, s->taken[i].x1) - fmax(b->x0, s->taken[i].x0)) *
                   (fmin(b->y1, s->taken[i].y1) - fmax(b->y0, s->taken[i].y0));
    return sum;
}

/* The nearest free place anywhere in the chart; the given one where there is none. */
static box search_all(const scene *s, double x, double y, double width, box best) {
    double nearest = 1e300;
    for (double middle = s->plot.top; middle < s->plot.bottom - NAME_HIGH / 2.0; middle += 7)
        for (double left = s->plot.left + 2; left + width < FRUGI_CHART_WIDTH - 2; left += 10) {
            box b = {left, middle - NAME_HIGH / 2.0, left + width, middle + NAME_HIGH / 2.0};
            double dx = fmax(fmax(left - x, x - left - width), 0), dy = middle - y, far = dx * dx + dy * dy;
            if (far < nearest && !(cost(s, &b) > 0)) {
                nearest = far;
                best = b;
            }
        }
    return best;
}

static box place_name(scene *s, double x, double y, double width) {
    box best = {0, 0, 0, 0};
    double least = 1e300;
    for (int ring = 0; ring < 3 && least > 0; ring++)
        for (int k = 0; k < 6 && least > 0; k++) {
            double far = 8 + 12.0 * ring, dy = ring * 13.0;
            double left = k < 2 ? x + 8 : k < 4 ? x - 8 - width : x - width / 2;
            double middle = k == 4 ? y - far - 3 : k == 5 ? y + far + 3 : k % 2 == 0 ? y - dy : y + dy;
            box b = {left, middle - NAME_HIGH / 2.0, left + width, middle + NAME_HIGH / 2.0};
            double now = cost(s, &b);
            if (now < least) {
                least = now;
                best = b;
            }
        }
    if (least > 0)
        best = search_all(s, x, y, width, best);
    s->taken[s->count++] = best;
    return best;
}

static bool drawable(const scene *s, const frugi_cell *cell) {
    return frugi_axis_shows(&s->plot.x, cell->bytes_total) && frugi_axis_shows(&s->plot.y, cell->mean);
}

static void draw_point(scene *s, size_t i) {
    const frugi_cell *cell = &s->panel->cell[i];
    char tip[300], mean[48], sd[48], bytes[48];
    double x = frugi_plot_x(&s->plot, cell->bytes_total), y = frugi_plot_y(&s->plot, cell->mean);
    frugi_metric_text(s->panel->metric, cell->sd, sd, sizeof sd);
    if (cell->sd > 0 && frugi_axis_shows(&s->plot.y, cell->mean - cell->sd))
        frugi_put(s->plot.to, "<path class=\"s%d\" d=\"M%.1f %.1fV%.1fm-3 0h6M%.1f %.1fh6\"/>", frugi_series_colour(i),
                  x, frugi_plot_y(&s->plot, cell->mean - cell->sd), frugi_plot_y(&s->plot, cell->mean + cell->sd),
                  x - 3, frugi_plot_y(&s->plot, cell->mean - cell->sd));
    snprintf(tip, sizeof tip, "%.180s: %s%s%s, %s sent by a worker", cell->label,
             frugi_metric_text(s->panel->metric, cell->mean, mean, sizeof mean), cell->sd >= 0 ? " \xc2\xb1 " : "",
             cell->sd >= 0 ? sd : "", frugi_axis_text(&s->plot.x, cell->bytes_total, bytes, sizeof bytes));
    frugi_chart_mark(s->plot.to, i, x, y, tip);
}

static void draw_name(scene *s, size_t i) {
    const frugi_cell *cell = &s->panel->cell[i];
    char name[200];
    double x = frugi_plot_x(&s->plot, cell->bytes_total), y = frugi_plot_y(&s->plot, cell->mean);
    frugi_label_cut(cell->label, s->panel->count > CROWD ? 125 : 150, name, sizeof name);
    box b = place_name(s, x, y, frugi_label_width(name));
    double middle = (b.y0 + b.y1) / 2, edge = b.x0 > x ? b.x0 - 1 : b.x1 < x ? b.x1 + 1 : x;
    if (fabs(middle - y) > 20 || b.x0 > x + 20 || b.x1 < x - 20)
        frugi_put(s->plot.to, "<path class=\"s%d\" style=\"stroke-width:.7;opacity:.6\" d=\"M%.1f %.1fL%.1f %.1f\"/>",
                  frugi_series_colour(i), x, y, edge, middle);
    frugi_put(s->plot.to, "<text class=\"f%d\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", frugi_series_colour(i),
              b.x0 > x   ? b.x0
              : b.x1 < x ? b.x1
                         : (b.x0 + b.x1) / 2,
              middle + 4,
              b.x0 > x   ? "start"
              : b.x1 < x ? "end"
                         : "middle");
    frugi_put_escaped(s->plot.to, name);
    frugi_put_raw(s->plot.to, "</text>\n");
}

/* Points and error bars are taken before any name is placed. */
static void take_points(scene *s) {
    for (size_t i = 0; i < s->panel->count; i++) {
        const frugi_cell *cell = &s->panel->cell[i];
        if (!drawable(s, cell))
            continue;
        double x = frugi_plot_x(&s->plot, cell->bytes_total), y = frugi_plot_y(&s->plot, cell->mean);
        double up = y, down = y;
        if (cell->sd > 0 && frugi_axis_shows(&s->plot.y, cell->mean - cell->sd)) {
            up = frugi_plot_y(&s->plot, cell->mean + cell->sd);
            down = frugi_plot_y(&s->plot, cell->mean - cell->sd);
        }
        s->taken[s->count++] = (box){x - 6, y - 6, x + 6, y + 6};
        s->taken[s->count++] = (box){x - 3, up, x + 3, down};
    }
}

bool frugi_draw_points(frugi_text *to, const char *title, const frugi_panel *panel, bool alone) {
    frugi_axis x = {
        .title = "bytes sent by one worker, whole run", .log = true, .unit = FRUGI_UNIT_BYTES, FRUGI_AXIS_EMPTY};
    scene s = {.plot = {to, x, frugi_metric_axis(panel->metric), 52, FRUGI_CHART_WIDTH - 14, 26,
                        26 + 240 + (panel->count > CROWD ? 80 : 0)},
               .panel = panel};
    for (size_t i = 0; i < panel->count; i++) {
        const frugi_cell *cell = &panel->cell[i];
        if (!drawable(&s, cell))
            continue;
        frugi_axis_see(&s.plot.x, cell->bytes_total);
        for (int side = -1; side <= 1; side++)
            frugi_axis_see(&s.plot.y, cell->mean + (cell->sd > 0 ? side * cell->sd : 0));
    }
    if (s.plot.x.low > s.plot.x.high || (s.taken = calloc(3 * panel->count, sizeof *s.taken)) == NULL)
        return false;
    frugi_axis_finish(&s.plot.x, 6);
    frugi_axis_finish(&s.plot.y, 6);
    frugi_chart_begin(to, title, s.plot.bottom + 44, alone);
    frugi_plot_frame(&s.plot);
    take_points(&s);
    for (size_t i = panel->count; i-- > 0;)
        if (drawable(&s, &panel->cell[i]))
            draw_point(&s, i);
    for (size_t i = 0; i < panel->count; i++)
        if (drawable(&s, &panel->cell[i]))
            draw_name(&s, i);
    frugi_chart_end(to);
    free(s.taken);
    return true;
}
