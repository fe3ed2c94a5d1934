/* compressor.c - make, measure and end a compressor. */
#include "compress/compressor.h"

#include "base/alloc.h"
#include "base/status.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#define WORTH_A_THREAD 65536u /* elements; below this starting threads costs more than it gives */
#define THREADS_MOST   1024

static int thread_count(int wanted) {
#ifdef _OPENMP
    int threads = wanted > 0 ? wanted : omp_get_max_threads();
    return threads > THREADS_MOST ? THREADS_MOST : threads;
#else
    (void)wanted;
    return 1;
#endif
}

int frugi_threads_for(const frug_compressor *c, uint64_t elements) {
    uint64_t worth = elements / WORTH_A_THREAD + 1;
    return worth < (uint64_t)c->threads ? (int)worth : c->threads;
}

static frug_status list_pieces(frug_compressor *c) {
    c->piece = frugi_calloc(c->layout->count + 1, sizeof *c->piece);
    FRUG_FAIL_IF(!c->piece, FRUG_ERR_MEMORY, "compressor: out of memory");
    for (size_t i = 0; i < c->layout->count; i++) {
        const frug_tensor *t = &c->layout->tensor[i];
        uint64_t n = frugi_tensor_elements(t);
        if (n == 0)
            continue;
        frugi_piece *p = &c->piece[c->pieces++];
        p->begin = t->offset;
        p->count = n;
        p->tensor = (uint32_t)i;
        p->dense = n < c->config.min_size || (t->ndim < 2 && c->config.vectors_dense);
        p->first_block = c->blocks;
        if (!p->dense)
            c->blocks += (n + c->config.block - 1) / c->config.block;
    }
    return FRUG_OK;
}

/* The controller knows the compressed tensors only. */
static frug_status make_control(frug_compressor *c) {
    frugi_controlled *tensor = frugi_calloc(c->pieces + 1, sizeof *tensor);
    size_t count = 0;
    FRUG_FAIL_IF(!tensor, FRUG_ERR_MEMORY, "compressor: out of memory");
    for (size_t i = 0; i < c->pieces; i++)
        if (!c->piece[i].dense) {
            c->piece[i].number = count;
            tensor[count++] = (frugi_controlled){c->layout->tensor[c->piece[i].tensor].role, c->piece[i].count};
        }
    frug_status status = frugi_control_create(&c->config, tensor, count, c->total_steps, &c->control);
    frugi_free(tensor);
    FRUG_TRY(status);
    c->density = frugi_calloc(count + 1, sizeof *c->density);
    FRUG_FAIL_IF(!c->density, FRUG_ERR_MEMORY, "compressor: out of memory");
    return FRUG_OK;
}

/* One allocation per thread; the arrays start on cache lines of their own. */
static frug_status make_worker(const frug_compressor *c, frugi_worker *w) {
    size_t batch = FRUGI_BATCH_ELEMENTS, stretch = c->config.bucket > batch ? c->config.bucket : batch;
    size_t floats = 3 * batch + 2 * stretch;
    w->memory = frugi_alloc(floats * sizeof(float) + batch * (sizeof(uint16_t) + sizeof(uint32_t)));
    FRUG_FAIL_IF(!w->memory, FRUG_ERR_MEMORY, "compressor: no memory for scratch");
    w->acc = w->memory;
    w->saved = w->acc + batch;
    w->momentum = w->saved + batch;
    w->padded = w->momentum + batch;
    w->values = w->padded + stretch;
    w->units = (uint32_t *)(void *)(w->values + stretch);
    w->idx = (uint16_t *)(void *)(w->units + batch);
    return FRUG_OK;
}

static frug_status make_buffers(frug_compressor *c) {
    uint64_t stretches = frug_layout_elements(c->layout) / FRUGI_NORM_STRETCH + 1;
    c->slice = frugi_calloc(FRUGI_LAYERS * c->pieces + 1, sizeof *c->slice);
    c->partial = frugi_calloc(stretches, sizeof *c->partial);
    c->zeros = frugi_alloc(FRUGI_BATCH_ELEMENTS * sizeof *c->zeros);
    c->worker = frugi_alloc((size_t)c->threads * sizeof *c->worker);
    FRUG_FAIL_IF(!c->slice || !c->partial || !c->zeros || !c->worker, FRUG_ERR_MEMORY, "compressor: out of memory");
    for (int i = 0; i < c->threads; i++)
        FRUG_TRY(make_worker(c, &c->worker[i]));
    if (c->config.feedback != FRUGI_FEEDBACK_NONE)
        FRUG_TRY(frugi_store_create(c->config.residual, c->config.block, c->blocks, &c->residual));
    if (frugi_has_momentum(c))
        FRUG_TRY(frugi_store_create(c->config.residual, c->config.block, c->blocks, &c->momentum));
    return FRUG_OK;
}

static frug_status fill(frug_compressor *c, const frug_config *config, const frug_layout *layout,
                        const frug_options *options) {
    frugi_isa isa = frugi_isa_chosen();
    FRUG_FAIL_IF(isa == FRUGI_ISA_COUNT, FRUG_ERR_CONFIG,
                 "FRUG_ISA=%s does not run on this machine; the best here is %s", getenv("FRUG_ISA"),
                 frug_isa_at(1) ? frug_isa_at(1) : "ref");
    c->config = *config;
    c->total_steps = options->total_steps;
    c->source = options->source;
    c->threads = thread_count(options->threads);
    c->kernel = frugi_kernel_for(isa, config->block);
    c->beta = config->feedback == FRUGI_FEEDBACK_MERGED ? (float)config->beta : 1.0f;
    c->batch_most = FRUGI_BATCH_ELEMENTS / config->block;
    if (c->batch_most > FRUGI_LANES)
        c->batch_most = FRUGI_LANES;
    c->stats.struct_size = sizeof c->stats;
    FRUG_TRY(frugi_layout_copy(layout, &c->layout));
    c->layout_hash = frug_layout_hash(layout);
    FRUG_TRY(list_pieces(c));
    FRUG_TRY(make_control(c));
    FRUG_TRY(frugi_plan(c));
    return make_buffers(c);
}

frug_status frug_compressor_create(const frug_config *config, const frug_layout *layout, const frug_options *options,
                                   frug_compressor **compressor) {
    frug_options defaults = FRUG_OPTIONS_INIT;
    FRUG_FAIL_IF(!config || !layout || !compressor, FRUG_ERR_ARG,
                 "compressor: no config, no layout or no place for the result");
    FRUG_FAIL_IF(options && options->struct_size < sizeof *options, FRUG_ERR_ARG,
                 "compressor: start options with FRUG_OPTIONS_INIT");
    FRUG_FAIL_IF(options && options->threads < 0, FRUG_ERR_ARG, "compressor: %d threads", options->threads);
    frug_compressor *c = frugi_calloc(1, sizeof *c);
    FRUG_FAIL_IF(!c, FRUG_ERR_MEMORY, "compressor: out of memory");
    frug_status status = fill(c, config, layout, options ? options : &defaults);
    if (status == FRUG_OK)
        *compressor = c;
    else
        frug_compressor_destroy(c);
    return status;
}

void frug_compressor_destroy(frug_compressor *c) {
    if (!c)
        return;
    for (int i = 0; c->worker && i < c->threads; i++)
        frugi_free(c->worker[i].memory);
    frugi_free(c->worker);
    frugi_store_destroy(&c->residual);
    frugi_store_destroy(&c->momentum);
    frugi_plan_destroy(c);
    frugi_control_destroy(c->control);
    frugi_free(c->density);
    frugi_free(c->partial);
    frugi_free(c->zeros);
    frugi_free(c->cursor);
    frugi_free(c->reader);
    frugi_free(c->voice);
    frugi_free(c->listener);
    frugi_free(c->slice);
    frugi_free(c->piece);
    frug_layout_destroy(c->layout);
    frugi_free(c);
}

frug_status frug_compressor_bound(const frug_compressor *c, uint64_t begin, uint64_t count, size_t *bytes) {
    FRUG_FAIL_IF(!c || !bytes, FRUG_ERR_ARG, "bound: no compressor or no place for the result");
    frugi_cutting cut;
    uint64_t most = 0, units = 0;
    FRUG_TRY(frugi_cut(c, begin, count, 0, FRUGI_CUT_BOUND, NULL, &cut));
    if (c->by_units)
        FRUG_TRY(frugi_units_bound(c, begin, count, &units));
    most = cut.bytes + units;
    if (c->config.warmup || c->config.dense_every) {
        FRUG_TRY(frugi_cut(c, begin, count, 0, FRUGI_CUT_ALL, NULL, &cut));
        most = cut.bytes > most ? cut.bytes : most;
    }
    *bytes = most;
    return FRUG_OK;
}

static frug_status tell_tensor(frug_compressor *c, frug_signal signal, size_t tensor, const double *values,
                               size_t count) {
    FRUG_FAIL_IF(tensor >= c->layout->count, FRUG_ERR_ARG, "tell: no tensor %zu, there are %zu", tensor,
                 c->layout->count);
    const char *name = c->layout->tensor[tensor].name;
    const frugi_piece *p = c->piece;
    while (p < c->piece + c->pieces && (p->tensor != tensor || p->dense))
        p++;
    FRUG_FAIL_IF(p == c->piece + c->pieces, FRUG_ERR_ARG, "tell: tensor '%s' travels dense", name);
    if (signal == FRUG_SIGNAL_SENSITIVITY) {
        FRUG_FAIL_IF(c->config.layers != FRUGI_LAYERS_SENSITIVITY, FRUG_ERR_ARG,
                     "tell: what compressing tensor '%s' costs counts with layers=sensitivity only", name);
        FRUG_FAIL_IF(count != 1, FRUG_ERR_ARG, "tell: one number for the sensitivity of tensor '%s', not %zu", name,
                     count);
        frugi_control_weight(c->control, p->number, values[0]);
        return FRUG_OK;
    }
    FRUG_FAIL_IF(!c->given || !c->contest[p->contest].heads, FRUG_ERR_ARG,
                 "tell: tensor '%s' has no heads that compete by what they are given (unit=head,score=given)", name);
    frugi_contest *k = &c->contest[p->contest];
    FRUG_FAIL_IF(count != k->units, FRUG_ERR_ARG, "tell: %zu numbers for the %llu heads of tensor '%s'", count,
                 (unsigned long long)k->units, name);
    for (size_t i = 0; i < count; i++)
        c->given[k->first_unit + i] = values[i] < FLT_MAX ? (float)values[i] : FLT_MAX;
    k->told = true;
    return FRUG_OK;
}

frug_status frug_compressor_tell(frug_compressor *c, frug_signal signal, size_t tensor, const double *values,
                                 size_t count) {
    FRUG_FAIL_IF(!c || !values || count == 0, FRUG_ERR_ARG, "tell: no compressor or no numbers");
    for (size_t i = 0; i < count; i++)
        FRUG_FAIL_IF(!(values[i] >= 0 && values[i] <= DBL_MAX), FRUG_ERR_ARG,
                     "tell: number %zu is negative or not finite", i);
    switch (signal) {
    case FRUG_SIGNAL_NORM:
        FRUG_FAIL_IF(count != 1, FRUG_ERR_ARG, "tell: one norm, not %zu", count);
        FRUG_FAIL_IF(c->config.norm == FRUGI_NORM_OFF, FRUG_ERR_ARG,
                     "tell: the norm counts with norm=follow or norm=accordion only");
        c->norm_told = true;
        c->norm = values[0];
        return FRUG_OK;
    case FRUG_SIGNAL_SENSITIVITY:
    case FRUG_SIGNAL_HEADS: return tell_tensor(c, signal, tensor, values, count);
    }
    return frugi_fail(FRUG_ERR_ARG, "tell: unknown signal %d", (int)signal);
}

frug_status frug_compressor_stats(const frug_compressor *c, frug_stats *stats) {
    FRUG_FAIL_IF(!c || !stats, FRUG_ERR_ARG, "stats: no compressor or no place for the result");
    FRUG_FAIL_IF(stats->struct_size < sizeof *stats, FRUG_ERR_ARG, "stats: set struct_size to sizeof(frug_stats)");
    *stats = c->stats;
    return FRUG_OK;
}
