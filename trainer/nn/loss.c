/*
 * loss.c - softmax and cross-entropy, the end of a model.
 *
 * In training the logits are overwritten by their gradient, (softmax - 1 at the target) / count, in the pass that
 * computes the loss; a row without a target gets zeros. Sums are in double over a fixed number of partial sums, so they
 * do not depend on the number of threads.
 */
#include "trainer/nn/ops.h"
#include "trainer/nn/kernels.h"

#include <math.h>
#include <string.h>

enum { PARTIAL_SUMS = 64 };

/* Whether entry i is the largest, the first of equals. */
static bool is_largest(const float *x, size_t i, float max) {
    for (size_t j = 0; x[i] == max && j < i; j++)
        if (x[j] == max)
            return false;
    return x[i] == max;
}

/* The sum of exp(x - max); x is overwritten by exp(x - max) where `keep`. */
static double sum_exp(const fgt_row_kernel *k, float *x, size_t n, float max, bool keep) {
    enum { BLOCK = 1024 }; /* over which a float sum is accurate enough */
    float scratch[BLOCK];
    double sum = 0.0;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t count = n - i < BLOCK ? n - i : BLOCK;
        sum += (double)k->exp_sum(keep ? x + i : scratch, x + i, count, max);
    }
    return sum;
}

/* The loss of one row; scale > 0: the logits are overwritten by their gradient. */
static void row_loss(const fgt_row_kernel *k, float *x, size_t n, int32_t target, float scale, fgt_score *score) {
    if (target < 0 || (size_t)target >= n) {
        if (scale > 0.0f)
            memset(x, 0, n * sizeof *x);
        return;
    }
    float max = k->max(x, n), target_logit = x[target];
    bool correct = is_largest(x, (size_t)target, max);
    double sum = sum_exp(k, x, n, max, scale > 0.0f);
    score->loss += log(sum) - (double)(target_logit - max);
    score->count += 1.0;
    score->correct += correct ? 1.0 : 0.0;
    if (n == 2) {
        score->sums[0] += correct && target ? 1.0 : 0.0;
        score->sums[1] += correct == (target == 1) ? 1.0 : 0.0;
        score->sums[2] += target ? 1.0 : 0.0;
    }
    if (!(scale > 0.0f))
        return;
    float factor = (float)((double)scale / sum);
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
    x[target] -= scale;
}

static double count_targets(const fgt_value *x, const fgt_batch *batch) {
    size_t classes = x->dims[x->ndim - 1], rows = batch->n * x->sample_size / classes, count = 0;
    for (size_t i = 0; i < rows; i++)
        count += batch->targets[i] >= 0 && (size_t)batch->targets[i] < classes;
    return (double)count;
}

/* A model with one score predicts a number, for every sample. */
double fgt_graph_target_count(const fgt_graph *g, const fgt_batch *batch) {
    const fgt_value *x = g->last->in[0];
    return x->sample_size == 1 ? (double)batch->n : count_targets(x, batch);
}

void fgt_score_add(fgt_score *sum, const fgt_score *s) {
    sum->loss += s->loss;
    sum->count += s->count;
    sum->correct += s->correct;
    for (int i = 0; i < 5; i++)
        sum->sums[i] += s->sums[i];
}

static void loss_forward(fgt_graph *g, fgt_node *node) {
    const fgt_value *x = node->in[0];
    size_t classes = x->dims[x->ndim - 1], rows = g->n * x->sample_size / classes;
    fgt_score *scores = node->state;
    const fgt_row_kernel *k = &fgt_kernels_chosen()->row;
    double count = g->target_count > 0 ? g->target_count : count_targets(x, g->batch);
    float scale = g->training && count > 0 ? 1.0f / (float)count : 0.0f;
    if (g->training && !(count > 0))
        memset(x->data, 0, rows * classes * sizeof *x->data);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t part = 0; part < PARTIAL_SUMS; part++) {
        fgt_score sum = {0};
        for (size_t i = rows * part / PARTIAL_SUMS; i < rows * (part + 1) / PARTIAL_SUMS; i++)
            row_loss(k, x->data + i * classes, classes, g->batch->targets[i], scale, &sum);
        scores[part] = sum;
    }
    for (size_t part = 0; part < PARTIAL_SUMS; part++) {
        g->score.loss += scores[part].loss;
        g->score.count += scores[part].count;
        g->score.correct += scores[part].correct;
        for (int i = 0; i < 3; i++)
            g->score.sums[i] += scores[part].sums[i];
    }
}

static void loss_backward(fgt_graph *g, fgt_node *node) {
    (void)g;
    bool add = false;
    fgt_input_grad(node, 0, &add); /* already computed by forward; other users of the logits add to it */
}

void fgt_op_cross_entropy(fgt_graph *g, fgt_value *x) {
    static const fgt_op op = {.name = "cross_entropy", .forward = loss_forward, .backward = loss_backward};
    fgt_node *node = fgt_node_add(g, &op, x, 0, NULL, PARTIAL_SUMS * sizeof(fgt_score));
    node->out->wants_grad = false;
    fgt_value_grad_in_place(x);
}
