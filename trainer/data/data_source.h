/*
 * data_source.h - internal side of data_set.h: one kind of data set is one table of two functions over its own state.
 *
 * Opening a source fills in data->info and data->state; fgt_data_close() calls close() also when opening failed half
 * way.
 */
#ifndef FGT_DATA_SOURCE_H
#define FGT_DATA_SOURCE_H

#include "trainer/data/data_set.h"

/** Identifies a sample: besides the seed, its contents depend on nothing else. */
typedef struct fgt_sample_id {
    fgt_split split;
    uint64_t epoch;
    uint64_t index;    /* in the split's own order, below its count */
    int is_validation; /* a training sample in the validation split: no augmentation */
} fgt_sample_id;

typedef struct fgt_source {
    /* Loads one sample into this slot of the batch. */
    void (*sample)(const fgt_data *data, fgt_sample_id id, fgt_batch *batch, size_t slot);
    void (*close)(void *state);
    bool reads_files; /* as samples are loaded: slow enough for several threads, and it can fail */
} fgt_source;

struct fgt_data {
    fgt_data_info info;
    char name[64];
    uint64_t seed;
    int augment;          /* augmentation of training images; FGT_AUGMENT_AUTO while a source is being opened */
    int auto_augment;     /* what FGT_AUGMENT_AUTO means for this data set */
    uint32_t run_classes; /* as in fgt_data_options */
    uint64_t hold_out;    /* training samples, the last ones, that are the validation split */
    const fgt_source *source;
    void *state;
};

enum { FGT_LENGTH_MIN = 8, FGT_LENGTH_MAX = 1 << 16 };

/** "train", "valid", "test". */
extern const char *const fgt_split_names[FGT_SPLITS];

/* Open one kind. Each returns an exit status, after an error message. */
int fgt_builtin_open(const fgt_data_options *options, fgt_data *data);
int fgt_idx_open(const char *dir, fgt_data *data);
int fgt_cifar_open(const char *dir, fgt_data *data);
int fgt_imagefolder_open(const fgt_data_options *options, const char *dir, fgt_data *data);
int fgt_text_open(const fgt_data_options *options, fgt_data *data);
int fgt_masked_open(const fgt_data_options *options, fgt_data *data);
int fgt_glue_open(const fgt_data_options *options, fgt_data *data);
int fgt_qa_open(const fgt_data_options *options, fgt_data *data);

/** Whether a directory has subdirectories, which may be classes of images. */
int fgt_imagefolder_detect(const char *dir);

/** Whether fgt_qa_open() knows a task by this name; all others are GLUE's. */
int fgt_qa_has_task(const char *name);

/** Shift and flip of a training image; {0} for others. */
typedef struct fgt_image_shift {
    int right, down; /* -4 to 4 pixels */
    int flip;
} fgt_image_shift;

fgt_image_shift fgt_augment_draw(const fgt_data *data, fgt_sample_id id);

/** What masking needs to know about a vocabulary. */
typedef struct fgt_mask_rule {
    int32_t mask;            /* the mask token */
    uint32_t lowest, beyond; /* random tokens are in [lowest, beyond) */
} fgt_mask_rule;

/** Masks tokens first .. last - 1 of T by BERT's rule; targets are the original tokens, or -1. */
void fgt_mask(const fgt_data *data, fgt_sample_id id, const fgt_mask_rule *rule, uint32_t first, uint32_t last,
              int32_t *tokens, int32_t *targets);

#endif
