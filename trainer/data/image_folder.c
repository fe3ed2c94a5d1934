/*
 * image_folder.c - image folders in ImageNet's layout: train/CLASS/picture.JPEG, and val likewise; classes are the
 * sorted directory names of train. Where there is no train, the class directories are in the directory itself; where
 * there is no val, every tenth image of a class, by name, is for validation, and the last one of a class of two to
 * nine. Numbers of classes are positions, so a client of a run must have a folder for every class, but may leave it
 * empty.
 *
 * Only names are in memory. Images are decoded when a batch is loaded, by all threads of a worker, and resized to the
 * input size of the model. For training a random crop of 8 to 100 % of the area is used, otherwise the center 7/8 (256
 * and 224 of ImageNet). A JPEG is decoded no larger than that needs.
 */
#include "trainer/data/image_decode.h"
#include "io/files.h"
#include "trainer/base/keyed_random.h"
#include "trainer/data/image_resize.h"
#include "trainer/data/data_source.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { CLASSES_MAX = 1 << 16, CROP_TRIES = 10, HOLD_OUT_EVERY = 10 };
static const size_t file_max = (size_t)64 << 20;

typedef struct image_entry {
    char *path;
    uint32_t label;
} image_entry;

typedef struct folder {
    struct dirent **classes; /* of train, sorted */
    int count;
    image_entry *names[FGT_SPLITS];
    size_t cap[FGT_SPLITS];
} folder;

static void free_entries(struct dirent **entries, int count) {
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

static void close_folder(void *state) {
    folder *s = state;
    for (int i = 0; i < FGT_SPLITS; i++) {
        for (size_t k = 0; s->names[i] != NULL && k < s->cap[i] && s->names[i][k].path != NULL; k++)
            free(s->names[i][k].path);
        free(s->names[i]);
    }
    free_entries(s->classes, s->count);
    free(s);
}

/* ---- names ---- */

static char *join(const char *dir, const char *name) {
    size_t room = strlen(dir) + strlen(name) + 2;
    char *path = malloc(room);
    if (path != NULL)
        snprintf(path, room, "%s/%s", dir, name);
    return path;
}

static int is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

static int is_image_file(const struct dirent *entry) {
    static const char *const ends[] = {".jpeg", ".jpg", ".png"};
    size_t len = strlen(entry->d_name);
    for (int i = 0; i < 3; i++)
        if (len > strlen(ends[i]) && strcasecmp(entry->d_name + len - strlen(ends[i]), ends[i]) == 0)
            return entry->d_name[0] != '.';
    return 0;
}

/* The same order whatever the locale is. */
static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The subdirectories of a directory, sorted; their number, or -1. */
static int list_classes(const char *dir, struct dirent ***classes) {
    struct dirent **all = NULL;
    int count = scandir(dir, &all, is_visible, by_name), kept = 0;
    for (int i = 0; i < count; i++) {
        char *path = join(dir, all[i]->d_name);
        if (path != NULL && is_folder(path))
            all[kept++] = all[i];
        else
            free(all[i]);
        free(path);
    }
    *classes = all;
    return count < 0 ? -1 : kept;
}

/* Appends an image to its split and takes ownership of its path. The first entry without a path is the end. */
static int append_image(fgt_data *data, fgt_split split, char *path, uint32_t label) {
    folder *s = data->state;
    uint64_t *count = &data->info.count[split];
    if (path != NULL && *count == s->cap[split]) {
        size_t cap = s->cap[split] == 0 ? 1024 : 2 * s->cap[split];
        image_entry *names = realloc(s->names[split], cap * sizeof *names);
        if (names == NULL) {
            free(path);
            return fgio_error("not enough memory for the names of %zu images", cap);
        }
        memset(names + s->cap[split], 0, (cap - s->cap[split]) * sizeof *names);
        s->names[split] = names;
        s->cap[split] = cap;
    }
    if (path == NULL)
        return fgio_error("not enough memory for the names of images");
    s->names[split][(*count)++] = (image_entry){path, label};
    return FGIO_EXIT_OK;
}

static int is_held_out(int i, int count) {
    return i % HOLD_OUT_EVERY == HOLD_OUT_EVERY - 1 || (count > 1 && count < HOLD_OUT_EVERY && i == count - 1);
}

static int list_class(fgt_data *data, const char *dir, uint32_t label, fgt_split split, int hold) {
    struct dirent **entries = NULL;
    int count = scandir(dir, &entries, is_image_file, by_name), status = FGIO_EXIT_OK;
    if (count < 0)
        return fgio_error("%s: cannot read: %s", dir, strerror(errno));
    if (count == 0 && !data->run_classes)
        status = fgio_error("%s: expected images of this class (.jpg, .jpeg or .png), found none", dir);
    for (int i = 0; i < count && status == FGIO_EXIT_OK; i++)
        status =
            append_image(data, hold && is_held_out(i, count) ? FGT_VALID : split, join(dir, entries[i]->d_name), label);
    free_entries(entries, count);
    return status;
}

/* The number of a class, or -1. */
static int label_of(const folder *s, const char *name) {
    int low = 0, high = s->count;
    while (low < high) {
        int middle = (low + high) / 2, order = strcmp(s->classes[middle]->d_name, name);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static int list_split(fgt_data *data, const char *dir, fgt_split split, int hold) {
    folder *s = data->state;
    struct dirent **classes = NULL;
    int count = list_classes(dir, &classes), status = FGIO_EXIT_OK;
    if (count < 1)
        status = fgio_error("%s: expected a folder of images for each class, found none", dir);
    for (int i = 0; i < count && status == FGIO_EXIT_OK; i++) {
        int label = label_of(s, classes[i]->d_name);
        char *path = join(dir, classes[i]->d_name);
        if (label < 0)
            status = fgio_error("%s/%s: not a class of the training images", dir, classes[i]->d_name);
        else if (path == NULL)
            status = fgio_error("not enough memory for a data set");
        else
            status = list_class(data, path, (uint32_t)label, split, hold);
        free(path);
    }
    free_entries(classes, count);
    return status;
}

/* ---- samples ---- */

static uint64_t draw_bits(uint64_t key, uint64_t number) {
    return fgt_mix(key + number);
}

/* A random crop: its area is uniform, its aspect ratio from 3:4 to 4:3; the center where none of CROP_TRIES fits. */
static fgt_image_region random_crop(uint64_t key, double width, double height, fgt_image_region middle) {
    for (uint64_t i = 0; i < CROP_TRIES; i++) {
        double area = width * height * (0.08 + 0.92 * (double)fgt_uniform(draw_bits(key, 4 * i + 1)));
        double t = 2 * (double)fgt_uniform(draw_bits(key, 4 * i + 2)) - 1;
        double aspect = t < 0 ? 1 / (1 - t / 3) : 1 + t / 3; /* no exp(), whose last bit differs between machines */
        double w = floor(sqrt(area * aspect) + 0.5), h = floor(sqrt(area / aspect) + 0.5);
        if (w < 1 || h < 1 || w > width || h > height)
            continue;
        double left = floor((double)fgt_uniform(draw_bits(key, 4 * i + 3)) * (width - w + 1));
        double top = floor((double)fgt_uniform(draw_bits(key, 4 * i + 4)) * (height - h + 1));
        return (fgt_image_region){left, top, w, h};
    }
    return middle;
}

/* The center 7/8, in the aspect ratio of the model's input. */
static fgt_image_region center_crop(const fgt_data_info *info, double width, double height) {
    double across = width / info->width, down = height / info->height, scale = (across < down ? across : down) * 7 / 8;
    double w = scale * info->width, h = scale * info->height;
    return (fgt_image_region){(width - w) / 2, (height - h) / 2, w, h};
}

static uint32_t jpeg_shrink(const fgt_data_info *info, const fgt_image_region *crop) {
    uint32_t shrink = 1;
    while (shrink < 8 && crop->width >= 2.0 * shrink * info->width && crop->height >= 2.0 * shrink * info->height)
        shrink *= 2;
    return shrink;
}

/* Normalizes values of 0 to 255 in three planes by ImageNet's mean and deviation. */
static void normalize(const fgt_data_info *info, const float *planes, float *to) {
    static const float mean[] = {0.485f, 0.456f, 0.406f}, deviation[] = {0.229f, 0.224f, 0.225f};
    size_t plane = (size_t)info->width * info->height;
    for (size_t i = 0; i < plane && info->channels == 1; i++) {
        float gray = 0.299f * planes[i] + 0.587f * planes[plane + i] + 0.114f * planes[2 * plane + i];
        to[i] = (gray / 255.0f - 0.449f) / 0.226f;
    }
    for (size_t c = 0; c < 3 && info->channels == 3; c++)
        for (size_t i = 0; i < plane; i++)
            to[c * plane + i] = (planes[c * plane + i] / 255.0f - mean[c]) / deviation[c];
}

static int make_sample(const fgt_data *data, fgt_sample_id id, const fgio_bytes *file, float *to, fgio_reason *why) {
    const fgt_data_info *info = &data->info;
    int how = id.split == FGT_TRAIN ? data->augment : FGT_AUGMENT_NONE;
    uint64_t key = fgt_random(data->seed, FGT_STREAM_AUGMENT | id.epoch << 8, id.index);
    uint32_t width = 0, height = 0;
    fgt_image picture;
    if (file->len > file_max)
        return fgio_fail(why, "has %zu bytes, more than the %zu that are allowed here", file->len, file_max);
    if (fgt_image_size(file->data, file->len, &width, &height, why) != 0)
        return -1;
    fgt_image_region crop = center_crop(info, width, height);
    if (how & FGT_AUGMENT_CROP)
        crop = random_crop(key, width, height, crop);
    if (fgt_image_decode(file->data, file->len, jpeg_shrink(info, &crop), &picture, why) != 0)
        return -1;
    double across = (double)picture.width / width, down = (double)picture.height / height;
    fgt_image_region decoded_crop = {crop.left * across, crop.top * down, crop.width * across, crop.height * down};
    float *planes = malloc(3 * (size_t)info->width * info->height * sizeof *planes);
    int mirror = (how & FGT_AUGMENT_MIRROR) && (fgt_mix(key) & 1);
    int bad =
        planes == NULL || fgt_image_resize(&picture, &decoded_crop, info->width, info->height, mirror, planes) != 0;
    if (!bad)
        normalize(info, planes, to);
    free(planes);
    free(picture.rgb);
    return bad ? fgio_fail(why, "not enough memory for it") : 0;
}

static void load_sample(const fgt_data *data, fgt_sample_id id, fgt_batch *batch, size_t slot) {
    const image_entry *name = &((const folder *)data->state)->names[id.split][id.index];
    size_t size = (size_t)data->info.channels * data->info.height * data->info.width;
    fgio_bytes file = {NULL, 0};
    fgio_reason why;
    int bad = fgio_file_read(name->path, &file) != FGIO_EXIT_OK;
    if (!bad && make_sample(data, id, &file, batch->pixels + slot * size, &why) != 0) {
        fgio_error("%s: %s", name->path, why.text);
        bad = 1;
    }
    if (bad) {
        memset(batch->pixels + slot * size, 0, size * sizeof(float));
        atomic_store(&batch->failed, 1);
    }
    batch->targets[slot] = (int32_t)name->label;
    fgio_bytes_free(&file);
}

static const fgt_source folder_source = {.sample = load_sample, .close = close_folder, .reads_files = true};

/* ---- opening ---- */

/* The path of the first of these names that exists, or NULL. */
static char *find_split(const char *dir, const char *const *names) {
    for (; *names != NULL; names++) {
        char *path = join(dir, *names);
        if (path != NULL && is_folder(path))
            return path;
        free(path);
    }
    return NULL;
}

int fgt_imagefolder_detect(const char *dir) {
    struct dirent **classes = NULL;
    int count = list_classes(dir, &classes);
    free_entries(classes, count);
    return count > 0;
}

static int open_splits(const char *dir, fgt_data *data) {
    static const char *const names[FGT_SPLITS][4] = {{"train"}, {"val", "valid", "validation"}, {"test"}};
    folder *s = data->state;
    char *path[FGT_SPLITS];
    for (int i = 0; i < FGT_SPLITS; i++)
        path[i] = find_split(dir, names[i]);
    int flat = path[FGT_TRAIN] == NULL, hold = flat || path[FGT_VALID] == NULL;
    s->count = list_classes(flat ? dir : path[FGT_TRAIN], &s->classes);
    int status = s->count > CLASSES_MAX ? fgio_error("%s: more than %d classes", dir, CLASSES_MAX) : FGIO_EXIT_OK;
    if (status == FGIO_EXIT_OK && data->run_classes && s->count != (int)data->run_classes)
        status = fgio_error("%s: expected a folder for each of the %u classes of the run, empty where there are no "
                            "images of it, found %d",
                            dir, data->run_classes, s->count);
    if (status == FGIO_EXIT_OK)
        status = list_split(data, flat ? dir : path[FGT_TRAIN], FGT_TRAIN, hold);
    for (int i = FGT_VALID; i < FGT_SPLITS && status == FGIO_EXIT_OK; i++)
        if (!flat && path[i] != NULL)
            status = list_split(data, path[i], (fgt_split)i, 0);
    for (int i = 0; i < FGT_SPLITS; i++)
        free(path[i]);
    return status;
}

int fgt_imagefolder_open(const fgt_data_options *options, const char *dir, fgt_data *data) {
    folder *s = calloc(1, sizeof *s);
    if (s == NULL)
        return fgio_error("not enough memory for a data set");
    data->source = &folder_source;
    data->state = s;
    data->auto_augment = FGT_AUGMENT_CROP | FGT_AUGMENT_MIRROR;
    data->info.channels = options->channels == 1 ? 1 : 3;
    data->info.height = options->height == 0 ? 224 : options->height;
    data->info.width = options->width == 0 ? 224 : options->width;
    int status = open_splits(dir, data);
    data->info.classes = s->count < 0 ? 0 : (uint32_t)s->count;
    return status;
}
