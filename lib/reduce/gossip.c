/*
 * Function:     gossip - compressed gossip, CHOCO-SGD (Koloskova, Stich and Jaggi 2019).
 * Description:  There is no global sum. Rank i has `hat`, the copy of its weights that its neighbors have, and `gap`,
 *               the weighted mean of the copies of its neighbors and itself minus hat. After a local step changed its
 *               weights x: q = C(x - hat) is sent to the neighbors; hat += q; gap += sum_j w_ij (q_j - q);
 *               x += gamma gap. What q does not contain is still in x - hat, so no residual is needed. With
 *               average_every=n all weights are averaged by a dense all-reduce every n steps. CHOCO-SGD as published
 *               keeps the mean itself; the gap is small where ranks agree, so that less is lost by rounding and the
 *               mean drifts less.
 * Cost:         one frame sent to and received from each neighbor, independent of the number of ranks; three passes
 *               over the weights.
 * Limitations:  ranks agree only in the long run, and only if gamma is small enough for the density; a restart must
 *               begin from weights that are the same on all ranks.
 *
 * Example, 2 ranks, one element, everything sent, gamma = 1: they have 2 and 6. Each sends its weight, and both weigh
 *     1/2: the gaps are (6 - 2) / 2 and (2 - 6) / 2; 2 + 2 and 6 - 2 are both 4, the mean.
 *
 * A rank exchanges a record and a frame with each neighbor. After a record with an error the edge is closed and no more
 * messages are sent on it. A rank that receives an error finishes the step with its other neighbors, which wait for its
 * frame, and then sends the error on in place of its next record. At a step that averages, all ranks exchange their
 * status instead, unless a neighbor has ended at an earlier step.
 */
#include "frugrad/experimental.h"
#include "reduce/reducer.h"

#include "base/float_bits.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/alloc.h"
#include "base/status.h"
#include "reduce/gossip_topology.h"

#define RECORD_BYTES 24u
#define TAG_RECORD   FRUGI_TAG_FIRST
#define TAG_FRAME    (FRUGI_TAG_FIRST + 1)

/** A neighbor. */
typedef struct edge {
    int rank;
    float weight;
    bool open; /* neither side has failed */
    unsigned char in[RECORD_BYTES], out[RECORD_BYTES];
    frug_status status;
    uint64_t step, bytes; /* of its last record */
} edge;

struct frug_gossip {
    frug_reducer *base; /* for its compressor, buffers and statistics; its algorithm is not used */
    frugi_topology topology;
    edge *edge;
    int edges;
    float self; /* weight of its own frame in the gap: minus the sum of the neighbors' weights */
    float gamma;
    uint64_t n, average_every;
    size_t bound;        /* of a frame */
    float *hat, *gap;    /* see above */
    float *work;         /* x - hat; or the sum when averaging */
    float *ring_scratch; /* for the all-reduce */
    bool failed;
};

/* ---- exchange with the neighbors ---------------------------------------------- */

static frug_status exchange_records(frug_gossip *g, uint64_t step, frug_status status, uint64_t bytes) {
    frug_message *m = g->base->message;
    size_t n = 0;
    for (int i = 0; i < g->edges; i++) {
        edge *e = &g->edge[i];
        if (!e->open)
            continue;
        frugi_put32(e->out, (uint32_t)status);
        frugi_put32(e->out + 4, 0);
        frugi_put64(e->out + 8, step);
        frugi_put64(e->out + 16, bytes);
        m[n++] = (frug_message){.peer = e->rank, .tag = TAG_RECORD, .data = e->in, .bytes = RECORD_BYTES};
        m[n++] =
            (frug_message){.peer = e->rank, .tag = TAG_RECORD, .sending = 1, .data = e->out, .bytes = RECORD_BYTES};
    }
    FRUG_TRY(frugi_comm_exchange(g->base->comm, m, n));
    for (int i = 0; i < g->edges; i++) {
        edge *e = &g->edge[i];
        if (!e->open)
            continue;
        e->status = (frug_status)(int32_t)frugi_get32(e->in);
        e->step = frugi_get64(e->in + 8);
        e->bytes = frugi_get64(e->in + 16);
        e->open = status == FRUG_OK && e->status == FRUG_OK && e->bytes <= g->bound;
    }
    return FRUG_OK;
}

/* Check the records of the neighbors: errors first, then steps and sizes. */
static frug_status check_records(const frug_gossip *g, uint64_t step) {
    for (int i = 0; i < g->edges; i++) {
        const edge *e = &g->edge[i];
        FRUG_FAIL_IF(e->status != FRUG_OK, FRUG_ERR_REMOTE, "gossip: rank %d failed at step %llu: %s", e->rank,
                     (unsigned long long)e->step, frug_status_text(e->status));
    }
    for (int i = 0; i < g->edges; i++) {
        const edge *e = &g->edge[i];
        FRUG_FAIL_IF(e->step != step, FRUG_ERR_REMOTE, "gossip: rank %d is at step %llu, this rank at step %llu",
                     e->rank, (unsigned long long)e->step, (unsigned long long)step);
        FRUG_FAIL_IF(!e->open, FRUG_ERR_REMOTE, "gossip: rank %d announces a frame of %llu bytes, more than the bound",
                     e->rank, (unsigned long long)e->bytes);
    }
    return FRUG_OK;
}

/* Send this rank's frame on all open edges, and receive the neighbors' frames into base->recv_buf. */
static frug_status exchange_frames(frug_gossip *g, size_t own_bytes) {
    frug_reducer *r = g->base;
    size_t n = 0;
    unsigned char *at = r->recv_buf.data;
    for (int i = 0; i < g->edges; i++) {
        const edge *e = &g->edge[i];
        if (!e->open)
            continue;
        r->frame[i] = at;
        r->len[i] = (size_t)e->bytes;
        r->message[n++] = (frug_message){.peer = e->rank, .tag = TAG_FRAME, .data = at, .bytes = r->len[i]};
        r->message[n++] = (frug_message){
            .peer = e->rank, .tag = TAG_FRAME, .sending = 1, .data = r->send_buf.data, .bytes = own_bytes};
        r->stats.bytes_sent += own_bytes;
        r->stats.bytes_received += r->len[i];
        at += r->len[i];
    }
    return frugi_comm_exchange(r->comm, r->message, n);
}

/* ---- one step ------------------------------------------------------------------- */

/* Compress x - hat into base->send_buf. */
static frug_status compress_difference(frug_gossip *g, uint64_t step, const float *x, size_t *len) {
    frug_reducer *r = g->base;
    FRUG_FAIL_IF(!x, FRUG_ERR_ARG, "gossip: weights is NULL");
    for (uint64_t i = 0; i < g->n; i++)
        g->work[i] = x[i] - g->hat[i];
    return frug_compress(r->compressor, step, (frug_range){0, g->n}, g->work, r->send_buf.data, r->send_buf.bytes, len);
}

/* dst += weight * frame */
static frug_status decode_add(frug_gossip *g, const void *frame, size_t len, float weight, float *dst) {
    return frug_decode_add(frug_compressor_decoder(g->base->compressor), (frug_range){0, g->n}, &frame, &len, 1, weight,
                           dst);
}

/* Add all frames of this step to hat and gap: this rank's own first, then by rank. */
static frug_status decode_all(frug_gossip *g, size_t own_bytes) {
    const frug_reducer *r = g->base;
    FRUG_TRY(decode_add(g, r->send_buf.data, own_bytes, 1.0f, g->hat));
    FRUG_TRY(decode_add(g, r->send_buf.data, own_bytes, g->self, g->gap));
    for (int i = 0; i < g->edges; i++)
        FRUG_TRY(decode_add(g, r->frame[i], r->len[i], g->edge[i].weight, g->gap));
    return FRUG_OK;
}

static void apply_gap(const frug_gossip *g, float *x) {
    frugi_range_iter it = frugi_range_start(frugi_compressor_partition(g->base->compressor), 0, g->n);
    while (frugi_range_next(&it))
        for (uint64_t i = it.from; i < it.to; i++)
            x[i] += g->gamma * g->gap[i];
}

/* The mean over all ranks after apply_gap(). Status: of the exchange with the neighbors. The sync round comes first,
 * because a transport's all-reduce may have no timeout. */
static frug_status average_weights(frug_gossip *g, uint64_t step, frug_status status, float *x) {
    frug_reducer *r = g->base;
    frugi_exchange all = {.step = step, .count = g->n};
    float inverse_size = 1.0f / (float)r->comm->size;
    r->phase = 0;
    FRUG_TRY(frugi_sync(r, &all, status, 0, 0));
    memcpy(g->work, x, g->n * sizeof *x);
    apply_gap(g, g->work);
    FRUG_TRY(frugi_comm_allreduce(r->comm, g->work, g->n, g->ring_scratch));
    size_t bytes = (size_t)g->n * sizeof *x, moved = 2 * (bytes - bytes / (size_t)r->comm->size); /* as reduce=dense */
    r->stats.bytes_sent += moved;
    r->stats.bytes_received += moved;
    frugi_range_iter it = frugi_range_start(frugi_compressor_partition(r->compressor), 0, g->n);
    while (frugi_range_next(&it))
        for (uint64_t i = it.from; i < it.to; i++)
            x[i] = inverse_size * g->work[i];
    return FRUG_OK;
}

/* Whether a neighbor sent the error of an earlier step on: it takes no part in this one. */
static bool neighbor_has_ended(const frug_gossip *g, uint64_t step) {
    for (int i = 0; i < g->edges; i++)
        if (g->edge[i].status != FRUG_OK && g->edge[i].step != step)
            return true;
    return false;
}

/* Exchange frames with the neighbors and update hat and gap. Clears *averages if a rank cannot take part in that. */
static frug_status exchange_step(frug_gossip *g, uint64_t step, const float *x, bool *averages) {
    frug_reduce_stats *stats = &g->base->stats;
    size_t own_bytes = 0;
    double clock = frugi_clock();
    frug_status status = compress_difference(g, step, x, &own_bytes);
    frugi_time_phase(&clock, &stats->seconds_compress);
    FRUG_TRY(exchange_records(g, step, status, own_bytes));
    *averages = *averages && !neighbor_has_ended(g, step);
    FRUG_TRY(status);
    status = check_records(g, step);
    frugi_time_phase(&clock, &stats->seconds_wait);
    FRUG_TRY(exchange_frames(g, own_bytes));
    frugi_time_phase(&clock, &stats->seconds_wire);
    if (status == FRUG_OK)
        status = decode_all(g, own_bytes);
    frugi_time_phase(&clock, &stats->seconds_decode);
    if (status != FRUG_OK && !*averages)
        (void)exchange_records(g, step, status, 0); /* send the error on; the answers do not matter */
    return status;
}

frug_status frug_gossip_step(frug_gossip *g, uint64_t step, float *weights) {
    FRUG_FAIL_IF(!g, FRUG_ERR_ARG, "gossip: NULL argument");
    FRUG_FAIL_IF(g->failed, FRUG_ERR_REMOTE, "gossip: an earlier step has failed; create a new one");
    double start = frugi_clock();
    bool averages = g->average_every && (step + 1) % g->average_every == 0;
    frug_status status = exchange_step(g, step, weights, &averages);
    if (averages && status != FRUG_ERR_COMM)
        status = average_weights(g, step, status, weights);
    else if (status == FRUG_OK)
        apply_gap(g, weights);
    g->failed = status != FRUG_OK;
    g->base->stats.calls++;
    g->base->stats.seconds_total += frugi_clock() - start;
    return status;
}

frug_compressor *frug_gossip_compressor(frug_gossip *g) {
    return g ? g->base->compressor : NULL;
}

frug_status frug_gossip_stats(const frug_gossip *g, frug_reduce_stats *stats) {
    FRUG_FAIL_IF(!g, FRUG_ERR_ARG, "gossip: NULL argument");
    return frug_reducer_stats(g->base, stats);
}

/* ---- creation ---------------------------------------------------------------------- */

static frug_status create_edges(frug_gossip *g, const frug_config *config) {
    int rank = g->base->comm->rank;
    FRUG_TRY(frugi_topology_create(config, g->base->comm->size, &g->topology));
    g->edges = g->topology.degree[rank];
    g->edge = frugi_calloc((size_t)g->edges + 1, sizeof *g->edge);
    FRUG_FAIL_IF(!g->edge, FRUG_ERR_MEMORY, "gossip: out of memory");
    for (int i = 0; i < g->edges; i++) {
        int other = g->topology.neighbor[rank * g->topology.max_degree + i];
        g->edge[i] =
            (edge){.rank = other, .weight = (float)frugi_topology_weight(&g->topology, rank, other), .open = true};
        g->self -= g->edge[i].weight; /* exactly minus the neighbors' weights, or the mean would drift */
    }
    return FRUG_OK;
}

static frug_status create_buffers(frug_gossip *g, const float *start) {
    g->n = frugi_compressor_partition(g->base->compressor)->elements;
    size_t bytes = (size_t)g->n * sizeof(float);
    g->hat = frugi_alloc(bytes);
    g->gap = frugi_alloc(bytes);
    g->work = frugi_alloc(bytes);
    g->ring_scratch = frugi_alloc(g->average_every ? bytes / (size_t)g->base->comm->size + sizeof(float) : 0);
    FRUG_FAIL_IF(!g->hat || !g->gap || !g->work || !g->ring_scratch, FRUG_ERR_MEMORY,
                 "gossip: out of memory for three times %zu bytes", bytes);
    if (start) /* the same on all ranks, so the gap is 0 */
        memcpy(g->hat, start, bytes);
    FRUG_TRY(frug_compressor_bound(g->base->compressor, (frug_range){0, g->n}, &g->bound));
    FRUG_TRY(frugi_buffer_reserve(&g->base->send_buf, g->bound));
    return frugi_buffer_reserve(&g->base->recv_buf, (size_t)g->edges * g->bound);
}

static frug_status check_rule(const frug_config *config) {
    FRUG_FAIL_IF(config->rule == FRUGI_RULE_RANDOM || config->rule == FRUGI_RULE_PROBABILISTIC, FRUG_ERR_CONFIG,
                 "gossip: rule=random and rule=probabilistic scale entries up, so that gossip does not converge; use "
                 "another rule");
    return FRUG_OK;
}

/* Create what the base reducer does not have, and check on all ranks that this worked and that start weights agree. */
static frug_status init_gossip(frug_gossip *g, const frug_config *config, const float *start) {
    frugi_exchange none = {0};
    uint64_t hash = start ? 1 : 0;
    frug_status status = check_rule(config);
    if (status == FRUG_OK)
        status = create_edges(g, config);
    if (status == FRUG_OK)
        status = create_buffers(g, start);
    if (status == FRUG_OK && start)
        hash = (uint64_t)frugi_crc32c(0, start, (size_t)g->n * sizeof *start) << 1 | 1;
    FRUG_TRY(frugi_sync(g->base, &none, status, 0, hash));
    for (int i = 1; i < g->base->comm->size; i++)
        FRUG_FAIL_IF(g->base->record[i].hash != g->base->record[0].hash, FRUG_ERR_REMOTE,
                     "gossip: ranks 0 and %d start from different weights", i);
    return FRUG_OK;
}

frug_status frug_gossip_create(const frug_config *config, const frug_layout *layout,
                               const frug_compressor_options *options, frug_comm *comm, const float *start,
                               frug_gossip **gossip) {
    FRUG_FAIL_IF(!config || !layout || !comm || !gossip, FRUG_ERR_ARG,
                 "gossip: config, layout, comm or result is NULL");
    frug_gossip *g = frugi_calloc(1, sizeof *g);
    FRUG_FAIL_IF(!g, FRUG_ERR_MEMORY, "gossip: out of memory");
    frug_config base_config = *config; /* with its text, so that ranks compare the configs as given */
    base_config.feedback = FRUGI_FEEDBACK_NONE;
    base_config.reduce = FRUGI_REDUCE_GATHER;
    g->gamma = (float)config->gamma;
    g->average_every = config->average_every;
    frug_status status = frug_reducer_create(&base_config, layout, options, comm, &g->base);
    if (status == FRUG_OK)
        status = init_gossip(g, config, start);
    if (status == FRUG_OK)
        *gossip = g;
    else
        frug_gossip_destroy(g);
    return status;
}

void frug_gossip_destroy(frug_gossip *g) {
    if (!g)
        return;
    frug_reducer_destroy(g->base);
    frugi_topology_destroy(&g->topology);
    frugi_free(g->edge);
    frugi_free(g->hat);
    frugi_free(g->gap);
    frugi_free(g->work);
    frugi_free(g->ring_scratch);
    frugi_free(g);
}
