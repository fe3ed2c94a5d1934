/*
 * Function:     tree - recursive doubling: sums of two, of four, of eight.
 * Description:  In round i a worker swaps all it knows, a sum over 2^i workers, with the one whose rank differs in bit
 *               i. The first message is the worker's own frame; later ones are exact frames of the sum's non-zeros, or
 *               raw floats once these are shorter. Where P is no power of two, the workers beyond the last one, 2^k,
 *               first hand their frame to the worker 2^k below and get the result from it in the end.
 *               The sum is the balanced tree over ranks: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Both partners add
 *               the same two numbers, and floats do not mind the order of two, so all get the same bits. Sums begin at
 *               +0 and no -0 can come up, which a sparse frame could not tell from an absent element.
 * Cost:         two rounds of marks and 2 log2 P messages per worker. With N elements, of which a share d is sent by
 *               each, U(m) = N (1 - (1 - d)^m) non-zeros of m workers and 4 + a bytes for each (a: the index, together
 *               a bit per element at most): sum over i < log2 P of min((4 + a) U(2^i), 4 N) bytes in and out, but
 *               the first at the price of the config's codes. Exact: nothing is selected twice.
 *               Memory: four times the range in floats.
 * Limitations:  sums travel as f32, so with shorter values it pays only where places overlap or are few. For many
 *               workers the sums become dense, and log2 P dense messages are more than a dense ring's two.
 *
 * Example, 3 workers, 4 elements, 1 entry each: (0: 5), (2: 7) and (0: 1).
 *     rank 2 hands 1 0 0 0 to rank 0, which has 6 0 0 0 and swaps it with rank 1; both have 6 0 7 0, and rank 2 gets
 *     it from rank 0.
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

#define HEADER 16u /* before each message: kind and bytes */

typedef enum kind { FRAME, RAW, NOTHING } kind;

typedef enum way { OUT = 1, IN = 2, BOTH = 3 } way;

typedef struct tree {
    frugi_buffer sum;  /* what this worker knows, dense */
    frugi_buffer list; /* scratch for frames of non-zeros */
    size_t limit;      /* the most bytes of a message */
    size_t own_bytes;  /* bytes of this worker's frame while that is all it knows; else 0 */
    bool failed;       /* this worker or one it has heard from: only headers and empty words from then on */
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

/* All that can go wrong on this worker alone, before it promises anything to another. */
static frug_status prepare(frug_reducer *r, const frugi_exchange *x) {
    tree *t = r->state;
    frug_compressor *c = r->compressor;
    FRUG_TRY(frugi_compress_range(r, x->step, x->begin, x->count, x->grad, &t->own_bytes));
    FRUG_TRY(frugi_buffer_reserve(&t->sum, (x->count + 1) * sizeof(float)));
    FRUG_TRY(frugi_buffer_reserve(&t->list, (x->count + 1) * sizeof(uint32_t)));
    t->limit = frugi_nonzeros_bound(c, x->begin, x->count, 0) + x->count * sizeof(float);
    FRUG_TRY(frugi_buffer_reserve(&r->recv_buf, t->limit));
    const void *frame = r->send_buf.data;
    return frugi_decode_frames(c, &frame, &t->own_bytes, 1, x->begin, x->count, frugi_buffer_floats(&t->sum));
}

/* Non-zeros of the sum; all of it where an element is not finite, for no frame can say that. */
static uint64_t weigh(const float *x, uint64_t n) {
    uint64_t nonzeros = 0, bad = 0;
    for (uint64_t i = 0; i < n; i++) {
        nonzeros += x[i] != 0.0f;
        bad += frugi_magnitude(x[i]) >= FRUGI_INF_BITS;
    }
    return bad ? n : nonzeros;
}

/*
 * What this worker knows, in the shortest form. An index takes a bit per element at most: with that, more than 31 of
 * 32 elements are shorter raw.
 */
static frug_status word(frug_reducer *r, const frugi_exchange *x, kind *k, size_t *bytes) {
    tree *t = r->state;
    *k = RAW;
    *bytes = x->count * sizeof(float);
    if (t->own_bytes && t->own_bytes <= *bytes) {
        *k = FRAME;
        *bytes = t->own_bytes;
        return FRUG_OK;
    }
    if (t->own_bytes || weigh(frugi_buffer_floats(&t->sum), x->count) > x->count - x->count / 32)
        return FRUG_OK;
    FRUG_TRY(frugi_buffer_reserve(&r->send_buf, t->limit));
    FRUG_TRY(frugi_nonzeros_say(r->compressor, x->step, x->begin, x->count, frugi_buffer_floats(&t->sum),
                                (uint32_t *)(void *)t->list.data, r->send_buf.data, r->send_buf.bytes, bytes));
    *k = FRAME;
    return FRUG_OK;
}

static void fail(tree *t, frug_status status) {
    t->status = t->status == FRUG_OK ? status : t->status;
    t->failed |= status != FRUG_OK;
}

/* Add what came. */
static frug_status merge(frug_reducer *r, const frugi_exchange *x, kind k, size_t bytes) {
    tree *t = r->state;
    float *sum = frugi_buffer_floats(&t->sum);
    t->own_bytes = 0;
    if (k == FRAME) {
        const void *frame = r->recv_buf.data;
        frugi_target target = {.dst = sum, .begin = x->begin, .count = x->count, .keep = 1.0f, .gain = 1.0f};
        FRUG_TRY(frugi_frames_open(r->compressor, &frame, &bytes, 1, &target));
        return frugi_frames_sum(r->compressor, 1, &target);
    }
    const float *theirs = frugi_buffer_floats(&r->recv_buf);
    for (uint64_t i = 0; i < x->count; i++)
        sum[i] += theirs[i];
    return FRUG_OK;
}

/* Both ways at once where `way` says so. */
static frug_status pass(frug_reducer *r, int peer, way w, void *out, size_t out_bytes, void *in, size_t in_bytes) {
    frug_message m[2] = {{.peer = peer, .tag = FRUGI_TAG_FIRST, .data = in, .bytes = in_bytes},
                         {.peer = peer, .tag = FRUGI_TAG_FIRST, .sending = 1, .data = out, .bytes = out_bytes}};
    double start = frugi_clock();
    frug_status status = frugi_comm_exchange(r->comm, w & IN ? m : m + 1, w == BOTH ? 2 : 1);
    r->stats.seconds_wire += frugi_clock() - start;
    return status;
}

/* Tell a peer what this worker knows, hear what it knows, or both. A failure is told as well, and passed on. */
static frug_status meet(frug_reducer *r, const frugi_exchange *x, int peer, way w) {
    tree *t = r->state;
    unsigned char out[HEADER] = {0}, in[HEADER] = {0};
    kind k = NOTHING;
    size_t sent = 0;
    if (w & OUT && !t->failed)
        fail(t, word(r, x, &k, &sent));
    if (t->failed) {
        k = NOTHING;
        sent = 0;
    }
    frugi_put32(out, k);
    frugi_put64(out + 8, sent);
    FRUG_TRY(pass(r, peer, w, out, HEADER, in, HEADER));
    uint32_t theirs = w & IN ? frugi_get32(in) : NOTHING;
    uint64_t length = w & IN ? frugi_get64(in + 8) : 0;
    FRUG_FAIL_IF(theirs > NOTHING || length > t->limit || (theirs == RAW && length != x->count * sizeof(float)),
                 FRUG_ERR_REMOTE, "reduce: at step %llu rank %d announces %llu bytes of a kind %u",
                 (unsigned long long)x->step, peer, (unsigned long long)length, theirs);
    FRUG_TRY(pass(r, peer, w, k == RAW ? t->sum.data : r->send_buf.data, sent, r->recv_buf.data, length));
    r->stats.bytes_sent += sent;
    r->stats.bytes_received += length;
    t->failed |= (w & IN) && theirs == NOTHING;
    if (w & IN && !t->failed)
        fail(t, merge(r, x, (kind)theirs, length));
    return FRUG_OK;
}

/* Up the tree and down again. */
static frug_status climb(frug_reducer *r, const frugi_exchange *x) {
    tree *t = r->state;
    int rank = r->comm->rank, size = r->comm->size, core = 1;
    while (core <= size / 2)
        core *= 2;
    if (rank >= core) {
        FRUG_TRY(meet(r, x, rank - core, OUT));
        memset(t->sum.data, 0, x->count * sizeof(float));
        return meet(r, x, rank - core, IN);
    }
    if (rank + core < size)
        FRUG_TRY(meet(r, x, rank + core, IN));
    for (int bit = 1; bit < core; bit *= 2)
        FRUG_TRY(meet(r, x, rank ^ bit, BOTH));
    return rank + core < size ? meet(r, x, rank + core, OUT) : FRUG_OK;
}

static frug_status run(frug_reducer *r, const frugi_exchange *x) {
    tree *t = r->state;
    double t0 = frugi_clock();
    frug_status status = prepare(r, x);
    double t1 = frugi_clock();
    FRUG_TRY(frugi_sync(r, x, status, t->own_bytes, 0));
    double t2 = frugi_clock(), wire = r->stats.seconds_wire;
    t->failed = false;
    t->status = FRUG_OK;
    FRUG_TRY(climb(r, x));
    uint32_t hash = t->failed ? 0 : frugi_crc32c(0, t->sum.data, x->count * sizeof(float));
    double t3 = frugi_clock();
    FRUG_TRY(frugi_confirm(r, x, t->status, hash));
    double t4 = frugi_clock();
    frugi_apply_sum(r->compressor, x, frugi_buffer_floats(&t->sum));
    r->stats.seconds_compress += t1 - t0;
    r->stats.seconds_decode += (t3 - t2) - (r->stats.seconds_wire - wire) + frugi_clock() - t4;
    return FRUG_OK;
}

const frugi_algorithm frugi_reduce_tree = {.name = "tree", .create = create, .run = run, .destroy = destroy};
