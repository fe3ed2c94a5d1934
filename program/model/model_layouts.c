/*
 * model_layouts.c - layouts of well-known networks, generated from a few numbers each.
 *
 * Residual networks have the names of torchvision (resnet20 is the one for CIFAR of He et al., whose shortcuts have no
 * weights); BERT, GPT-2 and Llama have the names of Hugging Face. Only parameters are listed: no running means, and no
 * output layer where it is tied to the embedding.
 */
#include "program/model/model_layouts.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct resnet {
    uint64_t stem_kernel, width; /* of the first convolution: k x k, and its channels */
    uint32_t stages, blocks[4];
    uint64_t expansion; /* 4: bottlenecks of 1 x 1, 3 x 3, 1 x 1; 1: two convolutions of 3 x 3 */
    int projected;      /* shortcuts that change the shape have weights */
    uint64_t classes;
} resnet;

typedef struct transformer {
    uint64_t layers, d, heads, kv_heads, hidden, vocabulary, positions;
} transformer;

/** A layout under construction; after the first failure all calls do nothing. */
typedef struct builder {
    frug_layout *layout;
    frug_status status;
    char prefix[64];        /* of the names that follow */
    transformer attention;  /* heads of attention tensors */
    uint32_t module, input; /* number of the attention module, and whether weights are stored (in, out) */
} builder;

typedef struct model {
    const char *name;
    void (*build)(builder *b, const struct model *m);
    resnet net;
    transformer text;
} model;

static void set_prefix(builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void set_prefix(builder *b, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(b->prefix, sizeof b->prefix, format, list);
    va_end(list);
}

static void add_tensor(builder *b, const char *name, frug_tensor t) {
    char full[128];
    if (b->status != FRUG_OK)
        return;
    snprintf(full, sizeof full, "%s%s", b->prefix, name);
    t.name = full;
    b->status = frug_layout_add(b->layout, &t);
}

static void add_vector(builder *b, const char *name, frug_role role, uint64_t n) {
    frug_tensor t = FRUG_TENSOR_INIT;
    t.role = role;
    t.ndim = 1;
    t.shape[0] = n;
    add_tensor(b, name, t);
}

static void add_matrix(builder *b, const char *name, frug_role role, uint64_t out, uint64_t in) {
    frug_tensor t = FRUG_TENSOR_INIT;
    int attends = role == FRUG_ROLE_ATTN_QKV || (role >= FRUG_ROLE_ATTN_Q && role <= FRUG_ROLE_ATTN_O);
    t.role = role;
    t.ndim = 2;
    t.input_first = role == FRUG_ROLE_EMBEDDING ? 0 : b->input;
    t.shape[0] = t.input_first ? in : out;
    t.shape[1] = t.input_first ? out : in;
    if (attends) {
        t.heads = (uint32_t)b->attention.heads;
        t.kv_heads = (uint32_t)b->attention.kv_heads;
        t.module = b->module;
    }
    add_tensor(b, name, t);
}

/* NAME.weight and NAME.bias of a linear layer. */
static void add_linear(builder *b, const char *name, frug_role role, uint64_t out, uint64_t in) {
    char part[64];
    snprintf(part, sizeof part, "%s.weight", name);
    add_matrix(b, part, role, out, in);
    snprintf(part, sizeof part, "%s.bias", name);
    add_vector(b, part, FRUG_ROLE_BIAS, out);
}

static void add_norm(builder *b, const char *name, uint64_t n) {
    char part[64];
    snprintf(part, sizeof part, "%s.weight", name);
    add_vector(b, part, FRUG_ROLE_NORM, n);
    snprintf(part, sizeof part, "%s.bias", name);
    add_vector(b, part, FRUG_ROLE_BIAS, n);
}

/* ---- residual networks ---------------------------------------------------------------- */

/* A convolution of k x k and its batch norm. */
static void add_conv(builder *b, const char *conv, const char *norm, uint64_t out, uint64_t in, uint64_t k) {
    frug_tensor t = FRUG_TENSOR_INIT;
    char part[32];
    t.role = FRUG_ROLE_CONV;
    t.ndim = 4;
    t.shape[0] = out;
    t.shape[1] = in;
    t.shape[2] = t.shape[3] = k;
    snprintf(part, sizeof part, "%s.weight", conv);
    add_tensor(b, part, t);
    add_norm(b, norm, out);
}

/* One block; returns its output channels. */
static uint64_t add_block(builder *b, const resnet *net, uint64_t in, uint64_t width) {
    uint64_t out = width * net->expansion;
    if (net->expansion == 1) {
        add_conv(b, "conv1", "bn1", width, in, 3);
        add_conv(b, "conv2", "bn2", width, width, 3);
    } else {
        add_conv(b, "conv1", "bn1", width, in, 1);
        add_conv(b, "conv2", "bn2", width, width, 3);
        add_conv(b, "conv3", "bn3", out, width, 1);
    }
    if (net->projected && in != out)
        add_conv(b, "downsample.0", "downsample.1", out, in, 1);
    return out;
}

static void build_resnet(builder *b, const model *m) {
    const resnet *net = &m->net;
    uint64_t channels = net->width;
    add_conv(b, "conv1", "bn1", channels, 3, net->stem_kernel);
    for (uint32_t stage = 0; stage < net->stages; stage++)
        for (uint32_t block = 0; block < net->blocks[stage]; block++) {
            set_prefix(b, "layer%u.%u.", stage + 1, block);
            channels = add_block(b, net, channels, net->width << stage);
        }
    set_prefix(b, "%s", "");
    add_linear(b, "fc", FRUG_ROLE_LINEAR, net->classes, channels);
}

/* ---- transformers ----------------------------------------------------------------------- */

static void build_bert(builder *b, const model *m) {
    const transformer *t = &m->text;
    set_prefix(b, "embeddings.");
    add_matrix(b, "word_embeddings.weight", FRUG_ROLE_EMBEDDING, t->vocabulary, t->d);
    add_matrix(b, "position_embeddings.weight", FRUG_ROLE_EMBEDDING, t->positions, t->d);
    add_matrix(b, "token_type_embeddings.weight", FRUG_ROLE_EMBEDDING, 2, t->d);
    add_norm(b, "LayerNorm", t->d);
    for (uint32_t layer = 0; layer < t->layers; layer++) {
        set_prefix(b, "encoder.layer.%u.", layer);
        b->module = layer + 1;
        add_linear(b, "attention.self.query", FRUG_ROLE_ATTN_Q, t->d, t->d);
        add_linear(b, "attention.self.key", FRUG_ROLE_ATTN_K, t->d, t->d);
        add_linear(b, "attention.self.value", FRUG_ROLE_ATTN_V, t->d, t->d);
        add_linear(b, "attention.output.dense", FRUG_ROLE_ATTN_O, t->d, t->d);
        add_norm(b, "attention.output.LayerNorm", t->d);
        add_linear(b, "intermediate.dense", FRUG_ROLE_LINEAR, t->hidden, t->d);
        add_linear(b, "output.dense", FRUG_ROLE_LINEAR, t->d, t->hidden);
        add_norm(b, "output.LayerNorm", t->d);
    }
    set_prefix(b, "pooler.");
    add_linear(b, "dense", FRUG_ROLE_LINEAR, t->d, t->d);
}

static void build_gpt2(builder *b, const model *m) {
    const transformer *t = &m->text;
    b->input = 1;
    add_matrix(b, "wte.weight", FRUG_ROLE_EMBEDDING, t->vocabulary, t->d);
    add_matrix(b, "wpe.weight", FRUG_ROLE_EMBEDDING, t->positions, t->d);
    for (uint32_t layer = 0; layer < t->layers; layer++) {
        set_prefix(b, "h.%u.", layer);
        b->module = layer + 1;
        add_norm(b, "ln_1", t->d);
        add_linear(b, "attn.c_attn", FRUG_ROLE_ATTN_QKV, 3 * t->d, t->d);
        add_linear(b, "attn.c_proj", FRUG_ROLE_ATTN_O, t->d, t->d);
        add_norm(b, "ln_2", t->d);
        add_linear(b, "mlp.c_fc", FRUG_ROLE_LINEAR, t->hidden, t->d);
        add_linear(b, "mlp.c_proj", FRUG_ROLE_LINEAR, t->d, t->hidden);
    }
    set_prefix(b, "%s", "");
    add_norm(b, "ln_f", t->d);
}

static void build_llama(builder *b, const model *m) {
    const transformer *t = &m->text;
    uint64_t shared = t->d / t->heads * t->kv_heads; /* rows of keys, and of values (grouped-query attention) */
    add_matrix(b, "model.embed_tokens.weight", FRUG_ROLE_EMBEDDING, t->vocabulary, t->d);
    for (uint32_t layer = 0; layer < t->layers; layer++) {
        set_prefix(b, "model.layers.%u.", layer);
        b->module = layer + 1;
        add_matrix(b, "self_attn.q_proj.weight", FRUG_ROLE_ATTN_Q, t->d, t->d);
        add_matrix(b, "self_attn.k_proj.weight", FRUG_ROLE_ATTN_K, shared, t->d);
        add_matrix(b, "self_attn.v_proj.weight", FRUG_ROLE_ATTN_V, shared, t->d);
        add_matrix(b, "self_attn.o_proj.weight", FRUG_ROLE_ATTN_O, t->d, t->d);
        add_matrix(b, "mlp.gate_proj.weight", FRUG_ROLE_LINEAR, t->hidden, t->d);
        add_matrix(b, "mlp.up_proj.weight", FRUG_ROLE_LINEAR, t->hidden, t->d);
        add_matrix(b, "mlp.down_proj.weight", FRUG_ROLE_LINEAR, t->d, t->hidden);
        add_vector(b, "input_layernorm.weight", FRUG_ROLE_NORM, t->d);
        add_vector(b, "post_attention_layernorm.weight", FRUG_ROLE_NORM, t->d);
    }
    set_prefix(b, "model.");
    add_vector(b, "norm.weight", FRUG_ROLE_NORM, t->d);
}

/* ---- the table ---------------------------------------------------------------------------- */

static const model models[] = {
    {"resnet20", build_resnet, .net = {3, 16, 3, {3, 3, 3}, 1, 0, 10}},
    {"resnet18", build_resnet, .net = {7, 64, 4, {2, 2, 2, 2}, 1, 1, 1000}},
    {"resnet50", build_resnet, .net = {7, 64, 4, {3, 4, 6, 3}, 4, 1, 1000}},
    {"bert-base", build_bert, .text = {12, 768, 12, 12, 3072, 30522, 512}},
    {"gpt2", build_gpt2, .text = {12, 768, 12, 12, 3072, 50257, 1024}},
    {"gpt2-medium", build_gpt2, .text = {24, 1024, 16, 16, 4096, 50257, 1024}},
    {"llama-1b", build_llama, .text = {16, 2048, 32, 8, 8192, 128256, 0}},
};

static const model *find(const char *name) {
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].name, name) == 0)
            return &models[i];
    return NULL;
}

const char *fgp_model_at(size_t i) {
    return i < sizeof models / sizeof *models ? models[i].name : NULL;
}

int fgp_model_known(const char *name) {
    return find(name) != NULL;
}

frug_status fgp_model_layout(const char *name, frug_layout **layout) {
    const model *m = find(name);
    if (m == NULL)
        return FRUG_ERR_ARG;
    builder b = {.attention = m->text};
    b.status = frug_layout_create(&b.layout);
    m->build(&b, m);
    if (b.status != FRUG_OK) {
        frug_layout_destroy(b.layout);
        return b.status;
    }
    *layout = b.layout;
    return FRUG_OK;
}
