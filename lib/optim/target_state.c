/*
 * target_state.c - states of targets in the arena, and validation of saved ones: a state that no step can produce is
 * refused.
 */
#include "optim/target.h"

#include "base/float_bits.h"

size_t frugi_targets_place_arena(frugi_optim_targets *all, uint64_t state, unsigned char *at) {
    size_t used = 0;
    if (!all)
        return 0;
#define PLACE(pointer, bytes) ((pointer) = (void *)(at ? at + used : NULL), used += (size_t)(bytes))
    PLACE(all->mean, 4 * all->moments);
    PLACE(all->square, 4 * all->moments);
    PLACE(all->basis, 4 * all->bases);
    PLACE(all->code, all->codes * FRUGI_OPTIM_BLOCK * frugi_state_bytes(state));
    PLACE(all->code_scale, state == FRUGI_STATE_INT8 ? 2 * all->codes : 0);
    PLACE(all->wide, 4 * all->wides);
    PLACE(all->narrow, 2 * all->narrows);
    PLACE(all->level, all->levels);
#undef PLACE
    return used;
}

void frugi_targets_init(frug_optimizer *o) {
    for (size_t i = 0; o->targets && o->options.kind == FRUGI_OPTIM_LORA && i < o->targets->count; i++)
        frugi_lora_init(o, &o->targets->target[i]);
}

/* All of s is assigned, or nothing yet; no chunk has more than its limit. */
static bool levels_are_valid(const frugi_optim_target *t, uint64_t s, const uint8_t *level) {
    uint64_t sum = 0;
    bool valid = true;
    for (uint32_t j = 0; j < t->c; j++) {
        valid &= level[j] <= t->levels;
        sum += (uint64_t)level[j] * t->unit;
    }
    return valid && (sum == s || sum == 0);
}

/* Magnitudes below a bound, and negative numbers only if allowed. */
static bool floats_are_valid(const unsigned char *x, uint64_t n, bool negative, uint32_t bound) {
    const uint32_t mask = negative ? FRUGI_ABS_MASK : UINT32_MAX;
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++)
        bad |= (frugi_get32(x + 4 * i) & mask) >= bound;
    return !bad;
}

/* arena: a saved arena, not aligned. Measured squares may be negative. */
bool frugi_targets_are_valid(const frug_optimizer *o, const unsigned char *arena) {
    const frugi_optim_targets *all = o->targets;
    if (!all)
        return true;
#define IN(pointer) (arena + ((const unsigned char *)(pointer) - (const unsigned char *)o->arena))
    const unsigned char *mean = IN(all->mean), *square = IN(all->square);
    bool measured = o->options.s && o->options.kind != FRUGI_OPTIM_TABLE;
    const uint32_t moment_limit = measured ? FRUGI_TARGET_STATE_LIMIT : FRUGI_INF_BITS;
    const uint32_t basis_limit = o->options.kind == FRUGI_OPTIM_LORA     ? FRUGI_OPTIM_GRAD_LIMIT
                                 : o->options.kind == FRUGI_OPTIM_APOLLO ? FRUGI_INF_BITS
                                                                         : 0x3f810000u; /* 1 and rounding */
    bool valid = floats_are_valid(mean, all->moments, true, moment_limit) &&
                 floats_are_valid(square, all->moments, measured, moment_limit) &&
                 floats_are_valid(IN(all->basis), all->bases, o->options.kind != FRUGI_OPTIM_APOLLO, basis_limit) &&
                 frugi_momentum_is_valid(o, IN(all->code), IN(all->code_scale));
    for (size_t i = 0; i < all->count && valid; i++) {
        const frugi_optim_target *t = &all->target[i];
        const unsigned char *index = t->wide ? IN(all->wide + t->index_at) : IN(all->narrow + t->index_at);
        if (o->options.kind == FRUGI_OPTIM_TABLE)
            valid = frugi_table_is_valid(t, mean + 4 * t->moment_at, square + 4 * t->moment_at, index);
        if (o->options.adaptive)
            valid = levels_are_valid(t, o->options.s, IN(all->level + t->level_at));
    }
#undef IN
    return valid;
}
