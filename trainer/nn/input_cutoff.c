/* input_cutoff.c - the counts are by the upper 15 bits of a magnitude, so that a cutoff is exact to 1 %. */
#include "trainer/nn/input_cutoff.h"

#include "base/float_bits.h"
#include "io/error.h"

#include <math.h>
#include <stdlib.h>

enum { KEYS = 1 << 15, KEY_SHIFT = 16 };

/* Dense weights, or int8 of which few are zero. */
static bool is_dense(const fgt_param *p) {
    frug_sparse_info info = {.struct_size = sizeof info};
    if (p->packed == NULL)
        return true;
    return frug_sparse_get_info(p->packed, &info) == FRUG_OK && info.code == FRUG_SPARSE_INT8 &&
           2 * info.entries > (uint64_t)p->rows * p->cols;
}

bool fgt_cutoffs_measure(fgt_graph *g) {
    for (fgt_param *p = g->params; p; p = p->next)
        if (p->packable && p->tensor.role != FRUG_ROLE_EMBEDDING && is_dense(p) &&
            (p->input_counts = calloc(KEYS, sizeof *p->input_counts)) == NULL)
            return false;
    return true;
}

void fgt_cutoff_count(const fgt_param *p, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        p->input_counts[frugi_magnitude(x[i]) >> KEY_SHIFT]++;
}

static float find_cutoff(const uint64_t *counts, double share) {
    uint64_t total = 0, below = 0;
    uint32_t key = 0;
    for (uint32_t i = 0; i < KEYS; i++)
        total += counts[i];
    for (; key + 1 < KEYS && (double)below < share * (double)total; key++)
        below += counts[key];
    return frugi_bits_f32(key << KEY_SHIFT);
}

void fgt_cutoffs_set(fgt_graph *g, double share) {
    for (fgt_param *p = g->params; p; p = p->next) {
        if (p->input_counts == NULL)
            continue;
        p->input_cutoff = find_cutoff(p->input_counts, share);
        free(p->input_counts);
        p->input_counts = NULL;
    }
}

static int pack_columns(fgt_param *p) {
    const bool input_first = p->tensor.input_first != 0, int8 = p->packed != NULL;
    const uint32_t outputs = (uint32_t)(input_first ? p->cols : p->rows),
                   inputs = (uint32_t)(input_first ? p->rows : p->cols);
    float *dense = int8 ? malloc(p->rows * p->cols * sizeof *dense) : NULL;
    frug_sparse *made = NULL;
    if (int8 && dense == NULL)
        return fgio_error("not enough memory for the weights of %s", p->tensor.name);
    if (int8)
        frug_sparse_unpack(p->packed, 0, outputs, dense);
    frug_status status = frug_sparse_create_columns(int8 ? dense : p->w, outputs, inputs, input_first && !int8,
                                                    int8 ? FRUG_SPARSE_INT8 : FRUG_SPARSE_F32, &made);
    free(dense);
    if (status != FRUG_OK)
        return fgio_library_error(p->tensor.name);
    frug_sparse_destroy(p->packed);
    p->packed = made;
    return FGIO_EXIT_OK;
}

int fgt_cutoffs_pack(fgt_graph *g) {
    int status = FGIO_EXIT_OK;
    for (fgt_param *p = g->params; p && status == FGIO_EXIT_OK; p = p->next)
        if (p->input_cutoff > 0.0f)
            status = pack_columns(p);
    return status;
}

void fgt_cutoff_apply(float cutoff, const float *x, size_t n, float *dst) {
    for (size_t i = 0; i < n; i++)
        dst[i] = fabsf(x[i]) < cutoff ? 0.0f : x[i];
}
