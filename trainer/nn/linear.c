/*
 * linear.c - y = x W' + b over rows, by BLAS. A row is a token of (T, C), or a whole sample of any other shape.
 *
 * The gradient of the weights is computed tile by tile, directly into the memory of the sink.
 */
#include "trainer/nn/gemm.h"
#include "trainer/nn/input_cutoff.h"
#include "trainer/nn/ops.h"
#include "trainer/nn/packed_weights.h"
#include "trainer/nn/parallel_ranges.h"
#include "trainer/nn/gradient_tiles.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct linear {
    size_t in, out, rows; /* rows of one sample */
    bool input_first;
} linear;

/* The weight as (in, out), or as (out, in) where `transposed`. */
static fgt_matrix weight_of(const fgt_node *node, bool transposed) {
    const linear *l = node->state;
    return (fgt_matrix){node->param[0]->w, node->param[0]->cols, l->input_first == transposed};
}

static void packed_forward(fgt_graph *g, fgt_node *node) {
    const linear *l = node->state;
    const size_t rows = g->n * l->rows;
    const float *bias = node->param[1] ? node->param[1]->w : NULL;
    float *y = node->out->data;
    fgt_packed_multiply(g, node->param[0]->packed, node->in[0]->data, rows, l->in, y, l->out);
    for (size_t i = 0; i < (bias ? rows : 0); i++)
        for (size_t c = 0; c < l->out; c++)
            y[i * l->out + c] += bias[c];
}

static void add_input_squares(const fgt_graph *g, const fgt_node *node) {
    const linear *l = node->state;
    const float *x = node->in[0]->data;
    for (size_t i = 0; i < g->n * l->rows; i++)
        for (size_t c = 0; c < l->in; c++)
            node->param[0]->input_squares[c] += (double)x[i * l->in + c] * (double)x[i * l->in + c];
}

bool fgt_linear_measure_inputs(fgt_graph *g) {
    for (fgt_param *p = g->params; p; p = p->next)
        if (p->packable && p->tensor.role != FRUG_ROLE_EMBEDDING &&
            (p->input_squares = calloc(p->tensor.input_first ? p->rows : p->cols, sizeof(double))) == NULL)
            return false;
    return true;
}

/* Some rows at a time, without the inputs below the cutoff; token by token their columns are skipped. */
static void cut_forward(fgt_graph *g, fgt_node *node) {
    const linear *l = node->state;
    const fgt_param *p = node->param[0];
    const size_t rows = g->n * l->rows, most = p->packed ? 1 : FGT_UNPACKED_OUTPUTS;
    float *cut = fgt_work_shared(g);
    for (size_t i = 0; i < rows; i += most) {
        size_t some = rows - i < most ? rows - i : most;
        float *y = node->out->data + i * l->out;
        fgt_cutoff_apply(p->input_cutoff, node->in[0]->data + i * l->in, some * l->in, cut);
        if (p->packed)
            frug_sparse_multiply(p->packed, g->threads, cut, 1, l->in, y, l->out, cut + l->in);
        else
            fgt_gemm(g->threads, some, l->out, l->in, 1.0f, (fgt_matrix){cut, l->in, false}, weight_of(node, false),
                     0.0f, y, l->out);
        for (size_t c = 0; node->param[1] && c < some * l->out; c++)
            y[c] += node->param[1]->w[c % l->out];
    }
}

/* One token. */
static void token_forward(fgt_graph *g, fgt_node *node) {
    const linear *l = node->state;
    const float *x = node->in[0]->data, *bias = node->param[1] ? node->param[1]->w : NULL;
    float *y = node->out->data;
    if (bias)
        memcpy(y, bias, l->out * sizeof *y);
    else
        memset(y, 0, l->out * sizeof *y);
    if (l->input_first)
        fgt_gemv_rows(g->threads, l->out, l->in, x, weight_of(node, false), 1.0f, y, fgt_work_shared(g));
    else
        fgt_gemv(g->threads, l->out, l->in, x, weight_of(node, false), 1.0f, y);
}

static void linear_forward(fgt_graph *g, fgt_node *node) {
    const linear *l = node->state;
    size_t rows = g->n * l->rows;
    float *y = node->out->data;
    if (node->param[0]->input_squares)
        add_input_squares(g, node);
    if (node->param[0]->input_counts)
        fgt_cutoff_count(node->param[0], node->in[0]->data, rows * l->in);
    if (node->param[0]->input_cutoff > 0.0f) {
        cut_forward(g, node);
        return;
    }
    if (node->param[0]->packed) {
        packed_forward(g, node);
        return;
    }
    if (g->past_most && rows == 1) {
        token_forward(g, node);
        return;
    }
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < (node->param[1] ? rows : 0); i++)
        memcpy(y + i * l->out, node->param[1]->w, l->out * sizeof *y);
    fgt_gemm(g->threads, rows, l->out, l->in, 1.0f, (fgt_matrix){node->in[0]->data, l->in, false},
             weight_of(node, false), node->param[1] ? 1.0f : 0.0f, y, l->out);
}

static void input_gradient(fgt_graph *g, fgt_node *node) {
    const linear *l = node->state;
    bool add = false;
    float *dx = fgt_input_grad(node, 0, &add);
    if (dx)
        fgt_gemm(g->threads, g->n * l->rows, l->in, l->out, 1.0f, (fgt_matrix){node->out->grad, l->out, false},
                 weight_of(node, true), add ? 1.0f : 0.0f, dx, l->in);
}

/* Sums of columns: in float over ROWS rows, then in double. */
static void sum_columns(const float *dy, size_t rows, size_t cols, size_t first, size_t count, float *sums) {
    enum { COLUMNS = 64, ROWS = 32 };
    for (size_t c = first; c < first + count; c += COLUMNS) {
        size_t columns = first + count - c < COLUMNS ? first + count - c : COLUMNS;
        double total[COLUMNS] = {0};
        for (size_t r = 0; r < rows; r += ROWS) {
            float partial[COLUMNS] = {0};
            for (size_t i = r; i < rows && i < r + ROWS; i++)
                for (size_t j = 0; j < columns; j++)
                    partial[j] += dy[i * cols + c + j];
            for (size_t j = 0; j < columns; j++)
                total[j] += (double)partial[j];
        }
        for (size_t j = 0; j < columns; j++)
            sums[c + j] = (float)total[j];
    }
}

static void bias_gradient(fgt_graph *g, fgt_node *node) {
    const linear *l = node->state;
    float *db = g->sink->open(g->sink, node->param[1], 0);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++) {
        size_t from = fgt_range_begin(l->out, t, g->threads), to = fgt_range_begin(l->out, t + 1, g->threads);
        sum_columns(node->out->grad, g->n * l->rows, l->out, from, to - from, db);
    }
    g->sink->close(g->sink, node->param[1], 0);
}

/* dW (rows of the weight, cols) = a' b, where a is the operand of the weight's rows and b that of its columns. */
static void weight_gradient(fgt_graph *g, fgt_node *node, size_t first) {
    const linear *l = node->state;
    const fgt_param *p = node->param[0];
    const float *x = node->in[0]->data, *dy = node->out->grad, *a = l->input_first ? x : dy,
                *b = l->input_first ? dy : x;
    float *dw = g->sink->open(g->sink, p, first);
    fgt_gemm(g->threads, fgt_tile_rows(p, first), p->cols, g->n * l->rows, 1.0f, (fgt_matrix){a + first, p->rows, true},
             (fgt_matrix){b, p->cols, false}, 0.0f, dw, p->cols);
    g->sink->close(g->sink, p, first);
}

static void linear_backward(fgt_graph *g, fgt_node *node) {
    const fgt_param *p = node->param[0];
    input_gradient(g, node);
    if (node->param[1] && !node->param[1]->frozen)
        bias_gradient(g, node);
    if (p->frozen)
        return;
    for (size_t end = fgt_last_tile_begin(p) + p->tile; end > 0; end -= p->tile) /* from the end of the buffer */
        weight_gradient(g, node, end - p->tile);
}

static void add_params(fgt_graph *g, fgt_node *node, const char *name, const linear *l, fgt_linear_shape shape) {
    char text[256];
    bool normal = shape.init_scale > 0.0f;
    float bound = (float)(1.0 / sqrt((double)l->in));
    frug_role role = shape.role == FRUG_ROLE_OTHER ? FRUG_ROLE_LINEAR : shape.role;
    uint64_t dims[2] = {l->input_first ? l->in : l->out, l->input_first ? l->out : l->in};
    snprintf(text, sizeof text, "%s.weight", name);
    fgt_param *p = fgt_param_add(g, text, role, 2, dims, normal ? FGT_INIT_NORMAL : FGT_INIT_UNIFORM,
                                 normal ? shape.init_scale : bound);
    p->tensor.heads = shape.heads;
    p->tensor.module = shape.module;
    p->tensor.input_first = l->input_first;
    fgt_packed_allow(g, p, l->in);
    if (g->past_most && l->input_first)
        fgt_work_shared_reserve(g, FGT_GEMV_PARTS * l->out);
    node->param[0] = p;
    if (!shape.bias)
        return;
    snprintf(text, sizeof text, "%s.bias", name);
    node->param[1] = fgt_param_add(g, text, FRUG_ROLE_BIAS, 1, (uint64_t[]){l->out},
                                   normal ? FGT_INIT_ZERO : FGT_INIT_UNIFORM, bound);
}

fgt_value *fgt_op_linear(fgt_graph *g, const char *name, fgt_value *x, fgt_linear_shape shape) {
    static const fgt_op op = {
        .name = "linear", .forward = linear_forward, .backward = linear_backward, .is_product = true};
    bool tokens = x->ndim == 2;
    linear l = {.in = tokens ? x->dims[1] : x->sample_size, .out = shape.out, .rows = tokens ? x->dims[0] : 1};
    l.input_first = shape.input_first;
    uint32_t dims[2] = {tokens ? x->dims[0] : shape.out, shape.out};
    fgt_node *node = fgt_node_add(g, &op, x, tokens ? 2 : 1, dims, sizeof l);
    if (node->state)
        *(linear *)node->state = l;
    add_params(g, node, name, &l, shape);
    return node->out;
}
