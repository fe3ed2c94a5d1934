/*
 * embedding.c - token embedding, and the last layer with the same weights (tied), which computes scores of tokens.
 *
 * The gradient of the token table is computed in tiles of rows. A row is the sum of the gradients of all positions of
 * its token, plus, for tied weights, a column of the scores' gradients times the input of the last layer; so it can
 * only be computed at the end of the backward pass, but then row by row. A counting sort groups the positions by token
 * once per pass.
 */
#include "trainer/nn/ops.h"

#include "trainer/base/counted_alloc.h"
#include "trainer/nn/gemm.h"
#include "trainer/nn/gradient_tiles.h"
#include "trainer/nn/packed_weights.h"

#include <stdlib.h>
#include <string.h>

enum { TOKEN, POSITION, SEGMENT };

typedef struct embedding {
    fgt_embedding_shape shape;
    const fgt_node *head;    /* the node with tied weights, or NULL */
    uint32_t *token_begin;   /* vocab + 1: begin of each token's range in rows_by_token */
    uint32_t *rows_by_token; /* batch_max x T: rows of the batch, sorted by token */
} embedding;

typedef struct tied {
    const fgt_param *table;
    float *bias_grad; /* vocab, or NULL */
} tied;

/* ---- forward ---- */

static void copy_token(const fgt_param *table, size_t token, float *y) {
    if (table->packed)
        frug_sparse_unpack(table->packed, (uint32_t)token, 1, y);
    else
        memcpy(y, table->w + token * table->cols, table->cols * sizeof *y);
}

static void embedding_forward(fgt_graph *g, fgt_node *node) {
    const embedding *e = node->state;
    const size_t T = e->shape.length, C = e->shape.width, rows = g->n * T;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t i = 0; i < rows; i++) {
        float *y = node->out->data + i * C;
        copy_token(node->param[TOKEN], (size_t)g->batch->tokens[i], y);
        const float *position = node->param[POSITION] ? node->param[POSITION]->w + (i % T + g->past) * C : NULL;
        const float *segment = NULL;
        if (node->param[SEGMENT])
            segment = node->param[SEGMENT]->w + (g->batch->segments ? (size_t)g->batch->segments[i] * C : 0);
        for (size_t c = 0; position && c < C; c++)
            y[c] += position[c];
        for (size_t c = 0; segment && c < C; c++)
            y[c] += segment[c];
    }
}

/* ---- backward ---- */

static void add_row(float *sum, const float *row, size_t count) {
    for (size_t i = 0; i < count; i++)
        sum[i] += row[i];
}

/* Row s is the sum over all positions of segment s; threads divide the columns. */
static void segment_tile(fgt_graph *g, const fgt_node *node, float *tile, size_t first, size_t count) {
    const embedding *e = node->state;
    const size_t C = e->shape.width, rows = (size_t)g->n * e->shape.length, parts = (size_t)g->threads;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t part = 0; part < parts; part++) {
        size_t c = C * part / parts, width = C * (part + 1) / parts - c;
        for (size_t r = 0; r < count; r++)
            memset(tile + r * C + c, 0, width * sizeof *tile);
        for (size_t i = 0; i < rows; i++) {
            size_t s = g->batch->segments ? (size_t)g->batch->segments[i] : 0;
            if (s >= first && s - first < count)
                add_row(tile + (s - first) * C + c, node->out->grad + i * C + c, width);
        }
    }
}

static void position_tile(fgt_graph *g, const fgt_node *node, float *tile, size_t first, size_t count) {
    const embedding *e = node->state;
    const size_t T = e->shape.length, C = e->shape.width;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t r = 0; r < count; r++) {
        memset(tile + r * C, 0, C * sizeof *tile);
        for (size_t i = 0; first + r < T && i < g->n; i++)
            add_row(tile + r * C, node->out->grad + (i * T + first + r) * C, C);
    }
}

static void sort_rows_by_token(fgt_graph *g, const embedding *e) {
    const size_t rows = (size_t)g->n * e->shape.length, vocab = e->shape.vocab;
    memset(e->token_begin, 0, (vocab + 1) * sizeof *e->token_begin);
    for (size_t i = 0; i < rows; i++)
        e->token_begin[g->batch->tokens[i]]++;
    uint32_t sum = 0;
    for (size_t v = 0; v <= vocab; v++)
        e->token_begin[v] = sum += e->token_begin[v];
    for (size_t i = rows; i-- > 0;) /* backwards, so that the end of each range becomes its begin */
        e->rows_by_token[--e->token_begin[g->batch->tokens[i]]] = (uint32_t)i;
}

static void token_tile(fgt_graph *g, const fgt_node *node, float *tile, size_t first, size_t count) {
    const embedding *e = node->state;
    const size_t C = e->shape.width;
    if (e->head) {
        const fgt_value *scores = e->head->out, *x = e->head->in[0];
        fgt_matrix a = {scores->grad + first, e->shape.vocab, true}, b = {x->data, C, false};
        fgt_gemm(g->threads, count, C, (size_t)g->n * e->shape.length, 1.0f, a, b, 0.0f, tile, C);
    }
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t r = 0; r < count; r++) {
        if (!e->head)
            memset(tile + r * C, 0, C * sizeof *tile);
        for (size_t i = e->token_begin[first + r]; i < e->token_begin[first + r + 1]; i++)
            add_row(tile + r * C, node->out->grad + e->rows_by_token[i] * C, C);
    }
}

static void embedding_backward(fgt_graph *g, fgt_node *node) {
    static void (*const fill_tile[])(fgt_graph *, const fgt_node *, float *, size_t, size_t) = {
        [TOKEN] = token_tile, [POSITION] = position_tile, [SEGMENT] = segment_tile};
    if (!node->param[TOKEN]->frozen)
        sort_rows_by_token(g, node->state);
    for (int i = SEGMENT; i >= TOKEN; i--) {
        const fgt_param *p = node->param[i];
        for (size_t first = p && !p->frozen ? fgt_last_tile_begin(p) + p->tile : 0; first > 0;) {
            first -= p->tile;
            fill_tile[i](g, node, g->sink->open(g->sink, p, first), first, fgt_tile_rows(p, first));
            g->sink->close(g->sink, p, first);
        }
    }
}

static void embedding_destroy(fgt_node *node) {
    embedding *e = node->state;
    fgt_counted_free(e->token_begin);
    fgt_counted_free(e->rows_by_token);
    free(e);
}

static const fgt_op embedding_op = {
    .name = "embedding", .forward = embedding_forward, .backward = embedding_backward, .destroy = embedding_destroy};

static fgt_param *add_table(fgt_graph *g, const char *name, uint32_t rows, const fgt_embedding_shape *shape) {
    uint64_t dims[2] = {rows, shape->width};
    return name ? fgt_param_add(g, name, FRUG_ROLE_EMBEDDING, 2, dims, FGT_INIT_NORMAL, shape->init_scale) : NULL;
}

fgt_value *fgt_op_embedding(fgt_graph *g, const char *name_token, const char *name_position, const char *name_segment,
                            fgt_embedding_shape shape) {
    uint32_t dims[2] = {shape.length, shape.width};
    fgt_node *node = fgt_node_add(g, &embedding_op, NULL, 2, dims, sizeof(embedding));
    embedding *e = node->state;
    if (g->build_failed)
        return node->out;
    e->shape = shape;
    e->token_begin = fgt_counted_alloc(FGT_USE_ACTIVATIONS, ((size_t)shape.vocab + 1) * sizeof *e->token_begin);
    size_t tokens = (size_t)g->batch_max * shape.length;
    if (tokens <= INT32_MAX) /* rows of a batch are 32-bit, here and in BLAS */
        e->rows_by_token = fgt_counted_alloc(FGT_USE_ACTIVATIONS, tokens * sizeof *e->rows_by_token);
    g->build_failed |= !e->token_begin || !e->rows_by_token;
    node->param[TOKEN] = add_table(g, name_token, shape.vocab, &shape);
    fgt_packed_allow(g, node->param[TOKEN], shape.width);
    node->param[POSITION] = add_table(g, name_position, shape.positions, &shape);
    node->param[SEGMENT] = add_table(g, name_segment, shape.segments, &shape);
    return node->out;
}

/* ---- tied weights: the last layer ---- */

static void tied_forward(fgt_graph *g, fgt_node *node) {
    const tied *t = node->state;
    const size_t C = t->table->cols, vocab = t->table->rows, rows = (size_t)g->n * node->out->dims[0];
    const float *bias = node->param[0] ? node->param[0]->w : NULL;
    float *y = node->out->data;
    if (t->table->packed) {
        fgt_packed_multiply(g, t->table->packed, node->in[0]->data, rows, C, y, vocab);
        for (size_t i = 0; i < (bias ? rows : 0); i++)
            add_row(y + i * vocab, bias, vocab);
        return;
    }
    if (g->past_most && !bias) {
        fgt_gemv(g->threads, vocab, C, node->in[0]->data, (fgt_matrix){t->table->w, C, true}, 0.0f, y);
        return;
    }
    if (bias) {
#pragma omp parallel for num_threads(g->threads) schedule(static)
        for (size_t i = 0; i < rows; i++)
            memcpy(y + i * vocab, bias, vocab * sizeof *y);
    }
    fgt_matrix a = {node->in[0]->data, C, false}, b = {t->table->w, C, true};
    fgt_gemm(g->threads, rows, vocab, C, 1.0f, a, b, bias ? 1.0f : 0.0f, y, vocab);
}

/* The sum of all rows; threads divide the columns. */
static void sum_rows(fgt_graph *g, const float *x, size_t rows, size_t cols, float *sum) {
    const size_t parts = (size_t)g->threads;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (size_t part = 0; part < parts; part++) {
        size_t c = cols * part / parts, width = cols * (part + 1) / parts - c;
        memset(sum + c, 0, width * sizeof *sum);
        for (size_t i = 0; i < rows; i++)
            add_row(sum + c, x + i * cols + c, width);
    }
}

static void tied_backward(fgt_graph *g, fgt_node *node) {
    const tied *t = node->state;
    const size_t C = t->table->cols, vocab = t->table->rows, rows = (size_t)g->n * node->out->dims[0];
    bool add = false;
    float *dx = fgt_input_grad(node, 0, &add);
    if (dx) {
        fgt_matrix a = {node->out->grad, vocab, false}, b = {t->table->w, C, false};
        fgt_gemm(g->threads, rows, C, vocab, 1.0f, a, b, add ? 1.0f : 0.0f, dx, C);
    }
    if (node->param[0] && !node->param[0]->frozen) {
        sum_rows(g, node->out->grad, rows, vocab, t->bias_grad);
        fgt_sink_copy_grad(g, node->param[0], t->bias_grad);
    }
}

static void tied_destroy(fgt_node *node) {
    tied *t = node->state;
    fgt_counted_free(t->bias_grad);
    free(t);
}

static const fgt_op tied_op = {
    .name = "tied", .forward = tied_forward, .backward = tied_backward, .destroy = tied_destroy};

static fgt_node *producer_of(const fgt_graph *g, const fgt_value *value) {
    fgt_node *node = g->first;
    while (node && node->out != value)
        node = node->next;
    return node;
}

fgt_value *fgt_op_tied_linear(fgt_graph *g, const char *bias_name, fgt_value *x, fgt_value *embedding_value) {
    fgt_node *from = producer_of(g, embedding_value);
    if (g->build_failed || !from)
        return x;
    embedding *e = from->state;
    uint32_t dims[2] = {x->dims[0], e->shape.vocab};
    uint64_t vocab = e->shape.vocab;
    fgt_node *node = fgt_node_add(g, &tied_op, x, 2, dims, sizeof(tied));
    tied *t = node->state;
    if (g->build_failed)
        return node->out;
    t->table = from->param[TOKEN];
    e->head = node;
    fgt_value_keep_grad(node->out);
    if (bias_name) {
        node->param[0] = fgt_param_add(g, bias_name, FRUG_ROLE_BIAS, 1, &vocab, FGT_INIT_ZERO, 0.0f);
        t->bias_grad = fgt_counted_alloc(FGT_USE_ACTIVATIONS, vocab * sizeof *t->bias_grad);
        g->build_failed |= !t->bias_grad;
    }
    return node->out;
}
