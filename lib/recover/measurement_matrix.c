/*
 * measurement_matrix.c - create measurement matrices, multiply by them and by their transpose.
 *
 * The explicit matrix is stored by columns, so that a column is contiguous and a correlation is one dot product per
 * column. Four columns and up to four vectors are processed at a time: memory is then read once for four vectors, and
 * there are enough independent sums to hide latency.
 */
#include "recover/measurement_matrix.h"

#include "base/alloc.h"
#include "base/status.h"
#include "recover/recover_lanes.h"

#include <stdbool.h>

#define MAX_COLUMNS (1u << 28)
#define MAX_ROWS    (1u << 24)
#define MAX_THREADS 1024

static uint32_t round_up(uint32_t n, uint32_t to) {
    return (n + to - 1) / to * to;
}

/* ---- create ----------------------------------------------------------------------------------- */

static frug_status check_plan(const frugi_matrix_options *plan) {
    FRUG_FAIL_IF(plan->kind != FRUGI_MATRIX_GAUSSIAN && plan->kind != FRUGI_MATRIX_HADAMARD, FRUG_ERR_ARG,
                 "matrix: unknown kind %d", (int)plan->kind);
    FRUG_FAIL_IF(plan->d < 1 || plan->d > MAX_COLUMNS, FRUG_ERR_ARG, "matrix: %u columns are not from 1 to %u", plan->d,
                 MAX_COLUMNS);
    FRUG_FAIL_IF(plan->k < 1 || plan->k > MAX_ROWS, FRUG_ERR_ARG, "matrix: %u rows are not from 1 to %u", plan->k,
                 MAX_ROWS);
    FRUG_FAIL_IF(plan->k > plan->d, FRUG_ERR_ARG, "matrix: %u rows are more than the %u columns", plan->k, plan->d);
    FRUG_FAIL_IF(plan->threads < 1 || plan->threads > MAX_THREADS, FRUG_ERR_ARG, "matrix: %d threads", plan->threads);
    return FRUG_OK;
}

static bool make_gaussian(frugi_matrix *a) {
    uint64_t bytes = (uint64_t)a->plan.d * a->stride * sizeof(float);
    a->column = bytes <= SIZE_MAX / 2 ? frugi_alloc((size_t)bytes) : NULL;
    if (!a->column)
        return false;
#pragma omp parallel for num_threads(a->plan.threads) schedule(static) if (a->plan.threads > 1)
    for (uint32_t j = 0; j < a->plan.d; j++)
        frugi_normal_column(a->plan.seed, j, a->plan.k, a->column + (size_t)j * a->stride);
    return true;
}

static bool make_hadamard(frugi_matrix *a) {
    a->row = frugi_alloc(a->plan.k * sizeof *a->row);
    a->sign = frugi_alloc((a->order + 31) / 32 * sizeof *a->sign);
    if (!a->row || !a->sign)
        return false;
    frugi_hadamard_draw(a);
    return true;
}

frug_status frugi_matrix_create(const frugi_matrix_options *plan, frugi_matrix **out) {
    FRUG_FAIL_IF(!plan || !out, FRUG_ERR_ARG, "matrix: a null pointer");
    FRUG_TRY(check_plan(plan));
    frugi_matrix *a = frugi_alloc(sizeof *a);
    FRUG_FAIL_IF(!a, FRUG_ERR_MEMORY, "matrix: no memory");
    a->plan = *plan;
    a->stride = round_up(plan->k, 4);
    for (a->order = 4; a->order < plan->d;)
        a->order *= 2;
    a->span = round_up(plan->kind == FRUGI_MATRIX_HADAMARD ? a->order : plan->d, FRUGI_MATRIX_BLOCK);
    if (!(plan->kind == FRUGI_MATRIX_HADAMARD ? make_hadamard(a) : make_gaussian(a))) {
        frugi_matrix_destroy(a);
        return frugi_fail(FRUG_ERR_MEMORY, "matrix: no memory for %u x %u", plan->k, plan->d);
    }
    *out = a;
    return FRUG_OK;
}

void frugi_matrix_destroy(frugi_matrix *a) {
    if (!a)
        return;
    frugi_free(a->column);
    frugi_free(a->row);
    frugi_free(a->sign);
    frugi_free(a);
}

uint32_t frugi_matrix_rows(const frugi_matrix *a) {
    return a->plan.k;
}

uint32_t frugi_matrix_columns(const frugi_matrix *a) {
    return a->plan.d;
}

uint64_t frugi_matrix_bytes(const frugi_matrix *a) {
    uint64_t numbers = a->column ? (uint64_t)a->plan.d * a->stride : (uint64_t)a->plan.k + (a->order + 31) / 32;
    return numbers * sizeof(float);
}

uint32_t frugi_matrix_stride(const frugi_matrix *a) {
    return a->stride;
}

uint32_t frugi_matrix_span(const frugi_matrix *a) {
    return a->span;
}

/* ---- use -------------------------------------------------------------------------------------- */

void frugi_matrix_column(const frugi_matrix *a, uint32_t j, float *column) {
    if (a->column)
        memcpy(column, a->column + (size_t)j * a->stride, a->stride * sizeof *column);
    else
        frugi_hadamard_column(a, j, column);
}

frug_status frugi_matrix_apply(const frugi_matrix *a, const uint32_t *index, const float *value, uint32_t n,
                               float *work, float *p) {
    FRUG_FAIL_IF(!a || !p || !work || (n && (!index || !value)), FRUG_ERR_ARG, "matrix: a null pointer");
    for (uint32_t i = 0; i < n; i++)
        FRUG_FAIL_IF(index[i] >= a->plan.d, FRUG_ERR_ARG, "matrix: entry %u is at %u of %u columns", i, index[i],
                     a->plan.d);
    if (!a->column) {
        frugi_hadamard_apply(a, index, value, n, work, p);
        return FRUG_OK;
    }
    memset(p, 0, a->plan.k * sizeof *p);
    for (uint32_t i = 0; i < n; i++) {
        const float *column = a->column + (size_t)index[i] * a->stride;
        for (uint32_t t = 0; t < a->plan.k; t++)
            p[t] += value[i] * column[t];
    }
    return FRUG_OK;
}

/* The dot products of `columns` columns with `vectors` vectors; both are constants after inlining. */
FRUGI_INLINED void dots(const frugi_matrix *a, uint32_t j, const float *r, float *out, uint32_t columns,
                        uint32_t vectors) {
    frugi_float4 sum[4][8] = {0};
    const float *column = a->column + (size_t)j * a->stride;
    for (uint32_t t = 0; t < a->stride; t += 4) {
        frugi_float4 c[8];
        for (uint32_t i = 0; i < columns; i++)
            c[i] = frugi_load4(column + (size_t)i * a->stride + t);
        for (uint32_t v = 0; v < vectors; v++) {
            frugi_float4 x = frugi_load4(r + (size_t)v * a->stride + t);
            for (uint32_t i = 0; i < columns; i++)
                sum[v][i] += c[i] * x;
        }
    }
    for (uint32_t v = 0; v < vectors; v++)
        for (uint32_t i = 0; i < columns; i++)
            out[(size_t)v * a->span + j + i] = frugi_sum4(sum[v][i]);
}

static void correlate_four(const frugi_matrix *a, const float *r, float *out) {
    uint32_t j = 0;
    for (; j + 4 <= a->plan.d; j += 4)
        dots(a, j, r, out, 4, 4);
    for (; j < a->plan.d; j++)
        dots(a, j, r, out, 1, 4);
}

static void correlate_one(const frugi_matrix *a, const float *r, float *out) {
    uint32_t j = 0;
    for (; j + 8 <= a->plan.d; j += 8)
        dots(a, j, r, out, 8, 1);
    for (; j < a->plan.d; j++)
        dots(a, j, r, out, 1, 1);
}

void frugi_matrix_correlate(const frugi_matrix *a, const float *r, uint32_t count, float *out) {
    for (uint32_t v = 0; v < count;) {
        const float *from = r + (size_t)v * a->stride;
        float *to = out + (size_t)v * a->span;
        uint32_t together = a->column && count - v >= 4 ? 4 : 1;
        if (!a->column)
            frugi_hadamard_correlate(a, from, to);
        else if (together == 4)
            correlate_four(a, from, to);
        else
            correlate_one(a, from, to);
        v += together;
    }
    for (uint32_t v = 0; v < count && a->column; v++)
        memset(out + (size_t)v * a->span + a->plan.d, 0, (a->span - a->plan.d) * sizeof *out);
}
