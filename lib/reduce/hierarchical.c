/*
 * Function:     nodes - hierarchical: dense inside a node, sparse between nodes.
 * Description:  Ranks 0 .. n - 1 are on one node (option node=n), n .. 2 n - 1 on the next, and so on: M = P / n nodes.
 *               A range is divided into n shards at borders of blocks or tensors. Inside a node rank j receives shard j
 *               of all gradients and sums them in rank order; it compresses the sum with the residual of that shard,
 *               exchanges frames with rank j of the other nodes, sums all frames in the order of nodes, and sends its
 *               shard of the result to the other ranks of its node.
 * Cost:         three sync rounds and three rounds of payloads. For a range of N elements 8 N (n - 1) / n bytes are
 *               sent and received per rank inside a node; between nodes M - 1 frames of a shard, S / n bytes each where
 *               S is the frame of the whole range: M - 1 frames per node instead of the (P - n) n of reduce=gather.
 *               Exact: nothing is selected twice.
 * Limitations:  P must be a multiple of n. Selection groups are not divided, so with segment=tensor shards differ by a
 *               tensor or two; segment=all selects within a shard. A NaN makes the whole node skip its block; clip and
 *               norm use the gradient of a node's shard.
 *
 * Example, 4 ranks, node=2, two blocks of 2, 1 entry each:
 *     ranks 0, 1: 1 0 | 0 2 and 3 1 | 1 2 make 4 1 | 1 4: rank 0 sends (0: 4), rank 1 (3: 4);
 *     ranks 2, 3: 0 5 | 1 0 and 0 1 | 1 0 make 0 6 | 2 0: rank 2 sends (1: 6), rank 3 (2: 2); all ranks add 4 6 2 4.
 */
#include "reduce/partial_sums.h"

#include "comm/subgroup.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"

#include <string.h>

#define TAG_NODE  64
#define TAG_SHARD 128

typedef struct hierarchical {
    frug_comm *node_comm, *shard_comm; /* the ranks of this node; the ranks with the same shard on all nodes */
    uint64_t *cut;                     /* shard i is elements cut[i] .. cut[i + 1] - 1 of the flat buffer */
    uint64_t begin, count;             /* this rank's shard */
    size_t bound;                      /* of its frame */
    frugi_buffer sum;                  /* of the range */
    frugi_buffer shard;                /* sum of this rank's shard inside the node */
} hierarchical;

static frug_status create(frug_reducer *r) {
    uint64_t node = frugi_compressor_config(r->compressor)->node, size = (uint64_t)r->comm->size;
    FRUG_FAIL_IF(size % node != 0, FRUG_ERR_ARG, "reduce: %llu workers are not a multiple of node=%llu",
                 (unsigned long long)size, (unsigned long long)node);
    hierarchical *h = r->state = frugi_calloc(1, sizeof *h);
    FRUG_FAIL_IF(!h, FRUG_ERR_MEMORY, "reduce: out of memory");
    h->cut = frugi_calloc(node + 1, sizeof *h->cut);
    FRUG_FAIL_IF(!h->cut, FRUG_ERR_MEMORY, "reduce: out of memory");
    int node_size = (int)node, rank = r->comm->rank;
    FRUG_TRY(frugi_subgroup_create(r->comm, rank / node_size * node_size, 1, node_size, TAG_NODE, &h->node_comm));
    return frugi_subgroup_create(r->comm, rank % node_size, node_size, r->comm->size / node_size, TAG_SHARD,
                                 &h->shard_comm);
}

static void destroy(frug_reducer *r) {
    hierarchical *h = r->state;
    if (h) {
        frug_comm_destroy(h->node_comm);
        frug_comm_destroy(h->shard_comm);
        frugi_free(h->cut);
        frugi_free(h->sum.data);
        frugi_free(h->shard.data);
    }
    frugi_free(h);
}

/* ---- shards ------------------------------------------------------------------- */

/* Put each cut at the last border of a block or, by units, of selection groups that is not beyond its ideal index. */
static void cut_shards(const frug_compressor *c, const frugi_exchange *x, uint64_t shards, uint64_t *cut) {
    uint64_t end = x->begin + x->count, groups_end = 0, block = frugi_compressor_config(c)->block;
    bool by_units = frugi_compressor_by_units(c);
    for (uint64_t i = 0; i <= shards; i++)
        cut[i] = i < shards ? x->begin : end;
    frugi_range_iter it = frugi_range_start(frugi_compressor_partition(c), x->begin, end);
    while (frugi_range_next(&it)) {
        const uint64_t begin = it.view->begin, view_end = begin + it.view->count;
        for (uint64_t i = 1; i < shards && groups_end <= it.from; i++) {
            uint64_t target = x->begin + x->count / shards * i, index = target < view_end ? target : view_end;
            if (target >= it.from)
                cut[i] = by_units ? it.from : begin + (index - begin) / block * block;
        }
        uint64_t group_end = by_units ? frugi_select_group_end(c, it.view) : 0;
        groups_end = group_end > groups_end ? group_end : groups_end;
    }
}

/* All steps that can fail on this rank alone, before the first sync round. */
static frug_status prepare(frug_reducer *r, const frugi_exchange *x) {
    hierarchical *h = r->state;
    size_t whole = 0, node_size = (size_t)h->node_comm->size, nodes = (size_t)h->shard_comm->size;
    frugi_subgroup_update_deadline(h->node_comm);
    frugi_subgroup_update_deadline(h->shard_comm);
    FRUG_TRY(frug_compressor_bound(r->compressor, (frug_range){x->begin, x->count}, &whole));
    cut_shards(r->compressor, x, node_size, h->cut);
    h->begin = h->cut[h->node_comm->rank];
    h->count = h->cut[h->node_comm->rank + 1] - h->begin;
    h->bound = 0;
    if (h->count)
        FRUG_TRY(frug_compressor_bound(r->compressor, (frug_range){h->begin, h->count}, &h->bound));
    FRUG_TRY(frugi_buffer_reserve(&h->sum, (x->count + 1) * sizeof(float)));
    FRUG_TRY(frugi_buffer_reserve(&h->shard, (h->count + 1) * sizeof(float)));
    size_t dense = node_size * h->count * sizeof(float), frames = nodes * h->bound;
    return frugi_buffer_reserve(&r->recv_buf, dense > frames ? dense : frames);
}

/* ---- three rounds --------------------------------------------------------------- */

static frug_status exchange_messages(frug_reducer *r, frug_comm *comm, size_t n) {
    double start = frugi_clock();
    for (size_t i = 0; i < n; i++)
        *(r->message[i].sending ? &r->stats.bytes_sent : &r->stats.bytes_received) += r->message[i].bytes;
    frug_status status = frugi_comm_exchange(comm, r->message, n);
    r->stats.seconds_wire += frugi_clock() - start;
    return status;
}

static void add_message(frug_reducer *r, size_t *n, int peer, int sending, const void *data, size_t bytes) {
    r->message[(*n)++] = (frug_message){
        .peer = peer, .tag = FRUGI_TAG_FIRST, .sending = sending, .data = (void *)(uintptr_t)data, .bytes = bytes};
}

/* Reduce-scatter inside the node: shard i of every gradient is sent to rank i, which sums them in rank order. */
static frug_status reduce_scatter_node(frug_reducer *r, const frugi_exchange *x) {
    hierarchical *h = r->state;
    int rank = h->node_comm->rank, size = h->node_comm->size;
    float *received = frugi_buffer_floats(&r->recv_buf), *shard = frugi_buffer_floats(&h->shard);
    size_t messages = 0;
    for (int i = 0; i < size; i++)
        if (i != rank)
            add_message(r, &messages, i, 0, received + (size_t)i * h->count, h->count * sizeof(float));
    for (int i = 1; i < size; i++) {
        int to = (rank + i) % size;
        add_message(r, &messages, to, 1, x->grad + (h->cut[to] - x->begin),
                    (h->cut[to + 1] - h->cut[to]) * sizeof(float));
    }
    FRUG_TRY(exchange_messages(r, h->node_comm, messages));
    for (int i = 0; i < size; i++) {
        const float *contribution = i == rank ? x->grad + (h->begin - x->begin) : received + (size_t)i * h->count;
        for (uint64_t e = 0; e < h->count; e++)
            shard[e] = i ? shard[e] + contribution[e] : contribution[e];
    }
    return FRUG_OK;
}

/* Check the announced sizes of all shards: every rank finds the same error, so none waits for another. */
static frug_status check_sizes(const frug_reducer *r, const frugi_exchange *x) {
    const hierarchical *h = r->state;
    for (int i = 0; i < r->comm->size; i++) {
        int shard = i % h->node_comm->size;
        size_t bound = 0;
        frug_range range = {h->cut[shard], h->cut[shard + 1] - h->cut[shard]};
        if (range.count)
            FRUG_TRY(frug_compressor_bound(r->compressor, range, &bound));
        FRUG_FAIL_IF(r->record[i].bytes > bound, FRUG_ERR_REMOTE,
                     "reduce: at step %llu rank %d announces %llu bytes, the bound is %zu", (unsigned long long)x->step,
                     i, (unsigned long long)r->record[i].bytes, bound);
    }
    return FRUG_OK;
}

/* All-gather of the frames of this shard between nodes. */
static frug_status exchange_frames(frug_reducer *r, size_t own_bytes) {
    hierarchical *h = r->state;
    int rank = h->shard_comm->rank, size = h->shard_comm->size;
    unsigned char *at = r->recv_buf.data;
    size_t messages = 0;
    for (int i = 0; i < size; i++) {
        r->len[i] = (size_t)r->record[i * h->node_comm->size + h->node_comm->rank].bytes;
        r->frame[i] = i == rank ? r->send_buf.data : at;
        if (i == rank)
            continue;
        add_message(r, &messages, i, 0, at, r->len[i]);
        at += r->len[i];
    }
    for (int i = 1; i < size; i++)
        add_message(r, &messages, (rank + i) % size, 1, r->send_buf.data, own_bytes);
    return exchange_messages(r, h->shard_comm, messages);
}

/* All-gather of the summed shards inside the node. */
static frug_status allgather_node(frug_reducer *r, const frugi_exchange *x) {
    hierarchical *h = r->state;
    int rank = h->node_comm->rank, size = h->node_comm->size;
    float *sum = frugi_buffer_floats(&h->sum);
    size_t messages = 0;
    for (int i = 0; i < size; i++)
        if (i != rank)
            add_message(r, &messages, i, 0, sum + (h->cut[i] - x->begin), (h->cut[i + 1] - h->cut[i]) * sizeof(float));
    for (int i = 1; i < size; i++)
        add_message(r, &messages, (rank + i) % size, 1, sum + (h->begin - x->begin), h->count * sizeof(float));
    return exchange_messages(r, h->node_comm, messages);
}

static frug_status run(frug_reducer *r, const frugi_exchange *x) {
    hierarchical *h = r->state;
    size_t own_bytes = 0;
    FRUG_TRY(frugi_sync(r, x, prepare(r, x), 0, 0));
    FRUG_TRY(reduce_scatter_node(r, x));
    double clock = frugi_clock();
    frug_status status = FRUG_OK;
    if (h->count)
        status = frugi_compress_range(r, x->step, h->begin, h->count, frugi_buffer_floats(&h->shard), &own_bytes);
    frugi_time_phase(&clock, &r->stats.seconds_compress);
    FRUG_TRY(frugi_sync(r, x, status, own_bytes, 0));
    FRUG_TRY(check_sizes(r, x));
    FRUG_TRY(exchange_frames(r, own_bytes));
    frugi_time_phase(&clock, NULL); /* exchange_messages() counts its own time */
    float *sum = frugi_buffer_floats(&h->sum);
    if (h->count)
        status = frugi_decode_frames(r->compressor, r->frame, r->len, (size_t)h->shard_comm->size, h->begin, h->count,
                                     sum + (h->begin - x->begin));
    frugi_time_phase(&clock, &r->stats.seconds_decode);
    FRUG_TRY(allgather_node(r, x));
    FRUG_TRY(frugi_confirm(r, x, status, frugi_crc32c(0, sum, x->count * sizeof(float))));
    frugi_time_phase(&clock, NULL);
    frugi_apply_sum(r->compressor, x, sum);
    frugi_time_phase(&clock, &r->stats.seconds_decode);
    return FRUG_OK;
}

const frugi_algorithm frugi_reduce_nodes = {.name = "nodes", .create = create, .run = run, .destroy = destroy};
