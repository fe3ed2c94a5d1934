/*
 * chart.c - axes and marks of charts.
 *
 * Ticks are 1, 2, 5 times powers of ten on linear axes, powers of ten on logarithmic ones that span enough of them.
 * Tick labels stay inside the chart and do not overlap: of two that would, the first is drawn.
 */
#include "lab/report/chart.h"

#include <math.h>
#include <stdio.h>

/* ---- axes ------------------------------------------------------------------------------------ */

bool fgl_axis_shows(const fgl_axis *axis, double number) {
    return isfinite(number) && (!axis->log || number > 0);
}

void fgl_axis_include(fgl_axis *axis, double number) {
    if (fgl_axis_shows(axis, number)) {
        axis->low = fmin(axis->low, number);
        axis->high = fmax(axis->high, number);
    }
}

static double to_axis(const fgl_axis *axis, double number) {
    return axis->log ? log10(number) : number;
}

static double from_axis(const fgl_axis *axis, double number) {
    return axis->log ? pow(10, number) : number;
}

static void add_tick(fgl_axis *axis, double number) {
    if (number >= axis->low * (axis->low > 0 ? 1 - 1e-9 : 1 + 1e-9) && number <= axis->high * (1 + 1e-9) &&
        axis->ticks < FGL_TICKS)
        axis->tick[axis->ticks++] = fabs(number) < 1e-12 * fabs(axis->high) ? 0 : number;
}

static void tick_linear(fgl_axis *axis, int most) {
    double rough = (axis->high - axis->low) / most;
    double power = pow(10, floor(log10(rough))), step = power;
    step = rough > 5 * power ? 10 * power : rough > 2 * power ? 5 * power : rough > power ? 2 * power : power;
    double first = ceil(axis->low / step - 1e-9);
    for (int i = 0; i < FGL_TICKS; i++)
        add_tick(axis, (first + i) * step);
}

/* 50, 90, 99 %, and intermediate values if there is room. */
static void tick_sparsity(fgl_axis *axis) {
    static const double some[] = {2, 4, 10, 20, 100};
    if (log10(axis->high / axis->low) < 2.2) {
        for (size_t i = 0; i < sizeof some / sizeof *some; i++)
            add_tick(axis, some[i]);
        return;
    }
    add_tick(axis, 2);
    for (double power = 1; power <= axis->high; power *= 10)
        add_tick(axis, power);
}

static void tick_log(fgl_axis *axis, int most) {
    static const double fine[] = {1, 2, 5}, finer[] = {1, 1.5, 2, 3, 4, 5, 6, 8};
    int from = (int)floor(log10(axis->low)), to = (int)ceil(log10(axis->high));
    double span = log10(axis->high / axis->low);
    int every = (int)ceil(span / most);
    if (axis->unit == FGL_UNIT_SPARSITY) {
        tick_sparsity(axis);
        return;
    }
    if (span >= 1.8) {
        for (int i = from; i <= to; i += every > 0 ? every : 1)
            add_tick(axis, pow(10, i));
        return;
    }
    for (int i = from; i <= to; i++)
        for (size_t k = 0; k < (span > 0.6 ? 3u : 8u); k++)
            add_tick(axis, pow(10, i) * (span > 0.6 ? fine[k] : finer[k]));
}

static void drop_outside_ticks(fgl_axis *axis) {
    int kept = 0;
    for (int i = 0; i < axis->ticks; i++)
        if (axis->tick[i] >= axis->low && axis->tick[i] <= axis->high)
            axis->tick[kept++] = axis->tick[i];
    axis->ticks = kept;
}

void fgl_axis_finish(fgl_axis *axis, int most) {
    if (axis->low > axis->high) {
        axis->low = axis->log ? 1 : 0;
        axis->high = axis->log ? 10 : 1;
    }
    double low = to_axis(axis, axis->low), high = to_axis(axis, axis->high);
    double room = 0.06 * (high - low), least = axis->log ? 0.05 : fmax(1e-3 * fabs(high), 1e-9);
    room = fmax(room, high - low < least ? least : 0);
    bool whole = !axis->log && axis->low >= 0 && low - room < 0;
    axis->low = whole ? 0 : from_axis(axis, low - room);
    axis->high = from_axis(axis, high + room);
    if (axis->ticks > 0) {
        drop_outside_ticks(axis);
        return;
    }
    if (axis->log)
        tick_log(axis, most);
    if (axis->ticks < 2) { /* too narrow for round powers */
        axis->ticks = 0;
        tick_linear(axis, most);
    }
}

const char *fgl_axis_text(const fgl_axis *axis, double number, char *dst, size_t cap) {
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    char text[48];
    size_t u = 0;
    switch (axis->unit) {
    case FGL_UNIT_BYTES:
        for (; fabs(number) >= 999.9 && u < 6; u++)
            number /= 1000;
        snprintf(dst, cap, "%s %s", fgl_number_text(number, 3, text, sizeof text), unit[u]);
        break;
    case FGL_UNIT_SHARE: snprintf(dst, cap, "%s %%", fgl_number_text(100 * number, 4, text, sizeof text)); break;
    case FGL_UNIT_SPARSITY:
        snprintf(dst, cap, "%s %%", fgl_number_text(100 - 100 / number, number > 1000 ? 5 : 4, text, sizeof text));
        break;
    default:
        if (fabs(number) >= 1e6)
            snprintf(dst, cap, "%.3g", number);
        else
            fgl_number_text(number, 4, dst, cap);
    }
    return dst;
}

/* ---- the frame -------------------------------------------------------------------------------- */

static double share_of(const fgl_axis *axis, double number) {
    double low = to_axis(axis, axis->low), high = to_axis(axis, axis->high);
    double share = (to_axis(axis, number) - low) / (high - low);
    return fmin(fmax(share, -10), 10);
}

double fgl_plot_x(const fgl_plot *plot, double number) {
    return plot->left + share_of(&plot->x, number) * (plot->right - plot->left);
}

double fgl_plot_y(const fgl_plot *plot, double number) {
    return plot->bottom - share_of(&plot->y, number) * (plot->bottom - plot->top);
}

void fgl_plot_finish(fgl_plot *plot) {
    char text[64];
    fgl_axis_finish(&plot->x, 6);
    fgl_axis_finish(&plot->y, 6);
    for (int i = 0; i < plot->y.ticks; i++)
        plot->left =
            fmax(plot->left, 10 + fgl_label_width(fgl_axis_text(&plot->y, plot->y.tick[i], text, sizeof text)));
}

/* From the bottom up; a label that would touch the last one is omitted. */
static void draw_y_texts(const fgl_plot *plot) {
    char text[64];
    double free_below = 1e9;
    fgl_put_raw(plot->to, "<g class=\"ax\" text-anchor=\"end\">");
    for (int i = 0; i < plot->y.ticks; i++) {
        double y = fgl_plot_y(plot, plot->y.tick[i]);
        if (y > free_below)
            continue;
        free_below = y - 13;
        fgl_put(plot->to, "<text x=\"%.1f\" y=\"%.1f\">%s</text>", plot->left - 6, y + 4,
                fgl_axis_text(&plot->y, plot->y.tick[i], text, sizeof text));
    }
    fgl_put_raw(plot->to, "</g>\n");
}

static void draw_x_texts(const fgl_plot *plot) {
    char text[64];
    double free_from = -1e9;
    fgl_put_raw(plot->to, "<g class=\"ax\" text-anchor=\"middle\">");
    for (int i = 0; i < plot->x.ticks; i++) {
        double x = fgl_plot_x(plot, plot->x.tick[i]);
        fgl_axis_text(&plot->x, plot->x.tick[i], text, sizeof text);
        fgl_put(plot->to, "<path class=\"ln\" d=\"M%.1f %.1fv4\"/>", x, plot->bottom);
        double half = fgl_label_width(text) / 2;
        x = fmin(x, FGL_CHART_WIDTH - 2 - half);
        if (x - half < free_from)
            continue;
        free_from = x + half + 6;
        fgl_put(plot->to, "<text x=\"%.1f\" y=\"%.1f\">%s</text>", x, plot->bottom + 17, text);
    }
    fgl_put_raw(plot->to, "</g>\n");
}

void fgl_plot_frame(const fgl_plot *plot) {
    fgl_put_raw(plot->to, "<g class=\"gr\">");
    for (int i = 0; i < plot->y.ticks; i++)
        fgl_put(plot->to, "<path d=\"M%.1f %.1fH%.1f\"/>", plot->left, fgl_plot_y(plot, plot->y.tick[i]), plot->right);
    fgl_put(plot->to, "</g>\n<path class=\"ln\" d=\"M%.1f %.1fH%.1f\"/>\n", plot->left, plot->bottom, plot->right);
    draw_y_texts(plot);
    draw_x_texts(plot);
    double half = fgl_label_width(plot->x.title) / 2;
    fgl_put(plot->to, "<text class=\"ti\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
            fmin((plot->left + plot->right) / 2, FGL_CHART_WIDTH - 2 - half), plot->bottom + 35, plot->x.title);
    fgl_put(plot->to, "<text class=\"ti\" x=\"4\" y=\"%.1f\">%s</text>\n", plot->top - 12, plot->y.title);
}

void fgl_plot_hover(const fgl_plot *plot, const fgl_series *series) {
    char cut[200];
    double free_from = 4 + fgl_label_width(plot->y.title) + 12;
    fgl_put(plot->to, "<text class=\"n\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", FGL_CHART_WIDTH - 2,
            plot->top - 12);
    fgl_put_escaped(plot->to, fgl_label_cut(series->name, FGL_CHART_WIDTH - 2 - free_from, cut, sizeof cut));
    fgl_put_raw(plot->to, "</text>");
}

/* ---- marks --------------------------------------------------------------------------------------- */

void fgl_chart_mark(fgl_text *to, fgl_group group, double x, double y, const char *tip) {
    static const char *const shapes[FGL_GROUPS] = {
        [FGL_GROUP_BASELINE] = "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",
        [FGL_GROUP_OURS] = "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z",
        [FGL_GROUP_SPARSE] = "m0-5l4.8 8.2h-9.6z",
        [FGL_GROUP_QUANTIZED] = "m-3.7-3.7h7.4v7.4h-7.4z",
        [FGL_GROUP_OTHER] = "m-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
        [FGL_GROUP_VARIANT] = "m0 5l-4.8-8.2h9.6z",
    };
    fgl_put(to, "<path class=\"p\" d=\"M%.1f %.1f%s\"", x, y, shapes[group]);
    if (tip == NULL) {
        fgl_put_raw(to, "/>");
        return;
    }
    fgl_put_raw(to, "><title>");
    fgl_put_escaped(to, tip);
    fgl_put_raw(to, "</title></path>\n");
}
