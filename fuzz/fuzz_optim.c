/*
 * fuzz_optim.c - untrusted texts of optimizers, and untrusted states for those that are created: the input is a text, a
 * line end, and bytes, used as a state unchanged and as the contents of one with a valid header and checksum. Then
 * steps from the restored state, and steps with the bytes as measurements: the state afterwards must be one that is
 * accepted again.
 */
#include "base/float_bits.h"
#include "base/crc32c.h"
#include "frugrad.h"

#include <stdlib.h>

#define N      1400u
#define HEADER 40u

static frug_layout *layout;
static frug_compressor *compressor;

static void add(const char *name, uint32_t ndim, uint64_t offset, uint64_t rows, uint64_t cols) {
    frug_tensor t = FRUG_TENSOR_INIT;
    t.name = name;
    t.ndim = ndim;
    t.offset = offset;
    t.shape[0] = rows;
    t.shape[1] = cols;
    if (frug_layout_add(layout, &t) != FRUG_OK)
        abort();
}

static void set_up(void) {
    frug_config *config = NULL;
    if (frug_layout_create(&layout) != FRUG_OK)
        abort();
    add("a", 2, 0, 30, 20);
    add("b", 1, 610, 90, 0);
    add("c", 2, 700, 7, 100);
    if (frug_config_create("min_size=1", &config) != FRUG_OK ||
        frug_compressor_create(config, layout, NULL, &compressor) != FRUG_OK)
        abort();
    frug_config_destroy(config);
}

/* No target has more than two measurements per element. */
static void feed_measured(frug_optimizer *o, const unsigned char *bytes, size_t len, float *weights) {
    static float measured[2 * N];
    for (uint64_t step = 3; len >= 4 && step < 6; step++) {
        uint64_t n = frug_optimizer_measure_count(o, step, (frug_range){0, N});
        if (n > 2 * N)
            abort();
        for (uint64_t i = 0; i < n; i++)
            memcpy(&measured[i], bytes + (4 * i + step) % (len - 3), 4);
        if (frug_optimizer_step_measured(o, step, (frug_range){0, N}, measured, 0.01, weights) != FRUG_OK)
            abort();
    }
}

static void feed(frug_optimizer *o, const unsigned char *bytes, size_t len) {
    static float grad[N], weights[N];
    if (frug_optimizer_restore(o, bytes, len) != FRUG_OK)
        return;
    for (size_t i = 0; i < N; i++)
        grad[i] = i % 16 == 3 ? (float)i * 1e-3f : 0.0f;
    for (uint64_t step = 0; step < 3; step++)
        if (frug_optimizer_step(o, step, (frug_range){0, N}, grad, 0.01, weights) != FRUG_OK)
            abort();
    feed_measured(o, bytes, len, weights);
    memset(weights, 0, sizeof weights);
}

/* Use a text that was accepted with the public functions. */
static void try_states(frug_optimizer *o, const unsigned char *bytes, size_t len) {
    frug_optimizer *again = NULL;
    size_t want = frug_optimizer_state_size(o), written = 0;
    if (frug_optimizer_create(frug_optimizer_text(o), layout, compressor, &again) != FRUG_OK)
        abort();
    feed(o, bytes, len);
    unsigned char *state = malloc(want);
    if (!state || frug_optimizer_save(o, state, want, &written) != FRUG_OK ||
        frug_optimizer_restore(again, state, want) != FRUG_OK) /* the text describes the same optimizer */
        abort();
    for (size_t i = HEADER; len && i < want; i++)
        state[i] = bytes[(i - HEADER) % len];
    frugi_put32(state + 12, 0);
    frugi_put32(state + 12, frugi_crc32c(0, state, want));
    feed(again, state, want);
    if (frug_optimizer_save(again, state, want, &written) != FRUG_OK ||
        frug_optimizer_restore(o, state, want) != FRUG_OK)
        abort();
    free(state);
    frug_optimizer_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const unsigned char *end = size ? memchr(data, '\n', size) : NULL;
    size_t len = end ? (size_t)(end - data) : size, rest = end ? size - len - 1 : 0;
    char *text = malloc(len + 1);
    frug_optimizer *o = NULL;
    if (!layout)
        set_up();
    if (!text)
        abort();
    if (len)
        memcpy(text, data, len);
    text[len] = '\0';
    if (frug_optimizer_create(text, layout, compressor, &o) == FRUG_OK)
        try_states(o, end ? end + 1 : data, rest);
    frug_optimizer_destroy(o);
    free(text);
    return 0;
}
