/*
 * Function:     gather - sparse all-gather.
 * Description:  Every worker sends its frame to every other and adds up all frames in rank order. A long range is cut
 *               into chunks, each with a frame of its own: while one is on the wire the next is compressed and the one
 *               before is added up. The sums are the same bits either way.
 * Cost:         two rounds of marks, and (P - 1) frames in and out per worker: grows with P. With payload S bytes and
 *               bandwidth B: (P - 1) S / B; in chunks, all else but the first compression and the last addition hides
 *               behind that. Exact: nothing is selected twice.
 * Limitations:  beyond some 1 / (density * bytes per entry / 8) workers a dense sum sends less. Chunks need frames
 * whose sizes all workers know beforehand: sections by units, norm=... and clip=... go in one frame.
 *
 * Example, 3 workers, 1 of every 4 entries (segment=1:4):
 *     rank 0 sends (0: 5), rank 1 (2: 7), rank 2 (0: 1); everyone adds 6 0 7 0.
 */
#include "reduce/partial_sums.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"

#include <string.h>

#define CHUNKS_MOST 32u
#define CHUNK_LEAST (1u << 18) /* elements */
#define WINDOW      8u         /* chunks in hand: compressed and not yet added up everywhere */

/* ---- in one frame ------------------------------------------------------------------ */

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

static frug_status run_whole(frug_reducer *r, const frugi_exchange *x) {
    size_t mine = 0, size = (size_t)r->comm->size;
    double t0 = frugi_clock();
    frug_status status = frugi_part_compress(r, x->step, x->begin, x->count, x->grad, &mine);
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

/* ---- in chunks ---------------------------------------------------------------------- */

/** An exchange under way. Chunk i lives in slot i % WINDOW: a frame of each worker and the messages that move them. */
typedef struct pipeline {
    frug_reducer *r;
    const frugi_exchange *x;
    uint64_t begin[CHUNKS_MOST + 1]; /* of each chunk; the end of the last */
    size_t bytes[CHUNKS_MOST];       /* of a frame: all workers' are of one size */
    size_t chunks, longest;
    size_t compressed, added; /* chunks so far */
    frug_message *message;    /* WINDOW slots of 2 (P - 1): first those that are received, then those that are sent */
    size_t peers, messages;
    frug_status status; /* the first error; the exchange goes on for the others' sake */
    uint64_t hash;
} pipeline;

/* Whether the frames' sizes follow from step and layout alone, and cutting changes no bit. */
static bool can_cut(const frug_compressor *c, uint64_t count) {
    return !c->by_units && c->config.norm == FRUGI_NORM_OFF && !(c->config.clip > 0) &&
           count / 2 >= CHUNK_LEAST + FRUGI_BATCH_ELEMENTS;
}

/* The last place up to `at` where a range may be cut. */
static uint64_t cut_before(const frug_compressor *c, uint64_t at) {
    size_t i = frugi_piece_at(c, at);
    if (i == c->pieces || at < c->piece[i].begin)
        return at;
    return at - (at - c->piece[i].begin) % c->config.block;
}

/* Where the chunks lie and how large their frames will be. */
static frug_status plan(pipeline *p) {
    frug_compressor *c = p->r->compressor;
    const frugi_exchange *x = p->x;
    uint64_t most = x->count / (CHUNK_LEAST + FRUGI_BATCH_ELEMENTS);
    FRUG_FAIL_IF(!x->grad || !x->target.dst, FRUG_ERR_ARG, "reduce: no gradient or destination");
    FRUG_TRY(frugi_check_range(c, x->begin, x->count));
    p->chunks = most < CHUNKS_MOST ? (size_t)most : CHUNKS_MOST;
    for (size_t i = 0; i <= p->chunks; i++)
        p->begin[i] = cut_before(c, x->begin + x->count / p->chunks * i);
    p->begin[0] = x->begin;
    p->begin[p->chunks] = x->begin + x->count;
    frugi_control_densities(c->control, x->step, c->density);
    frugi_cut_for what = frugi_control_all(&c->config, x->step) ? FRUGI_CUT_ALL : FRUGI_CUT_STEP;
    for (size_t i = 0; i < p->chunks; i++) {
        frugi_cutting cut;
        FRUG_TRY(frugi_cut(c, p->begin[i], p->begin[i + 1] - p->begin[i], x->step, what, NULL, &cut));
        p->bytes[i] = (size_t)cut.bytes;
        p->longest = p->bytes[i] > p->longest ? p->bytes[i] : p->longest;
        p->hash = (p->hash ^ cut.bytes) * 0x100000001b3u;
    }
    FRUG_TRY(frugi_room_for(&p->r->mine, WINDOW * p->longest));
    return frugi_room_for(&p->r->theirs, WINDOW * p->peers * p->longest);
}

static frug_message *slot_of(const pipeline *p, size_t chunk) {
    return p->message + chunk % WINDOW * 2 * p->peers;
}

static unsigned char *own_frame(const pipeline *p, size_t chunk) {
    return p->r->mine.data + chunk % WINDOW * p->longest;
}

/* All `peers` messages from m on are done. */
static bool all_done(const pipeline *p, const frug_message *m) {
    for (size_t i = 0; i < p->peers; i++)
        if (!m[i].done)
            return false;
    return true;
}

/* Make ready to receive the others' frames of a chunk. */
static frug_status ask(pipeline *p, size_t chunk) {
    frug_comm *comm = p->r->comm;
    for (size_t i = 0; i < p->peers; i++) {
        frug_message *m = slot_of(p, chunk) + i;
        *m = (frug_message){.peer = (comm->rank + comm->size - 1 - (int)i) % comm->size,
                            .tag = FRUGI_TAG_FIRST,
                            .data = p->r->theirs.data + (chunk % WINDOW * p->peers + i) * p->longest,
                            .bytes = p->bytes[chunk]};
        FRUG_TRY(frugi_comm_post(comm, m));
    }
    return FRUG_OK;
}

/* Compress the next chunk and send it. A frame that could not be made is sent as one that nobody takes for sound. */
static frug_status say(pipeline *p) {
    frug_comm *comm = p->r->comm;
    const frugi_exchange *x = p->x;
    size_t chunk = p->compressed++, len = 0;
    uint64_t begin = p->begin[chunk];
    unsigned char *frame = own_frame(p, chunk);
    double start = frugi_clock();
    frug_status status = frug_compress(p->r->compressor, x->step, begin, p->begin[chunk + 1] - begin,
                                       x->grad + (begin - x->begin), frame, p->bytes[chunk], &len);
    if (status != FRUG_OK)
        memset(frame, 0, FRUGI_FRAME_HEADER);
    p->status = p->status == FRUG_OK ? status : p->status;
    p->r->stats.seconds_compress += frugi_clock() - start;
    for (size_t i = 0; i < p->peers; i++) {
        frug_message *m = slot_of(p, chunk) + p->peers + i;
        *m = (frug_message){.peer = (comm->rank + 1 + (int)i) % comm->size,
                            .tag = FRUGI_TAG_FIRST,
                            .sending = 1,
                            .data = frame,
                            .bytes = p->bytes[chunk]};
        FRUG_TRY(frugi_comm_post(comm, m));
    }
    return FRUG_OK;
}

/* Check all frames of a chunk whole, and add them up if nothing has gone wrong so far. */
static frug_status add(pipeline *p, size_t chunk) {
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
        r->frame[slot_of(p, chunk)[i].peer] = slot_of(p, chunk)[i].data;
    FRUG_TRY(frugi_frames_open(r->compressor, r->frame, r->len, size, &t));
    p->hash = (p->hash ^ frugi_frames_hash(r->frame, r->len, size)) * 0x100000001b3u;
    return frugi_frames_sum(r->compressor, size, &t);
}

/* The next chunk is here: add it, and make ready for the one that takes its slot. */
static frug_status hear(pipeline *p) {
    double start = frugi_clock();
    size_t chunk = p->added++;
    if (p->status == FRUG_OK)
        p->status = add(p, chunk);
    p->r->stats.seconds_decode += frugi_clock() - start;
    return chunk + WINDOW < p->chunks ? ask(p, chunk + WINDOW) : FRUG_OK;
}

/* Whatever can be done next: first what keeps the wire busy, then what makes room; else wait for news. */
static frug_status step_on(pipeline *p) {
    frug_comm *comm = p->r->comm;
    size_t done = 0;
    FRUG_TRY(frugi_comm_test(comm, p->message, p->messages, &done));
    if (p->compressed < p->chunks && p->compressed < p->added + WINDOW &&
        all_done(p, slot_of(p, p->compressed) + p->peers))
        return say(p);
    if (p->added < p->compressed && all_done(p, slot_of(p, p->added)))
        return hear(p);
    return frugi_comm_wait_for(comm, p->message, p->messages, done + 1);
}

/* What is neither compression nor addition is the wire: waiting for it, and handing it bytes. */
static frug_status exchange(pipeline *p) {
    frug_comm *comm = p->r->comm;
    frug_reduce_stats *stats = &p->r->stats;
    frug_status status = FRUG_OK;
    double start = frugi_clock(), busy = stats->seconds_compress + stats->seconds_decode;
    for (size_t i = 0; i < p->messages; i++)
        p->message[i].done = 1;
    for (size_t i = 0; i < WINDOW && i < p->chunks && status == FRUG_OK; i++)
        status = ask(p, i);
    while (p->added < p->chunks && status == FRUG_OK)
        status = step_on(p);
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
    if (!can_cut(r->compressor, x->count))
        return run_whole(r, x);
    pipeline p = {.r = r, .x = x, .peers = peers, .message = r->own, .messages = WINDOW * 2 * peers};
    frug_status status = plan(&p);
    size_t total = 0;
    for (size_t i = 0; i < p.chunks; i++)
        total += p.bytes[i];
    FRUG_TRY(frugi_marks(r, x, status, total, p.hash));
    for (int i = 1; i < r->comm->size; i++)
        if (r->mark[i].hash !=
            r->mark[0].hash) /* told different things by their callers, workers send unlike amounts */
            return run_whole(r, x);
    FRUG_TRY(exchange(&p));
    r->stats.bytes_sent += peers * total;
    r->stats.bytes_received += peers * total;
    return frugi_confirm(r, x, p.status, p.hash);
}

static frug_status create(frug_reducer *r) {
    size_t room = WINDOW * 2 * (size_t)r->comm->size;
    r->own = frugi_calloc(room, sizeof(frug_message));
    FRUG_FAIL_IF(!r->own, FRUG_ERR_MEMORY, "reduce: no memory for %zu messages", room);
    return FRUG_OK;
}

static void destroy(frug_reducer *r) {
    frugi_free(r->own);
}

const frugi_algorithm frugi_reduce_gather = {.name = "gather", .create = create, .run = run, .destroy = destroy};
