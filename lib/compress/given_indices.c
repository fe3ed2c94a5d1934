/*
 * given_indices.c - one pass over a gradient range for a worker that sends where another one chose.
 *
 * Block by block, whatever the units of the config: load what was left behind, add the gradient, take what stands at
 * the given places and store the rest. It is the plain form of compress.c without selection and codes; what is taken
 * leaves exactly, so nothing of it stays.
 */
#include "compress/given_indices.h"

#include "base/float_bits.h"
#include "base/philox.h"
#include "base/status.h"

/* A block in hand. */
typedef struct patch {
    uint64_t at;     /* first element, relative to the range */
    uint64_t stored; /* number in the stores */
    uint32_t length;
    bool kept; /* whether what is left over is kept at all */
    bool held;
} patch;

static bool sound(const float *x, uint32_t n) {
    return frugi_largest_magnitude(x, n) < FRUGI_INF_BITS;
}

/* The accumulators of a block, in w->acc; of a held one, what was left behind. */
static void fold(const frugi_job *j, frugi_worker *w, patch *p) {
    const frug_compressor *c = j->c;
    uint32_t block = c->config.block;
    const float *moved = w->padded;
    for (uint32_t i = 0; i < p->length; i++)
        w->padded[i] = j->gain * j->grad[p->at + i];
    memset(w->padded + p->length, 0, (block - p->length) * sizeof(float));
    if (p->kept)
        frugi_store_load(&c->residual, p->stored, w->saved);
    else
        memset(w->saved, 0, block * sizeof(float));
    if (p->kept && frugi_has_momentum(c)) {
        frugi_store_load(&c->momentum, p->stored, w->momentum);
        moved = frugi_smooth(c, w->momentum, w->padded, w->padded, block);
    }
    for (uint32_t i = 0; i < block; i++)
        w->acc[i] = c->beta * w->saved[i] + moved[i];
    p->held = !sound(w->acc, block) || (p->kept && frugi_has_momentum(c) && !sound(w->momentum, block));
    if (p->held)
        memcpy(w->acc, w->saved, block * sizeof(float));
}

static void store(const frugi_job *j, frugi_worker *w, const patch *p) {
    frug_compressor *c = j->c;
    uint32_t dice = frugi_random(c->config.seed, j->step, p->stored);
    frugi_store_save(&c->residual, p->stored, w->acc, dice);
    if (frugi_has_momentum(c) && !p->held)
        frugi_store_save(&c->momentum, p->stored, w->momentum, ~dice);
}

/* Take from one block; returns how many of the places lie in it. */
static uint64_t take(const frugi_job *j, patch p, const uint32_t *place, uint64_t n, float *value) {
    frugi_worker *w = &j->c->worker[0];
    uint64_t k = 0;
    fold(j, w, &p);
    bool silent = p.held && !j->c->by_units; /* as in compress.c: there a held block sends zeros */
    for (; k < n && place[k] - p.at < p.length; k++) {
        uint64_t e = place[k] - p.at;
        value[k] = silent ? 0.0f : w->acc[e];
        if (silent)
            continue;
        w->acc[e] = 0.0f;
        if (p.kept && j->mask)
            w->momentum[e] = 0.0f;
    }
    if (p.kept && !silent)
        store(j, w, &p);
    j->c->stats.blocks_held += p.held;
    return k;
}

static void count_up(frug_compressor *c, uint64_t seen, uint64_t taken) {
    frug_stats *t = &c->stats;
    t->calls++;
    t->bytes_sent += taken * sizeof(float);
    t->bytes_dense += seen * sizeof(float);
    t->entries_sent += taken;
    t->entries_seen += seen;
    t->density_now = seen ? (double)taken / (double)seen : 0;
    t->density_mean = t->entries_seen ? (double)t->entries_sent / (double)t->entries_seen : 0;
}

frug_status frugi_take(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, const float *grad,
                       const uint32_t *place, uint64_t n, float *value) {
    uint64_t end = begin + count, done = 0, seen = 0, block = c->config.block;
    size_t bytes = 0;
    frugi_job j = {.c = c, .step = step, .begin = begin, .count = count, .grad = grad};
    FRUG_TRY(frug_compressor_bound(c, begin, count, &bytes)); /* no block and nothing that competes is cut */
    FRUG_TRY(frugi_job_start(&j));
    for (size_t i = frugi_piece_at(c, begin); i < c->pieces && c->piece[i].begin < end; i++) {
        const frugi_piece *p = &c->piece[i];
        uint64_t from = p->begin > begin ? p->begin : begin, to = p->begin + p->count < end ? p->begin + p->count : end;
        seen += to - from;
        for (uint64_t e = from; e < to; e += block) {
            uint64_t rest = to - e;
            patch here = {.at = e - begin,
                          .stored = p->first_block + (e - p->begin) / block,
                          .length = (uint32_t)(rest < block ? rest : block),
                          .kept = !p->dense && c->config.feedback != FRUGI_FEEDBACK_NONE};
            done += take(&j, here, place + done, n - done, value + done);
        }
    }
    FRUG_FAIL_IF(done != n, FRUG_ERR_ARG, "take: place %llu lies in no tensor or is out of order",
                 (unsigned long long)done);
    count_up(c, seen, n);
    return FRUG_OK;
}
