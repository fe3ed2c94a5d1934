/*
 * test_data_images.c - orders are permutations; idx and CIFAR files give their pixels and labels, augmented only where
 * requested; invalid files are refused with file, position and expectation; the real sets have the published sizes.
 */
#include "trainer/data/epoch_order.h"
#include "trainer/data/image_files.h"
#include "trainer/base/keyed_random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/data_helpers.h"

enum { TRAIN = 7, TEST = 3, H = 6, W = 5, RECORD = FGT_CIFAR_PIXELS + 1 };

static void orders_are_permutations(void **state) {
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097};
    unsigned char seen[4097];
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (uint64_t epoch = 0; epoch < 5; epoch++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < sizes[k]; i++) {
                uint64_t to = fgt_epoch_order(3, epoch, sizes[k], i);
                assert_true(to < sizes[k]);
                assert_int_equal(seen[to]++, 0);
            }
        }
    assert_true(fgt_epoch_order(3, 0, UINT64_C(1) << 40, 12345) < UINT64_C(1) << 40);
}

/* The position of 0 of 10 over 20,000 epochs, and which of two adjacent samples comes first: five deviations allowed;
 * seed 4. */
static void orders_are_random(void **state) {
    enum { EPOCHS = 20000, PLACES = 10 };
    int hits[PLACES] = {0}, rises = 0;
    (void)state;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        uint64_t a = fgt_epoch_order(4, epoch, PLACES, 0), b = fgt_epoch_order(4, epoch, PLACES, 1);
        hits[a]++;
        rises += a < b;
    }
    for (int i = 0; i < PLACES; i++)
        assert_true(fabs(hits[i] - EPOCHS / 10.0) < 5 * sqrt(EPOCHS * 0.09));
    assert_true(fabs(rises - EPOCHS / 2.0) < 5 * sqrt(EPOCHS * 0.25));
}

static unsigned char pixel(int split, int image, int y, int x) {
    return (unsigned char)(split * 100 + image * 10 + y * 7 + x * 3 + 1);
}

static void write_idx(const char *directory, int split, int n, int labels) {
    unsigned char images[16 + 10 * H * W] = {0, 0, 8, 3, 0, 0, 0, (unsigned char)n, 0, 0, 0, H, 0, 0, 0, W};
    unsigned char classes[8 + 16] = {0, 0, 8, 1, 0, 0, 0, (unsigned char)labels};
    for (int i = 0; i < n; i++)
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                images[16 + (i * H + y) * W + x] = pixel(split, i, y, x);
    for (int i = 0; i < labels; i++)
        classes[8 + i] = (unsigned char)(i % 4);
    temp_dir_write(directory, split ? "t10k-images-idx3-ubyte" : "train-images-idx3-ubyte", images,
                   (size_t)(16 + n * H * W));
    temp_dir_write(directory, split ? "t10k-labels-idx1-ubyte" : "train-labels-idx1-ubyte", classes,
                   (size_t)(8 + labels));
}

static fgt_data *open_images(const char *path, int augment) {
    fgt_data_options want = {.task = FGT_TASK_IMAGES, .path = path, .augment = augment, .seed = 5};
    fgt_data *data = NULL;
    assert_int_equal(fgt_data_open(&want, &data), FGIO_EXIT_OK);
    return data;
}

static void assert_refused(const char *path, const char *reason) {
    fgt_data_options want = {.task = FGT_TASK_IMAGES, .path = path};
    assert_data_refused(&want, reason);
}

/* A directory called fashion-mnist has known constants; each test image must match its own. */
static void idx_images_are_normalized(void **state) {
    char directory[TEMP_PATH_MAX];
    fgt_batch batch;
    (void)state;
    temp_dir_create(directory, "fashion-mnist");
    write_idx(directory, 0, TRAIN, TRAIN);
    write_idx(directory, 1, TEST, TEST);
    fgt_data *data = open_images(directory, 0);
    const fgt_data_info *info = fgt_data_get_info(data);
    assert_string_equal(info->name, "fashion-mnist");
    assert_int_equal(info->count[FGT_TRAIN], TRAIN);
    assert_int_equal(info->count[FGT_VALID], 0);
    assert_int_equal(info->count[FGT_TEST], TEST);
    assert_int_equal(info->classes, 4);
    assert_int_equal(fgt_batch_create(info, TEST, &batch), FGIO_EXIT_OK);
    fgt_data_batch(data, FGT_TEST, 9, 0, TEST, &batch);
    for (int i = 0; i < TEST * H * W; i++) {
        int byte = pixel(1, i / (H * W), i / W % H, i % W);
        assert_true(fabs((double)batch.pixels[i] - (byte / 255.0 - 0.2860) / 0.3530) < 1e-6);
    }
    for (int i = 0; i < TEST; i++)
        assert_int_equal(batch.targets[i], i);
    fgt_data_batch(data, FGT_VALID, 0, 0, TEST, &batch);
    assert_int_equal(batch.n, 0);
    fgt_batch_destroy(&batch);
    fgt_data_close(data);
    temp_dir_remove(directory);
}

/* For others mean and deviation are computed: over an epoch the pixels have mean 0 and variance 1. */
static void other_idx_sets_use_their_own_statistics(void **state) {
    char directory[TEMP_PATH_MAX];
    fgt_batch batch;
    double sum = 0, squares = 0;
    int seen[4] = {0};
    (void)state;
    temp_dir_create(directory, "digits");
    write_idx(directory, 0, TRAIN, TRAIN);
    write_idx(directory, 1, TEST, TEST);
    fgt_data *data = open_images(directory, 0);
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 2 * TRAIN, &batch), FGIO_EXIT_OK);
    fgt_data_batch(data, FGT_TRAIN, 1, 0, 2 * TRAIN, &batch);
    for (int i = 0; i < TRAIN * H * W; i++) {
        sum += (double)batch.pixels[i];
        squares += (double)batch.pixels[i] * (double)batch.pixels[i];
    }
    assert_true(fabs(sum / (TRAIN * H * W)) < 1e-5);
    assert_true(fabs(squares / (TRAIN * H * W) - 1) < 1e-5);
    for (int i = 0; i < TRAIN; i++)
        seen[batch.targets[i]]++;
    assert_true(seen[0] == 2 && seen[1] == 2 && seen[2] == 2 && seen[3] == 1);
    /* Past the end the epoch begins again from the front. */
    assert_memory_equal(batch.pixels, batch.pixels + TRAIN * H * W, TRAIN * H * W * sizeof(float));
    fgt_batch_destroy(&batch);
    fgt_data_close(data);
    temp_dir_remove(directory);
}

/* A client of a federated run: classes are those of the run. */
static void classes_of_a_run_need_not_be_reached(void **state) {
    char directory[TEMP_PATH_MAX];
    fgt_data_options want = {.task = FGT_TASK_IMAGES, .path = directory, .run_classes = 6};
    fgt_data *data;
    (void)state;
    temp_dir_create(directory, "mnist");
    write_idx(directory, 0, TRAIN, TRAIN);
    write_idx(directory, 1, 8, 8);
    temp_dir_write(directory, "t10k-labels-idx1-ubyte", "\0\0\x08\x01\0\0\0\x08\0\1\2\3\3\2\x05\0", 16);
    assert_int_equal(fgt_data_open(&want, &data), FGIO_EXIT_OK);
    assert_int_equal(fgt_data_get_info(data)->classes, 6);
    fgt_data_close(data);
    want.run_classes = 3;
    assert_data_refused(&want, "train-labels-idx1-ubyte: byte 11: expected a label below 3, as in the run, found 3");
    temp_dir_remove(directory);
}

static void wrong_idx_files_are_refused(void **state) {
    char directory[TEMP_PATH_MAX];
    static const unsigned char other[] = {0, 0, 13, 3, 0, 0, 0, 1};
    static const unsigned char huge[] = {0, 0, 8, 3, 255, 255, 255, 255, 0, 0, 64, 0, 0, 0, 64, 0};
    static const unsigned char flat[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1};
    (void)state;
    temp_dir_create(directory, "mnist");
    assert_refused(directory, "expected a directory with 'train-images-idx3-ubyte' (MNIST) or 'data_batch_1.bin'");
    write_idx(directory, 0, TRAIN, TRAIN - 1);
    assert_refused(directory, "train-labels-idx1-ubyte: byte 4: expected 7 labels, one for each image, found 6");
    write_idx(directory, 0, TRAIN, TRAIN);
    assert_refused(directory, "expected 't10k-images-idx3-ubyte' in this directory");
    write_idx(directory, 1, 8, 8);
    temp_dir_write(directory, "t10k-labels-idx1-ubyte", "\0\0\x08\x01\0\0\0\x08\0\1\2\3\3\2\x04\0", 16);
    assert_refused(directory, "t10k-labels-idx1-ubyte: byte 14: expected a label below 4, as in training, found 4");
    temp_dir_write(directory, "train-images-idx3-ubyte", other, sizeof other);
    assert_refused(directory, "train-images-idx3-ubyte: byte 0: expected 00 00 08 03");
    temp_dir_write(directory, "train-images-idx3-ubyte", huge, 9);
    assert_refused(directory, "byte 9: the file ends; expected a header of 16 bytes");
    temp_dir_write(directory, "train-images-idx3-ubyte", huge, sizeof huge);
    assert_refused(directory, "byte 16: the file ends; expected 1152921504338411520 bytes of data");
    temp_dir_write(directory, "train-images-idx3-ubyte", flat, sizeof flat);
    assert_refused(directory, "byte 8: expected a side of 1 to 16384 pixels, found 0");
    temp_dir_remove(directory);
}

static unsigned char cifar_pixel(int record, int i) {
    return (unsigned char)(1 + (record * 31 + i * 7 + i / 1024) % 255);
}

static void write_cifar(const char *directory, const char *name, int first, int n) {
    unsigned char *bytes = malloc((size_t)n * RECORD);
    assert_non_null(bytes);
    for (int r = 0; r < n; r++) {
        bytes[r * RECORD] = (unsigned char)((first + r) % 10);
        for (int i = 0; i < FGT_CIFAR_PIXELS; i++)
            bytes[r * RECORD + 1 + i] = cifar_pixel(first + r, i);
    }
    temp_dir_write(directory, name, bytes, (size_t)n * RECORD);
    free(bytes);
}

static void write_all_cifar(const char *directory) {
    char name[32];
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", i + 1);
        write_cifar(directory, name, 2 * i, 2);
    }
    write_cifar(directory, "test_batch.bin", 10, 3);
}

/* Finds the shift of a training image by trying all 162; exactly one must match. */
static int find_move(const float *got, int record) {
    static const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
    int found = -1;
    for (int m = 0; m < 162; m++) {
        int right = m % 9 - 4, down = m / 9 % 9 - 4, flip = m / 81, same = 1;
        for (int i = 0; i < FGT_CIFAR_PIXELS && same; i++) {
            int c = i / 1024, y = i / 32 % 32 + down, x = (flip ? 31 - i % 32 : i % 32) + right;
            int inside = y >= 0 && y < 32 && x >= 0 && x < 32;
            double byte = inside ? cifar_pixel(record, c * 1024 + y * 32 + x) : 0;
            same = fabs((byte / 255.0 - mean[c]) / deviation[c] - (double)got[i]) < 1e-5;
        }
        if (same) {
            assert_int_equal(found, -1);
            found = m;
        }
    }
    assert_true(found >= 0);
    return found;
}

static void cifar_images_are_shifted_in_training_only(void **state) {
    char directory[TEMP_PATH_MAX];
    fgt_batch batch, again;
    int moved = 0, flipped = 0;
    (void)state;
    temp_dir_create(directory, "cifar");
    write_all_cifar(directory);
    fgt_data *data = open_images(directory, FGT_AUGMENT_AUTO);
    const fgt_data_info *info = fgt_data_get_info(data);
    assert_string_equal(info->name, "cifar-10");
    assert_string_equal(info->augment, "crop+mirror");
    assert_int_equal(info->count[FGT_TRAIN], 10);
    assert_int_equal(info->count[FGT_TEST], 3);
    assert_int_equal(fgt_batch_create(info, 10, &batch), FGIO_EXIT_OK);
    assert_int_equal(fgt_batch_create(info, 10, &again), FGIO_EXIT_OK);
    fgt_data_batch(data, FGT_TEST, 0, 0, 3, &batch);
    for (int i = 0; i < 3; i++)
        assert_int_equal(find_move(batch.pixels + i * FGT_CIFAR_PIXELS, 10 + i), 4 + 4 * 9);
    for (uint64_t epoch = 0; epoch < 4; epoch++) {
        fgt_data_batch(data, FGT_TRAIN, epoch, 0, 10, &batch);
        for (int i = 0; i < 10; i++) { /* record r has label r */
            int move = find_move(batch.pixels + i * FGT_CIFAR_PIXELS, batch.targets[i]);
            moved += move != 40 && move != 121;
            flipped += move / 81;
            /* One by one gives the same as all at once. */
            fgt_data_batch(data, FGT_TRAIN, epoch, (uint64_t)i, 1, &again);
            assert_memory_equal(again.pixels, batch.pixels + i * FGT_CIFAR_PIXELS, sizeof(float[FGT_CIFAR_PIXELS]));
        }
    }
    assert_in_range(moved, 33, 40); /* of 40, 1 in 81 stays; seed 5 */
    assert_in_range(flipped, 8, 32);
    fgt_batch_destroy(&batch);
    fgt_batch_destroy(&again);
    fgt_data_close(data);
    temp_dir_remove(directory);
}

/* Each option value has its own effect and no other. */
static void augmentation_follows_the_option(void **state) {
    char directory[TEMP_PATH_MAX];
    fgt_batch batch;
    (void)state;
    temp_dir_create(directory, "cifar");
    write_all_cifar(directory);
    for (int how = FGT_AUGMENT_NONE; how < FGT_AUGMENT_AUTO; how++) {
        fgt_data *data = open_images(directory, how);
        int moved = 0, flipped = 0;
        assert_string_equal(fgt_data_get_info(data)->augment, fgt_augment_names[how]);
        assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 10, &batch), FGIO_EXIT_OK);
        fgt_data_batch(data, FGT_TRAIN, 0, 0, 10, &batch);
        for (int i = 0; i < 10; i++) {
            int move = find_move(batch.pixels + i * FGT_CIFAR_PIXELS, batch.targets[i]);
            moved += move % 81 != 40;
            flipped += move / 81;
        }
        assert_int_equal(moved > 0, (how & FGT_AUGMENT_CROP) != 0);
        assert_int_equal(flipped > 0, (how & FGT_AUGMENT_MIRROR) != 0);
        fgt_batch_destroy(&batch);
        fgt_data_close(data);
    }
    temp_dir_remove(directory);
}

/* A mirrored 2 is no 2. */
static void gray_idx_images_are_not_mirrored(void **state) {
    char directory[TEMP_PATH_MAX];
    fgt_batch crop, both;
    (void)state;
    temp_dir_create(directory, "digits");
    write_idx(directory, 0, TRAIN, TRAIN);
    write_idx(directory, 1, TEST, TEST);
    fgt_data *data = open_images(directory, FGT_AUGMENT_AUTO), *asked = open_images(directory, FGT_AUGMENT_CROP);
    assert_string_equal(fgt_data_get_info(data)->augment, "crop");
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), TRAIN, &crop), FGIO_EXIT_OK);
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), TRAIN, &both), FGIO_EXIT_OK);
    fgt_data_batch(data, FGT_TRAIN, 0, 0, TRAIN, &both);
    fgt_data_batch(asked, FGT_TRAIN, 0, 0, TRAIN, &crop);
    assert_memory_equal(both.pixels, crop.pixels, sizeof(float) * TRAIN * H * W);
    fgt_data_close(asked);
    asked = open_images(directory, FGT_AUGMENT_CROP | FGT_AUGMENT_MIRROR);
    fgt_data_batch(asked, FGT_TRAIN, 0, 0, TRAIN, &both);
    assert_memory_not_equal(both.pixels, crop.pixels, sizeof(float) * TRAIN * H * W);
    fgt_batch_destroy(&crop);
    fgt_batch_destroy(&both);
    fgt_data_close(asked);
    fgt_data_close(data);
    temp_dir_remove(directory);
}

static void wrong_cifar_files_are_refused(void **state) {
    char directory[TEMP_PATH_MAX];
    unsigned char record[RECORD] = {10};
    (void)state;
    temp_dir_create(directory, "cifar");
    write_all_cifar(directory);
    temp_dir_write(directory, "data_batch_4.bin", record, RECORD);
    assert_refused(directory, "data_batch_4.bin: byte 0: expected a label of 0 to 9, found 10");
    temp_dir_write(directory, "data_batch_4.bin", record, RECORD - 1);
    assert_refused(directory, "data_batch_4.bin: byte 3072: the file ends; expected records of 3073 bytes");
    char path[2 * TEMP_PATH_MAX];
    snprintf(path, sizeof path, "%s/data_batch_4.bin", directory);
    unlink(path);
    assert_refused(directory, "expected 'data_batch_4.bin' in this directory");
    temp_dir_write_text(directory, "data_batch_4.bin.xz", "no xz at all");
    assert_refused(directory, "data_batch_4.bin.xz: byte ");
    temp_dir_remove(directory);
}

/* Class counts and the sum of an epoch's normalized pixels, per sample. */
static void survey(fgt_data *data, fgt_split split, int *classes, double *mean) {
    const fgt_data_info *info = fgt_data_get_info(data);
    size_t size = (size_t)info->channels * info->height * info->width;
    fgt_batch batch;
    double sum = 0;
    assert_int_equal(fgt_batch_create(info, 1000, &batch), FGIO_EXIT_OK);
    for (uint64_t at = 0; at < info->count[split]; at += 1000) {
        fgt_data_batch(data, split, 0, at, 1000, &batch);
        for (uint32_t i = 0; i < 1000; i++)
            classes[batch.targets[i]]++;
        for (size_t i = 0; i < 1000 * size; i++)
            sum += (double)batch.pixels[i];
    }
    *mean = sum / ((double)info->count[split] * (double)size);
    fgt_batch_destroy(&batch);
}

static void fashion_mnist_matches_published_counts(void **state) {
    int classes[10] = {0};
    double mean;
    (void)state;
    if (access("/usr/share/datasets/fashion-mnist", R_OK) != 0) {
        print_message("not here: fashion-mnist (Debian's dataset-fashion-mnist)\n");
        skip();
    }
    fgt_data *data = open_images("fashion-mnist", 0);
    assert_int_equal(fgt_data_get_info(data)->count[FGT_TRAIN], 60000);
    assert_int_equal(fgt_data_get_info(data)->count[FGT_TEST], 10000);
    survey(data, FGT_TRAIN, classes, &mean);
    for (int i = 0; i < 10; i++)
        assert_int_equal(classes[i], 6000);
    assert_true(fabs(mean) < 1e-3);
    fgt_data_close(data);
}

static void cifar_10_matches_published_counts(void **state) {
    char path[TEMP_PATH_MAX];
    int train[10] = {0}, test[10] = {0};
    double mean;
    (void)state;
    if (real_data("cifar10", path) == NULL)
        skip();
    fgt_data *data = open_images(path, 0);
    assert_int_equal(fgt_data_get_info(data)->count[FGT_TRAIN], 50000);
    survey(data, FGT_TRAIN, train, &mean);
    survey(data, FGT_TEST, test, &mean);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(train[i], 5000);
        assert_int_equal(test[i], 1000);
    }
    fgt_data_close(data);
}

/* Held-out samples are never trained on and never augmented; together the two splits are the training samples. */
static void held_out_samples_are_the_last_and_unmoved(void **state) {
    enum { KEPT = 3 };
    char directory[TEMP_PATH_MAX];
    fgt_batch all, kept;
    (void)state;
    temp_dir_create(directory, "fashion-mnist");
    write_idx(directory, 0, TRAIN, TRAIN);
    write_idx(directory, 1, TEST, TEST);
    fgt_data_options want = {
        .task = FGT_TASK_IMAGES, .path = directory, .augment = FGT_AUGMENT_AUTO, .seed = 5, .hold_out = KEPT};
    fgt_data *data = NULL, *plain = open_images(directory, 0);
    assert_int_equal(fgt_data_open(&want, &data), FGIO_EXIT_OK);
    const fgt_data_info *info = fgt_data_get_info(data);
    assert_int_equal(info->count[FGT_TRAIN], TRAIN - KEPT);
    assert_int_equal(info->count[FGT_VALID], KEPT);
    assert_int_equal(fgt_batch_create(info, TRAIN, &all), FGIO_EXIT_OK);
    assert_int_equal(fgt_batch_create(info, KEPT, &kept), FGIO_EXIT_OK);
    fgt_data_batch(data, FGT_VALID, 0, 0, KEPT, &kept);
    fgt_data_batch(plain, FGT_TRAIN, 0, 0, TRAIN, &all);
    size_t size = (size_t)info->height * info->width, found = 0;
    for (size_t i = 0; i < KEPT; i++)
        for (size_t j = 0; j < TRAIN; j++)
            found += memcmp(kept.pixels + i * size, all.pixels + j * size, size * sizeof(float)) == 0;
    assert_int_equal(found, KEPT);
    want.hold_out = TRAIN;
    stderr_capture c;
    fgt_data *none = NULL;
    stderr_capture_begin(&c);
    int status = fgt_data_open(&want, &none);
    stderr_capture_end(&c);
    assert_int_equal(status, FGIO_EXIT_FAIL);
    assert_non_null(strstr(c.text, "cannot hold out"));
    fgt_batch_destroy(&all);
    fgt_batch_destroy(&kept);
    fgt_data_close(data);
    fgt_data_close(plain);
    temp_dir_remove(directory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_permutations),
        cmocka_unit_test(orders_are_random),
        cmocka_unit_test(idx_images_are_normalized),
        cmocka_unit_test(other_idx_sets_use_their_own_statistics),
        cmocka_unit_test(classes_of_a_run_need_not_be_reached),
        cmocka_unit_test(wrong_idx_files_are_refused),
        cmocka_unit_test(cifar_images_are_shifted_in_training_only),
        cmocka_unit_test(augmentation_follows_the_option),
        cmocka_unit_test(gray_idx_images_are_not_mirrored),
        cmocka_unit_test(wrong_cifar_files_are_refused),
        cmocka_unit_test(fashion_mnist_matches_published_counts),
        cmocka_unit_test(cifar_10_matches_published_counts),
        cmocka_unit_test(held_out_samples_are_the_last_and_unmoved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
