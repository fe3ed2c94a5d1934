/*
 * recover.c - recover many chunks with one matrix: check arguments, allocate memory, distribute chunks to threads.
 *
 * Threads process equal ranges of chunks and share only constant data, so results do not depend on their number. Chunks
 * are scaled by a power of two to a largest measurement around 1, which changes no bit of a result and keeps the
 * squares of very small and very large measurements within a float.
 */
#include "recover/recover.h"

#include "base/float_bits.h"
#include "base/alloc.h"
#include "base/status.h"
#include "recover/pursuit.h"

#include <math.h>

#define MAX_THREADS 1024

struct frugi_recover {
    const frugi_matrix *a;
    frugi_recover_options plan;
    float *gram; /* d x span, or NULL */
    frugi_pursuit *pursuit;
    uint64_t bytes;
};

/* ---- check ------------------------------------------------------------------------------------ */

static frug_status check_plan(const frugi_matrix *a, frugi_recover_options *plan) {
    uint32_t k = a->plan.k, d = a->plan.d;
    FRUG_FAIL_IF(plan->method != FRUGI_RECOVER_NAIVE && plan->method != FRUGI_RECOVER_GRAM &&
                     plan->method != FRUGI_RECOVER_RESIDUAL,
                 FRUG_ERR_ARG, "recover: unknown method %d", (int)plan->method);
    FRUG_FAIL_IF(plan->s < 1, FRUG_ERR_ARG, "recover: s = 0 entries cannot be recovered");
    FRUG_FAIL_IF(plan->s >= d, FRUG_ERR_ARG, "recover: s = %u entries of d = %u are not sparse", plan->s, d);
    FRUG_FAIL_IF(plan->s > k, FRUG_ERR_ARG, "recover: s = %u entries cannot be recovered from k = %u measurements",
                 plan->s, k);
    plan->atoms = plan->atoms ? plan->atoms : 1;
    plan->reach = plan->reach ? plan->reach : plan->s;
    FRUG_FAIL_IF(plan->atoms > plan->s, FRUG_ERR_ARG, "recover: %u columns per pass are more than s = %u", plan->atoms,
                 plan->s);
    FRUG_FAIL_IF(plan->reach < plan->s || plan->reach > k, FRUG_ERR_ARG,
                 "recover: a reach of %u columns is not from s = %u to k = %u", plan->reach, plan->s, k);
    FRUG_FAIL_IF(!(plan->tolerance >= 0.0 && plan->tolerance <= 1.0), FRUG_ERR_ARG,
                 "recover: a tolerance of %g is not from 0 to 1", plan->tolerance);
    FRUG_FAIL_IF(plan->threads < 1 || plan->threads > MAX_THREADS, FRUG_ERR_ARG, "recover: %d threads", plan->threads);
    FRUG_FAIL_IF(plan->method == FRUGI_RECOVER_GRAM && d > FRUGI_RECOVER_GRAM_MOST, FRUG_ERR_ARG,
                 "recover: A^T A of d = %u columns is too large; use smaller chunks or the residual method", d);
    return FRUG_OK;
}

static frug_status check_finite(const float *p, uint64_t chunks, uint32_t k) {
    for (uint64_t c = 0; c < chunks; c++) {
        const float *chunk = p + c * k;
        if (frugi_largest_magnitude(chunk, k) < FRUGI_INF_BITS)
            continue;
        uint32_t t = 0;
        while (frugi_magnitude(chunk[t]) < FRUGI_INF_BITS)
            t++;
        return frugi_fail(FRUG_ERR_ARG, "recover: measurement %u of chunk %llu is not a finite number", t,
                          (unsigned long long)c);
    }
    return FRUG_OK;
}

/* ---- allocate --------------------------------------------------------------------------------- */

/* Allocate count x each numbers of `size` bytes and count the bytes; NULL and *ok = false without memory. */
static void *alloc_counted(frugi_recover *r, uint64_t count, uint64_t each, size_t size, bool *ok) {
    uint64_t bytes = 0;
    bool fits = !__builtin_mul_overflow(count, each, &bytes) && !__builtin_mul_overflow(bytes, size, &bytes) &&
                bytes <= SIZE_MAX / 2;
    void *memory = fits ? frugi_alloc((size_t)bytes) : NULL;
    *ok = *ok && memory;
    r->bytes += memory ? bytes : 0;
    return memory;
}

static bool alloc_pursuit(frugi_recover *r, frugi_pursuit *u) {
    const frugi_matrix *a = r->a;
    uint64_t reach = r->plan.reach, group = r->gram ? FRUGI_PURSUIT_GROUP : 1;
    bool ok = true, own_columns = r->plan.method == FRUGI_RECOVER_NAIVE || (!r->gram && !a->column);
    *u = (frugi_pursuit){.a = a, .gram = r->gram, .plan = r->plan};
    u->p = alloc_counted(r, group, a->stride, sizeof *u->p, &ok);
    u->start = alloc_counted(r, r->gram ? group : 0, a->span, sizeof *u->start, &ok);
    u->residual = alloc_counted(r, 1, a->stride, sizeof *u->residual, &ok);
    u->alpha = alloc_counted(r, 1, a->span, sizeof *u->alpha, &ok);
    u->block_max = alloc_counted(r, 1, a->span / FRUGI_MATRIX_BLOCK, sizeof *u->block_max, &ok);
    u->excluded = alloc_counted(r, 1, a->plan.d, sizeof *u->excluded, &ok);
    u->atom = alloc_counted(r, 2, reach, sizeof *u->atom, &ok);
    u->column = alloc_counted(r, 1, reach, sizeof *u->column, &ok);
    u->own_columns = alloc_counted(r, own_columns ? reach : 0, a->stride, sizeof *u->own_columns, &ok);
    u->inverse = alloc_counted(r, reach, reach, sizeof *u->inverse, &ok);
    u->x = alloc_counted(r, 4, reach, sizeof *u->x, &ok);
    u->x32 = alloc_counted(r, 1, reach, sizeof *u->x32, &ok);
    u->work = alloc_counted(r, r->gram ? 1 : 0, a->span, sizeof *u->work, &ok);
    if (!ok)
        return false;
    u->z = u->x + reach;
    u->g = u->z + reach;
    u->w = u->g + reach;
    return true;
}

static void free_pursuit(frugi_pursuit *u) {
    void *const memory[] = {u->p,    u->start,          u->residual,    u->alpha,   u->block_max, u->excluded,
                            u->atom, (void *)u->column, u->own_columns, u->inverse, u->x,         u->x32,
                            u->work};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        frugi_free(memory[i]);
}

/* Row j of A^T A is the correlation of column j. */
static bool make_gram(frugi_recover *r) {
    const frugi_matrix *a = r->a;
    uint32_t d = a->plan.d, group = FRUGI_PURSUIT_GROUP;
    bool ok = true;
    r->gram = alloc_counted(r, d, a->span, sizeof *r->gram, &ok);
    float *column = ok ? frugi_alloc((size_t)group * (size_t)r->plan.threads * a->stride * sizeof *column) : NULL;
    if (!column)
        return false;
#pragma omp parallel for num_threads(r->plan.threads) schedule(static, 1) if (r->plan.threads > 1)
    for (int t = 0; t < r->plan.threads; t++) {
        float *own_columns = column + (size_t)t * group * a->stride;
        for (uint32_t j = (uint32_t)t * group; j < d; j += (uint32_t)r->plan.threads * group) {
            uint32_t many = d - j < group ? d - j : group;
            for (uint32_t i = 0; i < many; i++)
                frugi_matrix_column(a, j + i, own_columns + (size_t)i * a->stride);
            frugi_matrix_correlate(a, own_columns, many, r->gram + (size_t)j * a->span);
        }
    }
    frugi_free(column);
    return true;
}

frug_status frugi_recover_create(const frugi_matrix *a, const frugi_recover_options *plan, frugi_recover **out) {
    FRUG_FAIL_IF(!a || !plan || !out, FRUG_ERR_ARG, "recover: a null pointer");
    frugi_recover_options checked = *plan;
    FRUG_TRY(check_plan(a, &checked));
    frugi_recover *r = frugi_alloc(sizeof *r);
    FRUG_FAIL_IF(!r, FRUG_ERR_MEMORY, "recover: no memory");
    r->a = a;
    r->plan = checked;
    r->pursuit = frugi_alloc((size_t)checked.threads * sizeof *r->pursuit);
    bool ok = r->pursuit && (checked.method != FRUGI_RECOVER_GRAM || make_gram(r));
    for (int t = 0; t < checked.threads && ok; t++)
        ok = alloc_pursuit(r, &r->pursuit[t]);
    if (!ok) {
        frugi_recover_destroy(r);
        return frugi_fail(FRUG_ERR_MEMORY, "recover: no memory for d = %u, k = %u, s = %u", a->plan.d, a->plan.k,
                          checked.s);
    }
    *out = r;
    return FRUG_OK;
}

void frugi_recover_destroy(frugi_recover *r) {
    if (!r)
        return;
    for (int t = 0; t < r->plan.threads && r->pursuit; t++)
        free_pursuit(&r->pursuit[t]);
    frugi_free(r->pursuit);
    frugi_free(r->gram);
    frugi_free(r);
}

uint64_t frugi_recover_bytes(const frugi_recover *r) {
    return r->bytes;
}

/* ---- run -------------------------------------------------------------------------------------- */

/* Scale a chunk. Returns the exponent that undoes it. */
static int scale_chunk(const frugi_pursuit *u, const float *p, float *scaled) {
    uint32_t k = u->a->plan.k;
    int exponent = 0;
    frexp((double)frugi_bits_f32(frugi_largest_magnitude(p, k)), &exponent);
    double scale = ldexp(1.0, -exponent);
    for (uint32_t t = 0; t < k; t++)
        scaled[t] = (float)((double)p[t] * scale);
    return exponent;
}

static double sum_of_squares(const float *p, uint32_t k) {
    double squares = 0;
    for (uint32_t t = 0; t < k; t++)
        squares += (double)p[t] * (double)p[t];
    return squares;
}

/* Write the entries of x by ascending index, and zeros after them. */
static void write_entries(const frugi_pursuit *u, int exponent, uint32_t *index, float *value) {
    double scale = ldexp(1.0, exponent);
    for (uint32_t i = 0; i < u->n; i++) {
        uint32_t at = i;
        for (; at > 0 && index[at - 1] > u->atom[i]; at--) {
            index[at] = index[at - 1];
            value[at] = value[at - 1];
        }
        index[at] = u->atom[i];
        value[at] = frugi_clamp_finite((float)(u->x[i] * scale));
    }
    for (uint32_t i = u->n; i < u->plan.s; i++) {
        index[i] = 0;
        value[i] = 0.0f;
    }
}

typedef struct outputs {
    uint32_t *index;
    float *value;
    uint32_t *count;
} outputs;

static void run_group(frugi_pursuit *u, const float *p, uint64_t first, uint32_t many, const outputs *out) {
    uint32_t k = u->a->plan.k, s = u->plan.s;
    int exponent[FRUGI_PURSUIT_GROUP];
    for (uint32_t c = 0; c < many; c++)
        exponent[c] = scale_chunk(u, p + (first + c) * k, u->p + (size_t)c * u->a->stride);
    if (u->gram)
        frugi_matrix_correlate(u->a, u->p, many, u->start);
    for (uint32_t c = 0; c < many; c++) {
        u->squares = sum_of_squares(u->p + (size_t)c * u->a->stride, k);
        if (u->plan.method == FRUGI_RECOVER_NAIVE)
            frugi_pursue_naive(u, c);
        else
            frugi_pursue(u, c);
        write_entries(u, exponent[c], out->index + (first + c) * s, out->value + (first + c) * s);
        out->count[first + c] = u->n;
    }
}

frug_status frugi_recover_run(frugi_recover *r, const float *p, uint64_t chunks, uint32_t *index, float *value,
                              uint32_t *count) {
    FRUG_FAIL_IF(!r || !p || !index || !value || !count, FRUG_ERR_ARG, "recover: a null pointer");
    FRUG_FAIL_IF(chunks == 0, FRUG_ERR_ARG, "recover: zero chunks");
    FRUG_TRY(check_finite(p, chunks, r->a->plan.k));
    const outputs out = {index, value, count};
    uint32_t group = r->gram ? FRUGI_PURSUIT_GROUP : 1;
    uint64_t groups = (chunks + group - 1) / group;
    uint64_t threads = (uint64_t)r->plan.threads < groups ? (uint64_t)r->plan.threads : groups;
#pragma omp parallel for num_threads((int)threads) schedule(static, 1) if (threads > 1)
    for (uint64_t t = 0; t < threads; t++)
        for (uint64_t g = groups * t / threads; g < groups * (t + 1) / threads; g++) {
            uint64_t first = g * group;
            uint32_t many = chunks - first < group ? (uint32_t)(chunks - first) : group;
            run_group(&r->pursuit[t], p, first, many, &out);
        }
    return FRUG_OK;
}
