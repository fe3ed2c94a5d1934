/*
 * reducer.c - create a reducer, check that all ranks agree, run the algorithm, record statistics.
 */
#include "frugrad/experimental.h"
#include "base/struct_size.h"
#include "reduce/reducer.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/float_bits.h"
#include "base/hash.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_BYTES 48u

/* In the order of the values of option `reduce`. */
static const frugi_algorithm *const algorithms[] = {
    &frugi_reduce_gather, &frugi_reduce_dense,  &frugi_reduce_split, &frugi_reduce_tree,
    &frugi_reduce_nodes,  &frugi_reduce_shared, &frugi_reduce_auto,
};

const frugi_algorithm *frugi_algorithm_find(const char *name) {
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++)
        if (strcmp(algorithms[i]->name, name) == 0)
            return algorithms[i];
    return NULL;
}

frug_status frugi_buffer_reserve(frugi_buffer *buffer, size_t bytes) {
    if (bytes <= buffer->bytes)
        return FRUG_OK;
    unsigned char *grown = frugi_malloc(bytes);
    FRUG_FAIL_IF(!grown, FRUG_ERR_MEMORY, "reduce: out of memory for %zu bytes of payload", bytes);
    frugi_free(buffer->data);
    *buffer = (frugi_buffer){grown, bytes};
    return FRUG_OK;
}

/* ---- sync rounds -------------------------------------------------------------- */

static void encode_record(const frugi_sync_record *m, unsigned char *to) {
    frugi_put32(to, (uint32_t)m->status);
    frugi_put32(to + 4, m->phase);
    frugi_put64(to + 8, m->step);
    frugi_put64(to + 16, m->begin);
    frugi_put64(to + 24, m->count);
    frugi_put64(to + 32, m->bytes);
    frugi_put64(to + 40, m->hash);
}

static frugi_sync_record decode_record(const unsigned char *from) {
    return (frugi_sync_record){.status = (int32_t)frugi_get32(from),
                               .phase = frugi_get32(from + 4),
                               .step = frugi_get64(from + 8),
                               .begin = frugi_get64(from + 16),
                               .count = frugi_get64(from + 24),
                               .bytes = frugi_get64(from + 32),
                               .hash = frugi_get64(from + 40)};
}

static int first_failed(const frug_reducer *r) {
    for (int i = 0; i < r->comm->size; i++)
        if (r->record[i].status != FRUG_OK)
            return i;
    return -1;
}

/* All ranks know that rank `failed` has failed: gather error texts. A rank that has failed returns its own error. */
static frug_status fail_together(frug_reducer *r, frug_status status, int failed) {
    char own[FRUGI_ERROR_TEXT] = {0}, sent[FRUGI_FAILURE_TEXT] = {0};
    if (status != FRUG_OK)
        strncpy(own, frug_last_error(), sizeof own - 1);
    memcpy(sent, own, sizeof sent - 1);
    frug_status gathered = frugi_comm_allgather(r->comm, sent, sizeof sent, r->failure, r->message);
    if (status != FRUG_OK)
        return frugi_fail(status, "%s", own);
    FRUG_TRY(gathered);
    char *text = r->failure + (size_t)failed * sizeof sent;
    text[sizeof sent - 1] = 0;
    const frugi_sync_record *m = &r->record[failed];
    return frugi_fail(FRUG_ERR_REMOTE, "reduce: rank %d failed at step %llu: %s", failed, (unsigned long long)m->step,
                      *text ? text : frug_status_text((frug_status)m->status));
}

/* Fail if a rank has failed or is at another step, range or phase. All ranks name the same one, the lowest. */
static frug_status check_records(frug_reducer *r, frug_status status) {
    const frugi_sync_record *first = &r->record[0];
    int failed = first_failed(r);
    if (failed >= 0)
        return fail_together(r, status, failed);
    for (int i = 1; i < r->comm->size; i++) {
        const frugi_sync_record *m = &r->record[i];
        FRUG_FAIL_IF(
            m->step != first->step || m->begin != first->begin || m->count != first->count || m->phase != first->phase,
            FRUG_ERR_REMOTE,
            "reduce: calls do not match: rank 0 has %llu elements from %llu at step %llu, rank %d %llu from %llu at "
            "step %llu",
            (unsigned long long)first->count, (unsigned long long)first->begin, (unsigned long long)first->step, i,
            (unsigned long long)m->count, (unsigned long long)m->begin, (unsigned long long)m->step);
    }
    return FRUG_OK;
}

frug_status frugi_sync(frug_reducer *r, const frugi_exchange *x, frug_status status, uint64_t bytes, uint64_t hash) {
    size_t size = (size_t)r->comm->size;
    double start = frugi_clock();
    frugi_sync_record own = {status, r->phase++, x->step, x->begin, x->count, bytes, hash};
    unsigned char out[RECORD_BYTES];
    encode_record(&own, out);
    FRUG_TRY(frugi_comm_allgather(r->comm, out, RECORD_BYTES, r->record_bytes, r->message));
    for (size_t i = 0; i < size; i++)
        r->record[i] = decode_record(r->record_bytes + i * RECORD_BYTES);
    r->stats.seconds_wait += frugi_clock() - start;
    return check_records(r, status);
}

frug_status frugi_reserve_payloads(frug_reducer *r, const frugi_exchange *x, size_t bytes) {
    uint64_t announced = 0;
    bool grows = false;
    for (int i = 0; i < r->comm->size; i++)
        announced += r->record[i].bytes;
    for (int i = 0; i < r->comm->size; i++)
        grows |= announced - r->record[i].bytes > r->record[i].hash;
    return grows ? frugi_sync(r, x, frugi_buffer_reserve(&r->recv_buf, bytes), r->record[r->comm->rank].bytes, 0)
                 : FRUG_OK;
}

frug_status frugi_confirm(frug_reducer *r, const frugi_exchange *x, frug_status status, uint64_t hash) {
    FRUG_TRY(frugi_sync(r, x, status, 0, hash));
    for (int i = 1; i < r->comm->size; i++)
        FRUG_FAIL_IF(r->record[i].hash != r->record[0].hash, FRUG_ERR_REMOTE,
                     "reduce: at step %llu ranks 0 and %d have different results", (unsigned long long)x->step, i);
    return FRUG_OK;
}

uint64_t frugi_frames_hash(const void *const *frames, const size_t *lens, size_t count) {
    uint64_t hash = FRUGI_HASH_INIT;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *frame = frames[i];
        uint32_t checksum = lens[i] >= FRUGI_FRAME_HEADER ? frugi_get32(frame + FRUGI_FRAME_HEADER - 4) : 0;
        hash = frugi_hash_word(frugi_hash_word(hash, lens[i]), checksum);
    }
    return hash;
}

/* ---- creation ----------------------------------------------------------------- */

/* Compare version, config, layout and number of steps, each in its own round, so that the error names what differs. */
static frug_status check_agreement(frug_reducer *r, const frug_compressor_options *options, frug_status status) {
    const frug_compressor *c = r->compressor;
    static const char *const what[] = {"versions of the library", "config strings", "layouts", "numbers of steps"};
    uint64_t hash[4] = {frugi_hash_text(FRUGI_HASH_INIT, frug_version()),
                        c ? frugi_hash_text(FRUGI_HASH_INIT, frugi_compressor_config(c)->text) : 0,
                        c ? frugi_compressor_layout_hash(c) : 0, options ? options->total_steps : 0};
    for (size_t i = 0; i < 4; i++) {
        frugi_exchange no_range = {0};
        FRUG_TRY(frugi_sync(r, &no_range, status, 0, hash[i]));
        for (int k = 1; k < r->comm->size; k++)
            FRUG_FAIL_IF(r->record[k].hash != r->record[0].hash, FRUG_ERR_REMOTE,
                         "reduce: ranks 0 and %d have different %s", k, what[i]);
    }
    return FRUG_OK;
}

static frug_status alloc_arrays(frug_reducer *r) {
    size_t size = (size_t)r->comm->size;
    r->record = frugi_calloc(size, sizeof *r->record);
    r->record_bytes = frugi_calloc(size, RECORD_BYTES);
    r->message = frugi_calloc(4 * size + 4, sizeof *r->message);
    r->frame = frugi_calloc(size, sizeof *r->frame);
    r->len = frugi_calloc(size, sizeof *r->len);
    r->failure = frugi_calloc(size, FRUGI_FAILURE_TEXT);
    FRUG_FAIL_IF(!r->record || !r->record_bytes || !r->message || !r->frame || !r->len || !r->failure, FRUG_ERR_MEMORY,
                 "reduce: out of memory for a group of %zu", size);
    return FRUG_OK;
}

/* reduce=dense does not compress: without feedback no residual is allocated. */
static frug_status make_compressor(const frug_config *config, const frug_layout *layout,
                                   const frug_compressor_options *options, frug_reducer *r) {
    struct frug_config copy = *config;
    FRUG_FAIL_IF(copy.reduce == FRUGI_REDUCE_GOSSIP, FRUG_ERR_CONFIG,
                 "config: reduce=gossip has no sum of gradients; use frug_gossip_create() instead of a reducer");
    if (copy.reduce == FRUGI_REDUCE_DENSE)
        copy.feedback = FRUGI_FEEDBACK_NONE;
    return frug_compressor_create(&copy, layout, options, &r->compressor);
}

static frug_status check_arguments(const frug_config *config, const frug_layout *layout,
                                   const frug_compressor_options *options) {
    FRUG_FAIL_IF(!config || !layout, FRUG_ERR_ARG, "reducer: config or layout is NULL");
    FRUG_FAIL_IF(options && !frugi_struct_valid(options), FRUG_ERR_ARG,
                 "reducer: initialize options with FRUG_COMPRESSOR_OPTIONS_INIT");
    return FRUG_OK;
}

frug_status frug_reducer_create(const frug_config *config, const frug_layout *layout,
                                const frug_compressor_options *options, frug_comm *comm, frug_reducer **reducer) {
    frug_compressor_options copy = FRUG_COMPRESSOR_OPTIONS_INIT;
    FRUG_FAIL_IF(!comm || !reducer, FRUG_ERR_ARG, "reducer: comm or result is NULL");
    if (options && frugi_struct_valid(options))
        frugi_struct_read(&copy, options);
    copy.source = (uint32_t)comm->rank;
    if (copy.threads == 0 && !getenv("OMP_NUM_THREADS"))
        copy.threads = comm->transport.threads;
    frug_reducer *r = frugi_calloc(1, sizeof *r);
    FRUG_FAIL_IF(!r, FRUG_ERR_MEMORY, "reducer: out of memory");
    r->comm = comm;
    r->stats.struct_size = sizeof r->stats;
    frug_status status = alloc_arrays(r);
    if (status == FRUG_OK) {
        /* From here on an error is sent to the other ranks, which would wait otherwise. */
        status = check_arguments(config, layout, options);
        if (status == FRUG_OK)
            status = make_compressor(config, layout, &copy, r);
        r->algorithm = status == FRUG_OK ? algorithms[config->reduce] : NULL;
        if (status == FRUG_OK && r->algorithm->create)
            status = r->algorithm->create(r);
        status = check_agreement(r, &copy, status);
        if (status == FRUG_OK && r->algorithm->resolve)
            status = r->algorithm->resolve(r);
    }
    if (status == FRUG_OK)
        *reducer = r;
    else
        frug_reducer_destroy(r);
    return status;
}

void frug_reducer_destroy(frug_reducer *r) {
    if (!r)
        return;
    frugi_async_destroy(r->async);
    if (r->algorithm && r->algorithm->destroy)
        r->algorithm->destroy(r);
    frug_compressor_destroy(r->compressor);
    frugi_free(r->record);
    frugi_free(r->record_bytes);
    frugi_free(r->message);
    frugi_free(r->frame);
    frugi_free(r->len);
    frugi_free(r->failure);
    frugi_free(r->send_buf.data);
    frugi_free(r->recv_buf.data);
    frugi_free(r);
}

/* ---- exchange ------------------------------------------------------------------- */

/* Store what one exchange has added to the totals. */
static void record_bucket_stats(frug_reducer *r, const frugi_exchange *x, const frug_reduce_stats *before) {
    const frug_reduce_stats *now = &r->stats;
    r->bucket[before->calls % FRUG_BUCKETS_KNOWN] =
        (frug_bucket_stats){.struct_size = sizeof(frug_bucket_stats),
                            .step = x->step,
                            .range = {x->begin, x->count},
                            .stats = {.struct_size = sizeof *now,
                                      .calls = 1,
                                      .bytes_sent = now->bytes_sent - before->bytes_sent,
                                      .bytes_received = now->bytes_received - before->bytes_received,
                                      .seconds_compress = now->seconds_compress - before->seconds_compress,
                                      .seconds_wait = now->seconds_wait - before->seconds_wait,
                                      .seconds_wire = now->seconds_wire - before->seconds_wire,
                                      .seconds_decode = now->seconds_decode - before->seconds_decode,
                                      .seconds_total = now->seconds_total - before->seconds_total}};
}

frug_status frug_reducer_bucket(const frug_reducer *r, size_t back, frug_bucket_stats *bucket) {
    FRUG_FAIL_IF(!r || !frugi_struct_valid(bucket), FRUG_ERR_ARG,
                 "reduce: reducer or statistics is NULL, or struct_size is not set");
    FRUG_FAIL_IF(back >= r->stats.calls || back >= FRUG_BUCKETS_KNOWN, FRUG_ERR_ARG,
                 "reduce: no statistics of the exchange %zu back: of %llu exchanges the last %d are kept", back,
                 (unsigned long long)r->stats.calls, FRUG_BUCKETS_KNOWN);
    frugi_struct_write(bucket, &r->bucket[(r->stats.calls - 1 - back) % FRUG_BUCKETS_KNOWN]);
    return FRUG_OK;
}

/* Every algorithm begins with a sync round: this is the one that the other ranks are in. */
frug_status frug_reducer_fail(frug_reducer *r, uint64_t step, frug_range range, const char *why) {
    FRUG_FAIL_IF(!r, FRUG_ERR_ARG, "reduce: reducer is NULL");
    FRUG_TRY(frugi_async_check_idle(r->async));
    frugi_exchange x = {.step = step, .begin = range.begin, .count = range.count};
    r->phase = 0;
    return frugi_sync(r, &x, frugi_fail(FRUG_ERR_ARG, "%s", why ? why : "no reason given"), 0, 0);
}

static frug_status run_exchange(frug_reducer *r, uint64_t step, frug_range range, const float *grad,
                                frugi_target target) {
    FRUG_FAIL_IF(!r, FRUG_ERR_ARG, "reduce: reducer is NULL");
    FRUG_TRY(frugi_async_check_idle(r->async));
    frugi_exchange x = {.step = step, .begin = range.begin, .count = range.count, .grad = grad, .target = target};
    double start = frugi_clock();
    frug_reduce_stats before = r->stats;
    r->phase = 0;
    frug_status status = FRUG_OK;
    if (range.count && (!grad || !target.dst))
        status = frug_reducer_fail(r, step, range, "reduce: no gradient or no destination");
    else if (!isfinite(target.keep) || !isfinite(target.gain))
        status = frug_reducer_fail(r, step, range, "reduce: a scale, rate or decay is not finite");
    else
        status = r->algorithm->run(r, &x);
    r->stats.calls++;
    r->stats.seconds_total += frugi_clock() - start;
    record_bucket_stats(r, &x, &before);
    return status;
}

frug_status frug_reducer_add(frug_reducer *r, uint64_t step, frug_range range, const float *grad, double scale,
                             float *dst) {
    frugi_target t = {.dst = dst, .begin = range.begin, .count = range.count, .keep = 1.0f, .gain = (float)scale};
    return run_exchange(r, step, range, grad, t);
}

frug_status frug_reducer_apply(frug_reducer *r, uint64_t step, frug_range range, const float *grad, double rate,
                               double decay, float *weights) {
    FRUG_FAIL_IF(r && frugi_compressor_config(r->compressor)->feedback == FRUGI_FEEDBACK_EF21, FRUG_ERR_CONFIG,
                 "config: feedback=ef21 sends changes of the gradient, which only optimizer=merged adds up; use "
                 "frug_reducer_sum() and frug_optimizer_step()");
    frugi_target t = {.dst = weights, .begin = range.begin, .count = range.count};
    t.keep = 1.0f - (float)decay;
    t.gain = -(float)rate;
    return run_exchange(r, step, range, grad, t);
}

frug_status frug_reducer_sum(frug_reducer *r, uint64_t step, frug_range range, float *grad, double scale) {
    frugi_target t = {.dst = grad, .begin = range.begin, .count = range.count, .keep = 0.0f, .gain = (float)scale};
    return run_exchange(r, step, range, grad, t);
}

frug_compressor *frug_reducer_compressor(frug_reducer *r) {
    return r ? r->compressor : NULL;
}

const char *frug_reducer_algorithm(const frug_reducer *r) {
    return r ? r->algorithm->name : NULL;
}

frug_status frug_reducer_stats(const frug_reducer *r, frug_reduce_stats *stats) {
    FRUG_FAIL_IF(!r || !frugi_struct_valid(stats), FRUG_ERR_ARG,
                 "reduce: reducer or statistics is NULL, or struct_size is not set");
    frugi_struct_write(stats, &r->stats);
    return FRUG_OK;
}
