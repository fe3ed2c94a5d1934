/*
 * Function:     shared - everyone sends at the same places, so that values can be added up on their way.
 * Description:  At step t worker t mod P compresses as ever. The others get only the places it chose and take what
 *               they themselves have there, gradient and what was left behind; the rest stays behind. The values are
 *               summed by the transport's all-reduce, or in a ring. With rule=random all workers draw the same
 *               places, and at steps that send everything there is nothing to choose: nobody needs to tell.
 *               Places travel as gaps (index_gaps.h).
 * Cost:         two rounds of marks, log2 P for the places, 2 (P - 1) for the values. With k places: about k bytes
 *               in for the places, at most log2 P times as many out, and 8 k (P - 1) / P in and out for the values:
 *               what a worker sends hardly grows with P. Memory: five times the range in floats.
 * Limitations:  only the chooser sends what is largest; the more alike the workers' gradients, the better. Ranges of up
 *               to 2^32 elements. What a rule learns from step to step (threshold:track, frequency) it learns when
 *               its worker chooses. The order of the sum is the transport's.
 *
 * Example, 3 workers, one block of 4, 1 entry, step 0: 5 0 0 1, 1 0 7 0 and 2 0 0 0.
 *     rank 0 chooses place 0; everyone adds 8 0 0 0; rank 0 keeps the 1 and rank 1 the 7.
 */
#include "reduce/index_gaps.h"
#include "reduce/partial_sums.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "compress/given_indices.h"

#include <stdbool.h>
#include <string.h>

typedef struct shared {
    frugi_buffer sum;   /* dense */
    frugi_buffer place; /* u32, relative to the range */
    frugi_buffer value;
    uint64_t n;  /* places */
    size_t most; /* bytes that any places can take as gaps */
} shared;

static frug_status create(frug_reducer *r) {
    r->state = frugi_calloc(1, sizeof(shared));
    FRUG_FAIL_IF(!r->state, FRUG_ERR_MEMORY, "reduce: out of memory");
    return FRUG_OK;
}

static void destroy(frug_reducer *r) {
    shared *s = r->state;
    if (s) {
        frugi_free(s->sum.data);
        frugi_free(s->place.data);
        frugi_free(s->value.data);
    }
    frugi_free(s);
}

static uint32_t *places(const shared *s) {
    return (uint32_t *)(void *)s->place.data;
}

/* ---- the chooser ---------------------------------------------------------------------- */

/* Make all values of this worker's own frame ones, so that decoding it shows its places. */
static void fill_ones(frug_reducer *r, size_t len) {
    const float one = 1.0f;
    frugi_frame frame;
    frugi_section s;
    const unsigned char *payload;
    uint64_t at = 0;
    if (frugi_frame_open(r->send_buf.data, len, &frame) != FRUG_OK)
        return; /* cannot be: it was decoded before */
    while (frugi_frame_next(r->send_buf.data, &frame, &at, &s, &payload))
        for (uint64_t i = 0; i < s.entries; i++)
            memcpy(r->send_buf.data + (payload - r->send_buf.data) + s.value_at + 4 * i, &one, sizeof one);
    frugi_frame_seal(r->send_buf.data, len, r->compressor->threads);
}

static frug_status choose(frug_reducer *r, const frugi_exchange *x) {
    shared *s = r->state;
    size_t len = 0;
    float *ones = frugi_buffer_floats(&r->recv_buf), *sum = frugi_buffer_floats(&s->sum);
    FRUG_TRY(frugi_compress_range(r, x->step, x->begin, x->count, x->grad, &len));
    const void *frame = r->send_buf.data;
    FRUG_TRY(frugi_decode_frames(r->compressor, &frame, &len, 1, x->begin, x->count, sum));
    fill_ones(r, len);
    FRUG_TRY(frugi_decode_frames(r->compressor, &frame, &len, 1, x->begin, x->count, ones));
    s->n = 0;
    for (uint64_t i = 0; i < x->count; i++)
        if (ones[i] != 0.0f) {
            places(s)[s->n] = (uint32_t)i;
            frugi_buffer_floats(&s->value)[s->n++] = sum[i];
        }
    return FRUG_OK;
}

static frug_status prepare(frug_reducer *r, const frugi_exchange *x) {
    shared *s = r->state;
    size_t floats = (x->count + 1) * sizeof(float);
    s->n = 0;
    FRUG_TRY(frugi_check_range(r->compressor, x->begin, x->count));
    FRUG_FAIL_IF(x->count > UINT32_MAX, FRUG_ERR_ARG, "range: reduce=shared takes up to 2^32 elements in one go");
    s->most = frugi_gaps_bound(r->compressor, x->count);
    FRUG_TRY(frugi_buffer_reserve(&s->sum, floats));
    FRUG_TRY(frugi_buffer_reserve(&s->place, floats));
    FRUG_TRY(frugi_buffer_reserve(&s->value, floats));
    return frugi_buffer_reserve(&r->recv_buf, floats > s->most ? floats : s->most);
}

/* ---- the rounds --------------------------------------------------------------------- */

/* From the chooser to everyone, by a binomial tree. */
static frug_status spread(frug_reducer *r, int chooser, unsigned char *data, size_t bytes) {
    int size = r->comm->size, place = (r->comm->rank - chooser + size) % size, bit = 1;
    size_t n = 0;
    frug_message m = {.tag = FRUGI_TAG_FIRST, .data = data, .bytes = bytes};
    while (bit < size && !(place & bit))
        bit *= 2;
    if (place) {
        m.peer = (place - bit + chooser) % size;
        FRUG_TRY(frugi_comm_exchange(r->comm, &m, 1));
        r->stats.bytes_received += bytes;
    }
    for (bit /= 2; bit; bit /= 2)
        if (place + bit < size)
            r->message[n++] = (frug_message){.peer = (place + bit + chooser) % size,
                                             .tag = FRUGI_TAG_FIRST,
                                             .sending = 1,
                                             .data = data,
                                             .bytes = bytes};
    r->stats.bytes_sent += n * bytes;
    return frugi_comm_exchange(r->comm, r->message, n);
}

/* Places and values of a worker that does not choose. */
static frug_status follow(frug_reducer *r, const frugi_exchange *x, size_t bytes) {
    shared *s = r->state;
    float *value = frugi_buffer_floats(&s->value);
    memset(value, 0, s->n * sizeof(float)); /* in case of trouble: the others still want to be answered */
    FRUG_FAIL_IF(!frugi_gaps_decode(r->compressor, x->begin, x->count, r->recv_buf.data, bytes, places(s), s->n),
                 FRUG_ERR_FORMAT, "reduce: at step %llu the places were damaged on the way",
                 (unsigned long long)x->step);
    return frugi_take(r->compressor, x->step, x->begin, x->count, x->grad, places(s), s->n, value);
}

/* A ring passes on every part but one, twice. */
static void count_ring(frug_reducer *r, uint64_t n) {
    uint64_t size = (uint64_t)r->comm->size, rank = (uint64_t)r->comm->rank, part[3];
    for (uint64_t i = 0; i < 3; i++)
        part[i] = n / size + ((rank + i) % size < n % size);
    r->stats.bytes_sent += size > 1 ? (2 * n - part[1] - part[2]) * sizeof(float) : 0;
    r->stats.bytes_received += size > 1 ? (2 * n - part[0] - part[1]) * sizeof(float) : 0;
}

static void add(frug_reducer *r, const frugi_exchange *x) {
    const shared *s = r->state;
    float *sum = frugi_buffer_floats(&s->sum);
    memset(sum, 0, x->count * sizeof(float));
    for (uint64_t i = 0; i < s->n; i++)
        sum[places(s)[i]] = frugi_buffer_floats(&s->value)[i];
    frugi_apply_sum(r->compressor, x, sum);
}

/* Everyone knows the places: nobody tells, but all say how many. */
static frug_status agree(frug_reducer *r, const frugi_exchange *x, frug_status status) {
    shared *s = r->state;
    FRUG_TRY(frugi_sync(r, x, status, 0, s->n));
    for (int i = 1; i < r->comm->size; i++)
        FRUG_FAIL_IF(r->record[i].hash != r->record[0].hash, FRUG_ERR_REMOTE,
                     "reduce: at step %llu rank 0 sends %llu entries and rank %d %llu; what they were told may differ",
                     (unsigned long long)x->step, (unsigned long long)r->record[0].hash, i,
                     (unsigned long long)r->record[i].hash);
    return FRUG_OK;
}

/* Get places and values; *status is what went wrong here without keeping this worker from going on. */
static frug_status meet(frug_reducer *r, const frugi_exchange *x, frug_status *status) {
    shared *s = r->state;
    int chooser = (int)(x->step % (uint64_t)r->comm->size);
    bool known = r->compressor->config.rule == FRUGI_RULE_RANDOM || frugi_control_all(&r->compressor->config, x->step);
    bool mine = known || chooser == r->comm->rank;
    size_t bytes = 0;
    double t0 = frugi_clock();
    *status = prepare(r, x);
    if (*status == FRUG_OK && mine)
        *status = choose(r, x);
    if (*status == FRUG_OK && mine && !known)
        bytes = frugi_gaps_encode(r->compressor, x->begin, x->count, places(s), s->n, r->recv_buf.data);
    double t1 = frugi_clock();
    r->stats.seconds_compress += t1 - t0;
    if (known)
        return agree(r, x, *status);
    FRUG_TRY(frugi_sync(r, x, *status, bytes, s->n));
    double t2 = frugi_clock();
    const frugi_sync_record *m = &r->record[chooser];
    FRUG_FAIL_IF(m->bytes > s->most || m->hash > x->count, FRUG_ERR_REMOTE,
                 "reduce: at step %llu rank %d announces %llu places in %llu bytes", (unsigned long long)x->step,
                 chooser, (unsigned long long)m->hash, (unsigned long long)m->bytes);
    FRUG_TRY(spread(r, chooser, r->recv_buf.data, (size_t)m->bytes));
    double t3 = frugi_clock();
    s->n = m->hash;
    if (!mine)
        *status = follow(r, x, (size_t)m->bytes);
    r->stats.seconds_wire += t3 - t2;
    r->stats.seconds_compress += frugi_clock() - t3;
    return FRUG_OK;
}

static frug_status run(frug_reducer *r, const frugi_exchange *x) {
    shared *s = r->state;
    frug_status status = FRUG_OK;
    FRUG_TRY(meet(r, x, &status));
    float *value = frugi_buffer_floats(&s->value);
    double t0 = frugi_clock();
    FRUG_TRY(frugi_comm_allreduce(r->comm, value, s->n, frugi_buffer_floats(&r->recv_buf)));
    double t1 = frugi_clock();
    count_ring(r, s->n);
    uint32_t hash = status == FRUG_OK ? frugi_crc32c(0, s->place.data, s->n * sizeof(uint32_t)) : 0;
    FRUG_TRY(frugi_confirm(r, x, status, frugi_crc32c(hash, value, s->n * sizeof(float))));
    double t2 = frugi_clock();
    add(r, x);
    r->stats.seconds_wire += t1 - t0;
    r->stats.seconds_decode += frugi_clock() - t2;
    return FRUG_OK;
}

const frugi_algorithm frugi_reduce_shared = {.name = "shared", .create = create, .run = run, .destroy = destroy};
