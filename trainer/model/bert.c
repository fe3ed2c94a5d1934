/*
 * bert.c - BERT: an encoder whose layer norms stand behind the residual paths. For sentences a pooler and a classifier
 * read the first token (one class: a number is predicted); for masked tokens a transform and the token embedding give
 * the scores. Names and initial weights are those of Hugging Face's models.
 */
#include "trainer/model/model_families.h"

#include "trainer/nn/ops.h"
#include "io/error.h"

#include <stdio.h>

#define SPREAD  0.02f
#define EPSILON 1e-12f

typedef struct builder {
    const frugi_model *model;
    frugi_graph *g;
    uint32_t layer;
    char name[96];
} builder;

/* Name of a part of the layer; good until the next call. */
static const char *part(builder *b, const char *what) {
    snprintf(b->name, sizeof b->name, "bert.encoder.layer.%u.%s", b->layer, what);
    return b->name;
}

static frugi_value *linear(builder *b, const char *what, frugi_value *x, uint32_t out, frug_role role) {
    frugi_linear_shape shape = {.out = out, .bias = true, .spread = SPREAD, .role = role};
    if (role != FRUG_ROLE_LINEAR) {
        shape.heads = b->model->heads;
        shape.module = b->layer + 1;
    }
    return frugi_op_linear(b->g, part(b, what), x, shape);
}

/* A linear layer outside the encoder. */
static frugi_value *plain(builder *b, const char *name, frugi_value *x, uint32_t out) {
    return frugi_op_linear(b->g, name, x,
                           (frugi_linear_shape){.out = out, .bias = true, .spread = SPREAD, .role = FRUG_ROLE_LINEAR});
}

static frugi_value *dropped(builder *b, frugi_value *x) {
    return frugi_op_dropout(b->g, x, (float)b->model->dropout);
}

static frugi_value *encoder_layer(builder *b, frugi_value *x) {
    frugi_graph *g = b->g;
    const uint32_t width = b->model->hidden;
    frugi_value *q = linear(b, "attention.self.query", x, width, FRUG_ROLE_ATTN_Q);
    frugi_value *k = linear(b, "attention.self.key", x, width, FRUG_ROLE_ATTN_K);
    frugi_value *v = linear(b, "attention.self.value", x, width, FRUG_ROLE_ATTN_V);
    frugi_value *y = frugi_op_attention(g, q, k, v, b->model->heads, false, (float)b->model->dropout);
    y = dropped(b, linear(b, "attention.output.dense", y, width, FRUG_ROLE_ATTN_O));
    x = frugi_op_layer_norm(g, part(b, "attention.output.LayerNorm"), frugi_op_add(g, x, y), EPSILON);
    y = frugi_op_gelu(g, linear(b, "intermediate.dense", x, 4 * width, FRUG_ROLE_LINEAR), false);
    y = dropped(b, linear(b, "output.dense", y, width, FRUG_ROLE_LINEAR));
    return frugi_op_layer_norm(g, part(b, "output.LayerNorm"), frugi_op_add(g, x, y), EPSILON);
}

static void sentence_head(builder *b, frugi_value *x, uint32_t classes) {
    x = plain(b, "bert.pooler.dense", frugi_op_first(b->g, x), b->model->hidden);
    x = dropped(b, frugi_op_tanh(b->g, x));
    x = plain(b, "classifier", x, classes);
    if (classes == 1)
        frugi_op_squared_error(b->g, x);
    else
        frugi_op_cross_entropy(b->g, x);
}

static void masked_head(builder *b, frugi_value *x, frugi_value *tokens) {
    x = frugi_op_gelu(b->g, plain(b, "cls.predictions.transform.dense", x, b->model->hidden), false);
    x = frugi_op_layer_norm(b->g, "cls.predictions.transform.LayerNorm", x, EPSILON);
    frugi_op_cross_entropy(b->g, frugi_op_tied(b->g, "cls.predictions.bias", x, tokens));
}

int frugi_build_bert(const frugi_model *model, const frugi_data_info *info, frugi_graph *g) {
    const uint32_t vocab = model->vocab ? model->vocab : info->vocab;
    if (model->task == FRUGI_TASK_SENTENCES && !info->classes)
        return frugi_error("%s has no classes", info->name);
    if (frugi_transformer_misfit(model, info, vocab))
        return FRUGI_EXIT_FAIL;
    frugi_embedding_shape shape = {info->length, model->hidden, vocab, model->length, 2, SPREAD};
    frugi_value *tokens =
        frugi_op_embedding(g, "bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight",
                           "bert.embeddings.token_type_embeddings.weight", shape);
    builder b = {.model = model, .g = g};
    frugi_value *x = dropped(&b, frugi_op_layer_norm(g, "bert.embeddings.LayerNorm", tokens, EPSILON));
    for (b.layer = 0; b.layer < model->layers; b.layer++) {
        frugi_block_begin(g);
        x = encoder_layer(&b, x);
        frugi_block_end(g);
    }
    if (model->task == FRUGI_TASK_MASKED)
        masked_head(&b, x, tokens);
    else
        sentence_head(&b, x, info->classes);
    return FRUGI_EXIT_OK;
}
