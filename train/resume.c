/*
 * resume.c - what a run has to remember beside its tensors, as facts of a checkpoint, and going on from there.
 *
 * Facts that decide the numbers must be those of the checkpoint, or the run would quietly be another one; the length of
 * training may change, with a warning, because people do train on. Another number of workers is fine: the run goes on
 * at the same place of the epoch.
 */
#include "worker.h"

#include "checkpoint.h"
#include "say.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_text(json_t *facts, const char *key, const char *value) {
    json_object_set_new(facts, key, json_string(value));
}

static void set_count(json_t *facts, const char *key, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    set_text(facts, key, text);
}

/* As short as it may be for every bit to come back. */
static void set_real(json_t *facts, const char *key, double value) {
    char text[64];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    set_text(facts, key, text);
}

static const char *get_text(const json_t *facts, const char *key) {
    const char *text = json_string_value(json_object_get(facts, key));
    return text ? text : "";
}

static uint64_t get_count(const json_t *facts, const char *key) {
    return strtoull(get_text(facts, key), NULL, 10);
}

static double get_real(const json_t *facts, const char *key) {
    return strtod(get_text(facts, key), NULL);
}

/* Fine-tuning names the worker's threads to the optimiser; they do not change a bit, and a run may go on with others.
 */
static void set_optimizer(json_t *facts, const frugi_worker *w) {
    char text[FRUGI_TUNE_TEXT];
    snprintf(text, sizeof text, "%s", frug_optimizer_text(w->optimizer));
    char *threads = strstr(text, ",threads=");
    if (threads && w->crew->job->tune)
        *threads = '\0';
    set_text(facts, "optimizer", text);
}

/* The facts that a run to go on must share, in the words of the command line. */
static void set_terms(json_t *facts, const frugi_worker *w) {
    const frugi_crew *crew = w->crew;
    set_text(facts, "model", crew->model.text);
    set_text(facts, "data", frugi_data_about(crew->data)->name);
    set_text(facts, "method", frug_config_text(w->config));
    set_optimizer(facts, w);
    if (crew->job->tune)
        set_text(facts, "head", crew->job->tune->head);
    set_text(facts, "schedule", crew->job->schedule);
    set_real(facts, "rate", crew->base_rate);
    set_real(facts, "clip", crew->job->clip);
    set_count(facts, "batch", crew->batch);
    set_count(facts, "seed", crew->job->seed);
    set_count(facts, "samples", frugi_data_about(crew->data)->count[FRUGI_TRAIN]);
    if (frugi_data_about(crew->data)->augment)
        set_text(facts, "augment", frugi_data_about(crew->data)->augment);
}

static json_t *gather_facts(const frugi_worker *w) {
    json_t *facts = json_object();
    frugi_traffic traffic = frugi_worker_traffic(w);
    double clip[2];
    frugi_clip_save(&w->clip, clip);
    set_terms(facts, w);
    set_text(facts, "frugrad", frug_version());
    set_text(facts, "algorithm", w->reducer ? frug_reducer_algorithm(w->reducer) : "none");
    set_count(facts, "workers", (uint64_t)w->size);
    set_count(facts, "step", w->step);
    set_count(facts, "steps", w->steps);
    set_count(facts, "steps_per_epoch", w->per_epoch);
    set_count(facts, "bytes_sent", traffic.bytes);
    set_count(facts, "bytes_dense", traffic.dense);
    set_real(facts, "entries_sent", traffic.entries);
    set_real(facts, "entries_seen", traffic.seen);
    set_real(facts, "norm", w->norm);
    set_real(facts, "clip_a", clip[0]);
    set_real(facts, "clip_b", clip[1]);
    return facts;
}

static frugi_state state_of(const frugi_worker *w) {
    bool residual = w->reducer && !w->crew->job->tune; /* what is sent whole leaves nothing behind */
    return (frugi_state){w->comm, w->graph, residual ? frug_reducer_compressor(w->reducer) : NULL, w->optimizer};
}

int frugi_worker_save(frugi_worker *w) {
    const frugi_crew *crew = w->crew;
    frugi_state state = state_of(w);
    frug_optimizer_seek(w->optimizer, w->step);
    json_t *facts = gather_facts(w);
    char path[sizeof crew->report->checkpoint] = "";
    int status = frugi_checkpoint_write(crew->job->save, crew->job->keep, w->step, &state, facts, path, sizeof path);
    json_decref(facts);
    if (status == FRUGI_EXIT_OK && w->rank == 0) {
        memcpy(crew->report->checkpoint, path, sizeof path);
        if (crew->watch && crew->watch->saved)
            crew->watch->saved(crew->watch->ctx, path, w->step);
    }
    return status;
}

/* Of a list like a=1,b=2, the piece in which it first differs from another; lists are too long for a line. */
static const char *odd_piece(const char *list, const char *other, char *dst, size_t cap) {
    size_t begin = 0, i = 0;
    for (; list[i] && list[i] == other[i]; i++)
        if (list[i] == ',' || list[i] == ':')
            begin = i + 1;
    snprintf(dst, cap, "%.*s", (int)strcspn(list + begin, ","), list + begin);
    return dst;
}

static int refuse_term(const frugi_worker *w, const char *key, const char *theirs, const char *ours) {
    char a[128], b[128];
    if (w->crew->job->tune && strcmp(key, "optimizer") == 0)
        key = "method"; /* whose word it is there */
    return w->rank == 0 ? frugi_error("%s: the checkpoint was made with --%s %s, not %s", w->crew->job->resume, key,
                                      odd_piece(theirs, ours, a, sizeof a), odd_piece(ours, theirs, b, sizeof b))
                        : FRUGI_EXIT_FAIL;
}

/* How the run's training images were changed; older checkpoints know two ways, whatever the images are. */
static const char *augment_of(const json_t *facts) {
    const char *augment = get_text(facts, "augment");
    return augment[0] ? augment : strcmp(get_text(facts, "no-augment"), "yes") == 0 ? "none" : "crop+mirror";
}

static int check_terms(const frugi_worker *w, const json_t *facts) {
    json_t *mine = json_object(), *value;
    const char *key;
    int status = FRUGI_EXIT_OK;
    set_terms(mine, w);
    json_object_foreach(mine, key, value) {
        const char *theirs = strcmp(key, "augment") == 0 ? augment_of(facts) : get_text(facts, key);
        if (status == FRUGI_EXIT_OK && strcmp(json_string_value(value), theirs) != 0)
            status = refuse_term(w, key, theirs, json_string_value(value));
    }
    json_decref(mine);
    return status;
}

/* The same place of the training, also when an epoch now has another number of steps. */
static int find_place(frugi_worker *w, const json_t *facts, uint64_t step) {
    uint64_t per_epoch = get_count(facts, "steps_per_epoch"), steps = get_count(facts, "steps");
    if (per_epoch == 0 || steps == 0 || step > steps) {
        if (w->rank == 0)
            frugi_error("%s: the checkpoint does not say where its run stood", w->crew->job->resume);
        return FRUGI_EXIT_FAIL;
    }
    w->step = step;
    if (per_epoch != w->per_epoch) {
        w->step = (uint64_t)((double)step / (double)per_epoch * (double)w->per_epoch + 0.5);
        if (w->rank == 0)
            frugi_hint(
                "step %llu of the checkpoint's %llu is step %llu of this run's %llu, at the same place of the data",
                (unsigned long long)step, (unsigned long long)steps, (unsigned long long)w->step,
                (unsigned long long)w->steps);
    } else if (steps != w->steps && w->rank == 0)
        frugi_hint("the checkpoint's run was to have %llu steps, this one has %llu: schedules change",
                   (unsigned long long)steps, (unsigned long long)w->steps);
    w->step = w->step < w->steps ? w->step : w->steps;
    if (w->step == w->steps && w->rank == 0)
        frugi_hint("no step is left to take; a larger --steps or --epochs would train on");
    return FRUGI_EXIT_OK;
}

static int take_up(frugi_worker *w, frugi_checkpoint *checkpoint, const json_t *facts, uint64_t step) {
    frugi_state state = state_of(w);
    bool redistributed = false;
    int status = check_terms(w, facts);
    if (status == FRUGI_EXIT_OK)
        status = find_place(w, facts, step);
    if (status == FRUGI_EXIT_OK)
        frug_optimizer_seek(w->optimizer, w->step); /* what the run before had let go is not in the file */
    if (status == FRUGI_EXIT_OK)
        status = frugi_checkpoint_restore(checkpoint, &state, &redistributed);
    if (status != FRUGI_EXIT_OK)
        return status;
    if (redistributed && w->rank == 0)
        frugi_hint("the checkpoint has %s workers, this run %d: %sthe run is the same only on average",
                   get_text(facts, "workers"), w->size, state.compressor ? "residuals were shared out anew, and " : "");
    const double clip[2] = {get_real(facts, "clip_a"), get_real(facts, "clip_b")};
    if (!frugi_clip_restore(&w->clip, clip))
        return frugi_error("%s: the checkpoint's norm is no norm", w->crew->job->resume);
    frugi_worker_tell_norm(w, json_object_get(facts, "norm") ? get_real(facts, "norm") : -1);
    w->bytes_before = get_count(facts, "bytes_sent");
    w->dense_before = get_count(facts, "bytes_dense");
    w->entries_before = get_real(facts, "entries_sent");
    w->seen_before = get_real(facts, "entries_seen");
    return FRUGI_EXIT_OK;
}

int frugi_worker_resume(frugi_worker *w) {
    frugi_checkpoint *checkpoint = NULL;
    json_t *facts = NULL;
    uint64_t step = 0;
    int status = frugi_checkpoint_open(w->crew->job->resume, w->comm, &checkpoint, &facts, &step);
    if (status == FRUGI_EXIT_OK)
        status = take_up(w, checkpoint, facts, step);
    frugi_checkpoint_close(checkpoint);
    return status;
}

int frugi_worker_load(frugi_worker *w) {
    frugi_state state = {.comm = w->comm, .graph = w->graph};
    frugi_checkpoint *checkpoint = NULL;
    json_t *facts = NULL;
    bool redistributed;
    int status = frugi_checkpoint_open(w->crew->job->resume, w->comm, &checkpoint, &facts, &w->step);
    if (status == FRUGI_EXIT_OK)
        status = frugi_checkpoint_restore(checkpoint, &state, &redistributed);
    frugi_checkpoint_close(checkpoint);
    return status;
}
