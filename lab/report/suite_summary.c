/*
 * suite_summary.c - a suite in one table: methods down, tasks across, quality relative to dense; and the sentences that
 * name where FruGrad is worse. A spread is the method's own, in the same unit; that of dense is in its row.
 */
#include "lab/report/run_tables.h"

#include "lab/report/table_sheet.h"
#include "lab/report/conclusions.h"

#include <math.h>
#include <string.h>

enum { METHOD, DENSITY, BYTES, STATE, TASKS, MAX_TASKS = FGL_SHEET_COLUMNS - TASKS - 1 };

/** The panels of a suite and size that are the columns of one table. */
typedef struct group {
    const fgl_panel *panel[MAX_TASKS];
    size_t count;
} group;

static bool same_method(const fgl_cell *a, const fgl_cell *b) {
    return strcmp(a->first->method, b->first->method) == 0 && !(a->workers < b->workers || a->workers > b->workers);
}

static const fgl_cell *find(const fgl_panel *panel, const fgl_cell *like) {
    for (size_t i = 0; i < panel->count; i++)
        if (same_method(&panel->cell[i], like))
            return &panel->cell[i];
    return NULL;
}

/* ---- fields of a row ---------------------------------------------------------------------------------- */

typedef double (*getter)(const fgl_cell *cell);

static double get_density(const fgl_cell *cell) {
    return cell->density;
}

static double get_bytes(const fgl_cell *cell) {
    return cell->bytes_of_dense;
}

static double get_state(const fgl_cell *cell) {
    return cell->state_of_dense;
}

/* From the lowest to the highest value of all tasks: small tensors are sent dense, and their share depends on the
 * model. */
static void set_range(fgl_sheet *sheet, size_t column, const group *g, const fgl_cell *like, getter get) {
    double low = NAN, high = NAN;
    char from[32], to[32];
    for (size_t i = 0; i < g->count; i++) {
        const fgl_cell *cell = find(g->panel[i], like);
        double share = cell == NULL ? NAN : get(cell);
        low = fmin(low, share); /* fmin and fmax ignore NaN */
        high = fmax(high, share);
    }
    if (isnan(low))
        return;
    fgl_share_text(low, from, sizeof from);
    fgl_share_text(high, to, sizeof to);
    if (strcmp(from, to) == 0) {
        fgl_sheet_set(sheet, column, "%s", to);
        return;
    }
    from[strcspn(from, " ")] = '\0';
    fgl_sheet_set(sheet, column, "%s to %s", from, to);
}

static void set_quality(fgl_sheet *sheet, size_t column, const fgl_panel *panel, const fgl_cell *cell) {
    char value[48], runs[48] = "";
    if (isnan(cell->mean)) {
        fgl_sheet_set(sheet, column, "%s", cell->failed > 0 ? "failed" : "not yet");
        return;
    }
    if (cell->failed > 0)
        snprintf(runs, sizeof runs, " (%zu of %zu)", cell->seeds, cell->seeds + cell->failed);
    if (isnan(cell->of_dense))
        fgl_metric_text(panel->metric, cell->mean, value, sizeof value);
    else if (isnan(cell->sd))
        snprintf(value, sizeof value, "%.1f %%", 100 * cell->of_dense);
    else
        snprintf(value, sizeof value, "%.1f \xc2\xb1 %.1f %%", 100 * cell->of_dense,
                 100 * cell->of_dense * cell->sd / cell->mean);
    fgl_sheet_set(sheet, column, "%s%s", value, runs);
}

static void set_seeds(fgl_sheet *sheet, const group *g, const fgl_cell *like) {
    size_t least = SIZE_MAX, most = 0;
    for (size_t i = 0; i < g->count; i++) {
        const fgl_cell *cell = find(g->panel[i], like);
        if (cell == NULL)
            continue;
        least = cell->seeds < least ? cell->seeds : least;
        most = cell->seeds > most ? cell->seeds : most;
    }
    if (least == most)
        fgl_sheet_set(sheet, TASKS + g->count, "%zu", most);
    else
        fgl_sheet_set(sheet, TASKS + g->count, "%zu to %zu", least, most);
}

/* With the value of 100 %, if there is one dense run. */
static void name_task(const fgl_panel *panel, char *dst, size_t cap) {
    const fgl_cell *dense = NULL;
    size_t count = 0;
    char task[48], value[32];
    for (size_t i = 0; i < panel->count; i++)
        if (panel->cell[i].dense) {
            dense = &panel->cell[i];
            count++;
        }
    fgio_printable(panel->task, task, sizeof task);
    if (count == 1 && !isnan(dense->mean))
        snprintf(dst, cap, "%s (%s %s)", task, panel->metric,
                 fgl_metric_text(panel->metric, dense->mean, value, sizeof value));
    else
        snprintf(dst, cap, "%s (%s)", task, panel->metric);
}

/* ---- tables ------------------------------------------------------------------------------------------- */

static void add_row(fgl_sheet *sheet, const group *g, const fgl_cell *like) {
    fgl_sheet_row(sheet);
    fgl_sheet_set(sheet, METHOD, "%s", like->label);
    set_range(sheet, DENSITY, g, like, get_density);
    set_range(sheet, BYTES, g, like, get_bytes);
    set_range(sheet, STATE, g, like, get_state);
    for (size_t i = 0; i < g->count; i++) {
        const fgl_cell *cell = find(g->panel[i], like);
        if (cell != NULL)
            set_quality(sheet, TASKS + i, g->panel[i], cell);
    }
    set_seeds(sheet, g, like);
}

static void put_group(const group *g, fgl_table_style style, fgl_text *to) {
    char name[MAX_TASKS][FGL_SHEET_WORD];
    fgl_sheet sheet = {.head = {"method", "density", "bytes vs dense", "model state vs dense"},
                       .columns = TASKS + g->count + 1};
    for (size_t i = 0; i < g->count; i++) {
        name_task(g->panel[i], name[i], sizeof name[i]);
        sheet.head[TASKS + i] = name[i];
    }
    sheet.head[TASKS + g->count] = "seeds";
    for (size_t i = 0; i < g->count; i++)
        for (size_t k = 0; k < g->panel[i]->count; k++) {
            const fgl_cell *cell = &g->panel[i]->cell[k];
            bool known = false;
            for (size_t j = 0; j < i && !known; j++)
                known = find(g->panel[j], cell) != NULL;
            if (!known)
                add_row(&sheet, g, cell);
        }
    fgl_sheet_put(&sheet, style, to);
    fgl_sheet_free(&sheet);
}

static bool same_table(const fgl_panel *a, const fgl_panel *b) {
    return strcmp(a->suite, b->suite) == 0 && strcmp(a->size, b->size) == 0;
}

static bool is_first(const fgl_findings *f, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (same_table(&f->panel[k], &f->panel[i]))
            return false;
    return true;
}

static void put_title(const fgl_panel *panel, fgl_table_style style, fgl_text *to) {
    char text[200];
    fgl_put(to, "%s%s%s", to->len > 0 ? "\n" : "", style == FGL_TABLE_MARKDOWN ? "### " : "",
            fgio_printable(panel->suite, text, sizeof text));
    if (panel->size[0] != '\0')
        fgl_put(to, " (%s)", fgio_printable(panel->size, text, sizeof text));
    fgl_put_raw(to, "\n\n");
}

/* Tasks that do not fit continue in a further table. */
void fgl_summary_put(const fgl_findings *findings, fgl_table_style style, fgl_text *to) {
    for (size_t i = 0; i < findings->count; i++) {
        group g = {.count = 0};
        if (!is_first(findings, i))
            continue;
        put_title(&findings->panel[i], style, to);
        for (size_t k = i; k < findings->count; k++) {
            if (!same_table(&findings->panel[i], &findings->panel[k]))
                continue;
            if (g.count == MAX_TASKS) {
                put_group(&g, style, to);
                fgl_put_raw(to, "\n");
                g.count = 0;
            }
            g.panel[g.count++] = &findings->panel[k];
        }
        put_group(&g, style, to);
    }
}

/* ---- losses ------------------------------------------------------------------------------------------- */

typedef struct loss_writer {
    const fgl_panel *panel; /* NULL: its name has been written */
    fgl_table_style style;
    fgl_text *to;
} loss_writer;

static void put_loss(void *user, bool loss, const char *sentence) {
    loss_writer *c = user;
    if (!loss)
        return;
    if (c->panel != NULL) {
        fgl_put(c->to, "%s%s", c->to->len > 0 ? "\n" : "", c->style == FGL_TABLE_MARKDOWN ? "### " : "");
        fgl_panel_name(c->panel, c->to);
        fgl_put_raw(c->to, "\n\n");
        c->panel = NULL;
    }
    fgl_put_raw(c->to, "- ");
    fgl_put_plain(c->to, sentence, c->style == FGL_TABLE_MARKDOWN);
    fgl_put_raw(c->to, "\n");
}

void fgl_losses_put(const fgl_findings *findings, fgl_table_style style, fgl_text *to) {
    for (size_t i = 0; i < findings->count; i++) {
        loss_writer c = {&findings->panel[i], style, to};
        fgl_conclusions(&findings->panel[i], put_loss, &c);
    }
}
