/* layout.c - names, shapes and offsets of the tensors in a flat parameter buffer. */
#include "base/alloc.h"
#include "layout/layout.h"

#include "base/hash.h"
#include "base/status.h"
#include "base/struct_size.h"

#include <string.h>

#define ELEMENTS_MAX ((uint64_t)1 << 48)

static const char *const role_names[] = {"other",  "conv",   "linear", "embedding", "attn_q",  "attn_k",
                                         "attn_v", "attn_o", "norm",   "bias",      "attn_qkv"};

const char *frug_role_name(frug_role role) {
    return (unsigned)role < sizeof role_names / sizeof *role_names ? role_names[role] : NULL;
}

frug_status frug_layout_create(frug_layout **layout) {
    FRUG_FAIL_IF(!layout, FRUG_ERR_ARG, "layout: the result pointer is NULL");
    frug_layout *made = frugi_calloc(1, sizeof *made);
    FRUG_FAIL_IF(!made, FRUG_ERR_MEMORY, "layout: out of memory");
    *layout = made;
    return FRUG_OK;
}

void frug_layout_destroy(frug_layout *layout) {
    if (!layout)
        return;
    for (size_t i = 0; i < layout->count; i++)
        frugi_free((char *)layout->tensor[i].name);
    frugi_free(layout->tensor);
    frugi_free(layout);
}

/* Product of the dimensions, or more than ELEMENTS_MAX when it is too large. */
static uint64_t shape_elements(const frug_tensor *tensor) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        if (tensor->shape[d] && n > ELEMENTS_MAX / tensor->shape[d])
            return ELEMENTS_MAX + 1;
        n *= tensor->shape[d];
    }
    return n;
}

uint64_t frugi_tensor_elements(const frug_tensor *tensor) {
    return shape_elements(tensor);
}

static frug_status check_tensor(const frug_layout *layout, const frug_tensor *tensor, uint64_t offset) {
    FRUG_FAIL_IF(!tensor->name || !*tensor->name, FRUG_ERR_ARG, "layout: tensor %zu has no name", layout->count);
    FRUG_FAIL_IF(!frug_role_name(tensor->role), FRUG_ERR_ARG, "layout: tensor '%s' has unknown role %d", tensor->name,
                 (int)tensor->role);
    FRUG_FAIL_IF(tensor->ndim > FRUG_MAX_DIMS, FRUG_ERR_ARG, "layout: tensor '%s' has %u dimensions, the maximum is %d",
                 tensor->name, (unsigned)tensor->ndim, FRUG_MAX_DIMS);
    FRUG_FAIL_IF(offset < frug_layout_elements(layout), FRUG_ERR_ARG,
                 "layout: tensor '%s' overlaps the previous tensor", tensor->name);
    FRUG_FAIL_IF(offset > ELEMENTS_MAX || shape_elements(tensor) > ELEMENTS_MAX - offset, FRUG_ERR_ARG,
                 "layout: tensor '%s' extends beyond 2^48 elements", tensor->name);
    return FRUG_OK;
}

frug_status frug_layout_add(frug_layout *layout, const frug_tensor *added) {
    FRUG_FAIL_IF(!layout || !added, FRUG_ERR_ARG, "layout: layout or tensor is NULL");
    FRUG_FAIL_IF(!frugi_struct_valid(added), FRUG_ERR_ARG, "layout: initialize tensors with FRUG_TENSOR_INIT");
    frug_tensor full = FRUG_TENSOR_INIT, *tensor = &full;
    frugi_struct_read(tensor, added);
    uint64_t offset = tensor->offset == FRUG_APPEND ? frug_layout_elements(layout) : tensor->offset;
    FRUG_TRY(check_tensor(layout, tensor, offset));
    if (layout->count == layout->capacity) {
        size_t capacity = layout->capacity ? 2 * layout->capacity : 16;
        frug_tensor *grown = frugi_realloc(layout->tensor, capacity * sizeof *grown);
        FRUG_FAIL_IF(!grown, FRUG_ERR_MEMORY, "layout: out of memory");
        layout->tensor = grown;
        layout->capacity = capacity;
    }
    char *name = frugi_strdup(tensor->name);
    FRUG_FAIL_IF(!name, FRUG_ERR_MEMORY, "layout: out of memory");
    frug_tensor *slot = &layout->tensor[layout->count++];
    *slot = *tensor;
    slot->name = name;
    slot->offset = offset;
    return FRUG_OK;
}

frug_status frug_layout_flat(uint64_t n, frug_layout **layout) {
    FRUG_FAIL_IF(!layout, FRUG_ERR_ARG, "layout: the result pointer is NULL");
    frug_layout *made = NULL;
    FRUG_TRY(frug_layout_create(&made));
    frug_tensor tensor = FRUG_TENSOR_INIT;
    tensor.name = "flat";
    tensor.ndim = 2;
    tensor.shape[0] = 1;
    tensor.shape[1] = n;
    frug_status status = frug_layout_add(made, &tensor);
    if (status == FRUG_OK)
        *layout = made;
    else
        frug_layout_destroy(made);
    return status;
}

size_t frug_layout_count(const frug_layout *layout) {
    return layout ? layout->count : 0;
}

uint64_t frug_layout_elements(const frug_layout *layout) {
    if (!layout || !layout->count)
        return 0;
    const frug_tensor *last = &layout->tensor[layout->count - 1];
    return last->offset + frugi_tensor_elements(last);
}

frug_status frug_layout_get(const frug_layout *layout, size_t i, frug_tensor *tensor) {
    FRUG_FAIL_IF(!layout || !frugi_struct_valid(tensor), FRUG_ERR_ARG,
                 "layout: layout or tensor is NULL, or struct_size is not set");
    FRUG_FAIL_IF(i >= layout->count, FRUG_ERR_ARG, "layout: no tensor %zu, there are %zu", i, layout->count);
    frugi_struct_write(tensor, &layout->tensor[i]);
    return FRUG_OK;
}

frug_status frugi_layout_copy(const frug_layout *layout, frug_layout **copy) {
    frug_layout *made = NULL;
    FRUG_TRY(frug_layout_create(&made));
    for (size_t i = 0; i < layout->count; i++) {
        frug_status status = frug_layout_add(made, &layout->tensor[i]);
        if (status != FRUG_OK) {
            frug_layout_destroy(made);
            return status;
        }
    }
    *copy = made;
    return FRUG_OK;
}

/* Add a 64-bit number to a hash, byte by byte, little-endian. */
static uint64_t hash_u64(uint64_t hash, uint64_t number) {
    for (int i = 0; i < 8; i++, number >>= 8)
        hash = frugi_hash_word(hash, number & 255u);
    return hash;
}

uint64_t frug_layout_hash(const frug_layout *layout) {
    uint64_t hash = FRUGI_HASH_INIT;
    for (size_t i = 0; i < frug_layout_count(layout); i++) {
        const frug_tensor *t = &layout->tensor[i];
        hash = frugi_hash_text(hash, t->name);
        hash = hash_u64(hash_u64(hash, t->offset), t->ndim);
        for (uint32_t d = 0; d < t->ndim; d++)
            hash = hash_u64(hash, t->shape[d]);
        hash = t->absent ? hash_u64(hash, UINT64_MAX) : hash; /* no dimension of a tensor that has elements */
    }
    return hash;
}
