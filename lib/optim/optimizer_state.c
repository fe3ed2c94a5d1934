/*
 * optimizer_state.c - save and restore the state of an optimizer: a header of 40 bytes, the arena, and the velocity if
 * there is one. Little-endian.
 *
 *   0  "FGO1"         4 version u8 (1)   5 kind u8   6 state u8   7 velocity u8 (0 or 1)
 *   8  window u16    10 entries u16     12 checksum u32 (this field zero)
 *  16  layout hash u64   24 length u64   32 hash of update rules u64
 *
 * The last one identifies which tensors had which kind of state. Decay rates may change between runs.
 */
#include "optim/target.h"

#include "base/float_bits.h"
#include "base/crc32c.h"
#include "base/status.h"

#define HEADER  40u
#define VERSION 1u
#define CRC_AT  12u

static size_t velocity_bytes(const frug_optimizer *o) {
    return o->inertia.velocity ? (size_t)o->inertia.floats * sizeof *o->inertia.velocity : 0;
}

size_t frug_optimizer_state_size(const frug_optimizer *o) {
    return o ? HEADER + o->arena_bytes + velocity_bytes(o) : 0;
}

static void write_header(const frug_optimizer *o, unsigned char *h) {
    memset(h, 0, HEADER);
    memcpy(h, "FGO1", 4);
    h[4] = VERSION;
    h[5] = (unsigned char)o->options.kind;
    h[6] = (unsigned char)o->options.state;
    h[7] = o->inertia.velocity != NULL;
    frugi_put16(h + 8, (uint16_t)o->options.window);
    frugi_put16(h + 10, (uint16_t)o->options.entries);
    frugi_put64(h + 16, o->layout_hash);
    frugi_put64(h + 24, frug_optimizer_state_size(o));
    frugi_put64(h + 32, o->shape_hash);
}

static uint32_t state_crc(const unsigned char *state, size_t len) {
    unsigned char h[HEADER];
    memcpy(h, state, HEADER);
    frugi_put32(h + CRC_AT, 0);
    return frugi_crc32c(frugi_crc32c(0, h, HEADER), state + HEADER, len - HEADER);
}

frug_status frug_optimizer_save(const frug_optimizer *o, void *dst, size_t cap, size_t *len) {
    FRUG_FAIL_IF(!o || !dst || !len, FRUG_ERR_ARG, "save: null optimizer, destination or length pointer");
    size_t size = frug_optimizer_state_size(o);
    FRUG_FAIL_IF(cap < size, FRUG_ERR_SHORT_BUFFER, "save: the state has %zu bytes, the buffer only %zu", size, cap);
    unsigned char *out = dst;
    write_header(o, out);
    memcpy(out + HEADER, o->arena, o->arena_bytes);
    if (o->inertia.velocity)
        memcpy(out + HEADER + o->arena_bytes, o->inertia.velocity, velocity_bytes(o));
    frugi_put32(out + CRC_AT, state_crc(out, size));
    *len = size;
    return FRUG_OK;
}

static frug_status check_header(const frug_optimizer *o, const unsigned char *src, size_t len) {
    FRUG_FAIL_IF(len < HEADER || memcmp(src, "FGO1", 4) != 0, FRUG_ERR_FORMAT, "state: bad magic, expected FGO1");
    FRUG_FAIL_IF(src[4] != VERSION, FRUG_ERR_VERSION, "state: format version %u, this library knows %u",
                 (unsigned)src[4], VERSION);
    FRUG_FAIL_IF(frugi_get64(src + 24) != len, FRUG_ERR_FORMAT, "state: length %llu in the header, %zu given",
                 (unsigned long long)frugi_get64(src + 24), len);
    FRUG_FAIL_IF(frugi_get32(src + CRC_AT) != state_crc(src, len), FRUG_ERR_CHECKSUM,
                 "state: the checksum does not match; it was damaged");
    unsigned char expected[HEADER];
    write_header(o, expected);
    bool permanent = frugi_inertia_is_permanent(o);
    if (src[7] == 0 && !permanent) { /* it had been freed, and will be freed here */
        expected[7] = 0;
        frugi_put64(expected + 24, HEADER + o->arena_bytes);
    }
    frugi_put32(expected + CRC_AT, frugi_get32(src + CRC_AT));
    FRUG_FAIL_IF(memcmp(expected, src, HEADER) != 0, FRUG_ERR_MISMATCH,
                 "state: it belongs to another layout or optimizer, or other tensors were dense%s",
                 src[7] && !o->inertia.velocity ? ", or it has a velocity and this optimizer has none"
                 : !src[7] && permanent         ? ", or it has no velocity and this optimizer needs one"
                                                : "");
    return FRUG_OK;
}

/* No NaN and no infinity; negative numbers only if allowed. */
static bool floats_are_valid(const unsigned char *src, uint64_t n, bool negative) {
    const uint32_t mask = negative ? FRUGI_ABS_MASK : UINT32_MAX;
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++)
        bad |= (frugi_get32(src + 4 * i) & mask) >= FRUGI_INF_BITS;
    return !bad;
}

/* The address in a saved arena that corresponds to a pointer into the arena. */
static const unsigned char *saved_at(const frug_optimizer *o, const unsigned char *arena, const void *pointer) {
    return arena + ((const unsigned char *)pointer - (const unsigned char *)o->arena);
}

frug_status frug_optimizer_restore(frug_optimizer *o, const void *src, size_t len) {
    FRUG_FAIL_IF(!o || !src, FRUG_ERR_ARG, "restore: null optimizer or state");
    FRUG_TRY(check_header(o, src, len));
    const unsigned char *arena = (const unsigned char *)src + HEADER;
    bool finite = floats_are_valid(saved_at(o, arena, o->momentum), o->used[FRUGI_UPDATE_MOMENTUM], true) &&
                  floats_are_valid(saved_at(o, arena, o->sum), o->used[FRUGI_UPDATE_SUM], true) &&
                  floats_are_valid(saved_at(o, arena, o->mean), o->used[FRUGI_UPDATE_ADAM], true) &&
                  floats_are_valid(saved_at(o, arena, o->square), o->used[FRUGI_UPDATE_ADAM], false);
    FRUG_FAIL_IF(!finite, FRUG_ERR_FORMAT, "state: NaN, infinity or negative square");
    FRUG_FAIL_IF(!frugi_roots_are_valid(o, saved_at(o, arena, o->root), saved_at(o, arena, o->scale)), FRUG_ERR_FORMAT,
                 "state: invalid root");
    FRUG_FAIL_IF(!frugi_window_is_valid(o, saved_at(o, arena, o->value), saved_at(o, arena, o->index),
                                        saved_at(o, arena, o->count)),
                 FRUG_ERR_FORMAT, "state: invalid list");
    FRUG_FAIL_IF(!frugi_targets_are_valid(o, arena), FRUG_ERR_FORMAT, "state: invalid number, index or share");
    const unsigned char *velocity = arena + o->arena_bytes;
    bool has_velocity = len > HEADER + o->arena_bytes;
    FRUG_FAIL_IF(has_velocity && !floats_are_valid(velocity, o->inertia.floats, true), FRUG_ERR_FORMAT,
                 "state: NaN or infinity in the velocity");
    memcpy(o->arena, arena, o->arena_bytes);
    if (has_velocity)
        memcpy(o->inertia.velocity, velocity, velocity_bytes(o));
    else
        frugi_inertia_destroy(o);
    return FRUG_OK;
}
