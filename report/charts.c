/*
 * Which charts a panel gets. Suites that change one thing (workers, density) get lines over that thing, with the
 * methods of one stem (topk-0.9, topk-0.99) as one line, and so does fine-tuning (states); all others get quality over
 * bytes, losses, times, memory and densities of layers. More lines than can be told apart are not drawn; the table has
 * them all.
 */
#include "charts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES_MOST = 24, HEATS_MOST = 6, POINTS_MOST = 64 };

typedef struct desk {
    const frugi_findings *findings;
    const frugi_panel *panel;
    bool alone;
    frugi_chart_taker take;
    void *user;
    int status;
} desk;

/* Hand a chart over if something was drawn, and drop it. */
static void hand_over(desk *d, frugi_chart *chart, bool drawn) {
    if (chart->svg.failed)
        d->status = frugi_error("out of memory");
    else if (drawn && d->status == FRUGI_EXIT_OK)
        d->status = d->take(d->user, d->panel, chart);
    frugi_text_free(&chart->svg);
}

/* ---- curves -------------------------------------------------------------------------------------- */

typedef enum { OVER_BYTES, OVER_SECONDS } over;

static void draw_curves(desk *d, const char *kind, const char *title, bool evals, over what) {
    frugi_chart chart = {.kind = kind, .title = title, .note = ""};
    frugi_line line[LINES_MOST];
    size_t count = 0;
    frugi_axis x = {.title = what == OVER_BYTES ? "bytes sent by one worker" : "seconds",
                    .log = what == OVER_BYTES,
                    .unit = what == OVER_BYTES ? FRUGI_UNIT_BYTES : FRUGI_UNIT_PLAIN,
                    FRUGI_AXIS_EMPTY};
    frugi_axis y = {.title = "training loss", FRUGI_AXIS_EMPTY};
    if (evals)
        y = frugi_metric_axis(d->panel->metric);
    for (size_t i = 0; i < d->panel->count && count < LINES_MOST; i++) {
        const frugi_cell *cell = &d->panel->cell[i];
        frugi_curve curve;
        if (frugi_curve_mean(d->findings->runs, cell, evals, &curve) != 0)
            continue;
        line[count++] = (frugi_line){cell->label,
                                     strlen(cell->label),
                                     i,
                                     curve.count,
                                     what == OVER_BYTES ? curve.bytes : curve.seconds,
                                     curve.value,
                                     NULL,
                                     false,
                                     curve.step};
    }
    if (d->panel->count > LINES_MOST)
        chart.note = "The first methods of the table; there is no room for all.";
    hand_over(d, &chart, frugi_draw_lines(&chart.svg, title, x, y, line, count, d->alone));
    for (size_t k = 0; k < count; k++)
        free(line[k].owned);
}

/* ---- methods of one stem as a line ------------------------------------------------------------------ */

typedef double (*getter)(const frugi_cell *cell);

static double get_workers(const frugi_cell *cell) {
    return cell->workers;
}

static double get_rate(const frugi_cell *cell) {
    return cell->step_ms > 0 ? 1000 / cell->step_ms : NAN;
}

static double get_bytes_step(const frugi_cell *cell) {
    return cell->bytes_step;
}

static double get_bytes(const frugi_cell *cell) {
    return cell->bytes_total;
}

static double get_mean(const frugi_cell *cell) {
    return cell->mean;
}

static double get_held(const frugi_cell *cell) {
    return cell->density > 0 ? 1 / cell->density : NAN;
}

static double get_states(const frugi_cell *cell) {
    return cell->states;
}

static double get_optimizer(const frugi_cell *cell) {
    return cell->optimizer_bytes;
}

static bool same_stem(const frugi_cell *a, const frugi_cell *b) {
    size_t len = frugi_method_stem(a->first->method);
    return len == frugi_method_stem(b->first->method) && strncmp(a->first->method, b->first->method, len) == 0;
}

/* What the labels of a stem begin with, without a number that has begun there. */
static void name_stem(const frugi_panel *panel, const frugi_cell *first, frugi_line *line) {
    size_t len = strlen(first->label), all = len;
    for (size_t i = 0; i < panel->count; i++) {
        const char *other = panel->cell[i].label;
        size_t same = 0;
        while (same_stem(first, &panel->cell[i]) && same < len && other[same] == first->label[same])
            same++;
        if (same_stem(first, &panel->cell[i]))
            len = same;
    }
    while (len > 0 && len < all && strchr(" 0123456789.,:-(", first->label[len - 1]) != NULL)
        len--;
    while (len > 0 && len < all && ((unsigned char)first->label[len] & 0xc0) == 0x80)
        len--;
    line->name = len > 1 ? first->label : first->first->method;
    line->name_len = len > 1 ? len : frugi_method_stem(first->first->method);
}

typedef struct point {
    double x, y, sd;
} point;

static int by_x(const void *a, const void *b) {
    const point *p = a, *q = b;
    return (p->x > q->x) - (p->x < q->x);
}

static bool gather_line(const frugi_panel *panel, size_t from, getter x, getter y, frugi_line *line) {
    point points[POINTS_MOST];
    size_t count = 0;
    for (size_t i = from; i < panel->count && count < POINTS_MOST; i++) {
        const frugi_cell *cell = &panel->cell[i];
        if (same_stem(&panel->cell[from], cell) && !isnan(x(cell)) && !isnan(y(cell)))
            points[count++] = (point){x(cell), y(cell), y == get_mean ? cell->sd : NAN};
    }
    double *numbers = calloc(3 * count + 1, sizeof *numbers);
    if (numbers == NULL || count == 0) {
        free(numbers);
        return false;
    }
    qsort(points, count, sizeof *points, by_x);
    for (size_t i = 0; i < count; i++) {
        numbers[i] = points[i].x;
        numbers[count + i] = points[i].y;
        numbers[2 * count + i] = points[i].sd;
    }
    line->count = count;
    line->owned = numbers;
    line->x = numbers;
    line->y = numbers + count;
    line->sd = numbers + 2 * count;
    line->marks = true;
    name_stem(panel, &panel->cell[from], line);
    return true;
}

/* What has no place on the x-axis is a level to look along: dense beside shares held back, the head alone beside
 * states.
 */
static bool is_level(const frugi_panel *panel, const frugi_cell *cell, getter x) {
    return panel->tuned ? strcmp(cell->first->method, "head") == 0 : x == get_held && cell->dense;
}

static void stretch(frugi_line *line, size_t count, frugi_line *level) {
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
    *level = (frugi_line){level->name, level->name_len, level->series, 2, numbers, numbers + 2, NULL, false, numbers};
}

static bool is_first(const frugi_panel *panel, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (same_stem(&panel->cell[k], &panel->cell[i]))
            return false;
    return true;
}

static void draw_stems(desk *d, const char *kind, const char *title, getter get_x, getter get_y, frugi_axis x,
                       frugi_axis y) {
    frugi_chart chart = {.kind = kind, .title = title, .note = ""};
    frugi_line line[LINES_MOST], *level = NULL;
    size_t count = 0, series = d->panel->count > 0 && d->panel->cell[0].dense ? 0 : 1;
    for (size_t i = 0; i < d->panel->count && count < LINES_MOST; i++) {
        if (!is_first(d->panel, i))
            continue;
        if (gather_line(d->panel, i, get_x, get_y, &line[count])) {
            level = is_level(d->panel, &d->panel->cell[i], get_x) ? &line[count] : level;
            line[count++].series = series;
        }
        series++;
    }
    if (level != NULL)
        stretch(line, count, level);
    hand_over(d, &chart, frugi_draw_lines(&chart.svg, title, x, y, line, count, d->alone));
    for (size_t k = 0; k < count; k++)
        free(line[k].owned);
}

/* ---- panels -------------------------------------------------------------------------------------------- */

static frugi_axis workers_axis(const frugi_panel *panel) {
    frugi_axis axis = {.title = "workers", .log = true, FRUGI_AXIS_EMPTY};
    for (double workers = 1; workers <= 1 << 20; workers *= 2)
        for (size_t i = 0; i < panel->count && axis.ticks < FRUGI_TICKS; i++)
            if (fabs(panel->cell[i].workers - workers) < 0.5) {
                axis.tick[axis.ticks++] = workers;
                break;
            }
    return axis;
}

static void draw_scaling(desk *d) {
    frugi_axis x = workers_axis(d->panel), rate = {.title = "steps per second", FRUGI_AXIS_EMPTY, .log = true};
    frugi_axis bytes = {.title = "bytes per step", .log = true, .unit = FRUGI_UNIT_BYTES, FRUGI_AXIS_EMPTY};
    draw_stems(d, "scaling-rate", "Step rate against workers", get_workers, get_rate, x, rate);
    draw_stems(d, "scaling-bytes", "Bytes sent by one worker in a step, against workers", get_workers, get_bytes_step,
               x, bytes);
    draw_stems(d, "scaling-quality", "Quality against workers", get_workers, get_mean, x,
               frugi_metric_axis(d->panel->metric));
}

static void draw_sparsity(desk *d) {
    frugi_axis x = {.title = "share of the entries held back", .log = true, .unit = FRUGI_UNIT_HELD, FRUGI_AXIS_EMPTY};
    frugi_axis bytes = {.title = "bytes sent by one worker", .log = true, .unit = FRUGI_UNIT_BYTES, FRUGI_AXIS_EMPTY};
    frugi_axis y = frugi_metric_axis(d->panel->metric);
    draw_stems(d, "sparsity", "Quality against the share held back", get_held, get_mean, x, y);
    draw_stems(d, "quality-bytes", "Quality against bytes", get_bytes, get_mean, bytes, y);
}

static void draw_states(desk *d) {
    frugi_axis states = {.title = "states kept about the targets", .log = true, FRUGI_AXIS_EMPTY};
    frugi_axis bytes = {.title = "bytes of the optimiser", .log = true, .unit = FRUGI_UNIT_BYTES, FRUGI_AXIS_EMPTY};
    frugi_axis y = frugi_metric_axis(d->panel->metric);
    draw_stems(d, "states", "Quality against states", get_states, get_mean, states, y);
    draw_stems(d, "optimizer-bytes", "Quality against the optimiser\xe2\x80\x99s bytes", get_optimizer, get_mean, bytes,
               y);
}

static void draw_heats(desk *d) {
    int drawn = 0;
    for (size_t i = 0; i < d->panel->count && drawn < HEATS_MOST && d->status == FRUGI_EXIT_OK; i++) {
        const frugi_cell *cell = &d->panel->cell[i];
        const frugi_layers *layers = NULL;
        for (size_t k = 0; k < d->findings->runs->count && layers == NULL; k++)
            if (frugi_run_counts(cell, &d->findings->runs->run[k]) && d->findings->runs->run[k].layers.moments > 0)
                layers = &d->findings->runs->run[k].layers;
        if (layers == NULL || cell->dense)
            continue;
        char title[300], kind[32];
        snprintf(title, sizeof title, "Density of each layer: %.200s", cell->label);
        snprintf(kind, sizeof kind, "layers-%d", ++drawn);
        frugi_chart chart = {.kind = kind, .title = title, .note = ""};
        hand_over(d, &chart, frugi_draw_layers(&chart.svg, title, layers, d->alone));
    }
}

static void draw_usual(desk *d) {
    frugi_chart points = {.kind = "quality-bytes",
                          .title = "Final quality against bytes",
                          .note = "Bars: one standard deviation over the seeds, each way."};
    hand_over(d, &points, frugi_draw_points(&points.svg, points.title, d->panel, d->alone));
    draw_curves(d, "quality-bytes-curves", "Quality against bytes, while training", true, OVER_BYTES);
    draw_curves(d, "loss-bytes", "Loss against bytes", false, OVER_BYTES);
    draw_curves(d, "loss-time", "Loss against time", false, OVER_SECONDS);
    frugi_chart times = {
        .kind = "time",
        .title = "Where a step\xe2\x80\x99s time goes (ms)",
        .note = "Upper bar: the training thread. Lower bar: exchange and optimiser, which may go on at the same time."};
    hand_over(d, &times, frugi_draw_times(&times.svg, times.title, d->panel, d->alone));
    frugi_chart memory = {.kind = "memory", .title = "Model-state memory beside dense", .note = ""};
    hand_over(d, &memory, frugi_draw_memory(&memory.svg, memory.title, d->panel, d->alone));
    draw_heats(d);
}

static bool workers_vary(const frugi_panel *panel) {
    for (size_t i = 1; i < panel->count; i++)
        if (panel->cell[i].workers > panel->cell[0].workers || panel->cell[i].workers < panel->cell[0].workers)
            return true;
    return false;
}

int frugi_charts(const frugi_findings *findings, const frugi_panel *panel, bool alone, frugi_chart_taker take,
                 void *user) {
    desk d = {findings, panel, alone, take, user, FRUGI_EXIT_OK};
    if (strcmp(panel->suite, "sparsity") == 0)
        draw_sparsity(&d);
    else if (panel->tuned)
        draw_states(&d);
    else if (workers_vary(panel))
        draw_scaling(&d);
    else
        draw_usual(&d);
    return d.status;
}
