/*
 * image_decode.c - JPEG by libjpeg-turbo, PNG by libpng's simplified interface. libjpeg reports errors by longjmp, so
 * all that changes while it runs is in one struct behind a pointer. Its warnings about missing or unreadable data count
 * as errors, since training would use gray pixels otherwise; superfluous bytes do not. CMYK, of which ImageNet has
 * some, is converted to RGB without a color profile.
 */
#include "trainer/data/image_decode.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h> /* before jpeglib.h */
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

enum { SCANS_MAX = 100 }; /* a small progressive file may have thousands, each over the whole image */

static int check_size(uint64_t width, uint64_t height, fgio_reason *why) {
    if (width >= 1 && height >= 1 && width <= FGT_IMAGE_SIDE_MAX && height <= FGT_IMAGE_SIDE_MAX &&
        width * height <= FGT_IMAGE_PIXELS_MAX)
        return 0;
    return fgio_fail(why, "an image of %llu x %llu pixels: expected sides of 1 to %d and at most %d pixels",
                     (unsigned long long)width, (unsigned long long)height, FGT_IMAGE_SIDE_MAX, FGT_IMAGE_PIXELS_MAX);
}

/* ---- JPEG ---- */

typedef struct jpeg_reader {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr error;
    struct jpeg_progress_mgr progress;
    jmp_buf error_return;
    fgio_reason *why;
    unsigned char *line; /* CMYK */
    fgt_image picture;
} jpeg_reader;

static void jpeg_failed(j_common_ptr info) {
    jpeg_reader *r = (jpeg_reader *)info->client_data;
    char text[JMSG_LENGTH_MAX];
    info->err->format_message(info, text);
    fgio_fail(r->why, "invalid JPEG: %s", text);
    longjmp(r->error_return, 1);
}

static void jpeg_warned(j_common_ptr info, int level) {
    int code = info->err->msg_code;
    int harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_JFIF_MAJOR || code == JWRN_ADOBE_XFORM ||
                   code == JWRN_TOO_MUCH_DATA; /* not in the image data */
    if (level < 0 && !harmless)
        jpeg_failed(info);
}

static void jpeg_progressed(j_common_ptr info) {
    jpeg_reader *r = (jpeg_reader *)info->client_data;
    if (((j_decompress_ptr)info)->input_scan_number <= SCANS_MAX)
        return;
    fgio_fail(r->why, "invalid JPEG: it has more than %d scans", SCANS_MAX);
    longjmp(r->error_return, 1);
}

static void jpeg_begin(jpeg_reader *r, const unsigned char *file, size_t len) {
    r->info.err = jpeg_std_error(&r->error);
    r->error.error_exit = jpeg_failed;
    r->error.emit_message = jpeg_warned;
    r->progress.progress_monitor = jpeg_progressed;
    r->info.client_data = r;
    jpeg_create_decompress(&r->info);
    r->info.progress = &r->progress;
    jpeg_mem_src(&r->info, file, (unsigned long)len);
    jpeg_read_header(&r->info, TRUE);
}

static int jpeg_size(jpeg_reader *r, const unsigned char *file, size_t len) {
    if (setjmp(r->error_return) != 0)
        return -1;
    jpeg_begin(r, file, len);
    return check_size(r->info.image_width, r->info.image_height, r->why);
}

/* Adobe's inverted CMYK, which is the usual one in files. */
static void cmyk_to_rgb(const unsigned char *from, size_t n, unsigned char *to) {
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < 3; c++)
            to[3 * i + c] = (unsigned char)(from[4 * i + c] * from[4 * i + 3] / 255);
}

static void read_line(jpeg_reader *r, unsigned char *to) {
    unsigned char *line = r->line != NULL ? r->line : to;
    jpeg_read_scanlines(&r->info, &line, 1);
    if (r->line != NULL)
        cmyk_to_rgb(r->line, r->picture.width, to);
}

static int jpeg_decode(jpeg_reader *r, const unsigned char *file, size_t len, uint32_t shrink) {
    if (setjmp(r->error_return) != 0)
        return -1;
    jpeg_begin(r, file, len);
    if (check_size(r->info.image_width, r->info.image_height, r->why) != 0)
        return -1;
    int cmyk = r->info.jpeg_color_space == JCS_CMYK || r->info.jpeg_color_space == JCS_YCCK;
    r->info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    r->info.scale_num = 1;
    r->info.scale_denom = shrink;
    jpeg_start_decompress(&r->info);
    size_t width = r->info.output_width, height = r->info.output_height;
    r->picture = (fgt_image){(uint32_t)width, (uint32_t)height, malloc(3 * width * height)};
    r->line = cmyk ? malloc(4 * width) : NULL;
    if (r->picture.rgb == NULL || (cmyk && r->line == NULL))
        return fgio_fail(r->why, "not enough memory for %zu x %zu pixels", width, height);
    while (r->info.output_scanline < r->info.output_height)
        read_line(r, r->picture.rgb + 3 * width * r->info.output_scanline);
    jpeg_finish_decompress(&r->info);
    return 0;
}

/* ---- PNG ---- */

static int png_begin(const unsigned char *file, size_t len, png_image *image, fgio_reason *why) {
    *image = (png_image){.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_memory(image, file, len))
        return fgio_fail(why, "invalid PNG: %s", image->message);
    if (check_size(image->width, image->height, why) == 0)
        return 0;
    png_image_free(image);
    return -1;
}

static int png_decode(const unsigned char *file, size_t len, fgt_image *picture, fgio_reason *why) {
    png_image image;
    if (png_begin(file, len, &image, why) != 0)
        return -1;
    image.format = PNG_FORMAT_RGB;
    unsigned char *rgb = calloc(PNG_IMAGE_SIZE(image), 1); /* transparent pixels are black */
    if (rgb == NULL) {
        png_image_free(&image);
        return fgio_fail(why, "not enough memory for %u x %u pixels", image.width, image.height);
    }
    if (!png_image_finish_read(&image, NULL, rgb, 0, NULL)) {
        free(rgb);
        return fgio_fail(why, "invalid PNG: %s", image.message);
    }
    *picture = (fgt_image){image.width, image.height, rgb};
    return 0;
}

/* ---- either ---- */

typedef enum format { UNKNOWN, JPEG, PNG } format;

static format format_of(const unsigned char *file, size_t len, fgio_reason *why) {
    if (len >= 3 && memcmp(file, "\xFF\xD8\xFF", 3) == 0)
        return JPEG;
    if (len >= 8 && memcmp(file, "\x89PNG\r\n\x1A\n", 8) == 0)
        return PNG;
    fgio_fail(why, "byte 0: expected the start of a JPEG or PNG file");
    return UNKNOWN;
}

int fgt_image_size(const unsigned char *file, size_t len, uint32_t *width, uint32_t *height, fgio_reason *why) {
    png_image image;
    switch (format_of(file, len, why)) {
    case PNG:
        if (png_begin(file, len, &image, why) != 0)
            return -1;
        *width = image.width;
        *height = image.height;
        png_image_free(&image);
        return 0;
    case JPEG: {
        jpeg_reader r = {.why = why};
        int bad = jpeg_size(&r, file, len);
        *width = r.info.image_width;
        *height = r.info.image_height;
        jpeg_destroy_decompress(&r.info);
        return bad;
    }
    default: return -1;
    }
}

int fgt_image_decode(const unsigned char *file, size_t len, uint32_t shrink, fgt_image *picture, fgio_reason *why) {
    jpeg_reader r = {.why = why};
    switch (format_of(file, len, why)) {
    case PNG: return png_decode(file, len, picture, why);
    case JPEG: break;
    default: return -1;
    }
    int bad = jpeg_decode(&r, file, len, shrink);
    jpeg_destroy_decompress(&r.info);
    free(r.line);
    if (bad)
        free(r.picture.rgb);
    else
        *picture = r.picture;
    return bad;
}
