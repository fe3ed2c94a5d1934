/*
 * Function:     gossip - compressed gossip, CHOCO-SGD (Koloskova, Stich and Jaggi 2019).
 * Description:  Nobody knows the sum. Worker i keeps what its neighbours know of it, hat, and how far the weighted mean
 *               of what all of them know of each other, itself included, is from that: gap. After a local step has made
 *               its weights x: q = C(x - hat) goes to the neighbours; hat += q; gap += sum_j w_ij (q_j - q);
 *               x += gamma gap. What q leaves out is still in x - hat, so no residual is needed. Every average_every
 *               steps, if asked for, all weights are averaged by a dense sum. The usual form keeps the mean itself; the
 *               gap is small where workers agree, so that less of it is rounded away and the mean drifts less.
 * Cost:         one frame to and from each neighbour, however many workers there are; three passes over the weights.
 * Limitations:  workers agree only in the long run, and only with a gamma small enough for what is sent; a restart
 *               begins anew from weights that are the same everywhere.
 *
 * Example, 2 workers, one element, everything sent, gamma = 1: they have 2 and 6. Each tells its own and counts both
 *     by half: the gaps are (6 - 2) / 2 and (2 - 6) / 2; 2 + 2 and 6 - 2 are both 4, the mean.
 *
 * A worker exchanges a mark and a frame with each neighbour. Whoever sends a mark of failure on an edge is not heard of
 * there again. Whoever learns of a failure finishes the step with the other neighbours, which count on it, and then
 * hands the news on in place of its next mark.
 */
#include "reduce/reducer.h"

#include "base/float_bits.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/alloc.h"
#include "base/status.h"
#include "reduce/gossip_topology.h"

#define MARK_BYTES 24u
#define TAG_MARK   FRUGI_TAG_FIRST
#define TAG_FRAME  (FRUGI_TAG_FIRST + 1)

/** A neighbour. */
typedef struct edge {
    int rank;
    float weight;
    bool open; /* neither side has failed */
    unsigned char in[MARK_BYTES], out[MARK_BYTES];
    frug_status status;
    uint64_t step, bytes; /* as its last mark says */
} edge;

struct frug_gossip {
    frug_reducer *base; /* compressor, buffers and books; its algorithm is not used */
    frugi_topology topology;
    edge *edge;
    int edges;
    float self; /* weight of its own message in the gap: minus those of the neighbours */
    float gamma;
    uint64_t n, average_every;
    size_t bound;     /* of a frame */
    float *hat, *gap; /* see above */
    float *work;      /* the difference to be sent, and the sum of an average */
    float *part;      /* of such a sum */
    bool ended;
};

/* ---- the exchange with the neighbours ---------------------------------------- */

static frug_status exchange_marks(frug_gossip *g, uint64_t step, frug_status status, uint64_t bytes) {
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
        m[n++] = (frug_message){.peer = e->rank, .tag = TAG_MARK, .data = e->in, .bytes = MARK_BYTES};
        m[n++] = (frug_message){.peer = e->rank, .tag = TAG_MARK, .sending = 1, .data = e->out, .bytes = MARK_BYTES};
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

/* What the marks say, worst first. */
static frug_status judge(const frug_gossip *g, uint64_t step) {
    for (int i = 0; i < g->edges; i++) {
        const edge *e = &g->edge[i];
        FRUG_FAIL_IF(e->status != FRUG_OK, FRUG_ERR_REMOTE, "gossip: rank %d failed at step %llu: %s", e->rank,
                     (unsigned long long)e->step, frug_status_text(e->status));
    }
    for (int i = 0; i < g->edges; i++) {
        const edge *e = &g->edge[i];
        FRUG_FAIL_IF(e->step != step, FRUG_ERR_REMOTE, "gossip: rank %d is at step %llu, this one at step %llu",
                     e->rank, (unsigned long long)e->step, (unsigned long long)step);
        FRUG_FAIL_IF(!e->open, FRUG_ERR_REMOTE,
                     "gossip: rank %d announces a frame of %llu bytes, more than there can be", e->rank,
                     (unsigned long long)e->bytes);
    }
    return FRUG_OK;
}

/* This worker's frame to all neighbours that are well, and theirs into base->recv_buf. */
static frug_status exchange_frames(frug_gossip *g, size_t mine) {
    frug_reducer *r = g->base;
    size_t n = 0, total = 0;
    for (int i = 0; i < g->edges; i++)
        total += g->edge[i].open ? (size_t)g->edge[i].bytes : 0;
    FRUG_TRY(frugi_buffer_reserve(&r->recv_buf, total));
    unsigned char *at = r->recv_buf.data;
    for (int i = 0; i < g->edges; i++) {
        const edge *e = &g->edge[i];
        if (!e->open)
            continue;
        r->frame[i] = at;
        r->len[i] = (size_t)e->bytes;
        r->message[n++] = (frug_message){.peer = e->rank, .tag = TAG_FRAME, .data = at, .bytes = r->len[i]};
        r->message[n++] =
            (frug_message){.peer = e->rank, .tag = TAG_FRAME, .sending = 1, .data = r->send_buf.data, .bytes = mine};
        r->stats.bytes_sent += mine;
        at += r->len[i];
    }
    r->stats.bytes_received += total;
    return frugi_comm_exchange(r->comm, r->message, n);
}

/* ---- one step ------------------------------------------------------------------- */

/* C(x - hat) into base->send_buf. */
static frug_status say(frug_gossip *g, uint64_t step, const float *x, size_t *len) {
    frug_reducer *r = g->base;
    FRUG_FAIL_IF(!x, FRUG_ERR_ARG, "gossip: no weights");
    for (uint64_t i = 0; i < g->n; i++)
        g->work[i] = x[i] - g->hat[i];
    return frug_compress(r->compressor, step, 0, g->n, g->work, r->send_buf.data, r->send_buf.bytes, len);
}

/* dst += weight * frame */
static frug_status add(frug_gossip *g, const void *frame, size_t len, float weight, float *dst) {
    return frug_decompress_add(g->base->compressor, &frame, &len, 1, weight, 0, g->n, dst);
}

/* All that was said this step, this worker's own first, then by rank. */
static frug_status listen(frug_gossip *g, size_t mine) {
    const frug_reducer *r = g->base;
    FRUG_TRY(add(g, r->send_buf.data, mine, 1.0f, g->hat));
    FRUG_TRY(add(g, r->send_buf.data, mine, g->self, g->gap));
    for (int i = 0; i < g->edges; i++)
        FRUG_TRY(add(g, r->frame[i], r->len[i], g->edge[i].weight, g->gap));
    return FRUG_OK;
}

static void move(const frug_gossip *g, float *x) {
    const frug_compressor *c = g->base->compressor;
    for (size_t p = 0; p < c->pieces; p++)
        for (uint64_t i = c->piece[p].begin; i < c->piece[p].begin + c->piece[p].count; i++)
            x[i] += g->gamma * g->gap[i];
}

/* The mean over all workers. The round of marks comes first because a transport's own sum may not know deadlines. */
static frug_status average(frug_gossip *g, uint64_t step, float *x) {
    frug_reducer *r = g->base;
    const frug_compressor *c = r->compressor;
    frugi_exchange all = {.step = step, .count = g->n};
    float share = 1.0f / (float)r->comm->size;
    r->phase = 0;
    FRUG_TRY(frugi_sync(r, &all, FRUG_OK, 0, 0));
    memcpy(g->work, x, g->n * sizeof *x);
    FRUG_TRY(frugi_comm_allreduce(r->comm, g->work, g->n, g->part));
    size_t bytes = (size_t)g->n * sizeof *x, moved = 2 * (bytes - bytes / (size_t)r->comm->size); /* as reduce=dense */
    r->stats.bytes_sent += moved;
    r->stats.bytes_received += moved;
    for (size_t p = 0; p < c->pieces; p++)
        for (uint64_t i = c->piece[p].begin; i < c->piece[p].begin + c->piece[p].count; i++)
            x[i] = share * g->work[i];
    return FRUG_OK;
}

/* A step up to the point where the weights may change. */
static frug_status meet(frug_gossip *g, uint64_t step, const float *x) {
    frug_reduce_stats *books = &g->base->stats;
    size_t mine = 0;
    double t0 = frugi_clock();
    frug_status status = say(g, step, x, &mine);
    double t1 = frugi_clock();
    FRUG_TRY(exchange_marks(g, step, status, mine));
    FRUG_TRY(status);
    status = judge(g, step);
    double t2 = frugi_clock();
    FRUG_TRY(exchange_frames(g, mine));
    double t3 = frugi_clock();
    if (status == FRUG_OK)
        status = listen(g, mine);
    books->seconds_compress += t1 - t0;
    books->seconds_wait += t2 - t1;
    books->seconds_wire += t3 - t2;
    books->seconds_decode += frugi_clock() - t3;
    if (status != FRUG_OK)
        (void)exchange_marks(g, step, status, 0); /* the news goes on; what comes back changes nothing */
    return status;
}

frug_status frug_gossip_step(frug_gossip *g, uint64_t step, float *weights) {
    FRUG_FAIL_IF(!g, FRUG_ERR_ARG, "gossip: none there");
    FRUG_FAIL_IF(g->ended, FRUG_ERR_REMOTE, "gossip: it has ended with an error before");
    double start = frugi_clock();
    frug_status status = meet(g, step, weights);
    if (status == FRUG_OK) {
        move(g, weights);
        if (g->average_every && (step + 1) % g->average_every == 0)
            status = average(g, step, weights);
    }
    g->ended = status != FRUG_OK;
    g->base->stats.calls++;
    g->base->stats.seconds_total += frugi_clock() - start;
    return status;
}

frug_compressor *frug_gossip_compressor(frug_gossip *g) {
    return g ? g->base->compressor : NULL;
}

frug_status frug_gossip_stats(const frug_gossip *g, frug_reduce_stats *stats) {
    FRUG_FAIL_IF(!g, FRUG_ERR_ARG, "gossip: none there");
    return frug_reducer_stats(g->base, stats);
}

/* ---- making ----------------------------------------------------------------------- */

static frug_status make_edges(frug_gossip *g, const frug_config *config) {
    int rank = g->base->comm->rank;
    FRUG_TRY(frugi_topology_create(config, g->base->comm->size, &g->topology));
    g->edges = g->topology.degree[rank];
    g->edge = frugi_calloc((size_t)g->edges + 1, sizeof *g->edge);
    FRUG_FAIL_IF(!g->edge, FRUG_ERR_MEMORY, "gossip: out of memory");
    for (int i = 0; i < g->edges; i++) {
        int other = g->topology.neighbour[rank * g->topology.most + i];
        g->edge[i] =
            (edge){.rank = other, .weight = (float)frugi_topology_weight(&g->topology, rank, other), .open = true};
        g->self -= g->edge[i].weight; /* exactly what the neighbours add, or the mean would drift */
    }
    return FRUG_OK;
}

static frug_status make_buffers(frug_gossip *g, const float *start) {
    g->n = frug_layout_elements(g->base->compressor->layout);
    size_t bytes = (size_t)g->n * sizeof(float);
    g->hat = frugi_alloc(bytes);
    g->gap = frugi_alloc(bytes);
    g->work = frugi_alloc(bytes);
    g->part = frugi_alloc(g->average_every ? bytes / (size_t)g->base->comm->size + sizeof(float) : 0);
    FRUG_FAIL_IF(!g->hat || !g->gap || !g->work || !g->part, FRUG_ERR_MEMORY,
                 "gossip: no memory for three times %zu bytes", bytes);
    if (start) /* everyone knows them, so there is no gap */
        memcpy(g->hat, start, bytes);
    FRUG_TRY(frug_compressor_bound(g->base->compressor, 0, g->n, &g->bound));
    return frugi_buffer_reserve(&g->base->send_buf, g->bound);
}

static frug_status check_rule(const frug_config *config) {
    FRUG_FAIL_IF(config->rule == FRUGI_RULE_RANDOM || config->rule == FRUGI_RULE_PROBABILISTIC, FRUG_ERR_CONFIG,
                 "gossip: rule=random and rule=probabilistic send more than there is of an entry, which workers that "
                 "track each other cannot bear; choose another rule");
    return FRUG_OK;
}

/* What the base has not seen: whether all could make their part, and start from the same weights. */
static frug_status fill(frug_gossip *g, const frug_config *config, const float *start) {
    frugi_exchange none = {0};
    uint64_t hash = start ? 1 : 0;
    frug_status status = check_rule(config);
    if (status == FRUG_OK)
        status = make_edges(g, config);
    if (status == FRUG_OK)
        status = make_buffers(g, start);
    if (status == FRUG_OK && start)
        hash = (uint64_t)frugi_crc32c(0, start, (size_t)g->n * sizeof *start) << 1 | 1;
    FRUG_TRY(frugi_sync(g->base, &none, status, 0, hash));
    for (int i = 1; i < g->base->comm->size; i++)
        FRUG_FAIL_IF(g->base->record[i].hash != g->base->record[0].hash, FRUG_ERR_REMOTE,
                     "gossip: ranks 0 and %d start from different weights", i);
    return FRUG_OK;
}

frug_status frug_gossip_create(const frug_config *config, const frug_layout *layout, const frug_options *options,
                               frug_comm *comm, const float *start, frug_gossip **gossip) {
    FRUG_FAIL_IF(!config || !layout || !comm || !gossip, FRUG_ERR_ARG,
                 "gossip: no config, layout, comm or place for the result");
    frug_gossip *g = frugi_calloc(1, sizeof *g);
    FRUG_FAIL_IF(!g, FRUG_ERR_MEMORY, "gossip: out of memory");
    frug_config own = *config; /* its text stays, so that workers compare what they were given */
    own.feedback = FRUGI_FEEDBACK_NONE;
    own.reduce = FRUGI_REDUCE_GATHER;
    g->gamma = (float)config->gamma;
    g->average_every = config->average_every;
    frug_status status = frug_reducer_create(&own, layout, options, comm, &g->base);
    if (status == FRUG_OK)
        status = fill(g, config, start);
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
    frugi_free(g->part);
    frugi_free(g);
}
