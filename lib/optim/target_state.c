/*
 * target_state.c - the states of whole tensors in the arena, and whether saved ones are sound: nothing is taken that no
 * step could have left behind.
 */
#include "optim/target.h"

#include "base/float_bits.h"

size_t frugi_targets_arrange(frugi_targets *all, unsigned char *at) {
    size_t used = 0;
    if (!all)
        return 0;
#define TAKE(pointer, bytes) ((pointer) = (void *)(at ? at + used : NULL), used += (size_t)(bytes))
    TAKE(all->mean, 4 * all->moments);
    TAKE(all->square, 4 * all->moments);
    TAKE(all->basis, 4 * all->bases);
    TAKE(all->wide, 4 * all->wides);
    TAKE(all->narrow, 2 * all->narrows);
    TAKE(all->level, all->levels);
#undef TAKE
    return used;
}

void frugi_targets_begin(frug_optimizer *o) {
    for (size_t i = 0; o->targets && o->options.kind == FRUGI_OPTIM_LORA && i < o->targets->count; i++)
        frugi_lora_begin(o, &o->targets->target[i]);
}

/* The whole of s is shared out, or nothing yet; no chunk has more than it may. */
static bool levels_are_sound(const frugi_tuned *t, uint64_t s, const uint8_t *level) {
    uint64_t sum = 0;
    bool sound = true;
    for (uint32_t j = 0; j < t->c; j++) {
        sound &= level[j] <= t->levels;
        sum += (uint64_t)level[j] * t->unit;
    }
    return sound && (sum == s || sum == 0);
}

/* Magnitudes below a bound, and numbers below 0 only where there may be some. */
static bool floats_are_sound(const unsigned char *x, uint64_t n, bool negative, uint32_t bound) {
    const uint32_t mask = negative ? FRUGI_ABS_MASK : UINT32_MAX;
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++)
        bad |= (frugi_get32(x + 4 * i) & mask) >= bound;
    return !bad;
}

/* arena: the bytes of a saved arena, aligned as anything may be. Squares that were measured may be below zero. */
bool frugi_targets_are_sound(const frug_optimizer *o, const unsigned char *arena) {
    const frugi_targets *all = o->targets;
    if (!all)
        return true;
#define IN(pointer) (arena + ((const unsigned char *)(pointer) - (const unsigned char *)o->arena))
    const unsigned char *mean = IN(all->mean), *square = IN(all->square);
    bool measured = o->options.s && o->options.kind != FRUGI_OPTIM_TABLE;
    const uint32_t large = measured ? FRUGI_TARGET_LARGE : FRUGI_INF_BITS;
    const uint32_t longest = o->options.kind == FRUGI_OPTIM_LORA     ? FRUGI_OPTIM_HELD
                             : o->options.kind == FRUGI_OPTIM_APOLLO ? FRUGI_INF_BITS
                                                                     : 0x3f810000u; /* 1 and rounding */
    bool sound = floats_are_sound(mean, all->moments, true, large) &&
                 floats_are_sound(square, all->moments, measured, large) &&
                 floats_are_sound(IN(all->basis), all->bases, o->options.kind != FRUGI_OPTIM_APOLLO, longest);
    for (size_t i = 0; i < all->count && sound; i++) {
        const frugi_tuned *t = &all->target[i];
        const unsigned char *index = t->wide ? IN(all->wide + t->index_at) : IN(all->narrow + t->index_at);
        if (o->options.kind == FRUGI_OPTIM_TABLE)
            sound = frugi_table_is_sound(t, mean + 4 * t->moment_at, square + 4 * t->moment_at, index);
        if (o->options.adaptive)
            sound = levels_are_sound(t, o->options.s, IN(all->level + t->level_at));
    }
#undef IN
    return sound;
}
