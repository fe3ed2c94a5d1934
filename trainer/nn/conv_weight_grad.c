/*
 * conv_weight_grad.c - the gradient of the weights of a direct convolution, by the kernel of the other passes.
 *
 * dw[o][ky][kx, c] is the sum over pixels of dy[o][pixel] * x[row of the pixel + ky][column of the pixel + kx][c].
 * Where the channels of an image are last in memory, the floats (kx, c) of a row of the kernel are contiguous: they are
 * vectors, and the sum over pixels stays in registers. So the kernel of kernels.h gets pixels for its taps, images for
 * its input channels, and output gradients, packed by pixel, for its weights. Images with few channels are written with
 * the rows of the kernel stacked, so that (kx, ky, c) are contiguous and few lanes of a vector are left over.
 *
 * Threads divide images where there are few weights, into a number of partial sums that depends on the batch alone, and
 * output channels where there are many. So no sum depends on the number of threads.
 */
#include "trainer/nn/conv.h"

#include "trainer/nn/parallel_ranges.h"

#include <string.h>

enum {
    LANES_MAX = 16,
    OUT_MAX = 8,               /* output channels of a tile */
    WIDTH_MAX = 48,            /* floats of the vectors of a tile */
    TAIL = 64,                 /* floats after the framed images, because vectors reach past their end */
    PIXELS_PER_LANE = 64,      /* of as many pixels as that by the lanes of a vector, a sum stays in registers */
    PARTIAL_SUMS_MAX = 8,      /* of a gradient of few weights */
    FEW_WEIGHTS_MAX = 1 << 16, /* maximum of weights of which there are partial sums */
    UNUSED = -1
};

typedef struct weight_pass {
    const fgt_conv *v;
    size_t stacked;    /* rows of the kernel that are stacked: all of them, or 1 */
    size_t depth;      /* floats of a framed column: its channels in the stacked rows */
    size_t row, image; /* floats of a framed row and of a framed image */
    size_t width;      /* vectors of a row of the kernel, or of all rows where they are stacked */
    size_t vectors;    /* of the whole kernel */
    size_t images;     /* that are framed together */
    size_t *tap;       /* of each output pixel: bytes from the begin of a framed image to its first input */
    size_t *pixel;     /* of each input pixel: floats from the begin of a framed image */
    int32_t *weight;   /* of each lane of the vectors: which weight of an output channel it is */
    float *framed, *packed;
} weight_pass;

static size_t max(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t min(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t ceil_div(size_t n, size_t by) {
    return (n + by - 1) / by;
}

/* So many that adding the sums costs little, and so few that their inputs stay in the cache for all output channels. */
static size_t most_pixels(const fgt_conv *v) {
    return (size_t)PIXELS_PER_LANE * v->direct->lanes;
}

static size_t out_tiles(const fgt_conv *v) {
    return ceil_div(v->O, v->direct->channels);
}

/* Sizes; the memory is set by use_work(). */
static weight_pass plan_pass(const fgt_conv *v) {
    size_t lanes = v->direct->lanes, k = v->k, pixels = (size_t)v->Y * v->X;
    bool stack = ceil_div(k * k * v->C, lanes) < k * ceil_div(k * v->C, lanes);
    weight_pass p = {.v = v, .stacked = stack ? k : 1};
    p.depth = p.stacked * v->C;
    p.row = max(v->pad + v->W, (v->X - 1) * v->stride + k) * p.depth;
    p.image = p.row * (stack ? v->Y : max(v->pad + v->H, (v->Y - 1) * v->stride + k));
    p.width = ceil_div(k * p.depth, lanes);
    p.vectors = k / p.stacked * p.width;
    p.images = max(1, most_pixels(v) / pixels);
    return p;
}

/* Divides the work space; returns how many floats it needs. */
static size_t use_work(weight_pass *p, float *work) {
    const fgt_conv *v = p->v;
    size_t framed = ceil_div(p->images * p->image + TAIL, LANES_MAX) * LANES_MAX;
    size_t packed = out_tiles(v) * v->direct->channels * p->images * v->Y * v->X;
    size_t taps = (size_t)v->Y * v->X, pixels = (size_t)v->H * v->W, size = sizeof(size_t) / sizeof(float);
    p->framed = work;
    p->packed = work + framed;
    p->tap = (size_t *)(void *)(p->packed + ceil_div(packed, LANES_MAX) * LANES_MAX);
    p->pixel = p->tap + taps;
    p->weight = (int32_t *)(void *)(p->pixel + pixels);
    return framed + ceil_div(packed, LANES_MAX) * LANES_MAX + (taps + pixels) * size + p->vectors * v->direct->lanes;
}

/* Fills the tables, and sets the zeros around the images. */
static void prepare_pass(const weight_pass *p) {
    const fgt_conv *v = p->v;
    size_t lanes = v->direct->lanes, kk = (size_t)v->k * v->k, run = v->k * p->depth;
    for (size_t i = 0; i < (size_t)v->Y * v->X; i++) {
        size_t down = i / v->X * (p->stacked > 1 ? 1 : v->stride);
        p->tap[i] = (down * p->row + i % v->X * v->stride * p->depth) * sizeof(float);
    }
    for (size_t i = 0; i < (size_t)v->H * v->W; i++)
        p->pixel[i] = (i / v->W + v->pad) * p->row + (i % v->W + v->pad) * p->depth;
    for (size_t i = 0; i < p->vectors * lanes; i++) {
        size_t at = i % (p->width * lanes), c = at % v->C, kx = at / p->depth;
        size_t ky = p->stacked > 1 ? at / v->C % v->k : i / (p->width * lanes);
        p->weight[i] = at < run ? (int32_t)(c * kk + ky * v->k + kx) : UNUSED;
    }
    memset(p->framed, 0, (p->images * p->image + TAIL) * sizeof(float));
}

/* ---- an image, and its output gradient, in the order of the kernel ---- */

static void frame_channels_last(const weight_pass *p, const float *x, float *to) {
    const fgt_conv_kernel *k = p->v->direct;
    size_t plane = (size_t)p->v->H * p->v->W, channels = p->v->C, lanes = k->lanes;
    size_t blocks = channels / lanes * lanes, whole = plane / lanes * lanes;
    for (size_t q = 0; q < whole; q += lanes)
        for (size_t c = 0; c < blocks; c += lanes) {
            float *at[LANES_MAX];
            for (size_t i = 0; i < lanes; i++)
                at[i] = to + p->pixel[q + i] + c;
            k->transpose(x + c * plane + q, plane, at);
        }
    for (size_t c = 0; c < channels; c++)
        for (size_t q = c < blocks ? whole : 0; q < plane; q++)
            to[p->pixel[q] + c] = x[c * plane + q];
}

/* Row y of the output has rows y stride .. y stride + k - 1 of the image in its columns. */
static void frame_stacked(const weight_pass *p, const float *x, float *to) {
    const fgt_conv *v = p->v;
    for (size_t y = 0; y < v->Y; y++)
        for (size_t ky = 0; ky < v->k; ky++) {
            size_t row = y * v->stride + ky - v->pad; /* above the image: wraps round to far below */
            for (size_t c = 0; row < v->H && c < v->C; c++) {
                const float *from = x + (c * v->H + row) * v->W;
                float *at = to + y * p->row + v->pad * p->depth + ky * v->C + c;
                for (size_t i = 0; i < v->W; i++)
                    at[i * p->depth] = from[i];
            }
        }
}

/* The output gradients of channels o .. o + rows - 1 of an image as [pixel][channels of the kernel]. */
static void pack_gradient(const weight_pass *p, const float *dy, size_t rows, float *to) {
    const fgt_conv_kernel *k = p->v->direct;
    size_t pixels = (size_t)p->v->Y * p->v->X, q = 0;
    for (; q + k->lanes <= pixels; q += k->lanes)
        k->pack(dy + q, pixels, rows, to + q * k->channels);
    for (; q < pixels; q++)
        for (size_t i = 0; i < k->channels; i++)
            to[q * k->channels + i] = i < rows ? dy[i * pixels + q] : 0.0f;
}

/* n images from x and dy on; of dy the output channels of the tile. */
static void prepare_images(const weight_pass *p, size_t n, const float *x, const float *dy, fgt_conv_tile tile) {
    const fgt_conv *v = p->v;
    size_t pixels = (size_t)v->Y * v->X, channels = v->direct->channels;
    for (size_t i = 0; i < n; i++) {
        (p->stacked > 1 ? frame_stacked : frame_channels_last)(p, x + i * v->C * v->H * v->W, p->framed + i * p->image);
        for (size_t o = tile.o0; o < tile.o1; o += channels)
            pack_gradient(p, dy + (i * v->O + o) * pixels, min(channels, tile.o1 - o),
                          p->packed + ((o - tile.o0) * p->images + i * channels) * pixels);
    }
}

/* ---- sums ---- */

/* Adds the sums of some vectors of one tile of output channels to the gradient, or begins them. */
static void add_sums(const fgt_conv_pixels *s, const float *sums, size_t lanes, const int32_t *weight, size_t each,
                     float *dw, bool first) {
    for (size_t i = 0; i < s->out; i++)
        for (size_t j = 0; j < s->vectors * lanes; j++)
            if (weight[j] != UNUSED) {
                float *to = dw + i * each + weight[j];
                *to = (first ? 0.0f : *to) + sums[i * s->y_plane + j];
            }
}

/* Whether the vectors have no unused lanes. Then the gradient is summed in the order of the vectors, (ky, kx, c), in
 * the memory where it belongs, and sorted at the end. */
static bool sums_in_place(const weight_pass *p) {
    return p->v->k * p->depth % p->v->direct->lanes == 0;
}

static void sort_sums(const weight_pass *p, fgt_conv_tile tile) {
    size_t each = (size_t)p->v->C * p->v->k * p->v->k;
    for (float *dw = tile.dw; sums_in_place(p) && dw < tile.dw + (tile.o1 - tile.o0) * each; dw += each) {
        memcpy(p->framed, dw, each * sizeof *dw); /* a framed image is not smaller */
        for (size_t i = 0; i < each; i++)
            dw[p->weight[i]] = p->framed[i];
    }
}

/* The sums over pixels `begin` .. `end` - 1 of n images. */
static void sum_pixels(const weight_pass *p, size_t n, size_t begin, size_t end, fgt_conv_tile tile, bool first) {
    const fgt_conv_kernel *k = p->v->direct;
    const bool in_place = sums_in_place(p);
    size_t pixels = (size_t)p->v->Y * p->v->X, each = (size_t)p->v->C * p->v->k * p->v->k;
    float sums[OUT_MAX * WIDTH_MAX];
    fgt_conv_pixels s = {.in = (uint32_t)n, .taps = (uint32_t)(end - begin), .plane = p->image, .tap = p->tap + begin};
    s.y_plane = in_place ? each : (size_t)k->vectors * k->lanes;
    s.add = in_place && !first;
    for (size_t at = 0; at < p->vectors; at += s.vectors) {
        s.vectors = fgt_conv_tile_vectors(k, p->vectors - at);
        for (size_t j = 0; j < s.vectors; j++)
            s.x[j] = p->framed + (at + j) / p->width * p->row + (at + j) % p->width * k->lanes;
        for (size_t o = tile.o0; o < tile.o1; o += k->channels) {
            float *dw = tile.dw + (o - tile.o0) * each;
            for (size_t j = 0; j < s.vectors; j++)
                s.y[j] = (in_place ? dw + at * k->lanes : sums) + j * k->lanes;
            s.w = p->packed + ((o - tile.o0) * p->images * pixels + begin * k->channels);
            s.out = (uint32_t)min(k->channels, tile.o1 - o);
            k->pixels(&s);
            if (!in_place)
                add_sums(&s, sums, k->lanes, p->weight + at * k->lanes, each, dw, first);
        }
    }
}

/* The gradient over images first .. end - 1, by one thread. */
static void sum_images(const weight_pass *p, size_t first, size_t end, const float *x, const float *dy,
                       fgt_conv_tile tile) {
    const fgt_conv *v = p->v;
    size_t pixels = (size_t)v->Y * v->X, most = max(most_pixels(v) / v->X, 1) * v->X;
    for (size_t i = first; i < end; i += p->images) {
        size_t n = min(p->images, end - i);
        prepare_images(p, n, x + i * v->C * v->H * v->W, dy + i * v->O * pixels, tile);
        for (size_t begin = 0; begin < pixels; begin += most)
            sum_pixels(p, n, begin, min(begin + most, pixels), tile, i == first && begin == 0);
    }
}

/* ---- threads ---- */

static size_t weight_count(const fgt_conv *v) {
    return (size_t)v->O * v->C * v->k * v->k;
}

static bool has_few_weights(const fgt_conv *v) {
    return weight_count(v) <= FEW_WEIGHTS_MAX;
}

size_t fgt_conv_direct_weight_work(const fgt_conv *v) {
    weight_pass p = plan_pass(v);
    return use_work(&p, NULL);
}

size_t fgt_conv_direct_weight_shared_work(const fgt_conv *v) {
    return has_few_weights(v) ? (PARTIAL_SUMS_MAX - 1) * weight_count(v) : 0;
}

static void divide_images(fgt_graph *g, const fgt_conv *v, const float *x, const float *dy, fgt_conv_tile tile) {
    size_t count = (tile.o1 - tile.o0) * (size_t)v->C * v->k * v->k, sums = 1;
    float *shared = fgt_work_shared(g);
    while (sums < PARTIAL_SUMS_MAX && 2 * sums <= g->n)
        sums *= 2;
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++) {
        weight_pass p = plan_pass(v);
        use_work(&p, fgt_work(g, t));
        prepare_pass(&p);
        for (size_t s = fgt_range_begin(sums, t, g->threads); s < fgt_range_begin(sums, t + 1, g->threads); s++) {
            fgt_conv_tile part = {tile.o0, tile.o1, s == 0 ? tile.dw : shared + (s - 1) * count};
            sum_images(&p, g->n * s / sums, g->n * (s + 1) / sums, x, dy, part);
        }
    }
    for (size_t s = 1; s < sums; s++)
        for (size_t i = 0; i < count; i++)
            tile.dw[i] += shared[(s - 1) * count + i];
    weight_pass p = plan_pass(v);
    use_work(&p, fgt_work(g, 0));
    sort_sums(&p, tile);
}

static void divide_channels(fgt_graph *g, const fgt_conv *v, const float *x, const float *dy, fgt_conv_tile tile) {
    size_t channels = v->direct->channels, tiles = ceil_div(tile.o1 - tile.o0, channels);
#pragma omp parallel for num_threads(g->threads) schedule(static)
    for (int t = 0; t < g->threads; t++) {
        size_t from = fgt_range_begin(tiles, t, g->threads) * channels;
        size_t to = min(fgt_range_begin(tiles, t + 1, g->threads) * channels, tile.o1 - tile.o0);
        fgt_conv_tile part = {tile.o0 + (uint32_t)from, tile.o0 + (uint32_t)to, tile.dw + from * v->C * v->k * v->k};
        weight_pass p = plan_pass(v);
        use_work(&p, fgt_work(g, t));
        prepare_pass(&p);
        if (from < to) {
            sum_images(&p, 0, g->n, x, dy, part);
            sort_sums(&p, part);
        }
    }
}

void fgt_conv_direct_weight_grad(fgt_graph *g, const fgt_conv *v, const float *x, const float *dy, fgt_conv_tile tile) {
    (has_few_weights(v) ? divide_images : divide_channels)(g, v, x, dy, tile);
}
