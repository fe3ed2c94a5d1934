/*
 * batch.h - what a data set delivers and a model consumes: the task, the sizes of a data set, and a batch of samples.
 *
 * It is here so that the graph (nn/) and the models (model/) need no header of the data sets (data/).
 */
#ifndef FGT_BATCH_H
#define FGT_BATCH_H

#include <stdint.h>

/** What a model wants to be fed. */
typedef enum fgt_task {
    FGT_TASK_IMAGES,    /* an image, a class */
    FGT_TASK_LANGUAGE,  /* T tokens, the T tokens that follow them */
    FGT_TASK_SENTENCES, /* one or two sentences as [CLS] A [SEP] (B [SEP]), a class or (STS-B) a number */
    FGT_TASK_MASKED     /* T tokens of which some are hidden, what they were */
} fgt_task;

typedef enum fgt_split { FGT_TRAIN, FGT_VALID, FGT_TEST, FGT_SPLITS } fgt_split;

/** What GLUE judges a task by, beside accuracy. */
typedef enum fgt_metric { FGT_METRIC_NONE, FGT_METRIC_F1, FGT_METRIC_MATTHEWS } fgt_metric;

/** What was found. */
typedef struct fgt_data_info {
    const char *name; /* "fashion-mnist", "cifar-10", "wikitext-2", ... for people */
    fgt_task task;
    uint32_t channels, height, width;
    uint32_t classes; /* 1: a number is predicted, not a class */
    uint32_t vocab;
    uint32_t length;
    uint64_t count[FGT_SPLITS]; /* samples; 0 where there is no such split */
    fgt_metric metric;          /* two classes, of which 1 is what is looked for */
    const char *tokens;         /* what text is cut into: "bytes", a path, ...; NULL: no text, or builtin */
    const char *augment;        /* images: what is done to training samples, a name as above; NULL: no images */
} fgt_data_info;

/** Samples of one batch; the memory is the caller's (fgt_batch_create). */
typedef struct fgt_batch {
    uint32_t n;         /* samples */
    float *pixels;      /* images: n x channels x height x width, normalised */
    int32_t *tokens;    /* n x T; sentences are padded with 0 */
    int32_t *segments;  /* sentences, masked: n x T of 0 and 1 */
    int32_t *lengths;   /* sentences, masked: n, tokens before the padding; language: T */
    int32_t *targets;   /* images, sentences: n classes; language, masked: n x T ids, -1 where nothing is asked */
    float *numbers;     /* sentences with classes == 1: n */
    int threads;        /* that make it; 0: one */
    _Atomic int failed; /* a sample could not be made */
} fgt_batch;

#endif
