/*
 * resume.c - the metadata of a run in a checkpoint, and resuming from it.
 *
 * Settings that decide the result must equal those of the checkpoint, or the run would silently be another one; the
 * number of steps may change, with a warning, because users extend training. Another number of workers is allowed: the
 * run continues at the same position of the epoch.
 */
#include "trainer/run/worker.h"

#include "trainer/checkpoint/checkpoint.h"
#include "io/error.h"
#include "io/files.h"
#include "io/json.h"
#include "io/tensor_file.h"
#include "trainer/run/defaults.h"
#include "trainer/run/worker_group.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** Metadata while they are collected. */
typedef struct metadata_builder {
    json_t *map;
    bool failed; /* memory ran out: a key is missing */
} metadata_builder;

static metadata_builder builder_create(void) {
    json_t *map = json_object();
    return (metadata_builder){map, map == NULL};
}

static void set_text(metadata_builder *metadata, const char *key, const char *value) {
    if (json_object_set_new(metadata->map, key, fgio_json_text(value)) != 0)
        metadata->failed = true;
}

static void set_count(metadata_builder *metadata, const char *key, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    set_text(metadata, key, text);
}

/* The shortest text that restores every bit. */
static void set_real(metadata_builder *metadata, const char *key, double value) {
    char text[64];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    set_text(metadata, key, text);
}

static const char *get_text(const json_t *metadata, const char *key) {
    const char *text = json_string_value(json_object_get(metadata, key));
    return text ? text : "";
}

static uint64_t get_count(const json_t *metadata, const char *key) {
    return strtoull(get_text(metadata, key), NULL, 10);
}

static double get_real(const json_t *metadata, const char *key) {
    return strtod(get_text(metadata, key), NULL);
}

static const char *or_none(const char *text) {
    return *text ? text : "none";
}

bool fgt_resume_began_trained(const char *from) {
    char path[PATH_MAX];
    fgio_tensor_file file = FGIO_TENSOR_FILE_CLOSED;
    fgio_errors_mute(1); /* reported when it is opened for use */
    bool found = fgt_checkpoint_newest(from, path, sizeof path) == FGIO_EXIT_OK &&
                 fgio_tensor_file_open(path, &file) == FGIO_EXIT_OK;
    fgio_errors_mute(0);
    bool trained = found && strcmp(get_text(file.head.metadata, "trained"), "yes") == 0;
    fgio_tensor_file_close(&file);
    return trained;
}

/* The text of an optimizer of whole tensors ends in the number of threads, which does not change the result; a run may
 * be resumed with another number. */
static void set_optimizer(metadata_builder *metadata, const fgt_worker *w) {
    char text[FGT_FINETUNE_TEXT];
    snprintf(text, sizeof text, "%s", frug_optimizer_text(w->optimizer));
    char *threads = strstr(text, ",threads=");
    if (threads)
        *threads = '\0';
    set_text(metadata, "optimizer", text);
}

/* A run without stages has no such setting, as in earlier versions. */
static void set_stages(metadata_builder *metadata, const fgt_job *job) {
    char count[16] = "";
    if (job->stages)
        snprintf(count, sizeof count, "%u", job->stages);
    set_text(metadata, "stages", count);
    set_text(metadata, "stage-config",
             !job->stages        ? ""
             : job->stage_config ? job->stage_config
                                 : FGT_STAGE_CONFIG_DEFAULT);
    set_text(metadata, "stage-feedback", job->stage_feedback ? job->stage_feedback : "");
}

/* The settings that a resumed run must share, under the names of the command line. */
static void set_settings(metadata_builder *metadata, const fgt_worker *w) {
    const fgt_run *run = w->run;
    set_text(metadata, "model", run->model.text);
    set_text(metadata, "data", fgt_data_get_info(run->data)->name);
    set_text(metadata, "quantize", run->job->quantize ? run->job->quantize : "");
    set_stages(metadata, run->job);
    set_text(metadata, "sparse", run->job->sparse ? run->job->sparse : ""); /* before the method, which it changes */
    set_text(metadata, "method", frug_config_text(w->run->config));
    set_optimizer(metadata, w);
    if (w->joined) /* the tensors of a bucket are one */
        set_count(metadata, "bucket", run->job->bucket_bytes);
    if (run->job->tune)
        set_text(metadata, "head", run->job->tune->head);
    set_text(metadata, "schedule", run->schedule);
    set_real(metadata, "rate", run->base_rate);
    if (run->job->clip_auto)
        set_text(metadata, "clip", "auto");
    else
        set_real(metadata, "clip", run->job->clip);
    set_count(metadata, "batch", run->batch);
    set_count(metadata, "seed", run->job->seed);
    set_count(metadata, "samples", fgt_data_get_info(run->data)->count[FGT_TRAIN]);
    if (fgt_data_get_info(run->data)->augment)
        set_text(metadata, "augment", fgt_data_get_info(run->data)->augment);
}

/* The key of a worker's running norms; all workers have the same, but stages have their own. */
static const char *limits_key(const fgt_worker *w, int rank, char key[32]) {
    if (w->pipeline && rank > 0)
        snprintf(key, 32, "limits.%d", rank);
    else
        snprintf(key, 32, "limits");
    return key;
}

/* The running norms of --clip auto: the weight, then one for each limit. */
static void set_limits(metadata_builder *metadata, const char *key, const double *numbers, size_t count) {
    json_t *list = json_array();
    int failed = list == NULL;
    for (size_t i = 0; i < count; i++)
        failed |= json_array_append_new(list, json_real(numbers[i]));
    char *text = failed ? NULL : fgio_json_dump(list, JSON_COMPACT | JSON_REAL_PRECISION(17));
    set_text(metadata, key, text ? text : "");
    metadata->failed |= !text;
    free(text);
    json_decref(list);
}

/* Each bucket has its own limit, so a run that resumes with other buckets starts with new limits. */
static int get_limits(fgt_worker *w, const json_t *metadata) {
    fgt_norm_limits *limits = fgt_buckets_norm_limits(w->buckets);
    if (get_count(metadata, "bucket") != w->run->job->bucket_bytes) {
        if (w->rank == 0)
            fgio_hint("--bucket differs from that of the checkpoint: the limits of --clip auto start again");
        return FGIO_EXIT_OK;
    }
    char key[32];
    json_t *list = json_loads(get_text(metadata, limits_key(w, w->rank, key)), 0, NULL);
    double *number = calloc(limits->count + 1, sizeof *number);
    int valid = number && json_is_array(list) && json_array_size(list) == limits->count + 1;
    for (size_t i = 0; valid && i <= limits->count; i++)
        number[i] = json_is_number(json_array_get(list, i)) ? json_number_value(json_array_get(list, i)) : -1;
    valid = valid && fgt_norm_limits_restore(limits, number[0], number + 1);
    free(number);
    json_decref(list);
    return valid ? FGIO_EXIT_OK : fgio_error("%s: invalid norms of --clip auto in the checkpoint", w->run->job->resume);
}

/* Whether all stages are ready. */
static bool all_ready(const fgt_worker *w, bool ready) {
    bool all[FGT_STAGES_MAX] = {ready};
    if (w->pipeline && frug_comm_allgather(w->comm, &ready, sizeof ready, all) != FRUG_OK)
        return false;
    for (int r = 0; w->pipeline && r < w->size; r++)
        ready = ready && all[r];
    return ready;
}

/* Those of this worker, or of all stages. Collective with stages, of which the longest decides the length. */
static void collect_limits(const fgt_worker *w, metadata_builder *metadata) {
    const fgt_norm_limits *limits = fgt_buckets_norm_limits(w->buckets);
    uint64_t mine = limits->count + 1, count[FGT_STAGES_MAX] = {mine}, longest = 0;
    const int stages = w->pipeline ? w->size : 1;
    char key[32];
    bool ready = !w->pipeline || frug_comm_allgather(w->comm, &mine, sizeof mine, count) == FRUG_OK;
    for (int r = 0; r < stages && ready; r++)
        longest = count[r] > longest ? count[r] : longest;
    double *own = ready ? calloc(longest, sizeof *own) : NULL;
    double *all = ready ? calloc((size_t)stages * longest, sizeof *all) : NULL;
    ready = all_ready(w, own && all); /* a stage without memory would leave the others waiting below */
    if (ready) {
        own[0] = limits->weight;
        memcpy(own + 1, limits->mean, limits->count * sizeof *own);
        memcpy(all, own, longest * sizeof *own);
        ready = !w->pipeline || frug_comm_allgather(w->comm, own, longest * sizeof *own, all) == FRUG_OK;
    }
    for (int r = 0; r < stages && ready; r++)
        set_limits(metadata, limits_key(w, r, key), all + (size_t)r * longest, count[r]);
    metadata->failed |= !ready;
    free(own);
    free(all);
}

static void collect_metadata(const fgt_worker *w, metadata_builder *metadata) {
    fgt_traffic traffic = fgt_worker_traffic(w);
    double clip[2];
    fgt_clip_save(&w->clip, clip);
    set_settings(metadata, w);
    set_text(metadata, "frugrad", frug_version());
    set_text(metadata, "algorithm", w->reducer ? frug_reducer_algorithm(w->reducer) : "none");
    set_count(metadata, "workers", (uint64_t)w->size);
    set_count(metadata, "accumulate", w->accumulate);
    set_count(metadata, "step", w->step);
    set_count(metadata, "steps", w->steps);
    set_count(metadata, "steps_per_epoch", w->per_epoch);
    if (w->run->trained)
        set_text(metadata, "trained", "yes"); /* defaults depend on it */
    set_count(metadata, "bytes_sent", traffic.bytes);
    set_count(metadata, "bytes_dense", traffic.dense);
    set_real(metadata, "entries_sent", traffic.entries);
    set_real(metadata, "entries_seen", traffic.seen);
    set_real(metadata, "norm", w->norm);
    set_real(metadata, "clip_a", clip[0]);
    set_real(metadata, "clip_b", clip[1]);
    if (w->run->job->clip_auto) {
        collect_limits(w, metadata);
        set_count(metadata, "bucket", w->run->job->bucket_bytes);
    }
}

static uint32_t node_of(const frug_config *config) {
    return fgt_option_is(config, "reduce", "nodes") ? (uint32_t)strtoul(frug_config_get(config, "node"), NULL, 10) : 0;
}

static fgt_checkpoint_state checkpoint_state_of(const fgt_worker *w) {
    bool residual = w->reducer && !w->run->job->tune; /* a dense exchange has no residual */
    fgt_checkpoint_state state = {.comm = w->comm,
                                  .graph = w->graph,
                                  .compressor = residual ? frug_reducer_compressor(w->reducer) : NULL,
                                  .optimizer = w->optimizer,
                                  .own_optimizer = w->local != NULL || w->pipeline != NULL,
                                  .outer = fgt_local_momentum(w->local),
                                  .node = node_of(w->run->config),
                                  .master = w->master.weights};
    if (w->pipeline) {
        state.stages = true;
        state.memory = fgt_pipeline_memory(w->pipeline, &state.memory_floats);
    }
    if (w->sparse) {
        state.mask = w->sparse->mask;
        state.mask_bytes = w->sparse->mask_bytes;
        state.growth = w->sparse->growth;
    }
    return state;
}

/* Masks decide how long the other states are, so they are restored first. */
static int restore_masks(fgt_worker *w, fgt_checkpoint *checkpoint) {
    fgt_checkpoint_state state = {
        .comm = w->comm, .graph = w->graph, .mask = w->sparse->mask, .mask_bytes = w->sparse->mask_bytes};
    bool redistributed = false;
    int status = fgt_checkpoint_restore(checkpoint, &state, &redistributed);
    return status == FGIO_EXIT_OK ? fgt_worker_adopt_masks(w) : status;
}

int fgt_worker_save(fgt_worker *w) {
    const fgt_run *run = w->run;
    fgt_checkpoint_state state = checkpoint_state_of(w);
    frug_optimizer_seek(w->optimizer, w->step);
    metadata_builder metadata = builder_create();
    collect_metadata(w, &metadata);
    char path[sizeof run->report->checkpoint] = "";
    fgio_errors_defer();
    int status = fgt_group_agree(w->comm, metadata.failed ? fgio_error("checkpoint: out of memory") : FGIO_EXIT_OK);
    if (status == FGIO_EXIT_OK)
        status = fgt_checkpoint_write(run->job->save, run->job->keep, w->generation, w->step, &state, metadata.map,
                                      path, sizeof path);
    json_decref(metadata.map);
    if (status == FGIO_EXIT_OK && w->rank == 0) {
        memcpy(run->report->checkpoint, path, sizeof path);
        if (run->callbacks && run->callbacks->saved)
            run->callbacks->saved(run->callbacks->ctx, path, w->step);
    }
    return status;
}

/* Whether a list like a=1,b=2 contains an item. */
static bool list_contains(const char *list, const char *item, size_t length) {
    for (;; list++) {
        size_t have = strcspn(list, ",");
        if (have == length && memcmp(list, item, length) == 0)
            return true;
        list += have;
        if (!*list)
            return false;
    }
}

/* Length of the name at the beginning of a text like sgd:momentum=0.9; 0: it has none. */
static size_t name_length(const char *text) {
    size_t length = strcspn(text, ":,=");
    return text[length] == '=' ? 0 : length;
}

/* The difference of a text from another, because whole texts are too long for an error message: the name before the
 * options, or the options that the other does not have, as many as fit. */
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
        if (!list_contains(others, at, length) && used + length + 5 < cap)
            used += (size_t)snprintf(dst + used, cap - used, "%s%.*s", used > 0 ? "," : "", (int)length, at);
        else if (!list_contains(others, at, length) && used + 4 < cap &&
                 strcmp(dst + (used > 3 ? used - 3 : 0), "...") != 0)
            used += (size_t)snprintf(dst + used, cap - used, "...");
        at += length;
    }
    return *dst ? dst : text;
}

static int setting_differs(const fgt_worker *w, const char *key, const char *saved, const char *current) {
    char a[96], b[96];
    bool list = strcmp(key, "method") == 0 || strcmp(key, "optimizer") == 0;
    if (w->rank != 0)
        return FGIO_EXIT_FAIL;
    if (w->run->job->tune && strcmp(key, "optimizer") == 0)
        key = "method"; /* the option of the command line that has it */
    if (strcmp(key, "samples") == 0 && strcmp(w->run->job->data, "builtin") != 0) {
        fgio_error("%s: the data had %s samples for training when the checkpoint was made, now %s", w->run->job->resume,
                   saved, current);
        fgio_hint("restore the files that are missing or were added; one that cannot be read needs a replacement");
        return FGIO_EXIT_FAIL;
    }
    fgio_error("%s: the checkpoint was made with --%s %s; this command asks for %s", w->run->job->resume, key,
               list ? difference(saved, current, a, sizeof a) : or_none(saved),
               list ? difference(current, saved, b, sizeof b) : or_none(current));
    fgio_hint("give --%s as in the first run to continue it, or another --save directory to start a new run", key);
    return FGIO_EXIT_FAIL;
}

/* Earlier versions had only --no-augment; without it they cropped and mirrored. */
static const char *saved_setting(const json_t *metadata, const char *key) {
    if (strcmp(key, "augment") == 0 && !json_object_get(metadata, key))
        return strcmp(get_text(metadata, "no-augment"), "yes") == 0 ? "none" : "crop+mirror";
    return get_text(metadata, key);
}

/* Options that were added since have their defaults; those of parameter servers, which are gone, had no effect. */
static bool same_method(const char *saved, const char *current) {
    static const char gone[] = ",servers=1,staleness=0";
    frug_config *config = NULL;
    const char *at = strstr(saved, gone);
    char text[1024];
    if (at)
        snprintf(text, sizeof text, "%.*s%s", (int)(at - saved), saved, at + strlen(gone));
    bool same =
        frug_config_create(at ? text : saved, &config) == FRUG_OK && strcmp(frug_config_text(config), current) == 0;
    frug_config_destroy(config);
    return same;
}

/* Earlier checkpoints have no --bucket, nor joined tensors: the lengths of their residuals tell. */
static bool same_setting(const char *key, const char *saved, const char *current) {
    return strcmp(saved, current) == 0 || (strcmp(key, "method") == 0 && same_method(saved, current)) ||
           (strcmp(key, "bucket") == 0 && *saved == '\0');
}

static int check_settings(const fgt_worker *w, const json_t *metadata) {
    metadata_builder mine = builder_create();
    json_t *value;
    const char *key;
    set_settings(&mine, w);
    int status = mine.failed ? fgio_error("%s: out of memory", w->run->job->resume) : FGIO_EXIT_OK;
    json_object_foreach(mine.map, key, value) {
        const char *saved = saved_setting(metadata, key);
        if (status == FGIO_EXIT_OK && !same_setting(key, saved, json_string_value(value)))
            status = setting_differs(w, key, saved, json_string_value(value));
    }
    json_decref(mine.map);
    return status;
}

/* Sets the step at the same position of the training, also when the number of steps per epoch differs. */
static int set_start_step(fgt_worker *w, const json_t *metadata, uint64_t step) {
    uint64_t per_epoch = get_count(metadata, "steps_per_epoch"), steps = get_count(metadata, "steps");
    if (per_epoch == 0 || steps == 0 || step > steps) {
        if (w->rank == 0)
            fgio_error("%s: the metadata of the checkpoint has step %llu of %s and %s steps an epoch: not of a run of "
                       "this trainer",
                       w->run->job->resume, (unsigned long long)step, or_none(get_text(metadata, "steps")),
                       or_none(get_text(metadata, "steps_per_epoch")));
        return FGIO_EXIT_FAIL;
    }
    w->step = step;
    if (per_epoch != w->per_epoch) {
        w->step = (uint64_t)((double)step / (double)per_epoch * (double)w->per_epoch + 0.5);
        if (w->rank == 0)
            fgio_hint(
                "step %llu of the checkpoint's %llu is step %llu of this run's %llu, at the same position in the data",
                (unsigned long long)step, (unsigned long long)steps, (unsigned long long)w->step,
                (unsigned long long)w->steps);
    } else if (steps != w->steps && w->rank == 0)
        fgio_hint("the checkpoint was made with %llu steps in all, this command asks for %llu: schedules change",
                  (unsigned long long)steps, (unsigned long long)w->steps);
    w->step = w->step < w->steps ? w->step : w->steps;
    if (w->step == w->steps && w->rank == 0)
        fgio_hint("no steps are left; a larger --steps or --epochs continues training");
    return FGIO_EXIT_OK;
}

/* Masks change at shares of all steps, so those of the checkpoint must be those of this run at its step. With another
 * number of workers the step is rounded; an update more or less is then made up for by the next one, but not by the
 * last. */
static int check_masks(const fgt_worker *w, const json_t *metadata, uint64_t step) {
    const fgt_sparse_options *o = &w->run->sparse;
    const uint64_t steps = get_count(metadata, "steps");
    if (!w->sparse)
        return FGIO_EXIT_OK;
    double saved = fgt_sparse_progress(o, step, steps), now = fgt_sparse_progress(o, w->step, w->steps);
    double allowed = get_count(metadata, "steps_per_epoch") == w->per_epoch ? 0 : 1.001 / o->updates;
    bool begun = step >= fgt_sparse_begin(o, steps), begun_now = w->step >= fgt_sparse_begin(o, w->steps);
    if (fabs(saved - now) <= allowed && (saved == 1) == (now == 1) && (o->kind != FGT_SPARSE_NM || begun == begun_now))
        return FGIO_EXIT_OK;
    if (w->rank == 0)
        fgio_error("%s: masks change at shares of all steps: resume with --workers %s --steps %llu",
                   w->run->job->resume, get_text(metadata, "workers"), (unsigned long long)steps);
    return FGIO_EXIT_FAIL;
}

/* Micro-batches change the rounding of sums, and the statistics of batch norm. Checkpoints without this key had one. */
static int check_accumulate(const fgt_worker *w, const json_t *metadata) {
    uint64_t saved = json_object_get(metadata, "accumulate") ? get_count(metadata, "accumulate") : 1;
    if (saved == w->accumulate)
        return FGIO_EXIT_OK;
    if (w->rank == 0) {
        fgio_error("%s: the checkpoint's run has %llu micro-batches per batch (--accumulate %llu), but this run "
                   "has %u (--accumulate %u)",
                   w->run->job->resume, (unsigned long long)saved, (unsigned long long)saved, w->accumulate,
                   w->accumulate);
        fgio_hint("without --accumulate a resumed run uses that of the checkpoint");
    }
    return FGIO_EXIT_FAIL;
}

static int restore_run(fgt_worker *w, fgt_checkpoint *checkpoint, const json_t *metadata, uint64_t step) {
    bool redistributed = false;
    int status = check_settings(w, metadata);
    if (status == FGIO_EXIT_OK)
        status = check_accumulate(w, metadata);
    if (status == FGIO_EXIT_OK)
        status = set_start_step(w, metadata, step);
    if (status == FGIO_EXIT_OK)
        status = check_masks(w, metadata, step);
    status = fgt_group_agree(w->comm, status); /* memory may have run out on one worker only */
    fgio_errors_defer();
    if (status == FGIO_EXIT_OK && w->sparse)
        status = restore_masks(w, checkpoint);
    fgt_checkpoint_state state = checkpoint_state_of(w);
    if (status == FGIO_EXIT_OK)
        frug_optimizer_seek(w->optimizer,
                            w->step); /* frees what the saved run had freed by this step: the file does not have it */
    if (status == FGIO_EXIT_OK)
        status = fgt_checkpoint_restore(checkpoint, &state, &redistributed);
    if (status != FGIO_EXIT_OK)
        return status;
    if (redistributed && w->rank == 0)
        fgio_hint("the checkpoint was made with %s workers, this run has %d: %sthe run is the same only on average",
                  get_text(metadata, "workers"), w->size,
                  state.compressor ? "each starts from the mean of all residuals, and " : "");
    if (w->local)
        fgt_local_restart(w->local);
    const double clip[2] = {get_real(metadata, "clip_a"), get_real(metadata, "clip_b")};
    if (!fgt_clip_restore(&w->clip, clip))
        return fgio_error("%s: the metadata of the checkpoint has an invalid norm: clip_a %s, clip_b %s",
                          w->run->job->resume, or_none(get_text(metadata, "clip_a")),
                          or_none(get_text(metadata, "clip_b")));
    if (w->run->job->clip_auto && get_limits(w, metadata) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    fgt_worker_set_norm(w, json_object_get(metadata, "norm") ? get_real(metadata, "norm") : -1);
    w->bytes_before = get_count(metadata, "bytes_sent");
    w->dense_before = get_count(metadata, "bytes_dense");
    w->entries_before = get_real(metadata, "entries_sent");
    w->seen_before = get_real(metadata, "entries_seen");
    return FGIO_EXIT_OK;
}

int fgt_worker_find_checkpoint(fgt_worker *w) {
    const fgt_job *job = w->run->job;
    w->resuming = job->resume != NULL;
    if (!job->resume || !job->resume_if_any)
        return FGIO_EXIT_OK;
    int status = fgt_checkpoint_exists(job->resume, w->comm, &w->resuming);
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

/* Before the first step: a run that cannot be saved should not be trained. */
static int make_save_directory(const char *path) {
    int status = fgio_directory_make(path);
    if (status == FGIO_EXIT_OK && access(path, W_OK | X_OK) != 0)
        status = fgio_error("--save: cannot write to %s: %s", path, strerror(errno));
    return status;
}

/* The directory itself is locked, so that no file is left in it; where the file system has no such locks, runs go
 * without. */
int fgt_worker_lock_save(fgt_worker *w) {
    const char *path = w->run->job->save;
    if (path == NULL || w->rank != 0 || w->save_lock >= 0)
        return FGIO_EXIT_OK;
    w->save_lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->save_lock < 0 || fgio_lock(w->save_lock) == 0 || errno != EWOULDBLOCK)
        return FGIO_EXIT_OK;
    int status = fgio_error("--save: %s is in use by another run", path);
    fgio_hint("wait until it ends, or name another directory");
    return status;
}

int fgt_worker_resume(fgt_worker *w) {
    const fgt_job *job = w->run->job;
    fgt_checkpoint *checkpoint = NULL;
    json_t *metadata = NULL;
    uint64_t step = 0;
    int status = FGIO_EXIT_OK;
    if (w->resuming) {
        status = fgt_checkpoint_open(job->resume, w->comm, &checkpoint, &metadata, &step);
        if (status == FGIO_EXIT_OK)
            status = restore_run(w, checkpoint, metadata, step);
    }
    if (status == FGIO_EXIT_OK && job->save && w->rank == 0)
        status = make_save_directory(job->save);
    if (status == FGIO_EXIT_OK && job->save && w->rank == 0)
        status = fgt_worker_lock_save(w);
    if (status == FGIO_EXIT_OK && job->save && w->rank == 0)
        status = fgt_checkpoint_next_generation(job->save, checkpoint, w->step, &w->generation);
    fgt_checkpoint_close(checkpoint);
    return status;
}

int fgt_worker_load_weights(fgt_worker *w) {
    fgt_checkpoint_state state = {.comm = w->comm, .graph = w->graph, .stages = w->pipeline != NULL};
    fgt_checkpoint *checkpoint = NULL;
    json_t *metadata = NULL;
    bool redistributed;
    int status = fgt_checkpoint_open(w->run->job->resume, w->comm, &checkpoint, &metadata, &w->step);
    if (status == FGIO_EXIT_OK && w->rank == 0)
        fgt_checkpoint_compare_model(w->run->job->resume, metadata, w->run->model.text);
    if (status == FGIO_EXIT_OK)
        status = fgt_checkpoint_restore(checkpoint, &state, &redistributed);
    fgt_checkpoint_close(checkpoint);
    return status;
}
