/* test_layouts.h - a layout with one tensor of every role, for tests of all methods. */
#ifndef FRUG_TEST_TEST_LAYOUTS_H
#define FRUG_TEST_TEST_LAYOUTS_H

#include "support/assertions.h"

static inline void test_layout_add(frug_layout *layout, const char *name, frug_role role, uint32_t ndim,
                                   const uint64_t *shape, uint32_t heads, uint32_t kv_heads, uint32_t module,
                                   uint32_t input_first) {
    frug_tensor t = FRUG_TENSOR_INIT;
    t.name = name;
    t.role = role;
    t.ndim = ndim;
    memcpy(t.shape, shape, ndim * sizeof *shape);
    t.heads = heads;
    t.kv_heads = kv_heads;
    t.module = module;
    t.input_first = input_first;
    OK(frug_layout_add(layout, &t));
}

#define TEST_SHAPE(...)                                                                                                \
    sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]) {                                               \
        __VA_ARGS__                                                                                                    \
    }

/** rows: of the embedding; 300 for a small layout, 3000 for one large enough for three threads. */
static inline frug_layout *make_test_layout(uint64_t rows) {
    frug_layout *z = NULL;
    OK(frug_layout_create(&z));
    test_layout_add(z, "embed", FRUG_ROLE_EMBEDDING, TEST_SHAPE(rows, 64), 0, 0, 0, 0);
    test_layout_add(z, "conv", FRUG_ROLE_CONV, TEST_SHAPE(32, 16, 3, 3), 0, 0, 0, 0);
    test_layout_add(z, "conv.bias", FRUG_ROLE_BIAS, TEST_SHAPE(32), 0, 0, 0, 0);
    test_layout_add(z, "q", FRUG_ROLE_ATTN_Q, TEST_SHAPE(64, 64), 8, 2, 1, 0);
    test_layout_add(z, "k", FRUG_ROLE_ATTN_K, TEST_SHAPE(16, 64), 8, 2, 1, 0);
    test_layout_add(z, "fc", FRUG_ROLE_LINEAR, TEST_SHAPE(121, 77), 0, 0, 0, 0);
    test_layout_add(z, "v", FRUG_ROLE_ATTN_V, TEST_SHAPE(16, 64), 8, 2, 1, 0);
    test_layout_add(z, "o", FRUG_ROLE_ATTN_O, TEST_SHAPE(64, 64), 8, 2, 1, 0);
    test_layout_add(z, "norm", FRUG_ROLE_NORM, TEST_SHAPE(64), 0, 0, 0, 0);
    test_layout_add(z, "c_attn", FRUG_ROLE_ATTN_QKV, TEST_SHAPE(64, 192), 4, 0, 2, 1);
    test_layout_add(z, "c_proj", FRUG_ROLE_ATTN_O, TEST_SHAPE(64, 64), 4, 0, 2, 1);
    test_layout_add(z, "scalar", FRUG_ROLE_OTHER, 0, (uint64_t[]){1}, 0, 0, 0, 0);
    test_layout_add(z, "odd", FRUG_ROLE_LINEAR, TEST_SHAPE(3, 5), 0, 0, 0, 0);
    return z;
}

/** Heavy-tailed gradients whose tensors differ in scale, so that rules which compare tensors have something to compare.
 */
static inline float *make_test_gradient(const frug_layout *z, uint64_t seed) {
    float *g = test_malloc((frug_layout_elements(z) + 1) * sizeof *g);
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < frug_layout_count(z); i++) {
        frug_tensor t = FRUG_TENSOR_INIT;
        OK(frug_layout_get(z, i, &t));
        uint64_t n = 1;
        for (uint32_t d = 0; d < t.ndim; d++)
            n *= t.shape[d];
        for (uint64_t e = 0; e < n; e++) {
            float x = next_float(&state);
            g[t.offset + e] = x * x * x * (float)(1 + i % 5);
        }
    }
    return g;
}

#endif
