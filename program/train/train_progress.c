/*
 * train_progress.c - progress and metrics of a running training.
 *
 * On a terminal one line is redrawn at most ten times a second; elsewhere plain lines are printed every few seconds,
 * with the first and the last step and every evaluation. Metrics get every step.
 */
#include "program/train/train_progress.h"

#include "base/clock.h"
#include "io/tensorboard.h"
#include "io/json.h"
#include "io/progress.h"
#include "io/metrics.h"
#include "io/status_line.h"
#include "trainer/pipeline/pipeline.h"
#include "trainer/run/worker_group.h"
#include "program/train/train_summary.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REDRAW_INTERVAL 0.1 /* seconds */
#define PRINT_INTERVAL  5.0 /* between plain lines */

enum { BAR_MIN = 10, BAR_MAX = 30 };

struct fgp_train_progress {
    const fgp_request *request;
    const char *metrics_path, *events_path;
    int quiet, terminal;
    int alone;            /* a single worker, which exchanges nothing */
    double last;          /* time of the last output */
    fgio_progress *first; /* progress of the first step, which takes longest */
    fgio_metrics *metrics;
    fgio_tensorboard *events;
    int status;
};

static void end_first_step(fgp_train_progress *v) {
    fgio_progress_end(v->first);
    v->first = NULL;
}

/* ---- the line ------------------------------------------------------------------------------ */

/** A field of the line; if not all fit, those with the highest order are dropped first. */
typedef struct line_field {
    char text[64];
    int order;
} line_field;

enum { FIELDS = 7 };

static void format_speed(const fgp_train_progress *v, double speed, char *dst, size_t cap) {
    char count[40];
    const char *unit = fgp_request_unit(v->request);
    if (speed >= 10 && speed < 1e15)
        snprintf(dst, cap, "  %s %s/s", fgio_count_text((uint64_t)(speed + 0.5), count, sizeof count), unit);
    else if (speed >= 0 && speed < 10)
        snprintf(dst, cap, "  %.1f %s/s", speed, unit);
}

static void fill_fields(const fgp_train_progress *v, const fgt_progress *p, line_field part[FIELDS]) {
    static const int order[FIELDS] = {5, 1, 3, 6, 4, 7, 2};
    char text[40];
    for (int i = 0; i < FIELDS; i++)
        part[i] = (line_field){.order = order[i]};
    snprintf(part[0].text, sizeof part[0].text, "  epoch %.2f", p->epoch);
    snprintf(part[1].text, sizeof part[1].text, "  loss %.*f", fabs(p->loss) < 10 ? 3 : 1, p->loss);
    format_speed(v, p->samples_per_second, part[2].text, sizeof part[2].text);
    if (p->bytes_dense > 0)
        snprintf(part[3].text, sizeof part[3].text, "  density %.1f %%", 100 * p->density);
    if (p->bytes_dense > 0 && !v->alone) {
        snprintf(part[4].text, sizeof part[4].text, "  sent %s", fgio_bytes_text(p->bytes_sent, text, sizeof text));
        snprintf(part[5].text, sizeof part[5].text, " (%.1f %% of dense)",
                 100 * (double)p->bytes_sent / (double)p->bytes_dense);
    }
    if (p->step < p->steps && isfinite(p->seconds_left))
        snprintf(part[6].text, sizeof part[6].text, "  %s left",
                 fgio_duration_text(p->seconds_left, text, sizeof text));
}

/* Join the fields that fit into `room` columns. */
static void join_fields(line_field part[FIELDS], size_t room, char *dst, size_t cap) {
    size_t length = 0, used = 0;
    for (int i = 0; i < FIELDS; i++)
        length += strlen(part[i].text);
    for (int order = FIELDS; order > 0 && length > room; order--)
        for (int i = 0; i < FIELDS; i++)
            if (part[i].order == order) {
                length -= strlen(part[i].text);
                part[i].text[0] = '\0';
            }
    dst[0] = '\0';
    for (int i = 0; i < FIELDS && used < cap; i++)
        used += (size_t)snprintf(dst + used, cap - used, "%s", part[i].text);
}

static void draw_bar(const fgp_train_progress *v, const fgt_progress *p) {
    line_field part[FIELDS];
    char line[512], rest[400], bar[BAR_MAX + 1];
    size_t width = fgio_terminal_width() - 1; /* the last column would wrap on some terminals */
    double share = p->steps > 0 ? (double)p->step / (double)p->steps : 1;
    size_t fixed = strlen("[] 100 %");
    if (fixed + BAR_MIN > width)
        return;
    fill_fields(v, p, part);
    size_t room = width - fixed - BAR_MIN;
    join_fields(part, room < sizeof rest ? room : sizeof rest - 1, rest, sizeof rest);
    size_t length = width - fixed - strlen(rest);
    length = length > BAR_MAX ? BAR_MAX : length;
    for (size_t i = 0; i < length; i++)
        bar[i] = (double)i + 0.5 < share * (double)length ? '#' : '-';
    bar[length] = '\0';
    snprintf(line, sizeof line, "[%s] %3d %%%s", bar, (int)(100 * share), rest);
    fgio_status_draw(line);
}

static void print_plain(const fgp_train_progress *v, const fgt_progress *p) {
    line_field part[FIELDS];
    char rest[512];
    fill_fields(v, p, part);
    join_fields(part, sizeof rest, rest, sizeof rest);
    fgio_status_print("step %" PRIu64 " of %" PRIu64 "%s", p->step, p->steps, rest);
}

/* ---- metrics ------------------------------------------------------------------------------------- */

/** A metric, as written to both files. */
typedef struct metric {
    const char *name;
    double value;
} metric;

/* A write error is printed once; the run continues without metrics and fails at its end. */
static void close_failed_metrics(fgp_train_progress *v) {
    fgio_metrics_close(v->metrics);
    v->metrics = NULL;
    v->status = FGIO_EXIT_FAIL;
}

static void close_failed_events(fgp_train_progress *v) {
    fgio_tensorboard_close(v->events);
    v->events = NULL;
    v->status = FGIO_EXIT_FAIL;
}

/* NaN is omitted. The tag of TensorBoard is kind/name, which groups its plots. */
static void record(fgp_train_progress *v, const char *kind, uint64_t at, const metric *numbers, size_t count) {
    if (v->metrics != NULL) {
        json_t *line = json_object();
        json_object_set_new(line, "kind", json_string(kind));
        json_object_set_new(line, "step", json_integer((json_int_t)at));
        for (size_t i = 0; i < count; i++)
            if (isfinite(numbers[i].value))
                json_object_set_new(line, numbers[i].name, json_real(numbers[i].value));
        if (fgio_metrics_put(v->metrics, line) != FGIO_EXIT_OK)
            close_failed_metrics(v);
    }
    for (size_t i = 0; i < count && v->events != NULL; i++) {
        char tag[64];
        snprintf(tag, sizeof tag, "%s/%s", kind, numbers[i].name);
        if (isfinite(numbers[i].value) && fgio_tensorboard_scalar(v->events, tag, at, numbers[i].value) != FGIO_EXIT_OK)
            close_failed_events(v);
    }
}

static void record_step(fgp_train_progress *v, const fgt_progress *p) {
    const metric numbers[] = {
        {"epoch", p->epoch},
        {"loss", p->loss},
        {"accuracy", p->right},
        {"rate", p->rate},
        {"gain", p->gain},
        {"norm", p->norm},
        {"clipped", p->clipped},
        {"density", p->density},
        {"bytes_sent", (double)p->bytes_sent},
        {"bytes_dense", (double)p->bytes_dense},
        {"seconds", p->seconds},
        {"samples_per_second", p->samples_per_second},
    };
    record(v, "step", p->step, numbers, sizeof numbers / sizeof *numbers);
    for (uint32_t i = 0; i < p->stages; i++) {
        char name[32];
        snprintf(name, sizeof name, "bytes_stage_%" PRIu32, i);
        record(v, "stages", p->step, &(metric){name, p->stage_bytes[i]}, 1);
    }
}

static void record_quality(fgp_train_progress *v, const fgt_eval_result *q) {
    const metric numbers[] = {
        {"loss", q->loss}, {"accuracy", q->accuracy}, {"perplexity", q->perplexity}, {"correlation", q->correlation},
        {"f1", q->f1},     {"matthews", q->matthews},
    };
    record(v, fgp_split_name(q->split), q->step, numbers, sizeof numbers / sizeof *numbers);
}

/* The number of micro-batches, because it changes the rounding of sums. */
static void print_accumulate(const fgp_train_progress *v, const fgt_report *r) {
    char take[32], have[32];
    uint64_t here = (uint64_t)fgt_group_local_size((int)(r->stages ? r->stages : r->workers));
    if (r->accumulate_from == FGT_ACCUMULATE_CHOSEN)
        fgio_status_print("--accumulate %" PRIu32 " (chosen: activations would take %s, %s are %s)", r->accumulate,
                          fgio_bytes_text(r->activation_uncut * here, take, sizeof take),
                          fgio_bytes_text(r->memory_free, have, sizeof have),
                          v->request->job.memory_bytes > 0 ? "allowed by --memory" : "free");
    else if (r->accumulate > 1)
        fgio_status_print("--accumulate %" PRIu32 "%s", r->accumulate,
                          r->accumulate_from == FGT_ACCUMULATE_RESUMED ? " (of the checkpoint)" : "");
}

/* ---- what the job calls ------------------------------------------------------------------------ */

static void on_begin(void *ctx, const fgt_report *r, uint64_t resumed_at) {
    fgp_train_progress *v = ctx;
    const fgt_job *job = &v->request->job;
    char params[32], again[64] = "", setting[512];
    v->alone = r->workers == 1 && r->stages == 0;
    if (!v->quiet) {
        if (resumed_at > 0)
            snprintf(again, sizeof again, ", resuming after step %" PRIu64, resumed_at);
        fgio_status_print("training %s (%s parameters) on %s: %" PRIu64 " steps of %" PRIu32 " x %" PRIu32 "%s",
                          job->model, fgio_count_text(r->params, params, sizeof params), job->data, r->steps,
                          r->workers, r->batch, again);
        fgio_status_print("method %s, optimizer %s, exchange %s", fgp_request_method(v->request), r->optimizer,
                          r->workers == 1 ? "none (one worker)" : r->algorithm);
        if (r->stages > 0)
            fgio_status_print("%" PRIu32 " stages, activations as %s%s", r->stages,
                              job->stage_config != NULL ? job->stage_config : FGT_STAGE_CONFIG_DEFAULT,
                              job->stage_feedback != NULL ? ", changes of each sample" : "");
        fgio_status_print("%s", fgp_setting_text(job, r, setting, sizeof setting));
        print_accumulate(v, r);
    }
    if (v->metrics_path != NULL && fgio_metrics_open(v->metrics_path, resumed_at, &v->metrics) != FGIO_EXIT_OK)
        close_failed_metrics(v);
    v->first = fgio_progress_begin(0, "first step");
    if (v->events_path != NULL && fgio_tensorboard_open(v->events_path, resumed_at, &v->events) != FGIO_EXIT_OK)
        close_failed_events(v);
}

static void step(void *ctx, const fgt_progress *p) {
    fgp_train_progress *v = ctx;
    double t = frugi_clock();
    end_first_step(v);
    record_step(v, p);
    int last = p->step == p->steps;
    if (!v->quiet && (last || v->last == 0 || t - v->last >= (v->terminal ? REDRAW_INTERVAL : PRINT_INTERVAL))) {
        v->last = t;
        if (v->terminal)
            draw_bar(v, p);
        else
            print_plain(v, p);
    }
}

static void on_quality(void *ctx, const fgt_eval_result *q) {
    fgp_train_progress *v = ctx;
    char text[64];
    record_quality(v, q);
    if (!v->quiet)
        fgio_status_print("after step %" PRIu64 ": %s, loss %.4f on the %s split", q->step,
                          fgp_quality_text(q, text, sizeof text), q->loss, fgp_split_name(q->split));
}

/* One line has all tensors with their names, so that each line can be read on its own. */
static void on_layers(void *ctx, uint64_t at, const char *const *name, const double *share, size_t count) {
    fgp_train_progress *v = ctx;
    if (v->metrics == NULL)
        return;
    json_t *line = json_object(), *names = json_array(), *shares = json_array();
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(names, fgio_json_text(name[i]));
        json_array_append_new(shares, fgio_json_real(share[i]));
    }
    json_object_set_new(line, "kind", json_string("layers"));
    json_object_set_new(line, "step", json_integer((json_int_t)at));
    json_object_set_new(line, "names", names);
    json_object_set_new(line, "density", shares);
    if (fgio_metrics_put(v->metrics, line) != FGIO_EXIT_OK)
        close_failed_metrics(v);
}

/* Whether the metrics file can be written, checked before the work; its lines are cut when the run begins. */
static int check_writable(const char *path) {
    struct stat st;
    if (stat(path, &st) == 0 && S_ISFIFO(st.st_mode)) /* its reader would see an end */
        return FGIO_EXIT_OK;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return fgio_error("%s: cannot write: %s", path, strerror(errno));
    close(fd);
    return FGIO_EXIT_OK;
}

int fgp_train_progress_open(const fgp_request *request, int quiet, const char *metrics, const char *tensorboard,
                            fgp_train_progress **progress) {
    if (quiet)
        fgio_progress_disable();
    if (metrics != NULL && fgt_group_rank() == 0 && check_writable(metrics) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    fgp_train_progress *v = calloc(1, sizeof *v);
    if (v == NULL)
        return fgio_error("no memory");
    *v = (fgp_train_progress){.request = request,
                              .quiet = quiet,
                              .terminal = fgio_stderr_is_terminal(),
                              .metrics_path = metrics,
                              .events_path = tensorboard};
    *progress = v;
    return FGIO_EXIT_OK;
}

fgt_job_callbacks fgp_train_progress_watch(fgp_train_progress *progress) {
    const fgp_args *args = &progress->request->args;
    bool wanted = fgp_args_row(args->command, "metrics-layers", strlen("metrics-layers")) >= 0 &&
                  fgp_arg_given(args, "metrics-layers");
    return (fgt_job_callbacks){
        .ctx = progress, .begin = on_begin, .step = step, .quality = on_quality, .layers = wanted ? on_layers : NULL};
}

int fgp_train_progress_close(fgp_train_progress *v) {
    if (v == NULL)
        return FGIO_EXIT_OK;
    end_first_step(v);
    fgio_status_clear();
    int status = v->status;
    fgio_metrics_close(v->metrics);
    fgio_tensorboard_close(v->events);
    free(v);
    return status;
}
