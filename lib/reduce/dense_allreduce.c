/*
 * Function:     dense - the baseline: all-reduce without compression.
 * Description:  The gradients are summed by the transport's all-reduce (MPI_Allreduce), or in a ring.
 * Cost:         2 (P - 1) / P of the dense gradient sent and received per rank.
 * Limitations:  the order of the sum is the transport's; in our ring all ranks get the same bits.
 *
 * Example, 3 ranks, 3 elements: 1 2 3, 4 5 6 and 7 8 9 give 12 15 18 on all ranks.
 */
#include "reduce/reducer.h"

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"

#include <stdbool.h>
#include <string.h>

/* Apply the sums to the tensors of the range; elements between tensors do not change. If the sum is in place, it only
 * has to be scaled; 0.0f + makes -0 a +0, as adding to a zeroed target does. */
static void apply_dense_sum(const frug_reducer *r, const frugi_exchange *x, float *sum) {
    const frugi_target *t = &x->target;
    frugi_range_iter it = frugi_range_start(frugi_compressor_partition(r->compressor), x->begin, x->begin + x->count);
    while (frugi_range_next(&it)) {
        uint64_t from = it.from - x->begin, to = it.to - x->begin;
        for (uint64_t e = from; sum == t->dst && e < to; e++)
            sum[e] = 0.0f + t->gain * sum[e];
        if (sum != t->dst)
            frugi_add_scaled_sum(t->dst + from, sum + from, to - from, t->keep, t->gain);
    }
}

typedef enum gap_action { GAPS_COUNT, GAPS_SAVE, GAPS_RESTORE } gap_action;

/* The elements of the range between tensors: count them, save and zero them, or restore them. Returns their number. */
static uint64_t handle_gaps(const frug_reducer *r, const frugi_exchange *x, gap_action action, float *range,
                            float *saved) {
    uint64_t at = x->begin, end = x->begin + x->count, n = 0;
    frugi_range_iter it = frugi_range_start(frugi_compressor_partition(r->compressor), at, end);
    for (bool more = true; more;) {
        more = frugi_range_next(&it);
        uint64_t next = more ? it.from : end;
        for (; at < next; at++, n++) {
            if (action == GAPS_SAVE)
                saved[n] = range[at - x->begin];
            if (action != GAPS_COUNT)
                range[at - x->begin] = action == GAPS_SAVE ? 0.0f : saved[n];
        }
        at = more ? it.to : end;
    }
    return n;
}

/* All-reduce `sum` in place, and confirm that all ranks have the same result. */
static frug_status allreduce_and_confirm(frug_reducer *r, const frugi_exchange *x, float *sum) {
    double start = frugi_clock();
    FRUG_TRY(frugi_comm_allreduce(r->comm, sum, x->count, (float *)(void *)r->recv_buf.data));
    r->stats.seconds_wire += frugi_clock() - start;
    return frugi_confirm(r, x, FRUG_OK, frugi_crc32c(0, sum, x->count * sizeof(float)));
}

static frug_status run(frug_reducer *r, const frugi_exchange *x) {
    size_t bytes = x->count * sizeof(float), ring_bytes = (x->count / (uint64_t)r->comm->size + 1) * sizeof(float);
    bool in_place = x->target.dst == x->grad && x->target.keep == 0.0f;
    frug_status status = frugi_check_range(frugi_compressor_partition(r->compressor), x->begin, x->count);
    if (status == FRUG_OK && x->count && (!x->grad || !x->target.dst))
        status = frugi_fail(FRUG_ERR_ARG, "reduce: gradient or destination is NULL");
    if (status == FRUG_OK)
        status = frugi_buffer_reserve(&r->send_buf,
                                      in_place ? handle_gaps(r, x, GAPS_COUNT, NULL, NULL) * sizeof(float) : bytes);
    if (status == FRUG_OK && !r->comm->transport.allreduce)
        status = frugi_buffer_reserve(&r->recv_buf, ring_bytes);
    FRUG_TRY(frugi_sync(r, x, status, bytes, 0));
    float *saved = (float *)(void *)r->send_buf.data, *sum = in_place ? x->target.dst : saved;
    if (in_place)
        handle_gaps(r, x, GAPS_SAVE, sum, saved);
    else if (bytes)
        memcpy(sum, x->grad, bytes);
    status = allreduce_and_confirm(r, x, sum);
    double start = frugi_clock();
    if (in_place)
        handle_gaps(r, x, GAPS_RESTORE, sum, saved);
    FRUG_TRY(status);
    apply_dense_sum(r, x, sum);
    r->stats.bytes_sent += 2 * (bytes - bytes / (size_t)r->comm->size);
    r->stats.bytes_received += 2 * (bytes - bytes / (size_t)r->comm->size);
    r->stats.seconds_decode += frugi_clock() - start;
    return FRUG_OK;
}

const frugi_algorithm frugi_reduce_dense = {.name = "dense", .run = run};
