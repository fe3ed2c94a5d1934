/*
 * panel_charts.c - the charts of a panel.
 *
 * Suites that vary one quantity (workers, density) get lines over that quantity, with the methods of one stem
 * (topk-0.9, topk-0.99) as one line, and so does fine-tuning (states); all others get quality over bytes, losses,
 * times, memory and densities of layers.
 */
#include "lab/report/panel_charts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEATS = 6, MAX_POINTS = 64 };

typedef struct drawing {
    const fgl_findings *findings;
    const fgl_panel *panel;
    fgl_series *series;
    size_t count;
    fgl_line *line;  /* count of them */
    char title[300]; /* of the current chart */
    bool standalone;
    fgl_chart_fn emit;
    void *user;
    int status;
} drawing;

/* Pass a chart to the callback if something was drawn, and free it. */
static void emit_chart(drawing *d, fgl_chart *chart, bool drawn) {
    if (chart->svg.failed)
        d->status = fgio_error("out of memory");
    else if (drawn && d->status == FGIO_EXIT_OK)
        d->status = d->emit(d->user, d->panel, chart);
    fgl_text_free(&chart->svg);
}

/* The title of a chart: a standalone file has no heading with the task. */
static const char *title_of(drawing *d, const char *title) {
    if (d->standalone)
        snprintf(d->title, sizeof d->title, "%.100s: %.180s", d->panel->task, title);
    else
        snprintf(d->title, sizeof d->title, "%s", title);
    return d->title;
}

/* ---- curves -------------------------------------------------------------------------------------- */

typedef enum { OVER_BYTES, OVER_SECONDS } over;

static void draw_curves(drawing *d, const char *kind, const char *title, bool evals, over what) {
    fgl_chart chart = {.kind = kind, .title = title, .note = ""};
    size_t count = 0;
    fgl_axis x = {.title = what == OVER_BYTES ? "bytes sent by one worker" : "training time (s)",
                  .log = what == OVER_BYTES,
                  .unit = what == OVER_BYTES ? FGL_UNIT_BYTES : FGL_UNIT_PLAIN,
                  FGL_AXIS_EMPTY};
    fgl_axis y = {.title = "training loss", FGL_AXIS_EMPTY};
    if (evals)
        y = fgl_metric_axis(d->panel->metric);
    for (size_t i = 0; i < d->count; i++) {
        fgl_curve curve;
        if (fgl_curve_mean(d->findings->runs, d->series[i].first, evals, &curve) != 0)
            continue;
        d->line[count++] = (fgl_line){.series = &d->series[i],
                                      .count = curve.count,
                                      .x = what == OVER_BYTES ? curve.bytes : curve.seconds,
                                      .y = curve.value,
                                      .owned = curve.step};
    }
    emit_chart(d, &chart, fgl_draw_lines(&chart.svg, title_of(d, title), x, y, d->line, count, d->standalone));
    for (size_t k = 0; k < count; k++)
        free(d->line[k].owned);
}

/* ---- methods of one stem as a line ------------------------------------------------------------------ */

typedef double (*getter)(const fgl_cell *cell);

static double get_workers(const fgl_cell *cell) {
    return cell->workers;
}

static double get_rate(const fgl_cell *cell) {
    return cell->step_ms > 0 ? 1000 / cell->step_ms : NAN;
}

static double get_bytes_step(const fgl_cell *cell) {
    return cell->bytes_step;
}

static double get_bytes(const fgl_cell *cell) {
    return cell->bytes_total;
}

static double get_mean(const fgl_cell *cell) {
    return cell->mean;
}

static double get_sparsity(const fgl_cell *cell) {
    return cell->density > 0 ? 1 / cell->density : NAN;
}

static double get_states(const fgl_cell *cell) {
    return cell->states;
}

static double get_optimizer(const fgl_cell *cell) {
    return cell->optimizer_bytes;
}

typedef struct point {
    double x, y, sd;
} point;

static int compare_x(const void *a, const void *b) {
    const point *p = a, *q = b;
    return (p->x > q->x) - (p->x < q->x);
}

static bool gather_line(const fgl_panel *panel, const fgl_series *series, getter x, getter y, fgl_line *line) {
    point points[MAX_POINTS];
    size_t count = 0;
    for (size_t i = 0; i < panel->count && count < MAX_POINTS; i++) {
        const fgl_cell *cell = &panel->cell[i];
        if (fgl_same_stem(series->first, cell) && !isnan(x(cell)) && !isnan(y(cell)))
            points[count++] = (point){x(cell), y(cell), y == get_mean ? cell->sd : NAN};
    }
    double *numbers = calloc(3 * count + 1, sizeof *numbers);
    if (numbers == NULL || count == 0) {
        free(numbers);
        return false;
    }
    qsort(points, count, sizeof *points, compare_x);
    for (size_t i = 0; i < count; i++) {
        numbers[i] = points[i].x;
        numbers[count + i] = points[i].y;
        numbers[2 * count + i] = points[i].sd;
    }
    *line = (fgl_line){.series = series,
                       .count = count,
                       .x = numbers,
                       .y = numbers + count,
                       .sd = numbers + 2 * count,
                       .marks = true,
                       .tuned = panel->tuned,
                       .owned = numbers};
    return true;
}

/* A method without a value on the x-axis is a horizontal line: dense in charts over sparsity, the head alone in charts
 * over states. */
static bool is_level(const fgl_panel *panel, const fgl_cell *cell, getter x) {
    return panel->tuned ? strcmp(cell->first->method, "head") == 0 : x == get_sparsity && cell->dense;
}

static void extend_level(fgl_line *line, size_t count, fgl_line *level) {
    double low = 1e300, high = 0;
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < line[k].count && &line[k] != level; i++) {
            low = fmin(low, line[k].x[i]);
            high = fmax(high, line[k].x[i]);
        }
    double *numbers = calloc(4, sizeof *numbers);
    if (numbers == NULL || low > high || level->count != 1) {
        free(numbers);
        return;
    }
    numbers[0] = low;
    numbers[1] = high;
    numbers[2] = numbers[3] = level->y[0];
    free(level->owned);
    *level = (fgl_line){
        .series = level->series, .count = 2, .x = numbers, .y = numbers + 2, .tuned = level->tuned, .owned = numbers};
}

static void draw_stems(drawing *d, const char *kind, const char *title, getter get_x, getter get_y, fgl_axis x,
                       fgl_axis y) {
    fgl_chart chart = {.kind = kind, .title = title, .note = ""};
    fgl_line *level = NULL;
    size_t count = 0;
    for (size_t i = 0; i < d->count; i++)
        if (gather_line(d->panel, &d->series[i], get_x, get_y, &d->line[count])) {
            level = is_level(d->panel, d->series[i].first, get_x) ? &d->line[count] : level;
            count++;
        }
    if (level != NULL)
        extend_level(d->line, count, level);
    emit_chart(d, &chart, fgl_draw_lines(&chart.svg, title_of(d, title), x, y, d->line, count, d->standalone));
    for (size_t k = 0; k < count; k++)
        free(d->line[k].owned);
}

/* ---- panels -------------------------------------------------------------------------------------------- */

static fgl_axis workers_axis(const fgl_panel *panel) {
    fgl_axis axis = {.title = "workers", .log = true, FGL_AXIS_EMPTY};
    for (double workers = 1; workers <= 1 << 20; workers *= 2)
        for (size_t i = 0; i < panel->count && axis.ticks < FGL_TICKS; i++)
            if (fabs(panel->cell[i].workers - workers) < 0.5) {
                axis.tick[axis.ticks++] = workers;
                break;
            }
    return axis;
}

static void draw_scaling(drawing *d) {
    fgl_axis x = workers_axis(d->panel), rate = {.title = "steps per second", FGL_AXIS_EMPTY, .log = true};
    fgl_axis bytes = {.title = "bytes per step and worker", .log = true, .unit = FGL_UNIT_BYTES, FGL_AXIS_EMPTY};
    draw_stems(d, "scaling-rate", "Step rate against workers", get_workers, get_rate, x, rate);
    draw_stems(d, "scaling-bytes", "Bytes sent by one worker in a step, against workers", get_workers, get_bytes_step,
               x, bytes);
    draw_stems(d, "scaling-quality", "Quality against workers", get_workers, get_mean, x,
               fgl_metric_axis(d->panel->metric));
}

static void draw_sparsity(drawing *d) {
    fgl_axis x = {.title = "sparsity: share of gradient entries not sent",
                  .log = true,
                  .unit = FGL_UNIT_SPARSITY,
                  FGL_AXIS_EMPTY};
    fgl_axis bytes = {.title = "bytes sent by one worker", .log = true, .unit = FGL_UNIT_BYTES, FGL_AXIS_EMPTY};
    fgl_axis y = fgl_metric_axis(d->panel->metric);
    draw_stems(d, "sparsity", "Quality against sparsity", get_sparsity, get_mean, x, y);
    draw_stems(d, "quality-bytes", "Quality against bytes", get_bytes, get_mean, bytes, y);
}

static void draw_states(drawing *d) {
    fgl_axis states = {.title = "optimizer states kept", .log = true, FGL_AXIS_EMPTY};
    fgl_axis bytes = {.title = "bytes of the optimizer", .log = true, .unit = FGL_UNIT_BYTES, FGL_AXIS_EMPTY};
    fgl_axis y = fgl_metric_axis(d->panel->metric);
    draw_stems(d, "states", "Quality against states", get_states, get_mean, states, y);
    draw_stems(d, "optimizer-bytes", "Quality against the optimizer\xe2\x80\x99s bytes", get_optimizer, get_mean, bytes,
               y);
}

static void draw_heats(drawing *d) {
    int drawn = 0;
    for (size_t i = 0; i < d->panel->count && drawn < MAX_HEATS && d->status == FGIO_EXIT_OK; i++) {
        const fgl_cell *cell = &d->panel->cell[i];
        const fgl_layers *layers = NULL;
        for (size_t k = 0; k < d->findings->runs->count && layers == NULL; k++)
            if (fgl_run_counts(cell, &d->findings->runs->run[k]) && d->findings->runs->run[k].layers.moments > 0)
                layers = &d->findings->runs->run[k].layers;
        if (layers == NULL || cell->dense)
            continue;
        char title[300], kind[32];
        snprintf(title, sizeof title, "Density of each layer: %.200s", cell->label);
        snprintf(kind, sizeof kind, "layers-%d", ++drawn);
        fgl_chart chart = {.kind = kind, .title = title, .note = ""};
        emit_chart(d, &chart, fgl_draw_layers(&chart.svg, title_of(d, title), layers, d->standalone));
    }
}

static void draw_default(drawing *d) {
    fgl_chart points = {.kind = "quality-bytes",
                        .title = "Final quality against bytes",
                        .note = "Vertical bars: \xc2\xb1 one standard deviation over the seeds."};
    emit_chart(
        d, &points,
        fgl_draw_points(&points.svg, title_of(d, points.title), d->panel->metric, d->series, d->count, d->standalone));
    draw_curves(d, "quality-bytes-curves", "Quality against bytes, while training", true, OVER_BYTES);
    draw_curves(d, "loss-bytes", "Loss against bytes", false, OVER_BYTES);
    draw_curves(d, "loss-time", "Loss against time", false, OVER_SECONDS);
    fgl_chart times = {
        .kind = "time",
        .title = "Where a step\xe2\x80\x99s time goes (ms)",
        .note = "Upper bar: the training thread. Lower bar: exchange and optimizer, which may go on at the same time. "
                "At the end: the median step, as in the table."};
    emit_chart(d, &times, fgl_draw_times(&times.svg, title_of(d, times.title), d->panel, d->standalone));
    fgl_chart memory = {.kind = "memory", .title = "Model-state memory, in % of dense", .note = "Dashed: dense."};
    emit_chart(d, &memory, fgl_draw_memory(&memory.svg, title_of(d, memory.title), d->panel, d->standalone));
    draw_heats(d);
}

int fgl_charts(const fgl_findings *findings, const fgl_panel *panel, bool standalone, fgl_chart_fn emit, void *user) {
    drawing d = {.findings = findings, .panel = panel, .standalone = standalone, .emit = emit, .user = user};
    d.count = fgl_series_make(panel, &d.series);
    d.line = calloc(d.count + 1, sizeof *d.line);
    if (d.series == NULL || d.line == NULL)
        d.status = fgio_error("out of memory");
    else if (strcmp(panel->suite, "sparsity") == 0)
        draw_sparsity(&d);
    else if (panel->tuned)
        draw_states(&d);
    else if (fgl_workers_vary(panel))
        draw_scaling(&d);
    else
        draw_default(&d);
    free(d.series);
    free(d.line);
    return d.status;
}
