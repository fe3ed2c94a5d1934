/*
 * scene.h - what the tests of the GPU play with: numbers of several kinds, layouts with tails, gaps and dense tensors,
 * and some workers, each with a compressor on the CPU and one on the GPU, whose frames and states are compared.
 */
#ifndef FRUG_TEST_SCENE_H
#define FRUG_TEST_SCENE_H

#include "frugrad_cuda.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { WORKERS = 5, STEPS = 5 }; /* frames are added up four at a time, and one by one */

/* FRUG_TEST_EVERY: one configuration in so many, fewer steps and less data, for tools that slow everything down. */
static int every = 1;
static uint64_t stride = 1, columns = 211;
static uint64_t tall =
    1973; /* FRUG_TEST_LARGE: of layout 3 more, so that a warp of a large GPU has several blocks too */
static uint64_t state = 1;

static uint32_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

static float even(void) {
    return ((float)(draw() >> 8) + 0.5f) / 16777216.0f;
}

typedef enum kind { HEAVY, TIES, SPARSE, WILD, TINY, HUGE_ONES, KINDS } kind;

static float sample(kind k) {
    float u = even(), sign = draw() & 1 ? 1.0f : -1.0f;
    switch (k) {
    case HEAVY: return sign * (u * u * u * u + 1e-3f * even()) / (0.01f + even());
    case TIES: return sign * (float)(draw() % 5) * 0.25f;
    case SPARSE: return draw() % 50 ? (draw() & 1 ? 0.0f : -0.0f) : sign * u;
    case WILD: return draw() % 700 == 0 ? NAN : draw() % 700 == 0 ? sign * INFINITY : sign * u;
    case TINY: return sign * u * 1e-41f;
    default: return sign * u * 3.4e38f;
    }
}

static void *on_device(size_t bytes) {
    void *p = NULL;
    assert_int_equal(cudaMalloc(&p, bytes + 16), cudaSuccess);
    return p;
}

static void to_device(void *to, const void *from, size_t bytes) {
    assert_int_equal(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
}

static void from_device(void *to, const void *from, size_t bytes) {
    assert_int_equal(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
}

static void add(frug_layout *layout, const char *name, uint32_t ndim, uint64_t rows, uint64_t cols, uint64_t offset) {
    frug_tensor t = FRUG_TENSOR_INIT;
    t.name = name;
    t.ndim = ndim;
    t.shape[0] = ndim == 1 ? rows * cols : rows;
    t.shape[1] = cols;
    t.offset = offset;
    assert_int_equal(frug_layout_add(layout, &t), FRUG_OK);
}

/* Tails of every kind, vectors that travel whole, a gap, tensors at addresses no float4 can have; more slices than a
 * launch; a tensor (3) of which a warp of the emulator gets 64 blocks in a row. */
static frug_layout *make_layout(int which) {
    frug_layout *layout;
    char name[16];
    assert_int_equal(frug_layout_create(&layout), FRUG_OK);
    if (which == 0) {
        add(layout, "a", 2, 64, 256, FRUG_APPEND);
        add(layout, "b", 1, 1, 77, FRUG_APPEND);
        add(layout, "c", 2, 37, 131, FRUG_APPEND);
        add(layout, "d", 2, 8, 129, 16384 + 77 + 4847 + 3);
        add(layout, "e", 2, 64, 300, FRUG_APPEND);
    } else if (which == 3) {
        add(layout, "v", 1, 1, 77, FRUG_APPEND);
        add(layout, "a", 2, tall, 263, FRUG_APPEND);
    } else {
        for (int i = 0; i < 60; i++) {
            snprintf(name, sizeof name, "t%d", i);
            add(layout, name, 2, which == 1 ? 5 + (uint64_t)i % 9 : 5 + (uint64_t)i, columns, FRUG_APPEND);
            snprintf(name, sizeof name, "v%d", i);
            add(layout, name, 1, 1, 3 + (uint64_t)i, FRUG_APPEND);
        }
    }
    return layout;
}

typedef struct worker {
    frug_compressor *cpu;
    frug_cuda *gpu;
    unsigned char *cpu_frame, *gpu_frame;
    size_t len;
} worker;

typedef struct scene {
    const char *text;
    frug_layout *layout;
    uint64_t n;
    size_t room;
    worker w[WORKERS];
    float *grad, *gpu_grad, *dst, *gpu_dst;
    unsigned char *back;
} scene;

static void open_scene(scene *s, const char *text, int which) {
    frug_config *config;
    frug_options options = FRUG_OPTIONS_INIT;
    options.total_steps = STEPS;
    s->text = text;
    s->layout = make_layout(which);
    s->n = frug_layout_elements(s->layout);
    assert_int_equal(frug_config_create(text, &config), FRUG_OK);
    for (uint32_t i = 0; i < WORKERS; i++) {
        options.source = i;
        assert_int_equal(frug_compressor_create(config, s->layout, &options, &s->w[i].cpu), FRUG_OK);
        assert_int_equal(frug_cuda_create(config, s->layout, &options, &s->w[i].gpu), FRUG_OK);
        assert_int_equal(frug_cuda_bound(s->w[i].gpu, 0, s->n, &s->room), FRUG_OK);
        s->w[i].cpu_frame = calloc(1, s->room);
        s->w[i].gpu_frame = on_device(s->room);
    }
    frug_config_destroy(config);
    s->grad = malloc(s->n * sizeof(float));
    s->dst = malloc(s->n * sizeof(float));
    s->gpu_grad = on_device(s->n * sizeof(float));
    s->gpu_dst = on_device(s->n * sizeof(float));
    s->back = malloc(s->room > s->n * sizeof(float) ? s->room : s->n * sizeof(float));
}

static void close_scene(scene *s) {
    for (int i = 0; i < WORKERS; i++) {
        frug_compressor_destroy(s->w[i].cpu);
        frug_cuda_destroy(s->w[i].gpu);
        free(s->w[i].cpu_frame);
        cudaFree(s->w[i].gpu_frame);
    }
    frug_layout_destroy(s->layout);
    free(s->grad);
    free(s->dst);
    free(s->back);
    cudaFree(s->gpu_grad);
    cudaFree(s->gpu_dst);
}

static void compress_both(scene *s, worker *w, uint64_t step, kind k) {
    size_t cpu_len, gpu_len;
    for (uint64_t i = 0; i < s->n; i++)
        s->grad[i] = sample(k);
    to_device(s->gpu_grad, s->grad, s->n * sizeof(float));
    assert_int_equal(frug_compress(w->cpu, step, 0, s->n, s->grad, w->cpu_frame, s->room, &cpu_len), FRUG_OK);
    assert_int_equal(frug_cuda_compress(w->gpu, step, 0, s->n, s->gpu_grad, w->gpu_frame, s->room, &gpu_len, NULL),
                     FRUG_OK);
    assert_int_equal(cpu_len, gpu_len);
    from_device(s->back, w->gpu_frame, gpu_len);
    for (size_t i = 48; i < gpu_len + 48; i++) { /* the checksum last: it differs whenever anything does */
        size_t at = i % gpu_len;
        if (s->back[at] != w->cpu_frame[at])
            fail_msg("%s, step %d, data %d: byte %zu of %zu is %02x on the GPU, %02x on the CPU", s->text, (int)step,
                     (int)k, at, gpu_len, s->back[at], w->cpu_frame[at]);
    }
    w->len = gpu_len;
}

/* What was left behind, through a compressor on the CPU; put back as it was. */
static void compare_states(scene *s, worker *w) {
    size_t size = frug_compressor_state_size(w->cpu), len;
    unsigned char *mine = malloc(size), *other = malloc(size);
    assert_int_equal(frug_compressor_save(w->cpu, mine, size, &len), FRUG_OK);
    assert_int_equal(frug_cuda_to_host(w->gpu, w->cpu), FRUG_OK);
    assert_int_equal(frug_compressor_save(w->cpu, other, size, &len), FRUG_OK);
    assert_memory_equal(mine, other, len);
    assert_int_equal(frug_cuda_from_host(w->gpu, w->cpu), FRUG_OK);
    free(mine);
    free(other);
    (void)s;
}

#endif
