/* status_page.c - the page of a federated run: numbers, a chart of the loss, a table of the clients; no scripts. */
#include "program/federated/status_page.h"

#include "io/error.h"
#include "lab/report/chart.h"
#include "program/federated/federated_print.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<meta http-equiv=\"refresh\" content=\"5\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"referrer\" content=\"no-referrer\">\n<title>FruGrad: federated run</title>\n<style>\n";

static const char style[] =
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,"
    "\"DejaVu Sans\",sans-serif}\n"
    "main{max-width:1120px;margin:0 auto;padding:24px 16px 64px}\n"
    "h1{font-size:1.7rem;line-height:1.2;margin:0 0 4px}\nh2{font-size:1.25rem;margin:32px 0 8px}\n"
    ".dim,dt,thead th{color:var(--dim);font-size:.875rem}\np{overflow-wrap:anywhere}\n"
    "dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(9.5em,1fr));gap:12px 16px;margin:16px 0}\n"
    "dd{margin:0;font-size:1.25rem;font-variant-numeric:tabular-nums}\n"
    "svg.chart{display:block;width:100%;max-width:640px;height:auto}\n.loss{fill:none;stroke:var(--c1);"
    "stroke-width:2}\n"
    ".scroll{overflow-x:auto}\ntable{border-collapse:collapse;width:100%;font-size:.875rem;"
    "font-variant-numeric:tabular-nums}\n"
    "th,td{padding:5px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}\n"
    "th:first-child,th:nth-child(2),td:nth-child(2){text-align:left}\n";

static double number_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- numbers ---- */

static void put_count(fgl_text *to, const char *name, uint64_t number) {
    fgl_put(to, "<div><dt>%s</dt><dd>%llu</dd></div>\n", name, (unsigned long long)number);
}

static void put_bytes(fgl_text *to, const char *name, uint64_t number) {
    char text[32];
    fgl_put(to, "<div><dt>%s</dt><dd>%s</dd></div>\n", name, fgio_bytes_text(number, text, sizeof text));
}

static void put_real(fgl_text *to, const char *name, double number, double factor, const char *unit) {
    if (isfinite(number))
        fgl_put(to, "<div><dt>%s</dt><dd>%.4g%s</dd></div>\n", name, factor * number, unit);
}

/* The last round that has a number: not every round is evaluated. */
static double last_of(const json_t *history, const char *key) {
    for (size_t i = json_array_size(history); i-- > 0;) {
        double number = number_of(json_array_get(history, i), key);
        if (isfinite(number))
            return number;
    }
    return (double)NAN;
}

static void put_numbers(fgl_text *to, const json_t *status) {
    const json_t *history = json_object_get(status, "history"), *clients = json_object_get(status, "clients");
    uint64_t refused = 0, late = 0, limited = 0;
    for (size_t i = 0; i < json_array_size(clients); i++) {
        const json_t *client = json_array_get(clients, i);
        refused += fgp_status_refused(client);
        late += fgp_status_count(client, "late");
        limited += fgp_status_count(client, "limited");
    }
    fgl_put(to, "<dl>\n<div><dt>round</dt><dd>%llu of %llu%s</dd></div>\n", fgp_status_count(status, "round"),
            fgp_status_count(status, "rounds"), json_is_true(json_object_get(status, "done")) ? ", done" : "");
    put_real(to, "loss of the clients", last_of(history, "loss"), 1, "");
    put_real(to, "test loss", last_of(history, "eval_loss"), 1, "");
    put_real(to, "accuracy", last_of(history, "eval_accuracy"), 100, " %");
    put_count(to, "updates of this round", fgp_status_count(status, "updates"));
    put_count(to, "clients connected", fgp_status_count(status, "connections"));
    put_bytes(to, "received", fgp_status_count(status, "bytes_up"));
    put_bytes(to, "sent", fgp_status_count(status, "bytes_down"));
    put_count(to, "late updates", late);
    put_count(to, "limited updates", limited);
    put_count(to, "refused requests", refused);
    put_count(to, "refused connections", fgp_status_count(status, "refused_connections"));
    put_count(to, "dropped connections", fgp_status_count(status, "dropped_connections"));
    put_count(to, "rounds closed again", fgp_status_count(status, "closing_failures"));
    fgl_put_raw(to, "</dl>\n");
}

/* ---- the chart ---- */

static void put_chart(fgl_text *to, const json_t *history) {
    fgl_plot plot = {.to = to,
                     .x = {.title = "round", FGL_AXIS_EMPTY},
                     .y = {.title = "loss of the clients", FGL_AXIS_EMPTY},
                     .left = 44,
                     .right = FGL_CHART_WIDTH - 12,
                     .top = 26,
                     .bottom = 226};
    char next = 'M';
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *round = json_array_get(history, i);
        if (!isfinite(number_of(round, "loss")))
            continue;
        fgl_axis_include(&plot.x, number_of(round, "step"));
        fgl_axis_include(&plot.y, number_of(round, "loss"));
    }
    if (plot.x.low >= plot.x.high)
        return; /* one round is no line */
    fgl_plot_finish(&plot);
    fgl_chart_begin(to, "loss by round", plot.bottom + 44, false);
    fgl_plot_frame(&plot);
    fgl_put_raw(to, "<path class=\"loss\" d=\"");
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *round = json_array_get(history, i);
        bool known = isfinite(number_of(round, "loss"));
        if (known)
            fgl_put(to, "%c%.1f %.1f", next, fgl_plot_x(&plot, number_of(round, "step")),
                    fgl_plot_y(&plot, number_of(round, "loss")));
        next = known ? 'L' : 'M';
    }
    fgl_put_raw(to, "\"/>\n");
    fgl_chart_end(to);
}

/* ---- clients ---- */

static void put_client(fgl_text *to, const json_t *c) {
    char up[32], down[32];
    fgl_put_raw(to, "<tr><th>");
    fgl_put_escaped(to, text_of(c, "name")[0] ? text_of(c, "name") : text_of(c, "key"));
    fgl_put_raw(to, "</th><td>");
    fgl_put_escaped(to, text_of(c, "state"));
    fgl_put(to, "</td><td>%llu</td><td>%llu</td><td>%llu</td><td>%llu</td><td>%llu</td><td>%s</td><td>%s</td>",
            fgp_status_count(c, "counted"), fgp_status_count(c, "late"), fgp_status_count(c, "limited"),
            fgp_status_refused(c), fgp_status_count(c, "examples"),
            fgio_bytes_text(fgp_status_count(c, "bytes_up"), up, sizeof up),
            fgio_bytes_text(fgp_status_count(c, "bytes_down"), down, sizeof down));
    if (fgp_status_count(c, "counted"))
        fgl_put(to, "<td>%.4g</td></tr>\n", number_of(c, "loss"));
    else
        fgl_put_raw(to, "<td></td></tr>\n");
}

static void put_clients(fgl_text *to, const json_t *clients) {
    fgl_put_raw(to,
                "<h2>Clients</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>client</th><th>state</th>"
                "<th>updates counted</th><th>late</th><th>limited</th><th>refused</th><th>examples</th><th>sent</th>"
                "<th>received</th><th>loss</th></tr></thead>\n<tbody>\n");
    for (size_t i = 0; i < json_array_size(clients); i++)
        put_client(to, json_array_get(clients, i));
    fgl_put_raw(to, "</tbody></table></div>\n");
}

char *fgp_status_page(const char *json) {
    json_t *status = json_loads(json, 0, NULL);
    fgl_text page = {0};
    if (!json_is_array(json_object_get(status, "clients"))) {
        json_decref(status);
        return NULL;
    }
    fgl_put_raw(&page, head);
    fgl_chart_page_style(&page, 0);
    fgl_put_raw(&page, style);
    fgl_put_raw(&page, "</style>\n</head>\n<body>\n<main>\n<h1>Federated run</h1>\n<p class=\"dim\">");
    fgl_put_escaped(&page, text_of(json_object_get(status, "job"), "model"));
    fgl_put(&page, ", %llu parameters; run ", fgp_status_count(status, "parameters"));
    fgl_put_escaped(&page, text_of(status, "run"));
    fgl_put_raw(&page, "</p>\n");
    put_numbers(&page, status);
    put_chart(&page, json_object_get(status, "history"));
    put_clients(&page, json_object_get(status, "clients"));
    fgl_put_raw(&page, "</main>\n</body>\n</html>\n");
    json_decref(status);
    if (page.failed) {
        fgl_text_free(&page);
        return NULL;
    }
    return page.data;
}
