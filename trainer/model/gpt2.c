/*
 * gpt2.c - GPT-2: blocks of attention and a two-layer MLP, each after a layer norm and with a residual addition; the
 * tied token embedding computes the scores of the next token. Names and initial weights are those of the original.
 */
#include "trainer/model/model_families.h"

#include "trainer/nn/ops.h"
#include "io/error.h"

#include <math.h>
#include <stdio.h>

#define INIT_STDDEV 0.02f
#define EPSILON     1e-5f

typedef struct builder {
    const fgt_model *model;
    fgt_graph *g;
    uint32_t layer, heads;
    char name[64];
} builder;

/* Name of a parameter of the layer; valid until the next call. */
static const char *param_name(builder *b, const char *what) {
    snprintf(b->name, sizeof b->name, "h.%u.%s", b->layer, what);
    return b->name;
}

static fgt_value *linear(builder *b, const char *what, fgt_value *x, uint32_t out, float init_scale, frug_role role) {
    fgt_linear_shape shape = {.out = out, .bias = true, .input_first = true, .init_scale = init_scale, .role = role};
    if (role != FRUG_ROLE_LINEAR) {
        shape.heads = b->heads;
        shape.module = b->layer + 1;
    }
    return fgt_op_linear(b->g, param_name(b, what), x, shape);
}

static fgt_value *transformer_block(builder *b, fgt_value *x) {
    fgt_graph *g = b->g;
    const uint32_t width = b->model->hidden, attention = fgt_model_units(b->model, 0, b->layer, width);
    const float dropout = (float)b->model->dropout;
    const float residual = INIT_STDDEV / sqrtf(2.0f * (float)b->model->layers); /* two residual additions per layer */
    b->heads = attention / fgt_model_head_length(b->model);
    fgt_value *y = fgt_op_layer_norm(g, param_name(b, "ln_1"), x, EPSILON);
    y = linear(b, "attn.c_attn", y, 3 * attention, INIT_STDDEV, FRUG_ROLE_ATTN_QKV);
    y = fgt_op_attention(g, y, NULL, NULL, b->heads, true, dropout);
    y = linear(b, "attn.c_proj", y, width, residual, FRUG_ROLE_ATTN_O);
    x = fgt_op_add(g, x, fgt_op_dropout(g, y, dropout));
    y = fgt_op_layer_norm(g, param_name(b, "ln_2"), x, EPSILON);
    y = linear(b, "mlp.c_fc", y, fgt_model_units(b->model, 1, b->layer, 4 * width), INIT_STDDEV, FRUG_ROLE_LINEAR);
    y = fgt_op_gelu(g, y, true);
    y = linear(b, "mlp.c_proj", y, width, residual, FRUG_ROLE_LINEAR);
    return fgt_op_add(g, x, fgt_op_dropout(g, y, dropout));
}

int fgt_build_gpt2(const fgt_model *model, const fgt_data_info *info, fgt_graph *g) {
    const uint32_t vocab = model->vocab ? model->vocab : info->vocab;
    if (fgt_transformer_check(model, info, vocab))
        return FGIO_EXIT_FAIL;
    fgt_embedding_shape shape = {info->length, model->hidden, vocab, model->length, 0, INIT_STDDEV};
    fgt_value *tokens = fgt_op_embedding(g, "wte.weight", "wpe.weight", NULL, shape);
    fgt_value *x = fgt_op_dropout(g, tokens, (float)model->dropout);
    builder b = {.model = model, .g = g};
    for (b.layer = 0; b.layer < model->layers; b.layer++) {
        fgt_block_begin(g);
        x = transformer_block(&b, x);
        fgt_block_end(g);
    }
    x = fgt_op_layer_norm(g, "ln_f", x, EPSILON);
    fgt_op_cross_entropy(g, fgt_op_tied_linear(g, NULL, x, tokens));
    return FGIO_EXIT_OK;
}
