/*
 * chart_heat.c - density of each layer over the steps, as a heat map.
 *
 * Its colors are steps of a logarithmic ramp, because schedules decrease by factors. If there are more layers or steps
 * than can be distinguished, adjacent ones are averaged.
 */
#include "lab/report/panel_charts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SMALL (9.5 / 11) /* of the other labels */

enum { MIN_NAMES = 60, MAX_NAMES = 280, MAX_ROWS = 60, MAX_COLUMNS = 60, TOP = 34 };

typedef struct heat {
    const fgl_layers *layers;
    size_t rows, columns;
    double low, high;
    double left;   /* left edge of the rectangles */
    size_t common; /* length of the common prefix of all names, which is not shown */
} heat;

/* Mean over the layers and steps of one rectangle; NaN if none is known. */
static double mean_of(const heat *h, size_t row, size_t column) {
    const fgl_layers *l = h->layers;
    double sum = 0;
    size_t count = 0;
    for (size_t m = column * l->moments / h->columns; m < (column + 1) * l->moments / h->columns; m++)
        for (size_t n = row * l->names / h->rows; n < (row + 1) * l->names / h->rows; n++)
            if (!isnan(l->density[m * l->names + n])) {
                sum += l->density[m * l->names + n];
                count++;
            }
    return count == 0 ? NAN : sum / (double)count;
}

static int shade_of(const heat *h, double density) {
    double span = log10(h->high / h->low);
    double share = density <= h->low ? 0 : span > 0 ? log10(density / h->low) / span : 1;
    int shade = (int)(share * FGL_RAMP);
    return shade < 0 ? 0 : shade >= FGL_RAMP ? FGL_RAMP - 1 : shade;
}

static void find_range(heat *h) {
    h->low = 1;
    h->high = 0;
    for (size_t r = 0; r < h->rows; r++)
        for (size_t c = 0; c < h->columns; c++) {
            double d = mean_of(h, r, c);
            if (d > 0) {
                h->low = fmin(h->low, d);
                h->high = fmax(h->high, d);
            }
        }
}

static void draw_ramp(fgl_text *to, const heat *h) {
    char low[32], high[32];
    double x = FGL_CHART_WIDTH - 4 - 14 * FGL_RAMP - 60;
    fgl_put(to, "<g class=\"ax\"><text x=\"%.1f\" y=\"16\" text-anchor=\"end\">density %s %%</text>", x - 6,
            fgl_number_text(100 * h->low, 2, low, sizeof low));
    fgl_put(to, "<text x=\"%.1f\" y=\"16\">%s %%</text></g>\n", x + 14 * FGL_RAMP + 6,
            fgl_number_text(100 * h->high, 3, high, sizeof high));
    for (int i = 0; i < FGL_RAMP; i++)
        fgl_put(to, "<rect class=\"h%d\" x=\"%.1f\" y=\"6\" width=\"14\" height=\"12\"/>", i, x + 14 * i);
}

static void draw_row(fgl_text *to, const heat *h, size_t row, double y, double high) {
    const fgl_layers *l = h->layers;
    double wide = (FGL_CHART_WIDTH - h->left - 6) / (double)h->columns;
    const char *name = json_string_value(json_array_get(l->name, row * l->names / h->rows));
    for (size_t c = 0; c < h->columns; c++) {
        double d = mean_of(h, row, c);
        char text[32];
        if (isnan(d))
            continue;
        fgl_put(to, "<rect class=\"h%d\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>", shade_of(h, d),
                h->left + wide * (double)c, y, wide + 0.3, high + (high < 8 ? 0.3 : -1));
        fgl_put_escaped(to, name);
        fgl_put(to, ": %s %% from step %.0f</title></rect>", fgl_number_text(100 * d, 3, text, sizeof text),
                l->step[c * l->moments / h->columns]);
    }
}

static const char *row_name(const heat *h, size_t row) {
    return json_string_value(json_array_get(h->layers->name, row * h->layers->names / h->rows)) + h->common;
}

static double name_width(const char *name) {
    return SMALL * fgl_label_width(name);
}

static size_t find_common(const heat *h) {
    const char *first = row_name(h, 0);
    size_t len = strlen(first);
    for (size_t r = 1; r < h->rows; r++) {
        const char *other = row_name(h, r);
        size_t same = 0;
        while (same < len && other[same] == first[same])
            same++;
        len = same;
    }
    while (len > 0 && first[len - 1] != '.')
        len--;
    return h->rows > 1 ? len : 0;
}

/* Names of tensors differ at the end, so a long one loses its beginning. */
static const char *short_name(const char *name) {
    while (name_width(name) > MAX_NAMES - 12 && name[1] != '\0')
        do
            name++;
        while (((unsigned char)*name & 0xc0) == 0x80);
    return name;
}

static void draw_row_names(fgl_text *to, const heat *h, double high) {
    double free_from = 0;
    for (size_t r = 0; r < h->rows; r++) {
        double y = TOP + high * (double)r, middle = y + high / 2;
        if (middle - 6 < free_from)
            continue;
        free_from = middle + 6;
        const char *name = row_name(h, r), *end = name_width(name) > MAX_NAMES ? short_name(name) : name;
        fgl_put(to, "<text class=\"sm\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s", h->left - 6, middle + 3.5,
                end > name ? "\xe2\x80\xa6" : "");
        fgl_put_escaped(to, end);
        fgl_put_raw(to, "<title>");
        fgl_put_escaped(to, name);
        fgl_put_raw(to, "</title></text>");
    }
}

bool fgl_draw_layers(fgl_text *to, const char *title, const fgl_layers *layers, bool standalone) {
    heat h = {.layers = layers};
    h.rows = layers->names < MAX_ROWS ? layers->names : MAX_ROWS;
    h.columns = layers->moments < MAX_COLUMNS ? layers->moments : MAX_COLUMNS;
    if (h.rows == 0 || h.columns == 0)
        return false;
    find_range(&h);
    if (!(h.high > 0))
        return false;
    h.common = find_common(&h);
    h.left = MIN_NAMES;
    for (size_t r = 0; r < h.rows; r++)
        h.left = fmax(h.left, fmin(name_width(row_name(&h, r)), MAX_NAMES) + 8);
    double high = fmin(20, fmax(6, 300.0 / (double)h.rows)), bottom = TOP + high * (double)h.rows;
    fgl_chart_begin(to, title, bottom + 40, standalone);
    draw_ramp(to, &h);
    fgl_put_raw(to, "<g class=\"ax\">");
    draw_row_names(to, &h, high);
    fgl_put_raw(to, "</g>\n");
    for (size_t r = 0; r < h.rows; r++)
        draw_row(to, &h, r, TOP + high * (double)r, high);
    fgl_put(to, "<g class=\"ax\"><text x=\"%.1f\" y=\"%.1f\">step %.0f</text>", h.left, bottom + 16, layers->step[0]);
    fgl_put(to, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">step %.0f</text></g>\n", FGL_CHART_WIDTH - 6,
            bottom + 16, layers->step[layers->moments - 1]);
    fgl_chart_end(to);
    return true;
}
