/* weight_mask.c - masks of parameters, and the packed buffer that they define. One pass over the bits for each call. */
#include "trainer/sparse/weight_mask.h"

#include "io/error.h"

#include <stdio.h>
#include <string.h>

static size_t elements_of(const fgt_param *p) {
    return p->rows * p->cols;
}

bool fgt_mask_is_for(const fgt_param *p) {
    return !p->frozen && p->tensor.ndim >= 2 && p->tensor.role != FRUG_ROLE_EMBEDDING;
}

size_t fgt_mask_bytes(const fgt_param *p) {
    return (elements_of(p) + 7) / 8;
}

void fgt_mask_apply(fgt_graph *g, float *weights) {
    uint64_t offset = 0;
    for (fgt_param *p = g->params; p; p = p->next) {
        size_t n = elements_of(p), kept = p->mask ? 0 : n;
        for (size_t i = 0; p->mask && i < n; i++) {
            bool bit = fgt_mask_bit(p->mask, i);
            kept += bit;
            if (!bit)
                p->w[i] = weights[p->tensor.offset + i] = 0;
        }
        p->packed_offset = offset;
        p->packed_count = p->frozen ? 0 : kept;
        offset += p->packed_count;
    }
}

uint64_t fgt_mask_packed(const fgt_graph *g) {
    return g->params_end ? g->params_end->packed_offset + g->params_end->packed_count : 0;
}

int fgt_mask_layout(const fgt_graph *g, frug_layout **layout) {
    frug_layout *made = NULL;
    frug_status status = frug_layout_create(&made);
    for (const fgt_param *p = g->params; p && status == FRUG_OK; p = p->next) {
        frug_tensor t = p->tensor;
        if (p->frozen)
            continue;
        t.offset = p->packed_offset;
        if (p->mask) { /* heads, rows and columns are gone */
            t.ndim = t.ndim < 2 ? 1 : 2;
            t.shape[0] = 1;
            t.shape[t.ndim - 1] = p->packed_count;
            t.heads = t.kv_heads = t.module = t.input_first = 0;
        }
        status = frug_layout_add(made, &t);
    }
    if (status != FRUG_OK) {
        frug_layout_destroy(made);
        return fgio_library_error("--sparse");
    }
    *layout = made;
    return FGIO_EXIT_OK;
}

const fgt_param *fgt_mask_next(const fgt_param *p) {
    do
        p = p->next;
    while (p && p->frozen);
    return p;
}

/* Adds the parameters from `first` on that share its bucket; *next: the one after them, or NULL. */
static frug_status add_joined(frug_layout *layout, const fgt_param *first, const fgt_param **next) {
    char name[160];
    frug_tensor t = FRUG_TENSOR_INIT;
    const fgt_param *last = first;
    for (*next = first; *next && (*next)->bucket == first->bucket; *next = fgt_mask_next(last))
        last = *next;
    snprintf(name, sizeof name, "%.72s...%.72s", first->tensor.name, last->tensor.name);
    t.name = name;
    t.role = FRUG_ROLE_LINEAR;
    t.ndim = 2;
    t.offset = first->packed_offset;
    t.shape[0] = 1;
    t.shape[1] = last->packed_offset + last->packed_count - first->packed_offset;
    return frug_layout_add(layout, &t);
}

int fgt_mask_layout_joined(const fgt_graph *g, frug_layout **layout) {
    frug_layout *made = NULL;
    frug_status status = frug_layout_create(&made);
    const fgt_param *p = g->params && g->params->frozen ? fgt_mask_next(g->params) : g->params;
    while (p && status == FRUG_OK)
        status = add_joined(made, p, &p);
    if (status != FRUG_OK) {
        frug_layout_destroy(made);
        return fgio_library_error("--sparse");
    }
    *layout = made;
    return FGIO_EXIT_OK;
}

void fgt_mask_pack(const fgt_param *p, const float *all, float *packed) {
    size_t n = elements_of(p), at = 0;
    if (!p->mask) {
        memmove(packed, all, n * sizeof *packed);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (fgt_mask_bit(p->mask, i))
            packed[at++] = all[i];
}

void fgt_mask_unpack(const fgt_param *p, const float *packed, float *all) {
    size_t n = elements_of(p), at = 0;
    if (!p->mask) {
        memcpy(all, packed, n * sizeof *all);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (fgt_mask_bit(p->mask, i))
            all[i] = packed[at++];
}

void fgt_mask_sources(const fgt_param *p, const uint8_t *before, uint64_t *source) {
    uint64_t number = 0, at = 0;
    for (size_t i = 0; i < elements_of(p); i++) {
        bool was = fgt_mask_bit(before, i);
        if (fgt_mask_bit(p->mask, i))
            source[at++] = was ? number : UINT64_MAX;
        number += was;
    }
}
