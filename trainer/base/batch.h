/*
 * batch.h - what a data set delivers and a model consumes: the task, the sizes of a data set, and a batch of samples.
 *
 * It is here so that the graph (nn/) and the models (model/) need no header of the data sets (data/).
 */
#ifndef FGT_BATCH_H
#define FGT_BATCH_H

#include <stdint.h>

/** Kind of samples that a model is trained on. */
typedef enum fgt_task {
    FGT_TASK_IMAGES,    /* an image, a class */
    FGT_TASK_LANGUAGE,  /* T tokens, the T tokens that follow them */
    FGT_TASK_SENTENCES, /* one or two sentences as [CLS] A [SEP] (B [SEP]), a class or (STS-B) a number */
    FGT_TASK_MASKED     /* T tokens of which some are masked; targets: the original tokens */
} fgt_task;

typedef enum fgt_split { FGT_TRAIN, FGT_VALID, FGT_TEST, FGT_SPLITS } fgt_split;

/** Metric of a GLUE task besides accuracy. */
typedef enum fgt_metric { FGT_METRIC_NONE, FGT_METRIC_F1, FGT_METRIC_MATTHEWS } fgt_metric;

/** A data set as it was opened. */
typedef struct fgt_data_info {
    const char *name; /* "fashion-mnist", "cifar-10", "wikitext-2", ..., for display */
    fgt_task task;
    uint32_t channels, height, width;
    uint32_t classes; /* 1: a number is predicted, not a class */
    uint32_t vocab;
    uint32_t length;
    uint64_t count[FGT_SPLITS]; /* samples; 0 where there is no such split */
    fgt_metric metric;          /* two classes, of which 1 is the positive one */
    const char *tokens;         /* tokens of text: "bytes", a path, ...; NULL: no text, or builtin */
    const char *augment; /* images: augmentation of training samples, a name of fgt_augment_names; NULL: no images */
} fgt_data_info;

/** Samples of one batch; the memory belongs to the caller (fgt_batch_create). */
typedef struct fgt_batch {
    uint32_t n;         /* samples */
    float *pixels;      /* images: n x channels x height x width, normalized */
    int32_t *tokens;    /* n x T; sentences are padded with 0 */
    int32_t *segments;  /* sentences, masked: n x T of 0 and 1 */
    int32_t *lengths;   /* sentences, masked: n, tokens before the padding; language: T */
    int32_t *targets;   /* images, sentences: n classes; language, masked: n x T ids, -1 where there is no target */
    float *numbers;     /* sentences with classes == 1: n */
    int threads;        /* that load its samples; 0: one */
    _Atomic int failed; /* a sample could not be loaded */
} fgt_batch;

#endif
