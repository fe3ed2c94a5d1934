/*
 * image_resize.c - bilinear resizing; where an image becomes smaller the filter is a triangle over all source pixels of
 * an output pixel, as in PIL and torchvision, which avoids aliasing. Rows first, then columns; the weights of a
 * direction are computed once.
 */
#include "trainer/data/image_resize.h"

#include <math.h>
#include <stdlib.h>

/** The source pixels of one output pixel, and their weights. */
typedef struct filter_tap_range {
    uint32_t first, count;
    float *weight;
} filter_tap_range;

/** The filter of one direction. */
typedef struct filter {
    filter_tap_range *ranges;
    float *weights;
} filter;

static void filter_free(filter *f) {
    free(f->ranges);
    free(f->weights);
}

static void compute_weights(filter_tap_range *s, double center, double radius, uint32_t limit) {
    double low = floor(center - radius), high = ceil(center + radius), sum = 0;
    s->first = low < 0 ? 0 : (uint32_t)low;
    uint32_t end = high > limit ? limit : (uint32_t)high;
    s->first = s->first < limit ? s->first : limit - 1;
    s->count = end > s->first ? end - s->first : 1;
    for (uint32_t i = 0; i < s->count; i++) {
        double away = fabs(s->first + i + 0.5 - center) / radius;
        s->weight[i] = (float)(away < 1 ? 1 - away : 0);
        sum += (double)s->weight[i];
    }
    if (!(sum > 0)) { /* outside of the last pixel */
        s->weight[0] = 1;
        sum = 1;
    }
    for (uint32_t i = 0; i < s->count; i++)
        s->weight[i] = (float)((double)s->weight[i] / sum);
}

/* Output i of n is centered at begin + (i + 0.5) * size / n of `limit` pixels. */
static int filter_make(filter *f, double begin, double size, uint32_t n, uint32_t limit) {
    double scale = size / n, radius = scale > 1 ? scale : 1;
    size_t max = (size_t)(2 * ceil(radius)) + 2;
    *f = (filter){calloc(n, sizeof *f->ranges), calloc(n * max, sizeof *f->weights)};
    if (f->ranges == NULL || f->weights == NULL)
        return -1;
    for (uint32_t i = 0; i < n; i++) {
        f->ranges[i].weight = f->weights + i * max;
        compute_weights(&f->ranges[i], begin + (i + 0.5) * scale, radius, limit);
    }
    return 0;
}

/* Resizes one row of an image to n pixels of three channels. */
static void resize_row(const unsigned char *from, const filter *across, uint32_t n, float *to) {
    for (uint32_t x = 0; x < n; x++) {
        const filter_tap_range *s = &across->ranges[x];
        const unsigned char *pixel = from + 3 * (size_t)s->first;
        float sum[3] = {0, 0, 0};
        for (uint32_t i = 0; i < s->count; i++, pixel += 3)
            for (int c = 0; c < 3; c++)
                sum[c] += s->weight[i] * (float)pixel[c];
        for (int c = 0; c < 3; c++)
            to[3 * (size_t)x + (size_t)c] = sum[c];
    }
}

/* Resizes columns: rows from `first` on, to planes. */
static void resize_columns(const float *rows, uint32_t first, const filter *down, uint32_t width, uint32_t height,
                           int mirror, float *to) {
    size_t plane = (size_t)width * height, stride = 3 * (size_t)width;
    for (uint32_t y = 0; y < height; y++) {
        const filter_tap_range *s = &down->ranges[y];
        const float *top = rows + (s->first - first) * stride;
        for (uint32_t x = 0; x < width; x++) {
            size_t at = (size_t)y * width + (mirror ? width - 1 - x : x);
            for (size_t c = 0; c < 3; c++) {
                float sum = 0;
                for (uint32_t i = 0; i < s->count; i++)
                    sum += s->weight[i] * top[i * stride + 3 * (size_t)x + c];
                to[c * plane + at] = sum;
            }
        }
    }
}

int fgt_image_resize(const fgt_image *from, const fgt_image_region *region, uint32_t width, uint32_t height, int mirror,
                     float *to) {
    filter across = {0}, down = {0};
    float *rows = NULL;
    int bad = filter_make(&across, region->left, region->width, width, from->width) |
              filter_make(&down, region->top, region->height, height, from->height);
    if (!bad) {
        const filter_tap_range *last = &down.ranges[height - 1];
        uint32_t first = down.ranges[0].first, count = last->first + last->count - first;
        rows = malloc((size_t)count * width * 3 * sizeof *rows);
        bad = rows == NULL;
        for (uint32_t y = 0; y < count && !bad; y++)
            resize_row(from->rgb + 3 * (size_t)from->width * (first + y), &across, width, rows + (size_t)y * width * 3);
        if (!bad)
            resize_columns(rows, first, &down, width, height, mirror, to);
    }
    free(rows);
    filter_free(&across);
    filter_free(&down);
    return bad ? -1 : 0;
}
