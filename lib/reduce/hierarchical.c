/*
 * Function:     nodes - dense inside a machine, sparse between machines.
 * Description:  Ranks 0 .. n - 1 share a machine (option node=n), n .. 2 n - 1 the next, and so on; M = P / n of them.
 *               A range is cut into n shards at borders of blocks or tensors. Inside a machine worker j gets shard j of
 *               all gradients and adds them up in rank order; it compresses the sum with what that shard has left
 *               behind, swaps frames with the j-th workers of the other machines, adds up all frames in the order of
 *               machines, and hands its shard of the result to the others of its machine.
 * Cost:         three rounds of marks and three of payloads. Of a range of N elements, inside a machine 8 N (n - 1) / n
 *               bytes in and out per worker; between machines (M - 1) frames of a shard, S / n each where S is the
 *               frame of the whole range: M - 1 frames per machine instead of the (P - n) n of reduce=gather.
 *               Exact: nothing is selected twice.
 * Limitations:  P must be a multiple of n. What competes in a whole tensor is not cut, so with segment=tensor shards
 *               differ by a tensor or two; segment=all competes within a shard. A NaN holds back its block on a whole
 *               machine; clip and norm look at the gradient of a machine's shard.
 *
 * Example, 4 workers, node=2, two blocks of 2, 1 entry each:
 *     ranks 0, 1: 1 0 | 0 2 and 3 1 | 1 2 make 4 1 | 1 4: rank 0 sends (0: 4), rank 1 (3: 4);
 *     ranks 2, 3: 0 5 | 1 0 and 0 1 | 1 0 make 0 6 | 2 0: rank 2 sends (1: 6), rank 3 (2: 2); everyone adds 4 6 2 4.
 */
#include "reduce/partial_sums.h"

#include "comm/subgroup.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"

#include <string.h>

#define TAG_INSIDE 64
#define TAG_ACROSS 128

typedef struct nodes {
    frug_comm *inside, *across; /* this worker's machine; the workers of the same number in all machines */
    uint64_t *cut;              /* shard i is elements cut[i] .. cut[i + 1] - 1 of the flat buffer */
    uint64_t begin, count;      /* this worker's shard */
    size_t bound;               /* the most bytes of its frame */
    frugi_buffer sum;           /* of the range */
    frugi_buffer shard;         /* of this worker's shard, inside the machine */
} nodes;

static frug_status create(frug_reducer *r) {
    uint64_t node = r->compressor->config.node, size = (uint64_t)r->comm->size;
    FRUG_FAIL_IF(size % node != 0, FRUG_ERR_ARG, "reduce: %llu workers do not fill machines of node=%llu",
                 (unsigned long long)size, (unsigned long long)node);
    nodes *n = r->state = frugi_calloc(1, sizeof *n);
    FRUG_FAIL_IF(!n, FRUG_ERR_MEMORY, "reduce: out of memory");
    n->cut = frugi_calloc(node + 1, sizeof *n->cut);
    FRUG_FAIL_IF(!n->cut, FRUG_ERR_MEMORY, "reduce: out of memory");
    int each = (int)node, rank = r->comm->rank;
    FRUG_TRY(frugi_subgroup_create(r->comm, rank / each * each, 1, each, TAG_INSIDE, &n->inside));
    return frugi_subgroup_create(r->comm, rank % each, each, r->comm->size / each, TAG_ACROSS, &n->across);
}

static void destroy(frug_reducer *r) {
    nodes *n = r->state;
    if (n) {
        frug_comm_destroy(n->inside);
        frug_comm_destroy(n->across);
        frugi_free(n->cut);
        frugi_free(n->sum.data);
        frugi_free(n->shard.data);
    }
    frugi_free(n);
}

/* ---- shards ------------------------------------------------------------------- */

/* The last element of what a piece competes with. */
static uint64_t reach_of(const frug_compressor *c, const frugi_piece *p) {
    uint64_t reach = p->begin + p->count;
    if (p->dense)
        return reach;
    const frugi_contest *k = &c->contest[p->contest];
    for (size_t m = 0; m < k->pieces; m++) {
        const frugi_piece *q = &c->piece[c->member[k->first + m]];
        reach = q->begin + q->count > reach ? q->begin + q->count : reach;
    }
    return reach;
}

/* Each cut at the last border that is not beyond its target: of a block or, by units, of what competes. */
static void cut_range(const frug_compressor *c, const frugi_exchange *x, uint64_t shards, uint64_t *cut) {
    uint64_t end = x->begin + x->count, reach = 0, block = c->config.block;
    for (uint64_t i = 0; i <= shards; i++)
        cut[i] = i < shards ? x->begin : end;
    for (size_t k = frugi_piece_at(c, x->begin); k < c->pieces && c->piece[k].begin < end; k++) {
        const frugi_piece *p = &c->piece[k];
        uint64_t first = p->begin > x->begin ? p->begin : x->begin;
        for (uint64_t i = 1; i < shards && reach <= first; i++) {
            uint64_t target = x->begin + x->count / shards * i;
            uint64_t inside = target < p->begin + p->count ? target : p->begin + p->count;
            if (target >= first)
                cut[i] = c->by_units ? first : p->begin + (inside - p->begin) / block * block;
        }
        reach = c->by_units ? reach_of(c, p) > reach ? reach_of(c, p) : reach : 0;
    }
}

/* Everything that can go wrong on this worker alone, before it promises anything. */
static frug_status prepare(frug_reducer *r, const frugi_exchange *x) {
    nodes *n = r->state;
    size_t whole = 0, inside = (size_t)n->inside->size, across = (size_t)n->across->size;
    frugi_subgroup_update_deadline(n->inside);
    frugi_subgroup_update_deadline(n->across);
    FRUG_TRY(frug_compressor_bound(r->compressor, x->begin, x->count, &whole));
    cut_range(r->compressor, x, inside, n->cut);
    n->begin = n->cut[n->inside->rank];
    n->count = n->cut[n->inside->rank + 1] - n->begin;
    n->bound = 0;
    if (n->count)
        FRUG_TRY(frug_compressor_bound(r->compressor, n->begin, n->count, &n->bound));
    FRUG_TRY(frugi_buffer_reserve(&n->sum, (x->count + 1) * sizeof(float)));
    FRUG_TRY(frugi_buffer_reserve(&n->shard, (n->count + 1) * sizeof(float)));
    size_t dense = inside * n->count * sizeof(float), frames = across * n->bound;
    return frugi_buffer_reserve(&r->recv_buf, dense > frames ? dense : frames);
}

/* ---- the three rounds ----------------------------------------------------------- */

static frug_status exchange(frug_reducer *r, frug_comm *comm, size_t n) {
    double start = frugi_clock();
    for (size_t i = 0; i < n; i++)
        *(r->message[i].sending ? &r->stats.bytes_sent : &r->stats.bytes_received) += r->message[i].bytes;
    frug_status status = frugi_comm_exchange(comm, r->message, n);
    r->stats.seconds_wire += frugi_clock() - start;
    return status;
}

static void note(frug_reducer *r, size_t *n, int peer, int sending, const void *data, size_t bytes) {
    r->message[(*n)++] = (frug_message){
        .peer = peer, .tag = FRUGI_TAG_FIRST, .sending = sending, .data = (void *)(uintptr_t)data, .bytes = bytes};
}

/* Inside a machine: shard i of every gradient to worker i, who adds them up in rank order. */
static frug_status scatter(frug_reducer *r, const frugi_exchange *x) {
    nodes *n = r->state;
    int rank = n->inside->rank, size = n->inside->size;
    float *came = frugi_buffer_floats(&r->recv_buf), *shard = frugi_buffer_floats(&n->shard);
    size_t messages = 0;
    for (int i = 0; i < size; i++)
        if (i != rank)
            note(r, &messages, i, 0, came + (size_t)i * n->count, n->count * sizeof(float));
    for (int i = 1; i < size; i++) {
        int to = (rank + i) % size;
        note(r, &messages, to, 1, x->grad + (n->cut[to] - x->begin), (n->cut[to + 1] - n->cut[to]) * sizeof(float));
    }
    FRUG_TRY(exchange(r, n->inside, messages));
    for (int i = 0; i < size; i++) {
        const float *part = i == rank ? x->grad + (n->begin - x->begin) : came + (size_t)i * n->count;
        for (uint64_t e = 0; e < n->count; e++)
            shard[e] = i ? shard[e] + part[e] : part[e];
    }
    return FRUG_OK;
}

/* Between machines: everyone's frame of the shard to everyone who has the same one. */
static frug_status swap(frug_reducer *r, const frugi_exchange *x, size_t mine) {
    nodes *n = r->state;
    int rank = n->across->rank, size = n->across->size;
    unsigned char *at = r->recv_buf.data;
    size_t messages = 0;
    for (int i = 0; i < size; i++) {
        uint64_t bytes = r->record[i * n->inside->size + n->inside->rank].bytes;
        FRUG_FAIL_IF(bytes > n->bound, FRUG_ERR_REMOTE, "reduce: at step %llu rank %d announces %llu bytes, not %zu",
                     (unsigned long long)x->step, i * n->inside->size + n->inside->rank, (unsigned long long)bytes,
                     n->bound);
        r->len[i] = (size_t)bytes;
        r->frame[i] = i == rank ? r->send_buf.data : at;
        if (i == rank)
            continue;
        note(r, &messages, i, 0, at, r->len[i]);
        at += r->len[i];
    }
    for (int i = 1; i < size; i++)
        note(r, &messages, (rank + i) % size, 1, r->send_buf.data, mine);
    return exchange(r, n->across, messages);
}

/* Inside a machine: everyone's shard of the result to everyone. */
static frug_status gather(frug_reducer *r, const frugi_exchange *x) {
    nodes *n = r->state;
    int rank = n->inside->rank, size = n->inside->size;
    float *sum = frugi_buffer_floats(&n->sum);
    size_t messages = 0;
    for (int i = 0; i < size; i++)
        if (i != rank)
            note(r, &messages, i, 0, sum + (n->cut[i] - x->begin), (n->cut[i + 1] - n->cut[i]) * sizeof(float));
    for (int i = 1; i < size; i++)
        note(r, &messages, (rank + i) % size, 1, sum + (n->begin - x->begin), n->count * sizeof(float));
    return exchange(r, n->inside, messages);
}

static frug_status run(frug_reducer *r, const frugi_exchange *x) {
    nodes *n = r->state;
    size_t mine = 0;
    FRUG_TRY(frugi_sync(r, x, prepare(r, x), 0, 0));
    FRUG_TRY(scatter(r, x));
    double t0 = frugi_clock();
    frug_status status = FRUG_OK;
    if (n->count)
        status = frugi_compress_range(r, x->step, n->begin, n->count, frugi_buffer_floats(&n->shard), &mine);
    double t1 = frugi_clock();
    FRUG_TRY(frugi_sync(r, x, status, mine, 0));
    FRUG_TRY(swap(r, x, mine));
    double t2 = frugi_clock();
    float *sum = frugi_buffer_floats(&n->sum);
    if (n->count)
        status = frugi_decode_frames(r->compressor, r->frame, r->len, (size_t)n->across->size, n->begin, n->count,
                                     sum + (n->begin - x->begin));
    double t3 = frugi_clock();
    FRUG_TRY(gather(r, x));
    FRUG_TRY(frugi_confirm(r, x, status, frugi_crc32c(0, sum, x->count * sizeof(float))));
    double t4 = frugi_clock();
    frugi_apply_sum(r->compressor, x, sum);
    r->stats.seconds_compress += t1 - t0;
    r->stats.seconds_decode += t3 - t2 + frugi_clock() - t4;
    return FRUG_OK;
}

const frugi_algorithm frugi_reduce_nodes = {.name = "nodes", .create = create, .run = run, .destroy = destroy};
