/*
 * chart_bars.c - bar charts of step times and memory.
 *
 * A step's time has two bars: the consecutive work of the training thread, and below it the exchange, which may run at
 * the same time; one sum would count hidden time. Memory is relative to dense.
 */
#include "lab/report/panel_charts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MIN_NAMES = 60, MAX_NAMES = 190, ROW = 34, ROW_MEMORY = 28, ENDS = 62 };

/* Names of the segments with their colors, in as many lines as needed; `to` NULL: only measure. Returns the lower
 * edge. */
static double draw_legend(fgl_text *to, const char *const *name, const int *color, size_t count) {
    double x = 4, y = 6;
    for (size_t i = 0; i < count; i++) {
        double wide = 16 + fgl_label_width(name[i]) + 12;
        if (x + wide > FGL_CHART_WIDTH) {
            x = 4;
            y += 17;
        }
        if (to != NULL)
            fgl_put(to, "<rect class=\"f%d\" x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" rx=\"2\"/>", color[i], x,
                    y);
        if (to != NULL)
            fgl_put(to, "<g class=\"ax\"><text x=\"%.1f\" y=\"%.1f\">%s</text></g>\n", x + 15, y + 10, name[i]);
        x += wide;
    }
    return y + 24;
}

/* Left edge of the bars: after the longest name, or the longest half of one in two lines. */
static double names_width(const fgl_panel *panel) {
    double width = MIN_NAMES;
    for (size_t i = 0; i < panel->count; i++)
        width = fmax(width, fgl_label_width(panel->cell[i].label));
    return fmin(width, MAX_NAMES) + 10;
}

/* A name in one or two lines, vertically centered at its bar. */
static void draw_row_name(fgl_text *to, const char *label, double right, double middle) {
    char line[2][200];
    int lines = fgl_label_wrap(label, right - 10, line);
    for (int i = 0; i < lines; i++) {
        fgl_put(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", right - 8,
                middle + 4 +
                    (lines == 1 ? 0
                     : i == 0   ? -6.5
                                : 6.5));
        fgl_put_escaped(to, line[i]);
        fgl_put_raw(to, "<title>");
        fgl_put_escaped(to, label);
        fgl_put_raw(to, "</title></text>");
    }
}

/** A bar of consecutive segments. */
typedef struct bar {
    fgl_text *to;
    const fgl_cell *cell;
    double x, y, high, scale; /* pixels per unit */
    const char *unit;
    int digits;
} bar;

static void draw_segment(bar *b, const char *name, int color, double amount) {
    double wide = amount * b->scale;
    char text[48], label[64];
    if (!(wide > 0.05))
        return;
    snprintf(label, sizeof label, "%s", fgl_number_text(amount, b->digits, text, sizeof text));
    fgl_put(b->to, "<rect class=\"f%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\"><title>", color, b->x,
            b->y, wide, b->high);
    fgl_put_escaped(b->to, b->cell->label);
    fgl_put(b->to, ": %s %s %s</title></rect>", name, label, b->unit);
    if (wide > fgl_label_width(label) + 4 && b->high > 11)
        fgl_put(b->to, "<text class=\"on\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>", b->x + wide / 2,
                b->y + b->high / 2 + 3.5, label);
    b->x += wide;
}

static double or_zero(double number) {
    return isnan(number) ? 0 : number;
}

static double sum_of(const double *numbers, size_t from, size_t to) {
    double sum = 0;
    for (size_t i = from; i < to; i++)
        sum += or_zero(numbers[i]);
    return sum;
}

enum { OWN_TIMES = 4 }; /* data, forward, backward, blocked */

static void draw_time_row(fgl_text *to, const fgl_cell *cell, double x, double y, double scale, const int *color) {
    char text[48];
    bar own = {to, cell, x, y, 14, scale, "ms", 3}, beside = {to, cell, x, y + 15, 7, scale, "ms", 3};
    draw_row_name(to, cell->label, x, y + 11);
    for (int k = 0; k < OWN_TIMES; k++)
        draw_segment(&own, fgl_time_names[k], color[k], cell->time_ms[k]);
    for (int k = OWN_TIMES; k < FGL_TIMES; k++)
        draw_segment(&beside, fgl_time_names[k], color[k], cell->time_ms[k]);
    double total = isnan(cell->step_ms) ? sum_of(cell->time_ms, 0, OWN_TIMES) : cell->step_ms;
    fgl_put(to, "<text x=\"%.1f\" y=\"%.1f\">%s ms</text>\n", fmax(own.x, beside.x) + 6, y + 14,
            fgl_number_text(total, total < 1 ? 2 : 3, text, sizeof text));
}

bool fgl_draw_times(fgl_text *to, const char *title, const fgl_panel *panel, bool standalone) {
    static const int color[FGL_TIMES] = {8, 1, 6, 2, 3, 5, 4, 7, 0};
    double most = 0, rows = 0;
    for (size_t i = 0; i < panel->count; i++) {
        const double *t = panel->cell[i].time_ms;
        double longest = fmax(sum_of(t, 0, OWN_TIMES), sum_of(t, OWN_TIMES, FGL_TIMES));
        most = fmax(most, longest);
        rows += longest > 0;
    }
    if (!(most > 0))
        return false;
    double x = names_width(panel), scale = (FGL_CHART_WIDTH - x - ENDS) / most;
    fgl_chart_begin(to, title, draw_legend(NULL, fgl_time_names, color, FGL_TIMES) + ROW * rows, standalone);
    double y = draw_legend(to, fgl_time_names, color, FGL_TIMES);
    for (size_t i = 0; i < panel->count; i++)
        if (sum_of(panel->cell[i].time_ms, 0, FGL_TIMES) > 0) {
            draw_time_row(to, &panel->cell[i], x, y, scale, color);
            y += ROW;
        }
    fgl_chart_end(to);
    return true;
}

static double whole_of(const fgl_cell *cell) {
    return or_zero(cell->weight_bytes) + or_zero(cell->gradient_bytes) + or_zero(cell->library_bytes);
}

bool fgl_draw_memory(fgl_text *to, const char *title, const fgl_panel *panel, bool standalone) {
    static const char *const names[] = {"weights", "gradients", "library (optimizer, residual, buffers)"};
    static const int color[] = {8, 1, 2};
    double most = 0, rows = 0;
    for (size_t i = 0; i < panel->count; i++) {
        const fgl_cell *cell = &panel->cell[i], *dense = fgl_dense_of(panel, cell);
        if (dense != NULL && whole_of(dense) > 0 && whole_of(cell) > 0) {
            most = fmax(most, whole_of(cell) / whole_of(dense));
            rows++;
        }
    }
    if (!(most > 0))
        return false;
    double x = names_width(panel), scale = (FGL_CHART_WIDTH - x - ENDS) / (100 * fmax(most, 1));
    fgl_chart_begin(to, title, draw_legend(NULL, names, color, 3) + ROW_MEMORY * rows, standalone);
    double y = draw_legend(to, names, color, 3);
    fgl_put(to, "<path class=\"ln\" stroke-dasharray=\"3 3\" d=\"M%.1f %.1fV%.1f\"/>\n", x + 100 * scale, y - 3,
            y + ROW_MEMORY * rows - 4);
    for (size_t i = 0; i < panel->count; i++) {
        const fgl_cell *cell = &panel->cell[i], *dense = fgl_dense_of(panel, cell);
        if (dense == NULL || !(whole_of(dense) > 0) || !(whole_of(cell) > 0))
            continue;
        double share = 100 / whole_of(dense);
        bar b = {to, cell, x, y, 17, scale, "% of dense", 3};
        draw_row_name(to, cell->label, x, y + 8.5);
        draw_segment(&b, "weights", color[0], share * cell->weight_bytes);
        draw_segment(&b, "gradients", color[1], share * cell->gradient_bytes);
        draw_segment(&b, "library", color[2], share * cell->library_bytes);
        fgl_put(to, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\">%.0f %%</text>\n", b.x + 6, y + 13,
                share * whole_of(cell));
        y += ROW_MEMORY;
    }
    fgl_chart_end(to);
    return true;
}
