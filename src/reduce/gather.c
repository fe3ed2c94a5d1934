/*
 * Function:     gather - sparse all-gather.
 * Description:  Every worker sends its frame to every other and adds up all frames in rank order.
 * Cost:         one round of marks, then (P - 1) frames in and out per worker: grows with P. With payload S bytes and
 *               bandwidth B: (P - 1) S / B. Exact: nothing is selected twice.
 * Limitations:  beyond some 1 / (density * bytes per entry / 8) workers a dense sum sends less.
 *
 * Example, 3 workers, one block of 4, 1 entry each:
 *     rank 0 sends (0: 5), rank 1 (2: 7), rank 2 (0: 1); everyone adds 6 0 7 0.
 */
#include "reduce/reduce.h"

#include "common/clock.h"
#include "common/status.h"

/* This worker's frame into r->mine. */
static frug_status compress(frug_reducer *r, const frugi_exchange *x, size_t *len) {
    size_t bound = 0;
    FRUG_TRY(frug_compressor_bound(r->compressor, x->begin, x->count, &bound));
    FRUG_TRY(frugi_room_for(&r->mine, bound));
    return frug_compress(r->compressor, x->step, x->begin, x->count, x->grad, r->mine.data, r->mine.bytes, len);
}

/* Everyone's frame to everyone. */
static frug_status swap(frug_reducer *r, size_t mine) {
    frug_comm *comm = r->comm;
    size_t n = 0, total = 0;
    for (int i = 0; i < comm->size; i++) {
        r->len[i] = (size_t)r->mark[i].bytes;
        total += i == comm->rank ? 0 : r->len[i];
    }
    FRUG_TRY(frugi_room_for(&r->theirs, total));
    unsigned char *at = r->theirs.data;
    for (int i = 0; i < comm->size; i++) {
        r->frame[i] = i == comm->rank ? r->mine.data : at;
        if (i == comm->rank)
            continue;
        r->message[n++] = (frug_message){.peer = i, .tag = FRUGI_TAG_FIRST, .data = at, .bytes = r->len[i]};
        at += r->len[i];
    }
    for (int i = 1; i < comm->size; i++)
        r->message[n++] = (frug_message){.peer = (comm->rank + i) % comm->size,
                                         .tag = FRUGI_TAG_FIRST,
                                         .sending = 1,
                                         .data = r->mine.data,
                                         .bytes = mine};
    r->stats.bytes_sent += (size_t)(comm->size - 1) * mine;
    r->stats.bytes_received += total;
    return frugi_comm_exchange(comm, r->message, n);
}

static frug_status run(frug_reducer *r, const frugi_exchange *x) {
    size_t mine = 0, size = (size_t)r->comm->size;
    double t0 = frugi_clock();
    frug_status status = compress(r, x, &mine);
    double t1 = frugi_clock();
    FRUG_TRY(frugi_marks(r, x, status, mine, 0));
    double t2 = frugi_clock();
    FRUG_TRY(swap(r, mine));
    double t3 = frugi_clock();
    status = frugi_frames_open(r->compressor, r->frame, r->len, size, &x->target);
    FRUG_TRY(frugi_confirm(r, x, status, frugi_frames_hash(r->frame, r->len, size)));
    double t4 = frugi_clock();
    FRUG_TRY(frugi_frames_sum(r->compressor, size, &x->target));
    r->stats.seconds_compress += t1 - t0;
    r->stats.seconds_wire += t3 - t2;
    r->stats.seconds_decode += frugi_clock() - t4;
    return FRUG_OK;
}

const frugi_algorithm frugi_reduce_gather = {.name = "gather", .run = run};
