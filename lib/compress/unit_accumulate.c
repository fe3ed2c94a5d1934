/*
 * unit_accumulate.c - fold a gradient range into what was left behind, whole, and put back what stays.
 *
 * Methods that look at more than a block at a time need all accumulators before they can choose. With an f32 residual
 * these are the residual itself, changed in place; without feedback they are the gradient itself, where it is sound;
 * otherwise they are a buffer of the compressor's. A block in which a NaN or an infinity comes up is held back: its
 * gradient counts for nothing, and what it had left behind stays in the competition as it was.
 */
#include "compress/compressor.h"

#include "base/float_bits.h"
#include "base/philox.h"

const float *frugi_accumulated(const frugi_job *j, const frugi_piece *p) {
    const frug_compressor *c = j->c;
    if (c->direct)
        return j->grad + (p->begin - j->begin);
    if (c->work)
        return c->work + p->first_block * c->config.block;
    return frugi_store_floats(&c->residual, p->first_block);
}

/* A compressed block in hand. */
typedef struct patch {
    const frugi_piece *piece;
    uint64_t at;     /* first element within the piece */
    uint64_t stored; /* number in the stores */
    uint32_t length;
} patch;

/* Call do_patch for every compressed block of the range; threads take equal runs of blocks. */
static void for_blocks(const frugi_job *j, void do_patch(const frugi_job *, frugi_worker *, const patch *)) {
    const frug_compressor *c = j->c;
    size_t from = frugi_piece_at(c, j->begin), to = frugi_piece_at(c, j->begin + j->count);
    uint64_t first = UINT64_MAX, end = 0;
    for (size_t i = from; i < to; i++)
        if (!c->piece[i].dense) {
            first = first == UINT64_MAX ? c->piece[i].first_block : first;
            end = c->piece[i].first_block + (c->piece[i].count - 1) / c->config.block + 1;
        }
    if (first == UINT64_MAX)
        return;
#pragma omp parallel for num_threads(j->threads) schedule(static, 1) if (j->threads > 1)
    for (int t = 0; t < j->threads; t++) {
        uint64_t lo = first + (end - first) * (uint64_t)t / (uint64_t)j->threads;
        uint64_t hi = first + (end - first) * ((uint64_t)t + 1) / (uint64_t)j->threads;
        size_t i = from;
        for (uint64_t b = lo; b < hi; b++) {
            while (c->piece[i].dense || c->piece[i].first_block + (c->piece[i].count - 1) / c->config.block < b)
                i++;
            patch p = {.piece = &c->piece[i], .at = (b - c->piece[i].first_block) * c->config.block, .stored = b};
            uint64_t rest = c->piece[i].count - p.at;
            p.length = rest < c->config.block ? (uint32_t)rest : c->config.block;
            do_patch(j, &c->worker[t], &p);
        }
    }
}

/* The gradient of a block, as long as a whole one and clipped. */
static const float *gradient_of(const frugi_job *j, frugi_worker *w, const patch *p) {
    const float *grad = j->grad + (p->piece->begin - j->begin) + p->at;
    uint32_t block = j->c->config.block;
    if (p->length == block && j->gain == 1.0f)
        return grad;
    for (uint32_t i = 0; i < p->length; i++)
        w->padded[i] = j->gain * grad[i];
    memset(w->padded + p->length, 0, (block - p->length) * sizeof *grad);
    return w->padded;
}

static int is_sound(const float *x, uint32_t n) {
    return frugi_largest_magnitude(x, n) < FRUGI_INF_BITS;
}

/* Statistics: all of it is left until it is sent. */
static void count_energy(const frugi_job *j, frugi_worker *w, const patch *p, const float *acc) {
    uint32_t block = j->c->config.block;
    frugi_sampled all = {.items = (p->piece->count - 1) / block + 1, .length = block, .total = p->piece->count};
    double weight = frugi_sample_weight(j->c, &all, p->at / block);
    if (!(weight > 0))
        return;
    double weighed = weight * frugi_energy(acc, p->length);
    w->tally.energy_seen += weighed;
    w->tally.energy_left += weighed;
}

static void check_patch(const frugi_job *j, frugi_worker *w, const patch *p) {
    const float *grad = j->grad + (p->piece->begin - j->begin) + p->at;
    j->c->held[p->stored] = !is_sound(grad, p->length);
    w->tally.held += j->c->held[p->stored];
    if (!j->c->held[p->stored])
        count_energy(j, w, p, grad);
}

static void copy_patch(const frugi_job *j, frugi_worker *w, const patch *p) {
    const frug_compressor *c = j->c;
    float *dst = c->work + p->stored * c->config.block;
    if (c->held[p->stored])
        memset(dst, 0, c->config.block * sizeof *dst);
    else
        memcpy(dst, gradient_of(j, w, p), c->config.block * sizeof *dst);
}

const float *frugi_smooth(const frug_compressor *c, float *momentum, float *moved, const float *grad, size_t n) {
    if (c->config.feedback == FRUGI_FEEDBACK_DGC) {
        float mu = (float)c->config.momentum;
        for (size_t i = 0; i < n; i++)
            momentum[i] = mu * momentum[i] + grad[i];
        return momentum;
    }
    float theta = (float)c->config.theta;
    for (size_t i = 0; i < n; i++) {
        moved[i] = theta * (grad[i] - momentum[i]);
        momentum[i] += moved[i];
    }
    return moved;
}

static const float *smooth(const frug_compressor *c, frugi_worker *w, uint64_t stored, const float *grad) {
    frugi_store_load(&c->momentum, stored, w->momentum);
    return frugi_smooth(c, w->momentum, w->padded, grad, c->config.block);
}

static void fold_patch(const frugi_job *j, frugi_worker *w, const patch *p) {
    frug_compressor *c = j->c;
    uint32_t block = c->config.block;
    const float *grad = gradient_of(j, w, p);
    float *dst = c->work ? c->work + p->stored * block : frugi_store_floats(&c->residual, p->stored);
    if (c->work)
        frugi_store_load(&c->residual, p->stored, dst);
    if (frugi_has_momentum(c))
        grad = smooth(c, w, p->stored, grad);
    for (uint32_t i = 0; i < block; i++)
        w->acc[i] = c->beta * dst[i] + grad[i];
    c->held[p->stored] = !is_sound(w->acc, block) || (frugi_has_momentum(c) && !is_sound(w->momentum, block));
    w->tally.held += c->held[p->stored];
    if (!c->held[p->stored])
        memcpy(dst, w->acc, block * sizeof *dst);
    count_energy(j, w, p, dst);
}

void frugi_accumulate(const frugi_job *j) {
    frug_compressor *c = j->c;
    c->direct = false;
    if (c->config.feedback != FRUGI_FEEDBACK_NONE) {
        for_blocks(j, fold_patch);
        return;
    }
    uint64_t held = 0;
    for_blocks(j, check_patch);
    for (int i = 0; i < c->threads; i++)
        held += c->worker[i].tally.held;
    c->direct = held == 0 && j->gain == 1.0f;
    if (!c->direct)
        for_blocks(j, copy_patch);
}

/* The momentum is worked out once more: it was not kept, because a block may be held and entries may lose theirs. */
static void keep_patch(const frugi_job *j, frugi_worker *w, const patch *p) {
    frug_compressor *c = j->c;
    uint32_t block = c->config.block, dice = frugi_random(c->config.seed, j->step, p->stored);
    if (c->work)
        frugi_store_save(&c->residual, p->stored, c->work + p->stored * block, dice);
    if (!frugi_has_momentum(c))
        return;
    if (c->held[p->stored])
        frugi_store_load(&c->momentum, p->stored, w->momentum);
    else
        smooth(c, w, p->stored, gradient_of(j, w, p));
    for (uint32_t i = 0; j->mask && i < block; i++)
        w->momentum[i] = c->sent[p->stored * block + i] ? 0.0f : w->momentum[i];
    frugi_store_save(&c->momentum, p->stored, w->momentum, ~dice);
    if (c->sent)
        memset(c->sent + p->stored * block, 0, block);
}

void frugi_put_back(const frugi_job *j) {
    const frug_compressor *c = j->c;
    if (c->config.feedback != FRUGI_FEEDBACK_NONE && (c->work || frugi_has_momentum(c)))
        for_blocks(j, keep_patch);
}
