/*
 * image_decode.h - decoding JPEG and PNG files. The format is detected by the first bytes, not by the name. Files are
 * not trusted: sizes are checked before memory is allocated, and a truncated or damaged file is an error.
 */
#ifndef FGT_IMAGE_DECODE_H
#define FGT_IMAGE_DECODE_H

#include "io/error.h"

#include <stddef.h>
#include <stdint.h>

enum { FGT_IMAGE_SIDE_MAX = 1 << 15, FGT_IMAGE_PIXELS_MAX = 1 << 26 };

/** An image: rows of red, green, blue. */
typedef struct fgt_image {
    uint32_t width, height;
    unsigned char *rgb; /* free() it */
} fgt_image;

/** Width and height of an image, from its header. Returns 0, or -1 and why. */
int fgt_image_size(const unsigned char *file, size_t len, uint32_t *width, uint32_t *height, fgio_reason *why);

/** Decodes an image. A JPEG is scaled down by `shrink` (1, 2, 4 or 8) while decoding, which is faster; a PNG is not.
 * Returns 0, or -1 and why. */
int fgt_image_decode(const unsigned char *file, size_t len, uint32_t shrink, fgt_image *picture, fgio_reason *why);

#endif
