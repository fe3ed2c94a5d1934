/*
 * Images from files: MNIST's idx sets and CIFAR-10. They stay bytes in memory (a quarter of floats) and become floats
 * when a batch is made, by a table of 256 normalised values per channel. Training images may be moved by up to four
 * pixels, with zeros where nothing was, and mirrored: the augmentation all CIFAR results rest on. Gray idx sets are
 * not mirrored unless asked for: most of them are digits and letters, and a mirrored 2 is no 2.
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
    unsigned char *pixels[FRUGI_SPLITS]; /* count x channels x height x width */
    unsigned char *labels[FRUGI_SPLITS];
    float value[CHANNELS_MAX][256]; /* what a byte stands for */
} images;

static void close_images(void *state) {
    images *s = state;
    for (int i = 0; i < FRUGI_SPLITS; i++) {
        free(s->pixels[i]);
        free(s->labels[i]);
    }
    free(s);
}

frugi_move frugi_augment(const frugi_data *data, frugi_place place) {
    int how = place.split == FRUGI_TRAIN && !place.kept_back ? data->augment : FRUGI_AUGMENT_NONE;
    uint64_t bits = frugi_random(data->seed, FRUGI_STREAM_AUGMENT | place.epoch << 8, place.index);
    uint32_t high = (uint32_t)(bits >> 32), low = (uint32_t)bits >> 1;
    int side = 2 * PADDING + 1;
    frugi_move move = {0, 0, 0};
    if (how & FRUGI_AUGMENT_CROP) {
        move.right = (int)(high % (uint32_t)side) - PADDING;
        move.down = (int)(low % (uint32_t)side) - PADDING;
    }
    move.flip = (how & FRUGI_AUGMENT_MIRROR) != 0 && (bits & 1);
    return move;
}

/* One row of pixels, moved; a mirrored one is read from its other end. */
static void move_row(const unsigned char *from, const float *value, int width, frugi_move move, float *to) {
    for (int x = 0; x < width; x++) {
        int source = (move.flip ? width - 1 - x : x) + move.right;
        to[x] = value[source < 0 || source >= width ? 0 : from[source]];
    }
}

static void image_sample(const frugi_data *data, frugi_place place, frugi_batch *batch, size_t slot) {
    const images *s = data->state;
    int height = (int)data->info.height, width = (int)data->info.width;
    size_t plane = (size_t)height * (size_t)width, size = data->info.channels * plane;
    const unsigned char *from = s->pixels[place.split] + place.index * size;
    float *to = batch->pixels + slot * size;
    frugi_move move = frugi_augment(data, place);
    for (size_t c = 0; c < data->info.channels; c++)
        for (int y = 0; y < height; y++) {
            int source = y + move.down;
            float *row = to + c * plane + (size_t)y * (size_t)width;
            if (source >= 0 && source < height)
                move_row(from + c * plane + (size_t)source * (size_t)width, s->value[c], width, move, row);
            else
                for (int x = 0; x < width; x++)
                    row[x] = s->value[c][0];
        }
    batch->targets[slot] = s->labels[place.split][place.index];
}

static const frugi_source image_source = {.sample = image_sample, .close = close_images};

static images *begin(frugi_data *data) {
    images *s = calloc(1, sizeof *s);
    if (s == NULL) {
        frugi_error("not enough memory for a data set");
        return NULL;
    }
    data->source = &image_source;
    data->state = s;
    return s;
}

static void normalise(float value[256], double mean, double deviation) {
    for (int b = 0; b < 256; b++)
        value[b] = (float)((b / 255.0 - mean) / deviation);
}

/* Read and check dir/name. The data of idx points into bytes. */
static int read_idx(const char *dir, const char *name, uint32_t dims, frugi_bytes *bytes, frugi_idx *idx) {
    frugi_why why;
    char *path = frugi_unpack_find(dir, name);
    if (path == NULL)
        return frugi_error("%s: expected '%s' in this directory, plain, .gz or .xz", dir, name);
    int status = frugi_unpack_file(path, file_max, bytes);
    if (status == FRUGI_EXIT_OK && frugi_idx_parse(bytes->data, bytes->len, dims, idx, &why) != 0) {
        frugi_bytes_free(bytes);
        status = frugi_error("%s: %s", path, why.text);
    }
    free(path);
    return status;
}

/* Keep the data of a file and drop its header, in place. */
static unsigned char *keep(frugi_bytes *bytes, const frugi_idx *idx) {
    size_t header = (size_t)(idx->data - bytes->data);
    memmove(bytes->data, idx->data, bytes->len - header);
    return bytes->data;
}

static int read_labels(const char *dir, const char *name, frugi_split split, frugi_data *data) {
    images *s = data->state;
    frugi_bytes bytes;
    frugi_idx idx;
    uint64_t count = data->info.count[split];
    if (read_idx(dir, name, 1, &bytes, &idx) != FRUGI_EXIT_OK)
        return FRUGI_EXIT_FAIL;
    s->labels[split] = keep(&bytes, &idx);
    if (idx.shape[0] != count)
        return frugi_error("%s/%s: byte 4: expected %llu labels, one for each image, found %u", dir, name,
                           (unsigned long long)count, idx.shape[0]);
    for (uint64_t i = 0; i < count; i++)
        if (split == FRUGI_TRAIN && s->labels[split][i] >= data->info.classes)
            data->info.classes = s->labels[split][i] + 1u;
        else if (s->labels[split][i] >= data->info.classes)
            return frugi_error("%s/%s: byte %llu: expected a label below %u, as in training, found %u", dir, name,
                               (unsigned long long)i + 8, data->info.classes, s->labels[split][i]);
    return FRUGI_EXIT_OK;
}

static int read_split(const char *dir, const char *pictures, const char *labels, frugi_split split, frugi_data *data) {
    frugi_bytes bytes;
    frugi_idx idx;
    frugi_data_info *info = &data->info;
    if (read_idx(dir, pictures, 3, &bytes, &idx) != FRUGI_EXIT_OK)
        return FRUGI_EXIT_FAIL;
    ((images *)data->state)->pixels[split] = keep(&bytes, &idx);
    if (split != FRUGI_TRAIN && (idx.shape[1] != info->height || idx.shape[2] != info->width))
        return frugi_error("%s/%s: byte 8: expected images of %u x %u, as in training, found %u x %u", dir, pictures,
                           info->height, info->width, idx.shape[1], idx.shape[2]);
    info->count[split] = idx.shape[0];
    info->height = idx.shape[1];
    info->width = idx.shape[2];
    return read_labels(dir, labels, split, data);
}

/* Mean and deviation of the training pixels, from their histogram. */
static void measure(const frugi_data *data, double *mean, double *deviation) {
    const unsigned char *pixels = ((const images *)data->state)->pixels[FRUGI_TRAIN];
    uint64_t n = data->info.count[FRUGI_TRAIN] * data->info.height * data->info.width, histogram[256] = {0};
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

int frugi_idx_open(const char *dir, frugi_data *data) {
    images *s = begin(data);
    double mean = 0.2860, deviation = 0.3530; /* of Fashion-MNIST */
    if (s == NULL ||
        read_split(dir, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", FRUGI_TRAIN, data) != FRUGI_EXIT_OK ||
        read_split(dir, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", FRUGI_TEST, data) != FRUGI_EXIT_OK)
        return FRUGI_EXIT_FAIL;
    data->info.channels = 1;
    data->suits = FRUGI_AUGMENT_CROP;
    if (strcasecmp(data->name, "fashion-mnist") != 0)
        measure(data, &mean, &deviation);
    normalise(s->value[0], mean, deviation);
    return FRUGI_EXIT_OK;
}

static int read_cifar(const char *dir, int file, frugi_bytes *bytes, uint64_t *records) {
    static const char *const names[CIFAR_FILES] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                                   "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    frugi_why why;
    char *path = frugi_unpack_find(dir, names[file]);
    if (path == NULL)
        return frugi_error("%s: expected '%s' in this directory, plain, .gz or .xz", dir, names[file]);
    int status = frugi_unpack_file(path, file_max / 4, bytes);
    if (status == FRUGI_EXIT_OK && frugi_cifar_parse(bytes->data, bytes->len, records, &why) != 0)
        status = frugi_error("%s: %s", path, why.text);
    free(path);
    return status;
}

/* Labels and pixels of some files go into arrays of their own. */
static int part_records(images *s, frugi_split split, const frugi_bytes *bytes, const uint64_t *records, int files) {
    uint64_t total = 0;
    for (int i = 0; i < files; i++)
        total += records[i];
    unsigned char *pixels = malloc((size_t)total * FRUGI_CIFAR_PIXELS), *labels = malloc((size_t)total);
    s->pixels[split] = pixels;
    s->labels[split] = labels;
    if (pixels == NULL || labels == NULL)
        return frugi_error("not enough memory for %llu images", (unsigned long long)total);
    for (int i = 0; i < files; i++) {
        const unsigned char *from = bytes[i].data;
        for (uint64_t k = 0; k < records[i]; k++) {
            *labels++ = *from++;
            memcpy(pixels, from, FRUGI_CIFAR_PIXELS);
            pixels += FRUGI_CIFAR_PIXELS;
            from += FRUGI_CIFAR_PIXELS;
        }
    }
    return FRUGI_EXIT_OK;
}

int frugi_cifar_open(const char *dir, frugi_data *data) {
    static const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
    frugi_bytes bytes[CIFAR_FILES] = {{NULL, 0}};
    uint64_t records[CIFAR_FILES] = {0};
    int status[CIFAR_FILES], worst = FRUGI_EXIT_OK;
    images *s = begin(data);
    if (s == NULL)
        return FRUGI_EXIT_FAIL;
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = 0; i < CIFAR_FILES; i++)
        status[i] = read_cifar(dir, i, &bytes[i], &records[i]);
    for (int i = 0; i < CIFAR_FILES; i++)
        worst = status[i] != FRUGI_EXIT_OK ? status[i] : worst;
    if (worst == FRUGI_EXIT_OK)
        worst = part_records(s, FRUGI_TRAIN, bytes, records, CIFAR_FILES - 1);
    if (worst == FRUGI_EXIT_OK)
        worst = part_records(s, FRUGI_TEST, bytes + CIFAR_FILES - 1, records + CIFAR_FILES - 1, 1);
    for (int i = 0; i < CIFAR_FILES; i++) {
        frugi_bytes_free(&bytes[i]);
        data->info.count[i < CIFAR_FILES - 1 ? FRUGI_TRAIN : FRUGI_TEST] += records[i];
    }
    for (int c = 0; c < 3; c++)
        normalise(s->value[c], mean[c], deviation[c]);
    data->info.channels = 3;
    data->suits = FRUGI_AUGMENT_CROP | FRUGI_AUGMENT_MIRROR;
    data->info.height = data->info.width = FRUGI_CIFAR_SIDE;
    data->info.classes = FRUGI_CIFAR_CLASSES;
    memcpy(data->name, "cifar-10", sizeof "cifar-10");
    return worst;
}
