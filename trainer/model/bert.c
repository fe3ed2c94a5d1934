/*
 * bert.c - BERT: an encoder with layer norms after the residual additions. For sentences a pooler and a classifier read
 * the first token (one class: regression); for masked tokens a transform and the tied token embedding compute the
 * scores. Names and initial weights are those of Hugging Face's models.
 */
#include "trainer/model/model_families.h"

#include "trainer/nn/ops.h"
#include "io/error.h"

#include <stdio.h>

#define INIT_STDDEV 0.02f
#define EPSILON     1e-12f

typedef struct builder {
    const fgt_model *model;
    fgt_graph *g;
    uint32_t layer, heads;
    char name[96];
} builder;

/* Name of a parameter of the layer; valid until the next call. */
static const char *param_name(builder *b, const char *what) {
    snprintf(b->name, sizeof b->name, "bert.encoder.layer.%u.%s", b->layer, what);
    return b->name;
}

static fgt_value *linear(builder *b, const char *what, fgt_value *x, uint32_t out, frug_role role) {
    fgt_linear_shape shape = {.out = out, .bias = true, .init_scale = INIT_STDDEV, .role = role};
    if (role != FRUG_ROLE_LINEAR) {
        shape.heads = b->heads;
        shape.module = b->layer + 1;
    }
    return fgt_op_linear(b->g, param_name(b, what), x, shape);
}

/* A linear layer outside the encoder. */
static fgt_value *plain_linear(builder *b, const char *name, fgt_value *x, uint32_t out) {
    return fgt_op_linear(
        b->g, name, x,
        (fgt_linear_shape){.out = out, .bias = true, .init_scale = INIT_STDDEV, .role = FRUG_ROLE_LINEAR});
}

static fgt_value *dropout(builder *b, fgt_value *x) {
    return fgt_op_dropout(b->g, x, (float)b->model->dropout);
}

static fgt_value *encoder_layer(builder *b, fgt_value *x) {
    fgt_graph *g = b->g;
    const uint32_t width = b->model->hidden, attention = fgt_model_units(b->model, 0, b->layer, width);
    b->heads = attention / fgt_model_head_length(b->model);
    fgt_value *q = linear(b, "attention.self.query", x, attention, FRUG_ROLE_ATTN_Q);
    fgt_value *k = linear(b, "attention.self.key", x, attention, FRUG_ROLE_ATTN_K);
    fgt_value *v = linear(b, "attention.self.value", x, attention, FRUG_ROLE_ATTN_V);
    fgt_value *y = fgt_op_attention(g, q, k, v, b->heads, false, (float)b->model->dropout);
    y = dropout(b, linear(b, "attention.output.dense", y, width, FRUG_ROLE_ATTN_O));
    x = fgt_op_layer_norm(g, param_name(b, "attention.output.LayerNorm"), fgt_op_add(g, x, y), EPSILON);
    y = linear(b, "intermediate.dense", x, fgt_model_units(b->model, 1, b->layer, 4 * width), FRUG_ROLE_LINEAR);
    y = fgt_op_gelu(g, y, false);
    y = dropout(b, linear(b, "output.dense", y, width, FRUG_ROLE_LINEAR));
    return fgt_op_layer_norm(g, param_name(b, "output.LayerNorm"), fgt_op_add(g, x, y), EPSILON);
}

static void sentence_head(builder *b, fgt_value *x, uint32_t classes) {
    x = plain_linear(b, "bert.pooler.dense", fgt_op_first_token(b->g, x), b->model->hidden);
    x = dropout(b, fgt_op_tanh(b->g, x));
    x = plain_linear(b, "classifier", x, classes);
    if (classes == 1)
        fgt_op_squared_error(b->g, x);
    else
        fgt_op_cross_entropy(b->g, x);
}

static void masked_head(builder *b, fgt_value *x, fgt_value *tokens) {
    x = fgt_op_gelu(b->g, plain_linear(b, "cls.predictions.transform.dense", x, b->model->hidden), false);
    x = fgt_op_layer_norm(b->g, "cls.predictions.transform.LayerNorm", x, EPSILON);
    fgt_op_cross_entropy(b->g, fgt_op_tied_linear(b->g, "cls.predictions.bias", x, tokens));
}

int fgt_build_bert(const fgt_model *model, const fgt_data_info *info, fgt_graph *g) {
    const uint32_t vocab = model->vocab ? model->vocab : info->vocab;
    if (model->task == FGT_TASK_SENTENCES && !info->classes)
        return fgio_error("%s has no classes", info->name);
    if (fgt_transformer_check(model, info, vocab))
        return FGIO_EXIT_FAIL;
    fgt_embedding_shape shape = {info->length, model->hidden, vocab, model->length, 2, INIT_STDDEV};
    fgt_value *tokens =
        fgt_op_embedding(g, "bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight",
                         "bert.embeddings.token_type_embeddings.weight", shape);
    builder b = {.model = model, .g = g};
    fgt_value *x = dropout(&b, fgt_op_layer_norm(g, "bert.embeddings.LayerNorm", tokens, EPSILON));
    for (b.layer = 0; b.layer < model->layers; b.layer++) {
        fgt_block_begin(g);
        x = encoder_layer(&b, x);
        fgt_block_end(g);
    }
    if (model->task == FGT_TASK_MASKED)
        masked_head(&b, x, tokens);
    else
        sentence_head(&b, x, info->classes);
    return FGIO_EXIT_OK;
}
