/*
 * test_nn_vision.c - the operations of models of images: every gradient against finite differences, with odd sizes,
 * strides, padding, batches smaller than the largest, tiles of a few rows, and one thread as well as two; and the
 * ways to compute a convolution against each other and against its definition.
 *
 * Tolerances are relative to a tensor's largest entry: 2e-3 for linear and smooth operations, where the differences
 * themselves are good to about 1e-4 in float32.
 */
#include "trainer/gradcheck.h"
#include "frugrad.h"
#include "trainer/nn/conv.h"
#include "trainer/nn/kernels.h"

#include <cblas.h>

#define TOLERANCE 2e-3

static int set_one_blas_thread(void **state) {
    (void)state;
    openblas_set_num_threads(1);
    return 0;
}

/* Runs a check with the kernels of every variant that this machine has. */
static void with_every_variant(void (*check)(void)) {
    for (size_t v = 0; frug_isa_at(v); v++) {
        setenv("FRUG_ISA", frug_isa_at(v), 1);
        check();
    }
    unsetenv("FRUG_ISA");
}

static void assert_near(const float *want, const float *got, size_t n) {
    for (size_t i = 0; i < n; i++)
        assert_true(fabsf(want[i] - got[i]) <= 1e-4f * (1.0f + fabsf(want[i])));
}

/* ---- convolution ---- */

typedef struct conv_case {
    uint32_t C, H, W, O, k, stride, pad;
    bool bias;
} conv_case;

static const conv_case conv_cases[] = {
    {3, 7, 9, 5, 3, 1, 1, false},   /* odd width, odd channels */
    {4, 8, 8, 8, 3, 1, 1, true},    /* rows of whole vectors: of 4 and 8 floats */
    {3, 5, 16, 9, 3, 1, 1, false},  /* so too: of 16 */
    {5, 4, 4, 6, 3, 1, 1, false},   /* one vector a row */
    {18, 5, 6, 4, 3, 1, 1, false},  /* channels shared by two threads */
    {2, 1, 40, 3, 3, 1, 1, false},  /* one row */
    {3, 8, 8, 4, 4, 3, 2, false},   /* a kernel of even size, a stride that leaves pixels over */
    {3, 9, 7, 4, 3, 3, 0, false},   /* the stride of the kernel */
    {3, 7, 9, 5, 3, 2, 1, true},    /* stride */
    {2, 9, 8, 3, 5, 1, 2, true},    /* a larger kernel */
    {1, 12, 12, 2, 9, 1, 4, false}, /* larger than those of the direct kernels */
    {2, 11, 10, 3, 7, 2, 3, false}, /* the first layer of ResNet-50 */
    {6, 5, 5, 7, 1, 1, 0, false},   /* 1 x 1, several images a product */
    {3, 24, 24, 5, 1, 1, 0, true},  /* 1 x 1, one image in several products */
    {6, 5, 7, 4, 1, 2, 0, false},   /* 1 x 1 with a stride */
    {17, 6, 5, 3, 5, 1, 0, false},  /* no padding; channels shared by two threads */
    {1, 30, 31, 2, 5, 1, 0, true},  /* one channel, an image in several products */
    {2, 3, 3, 3, 5, 1, 2, false},   /* a kernel larger than the image */
};

static void check_conv(const conv_case *k, int threads) {
    fgt_graph *g = fgt_graph_create(5, threads);
    fgt_value *x = fgt_op_input(g, 3, (uint32_t[]){k->C, k->H, k->W}, true);
    fgt_conv_shape shape = {.channels = k->O, .kernel = k->k, .stride = k->stride, .pad = k->pad, .bias = k->bias};
    fgt_value *y = fgt_op_conv(g, "conv", x, shape);
    gradcheck c;
    gradcheck_open(&c, g, y, 1);
    gradcheck_run(&c, 5, 0, TOLERANCE);
    gradcheck_run(&c, 3, 2, TOLERANCE);
    gradcheck_run(&c, 1, 1, TOLERANCE);
    gradcheck_close(&c);
}

static void check_conv_gradients(void) {
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++)
        for (int threads = 1; threads <= 2; threads++)
            check_conv(&conv_cases[i], threads);
}

static void conv_gradients(void **state) {
    (void)state;
    with_every_variant(check_conv_gradients);
}

static double conv_at(const conv_case *k, const float *x, const float *w, uint32_t o, uint32_t y, uint32_t xo) {
    double sum = 0.0;
    for (uint32_t c = 0; c < k->C; c++)
        for (uint32_t i = 0; i < k->k; i++)
            for (uint32_t j = 0; j < k->k; j++) {
                uint32_t row = y * k->stride + i - k->pad, col = xo * k->stride + j - k->pad;
                if (row < k->H && col < k->W) /* below 0 wraps round to far above */
                    sum += (double)x[(c * k->H + row) * k->W + col] * (double)w[((o * k->C + c) * k->k + i) * k->k + j];
            }
    return sum;
}

static void check_conv_results(void) {
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++) {
        const conv_case *k = &conv_cases[i];
        fgt_graph *g = fgt_graph_create(3, 2);
        fgt_value *x = fgt_op_input(g, 3, (uint32_t[]){k->C, k->H, k->W}, true);
        fgt_conv_shape shape = {.channels = k->O, .kernel = k->k, .stride = k->stride, .pad = k->pad, .bias = k->bias};
        fgt_value *y = fgt_op_conv(g, "conv", x, shape);
        gradcheck c;
        gradcheck_open(&c, g, y, 2);
        gradcheck_forward(&c, 3);
        const float *bias = k->bias ? fgt_param_find(g, "conv.bias")->w : NULL;
        for (uint32_t j = 0; j < 3 * y->sample_size; j++) {
            uint32_t at = j % (uint32_t)y->sample_size, o = at / (y->dims[1] * y->dims[2]);
            double expected =
                conv_at(k, x->data + j / y->sample_size * x->sample_size, fgt_param_find(g, "conv.weight")->w, o,
                        at / y->dims[2] % y->dims[1], at % y->dims[2]);
            assert_true(fabs((double)y->data[j] - expected - (bias ? (double)bias[o] : 0.0)) < 1e-4);
        }
        gradcheck_close(&c);
    }
}

static void conv_matches_its_definition(void **state) {
    (void)state;
    with_every_variant(check_conv_results);
}

/* The gradient of one weight by its definition; r: that of the output. */
static double weight_gradient_at(const conv_case *k, const fgt_value *y, uint32_t n, const float *x, const float *r,
                                 size_t weight) {
    uint32_t j = (uint32_t)weight % k->k, i = (uint32_t)(weight / k->k) % k->k;
    uint32_t c = (uint32_t)(weight / k->k / k->k) % k->C, o = (uint32_t)(weight / k->k / k->k) / k->C;
    double sum = 0.0;
    for (uint32_t at = 0; at < n * y->dims[1] * y->dims[2]; at++) {
        uint32_t sample = at / (y->dims[1] * y->dims[2]), yo = at / y->dims[2] % y->dims[1], xo = at % y->dims[2];
        uint32_t row = yo * k->stride + i - k->pad, col = xo * k->stride + j - k->pad;
        if (row < k->H && col < k->W) /* below 0 wraps round to far above */
            sum += (double)x[((sample * k->C + c) * k->H + row) * k->W + col] *
                   (double)r[((sample * k->O + o) * y->dims[1] + yo) * y->dims[2] + xo];
    }
    return sum;
}

/* So many that threads compute one product together, where finite differences would take long. */
static void check_many_weights(void) {
    static const conv_case cases[] = {
        {60, 5, 6, 125, 3, 2, 1, false},  /* several images a product */
        {70, 40, 41, 105, 3, 2, 0, true}, /* an image in several products */
        {256, 4, 5, 260, 1, 1, 0, false}, /* 1 x 1 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            const conv_case *k = &cases[i];
            fgt_graph *g = fgt_graph_create(4, threads);
            fgt_value *x = fgt_op_input(g, 3, (uint32_t[]){k->C, k->H, k->W}, true);
            fgt_conv_shape shape = {
                .channels = k->O, .kernel = k->k, .stride = k->stride, .pad = k->pad, .bias = k->bias};
            fgt_value *y = fgt_op_conv(g, "conv", x, shape);
            gradcheck c;
            gradcheck_open(&c, g, y, 2);
            gradcheck_backward(&c, 3, threads == 1 ? 0 : 50);
            size_t count = (size_t)k->O * k->C * k->k * k->k;
            for (size_t w = 0; w < count; w += w % 7 ? 97 : 331) {
                double expected = weight_gradient_at(k, y, 3, c.kept[0], c.r, w);
                if (!(fabs((double)c.grads[w] - expected) < 1e-3))
                    fail_msg("case %zu, %d threads: gradient %zu is %g, not %g", i, threads, w, (double)c.grads[w],
                             expected);
            }
            gradcheck_close(&c);
        }
}

static void gradients_of_many_weights(void **state) {
    (void)state;
    with_every_variant(check_many_weights);
}

/* Output, gradient of the input and gradient of the weights, from `into` on. */
static float *run_conv(const conv_case *k, int threads, size_t tile, float *into) {
    fgt_graph *g = fgt_graph_create(7, threads);
    fgt_value *x = fgt_op_input(g, 3, (uint32_t[]){k->C, k->H, k->W}, true);
    fgt_conv_shape shape = {.channels = k->O, .kernel = k->k, .stride = k->stride, .pad = k->pad};
    fgt_value *y = fgt_op_conv(g, "conv", x, shape);
    gradcheck c;
    gradcheck_open(&c, g, y, 4);
    gradcheck_backward(&c, 5, tile);
    size_t sizes[] = {5 * y->sample_size, 5 * x->sample_size, g->elements};
    const float *from[] = {y->data, x->grad, c.grads};
    for (int i = 0; i < 3; into += sizes[i++])
        memcpy(into, from[i], sizes[i] * sizeof *into);
    gradcheck_close(&c);
    return into;
}

/* Sizes for which there are implementations of other libraries, against products of OpenBLAS. */
static void whole_vectors_of_channels(void **state) {
    (void)state;
    static const conv_case cases[] = {
        {32, 12, 11, 64, 3, 1, 1, false}, /* Winograd's algorithm */
        {64, 6, 7, 96, 3, 1, 1, false},   /* so too: output channels in two units that overlap */
        {96, 5, 5, 96, 3, 1, 1, false},   /* and many weights */
        {16, 9, 9, 32, 3, 2, 1, false},   /* a stride */
        {3, 21, 18, 16, 7, 2, 3, false},  /* few input channels */
    };
    enum { MOST = 1 << 18 };
    static float want[MOST], got[MOST];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("FRUG_ISA", "ref", 1);
        size_t count = (size_t)(run_conv(&cases[i], 1, 0, want) - want);
        assert_true(count <= MOST);
        for (size_t v = 0; frug_isa_at(v); v++)
            for (int threads = 1; threads <= 2; threads++) {
                setenv("FRUG_ISA", frug_isa_at(v), 1);
                run_conv(&cases[i], threads, threads == 1 ? 0 : 50, got);
                assert_near(want, got, count);
            }
    }
    unsetenv("FRUG_ISA");
}

/* An existing gradient is added to: x is an input of two convolutions and a sum. */
static void check_sums_of_gradients(void) {
    for (uint32_t kernel = 1; kernel <= 5; kernel += 2)
        for (int threads = 1; threads <= 2; threads++) {
            fgt_graph *g = fgt_graph_create(4, threads);
            fgt_value *x = fgt_op_input(g, 3, (uint32_t[]){4, 6, 7}, true);
            fgt_conv_shape shape = {.channels = 4, .kernel = kernel, .stride = 1, .pad = kernel / 2};
            fgt_value *y = fgt_op_add(g, fgt_op_conv(g, "a", x, shape), x);
            y = fgt_op_add(g, y, fgt_op_batch_norm(g, "n", fgt_op_conv(g, "b", x, shape)));
            y = fgt_op_add(g, fgt_op_batch_norm(g, "m", x), y);
            gradcheck c;
            gradcheck_open(&c, g, y, 3);
            gradcheck_run(&c, 4, 0, TOLERANCE);
            gradcheck_run(&c, 3, 3, TOLERANCE);
            gradcheck_close(&c);
        }
}

static void gradients_add_up(void **state) {
    (void)state;
    with_every_variant(check_sums_of_gradients);
}

/* Two convolutions of one value, so that the second adds to its gradient. */
static void run_two_convs(const conv_case *k, int threads, uint32_t n, float *results, float *grads) {
    fgt_graph *g = fgt_graph_create(35, threads);
    fgt_value *x = fgt_op_input(g, 3, (uint32_t[]){k->C, k->H, k->W}, true);
    fgt_conv_shape shape = {.channels = k->O, .kernel = k->k, .stride = k->stride, .pad = k->pad, .bias = k->bias};
    fgt_value *y = fgt_op_add(g, fgt_op_conv(g, "a", x, shape), fgt_op_conv(g, "b", x, shape));
    gradcheck c;
    gradcheck_open(&c, g, y, 2);
    gradcheck_forward(&c, n);
    memcpy(results, y->data, 3 * y->sample_size * sizeof *results);
    gradcheck_backward(&c, n, 0);
    memcpy(grads, x->grad, 3 * x->sample_size * sizeof *grads);
    gradcheck_close(&c);
}

/* Large batches have images in the lanes of vectors where rows of pixels would not fill them. Without kernels for
 * convolutions they are products of OpenBLAS, which rounds the last columns differently. */
static void check_batches(void) {
    if (!fgt_kernels_chosen()->conv)
        return;
    static const conv_case cases[] = {
        {5, 7, 7, 9, 3, 1, 1, false},  {6, 14, 14, 16, 5, 1, 0, true},  {4, 13, 13, 10, 3, 2, 1, false},
        {3, 5, 3, 17, 3, 1, 1, false}, {32, 9, 11, 32, 3, 1, 1, false}, {16, 13, 13, 16, 3, 2, 1, false},
    };
    enum { MOST = 3 * 32 * 13 * 13 };
    static float few[2][MOST], many[2][MOST];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int threads = 1; threads <= 3; threads++) {
            memset(few, 0, sizeof few);
            memset(many, 0, sizeof many);
            run_two_convs(&cases[i], 1, 3, few[0], few[1]);
            run_two_convs(&cases[i], threads, 35, many[0], many[1]);
            assert_memory_equal(few, many, sizeof few);
        }
}

static void images_do_not_depend_on_their_batch(void **state) {
    (void)state;
    with_every_variant(check_batches);
}

/* ---- batch norm ---- */

static void check_batch_norm(void) {
    for (int threads = 1; threads <= 2; threads++) {
        fgt_graph *g = fgt_graph_create(6, threads);
        fgt_value *x = fgt_op_input(g, 3, (uint32_t[]){3, 5, 3}, true);
        fgt_value *y = fgt_op_batch_norm(g, "bn", x);
        gradcheck c;
        gradcheck_open(&c, g, y, 4);
        gradcheck_run(&c, 6, 0, TOLERANCE);
        gradcheck_run(&c, 2, 0, TOLERANCE);
        gradcheck_close(&c);
    }
}

static void batch_norm_gradients(void **state) {
    (void)state;
    with_every_variant(check_batch_norm);
}

/* Batch norm and what follows it in one operation, and the same as several; planes of whole vectors and not, and a
 * value that is used twice. */
static void check_norm_and_relu(void) {
    static const uint32_t sides[][2] = {{5, 3}, {4, 8}, {7, 7}};
    for (size_t k = 0; k < sizeof sides / sizeof *sides; k++)
        for (int threads = 1; threads <= 2; threads++) {
            fgt_graph *g[2];
            gradcheck c[2];
            for (int fused = 0; fused < 2; fused++) {
                g[fused] = fgt_graph_create(4, threads);
                fgt_value *x = fgt_op_input(g[fused], 3, (uint32_t[]){3, sides[k][0], sides[k][1]}, true), *y, *z;
                if (fused) {
                    y = fgt_op_batch_norm_relu(g[fused], "a", x);
                    z = fgt_op_batch_norm_add_relu(g[fused], "b", x, y);
                } else {
                    y = fgt_op_relu(g[fused], fgt_op_batch_norm(g[fused], "a", x));
                    z = fgt_op_relu(g[fused], fgt_op_add(g[fused], fgt_op_batch_norm(g[fused], "b", x), y));
                }
                z = fgt_op_add(g[fused], z, y);
                gradcheck_open(&c[fused], g[fused], z, 7);
                gradcheck_backward(&c[fused], 3, 0);
            }
            const float *dx[2] = {c[0].given[0]->grad, c[1].given[0]->grad};
            assert_near(dx[0], dx[1], 3 * c[0].given[0]->sample_size);
            for (const fgt_param *p = g[0]->params; p; p = p->next)
                assert_near(c[0].grads + p->tensor.offset, c[1].grads + p->tensor.offset, p->rows);
            for (int fused = 0; fused < 2; fused++)
                gradcheck_close(&c[fused]);
        }
}

static void norm_and_relu_in_one(void **state) {
    (void)state;
    with_every_variant(check_norm_and_relu);
}

/* Numbers far from 0: mean 1000, standard deviation 1; output of mean bias and deviation weight; running statistics
 * change by a tenth, and evaluation uses them. */
static void batch_norm_statistics(void **state) {
    (void)state;
    fgt_graph *g = fgt_graph_create(50, 1);
    fgt_value *x = fgt_op_input(g, 3, (uint32_t[]){2, 5, 5}, true), *y = fgt_op_batch_norm(g, "bn", x);
    gradcheck c;
    gradcheck_open(&c, g, y, 5);
    for (size_t i = 0; i < 50 * x->sample_size; i++)
        c.kept[0][i] = 1000.0f + fgt_normal(fgt_random(6, 0, i));
    gradcheck_forward(&c, 50);
    double mean = 0, square = 0, in_mean = 0, in_square = 0, count = 50 * 25;
    for (size_t i = 0; i < 50; i++)
        for (size_t j = 0; j < 25; j++) {
            double v = (double)y->data[i * 50 + j], u = (double)x->data[i * 50 + j] - 1000.0;
            mean += v / count;
            square += v * v / count;
            in_mean += u / count;
            in_square += u * u / count;
        }
    double weight = (double)c.weights[0], var = in_square - in_mean * in_mean;
    assert_true(fabs(mean - (double)fgt_param_find(g, "bn.bias")->w[0]) < 1e-4);
    assert_true(fabs(sqrt(square - mean * mean) - weight) < 2e-3 * weight);
    assert_true(fabs((double)fgt_buffer_find(g, "bn.running_mean")->data[0] - 0.1 * (1000.0 + in_mean)) < 1e-3);
    double running = 0.9 + 0.1 * var * count / (count - 1);
    assert_true(fabs((double)fgt_buffer_find(g, "bn.running_var")->data[0] - running) < 1e-3);
    c.training = false;
    gradcheck_forward(&c, 1);
    double at = ((double)x->data[0] - (double)fgt_buffer_find(g, "bn.running_mean")->data[0]) / sqrt(running + 1e-5);
    assert_true(fabs((double)y->data[0] - (at * weight + (double)fgt_param_find(g, "bn.bias")->w[0])) <
                1e-4 * fabs(at));
    gradcheck_close(&c);
}

/* ---- the others ---- */

static void pool_gradients(void **state) {
    (void)state;
    static const uint32_t windows[][3] = {{2, 2, 0}, {3, 2, 1}, {3, 1, 1}, {2, 3, 0}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        for (int threads = 1; threads <= 2; threads++) {
            fgt_graph *g = fgt_graph_create(3, threads);
            fgt_value *x = fgt_op_input(g, 3, (uint32_t[]){2, 7, 6}, true);
            fgt_value *y = fgt_op_max_pool(g, x, windows[i][0], windows[i][1], windows[i][2]);
            gradcheck c;
            gradcheck_open(&c, g, y, 7);
            gradcheck_fill(&c, 0, true, 8); /* 0.2 apart: differences of 0.04 change no order */
            gradcheck_run(&c, 3, 0, TOLERANCE);
            gradcheck_run(&c, 2, 0, TOLERANCE);
            gradcheck_close(&c);
        }
}

/* Equal entries: the first gets the gradient, as in PyTorch. */
static void max_pool_takes_the_first(void **state) {
    (void)state;
    fgt_graph *g = fgt_graph_create(1, 1);
    fgt_value *x = fgt_op_input(g, 3, (uint32_t[]){1, 2, 2}, true), *y = fgt_op_max_pool(g, x, 2, 2, 0);
    gradcheck c;
    gradcheck_open(&c, g, y, 9);
    memset(c.kept[0], 0, 4 * sizeof(float));
    gradcheck_backward(&c, 1, 0);
    assert_true(x->grad[0] == c.r[0] && x->grad[1] == 0.0f && x->grad[2] == 0.0f && x->grad[3] == 0.0f);
    gradcheck_close(&c);
}

static void elementwise_gradients(void **state) {
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        fgt_graph *g = fgt_graph_create(3, threads);
        fgt_value *x = fgt_op_input(g, 3, (uint32_t[]){3, 5, 7}, true);
        fgt_value *y = fgt_op_input(g, 3, (uint32_t[]){8, 3, 4}, true);
        fgt_value *z = fgt_op_pad_shortcut(g, x, 8, 2);
        z = fgt_op_mean_pool(g, fgt_op_relu(g, fgt_op_add(g, z, y)));
        gradcheck c;
        gradcheck_open(&c, g, z, 10);
        gradcheck_fill(&c, 0, true, 11); /* odd multiples of 0.1 ... */
        gradcheck_fill(&c, 1, true, 12);
        for (size_t i = 0; i < 3 * y->sample_size; i++)
            c.kept[1][i] += 0.05f; /* ... and these between them: no sum is nearer to 0 than 0.05 */
        gradcheck_run(&c, 3, 0, TOLERANCE);
        gradcheck_run(&c, 1, 0, TOLERANCE);
        gradcheck_close(&c);
    }
}

static void linear_gradients(void **state) {
    (void)state;
    for (int form = 0; form < 8; form++) { /* tokens or samples, bias or none, stored one way or the other */
        for (int threads = 1; threads <= 2; threads++) {
            fgt_graph *g = fgt_graph_create(5, threads);
            fgt_value *x = form & 1 ? fgt_op_input(g, 2, (uint32_t[]){4, 7}, true)
                                    : fgt_op_input(g, 3, (uint32_t[]){2, 3, 13}, true);
            fgt_linear_shape shape = {.out = form & 1 ? 75 : 9, .bias = form & 2, .input_first = form & 4};
            fgt_value *y = fgt_op_linear(g, "fc", x, shape);
            gradcheck c;
            gradcheck_open(&c, g, y, 13);
            gradcheck_run(&c, 5, 0, TOLERANCE);
            gradcheck_run(&c, 3, 2, TOLERANCE);
            gradcheck_close(&c);
        }
    }
}

static void linear_matches_its_definition(void **state) {
    (void)state;
    for (int first = 0; first < 2; first++) {
        fgt_graph *g = fgt_graph_create(2, 1);
        fgt_value *x = fgt_op_input(g, 1, (uint32_t[]){3}, true);
        fgt_value *y = fgt_op_linear(g, "fc", x, (fgt_linear_shape){.out = 2, .bias = true, .input_first = first});
        gradcheck c;
        gradcheck_open(&c, g, y, 14);
        gradcheck_forward(&c, 2);
        const float *w = fgt_param_find(g, "fc.weight")->w, *b = fgt_param_find(g, "fc.bias")->w;
        assert_int_equal(fgt_param_find(g, "fc.weight")->rows, first ? 3 : 2);
        for (size_t r = 0; r < 2; r++)
            for (size_t o = 0; o < 2; o++) {
                double sum = (double)b[o];
                for (size_t i = 0; i < 3; i++)
                    sum += (double)x->data[r * 3 + i] * (double)(first ? w[i * 2 + o] : w[o * 3 + i]);
                assert_true(fabs((double)y->data[r * 2 + o] - sum) < 1e-6);
            }
        gradcheck_close(&c);
    }
}

/* ---- the loss ---- */

typedef struct loss_run {
    fgt_graph *g;
    fgt_value *x;
    fgt_batch batch;
    float kept[5 * 3 * 2003];
} loss_run;

static double mean_loss(loss_run *l, bool training) {
    memcpy(l->x->data, l->kept, l->batch.n * l->x->sample_size * sizeof(float));
    fgt_graph_forward(l->g, &l->batch, training);
    return l->g->score.count > 0 ? l->g->score.loss / l->g->score.count : 0.0;
}

static void check_loss(uint32_t classes, uint32_t tokens, int threads) {
    static loss_run l;
    int32_t targets[15];
    l = (loss_run){.g = fgt_graph_create(5, threads), .batch = {.n = 4, .targets = targets}};
    l.x = tokens ? fgt_op_input(l.g, 2, (uint32_t[]){tokens, classes}, true) : fgt_op_input(l.g, 1, &classes, true);
    fgt_op_cross_entropy(l.g, l.x);
    assert_int_equal(fgt_graph_finish(l.g), FGIO_EXIT_OK);
    for (size_t i = 0; i < 4 * l.x->sample_size; i++)
        l.kept[i] = 3.0f * gradcheck_number(15, i);
    double expected = 0.0, asked = 0.0, right = 0.0;
    for (uint32_t i = 0; i < 4 * (tokens ? tokens : 1); i++) {
        targets[i] = i % 3 == 1 ? -1 : (int32_t)(i * 7 % classes);
        const float *row = l.kept + i * classes;
        double sum = 0.0, top = 0.0;
        for (uint32_t j = 0; j < classes; j++) {
            sum += exp((double)row[j]);
            top = fmax(top, (double)row[j]);
        }
        if (targets[i] < 0)
            continue;
        expected += log(sum) - (double)row[targets[i]];
        asked += 1.0;
        right += (double)row[targets[i]] == top ? 1.0 : 0.0;
    }
    assert_true(fabs(mean_loss(&l, false) - expected / asked) < 1e-6 * expected);
    assert_true(l.g->score.count == asked && l.g->score.correct == right);
    assert_memory_equal(l.x->data, l.kept, 4 * l.x->sample_size * sizeof(float)); /* evaluation leaves the logits */
    static float grad[5 * 3 * 2003];
    assert_true(fabs(mean_loss(&l, true) - expected / asked) < 1e-6 * expected);
    fgt_graph_backward(l.g, NULL);
    memcpy(grad, l.x->grad, 4 * l.x->sample_size * sizeof(float));
    for (size_t i = 0; i < 4 * l.x->sample_size; i += 1 + l.x->sample_size / 40) {
        float was = l.kept[i];
        l.kept[i] = was + 0.05f;
        double up = mean_loss(&l, false);
        l.kept[i] = was - 0.05f;
        double slope = (up - mean_loss(&l, false)) / 0.1;
        l.kept[i] = was;
        assert_true(fabs(slope - (double)grad[i]) < 1e-3);
    }
    fgt_graph_destroy(l.g);
}

static void cross_entropy_gradients(void **state) {
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        check_loss(10, 0, threads);
        check_loss(7, 3, threads);
        check_loss(2003, 3, threads);
    }
}

/* A batch without targets has no loss and no gradient. */
static void batch_without_targets(void **state) {
    (void)state;
    int32_t targets[2] = {-1, -1};
    fgt_batch batch = {.n = 2, .targets = targets};
    fgt_graph *g = fgt_graph_create(2, 1);
    fgt_value *x = fgt_op_input(g, 1, (uint32_t[]){3}, true);
    fgt_op_cross_entropy(g, x);
    assert_int_equal(fgt_graph_finish(g), FGIO_EXIT_OK);
    for (int i = 0; i < 6; i++)
        x->data[i] = (float)i;
    fgt_graph_forward(g, &batch, true);
    assert_true(g->score.loss == 0.0 && g->score.count == 0.0);
    for (int i = 0; i < 6; i++)
        assert_true(x->grad[i] == 0.0f);
    fgt_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_matches_its_definition),
        cmocka_unit_test(conv_gradients),
        cmocka_unit_test(images_do_not_depend_on_their_batch),
        cmocka_unit_test(gradients_of_many_weights),
        cmocka_unit_test(whole_vectors_of_channels),
        cmocka_unit_test(gradients_add_up),
        cmocka_unit_test(batch_norm_gradients),
        cmocka_unit_test(norm_and_relu_in_one),
        cmocka_unit_test(batch_norm_statistics),
        cmocka_unit_test(pool_gradients),
        cmocka_unit_test(max_pool_takes_the_first),
        cmocka_unit_test(elementwise_gradients),
        cmocka_unit_test(linear_gradients),
        cmocka_unit_test(linear_matches_its_definition),
        cmocka_unit_test(cross_entropy_gradients),
        cmocka_unit_test(batch_without_targets),
    };
    return cmocka_run_group_tests(tests, set_one_blas_thread, NULL);
}
