/*
 * sparse_table.c - the means of AdamW for the entries that matter, as a plain table: (place, mean, mean square), in the
 * bytes that the measurements of mesgc would take. Of every chunk the s largest entries of the gradient are taken; all
 * entries of the table decay, those taken are added, and if there are more than there is room for, those with the
 * smallest mean go that were not taken in this step. While nothing has to go this is AdamW on the gradient of which
 * only the s largest of every chunk are left, exactly: weights move at every entry of the table.
 *
 * Entries ascend by place. One whose means are both zero says nothing and is not kept, so unused room is zeros behind
 * the last entry, and needs no count.
 */
#include "optim/target.h"

#include "base/float_bits.h"

#include <float.h>
#include <math.h>

static bool unused(float mean, float square) {
    return mean == 0 && square == 0;
}

static uint32_t place_at(const unsigned char *index, bool wide, uint64_t i) {
    return wide ? frugi_get32(index + 4 * i) : frugi_get16(index + 2 * i);
}

static void put_place(unsigned char *index, bool wide, uint64_t i, uint32_t place) {
    if (wide)
        frugi_put32(index + 4 * i, place);
    else
        frugi_put16(index + 2 * i, (uint16_t)place);
}

/* One chunk's part of the arena. */
typedef struct chunk {
    float *mean, *square;
    unsigned char *index;
    bool wide;
    uint32_t room;
} chunk;

static chunk chunk_of(frugi_targets *all, const frugi_tuned *t, uint32_t j) {
    uint64_t at = (uint64_t)j * t->room;
    chunk c = {.mean = all->mean + t->moment_at + at, .square = all->square + t->moment_at + at};
    c.wide = t->wide;
    c.room = t->room;
    c.index =
        t->wide ? (unsigned char *)(all->wide + t->index_at + at) : (unsigned char *)(all->narrow + t->index_at + at);
    return c;
}

/*
 * The table, decayed, and the new entries in one ascending list: work->place, mean, square. What may not go is marked
 * in work->mean's second half, which is what entries are compared by. Returns how many there are.
 */
static uint32_t merge(const frugi_move *move, frugi_target_work *work, const chunk *c, uint32_t s) {
    float *rank = work->mean + c->room + s;
    uint32_t n = 0, i = 0, j = 0;
    for (;;) {
        bool more = i < c->room && !unused(c->mean[i], c->square[i]);
        if (!more && j == s)
            return n;
        uint32_t old = more ? place_at(c->index, c->wide, i) : UINT32_MAX;
        uint32_t fresh = j < s ? work->x.index[j] : UINT32_MAX, at = old < fresh ? old : fresh;
        float g = fresh == at ? work->x.value[j] : 0.0f;
        float m = old == at ? c->mean[i] : 0.0f, v = old == at ? c->square[i] : 0.0f;
        i += old == at;
        j += fresh == at;
        m = move->beta1 * m + move->rest1 * g;
        v = move->beta2 * v + move->rest2 * (g * g);
        if (unused(m, v))
            continue;
        work->place[n] = at;
        work->mean[n] = m;
        work->square[n] = v;
        rank[n++] = fresh == at ? FLT_MAX : m;
    }
}

/* Keep the `room` entries that rank highest. */
static uint32_t evict(frugi_target_work *work, const chunk *c, uint32_t s, uint32_t n) {
    const float *rank = work->mean + c->room + s;
    uint32_t *stays = work->place + c->room + s;
    if (n <= c->room)
        return n;
    const frugi_span span = {rank, n};
    frugi_cutoff cut = frugi_whole_cutoff(work->whole, &span, 1, c->room, 1);
    frugi_whole_emit(work->whole, &span, &cut, stays, NULL, 1);
    for (uint32_t i = 0; i < c->room; i++) {
        work->place[i] = work->place[stays[i]];
        work->mean[i] = work->mean[stays[i]];
        work->square[i] = work->square[stays[i]];
    }
    return c->room;
}

static void write_back(const frugi_target_work *work, const chunk *c, uint32_t n) {
    memset(c->mean, 0, c->room * sizeof *c->mean);
    memset(c->square, 0, c->room * sizeof *c->square);
    memset(c->index, 0, (size_t)c->room * (c->wide ? 4 : 2));
    memcpy(c->mean, work->mean, n * sizeof *c->mean);
    memcpy(c->square, work->square, n * sizeof *c->square);
    for (uint32_t i = 0; i < n; i++)
        put_place(c->index, c->wide, i, work->place[i]);
}

/* Who is evicted at a step still moves in it. */
void frugi_move_table(frug_optimizer *o, const frugi_move *move, const frugi_tuned *t, const float *g, float *w) {
    frugi_target_work *work = &o->targets->work;
    const float rate = move->adam_rate * (float)o->options.scale;
    for (uint32_t j = 0; j < t->c; j++) {
        uint64_t from = frugi_chunk_at(t, j);
        const chunk c = chunk_of(o->targets, t, j);
        frugi_largest(work, g + from, frugi_chunk_at(t, j + 1) - from, t->s, work->x.index, work->x.value);
        frugi_lap_ends(o->targets, FRUGI_LAP_PROJECT);
        uint32_t n = merge(move, work, &c, t->s);
        frugi_lap_ends(o->targets, FRUGI_LAP_RECOVER);
        for (uint32_t i = 0; i < n; i++)
            w[from + work->place[i]] -= rate * (work->mean[i] / (sqrtf(work->square[i]) * move->root_gain + move->eps));
        frugi_lap_ends(o->targets, FRUGI_LAP_APPLY);
        write_back(work, &c, evict(work, &c, t->s, n));
        frugi_lap_ends(o->targets, FRUGI_LAP_RECOVER);
    }
}

static float float_at(const unsigned char *x, uint64_t i) {
    return frugi_bits_f32(frugi_get32(x + 4 * i));
}

bool frugi_table_is_sound(const frugi_tuned *t, const unsigned char *mean, const unsigned char *square,
                          const unsigned char *index) {
    for (uint32_t j = 0; j < t->c; j++) {
        uint64_t at = (uint64_t)j * t->room, end = at + t->room, len = frugi_chunk_at(t, j + 1) - frugi_chunk_at(t, j);
        uint64_t i = at;
        for (; i < end && !unused(float_at(mean, i), float_at(square, i)); i++)
            if (place_at(index, t->wide, i) >= len ||
                (i > at && place_at(index, t->wide, i) <= place_at(index, t->wide, i - 1)))
                return false;
        for (; i < end; i++)
            if (!unused(float_at(mean, i), float_at(square, i)) || place_at(index, t->wide, i) != 0)
                return false;
    }
    return true;
}
