/*
 * model.h - the models there are, by name, and how to build them.
 *
 * A model is named by one text: "resnet20", "gpt2-small", "gpt2:layers=4,width=256,heads=4,length=256". Parameter names
 * are those of Hugging Face (bert, gpt2) and torchvision (resnet18, resnet50) or of the usual CIFAR ResNets, so that
 * weights go in and out unchanged.
 */
#ifndef FGT_MODEL_H
#define FGT_MODEL_H

#include "trainer/base/batch.h"
#include "trainer/nn/graph.h"

/** What a model's text says, before any data is seen. */
typedef struct fgt_model {
    char text[128];                            /* as given */
    char name[32];                             /* "resnet20", "gpt2", ... */
    fgt_task task;                             /* bert: sentences; bert-mlm: masked */
    uint32_t channels, height, width, classes; /* images: what it is made for; data may say otherwise where it can */
    uint32_t layers, hidden, heads, length, vocab; /* transformers; vocab 0: by the data */
    double dropout;
} fgt_model;

/** One model in the list that --help prints. */
typedef struct fgt_model_kind {
    const char *name;
    const char *options; /* "layers=12,width=768,heads=12,length=1024,dropout=0.1,vocab=0"; NULL: none */
    const char *help;
} fgt_model_kind;

/** The i-th model, or NULL past the end. */
const fgt_model_kind *fgt_model_kind_at(size_t i);

/** Understand a model's text. Returns an exit status, after a line on stderr that names the nearest model or option. */
int fgt_model_parse(const char *text, fgt_model *model);

/**
 * Build it for the data, for batches of at most `batch`, finished but with all weights 0 (see fgt_graph_init()). Data
 * that does not fit (another task, too long, too few pixels) is refused. Returns an exit status, after a line on
 * stderr.
 */
int fgt_model_build(const fgt_model *model, const fgt_data_info *info, uint32_t batch, int threads, fgt_graph **graph);

/** How a graph is to be built. */
typedef struct fgt_build {
    uint32_t batch; /* at most */
    int threads;
    fgt_keep keep;
} fgt_build;

/** The same, with other values kept. */
int fgt_model_build_as(const fgt_model *model, const fgt_data_info *info, const fgt_build *options, fgt_graph **graph);

/** Its nodes alone, not finished: without memory for weights or for what flows between them. */
int fgt_model_build_nodes(const fgt_model *model, const fgt_data_info *info, const fgt_build *options,
                          fgt_graph **graph);

/** What a graph takes. */
typedef struct fgt_model_size {
    uint64_t elements;    /* of the flat buffer of parameters */
    uint64_t largest;     /* elements of the largest parameter */
    uint64_t weights;     /* bytes, with running statistics */
    uint64_t activations; /* bytes: values, their gradients, work space */
    uint32_t blocks;      /* that FGT_KEEP_BLOCKS can compute again */
} fgt_model_size;

/** What it would take, without building it. Returns an exit status, after a line on stderr. */
int fgt_model_measure(const fgt_model *model, const fgt_data_info *info, const fgt_build *options,
                      fgt_model_size *size);

#endif
