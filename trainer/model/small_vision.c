/*
 * small_vision.c - two small image models: a multi-layer perceptron and LeNet-5 (LeCun et al. 1998, with ReLU and max
 * pooling as is usual now). Both adapt to the image size of the data.
 */
#include "trainer/model/model_families.h"
#include "trainer/nn/ops.h"
#include "io/error.h"

static fgt_value *dense(fgt_graph *g, const char *name, fgt_value *x, uint32_t out) {
    return fgt_op_linear(g, name, x, (fgt_linear_shape){.out = out, .bias = true});
}

int fgt_build_mlp(const fgt_model *model, const fgt_data_info *info, fgt_graph *g) {
    fgt_value *x = fgt_op_pixels(g, info->channels, info->height, info->width);
    x = fgt_op_relu(g, dense(g, "fc1", x, fgt_model_units(model, 0, 0, 256)));
    x = fgt_op_relu(g, dense(g, "fc2", x, fgt_model_units(model, 0, 1, 128)));
    fgt_op_cross_entropy(g, dense(g, "fc3", x, info->classes));
    return FGIO_EXIT_OK;
}

int fgt_build_lenet(const fgt_model *model, const fgt_data_info *info, fgt_graph *g) {
    if (info->height < 12 || info->width < 12)
        return fgio_error("%s needs images of at least 12 x 12 pixels, but %s has %u x %u", model->text, info->name,
                          info->height, info->width);
    fgt_value *x = fgt_op_pixels(g, info->channels, info->height, info->width);
    const uint32_t maps[] = {fgt_model_units(model, 0, 0, 6), fgt_model_units(model, 0, 1, 16)};
    x = fgt_op_conv(g, "conv1", x,
                    (fgt_conv_shape){.channels = maps[0], .kernel = 5, .stride = 1, .pad = 2, .bias = true});
    x = fgt_op_max_pool(g, fgt_op_relu(g, x), 2, 2, 0);
    x = fgt_op_conv(g, "conv2", x, (fgt_conv_shape){.channels = maps[1], .kernel = 5, .stride = 1, .bias = true});
    x = fgt_op_max_pool(g, fgt_op_relu(g, x), 2, 2, 0);
    x = fgt_op_relu(g, dense(g, "fc1", x, fgt_model_units(model, 0, 2, 120)));
    x = fgt_op_relu(g, dense(g, "fc2", x, fgt_model_units(model, 0, 3, 84)));
    fgt_op_cross_entropy(g, dense(g, "fc3", x, info->classes));
    return FGIO_EXIT_OK;
}
