/*
 * ops.h - the operations that models are made of: each adds a node to a graph and returns the value it makes.
 *
 * name is the prefix of the parameters' names, "layer1.0.conv1" makes "layer1.0.conv1.weight". Builders need not check
 * for memory: frugi_graph_finish() does. Initial weights are those of PyTorch unless said otherwise.
 */
#ifndef FRUGI_OPS_H
#define FRUGI_OPS_H

#include "trainer/nn/graph.h"

/* ---- inputs ---- */

/** batch->pixels as (channels, height, width). */
frugi_value *frugi_op_pixels(frugi_graph *g, uint32_t channels, uint32_t height, uint32_t width);

/** Numbers that a test sets itself: out->data; with a gradient if wanted. */
frugi_value *frugi_op_given(frugi_graph *g, uint32_t ndim, const uint32_t *dims, bool wants_grad);

/* ---- images ---- */

typedef struct frugi_conv_shape {
    uint32_t channels, kernel, stride, pad; /* channels out */
    bool bias;
} frugi_conv_shape;

/** Convolution of (C, H, W); weight (out, C, k, k), Kaiming-normal by fan-out without a bias, PyTorch's uniform draw
 * with one. */
frugi_value *frugi_op_conv(frugi_graph *g, const char *name, frugi_value *x, frugi_conv_shape shape);

/** Batch norm over N, H, W: weight, bias, running_mean, running_var; momentum 0.1, epsilon 1e-5. */
frugi_value *frugi_op_batch_norm(frugi_graph *g, const char *name, frugi_value *x);

frugi_value *frugi_op_max_pool(frugi_graph *g, frugi_value *x, uint32_t kernel, uint32_t stride, uint32_t pad);

/** Mean over H and W: (C, H, W) -> (C). */
frugi_value *frugi_op_mean_pool(frugi_graph *g, frugi_value *x);

/** (C, H, W) -> (C', H/stride, W/stride): every stride-th pixel, zeros for the new channels, half of them in front
 * (option A). */
frugi_value *frugi_op_pad_shortcut(frugi_graph *g, frugi_value *x, uint32_t channels, uint32_t stride);

/* ---- everywhere ---- */

/** In place. */
frugi_value *frugi_op_relu(frugi_graph *g, frugi_value *x);

/** x + y. */
frugi_value *frugi_op_add(frugi_graph *g, frugi_value *x, frugi_value *y);

typedef struct frugi_linear_shape {
    uint32_t out;
    bool bias;
    bool input_first;       /* weight (in, out) as GPT-2 stores it; otherwise (out, in) */
    float spread;           /* standard deviation of a normal draw, biases 0; 0: PyTorch's uniform draw */
    frug_role role;         /* of the weight; FRUG_ROLE_OTHER: linear */
    uint32_t heads, module; /* of attention */
} frugi_linear_shape;

/** (T, C) -> (T, out); anything else is taken as one row: (C, H, W) -> (out). */
frugi_value *frugi_op_linear(frugi_graph *g, const char *name, frugi_value *x, frugi_linear_shape shape);

/**
 * Mean loss of softmax and cross-entropy against batch->targets; the end of a model. x is (classes), or (T, vocab). A
 * target of -1 is not asked. In training x->data becomes its own gradient, so nothing is kept twice.
 */
void frugi_op_cross_entropy(frugi_graph *g, frugi_value *x);

/* ---- tokens ---- */

/**
 * Sum of embeddings: of batch->tokens (name_token), of positions 0 .. T - 1 (name_position; NULL: none) and of
 * batch->segments (name_segment; NULL: none): (T, C). Normal draw of that spread. Where the token embedding is also the
 * last layer's weight (frugi_op_tied), its gradient waits for this node's.
 */
typedef struct frugi_embedding_shape {
    uint32_t length, width, vocab, positions, segments;
    float spread;
} frugi_embedding_shape;

frugi_value *frugi_op_embedding(frugi_graph *g, const char *name_token, const char *name_position,
                                const char *name_segment, frugi_embedding_shape shape);

/** x (T, C) times the token embedding of node `embedding`'s value, transposed: (T, vocab); bias_name NULL: no bias. */
frugi_value *frugi_op_tied(frugi_graph *g, const char *bias_name, frugi_value *x, frugi_value *embedding);

/** weight and bias over the last dimension. */
frugi_value *frugi_op_layer_norm(frugi_graph *g, const char *name, frugi_value *x, float epsilon);

/** tanh_form: GPT-2's approximation; otherwise with erf, as BERT's. */
frugi_value *frugi_op_gelu(frugi_graph *g, frugi_value *x, bool tanh_form);

frugi_value *frugi_op_tanh(frugi_graph *g, frugi_value *x);

/** In place; only in training. */
frugi_value *frugi_op_dropout(frugi_graph *g, frugi_value *x, float rate);

/**
 * Attention of all heads: q, k and v are (T, C) each; or k and v are NULL and q is (T, 3 C) with one behind the other.
 * causal: a token sees itself and what is before; otherwise tokens up to batch->lengths are seen, and those behind
 * come out as 0. q, k and v must be different values.
 */
frugi_value *frugi_op_attention(frugi_graph *g, frugi_value *q, frugi_value *k, frugi_value *v, uint32_t heads,
                                bool causal, float dropout);

/** The first token's row: (T, C) -> (C). */
frugi_value *frugi_op_first(frugi_graph *g, frugi_value *x);

/** Mean squared error of (1) against batch->numbers; the end of a model. */
void frugi_op_squared_error(frugi_graph *g, frugi_value *x);

#endif
