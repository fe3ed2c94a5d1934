/*
 * gpt2.c - GPT-2: blocks of attention and a two-layer network, each behind a layer norm and beside a residual path; the
 * scores of the next token come from the token embedding. Names and initial weights are those of the original.
 */
#include "trainer/model/model_families.h"

#include "trainer/nn/ops.h"
#include "io/error.h"

#include <math.h>
#include <stdio.h>

#define SPREAD  0.02f
#define EPSILON 1e-5f

typedef struct builder {
    const fgt_model *model;
    fgt_graph *g;
    uint32_t layer;
    char name[64];
} builder;

/* Name of a part of the layer; good until the next call. */
static const char *part(builder *b, const char *what) {
    snprintf(b->name, sizeof b->name, "h.%u.%s", b->layer, what);
    return b->name;
}

static fgt_value *linear(builder *b, const char *what, fgt_value *x, uint32_t out, float spread, frug_role role) {
    fgt_linear_shape shape = {.out = out, .bias = true, .input_first = true, .spread = spread, .role = role};
    if (role != FRUG_ROLE_LINEAR) {
        shape.heads = b->model->heads;
        shape.module = b->layer + 1;
    }
    return fgt_op_linear(b->g, part(b, what), x, shape);
}

static fgt_value *block(builder *b, fgt_value *x) {
    fgt_graph *g = b->g;
    const uint32_t width = b->model->hidden;
    const float dropout = (float)b->model->dropout;
    const float residual = SPREAD / sqrtf(2.0f * (float)b->model->layers); /* two paths per layer add up */
    fgt_value *y = fgt_op_layer_norm(g, part(b, "ln_1"), x, EPSILON);
    y = linear(b, "attn.c_attn", y, 3 * width, SPREAD, FRUG_ROLE_ATTN_QKV);
    y = fgt_op_attention(g, y, NULL, NULL, b->model->heads, true, dropout);
    y = linear(b, "attn.c_proj", y, width, residual, FRUG_ROLE_ATTN_O);
    x = fgt_op_add(g, x, fgt_op_dropout(g, y, dropout));
    y = fgt_op_layer_norm(g, part(b, "ln_2"), x, EPSILON);
    y = linear(b, "mlp.c_fc", y, 4 * width, SPREAD, FRUG_ROLE_LINEAR);
    y = fgt_op_gelu(g, y, true);
    y = linear(b, "mlp.c_proj", y, width, residual, FRUG_ROLE_LINEAR);
    return fgt_op_add(g, x, fgt_op_dropout(g, y, dropout));
}

int fgt_build_gpt2(const fgt_model *model, const fgt_data_info *info, fgt_graph *g) {
    const uint32_t vocab = model->vocab ? model->vocab : info->vocab;
    if (fgt_transformer_misfit(model, info, vocab))
        return FGIO_EXIT_FAIL;
    fgt_embedding_shape shape = {info->length, model->hidden, vocab, model->length, 0, SPREAD};
    fgt_value *tokens = fgt_op_embedding(g, "wte.weight", "wpe.weight", NULL, shape);
    fgt_value *x = fgt_op_dropout(g, tokens, (float)model->dropout);
    builder b = {.model = model, .g = g};
    for (b.layer = 0; b.layer < model->layers; b.layer++) {
        fgt_block_begin(g);
        x = block(&b, x);
        fgt_block_end(g);
    }
    x = fgt_op_layer_norm(g, "ln_f", x, EPSILON);
    fgt_op_cross_entropy(g, fgt_op_tied(g, NULL, x, tokens));
    return FGIO_EXIT_OK;
}
