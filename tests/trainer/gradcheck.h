/*
 * gradcheck.h - checks an operation's backward pass against finite differences of its forward pass.
 *
 * The scalar is sum(out * R) for a fixed random R, summed in double; its derivative by every input and parameter (64
 * elements of each, spread evenly) is taken by central differences of fourth order and compared with that of
 * backward, relative to the largest entry of that tensor. The sink provides tiles full of NaN between guards, and
 * overwrites the weights of a tile as soon as it is closed, so that a backward function that reads them too late, does
 * not write all elements or writes beyond its tile is detected.
 *
 * Use: make a graph from fgt_op_input() values and the operation, then gradcheck_open(), gradcheck_run() with as many
 * batch sizes and tile heights as wanted, gradcheck_close().
 */
#ifndef FRUG_TEST_GRADCHECK_H
#define FRUG_TEST_GRADCHECK_H

#include "trainer/nn/graph.h"
#include "trainer/nn/ops.h"
#include "trainer/base/keyed_random.h"
#include "io/error.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GRADCHECK_GIVEN = 4, GRADCHECK_OPEN = 16, GRADCHECK_GUARD = 16, GRADCHECK_PROBES = 64 };

typedef struct gradcheck_tile {
    const fgt_param *p;
    size_t first;
    float *memory; /* guard, tile, guard */
} gradcheck_tile;

typedef struct gradcheck {
    fgt_sink sink; /* first: callbacks get a pointer to it */
    fgt_graph *g;
    fgt_value *given[GRADCHECK_GIVEN];
    float *kept[GRADCHECK_GIVEN]; /* their numbers: operations in place overwrite them */
    size_t givens;
    fgt_batch batch; /* n is set by each run; set the rest before it, where operations read it */
    float *r;        /* most x each of the output */
    float *weights;  /* a copy, since the sink overwrites them */
    float *grads;    /* of all parameters */
    gradcheck_tile open[GRADCHECK_OPEN];
    size_t closed; /* elements */
    float step;    /* of the differences; 0.02 unless set after gradcheck_open() */
    bool training; /* true unless set after gradcheck_open() */
} gradcheck;

static inline float gradcheck_number(uint64_t seed, uint64_t i) {
    return 2.0f * fgt_uniform(fgt_random(seed, FGT_STREAM_SAMPLE, i)) - 1.0f;
}

/* ---- the end of the graph: sum(x * R) ---- */

static inline void gradcheck_end_forward(fgt_graph *g, fgt_node *node) {
    const gradcheck *c = *(gradcheck **)node->state;
    for (size_t i = 0; i < g->n * node->in[0]->sample_size; i++)
        g->score.loss += (double)node->in[0]->data[i] * (double)c->r[i];
}

static inline void gradcheck_end_backward(fgt_graph *g, fgt_node *node) {
    const gradcheck *c = *(gradcheck **)node->state;
    bool add;
    float *grad = fgt_input_grad(node, 0, &add);
    for (size_t i = 0; grad && i < g->n * node->in[0]->sample_size; i++)
        grad[i] = (add ? grad[i] : 0.0f) + c->r[i];
}

/* ---- the sink ---- */

static inline float *gradcheck_tile_open(fgt_sink *sink, const fgt_param *p, size_t first) {
    gradcheck *c = (gradcheck *)sink;
    assert_true(first < p->rows);
    assert_int_equal(first % p->tile, 0);
    size_t count = fgt_tile_rows(p, first) * p->cols, i = 0;
    while (i < GRADCHECK_OPEN && c->open[i].p)
        i++;
    assert_true(i < GRADCHECK_OPEN);
    c->open[i] = (gradcheck_tile){p, first, malloc((count + 2 * GRADCHECK_GUARD) * sizeof(float))};
    assert_non_null(c->open[i].memory);
    for (size_t j = 0; j < count + 2 * GRADCHECK_GUARD; j++)
        c->open[i].memory[j] = NAN;
    return c->open[i].memory + GRADCHECK_GUARD;
}

static inline void gradcheck_tile_close(fgt_sink *sink, const fgt_param *p, size_t first) {
    gradcheck *c = (gradcheck *)sink;
    size_t count = fgt_tile_rows(p, first) * p->cols, i = 0;
    while (i < GRADCHECK_OPEN && !(c->open[i].p == p && c->open[i].first == first))
        i++;
    assert_true(i < GRADCHECK_OPEN); /* it was open */
    const float *memory = c->open[i].memory;
    for (size_t j = 0; j < GRADCHECK_GUARD; j++)
        assert_true(isnan(memory[j]) && isnan(memory[GRADCHECK_GUARD + count + j]));
    float *to = c->grads + p->tensor.offset + first * p->cols;
    for (size_t j = 0; j < count; j++) {
        assert_true(isnan(to[j])); /* given back once */
        to[j] = memory[GRADCHECK_GUARD + j];
        assert_true(!isnan(to[j])); /* all of it was written */
        p->w[first * p->cols + j] = NAN;
    }
    free(c->open[i].memory);
    c->open[i].p = NULL;
    c->closed += count;
}

/* ---- set up and down ---- */

/** Fills an input: uniform in (-1, 1), or, with `apart`, all different and none near 0, for functions with kinks. */
static inline void gradcheck_fill(gradcheck *c, size_t which, bool apart, uint64_t seed) {
    size_t count = c->g->batch_max * c->given[which]->sample_size;
    float *x = c->kept[which];
    for (size_t i = 0; i < count; i++)
        x[i] = apart ? 0.2f * ((float)i - (float)(count / 2) + 0.5f) : gradcheck_number(seed, i);
    for (size_t i = count; apart && i-- > 1;) { /* shuffled */
        size_t j = (size_t)(fgt_random(seed, FGT_STREAM_SHUFFLE, i) % (i + 1));
        float other = x[i];
        x[i] = x[j];
        x[j] = other;
    }
}

/** Takes ownership of a graph whose inputs all come from fgt_op_input(): adds the final sum, finishes it, draws all
 * numbers. */
static inline void gradcheck_open(gradcheck *c, fgt_graph *g, fgt_value *out, uint64_t seed) {
    static const fgt_op end = {.name = "end", .forward = gradcheck_end_forward, .backward = gradcheck_end_backward};
    *c = (gradcheck){.g = g, .step = 0.02f, .training = true};
    c->sink = (fgt_sink){gradcheck_tile_open, gradcheck_tile_close};
    for (fgt_node *node = g->first; node; node = node->next)
        if (strcmp(node->op->name, "given") == 0) {
            assert_true(c->givens < GRADCHECK_GIVEN);
            c->given[c->givens++] = node->out;
        }
    fgt_node *node = fgt_node_add(g, &end, out, 0, NULL, sizeof(gradcheck *));
    *(gradcheck **)node->state = c;
    assert_int_equal(fgt_graph_finish(g), FGIO_EXIT_OK);
    c->r = malloc(g->batch_max * out->sample_size * sizeof(float));
    c->weights = calloc((size_t)g->elements + 1, sizeof(float));
    c->grads = malloc(((size_t)g->elements + 1) * sizeof(float));
    assert_true(c->r && c->weights && c->grads);
    for (size_t i = 0; i < g->batch_max * out->sample_size; i++)
        c->r[i] = gradcheck_number(seed, i);
    for (const fgt_param *p = g->params; p;
         p = p->next) /* about 1 where the initial value is 1, about 0 for the others */
        for (size_t i = (size_t)p->tensor.offset; i < p->tensor.offset + p->rows * p->cols; i++)
            c->weights[i] = (p->init == FGT_INIT_ONE ? 1.0f : 0.0f) + 0.5f * gradcheck_number(seed + 1, i);
    for (size_t i = 0; i < c->givens; i++) {
        c->kept[i] = malloc(g->batch_max * c->given[i]->sample_size * sizeof(float));
        assert_non_null(c->kept[i]);
        gradcheck_fill(c, i, false, seed + 2 + i);
    }
}

static inline void gradcheck_close(gradcheck *c) {
    fgt_graph_destroy(c->g);
    for (size_t i = 0; i < c->givens; i++)
        free(c->kept[i]);
    free(c->r);
    free(c->weights);
    free(c->grads);
}

/* ---- the check ---- */

static inline double gradcheck_forward(gradcheck *c, uint32_t n) {
    c->batch.n = n;
    for (size_t i = 0; i < c->givens; i++)
        memcpy(c->given[i]->data, c->kept[i], n * c->given[i]->sample_size * sizeof(float));
    if (c->g->elements > 0)
        memcpy(c->g->weights, c->weights, (size_t)c->g->elements * sizeof(float));
    fgt_graph_forward(c->g, &c->batch, c->training);
    return c->g->score.loss;
}

/* The derivative of the scalar by one number. */
static inline double gradcheck_difference(gradcheck *c, uint32_t n, float *x) {
    static const float at[4] = {1, -1, 2, -2}, factor[4] = {8, -8, -1, 1};
    float was = *x;
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        *x = was + at[i] * c->step;
        sum += (double)factor[i] * gradcheck_forward(c, n);
    }
    *x = was;
    return sum / (12.0 * (double)c->step);
}

static inline void gradcheck_compare(gradcheck *c, uint32_t n, const char *name, float *x, const float *grad,
                                     size_t count, double tolerance) {
    double scale = 1e-3;
    for (size_t i = 0; i < count; i++) { /* without fmax(), which gcc 12 vectorizes badly */
        double size = fabs((double)grad[i]);
        scale = size > scale ? size : scale;
    }
    for (size_t probe = 0; probe < GRADCHECK_PROBES && probe < count; probe++) {
        size_t i = count <= GRADCHECK_PROBES ? probe : probe * (count - 1) / (GRADCHECK_PROBES - 1);
        double expected = gradcheck_difference(c, n, x + i), error = fabs((double)grad[i] - expected) / scale;
        if (!(error <= tolerance))
            fail_msg("%s[%zu], batch of %u: backward says %g, differences %g (largest entry %g)", name, i, n,
                     (double)grad[i], expected, scale);
    }
}

/** Runs backward over a batch of n with tiles of at most tile_rows rows (0: whole tensors); the gradients are in
 * c->grads. */
static inline void gradcheck_backward(gradcheck *c, uint32_t n, size_t tile_rows) {
    size_t elements = 0;
    for (fgt_param *p = c->g->params; p; p = p->next) {
        p->tile = tile_rows && p->tensor.ndim > 1 && tile_rows < p->rows ? tile_rows : p->rows;
        elements += p->rows * p->cols;
    }
    gradcheck_forward(c, n);
    for (size_t i = 0; i < c->g->elements; i++)
        c->grads[i] = NAN;
    c->closed = 0;
    fgt_graph_backward(c->g, &c->sink);
    assert_int_equal(c->closed, elements); /* every tile was given back */
}

/** Compare all gradients for a batch of n. tolerance: of an entry's error over the tensor's largest entry. */
static inline void gradcheck_run(gradcheck *c, uint32_t n, size_t tile_rows, double tolerance) {
    gradcheck_backward(c, n, tile_rows);
    float *grad[GRADCHECK_GIVEN] = {0};
    for (size_t i = 0; i < c->givens; i++) {
        if (!c->given[i]->grad)
            continue;
        grad[i] = malloc(n * c->given[i]->sample_size * sizeof(float));
        assert_non_null(grad[i]);
        memcpy(grad[i], c->given[i]->grad, n * c->given[i]->sample_size * sizeof(float));
    }
    for (size_t i = 0; i < c->givens; i++)
        if (grad[i])
            gradcheck_compare(c, n, "input", c->kept[i], grad[i], n * c->given[i]->sample_size, tolerance);
    for (const fgt_param *p = c->g->params; p; p = p->next)
        gradcheck_compare(c, n, p->tensor.name, c->weights + p->tensor.offset, c->grads + p->tensor.offset,
                          p->rows * p->cols, tolerance);
    for (size_t i = 0; i < c->givens; i++)
        free(grad[i]);
}

#endif
