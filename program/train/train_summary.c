/*
 * train_summary.c - the summary of a run, as text or JSON.
 *
 * Times are means per step; those of the exchange may overlap with backward, so they are not parts of the step and are
 * listed beside it.
 */
#include "program/train/train_summary.h"

#include "io/json.h"
#include "io/status_line.h"
#include "trainer/pipeline/pipeline.h"
#include "trainer/run/worker_group.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LABEL = 14 };

const char *fgp_split_name(fgt_split split) {
    static const char *const names[FGT_SPLITS] = {"train", "valid", "test"};
    return names[split < FGT_SPLITS ? split : FGT_TEST];
}

int fgp_quality_known(const fgt_eval_result *quality) {
    return isfinite(quality->loss);
}

const char *fgp_quality_text(const fgt_eval_result *q, char *dst, size_t cap) {
    if (isfinite(q->perplexity))
        snprintf(dst, cap, "perplexity %.2f", q->perplexity);
    else if (isfinite(q->correlation))
        snprintf(dst, cap, "correlation %.4f", q->correlation);
    else
        snprintf(dst, cap, "accuracy %.2f %%", 100 * q->accuracy);
    size_t used = strlen(dst);
    if (isfinite(q->f1))
        snprintf(dst + used, cap - used, ", F1 %.4f", q->f1);
    if (isfinite(q->matthews))
        snprintf(dst + used, cap - used, ", Matthews %.4f", q->matthews);
    return dst;
}

/* ---- text ----------------------------------------------------------------------------------- */

static void label(const char *name) {
    printf("  %-*s", LABEL, name);
}

static void print_quality(const fgt_report *r) {
    char text[64], asked[32];
    const fgt_eval_result *q = &r->quality;
    if (fgp_quality_known(q)) {
        fgp_quality_text(q, text, sizeof text);
        char *number = strchr(text, ' ');
        *number++ = '\0';
        label(text);
        printf("%s (%s split, %s answers)\n", number, fgp_split_name(q->split),
               fgio_count_text((uint64_t)q->asked, asked, sizeof asked));
        label("loss");
        printf("%.4f", q->loss);
        if (isfinite(r->train_loss))
            printf(" (while training %.4f)", r->train_loss);
        printf("\n");
    } else {
        label("loss");
        if (isfinite(r->train_loss))
            printf("%.4f while training; not evaluated\n", r->train_loss);
        else
            printf("not evaluated, and no step of the last tenth was run\n");
    }
}

/* Fine-tuning: the quality before, targets and states. */
static void print_tuning(const fgp_request *request, const fgt_report *r) {
    const fgt_finetune_result *t = &r->tuning;
    char text[64], params[32], states[32], bytes[32];
    if (fgp_quality_known(&r->before)) {
        label("before");
        printf("%s, loss %.4f\n", fgp_quality_text(&r->before, text, sizeof text), r->before.loss);
    }
    label("moved");
    printf("%" PRIu32 " target%s (%s), %s parameters", t->targets, t->targets == 1 ? "" : "s", request->tune.targets,
           fgio_count_text(t->target_params, params, sizeof params));
    if (t->heads > 0)
        printf("; head: %" PRIu32 " tensors, %s parameters", t->heads,
               fgio_count_text(t->head_params, params, sizeof params));
    printf("\n");
    label("states");
    printf("%s", fgio_count_text(t->states, states, sizeof states));
    if (t->heads > 0)
        printf(", of the head %s", fgio_count_text(t->head_states, states, sizeof states));
    printf("; optimizer state %s\n", fgio_bytes_text(t->optimizer_bytes, bytes, sizeof bytes));
}

static void print_tuning_times(const fgt_report *r) {
    const fgt_finetune_result *t = &r->tuning;
    label("step");
    printf("%.1f ms (median); means: forward %.1f, backward %.1f, project %.1f, recover %.1f, apply %.1f, exchange "
           "%.1f, other %.1f\n",
           r->step_ms, r->ms_forward, t->ms_backward, t->ms_project, t->ms_recover, t->ms_apply, t->ms_exchange,
           t->ms_other);
}

/* A single worker: the size of its frames. */
static void print_alone(const fgt_report *r) {
    printf("nothing: a single worker exchanges nothing");
    if (r->bytes_sent > 0 && r->bytes_sent < r->bytes_dense)
        printf("; its frames had %.1f %% of the bytes of dense gradients",
               100 * (double)r->bytes_sent / (double)r->bytes_dense);
    printf("\n");
}

static void print_traffic(const fgt_report *r) {
    char sent[32], dense[32], ratio[32];
    const char *by = r->stages > 0 ? "between all stages" : "by each worker";
    label("sent");
    if (r->workers == 1 && r->stages == 0) {
        print_alone(r);
    } else if (r->bytes_sent == 0) {
        printf("nothing\n");
        return;
    } else if (r->bytes_sent == r->bytes_dense) {
        printf("%s %s\n", fgio_bytes_text(r->bytes_sent, sent, sizeof sent), by);
    } else {
        printf("%s instead of %s %s: %.1f %%, %s\n", fgio_bytes_text(r->bytes_sent, sent, sizeof sent),
               fgio_bytes_text(r->bytes_dense, dense, sizeof dense), by,
               100 * (double)r->bytes_sent / (double)r->bytes_dense,
               fgio_ratio_text((double)r->bytes_dense, (double)r->bytes_sent, ratio, sizeof ratio));
    }
    label("density");
    printf("%.2f %% of the entries", 100 * r->density_mean);
    if (r->workers > 1)
        printf(", exchanged by %s%s", r->algorithm,
               strcmp(r->algorithm, "gossip") == 0 ? "; evaluated is the mean of all workers" : "");
    printf("\n");
    if (r->params_whole > 0 && r->density_mean < 1) {
        label("");
        printf("%s of %s parameters are in tensors that are sent whole: small, or of one dimension\n",
               fgio_count_text(r->params_whole, sent, sizeof sent), fgio_count_text(r->params, dense, sizeof dense));
    }
}

static void print_kept(const fgt_report *r) {
    char kept[32], all[32];
    if (r->params_kept == r->params)
        return;
    label("weights");
    printf("%s of %s parameters are left: %.2f %%\n", fgio_count_text(r->params_kept, kept, sizeof kept),
           fgio_count_text(r->params, all, sizeof all), 100 * (double)r->params_kept / (double)r->params);
}

static void print_times(const fgt_report *r) {
    label("step");
    printf("%.1f ms (median); means: data %.1f, forward %.1f, backward %.1f, blocked %.1f\n", r->step_ms, r->ms_data,
           r->ms_forward, r->ms_backward, r->ms_blocked);
    label("exchange");
    printf("%.1f ms: compress %.1f, wait %.1f, wire %.1f, decode %.1f; optimizer %.1f\n",
           r->ms_compress + r->ms_wait + r->ms_wire + r->ms_decode, r->ms_compress, r->ms_wait, r->ms_wire,
           r->ms_decode, r->ms_optimizer);
}

/* Stages as threads are counted together, and each has its own share. */
static const char *memory_owner(const fgt_report *r) {
    return r->stages == 0 ? "a worker" : fgt_group_is_joined() ? "in stage 0" : "a stage on average";
}

static void print_stage_memory(const fgt_report *r) {
    fgt_stage_bytes least = r->stage_bytes[0], most = least;
    char a[32], b[32], c[32], d[32];
    for (uint32_t i = 1; i < r->stages; i++) {
        const fgt_stage_bytes *s = &r->stage_bytes[i];
        least.weights = s->weights < least.weights ? s->weights : least.weights;
        most.weights = s->weights > most.weights ? s->weights : most.weights;
        least.states = s->states < least.states ? s->states : least.states;
        most.states = s->states > most.states ? s->states : most.states;
    }
    label("stages");
    printf("each has %s to %s of weights, and %s to %s of residual and optimizer\n",
           fgio_bytes_text(least.weights, a, sizeof a), fgio_bytes_text(most.weights, b, sizeof b),
           fgio_bytes_text(least.states, c, sizeof c), fgio_bytes_text(most.states, d, sizeof d));
}

static void print_memory(const fgp_request *request, const fgt_report *r) {
    char a[32], b[32], c[32], d[32];
    label("model state");
    printf("%s %s, at most: weights %s, gradients %s, library %s\n", fgio_bytes_text(r->model_state_bytes, a, sizeof a),
           memory_owner(r), fgio_bytes_text(r->weight_bytes, b, sizeof b),
           fgio_bytes_text(r->gradient_bytes, c, sizeof c), fgio_bytes_text(r->library_bytes, d, sizeof d));
    if (r->stages > 0)
        print_stage_memory(r);
    label("memory");
    printf("%s for the process at most (peak RSS); activations %s %s", fgio_bytes_text(r->peak_rss_bytes, a, sizeof a),
           fgio_bytes_text(r->activation_bytes, b, sizeof b), memory_owner(r));
    if (r->accumulate > 1)
        printf(", %" PRIu32 " micro-batches", r->accumulate);
    printf("%s\n", request->job.recompute ? ", recomputed" : "");
}

const char *fgp_setting_text(const fgt_job *job, const fgt_report *r, char *dst, size_t cap) {
    char clip[32] = "auto";
    if (!job->clip_auto)
        snprintf(clip, sizeof clip, job->clip > 0 ? "%g" : "off", job->clip);
    snprintf(dst, cap, "rate %g, schedule %s, clip %s%s%s%s%s", r->rate, r->schedule, clip,
             r->tokens[0] != '\0' ? ", tokens " : "", r->tokens, r->augment != NULL ? ", augmentation " : "",
             r->augment != NULL ? r->augment : "");
    return dst;
}

static void print_setting(const fgp_request *request, const fgt_report *r) {
    char setting[512];
    label("method");
    fgio_print_wrapped(fgp_request_method(request), LABEL + 2, 100);
    label("optimizer");
    fgio_print_wrapped(r->optimizer, LABEL + 2, 100);
    label("setting");
    fgio_print_wrapped(fgp_setting_text(&request->job, r, setting, sizeof setting), LABEL + 2, 100);
    if (r->gain < 1 || r->gain > 1) {
        label("gain");
        printf("merged momentum: the highest learning rate was multiplied by %.4g\n", r->gain);
    }
    if (r->checkpoint[0] != '\0') {
        label("checkpoint");
        printf("%s\n", r->checkpoint);
    }
}

void fgp_summary_print(const fgp_request *request, const fgt_report *r) {
    const fgt_job *job = &request->job;
    char params[32], count[32], time[32];
    printf("\n%s (%s parameters) on %s: %s steps of %" PRIu32 " x %" PRIu32 " in %s%s\n\n", job->model,
           fgio_count_text(r->params, params, sizeof params), job->data, fgio_count_text(r->step, count, sizeof count),
           r->workers, r->batch, fgio_duration_text(r->seconds, time, sizeof time),
           r->interrupted ? ", then interrupted" : "");
    print_quality(r);
    if (job->tune != NULL)
        print_tuning(request, r);
    print_kept(r);
    print_traffic(r);
    if (job->tune != NULL)
        print_tuning_times(r);
    else
        print_times(r);
    print_memory(request, r);
    print_setting(request, r);
    printf("\n");
}

void fgp_verdict_print(const fgp_request *request, const fgt_eval_result *q, const fgt_report *r) {
    char text[64], asked[32], params[32];
    printf("%s (%s parameters) on %s, %s split, %s answers: %s", request->job.model,
           fgio_count_text(r->params, params, sizeof params), request->job.data, fgp_split_name(q->split),
           fgio_count_text((uint64_t)q->asked, asked, sizeof asked), fgp_quality_text(q, text, sizeof text));
    if (isfinite(q->accuracy) && !isfinite(q->perplexity))
        printf(" (error %.2f %%)", 100 * (1 - q->accuracy));
    printf(", loss %.4f\n", q->loss);
}

/* ---- JSON ------------------------------------------------------------------------------------- */

static void set_count(json_t *to, const char *name, uint64_t count) {
    json_object_set_new(to, name, json_integer((json_int_t)count));
}

static void set_real(json_t *to, const char *name, double number) {
    json_object_set_new(to, name, fgio_json_real(number));
}

static void set_text(json_t *to, const char *name, const char *text) {
    json_object_set_new(to, name, text == NULL || text[0] == '\0' ? json_null() : fgio_json_text(text));
}

static void set_quality(json_t *to, const fgt_eval_result *q) {
    int known = fgp_quality_known(q);
    set_real(to, "accuracy", known ? q->accuracy : NAN);
    set_real(to, "perplexity", known ? q->perplexity : NAN);
    set_real(to, "correlation", known ? q->correlation : NAN);
    if (known && isfinite(q->f1))
        set_real(to, "f1", q->f1);
    if (known && isfinite(q->matthews))
        set_real(to, "matthews", q->matthews);
    set_real(to, "loss", q->loss);
    set_text(to, "split", known ? fgp_split_name(q->split) : NULL);
    set_count(to, "answers", known ? (uint64_t)q->asked : 0);
}

static void set_asked(json_t *to, const fgp_request *request, const fgt_report *r) {
    const fgt_job *job = &request->job;
    set_text(to, "version", frug_version());
    set_text(to, "model", job->model);
    set_text(to, "data", job->data);
    set_count(to, "seed", job->seed);
    set_count(to, "workers", r->workers);
    set_count(to, "threads", job->threads);
    set_count(to, "batch", r->batch);
    set_count(to, "accumulate", r->accumulate);
    set_count(to, "params", r->params);
}

static void set_memory(json_t *to, const fgt_report *r) {
    set_count(to, "model_state_bytes", r->model_state_bytes);
    set_count(to, "weight_bytes", r->weight_bytes);
    set_count(to, "gradient_bytes", r->gradient_bytes);
    set_count(to, "library_bytes", r->library_bytes);
    set_count(to, "activation_bytes", r->activation_bytes);
    set_count(to, "peak_rss_bytes", r->peak_rss_bytes);
}

/* One number for each stage. */
static void set_stage_bytes(json_t *to, const fgt_report *r) {
    json_t *weights = json_array(), *states = json_array();
    for (uint32_t i = 0; i < r->stages; i++) {
        json_array_append_new(weights, json_integer((json_int_t)r->stage_bytes[i].weights));
        json_array_append_new(states, json_integer((json_int_t)r->stage_bytes[i].states));
    }
    json_object_set_new(to, "stage_weight_bytes", weights);
    json_object_set_new(to, "stage_state_bytes", states);
}

static json_t *times_of(const fgt_report *r) {
    json_t *times = json_object();
    set_real(times, "data", r->ms_data);
    set_real(times, "forward", r->ms_forward);
    set_real(times, "backward", r->ms_backward);
    set_real(times, "blocked", r->ms_blocked);
    set_real(times, "compress", r->ms_compress);
    set_real(times, "wait", r->ms_wait);
    set_real(times, "wire", r->ms_wire);
    set_real(times, "decode", r->ms_decode);
    set_real(times, "optimizer", r->ms_optimizer);
    return times;
}

static void set_tuning(json_t *to, const fgp_request *request, const fgt_report *r) {
    const fgt_finetune_result *t = &r->tuning;
    json_t *before = json_object(), *times = json_object_get(to, "time_ms");
    set_quality(before, &r->before);
    json_object_set_new(to, "before", before);
    set_text(to, "targets", request->tune.targets);
    set_count(to, "target_count", t->targets);
    set_text(to, "first_target", t->first);
    set_count(to, "target_params", t->target_params);
    set_count(to, "head_count", t->heads);
    set_count(to, "head_params", t->head_params);
    set_count(to, "states", t->states);
    set_count(to, "head_states", t->head_states);
    set_count(to, "optimizer_bytes", t->optimizer_bytes);
    set_real(times, "backward", t->ms_backward);
    set_real(times, "project", t->ms_project);
    set_real(times, "recover", t->ms_recover);
    set_real(times, "apply", t->ms_apply);
    set_real(times, "exchange", t->ms_exchange);
    set_real(times, "other", t->ms_other);
}

int fgp_summary_json(const fgp_request *request, const fgt_report *r) {
    json_t *all = json_object();
    set_quality(all, &r->quality);
    set_real(all, "train_loss", r->train_loss);
    set_count(all, "bytes_sent", r->bytes_sent);
    set_count(all, "bytes_dense", r->bytes_dense);
    set_real(all, "density_mean", r->density_mean);
    set_memory(all, r);
    set_count(all, "activation_uncut_bytes", r->activation_uncut);
    json_object_set_new(all, "recompute", json_boolean(request->job.recompute));
    set_real(all, "seconds", r->seconds);
    set_real(all, "step_ms", r->step_ms);
    json_object_set_new(all, "time_ms", times_of(r));
    if (request->job.tune != NULL)
        set_tuning(all, request, r);
    set_count(all, "step", r->step);
    set_count(all, "steps", r->steps);
    set_asked(all, request, r);
    set_text(all, "method", fgp_request_method(request));
    set_text(all, "config", r->config);
    set_text(all, "algorithm", r->algorithm);
    set_text(all, "optimizer", r->optimizer);
    if (request->job.quantize != NULL)
        set_text(all, "quantize", request->job.quantize);
    if (r->stages > 0) {
        set_count(all, "stages", r->stages);
        set_stage_bytes(all, r);
        set_text(all, "stage_config",
                 request->job.stage_config != NULL ? request->job.stage_config : FGT_STAGE_CONFIG_DEFAULT);
        set_text(all, "stage_feedback", request->job.stage_feedback);
    }
    if (request->job.sparse != NULL) {
        set_text(all, "sparse", request->job.sparse);
        set_count(all, "params_kept", r->params_kept);
    }
    set_text(all, "schedule", r->schedule);
    set_real(all, "rate", r->rate);
    if (request->job.clip_auto)
        set_text(all, "clip", "auto");
    else
        set_real(all, "clip", request->job.clip);
    set_text(all, "tokens", r->tokens);
    set_count(all, "params_whole", r->params_whole);
    if (r->augment != NULL)
        set_text(all, "augment", r->augment);
    set_real(all, "gain", r->gain);
    json_object_set_new(all, "interrupted", json_boolean(r->interrupted));
    set_text(all, "checkpoint", r->checkpoint);
    return fgio_json_print(all, JSON_INDENT(2), stdout);
}

int fgp_verdict_json(const fgp_request *request, const fgt_eval_result *q, const fgt_report *r) {
    json_t *all = json_object();
    set_quality(all, q);
    set_real(all, "error", isfinite(q->accuracy) ? 1 - q->accuracy : NAN);
    set_asked(all, request, r);
    set_text(all, "weights", request->job.weights != NULL ? request->job.weights : request->job.resume);
    set_real(all, "seconds", r->seconds);
    set_memory(all, r);
    return fgio_json_print(all, JSON_INDENT(2), stdout);
}
