/*
 * optimizer_state.c - save and restore what an optimiser remembers: a header of 40 bytes, the arena as it is, and the
 * velocity where there is one. Little-endian. 0  "FGO1"   4 version u8 (1)   5 kind u8   6 state u8   7 velocity u8 (0
 * or 1)   8 window u16   10 entries u16 12 checksum u32 (this field zero)   16 layout hash u64   24 length u64   32
 * ways hash u64 The last one tells which tensors had which kind of state. Rates of decay may change between a run and
 * the next.
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
    FRUG_FAIL_IF(!o || !dst || !len, FRUG_ERR_ARG, "save: no optimizer, destination or place for the length");
    size_t size = frug_optimizer_state_size(o);
    FRUG_FAIL_IF(cap < size, FRUG_ERR_SHORT_BUFFER, "save: %zu bytes to write, room for %zu", size, cap);
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
    FRUG_FAIL_IF(len < HEADER || memcmp(src, "FGO1", 4) != 0, FRUG_ERR_FORMAT, "state: it does not begin with FGO1");
    FRUG_FAIL_IF(src[4] != VERSION, FRUG_ERR_VERSION, "state: format version %u, this library knows %u",
                 (unsigned)src[4], VERSION);
    FRUG_FAIL_IF(frugi_get64(src + 24) != len, FRUG_ERR_FORMAT, "state: its header says %llu bytes, there are %zu",
                 (unsigned long long)frugi_get64(src + 24), len);
    FRUG_FAIL_IF(frugi_get32(src + CRC_AT) != state_crc(src, len), FRUG_ERR_CHECKSUM,
                 "state: the checksum does not match; it was damaged");
    unsigned char want[HEADER];
    write_header(o, want);
    bool lasting = frugi_inertia_lasts(o);
    if (src[7] == 0 && !lasting) { /* it was let go, and will be here */
        want[7] = 0;
        frugi_put64(want + 24, HEADER + o->arena_bytes);
    }
    frugi_put32(want + CRC_AT, frugi_get32(src + CRC_AT));
    FRUG_FAIL_IF(memcmp(want, src, HEADER) != 0, FRUG_ERR_MISMATCH,
                 "state: it was made for another layout or optimizer, or other tensors travelled whole%s",
                 src[7] && !o->inertia.velocity ? ", or it has a velocity and this one none"
                 : !src[7] && lasting           ? ", or it has no velocity, and this one keeps a velocity for good"
                                                : "");
    return FRUG_OK;
}

/* No NaN and no infinity; numbers below 0 only where there may be some. */
static bool floats_are_sound(const unsigned char *src, uint64_t n, bool negative) {
    const uint32_t mask = negative ? FRUGI_ABS_MASK : UINT32_MAX;
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++)
        bad |= (frugi_get32(src + 4 * i) & mask) >= FRUGI_INF_BITS;
    return !bad;
}

/* Where the bytes of an arena's pointer are in a saved arena. */
static const unsigned char *in(const frug_optimizer *o, const unsigned char *arena, const void *pointer) {
    return arena + ((const unsigned char *)pointer - (const unsigned char *)o->arena);
}

frug_status frug_optimizer_restore(frug_optimizer *o, const void *src, size_t len) {
    FRUG_FAIL_IF(!o || !src, FRUG_ERR_ARG, "restore: no optimizer or no state");
    FRUG_TRY(check_header(o, src, len));
    const unsigned char *arena = (const unsigned char *)src + HEADER;
    bool finite = floats_are_sound(in(o, arena, o->momentum), o->used[FRUGI_WAY_MOMENTUM], true) &&
                  floats_are_sound(in(o, arena, o->sum), o->used[FRUGI_WAY_SUM], true) &&
                  floats_are_sound(in(o, arena, o->mean), o->used[FRUGI_WAY_ADAM], true) &&
                  floats_are_sound(in(o, arena, o->square), o->used[FRUGI_WAY_ADAM], false);
    FRUG_FAIL_IF(!finite, FRUG_ERR_FORMAT, "state: it holds a NaN, an infinity or a negative square");
    FRUG_FAIL_IF(!frugi_roots_are_sound(o, in(o, arena, o->root), in(o, arena, o->scale)), FRUG_ERR_FORMAT,
                 "state: it holds a root that no step leaves behind");
    FRUG_FAIL_IF(!frugi_window_is_sound(o, in(o, arena, o->value), in(o, arena, o->index), in(o, arena, o->count)),
                 FRUG_ERR_FORMAT, "state: it holds a list that no step leaves behind");
    FRUG_FAIL_IF(!frugi_targets_are_sound(o, arena), FRUG_ERR_FORMAT,
                 "state: it holds a number, a place or a share that no step leaves behind");
    const unsigned char *velocity = arena + o->arena_bytes;
    bool moving = len > HEADER + o->arena_bytes;
    FRUG_FAIL_IF(moving && !floats_are_sound(velocity, o->inertia.floats, true), FRUG_ERR_FORMAT,
                 "state: it holds a velocity that is a NaN or an infinity");
    memcpy(o->arena, arena, o->arena_bytes);
    if (moving)
        memcpy(o->inertia.velocity, velocity, velocity_bytes(o));
    else
        frugi_inertia_end(o);
    return FRUG_OK;
}
