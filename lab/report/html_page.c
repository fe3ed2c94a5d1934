/*
 * html_page.c - the report as one HTML page.
 *
 * It has no scripts and loads nothing over the network: its content security policy forbids both, so that even a label
 * that escaped the escaping could not run or fetch anything. Tables scroll inside their own box, charts shrink to the
 * width of a phone.
 */
#include "lab/report/html_page.h"

#include "lab/report/panel_charts.h"
#include "frugrad.h"
#include "lab/report/method_picker.h"
#include "lab/report/run_tables.h"
#include "lab/report/conclusions.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"referrer\" content=\"no-referrer\">\n<title>FruGrad: report</title>\n<style>\n";

static const char style[] =
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--bg);color:var(--ink);font:16px/1.5 system-ui,-apple-system,\"Segoe UI\",Roboto,"
    "\"DejaVu Sans\",sans-serif}\n"
    "main{max-width:1120px;margin:0 auto;padding:24px 16px 64px}\n"
    "h1{font-size:1.7rem;line-height:1.2;margin:0 0 4px}\nh2{font-size:1.25rem;margin:44px 0 8px;padding-top:14px;"
    "border-top:1px solid var(--grid);overflow-wrap:anywhere}\nh3{font-size:1rem;margin:0 0 6px}\n"
    ".dim,figcaption,footer{color:var(--dim);font-size:.875rem}\n"
    "dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:14px 0}\ndt{color:var(--dim)}\n"
    "dd{margin:0;overflow-wrap:anywhere}\n"
    "nav a{color:var(--c1);margin-right:16px;display:inline-block;padding:3px 0}\n"
    "ul{padding-left:1.2em;margin:10px 0 16px}\nli{margin:3px 0;overflow-wrap:anywhere}\n"
    "li.loss::marker{content:\"\xe2\x88\x92 \";color:var(--c2)}\nli.loss{color:var(--c2)}\n"
    ".scroll{overflow-x:auto;margin:12px 0;border:1px solid var(--grid);border-radius:6px}\n"
    "table{border-collapse:collapse;width:100%;font-size:.875rem;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:6px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}\n"
    "thead th{color:var(--dim);font-weight:600;vertical-align:bottom;white-space:normal;min-width:4.2em}\n"
    "tbody th{font-weight:600;position:sticky;left:0;background:var(--bg);max-width:20em;min-width:13em;"
    "white-space:normal;overflow-wrap:anywhere}\n"
    "th:first-child,.w{text-align:left}\ntbody tr:last-child>*{border-bottom:0}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:28px 32px;margin:22px "
    "0}\n"
    "figure{margin:0;min-width:0}\nsvg.chart{display:block;width:100%;max-width:540px;height:auto}\n"
    ".k{position:absolute;opacity:0;pointer-events:none}\n"
    ".pick{font-size:.8125rem;background:var(--bg);padding:8px 0 6px;border-bottom:1px solid var(--grid)}\n"
    ".pick p{margin:0;display:grid;grid-template-columns:9em 1fr}\n.pick span{display:flex;flex-wrap:wrap;gap:0 "
    "14px}\n.pick b{font-weight:400;color:var(--dim);padding:2px 0}\n"
    ".pick label{color:var(--dim);cursor:pointer;padding:2px 0;overflow-wrap:anywhere}\n"
    ".pick label:hover{color:var(--ink);--k:var(--c)}\n"
    ".pick i{display:inline-block;width:20px;margin-right:5px;vertical-align:middle;border-top:3px solid var(--k)}\n"
    ".pick .d1{border-top-style:dashed}\n.pick .d2{border-top-style:dotted}\n.pick .d3{border-top-style:double}\n"
    "details{margin:12px 0}\nsummary{cursor:pointer;color:var(--dim)}\n"
    "pre{overflow-x:auto;font-size:.8rem;padding:10px;border:1px solid var(--grid);border-radius:6px}\n"
    "@media (max-width:520px){main{padding:16px 12px 40px}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:6px}"
    "tbody th{max-width:10em;min-width:9.5em}.pick p{grid-template-columns:1fr}}\n"
    "@media (min-width:900px) and (min-height:700px){.pick{position:sticky;top:0;z-index:1}}\n"
    "@media print{.scroll{overflow:visible}}\n";

/* ---- the top ------------------------------------------------------------------------------------ */

static bool in_report(const fgl_findings *f, const fgl_run *run) {
    return !run->stale && (f->suite == NULL || strcmp(f->suite, run->suite) == 0);
}

static bool same_text(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_machine(const fgl_machine *a, const fgl_machine *b) {
    return same_text(a->cpu, b->cpu) && same_text(a->system, b->system) && same_text(a->version, b->version) &&
           same_text(a->commit, b->commit) && (isnan(a->cores) ? isnan(b->cores) : !(fabs(a->cores - b->cores) > 0));
}

static void put_machine(const fgl_machine *m, fgl_text *to) {
    fgl_put_escaped(to, m->cpu == NULL ? "unknown CPU" : m->cpu);
    if (!isnan(m->cores))
        fgl_put(to, ", %.0f core%s", m->cores, m->cores > 1 ? "s" : "");
    if (m->system != NULL) {
        fgl_put_raw(to, "; ");
        fgl_put_escaped(to, m->system);
    }
    fgl_put_raw(to, "; FruGrad ");
    fgl_put_escaped(to, m->version == NULL ? "of unknown version" : m->version);
    if (m->commit != NULL) {
        fgl_put_raw(to, " (");
        fgl_put_escaped(to, m->commit);
        fgl_put_raw(to, ")");
    }
}

static void put_machines(const fgl_findings *f, fgl_text *to) {
    size_t shown = 0;
    for (size_t i = 0; i < f->runs->count && shown < 8; i++) {
        const fgl_run *run = &f->runs->run[i];
        bool known = !in_report(f, run) || (run->machine.cpu == NULL && run->machine.version == NULL);
        for (size_t k = 0; k < i && !known; k++)
            known = in_report(f, &f->runs->run[k]) && same_machine(&f->runs->run[k].machine, &run->machine);
        if (known)
            continue;
        fgl_put_raw(to, shown++ > 0 ? "<br>" : "");
        put_machine(&run->machine, to);
    }
    fgl_put_raw(to, shown == 0 ? "not recorded" : "");
}

static void put_dates(const fgl_findings *f, fgl_text *to) {
    const char *first = NULL, *last = NULL;
    for (size_t i = 0; i < f->runs->count; i++) {
        const char *begun = f->runs->run[i].begun;
        if (begun == NULL || !in_report(f, &f->runs->run[i]))
            continue;
        first = first == NULL || strcmp(begun, first) < 0 ? begun : first;
        last = last == NULL || strcmp(begun, last) > 0 ? begun : last;
    }
    fgl_put_escaped(to, first == NULL ? "unknown" : first);
    if (last != NULL && strcmp(first, last) != 0) {
        fgl_put_raw(to, " to ");
        fgl_put_escaped(to, last);
    }
}

/* Seeds of test runs, each once. */
static void put_seeds(const fgl_findings *f, fgl_text *to) {
    size_t shown = 0;
    for (size_t i = 0; i < f->runs->count; i++) {
        const fgl_run *run = &f->runs->run[i];
        bool known = !run->test || !in_report(f, run);
        for (size_t k = 0; k < i && !known; k++)
            known = f->runs->run[k].test && in_report(f, &f->runs->run[k]) && f->runs->run[k].seed == run->seed;
        if (known)
            continue;
        if (shown++ == 20) {
            fgl_put_raw(to, ", \xe2\x80\xa6");
            return;
        }
        fgl_put(to, "%s%" PRIu64, shown > 1 ? ", " : "", run->seed);
    }
    fgl_put_raw(to, shown == 0 ? "none yet" : "");
}

static void put_counts(const fgl_findings *f, fgl_text *to) {
    size_t tune = 0, test = 0, failed = 0;
    for (size_t i = 0; i < f->runs->count; i++) {
        const fgl_run *run = &f->runs->run[i];
        if (!in_report(f, run))
            continue;
        tune += !run->test;
        test += run->test;
        failed += isnan(run->value) ? 1 : 0;
    }
    fgl_put(to, "%zu to search for learning rates, %zu to test; %zu diverged or failed", tune, test, failed);
}

static void put_compared(const fgl_findings *f, fgl_text *to) {
    for (size_t i = 0; i < f->count; i++) {
        fgl_text name = {0};
        fgl_panel_name(&f->panel[i], &name);
        fgl_put_raw(to, i > 0 ? "<br>" : "");
        fgl_put_escaped(to, name.data == NULL ? "" : name.data);
        fgl_put(to, ", %zu methods", f->panel[i].count);
        fgl_text_free(&name);
    }
}

/* Which learning rates were used: not all runs have searched for them. */
static void put_rates(const fgl_findings *f, fgl_text *to) {
    size_t searched = 0, count = 0;
    for (size_t i = 0; i < f->count; i++)
        for (size_t k = 0; k < f->panel[i].count; k++, count++)
            searched += f->panel[i].cell[k].tune_runs > 0;
    if (searched == 0)
        fgl_put_raw(to, "Learning rates were not searched: each method ran at the rate in its row, the default or "
                        "the one given.");
    else if (searched == count)
        fgl_put_raw(to, "Each method ran at the learning rate that did best in its search.");
    else
        fgl_put_raw(to, "Methods whose learning rate was searched ran at the best one, the others at the default or "
                        "the one given.");
}

static void put_top(const fgl_findings *f, fgl_text *to) {
    fgl_put_raw(to, "<h1>FruGrad: comparison of methods</h1>\n<p class=\"dim\">Numbers are means over the test seeds, "
                    "\xc2\xb1 one standard deviation; without \xc2\xb1 there is one seed. ");
    put_rates(f, to);
    fgl_put_raw(to,
                " Bytes are those that one worker sends. <b>vs dense</b>: accuracy divided by dense accuracy, or "
                "dense perplexity divided by perplexity; above 100 % is better than dense. A percentage in a "
                "method\xe2\x80\x99s name is its sparsity, the share of gradient entries not sent in a step, unless "
                "it says \xe2\x80\x9csent\xe2\x80\x9d. <b>Density</b>: the share sent; small tensors are always sent "
                "whole.</p>\n<dl>\n<dt>Compared</dt><dd>");
    put_compared(f, to);
    fgl_put_raw(to, "</dd>\n<dt>Machine</dt><dd>");
    put_machines(f, to);
    fgl_put_raw(to, "</dd>\n<dt>Runs</dt><dd>");
    put_counts(f, to);
    fgl_put_raw(to, "</dd>\n<dt>Begun</dt><dd>");
    put_dates(f, to);
    fgl_put_raw(to, "</dd>\n<dt>Test seeds</dt><dd>");
    put_seeds(f, to);
    fgl_put_raw(to, "</dd>\n</dl>\n");
}

/* ---- panels --------------------------------------------------------------------------------------- */

/** A list of sentences; those after the first ones are folded. */
typedef struct list {
    fgl_text *to;
    size_t count;
} list;

enum { SENTENCES = 10 };

static void put_sentence(void *user, bool loss, const char *sentence) {
    list *l = user;
    if (l->count++ == SENTENCES)
        fgl_put_raw(l->to, "</ul>\n<details><summary>More of these</summary>\n<ul class=\"verdict\">\n");
    fgl_put_raw(l->to, loss ? "<li class=\"loss\">" : "<li>");
    fgl_put_escaped(l->to, sentence);
    fgl_put_raw(l->to, "</li>\n");
}

static void put_conclusions(const fgl_panel *panel, fgl_text *to) {
    list l = {to, 0};
    fgl_put_raw(to, "<ul class=\"verdict\">\n");
    fgl_conclusions(panel, put_sentence, &l);
    fgl_put_raw(to, l.count > SENTENCES ? "</ul></details>\n" : "</ul>\n");
}

static int put_chart(void *user, const fgl_panel *panel, const fgl_chart *chart) {
    fgl_text *to = user;
    (void)panel;
    fgl_put_raw(to, "<figure><h3>");
    fgl_put_escaped(to, chart->title);
    fgl_put_raw(to, "</h3>\n");
    fgl_put_raw(to, chart->svg.data);
    if (chart->note[0] != '\0') {
        fgl_put_raw(to, "<figcaption>");
        fgl_put_escaped(to, chart->note);
        fgl_put_raw(to, "</figcaption>");
    }
    fgl_put_raw(to, "</figure>\n");
    return FGIO_EXIT_OK;
}

/* The number of search runs, which decides whether the comparison is fair. */
static void put_search_runs(const fgl_panel *panel, fgl_text *to) {
    size_t least = SIZE_MAX, most = 0;
    for (size_t i = 0; i < panel->count; i++) {
        least = panel->cell[i].tune_runs < least ? panel->cell[i].tune_runs : least;
        most = panel->cell[i].tune_runs > most ? panel->cell[i].tune_runs : most;
    }
    fgl_put_raw(to, "<p class=\"dim\">Learning rates: ");
    if (most == 0)
        fgl_put_raw(to, "not searched; each run used the default rate or the one given");
    else if (least == most)
        fgl_put(to, "searched with %zu runs for every method", most);
    else
        fgl_put(to, "searched with %zu to %zu runs, not as many for every method", least, most);
    fgl_put_raw(to, ".</p>\n");
}

static void put_commands(const fgl_findings *f, const fgl_panel *panel, fgl_text *to) {
    fgl_put_raw(to, "<details><summary>Commands of the first test run of each method</summary><pre>");
    for (size_t c = 0; c < panel->count; c++)
        for (size_t i = 0; i < f->runs->count; i++) {
            const fgl_run *run = &f->runs->run[i];
            if (!fgl_run_counts(&panel->cell[c], run) || run->command == NULL)
                continue;
            fgl_put_escaped(to, run->command);
            fgl_put_raw(to, "\n");
            break;
        }
    fgl_put_raw(to, "</pre></details>\n");
}

static int put_panel(const fgl_findings *f, size_t i, fgl_text *to) {
    const fgl_panel *panel = &f->panel[i];
    fgl_text name = {0};
    fgl_panel_name(panel, &name);
    fgl_put(to, "<section id=\"p%zu\">\n<h2>", i + 1);
    fgl_put_escaped(to, name.data == NULL ? "" : name.data);
    fgl_put_raw(to, "</h2>\n");
    fgl_text_free(&name);
    put_conclusions(panel, to);
    fgl_table_panel(panel, FGL_TABLE_HTML, to);
    put_search_runs(panel, to);
    fgl_put_raw(to,
                "<p class=\"dim\">Charts: click a method below to highlight it or to turn it gray; point at a line or "
                "a mark for its name and numbers.</p>\n");
    fgl_picker_put(panel, i + 1, to);
    fgl_put_raw(to, "<div class=\"charts\">\n");
    int status = fgl_charts(f, panel, false, put_chart, to);
    fgl_put_raw(to, "</div>\n");
    put_commands(f, panel, to);
    fgl_put_raw(to, "</section>\n");
    return status;
}

static void put_speeds(const fgl_findings *f, fgl_text *to) {
    fgl_text table = {0};
    if (fgl_table_speeds(f->runs, f->suite, FGL_TABLE_HTML, &table) && table.data != NULL) {
        fgl_put_raw(to,
                    "<section id=\"speeds\">\n<h2>Step times over a network</h2>\n<p class=\"dim\">Medians; speed-up "
                    "is the dense step over this one, at the same link.</p>\n");
        fgl_put_raw(to, table.data);
        fgl_put_raw(to, "</section>\n");
    }
    to->failed |= table.failed;
    fgl_text_free(&table);
}

static void put_contents(const fgl_findings *f, fgl_text *to) {
    if (f->count < 2)
        return;
    fgl_put_raw(to, "<nav>");
    for (size_t i = 0; i < f->count; i++) {
        fgl_text name = {0};
        fgl_panel_name(&f->panel[i], &name);
        fgl_put(to, "<a href=\"#p%zu\">", i + 1);
        fgl_put_escaped(to, name.data == NULL ? "" : name.data);
        fgl_put_raw(to, "</a>\n");
        fgl_text_free(&name);
    }
    fgl_put_raw(to, "</nav>\n");
}

int fgl_page(const fgl_findings *findings, fgl_text *to) {
    int status = FGIO_EXIT_OK;
    size_t most = 0;
    for (size_t i = 0; i < findings->count; i++)
        most = findings->panel[i].count > most ? findings->panel[i].count : most;
    most = most < FGL_MAX_SERIES ? most : FGL_MAX_SERIES;
    fgl_put_raw(to, head);
    fgl_chart_page_style(to, most);
    fgl_put_raw(to, style);
    fgl_put_raw(to, "</style>\n</head>\n<body>\n<main>\n");
    put_top(findings, to);
    put_contents(findings, to);
    for (size_t i = 0; i < findings->count && status == FGIO_EXIT_OK; i++)
        status = put_panel(findings, i, to);
    put_speeds(findings, to);
    fgl_put(to, "<footer><p>Made by frugrad report, version %s.</p></footer>\n</main>\n</body>\n</html>\n",
            frug_version());
    return status;
}
