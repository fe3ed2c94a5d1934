/*
 * data_set.h - data sets: where they lie, how they are read, and batches out of them.
 *
 * A data set is opened once per process and shared by its workers; it is read-only afterwards. Which samples make a
 * batch, and how they are changed (flips, crops, masks), is a pure function of (seed, epoch, place), so that nothing
 * but the step has to be remembered to go on after a restart, and the same whatever the number of workers.
 */
#ifndef FGT_DATA_SET_H
#define FGT_DATA_SET_H

#include "trainer/base/batch.h"

#include <stddef.h>
#include <stdint.h>

/** How training images are changed: any of crop and mirror, or what suits the data. */
enum {
    FGT_AUGMENT_NONE,
    FGT_AUGMENT_CROP = 1,   /* shifted by up to 4 pixels; of an image folder: a random part, resized */
    FGT_AUGMENT_MIRROR = 2, /* left and right exchanged, half of the time */
    FGT_AUGMENT_AUTO = 4    /* by the data set: digits and letters are not mirrored */
};

/** "none", "crop", "mirror", "crop+mirror", "auto", by the numbers above; NULL at the end. */
extern const char *const fgt_augment_names[];

/** What sentences there are: GLUE's nine tasks, and questions. */
#define FGT_SENTENCE_TASKS "sst-2, cola, mrpc, sts-b, qqp, mnli, qnli, rte, wnli, boolq, arc-easy, arc-challenge"

/** What the caller asks for; fields of other tasks are ignored. */
typedef struct fgt_data_want {
    fgt_task task;
    const char
        *path; /* "builtin", "fashion-mnist" (where Debian puts it), a directory or a text; what it is is found out */
    const char *tokens; /* language: "bytes", or the directory with GPT-2's encoder.json/vocab.bpe; sentences, masked:
                           WordPiece vocabulary file; NULL: bytes, or tokenised files that lie in the directory */
    const char *subset; /* sentences: one of FGT_SENTENCE_TASKS; NULL: by the directory */
    uint32_t length;    /* T, tokens per sample */
    uint32_t channels, height, width; /* builtin images and image folders: what the model wants; otherwise ignored */
    uint32_t classes;                 /* builtin */
    uint32_t vocab;                   /* builtin tokens */
    uint64_t samples;                 /* builtin: of the training split; 0: some thousand */
    int augment;                      /* images: FGT_AUGMENT_ above */
    uint64_t hold_out; /* make a validation split of the last so many training samples; only where there is none */
    uint64_t seed;
} fgt_data_want;

typedef struct fgt_data fgt_data;

/** Open a data set. Returns an exit status, after one line on stderr that names the file, the place in it and what was
 * expected. */
int fgt_data_open(const fgt_data_want *options, fgt_data **data);
void fgt_data_close(fgt_data *data);
const fgt_data_info *fgt_data_about(const fgt_data *data);

/** Room for batches of at most n samples. Returns an exit status. */
int fgt_batch_create(const fgt_data_info *info, uint32_t n, fgt_batch *batch);
void fgt_batch_destroy(fgt_batch *batch);

/** Samples first .. first + n - 1 of a batch, in the batch's own memory. */
fgt_batch fgt_batch_part(const fgt_data_info *info, const fgt_batch *batch, uint32_t first, uint32_t n);

/**
 * Fill a batch with samples first .. first + n - 1 of an epoch's order (batch->n = n). Training samples are shuffled
 * anew every epoch and begin again from the front past the end; those of other splits come in their own order,
 * unchanged. Any number of threads may call it, each with a batch of its own, which makes the samples of an image
 * folder with as many threads as it says. Returns an exit status: an image that cannot be read is named on stderr.
 */
int fgt_data_batch(const fgt_data *data, fgt_split split, uint64_t epoch, uint64_t first, uint32_t n, fgt_batch *batch);

#endif
