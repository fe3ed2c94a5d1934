/*
 * model.c - the table of models, the parser of their names, and building a graph from a name.
 *
 * One row per model has its default sizes and the text of --help; options after a colon change the sizes of a
 * transformer.
 */
#include "trainer/model/model.h"

#include "trainer/model/model_families.h"
#include "trainer/base/counted_alloc.h"
#include "trainer/nn/graph_stages.h"
#include "io/error.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS(layers, width, heads, length, dropout)                                                                 \
    "layers=" #layers ",width=" #width ",heads=" #heads ",length=" #length ",dropout=" #dropout ",vocab=0"
#define TRANSFORMER(name, kind, task, layers, width, heads, length, dropout, help)                                     \
    {                                                                                                                  \
        {name, OPTIONS(layers, width, heads, length, dropout), help}, fgt_build_##kind, {                              \
            "", name, task, 0, 0, 0, 0, layers, width, heads, length, 0, dropout, {                                    \
                { 0 }                                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    }
#define IMAGES(name, kind, channels, size, classes, layers, help)                                                      \
    {                                                                                                                  \
        {name, NULL, help}, fgt_build_##kind, {                                                                        \
            "", name, FGT_TASK_IMAGES, channels, size, size, classes, layers, 0, 0, 0, 0, 0.0, {                       \
                { 0 }                                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    }
#define GPT2(name, layers, width, heads, length, dropout, help)                                                        \
    TRANSFORMER(name, gpt2, FGT_TASK_LANGUAGE, layers, width, heads, length, dropout, help)
#define BERT(name, layers, width, heads, length, help)                                                                 \
    TRANSFORMER(name, bert, FGT_TASK_SENTENCES, layers, width, heads, length, 0.1, help)
#define BERT_MLM(name, layers, width, heads, length, help)                                                             \
    TRANSFORMER(name, bert, FGT_TASK_MASKED, layers, width, heads, length, 0.1, help)

typedef struct model_row {
    fgt_model_kind kind;
    fgt_model_builder *build;
    fgt_model model;
} model_row;

static const model_row table[] = {
    IMAGES("mlp", mlp, 1, 28, 10, 3, "perceptron with hidden layers of 256 and 128"),
    IMAGES("lenet", lenet, 1, 28, 10, 5, "LeNet-5: two convolutions, three linear layers"),
    IMAGES("resnet20", resnet_cifar, 3, 32, 10, 20, "ResNet-20 for CIFAR, 0.27 M parameters"),
    IMAGES("resnet32", resnet_cifar, 3, 32, 10, 32, "ResNet-32 for CIFAR, 0.46 M"),
    IMAGES("resnet56", resnet_cifar, 3, 32, 10, 56, "ResNet-56 for CIFAR, 0.85 M"),
    IMAGES("resnet18", resnet, 3, 224, 1000, 18, "ResNet-18 for ImageNet, 11.7 M"),
    IMAGES("resnet50", resnet, 3, 224, 1000, 50, "ResNet-50 for ImageNet, 25.6 M"),
    GPT2("gpt2", 12, 768, 12, 1024, 0.1, "GPT-2 of any size"),
    GPT2("gpt2-nano", 3, 48, 3, 64, 0.0, "GPT-2, the smallest that learns to spell"),
    GPT2("gpt2-micro", 4, 128, 4, 128, 0.0, "GPT-2 for a laptop"),
    GPT2("gpt2-mini", 4, 256, 4, 256, 0.0, "GPT-2 for a workstation"),
    GPT2("gpt2-small", 12, 768, 12, 1024, 0.1, "GPT-2 as published, 124 M with its vocabulary"),
    BERT("bert-mini", 4, 256, 4, 128, "BERT for sentence classification, 11 M with its vocabulary"),
    BERT("bert-small", 4, 512, 8, 128, "the same, 29 M"),
    BERT("bert-base", 12, 768, 12, 512, "the same, as published, 110 M"),
    BERT_MLM("bert-mlm-mini", 4, 256, 4, 128, "BERT for masked language modeling, 11 M with its vocabulary"),
    BERT_MLM("bert-mlm-small", 4, 512, 8, 128, "the same, 29 M"),
    BERT_MLM("bert-mlm-base", 12, 768, 12, 512, "the same, as published, 110 M"),
};
enum { MODELS = sizeof table / sizeof *table };

const fgt_model_kind *fgt_model_kind_at(size_t i) {
    return i < MODELS ? &table[i].kind : NULL;
}

static const model_row *find_model(const char *name) {
    for (size_t i = 0; i < MODELS; i++)
        if (strcmp(table[i].kind.name, name) == 0)
            return &table[i];
    return NULL;
}

static int unknown_model(const char *name) {
    const char *names[MODELS + 1] = {0};
    for (size_t i = 0; i < MODELS; i++)
        names[i] = table[i].kind.name;
    char safe[64];
    fgio_printable(name, safe, sizeof safe);
    fgio_usage_error("unknown model '%s'", safe);
    fgio_hint_choices(name, names);
    return FGIO_EXIT_USAGE;
}

/* ---- options ---- */

/** An option that is a whole number. The limits exceed any transformer, and products of two fit. */
typedef struct count_option {
    const char *key;
    size_t offset; /* in fgt_model */
    unsigned long min, max;
} count_option;

static const count_option count_options[] = {
    {"layers", offsetof(fgt_model, layers), 1, FGT_LAYERS_MAX},
    {"width", offsetof(fgt_model, hidden), 1, 65536},
    {"heads", offsetof(fgt_model, heads), 1, 65536},
    {"length", offsetof(fgt_model, length), 1, 65536},
    {"vocab", offsetof(fgt_model, vocab), 0, 1 << 20},
};
enum { COUNT_OPTIONS = sizeof count_options / sizeof *count_options };

static int parse_count(const count_option *option, const char *value, fgt_model *model) {
    char *end;
    errno = 0;
    unsigned long n = strtoul(value, &end, 10);
    if (*value < '0' || *value > '9' || *end || errno || n < option->min || n > option->max)
        return fgio_usage_error("model option %s=%s: expected a whole number from %lu to %lu", option->key, value,
                                option->min, option->max);
    *(uint32_t *)((char *)model + option->offset) = (uint32_t)n;
    return FGIO_EXIT_OK;
}

static int parse_rate(const char *key, const char *value, double *out) {
    char *end;
    double x = strtod(value, &end);
    if (end == value || *end || !(x >= 0.0 && x < 1.0))
        return fgio_usage_error("model option %s=%s: expected a number from 0 to less than 1", key, value);
    *out = x;
    return FGIO_EXIT_OK;
}

static int parse_option(const char *key, const char *value, fgt_model *model) {
    static const char *const keys[] = {"layers", "width", "heads", "length", "vocab", "dropout", NULL};
    for (size_t i = 0; i < COUNT_OPTIONS; i++)
        if (strcmp(key, count_options[i].key) == 0)
            return parse_count(&count_options[i], value, model);
    if (strcmp(key, "dropout") == 0)
        return parse_rate(key, value, &model->dropout);
    const char *near = fgio_nearest_word(key, keys);
    return near ? fgio_usage_error("%s has no option '%s'; did you mean '%s'?", model->name, key, near)
                : fgio_usage_error("%s has no option '%s'; it has layers, width, heads, length, dropout, vocab",
                                   model->name, key);
}

/* options: "key=value,key=value"; modified in place. */
static int parse_options(char *options, fgt_model *model) {
    for (char *next = options; next;) {
        char *key = next, *comma = strchr(next, ',');
        next = comma ? comma + 1 : NULL;
        if (comma)
            *comma = '\0';
        char *equals = strchr(key, '=');
        if (!equals)
            return fgio_usage_error("model option '%s': expected name=value", key);
        *equals = '\0';
        int status = parse_option(key, equals + 1, model);
        if (status != FGIO_EXIT_OK)
            return status;
    }
    return FGIO_EXIT_OK;
}

int fgt_model_parse(const char *text, fgt_model *model) {
    char copy[sizeof model->text];
    if (strlen(text) >= sizeof copy)
        return fgio_usage_error("the model's name is longer than %zu characters", sizeof copy - 1);
    fgio_printable(text, copy, sizeof copy);
    if (strcmp(copy, text) != 0)
        return fgio_usage_error("unknown model '%s'", copy);
    char *options = strchr(copy, ':');
    if (options)
        *options++ = '\0';
    const model_row *r = find_model(copy);
    if (!r)
        return unknown_model(copy);
    fgt_model m = r->model;
    strcpy(m.text, text);
    if (options && !r->kind.options)
        return fgio_usage_error("%s has no options", r->kind.name);
    int status = options ? parse_options(options, &m) : FGIO_EXIT_OK;
    if (status == FGIO_EXIT_OK && m.heads > 0 && m.hidden % m.heads != 0)
        status = fgio_usage_error("%s: the width %u is not a multiple of the %u heads", text, m.hidden, m.heads);
    if (status == FGIO_EXIT_OK)
        *model = m;
    return status;
}

/* ---- building ---- */

static int check_data(const fgt_model *model, const fgt_data_info *info) {
    static const char *const task_data[] = {"images", "text", "sentences", "text with hidden words"};
    if (model->task != info->task)
        return fgio_error("%s is trained on %s, but %s is %s", model->text, task_data[model->task], info->name,
                          task_data[info->task]);
    if (model->vocab && model->vocab != info->vocab)
        return fgio_error(
            "%s has a vocabulary of %u tokens, but the data '%s' has %u; omit vocab=, or use the same number",
            model->text, model->vocab, info->name, info->vocab);
    if (model->task != FGT_TASK_IMAGES)
        return FGIO_EXIT_OK;
    if (info->channels < 1 || info->height < 1 || info->width < 1 || info->classes < 2)
        return fgio_error("%s needs images and at least two classes, but %s has images of %u x %u x %u and %u classes",
                          model->text, info->name, info->channels, info->height, info->width, info->classes);
    return FGIO_EXIT_OK;
}

int fgt_model_build_nodes(const fgt_model *model, const fgt_data_info *info, const fgt_build_options *options,
                          fgt_graph **graph) {
    const model_row *r = find_model(model->name);
    int status = r ? check_data(model, info) : unknown_model(model->name);
    if (status != FGIO_EXIT_OK)
        return status;
    fgt_graph *g = fgt_graph_create(options->batch, options->threads);
    if (!g)
        return fgio_error("not enough memory for the model");
    g->keep = options->keep;
    g->past_most = options->past_most;
    status = r->build(model, info, g);
    if (status != FGIO_EXIT_OK)
        fgt_graph_destroy(g);
    else
        *graph = g;
    return status;
}

int fgt_model_build_with(const fgt_model *model, const fgt_data_info *info, const fgt_build_options *options,
                         fgt_graph **graph) {
    fgt_graph *g = NULL;
    int status = fgt_model_build_nodes(model, info, options, &g);
    if (status == FGIO_EXIT_OK)
        status = fgt_graph_finish(g);
    if (status != FGIO_EXIT_OK)
        fgt_graph_destroy(g);
    else
        *graph = g;
    return status;
}

int fgt_model_build(const fgt_model *model, const fgt_data_info *info, uint32_t batch, int threads, fgt_graph **graph) {
    return fgt_model_build_with(model, info,
                                &(fgt_build_options){.batch = batch, .threads = threads, .keep = FGT_KEEP_ALL}, graph);
}

/** Counted memory before a graph is built: operations allocate their own when the nodes are added. */
typedef struct counted_before {
    uint64_t weights, activations;
} counted_before;

static counted_before count_before(void) {
    return (counted_before){fgt_counted_bytes(FGT_USE_WEIGHTS), fgt_counted_bytes(FGT_USE_ACTIVATIONS)};
}

static int measure_graph(fgt_graph *g, counted_before before, fgt_model_size *size) {
    int status = fgt_graph_measure(g, &size->weights, &size->activations);
    size->weights += fgt_counted_bytes(FGT_USE_WEIGHTS) - before.weights;
    size->activations += fgt_counted_bytes(FGT_USE_ACTIVATIONS) - before.activations;
    size->elements = g->elements;
    size->present = fgt_graph_weight_index(g, g->elements);
    size->blocks = g->blocks;
    for (const fgt_param *p = g->params; p; p = p->next)
        if (!p->tensor.absent && p->rows * p->cols > size->largest)
            size->largest = p->rows * p->cols;
    return status;
}

int fgt_model_measure(const fgt_model *model, const fgt_data_info *info, const fgt_build_options *options,
                      fgt_model_size *size) {
    const counted_before before = count_before();
    fgt_graph *g = NULL;
    *size = (fgt_model_size){0};
    int status = fgt_model_build_nodes(model, info, options, &g);
    if (status == FGIO_EXIT_OK)
        status = measure_graph(g, before, size);
    fgt_graph_destroy(g);
    return status;
}

int fgt_model_measure_stage(const fgt_model *model, const fgt_data_info *info, const fgt_build_options *options,
                            uint32_t stages, uint32_t stage, uint32_t micro_batches, fgt_model_size *size) {
    const counted_before before = count_before();
    fgt_graph *g = NULL;
    fgt_stage_plan plan;
    fgt_chunk chunk[2];
    *size = (fgt_model_size){0};
    int status = fgt_model_build_nodes(model, info, options, &g);
    if (status == FGIO_EXIT_OK)
        status = fgt_stages_plan(g, model->text, stages, &plan);
    if (status == FGIO_EXIT_OK) {
        const uint32_t chunks = fgt_stages_keep(g, &plan, stage, chunk);
        status = measure_graph(g, before, size);
        size->copies = fgt_stages_copies(&plan, stage, micro_batches);
        size->activations *= size->copies;
        for (uint32_t i = 0; i < chunks; i++) {
            size->borders += (chunk[i].in ? 1u : 0) + (chunk[i].out ? 1u : 0);
            size->crossing +=
                (chunk[i].in ? chunk[i].in->sample_size : 0) + (chunk[i].out ? chunk[i].out->sample_size : 0);
        }
    }
    fgt_graph_destroy(g);
    return status;
}
