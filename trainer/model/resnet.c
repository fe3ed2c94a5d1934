/*
 * resnet.c - residual networks (He et al. 2015): those for CIFAR, with shortcuts that skip pixels and pad channels with
 * zeros (option A), and ResNet-18 and -50 for ImageNet, with 1 x 1 convolutions as shortcuts (option B; the stride of a
 * bottleneck is in its 3 x 3 convolution, as in torchvision).
 *
 * Parameter names are those of PyTorch's models; in a block, bn1 belongs to conv1 and so on.
 */
#include "trainer/model/model_families.h"
#include "trainer/nn/ops.h"
#include "io/error.h"

#include <stdio.h>
#include <string.h>

/* A module in the tree of names: "layer1.0". */
typedef struct module {
    const fgt_model *model;
    fgt_graph *g;
    uint32_t block; /* the number of the block in the model */
    char name[32];
} module;

static const char *param_name(const module *p, const char *kind, int number, char *text, size_t cap) {
    snprintf(text, cap, "%s%s%s", p->name, p->name[0] ? "." : "", kind);
    if (number > 0)
        snprintf(text + strlen(text), cap - strlen(text), "%d", number);
    return text;
}

static fgt_value *conv(const module *p, int number, fgt_value *x, fgt_conv_shape shape) {
    char text[64];
    return fgt_op_conv(p->g, param_name(p, "conv", number, text, sizeof text), x, shape);
}

/* convN, bnN and ReLU. */
static fgt_value *conv_norm_relu(const module *p, int number, fgt_value *x, fgt_conv_shape shape) {
    char text[64];
    x = conv(p, number, x, shape);
    return fgt_op_batch_norm_relu(p->g, param_name(p, "bn", number, text, sizeof text), x);
}

static fgt_conv_shape conv3x3(uint32_t channels, uint32_t stride) {
    return (fgt_conv_shape){.channels = channels, .kernel = 3, .stride = stride, .pad = 1};
}

static fgt_conv_shape conv1x1(uint32_t channels, uint32_t stride) {
    return (fgt_conv_shape){.channels = channels, .kernel = 1, .stride = stride};
}

/* How the input of a block gets the shape of its output. */
typedef enum shortcut_kind { IDENTITY, PADDED, PROJECTED } shortcut_kind;

/* The end of a block: bnN of y, plus the input x of the block or its shortcut, and ReLU. A projection is a 1 x 1
 * convolution, downsample.0, and its norm, downsample.1. */
static fgt_value *end_block(const module *p, int number, fgt_value *y, fgt_value *x, shortcut_kind kind,
                            uint32_t stride) {
    char text[64];
    uint32_t channels = y->dims[0];
    param_name(p, "bn", number, text, sizeof text);
    if (kind != PROJECTED)
        return fgt_op_batch_norm_add_relu(p->g, text, y,
                                          kind == PADDED ? fgt_op_pad_shortcut(p->g, x, channels, stride) : x);
    y = fgt_op_batch_norm(p->g, text, y);
    x = fgt_op_conv(p->g, param_name(p, "downsample.0", 0, text, sizeof text), x, conv1x1(channels, stride));
    return fgt_op_batch_norm_add_relu(p->g, param_name(p, "downsample.1", 0, text, sizeof text), x, y);
}

/* Two 3 x 3 convolutions. */
static fgt_value *basic_block(const module *p, fgt_value *x, uint32_t channels, uint32_t stride, shortcut_kind other) {
    fgt_value *y = conv_norm_relu(p, 1, x, conv3x3(fgt_model_units(p->model, 0, p->block, channels), stride));
    y = conv(p, 2, y, conv3x3(channels, 1));
    return end_block(p, 2, y, x, stride != 1 || x->dims[0] != channels ? other : IDENTITY, stride);
}

/* 1 x 1, 3 x 3, 1 x 1 to four times the channels. */
static fgt_value *bottleneck(const module *p, fgt_value *x, uint32_t channels, uint32_t stride) {
    fgt_value *y = conv_norm_relu(p, 1, x, conv1x1(fgt_model_units(p->model, 0, p->block, channels), 1));
    y = conv_norm_relu(p, 2, y, conv3x3(fgt_model_units(p->model, 1, p->block, channels), stride));
    y = conv(p, 3, y, conv1x1(4 * channels, 1));
    return end_block(p, 3, y, x, stride != 1 || x->dims[0] != 4 * channels ? PROJECTED : IDENTITY, stride);
}

static int check_image_size(const fgt_model *model, const fgt_data_info *info, uint32_t min) {
    if (info->height >= min && info->width >= min)
        return FGIO_EXIT_OK;
    return fgio_error("%s needs images of at least %u x %u pixels, but %s has %u x %u", model->text, min, min,
                      info->name, info->height, info->width);
}

/* 6 n + 2 layers: three stages of n blocks, 16, 32 and 64 channels. */
int fgt_build_resnet_cifar(const fgt_model *model, const fgt_data_info *info, fgt_graph *g) {
    int status = check_image_size(model, info, 8);
    if (status != FGIO_EXIT_OK)
        return status;
    module p = {.model = model, .g = g};
    uint32_t blocks = (model->layers - 2) / 6;
    fgt_value *x = fgt_op_pixels(g, info->channels, info->height, info->width);
    x = conv_norm_relu(&p, 1, x, conv3x3(16, 1));
    for (uint32_t stage = 0; stage < 3; stage++)
        for (uint32_t i = 0; i < blocks; i++) {
            snprintf(p.name, sizeof p.name, "layer%u.%u", stage + 1, i);
            fgt_block_begin(g);
            x = basic_block(&p, x, 16u << stage, stage > 0 && i == 0 ? 2 : 1, PADDED);
            p.block++;
            fgt_block_end(g);
        }
    x = fgt_op_mean_pool(g, x);
    fgt_op_cross_entropy(g, fgt_op_linear(g, "linear", x, (fgt_linear_shape){.out = info->classes, .bias = true}));
    return FGIO_EXIT_OK;
}

int fgt_build_resnet(const fgt_model *model, const fgt_data_info *info, fgt_graph *g) {
    static const uint32_t blocks[2][4] = {{2, 2, 2, 2}, {3, 4, 6, 3}};
    bool deep = model->layers == 50;
    int status = check_image_size(model, info, 32);
    if (status != FGIO_EXIT_OK)
        return status;
    module p = {.model = model, .g = g};
    fgt_value *x = fgt_op_pixels(g, info->channels, info->height, info->width);
    x = conv_norm_relu(&p, 1, x, (fgt_conv_shape){.channels = 64, .kernel = 7, .stride = 2, .pad = 3});
    x = fgt_op_max_pool(g, x, 3, 2, 1);
    for (uint32_t stage = 0; stage < 4; stage++)
        for (uint32_t i = 0; i < blocks[deep][stage]; i++) {
            uint32_t stride = stage > 0 && i == 0 ? 2 : 1;
            snprintf(p.name, sizeof p.name, "layer%u.%u", stage + 1, i);
            fgt_block_begin(g);
            x = deep ? bottleneck(&p, x, 64u << stage, stride) : basic_block(&p, x, 64u << stage, stride, PROJECTED);
            p.block++;
            fgt_block_end(g);
        }
    x = fgt_op_mean_pool(g, x);
    fgt_op_cross_entropy(g, fgt_op_linear(g, "fc", x, (fgt_linear_shape){.out = info->classes, .bias = true}));
    return FGIO_EXIT_OK;
}
