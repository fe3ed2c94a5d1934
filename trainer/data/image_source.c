/*
 * image_source.c - images from files: MNIST's idx sets and CIFAR-10. They are bytes in memory (a quarter of floats) and
 * are converted when a batch is loaded, by a table of 256 normalized values per channel. Training images may be shifted
 * by up to four pixels, with zero padding, and mirrored: the usual augmentation for CIFAR. Gray idx sets are not
 * mirrored by default: most of them are digits and letters, and a mirrored 2 is not a 2.
 */
#include "trainer/data/image_files.h"
#include "trainer/base/keyed_random.h"
#include "trainer/data/data_source.h"
#include "io/unpack_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PADDING = 4, CHANNELS_MAX = 3, CIFAR_FILES = 6 };
static const uint64_t file_max = UINT64_C(4) << 30;

typedef struct images {
    unsigned char *pixels[FGT_SPLITS]; /* count x channels x height x width */
    unsigned char *labels[FGT_SPLITS];
    float byte_value[CHANNELS_MAX][256]; /* normalized value of a byte */
} images;

static void close_images(void *state) {
    images *s = state;
    for (int i = 0; i < FGT_SPLITS; i++) {
        free(s->pixels[i]);
        free(s->labels[i]);
    }
    free(s);
}

fgt_image_shift fgt_augment_draw(const fgt_data *data, fgt_sample_id id) {
    int how = id.split == FGT_TRAIN && !id.is_validation ? data->augment : FGT_AUGMENT_NONE;
    uint64_t bits = fgt_random(data->seed, FGT_STREAM_AUGMENT | id.epoch << 8, id.index);
    uint32_t high = (uint32_t)(bits >> 32), low = (uint32_t)bits >> 1;
    int side = 2 * PADDING + 1;
    fgt_image_shift shift = {0, 0, 0};
    if (how & FGT_AUGMENT_CROP) {
        shift.right = (int)(high % (uint32_t)side) - PADDING;
        shift.down = (int)(low % (uint32_t)side) - PADDING;
    }
    shift.flip = (how & FGT_AUGMENT_MIRROR) != 0 && (bits & 1);
    return shift;
}

/* Shifts one row of pixels; a mirrored one is read from its end. */
static void shift_row(const unsigned char *from, const float *byte_value, int width, fgt_image_shift shift, float *to) {
    for (int x = 0; x < width; x++) {
        int source = (shift.flip ? width - 1 - x : x) + shift.right;
        to[x] = byte_value[source < 0 || source >= width ? 0 : from[source]];
    }
}

static void image_sample(const fgt_data *data, fgt_sample_id id, fgt_batch *batch, size_t slot) {
    const images *s = data->state;
    int height = (int)data->info.height, width = (int)data->info.width;
    size_t plane = (size_t)height * (size_t)width, size = data->info.channels * plane;
    const unsigned char *from = s->pixels[id.split] + id.index * size;
    float *to = batch->pixels + slot * size;
    fgt_image_shift shift = fgt_augment_draw(data, id);
    for (size_t c = 0; c < data->info.channels; c++)
        for (int y = 0; y < height; y++) {
            int source = y + shift.down;
            float *row = to + c * plane + (size_t)y * (size_t)width;
            if (source >= 0 && source < height)
                shift_row(from + c * plane + (size_t)source * (size_t)width, s->byte_value[c], width, shift, row);
            else
                for (int x = 0; x < width; x++)
                    row[x] = s->byte_value[c][0];
        }
    batch->targets[slot] = s->labels[id.split][id.index];
}

static const fgt_source image_source = {.sample = image_sample, .close = close_images};

static images *open_source(fgt_data *data) {
    images *s = calloc(1, sizeof *s);
    if (s == NULL) {
        fgio_error("not enough memory for a data set");
        return NULL;
    }
    data->source = &image_source;
    data->state = s;
    return s;
}

static void normalize(float byte_value[256], double mean, double deviation) {
    for (int b = 0; b < 256; b++)
        byte_value[b] = (float)((b / 255.0 - mean) / deviation);
}

/* Reads and checks dir/name. idx->data points into bytes. */
static int read_idx(const char *dir, const char *name, uint32_t dims, fgio_bytes *bytes, fgt_idx *idx) {
    fgio_reason why;
    char *path = fgio_unpack_find(dir, name);
    if (path == NULL)
        return fgio_error("%s: expected '%s' in this directory, plain, .gz or .xz", dir, name);
    int status = fgio_unpack_file(path, file_max, bytes);
    if (status == FGIO_EXIT_OK && fgt_idx_parse(bytes->data, bytes->len, dims, idx, &why) != 0) {
        fgio_bytes_free(bytes);
        status = fgio_error("%s: %s", path, why.text);
    }
    free(path);
    return status;
}

/* Removes the header of a file, in place. */
static unsigned char *strip_header(fgio_bytes *bytes, const fgt_idx *idx) {
    size_t header = (size_t)(idx->data - bytes->data);
    memmove(bytes->data, idx->data, bytes->len - header);
    return bytes->data;
}

static int read_labels(const char *dir, const char *name, fgt_split split, fgt_data *data) {
    images *s = data->state;
    fgio_bytes bytes;
    fgt_idx idx;
    uint64_t count = data->info.count[split];
    if (read_idx(dir, name, 1, &bytes, &idx) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    s->labels[split] = strip_header(&bytes, &idx);
    if (idx.shape[0] != count)
        return fgio_error("%s/%s: byte 4: expected %llu labels, one for each image, found %u", dir, name,
                          (unsigned long long)count, idx.shape[0]);
    for (uint64_t i = 0; i < count; i++)
        if (split == FGT_TRAIN && !data->run_classes && s->labels[split][i] >= data->info.classes)
            data->info.classes = s->labels[split][i] + 1u;
        else if (s->labels[split][i] >= data->info.classes)
            return fgio_error("%s/%s: byte %llu: expected a label below %u, as in %s, found %u", dir, name,
                              (unsigned long long)i + 8, data->info.classes, data->run_classes ? "the run" : "training",
                              s->labels[split][i]);
    return FGIO_EXIT_OK;
}

static int read_split(const char *dir, const char *images_name, const char *labels, fgt_split split, fgt_data *data) {
    fgio_bytes bytes;
    fgt_idx idx;
    fgt_data_info *info = &data->info;
    if (read_idx(dir, images_name, 3, &bytes, &idx) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    ((images *)data->state)->pixels[split] = strip_header(&bytes, &idx);
    if (split != FGT_TRAIN && (idx.shape[1] != info->height || idx.shape[2] != info->width))
        return fgio_error("%s/%s: byte 8: expected images of %u x %u, as in training, found %u x %u", dir, images_name,
                          info->height, info->width, idx.shape[1], idx.shape[2]);
    info->count[split] = idx.shape[0];
    info->height = idx.shape[1];
    info->width = idx.shape[2];
    return read_labels(dir, labels, split, data);
}

/* Mean and standard deviation of the training pixels, from their histogram. */
static void pixel_statistics(const fgt_data *data, double *mean, double *deviation) {
    const unsigned char *pixels = ((const images *)data->state)->pixels[FGT_TRAIN];
    uint64_t n = data->info.count[FGT_TRAIN] * data->info.height * data->info.width, histogram[256] = {0};
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < n; i++)
        histogram[pixels[i]]++;
    for (int b = 0; b < 256; b++) {
        sum += (double)histogram[b] * b / 255.0;
        squares += (double)histogram[b] * (b / 255.0) * (b / 255.0);
    }
    *mean = n == 0 ? 0 : sum / (double)n;
    double variance = n == 0 ? 1 : squares / (double)n - *mean * *mean;
    *deviation = variance > 1e-6 ? sqrt(variance) : 1;
}

int fgt_idx_open(const char *dir, fgt_data *data) {
    images *s = open_source(data);
    data->info.classes = data->run_classes;
    double mean = 0.2860, deviation = 0.3530; /* of Fashion-MNIST */
    if (s == NULL ||
        read_split(dir, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", FGT_TRAIN, data) != FGIO_EXIT_OK ||
        read_split(dir, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", FGT_TEST, data) != FGIO_EXIT_OK)
        return FGIO_EXIT_FAIL;
    data->info.channels = 1;
    data->auto_augment = FGT_AUGMENT_CROP;
    if (strcasecmp(data->name, "fashion-mnist") != 0)
        pixel_statistics(data, &mean, &deviation);
    normalize(s->byte_value[0], mean, deviation);
    return FGIO_EXIT_OK;
}

static int read_cifar(const char *dir, int file, fgio_bytes *bytes, uint64_t *records) {
    static const char *const names[CIFAR_FILES] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                                   "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    fgio_reason why;
    char *path = fgio_unpack_find(dir, names[file]);
    if (path == NULL)
        return fgio_error("%s: expected '%s' in this directory, plain, .gz or .xz", dir, names[file]);
    int status = fgio_unpack_file(path, file_max / 4, bytes);
    if (status == FGIO_EXIT_OK && fgt_cifar_parse(bytes->data, bytes->len, records, &why) != 0)
        status = fgio_error("%s: %s", path, why.text);
    free(path);
    return status;
}

/* Copies labels and pixels of some files into separate arrays. */
static int copy_records(images *s, fgt_split split, const fgio_bytes *bytes, const uint64_t *records, int files) {
    uint64_t total = 0;
    for (int i = 0; i < files; i++)
        total += records[i];
    unsigned char *pixels = malloc((size_t)total * FGT_CIFAR_PIXELS), *labels = malloc((size_t)total);
    s->pixels[split] = pixels;
    s->labels[split] = labels;
    if (pixels == NULL || labels == NULL)
        return fgio_error("not enough memory for %llu images", (unsigned long long)total);
    for (int i = 0; i < files; i++) {
        const unsigned char *from = bytes[i].data;
        for (uint64_t k = 0; k < records[i]; k++) {
            *labels++ = *from++;
            memcpy(pixels, from, FGT_CIFAR_PIXELS);
            pixels += FGT_CIFAR_PIXELS;
            from += FGT_CIFAR_PIXELS;
        }
    }
    return FGIO_EXIT_OK;
}

int fgt_cifar_open(const char *dir, fgt_data *data) {
    static const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
    fgio_bytes bytes[CIFAR_FILES] = {{NULL, 0}};
    uint64_t records[CIFAR_FILES] = {0};
    int status[CIFAR_FILES], worst = FGIO_EXIT_OK;
    images *s = open_source(data);
    if (s == NULL)
        return FGIO_EXIT_FAIL;
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = 0; i < CIFAR_FILES; i++)
        status[i] = read_cifar(dir, i, &bytes[i], &records[i]);
    for (int i = 0; i < CIFAR_FILES; i++)
        worst = status[i] != FGIO_EXIT_OK ? status[i] : worst;
    if (worst == FGIO_EXIT_OK)
        worst = copy_records(s, FGT_TRAIN, bytes, records, CIFAR_FILES - 1);
    if (worst == FGIO_EXIT_OK)
        worst = copy_records(s, FGT_TEST, bytes + CIFAR_FILES - 1, records + CIFAR_FILES - 1, 1);
    for (int i = 0; i < CIFAR_FILES; i++) {
        fgio_bytes_free(&bytes[i]);
        data->info.count[i < CIFAR_FILES - 1 ? FGT_TRAIN : FGT_TEST] += records[i];
    }
    for (int c = 0; c < 3; c++)
        normalize(s->byte_value[c], mean[c], deviation[c]);
    data->info.channels = 3;
    data->auto_augment = FGT_AUGMENT_CROP | FGT_AUGMENT_MIRROR;
    data->info.height = data->info.width = FGT_CIFAR_SIDE;
    data->info.classes = FGT_CIFAR_CLASSES;
    memcpy(data->name, "cifar-10", sizeof "cifar-10");
    return worst;
}
