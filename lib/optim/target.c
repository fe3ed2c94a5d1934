/*
 * target.c - targets of an optimizer of whole tensors: sizes, offsets of their states, solvers and scratch memory.
 *
 * All numbers are checked here, with messages that name the tensor, so that a step cannot fail. Solvers are shared by
 * targets with the same chunk length, as the paper shares its matrix.
 */
#include "optim/target.h"

#include "base/float_bits.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "base/status.h"
#include "optim/newton_schulz.h"

/* ---- sizes --------------------------------------------------------------- */

static frug_status set_rank(const frugi_optim_options *f, frugi_optim_target *t, const char *name) {
    FRUG_FAIL_IF(f->rank > t->side.shorter, FRUG_ERR_CONFIG,
                 "config: rank=%llu is above the %zu of tensor '%s' (%zu x %zu)", (unsigned long long)f->rank,
                 t->side.shorter, name, t->side.rows, t->side.cols);
    t->rank = (uint32_t)f->rank;
    t->bases = f->kind == FRUGI_OPTIM_APOLLO ? 1 /* the norm of the last step */
               : f->kind == FRUGI_OPTIM_LORA ? (uint64_t)t->rank * (t->side.rows + t->side.cols)
                                             : (uint64_t)t->rank * t->side.shorter;
    t->moments = f->kind == FRUGI_OPTIM_LORA ? t->bases : (uint64_t)t->rank * t->side.longer;
    return FRUG_OK;
}

/* A share is a fourth of an even one. A chunk gets as many as its length allows, but at most FRUGI_TARGET_LEVELS. */
static frug_status set_shares(const frugi_optim_options *f, frugi_optim_target *t, const char *name) {
    uint64_t shortest = t->d / t->c;
    t->unit = (t->s + 3) / 4;
    FRUG_FAIL_IF(f->s % t->unit != 0, FRUG_ERR_CONFIG,
                 "config: adaptive=1 assigns s in shares of %u entries, and s=%llu is not a multiple of that", t->unit,
                 (unsigned long long)f->s);
    uint64_t most = shortest / (f->kappa * t->unit);
    t->levels = (uint32_t)(most < FRUGI_TARGET_LEVELS ? most : FRUGI_TARGET_LEVELS);
    FRUG_FAIL_IF((uint64_t)t->levels * t->unit * t->c < f->s, FRUG_ERR_CONFIG,
                 "config: adaptive=1: chunks of %llu in tensor '%s' are too short for s=%llu entries in all",
                 (unsigned long long)shortest, name, (unsigned long long)f->s);
    return FRUG_OK;
}

static frug_status set_chunks(const frugi_optim_options *f, frugi_optim_target *t, const char *name) {
    const bool table = f->kind == FRUGI_OPTIM_TABLE;
    FRUG_FAIL_IF(f->c > t->d, FRUG_ERR_CONFIG, "config: c=%llu chunks are more than the %llu numbers of tensor '%s'",
                 (unsigned long long)f->c, (unsigned long long)t->d, name);
    t->c = (uint32_t)f->c;
    t->s = (uint32_t)(f->s / f->c);
    t->k = t->s * (uint32_t)f->kappa;
    uint64_t shortest = t->d / t->c;
    FRUG_FAIL_IF(t->s >= shortest, FRUG_ERR_CONFIG,
                 "config: s=%llu in %u chunks is not sparse: %u entries of %llu in tensor '%s'",
                 (unsigned long long)f->s, t->c, t->s, (unsigned long long)shortest, name);
    FRUG_FAIL_IF(t->k > shortest, FRUG_ERR_CONFIG,
                 "config: kappa s = %u %s are more than the %llu numbers of a chunk of tensor '%s'", t->k,
                 table ? "states" : "measurements", (unsigned long long)shortest, name);
    FRUG_FAIL_IF(!table && frugi_chunk_max_length(t) > 1u << 28, FRUG_ERR_CONFIG,
                 "config: chunks of %llu in tensor '%s' are too long; at most 2^28; use more chunks",
                 (unsigned long long)frugi_chunk_max_length(t), name);
    t->wide = frugi_chunk_max_length(t) > 65536;
    t->capacity = table ? (uint32_t)(UINT64_C(8) * t->k / (t->wide ? 12 : 10)) : 0;
    t->moments = (uint64_t)t->c * (table ? t->capacity : t->k);
    return f->adaptive ? set_shares(f, t, name) : FRUG_OK;
}

static frug_status set_target(const frugi_optim_options *f, frugi_optim_target *t, const frug_tensor *tensor) {
    uint64_t n = frugi_tensor_elements(tensor);
    FRUG_FAIL_IF(n >= 1ull << 32, FRUG_ERR_CONFIG, "config: tensor '%s' of %llu elements is too large for %s",
                 tensor->name, (unsigned long long)n, frug_optimizer_at(f->kind)->name);
    t->side = frugi_sides_make((size_t)tensor->shape[0], (size_t)(n / tensor->shape[0]));
    t->input_first = tensor->input_first != 0;
    if (f->rank)
        FRUG_TRY(set_rank(f, t, tensor->name));
    t->d = f->kind == FRUGI_OPTIM_CESGC ? (uint64_t)t->rank * t->side.longer : n;
    return f->s ? set_chunks(f, t, tensor->name) : FRUG_OK;
}

static void assign_offsets(frugi_optim_targets *all, frugi_optim_target *t, const frugi_optim_options *f) {
    uint64_t *indices = t->wide ? &all->wides : &all->narrows;
    t->moment_at = all->moments;
    t->basis_at = all->bases;
    t->index_at = *indices;
    t->level_at = all->levels;
    t->code_at = all->codes;
    all->moments += t->moments;
    all->bases += t->bases;
    *indices += (uint64_t)t->c * t->capacity;
    all->levels += f->adaptive ? t->c : 0;
    if (frugi_is_muon(f) && f->momentum > 0)
        all->codes += ((uint64_t)t->side.rows * t->side.cols + FRUGI_OPTIM_BLOCK - 1) / FRUGI_OPTIM_BLOCK;
}

frug_status frugi_target_add(frug_optimizer *o, const frug_tensor *tensor, const frugi_optim_tensor *p) {
    const frugi_optim_options *f = &o->options;
    frugi_optim_target t = {.tensor = p->number, .first_number = p->first_number};
    FRUG_TRY(set_target(f, &t, tensor));
    if (!o->targets) {
        o->targets = frugi_calloc(1, sizeof *o->targets);
        FRUG_FAIL_IF(!o->targets, FRUG_ERR_MEMORY, "optimizer: out of memory");
        o->targets->target = frugi_calloc(o->layout->count, sizeof *o->targets->target);
        FRUG_FAIL_IF(!o->targets->target, FRUG_ERR_MEMORY, "optimizer: no memory for %zu tensors", o->layout->count);
    }
    assign_offsets(o->targets, &t, f);
    o->targets->target[o->targets->count++] = t;
    const uint64_t shape[] = {t.c, t.s, t.k, t.rank, f->adaptive, f->explicit_matrix};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        o->shape_hash = frugi_hash_word(o->shape_hash, shape[i]);
    return FRUG_OK;
}

/* ---- solvers ------------------------------------------------------------- */

static frug_status make_solver(const frugi_optim_options *f, uint32_t s, uint32_t d, frugi_solver *solver) {
    const bool gram = f->explicit_matrix && d <= FRUGI_RECOVER_GRAM_MOST;
    solver->s = s;
    solver->k = s * (uint32_t)f->kappa;
    solver->d = d;
    frugi_matrix_options matrix = {.kind = f->explicit_matrix ? FRUGI_MATRIX_GAUSSIAN : FRUGI_MATRIX_HADAMARD,
                                   .k = solver->k,
                                   .d = d,
                                   .seed = 1,
                                   .threads = (int)f->threads};
    FRUG_TRY(frugi_matrix_create(&matrix, &solver->matrix));
    frugi_recover_options recover = {.method = gram ? FRUGI_RECOVER_GRAM : FRUGI_RECOVER_RESIDUAL,
                                     .s = s,
                                     .atoms = !f->atoms4 ? 1
                                              : s < 4    ? s
                                                         : 4,
                                     .threads = (int)f->threads};
    return frugi_recover_create(solver->matrix, &recover, &solver->recover);
}

/* The solver for s of d entries, an existing one if there is one. */
static frug_status find_or_make_solver(frugi_optim_targets *all, const frugi_optim_options *f, uint32_t s, uint32_t d) {
    for (size_t i = 0; i < all->solvers; i++)
        if (all->solver[i].s == s && all->solver[i].d == d)
            return FRUG_OK;
    return make_solver(f, s, d, &all->solver[all->solvers++]);
}

static frug_status make_solvers(frug_optimizer *o) {
    frugi_optim_targets *all = o->targets;
    const frugi_optim_options *f = &o->options;
    all->solver = frugi_calloc(all->count * (f->adaptive ? FRUGI_TARGET_LEVELS : 1), sizeof *all->solver);
    FRUG_FAIL_IF(!all->solver, FRUG_ERR_MEMORY, "optimizer: out of memory");
    for (size_t i = 0; i < all->count; i++) {
        const frugi_optim_target *t = &all->target[i];
        for (uint32_t level = 1; level <= (f->adaptive ? t->levels : 1); level++)
            FRUG_TRY(
                find_or_make_solver(all, f, f->adaptive ? level * t->unit : t->s, (uint32_t)frugi_chunk_max_length(t)));
    }
    return FRUG_OK;
}

/* ---- scratch memory ------------------------------------------------------ */

static void *alloc_array(uint64_t count, uint64_t each, size_t size, bool *ok) {
    uint64_t bytes = 0;
    bool fits = !__builtin_mul_overflow(count, each, &bytes) && !__builtin_mul_overflow(bytes, size, &bytes) &&
                bytes <= SIZE_MAX / 2;
    void *memory = fits ? frugi_alloc((size_t)bytes + FRUGI_CACHE_LINE) : NULL;
    *ok = *ok && memory;
    return memory;
}

static bool reserve_entries(frugi_entries *e, uint64_t s, uint64_t c) {
    bool ok = true;
    e->index = alloc_array(s, 1, sizeof *e->index, &ok);
    e->value = alloc_array(s, 1, sizeof *e->value, &ok);
    e->count = alloc_array(c, 1, sizeof *e->count, &ok);
    return ok;
}

static bool reserve_sparse(frugi_optim_targets *all, const frugi_optim_options *f, const frugi_optim_target *t) {
    frugi_target_work *w = &all->work;
    uint64_t span = 0, entries = 0;
    bool ok = reserve_entries(&w->x, f->s, f->c) && reserve_entries(&w->y, f->s, f->c);
    for (size_t i = 0; i < all->solvers; i++) {
        uint64_t own = frugi_matrix_span(all->solver[i].matrix);
        span = own > span ? own : span;
    }
    for (size_t i = 0; i < all->count; i++)
        entries = t[i].capacity > entries ? t[i].capacity : entries;
    entries += entries ? t->s : 0;
    w->span = alloc_array(span, 1, sizeof *w->span, &ok);
    w->measured = alloc_array(frugi_is_sketch(f) ? 2 * f->kappa * f->s : 0, 1, sizeof *w->measured, &ok);
    w->level = alloc_array(f->adaptive ? f->c : 0, 1, sizeof *w->level, &ok);
    w->mean = alloc_array(entries, 2, sizeof *w->mean, &ok);
    w->square = alloc_array(entries, 1, sizeof *w->square, &ok);
    w->index = alloc_array(entries, 2, sizeof *w->index, &ok);
    w->whole = frugi_topk_create(1);
    return ok && w->whole;
}

static bool reserve_projection(frugi_optim_targets *all, const frugi_optim_options *f) {
    frugi_target_work *w = &all->work;
    uint64_t longer = 0, shorter = 0;
    size_t basis = 0;
    bool ok = true, lora = f->kind == FRUGI_OPTIM_LORA;
    for (size_t i = 0; i < all->count; i++) {
        const frugi_sides *side = &all->target[i].side;
        uint64_t own = lora ? side->rows + side->cols : side->longer;
        size_t bytes = frugi_basis_work_bytes(side, f->rank);
        longer = own > longer ? own : longer;
        shorter = side->shorter > shorter ? side->shorter : shorter;
        basis = bytes > basis ? bytes : basis;
    }
    w->projected = alloc_array(f->rank, longer, sizeof *w->projected, &ok);
    w->update = alloc_array(f->rank, f->kind == FRUGI_OPTIM_CESGC ? 0 : longer, sizeof *w->update, &ok);
    w->signs = alloc_array(f->rank, f->kind == FRUGI_OPTIM_APOLLO ? shorter : 0, sizeof *w->signs, &ok);
    w->factor = alloc_array(1, f->kind == FRUGI_OPTIM_APOLLO ? longer : 0, sizeof *w->factor, &ok);
    w->basis = alloc_array(f->kind == FRUGI_OPTIM_CESGC || f->kind == FRUGI_OPTIM_GALORE ? basis : 0, 1, 1, &ok);
    return ok;
}

static bool reserve_muon(frugi_optim_targets *all) {
    frugi_target_work *w = &all->work;
    uint64_t largest = 0, floats = 0;
    bool ok = true;
    for (size_t i = 0; i < all->count; i++) {
        const frugi_sides *side = &all->target[i].side;
        uint64_t elements = (uint64_t)side->rows * side->cols, own = frugi_orthogonalizer_floats(side);
        largest = elements > largest ? elements : largest;
        floats = own > floats ? own : floats;
    }
    w->moved = alloc_array(all->codes ? largest : 0, 1, sizeof *w->moved, &ok);
    w->square_matrices = alloc_array(floats, 1, sizeof *w->square_matrices, &ok);
    return ok;
}

frug_status frugi_targets_reserve(frug_optimizer *o) {
    const frugi_optim_options *f = &o->options;
    if (!o->targets)
        return FRUG_OK;
    if (frugi_is_sketch(f))
        FRUG_TRY(make_solvers(o));
    bool ok = (!f->s || reserve_sparse(o->targets, f, o->targets->target)) &&
              (!f->rank || reserve_projection(o->targets, f)) && (!frugi_is_muon(f) || reserve_muon(o->targets));
    FRUG_FAIL_IF(!ok, FRUG_ERR_MEMORY, "optimizer: no scratch memory");
    return FRUG_OK;
}

void frugi_targets_destroy(frugi_optim_targets *all) {
    if (!all)
        return;
    frugi_target_work *w = &all->work;
    void *const memory[] = {w->x.index,  w->x.value, w->x.count,   w->y.index, w->y.value,        w->y.count, w->span,
                            w->measured, w->level,   w->projected, w->update,  w->signs,          w->factor,  w->basis,
                            w->mean,     w->square,  w->index,     w->moved,   w->square_matrices};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        frugi_free(memory[i]);
    frugi_topk_destroy(w->whole);
    for (size_t i = 0; all->solver && i < all->solvers; i++) {
        frugi_recover_destroy(all->solver[i].recover);
        frugi_matrix_destroy(all->solver[i].matrix);
    }
    frugi_free(all->solver);
    frugi_free(all->target);
    frugi_free(all);
}
