/*
 * fuzz_image.c - any bytes as an image, decoded at two sizes and resized. What is accepted has the size of its header,
 * and every pixel is between 0 and 255.
 */
#include "trainer/data/image_decode.h"
#include "trainer/data/image_resize.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIDE = 5, PIXELS_MAX = 1 << 20 }; /* larger ones are only slow */

static void check(const uint8_t *data, size_t size, uint32_t width, uint32_t height, uint32_t shrink) {
    fgio_reason why = {""};
    fgt_image p;
    float to[3 * SIDE * SIDE];
    if (fgt_image_decode(data, size, shrink, &p, &why) != 0) {
        if (why.text[0] == '\0')
            abort();
        return;
    }
    int small = p.width == (width + shrink - 1) / shrink && p.height == (height + shrink - 1) / shrink;
    if (!small && (p.width != width || p.height != height))
        abort();
    fgt_image_region part = {p.width * 0.1, p.height * 0.25, p.width * 0.9, p.height * 0.5};
    if (fgt_image_resize(&p, &part, SIDE, SIDE, 1, to) == 0)
        for (int i = 0; i < 3 * SIDE * SIDE; i++)
            if (!(to[i] > -0.01f && to[i] < 255.01f))
                abort();
    free(p.rgb);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fgio_reason why = {""};
    uint32_t width = 0, height = 0;
    if (fgt_image_size(data, size, &width, &height, &why) != 0) {
        if (why.text[0] == '\0')
            abort();
        return 0;
    }
    if ((uint64_t)width * height > PIXELS_MAX)
        return 0;
    check(data, size, width, height, 1);
    check(data, size, width, height, 4);
    return 0;
}
