/*
 * Function:     tree - sparse all-reduce by recursive doubling.
 * Description:  In round i a rank exchanges its sum over 2^i ranks with the rank that differs in bit i. The first
 *               message is the rank's own frame; later ones are exact frames of the non-zeros of the sum, or raw floats
 *               once these are shorter. If P is no power of two, let 2^k be the largest one below: ranks from 2^k on
 *               first send their frame to the rank 2^k below, and receive the result from it at the end.
 *               The sum is the balanced tree over ranks: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Both partners add
 *               the same two numbers, and float addition is commutative, so all ranks get the same bits. Sums begin at
 *               +0, so -0, which a sparse frame cannot distinguish from an absent element, does not occur.
 * Cost:         two sync rounds and 2 log2 P messages per rank. With N elements, of which each rank sends a share d,
 *               U(m) = N (1 - (1 - d)^m) non-zeros of m ranks and 4 + a bytes for each (a: the index; all indices
 *               together take at most a bit per element): sum over i < log2 P of min((4 + a) U(2^i), 4 N) bytes sent
 *               and received, except that the first message has the size of the config's frame. Exact: nothing is
 *               selected twice. Memory: four times the range in floats.
 * Limitations:  sums are sent as f32, so with shorter values it pays only where indices overlap or are few. With many
 *               ranks the sums become dense, and log2 P dense messages are more than the two of a dense ring.
 *
 * Example, 3 ranks, 4 elements, 1 entry each: (0: 5), (2: 7) and (0: 1).
 *     rank 2 sends 1 0 0 0 to rank 0, which has 6 0 0 0 and exchanges it with rank 1; both have 6 0 7 0, and rank 2
 *     receives it from rank 0.
 */
#include "reduce/partial_sums.h"

#include "base/alloc.h"
#include "base/float_bits.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "compress/exact_frame.h"

#include <stdbool.h>
#include <string.h>

#define HEADER_BYTES 16u /* before each message: kind and bytes */

typedef enum payload_kind { FRAME, RAW, NO_PAYLOAD } payload_kind;

typedef enum direction { SEND = 1, RECEIVE = 2, BOTH = 3 } direction;

typedef struct tree {
    frugi_buffer sum;  /* sum so far, dense */
    frugi_buffer list; /* scratch for frames of non-zeros */
    size_t max_bytes;  /* of a message */
    size_t own_bytes;  /* length of this rank's frame while the sum is that frame; else 0 */
    bool failed;       /* this rank, or one that it received from: from now on it sends only headers */
    frug_status status;
} tree;

static frug_status create(frug_reducer *r) {
    r->state = frugi_calloc(1, sizeof(tree));
    FRUG_FAIL_IF(!r->state, FRUG_ERR_MEMORY, "reduce: out of memory");
    return FRUG_OK;
}

static void destroy(frug_reducer *r) {
    tree *t = r->state;
    if (t) {
        frugi_free(t->sum.data);
        frugi_free(t->list.data);
    }
    frugi_free(t);
}

/* All steps that can fail on this rank alone, before the first sync round. */
static frug_status prepare(frug_reducer *r, const frugi_exchange *x) {
    tree *t = r->state;
    frug_compressor *c = r->compressor;
    FRUG_TRY(frugi_compress_range(r, x->step, x->begin, x->count, x->grad, &t->own_bytes));
    FRUG_TRY(frugi_buffer_reserve(&t->sum, (x->count + 1) * sizeof(float)));
    FRUG_TRY(frugi_buffer_reserve(&t->list, (x->count + 1) * sizeof(uint32_t)));
    t->max_bytes = frugi_exact_frame_bound(c, x->begin, x->count, 0) + x->count * sizeof(float);
    FRUG_TRY(frugi_buffer_reserve(&r->recv_buf, t->max_bytes));
    const void *frame = r->send_buf.data;
    return frugi_decode_frames(c, &frame, &t->own_bytes, 1, x->begin, x->count, frugi_buffer_floats(&t->sum));
}

/* Non-zeros of the sum; n if an element is not finite, because frames cannot encode that. */
static uint64_t count_nonzeros(const float *x, uint64_t n) {
    uint64_t nonzeros = 0, bad = 0;
    for (uint64_t i = 0; i < n; i++) {
        nonzeros += x[i] != 0.0f;
        bad += frugi_magnitude(x[i]) >= FRUGI_INF_BITS;
    }
    return bad ? n : nonzeros;
}

/*
 * Encode the sum so far in the shortest form. Indices take at most a bit per element, so with more than 31 of 32
 * elements raw floats are shorter.
 */
static frug_status encode_sum(frug_reducer *r, const frugi_exchange *x, payload_kind *kind, size_t *bytes) {
    tree *t = r->state;
    *kind = RAW;
    *bytes = x->count * sizeof(float);
    if (t->own_bytes && t->own_bytes <= *bytes) {
        *kind = FRAME;
        *bytes = t->own_bytes;
        return FRUG_OK;
    }
    if (t->own_bytes || count_nonzeros(frugi_buffer_floats(&t->sum), x->count) > x->count - x->count / 32)
        return FRUG_OK;
    FRUG_TRY(frugi_buffer_reserve(&r->send_buf, t->max_bytes));
    FRUG_TRY(frugi_exact_frame_encode(r->compressor, x->step, x->begin, x->count, frugi_buffer_floats(&t->sum),
                                      (uint32_t *)(void *)t->list.data, r->send_buf.data, r->send_buf.bytes, bytes));
    *kind = FRAME;
    return FRUG_OK;
}

static void fail(tree *t, frug_status status) {
    t->status = t->status == FRUG_OK ? status : t->status;
    t->failed |= status != FRUG_OK;
}

/* Add the received payload to the sum. */
static frug_status add_received(frug_reducer *r, const frugi_exchange *x, payload_kind kind, size_t bytes) {
    tree *t = r->state;
    float *sum = frugi_buffer_floats(&t->sum);
    t->own_bytes = 0;
    if (kind == FRAME) {
        const void *frame = r->recv_buf.data;
        frugi_target target = {.dst = sum, .begin = x->begin, .count = x->count, .keep = 1.0f, .gain = 1.0f};
        FRUG_TRY(frugi_frames_open(frug_compressor_decoder(r->compressor), &frame, &bytes, 1, &target));
        return frugi_frames_sum(frug_compressor_decoder(r->compressor), 1, &target);
    }
    const float *theirs = frugi_buffer_floats(&r->recv_buf);
    for (uint64_t i = 0; i < x->count; i++)
        sum[i] += theirs[i];
    return FRUG_OK;
}

/* Send, receive, or both at the same time. */
static frug_status transfer(frug_reducer *r, int peer, direction dir, void *out, size_t out_bytes, void *in,
                            size_t in_bytes) {
    frug_message m[2] = {{.peer = peer, .tag = FRUGI_TAG_FIRST, .data = in, .bytes = in_bytes},
                         {.peer = peer, .tag = FRUGI_TAG_FIRST, .sending = 1, .data = out, .bytes = out_bytes}};
    double start = frugi_clock();
    frug_status status = frugi_comm_exchange(r->comm, dir & RECEIVE ? m : m + 1, dir == BOTH ? 2 : 1);
    r->stats.seconds_wire += frugi_clock() - start;
    return status;
}

/* Send the sum so far to a peer, add the peer's sum, or both. After a failure NO_PAYLOAD is sent, which spreads it. */
static frug_status exchange_with(frug_reducer *r, const frugi_exchange *x, int peer, direction dir) {
    tree *t = r->state;
    unsigned char out[HEADER_BYTES] = {0}, in[HEADER_BYTES] = {0};
    payload_kind kind = NO_PAYLOAD;
    size_t sent = 0;
    if (dir & SEND && !t->failed)
        fail(t, encode_sum(r, x, &kind, &sent));
    if (t->failed) {
        kind = NO_PAYLOAD;
        sent = 0;
    }
    frugi_put32(out, kind);
    frugi_put64(out + 8, sent);
    FRUG_TRY(transfer(r, peer, dir, out, HEADER_BYTES, in, HEADER_BYTES));
    uint32_t theirs = dir & RECEIVE ? frugi_get32(in) : NO_PAYLOAD;
    uint64_t length = dir & RECEIVE ? frugi_get64(in + 8) : 0;
    FRUG_FAIL_IF(theirs > NO_PAYLOAD || length > t->max_bytes || (theirs == RAW && length != x->count * sizeof(float)),
                 FRUG_ERR_REMOTE, "reduce: at step %llu rank %d announces %llu bytes of kind %u",
                 (unsigned long long)x->step, peer, (unsigned long long)length, theirs);
    FRUG_TRY(transfer(r, peer, dir, kind == RAW ? t->sum.data : r->send_buf.data, sent, r->recv_buf.data, length));
    r->stats.bytes_sent += sent;
    r->stats.bytes_received += length;
    t->failed |= (dir & RECEIVE) && theirs == NO_PAYLOAD;
    if (dir & RECEIVE && !t->failed)
        fail(t, add_received(r, x, (payload_kind)theirs, length));
    return FRUG_OK;
}

/* All rounds of this rank. */
static frug_status recursive_doubling(frug_reducer *r, const frugi_exchange *x) {
    tree *t = r->state;
    int rank = r->comm->rank, size = r->comm->size, power = 1;
    while (power <= size / 2)
        power *= 2;
    if (rank >= power) {
        FRUG_TRY(exchange_with(r, x, rank - power, SEND));
        memset(t->sum.data, 0, x->count * sizeof(float));
        return exchange_with(r, x, rank - power, RECEIVE);
    }
    if (rank + power < size)
        FRUG_TRY(exchange_with(r, x, rank + power, RECEIVE));
    for (int bit = 1; bit < power; bit *= 2)
        FRUG_TRY(exchange_with(r, x, rank ^ bit, BOTH));
    return rank + power < size ? exchange_with(r, x, rank + power, SEND) : FRUG_OK;
}

static frug_status run(frug_reducer *r, const frugi_exchange *x) {
    tree *t = r->state;
    double clock = frugi_clock();
    frug_status status = prepare(r, x);
    frugi_time_phase(&clock, &r->stats.seconds_compress);
    FRUG_TRY(frugi_sync(r, x, status, t->own_bytes, 0));
    frugi_time_phase(&clock, NULL);
    double wire = r->stats.seconds_wire;
    t->failed = false;
    t->status = FRUG_OK;
    FRUG_TRY(recursive_doubling(r, x));
    uint32_t hash = t->failed ? 0 : frugi_crc32c(0, t->sum.data, x->count * sizeof(float));
    frugi_time_phase(&clock, &r->stats.seconds_decode);
    r->stats.seconds_decode -= r->stats.seconds_wire - wire; /* transfer() counts its own time */
    FRUG_TRY(frugi_confirm(r, x, t->status, hash));
    frugi_time_phase(&clock, NULL);
    frugi_apply_sum(r->compressor, x, frugi_buffer_floats(&t->sum));
    frugi_time_phase(&clock, &r->stats.seconds_decode);
    return FRUG_OK;
}

const frugi_algorithm frugi_reduce_tree = {.name = "tree", .create = create, .run = run, .destroy = destroy};
