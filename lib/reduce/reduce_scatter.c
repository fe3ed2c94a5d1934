/*
 * Function:     split - block reduce-scatter, selection at the owner, all-gather.
 * Description:  Every worker owns a part of the range (shards.c). All send each owner their frame of its part; the
 *               owner adds them up in rank order, selects again from the sum - as the config does, but `down` times
 *               as many entries - and sends that to everyone. What it does not send on joins what it has left behind
 *               itself, so that nothing is lost while there is feedback. down=union sends on all that is not zero,
 *               exactly: with value=f32 everyone then gets the bits of reduce=gather (but for the sign of a zero).
 *               Rules that remember, or draw alike everywhere, are not repeated: learned and random send on the
 *               largest of the sum, threshold:track goes by the percentile.
 * Cost:         three rounds of marks and one of sizes; then, with S bytes of a worker's payload and P workers, about
 *               (P - 1) / P * (1 + down) * S bytes in and out per worker, which hardly grows with P. Exactly: a worker
 *               sends its frames for the others' parts once and its own part's frame P - 1 times. Memory: a second
 *               compressor without feedback, and a part as floats.
 * Limitations:  selecting twice costs accuracy where much is held back. What an owner drops waits in its residual,
 *               decays there (feedback=merged) and competes with the owner's own gradient; with feedback=none it is
 *               lost. What is dropped waits in the owner's residual, decays there and competes with the owner's own:
 *               a small language model with 8 workers ended 0.06 (94 %) to 0.15 (99 %) nats above gather with down=2
 *               (docs/scaling.md). down=union, the default, avoids it at up to P times S on the way back.
 *               Competition over all tensors (segment=all, layers=budget) is refused. Where units compete, tensors
 *               are not cut, so parts are uneven.
 *
 * Example, 2 workers, 2 blocks of 64, 1 entry a block, down=1; worker 0 owns elements 0 to 63:
 *     rank 0 sends (0: 5) to itself and (67: 2) to rank 1, rank 1 sends (1: 7) to rank 0 and (67: 4) to itself;
 *     rank 0 has 5 7, sends on (1: 7) and keeps 5 in its residual; rank 1 has 6 and sends on (67: 6);
 *     everyone adds 7 at 1 and 6 at 67.
 */
#include "reduce/shards.h"
#include "reduce/reducer.h"

#include "base/alloc.h"
#include "base/float_bits.h"
#include "base/clock.h"
#include "base/philox.h"
#include "base/status.h"
#include "compress/exact_frame.h"

#include <string.h>

#define TAG_SIZE FRUGI_TAG_FIRST
#define TAG_UP   (FRUGI_TAG_FIRST + 1)
#define TAG_DOWN (FRUGI_TAG_FIRST + 2)
#define STRETCH  65536u /* elements looked at in one go */

typedef struct split {
    frug_compressor *down;   /* for the way back; NULL with down=union */
    unsigned char *control;  /* the controller's state, on its way to the other compressor */
    uint64_t *cut;           /* part i is the elements cut[i] .. cut[i + 1] - 1 */
    size_t *at;              /* where the frame for owner i stands in r->send_buf */
    uint64_t *out, *in;      /* bytes of the frames for, and from, worker i */
    frugi_target *target;    /* of the parts that are not empty */
    const void **part_frame; /* and their frames */
    size_t *part_len;
    size_t parts;
    frugi_buffer sum, list; /* this worker's part as floats; scratch of frugi_nonzeros_say() */
} split;

/* ---- making ------------------------------------------------------------------- */

/*
 * The config of the way back: the same, `down` times as dense, and without memory of its own, so that a restart needs
 * the first compressor's state only. Random draws must differ from those on the way here, or they would not be fair;
 * but where all workers have drawn the same units, these are as many as one has drawn, and the largest of the sum.
 */
static struct frug_config way_back(const struct frug_config *up) {
    static const uint32_t times[] = {[FRUGI_DOWN_1] = 1, [FRUGI_DOWN_2] = 2, [FRUGI_DOWN_4] = 4};
    struct frug_config c = *up;
    uint32_t down = up->rule == FRUGI_RULE_RANDOM ? 1 : times[up->down];
    c.density_gain = down;
    c.feedback = FRUGI_FEEDBACK_NONE;
    c.clip = 0;
    c.frequency = 0;
    c.seed = up->seed ^ FRUGI_OTHER_DRAWS;
    c.hybrid_most = up->hybrid_most < up->block / down ? up->hybrid_most * down : up->block;
    if (up->threshold == FRUGI_THRESHOLD_TRACK)
        c.threshold = FRUGI_THRESHOLD_PERCENTILE;
    if (up->rule == FRUGI_RULE_RANDOM || up->rule == FRUGI_RULE_LEARNED) {
        c.rule = FRUGI_RULE_TOPK;
        c.segment = FRUGI_SEGMENT_TENSOR;
    }
    if (up->segment == FRUGI_SEGMENT_GROUP && up->group_keep * down >= up->group_of)
        c.segment = FRUGI_SEGMENT_TENSOR; /* everything: the density says so */
    else if (up->segment == FRUGI_SEGMENT_GROUP)
        c.group_keep = up->group_keep * down;
    return c;
}

static frug_status make_down(const frug_reducer *r, split *s) {
    const frug_compressor *up = r->compressor;
    frug_options options = FRUG_OPTIONS_INIT;
    struct frug_config config = way_back(&up->config);
    options.threads = up->threads;
    options.total_steps = up->total_steps;
    options.source = up->source;
    FRUG_TRY(frug_compressor_create(&config, up->layout, &options, &s->down));
    s->control = frugi_malloc(frugi_control_bytes(up->control) + 1);
    FRUG_FAIL_IF(!s->control, FRUG_ERR_MEMORY, "reduce: out of memory");
    return FRUG_OK;
}

static frug_status create(frug_reducer *r) {
    size_t size = (size_t)r->comm->size;
    split *s = frugi_calloc(1, sizeof *s);
    FRUG_FAIL_IF(!s, FRUG_ERR_MEMORY, "reduce: out of memory");
    r->state = s;
    s->cut = frugi_calloc(size + 1, sizeof *s->cut);
    s->at = frugi_calloc(size, sizeof *s->at);
    s->out = frugi_calloc(size, sizeof *s->out);
    s->in = frugi_calloc(size, sizeof *s->in);
    s->target = frugi_calloc(size, sizeof *s->target);
    s->part_frame = frugi_calloc(size, sizeof *s->part_frame);
    s->part_len = frugi_calloc(size, sizeof *s->part_len);
    FRUG_FAIL_IF(!s->cut || !s->at || !s->out || !s->in || !s->target || !s->part_frame || !s->part_len,
                 FRUG_ERR_MEMORY, "reduce: no memory for a group of %zu", size);
    return r->compressor->config.down == FRUGI_DOWN_UNION ? FRUG_OK : make_down(r, s);
}

static void destroy(frug_reducer *r) {
    split *s = r->state;
    if (!s)
        return;
    frug_compressor_destroy(s->down);
    void *const arrays[] = {s->control, s->cut,        s->at,       s->out,      s->in,
                            s->target,  s->part_frame, s->part_len, s->sum.data, s->list.data};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        frugi_free(arrays[i]);
    frugi_free(s);
}

/* ---- the way to the owners ------------------------------------------------------ */

static uint64_t part_count(const split *s, int i) {
    return s->cut[i + 1] - s->cut[i];
}

/* A frame for each owner into r->send_buf. Everything that can fail comes before the first changes the compressor. */
static frug_status compress_parts(frug_reducer *r, const frugi_exchange *x) {
    split *s = r->state;
    frug_compressor *c = r->compressor;
    int size = r->comm->size;
    size_t room = 0;
    FRUG_FAIL_IF(x->count && (!x->grad || !x->target.dst), FRUG_ERR_ARG, "reduce: no gradient or no destination");
    FRUG_TRY(frugi_check_range(c, x->begin, x->count));
    frugi_shards_cut(c, x->begin, x->count, size, s->cut);
    for (int i = 0; i < size; i++) {
        size_t bound = 0;
        if (part_count(s, i))
            FRUG_TRY(frug_compressor_bound(c, s->cut[i], part_count(s, i), &bound));
        s->at[i] = room;
        room += bound;
    }
    FRUG_TRY(frugi_buffer_reserve(&r->send_buf, room));
    frugi_norm_take(c, x->begin, x->count, x->grad);
    frug_status status = FRUG_OK;
    for (int i = 0; i < size && status == FRUG_OK; i++) {
        size_t len = 0;
        if (part_count(s, i))
            status = frug_compress(c, x->step, s->cut[i], part_count(s, i), x->grad + (s->cut[i] - x->begin),
                                   r->send_buf.data + s->at[i], r->send_buf.bytes - s->at[i], &len);
        s->out[i] = len;
    }
    frugi_norm_drop(c);
    return status;
}

/* One more message, if it has anything to say. */
static void add_message(frug_message *messages, size_t *n, int peer, int tag, int sending, void *data, size_t bytes) {
    if (bytes)
        messages[(*n)++] = (frug_message){.peer = peer, .tag = tag, .sending = sending, .data = data, .bytes = bytes};
}

/* Everyone tells every owner how many bytes will come; a rank's own come along for free. */
static frug_status swap_sizes(frug_reducer *r) {
    split *s = r->state;
    frug_comm *comm = r->comm;
    size_t n = 0;
    s->in[comm->rank] = s->out[comm->rank];
    for (int i = 1; i < comm->size; i++) {
        int from = (comm->rank + comm->size - i) % comm->size, to = (comm->rank + i) % comm->size;
        add_message(r->message, &n, from, TAG_SIZE, 0, &s->in[from], sizeof *s->in);
        add_message(r->message, &n, to, TAG_SIZE, 1, &s->out[to], sizeof *s->out);
    }
    return frugi_comm_exchange(comm, r->message, n);
}

/* Everyone's frame of a part to its owner, all at once. r->frame and r->len get those of this worker's part. */
static frug_status send_up(frug_reducer *r) {
    split *s = r->state;
    frug_comm *comm = r->comm;
    size_t n = 0, total = 0, bound = 0;
    if (part_count(s, comm->rank))
        FRUG_TRY(frug_compressor_bound(r->compressor, s->cut[comm->rank], part_count(s, comm->rank), &bound));
    for (int i = 0; i < comm->size; i++) {
        FRUG_FAIL_IF(s->in[i] > bound, FRUG_ERR_REMOTE, "reduce: rank %d announces %llu bytes, more than there can be",
                     i, (unsigned long long)s->in[i]);
        total += i == comm->rank ? 0 : (size_t)s->in[i];
    }
    FRUG_TRY(frugi_buffer_reserve(&r->recv_buf, total));
    unsigned char *at = r->recv_buf.data;
    for (int i = 0; i < comm->size; i++) {
        r->len[i] = (size_t)s->in[i];
        r->frame[i] = i == comm->rank ? r->send_buf.data + s->at[i] : at;
        if (i == comm->rank)
            continue;
        add_message(r->message, &n, i, TAG_UP, 0, at, r->len[i]);
        at += r->len[i];
    }
    for (int i = 1; i < comm->size; i++) {
        int to = (comm->rank + i) % comm->size;
        add_message(r->message, &n, to, TAG_UP, 1, r->send_buf.data + s->at[to], (size_t)s->out[to]);
        r->stats.bytes_sent += s->out[to];
    }
    r->stats.bytes_received += total;
    return frugi_comm_exchange(comm, r->message, n);
}

/* ---- at the owner ----------------------------------------------------------------- */

/* This worker's part as floats; keep 1. */
static frugi_target owned(const frug_reducer *r, float gain) {
    const split *s = r->state;
    return (frugi_target){.dst = (float *)(void *)s->sum.data,
                          .begin = s->cut[r->comm->rank],
                          .count = part_count(s, r->comm->rank),
                          .keep = 1.0f,
                          .gain = gain};
}

/* Add up what came for this worker's part, in rank order. */
static frug_status sum_part(frug_reducer *r, const frugi_exchange *x) {
    split *s = r->state;
    size_t size = (size_t)r->comm->size;
    uint64_t count = part_count(s, r->comm->rank);
    FRUG_TRY(frugi_buffer_reserve(&s->sum, count * sizeof(float) + 1));
    memset(s->sum.data, 0, count * sizeof(float));
    frugi_target t = owned(r, 1.0f);
    FRUG_TRY(frugi_frames_open(r->compressor, r->frame, r->len, size, &t));
    FRUG_TRY(frugi_frames_sum(r->compressor, size, &t));
    for (uint64_t i = 0; i < count; i += STRETCH) {
        uint32_t n = count - i < STRETCH ? (uint32_t)(count - i) : STRETCH;
        FRUG_FAIL_IF(frugi_largest_magnitude(t.dst + i, n) >= FRUGI_INF_BITS, FRUG_ERR_ARG,
                     "reduce: at step %llu the sum over all workers overflows", (unsigned long long)x->step);
    }
    return FRUG_OK;
}

static frug_status say_all(frug_reducer *r, const frugi_exchange *x, size_t *len) {
    split *s = r->state;
    frugi_target t = owned(r, 1.0f);
    uint64_t nonzeros = 0;
    for (uint64_t i = 0; i < t.count; i++)
        nonzeros += t.dst[i] != 0.0f;
    FRUG_TRY(frugi_buffer_reserve(&r->send_buf, frugi_nonzeros_bound(r->compressor, t.begin, t.count, nonzeros)));
    FRUG_TRY(frugi_buffer_reserve(&s->list, (t.count + 1) * sizeof(uint32_t)));
    return frugi_nonzeros_say(r->compressor, x->step, t.begin, t.count, t.dst, (uint32_t *)(void *)s->list.data,
                              r->send_buf.data, r->send_buf.bytes, len);
}

/* The same densities as on the way here, but for `down`: whatever this worker was told, and its gradient's norm. */
static void instruct(const frug_compressor *up, split *s) {
    frugi_control_export(up->control, s->control);
    frugi_control_import(s->down->control, s->control);
    s->down->norm_told = true;
    s->down->norm = up->norm_told ? up->norm : up->norm_here;
}

static frug_status say_most(frug_reducer *r, const frugi_exchange *x, size_t *len) {
    split *s = r->state;
    frugi_target t = owned(r, 1.0f);
    size_t bound = 0;
    FRUG_TRY(frug_compressor_bound(s->down, t.begin, t.count, &bound));
    FRUG_TRY(frugi_buffer_reserve(&r->send_buf, bound));
    instruct(r->compressor, s);
    return frug_compress(s->down, x->step, t.begin, t.count, t.dst, r->send_buf.data, r->send_buf.bytes, len);
}

/* What the owner has summed and not sent on joins what it has left behind. */
static frug_status keep_rest(frug_reducer *r, const frugi_exchange *x, size_t len) {
    const void *frame = r->send_buf.data;
    frugi_target t = owned(r, -1.0f);
    const split *s = r->state;
    if (!len || !s->down || r->compressor->config.feedback == FRUGI_FEEDBACK_NONE)
        return FRUG_OK;
    FRUG_TRY(frugi_parts_open(r->compressor, &frame, &len, 1, &t));
    FRUG_TRY(frugi_parts_sum(r->compressor, 1, &t));
    frugi_residual_add(r->compressor, x->step, t.begin, t.count, t.dst);
    return FRUG_OK;
}

/* ---- the way back ------------------------------------------------------------------- */

/* The most bytes that an owner can send. */
static frug_status down_bound(const frug_reducer *r, int owner, size_t *bound) {
    const split *s = r->state;
    uint64_t begin = s->cut[owner], count = part_count(s, owner);
    *bound = 0;
    if (s->down && count)
        return frug_compressor_bound(s->down, begin, count, bound);
    if (count)
        *bound = frugi_nonzeros_bound(r->compressor, begin, count, count);
    return FRUG_OK;
}

/* An owner's frame, and where it will be added. */
static void expect(split *s, const frugi_exchange *x, int owner, const void *frame, size_t len) {
    frugi_target t = x->target;
    t.dst += s->cut[owner] - x->begin;
    t.begin = s->cut[owner];
    t.count = part_count(s, owner);
    s->target[s->parts] = t;
    s->part_frame[s->parts] = frame;
    s->part_len[s->parts++] = len;
}

/* Every owner's frame to everyone, all at once; part_frame, part_len and target get those that are not empty. */
static frug_status send_down(frug_reducer *r, const frugi_exchange *x, size_t mine) {
    split *s = r->state;
    frug_comm *comm = r->comm;
    size_t n = 0, total = 0;
    for (int i = 0; i < comm->size; i++) {
        size_t bound = 0;
        FRUG_TRY(down_bound(r, i, &bound));
        FRUG_FAIL_IF(r->record[i].bytes > bound, FRUG_ERR_REMOTE,
                     "reduce: rank %d announces %llu bytes, more than there can be", i,
                     (unsigned long long)r->record[i].bytes);
        total += i == comm->rank ? 0 : (size_t)r->record[i].bytes;
    }
    FRUG_TRY(frugi_buffer_reserve(&r->recv_buf, total));
    unsigned char *at = r->recv_buf.data;
    s->parts = 0;
    for (int i = 0; i < comm->size; i++) {
        size_t len = (size_t)r->record[i].bytes;
        if (!part_count(s, i))
            continue;
        expect(s, x, i, i == comm->rank ? r->send_buf.data : at, len);
        if (i == comm->rank)
            continue;
        add_message(r->message, &n, i, TAG_DOWN, 0, at, len);
        at += len;
    }
    for (int i = 1; i < comm->size; i++)
        add_message(r->message, &n, (comm->rank + i) % comm->size, TAG_DOWN, 1, r->send_buf.data, mine);
    r->stats.bytes_sent += (size_t)(comm->size - 1) * mine;
    r->stats.bytes_received += total;
    return frugi_comm_exchange(comm, r->message, n);
}

/* Check all owners' frames, agree that they are the same everywhere, and add them. */
static frug_status finish(frug_reducer *r, const frugi_exchange *x, size_t mine) {
    split *s = r->state;
    frug_status status = frugi_parts_open(r->compressor, s->part_frame, s->part_len, s->parts, s->target);
    FRUG_TRY(frugi_confirm(r, x, status, frugi_frames_hash(s->part_frame, s->part_len, s->parts)));
    double start = frugi_clock();
    FRUG_TRY(frugi_parts_sum(r->compressor, s->parts, s->target));
    FRUG_TRY(keep_rest(r, x, mine));
    r->stats.seconds_decode += frugi_clock() - start;
    return FRUG_OK;
}

static frug_status run(frug_reducer *r, const frugi_exchange *x) {
    split *s = r->state;
    size_t mine = 0;
    double t0 = frugi_clock();
    frug_status status = compress_parts(r, x);
    double t1 = frugi_clock();
    FRUG_TRY(frugi_sync(r, x, status, 0, 0));
    FRUG_TRY(swap_sizes(r));
    double t2 = frugi_clock();
    FRUG_TRY(send_up(r));
    double t3 = frugi_clock();
    bool owner = part_count(s, r->comm->rank) > 0;
    status = owner ? sum_part(r, x) : FRUG_OK;
    double t4 = frugi_clock();
    if (owner && status == FRUG_OK)
        status = (s->down ? say_most : say_all)(r, x, &mine);
    double t5 = frugi_clock();
    FRUG_TRY(frugi_sync(r, x, status, mine, 0));
    double t6 = frugi_clock();
    FRUG_TRY(send_down(r, x, mine));
    r->stats.seconds_compress += (t1 - t0) + (t5 - t4);
    r->stats.seconds_wire += (t3 - t2) + (frugi_clock() - t6);
    r->stats.seconds_decode += t4 - t3;
    return finish(r, x, mine);
}

const frugi_algorithm frugi_reduce_split = {.name = "split", .create = create, .run = run, .destroy = destroy};
