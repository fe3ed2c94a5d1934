/*
 * attention.c - softmax(q k^T / sqrt(d)) v for every sample and head.
 *
 * Rows of the T x T matrix are processed in blocks, and of each block only the columns that its rows may attend to: for
 * causal attention that is little more than half of the work. The probabilities are saved for the backward pass, which
 * costs n x heads x T x T floats and is faster than recomputing them. Dropout needs no mask: the sign bit of a saved
 * probability marks it as dropped. Queries in the padding have output 0 and no gradient.
 */
#include "trainer/nn/ops.h"

#include "trainer/base/counted_alloc.h"
#include "trainer/nn/dropout_mask.h"
#include "trainer/nn/fastmath.h"
#include "trainer/nn/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 64 }; /* rows */

typedef struct attention {
    size_t T, C, heads, d;
    size_t stride; /* of rows of q, k and v */
    bool packed, causal;
    float rate;
    fgt_value *probs; /* heads x T x T: probabilities */
    float *cache;     /* token by token: keys and values of all tokens, past_most x C each; otherwise NULL */
} attention;

/* Pointers of one sample and head. */
typedef struct head_task {
    const attention *a;
    const float *q, *k, *v;
    float *dq, *dk, *dv; /* NULL: not wanted */
    bool add_q, add_k, add_v;
    float *y;        /* forward: output, backward: its gradient */
    float *probs;    /* T x T */
    float *work[2];  /* BLOCK x T each */
    size_t length;   /* tokens before the padding */
    uint64_t number; /* for dropout */
    bool has_dropout;
    fgt_dropout_mask mask;
} head_task;

/* Rows first .. first + rows - 1 and the columns they attend to. */
typedef struct block {
    size_t first, rows, cols;
} block;

static block block_at(const head_task *t, size_t first) {
    size_t rows = t->length - first < BLOCK ? t->length - first : BLOCK;
    return (block){first, rows, t->a->causal ? first + rows : t->length};
}

static fgt_matrix rows_at(const float *data, size_t stride, size_t first, bool transposed) {
    return (fgt_matrix){data + first * stride, stride, transposed};
}

/* First column of a head in sample i of input j; base: data or gradients. */
static float *head_columns(const attention *a, float *base, size_t i, size_t h, int j) {
    return base ? base + i * a->T * a->stride + (a->packed ? (size_t)j * a->C : 0) + h * a->d : NULL;
}

/* ---- forward ---- */

static void softmax(float *x, size_t visible, size_t cols) {
    float total = fgt_exp_row(x, x, visible, fgt_max_row(x, visible)), factor = 1.0f / total;
    for (size_t j = 0; j < visible; j++)
        x[j] *= factor;
    for (size_t j = visible; j < cols; j++)
        x[j] = 0.0f;
}

static void negate_dropped(const head_task *t, size_t row, float *x, size_t cols) {
    uint64_t four = (t->number * t->a->T + row) * ((t->a->T + 3) / 4);
    for (size_t j = 0; j < cols; j += 4) {
        uint64_t word = fgt_dropout_mask_word(&t->mask, four + j / 4);
        for (size_t i = 0; i < 4 && j + i < cols; i++)
            x[j + i] = fgt_dropout_is_dropped(&t->mask, word, i) ? -x[j + i] : x[j + i];
    }
}

/* The probabilities of a block as they are used: unchanged, or with dropout applied. */
static const float *probs_after_dropout(const head_task *t, block b) {
    const size_t T = t->a->T;
    const float *x = t->probs + b.first * T;
    if (!t->has_dropout)
        return x;
    for (size_t i = 0; i < b.rows; i++)
        for (size_t j = 0; j < b.cols; j++)
            t->work[0][i * T + j] = x[i * T + j] > 0.0f ? x[i * T + j] * t->mask.scale : 0.0f;
    return t->work[0];
}

static void forward_task(const head_task *t) {
    const attention *a = t->a;
    const size_t T = a->T, d = a->d;
    for (size_t first = 0; first < t->length; first += BLOCK) {
        block b = block_at(t, first);
        float *x = t->probs + first * T;
        fgt_gemm_single(b.rows, b.cols, d, 1.0f / sqrtf((float)d), rows_at(t->q, a->stride, first, false),
                        rows_at(t->k, a->stride, 0, true), 0.0f, x, T);
        for (size_t i = 0; i < b.rows; i++) {
            softmax(x + i * T, a->causal ? first + i + 1 : b.cols, b.cols);
            if (t->has_dropout)
                negate_dropped(t, first + i, x + i * T, b.cols);
        }
        fgt_gemm_single(b.rows, d, b.cols, 1.0f, (fgt_matrix){probs_after_dropout(t, b), T, false},
                        rows_at(t->v, a->stride, 0, false), 0.0f, t->y + first * a->C, a->C);
    }
    for (size_t i = t->length; i < T; i++)
        memset(t->y + i * a->C, 0, d * sizeof(float));
}

/* ---- backward ---- */

/* x: gradient with respect to the probabilities; overwritten by that with respect to the inputs of softmax. Negative
 * probs were dropped. */
static void softmax_backward(const float *probs, float *x, size_t cols, float scale) {
    vec sum = {0};
    size_t j = 0;
    for (; j + LANES <= cols; j += LANES) {
        vec p = load(probs + j), dx = load(x + j) * scale;
        sum += select_lanes((int_vec)(p > 0.0f), p * dx, splat(0.0f));
    }
    float total = lane_sum(sum);
    for (; j < cols; j++)
        total += probs[j] > 0.0f ? probs[j] * (x[j] * scale) : 0.0f;
    for (j = 0; j < cols; j++)
        x[j] = fabsf(probs[j]) * ((probs[j] > 0.0f ? x[j] * scale : 0.0f) - total);
}

/* Blocks are processed from the last, which attends to all columns, to the first: the last one overwrites dk and dv. */
static void backward_block(const head_task *t, block b, bool last) {
    const attention *a = t->a;
    const size_t T = a->T, d = a->d, s = a->stride;
    const float scale = 1.0f / sqrtf((float)d);
    const fgt_matrix dy = rows_at(t->y, a->C, b.first, false);
    float *x = t->work[1];
    if (t->dv)
        fgt_gemm_single(b.cols, d, b.rows, 1.0f, (fgt_matrix){probs_after_dropout(t, b), T, true}, dy,
                        last && !t->add_v ? 0.0f : 1.0f, t->dv, s);
    fgt_gemm_single(b.rows, b.cols, d, 1.0f, dy, rows_at(t->v, s, 0, true), 0.0f, x, T);
    for (size_t i = 0; i < b.rows; i++)
        softmax_backward(t->probs + (b.first + i) * T, x + i * T, b.cols, t->has_dropout ? t->mask.scale : 1.0f);
    if (t->dq)
        fgt_gemm_single(b.rows, d, b.cols, scale, (fgt_matrix){x, T, false}, rows_at(t->k, s, 0, false),
                        t->add_q ? 1.0f : 0.0f, t->dq + b.first * s, s);
    if (t->dk)
        fgt_gemm_single(b.cols, d, b.rows, scale, (fgt_matrix){x, T, true}, rows_at(t->q, s, b.first, false),
                        last && !t->add_k ? 0.0f : 1.0f, t->dk, s);
}

static void clear_padding(const head_task *t, float *grad, bool add) {
    for (size_t i = t->length; grad && !add && i < t->a->T; i++)
        memset(grad + i * t->a->stride, 0, t->a->d * sizeof *grad);
}

static void backward_task(const head_task *t) {
    clear_padding(t, t->dq, t->add_q);
    clear_padding(t, t->dk, t->add_k);
    clear_padding(t, t->dv, t->add_v);
    const size_t blocks = (t->length + BLOCK - 1) / BLOCK;
    for (size_t i = blocks; i-- > 0;)
        backward_block(t, block_at(t, i * BLOCK), i + 1 == blocks);
}

/* ---- both ---- */

static size_t length_of(const fgt_graph *g, const attention *a, size_t i) {
    if (a->causal || !g->batch->lengths)
        return a->T;
    size_t length = g->batch->lengths[i] > 0 ? (size_t)g->batch->lengths[i] : 0;
    return length < a->T ? length : a->T;
}

static head_task task_at(fgt_graph *g, const fgt_node *node, size_t number) {
    const attention *a = node->state;
    const size_t i = number / a->heads, h = number % a->heads;
    head_task t = {.a = a, .number = g->offset * a->heads + number, .length = length_of(g, a, i)};
    fgt_value *const *in = node->in;
    t.q = head_columns(a, in[0]->data, i, h, 0);
    t.k = head_columns(a, in[a->packed ? 0 : 1]->data, i, h, 1);
    t.v = head_columns(a, in[a->packed ? 0 : 2]->data, i, h, 2);
    t.probs = a->probs->data + number * a->T * a->T;
    t.has_dropout = g->training && a->rate > 0.0f;
    t.mask = fgt_dropout_mask_init(g, node, a->rate);
    return t;
}

static void set_work_space(fgt_graph *g, head_task *t, size_t part) {
    t->work[0] = fgt_work(g, (int)part);
    t->work[1] = t->work[0] + BLOCK * t->a->T;
}

/* One token attends to itself and to those before it, whose keys and values are in the cache. */
static void cached_forward(fgt_graph *g, fgt_node *node) {
    const attention *a = node->state;
    const size_t C = a->C, d = a->d, seen = g->past + 1;
    const float *q = node->in[0]->data;
    float *keys = a->cache, *values = a->cache + (size_t)g->past_most * C;
    memcpy(keys + g->past * C, q + C, C * sizeof *keys);
    memcpy(values + g->past * C, q + 2 * C, C * sizeof *values);
    float *x = fgt_work_shared(g);
    for (size_t h = 0; h < a->heads; h++) {
        fgt_gemv(1, seen, d, q + h * d, (fgt_matrix){keys + h * d, C, true}, 0.0f, x);
        for (size_t i = 0; i < seen; i++)
            x[i] *= 1.0f / sqrtf((float)d);
        softmax(x, seen, seen);
        fgt_gemv(1, d, seen, x, (fgt_matrix){values + h * d, C, false}, 0.0f, node->out->data + h * d);
    }
}

static void attention_forward(fgt_graph *g, fgt_node *node) {
    const attention *a = node->state;
    if (a->cache) {
        cached_forward(g, node);
        return;
    }
    const size_t tasks = g->n * a->heads, parts = (size_t)g->threads;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t part = 0; part < parts; part++)
        for (size_t i = tasks * part / parts; i < tasks * (part + 1) / parts; i++) {
            head_task t = task_at(g, node, i);
            set_work_space(g, &t, part);
            t.y = node->out->data + i / a->heads * a->T * a->C + i % a->heads * a->d;
            forward_task(&t);
        }
}

static void attention_backward(fgt_graph *g, fgt_node *node) {
    const attention *a = node->state;
    const size_t tasks = g->n * a->heads, parts = (size_t)g->threads;
    bool add[3] = {false, false, false};
    float *grad[3];
    for (int j = 0; j < 3; j++)
        grad[j] = a->packed && j > 0 ? grad[0] : fgt_input_grad(node, j, &add[j]);
    if (a->packed)
        add[1] = add[2] = add[0];
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t part = 0; part < parts; part++)
        for (size_t i = tasks * part / parts; i < tasks * (part + 1) / parts; i++) {
            const size_t sample = i / a->heads, h = i % a->heads;
            head_task t = task_at(g, node, i);
            set_work_space(g, &t, part);
            t.y = node->out->grad + sample * a->T * a->C + h * a->d;
            t.dq = head_columns(a, grad[0], sample, h, 0);
            t.dk = head_columns(a, grad[1], sample, h, 1);
            t.dv = head_columns(a, grad[2], sample, h, 2);
            t.add_q = add[0];
            t.add_k = add[1];
            t.add_v = add[2];
            backward_task(&t);
        }
}

static void attention_destroy(fgt_node *node) {
    attention *a = node->state;
    fgt_counted_free(a->cache);
    free(a);
}

static const fgt_op attention_op = {
    .name = "attention", .forward = attention_forward, .backward = attention_backward, .destroy = attention_destroy};

fgt_value *fgt_op_attention(fgt_graph *g, fgt_value *q, fgt_value *k, fgt_value *v, uint32_t heads, bool causal,
                            float dropout) {
    const bool packed = !k;
    uint32_t dims[2] = {q->dims[0], packed ? q->dims[1] / 3 : q->dims[1]};
    fgt_node *node = fgt_node_add(g, &attention_op, q, 2, dims, sizeof(attention));
    attention *a = node->state;
    if (g->build_failed)
        return node->out;
    if (!packed) {
        fgt_node_input(node, 1, k);
        fgt_node_input(node, 2, v);
    }
    *a = (attention){dims[0], dims[1], heads, dims[1] / heads, q->dims[1], packed, causal, dropout, NULL, NULL};
    if (g->past_most) { /* of GPT-2: one token, q, k and v in one value */
        a->cache = fgt_counted_alloc(FGT_USE_ACTIVATIONS, 2 * (size_t)g->past_most * a->C * sizeof *a->cache);
        fgt_work_shared_reserve(g, g->past_most);
        g->build_failed |= !a->cache || !packed || !causal || a->T != 1;
    }
    size_t each = 0;
    bool fits = !__builtin_mul_overflow(heads * a->T, a->T, &each);
    a->probs = fits ? fgt_node_saved_value(g, node, each) : NULL;
    g->build_failed |= !a->probs;
    fgt_work_reserve(g, 2 * BLOCK * a->T);
    return node->out;
}
