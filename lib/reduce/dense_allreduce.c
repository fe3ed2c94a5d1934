/*
 * Function:     dense - the baseline: nothing is compressed.
 * Description:  The gradients are summed by the transport's all-reduce (MPI_Allreduce), or in a ring.
 * Cost:         2 (P - 1) / P of the dense gradient in and out per worker.
 * Limitations:  the order of the sum is the transport's; in our ring all workers get the same bits.
 *
 * Example, 3 workers, 3 elements: 1 2 3, 4 5 6 and 7 8 9 make 12 15 18 everywhere.
 */
#include "reduce/reducer.h"

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"

#include <stdbool.h>
#include <string.h>

/* The tensors of the range get their sums; gaps between them stay as they are. Summed in place, only the scale is left
 * to do, with the zero that adding to nothing would bring. */
static void add(const frug_reducer *r, const frugi_exchange *x, float *sum) {
    const frug_compressor *c = r->compressor;
    const frugi_target *t = &x->target;
    uint64_t end = x->begin + x->count;
    for (size_t i = frugi_piece_at(c, x->begin); i < c->pieces && c->piece[i].begin < end; i++) {
        const frugi_piece *p = &c->piece[i];
        uint64_t from = p->begin > x->begin ? p->begin : x->begin, to = p->begin + p->count;
        to = to < end ? to : end;
        for (uint64_t e = from - x->begin; sum == t->dst && e < to - x->begin; e++)
            sum[e] = 0.0f + t->gain * sum[e];
        if (sum != t->dst)
            frugi_finish(t->dst + (from - x->begin), sum + (from - x->begin), to - from, t->keep, t->gain);
    }
}

typedef enum gap_way { GAPS_COUNT, GAPS_OUT, GAPS_BACK } gap_way;

/* Of the range what lies between tensors: count it, take it out and leave zeros, or put it back. Returns how many. */
static uint64_t gaps(const frug_reducer *r, const frugi_exchange *x, gap_way way, float *range, float *aside) {
    const frug_compressor *c = r->compressor;
    uint64_t at = x->begin, end = x->begin + x->count, n = 0;
    for (size_t i = frugi_piece_at(c, x->begin); at < end; i++) {
        uint64_t next = i < c->pieces && c->piece[i].begin < end ? c->piece[i].begin : end;
        for (; at < next; at++, n++) {
            if (way == GAPS_OUT)
                aside[n] = range[at - x->begin];
            if (way != GAPS_COUNT)
                range[at - x->begin] = way == GAPS_OUT ? 0.0f : aside[n];
        }
        if (next < end && c->piece[i].begin + c->piece[i].count > at)
            at = c->piece[i].begin + c->piece[i].count;
    }
    return n;
}

/* Sum what `sum` holds, and agree that all hold the same. */
static frug_status sum_up(frug_reducer *r, const frugi_exchange *x, float *sum) {
    double start = frugi_clock();
    FRUG_TRY(frugi_comm_allreduce(r->comm, sum, x->count, (float *)(void *)r->recv_buf.data));
    r->stats.seconds_wire += frugi_clock() - start;
    return frugi_confirm(r, x, FRUG_OK, frugi_crc32c(0, sum, x->count * sizeof(float)));
}

static frug_status run(frug_reducer *r, const frugi_exchange *x) {
    size_t bytes = x->count * sizeof(float), part = (x->count / (uint64_t)r->comm->size + 1) * sizeof(float);
    bool in_place = x->target.dst == x->grad && x->target.keep == 0.0f;
    frug_status status = frugi_check_range(r->compressor, x->begin, x->count);
    if (status == FRUG_OK && x->count && (!x->grad || !x->target.dst))
        status = frugi_fail(FRUG_ERR_ARG, "reduce: no gradient or no destination");
    if (status == FRUG_OK)
        status =
            frugi_buffer_reserve(&r->send_buf, in_place ? gaps(r, x, GAPS_COUNT, NULL, NULL) * sizeof(float) : bytes);
    if (status == FRUG_OK && !r->comm->transport.allreduce)
        status = frugi_buffer_reserve(&r->recv_buf, part);
    FRUG_TRY(frugi_sync(r, x, status, bytes, 0));
    float *aside = (float *)(void *)r->send_buf.data, *sum = in_place ? x->target.dst : aside;
    if (in_place)
        gaps(r, x, GAPS_OUT, sum, aside);
    else if (bytes)
        memcpy(sum, x->grad, bytes);
    status = sum_up(r, x, sum);
    double start = frugi_clock();
    if (in_place)
        gaps(r, x, GAPS_BACK, sum, aside);
    FRUG_TRY(status);
    add(r, x, sum);
    r->stats.bytes_sent += 2 * (bytes - bytes / (size_t)r->comm->size);
    r->stats.bytes_received += 2 * (bytes - bytes / (size_t)r->comm->size);
    r->stats.seconds_decode += frugi_clock() - start;
    return FRUG_OK;
}

const frugi_algorithm frugi_reduce_dense = {.name = "dense", .run = run};
