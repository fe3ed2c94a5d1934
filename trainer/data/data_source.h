/*
 * data_source.h - inner side of data_set.h: one kind of data set is one table of two functions over its own state.
 *
 * A source fills in data->info and data->state while it is opened; fgt_data_close() calls its close() also when that
 * failed half way.
 */
#ifndef FGT_DATA_SOURCE_H
#define FGT_DATA_SOURCE_H

#include "trainer/data/data_set.h"

/** Which sample: all that its making may depend on, besides the seed. */
typedef struct fgt_sample_id {
    fgt_split split;
    uint64_t epoch;
    uint64_t index;    /* in the split's own order, below its count */
    int is_validation; /* a training sample that serves for validation: unchanged */
} fgt_sample_id;

typedef struct fgt_source {
    /* Make one sample in this slot of the batch. */
    void (*sample)(const fgt_data *data, fgt_sample_id id, fgt_batch *batch, size_t slot);
    void (*close)(void *state);
    int slow; /* a sample takes long enough for threads to share the work */
} fgt_source;

struct fgt_data {
    fgt_data_info info;
    char name[64];
    uint64_t seed;
    int augment;       /* how training images are changed; while it is opened a source may find FGT_AUGMENT_AUTO here */
    int auto_augment;  /* what that means for this data set */
    uint64_t hold_out; /* training samples, the last ones, that make the validation split */
    const fgt_source *source;
    void *state;
};

enum { FGT_LENGTH_MIN = 8, FGT_LENGTH_MAX = 1 << 16 };

/** "train", "valid", "test". */
extern const char *const fgt_split_names[FGT_SPLITS];

/* Open one kind. Each returns an exit status, after one line on stderr. */
int fgt_builtin_open(const fgt_data_want *options, fgt_data *data);
int fgt_idx_open(const char *dir, fgt_data *data);
int fgt_cifar_open(const char *dir, fgt_data *data);
int fgt_imagefolder_open(const fgt_data_want *options, const char *dir, fgt_data *data);
int fgt_text_open(const fgt_data_want *options, fgt_data *data);
int fgt_masked_open(const fgt_data_want *options, fgt_data *data);
int fgt_glue_open(const fgt_data_want *options, fgt_data *data);
int fgt_qa_open(const fgt_data_want *options, fgt_data *data);

/** Whether a directory has folders, which may be classes of images. */
int fgt_imagefolder_detect(const char *dir);

/** Whether fgt_qa_open() knows a task by this name; all others are GLUE's. */
int fgt_qa_has_task(const char *name);

/** How a training image is moved; {0} for others. */
typedef struct fgt_image_shift {
    int right, down; /* -4 to 4 pixels */
    int flip;
} fgt_image_shift;

fgt_image_shift fgt_augment_draw(const fgt_data *data, fgt_sample_id id);

/** What hiding tokens has to know of a vocabulary. */
typedef struct fgt_mask_rule {
    int32_t mask;            /* the token that hides */
    uint32_t lowest, beyond; /* random tokens are in [lowest, beyond) */
} fgt_mask_rule;

/** Hide tokens first .. last - 1 of T by BERT's rule; targets get what they were, or -1. */
void fgt_mask(const fgt_data *data, fgt_sample_id id, const fgt_mask_rule *rule, uint32_t first, uint32_t last,
              int32_t *tokens, int32_t *targets);

#endif
