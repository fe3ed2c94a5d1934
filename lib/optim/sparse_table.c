/*
 * sparse_table.c - AdamW's means of selected entries as a table: (index, mean, mean square), in the bytes that the
 * measurements of mesgc would need.
 *
 * In every chunk the s largest entries of the gradient are selected. All entries of the table decay, the selected ones
 * are added, and if there are more than the capacity, those with the smallest mean that were not selected in this step
 * are evicted. As long as nothing is evicted this is exactly AdamW on the gradient reduced to the s largest entries of
 * every chunk: weights change at every entry of the table.
 *
 * Entries ascend by index. One whose means are both zero is dropped, so unused capacity is zeros after the last entry,
 * and no count is stored.
 */
#include "optim/target.h"

#include "base/float_bits.h"

#include <float.h>
#include <math.h>

static bool is_empty(float mean, float square) {
    return mean == 0 && square == 0;
}

static uint32_t get_index(const unsigned char *index, bool wide, uint64_t i) {
    return wide ? frugi_get32(index + 4 * i) : frugi_get16(index + 2 * i);
}

static void put_index(unsigned char *index, bool wide, uint64_t i, uint32_t value) {
    if (wide)
        frugi_put32(index + 4 * i, value);
    else
        frugi_put16(index + 2 * i, (uint16_t)value);
}

/* One chunk's range of the arena. */
typedef struct chunk {
    float *mean, *square;
    unsigned char *index;
    bool wide;
    uint32_t capacity;
} chunk;

static chunk get_chunk(frugi_optim_targets *all, const frugi_optim_target *t, uint32_t j) {
    uint64_t at = (uint64_t)j * t->capacity;
    chunk c = {.mean = all->mean + t->moment_at + at, .square = all->square + t->moment_at + at};
    c.wide = t->wide;
    c.capacity = t->capacity;
    c.index =
        t->wide ? (unsigned char *)(all->wide + t->index_at + at) : (unsigned char *)(all->narrow + t->index_at + at);
    return c;
}

/*
 * Merge the table, decayed, and the new entries into one ascending list: work->index, mean, square. The second half of
 * work->mean has the keys by which entries are compared; those that must not be evicted have FLT_MAX. Returns the
 * number of entries.
 */
static uint32_t merge_entries(const frugi_step_args *args, frugi_target_work *work, const chunk *c, uint32_t s) {
    float *rank = work->mean + c->capacity + s;
    uint32_t n = 0, i = 0, j = 0;
    for (;;) {
        bool more = i < c->capacity && !is_empty(c->mean[i], c->square[i]);
        if (!more && j == s)
            return n;
        uint32_t old_index = more ? get_index(c->index, c->wide, i) : UINT32_MAX;
        uint32_t new_index = j < s ? work->x.index[j] : UINT32_MAX, at = old_index < new_index ? old_index : new_index;
        float g = new_index == at ? work->x.value[j] : 0.0f;
        float m = old_index == at ? c->mean[i] : 0.0f, v = old_index == at ? c->square[i] : 0.0f;
        i += old_index == at;
        j += new_index == at;
        m = args->beta1 * m + args->one_minus_beta1 * g;
        v = args->beta2 * v + args->one_minus_beta2 * (g * g);
        if (is_empty(m, v))
            continue;
        work->index[n] = at;
        work->mean[n] = m;
        work->square[n] = v;
        rank[n++] = new_index == at ? FLT_MAX : m;
    }
}

/* Keep the entries with the largest keys, as many as the capacity. */
static uint32_t evict(frugi_target_work *work, const chunk *c, uint32_t s, uint32_t n) {
    const float *rank = work->mean + c->capacity + s;
    uint32_t *kept = work->index + c->capacity + s;
    if (n <= c->capacity)
        return n;
    const frugi_float_array span = {rank, n};
    frugi_cutoff cut = frugi_topk_cutoff(work->whole, &span, 1, c->capacity, 1);
    frugi_topk_emit(work->whole, &span, &cut, kept, NULL, 1);
    for (uint32_t i = 0; i < c->capacity; i++) {
        work->index[i] = work->index[kept[i]];
        work->mean[i] = work->mean[kept[i]];
        work->square[i] = work->square[kept[i]];
    }
    return c->capacity;
}

static void write_back(const frugi_target_work *work, const chunk *c, uint32_t n) {
    memset(c->mean, 0, c->capacity * sizeof *c->mean);
    memset(c->square, 0, c->capacity * sizeof *c->square);
    memset(c->index, 0, (size_t)c->capacity * (c->wide ? 4 : 2));
    memcpy(c->mean, work->mean, n * sizeof *c->mean);
    memcpy(c->square, work->square, n * sizeof *c->square);
    for (uint32_t i = 0; i < n; i++)
        put_index(c->index, c->wide, i, work->index[i]);
}

/* Entries that are evicted at a step are still applied in it. */
void frugi_step_table(frug_optimizer *o, const frugi_step_args *args, const frugi_optim_target *t, const float *g,
                      float *w) {
    frugi_target_work *work = &o->targets->work;
    const float rate = args->adam_rate * (float)o->options.scale;
    for (uint32_t j = 0; j < t->c; j++) {
        uint64_t from = frugi_chunk_begin(t, j);
        const chunk c = get_chunk(o->targets, t, j);
        frugi_select_largest(work, g + from, frugi_chunk_begin(t, j + 1) - from, t->s, work->x.index, work->x.value);
        frugi_phase_end(o->targets, FRUGI_PHASE_PROJECT);
        uint32_t n = merge_entries(args, work, &c, t->s);
        frugi_phase_end(o->targets, FRUGI_PHASE_RECOVER);
        for (uint32_t i = 0; i < n; i++)
            w[from + work->index[i]] -= rate * (work->mean[i] / (sqrtf(work->square[i]) * args->root_gain + args->eps));
        frugi_phase_end(o->targets, FRUGI_PHASE_APPLY);
        write_back(work, &c, evict(work, &c, t->s, n));
        frugi_phase_end(o->targets, FRUGI_PHASE_RECOVER);
    }
}

static float float_at(const unsigned char *x, uint64_t i) {
    return frugi_bits_f32(frugi_get32(x + 4 * i));
}

bool frugi_table_is_valid(const frugi_optim_target *t, const unsigned char *mean, const unsigned char *square,
                          const unsigned char *index) {
    for (uint32_t j = 0; j < t->c; j++) {
        uint64_t at = (uint64_t)j * t->capacity, end = at + t->capacity,
                 len = frugi_chunk_begin(t, j + 1) - frugi_chunk_begin(t, j);
        uint64_t i = at;
        for (; i < end && !is_empty(float_at(mean, i), float_at(square, i)); i++)
            if (get_index(index, t->wide, i) >= len ||
                (i > at && get_index(index, t->wide, i) <= get_index(index, t->wide, i - 1)))
                return false;
        for (; i < end; i++)
            if (!is_empty(float_at(mean, i), float_at(square, i)) || get_index(index, t->wide, i) != 0)
                return false;
    }
    return true;
}
