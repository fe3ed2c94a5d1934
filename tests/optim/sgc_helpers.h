/* sgc_helpers.h - helpers of the tests of whole-tensor optimizers: a small layout with roles, and every kind. */
#ifndef FRUG_TEST_SGC_HELPERS_H
#define FRUG_TEST_SGC_HELPERS_H

#include "optim/optim_helpers.h"

#include "optim/target.h"

#include <math.h>

/* q (24 x 50), a gap of 7, bias (50), v (60 x 20), k (20 x 30, stored input first), mlp (16 x 20). */
#define Q      0u
#define Q_N    1200u
#define BIAS   1207u
#define V      1257u
#define V_N    1200u
#define K      2457u
#define K_N    600u
#define MLP    3057u
#define MLP_N  320u
#define TUNE_N 3377u

static const char *const every_tuned[] = {"sgc:s=24",
                                          "sgc:s=24,kappa=8,matrix=explicit,method=batch,decay=0.1",
                                          "mesgc:s=24,c=8",
                                          "mesgc:s=32,c=8,adaptive=1,refresh=3,kappa=5",
                                          "mesgc:s=28,c=7,method=batch,others=adamw",
                                          "cesgc:s=16,c=2,rank=6,refresh=4,kappa=5",
                                          "cesgc:s=16,c=4,rank=6,refresh=4,kappa=5,adaptive=1,matrix=implicit",
                                          "table:s=24,c=8,kappa=2",
                                          "table:s=24,c=1,decay=0.1,targets=attention",
                                          "lora:rank=3,targets=attention",
                                          "lora:rank=2,decay=0.1,others=adamw",
                                          "galore:rank=5,refresh=4,decay=0.1",
                                          "apollo:rank=4,refresh=4",
                                          "apollo:rank=1,per=tensor,scale=8,decay=0.1"};

#define EVERY_TUNED (sizeof every_tuned / sizeof *every_tuned)

static inline void add_role(frug_layout *layout, const char *name, frug_role role, uint64_t offset, uint64_t rows,
                            uint64_t cols) {
    frug_tensor t = FRUG_TENSOR_INIT;
    t.name = name;
    t.role = role;
    t.offset = offset;
    t.ndim = rows ? 2 : 1;
    t.shape[0] = rows ? rows : cols;
    t.shape[1] = cols;
    t.input_first = role == FRUG_ROLE_ATTN_K;
    OK(frug_layout_add(layout, &t));
}

static inline frug_layout *target_layout(void) {
    frug_layout *layout = NULL;
    OK(frug_layout_create(&layout));
    add_role(layout, "layer.0.q", FRUG_ROLE_ATTN_Q, Q, 24, 50);
    add_role(layout, "layer.0.bias", FRUG_ROLE_BIAS, BIAS, 0, 50);
    add_role(layout, "layer.0.v", FRUG_ROLE_ATTN_V, V, 60, 20);
    add_role(layout, "layer.0.k", FRUG_ROLE_ATTN_K, K, 20, 30);
    add_role(layout, "layer.1.mlp", FRUG_ROLE_LINEAR, MLP, 16, 20);
    assert_int_equal(frug_layout_elements(layout), TUNE_N);
    return layout;
}

static inline frug_optimizer *target_optimizer(const char *text) {
    frug_layout *layout = target_layout();
    frug_optimizer *o = NULL;
    if (frug_optimizer_create(text, layout, NULL, &o) != FRUG_OK)
        fail_msg("%s: %s", text, frug_last_error());
    frug_layout_destroy(layout);
    return o;
}

/** One tensor "layer.0.q" of these dimensions. */
static inline frug_optimizer *single_optimizer(const char *text, uint64_t rows, uint64_t cols) {
    frug_layout *layout = NULL;
    frug_optimizer *o = NULL;
    OK(frug_layout_create(&layout));
    add_role(layout, "layer.0.q", FRUG_ROLE_ATTN_Q, 0, rows, cols);
    if (frug_optimizer_create(text, layout, NULL, &o) != FRUG_OK)
        fail_msg("%s: %s", text, frug_last_error());
    frug_layout_destroy(layout);
    return o;
}

/* ---- reference: tensors of D elements ---- */

#define D 2048u

/** AdamW on any gradient, in double. */
typedef struct adam {
    double m[D], v[D], w[D];
} adam;

static inline void adam_step(adam *a, const float *g, size_t n, uint64_t step, double rate) {
    double t = (double)step + 1;
    for (size_t i = 0; i < n; i++) {
        a->m[i] = 0.9 * a->m[i] + 0.1 * (double)g[i];
        a->v[i] = 0.999 * a->v[i] + 0.001 * (double)g[i] * (double)g[i];
        a->w[i] -= rate * a->m[i] / (1 - pow(0.9, t)) / (sqrt(a->v[i] / (1 - pow(0.999, t))) + 1e-8);
    }
}

#endif
