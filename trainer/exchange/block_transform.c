/* block_transform.c - two products of small matrices for each block: 2 s operations per element for blocks of s * s. */
#include "trainer/exchange/block_transform.h"

#include "io/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SIDE_MAX 64u

struct fgt_transform {
    uint32_t side;     /* s */
    float *matrix;     /* T, then its transpose */
    frug_range *range; /* tensors, up to their last complete block */
    size_t ranges;
};

static uint64_t elements_of(const frug_tensor *tensor) {
    uint64_t count = 1;
    for (uint32_t d = 0; d < tensor->ndim; d++)
        count *= tensor->shape[d];
    return count;
}

static double cosine_entry(uint32_t side, uint32_t row, uint32_t column) {
    const double pi = 3.14159265358979323846;
    double scale = sqrt((row == 0 ? 1.0 : 2.0) / side);
    return scale * cos(pi / side * (column + 0.5) * row);
}

/* The sign is the parity of the common bits. */
static double hadamard_entry(uint32_t side, uint32_t row, uint32_t column) {
    uint32_t bits = row & column;
    for (uint32_t shift = 16; shift > 0; shift /= 2)
        bits ^= bits >> shift;
    return (bits & 1 ? -1.0 : 1.0) / sqrt(side);
}

static void fill_matrix(fgt_transform *t, double (*entry)(uint32_t side, uint32_t row, uint32_t column)) {
    const uint32_t s = t->side;
    for (uint32_t i = 0; i < s; i++)
        for (uint32_t j = 0; j < s; j++)
            t->matrix[i * s + j] = t->matrix[s * s + j * s + i] = (float)entry(s, i, j);
}

static void add_tensors(fgt_transform *t, const frug_layout *layout) {
    const uint64_t block = (uint64_t)t->side * t->side;
    for (t->ranges = 0; t->ranges < frug_layout_count(layout); t->ranges++) {
        frug_tensor tensor = FRUG_TENSOR_INIT;
        frug_layout_get(layout, t->ranges, &tensor);
        t->range[t->ranges] = (frug_range){tensor.offset, elements_of(&tensor) / block * block};
    }
}

int fgt_transform_create(const frug_config *config, const frug_layout *layout, fgt_transform **transform) {
    const char *kind = frug_config_get(config, "transform");
    if (strcmp(kind, "off") == 0)
        return FGIO_EXIT_OK;
    fgt_transform *t = calloc(1, sizeof *t);
    uint32_t side = (uint32_t)sqrt(strtod(frug_config_get(config, "block"), NULL));
    if (t) {
        t->side = side;
        t->matrix = malloc(2 * (size_t)side * side * sizeof *t->matrix);
        t->range = calloc(frug_layout_count(layout) + 1, sizeof *t->range);
    }
    if (!t || !t->matrix || !t->range) {
        fgt_transform_destroy(t);
        return fgio_error("not enough memory");
    }
    fill_matrix(t, strcmp(kind, "cosine") == 0 ? cosine_entry : hadamard_entry);
    add_tensors(t, layout);
    *transform = t;
    return FGIO_EXIT_OK;
}

void fgt_transform_destroy(fgt_transform *t) {
    if (!t)
        return;
    free(t->matrix);
    free(t->range);
    free(t);
}

/* c = a b, all s x s */
static void multiply(uint32_t s, const float *restrict a, const float *restrict b, float *restrict c) {
    memset(c, 0, (size_t)s * s * sizeof *c);
    for (uint32_t i = 0; i < s; i++)
        for (uint32_t k = 0; k < s; k++)
            for (uint32_t j = 0; j < s; j++)
                c[i * s + j] += a[i * s + k] * b[k * s + j];
}

/* left x right of every complete block in a range */
static void apply(const fgt_transform *t, frug_range range, float *values, const float *left, const float *right) {
    const uint64_t block = (uint64_t)t->side * t->side, end = range.begin + range.count;
    float half[SIDE_MAX * SIDE_MAX];
    for (size_t i = 0; i < t->ranges; i++) {
        uint64_t from = t->range[i].begin, to = from + t->range[i].count;
        from = from > range.begin ? from : range.begin;
        to = to < end ? to : end;
        for (; from + block <= to; from += block) {
            float *x = values + (from - range.begin);
            multiply(t->side, left, x, half);
            multiply(t->side, half, right, x);
        }
    }
}

void fgt_transform_forward(const fgt_transform *t, frug_range range, float *values) {
    if (t)
        apply(t, range, values, t->matrix, t->matrix + t->side * t->side);
}

void fgt_transform_inverse(const fgt_transform *t, frug_range range, float *values) {
    if (t)
        apply(t, range, values, t->matrix + t->side * t->side, t->matrix);
}
