/* fake_quantize.c - rounding of rows, of weights and of activations. One pass for the scale, one to round. */
#include "trainer/nn/fake_quantize.h"

#include <float.h>
#include <math.h>

/* ReLU knows by its result where gradients pass, so a positive result must not become 0. This number is lost in sums,
 * and its products are not subnormal, which would be slow. */
#define POSITIVE_ZERO 1e-30f

/* least: a positive number that rounds to zero becomes this one, or stays where it is smaller. */
static inline void round_row(const float *from, float *to, size_t n, size_t stride, uint32_t bits, float least) {
    const float levels = (float)((1u << (bits - 1)) - 1);
    float largest = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        float x = fabsf(from[i * stride]);
        largest = x > largest ? x : largest;
        finite &= x <= FLT_MAX;
    }
    float scale = largest / levels;
    bool rounds = finite && scale > 0;
    for (size_t i = 0; i < n; i++) {
        float x = from[i * stride], y = rounds ? fminf(fmaxf(rintf(x / scale), -levels), levels) * scale : x;
        to[i * stride] = x > 0 && y == 0 ? fminf(x, least) : y;
    }
}

void fgt_fake_quantize(const float *from, float *to, size_t n, size_t stride, uint32_t bits) {
    round_row(from, to, n, stride, bits, 0);
}

void fgt_fake_quantize_weights(const fgt_param *p, const float *from, uint32_t bits) {
    bool columns = p->tensor.input_first; /* a column has the weights of an output */
    for (size_t o = 0; o < (columns ? p->cols : p->rows); o++) {
        size_t at = columns ? o : o * p->cols;
        fgt_fake_quantize(from + at, p->w + at, columns ? p->rows : p->cols, columns ? p->cols : 1, bits);
    }
}

void fgt_graph_quantize_activations(fgt_graph *g, uint32_t bits) {
    for (fgt_node *node = g->first; node; node = node->next)
        if (node->op->is_product && !node->in[0]->external)
            node->in[0]->bits = bits;
}

void fgt_fake_quantize_value(const fgt_graph *g, const fgt_value *v) {
    if (!v->bits)
        return;
    size_t rows = v->ndim == 2 ? v->dims[0] : 1, n = v->sample_size / rows;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < g->n * rows; i++)
        round_row(v->data + i * n, v->data + i * n, n, 1, v->bits, POSITIVE_ZERO);
}
