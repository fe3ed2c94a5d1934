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
    const frugi_model *model;
    frugi_graph *g;
    uint32_t layer;
    char name[64];
} builder;

/* Name of a part of the layer; good until the next call. */
static const char *part(builder *b, const char *what) {
    snprintf(b->name, sizeof b->name, "h.%u.%s", b->layer, what);
    return b->name;
}

static frugi_value *linear(builder *b, const char *what, frugi_value *x, uint32_t out, float spread, frug_role role) {
    frugi_linear_shape shape = {.out = out, .bias = true, .input_first = true, .spread = spread, .role = role};
    if (role != FRUG_ROLE_LINEAR) {
        shape.heads = b->model->heads;
        shape.module = b->layer + 1;
    }
    return frugi_op_linear(b->g, part(b, what), x, shape);
}

static frugi_value *block(builder *b, frugi_value *x) {
    frugi_graph *g = b->g;
    const uint32_t width = b->model->hidden;
    const float dropout = (float)b->model->dropout;
    const float residual = SPREAD / sqrtf(2.0f * (float)b->model->layers); /* two paths per layer add up */
    frugi_value *y = frugi_op_layer_norm(g, part(b, "ln_1"), x, EPSILON);
    y = linear(b, "attn.c_attn", y, 3 * width, SPREAD, FRUG_ROLE_ATTN_QKV);
    y = frugi_op_attention(g, y, NULL, NULL, b->model->heads, true, dropout);
    y = linear(b, "attn.c_proj", y, width, residual, FRUG_ROLE_ATTN_O);
    x = frugi_op_add(g, x, frugi_op_dropout(g, y, dropout));
    y = frugi_op_layer_norm(g, part(b, "ln_2"), x, EPSILON);
    y = linear(b, "mlp.c_fc", y, 4 * width, SPREAD, FRUG_ROLE_LINEAR);
    y = frugi_op_gelu(g, y, true);
    y = linear(b, "mlp.c_proj", y, width, residual, FRUG_ROLE_LINEAR);
    return frugi_op_add(g, x, frugi_op_dropout(g, y, dropout));
}

int frugi_build_gpt2(const frugi_model *model, const frugi_data_info *info, frugi_graph *g) {
    const uint32_t vocab = model->vocab ? model->vocab : info->vocab;
    if (frugi_transformer_misfit(model, info, vocab))
        return FRUGI_EXIT_FAIL;
    frugi_embedding_shape shape = {info->length, model->hidden, vocab, model->length, 0, SPREAD};
    frugi_value *tokens = frugi_op_embedding(g, "wte.weight", "wpe.weight", NULL, shape);
    frugi_value *x = frugi_op_dropout(g, tokens, (float)model->dropout);
    builder b = {.model = model, .g = g};
    for (b.layer = 0; b.layer < model->layers; b.layer++) {
        frugi_block_begin(g);
        x = block(&b, x);
        frugi_block_end(g);
    }
    x = frugi_op_layer_norm(g, "ln_f", x, EPSILON);
    frugi_op_cross_entropy(g, frugi_op_tied(g, NULL, x, tokens));
    return FRUGI_EXIT_OK;
}
