/*
 * small_vision.c - two small models of images: a multi-layer perceptron and LeNet-5 (LeCun et al. 1998, with ReLU and max
 * pooling as is usual now). Both take images of the size that the data has.
 */
#include "trainer/model/model_families.h"
#include "trainer/nn/ops.h"
#include "io/error.h"

static frugi_value *dense(frugi_graph *g, const char *name, frugi_value *x, uint32_t out) {
    return frugi_op_linear(g, name, x, (frugi_linear_shape){.out = out, .bias = true});
}

int frugi_build_mlp(const frugi_model *model, const frugi_data_info *info, frugi_graph *g) {
    (void)model;
    frugi_value *x = frugi_op_pixels(g, info->channels, info->height, info->width);
    x = frugi_op_relu(g, dense(g, "fc1", x, 256));
    x = frugi_op_relu(g, dense(g, "fc2", x, 128));
    frugi_op_cross_entropy(g, dense(g, "fc3", x, info->classes));
    return FRUGI_EXIT_OK;
}

int frugi_build_lenet(const frugi_model *model, const frugi_data_info *info, frugi_graph *g) {
    if (info->height < 12 || info->width < 12)
        return frugi_error("%s needs images of at least 12 x 12 pixels, and %s has %u x %u", model->text, info->name,
                           info->height, info->width);
    frugi_value *x = frugi_op_pixels(g, info->channels, info->height, info->width);
    x = frugi_op_conv(g, "conv1", x,
                      (frugi_conv_shape){.channels = 6, .kernel = 5, .stride = 1, .pad = 2, .bias = true});
    x = frugi_op_max_pool(g, frugi_op_relu(g, x), 2, 2, 0);
    x = frugi_op_conv(g, "conv2", x, (frugi_conv_shape){.channels = 16, .kernel = 5, .stride = 1, .bias = true});
    x = frugi_op_max_pool(g, frugi_op_relu(g, x), 2, 2, 0);
    x = frugi_op_relu(g, dense(g, "fc1", x, 120));
    x = frugi_op_relu(g, dense(g, "fc2", x, 84));
    frugi_op_cross_entropy(g, dense(g, "fc3", x, info->classes));
    return FRUGI_EXIT_OK;
}
