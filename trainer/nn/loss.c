/*
 * loss.c - softmax and cross-entropy, the end of a model.
 *
 * In training the logits turn into their own gradient, (softmax - 1 at the target) / rows asked, in the pass that
 * computes the loss; a row that is not asked gets zeros. Sums are in double, over a fixed number of parts of the rows,
 * so that they do not depend on the number of threads.
 */
#include "trainer/nn/ops.h"
#include "trainer/nn/fastmath.h"

#include <math.h>
#include <string.h>

enum { PARTS = 64 };

/* The place of the largest entry, the first of equals. */
static size_t place_of_largest(const float *x, size_t n) {
    float top = fgt_largest(x, n);
    size_t at = 0;
    while (at + 1 < n && x[at] != top)
        at++;
    return at;
}

/* The sum of exp(x - top); x becomes exp(x - top) where `keep`. */
static double exponentials(float *x, size_t n, float top, bool keep) {
    enum { BLOCK = 1024 }; /* over which a sum in float is good enough */
    float spare[BLOCK];
    double sum = 0.0;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = n - i < BLOCK ? n - i : BLOCK;
        sum += (double)fgt_exp_row(keep ? x + i : spare, x + i, count, top);
    }
    return sum;
}

/* One row: its loss; scale > 0 makes the logits their gradient. */
static void row_loss(float *x, size_t n, int32_t target, float scale, fgt_score *score) {
    if (target < 0 || (size_t)target >= n) {
        if (scale > 0.0f)
            memset(x, 0, n * sizeof *x);
        return;
    }
    size_t best = place_of_largest(x, n);
    float top = x[best], wanted = x[target];
    double sum = exponentials(x, n, top, scale > 0.0f);
    score->loss += log(sum) - (double)(wanted - top);
    score->asked += 1.0;
    score->right += best == (size_t)target ? 1.0 : 0.0;
    if (n == 2) {
        score->sums[0] += best && target ? 1.0 : 0.0;
        score->sums[1] += best ? 1.0 : 0.0;
        score->sums[2] += target ? 1.0 : 0.0;
    }
    if (!(scale > 0.0f))
        return;
    float factor = (float)((double)scale / sum);
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
    x[target] -= scale;
}

static double count_asked(const fgt_value *x, const fgt_batch *batch) {
    size_t classes = x->dims[x->ndim - 1], rows = batch->n * x->each / classes, asked = 0;
    for (size_t i = 0; i < rows; i++)
        asked += batch->targets[i] >= 0 && (size_t)batch->targets[i] < classes;
    return (double)asked;
}

/* A model with one score predicts a number, for every sample. */
double fgt_graph_asked(const fgt_graph *g, const fgt_batch *batch) {
    const fgt_value *x = g->last->in[0];
    return x->each == 1 ? (double)batch->n : count_asked(x, batch);
}

static void loss_forward(fgt_graph *g, fgt_node *node) {
    const fgt_value *x = node->in[0];
    size_t classes = x->dims[x->ndim - 1], rows = g->n * x->each / classes;
    fgt_score *scores = node->own;
    double asked = g->asked > 0 ? g->asked : count_asked(x, g->batch);
    float scale = g->training && asked > 0 ? 1.0f / (float)asked : 0.0f;
    if (g->training && !(asked > 0))
        memset(x->data, 0, rows * classes * sizeof *x->data);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t part = 0; part < PARTS; part++) {
        fgt_score sum = {0};
        for (size_t i = rows * part / PARTS; i < rows * (part + 1) / PARTS; i++)
            row_loss(x->data + i * classes, classes, g->batch->targets[i], scale, &sum);
        scores[part] = sum;
    }
    for (size_t part = 0; part < PARTS; part++) {
        g->score.loss += scores[part].loss;
        g->score.asked += scores[part].asked;
        g->score.right += scores[part].right;
        for (int i = 0; i < 3; i++)
            g->score.sums[i] += scores[part].sums[i];
    }
}

static void loss_backward(fgt_graph *g, fgt_node *node) {
    (void)g;
    bool add = false;
    fgt_grad_of(node, 0, &add); /* it is there already; whoever else uses the logits adds to it */
}

void fgt_op_cross_entropy(fgt_graph *g, fgt_value *x) {
    static const fgt_op op = {.name = "cross_entropy", .forward = loss_forward, .backward = loss_backward};
    fgt_node *node = fgt_node_add(g, &op, x, 0, NULL, PARTS * sizeof(fgt_score));
    node->out->wants_grad = false;
    fgt_value_own_grad(x);
}
