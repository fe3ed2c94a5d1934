/*
 * microadam.c - the way of microadam (Modoranu et al., 2024): keep what arrived in the last steps as short lists, and
 * work both means out from them when they are needed.
 *
 * With the entries x_a that arrived a steps ago at a place, both means are weighted means over the window,
 *   m = sum (1-beta1) beta1^a x_a / (1 - beta1^T)    v = sum (1-beta2) beta2^a x_a^2 / (1 - beta2^T)
 * with T the steps that the window reaches back: step + 1 at first, then its length. So a window that holds all steps
 * is Adam exactly. (The paper divides by 1 - beta^(step+1) for good; with beta2 = 0.999 and a window of 10 that makes v
 * up to a hundred times too small.) Weights move where the window has an entry.
 *
 * Lists have room for `entries` per block of 256. If more arrive, all of them take part in the step in which they do,
 * and the largest are remembered: nothing that arrived is lost, only its echo.
 *
 * Step t writes to place t mod window, so where a list belongs need not be stored.
 */
#include "optim/optimizer.h"

#include "base/float_bits.h"
#include "select/block_select.h"

#include <math.h>

/* Number of a list: those of a block lie one after the other. */
static uint64_t list_of(const frug_optimizer *o, uint64_t block, uint64_t step, uint64_t age) {
    const uint64_t window = o->options.window;
    return block * window + (step % window + window - age) % window;
}

static float value_at(const unsigned char *value, uint64_t i, uint64_t state) {
    return state == FRUGI_STATE_F32 ? frugi_bits_f32(frugi_get32(value + 4 * i))
                                    : frugi_bf16_f32(frugi_get16(value + 2 * i));
}

/* Add what a list of `age` steps ago weighs in both sums. */
static void recall(const frug_optimizer *o, uint64_t list, uint64_t age, float *mean, float *square) {
    const uint64_t first = list * o->options.entries;
    const float weight1 = o->age1[age], weight2 = o->age2[age];
    for (uint64_t i = first; i < first + o->count[list]; i++) {
        float x = value_at(o->value, i, o->options.state);
        uint32_t at = o->index[i];
        mean[at] += weight1 * x;
        square[at] += weight2 * (x * x);
    }
}

/* Places of the non-zeros of a block, ascending; the largest ones if there are too many. */
static uint32_t places(const float *g, uint32_t n, uint32_t most, uint16_t *idx) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        idx[found] = (uint16_t)i;
        found += g[i] != 0;
    }
    if (found <= most)
        return found;
    frugi_select_ref(g, n, most, FRUGI_SELECT_EXACT, idx);
    return most;
}

/* The room behind the last entry is left as zeros, so that equal windows are equal bytes. */
static void remember(frug_optimizer *o, uint64_t list, const float *g, uint32_t n) {
    const uint32_t room = (uint32_t)o->options.entries;
    const size_t width = frugi_state_bytes(o->options.state);
    unsigned char *value = o->value + list * room * width;
    uint8_t *index = o->index + list * room;
    uint16_t idx[FRUGI_OPTIM_BLOCK];
    uint32_t found = places(g, n, room, idx);
    memset(value, 0, room * width);
    memset(index, 0, room);
    for (uint32_t i = 0; i < found; i++) {
        index[i] = (uint8_t)idx[i];
        if (width == 4)
            frugi_put32(value + 4 * i, frugi_f32_bits(g[idx[i]]));
        else
            frugi_put16(value + 2 * i, frugi_f32_bf16(g[idx[i]]));
    }
    o->count[list] = (uint8_t)found;
}

void frugi_move_window(frug_optimizer *o, const frugi_move *move, uint64_t block, float *restrict w,
                       const float *restrict g, uint32_t n, float keep) {
    const float rate = move->window_rate, root_gain = move->window_root, eps = move->eps;
    const float weight1 = o->age1[0], weight2 = o->age2[0];
    float mean[FRUGI_OPTIM_BLOCK] = {0}, square[FRUGI_OPTIM_BLOCK] = {0};
    for (uint64_t age = o->options.window - 1; age > 0; age--) /* at first, places not yet written to are empty */
        recall(o, list_of(o, block, move->step, age), age, mean, square);
    for (uint32_t i = 0; i < n; i++) {
        float m = mean[i] + weight1 * g[i], v = square[i] + weight2 * (g[i] * g[i]);
        w[i] = w[i] * keep - rate * (m / (sqrtf(v) * root_gain + eps));
    }
    remember(o, list_of(o, block, move->step, 0), g, n);
}

static bool list_is_sound(const unsigned char *index, uint32_t found, uint32_t len) {
    bool sound = found == 0 || index[found - 1] < len;
    for (uint32_t i = 1; i < found; i++)
        sound &= index[i - 1] < index[i];
    return sound;
}

bool frugi_window_is_sound(const frug_optimizer *like, const unsigned char *value, const unsigned char *index,
                           const unsigned char *count) {
    const uint64_t room = like->options.entries, window = like->options.window;
    bool sound = true;
    for (size_t p = 0; p < like->parts; p++) {
        const frugi_part *part = &like->part[p];
        uint64_t blocks = part->way == FRUGI_WAY_WINDOW ? (part->count - 1) / FRUGI_OPTIM_BLOCK + 1 : 0;
        for (uint64_t list = part->at * window; list < (part->at + blocks) * window; list++) {
            uint64_t left = part->count - (list / window - part->at) * FRUGI_OPTIM_BLOCK;
            uint32_t len = left < FRUGI_OPTIM_BLOCK ? (uint32_t)left : FRUGI_OPTIM_BLOCK;
            uint32_t found = count[list];
            if (found > room || !list_is_sound(index + list * room, found, len))
                return false;
            for (uint64_t i = list * room; i < list * room + found; i++)
                sound &= frugi_magnitude(value_at(value, i, like->options.state)) <= FRUGI_OPTIM_HELD;
        }
    }
    return sound;
}
