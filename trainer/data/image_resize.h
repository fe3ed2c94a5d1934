/* image_resize.h - resizing a region of an image to the input size of a model. */
#ifndef FGT_IMAGE_RESIZE_H
#define FGT_IMAGE_RESIZE_H

#include "trainer/data/image_decode.h"

/** A region of an image, in pixels; fractions are allowed. */
typedef struct fgt_image_region {
    double left, top, width, height;
} fgt_image_region;

/** Resizes a region to planes of red, green and blue, values 0 to 255. mirror: flip horizontally. The region must be
 * inside the image. Returns 0, or -1 without memory. */
int fgt_image_resize(const fgt_image *from, const fgt_image_region *region, uint32_t width, uint32_t height, int mirror,
                     float *to);

#endif
