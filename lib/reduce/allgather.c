/*
 * Function:     gather - sparse all-gather.
 * Description:  Every rank sends its frame to every other rank and sums all frames in rank order. A long range is
 *               divided into chunks, each with its own frame: while one chunk is sent, the next one is compressed and
 *               the previous one decoded. The sums have the same bits with and without chunks.
 * Cost:         two sync rounds, one more while buffers grow, and P - 1 frames sent and received per rank: grows with
 *               P. With S bytes of payload and bandwidth B: (P - 1) S / B; with chunks, all work but the first
 *               compression and the last addition overlaps with that. Exact: nothing is selected twice.
 * Limitations:  with more than about 1 / (density * bytes per entry / 8) ranks a dense sum sends less. Chunks need
 *               frame sizes that all ranks know beforehand: sections by units, norm=... and clip=... use one frame.
 *
 * Example, 3 ranks, 1 of every 4 entries (segment=1:4):
 *     rank 0 sends (0: 5), rank 1 (2: 7), rank 2 (0: 1); all ranks add 6 0 7 0.
 */
#include "reduce/partial_sums.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"

#include <string.h>

#define MAX_CHUNKS 32u
#define MIN_CHUNK  (1u << 18) /* elements */
#define WINDOW     8u         /* chunks in flight: compressed and not yet decoded */

/* ---- one frame ---------------------------------------------------------------------- */

/* All-gather of the frames. */
static frug_status exchange_frames(frug_reducer *r, const frugi_exchange *x, size_t own_bytes) {
    frug_comm *comm = r->comm;
    size_t n = 0, total = 0;
    for (int i = 0; i < comm->size; i++) {
        r->len[i] = (size_t)r->record[i].bytes;
        total += i == comm->rank ? 0 : r->len[i];
    }
    FRUG_TRY(frugi_reserve_payloads(r, x, total));
    unsigned char *at = r->recv_buf.data;
    for (int i = 0; i < comm->size; i++) {
        r->frame[i] = i == comm->rank ? r->send_buf.data : at;
        if (i == comm->rank)
            continue;
        r->message[n++] = (frug_message){.peer = i, .tag = FRUGI_TAG_FIRST, .data = at, .bytes = r->len[i]};
        at += r->len[i];
    }
    for (int i = 1; i < comm->size; i++)
        r->message[n++] = (frug_message){.peer = (comm->rank + i) % comm->size,
                                         .tag = FRUGI_TAG_FIRST,
                                         .sending = 1,
                                         .data = r->send_buf.data,
                                         .bytes = own_bytes};
    r->stats.bytes_sent += (size_t)(comm->size - 1) * own_bytes;
    r->stats.bytes_received += total;
    return frugi_comm_exchange(comm, r->message, n);
}

static frug_status run_one_frame(frug_reducer *r, const frugi_exchange *x) {
    size_t own_bytes = 0, size = (size_t)r->comm->size;
    double clock = frugi_clock();
    frug_status status = frugi_compress_range(r, x->step, x->begin, x->count, x->grad, &own_bytes);
    if (status == FRUG_OK) /* in most cases all frames have the same size */
        status = frugi_buffer_reserve(&r->recv_buf, (size - 1) * own_bytes);
    frugi_time_phase(&clock, &r->stats.seconds_compress);
    FRUG_TRY(frugi_sync(r, x, status, own_bytes, r->recv_buf.bytes));
    frugi_time_phase(&clock, NULL);
    FRUG_TRY(exchange_frames(r, x, own_bytes));
    frugi_time_phase(&clock, &r->stats.seconds_wire);
    status = frugi_frames_open(frug_compressor_decoder(r->compressor), r->frame, r->len, size, &x->target);
    FRUG_TRY(frugi_confirm(r, x, status, frugi_frames_hash(r->frame, r->len, size)));
    frugi_time_phase(&clock, NULL);
    FRUG_TRY(frugi_frames_sum(frug_compressor_decoder(r->compressor), size, &x->target));
    frugi_time_phase(&clock, &r->stats.seconds_decode);
    return FRUG_OK;
}

/* ---- chunks ------------------------------------------------------------------------- */

/** A running exchange. Chunk i uses slot i % WINDOW: one frame per rank, and their messages. */
typedef struct pipeline {
    frug_reducer *r;
    const frugi_exchange *x;
    uint64_t begin[MAX_CHUNKS + 1]; /* of each chunk, and the end of the last */
    size_t bytes[MAX_CHUNKS];       /* of a frame: the same on all ranks */
    size_t chunks, max_bytes;
    size_t compressed, decoded; /* number of chunks */
    frug_message *message;      /* WINDOW slots of 2 (P - 1): the receives, then the sends */
    size_t peers, messages;
    frug_status status; /* the first error; the exchange continues, because other ranks wait for the frames */
    uint64_t hash;
} pipeline;

/* Elements of the shortest chunk. A transport that cannot test has costly messages: they are made by Python over gloo.
 * Three chunks of a bucket of 25 MB instead of six took 3 % off the processor time of a step there. */
static uint64_t min_chunk(const frug_reducer *r) {
    return (r->comm->transport.test ? MIN_CHUNK : 8 * MIN_CHUNK) + FRUGI_MAX_BLOCK;
}

/* Whether messages can be posted, frame sizes depend on step and layout only, and chunks do not change the result. */
static bool can_chunk(const frug_reducer *r, uint64_t count) {
    const struct frug_config *config = frugi_compressor_config(r->compressor);
    return r->comm->transport.post && !frugi_compressor_by_units(r->compressor) && config->norm == FRUGI_NORM_OFF &&
           !(config->clip > 0) && count / 2 >= min_chunk(r);
}

/* The last index up to `at` where a chunk may begin: the begin of a block. */
static uint64_t chunk_border(const frug_compressor *c, uint64_t at) {
    const frugi_partition *p = frugi_compressor_partition(c);
    size_t i = frugi_view_at(p, at);
    if (i == p->views || at < p->view[i].begin)
        return at;
    return at - (at - p->view[i].begin) % frugi_compressor_config(c)->block;
}

/* Compute the ranges of the chunks and the sizes of their frames. */
static frug_status plan_chunks(pipeline *p) {
    frug_compressor *c = p->r->compressor;
    const frugi_exchange *x = p->x;
    uint64_t most = x->count / min_chunk(p->r);
    FRUG_FAIL_IF(!x->grad || !x->target.dst, FRUG_ERR_ARG, "reduce: gradient or destination is NULL");
    FRUG_TRY(frugi_check_range(frugi_compressor_partition(c), x->begin, x->count));
    p->chunks = most < MAX_CHUNKS ? (size_t)most : MAX_CHUNKS;
    for (size_t i = 0; i <= p->chunks; i++)
        p->begin[i] = chunk_border(c, x->begin + x->count / p->chunks * i);
    p->begin[0] = x->begin;
    p->begin[p->chunks] = x->begin + x->count;
    FRUG_TRY(frugi_frame_sizes(c, x->step, p->begin, p->chunks, p->bytes));
    for (size_t i = 0; i < p->chunks; i++) {
        p->max_bytes = p->bytes[i] > p->max_bytes ? p->bytes[i] : p->max_bytes;
        p->hash = frugi_hash_word(p->hash, p->bytes[i]);
    }
    FRUG_TRY(frugi_buffer_reserve(&p->r->send_buf, WINDOW * p->max_bytes));
    return frugi_buffer_reserve(&p->r->recv_buf, WINDOW * p->peers * p->max_bytes);
}

static frug_message *slot(const pipeline *p, size_t chunk) {
    return p->message + chunk % WINDOW * 2 * p->peers;
}

static unsigned char *own_frame(const pipeline *p, size_t chunk) {
    return p->r->send_buf.data + chunk % WINDOW * p->max_bytes;
}

/* Whether the `peers` messages at m have completed. */
static bool all_done(const pipeline *p, const frug_message *m) {
    for (size_t i = 0; i < p->peers; i++)
        if (!m[i].done)
            return false;
    return true;
}

/* Post the receives of a chunk. */
static frug_status post_receives(pipeline *p, size_t chunk) {
    frug_comm *comm = p->r->comm;
    for (size_t i = 0; i < p->peers; i++) {
        frug_message *m = slot(p, chunk) + i;
        *m = (frug_message){.peer = (comm->rank + comm->size - 1 - (int)i) % comm->size,
                            .tag = FRUGI_TAG_FIRST,
                            .data = p->r->recv_buf.data + (chunk % WINDOW * p->peers + i) * p->max_bytes,
                            .bytes = p->bytes[chunk]};
        FRUG_TRY(frugi_comm_post(comm, m));
    }
    return FRUG_OK;
}

/* Compress the next chunk and post its sends. On failure an invalid frame is sent, which all ranks reject. */
static frug_status compress_and_send(pipeline *p) {
    frug_comm *comm = p->r->comm;
    const frugi_exchange *x = p->x;
    size_t chunk = p->compressed++, len = 0;
    uint64_t begin = p->begin[chunk];
    unsigned char *frame = own_frame(p, chunk);
    double start = frugi_clock();
    frug_status status = frug_compress(p->r->compressor, x->step, (frug_range){begin, p->begin[chunk + 1] - begin},
                                       x->grad + (begin - x->begin), frame, p->bytes[chunk], &len);
    if (status != FRUG_OK)
        memset(frame, 0, FRUGI_FRAME_HEADER);
    p->status = p->status == FRUG_OK ? status : p->status;
    p->r->stats.seconds_compress += frugi_clock() - start;
    for (size_t i = 0; i < p->peers; i++) {
        frug_message *m = slot(p, chunk) + p->peers + i;
        *m = (frug_message){.peer = (comm->rank + 1 + (int)i) % comm->size,
                            .tag = FRUGI_TAG_FIRST,
                            .sending = 1,
                            .data = frame,
                            .bytes = p->bytes[chunk]};
        FRUG_TRY(frugi_comm_post(comm, m));
    }
    return FRUG_OK;
}

/* Validate all frames of a chunk, then add them to the target. */
static frug_status decode_chunk(pipeline *p, size_t chunk) {
    frug_reducer *r = p->r;
    const frugi_target *all = &p->x->target;
    size_t size = p->peers + 1;
    frugi_target t = *all;
    t.begin = p->begin[chunk];
    t.count = p->begin[chunk + 1] - t.begin;
    t.dst = all->dst + (t.begin - all->begin);
    for (size_t i = 0; i < size; i++)
        r->len[i] = p->bytes[chunk];
    r->frame[r->comm->rank] = own_frame(p, chunk);
    for (size_t i = 0; i < p->peers; i++)
        r->frame[slot(p, chunk)[i].peer] = slot(p, chunk)[i].data;
    FRUG_TRY(frugi_frames_open(frug_compressor_decoder(r->compressor), r->frame, r->len, size, &t));
    p->hash = frugi_hash_word(p->hash, frugi_frames_hash(r->frame, r->len, size));
    return frugi_frames_sum(frug_compressor_decoder(r->compressor), size, &t);
}

/* The next chunk has arrived: decode it, unless there was an error, and post the receives of the next user of its slot.
 */
static frug_status receive_chunk(pipeline *p) {
    double start = frugi_clock();
    size_t chunk = p->decoded++;
    if (p->status == FRUG_OK)
        p->status = decode_chunk(p, chunk);
    p->r->stats.seconds_decode += frugi_clock() - start;
    return chunk + WINDOW < p->chunks ? post_receives(p, chunk + WINDOW) : FRUG_OK;
}

/* Compress and send a chunk if a slot is free, else decode one that has arrived, else wait for a message. */
static frug_status progress(pipeline *p) {
    frug_comm *comm = p->r->comm;
    size_t done = 0;
    FRUG_TRY(frugi_comm_test(comm, p->message, p->messages, &done));
    if (p->compressed < p->chunks && p->compressed < p->decoded + WINDOW &&
        all_done(p, slot(p, p->compressed) + p->peers))
        return compress_and_send(p);
    if (p->decoded < p->compressed && all_done(p, slot(p, p->decoded)))
        return receive_chunk(p);
    return frugi_comm_wait_some(comm, p->message, p->messages, done + 1);
}

/* The same over a transport that cannot test: compress and send what the window allows, then wait for the first chunk.
 */
static frug_status progress_blocking(pipeline *p) {
    frug_comm *comm = p->r->comm;
    bool send = p->compressed < p->chunks && p->compressed < p->decoded + WINDOW;
    FRUG_TRY(frugi_comm_wait(comm, send ? slot(p, p->compressed) + p->peers : slot(p, p->decoded), p->peers));
    return send ? compress_and_send(p) : receive_chunk(p);
}

/* All time outside compression and decoding counts as wire time. */
static frug_status run_pipeline(pipeline *p) {
    frug_comm *comm = p->r->comm;
    frug_reduce_stats *stats = &p->r->stats;
    frug_status status = FRUG_OK;
    double start = frugi_clock(), busy = stats->seconds_compress + stats->seconds_decode;
    for (size_t i = 0; i < p->messages; i++)
        p->message[i].done = 1;
    for (size_t i = 0; i < WINDOW && i < p->chunks && status == FRUG_OK; i++)
        status = post_receives(p, i);
    while (p->decoded < p->chunks && status == FRUG_OK)
        status = comm->transport.test ? progress(p) : progress_blocking(p);
    if (status == FRUG_OK)
        status = frugi_comm_wait(comm, p->message, p->messages);
    else
        frugi_comm_abandon(comm, p->message, p->messages);
    busy = stats->seconds_compress + stats->seconds_decode - busy;
    stats->seconds_wire += frugi_clock() - start - busy;
    return status;
}

static frug_status run(frug_reducer *r, const frugi_exchange *x) {
    size_t peers = (size_t)r->comm->size - 1;
    if (!can_chunk(r, x->count))
        return run_one_frame(r, x);
    pipeline p = {.r = r, .x = x, .peers = peers, .message = r->state, .messages = WINDOW * 2 * peers};
    frug_status status = plan_chunks(&p);
    size_t total = 0;
    for (size_t i = 0; i < p.chunks; i++)
        total += p.bytes[i];
    FRUG_TRY(frugi_sync(r, x, status, total, p.hash));
    for (int i = 1; i < r->comm->size; i++)
        if (r->record[i].hash != r->record[0].hash) /* frame sizes differ between ranks */
            return run_one_frame(r, x);
    FRUG_TRY(run_pipeline(&p));
    r->stats.bytes_sent += peers * total;
    r->stats.bytes_received += peers * total;
    return frugi_confirm(r, x, p.status, p.hash);
}

static frug_status create(frug_reducer *r) {
    size_t messages = WINDOW * 2 * (size_t)r->comm->size;
    r->state = frugi_calloc(messages, sizeof(frug_message));
    FRUG_FAIL_IF(!r->state, FRUG_ERR_MEMORY, "reduce: out of memory for %zu messages", messages);
    return FRUG_OK;
}

static void destroy(frug_reducer *r) {
    frugi_free(r->state);
}

const frugi_algorithm frugi_reduce_gather = {.name = "gather", .create = create, .run = run, .destroy = destroy};
