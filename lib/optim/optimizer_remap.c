/*
 * optimizer_remap.c - take over the states of a tensor whose number of weights changes: those of the weights that stay,
 * zeros for those that are new. Sources ascend, so a block of stored roots is loaded once.
 */
#include "base/status.h"
#include "optim/optimizer.h"

#define NONE UINT64_MAX

static const frugi_optim_tensor *find_tensor(const frug_optimizer *o, size_t number) {
    for (size_t i = 0; i < o->tensors; i++)
        if (o->tensor[i].number == number)
            return &o->tensor[i];
    return NULL;
}

static void remap_floats(float *to, const float *from, const uint64_t *source, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        to[i] = source[i] == NONE ? 0.0f : from[source[i]];
}

static void remap_roots(frug_optimizer *to, const frugi_optim_tensor *p, const frug_optimizer *from,
                        const frugi_optim_tensor *q, const uint64_t *source) {
    float root[FRUGI_OPTIM_BLOCK], loaded[FRUGI_OPTIM_BLOCK];
    uint64_t loaded_block = NONE;
    for (uint64_t at = 0; at < p->count; at += FRUGI_OPTIM_BLOCK) {
        for (uint64_t i = 0; i < FRUGI_OPTIM_BLOCK; i++) {
            uint64_t s = at + i < p->count ? source[at + i] : NONE;
            if (s != NONE && s / FRUGI_OPTIM_BLOCK != loaded_block) {
                loaded_block = s / FRUGI_OPTIM_BLOCK;
                frugi_roots_load(from, q->at + loaded_block, loaded);
            }
            root[i] = s == NONE ? 0.0f : loaded[s % FRUGI_OPTIM_BLOCK];
        }
        frugi_roots_save(to, p->at + at / FRUGI_OPTIM_BLOCK, root, UINT32_C(1) << 31);
    }
}

static void remap_velocity(frug_optimizer *to, const frugi_optim_tensor *p, const frug_optimizer *from,
                           const frugi_optim_tensor *q, const uint64_t *source) {
    const uint64_t unit = p->rule == FRUGI_UPDATE_ROOT ? FRUGI_OPTIM_BLOCK : 1; /* of `at` */
    if (to->inertia.velocity && from->inertia.velocity && !p->dense)
        remap_floats(to->inertia.velocity + p->at * unit, from->inertia.velocity + q->at * unit, source, p->count);
}

static frug_status check_source(const frugi_optim_tensor *p, const frugi_optim_tensor *q, const uint64_t *source) {
    for (uint64_t i = 0; i < p->count; i++)
        FRUG_FAIL_IF(source[i] != NONE && source[i] >= q->count, FRUG_ERR_ARG,
                     "remap: source %llu of element %llu is outside of the %llu elements of the tensor",
                     (unsigned long long)source[i], (unsigned long long)i, (unsigned long long)q->count);
    return FRUG_OK;
}

frug_status frug_optimizer_remap(frug_optimizer *to, const frug_optimizer *from, size_t tensor,
                                 const uint64_t *source) {
    FRUG_FAIL_IF(!to || !from || !source, FRUG_ERR_ARG, "remap: null optimizer or source");
    const frugi_optim_tensor *p = find_tensor(to, tensor), *q = find_tensor(from, tensor);
    FRUG_FAIL_IF(!p || !q || p->rule != q->rule || to->options.state != from->options.state, FRUG_ERR_ARG,
                 "remap: tensor %zu is missing, or the optimizers differ", tensor);
    FRUG_FAIL_IF(p->rule == FRUGI_UPDATE_TARGET || p->rule == FRUGI_UPDATE_WINDOW, FRUG_ERR_CONFIG,
                 "remap: the states of %s belong to whole tensors or blocks, not to single weights",
                 frug_optimizer_at(to->options.kind)->name);
    FRUG_TRY(check_source(p, q, source));
    if (p->rule == FRUGI_UPDATE_MOMENTUM)
        remap_floats(to->momentum + p->at, from->momentum + q->at, source, p->count);
    if (p->rule == FRUGI_UPDATE_SUM)
        remap_floats(to->sum + p->at, from->sum + q->at, source, p->count);
    if (p->rule == FRUGI_UPDATE_ADAM) {
        remap_floats(to->mean + p->at, from->mean + q->at, source, p->count);
        remap_floats(to->square + p->at, from->square + q->at, source, p->count);
    }
    if (p->rule == FRUGI_UPDATE_ROOT)
        remap_roots(to, p, from, q, source);
    if (p->rule == FRUGI_UPDATE_DIRECT || p->rule == FRUGI_UPDATE_ROOT)
        remap_velocity(to, p, from, q, source);
    return FRUG_OK;
}

frug_status frug_optimizer_freeze_squares(frug_optimizer *o, uint64_t since, uint64_t until) {
    FRUG_FAIL_IF(!o || since > until, FRUG_ERR_ARG, "freeze: null optimizer, or an end before the begin");
    o->frozen_since = since;
    o->frozen_until = since ? until : 0;
    return FRUG_OK;
}
