/*
 * model.h - the models by name, and how to build them.
 *
 * A model is specified by one text: "resnet20", "gpt2-small", "gpt2:layers=4,width=256,heads=4,length=256". Parameter
 * names are those of Hugging Face (bert, gpt2) and torchvision (resnet18, resnet50) or of the usual CIFAR ResNets, so
 * that weights can be loaded and saved unchanged.
 */
#ifndef FGT_MODEL_H
#define FGT_MODEL_H

#include "trainer/base/batch.h"
#include "trainer/nn/graph.h"

enum { FGT_LAYERS_MAX = 1024 }; /* of a transformer */

/** A parsed model text, independent of the data. */
typedef struct fgt_model {
    char text[128];                                /* as given */
    char name[32];                                 /* "resnet20", "gpt2", ... */
    fgt_task task;                                 /* bert: sentences; bert-mlm: masked */
    uint32_t channels, height, width, classes;     /* images: default sizes; the data set may have others */
    uint32_t layers, hidden, heads, length, vocab; /* transformers; vocab 0: from the data */
    double dropout;
    uint32_t units[2][FGT_LAYERS_MAX]; /* see fgt_model_units() */
} fgt_model;

/** One model in the list that --help prints. */
typedef struct fgt_model_kind {
    const char *name;
    const char *options; /* "layers=12,width=768,heads=12,length=1024,dropout=0.1,vocab=0"; NULL: none */
    const char *help;
} fgt_model_kind;

/** The i-th model, or NULL past the end. */
const fgt_model_kind *fgt_model_kind_at(size_t i);

/** Parses a model text. Returns an exit status, after an error message that suggests the nearest model or option. */
int fgt_model_parse(const char *text, fgt_model *model);

/** Numbers of an attention head; 0: the model has none. */
uint32_t fgt_model_head_length(const fgt_model *model);

/** Reads the sizes of layers of which units were removed from the shapes of a file of weights; what the file does not
 * have is as usual. Returns an exit status, after an error message. */
int fgt_model_read_units(const char *path, fgt_model *model);

/** Units of a layer, `usual` if none were removed. Transformers: 0, columns of queries; 1, of the MLP. Residual
 * networks: 0, channels after the first convolution of a block; 1, after the second of three. LeNet and the perceptron:
 * 0, outputs of all layers but the last. */
uint32_t fgt_model_units(const fgt_model *model, int which, uint32_t layer, uint32_t usual);

/** Builds a model for the data, for batches of at most `batch`, finished but with all weights 0 (see fgt_graph_init()).
 * Data of another task, or too long or small samples, are an error. Returns an exit status, after an error message. */
int fgt_model_build(const fgt_model *model, const fgt_data_info *info, uint32_t batch, int threads, fgt_graph **graph);

/** How a graph is to be built. */
typedef struct fgt_build_options {
    uint32_t batch; /* at most */
    int threads;
    fgt_keep keep;
    uint32_t past_most; /* tokens of a text that is passed token by token (info->length 1); 0: passed as a whole */
} fgt_build_options;

/** The same, with all options. */
int fgt_model_build_with(const fgt_model *model, const fgt_data_info *info, const fgt_build_options *options,
                         fgt_graph **graph);

/** The nodes alone, not finished: without memory for weights and values. */
int fgt_model_build_nodes(const fgt_model *model, const fgt_data_info *info, const fgt_build_options *options,
                          fgt_graph **graph);

/** Memory of a graph. */
typedef struct fgt_model_size {
    uint64_t elements;    /* of the flat buffer of parameters */
    uint64_t present;     /* of them, those that are not of another stage */
    uint64_t largest;     /* elements of the largest parameter that is present */
    uint64_t weights;     /* bytes, with running statistics */
    uint64_t activations; /* bytes: values, their gradients, work space */
    uint32_t blocks;      /* that FGT_KEEP_BLOCKS can recompute */
    uint32_t copies;      /* stages: micro-batches in memory, whose activations are counted */
    uint32_t borders;     /* stages: values that come from and go to others */
    uint64_t crossing;    /* their floats of a sample */
} fgt_model_size;

/** The memory that a graph would need, without building it. Returns an exit status, after an error message. */
int fgt_model_measure(const fgt_model *model, const fgt_data_info *info, const fgt_build_options *options,
                      fgt_model_size *size);

/** The same of one of several stages, with the graphs of all micro-batches that it has in memory. */
int fgt_model_measure_stage(const fgt_model *model, const fgt_data_info *info, const fgt_build_options *options,
                            uint32_t stages, uint32_t stage, uint32_t micro_batches, fgt_model_size *size);

#endif
