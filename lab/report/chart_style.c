/*
 * chart_style.c - colors and style sheets of charts.
 *
 * The series colors differ in lightness as well as in hue, after Okabe and Ito's palette for color-blind readers; each
 * has a contrast of at least 4.5:1 against its background, because labels use them. A page has them as CSS variables,
 * with a second set for dark; a standalone file has literal colors, because not every SVG viewer supports variables.
 */
#include "lab/report/chart.h"

enum { TITLE_HIGH = 22 };

typedef struct shade {
    const char *name, *light, *dark;
} shade;

static const shade basics[] = {
    {"bg", "#ffffff", "#14181d"},   {"ink", "#1b1f24", "#e8ecf0"},  {"dim", "#59636e", "#9aa5b1"},
    {"line", "#8b949e", "#6b7681"}, {"grid", "#e4e8ec", "#2a3139"},
};

static const shade series[FGL_COLORS] = {
    {"c0", "#1b1f24", "#f4f6f8"}, {"c1", "#0069a8", "#5db7f0"}, {"c2", "#bf4a00", "#ff9a57"},
    {"c3", "#00775a", "#3fd0a4"}, {"c4", "#9c3a83", "#ec9fd6"}, {"c5", "#856700", "#e6c34a"},
    {"c6", "#5350c4", "#aeacff"}, {"c7", "#ab2440", "#ff8c9c"}, {"c8", "#52707f", "#a3bfcd"},
};

static const shade ramp[FGL_RAMP] = {
    {"r0", "#eaf1f7", "#1b2631"}, {"r1", "#cfe0ee", "#1d3549"}, {"r2", "#abcbe3", "#1c4664"},
    {"r3", "#80b1d5", "#1b5a82"}, {"r4", "#5595c4", "#1f70a1"}, {"r5", "#3278b0", "#3a89bd"},
    {"r6", "#1a5c94", "#65a5d3"}, {"r7", "#0d4273", "#98c4e6"}, {"r8", "#062a50", "#d3e8f8"},
};

const char *fgl_series_dashes(const fgl_series *s) {
    static const char *const dashes[] = {"", "7 3", "2 3", "9 3 2 3"};
    return dashes[s->dash];
}

static void put_variables(fgl_text *to, bool dark) {
    for (size_t i = 0; i < sizeof basics / sizeof *basics; i++)
        fgl_put(to, "--%s:%s;", basics[i].name, dark ? basics[i].dark : basics[i].light);
    for (size_t i = 0; i < FGL_COLORS; i++)
        fgl_put(to, "--%s:%s;", series[i].name, dark ? series[i].dark : series[i].light);
    for (size_t i = 0; i < FGL_RAMP; i++)
        fgl_put(to, "--%s:%s;", ramp[i].name, dark ? ramp[i].dark : ramp[i].light);
}

/* One property in one of the colors: a variable, or the literal light color. */
static void put_color(fgl_text *to, const char *property, const shade *color, bool standalone) {
    if (standalone)
        fgl_put(to, "%s:%s;", property, color->light);
    else
        fgl_put(to, "%s:var(--%s);", property, color->name);
}

/* Series in a standalone file: those that are not highlighted are gray. */
static void put_series_alone(fgl_text *to) {
    for (int i = 0; i <= FGL_COLORS; i++) {
        const shade *color = i < FGL_COLORS ? &series[i] : &basics[3];
        fgl_put(to, ".c%d .l{stroke:%s;stroke-width:%s}.c%d .p,.c%d .t{fill:%s}\n", i, color->light,
                i < FGL_COLORS ? "1.9" : "1", i, i, i < FGL_COLORS ? color->light : basics[2].light);
    }
    fgl_put_raw(to, ".l{fill:none;stroke-linejoin:round}\n");
}

/* Series of a page are gray (--k) until they are hovered or selected, which gives them their own color (--c). */
static void put_series_page(fgl_text *to) {
    for (int i = 0; i < FGL_COLORS; i++)
        fgl_put(to, ".c%d{--c:var(--%s)}", i, series[i].name);
    fgl_put_raw(
        to, "\n.m{--k:var(--line);--t:var(--dim);--w:1}\n.m .l{fill:none;stroke:var(--k);stroke-width:var(--w);"
            "stroke-linejoin:round}\n.m .p{fill:var(--k)}\n.m .t{fill:var(--t)}\n.m .h{fill:none;stroke:transparent;"
            "stroke-width:9}\n.m .n{display:none;fill:var(--c)}\n.m:hover .n{display:inline}\n");
}

static void put_rules(fgl_text *to, bool standalone) {
    fgl_put_raw(to, "text{font:11px system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif;"
                    "font-variant-numeric:tabular-nums;");
    put_color(to, "fill", &basics[1], standalone);
    fgl_put_raw(to, "}\n.ax text,.ti{");
    put_color(to, "fill", &basics[2], standalone);
    fgl_put_raw(to, "}\n.t{paint-order:stroke;stroke-width:3;stroke-linejoin:round;");
    put_color(to, "stroke", &basics[0], standalone);
    fgl_put_raw(to, "}\n.ax .sm{font-size:9.5px}\n.on{font-size:10px;");
    put_color(to, "fill", &basics[0], standalone);
    fgl_put_raw(to, "}\n.gr path{fill:none;");
    put_color(to, "stroke", &basics[4], standalone);
    fgl_put_raw(to, "}\n.ln{fill:none;");
    put_color(to, "stroke", &basics[3], standalone);
    fgl_put_raw(to, "}\n");
    for (int i = 0; i < FGL_COLORS; i++) {
        fgl_put(to, ".f%d{", i);
        put_color(to, "fill", &series[i], standalone);
        fgl_put(to, "}\n");
    }
    for (int i = 0; i < FGL_RAMP; i++) {
        fgl_put(to, ".h%d{", i);
        put_color(to, "fill", &ramp[i], standalone);
        fgl_put(to, "}\n");
    }
    if (standalone)
        put_series_alone(to);
    else
        put_series_page(to);
}

/* Checkboxes of class kN come before the pickers (labels of class jN) and the charts (series of class mN). */
static void put_picking(fgl_text *to, size_t most) {
    for (size_t i = 1; i <= most; i++) {
        fgl_put(to,
                ".k%zu:checked~.charts .m%zu{--k:var(--c);--t:var(--c);--w:1.9}"
                ".k%zu:checked~.pick .j%zu{--k:var(--c);color:var(--ink)}"
                ".k%zu:focus-visible~.pick .j%zu{outline:2px solid var(--c1)}",
                i, i, i, i, i, i);
        fgl_put(to, ".pick:has(.j%zu:hover)~.charts .m%zu,", i, i);
        fgl_put(to, ".chart:has(.m%zu:hover) .m%zu{--k:var(--c);--t:var(--c);--w:3}\n", i, i);
    }
}

void fgl_chart_page_style(fgl_text *to, size_t most) {
    fgl_put_raw(to, ":root{color-scheme:light dark;");
    put_variables(to, false);
    fgl_put_raw(to, "}\n@media (prefers-color-scheme:dark){:root{");
    put_variables(to, true);
    fgl_put_raw(to, "}}\n");
    put_rules(to, false);
    put_picking(to, most);
}

void fgl_series_begin(fgl_text *to, const fgl_series *s, bool standalone) {
    fgl_put(to, "<g class=\"m m%d c%d\"><title>", s->number, standalone && !s->lit ? FGL_COLORS : s->color);
    fgl_put_escaped(to, s->name);
    fgl_put_raw(to, "</title>");
}

void fgl_series_end(fgl_text *to) {
    fgl_put_raw(to, "</g>\n");
}

/* A standalone file has a title, where a page has a heading. */
void fgl_chart_begin(fgl_text *to, const char *title, double height, bool standalone) {
    char cut[220];
    double above = standalone ? TITLE_HIGH : 0;
    fgl_put_raw(to, "<svg ");
    if (standalone)
        fgl_put(to, "xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" ", FGL_CHART_WIDTH,
                height + above);
    fgl_put(to, "class=\"chart\" viewBox=\"0 %.0f %d %.0f\" role=\"img\" aria-label=\"", -above, FGL_CHART_WIDTH,
            height + above);
    fgl_put_escaped(to, title);
    fgl_put_raw(to, "\">\n");
    if (standalone) {
        fgl_put_raw(to, "<style>\n");
        put_rules(to, true);
        fgl_put(to,
                "</style>\n<rect y=\"%.0f\" width=\"100%%\" height=\"100%%\" fill=\"%s\"/>\n<text x=\"4\" y=\"-6\">",
                -above, basics[0].light);
        fgl_put_escaped(to, fgl_label_cut(title, FGL_CHART_WIDTH - 8, cut, sizeof cut));
        fgl_put_raw(to, "</text>\n");
    }
}

void fgl_chart_end(fgl_text *to) {
    fgl_put_raw(to, "</svg>\n");
}
