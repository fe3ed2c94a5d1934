/*
 * cuda_fixture.h - fixture of the GPU tests: data of several kinds, layouts with tails, gaps and dense tensors, and
 * workers with a CPU and a GPU compressor each, whose frames and states are compared.
 */
#ifndef FRUG_TEST_CUDA_FIXTURE_H
#define FRUG_TEST_CUDA_FIXTURE_H

#include "frugrad/cuda.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { WORKERS = 5, STEPS = 5 }; /* so that kernels that sum four frames at a time have a remainder */

/* FRUG_TEST_EVERY=n: test only every n-th configuration, with fewer steps and less data, for slow tools. */
static int config_stride = 1;
static uint64_t step_stride = 1, columns = 211;
static int compressing = WORKERS; /* workers that compress; the others send the same frames again */
/* Rows in layout 3. FRUG_TEST_LARGE: more of them, so that a warp of a large GPU has several blocks, too. */
static uint64_t tall_rows = 987;
static uint64_t rng_state = 1;

static uint32_t next_random(void) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 16);
}

static float uniform(void) {
    return ((float)(next_random() >> 8) + 0.5f) / 16777216.0f;
}

typedef enum data_kind { HEAVY, TIES, SPARSE, WILD, TINY, HUGE_ONES, KINDS } data_kind;

static float sample_value(data_kind k) {
    float u = uniform(), sign = next_random() & 1 ? 1.0f : -1.0f;
    switch (k) {
    case HEAVY: return sign * (u * u * u * u + 1e-3f * uniform()) / (0.01f + uniform());
    case TIES: return sign * (float)(next_random() % 5) * 0.25f;
    case SPARSE: return next_random() % 50 ? (next_random() & 1 ? 0.0f : -0.0f) : sign * u;
    case WILD: return next_random() % 700 == 0 ? NAN : next_random() % 700 == 0 ? sign * INFINITY : sign * u;
    case TINY: return sign * u * 1e-41f;
    default: return sign * u * 3.4e38f;
    }
}

static void *device_alloc(size_t bytes) {
    void *p = NULL;
    assert_int_equal(cudaMalloc(&p, bytes + 16), cudaSuccess);
    return p;
}

static void copy_to_device(void *to, const void *from, size_t bytes) {
    assert_int_equal(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
}

static void copy_from_device(void *to, const void *from, size_t bytes) {
    assert_int_equal(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
}

static void add_tensor(frug_layout *layout, const char *name, uint32_t ndim, uint64_t rows, uint64_t cols,
                       uint64_t offset) {
    frug_tensor t = FRUG_TENSOR_INIT;
    t.name = name;
    t.ndim = ndim;
    t.shape[0] = ndim == 1 ? rows * cols : rows;
    t.shape[1] = cols;
    t.offset = offset;
    assert_int_equal(frug_layout_add(layout, &t), FRUG_OK);
}

/*
 * Layouts with all kinds of tails, dense vectors, a gap, tensors that are not aligned to float4; more sections than one
 * launch takes; a tensor (3) of which a warp of the emulator has 64 consecutive blocks.
 */
static frug_layout *make_layout(int layout_number) {
    frug_layout *layout;
    char name[16];
    assert_int_equal(frug_layout_create(&layout), FRUG_OK);
    if (layout_number == 0) {
        add_tensor(layout, "a", 2, 64, 256, FRUG_APPEND);
        add_tensor(layout, "b", 1, 1, 77, FRUG_APPEND);
        add_tensor(layout, "c", 2, 37, 131, FRUG_APPEND);
        add_tensor(layout, "d", 2, 8, 129, 16384 + 77 + 4847 + 3);
        add_tensor(layout, "e", 2, 64, 300, FRUG_APPEND);
    } else if (layout_number == 3) {
        add_tensor(layout, "v", 1, 1, 77, FRUG_APPEND);
        add_tensor(layout, "a", 2, tall_rows, 263, FRUG_APPEND);
    } else {
        for (int i = 0; i < 60; i++) {
            snprintf(name, sizeof name, "t%d", i);
            add_tensor(layout, name, 2, layout_number == 1 ? 5 + (uint64_t)i % 9 : 5 + (uint64_t)i, columns,
                       FRUG_APPEND);
            snprintf(name, sizeof name, "v%d", i);
            add_tensor(layout, name, 1, 1, 3 + (uint64_t)i, FRUG_APPEND);
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

typedef struct cuda_fixture {
    const char *text;
    frug_layout *layout;
    uint64_t n;
    size_t capacity;
    worker w[WORKERS];
    float *grad, *gpu_grad, *dst, *gpu_dst;
    unsigned char *result;
} cuda_fixture;

static void setup_fixture(cuda_fixture *s, const char *text, int layout_number) {
    frug_config *config;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.total_steps = STEPS;
    s->text = text;
    s->layout = make_layout(layout_number);
    s->n = frug_layout_elements(s->layout);
    assert_int_equal(frug_config_create(text, &config), FRUG_OK);
    for (uint32_t i = 0; i < WORKERS; i++) {
        options.source = i;
        assert_int_equal(frug_compressor_create(config, s->layout, &options, &s->w[i].cpu), FRUG_OK);
        assert_int_equal(frug_cuda_create(config, s->layout, &options, &s->w[i].gpu), FRUG_OK);
        assert_int_equal(frug_cuda_bound(s->w[i].gpu, (frug_range){0, s->n}, &s->capacity), FRUG_OK);
        s->w[i].cpu_frame = calloc(1, s->capacity);
        s->w[i].gpu_frame = device_alloc(s->capacity);
    }
    frug_config_destroy(config);
    s->grad = malloc(s->n * sizeof(float));
    s->dst = malloc(s->n * sizeof(float));
    s->gpu_grad = device_alloc(s->n * sizeof(float));
    s->gpu_dst = device_alloc(s->n * sizeof(float));
    s->result = malloc(s->capacity > s->n * sizeof(float) ? s->capacity : s->n * sizeof(float));
}

static void teardown_fixture(cuda_fixture *s) {
    for (int i = 0; i < WORKERS; i++) {
        frug_compressor_destroy(s->w[i].cpu);
        frug_cuda_destroy(s->w[i].gpu);
        free(s->w[i].cpu_frame);
        cudaFree(s->w[i].gpu_frame);
    }
    frug_layout_destroy(s->layout);
    free(s->grad);
    free(s->dst);
    free(s->result);
    cudaFree(s->gpu_grad);
    cudaFree(s->gpu_dst);
}

static void compress_both(cuda_fixture *s, worker *w, uint64_t step, data_kind k) {
    size_t cpu_len, gpu_len;
    for (uint64_t i = 0; i < s->n; i++)
        s->grad[i] = sample_value(k);
    copy_to_device(s->gpu_grad, s->grad, s->n * sizeof(float));
    assert_int_equal(frug_compress(w->cpu, step, (frug_range){0, s->n}, s->grad, w->cpu_frame, s->capacity, &cpu_len),
                     FRUG_OK);
    assert_int_equal(
        frug_cuda_compress(w->gpu, step, (frug_range){0, s->n}, s->gpu_grad, w->gpu_frame, s->capacity, &gpu_len, NULL),
        FRUG_OK);
    assert_int_equal(cpu_len, gpu_len);
    copy_from_device(s->result, w->gpu_frame, gpu_len);
    for (size_t i = 48; i < gpu_len + 48; i++) { /* the checksum last: it differs whenever anything else does */
        size_t at = i % gpu_len;
        if (s->result[at] != w->cpu_frame[at])
            fail_msg("%s, step %d, data %d: byte %zu of %zu is %02x on the GPU, %02x on the CPU", s->text, (int)step,
                     (int)k, at, gpu_len, s->result[at], w->cpu_frame[at]);
    }
    w->len = gpu_len;
}

/* Compare residuals by copying the GPU's into the CPU compressor, and back. */
static void compare_states(cuda_fixture *s, worker *w) {
    size_t size = frug_compressor_state_size(w->cpu), len;
    unsigned char *cpu_state = malloc(size), *gpu_state = malloc(size);
    assert_int_equal(frug_compressor_save(w->cpu, cpu_state, size, &len), FRUG_OK);
    assert_int_equal(frug_cuda_to_host(w->gpu, w->cpu), FRUG_OK);
    assert_int_equal(frug_compressor_save(w->cpu, gpu_state, size, &len), FRUG_OK);
    assert_memory_equal(cpu_state, gpu_state, len);
    assert_int_equal(frug_cuda_from_host(w->gpu, w->cpu), FRUG_OK);
    free(cpu_state);
    free(gpu_state);
    (void)s;
}

#endif
