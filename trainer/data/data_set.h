/*
 * data_set.h - data sets: opening them, and loading batches.
 *
 * A data set is opened once per process and shared by its workers; it is read-only afterwards. Which samples are in a
 * batch, and their augmentation (flips, crops, masks), is a pure function of (seed, epoch, index), so that a restart
 * needs nothing but the step, and the samples do not depend on the number of workers.
 */
#ifndef FGT_DATA_SET_H
#define FGT_DATA_SET_H

#include "trainer/base/batch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Augmentation of training images: crop, mirror, both, or the default of the data set. */
enum {
    FGT_AUGMENT_NONE,
    FGT_AUGMENT_CROP = 1,   /* shifted by up to 4 pixels; of an image folder: a random crop, resized */
    FGT_AUGMENT_MIRROR = 2, /* mirrored horizontally with probability 1/2 */
    FGT_AUGMENT_AUTO = 4    /* by the data set: digits and letters are not mirrored */
};

/** "none", "crop", "mirror", "crop+mirror", "auto", indexed by the numbers above; NULL at the end. */
extern const char *const fgt_augment_names[];

/** Tasks of sentences: the nine of GLUE, and questions. */
#define FGT_SENTENCE_TASKS "sst-2, cola, mrpc, sts-b, qqp, mnli, qnli, rte, wnli, boolq, arc-easy, arc-challenge"

/** Options of a data set; fields of other tasks are ignored. */
typedef struct fgt_data_options {
    fgt_task task;
    const char *path; /* "builtin", "fashion-mnist" (where Debian installs it), a directory or a text file; its kind is
                         detected */
    const char *tokens; /* language: "bytes", or the directory with GPT-2's encoder.json/vocab.bpe; sentences, masked:
                           WordPiece vocabulary file; NULL: bytes, or token id files of the directory */
    const char *subset; /* sentences: one of FGT_SENTENCE_TASKS; NULL: by the name of the directory */
    uint32_t length;    /* T, tokens per sample */
    uint32_t channels, height, width; /* builtin images and image folders: input size of the model; otherwise ignored */
    uint32_t classes;                 /* builtin */
    uint32_t run_classes;             /* images: labels are below it, and need not reach it; 0: counted in training */
    uint32_t vocab;                   /* builtin tokens */
    uint64_t samples;                 /* builtin: of the training split; 0: some thousand */
    int augment;                      /* images: FGT_AUGMENT_ above */
    uint64_t
        hold_out; /* make a validation split of this many training samples, the last ones; only where there is none */
    uint64_t seed;
} fgt_data_options;

typedef struct fgt_data fgt_data;

/** Opens a data set. Returns an exit status, after an error message with the file, the position and what was expected.
 * */
int fgt_data_open(const fgt_data_options *options, fgt_data **data);
void fgt_data_close(fgt_data *data);
const fgt_data_info *fgt_data_get_info(const fgt_data *data);

/** Allocates a batch of at most n samples. Returns an exit status. */
int fgt_batch_create(const fgt_data_info *info, uint32_t n, fgt_batch *batch);
void fgt_batch_destroy(fgt_batch *batch);

/** Samples first .. first + n - 1 of a batch, as a view of its memory. */
fgt_batch fgt_batch_part(const fgt_data_info *info, const fgt_batch *batch, uint32_t first, uint32_t n);

/** Index in the training split of the sample at a position of an epoch's order. */
uint64_t fgt_data_sample_index(const fgt_data *data, uint64_t epoch, uint64_t at);

/** Loads samples first .. first + n - 1 of an epoch's order into a batch (batch->n = n). Training samples are shuffled
 * anew every epoch and start again from the front past the end; those of other splits are in their own order, without
 * augmentation. Any number of threads may call it, each with a batch of its own, which loads the samples of an image
 * folder with batch->threads threads. Returns an exit status: an image that cannot be read is named in the error
 * message. */
int fgt_data_batch(const fgt_data *data, fgt_split split, uint64_t epoch, uint64_t first, uint32_t n, fgt_batch *batch);

/** Whether batches are read from files, so that loading one can fail. */
bool fgt_data_reads_files(const fgt_data *data);

#endif
