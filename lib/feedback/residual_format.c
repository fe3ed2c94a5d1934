/*
 * residual_format.c - the four storage formats of a residual.
 *
 * Stochastic rounding needs one random number per element; generating each of them would be the slowest part of a step.
 * Instead one random number is drawn per block, and its elements use that number plus a Weyl sequence (multiples of the
 * golden ratio, modulo 1): each number is uniformly distributed, and those of adjacent elements are evenly spread,
 * which even reduces the error of the sum of a block.
 */
#include "feedback/residual_format.h"

#include "base/float_bits.h"
#include "base/alloc.h"
#include "base/status.h"

#include <stdbool.h>

/* The byte that represents zeros: int4 has an offset of 8. */
static int zero_byte(frugi_residual format) {
    return format == FRUGI_RESIDUAL_INT4 ? 0x88 : 0;
}

frug_status frugi_store_create(frugi_residual format, uint32_t block, uint64_t blocks, frugi_store *store) {
    frugi_store made = {
        .format = format, .block = block, .blocks = blocks, .kernel = frugi_residual_kernel_for(frugi_isa_chosen())};
    bool scaled = format == FRUGI_RESIDUAL_INT8 || format == FRUGI_RESIDUAL_INT4;
    size_t bytes = (size_t)blocks * frugi_store_stride(&made);
    made.data = frugi_alloc(bytes);
    made.scale = scaled ? frugi_alloc(blocks * sizeof *made.scale) : NULL;
    if (!made.data || (scaled && !made.scale)) {
        frugi_store_destroy(&made);
        return frugi_fail(FRUG_ERR_MEMORY, "compressor: out of memory for %llu blocks of residual",
                          (unsigned long long)blocks);
    }
    memset(made.data, zero_byte(format), bytes);
    *store = made;
    return FRUG_OK;
}

void frugi_store_destroy(frugi_store *store) {
    frugi_free(store->data);
    frugi_free(store->scale);
    store->data = NULL;
    store->scale = NULL;
}

size_t frugi_store_stride(const frugi_store *store) {
    switch (store->format) {
    case FRUGI_RESIDUAL_F32: return 4 * (size_t)store->block;
    case FRUGI_RESIDUAL_BF16: return 2 * (size_t)store->block;
    case FRUGI_RESIDUAL_INT8: return store->block;
    case FRUGI_RESIDUAL_INT4: return store->block / 2;
    }
    return 0;
}

size_t frugi_store_bytes(const frugi_store *store) {
    return (size_t)store->blocks * (frugi_store_stride(store) + (store->scale ? sizeof *store->scale : 0));
}

float *frugi_store_floats(const frugi_store *store, uint64_t b) {
    return (float *)(void *)(store->data + b * frugi_store_stride(store));
}

void frugi_store_load(const frugi_store *store, uint64_t b, float *dst) {
    const unsigned char *data = store->data + b * frugi_store_stride(store);
    bool large = frugi_store_has_large(store, b, 1);
    const frugi_residual_kernel *kernel = large ? &frugi_residual_kernel_ref : store->kernel;
    switch (store->format) {
    case FRUGI_RESIDUAL_F32: memcpy(dst, data, store->block * sizeof *dst); break;
    case FRUGI_RESIDUAL_BF16: kernel->load_bf16(data, store->block, dst); break;
    case FRUGI_RESIDUAL_INT8: kernel->load_int8(data, store->block, frugi_bf16_f32(store->scale[b]), dst); break;
    case FRUGI_RESIDUAL_INT4: kernel->load_int4(data, store->block, frugi_bf16_f32(store->scale[b]), dst); break;
    }
    if (large) /* stochastic rounding may have exceeded the largest float */
        for (uint32_t i = 0; i < store->block; i++)
            dst[i] = frugi_clamp_finite(dst[i]);
}

bool frugi_store_has_large(const frugi_store *store, uint64_t b, uint32_t blocks) {
    bool large = false;
    for (uint32_t i = 0; store->scale && i < blocks; i++)
        large |= store->scale[b + i] >= FRUGI_STORE_CLAMP_SCALE;
    return large;
}

/** The scales of a run of blocks: 0 for blocks that are stored as zeros. Compilers vectorize the loops over them. */
typedef struct run_scales {
    uint16_t scale[FRUGI_STORE_RUN];
    float inverse[FRUGI_STORE_RUN]; /* 32768 / scale; not finite where that is 0 */
} run_scales;

static run_scales compute_scales(const frugi_store *store, uint32_t blocks, const float *src) {
    float levels = store->format == FRUGI_RESIDUAL_INT8 ? FRUGI_INT8_LEVELS : FRUGI_INT4_LEVELS;
    float largest[FRUGI_STORE_RUN] = {0};
    run_scales run;
    for (uint32_t i = 0; i < blocks; i++)
        largest[i] = frugi_bits_f32(store->kernel->largest(src + (size_t)i * store->block, store->block));
    for (uint32_t i = 0; i < FRUGI_STORE_RUN; i++) {
        uint16_t scale = frugi_f32_bf16_up(largest[i] / levels);
        run.scale[i] = scale < FRUGI_STORE_MIN_SCALE ? 0 : scale;
    }
    for (uint32_t i = 0; i < FRUGI_STORE_RUN; i++)
        run.inverse[i] = 32768.0f / frugi_bf16_f32(run.scale[i]);
    return run;
}

static void save_scaled(frugi_store *store, uint64_t b, uint32_t blocks, const bool *skip, const float *src,
                        const uint32_t *random) {
    size_t stride = frugi_store_stride(store);
    run_scales run = compute_scales(store, blocks, src);
    void (*save)(unsigned char *, uint32_t, const float *, float, uint32_t) =
        store->format == FRUGI_RESIDUAL_INT8 ? store->kernel->save_int8 : store->kernel->save_int4;
    for (uint32_t i = 0; i < blocks; i++) {
        unsigned char *data = store->data + (b + i) * stride;
        if (skip[i])
            continue;
        store->scale[b + i] = run.scale[i];
        if (run.scale[i])
            save(data, store->block, src + (size_t)i * store->block, run.inverse[i], random[i]);
        else
            memset(data, zero_byte(store->format), stride);
    }
}

void frugi_store_save(frugi_store *store, uint64_t b, const float *src, uint32_t random) {
    const bool none = false;
    frugi_store_save_run(store, b, 1, &none, src, &random);
}

void frugi_store_save_run(frugi_store *store, uint64_t b, uint32_t blocks, const bool *skip, const float *src,
                          const uint32_t *random) {
    size_t stride = frugi_store_stride(store), block = store->block;
    unsigned char *data = store->data + b * stride;
    if (store->scale) {
        save_scaled(store, b, blocks, skip, src, random);
        return;
    }
    for (uint32_t i = 0; i < blocks; i++) {
        if (skip[i])
            continue;
        if (store->format == FRUGI_RESIDUAL_BF16)
            store->kernel->save_bf16(data + i * stride, store->block, src + i * block, random[i]);
        else
            memcpy(data + i * stride, src + i * block, stride);
    }
}

static size_t element_bytes(const frugi_store *store) {
    return (size_t)store->blocks * frugi_store_stride(store);
}

void frugi_store_export(const frugi_store *store, unsigned char *dst) {
    if (store->data)
        memcpy(dst, store->data, element_bytes(store));
    if (store->scale)
        memcpy(dst + element_bytes(store), store->scale, (size_t)store->blocks * sizeof *store->scale);
}

void frugi_store_import(frugi_store *store, const unsigned char *src) {
    if (store->data)
        memcpy(store->data, src, element_bytes(store));
    if (store->scale)
        memcpy(store->scale, src + element_bytes(store), (size_t)store->blocks * sizeof *store->scale);
}

int frugi_store_check(const frugi_store *like, const unsigned char *src) {
    uint64_t n = like->blocks * like->block;
    uint32_t bad = 0;
    if (like->scale)
        for (uint64_t b = 0; b < like->blocks; b++)
            bad |= frugi_get16(src + element_bytes(like) + 2 * b) >= 0x7f80u; /* negative, infinite or NaN */
    else if (like->format == FRUGI_RESIDUAL_F32)
        for (uint64_t i = 0; i < n; i++)
            bad |= (frugi_get32(src + 4 * i) & FRUGI_ABS_MASK) >= FRUGI_INF_BITS;
    else
        for (uint64_t i = 0; i < n; i++)
            bad |= (frugi_get16(src + 2 * i) & 0x7fffu) >= 0x7f80u;
    return !bad;
}
