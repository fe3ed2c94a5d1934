/* compressor.c - make, measure and end a compressor. */
#include "compress/compressor.h"

#include "common/memory.h"
#include "common/status.h"
#include "schedule/schedule.h"

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
    c->piece = calloc(c->layout->count + 1, sizeof *c->piece);
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

/* One allocation per thread; the arrays start on cache lines of their own. */
static frug_status make_worker(frugi_worker *w) {
    size_t batch = FRUGI_BATCH_ELEMENTS, floats = 5 * batch;
    w->memory = frugi_alloc(floats * sizeof(float) + batch * sizeof(uint16_t));
    FRUG_FAIL_IF(!w->memory, FRUG_ERR_MEMORY, "compressor: no memory for scratch");
    w->acc = w->memory;
    w->saved = w->acc + batch;
    w->momentum = w->saved + batch;
    w->padded = w->momentum + batch;
    w->values = w->padded + batch;
    w->idx = (uint16_t *)(void *)(w->values + batch);
    return FRUG_OK;
}

static frug_status make_buffers(frug_compressor *c) {
    c->slice = calloc(c->pieces + 1, sizeof *c->slice);
    c->zeros = frugi_alloc(FRUGI_BATCH_ELEMENTS * sizeof *c->zeros);
    c->worker = frugi_alloc((size_t)c->threads * sizeof *c->worker);
    FRUG_FAIL_IF(!c->slice || !c->zeros || !c->worker, FRUG_ERR_MEMORY, "compressor: out of memory");
    for (int i = 0; i < c->threads; i++)
        FRUG_TRY(make_worker(&c->worker[i]));
    if (c->config.feedback != FRUGI_FEEDBACK_NONE)
        FRUG_TRY(frugi_store_create(c->config.residual, c->config.block, c->blocks, &c->residual));
    if (c->config.feedback == FRUGI_FEEDBACK_DGC)
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
    frug_compressor *c = calloc(1, sizeof *c);
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
        free(c->worker[i].memory);
    free(c->worker);
    frugi_store_destroy(&c->residual);
    frugi_store_destroy(&c->momentum);
    free(c->zeros);
    free(c->cursor);
    free(c->reader);
    free(c->slice);
    free(c->piece);
    frug_layout_destroy(c->layout);
    free(c);
}

frug_status frug_compressor_bound(const frug_compressor *c, uint64_t begin, uint64_t count, size_t *bytes) {
    FRUG_FAIL_IF(!c || !bytes, FRUG_ERR_ARG, "bound: no compressor or no place for the result");
    /* Schedules run one way, so the densest step is the first or the last. */
    double first = frugi_schedule_density(&c->config.schedule, 0, c->total_steps);
    double last = frugi_schedule_final_density(&c->config.schedule);
    frugi_cutting cut;
    FRUG_TRY(frugi_cut(c, begin, count, 0, first > last ? first : last, NULL, &cut));
    *bytes = cut.bytes;
    return FRUG_OK;
}

frug_status frug_compressor_stats(const frug_compressor *c, frug_stats *stats) {
    FRUG_FAIL_IF(!c || !stats, FRUG_ERR_ARG, "stats: no compressor or no place for the result");
    FRUG_FAIL_IF(stats->struct_size < sizeof *stats, FRUG_ERR_ARG, "stats: set struct_size to sizeof(frug_stats)");
    *stats = c->stats;
    return FRUG_OK;
}

frug_status frug_compressor_residual(const frug_compressor *c, uint64_t begin, uint64_t count, float *dst) {
    FRUG_FAIL_IF(!c || (!dst && count), FRUG_ERR_ARG, "residual: no compressor or no place for the result");
    frugi_cutting cut;
    uint64_t end = begin + count;
    FRUG_TRY(frugi_cut(c, begin, count, 0, 1.0, NULL, &cut));
    memset(dst, 0, count * sizeof *dst);
    if (c->config.feedback == FRUGI_FEEDBACK_NONE)
        return FRUG_OK;
    float block[FRUGI_BATCH_ELEMENTS];
    for (size_t i = 0; i < c->pieces; i++) {
        const frugi_piece *p = &c->piece[i];
        if (p->dense || p->begin + p->count <= begin || p->begin >= end)
            continue;
        uint64_t from = p->begin < begin ? begin : p->begin;
        uint64_t to = p->begin + p->count > end ? end : p->begin + p->count;
        for (uint64_t at = from; at < to; at += c->config.block) {
            uint64_t n = to - at < c->config.block ? to - at : c->config.block;
            frugi_store_load(&c->residual, p->first_block + (at - p->begin) / c->config.block, block);
            memcpy(dst + (at - begin), block, n * sizeof *dst);
        }
    }
    return FRUG_OK;
}
