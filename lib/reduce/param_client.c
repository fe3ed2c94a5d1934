/*
 * param_client.c - the worker side of parameter servers: compress and push, pull and apply.
 *
 * Requests are sent to all servers at the same time. A pull that has to wait for another worker gets the reply RETRY
 * and is sent again, so that neither side runs into its timeout because a third one is slow. Cost: param_server.c.
 */
#include "frugrad/experimental.h"
#include "base/struct_size.h"
#include "reduce/param_message.h"
#include "reduce/reducer.h"

#include "base/alloc.h"
#include "base/float_bits.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "compress/exact_frame.h"

/** The connection to one server. */
typedef struct connection {
    uint64_t begin, count; /* its range */
    size_t bound;          /* of a frame for it */
    size_t payload_max;    /* bytes of a payload of updates */
    bool done;
    frugi_buffer frame, payload;
    size_t len;
    frugi_param_msg reply; /* its last message */
    unsigned char in[FRUGI_PARAM_MSG_BYTES], out[FRUGI_PARAM_MSG_BYTES];
} connection;

struct frug_client {
    frug_comm *comm;
    frug_compressor *c;
    uint64_t epoch, start_step;
    connection *connection;
    size_t connections;
    frug_message *message; /* three per server */
    bool pushed;           /* and not pulled since; the push was: */
    uint64_t step;
    float rate, decay;
    bool closed;
    frug_reduce_stats stats;
};

/* ---- requests and replies ------------------------------------------------------------ */

static void encode_request(frug_client *client, connection *conn, frugi_param_kind kind) {
    frugi_param_msg request = {.kind = (uint32_t)kind,
                               .epoch = client->epoch,
                               .step = client->step,
                               .rank = (uint32_t)client->comm->rank,
                               .begin = conn->begin,
                               .count = conn->count,
                               .bytes = kind == FRUGI_PARAM_PUSH ? conn->len : 0,
                               .hash = kind == FRUGI_PARAM_HELLO ? frugi_server_hash(client->c) : 0,
                               .rate = client->rate,
                               .decay = client->decay};
    frugi_param_msg_encode(&request, conn->out);
}

static frug_status decode_reply(const frug_client *client, size_t i) {
    connection *conn = &client->connection[i];
    FRUG_TRY(frugi_param_msg_decode(conn->in, &conn->reply));
    FRUG_FAIL_IF(conn->reply.kind == FRUGI_PARAM_REFUSED, FRUG_ERR_REMOTE,
                 "client: server %zu refuses rank %d at step %llu: %s; see the log of the server", i,
                 client->comm->rank, (unsigned long long)client->step,
                 frug_status_text((frug_status)conn->reply.status));
    FRUG_FAIL_IF((conn->reply.kind != FRUGI_PARAM_DONE && conn->reply.kind != FRUGI_PARAM_RETRY) ||
                     conn->reply.epoch != client->epoch || conn->reply.begin != conn->begin ||
                     conn->reply.count != conn->count,
                 FRUG_ERR_FORMAT, "client: unexpected reply of server %zu", i);
    return FRUG_OK;
}

/* Wait for the replies first: a server that refuses a request does not receive its frame. */
static frug_status post_and_wait(frug_client *client, size_t replies, size_t all) {
    size_t posted = 0;
    frug_status status = FRUG_OK;
    while (status == FRUG_OK && posted < all)
        status = frugi_comm_post(client->comm, &client->message[posted++]);
    if (status == FRUG_OK)
        status = frugi_comm_wait(client->comm, client->message, replies);
    for (size_t i = 0; status == FRUG_OK && i < client->connections; i++)
        if (!client->connection[i].done)
            status = decode_reply(client, i);
    if (status == FRUG_OK)
        return frugi_comm_wait(client->comm, client->message + replies, all - replies);
    frugi_comm_abandon(client->comm, client->message, posted);
    return status;
}

/* Send a request, and the frame of a push, to each server that has not replied DONE yet, and wait for the replies. */
static frug_status exchange_requests(frug_client *client, frugi_param_kind kind) {
    size_t n = 0, replies = 0;
    for (size_t i = 0; i < client->connections; i++)
        if (!client->connection[i].done)
            client->message[n++] = (frug_message){.peer = (int)i,
                                                  .tag = frugi_param_tag(FRUGI_TAG_PARAM_REPLY, client->epoch),
                                                  .data = client->connection[i].in,
                                                  .bytes = FRUGI_PARAM_MSG_BYTES};
    replies = n;
    for (size_t i = 0; i < client->connections; i++) {
        connection *conn = &client->connection[i];
        if (conn->done)
            continue;
        encode_request(client, conn, kind);
        client->message[n++] = (frug_message){.peer = (int)i,
                                              .tag = FRUGI_TAG_PARAM_REQUEST,
                                              .sending = 1,
                                              .data = conn->out,
                                              .bytes = FRUGI_PARAM_MSG_BYTES};
        if (kind == FRUGI_PARAM_PUSH)
            client->message[n++] = (frug_message){.peer = (int)i,
                                                  .tag = frugi_param_tag(FRUGI_TAG_PARAM_FRAME, client->epoch),
                                                  .sending = 1,
                                                  .data = conn->frame.data,
                                                  .bytes = conn->len};
    }
    return post_and_wait(client, replies, n);
}

/* Receive the payloads that the last replies announce. */
static frug_status receive_payloads(frug_client *client, frugi_param_kind kind) {
    size_t n = 0;
    for (size_t i = 0; i < client->connections; i++) {
        connection *conn = &client->connection[i];
        if (conn->done || !conn->reply.bytes)
            continue;
        size_t limit = kind == FRUGI_PARAM_HELLO  ? (size_t)conn->count * sizeof(float)
                       : kind == FRUGI_PARAM_PULL ? conn->payload_max
                                                  : 0;
        FRUG_FAIL_IF(conn->reply.bytes > limit, FRUG_ERR_FORMAT,
                     "client: server %zu announces %llu bytes, more than the bound", i,
                     (unsigned long long)conn->reply.bytes);
        FRUG_TRY(frugi_buffer_reserve(&conn->payload, (size_t)conn->reply.bytes));
        client->message[n++] = (frug_message){.peer = (int)i,
                                              .tag = frugi_param_tag(FRUGI_TAG_PARAM_PAYLOAD, client->epoch),
                                              .data = conn->payload.data,
                                              .bytes = (size_t)conn->reply.bytes};
        client->stats.bytes_received += conn->reply.bytes;
    }
    FRUG_TRY(frugi_comm_exchange(client->comm, client->message, n));
    for (size_t i = 0; i < client->connections; i++) {
        connection *conn = &client->connection[i];
        FRUG_FAIL_IF(!conn->done && conn->reply.bytes &&
                         conn->reply.hash != frugi_crc32c(0, conn->payload.data, (size_t)conn->reply.bytes),
                     FRUG_ERR_CHECKSUM, "client: bad checksum of the payload of server %zu", i);
    }
    return FRUG_OK;
}

/* Send a request to all servers; again to those that reply RETRY. */
static frug_status request_until_done(frug_client *client, frugi_param_kind kind) {
    size_t done = 0;
    for (size_t i = 0; i < client->connections; i++)
        client->connection[i].done = false;
    while (done < client->connections) {
        FRUG_TRY(exchange_requests(client, kind));
        FRUG_TRY(receive_payloads(client, kind));
        done = 0;
        for (size_t i = 0; i < client->connections; i++) {
            connection *conn = &client->connection[i];
            conn->done |= conn->reply.kind == FRUGI_PARAM_DONE;
            done += conn->done;
        }
    }
    return FRUG_OK;
}

/* After an error the state of the protocol is unknown, so the client is closed. */
static frug_status request_all(frug_client *client, frugi_param_kind kind) {
    FRUG_FAIL_IF(client->closed, FRUG_ERR_REMOTE, "client: closed, because it has left or an earlier call has failed");
    frug_status status = request_until_done(client, kind);
    client->closed = status != FRUG_OK || kind == FRUGI_PARAM_LEAVE;
    return status;
}

/* ---- push and pull ------------------------------------------------------------------- */

frug_status frug_client_push(frug_client *client, uint64_t step, const float *grad, double rate, double decay) {
    FRUG_FAIL_IF(!client || !grad, FRUG_ERR_ARG, "client: client or gradient is NULL");
    FRUG_FAIL_IF(client->pushed && step != client->step, FRUG_ERR_ARG,
                 "client: step %llu was pushed and must be pulled first", (unsigned long long)client->step);
    FRUG_FAIL_IF(step == UINT64_MAX, FRUG_ERR_ARG, "client: step out of range");
    double begin = frugi_clock(), clock = begin;
    for (size_t i = 0; !client->pushed && i < client->connections; i++) {
        connection *conn = &client->connection[i];
        FRUG_TRY(frug_compress(client->c, step, (frug_range){conn->begin, conn->count}, grad + conn->begin,
                               conn->frame.data, conn->frame.bytes, &conn->len));
    }
    client->step = step;
    client->rate = (float)rate;
    client->decay = (float)decay;
    client->pushed = true;
    frugi_time_phase(&clock, &client->stats.seconds_compress);
    FRUG_TRY(request_all(client, FRUGI_PARAM_PUSH));
    for (size_t i = 0; i < client->connections; i++)
        client->stats.bytes_sent += client->connection[i].len;
    client->stats.calls++;
    frugi_time_phase(&clock, &client->stats.seconds_wire);
    client->stats.seconds_total += clock - begin;
    return FRUG_OK;
}

/* Apply the updates of one server, in the order of its log. */
static frug_status apply_updates(frug_client *client, const connection *conn, float *weights) {
    size_t at = 0, bytes = (size_t)conn->reply.bytes;
    for (uint32_t i = 0; i < conn->reply.entries; i++) {
        frugi_target t = {.dst = weights + conn->begin, .begin = conn->begin, .count = conn->count};
        FRUG_FAIL_IF(bytes - at < FRUGI_UPDATE_HEADER, FRUG_ERR_FORMAT, "client: truncated updates");
        const unsigned char *prefix = conn->payload.data + at;
        uint64_t len = frugi_get64(prefix);
        at += FRUGI_UPDATE_HEADER;
        FRUG_FAIL_IF(len > bytes - at, FRUG_ERR_FORMAT, "client: truncated updates");
        memcpy(&t.gain, prefix + 8, 4);
        memcpy(&t.keep, prefix + 12, 4);
        const void *frame = conn->payload.data + at;
        size_t frame_len = (size_t)len;
        FRUG_TRY(frugi_frames_open(frug_compressor_decoder(client->c), &frame, &frame_len, 1, &t));
        FRUG_TRY(frugi_frames_sum(frug_compressor_decoder(client->c), 1, &t));
        at += frame_len;
    }
    return FRUG_OK;
}

frug_status frug_client_pull(frug_client *client, float *weights) {
    FRUG_FAIL_IF(!client || !weights, FRUG_ERR_ARG, "client: client or weights is NULL");
    FRUG_FAIL_IF(!client->pushed, FRUG_ERR_ARG, "client: nothing has been pushed since the last pull");
    double begin = frugi_clock(), clock = begin;
    FRUG_TRY(request_all(client, FRUGI_PARAM_PULL));
    frugi_time_phase(&clock, &client->stats.seconds_wait);
    frug_status status = FRUG_OK;
    for (size_t i = 0; status == FRUG_OK && i < client->connections; i++)
        status = apply_updates(client, &client->connection[i], weights);
    client->pushed = false;
    client->closed = status != FRUG_OK;
    frugi_time_phase(&clock, &client->stats.seconds_decode);
    client->stats.seconds_total += clock - begin;
    return status;
}

frug_status frug_client_leave(frug_client *client) {
    FRUG_FAIL_IF(!client, FRUG_ERR_ARG, "client: client is NULL");
    return request_all(client, FRUGI_PARAM_LEAVE);
}

frug_compressor *frug_client_compressor(frug_client *client) {
    return client ? client->c : NULL;
}

uint64_t frug_client_start(const frug_client *client) {
    return client ? client->start_step : 0;
}

frug_status frug_client_stats(const frug_client *client, frug_reduce_stats *stats) {
    FRUG_FAIL_IF(!client || !frugi_struct_valid(stats), FRUG_ERR_ARG,
                 "client: client or statistics is NULL, or struct_size is not set");
    frugi_struct_write(stats, &client->stats);
    return FRUG_OK;
}

/* ---- creation ---------------------------------------------------------------------------- */

static frug_status create_connections(frug_client *client) {
    const struct frug_config *config = frugi_compressor_config(client->c);
    size_t log = frugi_server_log_capacity(config, client->comm);
    client->connections = (size_t)config->servers;
    client->connection = frugi_calloc(client->connections, sizeof *client->connection);
    client->message = frugi_calloc(3 * client->connections, sizeof *client->message);
    FRUG_FAIL_IF(!client->connection || !client->message, FRUG_ERR_MEMORY, "client: out of memory");
    for (size_t i = 0; i < client->connections; i++) {
        connection *conn = &client->connection[i];
        conn->begin = frugi_server_begin(client->c, i);
        conn->count = frugi_server_begin(client->c, i + 1) - conn->begin;
        FRUG_TRY(frug_compressor_bound(client->c, (frug_range){conn->begin, conn->count}, &conn->bound));
        FRUG_TRY(frugi_buffer_reserve(&conn->frame, conn->bound));
        size_t sum = frugi_exact_frame_bound(client->c, conn->begin, conn->count, conn->count);
        conn->payload_max = log * (FRUGI_UPDATE_HEADER + (sum > conn->bound ? sum : conn->bound));
    }
    return FRUG_OK;
}

/* Join: the servers reply with the weights of their ranges. */
static frug_status join_servers(frug_client *client, float *weights) {
    FRUG_TRY(request_all(client, FRUGI_PARAM_HELLO));
    for (size_t i = 0; i < client->connections; i++) {
        const connection *conn = &client->connection[i];
        FRUG_FAIL_IF(conn->reply.bytes != conn->count * sizeof(float), FRUG_ERR_FORMAT,
                     "client: server %zu sends %llu bytes of weights, expected %llu", i,
                     (unsigned long long)conn->reply.bytes, (unsigned long long)(conn->count * sizeof(float)));
        if (conn->count)
            memcpy(weights + conn->begin, conn->payload.data, (size_t)conn->reply.bytes);
        client->start_step = conn->reply.step > client->start_step ? conn->reply.step : client->start_step;
    }
    return FRUG_OK;
}

static frug_status init_client(frug_client *client, const frug_config *config, const frug_layout *layout,
                               const frug_compressor_options *options, float *weights) {
    frug_compressor_options client_options = FRUG_COMPRESSOR_OPTIONS_INIT;
    FRUG_FAIL_IF(options && !frugi_struct_valid(options), FRUG_ERR_ARG,
                 "client: initialize options with FRUG_COMPRESSOR_OPTIONS_INIT");
    if (options)
        frugi_struct_read(&client_options, options);
    client_options.source = (uint32_t)client->comm->rank;
    FRUG_TRY(frugi_check_servers(config, client->comm));
    FRUG_FAIL_IF((uint64_t)client->comm->rank < config->servers, FRUG_ERR_ARG,
                 "client: rank %d is a server, workers are the other ranks", client->comm->rank);
    FRUG_TRY(frug_compressor_create(config, layout, &client_options, &client->c));
    FRUG_TRY(create_connections(client));
    return join_servers(client, weights);
}

frug_status frug_client_create(const frug_config *config, const frug_layout *layout,
                               const frug_compressor_options *options, frug_comm *comm, uint64_t epoch, float *weights,
                               frug_client **client) {
    FRUG_FAIL_IF(!config || !layout || !comm || !weights || !client, FRUG_ERR_ARG,
                 "client: config, layout, comm, weights or result is NULL");
    frug_client *created = frugi_calloc(1, sizeof *created);
    FRUG_FAIL_IF(!created, FRUG_ERR_MEMORY, "client: out of memory");
    created->comm = comm;
    created->epoch = epoch;
    created->stats.struct_size = sizeof created->stats;
    frug_status status = init_client(created, config, layout, options, weights);
    if (status == FRUG_OK)
        *client = created;
    else
        frug_client_destroy(created);
    return status;
}

void frug_client_destroy(frug_client *client) {
    if (!client)
        return;
    for (size_t i = 0; client->connection && i < client->connections; i++) {
        frugi_free(client->connection[i].frame.data);
        frugi_free(client->connection[i].payload.data);
    }
    frugi_free(client->connection);
    frugi_free(client->message);
    frug_compressor_destroy(client->c);
    frugi_free(client);
}
