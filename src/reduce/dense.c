/*
 * Function:     dense - the baseline: nothing is compressed.
 * Description:  The gradients are summed by the transport's all-reduce (MPI_Allreduce), or in a ring.
 * Cost:         2 (P - 1) / P of the dense gradient in and out per worker.
 * Limitations:  the order of the sum is the transport's; in our ring all workers get the same bits.
 *
 * Example, 3 workers, 3 elements: 1 2 3, 4 5 6 and 7 8 9 make 12 15 18 everywhere.
 */
#include "reduce/reduce.h"

#include "common/clock.h"
#include "common/crc32c.h"
#include "common/status.h"

#include <string.h>

/* The tensors of the range get their sums; gaps between them stay as they are. */
static void add(const frug_reducer *r, const frugi_exchange *x, float *sum) {
    const frug_compressor *c = r->compressor;
    uint64_t end = x->begin + x->count;
    for (size_t i = frugi_piece_at(c, x->begin); i < c->pieces && c->piece[i].begin < end; i++) {
        const frugi_piece *p = &c->piece[i];
        uint64_t from = p->begin > x->begin ? p->begin : x->begin, to = p->begin + p->count;
        to = to < end ? to : end;
        frugi_finish(x->target.dst + (from - x->begin), sum + (from - x->begin), to - from, x->target.keep,
                     x->target.gain);
    }
}

static frug_status run(frug_reducer *r, const frugi_exchange *x) {
    size_t bytes = x->count * sizeof(float), part = (x->count / (uint64_t)r->comm->size + 1) * sizeof(float);
    frug_status status = frugi_check_range(r->compressor, x->begin, x->count);
    if (status == FRUG_OK)
        status = frugi_room_for(&r->mine, bytes);
    if (status == FRUG_OK)
        status = frugi_room_for(&r->theirs, part);
    FRUG_TRY(frugi_marks(r, x, status, bytes, 0));
    float *sum = (float *)(void *)r->mine.data;
    memcpy(sum, x->grad, bytes);
    double t0 = frugi_clock();
    FRUG_TRY(frugi_comm_allreduce(r->comm, sum, x->count, (float *)(void *)r->theirs.data));
    double t1 = frugi_clock();
    FRUG_TRY(frugi_confirm(r, x, FRUG_OK, frugi_crc32c(0, r->mine.data, bytes)));
    double t2 = frugi_clock();
    add(r, x, sum);
    r->stats.bytes_sent += 2 * (bytes - bytes / (size_t)r->comm->size);
    r->stats.bytes_received += 2 * (bytes - bytes / (size_t)r->comm->size);
    r->stats.seconds_wire += t1 - t0;
    r->stats.seconds_decode += frugi_clock() - t2;
    return FRUG_OK;
}

const frugi_algorithm frugi_reduce_dense = {.name = "dense", .run = run};
