/*
 * microadam.c - update rule of microadam (Modoranu et al., 2024): store the entries of the last steps as short lists,
 * and compute both means from them when they are needed.
 *
 * With the entries x_a that arrived a steps ago at an index, both means are weighted means over the window,
 *   m = sum (1-beta1) beta1^a x_a / (1 - beta1^T)    v = sum (1-beta2) beta2^a x_a^2 / (1 - beta2^T)
 * where T is the number of steps in the window: step + 1 at first, then its length. So a window that covers all steps
 * is exactly Adam. (The paper always divides by 1 - beta^(step+1); with beta2 = 0.999 and a window of 10 that makes v
 * up to a hundred times too small.) Only weights with an entry in the window change.
 *
 * Lists have a capacity of `entries` per block of 256. If more entries arrive, all of them are used in that step, and
 * the largest are stored: no entry is lost, only its later contributions.
 *
 * Step t writes to slot t mod window, so the step of a list need not be stored.
 */
#include "optim/optimizer.h"

#include "base/float_bits.h"
#include "select/block_select.h"

#include <math.h>

/* Number of a list: those of a block are consecutive. */
static uint64_t list_number(const frug_optimizer *o, uint64_t block, uint64_t step, uint64_t age) {
    const uint64_t window = o->options.window;
    return block * window + (step % window + window - age) % window;
}

static float value_at(const unsigned char *value, uint64_t i, uint64_t state) {
    return state == FRUGI_STATE_F32 ? frugi_bits_f32(frugi_get32(value + 4 * i))
                                    : frugi_bf16_f32(frugi_get16(value + 2 * i));
}

/* Add the contributions of a list of `age` steps ago to both sums. */
static void add_list(const frug_optimizer *o, uint64_t list, uint64_t age, float *mean, float *square) {
    const uint64_t first = list * o->options.entries;
    const float weight1 = o->age_weight1[age], weight2 = o->age_weight2[age];
    for (uint64_t i = first; i < first + o->count[list]; i++) {
        float x = value_at(o->value, i, o->options.state);
        uint32_t at = o->index[i];
        mean[at] += weight1 * x;
        square[at] += weight2 * (x * x);
    }
}

/* Indices of the nonzeros of a block, ascending; of the largest ones if there are too many. */
static uint32_t nonzero_indices(const float *g, uint32_t n, uint32_t most, uint16_t *idx) {
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

/* Unused capacity is zeros, so that equal windows are equal bytes. */
static void store_list(frug_optimizer *o, uint64_t list, const float *g, uint32_t n) {
    const uint32_t capacity = (uint32_t)o->options.entries;
    const size_t width = frugi_state_bytes(o->options.state);
    unsigned char *value = o->value + list * capacity * width;
    uint8_t *index = o->index + list * capacity;
    uint16_t idx[FRUGI_OPTIM_BLOCK];
    uint32_t found = nonzero_indices(g, n, capacity, idx);
    memset(value, 0, capacity * width);
    memset(index, 0, capacity);
    for (uint32_t i = 0; i < found; i++) {
        index[i] = (uint8_t)idx[i];
        if (width == 4)
            frugi_put32(value + 4 * i, frugi_f32_bits(g[idx[i]]));
        else
            frugi_put16(value + 2 * i, frugi_f32_bf16(g[idx[i]]));
    }
    o->count[list] = (uint8_t)found;
}

void frugi_step_window(frug_optimizer *o, const frugi_step_args *args, uint64_t block, float *restrict w,
                       const float *restrict g, uint32_t n, float decay_factor) {
    const float rate = args->window_rate, root_gain = args->window_root, eps = args->eps;
    const float weight1 = o->age_weight1[0], weight2 = o->age_weight2[0];
    float mean[FRUGI_OPTIM_BLOCK] = {0}, square[FRUGI_OPTIM_BLOCK] = {0};
    for (uint64_t age = o->options.window - 1; age > 0; age--) /* slots that were not written yet are empty */
        add_list(o, list_number(o, block, args->step, age), age, mean, square);
    for (uint32_t i = 0; i < n; i++) {
        float m = mean[i] + weight1 * g[i], v = square[i] + weight2 * (g[i] * g[i]);
        w[i] = w[i] * decay_factor - rate * (m / (sqrtf(v) * root_gain + eps));
    }
    store_list(o, list_number(o, block, args->step, 0), g, n);
}

static bool list_is_valid(const unsigned char *index, uint32_t found, uint32_t len) {
    bool valid = found == 0 || index[found - 1] < len;
    for (uint32_t i = 1; i < found; i++)
        valid &= index[i - 1] < index[i];
    return valid;
}

bool frugi_window_is_valid(const frug_optimizer *like, const unsigned char *value, const unsigned char *index,
                           const unsigned char *count) {
    const uint64_t capacity = like->options.entries, window = like->options.window;
    bool valid = true;
    for (size_t p = 0; p < like->tensors; p++) {
        const frugi_optim_tensor *tensor = &like->tensor[p];
        uint64_t blocks = tensor->rule == FRUGI_UPDATE_WINDOW ? (tensor->count - 1) / FRUGI_OPTIM_BLOCK + 1 : 0;
        for (uint64_t list = tensor->at * window; list < (tensor->at + blocks) * window; list++) {
            uint64_t left = tensor->count - (list / window - tensor->at) * FRUGI_OPTIM_BLOCK;
            uint32_t len = left < FRUGI_OPTIM_BLOCK ? (uint32_t)left : FRUGI_OPTIM_BLOCK;
            uint32_t found = count[list];
            if (found > capacity || !list_is_valid(index + list * capacity, found, len))
                return false;
            for (uint64_t i = list * capacity; i < list * capacity + found; i++)
                valid &= frugi_magnitude(value_at(value, i, like->options.state)) <= FRUGI_OPTIM_GRAD_LIMIT;
        }
    }
    return valid;
}
