/*
 * test_data_folder.c - image folders: JPEG and PNG are decoded and resized, classes are directories, batches do not
 * depend on the number of threads, and damaged or too large files are reported by name.
 */
#include "trainer/data/image_decode.h"
#include "trainer/data/image_resize.h"
#include "trainer/run/job.h"

#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "trainer/data_helpers.h"

enum { W = 60, H = 44, SIDE = 28 };

/* ---- made files ---- */

typedef struct made {
    unsigned char *file;
    size_t len;
} made;

/* Brightness increases to the right, by the color's share of it; 4 components: CMYK, inverted as by Adobe. */
static void fill(unsigned char *pixels, int components, int shade) {
    for (int i = 0; i < W * H; i++)
        for (int c = 0; c < components; c++)
            pixels[components * i + c] = (unsigned char)(c == 3 ? 255 : shade + 2 * (i % W));
}

static made make_jpeg(int shade, int components, int progressive) {
    unsigned char pixels[4 * W * H];
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr error;
    unsigned char *file = NULL;
    unsigned long len = 0;
    fill(pixels, components, shade);
    c.err = jpeg_std_error(&error);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &file, &len);
    c.image_width = W;
    c.image_height = H;
    c.input_components = components;
    c.in_color_space = components == 4 ? JCS_CMYK : components == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 95, TRUE);
    if (progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < H) {
        JSAMPROW row = pixels + (size_t)components * W * c.next_scanline;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return (made){file, len};
}

static made make_png(int shade) {
    unsigned char pixels[3 * W * H];
    png_image image = {.version = PNG_IMAGE_VERSION, .width = W, .height = H, .format = PNG_FORMAT_RGB};
    png_alloc_size_t len = 1 << 16;
    unsigned char *file = malloc(len);
    fill(pixels, 3, shade);
    assert_true(png_image_write_to_memory(&image, file, &len, 0, pixels, 0, NULL));
    return (made){file, len};
}

static void put(const char *root, const char *below, made m) {
    char path[2 * TEMP_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, below);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(m.file, 1, m.len, file), m.len);
    fclose(file);
    free(m.file);
}

static void remove_all(const char *root) {
    char command[2 * TEMP_PATH_MAX];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    assert_int_equal(system(command), 0);
}

/* Two classes in ImageNet's layout; those of b are brighter. */
static void make_folder(char root[TEMP_PATH_MAX]) {
    strcpy(root, "/tmp/frugrad-test-XXXXXX");
    assert_non_null(mkdtemp(root));
    for (int i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "train/a/%d.JPEG", i);
        put(root, name, make_jpeg(4 * i, 3, i % 2));
        snprintf(name, sizeof name, "train/b/%d.%s", i, i == 4 ? "PNG" : "jpg");
        put(root, name, i == 4 ? make_png(120) : make_jpeg(100 + 4 * i, 3, 0));
    }
    put(root, "train/b/notes.txt", (made){(unsigned char *)strdup("no image"), 8});
    put(root, "val/b/x.jpeg", make_png(110)); /* ImageNet has such a one, too */
    put(root, "val/a/x.jpeg", make_jpeg(8, 1, 0));
    put(root, "val/a/y.jpeg", make_jpeg(8, 4, 0));
}

static fgt_data *open_folder(const char *path, uint32_t channels, int augment) {
    fgt_data_options want = {.task = FGT_TASK_IMAGES, .path = path, .augment = augment, .seed = 5};
    fgt_data *data = NULL;
    want.channels = channels;
    want.height = want.width = SIDE;
    assert_int_equal(fgt_data_open(&want, &data), FGIO_EXIT_OK);
    return data;
}

static void assert_refused(const char *path, const char *reason) {
    fgt_data_options want = {.task = FGT_TASK_IMAGES, .path = path, .channels = 3, .height = SIDE, .width = SIDE};
    assert_data_refused(&want, reason);
}

/* ---- files ---- */

static void files_are_decoded(void **state) {
    (void)state;
    made files[] = {make_jpeg(40, 3, 0), make_jpeg(40, 3, 1), make_jpeg(40, 1, 0), make_jpeg(40, 4, 0), make_png(40)};
    for (int i = 0; i < 5; i++)
        for (uint32_t shrink = 1; shrink <= 8; shrink *= 2) {
            fgt_image p;
            fgio_reason why;
            uint32_t width, height, by = i == 4 ? 1 : shrink;
            assert_int_equal(fgt_image_size(files[i].file, files[i].len, &width, &height, &why), 0);
            assert_true(width == W && height == H);
            assert_int_equal(fgt_image_decode(files[i].file, files[i].len, shrink, &p, &why), 0);
            assert_true(p.width == (W + by - 1) / by && p.height == (H + by - 1) / by);
            for (uint32_t x = 0; x < p.width - 1; x++) { /* the last pixel may cover less than the others */
                double expected = 40 + 2 * (by * (x + 0.5) - 0.5);
                for (int c = 0; c < 3; c++)
                    assert_true(fabs(p.rgb[3 * x + (uint32_t)c] - expected) <= (i == 4 ? 0 : 6));
            }
            free(p.rgb);
        }
    for (int i = 0; i < 5; i++)
        free(files[i].file);
}

static void assert_bad(const unsigned char *file, size_t len, const char *reason) {
    fgt_image p;
    fgio_reason why = {""};
    assert_int_equal(fgt_image_decode(file, len, 1, &p, &why), -1);
    if (strstr(why.text, reason) == NULL)
        fail_msg("the message is '%s'; expected: %s", why.text, reason);
}

static void bad_files_are_refused(void **state) {
    (void)state;
    made jpeg = make_jpeg(40, 3, 0), png = make_png(40);
    assert_bad((const unsigned char *)"GIF89a", 6, "expected the start of a JPEG or PNG file");
    for (size_t len = 0; len < jpeg.len - 2; len += 37) /* the last two bytes are the end marker */
        assert_bad(jpeg.file, len, len < 3 ? "expected the start" : "invalid JPEG");
    for (size_t len = 8; len < png.len - 12; len += 37)
        assert_bad(png.file, len, "invalid PNG");
    memcpy(png.file + 16, "\0\1\x86\xA0\0\1\x86\xA0", 8); /* 100,000 x 100,000; its checksum is wrong as well */
    assert_bad(png.file, png.len, "PNG");
    for (size_t i = 0; i + 9 < jpeg.len; i++)
        if (jpeg.file[i] == 0xFF && jpeg.file[i + 1] == 0xC0)
            memset(jpeg.file + i + 5, 0xFF, 4);
    assert_bad(jpeg.file, jpeg.len, "JPEG");
    free(jpeg.file);
    free(png.file);
}

/* A side of at most 32768 is allowed, but not so many pixels. */
static void huge_images_are_refused(void **state) {
    (void)state;
    made jpeg = make_jpeg(40, 3, 0);
    for (size_t i = 0; i + 9 < jpeg.len; i++)
        if (jpeg.file[i] == 0xFF && jpeg.file[i + 1] == 0xC0)
            memcpy(jpeg.file + i + 5, "\x7F\xFF\x7F\xFF", 4);
    assert_bad(jpeg.file, jpeg.len, "an image of 32767 x 32767 pixels: expected sides of 1 to 32768 and at most");
    free(jpeg.file);
}

static void regions_are_resized(void **state) {
    unsigned char rgb[3 * 8 * 4];
    float to[3 * 8 * 4];
    fgt_image p = {8, 4, rgb};
    (void)state;
    for (int i = 0; i < 3 * 8 * 4; i++)
        rgb[i] = (unsigned char)(10 * (i / 3 % 8) + i % 3);
    for (int mirror = 0; mirror < 2; mirror++) {
        assert_int_equal(fgt_image_resize(&p, &(fgt_image_region){0, 0, 8, 4}, 8, 4, mirror, to), 0); /* as it is */
        for (int i = 0; i < 8 * 4; i++)
            for (int c = 0; c < 3; c++)
                assert_true(to[c * 32 + i] == (float)(10 * (mirror ? 7 - i % 8 : i % 8) + c));
        assert_int_equal(fgt_image_resize(&p, &(fgt_image_region){2, 1, 4, 2}, 2, 1, mirror, to),
                         0); /* half of its middle */
        assert_true(fabs((double)to[mirror] - 25) < 1 && fabs((double)to[!mirror] - 45) < 1);
        assert_int_equal(fgt_image_resize(&p, &(fgt_image_region){0, 0, 8, 4}, 1, 1, mirror, to), 0);
        assert_true(fabs((double)to[0] - 35) < 1e-4 && fabs((double)to[2] - 37) < 1e-4);
        assert_int_equal(fgt_image_resize(&p, &(fgt_image_region){7.5, 3.5, 0.5, 0.5}, 8, 4, mirror, to),
                         0); /* a corner */
        assert_true(fabs((double)to[0] - 70) < 5 && fabs((double)to[31] - 70) < 5);
    }
}

/* ---- folders ---- */

static void folders_are_classes(void **state) {
    char root[TEMP_PATH_MAX];
    fgt_batch batch;
    (void)state;
    make_folder(root);
    for (uint32_t channels = 1; channels <= 3; channels += 2) {
        fgt_data *data = open_folder(root, channels, FGT_AUGMENT_AUTO);
        const fgt_data_info *info = fgt_data_get_info(data);
        assert_true(info->classes == 2 && info->channels == channels && info->width == SIDE && info->height == SIDE);
        assert_true(info->count[FGT_TRAIN] == 10 && info->count[FGT_VALID] == 3 && info->count[FGT_TEST] == 0);
        assert_string_equal(info->augment, "crop+mirror");
        assert_int_equal(fgt_batch_create(info, 3, &batch), FGIO_EXIT_OK);
        assert_int_equal(fgt_data_batch(data, FGT_VALID, 0, 0, 3, &batch), FGIO_EXIT_OK);
        for (int i = 0; i < 3; i++) { /* the center is as bright as the whole: shade + W */
            double mean = 0, expected = ((i < 2 ? 8 : 110) + W - 1) / 255.0;
            for (int k = 0; k < SIDE * SIDE; k++)
                mean += (double)batch.pixels[i * (int)channels * SIDE * SIDE + k] / (SIDE * SIDE);
            expected = channels == 1 ? (expected - 0.449) / 0.226 : (expected - 0.485) / 0.229;
            assert_true(fabs(mean - expected) < 0.05);
            assert_int_equal(batch.targets[i], i / 2);
        }
        fgt_batch_destroy(&batch);
        fgt_data_close(data);
    }
    remove_all(root);
}

/* A sample depends on the seed, the epoch and its index alone, not on threads and order. */
static void batches_are_the_same_with_any_threads(void **state) {
    enum { SIZE = 3 * SIDE * SIDE };
    char root[TEMP_PATH_MAX];
    fgt_batch a, b;
    int changed = 0;
    (void)state;
    make_folder(root);
    fgt_data *data = open_folder(root, 3, FGT_AUGMENT_AUTO), *again = open_folder(root, 3, FGT_AUGMENT_AUTO);
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 10, &a), FGIO_EXIT_OK);
    assert_int_equal(fgt_batch_create(fgt_data_get_info(data), 10, &b), FGIO_EXIT_OK);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        a.threads = 1;
        b.threads = 4;
        assert_int_equal(fgt_data_batch(data, FGT_TRAIN, epoch, 0, 10, &a), FGIO_EXIT_OK);
        assert_int_equal(fgt_data_batch(again, FGT_TRAIN, epoch, 0, 10, &b), FGIO_EXIT_OK);
        assert_memory_equal(a.pixels, b.pixels, 10 * SIZE * sizeof(float));
        for (uint64_t i = 0; i < 10; i++) {
            assert_int_equal(fgt_data_batch(again, FGT_TRAIN, epoch, i, 1, &b), FGIO_EXIT_OK);
            assert_memory_equal(a.pixels + i * SIZE, b.pixels, SIZE * sizeof(float));
            assert_int_equal(a.targets[i], b.targets[0]);
        }
        fgt_data_batch(again, FGT_TRAIN, epoch + 1, 0, 10, &b);
        changed += memcmp(a.pixels, b.pixels, 10 * SIZE * sizeof(float)) != 0;
    }
    assert_int_equal(changed, 2);
    fgt_batch_destroy(&a);
    fgt_batch_destroy(&b);
    fgt_data_close(again);
    fgt_data_close(data);
    remove_all(root);
}

static void validation_is_held_out_without_val(void **state) {
    char root[] = "/tmp/frugrad-test-XXXXXX";
    (void)state;
    assert_non_null(mkdtemp(root));
    for (int i = 0; i < 21; i++) {
        char name[64];
        snprintf(name, sizeof name, "large/%02d.png", i);
        put(root, name, make_png(10));
        snprintf(name, sizeof name, "small/%02d.png", i);
        if (i < 3)
            put(root, name, make_png(100));
    }
    put(root, "single/x.png", make_png(200));
    fgt_data *data = open_folder(root, 3, FGT_AUGMENT_NONE);
    assert_int_equal(fgt_data_get_info(data)->classes, 3);
    assert_int_equal(fgt_data_get_info(data)->count[FGT_VALID], 3); /* two of 21, one of 3, none of 1 */
    assert_int_equal(fgt_data_get_info(data)->count[FGT_TRAIN], 22);
    fgt_data_close(data);
    remove_all(root);
}

static void wrong_folders_are_refused(void **state) {
    char root[TEMP_PATH_MAX], path[2 * TEMP_PATH_MAX];
    (void)state;
    make_folder(root);
    put(root, "val/c/x.png", make_png(3));
    assert_refused(root, "/val/c: not a class of the training images");
    remove_all(root);
    make_folder(root);
    snprintf(path, sizeof path, "%s/train/empty", root);
    mkdir(path, 0700);
    assert_refused(root, "train/empty: expected images of this class (.jpg, .jpeg or .png), found none");
    snprintf(path, sizeof path, "%s/train/empty", root);
    assert_refused(path, "or with 'train/CLASS/*.jpg' (images in folders)");
    remove_all(root);
}

/* A client of a federated run: numbers of classes are those of the run, so no folder may be missing. */
static void classes_of_a_run_may_be_empty(void **state) {
    char root[TEMP_PATH_MAX], path[2 * TEMP_PATH_MAX];
    fgt_data_options want = {.task = FGT_TASK_IMAGES, .path = root, .run_classes = 3};
    fgt_data *data;
    (void)state;
    make_folder(root);
    assert_data_refused(&want,
                        "expected a folder for each of the 3 classes of the run, empty where there are no images");
    snprintf(path, sizeof path, "%s/train/empty", root);
    mkdir(path, 0700);
    assert_int_equal(fgt_data_open(&want, &data), FGIO_EXIT_OK);
    assert_int_equal(fgt_data_get_info(data)->classes, 3);
    fgt_data_close(data);
    remove_all(root);
}

/* A damaged image fails the run on all workers, in training and in evaluation, with the name of the file. */
static void damaged_image_stops_the_run(void **state) {
    static const char *const files[] = {"train/a/2.JPEG", "val/a/x.jpeg"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char root[TEMP_PATH_MAX];
        stderr_capture c;
        fgt_report report;
        make_folder(root);
        made m = make_jpeg(3, 3, 0);
        m.len /= 2;
        put(root, files[i], m);
        fgt_job job = {.model = "mlp",
                       .data = root,
                       .method = "dense",
                       .schedule = "constant",
                       .rate = 0.01,
                       .epochs = 1,
                       .seed = 3,
                       .workers = 2,
                       .threads = 2,
                       .batch = 5,
                       .keep = 1,
                       .eval = true};
        stderr_capture_begin(&c);
        int status = fgt_job_train(&job, NULL, &report);
        stderr_capture_end(&c);
        assert_int_equal(status, FGIO_EXIT_FAIL);
        if (strstr(c.text, files[i]) == NULL || strstr(c.text, "invalid JPEG: ") == NULL) /* then libjpeg's text */
            fail_msg("the message is '%s'", c.text);
        remove_all(root);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_decoded),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(huge_images_are_refused),
        cmocka_unit_test(regions_are_resized),
        cmocka_unit_test(folders_are_classes),
        cmocka_unit_test(batches_are_the_same_with_any_threads),
        cmocka_unit_test(validation_is_held_out_without_val),
        cmocka_unit_test(wrong_folders_are_refused),
        cmocka_unit_test(classes_of_a_run_may_be_empty),
        cmocka_unit_test(damaged_image_stops_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
