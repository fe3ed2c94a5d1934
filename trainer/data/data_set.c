/*
 * data_set.c - data sets: selecting the source for a path, and loading batches. The order of an epoch comes from
 * epoch_order.c; a source only gets the index of a sample in its split.
 */
#include "trainer/data/epoch_order.h"
#include "io/error.h"
#include "trainer/data/sentence_source.h"
#include "trainer/data/data_source.h"
#include "io/unpack_file.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const fgt_augment_names[] = {"none", "crop", "mirror", "crop+mirror", "auto", NULL};
const char *const fgt_split_names[FGT_SPLITS] = {"train", "valid", "test"};
static const char fashion_mnist[] = "/usr/share/datasets/fashion-mnist";

static int directory_has(const char *dir, const char *name) {
    char *path = fgio_unpack_find(dir, name);
    free(path);
    return path != NULL;
}

static int open_images(const fgt_data_options *options, fgt_data *data) {
    const char *dir = strcmp(options->path, "fashion-mnist") == 0 ? fashion_mnist : options->path;
    if (directory_has(dir, "train-images-idx3-ubyte"))
        return fgt_idx_open(dir, data);
    if (directory_has(dir, "data_batch_1.bin"))
        return fgt_cifar_open(dir, data);
    if (fgt_imagefolder_detect(dir))
        return fgt_imagefolder_open(options, dir, data);
    int status = fgio_error("%s: expected a directory with 'train-images-idx3-ubyte' (MNIST) or 'data_batch_1.bin' "
                            "(CIFAR-10), plain, .gz or .xz, or with 'train/CLASS/*.jpg' (images in folders)",
                            dir);
    if (dir == fashion_mnist)
        fgio_hint("Debian's package dataset-fashion-mnist installs it; 'builtin' needs no files");
    return status;
}

static int check_length(const fgt_data_options *options) {
    if (options->task == FGT_TASK_IMAGES || (options->length >= FGT_LENGTH_MIN && options->length <= FGT_LENGTH_MAX))
        return FGIO_EXIT_OK;
    return fgio_error("samples of %u tokens: expected %d to %d", options->length, FGT_LENGTH_MIN, FGT_LENGTH_MAX);
}

/* Call a data set what its directory is called. */
static void set_name(const char *path, fgt_data *data) {
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    char last[sizeof data->name];
    snprintf(last, sizeof last, "%.*s", (int)(end - begin < sizeof last ? end - begin : sizeof last), path + begin);
    fgio_printable(last, data->name, sizeof data->name);
    data->info.name = data->name;
}

static int open_source(const fgt_data_options *options, fgt_data *data) {
    if (check_length(options) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    if (strcmp(options->path, "builtin") == 0)
        return fgt_builtin_open(options, data);
    switch (options->task) {
    case FGT_TASK_IMAGES: return open_images(options, data);
    case FGT_TASK_LANGUAGE: return fgt_text_open(options, data);
    case FGT_TASK_SENTENCES:
        return fgt_qa_has_task(fgt_sentences_task(options, data)) ? fgt_qa_open(options, data)
                                                                  : fgt_glue_open(options, data);
    default: return fgt_masked_open(options, data);
    }
}

static int hold_out(const fgt_data_options *options, fgt_data *data) {
    uint64_t *count = data->info.count;
    if (options->hold_out == 0)
        return FGIO_EXIT_OK;
    if (count[FGT_VALID] != 0)
        return fgio_error("%s: has a validation split of %llu samples, so --hold-out %llu would make a second one; "
                          "--judge valid uses the existing one",
                          options->path, (unsigned long long)count[FGT_VALID], (unsigned long long)options->hold_out);
    if (options->hold_out >= count[FGT_TRAIN])
        return fgio_error("%s: cannot hold out %llu of %llu training samples", options->path,
                          (unsigned long long)options->hold_out, (unsigned long long)count[FGT_TRAIN]);
    data->hold_out = count[FGT_VALID] = options->hold_out;
    count[FGT_TRAIN] -= options->hold_out;
    return FGIO_EXIT_OK;
}

static void hint_at_data(const fgt_data_options *options) {
    if (options->task == FGT_TASK_IMAGES)
        fgio_hint("'%s' does not exist; --data takes a directory, fashion-mnist, or builtin, which needs no files",
                  options->path);
    else if (strcmp(options->path, "fashion-mnist") == 0)
        fgio_hint("fashion-mnist has images, but this model learns from text; --data builtin needs no files");
    else
        fgio_hint("'%s' does not exist; --data takes a directory, or builtin, which needs no files", options->path);
}

int fgt_data_open(const fgt_data_options *options, fgt_data **out) {
    fgt_data *data = calloc(1, sizeof *data);
    if (data == NULL)
        return fgio_error("not enough memory for a data set");
    data->info.task = options->task;
    data->info.length = options->task == FGT_TASK_IMAGES ? 0 : options->length;
    data->seed = options->seed;
    data->augment = options->augment;
    data->run_classes = options->run_classes;
    set_name(options->path, data);
    int status = open_source(options, data);
    if (status != FGIO_EXIT_OK && !fgio_hinted() && access(options->path, F_OK) != 0)
        hint_at_data(options);
    if (status == FGIO_EXIT_OK && data->info.count[FGT_TRAIN] == 0)
        status = fgio_error("%s: expected training data for at least one sample, found none", options->path);
    if (status == FGIO_EXIT_OK)
        status = hold_out(options, data);
    if (data->augment == FGT_AUGMENT_AUTO)
        data->augment = data->auto_augment;
    if (data->info.tokens == NULL && options->task != FGT_TASK_IMAGES)
        data->info.tokens = options->tokens;
    data->info.augment = options->task == FGT_TASK_IMAGES ? fgt_augment_names[data->augment] : NULL;
    if (status == FGIO_EXIT_OK)
        *out = data;
    else
        fgt_data_close(data);
    return status;
}

void fgt_data_close(fgt_data *data) {
    if (data != NULL && data->source != NULL)
        data->source->close(data->state);
    free(data);
}

const fgt_data_info *fgt_data_get_info(const fgt_data *data) {
    return &data->info;
}

/* Memory for n x each numbers of four bytes, at least one. */
static void *alloc_numbers(uint64_t n, uint64_t each) {
    uint64_t count;
    if (__builtin_mul_overflow(n, each, &count) || count > SIZE_MAX / 8)
        return NULL;
    return calloc((size_t)(count == 0 ? 1 : count), 4);
}

int fgt_batch_create(const fgt_data_info *info, uint32_t n, fgt_batch *batch) {
    fgt_batch made = {0};
    int images = info->task == FGT_TASK_IMAGES, per_sample = images || info->task == FGT_TASK_SENTENCES;
    if (images) {
        made.pixels = alloc_numbers(n, (uint64_t)info->channels * info->height * info->width);
    } else {
        made.tokens = alloc_numbers(n, info->length);
        made.segments = alloc_numbers(n, info->length);
        made.lengths = alloc_numbers(n, 1);
        made.numbers = alloc_numbers(n, 1);
    }
    made.targets = alloc_numbers(n, per_sample ? 1 : info->length);
    int complete = images
                       ? made.pixels != NULL
                       : made.tokens != NULL && made.segments != NULL && made.lengths != NULL && made.numbers != NULL;
    if (!complete || made.targets == NULL) {
        fgt_batch_destroy(&made);
        return fgio_error("not enough memory for batches of %u samples", n);
    }
    *batch = made;
    return FGIO_EXIT_OK;
}

void fgt_batch_destroy(fgt_batch *batch) {
    free(batch->pixels);
    free(batch->tokens);
    free(batch->segments);
    free(batch->lengths);
    free(batch->targets);
    free(batch->numbers);
    *batch = (fgt_batch){0};
}

fgt_batch fgt_batch_part(const fgt_data_info *info, const fgt_batch *batch, uint32_t first, uint32_t n) {
    fgt_batch part = *batch;
    size_t at = first, length = info->length;
    int per_sample = info->task == FGT_TASK_IMAGES || info->task == FGT_TASK_SENTENCES;
    part.n = n;
    part.targets += per_sample ? at : at * length;
    if (info->task == FGT_TASK_IMAGES) {
        part.pixels += at * info->channels * info->height * info->width;
        return part;
    }
    part.tokens += at * length;
    part.segments += at * length;
    part.lengths += at;
    part.numbers += at;
    return part;
}

static fgt_sample_id sample_id_of(const fgt_data *data, fgt_split split, uint64_t epoch, uint64_t at) {
    uint64_t count = data->info.count[split];
    fgt_sample_id id = {.split = split, .epoch = epoch, .index = at % count};
    if (split == FGT_TRAIN)
        id.index = fgt_epoch_order(data->seed, epoch, count, id.index);
    if (split == FGT_VALID && data->hold_out)
        id = (fgt_sample_id){FGT_TRAIN, epoch, data->info.count[FGT_TRAIN] + id.index, 1};
    return id;
}

uint64_t fgt_data_sample_index(const fgt_data *data, uint64_t epoch, uint64_t at) {
    return sample_id_of(data, FGT_TRAIN, epoch, at).index;
}

int fgt_data_batch(const fgt_data *data, fgt_split split, uint64_t epoch, uint64_t first, uint32_t n,
                   fgt_batch *batch) {
    int threads = data->source->reads_files && batch->threads > 1 ? batch->threads : 1;
    batch->n = data->info.count[split] == 0 ? 0 : n;
    atomic_store(&batch->failed, 0);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1) if (threads > 1)
    for (uint32_t i = 0; i < batch->n; i++)
        data->source->sample(data, sample_id_of(data, split, epoch, first + i), batch, i);
    return atomic_load(&batch->failed) ? FGIO_EXIT_FAIL : FGIO_EXIT_OK;
}

bool fgt_data_reads_files(const fgt_data *data) {
    return data->source->reads_files;
}
