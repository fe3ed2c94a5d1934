/*
 * ops.h - the operations of models: each adds a node to a graph and returns its output value.
 *
 * name is the prefix of parameter names: "layer1.0.conv1" has "layer1.0.conv1.weight". Builders need not check for
 * memory: fgt_graph_finish() does. Initial weights are those of PyTorch unless noted.
 */
#ifndef FGT_OPS_H
#define FGT_OPS_H

#include "trainer/nn/graph.h"

/* ---- inputs ---- */

/** batch->pixels as (channels, height, width). */
fgt_value *fgt_op_pixels(fgt_graph *g, uint32_t channels, uint32_t height, uint32_t width);

/** An input that the caller writes to out->data; with a gradient if wants_grad. */
fgt_value *fgt_op_input(fgt_graph *g, uint32_t ndim, const uint32_t *dims, bool wants_grad);

/* ---- images ---- */

typedef struct fgt_conv_shape {
    uint32_t channels, kernel, stride, pad; /* channels out */
    bool bias;
} fgt_conv_shape;

/** Convolution of (C, H, W); weight (out, C, k, k), Kaiming-normal by fan-out without a bias, PyTorch's uniform draw
 * with one. */
fgt_value *fgt_op_conv(fgt_graph *g, const char *name, fgt_value *x, fgt_conv_shape shape);

/** Batch norm over N, H, W: weight, bias, running_mean, running_var; momentum 0.1, epsilon 1e-5. */
fgt_value *fgt_op_batch_norm(fgt_graph *g, const char *name, fgt_value *x);

/** relu(batch norm of x), and relu(batch norm of x + other), in one pass over memory. */
fgt_value *fgt_op_batch_norm_relu(fgt_graph *g, const char *name, fgt_value *x);
fgt_value *fgt_op_batch_norm_add_relu(fgt_graph *g, const char *name, fgt_value *x, fgt_value *other);

fgt_value *fgt_op_max_pool(fgt_graph *g, fgt_value *x, uint32_t kernel, uint32_t stride, uint32_t pad);

/** Mean over H and W: (C, H, W) -> (C). */
fgt_value *fgt_op_mean_pool(fgt_graph *g, fgt_value *x);

/** (C, H, W) -> (C', H/stride, W/stride): every stride-th pixel, and zeros for the new channels, half of them in front
 * (option A). */
fgt_value *fgt_op_pad_shortcut(fgt_graph *g, fgt_value *x, uint32_t channels, uint32_t stride);

/* ---- everywhere ---- */

/** In place. */
fgt_value *fgt_op_relu(fgt_graph *g, fgt_value *x);

/** x + y. */
fgt_value *fgt_op_add(fgt_graph *g, fgt_value *x, fgt_value *y);

typedef struct fgt_linear_shape {
    uint32_t out;
    bool bias;
    bool input_first;       /* weight (in, out) as GPT-2 stores it; otherwise (out, in) */
    float init_scale;       /* standard deviation of a normal draw, biases 0; 0: PyTorch's uniform draw */
    frug_role role;         /* of the weight; FRUG_ROLE_OTHER: linear */
    uint32_t heads, module; /* of attention */
} fgt_linear_shape;

/** (T, C) -> (T, out); any other shape is one row: (C, H, W) -> (out). */
fgt_value *fgt_op_linear(fgt_graph *g, const char *name, fgt_value *x, fgt_linear_shape shape);

/** From now on, forward adds the squares of the inputs of all linear layers to p->input_squares, in graphs without
 * backward. Returns false without memory. */
bool fgt_linear_measure_inputs(fgt_graph *g);

/** Mean loss of softmax and cross-entropy against batch->targets; the end of a model. x is (classes), or (T, vocab). A
 * target of -1 is ignored. In training the gradient overwrites x->data. */
void fgt_op_cross_entropy(fgt_graph *g, fgt_value *x);

/* ---- tokens ---- */

/** Sum of embeddings: of batch->tokens (name_token), of positions 0 .. T - 1 (name_position; NULL: none) and of
 * batch->segments (name_segment; NULL: none): (T, C). Normal initial weights of standard deviation init_scale. Where
 * the token embedding is also the weight of the last layer (fgt_op_tied_linear), this node adds both gradients. */
typedef struct fgt_embedding_shape {
    uint32_t length, width, vocab, positions, segments;
    float init_scale;
} fgt_embedding_shape;

fgt_value *fgt_op_embedding(fgt_graph *g, const char *name_token, const char *name_position, const char *name_segment,
                            fgt_embedding_shape shape);

/** x (T, C) times the token embedding of node `embedding`'s value, transposed: (T, vocab); bias_name NULL: no bias. */
fgt_value *fgt_op_tied_linear(fgt_graph *g, const char *bias_name, fgt_value *x, fgt_value *embedding);

/** weight and bias over the last dimension. */
fgt_value *fgt_op_layer_norm(fgt_graph *g, const char *name, fgt_value *x, float epsilon);

/** tanh_form: the approximation of GPT-2; otherwise with erf, as in BERT. */
fgt_value *fgt_op_gelu(fgt_graph *g, fgt_value *x, bool tanh_form);

fgt_value *fgt_op_tanh(fgt_graph *g, fgt_value *x);

/** In place; only in training. */
fgt_value *fgt_op_dropout(fgt_graph *g, fgt_value *x, float rate);

/** Attention of all heads: q, k and v are (T, C) each; or k and v are NULL and q is (T, 3 C), the three concatenated.
 * causal: a token attends to itself and earlier ones; otherwise to tokens below batch->lengths, and the output of
 * padding is 0. q, k and v must be different values. */
fgt_value *fgt_op_attention(fgt_graph *g, fgt_value *q, fgt_value *k, fgt_value *v, uint32_t heads, bool causal,
                            float dropout);

/** The first token's row: (T, C) -> (C). */
fgt_value *fgt_op_first_token(fgt_graph *g, fgt_value *x);

/** Mean squared error of (1) against batch->numbers; the end of a model. */
void fgt_op_squared_error(fgt_graph *g, fgt_value *x);

#endif
