/*
 * master_weights.c - projections of the master. The decay of masked weights is SR-STE's (arXiv:2102.04010), decoupled
 * from the gradient.
 */
#include "trainer/sparse/master_weights.h"

#include "io/error.h"
#include "trainer/base/counted_alloc.h"
#include "trainer/nn/fake_quantize.h"
#include "trainer/sparse/mask_select.h"

#include <string.h>

static bool parse_bits(const char *text, uint32_t *bits) {
    *bits = strcmp(text, "int8") == 0 ? 8 : strcmp(text, "int4") == 0 ? 4 : 0;
    return *bits > 0;
}

int fgt_quantize_parse(const char *text, fgt_quantize_options *options) {
    static const char key[] = ":activations=";
    fgt_quantize_options o = {0};
    size_t length = strcspn(text, ":");
    char weights[8] = "";
    if (length < sizeof weights)
        memcpy(weights, text, length);
    bool more = text[length] != '\0', known = !more || strncmp(text + length, key, sizeof key - 1) == 0;
    if (!parse_bits(weights, &o.weights) || !known ||
        (more && !parse_bits(text + length + sizeof key - 1, &o.activations)))
        return fgio_usage_error(
            "--quantize: expected int8 or int4, and :activations=int8 or :activations=int4 behind it");
    *options = o;
    return FGIO_EXIT_OK;
}

static size_t largest_mask(const fgt_graph *g) {
    size_t most = 1;
    for (const fgt_param *p = g->params; p; p = p->next)
        most = fgt_mask_is_for(p) && fgt_mask_bytes(p) > most ? fgt_mask_bytes(p) : most;
    return most;
}

int fgt_master_begin(fgt_master *m) {
    const size_t bytes = (size_t)m->graph->elements * sizeof *m->weights;
    if (!m->bits && !m->nm) {
        fgt_master_free(m);
        return FGIO_EXIT_OK;
    }
    if (!m->weights) {
        m->weights = fgt_counted_alloc(FGT_USE_WEIGHTS, bytes);
        m->selected = fgt_counted_alloc(FGT_USE_WEIGHTS, largest_mask(m->graph));
        if (!m->weights || !m->selected)
            return fgio_error("not enough memory for a second copy of the weights");
        memcpy(m->weights, m->graph->weights, bytes);
    }
    fgt_master_project(m, 0);
    return FGIO_EXIT_OK;
}

void fgt_master_free(fgt_master *m) {
    fgt_counted_free(m->weights);
    fgt_counted_free(m->selected);
    m->weights = NULL;
    m->selected = NULL;
}

/* Masked weights are zero in the model, and decay in the master. */
static void project_n_of_m(fgt_master *m, fgt_param *p, float decay) {
    float *master = m->weights + p->tensor.offset;
    const fgt_group_rows rows = fgt_param_rows(p);
    memset(m->selected, 0, fgt_mask_bytes(p));
    fgt_select_n_of_m(&rows, master, m->nm->n, m->nm->m, m->selected);
    for (size_t i = 0; i < p->rows * p->cols; i++)
        if (!fgt_mask_bit(m->selected, i)) {
            p->w[i] = 0;
            master[i] *= decay;
        }
}

void fgt_master_project(fgt_master *m, double rate) {
    if (!m->weights)
        return;
    memcpy(m->graph->weights, m->weights, (size_t)m->graph->elements * sizeof *m->weights);
    for (fgt_param *p = m->graph->params; p; p = p->next) {
        if (!fgt_mask_is_for(p))
            continue;
        if (m->nm)
            project_n_of_m(m, p, (float)(1 - rate * m->nm->refine));
        if (m->bits)
            fgt_fake_quantize_weights(p, p->w, m->bits);
    }
}
