/*
 * conv_onednn.c - convolution by oneDNN, for the layers and passes in which it is faster than our kernels.
 *
 * oneDNN keeps the channels of a pixel in blocks of a vector; values of the graph are copied into that order and back,
 * some images at a time, so that they stay in the cache in between. Every call of oneDNN is by one thread. It processes
 * a fixed number of images, of which the last may be zeros: the result of an image depends on no other image. The
 * gradient of the weights is computed for OUT_UNIT output channels at a time. Threads divide the images where there are
 * few weights, into a number of partial sums that depends on the batch alone, and the output channels where there are
 * many. So no sum depends on the number of threads.
 */
#include "trainer/nn/conv.h"

#include "trainer/nn/parallel_ranges.h"

#include <oneapi/dnnl/dnnl.h>

#include <assert.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALL_PIXELS = 4096,        /* of the images of a call, if more than one */
    SUM_PIXELS = 16384,        /* the same for the gradient of the weights, which is then added to that of others */
    OUT_UNIT = 64,             /* output channels of a gradient of weights */
    PARTIAL_SUMS = 8,          /* of a gradient of few weights */
    FEW_WEIGHTS_MAX = 1 << 16, /* maximum of weights of which there are partial sums */
    LINE = 16,                 /* floats of a cache line */
    LANES = 16,                /* of a vector */
    CHANNELS_MIN = 32,         /* for Winograd's algorithm */
    COLORS = 3                 /* maximum of channels of the first layer */
};

typedef enum pass_kind { FORWARD, INPUT_GRAD, WEIGHT_GRAD } pass_kind;

/* A tensor in our order and in that of oneDNN; of images, one image. */
typedef struct tensor {
    dnnl_memory_desc_t plain, own, call; /* call: all images of a call */
    bool same;                           /* no copy is needed */
    size_t image, floats;                /* in the order of oneDNN: floats of one image, and of a call */
    dnnl_primitive_t read, write, add;   /* from our order, to it, and added to it */
} tensor;

typedef struct pass {
    size_t images; /* of a call */
    dnnl_primitive_t conv;
    tensor x, w, y;
    dnnl_memory_desc_t scratch_layout;
    size_t scratch;
} pass;

struct fgt_conv_onednn {
    dnnl_engine_t engine;
    size_t unit;
    pass pass[3];
};

static size_t min(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t max(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t aligned(size_t floats) {
    return (floats + LINE - 1) / LINE * LINE;
}

/* ---- creation ---- */

static dnnl_primitive_t reorder(dnnl_engine_t engine, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to,
                                bool add) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t sum = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_primitive_t made = NULL;
    dnnl_post_ops_create(&sum);
    dnnl_primitive_attr_create(&attr);
    if (add)
        dnnl_post_ops_append_sum(sum, 1.0f);
    dnnl_primitive_attr_set_post_ops(attr, sum);
    if (dnnl_reorder_primitive_desc_create(&desc, from, engine, to, engine, attr) == dnnl_success)
        dnnl_primitive_create(&made, desc);
    dnnl_primitive_desc_destroy(desc);
    dnnl_primitive_attr_destroy(attr);
    dnnl_post_ops_destroy(sum);
    return made;
}

/* `first` is what dims[0] becomes: 1 for images, all output channels for weights. */
static bool set_tensor(dnnl_engine_t engine, const dnnl_memory_desc_t *call, dnnl_format_tag_t tag, dnnl_dim_t first,
                       tensor *t) {
    dnnl_dims_t dims, zero = {0};
    memcpy(dims, call->dims, sizeof dims);
    dims[0] = first;
    t->call = *call;
    t->floats = dnnl_memory_desc_get_size(call) / sizeof(float);
    t->image = t->floats / (size_t)(call->dims[0] / first);
    if (dnnl_memory_desc_init_by_tag(&t->plain, 4, dims, dnnl_f32, tag) != dnnl_success ||
        dnnl_memory_desc_init_submemory(&t->own, call, dims, zero) != dnnl_success)
        return false;
    t->same = dnnl_memory_desc_equal(&t->plain, &t->own);
    t->read = reorder(engine, &t->plain, &t->own, false);
    t->write = reorder(engine, &t->own, &t->plain, false);
    t->add = reorder(engine, &t->own, &t->plain, true);
    return t->read && t->write && t->add;
}

typedef struct conv_sizes {
    dnnl_dims_t x, w, y, stride, before, after;
} conv_sizes;

static conv_sizes sizes_of(const fgt_conv *v, size_t images, size_t out) {
    dnnl_dim_t after[2] = {((dnnl_dim_t)v->Y - 1) * v->stride + v->k - v->H - v->pad,
                           ((dnnl_dim_t)v->X - 1) * v->stride + v->k - v->W - v->pad};
    return (conv_sizes){.x = {(dnnl_dim_t)images, v->C, v->H, v->W},
                        .w = {(dnnl_dim_t)out, v->C, v->k, v->k},
                        .y = {(dnnl_dim_t)images, (dnnl_dim_t)out, v->Y, v->X},
                        .stride = {v->stride, v->stride},
                        .before = {v->pad, v->pad},
                        .after = {after[0], after[1]}};
}

static dnnl_primitive_desc_t describe(dnnl_engine_t engine, const conv_sizes *s, pass_kind kind, dnnl_alg_kind_t how,
                                      dnnl_primitive_desc_t hint) {
    dnnl_memory_desc_t x, w, y;
    dnnl_convolution_desc_t d;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t made = NULL;
    dnnl_status_t status;
    dnnl_memory_desc_init_by_tag(&x, 4, s->x, dnnl_f32, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&w, 4, s->w, dnnl_f32, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&y, 4, s->y, dnnl_f32, dnnl_format_tag_any);
    if (kind == FORWARD)
        status = dnnl_convolution_forward_desc_init(&d, dnnl_forward_training, how, &x, &w, NULL, &y, s->stride,
                                                    s->before, s->after);
    else if (kind == INPUT_GRAD)
        status = dnnl_convolution_backward_data_desc_init(&d, how, &x, &w, &y, s->stride, s->before, s->after);
    else
        status = dnnl_convolution_backward_weights_desc_init(&d, how, &x, &w, NULL, &y, s->stride, s->before, s->after);
    if (status != dnnl_success || dnnl_primitive_attr_create(&attr) != dnnl_success)
        return NULL;
    dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    dnnl_primitive_desc_create(&made, &d, attr, engine, hint);
    dnnl_primitive_attr_destroy(attr);
    return made;
}

/* Layouts and sizes, as the description says. */
static bool set_layouts(dnnl_engine_t engine, dnnl_primitive_desc_t d, pass_kind kind, pass *p) {
    const dnnl_memory_desc_t *x =
        dnnl_primitive_desc_query_md(d, kind == INPUT_GRAD ? dnnl_query_diff_src_md : dnnl_query_src_md, 0);
    const dnnl_memory_desc_t *w =
        dnnl_primitive_desc_query_md(d, kind == WEIGHT_GRAD ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    const dnnl_memory_desc_t *y =
        dnnl_primitive_desc_query_md(d, kind == FORWARD ? dnnl_query_dst_md : dnnl_query_diff_dst_md, 0);
    p->images = (size_t)x->dims[0];
    p->scratch_layout = *dnnl_primitive_desc_query_md(d, dnnl_query_scratchpad_md, 0);
    p->scratch = dnnl_memory_desc_get_size(&p->scratch_layout) / sizeof(float);
    return set_tensor(engine, x, dnnl_nchw, 1, &p->x) && set_tensor(engine, w, dnnl_oihw, w->dims[0], &p->w) &&
           set_tensor(engine, y, dnnl_nchw, 1, &p->y);
}

static bool create_pass(dnnl_engine_t engine, const conv_sizes *s, pass_kind kind, dnnl_alg_kind_t how, pass *p) {
    dnnl_primitive_desc_t hint = kind == FORWARD ? NULL : describe(engine, s, FORWARD, how, NULL);
    dnnl_primitive_desc_t d = describe(engine, s, kind, how, hint);
    bool created = d && dnnl_primitive_create(&p->conv, d) == dnnl_success && set_layouts(engine, d, kind, p);
    dnnl_primitive_desc_destroy(hint);
    dnnl_primitive_desc_destroy(d);
    return created;
}

static bool has_few_weights(const fgt_conv *v) {
    return (size_t)v->O * v->C * v->k * v->k <= FEW_WEIGHTS_MAX;
}

void fgt_conv_onednn_destroy(struct fgt_conv_onednn *d) {
    if (!d)
        return;
    for (pass *p = d->pass; p < d->pass + 3; p++) {
        dnnl_primitive_destroy(p->conv);
        for (tensor *t = &p->x; t <= &p->y; t++) {
            dnnl_primitive_destroy(t->read);
            dnnl_primitive_destroy(t->write);
            dnnl_primitive_destroy(t->add);
        }
    }
    dnnl_engine_destroy(d->engine);
    free(d);
}

/* ---- calls ---- */

/* Calls by one thread: oneDNN starts as many as OpenMP says. */
typedef struct caller {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    int threads; /* to be restored */
} caller;

static caller begin_calls(dnnl_engine_t engine) {
    caller c = {.engine = engine, .threads = omp_get_max_threads()};
    omp_set_num_threads(1);
    dnnl_stream_create(&c.stream, engine, dnnl_stream_default_flags);
    return c;
}

static void end_calls(caller c) {
    dnnl_stream_destroy(c.stream);
    omp_set_num_threads(c.threads);
}

typedef struct operand {
    int number;
    const dnnl_memory_desc_t *layout;
    const float *data;
} operand;

static void call(caller c, dnnl_primitive_t primitive, int count, const operand *operands) {
    dnnl_exec_arg_t args[4];
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < count; i++) {
        args[i].arg = operands[i].number;
        status |= dnnl_memory_create(&args[i].memory, operands[i].layout, c.engine, (void *)operands[i].data);
    }
    status |= dnnl_primitive_execute(primitive, c.stream, count, args);
    assert(status == dnnl_success);
    (void)status;
    for (int i = 0; i < count; i++)
        dnnl_memory_destroy(args[i].memory);
}

static void copy(caller c, dnnl_primitive_t reorder, const dnnl_memory_desc_t *from_layout, const float *from,
                 const dnnl_memory_desc_t *to_layout, float *to) {
    call(c, reorder, 2, (operand[]){{DNNL_ARG_FROM, from_layout, from}, {DNNL_ARG_TO, to_layout, to}});
}

/* n images from x on, `stride` floats apart, in the order of oneDNN and filled up with zeros: in place, or in `to`. */
static const float *read_images(caller c, const tensor *t, size_t n, const float *x, size_t stride, float *to) {
    if (t->same && n * t->image == t->floats && stride == t->image)
        return x;
    for (size_t i = 0; i < n; i++)
        copy(c, t->read, &t->plain, x + i * stride, &t->own, to + i * t->image);
    memset(to + n * t->image, 0, (t->floats - n * t->image) * sizeof *to);
    return to;
}

static void write_images(caller c, const tensor *t, size_t n, const float *from, float *y, size_t stride, bool add) {
    for (size_t i = 0; i < n; i++)
        copy(c, add ? t->add : t->write, &t->own, from + i * t->image, &t->plain, y + i * stride);
}

static void run_conv(caller c, const pass *p, pass_kind kind, const float *x, const float *w, const float *y,
                     float *scratch) {
    operand o[] = {{kind == INPUT_GRAD ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, &p->x.call, x},
                   {kind == WEIGHT_GRAD ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, &p->w.call, w},
                   {kind == FORWARD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, &p->y.call, y},
                   {DNNL_ARG_SCRATCHPAD, &p->scratch_layout, scratch}};
    call(c, p->conv, 4, o);
}

/* ---- forward and the gradient of the input ---- */

/* The work space of a thread: images, results, scratch memory. */
static size_t images_work(const pass *p) {
    return aligned(p->x.floats) + aligned(p->y.floats) + aligned(p->scratch);
}

static void run_images(caller c, const pass *p, pass_kind kind, size_t n, const float *from, const float *w, float *to,
                       bool add, float *work) {
    const tensor *in = kind == FORWARD ? &p->x : &p->y, *out = kind == FORWARD ? &p->y : &p->x;
    float *copied = work, *result = work + aligned(in->floats), *scratch = result + aligned(out->floats);
    size_t in_image = (size_t)(in->plain.dims[1] * in->plain.dims[2] * in->plain.dims[3]);
    size_t out_image = (size_t)(out->plain.dims[1] * out->plain.dims[2] * out->plain.dims[3]);
    for (size_t i = 0; i < n; i += p->images) {
        size_t count = min(p->images, n - i);
        const float *read = read_images(c, in, count, from + i * in_image, in_image, copied);
        run_conv(c, p, kind, kind == FORWARD ? read : result, w, kind == FORWARD ? result : read, scratch);
        write_images(c, out, count, result, to + i * out_image, out_image, add);
    }
}

static void run_pass(fgt_graph *g, const fgt_conv *v, pass_kind kind, const float *from, const float *w, float *to,
                     bool add) {
    const pass *p = &v->onednn->pass[kind];
    size_t in_image = kind == FORWARD ? (size_t)v->C * v->H * v->W : (size_t)v->O * v->Y * v->X;
    size_t out_image = kind == FORWARD ? (size_t)v->O * v->Y * v->X : (size_t)v->C * v->H * v->W;
    float *weights = fgt_work_shared(g);
    caller c = begin_calls(v->onednn->engine);
    copy(c, p->w.read, &p->w.plain, w, &p->w.own, weights);
    end_calls(c);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++) {
        size_t first = fgt_range_begin(g->n, t, g->threads), end = fgt_range_begin(g->n, t + 1, g->threads);
        caller own = begin_calls(v->onednn->engine);
        run_images(own, p, kind, end - first, from + first * in_image, weights, to + first * out_image, add,
                   fgt_work(g, t));
        end_calls(own);
    }
}

static void forward(fgt_graph *g, const fgt_conv *v, const float *x, const float *w, float *y) {
    run_pass(g, v, FORWARD, x, w, y, false);
}

static void input_grad(fgt_graph *g, const fgt_conv *v, const float *dy, const float *w, float *dx, bool add) {
    run_pass(g, v, INPUT_GRAD, dy, w, dx, add);
}

/* ---- the gradient of the weights ---- */

/* Output channels o .. o + rows - 1 of the gradient over images first .. end - 1. A unit that would reach past the last
 * channel begins earlier: the sum of a channel does not depend on its place in the unit. */
static void sum_unit(caller c, const fgt_conv *v, size_t n, const float *x, const float *dy, size_t o, size_t rows,
                     float *dw, bool add, float *work) {
    const pass *p = &v->onednn->pass[WEIGHT_GRAD];
    size_t each = (size_t)v->C * v->k * v->k, from = min(o, v->O - v->onednn->unit), plane = (size_t)v->Y * v->X;
    float *gradient = work, *sums = gradient + aligned(p->y.floats), *scratch = sums + aligned(p->w.floats);
    const float *read = read_images(c, &p->y, n, dy + from * plane, v->O * plane, gradient);
    run_conv(c, p, WEIGHT_GRAD, x, sums, read, scratch);
    if (rows == v->onednn->unit)
        copy(c, add ? p->w.add : p->w.write, &p->w.own, sums, &p->w.plain, dw);
    else {
        copy(c, p->w.write, &p->w.own, sums, &p->w.plain, scratch);
        for (size_t i = 0; i < rows * each; i++)
            dw[i] = (add ? dw[i] : 0.0f) + scratch[(o - from) * each + i];
    }
}

static void sum_images(caller c, const fgt_conv *v, size_t first, size_t end, const float *x, const float *dy,
                       fgt_conv_tile tile, float *work) {
    const pass *p = &v->onednn->pass[WEIGHT_GRAD];
    size_t x_image = (size_t)v->C * v->H * v->W, y_image = (size_t)v->O * v->Y * v->X;
    for (size_t i = first; i < end; i += p->images) {
        size_t n = min(p->images, end - i);
        const float *read = read_images(c, &p->x, n, x + i * x_image, x_image, work);
        for (size_t o = tile.o0; o < tile.o1; o += v->onednn->unit)
            sum_unit(c, v, n, read, dy + i * y_image, o, min(v->onednn->unit, tile.o1 - o),
                     tile.dw + (o - tile.o0) * v->C * v->k * v->k, i > first, work + aligned(p->x.floats));
    }
}

static void divide_images(fgt_graph *g, const fgt_conv *v, const float *x, const float *dy, fgt_conv_tile tile) {
    size_t count = (tile.o1 - tile.o0) * (size_t)v->C * v->k * v->k, sums = min(PARTIAL_SUMS, g->n);
    float *shared = fgt_work_shared(g);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++) {
        caller c = begin_calls(v->onednn->engine);
        for (size_t s = fgt_range_begin(sums, t, g->threads); s < fgt_range_begin(sums, t + 1, g->threads); s++) {
            fgt_conv_tile part = {tile.o0, tile.o1, s == 0 ? tile.dw : shared + (s - 1) * count};
            sum_images(c, v, g->n * s / sums, g->n * (s + 1) / sums, x, dy, part, fgt_work(g, t));
        }
        end_calls(c);
    }
    for (size_t s = 1; s < sums; s++)
        for (size_t i = 0; i < count; i++)
            tile.dw[i] += shared[(s - 1) * count + i];
}

static void divide_channels(fgt_graph *g, const fgt_conv *v, const float *x, const float *dy, fgt_conv_tile tile) {
    size_t unit = v->onednn->unit, rows = tile.o1 - tile.o0, units = (rows + unit - 1) / unit;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++) {
        size_t from = fgt_range_begin(units, t, g->threads) * unit;
        size_t to = min(fgt_range_begin(units, t + 1, g->threads) * unit, rows);
        fgt_conv_tile part = {tile.o0 + (uint32_t)from, tile.o0 + (uint32_t)to, tile.dw + from * v->C * v->k * v->k};
        caller c = begin_calls(v->onednn->engine);
        if (from < to)
            sum_images(c, v, 0, g->n, x, dy, part, fgt_work(g, t));
        end_calls(c);
    }
}

static void weight_grad(fgt_graph *g, const fgt_conv *v, const float *x, const float *dy, fgt_conv_tile tile) {
    (has_few_weights(v) ? divide_images : divide_channels)(g, v, x, dy, tile);
}

/* ---- selection ---- */

/* Images of a call, which have about so many pixels. */
static size_t images_of(const fgt_conv *v, size_t pixels, size_t images_max) {
    return max(1, min(images_max, pixels / ((size_t)v->Y * v->X)));
}

static void plan_images(fgt_graph *g, fgt_conv *v, pass_kind kind, dnnl_alg_kind_t how) {
    pass *p = &v->onednn->pass[kind];
    size_t share = (g->batch_max + (size_t)g->threads - 1) / (size_t)g->threads;
    conv_sizes s = sizes_of(v, images_of(v, CALL_PIXELS, share), v->O);
    if (!create_pass(v->onednn->engine, &s, kind, how, p))
        return;
    if (kind == FORWARD)
        v->run.forward = forward;
    else
        v->run.input_grad = input_grad;
    fgt_work_reserve(g, images_work(p));
    fgt_work_shared_reserve(g, p->w.floats);
}

static void plan_weights(fgt_graph *g, fgt_conv *v, dnnl_alg_kind_t how) {
    struct fgt_conv_onednn *d = v->onednn;
    pass *p = &d->pass[WEIGHT_GRAD];
    bool few = has_few_weights(v);
    size_t each = (size_t)v->C * v->k * v->k, parts = few ? PARTIAL_SUMS : 1;
    d->unit = min(v->O, OUT_UNIT);
    conv_sizes s = sizes_of(v, images_of(v, SUM_PIXELS, (g->batch_max + parts - 1) / parts), d->unit);
    if (!create_pass(d->engine, &s, WEIGHT_GRAD, how, p))
        return;
    v->run.weight_grad = weight_grad;
    fgt_work_reserve(g, images_work(p) + aligned(p->w.floats) + aligned(d->unit * each));
    fgt_work_shared_reserve(g, (parts - 1) * v->O * each);
}

/* Where it was faster (Xeon with AVX-512, and the same CPU limited to AVX2): Winograd's algorithm for 3 x 3 kernels,
 * which needs AVX-512; strides, but for the gradient of the weights; and that gradient for images of few channels. */
static void plan_passes(fgt_graph *g, fgt_conv *v) {
    bool winograd = v->k == 3 && v->stride == 1 && v->C % CHANNELS_MIN == 0 && v->O % CHANNELS_MIN == 0;
    bool strided = v->stride > 1 && v->O % LANES == 0;
    dnnl_alg_kind_t how = winograd ? dnnl_convolution_winograd : dnnl_convolution_direct;
    if (winograd || strided)
        plan_images(g, v, FORWARD, how);
    if (winograd || (strided && v->C % LANES == 0))
        plan_images(g, v, INPUT_GRAD, how);
    if (winograd || (v->C <= COLORS && v->O % LANES == 0))
        plan_weights(g, v, how);
}

void fgt_conv_onednn_plan(fgt_graph *g, fgt_conv *v) {
    v->onednn = v->direct ? calloc(1, sizeof *v->onednn) : NULL;
    if (!v->onednn)
        return;
    int threads = omp_get_max_threads();
    omp_set_num_threads(1); /* what a primitive does is divided among so many */
    if (dnnl_engine_create(&v->onednn->engine, dnnl_cpu, 0) == dnnl_success)
        plan_passes(g, v);
    omp_set_num_threads(threads);
}
