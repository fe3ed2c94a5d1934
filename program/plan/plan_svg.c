/* plan_svg.c - bytes per worker over the number of workers, both on logarithmic scales, as an SVG file. */
#include "program/args/args.h"
#include "io/files.h"
#include "program/plan/plan.h"
#include "io/error.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define WIDTH  720
#define HEIGHT 420
#define LEFT   70
#define RIGHT  150
#define TOP    30
#define BOTTOM 50

typedef struct frame {
    double x0, x1, y0, y1; /* logarithms at the edges */
} frame;

typedef struct page {
    char text[32768];
    size_t len;
} page;

__attribute__((format(printf, 2, 3))) static void put(page *p, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = vsnprintf(p->text + p->len, sizeof p->text - p->len, format, list);
    va_end(list);
    if (n > 0)
        p->len = p->len + (size_t)n < sizeof p->text ? p->len + (size_t)n : sizeof p->text - 1;
}

static double at_x(const frame *f, double workers) {
    return LEFT + (log2(workers) - f->x0) / (f->x1 - f->x0) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const frame *f, double bytes) {
    return HEIGHT - BOTTOM - (log10(bytes) - f->y0) / (f->y1 - f->y0) * (HEIGHT - TOP - BOTTOM);
}

static double dense_bytes(double workers) {
    return 8 * (workers - 1) / workers;
}

static frame fit(const fgp_byte_count *t, size_t count) {
    double low = dense_bytes(t[0].workers), high = low;
    for (size_t i = 0; i < count; i++) {
        low = fmin(low, fmin(t[i].counted, t[i].predicted));
        high = fmax(high, fmax(t[i].counted, t[i].predicted));
    }
    double last = t[count - 1].workers > t[0].workers ? t[count - 1].workers : 2.0 * t[0].workers;
    return (frame){log2(t[0].workers), log2(last), floor(log10(low)), ceil(log10(high))};
}

static void draw_axes(page *p, const frame *f) {
    put(p, "<g stroke=\"#ccc\" fill=\"none\">\n");
    for (double y = f->y0; y <= f->y1; y += 1)
        put(p, "<path d=\"M%d %.1fH%d\"/>\n", LEFT, at_y(f, pow(10, y)), WIDTH - RIGHT);
    put(p, "</g>\n<g text-anchor=\"end\">\n");
    for (double y = f->y0; y <= f->y1; y += 1)
        put(p, "<text x=\"%d\" y=\"%.1f\">%g</text>\n", LEFT - 8, at_y(f, pow(10, y)) + 4, pow(10, y));
    put(p, "</g>\n<g text-anchor=\"middle\">\n");
    for (double x = f->x0; x <= f->x1 + 0.5; x += 1)
        put(p, "<text x=\"%.1f\" y=\"%d\">%g</text>\n", at_x(f, exp2(x)), HEIGHT - BOTTOM + 20, exp2(x));
    put(p, "<text x=\"%d\" y=\"%d\">workers</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
    put(p, "<text transform=\"rotate(-90 18 %d)\" x=\"18\" y=\"%d\">bytes received per parameter</text>\n</g>\n",
        HEIGHT / 2, HEIGHT / 2);
}

/* Counted points with a line, the formula dashed; the name after the last point, moved down if it overlaps another. */
static void draw_algorithm(page *p, const frame *f, const fgp_byte_count *t, size_t sizes, size_t step,
                           const char *color, double label) {
    put(p, "<g stroke=\"%s\" fill=\"none\" stroke-width=\"1.5\">\n<path d=\"", color);
    for (size_t i = 0; i < sizes; i++)
        put(p, "%c%.1f %.1f", i ? 'L' : 'M', at_x(f, t[i * step].workers), at_y(f, t[i * step].counted));
    put(p, "\"/>\n<path stroke-dasharray=\"4 4\" d=\"");
    for (size_t i = 0; i < sizes; i++)
        put(p, "%c%.1f %.1f", i ? 'L' : 'M', at_x(f, t[i * step].workers), at_y(f, t[i * step].predicted));
    put(p, "\"/>\n</g>\n<g fill=\"%s\">\n", color);
    for (size_t i = 0; i < sizes; i++)
        put(p, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>", at_x(f, t[i * step].workers), at_y(f, t[i * step].counted));
    put(p, "\n<text x=\"%d\" y=\"%.1f\">%s</text>\n</g>\n", WIDTH - RIGHT + 10, label, t[0].algorithm);
}

static void draw(page *p, const fgp_byte_count *tally, size_t count) {
    static const char *const color[] = {"#d62728", "#9467bd", "#1f77b4", "#2ca02c", "#17a2a2"};
    size_t step = FGP_COUNTED_ALGORITHMS, sizes = count / step;
    frame f = fit(tally, count);
    double labels[FGP_COUNTED_ALGORITHMS + 1];
    fgp_byte_count dense[16];
    for (size_t i = 0; i < sizes && i < 16; i++) {
        double bytes = dense_bytes(tally[i * step].workers);
        dense[i] = (fgp_byte_count){"dense", tally[i * step].workers, bytes, bytes};
    }
    draw_axes(p, &f);
    for (size_t k = 0; k <= step; k++) {
        const fgp_byte_count *last = k < step ? &tally[(sizes - 1) * step + k] : &dense[sizes - 1];
        double y = at_y(&f, last->counted) + 4;
        for (size_t j = 0; j < k; j++)
            if (fabs(y - labels[j]) < 14) {
                y = labels[j] + 14;
                j = SIZE_MAX; /* check all again: the new position may overlap, too */
            }
        labels[k] = y;
        if (k < step)
            draw_algorithm(p, &f, tally + k, sizes, step, color[k], y);
        else
            draw_algorithm(p, &f, dense, sizes, 1, "#333", y);
    }
}

int fgp_plan_svg(const char *path, const fgp_byte_count *tally, size_t count) {
    static page p;
    p.len = 0;
    put(&p,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
        "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
        "<text x=\"%d\" y=\"18\">Counted (dots) and by formula (dashes)</text>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT);
    draw(&p, tally, count);
    put(&p, "</svg>\n");
    return fgio_file_write(path, p.text, p.len);
}
