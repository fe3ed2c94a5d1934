/* checkpoint_helpers.h - shared by the tests of checkpoints: a small model, a worker's state, a temporary directory. */
#ifndef FRUG_TEST_CHECKPOINT_HELPERS_H
#define FRUG_TEST_CHECKPOINT_HELPERS_H

#include "io/error.h"
#include "io/files.h"
#include "trainer/checkpoint/checkpoint.h"
#include "support/stderr_capture.h"
#include "trainer/base/counted_alloc.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct sample_state {
    fgt_checkpoint_state state;
    frug_layout *layout;
} sample_state;

/** Two matrices, a bias and running statistics; numbers by the seed. NULL without memory. No cmocka: for threads. */
static inline fgt_graph *sample_graph(uint64_t seed) {
    fgt_graph *g = fgt_graph_create(1, 1);
    uint64_t random = seed * 0x9e3779b97f4a7c15u + 1;
    if (!g)
        return NULL;
    fgt_param_add(g, "layer1.weight", FRUG_ROLE_LINEAR, 2, (const uint64_t[]){40, 50}, FGT_INIT_NORMAL, 0.1f);
    fgt_param_add(g, "layer1.bias", FRUG_ROLE_BIAS, 1, (const uint64_t[]){41}, FGT_INIT_ZERO, 0);
    fgt_param_add(g, "fc.weight", FRUG_ROLE_LINEAR, 2, (const uint64_t[]){10, 41}, FGT_INIT_NORMAL, 0.1f);
    fgt_buffer *b = fgt_buffer_add(g, "bn.running_mean", 5, 0.0f);
    g->weights = fgt_counted_alloc(FGT_USE_WEIGHTS, (size_t)g->elements * sizeof *g->weights);
    if (g->build_failed || !g->weights) {
        fgt_graph_destroy(g);
        return NULL;
    }
    for (fgt_param *p = g->params; p; p = p->next)
        p->w = g->weights + p->tensor.offset;
    fgt_graph_init(g, seed);
    for (size_t i = 0; i < b->count; i++)
        b->data[i] = next_float(&random);
    return g;
}

static inline void close_state(sample_state *s) {
    frug_optimizer_destroy(s->state.optimizer);
    frug_compressor_destroy(s->state.compressor);
    frug_layout_destroy(s->layout);
    fgt_graph_destroy(s->state.graph);
}

/** A worker with all its state; false, and nothing to close, where it cannot be created. */
static inline bool open_state(frug_comm *comm, uint64_t seed, const char *method, sample_state *s) {
    frug_config *config = NULL;
    frug_compressor_options options = FRUG_COMPRESSOR_OPTIONS_INIT;
    options.threads = 1;
    options.source = (uint32_t)frug_comm_rank(comm);
    *s = (sample_state){{.comm = comm, .graph = sample_graph(seed)}, NULL};
    bool good = s->state.graph && fgt_graph_layout(s->state.graph, &s->layout) == 0 &&
                frug_config_create(method, &config) == FRUG_OK &&
                frug_compressor_create(config, s->layout, &options, &s->state.compressor) == FRUG_OK &&
                frug_optimizer_create("sgd:momentum=0.9", s->layout, NULL, &s->state.optimizer) == FRUG_OK;
    frug_config_destroy(config);
    if (!good)
        close_state(s);
    return good;
}

/** A step without an exchange: it leaves a residual, and the optimizer has momentum. */
static inline bool step_alone(sample_state *s, uint64_t step, uint64_t seed) {
    static const size_t most = 1 << 16;
    size_t n = (size_t)s->state.graph->elements, len;
    float *grad = malloc(n * sizeof *grad);
    unsigned char *frame = malloc(most);
    uint64_t random = seed * 0x9e3779b97f4a7c15u + step + 1;
    bool good = grad && frame;
    for (size_t i = 0; i < n && good; i++)
        grad[i] = next_bell(&random);
    for (fgt_param *p = s->state.graph->params; p && good; p = p->next) {
        uint64_t begin = p->tensor.offset, count = p->rows * p->cols;
        good = frug_compress(s->state.compressor, step, (frug_range){begin, count}, grad + begin, frame, most, &len) ==
                   FRUG_OK &&
               frug_optimizer_step(s->state.optimizer, step, (frug_range){begin, count}, grad + begin, 0.01,
                                   s->state.graph->weights + begin) == FRUG_OK;
    }
    free(grad);
    free(frame);
    return good;
}

/** The whole residual. */
static inline bool residual_of(const sample_state *s, float *dst) {
    for (fgt_param *p = s->state.graph->params; p; p = p->next)
        if (frug_compressor_get_residual(s->state.compressor, (frug_range){p->tensor.offset, p->rows * p->cols},
                                         dst + p->tensor.offset) != FRUG_OK)
            return false;
    return true;
}

/** A new directory under $TMPDIR; remove_folder() removes it with all that is in it. */
static inline char *make_folder(char *path, size_t cap) {
    const char *tmp = getenv("TMPDIR");
    snprintf(path, cap, "%s/frugrad-test-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline size_t count_files(const char *folder, const char *prefix) {
    DIR *dir = opendir(folder);
    size_t count = 0;
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;)
        count += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    if (dir)
        closedir(dir);
    return count;
}

static inline void remove_folder(const char *folder) {
    char path[4096 + 256];
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            int len = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
            if (len < (int)sizeof path && unlink(path) != 0)
                remove_folder(path);
        }
    }
    if (dir)
        closedir(dir);
    rmdir(folder);
}

static inline void same_files(const char *a, const char *b, const char *what) {
    fgio_bytes x = {NULL, 0}, y = {NULL, 0};
    assert_int_equal(fgio_file_read(a, &x), FGIO_EXIT_OK);
    assert_int_equal(fgio_file_read(b, &y), FGIO_EXIT_OK);
    if (x.len != y.len || memcmp(x.data, y.data, x.len) != 0)
        fail_msg("%s: %s and %s differ", what, a, b);
    fgio_bytes_free(&x);
    fgio_bytes_free(&y);
}

#endif
