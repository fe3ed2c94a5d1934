/*
 * param_client.c - a worker's end of parameter servers: compress and push, pull and apply.
 *
 * All servers are written to at once, and then their answers awaited. A pull that takes long is answered "not yet" and
 * asked again, so that neither side takes the other for dead while a third one is slow. Cost: param_server.c.
 */
#include "reduce/param_message.h"
#include "reduce/reducer.h"

#include "base/alloc.h"
#include "base/float_bits.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "compress/exact_frame.h"

/** A server, as this worker sees it. */
typedef struct line {
    uint64_t begin, count; /* its range */
    size_t bound;          /* of a frame for it */
    size_t parcel_most;    /* of a parcel of updates */
    bool answered;
    frugi_buffer frame, parcel;
    size_t len;
    frugi_param_msg letter; /* its answer */
    unsigned char in[FRUGI_PARAM_MSG_BYTES], out[FRUGI_PARAM_MSG_BYTES];
} line;

struct frug_client {
    frug_comm *comm;
    frug_compressor *c;
    uint64_t epoch, start;
    line *line;
    size_t lines;
    frug_message *message; /* three per server */
    bool pushed;           /* and not pulled since: */
    uint64_t step;
    float rate, decay;
    bool ended;
    frug_reduce_stats stats;
};

/* ---- a round of letters ------------------------------------------------------------ */

static void write_letter(frug_client *k, line *l, frugi_param_kind kind) {
    frugi_param_msg letter = {.kind = (uint32_t)kind,
                              .epoch = k->epoch,
                              .step = k->step,
                              .rank = (uint32_t)k->comm->rank,
                              .begin = l->begin,
                              .count = l->count,
                              .bytes = kind == FRUGI_PARAM_PUSH ? l->len : 0,
                              .hash = kind == FRUGI_PARAM_HELLO ? frugi_server_hash(k->c) : 0,
                              .rate = k->rate,
                              .decay = k->decay};
    frugi_param_msg_encode(&letter, l->out);
}

static frug_status read_answer(const frug_client *k, size_t i) {
    line *l = &k->line[i];
    FRUG_TRY(frugi_param_msg_decode(l->in, &l->letter));
    FRUG_FAIL_IF(l->letter.kind == FRUGI_PARAM_REFUSED, FRUG_ERR_REMOTE,
                 "server %zu refuses rank %d at step %llu: %s; its log says why", i, k->comm->rank,
                 (unsigned long long)k->step, frug_status_text((frug_status)l->letter.status));
    FRUG_FAIL_IF((l->letter.kind != FRUGI_PARAM_DONE && l->letter.kind != FRUGI_PARAM_RETRY) ||
                     l->letter.epoch != k->epoch || l->letter.begin != l->begin || l->letter.count != l->count,
                 FRUG_ERR_FORMAT, "client: server %zu answers something else", i);
    return FRUG_OK;
}

/* Answers first, which may say that the rest will not be taken. */
static frug_status write_and_wait(frug_client *k, size_t answers, size_t all) {
    size_t posted = 0;
    frug_status status = FRUG_OK;
    while (status == FRUG_OK && posted < all)
        status = frugi_comm_post(k->comm, &k->message[posted++]);
    if (status == FRUG_OK)
        status = frugi_comm_wait(k->comm, k->message, answers);
    for (size_t i = 0; status == FRUG_OK && i < k->lines; i++)
        if (!k->line[i].answered)
            status = read_answer(k, i);
    if (status == FRUG_OK)
        return frugi_comm_wait(k->comm, k->message + answers, all - answers);
    frugi_comm_abandon(k->comm, k->message, posted);
    return status;
}

/* A letter to each server that has not answered yet, with its frame where it is a push. */
static frug_status exchange_letters(frug_client *k, frugi_param_kind kind) {
    size_t n = 0, answers = 0;
    for (size_t i = 0; i < k->lines; i++)
        if (!k->line[i].answered)
            k->message[n++] = (frug_message){.peer = (int)i,
                                             .tag = frugi_param_tag(FRUGI_TAG_PARAM_REPLY, k->epoch),
                                             .data = k->line[i].in,
                                             .bytes = FRUGI_PARAM_MSG_BYTES};
    answers = n;
    for (size_t i = 0; i < k->lines; i++) {
        line *l = &k->line[i];
        if (l->answered)
            continue;
        write_letter(k, l, kind);
        k->message[n++] = (frug_message){.peer = (int)i,
                                         .tag = FRUGI_TAG_PARAM_REQUEST,
                                         .sending = 1,
                                         .data = l->out,
                                         .bytes = FRUGI_PARAM_MSG_BYTES};
        if (kind == FRUGI_PARAM_PUSH)
            k->message[n++] = (frug_message){.peer = (int)i,
                                             .tag = frugi_param_tag(FRUGI_TAG_PARAM_FRAME, k->epoch),
                                             .sending = 1,
                                             .data = l->frame.data,
                                             .bytes = l->len};
    }
    return write_and_wait(k, answers, n);
}

/* The parcels that the last answers announce. */
static frug_status take_parcels(frug_client *k, frugi_param_kind kind) {
    size_t n = 0;
    for (size_t i = 0; i < k->lines; i++) {
        line *l = &k->line[i];
        if (l->answered || !l->letter.bytes)
            continue;
        size_t most = kind == FRUGI_PARAM_HELLO  ? (size_t)l->count * sizeof(float)
                      : kind == FRUGI_PARAM_PULL ? l->parcel_most
                                                 : 0;
        FRUG_FAIL_IF(l->letter.bytes > most, FRUG_ERR_FORMAT, "client: server %zu announces %llu bytes", i,
                     (unsigned long long)l->letter.bytes);
        FRUG_TRY(frugi_buffer_reserve(&l->parcel, (size_t)l->letter.bytes));
        k->message[n++] = (frug_message){.peer = (int)i,
                                         .tag = frugi_param_tag(FRUGI_TAG_PARAM_PAYLOAD, k->epoch),
                                         .data = l->parcel.data,
                                         .bytes = (size_t)l->letter.bytes};
        k->stats.bytes_received += l->letter.bytes;
    }
    FRUG_TRY(frugi_comm_exchange(k->comm, k->message, n));
    for (size_t i = 0; i < k->lines; i++) {
        line *l = &k->line[i];
        FRUG_FAIL_IF(!l->answered && l->letter.bytes &&
                         l->letter.hash != frugi_crc32c(0, l->parcel.data, (size_t)l->letter.bytes),
                     FRUG_ERR_CHECKSUM, "client: what server %zu sends was damaged on the way", i);
    }
    return FRUG_OK;
}

/* Write until every server has answered. */
static frug_status converse(frug_client *k, frugi_param_kind kind) {
    size_t answered = 0;
    for (size_t i = 0; i < k->lines; i++)
        k->line[i].answered = false;
    while (answered < k->lines) {
        FRUG_TRY(exchange_letters(k, kind));
        FRUG_TRY(take_parcels(k, kind));
        answered = 0;
        for (size_t i = 0; i < k->lines; i++) {
            line *l = &k->line[i];
            l->answered |= l->letter.kind == FRUGI_PARAM_DONE;
            answered += l->answered;
        }
    }
    return FRUG_OK;
}

/* A client that has seen an error no longer knows where it stands. */
static frug_status talk(frug_client *k, frugi_param_kind kind) {
    FRUG_FAIL_IF(k->ended, FRUG_ERR_REMOTE, "client: it has ended with a goodbye or an error before");
    frug_status status = converse(k, kind);
    k->ended = status != FRUG_OK || kind == FRUGI_PARAM_LEAVE;
    return status;
}

/* ---- push and pull ------------------------------------------------------------------- */

frug_status frug_client_push(frug_client *k, uint64_t step, const float *grad, float rate, float decay) {
    FRUG_FAIL_IF(!k || !grad, FRUG_ERR_ARG, "client: none there, or no gradient");
    FRUG_FAIL_IF(k->pushed && step != k->step, FRUG_ERR_ARG, "client: step %llu was pushed and has to be pulled first",
                 (unsigned long long)k->step);
    FRUG_FAIL_IF(step == UINT64_MAX, FRUG_ERR_ARG, "client: no such step");
    double t0 = frugi_clock();
    for (size_t i = 0; !k->pushed && i < k->lines; i++) {
        line *l = &k->line[i];
        FRUG_TRY(
            frug_compress(k->c, step, l->begin, l->count, grad + l->begin, l->frame.data, l->frame.bytes, &l->len));
    }
    k->step = step;
    k->rate = rate;
    k->decay = decay;
    k->pushed = true;
    double t1 = frugi_clock();
    FRUG_TRY(talk(k, FRUGI_PARAM_PUSH));
    for (size_t i = 0; i < k->lines; i++)
        k->stats.bytes_sent += k->line[i].len;
    k->stats.calls++;
    k->stats.seconds_compress += t1 - t0;
    k->stats.seconds_wire += frugi_clock() - t1;
    k->stats.seconds_total += frugi_clock() - t0;
    return FRUG_OK;
}

/* The updates of one server, in its order. */
static frug_status apply(frug_client *k, const line *l, float *weights) {
    size_t at = 0, bytes = (size_t)l->letter.bytes;
    for (uint32_t i = 0; i < l->letter.entries; i++) {
        frugi_target t = {.dst = weights + l->begin, .begin = l->begin, .count = l->count};
        FRUG_FAIL_IF(bytes - at < FRUGI_UPDATE_HEADER, FRUG_ERR_FORMAT, "client: updates end too early");
        const unsigned char *prefix = l->parcel.data + at;
        uint64_t len = frugi_get64(prefix);
        at += FRUGI_UPDATE_HEADER;
        FRUG_FAIL_IF(len > bytes - at, FRUG_ERR_FORMAT, "client: updates end too early");
        memcpy(&t.gain, prefix + 8, 4);
        memcpy(&t.keep, prefix + 12, 4);
        const void *frame = l->parcel.data + at;
        size_t frame_len = (size_t)len;
        FRUG_TRY(frugi_frames_open(k->c, &frame, &frame_len, 1, &t));
        FRUG_TRY(frugi_frames_sum(k->c, 1, &t));
        at += frame_len;
    }
    return FRUG_OK;
}

frug_status frug_client_pull(frug_client *k, float *weights) {
    FRUG_FAIL_IF(!k || !weights, FRUG_ERR_ARG, "client: none there, or no weights");
    FRUG_FAIL_IF(!k->pushed, FRUG_ERR_ARG, "client: nothing has been pushed since the last pull");
    double t0 = frugi_clock();
    FRUG_TRY(talk(k, FRUGI_PARAM_PULL));
    double t1 = frugi_clock();
    frug_status status = FRUG_OK;
    for (size_t i = 0; status == FRUG_OK && i < k->lines; i++)
        status = apply(k, &k->line[i], weights);
    k->pushed = false;
    k->ended = status != FRUG_OK;
    k->stats.seconds_wait += t1 - t0;
    k->stats.seconds_decode += frugi_clock() - t1;
    k->stats.seconds_total += frugi_clock() - t0;
    return status;
}

frug_status frug_client_leave(frug_client *k) {
    FRUG_FAIL_IF(!k, FRUG_ERR_ARG, "client: none there");
    return talk(k, FRUGI_PARAM_LEAVE);
}

frug_compressor *frug_client_compressor(frug_client *k) {
    return k ? k->c : NULL;
}

uint64_t frug_client_start(const frug_client *k) {
    return k ? k->start : 0;
}

frug_status frug_client_stats(const frug_client *k, frug_reduce_stats *stats) {
    FRUG_FAIL_IF(!k || !stats || stats->struct_size < sizeof *stats, FRUG_ERR_ARG,
                 "client: none there, no place for the statistics or struct_size unset");
    *stats = k->stats;
    return FRUG_OK;
}

/* ---- making ----------------------------------------------------------------------------- */

static frug_status make_lines(frug_client *k) {
    size_t log = frugi_server_log_capacity(&k->c->config, k->comm);
    k->lines = (size_t)k->c->config.servers;
    k->line = frugi_calloc(k->lines, sizeof *k->line);
    k->message = frugi_calloc(3 * k->lines, sizeof *k->message);
    FRUG_FAIL_IF(!k->line || !k->message, FRUG_ERR_MEMORY, "client: out of memory");
    for (size_t i = 0; i < k->lines; i++) {
        line *l = &k->line[i];
        l->begin = frugi_server_begin(k->c, i);
        l->count = frugi_server_begin(k->c, i + 1) - l->begin;
        FRUG_TRY(frug_compressor_bound(k->c, l->begin, l->count, &l->bound));
        FRUG_TRY(frugi_buffer_reserve(&l->frame, l->bound));
        size_t sum = frugi_nonzeros_bound(k->c, l->begin, l->count, l->count);
        l->parcel_most = log * (FRUGI_UPDATE_HEADER + (sum > l->bound ? sum : l->bound));
    }
    return FRUG_OK;
}

/* Hello to all; the weights are what they answer. */
static frug_status join(frug_client *k, float *weights) {
    FRUG_TRY(talk(k, FRUGI_PARAM_HELLO));
    for (size_t i = 0; i < k->lines; i++) {
        const line *l = &k->line[i];
        FRUG_FAIL_IF(l->letter.bytes != l->count * sizeof(float), FRUG_ERR_FORMAT,
                     "client: server %zu sends %llu bytes of weights", i, (unsigned long long)l->letter.bytes);
        if (l->count)
            memcpy(weights + l->begin, l->parcel.data, (size_t)l->letter.bytes);
        k->start = l->letter.step > k->start ? l->letter.step : k->start;
    }
    return FRUG_OK;
}

static frug_status make(frug_client *k, const frug_config *config, const frug_layout *layout,
                        const frug_options *options, float *weights) {
    frug_options own = FRUG_OPTIONS_INIT;
    if (options)
        own = *options;
    own.source = (uint32_t)k->comm->rank;
    FRUG_TRY(frugi_check_servers(config, k->comm));
    FRUG_FAIL_IF((uint64_t)k->comm->rank < config->servers, FRUG_ERR_ARG, "client: rank %d is a server", k->comm->rank);
    FRUG_TRY(frug_compressor_create(config, layout, &own, &k->c));
    FRUG_TRY(make_lines(k));
    return join(k, weights);
}

frug_status frug_client_create(const frug_config *config, const frug_layout *layout, const frug_options *options,
                               frug_comm *comm, uint64_t epoch, float *weights, frug_client **client) {
    FRUG_FAIL_IF(!config || !layout || !comm || !weights || !client, FRUG_ERR_ARG,
                 "client: no config, layout, comm, weights or place for the result");
    frug_client *k = frugi_calloc(1, sizeof *k);
    FRUG_FAIL_IF(!k, FRUG_ERR_MEMORY, "client: out of memory");
    k->comm = comm;
    k->epoch = epoch;
    k->stats.struct_size = sizeof k->stats;
    frug_status status = make(k, config, layout, options, weights);
    if (status == FRUG_OK)
        *client = k;
    else
        frug_client_destroy(k);
    return status;
}

void frug_client_destroy(frug_client *k) {
    if (!k)
        return;
    for (size_t i = 0; k->line && i < k->lines; i++) {
        frugi_free(k->line[i].frame.data);
        frugi_free(k->line[i].parcel.data);
    }
    frugi_free(k->line);
    frugi_free(k->message);
    frug_compressor_destroy(k->c);
    frugi_free(k);
}
