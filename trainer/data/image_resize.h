/* image_resize.h - a part of an image to the size that a model wants. */
#ifndef FGT_IMAGE_RESIZE_H
#define FGT_IMAGE_RESIZE_H

#include "trainer/data/image_decode.h"

/** A part of an image, in its pixels; ends need not be whole. */
typedef struct fgt_region {
    double left, top, width, height;
} fgt_region;

/**
 * The part as planes of red, green and blue of so many pixels, values 0 to 255. mirror: left and right exchanged. The
 * part must lie in the image. Returns 0, or -1 without memory.
 */
int fgt_resize(const fgt_picture *from, const fgt_region *region, uint32_t width, uint32_t height, int mirror,
               float *to);

#endif
