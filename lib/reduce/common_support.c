/*
 * Function:     shared - common support: all ranks send the same indices, so that values can be summed by all-reduce.
 * Description:  At step t rank t mod P, the leader, selects entries as usual. The other ranks receive only its indices
 *               and send their own accumulator at these; the rest is their residual. The values are summed by the
 *               transport's all-reduce, or in a ring. With rule=random all ranks draw the same indices, and at dense
 *               steps all entries are sent: indices are implied then and not exchanged. Indices are encoded as gaps
 *               (index_gaps.h).
 * Cost:         two sync rounds, log2 P rounds for the indices, 2 (P - 1) for the values. With k indices: about k bytes
 *               received for the indices and at most log2 P times as many sent, and 8 k (P - 1) / P sent and received
 *               for the values: the bytes per rank hardly grow with P. Memory: five times the range in floats.
 * Limitations:  only the leader sends its largest entries; the more similar the gradients of the ranks, the better.
 *               Ranges of up to 2^32 elements. Rules with state (threshold:track, frequency) update it only on the
 *               leader. The order of the sum is the transport's.
 *
 * Example, 3 ranks, one block of 4, 1 entry, step 0: 5 0 0 1, 1 0 7 0 and 2 0 0 0.
 *     rank 0 selects index 0; all ranks add 8 0 0 0; the residual of rank 0 is the 1 and that of rank 1 the 7.
 */
#include "reduce/index_gaps.h"
#include "reduce/partial_sums.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "compress/given_indices.h"
#include "schedule/controller.h"

#include <stdbool.h>
#include <string.h>

typedef struct common_support {
    frugi_buffer sum;   /* dense */
    frugi_buffer index; /* u32, relative to the range */
    frugi_buffer value;
    uint64_t n;       /* number of indices */
    size_t max_bytes; /* bound of the encoded indices */
} common_support;

static frug_status create(frug_reducer *r) {
    r->state = frugi_calloc(1, sizeof(common_support));
    FRUG_FAIL_IF(!r->state, FRUG_ERR_MEMORY, "reduce: out of memory");
    return FRUG_OK;
}

static void destroy(frug_reducer *r) {
    common_support *s = r->state;
    if (s) {
        frugi_free(s->sum.data);
        frugi_free(s->index.data);
        frugi_free(s->value.data);
    }
    frugi_free(s);
}

static uint32_t *indices(const common_support *s) {
    return (uint32_t *)(void *)s->index.data;
}

/* ---- leader --------------------------------------------------------------------------- */

/* Set all values of the frame in send_buf to 1: decoding it then gives its indices, also of entries that are 0. */
static void set_values_to_one(frug_reducer *r, size_t len) {
    const float one = 1.0f;
    frugi_frame frame;
    frugi_section s;
    const unsigned char *payload;
    uint64_t at = 0;
    if (frugi_frame_open(r->send_buf.data, len, &frame) != FRUG_OK)
        return; /* not reached: it was decoded before */
    while (frugi_frame_next(r->send_buf.data, &frame, &at, &s, &payload))
        for (uint64_t i = 0; i < s.entries; i++)
            memcpy(r->send_buf.data + (payload - r->send_buf.data) + s.value_at + 4 * i, &one, sizeof one);
    frugi_frame_seal(r->send_buf.data, len, frugi_compressor_options(r->compressor).threads);
}

static frug_status compress_as_leader(frug_reducer *r, const frugi_exchange *x) {
    common_support *s = r->state;
    size_t len = 0;
    float *ones = frugi_buffer_floats(&r->recv_buf), *sum = frugi_buffer_floats(&s->sum);
    FRUG_TRY(frugi_compress_range(r, x->step, x->begin, x->count, x->grad, &len));
    const void *frame = r->send_buf.data;
    FRUG_TRY(frugi_decode_frames(r->compressor, &frame, &len, 1, x->begin, x->count, sum));
    set_values_to_one(r, len);
    FRUG_TRY(frugi_decode_frames(r->compressor, &frame, &len, 1, x->begin, x->count, ones));
    s->n = 0;
    for (uint64_t i = 0; i < x->count; i++)
        if (ones[i] != 0.0f) {
            indices(s)[s->n] = (uint32_t)i;
            frugi_buffer_floats(&s->value)[s->n++] = sum[i];
        }
    return FRUG_OK;
}

static frug_status prepare(frug_reducer *r, const frugi_exchange *x) {
    common_support *s = r->state;
    size_t floats = (x->count + 1) * sizeof(float);
    s->n = 0;
    FRUG_TRY(frugi_check_range(frugi_compressor_partition(r->compressor), x->begin, x->count));
    FRUG_FAIL_IF(x->count > UINT32_MAX, FRUG_ERR_ARG, "range: reduce=shared supports up to 2^32 elements per call");
    s->max_bytes = frugi_gaps_bound(r->compressor, x->count);
    FRUG_TRY(frugi_buffer_reserve(&s->sum, floats));
    FRUG_TRY(frugi_buffer_reserve(&s->index, floats));
    FRUG_TRY(frugi_buffer_reserve(&s->value, floats));
    return frugi_buffer_reserve(&r->recv_buf, floats > s->max_bytes ? floats : s->max_bytes);
}

/* ---- rounds -------------------------------------------------------------------------- */

/* Broadcast from the leader by a binomial tree. */
static frug_status broadcast(frug_reducer *r, int leader, unsigned char *data, size_t bytes) {
    int size = r->comm->size, position = (r->comm->rank - leader + size) % size, bit = 1;
    size_t n = 0;
    frug_message m = {.tag = FRUGI_TAG_FIRST, .data = data, .bytes = bytes};
    while (bit < size && !(position & bit))
        bit *= 2;
    if (position) {
        m.peer = (position - bit + leader) % size;
        FRUG_TRY(frugi_comm_exchange(r->comm, &m, 1));
        r->stats.bytes_received += bytes;
    }
    for (bit /= 2; bit; bit /= 2)
        if (position + bit < size)
            r->message[n++] = (frug_message){.peer = (position + bit + leader) % size,
                                             .tag = FRUGI_TAG_FIRST,
                                             .sending = 1,
                                             .data = data,
                                             .bytes = bytes};
    r->stats.bytes_sent += n * bytes;
    return frugi_comm_exchange(r->comm, r->message, n);
}

/* Decode the leader's indices and select this rank's values at them. */
static frug_status select_at_indices(frug_reducer *r, const frugi_exchange *x, size_t bytes) {
    common_support *s = r->state;
    float *value = frugi_buffer_floats(&s->value);
    memset(value, 0, s->n * sizeof(float)); /* on an error this rank still takes part in the all-reduce */
    FRUG_FAIL_IF(!frugi_gaps_decode(r->compressor, x->begin, x->count, r->recv_buf.data, bytes, indices(s), s->n),
                 FRUG_ERR_FORMAT, "reduce: at step %llu the received indices are damaged", (unsigned long long)x->step);
    return frugi_extract_values(r->compressor, x->step, x->begin, x->count, x->grad, indices(s), s->n, value);
}

/* A ring sends all chunks but one in each of its two phases. */
static void count_ring_bytes(frug_reducer *r, uint64_t n) {
    uint64_t size = (uint64_t)r->comm->size, rank = (uint64_t)r->comm->rank, chunk[3];
    for (uint64_t i = 0; i < 3; i++)
        chunk[i] = n / size + ((rank + i) % size < n % size);
    r->stats.bytes_sent += size > 1 ? (2 * n - chunk[1] - chunk[2]) * sizeof(float) : 0;
    r->stats.bytes_received += size > 1 ? (2 * n - chunk[0] - chunk[1]) * sizeof(float) : 0;
}

static void apply_values(frug_reducer *r, const frugi_exchange *x) {
    const common_support *s = r->state;
    float *sum = frugi_buffer_floats(&s->sum);
    memset(sum, 0, x->count * sizeof(float));
    for (uint64_t i = 0; i < s->n; i++)
        sum[indices(s)[i]] = frugi_buffer_floats(&s->value)[i];
    frugi_apply_sum(r->compressor, x, sum);
}

/* Indices are implied: exchange and compare only their number. */
static frug_status sync_implied_indices(frug_reducer *r, const frugi_exchange *x, frug_status status) {
    common_support *s = r->state;
    FRUG_TRY(frugi_sync(r, x, status, 0, s->n));
    for (int i = 1; i < r->comm->size; i++)
        FRUG_FAIL_IF(r->record[i].hash != r->record[0].hash, FRUG_ERR_REMOTE,
                     "reduce: at step %llu rank 0 sends %llu entries, but rank %d %llu; densities or norms set by the "
                     "callers may differ",
                     (unsigned long long)x->step, (unsigned long long)r->record[0].hash, i,
                     (unsigned long long)r->record[i].hash);
    return FRUG_OK;
}

/* Compute indices and values. *status is a local error after which this rank still takes part in the exchange. */
static frug_status exchange_indices(frug_reducer *r, const frugi_exchange *x, frug_status *status) {
    common_support *s = r->state;
    int leader = (int)(x->step % (uint64_t)r->comm->size);
    const struct frug_config *config = frugi_compressor_config(r->compressor);
    bool implied = config->rule == FRUGI_RULE_RANDOM || frugi_control_sends_all(config, x->step);
    bool is_leader = implied || leader == r->comm->rank;
    size_t bytes = 0;
    double clock = frugi_clock();
    *status = prepare(r, x);
    if (*status == FRUG_OK && is_leader)
        *status = compress_as_leader(r, x);
    if (*status == FRUG_OK && is_leader && !implied)
        bytes = frugi_gaps_encode(r->compressor, x->begin, x->count, indices(s), s->n, r->recv_buf.data);
    frugi_time_phase(&clock, &r->stats.seconds_compress);
    if (implied)
        return sync_implied_indices(r, x, *status);
    FRUG_TRY(frugi_sync(r, x, *status, bytes, s->n));
    frugi_time_phase(&clock, NULL);
    const frugi_sync_record *m = &r->record[leader];
    FRUG_FAIL_IF(m->bytes > s->max_bytes || m->hash > x->count, FRUG_ERR_REMOTE,
                 "reduce: at step %llu rank %d announces %llu indices in %llu bytes", (unsigned long long)x->step,
                 leader, (unsigned long long)m->hash, (unsigned long long)m->bytes);
    FRUG_TRY(broadcast(r, leader, r->recv_buf.data, (size_t)m->bytes));
    frugi_time_phase(&clock, &r->stats.seconds_wire);
    s->n = m->hash;
    if (!is_leader)
        *status = select_at_indices(r, x, (size_t)m->bytes);
    frugi_time_phase(&clock, &r->stats.seconds_compress);
    return FRUG_OK;
}

static frug_status run(frug_reducer *r, const frugi_exchange *x) {
    common_support *s = r->state;
    frug_status status = FRUG_OK;
    FRUG_TRY(exchange_indices(r, x, &status));
    float *value = frugi_buffer_floats(&s->value);
    double clock = frugi_clock();
    FRUG_TRY(frugi_comm_allreduce(r->comm, value, s->n, frugi_buffer_floats(&r->recv_buf)));
    frugi_time_phase(&clock, &r->stats.seconds_wire);
    count_ring_bytes(r, s->n);
    uint32_t hash = status == FRUG_OK ? frugi_crc32c(0, s->index.data, s->n * sizeof(uint32_t)) : 0;
    FRUG_TRY(frugi_confirm(r, x, status, frugi_crc32c(hash, value, s->n * sizeof(float))));
    frugi_time_phase(&clock, NULL);
    apply_values(r, x);
    frugi_time_phase(&clock, &r->stats.seconds_decode);
    return FRUG_OK;
}

const frugi_algorithm frugi_reduce_shared = {.name = "shared", .create = create, .run = run, .destroy = destroy};
