/*
 * finetune_plan.c - from the options of fine-tuning to the trained tensors and the text of the optimizer.
 *
 * The library decides which tensors are targets: an optimizer is created as a probe and asked which tensors it needs as
 * a whole. A number of states is converted to entries (2 kappa states each) or a rank (2 (n + m) or 2 max(n, m) states
 * each), the largest that does not exceed it. Chunks keep their default number of entries, because few measurements of
 * a long chunk recover nothing.
 */
#include "trainer/run/finetune_plan.h"

#include "base/hash.h"
#include "trainer/checkpoint/checkpoint.h"
#include "io/error.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FULL "full"

/* ---- kinds ---- */

bool fgt_finetune_supports(const frug_optimizer_kind *kind) {
    return strstr(kind->options, "targets=") && strstr(kind->options, "others=");
}

const char *fgt_finetune_kind_at(size_t i) {
    const frug_optimizer_kind *kind;
    if (i == 0)
        return FULL;
    for (size_t k = 0; (kind = frug_optimizer_at(k)); k++)
        if (fgt_finetune_supports(kind) && --i == 0)
            return kind->name;
    return NULL;
}

/* Default value of an option of a kind; NULL: it has no such option. */
static const char *default_of(const char *name, const char *option) {
    const frug_optimizer_kind *kind;
    size_t length = strlen(option);
    for (size_t k = 0; (kind = frug_optimizer_at(k)); k++)
        if (strcmp(kind->name, name) == 0)
            for (const char *at = kind->options; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
                if (strncmp(at, option, length) == 0 && at[length] == '=')
                    return at + length + 1;
    return NULL;
}

/* The same as a number; 0: none. */
static uint64_t default_number(const char *name, const char *option) {
    const char *text = default_of(name, option);
    return text ? strtoull(text, NULL, 10) : 0;
}

static bool is_kind(const fgt_finetune_options *options, const char *kind) {
    return strcmp(options->kind, kind) == 0;
}

/* ---- trainable tensors ---- */

static uint64_t elements_of(const fgt_param *p) {
    return (uint64_t)p->rows * p->cols;
}

static bool is_head(const fgt_finetune_options *options, fgt_task task, const fgt_param *p) {
    bool is_classifier = task == FGT_TASK_SENTENCES || task == FGT_TASK_IMAGES;
    if (strcmp(options->head, "none") == 0)
        return false;
    if (strcmp(options->head, "auto") == 0)
        return is_classifier && fgt_weights_is_head(p->tensor.name);
    return fnmatch(options->head, p->tensor.name, 0) == 0;
}

/* Marks head and frozen parameters. The head comes first: a pattern of targets that also matches the head leaves it to
 * AdamW. */
static void mark_params(const fgt_finetune_options *options, fgt_task task, const frug_optimizer *probe,
                        fgt_graph *graph, fgt_finetune_result *result) {
    size_t number = 0;
    for (fgt_param *p = graph->params; p; p = p->next, number++) {
        bool target = !frug_optimizer_can_split(probe, number);
        p->head = is_head(options, task, p);
        p->frozen = !p->head && !target;
        if (p->head) {
            result->heads++;
            result->head_params += elements_of(p);
        } else if (target) {
            if (result->targets++ == 0)
                snprintf(result->first, sizeof result->first, "%s", p->tensor.name);
            result->target_params += elements_of(p);
        }
    }
}

static int find_trainable(const fgt_finetune_options *options, fgt_task task, fgt_graph *graph,
                          fgt_finetune_result *result) {
    char text[FGT_FINETUNE_TEXT];
    frug_layout *layout = NULL;
    frug_optimizer *probe = NULL;
    if (strcspn(options->targets, ",=: \t") != strlen(options->targets))
        return fgio_usage_error("--targets: '%s' is not a pattern of names", options->targets);
    int status = fgt_graph_layout(graph, &layout);
    if (status != FGIO_EXIT_OK)
        return status;
    snprintf(text, sizeof text, "lora:rank=1,targets=%s", options->targets);
    if (frug_optimizer_create(text, layout, NULL, &probe) == FRUG_OK)
        mark_params(options, task, probe, graph, result);
    else
        status = fgio_library_error("--targets");
    frug_optimizer_destroy(probe);
    frug_layout_destroy(layout);
    if (status == FGIO_EXIT_OK && result->heads == 0 && strcmp(options->head, "auto") != 0 &&
        strcmp(options->head, "none") != 0)
        status = fgio_usage_error("--head: no tensor of this model matches '%s'", options->head);
    if (status == FGIO_EXIT_OK && result->targets == 0)
        status = fgio_usage_error("--targets %s: all matching tensors are in the head", options->targets);
    if (status == FGIO_EXIT_OK)
        fgt_graph_freeze(graph);
    return status;
}

/* ---- how many states ---- */

/** Numbers in the optimizer text, besides the given options. */
typedef struct state_numbers {
    uint64_t s, c, rank; /* 0: nothing */
} state_numbers;

static uint64_t min_side(const fgt_graph *graph) {
    uint64_t least = UINT64_MAX;
    for (const fgt_param *p = graph->params; p; p = p->next)
        if (!p->frozen && !p->head) {
            uint64_t side = p->rows < p->cols ? p->rows : p->cols;
            least = side < least ? side : least;
        }
    return least;
}

/* States of all targets for one entry each, or for a rank of 1. */
static uint64_t states_per_entry(const fgt_finetune_options *options, const fgt_graph *graph, uint64_t kappa) {
    uint64_t sum = 0;
    for (const fgt_param *p = graph->params; p; p = p->next)
        if (!p->frozen && !p->head)
            sum += kappa                      ? 2 * kappa
                   : is_kind(options, "lora") ? 2 * (uint64_t)(p->rows + p->cols)
                   : p->rows > p->cols        ? 2 * (uint64_t)p->rows
                                              : 2 * (uint64_t)p->cols;
    return sum;
}

/* Chunks have equal numbers of entries. Of the numbers of chunks from three quarters of the default on, selects the one
 * that leaves the fewest entries unused. */
static state_numbers distribute_entries(const fgt_finetune_options *options, uint64_t s) {
    uint64_t most = default_number(options->kind, "c"), each = most ? default_number(options->kind, "s") / most : 1;
    state_numbers n = {.s = s};
    if (most == 0) /* sgc has no chunks */
        return n;
    most = s / each < most ? s / each : most;
    n.c = options->chunks ? options->chunks : most ? most : 1;
    for (uint64_t c = n.c; !options->chunks && 4 * c >= 3 * most && c > 1; c--)
        n.c = s % c < s % n.c ? c : n.c;
    n.s -= n.s % n.c;
    return n;
}

static int count_states(const fgt_finetune_options *options, const fgt_graph *graph, state_numbers *n) {
    uint64_t kappa = default_number(options->kind, "kappa"), rank = default_number(options->kind, "rank"),
             side = min_side(graph);
    kappa = kappa && options->kappa ? options->kappa : kappa;
    if (rank && !options->rank && rank > side)
        n->rank = side;
    if (options->states == 0)
        return FGIO_EXIT_OK;
    if (is_kind(options, FULL))
        return fgio_usage_error("--states: full has two states for every trainable parameter");
    if (!kappa && options->rank)
        return fgio_usage_error("--states and --rank both set the number of states of %s; give only one of them",
                                options->kind);
    uint64_t each = states_per_entry(options, graph, kappa), most = options->states / each;
    uint64_t least = each * (kappa && options->chunks ? options->chunks : 1);
    if (options->states < least)
        return fgio_usage_error("--states %" PRIu64 ": %s takes at least %" PRIu64 " for the targets %s of this model",
                                options->states, options->kind, least, options->targets);
    if (kappa) {
        state_numbers entries = distribute_entries(options, most);
        n->s = entries.s;
        n->c = entries.c;
    } else {
        n->rank = most < side ? most : side;
    }
    return FGIO_EXIT_OK;
}

/* ---- its text ---- */

typedef struct text_writer {
    char *text;
    size_t used;
} text_writer;

static void put_option(text_writer *w, const char *name, const char *value) {
    if (w->used < FGT_FINETUNE_TEXT)
        w->used += (size_t)snprintf(w->text + w->used, FGT_FINETUNE_TEXT - w->used, "%s%s=%s",
                                    strchr(w->text, ':') ? "," : ":", name, value);
}

/* 0: not given; the default of the kind applies. */
static void put_count_option(text_writer *w, const char *name, uint64_t count) {
    char value[32];
    snprintf(value, sizeof value, "%" PRIu64, count);
    if (count)
        put_option(w, name, value);
}

/* Options that the command line has under another name are refused here: the plan above would not see them, and the
 * last one in the text would win. s follows from the number of states, where there is one. */
static int check_options(const fgt_finetune_options *options) {
    static const char *const reserved[][2] = {
        {"targets", "--targets"}, {"others", "--head"}, {"kappa", "--kappa"},     {"c", "--chunks"}, {"rank", "--rank"},
        {"refresh", "--refresh"}, {"scale", "--scale"}, {"threads", "--threads"}, {"s", "--states"}};
    const size_t count = sizeof reserved / sizeof *reserved - (options->states == 0);
    for (const char *at = options->options; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        for (size_t i = 0, length; i < count; i++) {
            length = strlen(reserved[i][0]);
            if (strncmp(at, reserved[i][0], length) == 0 && at[length] == '=')
                return fgio_usage_error("--optimizer-options: '%s' is set by %s", reserved[i][0], reserved[i][1]);
        }
    return FGIO_EXIT_OK;
}

static int write_optimizer_text(const fgt_finetune_options *options, const state_numbers *n, uint32_t threads,
                                bool head, char text[FGT_FINETUNE_TEXT]) {
    bool full = is_kind(options, FULL);
    char scale[32];
    text_writer w = {text, (size_t)snprintf(text, FGT_FINETUNE_TEXT, "%s", full ? "adamw:decay=0" : options->kind)};
    put_count_option(&w, "s", n->s);
    put_count_option(&w, "kappa", options->kappa);
    put_count_option(&w, "c", n->c ? n->c : options->chunks);
    put_count_option(&w, "rank", n->rank ? n->rank : options->rank);
    put_count_option(&w, "refresh", options->refresh);
    snprintf(scale, sizeof scale, "%.9g", options->scale);
    if (options->scale > 0)
        put_option(&w, "scale", scale);
    if (!full) {
        put_option(&w, "targets", options->targets);
        put_option(&w, "others", head ? "adamw" : "frozen");
        put_count_option(&w, "threads", threads < 64 ? threads : 64);
    }
    if (options->options && w.used < FGT_FINETUNE_TEXT)
        w.used += (size_t)snprintf(text + w.used, FGT_FINETUNE_TEXT - w.used, "%s%s", strchr(text, ':') ? "," : ":",
                                   options->options);
    return w.used < FGT_FINETUNE_TEXT ? FGIO_EXIT_OK : fgio_usage_error("--optimizer-options: too long");
}

int fgt_finetune_plan(const fgt_finetune_options *options, fgt_task task, uint32_t threads, fgt_graph *graph,
                      char text[FGT_FINETUNE_TEXT], fgt_finetune_result *result) {
    state_numbers n = {0};
    *result = (fgt_finetune_result){0};
    int status = check_options(options);
    if (status == FGIO_EXIT_OK)
        status = find_trainable(options, task, graph, result);
    if (status == FGIO_EXIT_OK)
        status = count_states(options, graph, &n);
    return status == FGIO_EXIT_OK ? write_optimizer_text(options, &n, threads, result->heads > 0, text) : status;
}

/* ---- for the exchange ---- */

static frug_tensor as_vector(const fgt_param *p) {
    frug_tensor t = FRUG_TENSOR_INIT;
    t.name = p->tensor.name;
    t.role = p->tensor.ndim < 2 ? p->tensor.role : FRUG_ROLE_OTHER;
    t.ndim = 1;
    t.shape[0] = elements_of(p);
    t.offset = p->tensor.offset;
    return t;
}

int fgt_finetune_layout(const fgt_graph *graph, uint64_t measured, uint64_t *measured_at, frug_layout **layout) {
    frug_layout *made = NULL;
    frug_status status = frug_layout_create(&made);
    for (const fgt_param *p = graph->params; p && status == FRUG_OK; p = p->next) {
        frug_tensor t = p->head ? as_vector(p) : p->tensor;
        if (!p->frozen)
            status = frug_layout_add(made, &t);
    }
    if (status == FRUG_OK && measured) {
        frug_tensor t = FRUG_TENSOR_INIT;
        t.name = "measurements";
        t.ndim = 1;
        t.shape[0] = measured;
        t.offset = *measured_at = graph->elements;
        status = frug_layout_add(made, &t);
    }
    if (status != FRUG_OK) {
        frug_layout_destroy(made);
        return fgio_library_error("fine-tuning");
    }
    *layout = made;
    return FGIO_EXIT_OK;
}

/* A kind with a measurement matrix measures: both states of every target, as many numbers as it keeps. */
uint64_t fgt_finetune_measured_each(const fgt_finetune_options *options, const fgt_finetune_result *result) {
    return default_of(options->kind, "matrix") ? result->states / result->targets : 0;
}

uint64_t fgt_finetune_measured(const fgt_graph *graph, uint64_t each) {
    uint64_t sum = 0;
    for (const fgt_param *p = graph->params; p; p = p->next)
        sum += !p->frozen && !p->head && each < elements_of(p) ? each : 0;
    return sum;
}

/* The text may be NULL. It ends with a word that no character equals. */
static uint64_t hash_text(uint64_t hash, const char *text) {
    return frugi_hash_word(frugi_hash_text(hash, text ? text : ""), 0x100);
}

uint64_t fgt_finetune_hash(const fgt_finetune_options *options) {
    uint64_t hash = FRUGI_HASH_INIT, scale;
    const char *const texts[] = {options->kind, options->targets, options->head, options->options};
    memcpy(&scale, &options->scale, sizeof scale);
    const uint64_t counts[] = {options->states, options->kappa,   options->chunks,
                               options->rank,   options->refresh, scale};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        hash = hash_text(hash, texts[i]);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        hash = frugi_hash_word(hash, counts[i]);
    return hash;
}
