/*
 * data_source.h - inner side of data_set.h: one kind of data set is one table of two functions over its own state.
 *
 * A source fills in data->info and data->state while it is opened; frugi_data_close() calls its close() also when that
 * failed half way.
 */
#ifndef FRUGI_DATA_SOURCE_H
#define FRUGI_DATA_SOURCE_H

#include "trainer/data/data_set.h"

/** Which sample: all that its making may depend on, besides the seed. */
typedef struct frugi_place {
    frugi_split split;
    uint64_t epoch;
    uint64_t index; /* in the split's own order, below its count */
    int kept_back;  /* a training sample that serves for validation: unchanged */
} frugi_place;

typedef struct frugi_source {
    /* Make one sample in this slot of the batch. */
    void (*sample)(const frugi_data *data, frugi_place place, frugi_batch *batch, size_t slot);
    void (*close)(void *state);
    int slow; /* a sample takes long enough for threads to share the work */
} frugi_source;

struct frugi_data {
    frugi_data_info info;
    char name[64];
    uint64_t seed;
    int augment; /* how training images are changed; while it is opened a source may find FRUGI_AUGMENT_AUTO here */
    int suits;   /* what that means for this data set */
    uint64_t hold_out; /* training samples, the last ones, that make the validation split */
    const frugi_source *source;
    void *state;
};

enum { FRUGI_LENGTH_LEAST = 8, FRUGI_LENGTH_MOST = 1 << 16 };

/** "train", "valid", "test". */
extern const char *const frugi_split_names[FRUGI_SPLITS];

/* Open one kind. Each returns an exit status, after one line on stderr. */
int frugi_builtin_open(const frugi_data_want *want, frugi_data *data);
int frugi_idx_open(const char *dir, frugi_data *data);
int frugi_cifar_open(const char *dir, frugi_data *data);
int frugi_imagefolder_open(const frugi_data_want *want, const char *dir, frugi_data *data);
int frugi_text_open(const frugi_data_want *want, frugi_data *data);
int frugi_masked_open(const frugi_data_want *want, frugi_data *data);
int frugi_glue_open(const frugi_data_want *want, frugi_data *data);
int frugi_qa_open(const frugi_data_want *want, frugi_data *data);

/** Whether a directory has folders, which may be classes of images. */
int frugi_imagefolder_is(const char *dir);

/** Whether frugi_qa_open() knows a task by this name; all others are GLUE's. */
int frugi_qa_knows(const char *name);

/** How a training image is moved; {0} for others. */
typedef struct frugi_move {
    int right, down; /* -4 to 4 pixels */
    int flip;
} frugi_move;

frugi_move frugi_augment(const frugi_data *data, frugi_place place);

/** What hiding tokens has to know of a vocabulary. */
typedef struct frugi_mask_rule {
    int32_t mask;            /* the token that hides */
    uint32_t lowest, beyond; /* random tokens are in [lowest, beyond) */
} frugi_mask_rule;

/** Hide tokens first .. last - 1 of T by BERT's rule; targets get what they were, or -1. */
void frugi_mask(const frugi_data *data, frugi_place place, const frugi_mask_rule *rule, uint32_t first, uint32_t last,
                int32_t *tokens, int32_t *targets);

#endif
