/* run_tables.c - tables of recorded runs: columns, and the format of numbers. Unknown values are blank. */
#include "lab/report/run_tables.h"

#include "lab/report/table_sheet.h"

#include <math.h>
#include <string.h>

enum {
    METHOD,
    WORKERS,
    STEPS,
    RATE,
    VALUE,
    STATES,
    OPTIMIZER,
    OF_DENSE,
    DENSITY,
    BYTES_STEP,
    BYTES,
    OF_BYTES,
    STATE,
    STEP,
    SPEEDUP,
    SEEDS
};

const char *fgl_metric_text(const char *metric, double value, char *dst, size_t cap) {
    if (strcmp(metric, "accuracy") == 0)
        snprintf(dst, cap, "%.2f %%", 100 * value);
    else if (strcmp(metric, "correlation") == 0)
        snprintf(dst, cap, "%.4f", value);
    else
        snprintf(dst, cap, value < 1e6 ? "%.2f" : "%.3g", value);
    return dst;
}

static void set_value(fgl_sheet *sheet, const fgl_panel *panel, const fgl_cell *cell) {
    char mean[32], sd[32];
    if (isnan(cell->mean)) {
        fgl_sheet_set(sheet, VALUE, "%s", cell->failed > 0 ? "failed" : "not yet");
        return;
    }
    fgl_metric_text(panel->metric, cell->mean, mean, sizeof mean);
    if (isnan(cell->sd)) {
        fgl_sheet_set(sheet, VALUE, "%s", mean);
        return;
    }
    fgl_metric_text(panel->metric, cell->sd, sd, sizeof sd);
    mean[strcspn(mean, " ")] = '\0';
    fgl_sheet_set(sheet, VALUE, "%s \xc2\xb1 %s", mean, sd);
}

const char *fgl_share_text(double share, char *dst, size_t cap) {
    char text[32];
    if (share < 0.00995)
        snprintf(dst, cap, "%s %%", fgl_number_text(100 * share, 2, text, sizeof text));
    else
        snprintf(dst, cap, "%.1f %%", 100 * share);
    return dst;
}

static void set_share(fgl_sheet *sheet, size_t column, double share) {
    char text[32];
    if (!isnan(share))
        fgl_sheet_set(sheet, column, "%s", fgl_share_text(share, text, sizeof text));
}

static void set_bytes(fgl_sheet *sheet, size_t column, double bytes) {
    char text[32];
    if (bytes >= 0 && bytes <= 1e18)
        fgl_sheet_set(sheet, column, "%s", fgio_bytes_text((uint64_t)(bytes + 0.5), text, sizeof text));
}

/* Columns of the exchange. */
static void set_exchange(fgl_sheet *sheet, const fgl_cell *cell) {
    set_share(sheet, DENSITY, cell->density);
    set_bytes(sheet, BYTES_STEP, cell->bytes_step);
    set_bytes(sheet, BYTES, cell->bytes_total);
    set_share(sheet, OF_BYTES, cell->bytes_of_dense);
    set_share(sheet, STATE, cell->state_of_dense);
}

/* Columns of the optimizer state. States of a run that trains only the head have no effect and are not shown. */
static void set_states(fgl_sheet *sheet, const fgl_cell *cell) {
    if (strcmp(cell->first->method, "head") == 0)
        return;
    if (!isnan(cell->states))
        fgl_sheet_set(sheet, STATES, "%.0f", cell->states);
    set_bytes(sheet, OPTIMIZER, cell->optimizer_bytes);
}

/** Columns that are shown only if the methods of a panel differ in them. */
typedef struct shown_columns {
    bool workers, steps;
} shown_columns;

static bool differ(double a, double b) {
    return a < b || a > b;
}

static shown_columns find_differing_columns(const fgl_panel *panel) {
    shown_columns d = {false, false};
    for (size_t i = 1; i < panel->count; i++) {
        d.workers |= differ(panel->cell[i].workers, panel->cell[0].workers);
        d.steps |= differ(panel->cell[i].steps, panel->cell[0].steps);
    }
    return d;
}

static void add_cell(fgl_sheet *sheet, const fgl_panel *panel, const fgl_cell *cell, shown_columns shown) {
    char text[32];
    fgl_sheet_row(sheet);
    fgl_sheet_set(sheet, METHOD, "%s", cell->label);
    if (shown.workers && !isnan(cell->workers))
        fgl_sheet_set(sheet, WORKERS, "%.0f", cell->workers);
    if (shown.steps && !isnan(cell->steps))
        fgl_sheet_set(sheet, STEPS, "%.0f", cell->steps);
    if (!isnan(cell->rate))
        fgl_sheet_set(sheet, RATE, "%s%s", fgl_number_text(cell->rate, 3, text, sizeof text), cell->edge ? "*" : "");
    set_value(sheet, panel, cell);
    set_share(sheet, OF_DENSE, cell->of_dense);
    if (panel->tuned)
        set_states(sheet, cell);
    else
        set_exchange(sheet, cell);
    if (!isnan(cell->step_ms))
        fgl_sheet_set(sheet, STEP, "%.1f", cell->step_ms);
    if (!isnan(cell->speedup))
        fgl_sheet_set(sheet, SPEEDUP, "%.2f\xc3\x97 at %s", cell->speedup, cell->link);
    if (cell->failed > 0)
        fgl_sheet_set(sheet, SEEDS, "%zu of %zu", cell->seeds, cell->seeds + cell->failed);
    else
        fgl_sheet_set(sheet, SEEDS, "%zu", cell->seeds);
}

/* A note below a table. */
static void put_note(fgl_table_style style, const char *note, fgl_text *to) {
    fgl_put_raw(to, style == FGL_TABLE_HTML ? "<p class=\"dim\">" : "\n");
    fgl_put_plain(to, note, style == FGL_TABLE_MARKDOWN);
    fgl_put_raw(to, style == FGL_TABLE_HTML ? "</p>\n" : "\n");
}

static void put_notes(const fgl_panel *panel, fgl_table_style style, fgl_text *to) {
    char note[160];
    bool edge = false;
    for (size_t i = 0; i < panel->count; i++)
        edge |= panel->cell[i].edge;
    if (edge)
        put_note(style, "* the lowest or the highest that was tried was the best: a better one may lie beyond", to);
    if (panel->stale > 0) {
        snprintf(note, sizeof note, "%zu run%s left out: made by another command than the last of the same method",
                 panel->stale, panel->stale == 1 ? " is" : "s are");
        put_note(style, note, to);
    }
}

void fgl_table_panel(const fgl_panel *panel, fgl_table_style style, fgl_text *to) {
    fgl_sheet sheet = {.head = {"method", "workers", "steps", panel->tuned ? "rate or scale" : "rate", panel->metric,
                                "states", "optimizer bytes", panel->tuned ? "vs AdamW" : "vs dense", "density",
                                "bytes/step", "bytes sent", "bytes vs dense", "model state vs dense", "ms/step",
                                "speed-up", "seeds"},
                       .columns = SEEDS + 1};
    shown_columns shown = find_differing_columns(panel);
    for (size_t i = 0; i < panel->count; i++)
        add_cell(&sheet, panel, &panel->cell[i], shown);
    fgl_sheet_put(&sheet, style, to);
    put_notes(panel, style, to);
    fgl_sheet_free(&sheet);
}

bool fgl_table_speeds(const fgl_runs *runs, const char *suite, fgl_table_style style, fgl_text *to) {
    fgl_sheet sheet = {.head = {"method", "model", "workers", "link", "ms/step", "speed-up"},
                       .columns = 6,
                       .words = 1u << 1 | 1u << 3};
    for (size_t i = 0; i < runs->timings; i++) {
        const fgl_timing *t = &runs->timing[i];
        double speedup = fgl_speedup(runs, t);
        if (suite != NULL && strcmp(suite, t->suite) != 0)
            continue;
        fgl_sheet_row(&sheet);
        fgl_sheet_set(&sheet, 0, "%s", t->label);
        fgl_sheet_set(&sheet, 1, "%s", t->model);
        if (!isnan(t->workers))
            fgl_sheet_set(&sheet, 2, "%.0f", t->workers);
        fgl_sheet_set(&sheet, 3, "%s", t->link);
        fgl_sheet_set(&sheet, 4, "%.1f", t->step_ms);
        if (!isnan(speedup))
            fgl_sheet_set(&sheet, 5, "%.2f\xc3\x97", speedup);
    }
    bool any = sheet.rows > 0;
    if (any)
        fgl_sheet_put(&sheet, style, to);
    fgl_sheet_free(&sheet);
    return any;
}

void fgl_panel_name(const fgl_panel *panel, fgl_text *to) {
    char text[200];
    fgl_put(to, "%s", fgio_printable(panel->suite, text, sizeof text));
    if (panel->size[0] != '\0')
        fgl_put(to, " (%s)", fgio_printable(panel->size, text, sizeof text));
    fgl_put(to, ": %s", fgio_printable(panel->task, text, sizeof text));
}

void fgl_tables_put(const fgl_findings *findings, fgl_table_style style, fgl_text *to) {
    fgl_text speeds = {0};
    const char *mark = style == FGL_TABLE_MARKDOWN ? "### " : "";
    for (size_t i = 0; i < findings->count; i++) {
        fgl_put(to, "%s%s", i > 0 ? "\n" : "", mark);
        fgl_panel_name(&findings->panel[i], to);
        fgl_put_raw(to, "\n\n");
        fgl_table_panel(&findings->panel[i], style, to);
    }
    if (fgl_table_speeds(findings->runs, findings->suite, style, &speeds) && speeds.data != NULL)
        fgl_put(to, "%s%sStep times over a network\n\n%s", findings->count > 0 ? "\n" : "", mark, speeds.data);
    to->failed |= speeds.failed;
    fgl_text_free(&speeds);
}

int fgl_report_tables(const char *dir, fgl_run_filter *wanted, const void *user, FILE *out) {
    fgl_runs runs = {.wanted = wanted, .user = user};
    fgl_findings findings = {0};
    fgl_text text = {0};
    int status = fgl_runs_read(&runs, dir);
    if (status == FGIO_EXIT_OK)
        status = fgl_findings_make(&runs, NULL, &findings);
    if (status == FGIO_EXIT_OK) {
        fgl_tables_put(&findings, FGL_TABLE_PLAIN, &text);
        if (text.failed)
            status = fgio_error("out of memory");
        else if (text.len > 0)
            fwrite(text.data, 1, text.len, out);
    }
    fgl_text_free(&text);
    fgl_findings_free(&findings);
    fgl_runs_free(&runs);
    return status;
}
