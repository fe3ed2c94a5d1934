/*
 * resume.c - what a run has to remember beside its tensors, as facts of a checkpoint, and going on from there.
 *
 * Facts that decide the numbers must be those of the checkpoint, or the run would quietly be another one; the length of
 * training may change, with a warning, because people do train on. Another number of workers is fine: the run goes on
 * at the same place of the epoch.
 */
#include "trainer/run/worker.h"

#include "trainer/checkpoint/checkpoint.h"
#include "io/error.h"

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

static const char *or_none(const char *text) {
    return *text ? text : "none";
}

/* Fine-tuning names the worker's threads to the optimiser; they do not change a bit, and a run may go on with others.
 */
static void set_optimizer(json_t *facts, const fgt_worker *w) {
    char text[FGT_TUNE_TEXT];
    snprintf(text, sizeof text, "%s", frug_optimizer_text(w->optimizer));
    char *threads = strstr(text, ",threads=");
    if (threads && w->crew->job->tune)
        *threads = '\0';
    set_text(facts, "optimizer", text);
}

/* The facts that a run to go on must share, in the words of the command line. */
static void set_terms(json_t *facts, const fgt_worker *w) {
    const fgt_crew *crew = w->crew;
    set_text(facts, "model", crew->model.text);
    set_text(facts, "data", fgt_data_about(crew->data)->name);
    set_text(facts, "method", frug_config_text(w->config));
    set_optimizer(facts, w);
    if (crew->job->tune)
        set_text(facts, "head", crew->job->tune->head);
    set_text(facts, "schedule", crew->job->schedule);
    set_real(facts, "rate", crew->base_rate);
    if (crew->job->clip_auto)
        set_text(facts, "clip", "auto");
    else
        set_real(facts, "clip", crew->job->clip);
    set_count(facts, "batch", crew->batch);
    set_count(facts, "seed", crew->job->seed);
    set_count(facts, "samples", fgt_data_about(crew->data)->count[FGT_TRAIN]);
    if (fgt_data_about(crew->data)->augment)
        set_text(facts, "augment", fgt_data_about(crew->data)->augment);
}

/* The running norms of --clip auto: the weight, then one for each limit. */
static void set_limits(json_t *facts, const fgt_limits *limits) {
    json_t *list = json_array();
    char *text = NULL;
    json_array_append_new(list, json_real(limits->weight));
    for (size_t i = 0; i < limits->count; i++)
        json_array_append_new(list, json_real(limits->mean[i]));
    text = json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(17));
    set_text(facts, "limits", text ? text : "");
    free(text);
    json_decref(list);
}

/* Each bucket has its own limit, so a run that resumes with other buckets learns them anew. */
static int get_limits(fgt_worker *w, const json_t *facts) {
    fgt_limits *limits = fgt_buckets_limits(w->buckets);
    if (get_count(facts, "bucket") != w->crew->job->bucket_bytes) {
        if (w->rank == 0)
            fgio_hint("--bucket differs from that of the checkpoint: the limits of --clip auto are learned anew");
        return FGIO_EXIT_OK;
    }
    json_t *list = json_loads(get_text(facts, "limits"), 0, NULL);
    double *number = calloc(limits->count + 1, sizeof *number);
    int sound = number && json_is_array(list) && json_array_size(list) == limits->count + 1;
    for (size_t i = 0; sound && i <= limits->count; i++)
        number[i] = json_is_number(json_array_get(list, i)) ? json_number_value(json_array_get(list, i)) : -1;
    sound = sound && fgt_limits_restore(limits, number[0], number + 1);
    free(number);
    json_decref(list);
    return sound ? FGIO_EXIT_OK : fgio_error("%s: bad norms of --clip auto in the checkpoint", w->crew->job->resume);
}

static json_t *gather_facts(const fgt_worker *w) {
    json_t *facts = json_object();
    fgt_traffic traffic = fgt_worker_traffic(w);
    double clip[2];
    fgt_clip_save(&w->clip, clip);
    set_terms(facts, w);
    set_text(facts, "frugrad", frug_version());
    set_text(facts, "algorithm", w->reducer ? frug_reducer_algorithm(w->reducer) : "none");
    set_count(facts, "workers", (uint64_t)w->size);
    set_count(facts, "accumulate", w->accumulate);
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
    if (w->crew->job->clip_auto) {
        set_limits(facts, fgt_buckets_limits(w->buckets));
        set_count(facts, "bucket", w->crew->job->bucket_bytes);
    }
    return facts;
}

static fgt_state state_of(const fgt_worker *w) {
    bool residual = w->reducer && !w->crew->job->tune; /* what is sent whole leaves nothing behind */
    return (fgt_state){w->comm, w->graph, residual ? frug_reducer_compressor(w->reducer) : NULL, w->optimizer};
}

int fgt_worker_save(fgt_worker *w) {
    const fgt_crew *crew = w->crew;
    fgt_state state = state_of(w);
    frug_optimizer_seek(w->optimizer, w->step);
    json_t *facts = gather_facts(w);
    char path[sizeof crew->report->checkpoint] = "";
    int status = fgt_checkpoint_write(crew->job->save, crew->job->keep, w->generation, w->step, &state, facts, path,
                                      sizeof path);
    json_decref(facts);
    if (status == FGIO_EXIT_OK && w->rank == 0) {
        memcpy(crew->report->checkpoint, path, sizeof path);
        if (crew->watch && crew->watch->saved)
            crew->watch->saved(crew->watch->ctx, path, w->step);
    }
    return status;
}

/* Whether a list like a=1,b=2 has a piece. */
static bool has_piece(const char *list, const char *piece, size_t length) {
    for (;; list++) {
        size_t have = strcspn(list, ",");
        if (have == length && memcmp(list, piece, length) == 0)
            return true;
        list += have;
        if (!*list)
            return false;
    }
}

/* How long the name is that a text like sgd:momentum=0.9 begins with; 0: it has none. */
static size_t name_length(const char *text) {
    size_t length = strcspn(text, ":,=");
    return text[length] == '=' ? 0 : length;
}

/*
 * What of a text makes it differ from another, because whole texts are too long for a line: a name in front of options,
 * or the options that the other does not have, as many as fit.
 */
static const char *difference(const char *text, const char *other, char *dst, size_t cap) {
    size_t name = name_length(text), used = 0;
    if (name != name_length(other) || memcmp(text, other, name) != 0) {
        snprintf(dst, cap, "%.*s", (int)name, text);
        return dst;
    }
    const char *at = text + name + (name > 0 && text[name] == ':');
    const char *others = other + name + (name > 0 && other[name] == ':');
    for (*dst = '\0'; *at; at += *at == ',') {
        size_t length = strcspn(at, ",");
        if (!has_piece(others, at, length) && used + length + 5 < cap)
            used += (size_t)snprintf(dst + used, cap - used, "%s%.*s", used > 0 ? "," : "", (int)length, at);
        else if (!has_piece(others, at, length) && used + 4 < cap &&
                 strcmp(dst + (used > 3 ? used - 3 : 0), "...") != 0)
            used += (size_t)snprintf(dst + used, cap - used, "...");
        at += length;
    }
    return *dst ? dst : text;
}

static int refuse_term(const fgt_worker *w, const char *key, const char *theirs, const char *ours) {
    char a[96], b[96];
    bool list = strcmp(key, "method") == 0 || strcmp(key, "optimizer") == 0;
    if (w->rank != 0)
        return FGIO_EXIT_FAIL;
    if (w->crew->job->tune && strcmp(key, "optimizer") == 0)
        key = "method"; /* whose option it is there */
    fgio_error("%s: the checkpoint was made with --%s %s; this command asks for %s", w->crew->job->resume, key,
               list ? difference(theirs, ours, a, sizeof a) : theirs,
               list ? difference(ours, theirs, b, sizeof b) : ours);
    fgio_hint("give --%s as in the first run to continue it, or another --save directory to start a new run", key);
    return FGIO_EXIT_FAIL;
}

/* Earlier versions had --no-augment alone, and cropped and mirrored otherwise. */
static const char *their_term(const json_t *facts, const char *key) {
    if (strcmp(key, "augment") == 0 && !json_object_get(facts, key))
        return strcmp(get_text(facts, "no-augment"), "yes") == 0 ? "none" : "crop+mirror";
    return get_text(facts, key);
}

static int check_terms(const fgt_worker *w, const json_t *facts) {
    json_t *mine = json_object(), *value;
    const char *key;
    int status = FGIO_EXIT_OK;
    set_terms(mine, w);
    json_object_foreach(mine, key, value) {
        const char *theirs = their_term(facts, key);
        if (status == FGIO_EXIT_OK && strcmp(json_string_value(value), theirs) != 0)
            status = refuse_term(w, key, theirs, json_string_value(value));
    }
    json_decref(mine);
    return status;
}

/* The same place of the training, also when an epoch now has another number of steps. */
static int find_place(fgt_worker *w, const json_t *facts, uint64_t step) {
    uint64_t per_epoch = get_count(facts, "steps_per_epoch"), steps = get_count(facts, "steps");
    if (per_epoch == 0 || steps == 0 || step > steps) {
        if (w->rank == 0)
            fgio_error("%s: the metadata of the checkpoint has step %llu of %s and %s steps an epoch: not of a run of "
                       "this trainer",
                       w->crew->job->resume, (unsigned long long)step, or_none(get_text(facts, "steps")),
                       or_none(get_text(facts, "steps_per_epoch")));
        return FGIO_EXIT_FAIL;
    }
    w->step = step;
    if (per_epoch != w->per_epoch) {
        w->step = (uint64_t)((double)step / (double)per_epoch * (double)w->per_epoch + 0.5);
        if (w->rank == 0)
            fgio_hint(
                "step %llu of the checkpoint's %llu is step %llu of this run's %llu, at the same place of the data",
                (unsigned long long)step, (unsigned long long)steps, (unsigned long long)w->step,
                (unsigned long long)w->steps);
    } else if (steps != w->steps && w->rank == 0)
        fgio_hint("the checkpoint was made with %llu steps in all, this command asks for %llu: schedules change",
                  (unsigned long long)steps, (unsigned long long)w->steps);
    w->step = w->step < w->steps ? w->step : w->steps;
    if (w->step == w->steps && w->rank == 0)
        fgio_hint("no step is left to take; a larger --steps or --epochs would train on");
    return FGIO_EXIT_OK;
}

/* Micro-batches change how sums are rounded, and statistics of batch norm. Checkpoints without the fact had none. */
static int check_accumulate(const fgt_worker *w, const json_t *facts) {
    uint64_t theirs = json_object_get(facts, "accumulate") ? get_count(facts, "accumulate") : 1;
    if (theirs == w->accumulate)
        return FGIO_EXIT_OK;
    if (w->rank == 0) {
        fgio_error("%s: the checkpoint's run cut its batches into %llu micro-batches (--accumulate %llu), and this one "
                   "cuts them into %u (--accumulate %u)",
                   w->crew->job->resume, (unsigned long long)theirs, (unsigned long long)theirs, w->accumulate,
                   w->accumulate);
        fgio_hint("without --accumulate a run that resumes takes the checkpoint's");
    }
    return FGIO_EXIT_FAIL;
}

static int take_up(fgt_worker *w, fgt_checkpoint *checkpoint, const json_t *facts, uint64_t step) {
    fgt_state state = state_of(w);
    bool redistributed = false;
    int status = check_terms(w, facts);
    if (status == FGIO_EXIT_OK)
        status = check_accumulate(w, facts);
    if (status == FGIO_EXIT_OK)
        status = find_place(w, facts, step);
    if (status == FGIO_EXIT_OK)
        frug_optimizer_seek(w->optimizer, w->step); /* what the run before had let go is not in the file */
    if (status == FGIO_EXIT_OK)
        status = fgt_checkpoint_restore(checkpoint, &state, &redistributed);
    if (status != FGIO_EXIT_OK)
        return status;
    if (redistributed && w->rank == 0)
        fgio_hint("the checkpoint was made with %s workers, this run has %d: %sthe run is the same only on average",
                  get_text(facts, "workers"), w->size,
                  state.compressor ? "each starts from the mean of all residuals, and " : "");
    const double clip[2] = {get_real(facts, "clip_a"), get_real(facts, "clip_b")};
    if (!fgt_clip_restore(&w->clip, clip))
        return fgio_error("%s: the metadata of the checkpoint has clip_a %s and clip_b %s, which are no norm",
                          w->crew->job->resume, or_none(get_text(facts, "clip_a")), or_none(get_text(facts, "clip_b")));
    if (w->crew->job->clip_auto && get_limits(w, facts) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    fgt_worker_tell_norm(w, json_object_get(facts, "norm") ? get_real(facts, "norm") : -1);
    w->bytes_before = get_count(facts, "bytes_sent");
    w->dense_before = get_count(facts, "bytes_dense");
    w->entries_before = get_real(facts, "entries_sent");
    w->seen_before = get_real(facts, "entries_seen");
    return FGIO_EXIT_OK;
}

int fgt_worker_find_start(fgt_worker *w) {
    const fgt_job *job = w->crew->job;
    w->resuming = job->resume != NULL;
    if (!job->resume || !job->resume_if_any)
        return FGIO_EXIT_OK;
    int status = fgt_checkpoint_any(job->resume, w->comm, &w->resuming);
    if (status != FGIO_EXIT_OK || w->resuming || w->rank != 0)
        return status;
    if (job->tune && !job->weights) {
        fgio_error("%s: has no checkpoint to resume from, and there are no weights to start from", job->resume);
        fgio_hint("give --weights FILE; a restart with the same command then resumes from the newest checkpoint");
        return FGIO_EXIT_FAIL;
    }
    fgio_hint("%s has no checkpoint yet: the run starts from the beginning", job->resume);
    return FGIO_EXIT_OK;
}

int fgt_worker_resume(fgt_worker *w) {
    const fgt_job *job = w->crew->job;
    fgt_checkpoint *checkpoint = NULL;
    json_t *facts = NULL;
    uint64_t step = 0;
    int status = FGIO_EXIT_OK;
    if (w->resuming) {
        status = fgt_checkpoint_open(job->resume, w->comm, &checkpoint, &facts, &step);
        if (status == FGIO_EXIT_OK)
            status = take_up(w, checkpoint, facts, step);
    }
    if (status == FGIO_EXIT_OK && job->save && w->rank == 0)
        status = fgt_checkpoint_next_generation(job->save, checkpoint, w->step, &w->generation);
    fgt_checkpoint_close(checkpoint);
    return status;
}

int fgt_worker_load(fgt_worker *w) {
    fgt_state state = {.comm = w->comm, .graph = w->graph};
    fgt_checkpoint *checkpoint = NULL;
    json_t *facts = NULL;
    bool redistributed;
    int status = fgt_checkpoint_open(w->crew->job->resume, w->comm, &checkpoint, &facts, &w->step);
    if (status == FGIO_EXIT_OK)
        status = fgt_checkpoint_restore(checkpoint, &state, &redistributed);
    fgt_checkpoint_close(checkpoint);
    return status;
}
