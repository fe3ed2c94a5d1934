/*
 * store.c - the four storage formats of a residual.
 *
 * Rounding at random wants one number per element, which a generator per element
 * would make the slowest part of a step. Instead a block draws one number, and its
 * elements use that number rotated along a Weyl sequence (multiples of the golden
 * ratio, modulo 1): each element's number is uniform by itself, and neighbours'
 * numbers are spread evenly, which even lowers the error of a block's sum.
 */
#include "feedback/store.h"

#include "common/bits.h"
#include "common/memory.h"
#include "common/status.h"

#include <stdbool.h>

#define SMALLEST_SCALE 0x0880u /* 2^-110: 65536 over it is finite */

/* The byte that means zero: int4 counts from -8. */
static int zero_byte(frugi_residual format) {
    return format == FRUGI_RESIDUAL_INT4 ? 0x88 : 0;
}

frug_status frugi_store_create(frugi_residual format, uint32_t block, uint64_t blocks, frugi_store *store) {
    frugi_store made = {.format = format, .block = block, .blocks = blocks};
    bool scaled = format == FRUGI_RESIDUAL_INT8 || format == FRUGI_RESIDUAL_INT4;
    size_t bytes = (size_t)blocks * frugi_store_stride(&made);
    made.data = frugi_alloc(bytes);
    made.scale = scaled ? frugi_alloc(blocks * sizeof *made.scale) : NULL;
    if (!made.data || (scaled && !made.scale)) {
        frugi_store_destroy(&made);
        return frugi_fail(FRUG_ERR_MEMORY, "compressor: no memory for %llu blocks of residual",
                          (unsigned long long)blocks);
    }
    memset(made.data, zero_byte(format), bytes);
    *store = made;
    return FRUG_OK;
}

void frugi_store_destroy(frugi_store *store) {
    free(store->data);
    free(store->scale);
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

static float largest_of(const float *x, uint32_t n) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m = frugi_magnitude(x[i]);
        most = m > most ? m : most;
    }
    return frugi_bits_f32(most);
}

/* Element i's share of the block's dice: sixteen bits. */
static inline uint32_t dice_at(uint32_t dice, uint32_t i) {
    return (dice + i * 0x9e3779b9u) >> 16;
}

/*
 * x / scale as a whole number, rounded at random, within -most .. most, plus 128. inverse is 65536 / scale: the
 * quotient is taken to sixteen binary places, the dice are added below the point, and what is below is cut off.
 */
static inline uint32_t roll(float x, float inverse, uint32_t dice, uint32_t i, uint32_t most) {
    uint32_t q = ((uint32_t)(int32_t)(x * inverse + 8388608.0f) + dice_at(dice, i)) >> 16;
    q = q > 128 + most ? 128 + most : q;
    return q < 128 - most ? 128 - most : q;
}

static void load_bf16(const unsigned char *data, uint32_t n, float *dst) {
    for (uint32_t i = 0; i < n; i++)
        dst[i] = frugi_bf16_f32(frugi_get16(data + 2 * i));
}

static void save_bf16(unsigned char *data, uint32_t n, const float *src, uint32_t dice) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t u = frugi_f32_bits(src[i]), r = (u + dice_at(dice, i)) >> 16;
        r = (r & 0x7fffu) >= 0x7f80u ? u >> 16 : r;
        frugi_put16(data + 2 * i, (uint16_t)r);
    }
}

static void load_int8(const signed char *data, uint32_t n, float scale, float *dst) {
    for (uint32_t i = 0; i < n; i++)
        dst[i] = (float)data[i] * scale;
}

static void save_int8(signed char *data, uint32_t n, const float *src, float inverse, uint32_t dice) {
    for (uint32_t i = 0; i < n; i++)
        data[i] = (signed char)(roll(src[i], inverse, dice, i, 127) - 128);
}

static void load_int4(const unsigned char *data, uint32_t n, float scale, float *dst) {
    for (uint32_t i = 0; i < n / 2; i++) {
        dst[2 * i] = (float)((int)(data[i] & 15u) - 8) * scale;
        dst[2 * i + 1] = (float)((int)(data[i] >> 4) - 8) * scale;
    }
}

static void save_int4(unsigned char *data, uint32_t n, const float *src, float inverse, uint32_t dice) {
    for (uint32_t i = 0; i < n / 2; i++) {
        uint32_t lo = roll(src[2 * i], inverse, dice, 2 * i, 7) - 120;
        uint32_t hi = roll(src[2 * i + 1], inverse, dice, 2 * i + 1, 7) - 120;
        data[i] = (unsigned char)(lo | hi << 4);
    }
}

void frugi_store_load(const frugi_store *store, uint64_t b, float *dst) {
    const unsigned char *data = store->data + b * frugi_store_stride(store);
    switch (store->format) {
    case FRUGI_RESIDUAL_F32: memcpy(dst, data, store->block * sizeof *dst); break;
    case FRUGI_RESIDUAL_BF16: load_bf16(data, store->block, dst); break;
    case FRUGI_RESIDUAL_INT8:
        load_int8((const signed char *)data, store->block, frugi_bf16_f32(store->scale[b]), dst);
        break;
    case FRUGI_RESIDUAL_INT4: load_int4(data, store->block, frugi_bf16_f32(store->scale[b]), dst); break;
    }
}

void frugi_store_save(frugi_store *store, uint64_t b, const float *src, uint32_t dice) {
    unsigned char *data = store->data + b * frugi_store_stride(store);
    if (store->format == FRUGI_RESIDUAL_F32) {
        memcpy(data, src, store->block * sizeof *src);
        return;
    }
    if (store->format == FRUGI_RESIDUAL_BF16) {
        save_bf16(data, store->block, src, dice);
        return;
    }
    float levels = store->format == FRUGI_RESIDUAL_INT8 ? 127.0f : 7.0f;
    uint16_t scale = frugi_f32_bf16_up(largest_of(src, store->block) / levels);
    if (scale < SMALLEST_SCALE) {
        store->scale[b] = 0;
        memset(data, zero_byte(store->format), frugi_store_stride(store));
        return;
    }
    store->scale[b] = scale;
    float inverse = 65536.0f / frugi_bf16_f32(scale);
    if (store->format == FRUGI_RESIDUAL_INT8)
        save_int8((signed char *)data, store->block, src, inverse, dice);
    else
        save_int4(data, store->block, src, inverse, dice);
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
