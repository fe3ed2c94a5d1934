/*
 * Axes and labels. Ticks are 1, 2, 5 times powers of ten on linear axes, powers of ten on logarithmic ones that span
 * enough of them. Labels at the ends of lines are spread like beads on a wire: from top to bottom each is pushed below
 * the one before, and if the last leaves the chart, from bottom to top once more.
 */
#include "chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LETTER 6.7 /* pixels of a letter of the common faces, on the safe side */

/* ---- axes ------------------------------------------------------------------------------------ */

bool frugi_axis_shows(const frugi_axis *axis, double number) {
    return isfinite(number) && (!axis->log || number > 0);
}

void frugi_axis_see(frugi_axis *axis, double number) {
    if (frugi_axis_shows(axis, number)) {
        axis->low = fmin(axis->low, number);
        axis->high = fmax(axis->high, number);
    }
}

static double place(const frugi_axis *axis, double number) {
    return axis->log ? log10(number) : number;
}

static double unplace(const frugi_axis *axis, double number) {
    return axis->log ? pow(10, number) : number;
}

static void add_tick(frugi_axis *axis, double number) {
    if (number >= axis->low * (axis->low > 0 ? 1 - 1e-9 : 1 + 1e-9) && number <= axis->high * (1 + 1e-9) &&
        axis->ticks < FRUGI_TICKS)
        axis->tick[axis->ticks++] = fabs(number) < 1e-12 * fabs(axis->high) ? 0 : number;
}

static void tick_linear(frugi_axis *axis, int most) {
    double rough = (axis->high - axis->low) / most;
    double power = pow(10, floor(log10(rough))), step = power;
    step = rough > 5 * power ? 10 * power : rough > 2 * power ? 5 * power : rough > power ? 2 * power : power;
    double first = ceil(axis->low / step - 1e-9);
    for (int i = 0; i < FRUGI_TICKS; i++)
        add_tick(axis, (first + i) * step);
}

static void tick_log(frugi_axis *axis, int most) {
    static const double fine[] = {1, 2, 5}, finer[] = {1, 1.5, 2, 3, 4, 5, 6, 8};
    int from = (int)floor(log10(axis->low)), to = (int)ceil(log10(axis->high));
    double span = log10(axis->high / axis->low);
    int every = (int)ceil(span / most);
    if (span >= 1.8 || axis->unit == FRUGI_UNIT_HELD) {
        if (axis->unit == FRUGI_UNIT_HELD)
            add_tick(axis, 2); /* 50 %, as the powers leave the most used half of the axis bare */
        for (int i = from; i <= to; i += every > 0 ? every : 1)
            add_tick(axis, pow(10, i));
        return;
    }
    for (int i = from; i <= to; i++)
        for (size_t k = 0; k < (span > 0.6 ? 3u : 8u); k++)
            add_tick(axis, pow(10, i) * (span > 0.6 ? fine[k] : finer[k]));
}

static void keep_inside(frugi_axis *axis) {
    int kept = 0;
    for (int i = 0; i < axis->ticks; i++)
        if (axis->tick[i] >= axis->low && axis->tick[i] <= axis->high)
            axis->tick[kept++] = axis->tick[i];
    axis->ticks = kept;
}

void frugi_axis_finish(frugi_axis *axis, int most) {
    if (axis->low > axis->high) {
        axis->low = axis->log ? 1 : 0;
        axis->high = axis->log ? 10 : 1;
    }
    double low = place(axis, axis->low), high = place(axis, axis->high);
    double room = 0.06 * (high - low), least = axis->log ? 0.05 : fmax(1e-3 * fabs(high), 1e-9);
    room = fmax(room, high - low < least ? least : 0);
    bool whole = !axis->log && axis->low >= 0 && low - room < 0;
    axis->low = whole ? 0 : unplace(axis, low - room);
    axis->high = unplace(axis, high + room);
    if (axis->ticks > 0) {
        keep_inside(axis);
        return;
    }
    if (axis->log)
        tick_log(axis, most);
    if (axis->ticks < 2) { /* too narrow for round powers */
        axis->ticks = 0;
        tick_linear(axis, most);
    }
}

const char *frugi_axis_text(const frugi_axis *axis, double number, char *dst, size_t cap) {
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    char text[48];
    size_t u = 0;
    switch (axis->unit) {
    case FRUGI_UNIT_BYTES:
        for (; fabs(number) >= 999.9 && u < 6; u++)
            number /= 1000;
        snprintf(dst, cap, "%s %s", frugi_number_text(number, 3, text, sizeof text), unit[u]);
        break;
    case FRUGI_UNIT_SHARE: snprintf(dst, cap, "%s %%", frugi_number_text(100 * number, 4, text, sizeof text)); break;
    case FRUGI_UNIT_HELD:
        snprintf(dst, cap, "%s %%", frugi_number_text(100 - 100 / number, number > 1000 ? 5 : 4, text, sizeof text));
        break;
    default:
        if (fabs(number) >= 1e6)
            snprintf(dst, cap, "%.3g", number);
        else
            frugi_number_text(number, 4, dst, cap);
    }
    return dst;
}

/* ---- the frame -------------------------------------------------------------------------------- */

static double share_of(const frugi_axis *axis, double number) {
    double low = place(axis, axis->low), high = place(axis, axis->high);
    double share = (place(axis, number) - low) / (high - low);
    return fmin(fmax(share, -10), 10);
}

double frugi_plot_x(const frugi_plot *plot, double number) {
    return plot->left + share_of(&plot->x, number) * (plot->right - plot->left);
}

double frugi_plot_y(const frugi_plot *plot, double number) {
    return plot->bottom - share_of(&plot->y, number) * (plot->bottom - plot->top);
}

void frugi_plot_frame(const frugi_plot *plot) {
    char text[64];
    double free_from = -1e9;
    frugi_put_raw(plot->to, "<g class=\"gr\">");
    for (int i = 0; i < plot->y.ticks; i++)
        frugi_put(plot->to, "<path d=\"M%.1f %.1fH%.1f\"/>", plot->left, frugi_plot_y(plot, plot->y.tick[i]),
                  plot->right);
    frugi_put(plot->to, "</g>\n<path class=\"ln\" d=\"M%.1f %.1fH%.1f\"/>\n<g class=\"ax\" text-anchor=\"end\">",
              plot->left, plot->bottom, plot->right);
    for (int i = 0; i < plot->y.ticks; i++)
        frugi_put(plot->to, "<text x=\"%.1f\" y=\"%.1f\">%s</text>", plot->left - 6,
                  frugi_plot_y(plot, plot->y.tick[i]) + 4,
                  frugi_axis_text(&plot->y, plot->y.tick[i], text, sizeof text));
    frugi_put_raw(plot->to, "</g>\n<g class=\"ax\" text-anchor=\"middle\">");
    for (int i = 0; i < plot->x.ticks; i++) {
        double x = frugi_plot_x(plot, plot->x.tick[i]);
        frugi_axis_text(&plot->x, plot->x.tick[i], text, sizeof text);
        frugi_put(plot->to, "<path class=\"ln\" d=\"M%.1f %.1fv4\"/>", x, plot->bottom);
        double half = frugi_label_width(text) / 2;
        if (x - half < free_from)
            continue;
        free_from = x + half + 6;
        frugi_put(plot->to, "<text x=\"%.1f\" y=\"%.1f\">%s</text>", x, plot->bottom + 17, text);
    }
    frugi_put(plot->to, "</g>\n<text class=\"ti\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
              (plot->left + plot->right) / 2, plot->bottom + 35, plot->x.title);
    frugi_put(plot->to, "<text class=\"ti\" x=\"4\" y=\"%.1f\">%s</text>\n", plot->top - 12, plot->y.title);
}

/* ---- labels ------------------------------------------------------------------------------------ */

double frugi_label_width(const char *text) {
    return LETTER * (double)frugi_text_columns(text);
}

const char *frugi_label_cut(const char *text, double width, char *dst, size_t cap) {
    size_t most = width > 12 ? (size_t)(width / LETTER) : 1, columns = 0, len = 0;
    if (frugi_text_columns(text) <= most && strlen(text) < cap) {
        snprintf(dst, cap, "%s", text);
        return dst;
    }
    while (text[len] != '\0' && len + 8 < cap) {
        columns += ((unsigned char)text[len] & 0xc0) != 0x80;
        if (columns >= most)
            break;
        len++;
    }
    snprintf(dst, cap, "%.*s\xe2\x80\xa6", (int)len, text);
    return dst;
}

typedef struct bead {
    double y;
    size_t which;
} bead;

static int by_height(const void *a, const void *b) {
    const bead *x = a, *y = b;
    if (x->y < y->y || x->y > y->y)
        return x->y < y->y ? -1 : 1;
    return (x->which > y->which) - (x->which < y->which);
}

void frugi_labels_spread(double *y, size_t count, double gap, double top, double bottom) {
    bead *beads = calloc(count + 1, sizeof *beads);
    if (beads == NULL)
        return;
    for (size_t i = 0; i < count; i++)
        beads[i] = (bead){fmin(fmax(y[i], top), bottom), i};
    qsort(beads, count, sizeof *beads, by_height);
    for (size_t i = 1; i < count; i++)
        beads[i].y = fmax(beads[i].y, beads[i - 1].y + gap);
    if (count > 0 && beads[count - 1].y > bottom) {
        beads[count - 1].y = bottom;
        for (size_t i = count - 1; i-- > 0;)
            beads[i].y = fmin(beads[i].y, beads[i + 1].y - gap);
    }
    for (size_t i = 0; i < count; i++)
        y[beads[i].which] = beads[i].y;
    free(beads);
}

void frugi_chart_mark(frugi_text *to, size_t series, double x, double y, const char *tip) {
    frugi_put(to, "<g class=\"f%d\">", frugi_series_colour(series));
    switch (series % 4) {
    case 0: frugi_put(to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\">", x, y); break;
    case 1: frugi_put(to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"7.4\" height=\"7.4\">", x - 3.7, y - 3.7); break;
    case 2: frugi_put(to, "<path d=\"M%.1f %.1fl4.8 8.2h-9.6z\">", x, y - 5); break;
    default: frugi_put(to, "<path d=\"M%.1f %.1fl5 5l-5 5l-5-5z\">", x, y - 5);
    }
    frugi_put_raw(to, "<title>");
    frugi_put_escaped(to, tip);
    frugi_put(to, "</title>%s</g>\n", series % 4 == 0 ? "</circle>" : series % 4 == 1 ? "</rect>" : "</path>");
}
