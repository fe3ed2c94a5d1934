/* optim_helpers.h - helpers of the optimizer tests: a layout with gaps, sparse gradients, optimizers in one call. */
#ifndef FRUG_TEST_OPTIM_HELPERS_H
#define FRUG_TEST_OPTIM_HELPERS_H

#include "support/assertions.h"

/* matrix (740 elements), a gap of 13, bias (300, one dimension), a gap of 5, big (3000). */
#define OPTIM_N      4058u
#define OPTIM_MATRIX 0u
#define OPTIM_BIAS   753u
#define OPTIM_BIG    1058u

static const char *const every_optimizer[] = {"sgd",
                                              "sgd:momentum=0,decay=0.1",
                                              "sgd:nesterov=1,coupled=1,decay=0.1,decay_all=1",
                                              "adamw",
                                              "merged",
                                              "merged:momentum=0,gain=2,decay=0.1",
                                              "adam-merged:beta2=0.95",
                                              "adam-merged:state=bf16,beta2=0.999",
                                              "adam-merged:state=f32,beta2=0.95,decay=0",
                                              "microadam",
                                              "microadam:window=3,entries=5,state=f32,decay=0.1",
                                              "sign:decay=0.1",
                                              "merged:inertia=0.5",
                                              "adam-merged:beta2=0.95,inertia=0.9"};

#define EVERY_OPTIMIZER (sizeof every_optimizer / sizeof *every_optimizer)

static inline void add_tensor(frug_layout *layout, const char *name, uint64_t offset, uint64_t rows, uint64_t cols) {
    frug_tensor t = FRUG_TENSOR_INIT;
    t.name = name;
    t.offset = offset;
    t.ndim = rows ? 2 : 1;
    t.shape[0] = rows ? rows : cols;
    t.shape[1] = cols;
    OK(frug_layout_add(layout, &t));
}

static inline frug_layout *layout_with_gaps(void) {
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    add_tensor(layout, "matrix", OPTIM_MATRIX, 20, 37);
    add_tensor(layout, "bias", OPTIM_BIAS, 0, 300);
    add_tensor(layout, "big", OPTIM_BIG, 30, 100);
    assert_int_equal(frug_layout_elements(layout), OPTIM_N);
    return layout;
}

/** An optimizer of the layout with gaps, with a compressor that compresses the two matrices. */
static inline frug_optimizer *optimizer_with_gaps(const char *text, const char *compressor_text) {
    frug_layout *layout = layout_with_gaps();
    frug_compressor *c = make_compressor(compressor_text, layout, NULL);
    frug_optimizer *o = NULL;
    if (frug_optimizer_create(text, layout, c, &o) != FRUG_OK)
        fail_msg("%s: %s", text, frug_last_error());
    frug_compressor_destroy(c);
    frug_layout_destroy(layout);
    return o;
}

static inline frug_optimizer *flat_optimizer(const char *text, uint64_t n) {
    frug_layout *layout = NULL;
    frug_optimizer *o = NULL;
    OK(frug_layout_flat(n, &layout));
    if (frug_optimizer_create(text, layout, NULL, &o) != FRUG_OK)
        fail_msg("%s: %s", text, frug_last_error());
    frug_layout_destroy(layout);
    return o;
}

/** A gradient of step t with one nonzero entry in `every`. */
static inline void sparse_gradient(float *g, size_t n, uint64_t t, unsigned every) {
    uint64_t state = t * 0x9e3779b97f4a7c15u + 77;
    for (size_t i = 0; i < n; i++) {
        float x = next_bell(&state);
        g[i] = next_random(&state) % every == 0 ? x : 0.0f;
    }
}

static inline unsigned char *save_optimizer(const frug_optimizer *o, size_t *len) {
    size_t size = frug_optimizer_state_size(o);
    unsigned char *bytes = test_malloc(size);
    OK(frug_optimizer_save(o, bytes, size, len));
    assert_int_equal(*len, size);
    return bytes;
}

#endif
