/*
 * Colours of charts. The series colours differ in lightness as well as in hue, after Okabe and Ito's choice for people
 * who do not see all hues; each has at least 4.5:1 against its background, as labels are written in them. A page has
 * them as variables, with a second set for dark; a stand-alone file as they are, because not every program that shows
 * SVG knows variables.
 */
#include "chart.h"

typedef struct shade {
    const char *name, *light, *dark;
} shade;

static const shade basics[] = {
    {"bg", "#ffffff", "#14181d"},   {"ink", "#1b1f24", "#e8ecf0"},  {"dim", "#59636e", "#9aa5b1"},
    {"line", "#8b949e", "#6b7681"}, {"grid", "#e4e8ec", "#2a3139"},
};

static const shade series[FRUGI_SERIES] = {
    {"c0", "#1b1f24", "#f4f6f8"}, {"c1", "#0069a8", "#5db7f0"}, {"c2", "#bf4a00", "#ff9a57"},
    {"c3", "#00775a", "#3fd0a4"}, {"c4", "#9c3a83", "#ec9fd6"}, {"c5", "#856700", "#e6c34a"},
    {"c6", "#5350c4", "#aeacff"}, {"c7", "#ab2440", "#ff8c9c"}, {"c8", "#52707f", "#a3bfcd"},
};

static const shade ramp[FRUGI_RAMP] = {
    {"r0", "#eaf1f7", "#1b2631"}, {"r1", "#cfe0ee", "#1d3549"}, {"r2", "#abcbe3", "#1c4664"},
    {"r3", "#80b1d5", "#1b5a82"}, {"r4", "#5595c4", "#1f70a1"}, {"r5", "#3278b0", "#3a89bd"},
    {"r6", "#1a5c94", "#65a5d3"}, {"r7", "#0d4273", "#98c4e6"}, {"r8", "#062a50", "#d3e8f8"},
};

int frugi_series_colour(size_t i) {
    return i == 0 ? 0 : (int)((i - 1) % (FRUGI_SERIES - 1)) + 1;
}

const char *frugi_series_dashes(size_t i) {
    static const char *const dashes[] = {"", "7 3", "2 3", "9 3 2 3"};
    return i == 0 ? "" : dashes[(i - 1) / (FRUGI_SERIES - 1) % 4];
}

static void put_variables(frugi_text *to, bool dark) {
    for (size_t i = 0; i < sizeof basics / sizeof *basics; i++)
        frugi_put(to, "--%s:%s;", basics[i].name, dark ? basics[i].dark : basics[i].light);
    for (size_t i = 0; i < FRUGI_SERIES; i++)
        frugi_put(to, "--%s:%s;", series[i].name, dark ? series[i].dark : series[i].light);
    for (size_t i = 0; i < FRUGI_RAMP; i++)
        frugi_put(to, "--%s:%s;", ramp[i].name, dark ? ramp[i].dark : ramp[i].light);
}

/* One property in one of the colours: a variable, or what it stands for in light. */
static void put_colour(frugi_text *to, const char *property, const shade *colour, bool alone) {
    if (alone)
        frugi_put(to, "%s:%s;", property, colour->light);
    else
        frugi_put(to, "%s:var(--%s);", property, colour->name);
}

static void put_rules(frugi_text *to, bool alone) {
    frugi_put_raw(to, "text{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif;"
                      "font-variant-numeric:tabular-nums;");
    put_colour(to, "fill", &basics[1], alone);
    frugi_put_raw(to, "}\n.ax text{font-size:11px;");
    put_colour(to, "fill", &basics[2], alone);
    frugi_put_raw(to, "}\n.ti{font-size:11px;");
    put_colour(to, "fill", &basics[2], alone);
    frugi_put_raw(to, "}\n.on{font-size:10px;");
    put_colour(to, "fill", &basics[0], alone);
    frugi_put_raw(to, "}\n.gr path{fill:none;");
    put_colour(to, "stroke", &basics[4], alone);
    frugi_put_raw(to, "}\n.ln{fill:none;");
    put_colour(to, "stroke", &basics[3], alone);
    frugi_put_raw(to, "}\n");
    for (int i = 0; i < FRUGI_SERIES; i++) {
        frugi_put(to, ".f%d{", i);
        put_colour(to, "fill", &series[i], alone);
        frugi_put(to, "}\n.s%d{fill:none;stroke-width:1.8;stroke-linejoin:round;", i);
        put_colour(to, "stroke", &series[i], alone);
        frugi_put(to, "}\n");
    }
    for (int i = 0; i < FRUGI_RAMP; i++) {
        frugi_put(to, ".h%d{", i);
        put_colour(to, "fill", &ramp[i], alone);
        frugi_put(to, "}\n");
    }
}

void frugi_chart_page_style(frugi_text *to) {
    frugi_put_raw(to, ":root{color-scheme:light dark;");
    put_variables(to, false);
    frugi_put_raw(to, "}\n@media (prefers-color-scheme:dark){:root{");
    put_variables(to, true);
    frugi_put_raw(to, "}}\n");
    put_rules(to, false);
}

void frugi_chart_begin(frugi_text *to, const char *title, double height, bool alone) {
    frugi_put_raw(to, "<svg ");
    if (alone)
        frugi_put(to, "xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" ", FRUGI_CHART_WIDTH, height);
    frugi_put(to, "class=\"chart\" viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"", FRUGI_CHART_WIDTH, height);
    frugi_put_escaped(to, title);
    frugi_put_raw(to, "\">\n");
    if (alone) {
        frugi_put_raw(to, "<style>\n");
        put_rules(to, true);
        frugi_put(to, "</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"%s\"/>\n", basics[0].light);
    }
}

void frugi_chart_end(frugi_text *to) {
    frugi_put_raw(to, "</svg>\n");
}
