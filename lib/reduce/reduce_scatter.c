/*
 * Function:     split - sparse reduce-scatter, selection from the sum, all-gather.
 * Description:  Every rank owns a shard of the range (shards.c). All ranks send each owner their frame of its shard.
 *               The owner sums them in rank order, selects from the sum - with the same config, but `down` times as
 *               many entries - and sends the result to all ranks. What it does not send is added to its residual, so
 *               that nothing is lost while there is feedback. down=union sends all non-zeros of the sum, exactly: with
 *               value=f32 all ranks then get the bits of reduce=gather (but for the sign of a zero).
 *               Rules with state, or with the same draws on all ranks, are replaced for the second selection: learned
 *               and random by the largest of the sum, threshold:track by the percentile.
 * Cost:         three sync rounds, up to two more while buffers grow, and one of sizes; then, with S bytes of payload
 *               per rank and P ranks, about (P - 1) / P * (1 + down) * S bytes sent and received per rank, which
 *               hardly grows with P. Exactly: a rank sends its frames of the other shards once and the frame of its
 *               own shard P - 1 times. Memory: a second compressor without feedback, and a shard as floats.
 * Limitations:  selecting twice costs accuracy at high sparsity. What an owner does not send stays in its residual,
 *               decays there (feedback=merged) and competes with its own gradient; with feedback=none it is lost. A
 *               small language model with 8 ranks ended 0.06 (94 %) to 0.15 (99 %) nats above gather with down=2
 *               (docs/scaling.md). down=union, the default, avoids that, with up to P times S on the way back.
 *               Selection over all tensors (segment=all, layers=budget) is refused. By units, tensors are not divided,
 *               so shards are uneven.
 *
 * Example, 2 ranks, 2 blocks of 64, 1 entry a block, down=1; rank 0 owns elements 0 to 63:
 *     rank 0 sends (0: 5) to itself and (67: 2) to rank 1, rank 1 sends (1: 7) to rank 0 and (67: 4) to itself;
 *     rank 0 has 5 7, sends (1: 7) and adds 5 to its residual; rank 1 has 6 and sends (67: 6);
 *     all ranks add 7 at 1 and 6 at 67.
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

#define TAG_SIZE    FRUGI_TAG_FIRST
#define TAG_UP      (FRUGI_TAG_FIRST + 1)
#define TAG_DOWN    (FRUGI_TAG_FIRST + 2)
#define CHECK_BATCH 65536u /* elements per overflow check */

typedef struct reduce_scatter {
    frug_compressor *down;            /* for the second selection; NULL with down=union */
    unsigned char *control;           /* scratch: the density controller's state, copied to `down` */
    uint64_t *cut;                    /* shard i is the elements cut[i] .. cut[i + 1] - 1 */
    size_t *up_offset;                /* of the frame for owner i in r->send_buf */
    uint64_t *up_bytes, *up_bytes_in; /* of the frames to, and from, rank i */
    frugi_target *target;             /* of the shards that are not empty */
    const void **shard_frame;         /* and their frames */
    size_t *shard_len;
    size_t shards;
    frugi_buffer sum, list; /* this rank's shard as floats; scratch of frugi_exact_frame_encode() */
} reduce_scatter;

/* ---- creation ----------------------------------------------------------------- */

/*
 * The config of the second selection: the same, `down` times as dense, and without state, so that a checkpoint needs
 * the first compressor's state only. Random draws must differ from the first ones, or they would be biased; but if all
 * ranks have drawn the same units, these are as many as one rank has drawn, and the largest of the sum.
 */
static struct frug_config down_config(const struct frug_config *up) {
    static const uint32_t times[] = {[FRUGI_DOWN_1] = 1, [FRUGI_DOWN_2] = 2, [FRUGI_DOWN_4] = 4};
    struct frug_config c = *up;
    uint32_t down = up->rule == FRUGI_RULE_RANDOM ? 1 : times[up->down];
    c.density_gain = down;
    c.feedback = FRUGI_FEEDBACK_NONE;
    c.clip = 0;
    c.frequency = 0;
    c.seed = up->seed ^ FRUGI_SECOND_STREAM;
    c.hybrid_most = up->hybrid_most < up->block / down ? up->hybrid_most * down : up->block;
    if (up->threshold == FRUGI_THRESHOLD_TRACK)
        c.threshold = FRUGI_THRESHOLD_PERCENTILE;
    if (up->rule == FRUGI_RULE_RANDOM || up->rule == FRUGI_RULE_LEARNED) {
        c.rule = FRUGI_RULE_TOPK;
        c.segment = FRUGI_SEGMENT_TENSOR;
    }
    if (up->segment == FRUGI_SEGMENT_GROUP && up->group_keep * down >= up->group_of)
        c.segment = FRUGI_SEGMENT_TENSOR; /* everything, by the density */
    else if (up->segment == FRUGI_SEGMENT_GROUP)
        c.group_keep = up->group_keep * down;
    return c;
}

static frug_status create_down_compressor(const frug_reducer *r, reduce_scatter *s) {
    const frug_compressor *up = r->compressor;
    frug_compressor_options options = frugi_compressor_options(up);
    struct frug_config config = down_config(frugi_compressor_config(up));
    FRUG_TRY(frug_compressor_create(&config, frugi_compressor_layout(up), &options, &s->down));
    s->control = frugi_malloc(frugi_schedule_bytes(up) + 1);
    FRUG_FAIL_IF(!s->control, FRUG_ERR_MEMORY, "reduce: out of memory");
    return FRUG_OK;
}

static frug_status create(frug_reducer *r) {
    size_t size = (size_t)r->comm->size;
    reduce_scatter *s = frugi_calloc(1, sizeof *s);
    FRUG_FAIL_IF(!s, FRUG_ERR_MEMORY, "reduce: out of memory");
    r->state = s;
    s->cut = frugi_calloc(size + 1, sizeof *s->cut);
    s->up_offset = frugi_calloc(size, sizeof *s->up_offset);
    s->up_bytes = frugi_calloc(size, sizeof *s->up_bytes);
    s->up_bytes_in = frugi_calloc(size, sizeof *s->up_bytes_in);
    s->target = frugi_calloc(size, sizeof *s->target);
    s->shard_frame = frugi_calloc(size, sizeof *s->shard_frame);
    s->shard_len = frugi_calloc(size, sizeof *s->shard_len);
    FRUG_FAIL_IF(!s->cut || !s->up_offset || !s->up_bytes || !s->up_bytes_in || !s->target || !s->shard_frame ||
                     !s->shard_len,
                 FRUG_ERR_MEMORY, "reduce: out of memory for a group of %zu", size);
    return frugi_compressor_config(r->compressor)->down == FRUGI_DOWN_UNION ? FRUG_OK : create_down_compressor(r, s);
}

static void destroy(frug_reducer *r) {
    reduce_scatter *s = r->state;
    if (!s)
        return;
    frug_compressor_destroy(s->down);
    void *const arrays[] = {s->control, s->cut,         s->up_offset, s->up_bytes, s->up_bytes_in,
                            s->target,  s->shard_frame, s->shard_len, s->sum.data, s->list.data};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        frugi_free(arrays[i]);
    frugi_free(s);
}

/* ---- reduce-scatter ------------------------------------------------------------- */

static uint64_t shard_count(const reduce_scatter *s, int i) {
    return s->cut[i + 1] - s->cut[i];
}

/* Compress a frame for each owner into r->send_buf. All checks come before the first change of the compressor. */
static frug_status compress_shards(frug_reducer *r, const frugi_exchange *x) {
    reduce_scatter *s = r->state;
    frug_compressor *c = r->compressor;
    int size = r->comm->size;
    size_t total = 0;
    FRUG_FAIL_IF(x->count && (!x->grad || !x->target.dst), FRUG_ERR_ARG, "reduce: gradient or destination is NULL");
    FRUG_TRY(frugi_check_range(frugi_compressor_partition(c), x->begin, x->count));
    frugi_shards_cut(c, x->begin, x->count, size, s->cut);
    for (int i = 0; i < size; i++) {
        size_t bound = 0;
        if (shard_count(s, i))
            FRUG_TRY(frug_compressor_bound(c, (frug_range){s->cut[i], shard_count(s, i)}, &bound));
        s->up_offset[i] = total;
        total += bound;
    }
    FRUG_TRY(frugi_buffer_reserve(&r->send_buf, total));
    frugi_norm_measure(c, x->begin, x->count, x->grad);
    frug_status status = FRUG_OK;
    for (int i = 0; i < size && status == FRUG_OK; i++) {
        size_t len = 0;
        if (shard_count(s, i))
            status =
                frug_compress(c, x->step, (frug_range){s->cut[i], shard_count(s, i)}, x->grad + (s->cut[i] - x->begin),
                              r->send_buf.data + s->up_offset[i], r->send_buf.bytes - s->up_offset[i], &len);
        s->up_bytes[i] = len;
    }
    frugi_norm_clear(c);
    return status;
}

/* Bytes of the longest of this rank's frames: at most so many does any owner receive from it. */
static uint64_t longest_up(const frug_reducer *r) {
    const reduce_scatter *s = r->state;
    uint64_t most = 0;
    for (int i = 0; i < r->comm->size; i++)
        most = s->up_bytes[i] > most ? s->up_bytes[i] : most;
    return most;
}

/* Append a message unless it is empty. */
static void add_message(frug_message *messages, size_t *n, int peer, int tag, int sending, void *data, size_t bytes) {
    if (bytes)
        messages[(*n)++] = (frug_message){.peer = peer, .tag = tag, .sending = sending, .data = data, .bytes = bytes};
}

/* Every rank sends every owner the number of bytes of its frame. */
static frug_status exchange_sizes(frug_reducer *r) {
    reduce_scatter *s = r->state;
    frug_comm *comm = r->comm;
    size_t n = 0;
    s->up_bytes_in[comm->rank] = s->up_bytes[comm->rank];
    for (int i = 1; i < comm->size; i++) {
        int from = (comm->rank + comm->size - i) % comm->size, to = (comm->rank + i) % comm->size;
        add_message(r->message, &n, from, TAG_SIZE, 0, &s->up_bytes_in[from], sizeof *s->up_bytes_in);
        add_message(r->message, &n, to, TAG_SIZE, 1, &s->up_bytes[to], sizeof *s->up_bytes);
    }
    return frugi_comm_exchange(comm, r->message, n);
}

/* Send the frame of each shard to its owner. r->frame and r->len get the frames of this rank's shard. */
static frug_status send_up(frug_reducer *r, const frugi_exchange *x) {
    reduce_scatter *s = r->state;
    frug_comm *comm = r->comm;
    size_t n = 0, total = 0, bound = 0;
    if (shard_count(s, comm->rank))
        FRUG_TRY(
            frug_compressor_bound(r->compressor, (frug_range){s->cut[comm->rank], shard_count(s, comm->rank)}, &bound));
    for (int i = 0; i < comm->size; i++) {
        FRUG_FAIL_IF(s->up_bytes_in[i] > bound, FRUG_ERR_REMOTE,
                     "reduce: rank %d announces %llu bytes, more than the bound", i,
                     (unsigned long long)s->up_bytes_in[i]);
        total += i == comm->rank ? 0 : (size_t)s->up_bytes_in[i];
    }
    FRUG_TRY(frugi_reserve_payloads(r, x, total));
    unsigned char *at = r->recv_buf.data;
    for (int i = 0; i < comm->size; i++) {
        r->len[i] = (size_t)s->up_bytes_in[i];
        r->frame[i] = i == comm->rank ? r->send_buf.data + s->up_offset[i] : at;
        if (i == comm->rank)
            continue;
        add_message(r->message, &n, i, TAG_UP, 0, at, r->len[i]);
        at += r->len[i];
    }
    for (int i = 1; i < comm->size; i++) {
        int to = (comm->rank + i) % comm->size;
        add_message(r->message, &n, to, TAG_UP, 1, r->send_buf.data + s->up_offset[to], (size_t)s->up_bytes[to]);
        r->stats.bytes_sent += s->up_bytes[to];
    }
    r->stats.bytes_received += total;
    return frugi_comm_exchange(comm, r->message, n);
}

/* ---- owner ------------------------------------------------------------------------ */

/* This rank's shard of the sum as a target; keep is 1. */
static frugi_target shard_target(const frug_reducer *r, float gain) {
    const reduce_scatter *s = r->state;
    return (frugi_target){.dst = (float *)(void *)s->sum.data,
                          .begin = s->cut[r->comm->rank],
                          .count = shard_count(s, r->comm->rank),
                          .keep = 1.0f,
                          .gain = gain};
}

/* Sum the received frames of this rank's shard, in rank order. */
static frug_status sum_shard(frug_reducer *r, const frugi_exchange *x) {
    reduce_scatter *s = r->state;
    size_t size = (size_t)r->comm->size;
    uint64_t count = shard_count(s, r->comm->rank);
    FRUG_TRY(frugi_buffer_reserve(&s->sum, count * sizeof(float) + 1));
    memset(s->sum.data, 0, count * sizeof(float));
    frugi_target t = shard_target(r, 1.0f);
    FRUG_TRY(frugi_frames_open(frug_compressor_decoder(r->compressor), r->frame, r->len, size, &t));
    FRUG_TRY(frugi_frames_sum(frug_compressor_decoder(r->compressor), size, &t));
    for (uint64_t i = 0; i < count; i += CHECK_BATCH) {
        uint32_t n = count - i < CHECK_BATCH ? (uint32_t)(count - i) : CHECK_BATCH;
        FRUG_FAIL_IF(frugi_largest_magnitude(t.dst + i, n) >= FRUGI_INF_BITS, FRUG_ERR_ARG,
                     "reduce: at step %llu the sum over all workers overflows", (unsigned long long)x->step);
    }
    return FRUG_OK;
}

static frug_status encode_nonzeros(frug_reducer *r, const frugi_exchange *x, size_t *len) {
    reduce_scatter *s = r->state;
    frugi_target t = shard_target(r, 1.0f);
    uint64_t nonzeros = 0;
    for (uint64_t i = 0; i < t.count; i++)
        nonzeros += t.dst[i] != 0.0f;
    FRUG_TRY(frugi_buffer_reserve(&r->send_buf, frugi_exact_frame_bound(r->compressor, t.begin, t.count, nonzeros)));
    FRUG_TRY(frugi_buffer_reserve(&s->list, (t.count + 1) * sizeof(uint32_t)));
    return frugi_exact_frame_encode(r->compressor, x->step, t.begin, t.count, t.dst, (uint32_t *)(void *)s->list.data,
                                    r->send_buf.data, r->send_buf.bytes, len);
}

static frug_status compress_sum(frug_reducer *r, const frugi_exchange *x, size_t *len) {
    reduce_scatter *s = r->state;
    frugi_target t = shard_target(r, 1.0f);
    size_t bound = 0;
    FRUG_TRY(frug_compressor_bound(s->down, (frug_range){t.begin, t.count}, &bound));
    FRUG_TRY(frugi_buffer_reserve(&r->send_buf, bound));
    /* The second selection uses the densities of the first, times `down`. */
    frugi_schedule_copy(r->compressor, s->down, s->control);
    return frug_compress(s->down, x->step, (frug_range){t.begin, t.count}, t.dst, r->send_buf.data, r->send_buf.bytes,
                         len);
}

/* Add the part of the sum that was not sent to the owner's residual. */
static frug_status add_to_residual(frug_reducer *r, const frugi_exchange *x, size_t len) {
    const void *frame = r->send_buf.data;
    frugi_target t = shard_target(r, -1.0f);
    const reduce_scatter *s = r->state;
    if (!len || !s->down || frugi_compressor_config(r->compressor)->feedback == FRUGI_FEEDBACK_NONE)
        return FRUG_OK;
    FRUG_TRY(frugi_frames_open_each(frug_compressor_decoder(r->compressor), &frame, &len, 1, &t));
    FRUG_TRY(frugi_frames_sum_each(frug_compressor_decoder(r->compressor), 1, &t));
    frugi_compressor_residual_add(r->compressor, x->step, (frug_range){t.begin, t.count}, t.dst);
    return FRUG_OK;
}

/* ---- all-gather --------------------------------------------------------------------- */

/* Bound of the frame that an owner sends. */
static frug_status down_frame_bound(const frug_reducer *r, int owner, size_t *bound) {
    const reduce_scatter *s = r->state;
    uint64_t begin = s->cut[owner], count = shard_count(s, owner);
    *bound = 0;
    if (s->down && count)
        return frug_compressor_bound(s->down, (frug_range){begin, count}, bound);
    if (count)
        *bound = frugi_exact_frame_bound(r->compressor, begin, count, count);
    return FRUG_OK;
}

/* Append a shard: its frame and its target. */
static void add_shard(reduce_scatter *s, const frugi_exchange *x, int owner, const void *frame, size_t len) {
    frugi_target t = x->target;
    t.dst += s->cut[owner] - x->begin;
    t.begin = s->cut[owner];
    t.count = shard_count(s, owner);
    s->target[s->shards] = t;
    s->shard_frame[s->shards] = frame;
    s->shard_len[s->shards++] = len;
}

/* All-gather of the owners' frames; shard_frame, shard_len and target get those of shards that are not empty. */
static frug_status send_down(frug_reducer *r, const frugi_exchange *x, size_t own_bytes) {
    reduce_scatter *s = r->state;
    frug_comm *comm = r->comm;
    size_t n = 0, total = 0;
    for (int i = 0; i < comm->size; i++) {
        size_t bound = 0;
        FRUG_TRY(down_frame_bound(r, i, &bound));
        FRUG_FAIL_IF(r->record[i].bytes > bound, FRUG_ERR_REMOTE,
                     "reduce: rank %d announces %llu bytes, more than the bound", i,
                     (unsigned long long)r->record[i].bytes);
        total += i == comm->rank ? 0 : (size_t)r->record[i].bytes;
    }
    FRUG_TRY(frugi_reserve_payloads(r, x, total));
    unsigned char *at = r->recv_buf.data;
    s->shards = 0;
    for (int i = 0; i < comm->size; i++) {
        size_t len = (size_t)r->record[i].bytes;
        if (!shard_count(s, i))
            continue;
        add_shard(s, x, i, i == comm->rank ? r->send_buf.data : at, len);
        if (i == comm->rank)
            continue;
        add_message(r->message, &n, i, TAG_DOWN, 0, at, len);
        at += len;
    }
    for (int i = 1; i < comm->size; i++)
        add_message(r->message, &n, (comm->rank + i) % comm->size, TAG_DOWN, 1, r->send_buf.data, own_bytes);
    r->stats.bytes_sent += (size_t)(comm->size - 1) * own_bytes;
    r->stats.bytes_received += total;
    return frugi_comm_exchange(comm, r->message, n);
}

/* Validate the owners' frames, confirm that all ranks have the same, and add them to the target. */
static frug_status confirm_and_apply(frug_reducer *r, const frugi_exchange *x, size_t own_bytes) {
    reduce_scatter *s = r->state;
    frug_status status = frugi_frames_open_each(frug_compressor_decoder(r->compressor), s->shard_frame, s->shard_len,
                                                s->shards, s->target);
    FRUG_TRY(frugi_confirm(r, x, status, frugi_frames_hash(s->shard_frame, s->shard_len, s->shards)));
    double start = frugi_clock();
    FRUG_TRY(frugi_frames_sum_each(frug_compressor_decoder(r->compressor), s->shards, s->target));
    FRUG_TRY(add_to_residual(r, x, own_bytes));
    r->stats.seconds_decode += frugi_clock() - start;
    return FRUG_OK;
}

static frug_status run(frug_reducer *r, const frugi_exchange *x) {
    reduce_scatter *s = r->state;
    size_t own_bytes = 0;
    double clock = frugi_clock();
    frug_status status = compress_shards(r, x);
    frugi_time_phase(&clock, &r->stats.seconds_compress);
    FRUG_TRY(frugi_sync(r, x, status, longest_up(r), r->recv_buf.bytes));
    FRUG_TRY(exchange_sizes(r));
    frugi_time_phase(&clock, NULL);
    FRUG_TRY(send_up(r, x));
    frugi_time_phase(&clock, &r->stats.seconds_wire);
    bool owner = shard_count(s, r->comm->rank) > 0;
    status = owner ? sum_shard(r, x) : FRUG_OK;
    frugi_time_phase(&clock, &r->stats.seconds_decode);
    if (owner && status == FRUG_OK)
        status = (s->down ? compress_sum : encode_nonzeros)(r, x, &own_bytes);
    frugi_time_phase(&clock, &r->stats.seconds_compress);
    FRUG_TRY(frugi_sync(r, x, status, own_bytes, r->recv_buf.bytes));
    frugi_time_phase(&clock, NULL);
    FRUG_TRY(send_down(r, x, own_bytes));
    frugi_time_phase(&clock, &r->stats.seconds_wire);
    return confirm_and_apply(r, x, own_bytes);
}

const frugi_algorithm frugi_reduce_split = {.name = "split", .create = create, .run = run, .destroy = destroy};
