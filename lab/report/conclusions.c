/*
 * conclusions.c - sentences about the results of a panel.
 *
 * Every sentence has its condition. Two means count as the same if they differ by less than the larger of the two
 * standard deviations; with one seed nothing does, and the sentence says so.
 */
#include "lab/report/conclusions.h"

#include "lab/report/run_tables.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double spread_of(const fgl_cell *a, const fgl_cell *b) {
    return fmax(isnan(a->sd) ? 0 : a->sd, isnan(b->sd) ? 0 : b->sd);
}

/* How much better a is than b; negative if it is worse. */
static double lead(const fgl_panel *panel, const fgl_cell *a, const fgl_cell *b) {
    return fgl_metric_up(panel->metric) ? a->mean - b->mean : b->mean - a->mean;
}

/* The cost that a method reduces: bytes sent, or bytes of optimizer state. */
static double cost_of(const fgl_panel *panel, const fgl_cell *cell) {
    return panel->tuned ? cell->optimizer_bytes : cell->bytes_total;
}

static const char *base_name(const fgl_panel *panel) {
    return panel->tuned ? "AdamW" : "dense";
}

static const char *cost_name(const fgl_panel *panel) {
    return panel->tuned ? "optimizer\xe2\x80\x99s bytes" : "bytes";
}

static void put_vs_dense(const fgl_panel *panel, const fgl_cell *cell, fgl_text *to) {
    char text[64], other[64];
    const fgl_cell *dense = fgl_dense_of(panel, cell);
    fgl_put(to, "%s: ", cell->label);
    if (isnan(cell->mean)) {
        fgl_put(to, cell->failed > 0 ? "diverged or failed in every run" : "no test run yet");
        return;
    }
    if (!isnan(cell->of_dense))
        fgl_put(to, "%.1f %% of %s", 100 * cell->of_dense, base_name(panel));
    else
        fgl_put(to, "%s", panel->metric);
    fgl_put(to, " (%s", fgl_metric_text(panel->metric, cell->mean, text, sizeof text));
    if (dense != NULL && !isnan(dense->mean))
        fgl_put(to, " against %s", fgl_metric_text(panel->metric, dense->mean, other, sizeof other));
    if (dense != NULL && fabs(lead(panel, cell, dense)) < spread_of(cell, dense))
        fgl_put_raw(to, ", within the spread of the seeds");
    fgl_put_raw(to, ")");
    double share = !panel->tuned   ? cell->bytes_of_dense
                   : dense == NULL ? NAN
                                   : cell->optimizer_bytes / dense->optimizer_bytes;
    if (!isnan(share))
        fgl_put(to, " at %s of the %s", fgl_share_text(share, text, sizeof text), cost_name(panel));
    if (!isnan(cell->speedup))
        fgl_put(to, ", %.2f times as fast at %s", cell->speedup, cell->link);
    if (cell->failed > 0)
        fgl_put(to, "; %zu of %zu runs diverged or failed", cell->failed, cell->failed + cell->seeds);
}

/* A method that is better for no more bytes. */
static const fgl_cell *better_method(const fgl_panel *panel, const fgl_cell *cell) {
    const fgl_cell *best = NULL;
    for (size_t i = 0; i < panel->count; i++) {
        const fgl_cell *other = &panel->cell[i];
        if (other->dense || other->ours || other->workers < cell->workers || other->workers > cell->workers ||
            !(cost_of(panel, other) <= cost_of(panel, cell)) || !(lead(panel, other, cell) > spread_of(cell, other)))
            continue;
        if (best == NULL || lead(panel, other, best) > 0)
            best = other;
    }
    return best;
}

static void emit_sentence(fgl_text *sentence, bool loss, fgl_sentence_fn emit, void *user) {
    if (!sentence->failed && sentence->len > 0)
        emit(user, loss, sentence->data);
    fgl_text_free(sentence);
}

static void emit_losses(const fgl_panel *panel, const fgl_cell *cell, fgl_sentence_fn emit, void *user) {
    fgl_text s = {0};
    char text[64], other[64];
    const fgl_cell *rival = better_method(panel, cell), *dense = fgl_dense_of(panel, cell);
    if (rival != NULL) {
        fgl_put(&s, "%s loses to \xe2\x80\x9c%s\xe2\x80\x9d, which reaches %s instead of %s", cell->label, rival->label,
                fgl_metric_text(panel->metric, rival->mean, text, sizeof text),
                fgl_metric_text(panel->metric, cell->mean, other, sizeof other));
        fgl_put(&s, " with %s of its %s",
                fgl_share_text(cost_of(panel, rival) / cost_of(panel, cell), text, sizeof text), cost_name(panel));
        emit_sentence(&s, true, emit, user);
    }
    if (dense != NULL && lead(panel, dense, cell) > spread_of(cell, dense)) {
        fgl_put(&s, "%s is behind %s%s: %s instead of %s", cell->label, base_name(panel),
                spread_of(cell, dense) > 0 ? " by more than the spread" : "",
                fgl_metric_text(panel->metric, cell->mean, text, sizeof text),
                fgl_metric_text(panel->metric, dense->mean, other, sizeof other));
        fgl_put_raw(&s, spread_of(cell, dense) > 0 ? "" : " (too few seeds to know the spread)");
        emit_sentence(&s, true, emit, user);
    }
    if (dense != NULL && cell->step_ms > 1.05 * dense->step_ms) {
        fgl_put(&s, "%s: a step takes %.2f times as long as with %s on this machine, without a network", cell->label,
                cell->step_ms / dense->step_ms, base_name(panel));
        emit_sentence(&s, true, emit, user);
    }
    if (cell->state_of_dense > 1.02) {
        fgl_put(&s, "%s keeps %.0f %% of %s\xe2\x80\x99s model state in memory", cell->label,
                100 * cell->state_of_dense, base_name(panel));
        emit_sentence(&s, true, emit, user);
    }
}

void fgl_conclusions(const fgl_panel *panel, fgl_sentence_fn emit, void *user) {
    bool ours = false;
    for (size_t i = 0; i < panel->count; i++)
        ours |= panel->cell[i].ours;
    for (int losses = 0; losses < 2; losses++)
        for (size_t i = 0; i < panel->count; i++) {
            const fgl_cell *cell = &panel->cell[i];
            fgl_text s = {0};
            if (cell->dense || (ours && !cell->ours))
                continue;
            if (losses) {
                emit_losses(panel, cell, emit, user);
                continue;
            }
            put_vs_dense(panel, cell, &s);
            emit_sentence(&s, false, emit, user);
        }
}
