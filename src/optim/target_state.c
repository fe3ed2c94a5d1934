/*
 * target_state.c - the states of whole tensors in the arena, whether saved ones are sound, and how a target moves: it
 * is looked at once, held back whole where a number is not to be used, and handed to its kind.
 */
#include "optim/target.h"

#include "common/bits.h"

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

/* ---- saved states -------------------------------------------------------- */

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

/* ---- moving -------------------------------------------------------------- */

void frugi_largest(frugi_target_work *work, const float *x, uint64_t len, uint32_t n, uint32_t *index, float *value) {
    const frugi_span span = {x, len};
    frugi_cutoff cut = frugi_whole_cutoff(work->whole, &span, 1, n, 1);
    frugi_whole_emit(work->whole, &span, &cut, index, value, 1);
}

static bool usable(const float *g, uint64_t n) {
    uint32_t most = 0;
    for (uint64_t at = 0; at < n && most < FRUGI_TARGET_HELD; at += 1u << 20) {
        uint32_t own = frugi_largest_magnitude(g + at, n - at < 1u << 20 ? (uint32_t)(n - at) : 1u << 20);
        most = own > most ? own : most;
    }
    return most < FRUGI_TARGET_HELD;
}

void frugi_target_move(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *g, float *w,
                       float keep) {
    const uint64_t n = (uint64_t)t->side.rows * t->side.cols;
    if (!usable(g, n))
        return;
    if (keep != 1.0f && o->options.s) /* the others decay in the same pass as they move */
        for (uint64_t i = 0; i < n; i++)
            w[i] *= keep;
    switch (o->options.kind) {
    case FRUGI_OPTIM_TABLE: frugi_move_table(o, move, t, g, w); break;
    case FRUGI_OPTIM_LORA: frugi_move_lora(o, move, t, g, w, keep); break;
    case FRUGI_OPTIM_GALORE: frugi_move_galore(o, move, t, g, w, keep); break;
    case FRUGI_OPTIM_APOLLO: frugi_move_apollo(o, move, t, g, w, keep); break;
    default: frugi_move_sketch(o, move, t, g, w); break;
    }
}
